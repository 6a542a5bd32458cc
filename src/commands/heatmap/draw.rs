//! The pictures: maps side by side, or every layer and head of a model as small multiples.

use crate::commands::heatmap::bins;
use crate::measures::{Maps, PassKey, PooledMap, RowQuantity};
use crate::results::table::short;
use crate::results::{of_model, under, Frame};
use crate::run::Run;
use crate::run::{MapFlags, MapKind, MAP_PX, SMALL_PX};
use anyhow::Result;
use base::bail_usage;
use engine::model::open::Model;
use names::metric::LAMBDA;
use names::{HeadPlace, LayersAndHeads};
use plot::{maps, small_maps, Bins, ColourScale, MapPanel, MapPanels, Profile, SmallMaps, TokenAxis};
use stats::mean;
use std::collections::BTreeMap;
use std::ops::Range;
use text::{text_rows, Grid};

const NOTHING: &str = "nothing to draw: no query in --query sees a key in --key";

/// Everything that is drawn.
pub(super) struct Picture<'a> {
    pub(super) spec: &'a MapFlags,
    /// The heads of each model.
    pub(super) drawn: &'a [LayersAndHeads],
    pub(super) frame: &'a Frame,
    pub(super) maps: &'a BTreeMap<PassKey, Maps>,
}

impl Picture<'_> {
    pub(super) fn draw(&self, run: &Run) -> Result<()> {
        if self.spec.every_head {
            return self.draw_grids(run);
        }
        let turns = self.signs_differ();
        let mut rows: Vec<Vec<MapPanel>> = Vec::new();
        for (&at, maps) in self.maps {
            let panels = (0..maps.maps.len()).map(|index| self.panel(run, at, maps, index, turns)).collect();
            rows.push(panels);
        }
        rows.retain(|row| !row.is_empty());
        if rows.is_empty() {
            bail_usage!("{NOTHING}");
        }
        let shared = shared_details(&mut rows);
        let note = if turns { " · signs turned where the sum is below 0" } else { "" };
        let subtitle = format!("{}{shared}{note} · {}", self.pooling(), run.setup().caption());
        let scale = self.scale(&run.setup().models);
        let drawn = MapPanels { scale, rows: arranged(rows), size_px: MAP_PX };
        let figure = maps(&drawn, &run.heading(self.title(&run.setup().models), &subtitle))?;
        run.save_figure(&figure, "heatmap", &self.pooling())
    }

    /// Title by the map that is drawn, with its formula where all of these models have two maps.
    fn title(&self, models: &[Model]) -> &'static str {
        let two = two_maps(models);
        match self.spec.map {
            MapKind::Logits1 if two == 0 => "Scaled logits",
            _ if two == 0 => "Attention",
            MapKind::Effective if two < models.len() => "Effective attention",
            MapKind::Effective => "Effective attention (A1 − λA2)",
            MapKind::A1 => "The first softmax map",
            MapKind::A2 => "The second softmax map",
            MapKind::Logits1 => "Scaled logits of the first map",
            MapKind::Logits2 => "Scaled logits of the second map",
            MapKind::All => "Both softmax maps and their difference",
        }
    }

    fn pooling(&self) -> String {
        let one_head = self.spec.every_head || self.spec.head.is_some();
        format!("{}largest magnitude of each bin", if one_head { "" } else { "mean over heads of the " })
    }

    /// One colour scale for all maps.
    fn scale(&self, models: &[Model]) -> ColourScale {
        let signed = two_maps(models) > 0;
        let (label, signed) = match self.spec.map {
            MapKind::Effective | MapKind::All => ("attention weight", signed),
            MapKind::A1 | MapKind::A2 => ("attention weight", false),
            MapKind::Logits1 | MapKind::Logits2 => ("logit", true),
        };
        ColourScale { label: label.to_owned(), signed }
    }

    /// Returns `true` if some effective maps are positive in sum, and others negative: what follows the attention of a head with λ
    /// above 1 takes either.
    fn signs_differ(&self) -> bool {
        let all = || self.maps.values().flat_map(|maps| &maps.maps);
        let effective = || all().filter(|(quantity, _, _)| *quantity == RowQuantity::Effective);
        effective().any(|(_, _, map)| sum(map) < 0.0) && effective().any(|(_, _, map)| sum(map) > 0.0)
    }

    /// The panel of one of the maps of a pass. `turns` turns the signs of an effective map that is negative in sum.
    fn panel(&self, run: &Run, at: PassKey, maps: &Maps, index: usize, turns: bool) -> MapPanel {
        let (quantity, HeadPlace { layer, .. }, grid) = &maps.maps[index];
        let name = &run.setup().models[at.model].name;
        let config = &run.setup().models[at.model].transformer.config;
        let heads = match self.spec.head {
            Some(head) => format!("head {head}"),
            None => format!("{} heads", self.drawn_heads(at.model, config.wiring().heads())),
        };
        let lambda = self.lambda(name, *layer, &self.drawn[at.model]);
        let lambda = lambda.map_or(String::new(), |lambda| format!(" · λ {}", short(Some(lambda))));
        let is_turned = turns && *quantity == RowQuantity::Effective && sum(grid) < 0.0;
        let sign = if is_turned { -1.0 } else { 1.0 };
        let map = if is_turned { "λA2 − A1" } else { quantity_name(*quantity, config.wiring().maps()) };
        let of_rows = match run.setup().grid {
            Grid::Text(_) => format!("the last {} rows", text_rows(maps.tokens.len())),
            _ => "the answer's rows".to_owned(),
        };
        let profile = maps.profiles.get(index).map(|(_, _, grid)| Profile {
            label: format!("largest of {of_rows}"),
            values: grid.values.iter().map(|&x| if x.is_nan() { 0.0 } else { sign * x }).collect(),
            top: profile_top(&grid.values),
        });
        let mut bins = bins(grid);
        bins.values.iter_mut().chain(&mut bins.sink).for_each(|value| *value *= sign);
        MapPanel {
            title: self.titled(run, at),
            detail: format!("{map} · layer {layer} · {heads}{lambda}"),
            bins,
            queries: axis(run, maps, &maps.queries),
            keys: axis(run, maps, &maps.keys),
            profile,
        }
    }

    fn drawn_heads(&self, model: usize, all: usize) -> usize {
        self.drawn[model].heads.as_ref().map_or(all, Vec::len)
    }

    /// Mean lambda over the drawn heads of a layer; nothing for standard attention.
    fn lambda(&self, model: &str, layer: usize, drawn: &LayersAndHeads) -> Option<f64> {
        let heads = self.frame.heads(LAMBDA.overall(), &[of_model(model), under(None)]).into_iter();
        let of_layer = heads.filter(|(at, _)| at.layer == layer && drawn.has(*at));
        mean(&of_layer.flat_map(|(_, values)| values.values()).collect::<Vec<f64>>())
    }

    /// The model, and what is done to it.
    fn titled(&self, run: &Run, at: PassKey) -> String {
        let model = &run.setup().models[at.model];
        let condition = &run.setup().conditions[at.condition];
        let name = self.frame.short_names.name(&model.name);
        if condition.is_untreated() {
            name.to_owned()
        } else {
            format!("{name}, {}", condition.words())
        }
    }

    /// One figure per model and condition: every layer and head that was asked for.
    fn draw_grids(&self, run: &Run) -> Result<()> {
        let mut drawn = 0;
        for (&at, maps) in self.maps {
            let mut layers: BTreeMap<usize, BTreeMap<usize, Bins>> = BTreeMap::new();
            for (_, HeadPlace { layer, head }, grid) in &maps.maps {
                layers.entry(*layer).or_default().insert(*head, bins(grid));
            }
            let Some(first) = layers.values().next() else { continue };
            let model = std::slice::from_ref(&run.setup().models[at.model]);
            let title = format!("{}: {}", self.title(model), self.titled(run, at));
            let subtitle = format!("every layer and head · {} · {}", self.pooling(), run.setup().caption());
            let maps = SmallMaps {
                queries: axis(run, maps, &maps.queries),
                keys: axis(run, maps, &maps.keys),
                scale: self.scale(model),
                heads: first.keys().map(ToString::to_string).collect(),
                layers: layers.keys().map(ToString::to_string).collect(),
                maps: layers.into_values().map(|heads| heads.into_values().collect()).collect(),
                size_px: SMALL_PX,
            };
            drawn += 1;
            let figure = small_maps(&maps, &run.heading(&title, &subtitle))?;
            run.save_figure(&figure, &format!("heatmap-{drawn}"), &self.pooling())?;
        }
        if drawn == 0 {
            bail_usage!("{NOTHING}");
        }
        Ok(())
    }
}

/// The sum of what is visible of a map.
fn sum(map: &PooledMap) -> f32 {
    map.values.iter().filter(|value| value.is_finite()).sum()
}

/// Takes out of the details of several panels what all of them say, to go on with a subtitle.
fn shared_details(rows: &mut [Vec<MapPanel>]) -> String {
    let first = rows[0][0].detail.clone();
    if rows.len() == 1 && rows[0].len() == 1 {
        return String::new();
    }
    let shared: Vec<&str> =
        first.split(" · ").filter(|part| rows.iter().flatten().all(|panel| says(panel, part))).collect();
    for panel in rows.iter_mut().flatten() {
        let own: Vec<&str> = panel.detail.split(" · ").filter(|part| !shared.contains(part)).collect();
        panel.detail = own.join(" · ");
    }
    shared.iter().map(|part| format!(" · {part}")).collect()
}

fn says(panel: &MapPanel, part: &str) -> bool {
    panel.detail.split(" · ").any(|other| other == part)
}

/// A row for each model with several maps; models with one each are beside each other.
fn arranged(rows: Vec<Vec<MapPanel>>) -> Vec<Vec<MapPanel>> {
    if rows.iter().any(|row| row.len() > 1) {
        return rows;
    }
    let all = rows.concat();
    let widths = [3, 2, 4].map(|across| all.len().min(across));
    let across = widths.into_iter().min_by_key(|&across| across * all.len().div_ceil(across)).unwrap_or(1);
    all.chunks(across).map(<[MapPanel]>::to_vec).collect()
}

/// The number of models with two maps per head.
fn two_maps(models: &[Model]) -> usize {
    models.iter().filter(|model| model.transformer.config.wiring().maps() > 1).count()
}

/// The tokens along a side of a map, with their regions; plain text has none.
fn axis(run: &Run, maps: &Maps, range: &Range<usize>) -> TokenAxis {
    let regions = maps.regions.iter().filter(|_| !matches!(run.setup().grid, Grid::Text(_)));
    let regions = regions.map(|(region, run)| (region.name().to_owned(), run.clone()));
    TokenAxis::new(range.clone(), regions, maps.tokens[range.clone()].to_vec())
}

fn quantity_name(quantity: RowQuantity, maps: usize) -> &'static str {
    match quantity {
        RowQuantity::Effective if maps > 1 => "A1 − λA2",
        RowQuantity::Effective | RowQuantity::Map(0) if maps == 1 => "A",
        RowQuantity::Effective | RowQuantity::Map(0) => "A1",
        RowQuantity::Map(_) => "A2",
        RowQuantity::Subtracted => "λA2",
        RowQuantity::Logits(0) if maps == 1 => "logits",
        RowQuantity::Logits(0) => "logits 1",
        RowQuantity::Logits(_) => "logits 2",
    }
}

/// Where a profile is cut so that one sink does not flatten the rest: above four times its second largest value.
fn profile_top(values: &[f32]) -> Option<f32> {
    let mut sorted: Vec<f32> = values.iter().map(|x| x.abs()).filter(|x| x.is_finite()).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    match sorted.as_slice() {
        [first, second, ..] if *first > 4.0 * second && *second > 0.0 => Some(1.25 * second),
        _ => None,
    }
}
