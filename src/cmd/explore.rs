//! `difftool explore`: one HTML file to walk around in attention maps.

use super::flags;
use super::session::{How, Session};
use crate::bail_usage;
use crate::cli::ExploreArgs;
use crate::experiment::{Experiment, Grid, NeedleGrid, Setup, Show, TextGrid};
use crate::explore::{ExploreMeasure, Explored, Explorer, ModelMaps, Page, Resolution};
use crate::measure::{AnswerMeasure, ShapeMeasure, NOISE};
use crate::record::Record;
use crate::say;
use crate::terminal::{self, escaped};
use anyhow::{Context, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

/// Prompts up to this many tokens are pooled to [`FEW_BINS`] bins and fill a small page; longer ones [`MANY_BINS`].
const SHORT_TOK: usize = 8192;
const FEW_BINS: usize = 256;
const MANY_BINS: usize = 512;
const SMALL_MB: usize = 15;
const LARGE_MB: usize = 40;

/// Numbers in the small pictures of all heads of a model together, about.
const THUMB_BINS: f64 = 1.5e6;

/// The page in the run folder.
const PAGE: &str = "explore.html";

/// Numbers of every head: model, layer and head; name and value.
type Numbers = BTreeMap<String, BTreeMap<(usize, usize), BTreeMap<String, f64>>>;

/// Runs the preset.
///
/// # Errors
/// Usage errors before anything runs; afterwards only what cannot be written.
pub(super) fn run(args: &ExploreArgs) -> Result<()> {
    let run = &args.run;
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &run.model, &run.reading, "explore shows one prompt")?;
    if !(1..=64).contains(&args.keep) {
        bail_usage!("--keep {}: 1 to 64 heads can be kept token by token", args.keep);
    }
    let experiment = flags::experiment(Show::Explore, run, prompts(args, ctx_tok), None, args.text.as_deref())?;
    let experiment = Experiment { haystack: args.haystack.clone(), ..experiment };
    let how = How::whole(&run.output);
    how.start_threads()?;
    let setup = Setup::load(experiment)?;
    let resolutions = resolutions(&setup, args.keep);
    let mut maps = ExploreMeasure { resolutions, found: BTreeMap::new() };
    let mut numbers = Numbers::new();
    let mut see = |record: &Record| add_number(&mut numbers, record);
    let mut session =
        Session::run(setup, how, &mut [&mut AnswerMeasure { by_head: true }, &mut ShapeMeasure, &mut maps], &mut see)?;
    if !maps.found.is_empty() {
        let budget = args.max_mb.unwrap_or(if ctx_tok > SHORT_TOK { LARGE_MB } else { SMALL_MB }) * 1_000_000;
        let explorer = explorer(&session, &maps, &numbers, budget);
        let page = explorer.page()?;
        write_page(&mut session, &page, budget)?;
        print(&session, &maps, &page, args)?;
    }
    if session.run.is_complete() {
        session.run.outputs.write_manifest(&session.setup)?;
    }
    session.conclude()
}

fn prompts(args: &ExploreArgs, ctx_tok: usize) -> Grid {
    let ctx_tok = vec![ctx_tok];
    match args.text {
        Some(_) => Grid::Text(TextGrid { ctx_tok, samples: 1, stride: None, seed: args.seed }),
        None => Grid::Needle(NeedleGrid {
            ctx_tok,
            settings: vec![(args.needles, 1)],
            depths_pct: vec![args.depth],
            samples: 1,
            heldout_samples: 0,
            seed: args.seed,
        }),
    }
}

/// How much is kept of each model.
fn resolutions(setup: &Setup, keep: usize) -> Vec<Resolution> {
    let tokens = setup.grid.ctx_tok()[0];
    let bins = if tokens > SHORT_TOK { MANY_BINS } else { FEW_BINS };
    let bin_tok = tokens.div_ceil(bins).next_power_of_two();
    let resolution = |model: &crate::models::Model| {
        let config = &model.transformer.config;
        let heads = config.layers.len() * config.wiring().heads();
        let thumb_bins = ((THUMB_BINS / heads as f64).sqrt() as usize).clamp(16, 64);
        Resolution { maps: config.wiring().maps(), heads: keep, bin_tok, thumb_bins }
    };
    setup.models.iter().map(resolution).collect()
}

/// Takes note of a number of a head. Of several questions the first counts.
fn add_number(numbers: &mut Numbers, record: &Record) {
    let m = &record.measure;
    let (Some(layer), Some(head), Some(value)) = (m.layer, m.head, m.value) else { return };
    let name = m.region.as_deref().map_or(m.metric.to_string(), |region| format!("{} {region}", m.metric));
    let of_head = numbers.entry(record.identity.model.clone()).or_default().entry((layer, head)).or_default();
    if m.metric == "share_abs" && NOISE.iter().any(|noise| Some(noise.name()) == m.region.as_deref()) {
        *of_head.entry("noise_abs".to_owned()).or_default() += value;
    }
    of_head.entry(name).or_insert(value);
}

fn explorer<'a>(session: &'a Session, maps: &'a ExploreMeasure, numbers: &Numbers, budget: usize) -> Explorer<'a> {
    let setup = &session.setup;
    let explored = |(&index, found): (&usize, &'a ModelMaps)| {
        let model = &setup.models[index];
        Explored {
            name: &model.name,
            layout: &model.info.layout,
            maps: model.transformer.config.wiring().maps(),
            resolution: maps.resolutions[index],
            found,
            numbers: numbers.get(&model.name).cloned().unwrap_or_default(),
        }
    };
    let names: Vec<&str> = setup.models.iter().map(|model| model.name.as_str()).collect();
    Explorer {
        // A mark that turns the direction of writing would turn the heading.
        title: escaped(&format!("Attention of {}", names.join(" and "))).into_owned(),
        caption: setup.caption(),
        recipe: session.recipe("as chosen in the page"),
        models: maps.found.iter().map(explored).collect(),
        budget,
    }
}

fn write_page(session: &mut Session, page: &Page, budget: usize) -> Result<()> {
    let path = session.run.outputs.place(PAGE, None);
    let cannot = || format!("cannot write {}", path.display());
    File::create_new(&path).and_then(|mut file| file.write_all(page.html.as_bytes())).with_context(cannot)?;
    if page.html.len() > budget && !session.output.quiet {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        say!("the page has {:.1} MB and not {:.0}: keep fewer heads with --keep", mb(page.html.len()), mb(budget));
    }
    Ok(())
}

fn print(session: &Session, maps: &ExploreMeasure, page: &Page, args: &ExploreArgs) -> Result<()> {
    let path = session.run.outputs.folder().join(PAGE);
    let mut out = terminal::stdout();
    let kept = |(&model, found): (&usize, &ModelMaps)| {
        let heads: Vec<(usize, usize)> = found.details.iter().map(|head| head.at).collect();
        (session.setup.models[model].name.clone(), heads)
    };
    let kept: Vec<(String, Vec<(usize, usize)>)> = maps.found.iter().map(kept).collect();
    let step = f64::from(page.floor).exp2();
    if args.run.output.json {
        let kept: Vec<_> = kept.iter().map(|(model, heads)| json!({ "model": model, "heads": heads })).collect();
        let page = json!({ "page": path, "bytes": page.html.len(), "step": step, "kept": kept });
        writeln!(out, "{page:#}")?;
        return Ok(());
    }
    writeln!(out, "{} ({:.1} MB): open it in a browser", path.display(), page.html.len() as f64 / 1e6)?;
    for (model, heads) in kept {
        let heads: Vec<String> = heads.iter().map(|(layer, head)| format!("{layer}.{head}")).collect();
        writeln!(out, "{}: token by token, layer.head {}", escaped(&model), heads.join(" "))?;
    }
    writeln!(out, "weights away from the answer's rows are told in steps of {step:.2e} or finer")?;
    Ok(())
}
