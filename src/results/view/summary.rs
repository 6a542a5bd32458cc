//! The default output of a run: one table that answers its question, one of paired differences, and a line on what to look at
//! next.

use super::cases::{in_region, overall, sink_rates, table, Quantity, INTERVALS};
use super::differences::{differences, Detail};
use super::{ablate, ablation, heads, maps, nll, outliers, shots};
use crate::prompts::{FILE, RULER};
use crate::results::metric::{
    Metric, ACCURACY, ANSWER_LOG_PROB, ANSWER_REGION, ATTRIBUTION, ENTROPY, ERROR_CANCELLED, GENERATED_ACCURACY,
    GENERATED_CONTAINS, NLL, NOISE_ABS, NOISE_ATTRIBUTION, NOISE_OUT, NOISE_OUT_NO_SINKS, SAID_NUMBER,
    SAID_OTHER_NEEDLE, SHARE_OUT, SINK_SHARE_FIRST, TOP_TOKEN_FLIPS,
};
use crate::results::table::Table;
use crate::results::CommandName;
use crate::results::{within, Frame, Row};

/// A metric and region.
type ComparedMetric = (&'static Metric, Option<&'static str>);

const ANSWERS: &[Quantity<'static>] = &[
    overall(&ACCURACY),
    overall(&GENERATED_ACCURACY),
    overall(&SAID_NUMBER),
    overall(&SAID_OTHER_NEEDLE),
    in_region(&SHARE_OUT, ANSWER_REGION),
    overall(&NOISE_OUT),
    in_region(&ATTRIBUTION, ANSWER_REGION),
    overall(&NOISE_ATTRIBUTION),
];

/// Answers to RULER's tasks, whose score is that of generated answers, and to questions of a file.
const OTHER_ANSWERS: &[Quantity<'static>] = &[
    overall(&ACCURACY),
    overall(&GENERATED_CONTAINS),
    in_region(&SHARE_OUT, ANSWER_REGION),
    overall(&NOISE_OUT),
    in_region(&ATTRIBUTION, ANSWER_REGION),
    overall(&NOISE_ATTRIBUTION),
];

const ATTENTION: &[Quantity<'static>] = &[
    in_region(&SHARE_OUT, ANSWER_REGION),
    overall(&NOISE_OUT),
    in_region(&ATTRIBUTION, ANSWER_REGION),
    overall(&NOISE_ATTRIBUTION),
    overall(&NOISE_OUT_NO_SINKS),
    in_region(&SHARE_OUT, "bos"),
    in_region(&SHARE_OUT, "first"),
    overall(&NOISE_ABS),
];

const OF_TEXT: &[Quantity<'static>] = &[
    in_region(&SHARE_OUT, "bos"),
    in_region(&SHARE_OUT, "first"),
    in_region(&SHARE_OUT, "filler"),
    overall(&SINK_SHARE_FIRST),
    overall(&ENTROPY),
];

const BITS: &[Quantity<'static>] = &[overall(&ACCURACY), overall(&TOP_TOKEN_FLIPS), overall(&ERROR_CANCELLED)];

/// Returns the table that answers the question of the run.
pub(crate) fn main_table(frame: &Frame) -> Option<Table> {
    let (title, quantities) = match frame.command() {
        Some(CommandName::Shots) => return shots::table(frame),
        Some(CommandName::Ablate) => return ablation(frame).into_iter().next(),
        Some(CommandName::Heads) => return heads::by_role(frame),
        Some(CommandName::Outliers) => return outliers::all_layers(frame),
        Some(CommandName::Nll) => return nll::models(frame),
        Some(CommandName::Heatmap | CommandName::Explore) => return maps::table(frame),
        Some(CommandName::Quantize) => ("Few bits", BITS),
        Some(CommandName::Ratio) if frame.asks() => ("Attention", ATTENTION),
        _ if has_no_cities(frame) => ("Answers", OTHER_ANSWERS),
        _ if frame.asks() => ("Answers", ANSWERS),
        _ => ("Attention", OF_TEXT),
    };
    let note = format!("Means over prompts {INTERVALS}; shares over heads and layers.");
    table(frame, ("summary", title, note), &[], quantities)
}

/// Returns `true` if the prompts are of a task of RULER, or have needles of a file.
fn has_no_cities(frame: &Frame) -> bool {
    let tasks = &frame.tasks;
    !tasks.is_empty() && tasks.iter().all(|task| RULER.iter().chain([&&FILE]).any(|form| form.name == task))
}

/// Returns the metrics whose differences are shown by default.
fn compared(frame: &Frame) -> &'static [ComparedMetric] {
    const ATTENTION: &[ComparedMetric] = &[(&SHARE_OUT, Some(ANSWER_REGION)), (&NOISE_OUT, None)];
    const ANSWERS: &[ComparedMetric] = &[(&ACCURACY, None), (&NOISE_OUT, None)];
    const GENERATED: &[ComparedMetric] = &[(&ACCURACY, None), (&GENERATED_ACCURACY, None)];
    const RULER: &[ComparedMetric] = &[(&ACCURACY, None), (&GENERATED_CONTAINS, None)];
    const BITS: &[ComparedMetric] = &[(&ACCURACY, None), (&ANSWER_LOG_PROB, None), (&NLL, None)];
    const OF_TEXT: &[ComparedMetric] = &[(&ENTROPY, None), (&SINK_SHARE_FIRST, None)];
    match frame.command() {
        Some(CommandName::Ratio) if frame.asks() => ATTENTION,
        Some(CommandName::Quantize) => BITS,
        _ if has_no_cities(frame) && frame.has(GENERATED_CONTAINS.name) => RULER,
        _ if frame.has(GENERATED_ACCURACY.name) => GENERATED,
        _ if frame.asks() => ANSWERS,
        _ => OF_TEXT,
    }
}

/// Returns the differences that belong to the question of the run.
pub(crate) fn main_rows(frame: &Frame) -> Vec<Row> {
    frame.rows(Some(compared(frame)))
}

/// Returns the tables beside the main one that belong to the question of the run: of differences, mostly.
pub(crate) fn main_differences(frame: &Frame) -> Vec<Table> {
    let differences = match frame.command() {
        Some(CommandName::Ablate) => {
            let mut beside = ablation(frame).split_off(1);
            // Differences of models are a detail of a run that takes out heads.
            if beside.len() > 1 {
                beside.retain(|table| table.id != ablate::CONTRASTS);
            }
            return beside;
        }
        Some(CommandName::Nll) => nll::differences(frame),
        Some(CommandName::Outliers) => {
            return [outliers::channels(frame), sink_rates(frame)].into_iter().flatten().collect()
        }
        Some(CommandName::Heatmap | CommandName::Explore | CommandName::Heads) => None,
        _ => differences(&main_rows(frame), &within::GROUPS, Detail::Verdict),
    };
    differences.into_iter().collect()
}

/// Returns what to look at next, in one line.
pub(crate) fn next(frame: &Frame) -> &'static str {
    match frame.command() {
        Some(CommandName::Needle) => "Next: `difftool ablate`, the cost of noise and heads.",
        Some(CommandName::Ratio) => "Next: `difftool heads`, the role of each head.",
        Some(CommandName::Heads) => "Next: `difftool ablate --parts heads`, the cost of heads.",
        Some(CommandName::Quantize) => "Next: `difftool outliers`, the logits that set the scale.",
        Some(CommandName::Outliers) => "Next: `difftool quantize`, the cost of few bits.",
        Some(CommandName::Ablate) => "Next: `difftool heads`, the role of each head.",
        Some(CommandName::Nll) => "Next: `difftool needle`, retrieval from the context.",
        Some(CommandName::Heatmap) => "Next: `difftool explore`, a page of every head's map.",
        Some(CommandName::Explore) => "Next: `difftool heads`, the role of each head.",
        _ => "Next: `difftool compare`, this run against another.",
    }
}
