//! What is checked before a run begins: that its prompts can be made, that the models have what it names, and that it fits into
//! memory.

use super::setup::longest;
use super::{MapsOfOnePrompt, Plan, Setup};
use crate::treatments::Resolver;
use anyhow::Result;
use base::bail_usage;
use base::memory::{check_fits, size_name};
use engine::model::open::Model;
use engine::model::ModelConfig;
use names::{LayersAndHeads, Region};
use text::{Grid, PlannedPrompt, Prompt, Text, DEPTH_TOLERANCE_PCT};

/// A requested depth that the needle of a prompt misses.
#[derive(Clone, Debug, PartialEq)]
pub struct MissedDepth {
    /// Length of the prompt, in tokens.
    pub ctx_tok: usize,
    /// The requested depth, in percent of the filler.
    pub asked_pct: f64,
    /// The depth of the needle in the first prompt.
    pub real_pct: f64,
}

impl Plan {
    /// Checks, before weights are read, that a model takes prompts of this length and has the layers and heads that are measured or
    /// drawn.
    pub(super) fn check_model(&self, name: &str, config: &ModelConfig, ctx_tok: usize) -> Result<()> {
        let limit = config.max_ctx_tok;
        if ctx_tok > limit {
            bail_usage!("--ctx {ctx_tok}: {name} was trained for at most {limit} tokens");
        }
        let layers = config.layers.len();
        let heads = config.wiring().heads();
        let (layer, head) = match &self.maps {
            Some(MapsOfOnePrompt::Heatmap(heatmap)) => (heatmap.layer, heatmap.head),
            _ => (None, None),
        };
        for (flag, asked, what, have) in [
            ("layers", self.passes.select.layers.clone(), "layers", layers),
            ("heads", self.passes.select.heads.clone(), "heads", heads),
            ("layer", layer.map(|layer| vec![layer]), "layers", layers),
            ("head", head.map(|head| vec![head]), "heads", heads),
        ] {
            let asked = asked.unwrap_or_else(|| vec![0]);
            if asked.is_empty() {
                bail_usage!("--{flag} is empty");
            }
            if let Some(index) = asked.iter().find(|&&index| index >= have) {
                bail_usage!("--{flag} {index}: {name} has {what} 0 to {}", have - 1);
            }
        }
        Ok(())
    }
}

/// What was found of prompts before they run.
#[derive(Debug, Default)]
pub struct Checked {
    /// The depths that the first prompt of each kind misses by more than [`DEPTH_TOLERANCE_PCT`].
    pub missed_depths: Vec<MissedDepth>,
    /// A bound on the memory that their passes take besides the weights, in bytes.
    pub pass_bytes: u64,
}

/// Checks that these prompts can run: they fit the context lengths, the models have what conditions name, and the
/// passes fit into memory.
///
/// # Errors
/// A usage error with the numbers and what to change.
pub fn check(setup: &Setup, prompts: &[PlannedPrompt]) -> Result<Checked> {
    for model in &setup.models {
        if let (Some(why), Some(_)) = (model.lacks_eos(), setup.plan.passes.max_new) {
            bail_usage!("--generate: {why}: no token ends an answer; correct the file, or leave --generate out");
        }
        check_conditions(setup, model)?;
        if matches!(setup.grid, Grid::Text(_)) && model.info.chat_template_sha256.is_some() {
            bail_usage!("--chat-template: it is for needle prompts, and plain text is not put into it");
        }
        if let Text::Ids(ids) = &setup.sources.text {
            ids.check(&model.name, model.transformer.config.vocab)?;
        }
    }
    if setup.grid.count() == Some(0) {
        bail_usage!("nothing to run: --samples is 0, or a list of the grid is empty");
    }
    check_memory(setup, prompts, 0)?; // before a prompt is made that does not fit
    let first = FirstPrompts::of(setup, prompts)?;
    let pass_bytes = check_memory(setup, prompts, first.answer_rows)?;
    Ok(Checked { missed_depths: first.missed_depths, pass_bytes })
}

/// Checks that a model has the layers and heads that the conditions name, and that prompts to patch can be changed.
fn check_conditions(setup: &Setup, model: &Model) -> Result<()> {
    if let Some(patch) = setup.conditions.iter().find(|condition| condition.patched_rows().next().is_some()) {
        let why = match &setup.grid {
            Grid::Needle(needles) if needles.unanswerable => "a question without an answer has none to change",
            Grid::Needle(needles) if !needles.form().has_cities() => {
                "only needles that give cities numbers of five digits can be changed"
            }
            Grid::Needle(_) if setup.plan.passes.max_new.is_some() => {
                "generated tokens have no counterpart in the other prompt"
            }
            Grid::Needle(_) => "",
            Grid::Text(_) | Grid::Shots(_) | Grid::Context(_) => "only the answers of needle prompts can be changed",
        };
        if !why.is_empty() {
            bail_usage!("the condition {patch}: {why}");
        }
    }
    let is_text = matches!(setup.grid, Grid::Text(_));
    setup.conditions.iter().try_for_each(|condition| Resolver::of(model).check(condition, is_text))
}

/// Checks that the passes fit into the memory that the weights leave, with answers in so many rows. Returns the bound on it, in bytes.
fn check_memory(setup: &Setup, prompts: &[PlannedPrompt], answer_rows: usize) -> Result<u64> {
    let needed = pass_bytes(setup, prompts, answer_rows);
    let longest = longest(prompts);
    // The first check is made before answers are.
    let of_answers = if answer_rows == 0 { String::new() } else { format!(" for answers in {answer_rows} rows") };
    check_fits(
        needed,
        || format!("--ctx {longest} needs up to {}{of_answers}", size_name(needed)),
        "lower --ctx or --threads, shorten answers, or leave --full out",
    )?;
    Ok(needed)
}

/// The first prompt of each kind, made for every model: whether a short prompt fits depends on the cities that its seed draws.
#[derive(Default)]
struct FirstPrompts {
    missed_depths: Vec<MissedDepth>,
    /// Rows from the first to the last that predict answers, in the prompt that has most.
    answer_rows: usize,
}

impl FirstPrompts {
    fn of(setup: &Setup, prompts: &[PlannedPrompt]) -> Result<Self> {
        let mut first = Self::default();
        // They run one of each kind after the other; by index, those of a kind follow each other.
        let mut by_kind: Vec<&PlannedPrompt> = prompts.iter().collect();
        by_kind.sort_by_key(|prompt| prompt.index);
        for alike in by_kind.chunk_by(|a, b| a.spec == b.spec) {
            let planned = PlannedPrompt { seed_index: 0, ..alike[0].clone() };
            for model in &setup.models {
                let prompt = planned.build(setup.grid.seed(), &setup.sources, model.tokenizer())?;
                first.missed_depths.extend(missed_depth(&prompt, planned.spec.ctx_tok()));
                first.answer_rows = first.answer_rows.max(prompt.answer_rows().len());
                if setup.patches() {
                    prompt.corrupted(0, model.tokenizer()?)?;
                }
            }
        }
        Ok(first)
    }
}

/// A bound on the memory that passes over the longest prompts take besides the weights, in bytes: those that run at
/// once, the keys and values that each keeps for others, what heads write in the rows of answers and its gradients, and what is
/// written token by token. What does not grow with the length of prompts and answers is not part of it: records, and maps and figures
/// of usual size.
fn pass_bytes(setup: &Setup, prompts: &[PlannedPrompt], answer_rows: usize) -> u64 {
    let ctx_tok = longest(prompts);
    let mut widest = 0;
    let mut maps = 0;
    for model in &setup.models {
        let config = &model.transformer.config;
        let attributes = setup.attributes_heads(model, ctx_tok);
        // Keys and values for treated passes or gradients, of the corrupted prompt, and of the text that is generated.
        let shared = setup.conditions.len() > 1 || setup.hides(model, ctx_tok) || attributes;
        let kept =
            [shared, setup.patches(), setup.plan.passes.max_new.is_some()].into_iter().filter(|&kept| kept).count();
        let mut pass = config.pass_bytes(ctx_tok) + kept as u64 * config.prefix_bytes(ctx_tok);
        if setup.measures_answers() {
            pass += (Region::ALL.len() * answer_rows * size_of::<f64>()) as u64 * config.written_numbers();
        }
        if attributes {
            pass += config.gradient_bytes(ctx_tok, answer_rows);
        }
        widest = widest.max(model.transformer.expanded_bytes() + pass);
        maps += full_map_bytes(setup, config, ctx_tok);
    }
    let passes = setup.parallel_prompts().min(prompts.len()) as u64;
    (passes * widest).saturating_add(maps).saturating_add(USUAL_BYTES)
}

/// Memory of the matrices that `heatmap --full` writes token by token, in bytes; 0 for other runs.
fn full_map_bytes(setup: &Setup, config: &ModelConfig, ctx_tok: usize) -> u64 {
    let Some(MapsOfOnePrompt::Heatmap(spec)) = setup.plan.maps.as_ref() else { return 0 };
    let LayersAndHeads { layers, heads } = &setup.plan.passes.select;
    let layers = if spec.every_head { layers.as_ref().map_or(config.layers.len(), Vec::len) } else { 1 };
    let heads = if spec.head.is_some() { 1 } else { heads.as_ref().map_or(config.wiring().heads(), Vec::len) };
    let matrices = layers * heads * spec.map.quantities().len() * setup.conditions.len();
    let [queries, keys] = [spec.queries, spec.keys].map(|span| span.within(ctx_tok).len() as f64);
    // A product of lengths may be beyond integers.
    if spec.full {
        (queries * keys * matrices as f64) as u64 * FULL_BIN_BYTES
    } else {
        0
    }
}

/// Memory of the records of a usual run, of fonts, and of a figure of usual size while it is drawn.
const USUAL_BYTES: u64 = 96 << 20;

/// Bytes of an element of a matrix that is written token by token: as it is collected, and as it is written.
const FULL_BIN_BYTES: u64 = 8;

/// The depth of the controlled needle if it misses the requested depth by more than [`DEPTH_TOLERANCE_PCT`].
fn missed_depth(prompt: &Prompt, ctx_tok: usize) -> Option<MissedDepth> {
    let query = prompt.queries.iter().find(|query| query.controlled)?;
    let asked_pct = query.depth_req_pct;
    let real_pct = query.depth_real_pct;
    let is_off = (asked_pct - real_pct).abs() > DEPTH_TOLERANCE_PCT;
    is_off.then_some(MissedDepth { ctx_tok, asked_pct, real_pct })
}
