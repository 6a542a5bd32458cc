//! `difftool heatmap`: pictures of attention maps, pooled to any size.

use super::flags;
use super::session::{How, Session};
use crate::attention::Selection;
use crate::bail_usage;
use crate::cli::{HeatmapArgs, MapKind, PoolingArg, TokenSpan};
use crate::experiment::{Experiment, Grid as Prompts, NeedleGrid, Show, TextGrid};
use crate::measure::{AnswerMeasure, MapMeasure, MapSpec, Maps};
use crate::memory::available_bytes;
use crate::plot::{heatmap, heatmap_grid, Bins, ColourScale, HeadMaps, Heatmaps, MapPanel, Profile, Tokens};
use crate::probe::{Grid, Pooling, Quantity};
use crate::prompt::Region;
use crate::record::Record;
use crate::table::{left, percent_or_dash, right, short, Table};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Pixels per bin, at least: single pixels can hardly be seen.
const PIXELS_PER_BIN: usize = 2;
/// Largest side of a small multiple, in pixels.
const SMALL: u32 = 200;

/// Runs the preset.
///
/// # Errors
/// Usage errors before anything runs; afterwards only what cannot be written.
pub fn run(args: &HeatmapArgs) -> Result<()> {
    let run = &args.run;
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &run.model, &run.reading, "heatmap draws one prompt")?;
    check(args, ctx_tok)?;
    let prompts = prompts(args, ctx_tok);
    let experiment = flags::experiment(Show::Heatmap, &args.run, prompts, None, args.text.as_deref())?;
    let experiment = Experiment { haystack: args.haystack.clone(), ..experiment };
    let mut session = Session::open(experiment, How::whole(&args.run.output))?;
    let heads = Heads::find(&session, args)?;
    let bins = (args.size as usize / if args.grid { 4 } else { PIXELS_PER_BIN }).max(1);
    let mut measure = MapMeasure::new(spec(args, Some(bins)), heads.selections.clone());
    let mut full = MapMeasure::new(spec(args, None), heads.selections.clone());
    let mut answer = AnswerMeasure { by_head: true };
    let mut shares = Vec::new();
    let mut see = |record: &Record| shares.extend(Share::of(record));
    if args.full {
        check_full(&session, args, &heads)?;
        session.measure(&mut [&mut answer, &mut measure, &mut full], &mut see)?;
    } else {
        session.measure(&mut [&mut answer, &mut measure], &mut see)?;
    }
    if !measure.maps.is_empty() {
        let picture = Picture { args, heads: &heads, maps: &measure.maps };
        picture.draw(&mut session)?;
        if let Some(path) = &args.data {
            write_data(path, if args.full { &full.maps } else { &measure.maps }, args.full)?;
        }
    }
    if session.is_complete() {
        session.manifest()?;
    }
    print(&drawn_layers(&session, &heads, &shares), args)?;
    session.conclude()
}

/// The share of |attention| of one head on one region, in the rows that are measured.
struct Share {
    model: String,
    layer: usize,
    head: usize,
    region: String,
    share_abs: f64,
}

impl Share {
    fn of(record: &Record) -> Option<Self> {
        let m = &record.measure;
        let (layer, head, share_abs) = (m.layer?, m.head?, m.value?);
        let region = m.region.as_deref().filter(|_| m.metric == "share_abs")?.to_owned();
        Some(Self { model: record.identity.model.clone(), layer, head, region, share_abs })
    }
}

/// A layer that was drawn, and where its rows that predict the answer look: means over the drawn heads.
#[derive(Serialize)]
struct DrawnLayer {
    model: String,
    layer: usize,
    heads: Vec<usize>,
    lambda: Option<f64>,
    share_abs: BTreeMap<String, f64>,
}

fn drawn_layers(session: &Session, heads: &Heads, shares: &[Share]) -> Vec<DrawnLayer> {
    let mut drawn = Vec::new();
    for (model, selection) in session.models.iter().zip(&heads.selections) {
        let own = |share: &&Share| share.model == model.name && selection.has(share.layer, share.head);
        let own: Vec<&Share> = shares.iter().filter(own).collect();
        for layer in own.iter().map(|share| share.layer).collect::<BTreeSet<_>>() {
            let of_layer = || own.iter().filter(|share| share.layer == layer);
            let heads_of: BTreeSet<usize> = of_layer().map(|share| share.head).collect();
            let mut share_abs: BTreeMap<String, f64> = BTreeMap::new();
            for share in of_layer() {
                *share_abs.entry(share.region.clone()).or_default() += share.share_abs / heads_of.len() as f64;
            }
            let lambda = heads.lambda(&model.name, layer, selection);
            let heads = heads_of.into_iter().collect();
            drawn.push(DrawnLayer { model: model.name.clone(), layer, heads, lambda, share_abs });
        }
    }
    drawn
}

fn print(drawn: &[DrawnLayer], args: &HeatmapArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.run.output.json {
        writeln!(out, "{:#}", json!({ "drawn": drawn }))?;
        return Ok(());
    }
    let occurs = |region: &Region| drawn.iter().any(|d| d.share_abs.get(region.name()).is_some_and(|&x| x > 0.0));
    let regions: Vec<Region> = Region::ALL.into_iter().filter(occurs).collect();
    let mut columns = vec![left("model"), right("layer"), right("heads"), right("lambda")];
    columns.extend(regions.iter().map(|region| right(region.name())));
    let mut table = Table::new(&columns);
    for layer in drawn {
        let heads = match layer.heads.as_slice() {
            [head] => format!("only {head}"),
            heads => heads.len().to_string(),
        };
        let mut row = vec![layer.model.clone(), layer.layer.to_string(), heads, short(layer.lambda)];
        row.extend(regions.iter().map(|region| percent_or_dash(layer.share_abs.get(region.name()).copied())));
        table.row(row);
    }
    let rows = if args.text.is_some() { "the last 32 rows" } else { "the rows that predict the answer" };
    writeln!(out, "What is drawn, and the share of |attention| by region in {rows}, in %\n\n{table}")?;
    Ok(())
}

/// What clap cannot check.
fn check(args: &HeatmapArgs, ctx_tok: usize) -> Result<()> {
    if let (Some(layer), Some(layers)) = (args.layer, &args.run.layers) {
        if !layers.contains(&layer) {
            bail_usage!("--layer {layer} is not among --layers");
        }
    }
    for (flag, span) in [("--query", &args.query), ("--key", &args.key)] {
        if let Some(span) = span.as_ref().filter(|span| span.start >= ctx_tok) {
            bail_usage!("{flag} {}..: the prompt has tokens 0 to {}", span.start, ctx_tok - 1);
        }
    }
    let last_query = args.query.as_ref().and_then(|span| span.end);
    if let (Some(end), Some(key)) = (last_query, &args.key) {
        if key.start >= end {
            bail_usage!("--key {}..: no query before token {end} sees these keys", key.start);
        }
    }
    if args.grid && args.map == MapKind::All {
        bail_usage!("--grid draws one kind of map: give --map effective, a1, a2, logits1 or logits2");
    }
    if args.size < 64 || args.size > 4096 {
        bail_usage!("--size {}: a map can have 64 to 4096 pixels", args.size);
    }
    if let Some(path) = &args.data {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("npy" | "csv")) {
            bail_usage!("--data {}: the name must end in .npy or .csv", path.display());
        }
        for path in std::iter::once(path.clone()).chain((1..10).map(|i| numbered(path, i))) {
            if path.exists() {
                bail_usage!("--data {}: exists already; results are never overwritten", path.display());
            }
        }
    }
    Ok(())
}

fn prompts(args: &HeatmapArgs, ctx_tok: usize) -> Prompts {
    let ctx_tok = vec![ctx_tok];
    match args.text {
        Some(_) => Prompts::Text(TextGrid { ctx_tok, samples: 1, stride: None, seed: args.seed }),
        None => Prompts::Needle(NeedleGrid {
            ctx_tok,
            settings: vec![(args.needles, 1)],
            depths_pct: vec![args.depth],
            samples: 1,
            heldout_samples: 0,
            seed: args.seed,
        }),
    }
}

fn spec(args: &HeatmapArgs, bins: Option<usize>) -> MapSpec {
    let span = |span: &Option<TokenSpan>| span.as_ref().map_or((0, None), |span| (span.start, span.end));
    MapSpec {
        quantities: quantities(args.map),
        pooling: match args.pool {
            PoolingArg::Max => Pooling::Max,
            PoolingArg::Mean => Pooling::Mean,
            PoolingArg::Sum => Pooling::Sum,
        },
        bins,
        queries: span(&args.query),
        keys: span(&args.key),
        by_head: args.grid,
    }
}

fn quantities(kind: MapKind) -> Vec<Quantity> {
    match kind {
        MapKind::Effective => vec![Quantity::Effective],
        MapKind::A1 => vec![Quantity::Map(0)],
        MapKind::A2 => vec![Quantity::Map(1)],
        MapKind::Logits1 => vec![Quantity::Logits(0)],
        MapKind::Logits2 => vec![Quantity::Logits(1)],
        MapKind::All => vec![Quantity::Map(0), Quantity::Map(1), Quantity::Subtracted, Quantity::Effective],
    }
}

/// What is drawn of each model.
struct Heads {
    selections: Vec<Selection>,
    /// Mean lambda of the target's rows by model, layer and head; nothing for standard attention.
    lambda: BTreeMap<(String, usize, usize), f64>,
}

impl Heads {
    /// The layer and head asked for, or every one, or the layer with the most attention to the answer.
    fn find(session: &Session, args: &HeatmapArgs) -> Result<Self> {
        let mut answer: BTreeMap<(String, usize), f64> = BTreeMap::new();
        let mut lambda = BTreeMap::new();
        let mut see = |record: &Record| {
            let (model, m) = (&record.identity.model, &record.measure);
            let (Some(layer), Some(head), Some(value)) = (m.layer, m.head, m.value) else { return };
            if m.metric == "share_abs" && m.region.as_deref() == Some("answer") {
                *answer.entry((model.clone(), layer)).or_default() += value;
            }
            if m.metric == "lambda" {
                lambda.insert((model.clone(), layer, head), value);
            }
        };
        session.look(&mut [&mut AnswerMeasure { by_head: true }], &mut see)?;
        let mut selections = Vec::new();
        for model in &session.models {
            let config = &model.transformer.config;
            let heads = config.wiring().heads();
            for (flag, asked, have) in [("--layer", args.layer, config.layers.len()), ("--head", args.head, heads)] {
                if let Some(index) = asked.filter(|&index| index >= have) {
                    let what = &flag[2..];
                    bail_usage!("{flag} {index}: {} has {what}s 0 to {}", model.name, have - 1);
                }
            }
            let of_layer = |layer: &usize| answer.get(&(model.name.clone(), *layer)).copied().unwrap_or(0.0);
            let allowed = |layer: &usize| args.run.layers.as_ref().is_none_or(|layers| layers.contains(layer));
            // Of a text, where nothing is the answer, the last layer.
            let most = (0..config.layers.len()).filter(allowed).max_by(|a, b| of_layer(a).total_cmp(&of_layer(b)));
            selections.push(if args.grid {
                Selection { layers: args.run.layers.clone(), heads: args.run.heads.clone() }
            } else {
                let heads = args.head.map(|head| vec![head]).or(args.run.heads.clone());
                Selection { layers: args.layer.or(most).map(|layer| vec![layer]), heads }
            });
        }
        Ok(Self { selections, lambda })
    }

    /// Mean lambda over the drawn heads of a layer.
    fn lambda(&self, model: &str, layer: usize, selection: &Selection) -> Option<f64> {
        let drawn = |(name, of_layer, head): &(String, usize, usize)| {
            name == model && *of_layer == layer && selection.has(layer, *head)
        };
        let values: Vec<f64> = self.lambda.iter().filter(|(at, _)| drawn(at)).map(|(_, &value)| value).collect();
        crate::stats::mean(&values)
    }
}

/// Refuses whole maps that would not fit.
fn check_full(session: &Session, args: &HeatmapArgs, heads: &Heads) -> Result<()> {
    let ctx_tok = session.grid.ctx_tok()[0];
    let tokens = |span: &Option<TokenSpan>| {
        span.as_ref().map_or(ctx_tok, |span| span.end.unwrap_or(ctx_tok).min(ctx_tok).saturating_sub(span.start))
    };
    let (queries, keys) = (tokens(&args.query), tokens(&args.key));
    let maps: usize = session
        .models
        .iter()
        .zip(&heads.selections)
        .map(|(model, s)| s.heads.as_ref().map_or(model.transformer.config.wiring().heads(), Vec::len))
        .sum();
    // A bin holds a sum, a count and its value while the heads are gathered.
    let bytes = (queries * keys * maps * quantities(args.map).len()) as u64 * 24;
    if let Some(available) = available_bytes().filter(|&available| bytes > available / 2) {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        bail_usage!(
            "--full: {maps} maps of {queries} x {keys} tokens take about {:.1} GiB, {:.1} GiB are free; \
             zoom in with --query and --key, choose a --head, or leave --full out",
            gib(bytes),
            gib(available)
        );
    }
    Ok(())
}

/// Everything that is drawn.
struct Picture<'a> {
    args: &'a HeatmapArgs,
    heads: &'a Heads,
    maps: &'a BTreeMap<usize, Maps>,
}

impl Picture<'_> {
    fn draw(&self, session: &mut Session) -> Result<()> {
        if self.args.grid {
            return self.draw_grids(session);
        }
        let scales = self.scales(session);
        let mut rows: Vec<Vec<MapPanel>> = Vec::new();
        for (&model, maps) in self.maps {
            let of_model = maps.grids.iter().enumerate();
            let panels = of_model.map(|(i, found)| self.panel(session, model, maps, found, i, &scales)).collect();
            rows.push(panels);
        }
        rows.retain(|row| !row.is_empty());
        if rows.is_empty() {
            bail_usage!("{}", self.nothing());
        }
        if self.args.map != MapKind::All {
            rows = vec![rows.concat()]; // models side by side
        }
        let figure = heatmap(&Heatmaps {
            title: self.title(),
            subtitle: format!("{} · {}", self.pooling(), session.caption()),
            scales,
            rows,
            size_px: self.args.size,
        })?;
        self.save(session, &figure, "heatmap")
    }

    fn save(&self, session: &mut Session, figure: &crate::plot::Figure, name: &str) -> Result<()> {
        session.save(figure, &format!("{name}.png"), &self.pooling())?;
        if self.args.svg {
            session.save_svg(figure, &format!("{name}.svg"), &self.pooling())?;
        }
        Ok(())
    }

    fn title(&self) -> String {
        let what = match self.args.map {
            MapKind::Effective => "Effective attention (A1 − λA2, or the only map)",
            MapKind::A1 => "The first softmax map",
            MapKind::A2 => "The second softmax map",
            MapKind::Logits1 => "Scaled logits of the first map",
            MapKind::Logits2 => "Scaled logits of the second map",
            MapKind::All => "Both maps and their difference",
        };
        what.to_owned()
    }

    /// Why there is nothing to draw.
    fn nothing(&self) -> String {
        match self.args.map {
            MapKind::A2 | MapKind::Logits2 => "none of these models has a second map: give another --map".to_owned(),
            _ => "nothing to draw: no query in --query sees a key in --key".to_owned(),
        }
    }

    fn pooling(&self) -> String {
        let pool = match self.args.pool {
            PoolingArg::Max => "largest magnitude of each bin",
            PoolingArg::Mean => "mean of each bin",
            PoolingArg::Sum => "sum of each bin",
        };
        let one_head = self.args.grid || self.args.head.is_some();
        if one_head {
            pool.to_owned()
        } else {
            format!("mean over heads of the {pool}")
        }
    }

    /// One colour scale for everything that can be compared: softmax maps, signed mixtures, logits.
    fn scales(&self, session: &Session) -> Vec<ColourScale> {
        let signed = session.models.iter().any(|model| model.transformer.config.wiring().maps() > 1);
        let scale = |label: &str, signed| ColourScale { label: label.to_owned(), signed, log: self.args.log };
        match self.args.map {
            MapKind::Effective => vec![scale("attention weight", signed)],
            MapKind::A1 | MapKind::A2 => vec![scale("attention weight", false)],
            MapKind::Logits1 | MapKind::Logits2 => vec![scale("logit", true)],
            MapKind::All => vec![scale("attention weight", false), scale("A1 − λA2", true)],
        }
    }

    fn panel(
        &self,
        session: &Session,
        model: usize,
        maps: &Maps,
        (quantity, (layer, _), grid): &(Quantity, (usize, usize), Grid),
        index: usize,
        scales: &[ColourScale],
    ) -> MapPanel {
        let name = &session.models[model].name;
        let config = &session.models[model].transformer.config;
        let heads = match self.args.head {
            Some(head) => format!("head {head}"),
            None => format!("mean of {} heads", self.drawn_heads(model, config.wiring().heads())),
        };
        let lambda = self.heads.lambda(name, *layer, &self.heads.selections[model]);
        let lambda = lambda.map_or(String::new(), |lambda| format!(" · λ {}", short(Some(lambda))));
        let map = quantity_name(*quantity, config.wiring().maps());
        let regions: Vec<(String, Range<usize>)> =
            maps.regions.iter().map(|(region, range)| (region.name().to_owned(), range.clone())).collect();
        let is_text = self.args.text.is_some();
        let axis = |range: &Range<usize>, texts: &[String]| Tokens {
            range: range.clone(),
            regions: if is_text { Vec::new() } else { clipped(&regions, range) },
            texts: texts.to_vec(),
        };
        let profile = maps.profiles.get(index).map(|(_, _, grid)| Profile {
            label: if is_text { "last 32 rows".to_owned() } else { "rows that predict the answer".to_owned() },
            values: grid.values.iter().map(|&x| if x.is_nan() { 0.0 } else { x }).collect(),
            top: profile_top(&grid.values),
        });
        MapPanel {
            title: name.clone(),
            detail: format!("{map} · layer {layer} · {heads}{lambda}"),
            scale: if *quantity == Quantity::Effective { scales.len() - 1 } else { 0 },
            bins: bins(grid),
            queries: axis(&maps.queries, &maps.query_texts),
            keys: axis(&maps.keys, &maps.key_texts),
            profile,
        }
    }

    fn drawn_heads(&self, model: usize, all: usize) -> usize {
        self.heads.selections[model].heads.as_ref().map_or(all, Vec::len)
    }

    /// One figure per model: every layer and head that was asked for.
    fn draw_grids(&self, session: &mut Session) -> Result<()> {
        let scale = self.scales(session).remove(0);
        let mut drawn = 0;
        for (&model, maps) in self.maps {
            let mut layers: BTreeMap<usize, BTreeMap<usize, Bins>> = BTreeMap::new();
            for (_, (layer, head), grid) in &maps.grids {
                layers.entry(*layer).or_default().insert(*head, bins(grid));
            }
            let Some(first) = layers.values().next() else { continue };
            let name = session.models[model].name.clone();
            let figure = heatmap_grid(&HeadMaps {
                title: format!("{}: {name}", self.title()),
                subtitle: format!("every layer and head · {} · {}", self.pooling(), session.caption()),
                scale: scale.clone(),
                heads: first.keys().map(ToString::to_string).collect(),
                layers: layers.keys().map(ToString::to_string).collect(),
                maps: layers.into_values().map(|heads| heads.into_values().collect()).collect(),
                size_px: SMALL.min(self.args.size),
            })?;
            drawn += 1;
            self.save(session, &figure, &format!("heatmap-{}", model + 1))?;
        }
        if drawn == 0 {
            bail_usage!("{}", self.nothing());
        }
        Ok(())
    }
}

fn bins(grid: &Grid) -> Bins {
    Bins { rows: grid.rows, columns: grid.columns, values: grid.values.clone() }
}

fn quantity_name(quantity: Quantity, maps: usize) -> &'static str {
    match quantity {
        Quantity::Effective if maps > 1 => "A1 − λA2",
        Quantity::Effective | Quantity::Map(0) if maps == 1 => "A",
        Quantity::Effective | Quantity::Map(0) => "A1",
        Quantity::Map(_) => "A2",
        Quantity::Subtracted => "λA2",
        Quantity::Logits(0) => "logits 1",
        Quantity::Logits(_) => "logits 2",
    }
}

/// The parts of runs that lie in a range.
fn clipped(runs: &[(String, Range<usize>)], range: &Range<usize>) -> Vec<(String, Range<usize>)> {
    let part = |run: &Range<usize>| run.start.max(range.start)..run.end.min(range.end);
    runs.iter().map(|(name, run)| (name.clone(), part(run))).filter(|(_, run)| !run.is_empty()).collect()
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

/// `maps.npy` becomes `maps-2.npy`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{extension}"))
}

/// One file for each map, numbered if there are several: models in order, and for each its maps.
fn write_data(path: &Path, maps: &BTreeMap<usize, Maps>, full: bool) -> Result<()> {
    let grids: Vec<(Quantity, &Grid)> =
        maps.values().flat_map(|maps| maps.grids.iter().map(|(quantity, _, grid)| (*quantity, grid))).collect();
    for (i, (quantity, grid)) in grids.iter().enumerate() {
        let path = if grids.len() == 1 { path.to_owned() } else { numbered(path, i + 1) };
        // A weight that is masked is 0; a masked logit is no number.
        let is_logit = matches!(quantity, Quantity::Logits(_));
        let fill = |x: f32| if x.is_nan() && full && !is_logit { 0.0 } else { x };
        let values: Vec<f32> = grid.values.iter().map(|&x| fill(x)).collect();
        let cannot = || format!("cannot write {}", path.display());
        if path.extension().is_some_and(|extension| extension == "npy") {
            let shape = (grid.rows, grid.columns);
            let tensor = candle_core::Tensor::from_vec(values, shape, &candle_core::Device::Cpu)?;
            tensor.write_npy(&path).with_context(cannot)?;
        } else {
            write_csv(&path, grid, &values).with_context(cannot)?;
        }
    }
    Ok(())
}

/// A matrix with the first key of every column above it and the first query of every row before it.
fn write_csv(path: &Path, grid: &Grid, values: &[f32]) -> Result<()> {
    let mut csv = csv::Writer::from_path(path)?;
    let keys = grid.column_edges[..grid.columns].iter().map(ToString::to_string);
    csv.write_record(std::iter::once("query".to_owned()).chain(keys))?;
    for (row, query) in values.chunks(grid.columns).zip(&grid.row_edges) {
        let cells = row.iter().map(|x| if x.is_nan() { String::new() } else { x.to_string() });
        csv.write_record(std::iter::once(query.to_string()).chain(cells))?;
    }
    csv.flush()?;
    Ok(())
}
