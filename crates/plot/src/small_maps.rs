//! Attention maps of every head as small multiples, layers × heads, on one colour scale.

use super::colour_scale::{draw_colour_bar, ColourScale, FittedScale, BAR_ROOM};
use super::figure::{Area, Figure, FigureHeading, MARGIN};
use super::legend::Legend;
use super::map_panel::Bins;
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use super::token_axis::TokenAxis;
use anyhow::Result;
use names::distinct;

/// The maps of the heads of one model.
#[derive(Clone, Debug)]
pub struct SmallMaps {
    pub scale: ColourScale,
    /// Names of the layers, which are the rows from the top.
    pub layers: Vec<String>,
    /// Names of the heads, which are the columns.
    pub heads: Vec<String>,
    /// `maps[layer][head]`, all of the same shape, with queries as rows and keys as columns.
    pub maps: Vec<Vec<Bins>>,
    /// The tokens of the rows and columns of each map, whose regions are marked beside the outer maps.
    pub queries: TokenAxis,
    pub keys: TokenAxis,
    /// Largest side of a map in pixels; smaller if there are many heads.
    pub size_px: u32,
}

/// Approximate room left and right of the maps. Many maps shrink to make room for it, but not below [`SMALLEST`].
const BESIDE: f64 = 170.0;
const SMALLEST: f64 = 24.0;
/// Room of a legend in some rows.
const LEGENDS: f64 = 120.0;
/// Gap between maps, at least in pixels, and as a fraction of their side.
const GAP: (f64, f64) = (3.0, 0.06);
/// Width of the sink column, as a fraction of the map's side and at least in pixels, and its distance from the map.
const SINK: (f64, f64, f64) = (0.08, 4.0, 2.0);
const LABEL: f64 = 36.0;
const NAME: TextFormat = TextFormat { em: 19.0, ..TICK };

/// Draws the maps of all heads, of which there is at least one.
///
/// # Errors
/// If the figure would be too large.
pub fn small_maps(heads: &SmallMaps, heading: &FigureHeading) -> Result<Figure> {
    let SmallMaps { scale, layers, maps, queries, keys, .. } = heads;
    let fitted = FittedScale::of_maps(scale.signed, maps.iter().flatten().flat_map(Bins::numbers));
    let subtitle = heading.subtitle_with(&[fitted.note()]);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let above = LABEL + NAME.em + 12.0;
    let rest = heading.room_below(0.0) - BAR_ROOM - above - MARGIN - LEGENDS;
    let layout = Layout::new(heads, heading.page.room() - BESIDE, rest);
    let (width, height) = layout.content(heads);
    let left = MARGIN + LABEL + widest(layers) + 12.0 + queries.band_thickness();
    let figure_width = left + width + MARGIN;
    let regions = distinct(keys.regions.iter().chain(&queries.regions).map(|(name, _)| name));
    let legend_room = heading.page.width_mm.map_or(figure_width, |_| heading.page.room()) - 2.0 * MARGIN;
    let legend = Legend::new(Legend::regions(&regions), legend_room);
    let body_height = legend.height() + BAR_ROOM + above + height + MARGIN;
    let (mut figure, top) = Figure::headed(&heading, figure_width, body_height)?;

    legend.draw(&mut figure, (MARGIN, top));
    let top = top + legend.height();
    draw_colour_bar(&mut figure, &fitted, &scale.label, (MARGIN, top), legend_room);
    let corner = (left + layout.sink, top + BAR_ROOM + above);
    for (layer, row) in maps.iter().enumerate() {
        for (head, bins) in row.iter().enumerate() {
            let x = corner.0 + layout.pitch.0 * head as f64;
            let y = corner.1 + layout.pitch.1 * layer as f64;
            let area = Area { x, y, width: layout.map.0, height: layout.map.1 };
            bins.draw(&mut figure, area, &fitted, (layout.sink - SINK.2, SINK.2));
            if head == 0 {
                queries.draw_band_left(&mut figure, Area { x: x - layout.sink, ..area });
            }
            if layer + 1 == maps.len() {
                keys.draw_band_below(&mut figure, Area { y: area.bottom(), ..area });
            }
        }
    }
    layout.draw_names(&mut figure, heads, corner);
    Ok(figure)
}

/// Sizes of maps.
struct Layout {
    /// Width and height of a map, with bins of whole pixels.
    map: (f64, f64),
    /// Room left of a map for its sink.
    sink: f64,
    /// Distance from one map to the next, across and down.
    pitch: (f64, f64),
}

impl Layout {
    /// Maps as large as fit into a width and a height, and as can be seen.
    fn new(heads: &SmallMaps, width: f64, height: f64) -> Self {
        let has_sinks = heads.maps.iter().flatten().any(|bins| !bins.sink.is_empty());
        let beside = if has_sinks { GAP.0 + SINK.1 + SINK.2 } else { GAP.0 };
        let high = (height / heads.layers.len() as f64 - GAP.0) / (1.0 + GAP.1);
        let room = (width / heads.heads.len() as f64 - beside).min(high).min(heads.size_px.into()).max(SMALLEST);
        let Bins { rows, columns, .. } = heads.maps[0][0];
        let [across, down] = [columns, rows].map(|bins| bins as f64 * (room / bins as f64).floor().max(1.0));
        let sink = if has_sinks { (SINK.0 * across).round().max(SINK.1) + SINK.2 } else { 0.0 };
        let gaps = [across, down].map(|side| (GAP.1 * side).round().max(GAP.0));
        Self { map: (across, down), sink, pitch: (across + sink + gaps[0], down + gaps[1]) }
    }

    /// The size of all maps together.
    fn content(&self, heads: &SmallMaps) -> (f64, f64) {
        (self.pitch.0 * heads.heads.len() as f64, self.pitch.1 * heads.layers.len() as f64)
    }

    /// Draws the names of layers and heads; only some of the heads if all names do not fit.
    fn draw_names(&self, figure: &mut Figure, heads: &SmallMaps, (left, top): (f64, f64)) {
        let Self { map, sink, pitch } = self;
        let before = left - sink - heads.queries.band_thickness();
        for (i, name) in heads.layers.iter().enumerate() {
            figure.text((before - 12.0, top + pitch.1 * i as f64 + map.1 / 2.0), name, NAME.at(Anchor::Right));
        }
        let step = ((widest(&heads.heads) + 6.0) / pitch.0).ceil() as usize;
        for (i, name) in heads.heads.iter().enumerate().step_by(step.max(1)) {
            figure.text((left + pitch.0 * i as f64 + map.0 / 2.0, top - 8.0 - NAME.em / 2.0), name, NAME);
        }
        let (width, height) = self.content(heads);
        let label = if *sink > 0.0 { "head (before each map: what its sink takes)" } else { "head" };
        figure.text((left - sink + width / 2.0, top - NAME.em - LABEL + 8.0), label, AXIS_LABEL);
        let x = before - 12.0 - widest(&heads.layers) - LABEL / 2.0;
        figure.text((x, top + height / 2.0), "layer", AXIS_LABEL.at(Anchor::Upward));
    }
}

fn widest(names: &[String]) -> f64 {
    names.iter().map(|name| NAME.width(name)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(layers: usize, heads: usize, bins: usize) -> SmallMaps {
        let map = Bins { rows: bins, columns: bins, values: vec![0.5; bins * bins], sink: Vec::new() };
        let names = |n: usize| (0..n).map(|i| i.to_string()).collect();
        SmallMaps {
            scale: ColourScale { label: "weight".into(), signed: false },
            layers: names(layers),
            heads: names(heads),
            maps: vec![vec![map; heads]; layers],
            queries: TokenAxis::new(0..512, [], Vec::new()),
            keys: TokenAxis::new(0..512, [("answer".into(), 30..40)], Vec::new()),
            size_px: 128,
        }
    }

    #[test]
    fn many_heads_make_small_maps() {
        let size = |layers: usize, of_layer: usize, bins: usize| {
            Layout::new(&heads(layers, of_layer, bins), 1500.0, f64::INFINITY).map
        };
        assert_eq!(size(4, 4, 32), (128.0, 128.0));
        assert_eq!(size(32, 32, 16), (32.0, 32.0));
        assert_eq!(size(2, 64, 8), (24.0, 24.0));
        assert!(small_maps(&heads(8, 32, 16), &FigureHeading::default()).is_ok());
    }

    #[test]
    fn what_sinks_take_has_room_before_each_map_and_a_place_on_the_scale() {
        let plain = heads(2, 3, 32);
        let mut with = plain.clone();
        with.maps.iter_mut().flatten().for_each(|map| map.sink = vec![0.9; 32]);
        assert_eq!((Layout::new(&plain, 1500.0, 9e9).sink, Layout::new(&with, 1500.0, 9e9).sink), (0.0, 12.0));
        let drawn = |heads: &SmallMaps| small_maps(heads, &FigureHeading::default()).unwrap();
        let plain = drawn(&plain);
        let with = drawn(&with);
        let images = |figure: &Figure| figure.elements.matches("<image").count();
        assert_eq!(images(&with), images(&plain) + 6);
        assert!(with.elements.contains("what its sink takes") && !plain.elements.contains("what its sink takes"));
        assert_eq!(with.width - plain.width, 3.0 * 12.0);
    }
}
