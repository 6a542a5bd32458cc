//! `difftool heatmap`: pictures of attention maps, pooled to any size.

mod data;
mod draw;
mod heads;

use super::flags;
use super::session::{How, Session};
use crate::bail_usage;
use crate::cli::{HeatmapArgs, MapKind, PoolingArg, TokenSpan};
use crate::experiment::{Setup, Show};
use crate::measure::{AnswerMeasure, MapMeasure, MapSpec, Measure};
use crate::memory::available_bytes;
use crate::probe::{Pooling, Quantity};
use crate::prompt::Region;
use crate::record::Record;
use crate::runfolder::{CELLS, RESULTS};
use crate::table::{left, percent_or_dash, right, short, Table};
use anyhow::{bail, Context, Result};
use data::{taken, write_data};
use draw::Picture;
use heads::Heads;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// Pixels per bin, at least: single pixels can hardly be seen.
const PIXELS_PER_BIN: usize = 2;

/// Runs the preset.
///
/// # Errors
/// Usage errors before anything runs; afterwards only what cannot be written.
pub(super) fn run(args: &HeatmapArgs) -> Result<()> {
    let run = &args.run;
    let ctx_tok = flags::one_ctx_tok(args.prompt.ctx.as_ref(), &run.model, &run.reading, "heatmap draws one prompt")?;
    check(args, ctx_tok)?;
    let (prompt, text) = (&args.prompt, args.text.as_deref());
    let grid = prompt.grid(ctx_tok, text);
    let experiment = flags::experiment(Show::Heatmap, &args.run, grid, prompt.haystack.as_deref(), text)?;
    let how = How::whole(&args.run.output);
    how.start_threads()?;
    let setup = Setup::load(experiment)?;
    let heads = Heads::find(&setup, args)?;
    let bins = if args.grid { args.size.min(draw::SMALL) as usize / 4 } else { args.size as usize / PIXELS_PER_BIN };
    let mut measure = MapMeasure::new(spec(args, Some(bins)), heads.selections.clone());
    measure.drawing_bytes = check_figure(&setup, args)?;
    let mut full = MapMeasure::new(spec(args, None), heads.selections.clone());
    let mut answer = AnswerMeasure { by_head: true };
    let mut shares = Vec::new();
    let mut see = |record: &Record| shares.extend(Share::of(record));
    let mut measures: Vec<&mut dyn Measure> = vec![&mut answer, &mut measure];
    if args.full {
        check_full(&setup, args, &heads)?;
        measures.push(&mut full);
    }
    let mut session = Session::run(setup, how, &mut measures, &mut see)?;
    if !session.run.is_complete() {
        return discard(&session);
    }
    if !measure.maps.is_empty() {
        let picture = Picture { args, heads: &heads, maps: &measure.maps };
        picture.draw(&mut session)?;
        if let Some(path) = &args.data {
            let models: Vec<&str> = session.setup.models.iter().map(|model| model.name.as_str()).collect();
            write_data(path, if args.full { &full.maps } else { &measure.maps }, args.full, &models, args.head)?;
        }
    }
    session.run.outputs.write_manifest(&session.setup)?;
    print(&drawn_layers(&session.setup, &heads, &shares), args)?;
    session.conclude()
}

/// Of one prompt there is all or nothing: a folder without its maps would only stand in the way of the next attempt.
fn discard(session: &Session) -> Result<()> {
    let folder = session.run.outputs.folder().path();
    for file in [RESULTS, CELLS] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
    bail!("stopped before the map was there; nothing is left in {}", folder.display())
}

/// The share of one head's output that one region gives, in the rows that are measured.
struct Share {
    model: String,
    layer: usize,
    head: usize,
    region: String,
    share_out: f64,
}

impl Share {
    fn of(record: &Record) -> Option<Self> {
        let m = &record.measure;
        let (layer, head, share_out) = (m.layer?, m.head?, m.value?);
        let region = m.region.as_deref().filter(|_| m.metric == "share_out")?.to_owned();
        Some(Self { model: record.identity.model.clone(), layer, head, region, share_out })
    }
}

/// A layer that was drawn, and what regions give its heads in the rows that predict the answer: means over the drawn heads.
#[derive(Serialize)]
struct DrawnLayer {
    model: String,
    layer: usize,
    heads: Vec<usize>,
    lambda: Option<f64>,
    share_out: BTreeMap<String, f64>,
}

fn drawn_layers(setup: &Setup, heads: &Heads, shares: &[Share]) -> Vec<DrawnLayer> {
    let mut drawn = Vec::new();
    for (model, selection) in setup.models.iter().zip(&heads.selections) {
        let own = |share: &&Share| share.model == model.name && selection.has(share.layer, share.head);
        let own: Vec<&Share> = shares.iter().filter(own).collect();
        for layer in own.iter().map(|share| share.layer).collect::<BTreeSet<_>>() {
            let of_layer = || own.iter().filter(|share| share.layer == layer);
            let heads_of: BTreeSet<usize> = of_layer().map(|share| share.head).collect();
            let mut share_out: BTreeMap<String, f64> = BTreeMap::new();
            for share in of_layer() {
                *share_out.entry(share.region.clone()).or_default() += share.share_out / heads_of.len() as f64;
            }
            let lambda = heads.lambda(&model.name, layer, selection);
            let heads = heads_of.into_iter().collect();
            drawn.push(DrawnLayer { model: model.name.clone(), layer, heads, lambda, share_out });
        }
    }
    drawn
}

fn print(drawn: &[DrawnLayer], args: &HeatmapArgs) -> Result<()> {
    let mut out = crate::terminal::stdout();
    if args.run.output.json {
        writeln!(out, "{:#}", json!({ "drawn": drawn }))?;
        return Ok(());
    }
    let occurs = |region: &Region| drawn.iter().any(|d| d.share_out.get(region.name()).is_some_and(|&x| x != 0.0));
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
        row.extend(regions.iter().map(|region| percent_or_dash(layer.share_out.get(region.name()).copied())));
        table.row(row);
    }
    let rows = if args.text.is_some() { "the last 32 rows" } else { "the rows that predict the answer" };
    writeln!(out, "What is drawn, and what each region gives the output of its heads in {rows}, in %\n\n{table}")?;
    Ok(())
}

/// What clap cannot check.
fn check(args: &HeatmapArgs, ctx_tok: usize) -> Result<()> {
    if let (Some(layer), Some(layers)) = (args.layer, args.run.select().layers) {
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
        check_data_folder(path, args.run.output.out.as_deref())?;
        if let Some(found) = taken(path) {
            let shown = path.display();
            bail_usage!("--data {shown}: {} exists already; results are never overwritten", found.display());
        }
    }
    Ok(())
}

/// Whether the matrices can be written there: found out before anything is measured, not after.
fn check_data_folder(path: &Path, out: Option<&Path>) -> Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if out.is_some_and(|out| {
        out == folder || out.canonicalize().ok().is_some_and(|out| folder.canonicalize().ok() == Some(out))
    }) {
        bail_usage!("--data {}: --out is the folder of the results; name a file elsewhere", path.display());
    }
    if !folder.is_dir() {
        bail_usage!("--data {}: there is no folder {}", path.display(), folder.display());
    }
    tempfile::tempfile_in(folder).with_context(|| format!("--data {}: cannot write there", path.display()))?;
    Ok(())
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

/// Pixels of a figure, at most: those of [`crate::plot`], found out before anything is measured.
const MOST_PIXELS: u64 = 36_000_000;

/// Bytes of a pixel while a figure is drawn finer than it is saved, and its texts are put on a copy, as measured.
const PIXEL_BYTES: u64 = 20;

/// Refuses maps that make too large a figure together; what drawing them takes, in bytes.
fn check_figure(setup: &Setup, args: &HeatmapArgs) -> Result<u64> {
    if args.grid {
        return Ok(0); // small multiples shrink
    }
    let panels = (setup.models.len() * quantities(args.map).len()) as u64;
    let map = u64::from(args.size) * u64::from(args.size);
    let pixels = panels * map * 5 / 4; // with the axes around them
    if pixels > MOST_PIXELS {
        let most = (MOST_PIXELS * 4 / 5 / panels).isqrt();
        bail_usage!("--size {}: a figure of {panels} maps of that size is too large; give at most {most}", args.size);
    }
    Ok(pixels * PIXEL_BYTES)
}

/// Refuses whole maps that would not fit.
fn check_full(setup: &Setup, args: &HeatmapArgs, heads: &Heads) -> Result<()> {
    let ctx_tok = setup.grid.ctx_tok()[0];
    let tokens = |span: &Option<TokenSpan>| {
        span.as_ref().map_or(ctx_tok, |span| span.end.unwrap_or(ctx_tok).min(ctx_tok).saturating_sub(span.start))
    };
    let (queries, keys) = (tokens(&args.query), tokens(&args.key));
    let maps: usize = setup
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
