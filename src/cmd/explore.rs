//! `difftool explore`: one HTML file to walk around in attention maps.

use super::flags;
use super::session::{How, Session};
use crate::bail_usage;
use crate::cli::ExploreArgs;
use crate::experiment::{Experiment, Setup, Show};
use crate::explore::{agreements, ExploreMeasure, Explored, Explorer, ModelMaps, Page, Resolution};
use crate::measure::{AnswerMeasure, Place, RolesMeasure, ShapeMeasure, NOISE};
use crate::record::Record;
use crate::runfolder::EXPLORER;
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

/// A model and what is done to it: nothing, or a condition.
type Pass = (String, Option<String>);

/// Numbers of a pass by name.
#[derive(Clone, Default)]
struct Numbers {
    /// Of every head, by layer and head.
    heads: BTreeMap<(usize, usize), BTreeMap<String, f64>>,
    /// Of the whole model: how the first question was answered.
    answers: BTreeMap<String, f64>,
}

/// What of the whole model tells treatments apart.
const ANSWERS: [&str; 3] = ["exact", "answer_log_prob", "answer_first_rank"];

/// Runs the preset.
///
/// # Errors
/// Usage errors before anything runs; afterwards only what cannot be written.
pub(super) fn run(args: &ExploreArgs) -> Result<()> {
    let run = &args.run;
    let ctx_tok = flags::one_ctx_tok(args.prompt.ctx.as_ref(), &run.model, &run.reading, "explore shows one prompt")?;
    if !(1..=64).contains(&args.keep) {
        bail_usage!("--keep {}: 1 to 64 heads can be kept token by token", args.keep);
    }
    let (prompt, text) = (&args.prompt, args.text.as_deref());
    let grid = prompt.grid(ctx_tok, text);
    let experiment = flags::experiment(Show::Explore, run, grid, prompt.haystack.as_deref(), text)?;
    let condition = |name: &String| name.parse().or_else(|error: String| bail_usage!("--condition: {error}"));
    let conditions = args.condition.iter().map(condition).collect::<Result<_>>()?;
    let experiment = Experiment { conditions, ..experiment };
    experiment.conditions()?;
    let how = How::whole(&run.output);
    how.start_threads()?;
    let setup = Setup::load(experiment)?;
    let resolutions = resolutions(&setup, args.keep);
    let agreements = setup.models.iter().map(|model| agreements(&model.transformer)).collect::<Result<_>>()?;
    let mut maps = ExploreMeasure::new(resolutions, agreements, setup.conditions.len());
    let mut numbers = BTreeMap::new();
    let mut see = |record: &Record| add_number(&mut numbers, record);
    let mut answer = AnswerMeasure { by_head: true };
    let mut session =
        Session::run(setup, how, &mut [&mut answer, &mut ShapeMeasure, &mut RolesMeasure, &mut maps], &mut see)?;
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

/// Takes note of a number. Of several questions the first counts.
fn add_number(numbers: &mut BTreeMap<Pass, Numbers>, record: &Record) {
    let (m, id) = (&record.measure, &record.identity);
    let Some(value) = m.value else { return };
    let of_pass = numbers.entry((id.model.clone(), id.condition.as_deref().map(ToOwned::to_owned))).or_default();
    let (Some(layer), Some(head)) = (m.layer, m.head) else {
        if m.layer.is_none() && ANSWERS.contains(&&*m.metric) {
            of_pass.answers.entry(m.metric.to_string()).or_insert(value);
        }
        return;
    };
    let name = m.region.as_deref().map_or(m.metric.to_string(), |region| format!("{} {region}", m.metric));
    let of_head = of_pass.heads.entry((layer, head)).or_default();
    let is_noise = NOISE.iter().any(|noise| Some(noise.name()) == m.region.as_deref());
    if m.metric == "share_out" && is_noise && id.query.is_none_or(|query| query == 0) {
        *of_head.entry("noise_out".to_owned()).or_default() += value;
    }
    of_head.entry(name).or_insert(value);
}

fn explorer<'a>(
    session: &'a Session,
    maps: &'a ExploreMeasure,
    numbers: &BTreeMap<Pass, Numbers>,
    budget: usize,
) -> Explorer<'a> {
    let setup = &session.setup;
    let explored = |(place, found): (&Place, &'a ModelMaps)| {
        let model = &setup.models[place.model];
        let condition = setup.conditions[place.condition].column();
        let of_pass = numbers.get(&(model.name.clone(), condition.clone())).cloned().unwrap_or_default();
        Explored {
            name: &model.name,
            condition,
            layout: &model.info.layout,
            maps: model.transformer.config.wiring().maps(),
            resolution: maps.resolutions[place.model],
            found,
            numbers: of_pass.heads,
            answers: of_pass.answers,
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
    let path = session.run.outputs.place(EXPLORER, None);
    let cannot = || format!("cannot write {}", path.display());
    File::create_new(&path).and_then(|mut file| file.write_all(page.html.as_bytes())).with_context(cannot)?;
    if page.html.len() > budget && !session.output.quiet {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        say!("the page has {:.1} MB and not {:.0}: keep fewer heads with --keep", mb(page.html.len()), mb(budget));
    }
    Ok(())
}

fn print(session: &Session, maps: &ExploreMeasure, page: &Page, args: &ExploreArgs) -> Result<()> {
    let path = session.run.outputs.folder().join(EXPLORER);
    let mut out = terminal::stdout();
    let kept = |(place, found): (&Place, &ModelMaps)| {
        let heads: Vec<(usize, usize)> = found.details.iter().map(|head| head.at).collect();
        (session.setup.models[place.model].name.clone(), heads)
    };
    let untreated = maps.found.iter().filter(|(place, _)| place.condition == 0);
    let kept: Vec<(String, Vec<(usize, usize)>)> = untreated.map(kept).collect();
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
