//! Tables of metrics: a row for each model, setting and condition, a column for each metric, with 95 % intervals.

use crate::results::metric::{
    Kind, Metric, ACCURACY, ANSWER_FLIPS, ANSWER_LOG_PROB, ANSWER_REGION, AR_HIT_SHARE, CANCELLED, ENTROPY,
    ERROR_CANCELLED, GENERATED_ACCURACY, GENERATED_CONTAINS, KL, LAMBDA, NLL, NLL_AR_HIT, NLL_OTHER, NOISE_ABS,
    NOISE_OUT, NOISE_OUT_NO_SINKS, NOISE_SIGNED, OUTPUT_COSINE, ROW_ERROR, SAID_NUMBER, SAID_OTHER_NEEDLE, SHARE_ABS,
    SHARE_OUT, SHARE_SIGNED, SINK_RATE, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, TOKEN_KINDS, TOP_TOKEN_FLIPS,
    TOTAL_VARIATION, VALUE_NORM_FIRST,
};
use crate::results::table::{basis, numbers, words, Cell, Table, TableColumn, TableRows};
use crate::results::CommandName;
use crate::results::{Case, ConditionKey, Estimate, Frame, Pick, Setting};
use rayon::prelude::*;

/// A metric of a region over the prompts of a case, or over those of one set of cities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity<'a> {
    pub(super) metric: &'static Metric,
    pub(super) region: Option<&'a str>,
    cities: Option<&'a str>,
}

/// A metric of no region.
pub(super) const fn overall(metric: &'static Metric) -> Quantity<'static> {
    Quantity { metric, region: None, cities: None }
}

/// A metric of a region.
pub(super) const fn in_region<'a>(metric: &'static Metric, region: &'a str) -> Quantity<'a> {
    Quantity { metric, region: Some(region), cities: None }
}

const ANSWER: &str = ANSWER_REGION;

const ANSWERS: &[Quantity<'static>] = &[
    overall(&ACCURACY),
    overall(&GENERATED_ACCURACY),
    overall(&GENERATED_CONTAINS),
    overall(&ANSWER_LOG_PROB),
    overall(&NLL),
    overall(&NLL_AR_HIT),
    overall(&NLL_OTHER),
    overall(&AR_HIT_SHARE),
];

const CANCELLING: &[Quantity<'static>] = &[
    overall(&LAMBDA),
    overall(&CANCELLED),
    in_region(&CANCELLED, ANSWER),
    in_region(&CANCELLED, "filler"),
    in_region(&CANCELLED, "bos"),
];

const SHAPE: &[Quantity<'static>] = &[
    overall(&ENTROPY),
    overall(&SINK_SHARE_FIRST),
    overall(&SINK_SHARE_DETECTED),
    in_region(&SHARE_ABS, "sink"),
    overall(&VALUE_NORM_FIRST),
    overall(&NOISE_OUT_NO_SINKS),
];

const SINK_RATES: &[Quantity<'static>] = &[
    in_region(&SINK_RATE, TOKEN_KINDS[0]),
    in_region(&SINK_RATE, TOKEN_KINDS[1]),
    in_region(&SINK_RATE, TOKEN_KINDS[2]),
];

const FIDELITY: &[Quantity<'static>] = &[
    overall(&ANSWER_FLIPS),
    overall(&TOP_TOKEN_FLIPS),
    overall(&KL),
    overall(&TOTAL_VARIATION),
    overall(&ROW_ERROR),
    overall(&ERROR_CANCELLED),
    overall(&OUTPUT_COSINE),
];

const BY_DEPTH: &[Quantity<'static>] = &[
    overall(&ACCURACY),
    overall(&ANSWER_LOG_PROB),
    in_region(&SHARE_OUT, ANSWER),
    overall(&NOISE_OUT),
    in_region(&SHARE_ABS, ANSWER),
    overall(&NOISE_ABS),
    overall(&LAMBDA),
];

/// Readings of a row's shares: a name, the answer's and that of noise.
const READINGS: [(&str, Quantity<'static>, Quantity<'static>); 3] = [
    ("out", in_region(&SHARE_OUT, ANSWER), overall(&NOISE_OUT)),
    ("signed", in_region(&SHARE_SIGNED, ANSWER), overall(&NOISE_SIGNED)),
    ("|a|", in_region(&SHARE_ABS, ANSWER), overall(&NOISE_ABS)),
];

impl Quantity<'_> {
    /// Returns `true` if it means anything in a setting: plain text has no answer, and so no noise. What is estimated from scored
    /// tokens, where a run has them, is not from means of windows.
    fn applies(self, frame: &Frame, setting: Setting) -> bool {
        let is_of_answer = self.region == Some(ANSWER) || self.metric.name.starts_with("noise_");
        let is_of_tokens = [&NLL, &NLL_AR_HIT, &NLL_OTHER, &AR_HIT_SHARE].contains(&self.metric);
        (!is_of_answer || setting.needles > 0) && (!is_of_tokens || frame.tokens.0.is_empty())
    }

    fn column(&self) -> TableColumn {
        let (prefix, cities) = match self.cities {
            Some("train") => ("training: ".to_owned(), " train".to_owned()),
            Some(cities) => (format!("{cities}: "), format!(" {cities}")),
            None => (String::new(), String::new()),
        };
        let heading = format!("{prefix}{}", self.metric.heading(self.region));
        numbers(heading).named(format!("{}{cities}", self.metric.name_of(self.region)))
    }
}

/// Adds the columns of a model and of a setting, which has needles where prompts ask for any.
pub(super) fn place_columns<'a, T>(
    rows: TableRows<'a, T>,
    first: TableColumn,
    asks: bool,
    place: impl Fn(&T) -> (String, Setting),
) -> TableRows<'a, T> {
    rows.column(first.key(), |item| Cell::words(place(item).0))
        .column(numbers("tokens").key(), |item| Cell::count(place(item).1.ctx_tok))
        .column_if(asks, numbers("N").key(), |item| Cell::count(place(item).1.needles))
        .column_if(asks, numbers("R").key(), |item| Cell::count(place(item).1.asked))
}

/// Adds the columns that identify a case, as far as the cases of a run differ.
pub(super) fn case_columns<'a, T>(
    frame: &Frame,
    rows: TableRows<'a, T>,
    case: impl Fn(&T) -> &Case,
) -> TableRows<'a, T> {
    place_columns(rows, words("model"), frame.asks(), |item| (case(item).model.clone(), case(item).setting)).column_if(
        frame.has_conditions(),
        words("condition").key(),
        |item| Cell::words(case(item).treated.name()),
    )
}

/// Id, title and caption of a table.
pub(super) type Heading = (&'static str, &'static str, String);

/// A row of a table of metrics: a case, or its needles at one depth, or one of its tasks.
struct CaseRow<'a> {
    case: &'a Case,
    depth_pct: Option<f64>,
    task: Option<&'a str>,
    /// Of each quantity.
    estimates: Vec<Option<Estimate>>,
}

impl<'a> CaseRow<'a> {
    fn of(case: &'a Case) -> Self {
        Self { case, depth_pct: None, task: None, estimates: Vec::new() }
    }

    /// The largest number of prompts of an estimate.
    fn prompts(&self) -> Cell {
        Cell::optional(self.estimates.iter().flatten().map(|estimate| estimate.prompts).max())
    }

    /// Estimates the quantities of a row of which only the place is known; `None` if it has no number.
    fn estimated(mut self, frame: &Frame, quantities: &[Quantity<'_>]) -> Option<Self> {
        for quantity in quantities {
            let Quantity { metric, region, cities } = *quantity;
            let pick = self.case.pick(metric, region);
            let pick = Pick { cities, depth_pct: self.depth_pct, task: self.task, ..pick };
            let is_wanted = quantity.applies(frame, self.case.setting);
            self.estimates.push(frame.estimate(pick).filter(|_| is_wanted));
        }
        self.estimates.iter().any(Option::is_some).then_some(self)
    }
}

/// Returns the rows of a table of metrics: by depth; by task, where a run has several; otherwise one for each case.
fn case_rows<'a>(frame: &'a Frame, cases: &'a [Case], depths: &[f64], quantities: &[Quantity<'_>]) -> Vec<CaseRow<'a>> {
    let is_of_shots = frame.command() == Some(CommandName::Shots);
    let parts: Vec<(Option<f64>, Option<&str>)> = match &frame.tasks {
        _ if !depths.is_empty() => depths.iter().map(|&depth| (Some(depth), None)).collect(),
        // The orders of many-shot prompts are tasks too, and have a table of their own.
        tasks if tasks.len() > 1 && !is_of_shots => tasks.iter().map(|task| (None, Some(task.as_str()))).collect(),
        _ => vec![(None, None)],
    };
    let mut rows = Vec::new();
    for case in cases {
        rows.extend(parts.iter().map(|&(depth_pct, task)| CaseRow { depth_pct, task, ..CaseRow::of(case) }));
    }
    rows.into_par_iter().filter_map(|row| row.estimated(frame, quantities)).collect()
}

/// Fills a table of metrics: a column for each quantity.
fn metric_columns<'a>(
    frame: &Frame,
    rows: &'a [CaseRow<'a>],
    quantities: &[Quantity<'_>],
) -> TableRows<'a, CaseRow<'a>> {
    let mut table = case_columns(frame, TableRows::of(rows), |row| row.case)
        .column_if(rows.iter().any(|row| row.depth_pct.is_some()), numbers("depth %").named("depth_pct").key(), |row| {
            Cell::optional(row.depth_pct)
        })
        .column_if(rows.iter().any(|row| row.task.is_some()), words("task").key(), |row| Cell::optional_words(row.task))
        .column(basis("prompts"), CaseRow::prompts);
    for (at, quantity) in quantities.iter().enumerate() {
        table = table.column(quantity.column(), |row| Cell::estimate(quantity.metric.kind, row.estimates[at]));
    }
    table
}

/// Builds a table with a row for each case, or for each of its depths, and a column for each quantity, without those that have
/// no number. Where a run has several tasks, each has rows of its own, unless they are by depth.
pub(super) fn table(
    frame: &Frame,
    (id, title, note): Heading,
    depths: &[f64],
    quantities: &[Quantity<'_>],
) -> Option<Table> {
    let cases = frame.cases();
    let rows = case_rows(frame, &cases, depths, quantities);
    without_zeros(metric_columns(frame, &rows, quantities).table(id, title, note)).trimmed()
}

/// Empties columns of shares that are zero in every row: regions that the prompts do not have.
fn without_zeros(mut table: Table) -> Table {
    for i in (0..table.columns.len()).filter(|&i| table.columns[i].name.starts_with("share_")) {
        if table.rows.iter().all(|row| row[i].exact == Some(0.0)) {
            table.rows.iter_mut().for_each(|row| row[i] = Cell::none());
        }
    }
    table
}

/// Every table of metrics that the run has numbers for.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let tables = [answers, unanswerable, attention, regions, fidelity, by_depth, cancelling, shape, sink_rates];
    tables.into_iter().filter_map(|table| table(frame)).collect()
}

pub(super) const INTERVALS: &str = "[95 % interval]";

fn answers(frame: &Frame) -> Option<Table> {
    let title = if frame.has(ACCURACY.name) { "Answers in full" } else { "Prediction" };
    let note = format!("Hits in percent, otherwise means over prompts {INTERVALS}.");
    table(frame, ("answers", title, note), &[], ANSWERS)
}

/// Answers to questions without an answer, beside those to the same texts with one.
fn unanswerable(frame: &Frame) -> Option<Table> {
    if !frame.cities.iter().any(|cities| cities == "absent") {
        return None;
    }
    let quantities = [(&SAID_NUMBER, "absent"), (&SAID_OTHER_NEEDLE, "absent"), (&SAID_NUMBER, "train")]
        .map(|(metric, cities)| Quantity { cities: Some(cities), ..overall(metric) });
    let note = format!(
        "Asked for cities that the text does not name (absent), beside the same texts asked for what they hold (training) \
         {INTERVALS}."
    );
    table(frame, ("unanswerable", "Questions without an answer", note), &[], &quantities)
}

/// Shares of the answer and of noise, a row for each reading.
fn attention(frame: &Frame) -> Option<Table> {
    let cases = frame.cases();
    let mut rows = Vec::new();
    for case in &cases {
        for (name, answer, noise) in READINGS {
            let row = CaseRow::of(case).estimated(frame, &[answer, noise]);
            rows.extend(row.map(|row| (name, row)));
        }
    }
    let note = format!(
        "Out: of what all heads write. Signed and |a|: of the weights and of their magnitudes, means over heads \
         {INTERVALS}."
    );
    case_columns(frame, TableRows::of(&rows), |(_, row)| row.case)
        .column(words("reading").key(), |(name, _)| Cell::words(*name))
        .column(basis("prompts"), |(_, row)| row.prompts())
        .column(numbers("answer %").named("answer"), |(_, row)| Cell::estimate(Kind::Share, row.estimates[0]))
        .column(numbers("noise %").named("noise"), |(_, row)| Cell::estimate(Kind::Share, row.estimates[1]))
        .table("attention", "Where the attention goes", note)
        .trimmed()
}

/// The share of the output of every region but the answer.
fn regions(frame: &Frame) -> Option<Table> {
    let others = frame.regions.iter().filter(|region| *region != ANSWER);
    let quantities: Vec<Quantity<'_>> = others.map(|region| in_region(&SHARE_OUT, region)).collect();
    let note = format!("Share of what all heads write {INTERVALS}.");
    let table = table(frame, ("regions", "Regions", note), &[], &quantities)?;
    // Where nothing is asked, regions are all there is.
    Some(if frame.asks() { table.details() } else { table })
}

fn fidelity(frame: &Frame) -> Option<Table> {
    let note = format!(
        "Against the untreated pass over the same prompt {INTERVALS}. Destroyed: accuracy below half of the untreated one, \
         or, where nothing is asked, most likely tokens changed by half."
    );
    let cases = frame.cases();
    let rows = case_rows(frame, &cases, &[], FIDELITY);
    metric_columns(frame, &rows, FIDELITY)
        .column(words("").named("verdict"), |row| {
            Cell::optional_words(is_destroyed(frame, row.case).then_some("destroyed"))
        })
        .table("fidelity", "Changes by quantisation", note)
        .trimmed()
}

/// Returns `true` if a condition destroys the model.
fn is_destroyed(frame: &Frame, case: &Case) -> bool {
    if case.treated.condition.is_none() {
        return false;
    }
    let untreated = Case { treated: ConditionKey::default(), ..case.clone() };
    let [before, after] = [&untreated, case].map(|case| frame.estimate(case.pick(&ACCURACY, None)));
    match (before, after.and_then(|after| after.interval)) {
        (Some(before), Some(after)) => after.hi < 0.5 * before.value,
        _ => frame.mean(case.pick(&TOP_TOKEN_FLIPS, None)).is_some_and(|flips| flips > 0.5),
    }
}

/// The sink rate over texts, random tokens, and one token repeated.
pub(super) fn sink_rates(frame: &Frame) -> Option<Table> {
    let note = format!(
        "Share of heads whose first token has more than 0.3 of the attention over the first 64 rows {INTERVALS}. Random and \
         repeated tokens begin with no special token."
    );
    table(frame, ("sink-rate", "Sink rate", note), &[], SINK_RATES)
}

fn cancelling(frame: &Frame) -> Option<Table> {
    let note = format!("Weight of the second map, and the part of the attention that it takes away {INTERVALS}.");
    table(frame, ("cancelled", "What the subtraction cancels", note), &[], CANCELLING).map(Table::details)
}

fn shape(frame: &Frame) -> Option<Table> {
    let note = format!("How spread out the rows are, and what sinks take {INTERVALS}.");
    table(frame, ("shape", "Entropy and sinks", note), &[], SHAPE).map(Table::details)
}

/// Accuracy and shares with a row for each depth, where there are several.
fn by_depth(frame: &Frame) -> Option<Table> {
    let depths = frame.depths_pct();
    if depths.len() < 2 {
        return None;
    }
    let note = format!("By depth of the answer in the text {INTERVALS}.");
    table(frame, ("depth", "By depth", note), &depths, BY_DEPTH).map(Table::details)
}
