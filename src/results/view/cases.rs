//! Tables of metrics: a row for each model, setting and condition, a column for each metric, with 95 % intervals.

use crate::results::metric::{
    Metric, ANSWER_FLIPS, ANSWER_LOG_PROB, ANSWER_REGION, AR_HIT_SHARE, CANCELLED, ENTROPY, ERROR_CANCELLED, EXACT,
    GENERATED_CONTAINS, GENERATED_EXACT, KL, LAMBDA, NLL, NLL_AR_HIT, NLL_OTHER, NOISE_ABS, NOISE_OUT,
    NOISE_OUT_NO_SINKS, NOISE_SIGNED, OUTPUT_COSINE, ROW_ERROR, SAID_NUMBER, SAID_OTHER_NEEDLE, SHARE_ABS, SHARE_OUT,
    SHARE_SIGNED, SINK_RATE, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, TOKEN_KINDS, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
    VALUE_NORM_FIRST,
};
use crate::results::table::{basis, numbers, words, Cell, Table, TableColumn};
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
    overall(&EXACT),
    overall(&GENERATED_EXACT),
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
    overall(&EXACT),
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
    /// Returns `true` if it means anything in a setting: plain text has no answer, and so no noise.
    fn applies(self, setting: Setting) -> bool {
        let is_of_answer = self.region == Some(ANSWER) || self.metric.name.starts_with("noise_");
        setting.1 > 0 || !is_of_answer
    }

    /// Returns `true` if it is estimated from scored tokens, where a run has them, and not from means of windows.
    fn is_of_tokens(self) -> bool {
        [&NLL, &NLL_AR_HIT, &NLL_OTHER, &AR_HIT_SHARE].contains(&self.metric)
    }

    fn pick<'a>(&'a self, case: &'a Case, part: CasePart<'a>) -> Pick<'a> {
        let pick = case.pick(self.metric, self.region);
        let pick = self.cities.map_or(pick, |cities| pick.cities(cities));
        match part {
            CasePart::Whole => pick,
            CasePart::Depth(depth) => pick.depth_pct(depth),
            CasePart::Task(task) => pick.task(task),
        }
    }

    fn estimate(&self, frame: &Frame, case: &Case, part: CasePart<'_>) -> Option<Estimate> {
        if !self.applies(case.setting) || (self.is_of_tokens() && !frame.tokens.0.is_empty()) {
            return None;
        }
        frame.estimate(self.pick(case, part))
    }

    fn cell(&self, estimate: Option<Estimate>) -> Cell {
        estimate.map_or_else(Cell::none, |estimate| Cell::estimate(self.metric.kind, estimate))
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

/// The columns that identify a case, as far as the cases of a run differ.
pub(super) struct CaseKeys {
    needles: bool,
    condition: bool,
}

impl CaseKeys {
    pub(super) fn new(frame: &Frame) -> Self {
        let condition = frame.treated().iter().any(|treated| treated.condition.is_some());
        Self { needles: frame.asks(), condition }
    }

    pub(super) fn columns(&self) -> Vec<TableColumn> {
        let mut columns = vec![words("model"), numbers("tokens")];
        columns.extend(self.needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
        columns.extend(self.condition.then(|| words("condition")));
        columns.into_iter().map(TableColumn::key).collect()
    }

    pub(super) fn cells(&self, case: &Case) -> Vec<Cell> {
        let (ctx, needles, retrieve) = case.setting;
        let mut cells = vec![Cell::words(&case.model), Cell::count(ctx)];
        let asked = [Cell::count(needles), Cell::count(retrieve)];
        cells.extend(asked.into_iter().filter(|_| self.needles));
        cells.extend(self.condition.then(|| Cell::words(case.treated.name())));
        cells
    }
}

/// Id, title and caption of a table.
pub(super) type Heading = (&'static str, &'static str, String);

/// The part of a case's numbers that a row is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum CasePart<'a> {
    /// All of them.
    Whole,
    /// Those of needles at one depth, in percent.
    Depth(f64),
    /// Those of one task.
    Task(&'a str),
}

impl CasePart<'_> {
    fn column(self) -> Option<TableColumn> {
        Some(match self {
            Self::Whole => return None,
            Self::Depth(_) => numbers("depth %").named("depth_pct").key(),
            Self::Task(_) => words("task").key(),
        })
    }

    fn cell(self) -> Option<Cell> {
        Some(match self {
            Self::Whole => return None,
            Self::Depth(depth) => Cell::count(depth),
            Self::Task(task) => Cell::words(task),
        })
    }
}

/// Builds a table with a row for each case, or for each of its depths, and a column for each quantity, without those that have
/// no number. Where a run has several tasks, each has rows of its own, unless they are by depth.
pub(super) fn table(
    frame: &Frame,
    (id, title, note): Heading,
    depths: &[f64],
    quantities: &[Quantity<'_>],
) -> Option<Table> {
    // The orders of many-shot prompts are tasks too, and have a table of their own.
    let tasks = if frame.command() == Some(CommandName::Shots) { &[] } else { frame.tasks() };
    let parts = match (depths, tasks) {
        ([], [] | [_]) => vec![CasePart::Whole],
        ([], tasks) => tasks.iter().map(|task| CasePart::Task(task)).collect(),
        (depths, _) => depths.iter().map(|&depth| CasePart::Depth(depth)).collect(),
    };
    let (keys, cases) = (CaseKeys::new(frame), frame.cases());
    let mut columns = keys.columns();
    columns.extend(parts.first()?.column());
    columns.push(basis("prompts"));
    columns.extend(quantities.iter().map(Quantity::column));
    let places: Vec<_> = cases.iter().flat_map(|case| parts.iter().map(move |&part| (case, part))).collect();
    let rows = places.par_iter().filter_map(|&(case, part)| row(frame, &keys, case, part, quantities)).collect();
    without_zeros(Table::new(id, title, note, columns, rows)).trimmed()
}

/// Returns the row of a part of a case; `None` if it has no number.
fn row(
    frame: &Frame,
    keys: &CaseKeys,
    case: &Case,
    part: CasePart<'_>,
    quantities: &[Quantity<'_>],
) -> Option<Vec<Cell>> {
    let estimates: Vec<Option<Estimate>> =
        quantities.iter().map(|quantity| quantity.estimate(frame, case, part)).collect();
    let prompts = estimates.iter().flatten().map(|estimate| estimate.prompts).max()?;
    let mut cells = keys.cells(case);
    cells.extend(part.cell());
    cells.push(Cell::count(prompts));
    cells.extend(quantities.iter().zip(estimates).map(|(quantity, estimate)| quantity.cell(estimate)));
    Some(cells)
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
    let title = if frame.has(EXACT.name) { "Answers in full" } else { "Prediction" };
    let note = format!("Hits in percent, otherwise means over prompts {INTERVALS}.");
    let table = table(frame, ("answers", title, note), &[], ANSWERS)?;
    Some(with_remark(frame, table, "remark", |case| {
        let accuracy = frame.estimate(case.pick(&EXACT, None))?;
        (accuracy.value == 0.0).then_some("accuracy at the floor")
    }))
}

/// Answers to questions without an answer, beside those to the same texts with one.
fn unanswerable(frame: &Frame) -> Option<Table> {
    if !frame.cities().iter().any(|cities| cities == "absent") {
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
    let keys = CaseKeys::new(frame);
    let mut columns = keys.columns();
    columns.extend([words("reading").key(), basis("prompts")]);
    columns.extend([numbers("answer %").named("answer"), numbers("noise %").named("noise")]);
    let cases = frame.cases();
    let places: Vec<_> = cases.iter().flat_map(|case| READINGS.map(|reading| (case, reading))).collect();
    let rows = places.par_iter().filter_map(|&(case, reading)| reading_row(frame, &keys, case, reading)).collect();
    let note = format!(
        "Out: of what all heads write. Signed and |a|: of the weights and of their magnitudes, means over heads \
         {INTERVALS}."
    );
    Table::new("attention", "Where the attention goes", note, columns, rows).trimmed()
}

fn reading_row(
    frame: &Frame,
    keys: &CaseKeys,
    case: &Case,
    (name, answer, noise): (&str, Quantity<'_>, Quantity<'_>),
) -> Option<Vec<Cell>> {
    let estimates = [answer, noise].map(|quantity| quantity.estimate(frame, case, CasePart::Whole));
    let prompts = estimates.iter().flatten().map(|estimate| estimate.prompts).max()?;
    let mut cells = keys.cells(case);
    cells.extend([Cell::words(name), Cell::count(prompts), answer.cell(estimates[0]), noise.cell(estimates[1])]);
    Some(cells)
}

/// The share of the output of every region but the answer.
fn regions(frame: &Frame) -> Option<Table> {
    let others = frame.regions().iter().filter(|region| *region != ANSWER);
    let quantities: Vec<Quantity<'_>> = others.map(|region| in_region(&SHARE_OUT, region)).collect();
    let note = format!("Share of what all heads write {INTERVALS}.");
    let table = table(frame, ("regions", "Regions", note), &[], &quantities)?;
    // Where nothing is asked, regions are all there is.
    Some(if frame.asks() { table.details() } else { table })
}

/// Adds a column of words about the cases of a table, if there are any.
fn with_remark<'a>(
    frame: &Frame,
    mut table: Table,
    name: &'static str,
    remark: impl Fn(&Case) -> Option<&'a str>,
) -> Table {
    let (keys, cases) = (CaseKeys::new(frame), frame.cases());
    let mut remarks = Vec::new();
    for row in &table.rows {
        let case = cases.iter().find(|case| row.starts_with(&keys.cells(case)));
        remarks.push(case.and_then(&remark));
    }
    if remarks.iter().any(Option::is_some) {
        table.columns.push(words("").named(name));
        for (row, remark) in table.rows.iter_mut().zip(remarks) {
            row.push(remark.map_or_else(Cell::none, Cell::words));
        }
    }
    table
}

fn fidelity(frame: &Frame) -> Option<Table> {
    let note = format!(
        "Against the untreated pass over the same prompt {INTERVALS}. Destroyed: accuracy below half of the untreated one, \
         or, where nothing is asked, most likely tokens changed by half."
    );
    let table = table(frame, ("fidelity", "Changes by quantisation", note), &[], FIDELITY)?;
    Some(with_remark(frame, table, "verdict", |case| is_destroyed(frame, case).then_some("destroyed")))
}

/// Returns `true` if a condition destroys the model.
fn is_destroyed(frame: &Frame, case: &Case) -> bool {
    if case.treated.condition.is_none() {
        return false;
    }
    let untreated = Case { treated: ConditionKey::default(), ..case.clone() };
    let [before, after] = [&untreated, case].map(|case| frame.estimate(case.pick(&EXACT, None)));
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
