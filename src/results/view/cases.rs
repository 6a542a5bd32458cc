//! Tables of metrics: a row for each model, setting and condition, a column for each metric, with 95 % intervals.

use super::sheet::{basis, numbers, words, Sheet, SheetCell, SheetColumn};
use crate::measure::TOKEN_KINDS;
use crate::metric::{
    Kind, Metric, ANSWER_FIRST_RANK, ANSWER_FLIPS, ANSWER_LOG_PROB, ANSWER_REGION, AR_HIT_SHARE, ATTENTION_DISTANCE,
    BOOST, CANCELLED, CONTEXT_RMS, EFFECTIVE_KEYS, ENTROPY, ERROR_CANCELLED, ERROR_CORRELATION, EXACT,
    FIRST_TOKEN_SHARE, GENERATED_CONTAINS, GENERATED_EXACT, GENERATED_SET, KEYS_90, KEYS_99, KL, LAMBDA, LOGIT_OUT_HOP,
    LOGIT_OUT_SUM, MASS, MASS_NEG, NLL, NLL_AR_HIT, NLL_OTHER, NOISE_ABS, NOISE_ABS_NO_SINKS, NOISE_NORM_OUT,
    NOISE_OUT, NOISE_OUT_MEAN_HEAD, NOISE_OUT_NO_SINKS, NOISE_POS, NOISE_SIGNED, NOISE_UNIFORM, NORM_OUT,
    OUTPUT_COSINE, OUTPUT_ERROR_MAX, ROW_ERROR, SAID_LOG_PROB, SAID_NUMBER, SAID_OTHER_NEEDLE, SHARE_ABS,
    SHARE_ABS_BEST_HEAD, SHARE_ABS_HOP, SHARE_ABS_NO_SINKS, SHARE_OUT, SHARE_OUT_BEST_HEAD, SHARE_OUT_HOP,
    SHARE_OUT_MEAN_HEAD, SHARE_POS, SHARE_SIGNED, SHARE_UNIFORM, SIGNED_LEFT_OUT, SINKS, SINK_RATE,
    SINK_SHARE_DETECTED, SINK_SHARE_FIRST, TOP_KEY_FLIPS, TOP_TOKEN_FLIPS, TOTAL_VARIATION, VALUE_NORM_FIRST,
    VALUE_NORM_SINKS, WEIGHT_MAX,
};
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
pub(super) const fn of(metric: &'static Metric) -> Quantity<'static> {
    Quantity { metric, region: None, cities: None }
}

/// A metric of a region.
pub(super) const fn on<'a>(metric: &'static Metric, region: &'a str) -> Quantity<'a> {
    Quantity { metric, region: Some(region), cities: None }
}

const ANSWER: &str = ANSWER_REGION;

const ANSWERS: &[Quantity<'static>] = &[
    of(&EXACT),
    of(&GENERATED_EXACT),
    of(&GENERATED_CONTAINS),
    of(&GENERATED_SET),
    of(&ANSWER_LOG_PROB),
    of(&ANSWER_FIRST_RANK),
    of(&NLL),
    of(&NLL_AR_HIT),
    of(&NLL_OTHER),
    of(&AR_HIT_SHARE),
];

const SIGNS: &[Quantity<'static>] = &[
    on(&SHARE_ABS, "sink"),
    on(&SHARE_POS, ANSWER),
    on(&SHARE_SIGNED, "bos"),
    on(&SHARE_POS, "bos"),
    of(&NOISE_POS),
    on(&MASS, ANSWER),
    on(&MASS, "filler"),
    of(&MASS_NEG),
    on(&NORM_OUT, ANSWER),
    of(&NOISE_NORM_OUT),
    of(&SIGNED_LEFT_OUT),
    of(&LAMBDA),
    of(&CANCELLED),
    on(&CANCELLED, ANSWER),
    on(&CANCELLED, "filler"),
    of(&CONTEXT_RMS),
    on(&LOGIT_OUT_SUM, ANSWER),
    on(&LOGIT_OUT_SUM, "filler"),
    on(&LOGIT_OUT_SUM, "question"),
];

const SHAPE: &[Quantity<'static>] = &[
    of(&ENTROPY),
    of(&EFFECTIVE_KEYS),
    of(&ATTENTION_DISTANCE),
    of(&KEYS_90),
    of(&KEYS_99),
    of(&WEIGHT_MAX),
    of(&SINKS),
    of(&SINK_SHARE_FIRST),
    of(&SINK_SHARE_DETECTED),
    of(&VALUE_NORM_FIRST),
    of(&VALUE_NORM_SINKS),
    of(&NOISE_OUT_NO_SINKS),
    on(&SHARE_ABS_NO_SINKS, ANSWER),
    of(&NOISE_ABS_NO_SINKS),
    on(&BOOST, ANSWER),
    on(&BOOST, "filler"),
];

const SINK_RATES: &[Quantity<'static>] = &[
    on(&SINK_RATE, TOKEN_KINDS[0]),
    on(&SINK_RATE, TOKEN_KINDS[1]),
    on(&SINK_RATE, TOKEN_KINDS[2]),
    on(&FIRST_TOKEN_SHARE, TOKEN_KINDS[0]),
    on(&FIRST_TOKEN_SHARE, TOKEN_KINDS[1]),
    on(&FIRST_TOKEN_SHARE, TOKEN_KINDS[2]),
];

const FIDELITY: &[Quantity<'static>] = &[
    of(&ANSWER_FLIPS),
    of(&TOP_TOKEN_FLIPS),
    of(&KL),
    of(&TOTAL_VARIATION),
    of(&TOP_KEY_FLIPS),
    of(&ROW_ERROR),
    of(&ERROR_CORRELATION),
    of(&ERROR_CANCELLED),
    of(&OUTPUT_COSINE),
    of(&OUTPUT_ERROR_MAX),
];

const BY_DEPTH: &[Quantity<'static>] = &[
    of(&EXACT),
    of(&ANSWER_LOG_PROB),
    on(&SHARE_OUT, ANSWER),
    of(&NOISE_OUT),
    on(&SHARE_ABS, ANSWER),
    of(&NOISE_ABS),
    of(&LAMBDA),
];

/// Readings of a row's shares: a name, the answer's and that of noise.
const READINGS: [(&str, Quantity<'static>, Option<Quantity<'static>>); 7] = [
    ("out", on(&SHARE_OUT, ANSWER), Some(of(&NOISE_OUT))),
    ("out, mean of heads", on(&SHARE_OUT_MEAN_HEAD, ANSWER), Some(of(&NOISE_OUT_MEAN_HEAD))),
    ("signed", on(&SHARE_SIGNED, ANSWER), Some(of(&NOISE_SIGNED))),
    ("|a|", on(&SHARE_ABS, ANSWER), Some(of(&NOISE_ABS))),
    ("even", on(&SHARE_UNIFORM, ANSWER), Some(of(&NOISE_UNIFORM))),
    ("best head, out", on(&SHARE_OUT_BEST_HEAD, ANSWER), None),
    ("best head, |a|", on(&SHARE_ABS_BEST_HEAD, ANSWER), None),
];

impl Quantity<'_> {
    /// Returns whether it means anything in a setting: plain text has no answer, and so no noise.
    fn applies(self, setting: Setting) -> bool {
        let of_answer = self.region == Some(ANSWER) || self.metric.name.starts_with("noise_");
        setting.1 > 0 || !of_answer
    }

    /// Returns whether it is estimated from scored tokens, where a run has them, and not from means of windows.
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
            CasePart::Answer(query) => pick.query(query),
        }
    }

    fn estimate(&self, frame: &Frame, case: &Case, part: CasePart<'_>) -> Option<Estimate> {
        let is_elsewhere = self.is_of_tokens() && !frame.tokens.0.is_empty();
        let applies = self.applies(case.setting) && !is_elsewhere;
        applies.then(|| frame.estimate(self.pick(case, part))).flatten()
    }

    fn cell(&self, found: Option<&Estimate>) -> SheetCell {
        found.map_or_else(SheetCell::none, |&found| SheetCell::estimate(self.metric.kind, found))
    }

    fn column(&self) -> SheetColumn {
        let cities = self.cities.map_or_else(String::new, |cities| format!(" {cities}"));
        let prefix = match self.cities {
            Some("train") => "training: ".to_owned(),
            Some(cities) => format!("{cities}: "),
            None => String::new(),
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

    pub(super) fn columns(&self) -> Vec<SheetColumn> {
        let mut columns = vec![words("model"), numbers("tokens")];
        columns.extend(self.needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
        columns.extend(self.condition.then(|| words("condition")));
        columns.into_iter().map(SheetColumn::key).collect()
    }

    pub(super) fn cells(&self, case: &Case) -> Vec<SheetCell> {
        let (ctx, needles, retrieve) = case.setting;
        let mut cells = vec![SheetCell::words(&case.model), SheetCell::count(Some(ctx))];
        let asked = [SheetCell::count(Some(needles)), SheetCell::count(Some(retrieve))];
        cells.extend(asked.into_iter().filter(|_| self.needles));
        cells.extend(self.condition.then(|| SheetCell::words(case.treated.name())));
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
    /// Those of the answers with one index.
    Answer(usize),
}

impl CasePart<'_> {
    fn column(self) -> Option<SheetColumn> {
        Some(match self {
            Self::Whole => return None,
            Self::Depth(_) => numbers("depth %").named("depth_pct").key(),
            Self::Task(_) => words("task").key(),
            Self::Answer(_) => numbers("answer of hop").named("query").key(),
        })
    }

    fn cell(self) -> Option<SheetCell> {
        Some(match self {
            Self::Whole => return None,
            Self::Depth(depth) => SheetCell::count(Some(depth)),
            Self::Task(task) => SheetCell::words(task),
            Self::Answer(query) => SheetCell::count(Some(query)),
        })
    }
}

/// Builds a table with a row for each case, or for each of its depths, and a column for each quantity, without those that have
/// no number. Where a run has several tasks, each has rows of its own, unless they are by depth.
pub(super) fn table(frame: &Frame, heading: Heading, depths: &[f64], quantities: &[Quantity<'_>]) -> Option<Sheet> {
    // The orders of many-shot prompts are tasks too, and have a table of their own.
    let tasks = if frame.config_text("show") == "shots" { &[] } else { frame.tasks() };
    let parts = match (depths, tasks) {
        ([], [] | [_]) => vec![CasePart::Whole],
        ([], tasks) => tasks.iter().map(|task| CasePart::Task(task)).collect(),
        (depths, _) => depths.iter().map(|&depth| CasePart::Depth(depth)).collect(),
    };
    table_of_parts(frame, heading, &parts, quantities)
}

fn table_of_parts(
    frame: &Frame,
    (id, title, note): Heading,
    parts: &[CasePart<'_>],
    quantities: &[Quantity<'_>],
) -> Option<Sheet> {
    let keys = CaseKeys::new(frame);
    let mut columns = keys.columns();
    columns.extend(parts.first()?.column());
    columns.push(basis("prompts"));
    columns.extend(quantities.iter().map(Quantity::column));
    let row = |(case, part): &(Case, CasePart<'_>)| {
        let found: Vec<Option<Estimate>> = quantities.iter().map(|q| q.estimate(frame, case, *part)).collect();
        let prompts = found.iter().flatten().map(|found| found.prompts).max()?;
        let mut cells = keys.cells(case);
        cells.extend(part.cell());
        cells.push(SheetCell::count(Some(prompts)));
        cells.extend(quantities.iter().zip(&found).map(|(quantity, found)| quantity.cell(found.as_ref())));
        Some(cells)
    };
    let places: Vec<(Case, CasePart<'_>)> =
        frame.cases().into_iter().flat_map(|case| parts.iter().map(move |&part| (case.clone(), part))).collect();
    let rows = places.par_iter().filter_map(row).collect();
    without_zeros(Sheet::new(id, title, note, columns, rows)).trimmed()
}

/// Empties columns of shares and effects that are zero in every row: regions that the prompts do not have.
fn without_zeros(mut sheet: Sheet) -> Sheet {
    let is_of_region =
        |column: &SheetColumn| ["share_", LOGIT_OUT_SUM.name].iter().any(|of| column.name.starts_with(of));
    for i in (0..sheet.columns.len()).filter(|&i| is_of_region(&sheet.columns[i])) {
        if sheet.rows.iter().all(|row| row[i].exact == Some(0.0)) {
            sheet.rows.iter_mut().for_each(|row| row[i] = SheetCell::none());
        }
    }
    sheet
}

/// Every table of metrics that the run has numbers for.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let tables =
        [answers, by_hop, unanswerable, attention, regions, fidelity, by_depth, signs, shape, sink_rates, other];
    tables.into_iter().filter_map(|table| table(frame)).collect()
}

pub(super) const INTERVALS: &str = "[95 % interval]";

fn answers(frame: &Frame) -> Option<Sheet> {
    let title = if frame.has(EXACT.name) { "Answers in full" } else { "Prediction" };
    let note = format!("Hits in percent, otherwise means over prompts {INTERVALS}.");
    let sheet = table(frame, ("answers", title, note), &[], ANSWERS)?;
    let at_the_floor = |case: &Case| frame.estimate(case.pick(&EXACT, None)).is_some_and(|found| found.value == 0.0);
    Some(with_words(frame, sheet, "remark", |case| at_the_floor(case).then_some("accuracy at the floor")))
}

/// Accuracy of each name of a chain, and what its rows take from the needle of each hop.
fn by_hop(frame: &Frame) -> Option<Sheet> {
    let of = |wanted: &'static Metric| {
        let regions = frame.metrics().iter().filter(move |(metric, ..)| metric == wanted.name);
        regions.filter_map(move |(_, region, _)| Some(on(wanted, region.as_deref()?)))
    };
    let hops = of(&SHARE_OUT_HOP).count();
    let answers = [self::of(&EXACT), self::of(&GENERATED_CONTAINS)];
    let quantities: Vec<Quantity<'_>> =
        answers.into_iter().chain(of(&SHARE_OUT_HOP)).chain(of(&SHARE_ABS_HOP)).chain(of(&LOGIT_OUT_HOP)).collect();
    let note = format!(
        "Rows: answers, the names of a chain in its order. Columns: the needle that gives the name of each hop its value \
         {INTERVALS}."
    );
    let parts: Vec<CasePart<'_>> = (0..hops).map(CasePart::Answer).collect();
    table_of_parts(frame, ("hops", "Chains by hop", note), &parts, &quantities)
}

/// Answers to questions without an answer, beside those to the same texts with one.
fn unanswerable(frame: &Frame) -> Option<Sheet> {
    if !frame.cities().iter().any(|cities| cities == "absent") {
        return None;
    }
    let in_set = |metric, cities| Quantity { cities: Some(cities), ..of(metric) };
    let absent = [&SAID_NUMBER, &SAID_OTHER_NEEDLE, &SAID_LOG_PROB].map(|metric| in_set(metric, "absent"));
    let train = [&SAID_NUMBER, &SAID_LOG_PROB].map(|metric| in_set(metric, "train"));
    let note = format!(
        "Asked for cities that the text does not name (absent), beside the same texts asked for what they hold (training) \
         {INTERVALS}."
    );
    let quantities: Vec<Quantity<'_>> = absent.into_iter().chain(train).collect();
    table(frame, ("unanswerable", "Questions without an answer", note), &[], &quantities)
}

/// Shares of the answer and of noise, a row for each reading.
fn attention(frame: &Frame) -> Option<Sheet> {
    let case_keys = CaseKeys::new(frame);
    let keys = [words("reading").key(), basis("prompts")];
    let found = [numbers("answer %").named("answer"), numbers("noise %").named("noise"), words("").named("remark")];
    let columns = [case_keys.columns(), keys.into(), found.into()].concat();
    let row = |(case, (reading, answer, noise)): &(Case, (&str, Quantity<'_>, Option<Quantity<'_>>))| {
        let share = answer.estimate(frame, case, CasePart::Whole);
        let of_noise = noise.and_then(|noise| noise.estimate(frame, case, CasePart::Whole));
        let prompts = share.iter().chain(&of_noise).map(|found| found.prompts).max()?;
        let is_even = *reading == READINGS[0].0 && is_near_even(frame, case);
        let remark = if is_even { SheetCell::words("near even") } else { SheetCell::none() };
        let shares = [answer.cell(share.as_ref()), noise.map_or_else(SheetCell::none, |q| q.cell(of_noise.as_ref()))];
        let place = [case_keys.cells(case), vec![SheetCell::words(*reading), SheetCell::count(Some(prompts))]].concat();
        Some([place, shares.into(), vec![remark]].concat())
    };
    let rows: Vec<_> =
        frame.cases().into_iter().flat_map(|case| READINGS.map(|reading| (case.clone(), reading))).collect();
    let rows = rows.par_iter().filter_map(row).collect();
    let note = format!(
        "Out: of what all heads write. Others are means over heads. Signed and |a|: of the weights and of their magnitudes. \
         Even: of an even spread {INTERVALS}."
    );
    Sheet::new("attention", "Where the attention goes", note, columns, rows).trimmed()
}

/// Returns whether the interval of the answer's share of the output holds that of an even spread.
fn is_near_even(frame: &Frame, case: &Case) -> bool {
    let of = |metric| frame.estimate(case.pick(metric, Some(ANSWER)));
    let (Some(even), Some(share)) = (of(&SHARE_UNIFORM), of(&SHARE_OUT)) else { return false };
    share.interval.is_some_and(|interval| interval.contains(even.value))
}

/// The share of the output of every region but the answer.
fn regions(frame: &Frame) -> Option<Sheet> {
    let others = frame.regions().iter().filter(|region| *region != ANSWER);
    let quantities: Vec<Quantity<'_>> = others.map(|region| on(&SHARE_OUT, region)).collect();
    let note = format!("Share of what all heads write {INTERVALS}.");
    let sheet = table(frame, ("regions", "Regions", note), &[], &quantities)?;
    // Where nothing is asked, regions are all there is.
    Some(if frame.asks() { sheet.details() } else { sheet })
}

/// Adds a column of words about the cases of a table, if there are any.
fn with_words<'a>(
    frame: &Frame,
    mut sheet: Sheet,
    name: &'static str,
    about: impl Fn(&Case) -> Option<&'a str>,
) -> Sheet {
    let (keys, known) = (CaseKeys::new(frame), frame.cases());
    let of_row = |row: &Vec<SheetCell>| known.iter().find(|case| row.starts_with(&keys.cells(case))).and_then(&about);
    let found: Vec<Option<&str>> = sheet.rows.iter().map(of_row).collect();
    if found.iter().any(Option::is_some) {
        sheet.columns.push(words("").named(name));
        let cell = |words: Option<&str>| words.map_or_else(SheetCell::none, SheetCell::words);
        sheet.rows.iter_mut().zip(found).for_each(|(row, words)| row.push(cell(words)));
    }
    sheet
}

fn fidelity(frame: &Frame) -> Option<Sheet> {
    let note = format!(
        "Against the untreated pass over the same prompt {INTERVALS}. Destroyed: accuracy below half of the untreated one, \
         or, where nothing is asked, most likely tokens changed by half."
    );
    let sheet = table(frame, ("fidelity", "Changes by quantisation", note), &[], FIDELITY)?;
    Some(with_words(frame, sheet, "verdict", |case| is_destroyed(frame, case).then_some("destroyed")))
}

/// Returns whether a condition destroys the model.
pub(super) fn is_destroyed(frame: &Frame, case: &Case) -> bool {
    if case.treated.condition.is_none() {
        return false;
    }
    let untreated = Case { treated: ConditionKey::default(), ..case.clone() };
    let accuracy = |case: &Case| frame.estimate(case.pick(&EXACT, None));
    match (accuracy(&untreated), accuracy(case).and_then(|after| after.interval)) {
        (Some(before), Some(after)) => after.hi < 0.5 * before.value,
        _ => frame.mean(case.pick(&TOP_TOKEN_FLIPS, None)).is_some_and(|flips| flips > 0.5),
    }
}

/// The sink rate over texts, random tokens, and one token repeated.
pub(super) fn sink_rates(frame: &Frame) -> Option<Sheet> {
    let note = format!(
        "Share of heads whose first token has more than 0.3 of the attention over the first 64 rows, and that attention as a \
         mean over heads {INTERVALS}. Random and repeated tokens begin with no special token."
    );
    table(frame, ("sink-rate", "Sink rate", note), &[], SINK_RATES)
}

fn signs(frame: &Frame) -> Option<Sheet> {
    // BOS stands for the answer where nothing is asked.
    let asked = frame.asks() && frame.regions().iter().any(|region| region == ANSWER);
    let skip = if asked { "bos" } else { ANSWER };
    let quantities: Vec<_> = SIGNS.iter().filter(|quantity| quantity.region != Some(skip)).copied().collect();
    let note = format!("Signed rows in the other conventions, and raw masses {INTERVALS}.");
    table(frame, ("signs", "Signs and masses", note), &[], &quantities).map(Sheet::details)
}

fn shape(frame: &Frame) -> Option<Sheet> {
    let note =
        format!("How spread out the rows are, and shares without the first token and detected sinks {INTERVALS}.");
    table(frame, ("shape", "Shape of the rows", note), &[], SHAPE).map(Sheet::details)
}

/// Accuracy and shares with a row for each depth, where there are several.
fn by_depth(frame: &Frame) -> Option<Sheet> {
    let depths = frame.depths_pct();
    let note = format!("By depth of the answer in the text {INTERVALS}.");
    let several = depths.len() > 1;
    several.then(|| table(frame, ("depth", "By depth", note), &depths, BY_DEPTH).map(Sheet::details)).flatten()
}

/// Metrics that no other table shows, one row for each.
fn other(frame: &Frame) -> Option<Sheet> {
    let of_hops = [&SHARE_OUT_HOP, &SHARE_ABS_HOP, &LOGIT_OUT_HOP].map(of);
    let shown = [ANSWERS, SIGNS, SHAPE, FIDELITY, SINK_RATES, &of_hops].concat();
    let of_readings = |name: &str| {
        READINGS.iter().any(|(_, answer, noise)| {
            answer.metric.name == name || noise.is_some_and(|noise| noise.metric.name == name)
        })
    };
    let is_shown = |name: &str| shown.iter().any(|quantity| quantity.metric.name == name) || of_readings(name);
    let keys = CaseKeys::new(frame);
    let mut columns = keys.columns();
    columns.extend([words("metric"), words("region"), words("unit")].map(SheetColumn::key));
    columns.push(basis("prompts"));
    columns.push(numbers("mean"));
    let mut rows = Vec::new();
    for case in frame.cases() {
        for (name, region, unit) in frame.metrics().iter().filter(|(name, ..)| !is_shown(name)) {
            let pick = Pick::of(&case.model, name).setting(case.setting).condition(case.treated.condition.as_deref());
            let pick = region.as_deref().map_or(pick, |region| pick.region(region));
            let Some(found) = frame.estimate(pick) else { continue };
            let word = |text: &Option<String>| text.as_deref().map_or_else(SheetCell::none, SheetCell::words);
            let place = vec![SheetCell::words(name), word(region), word(unit), SheetCell::count(Some(found.prompts))];
            let mean = SheetCell::value(Kind::Number, found.value, found.interval);
            rows.push([keys.cells(&case), place, vec![mean]].concat());
        }
    }
    let note = format!("Means over prompts {INTERVALS}.");
    Sheet::new("other", "Other metrics", note, columns, rows).details().trimmed()
}
