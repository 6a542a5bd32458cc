//! Tables of means: what each model did under each condition, with 95 % intervals.

use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use super::{estimate, Names, Prompts, Shown};
use crate::frame::{Case, ConditionKey, Frame};
use rayon::prelude::*;

const fn hits(heading: &'static str, metric: &'static str) -> Shown<'static> {
    Shown { heading, metric, region: None, kind: Kind::Hits }
}

const fn share<'a>(heading: &'a str, metric: &'a str, region: Option<&'a str>) -> Shown<'a> {
    Shown { heading, metric, region, kind: Kind::Share }
}

const fn number<'a>(heading: &'a str, metric: &'a str, region: Option<&'a str>) -> Shown<'a> {
    Shown { heading, metric, region, kind: Kind::Number }
}

pub(super) const ACCURACY: Shown<'static> = hits("accuracy %", "exact");
pub(super) const LOG_PROB: Shown<'static> = number("answer log-prob (nats)", "answer_log_prob", None);
pub(super) const ANSWER: Shown<'static> = share("answer, out %", "share_out", Some("answer"));
pub(super) const NOISE: Shown<'static> = share("noise, out %", "noise_out", None);
pub(super) const ANSWER_ABS: Shown<'static> = share("answer, |a| %", "share_abs", Some("answer"));
pub(super) const NOISE_ABS: Shown<'static> = share("noise, |a| %", "noise_abs", None);
const ANSWER_EVEN: Shown<'static> = share("answer, even %", "share_uniform", Some("answer"));
pub(super) const NLL: Shown<'static> = number("NLL of prose (nats)", "nll", None);
pub(super) const ENTROPY: Shown<'static> = number("entropy (nats)", "entropy", None);
pub(super) const KEYS_90: Shown<'static> = number("keys for 90 %", "keys_90", None);

pub(super) const GENERATED: Shown<'static> = hits("generated exact %", "generated_exact");
pub(super) const ANSWER_NO_SINKS: Shown<'static> =
    share("answer without sinks %", "share_abs_no_sinks", Some("answer"));
pub(super) const NOISE_NO_SINKS: Shown<'static> = share("noise without sinks %", "noise_abs_no_sinks", None);
const NUMBER: Shown<'static> = hits("says a number %", "said_number");
const OTHER_NEEDLE: Shown<'static> = hits("another city's %", "said_other_needle");
const SAID_LOG_PROB: Shown<'static> = number("log-prob of what it says (nats)", "said_log_prob", None);
const TOKEN_FLIPS: Shown<'static> = share("top token flips %", "top_token_flips", None);

const ANSWERS: &[Shown<'static>] = &[
    GENERATED,
    hits("generated contains %", "generated_contains"),
    LOG_PROB,
    number("rank of first token", "answer_first_rank", None),
    NLL,
    number("NLL of AR hits (nats)", "nll_ar_hit", None),
    number("NLL of others (nats)", "nll_other", None),
    share("AR hits %", "ar_hit_share", None),
];

const CONVENTIONS: &[Shown<'static>] = &[
    share("sink logit, |a| %", "share_abs", Some("sink")),
    share("answer, positive %", "share_pos", Some("answer")),
    share("BOS, signed %", "share_signed", Some("bos")),
    share("BOS, positive %", "share_pos", Some("bos")),
    share("noise, positive %", "noise_pos", None),
    share("answer mass %", "mass", Some("answer")),
    share("filler mass %", "mass", Some("filler")),
    share("negative mass %", "mass_neg", None),
    share("answer's norm %", "norm_out", Some("answer")),
    share("noise's norm %", "noise_norm_out", None),
    number("heads without signed shares", "signed_left_out", None),
    number("lambda", "lambda", None),
    share("cancelled %", "cancelled", None),
    share("of the answer %", "cancelled", Some("answer")),
    share("of the filler %", "cancelled", Some("filler")),
    number("context RMS", "context_rms", None),
    number("answer's direct effect (logits)", "logit_out_sum", Some("answer")),
    number("filler's direct effect", "logit_out_sum", Some("filler")),
    number("question's direct effect", "logit_out_sum", Some("question")),
];

const SHAPE: &[Shown<'static>] = &[
    ENTROPY,
    KEYS_90,
    number("keys for 99 %", "keys_99", None),
    share("largest weight %", "weight_max", None),
    number("sinks", "sinks", None),
    share("first token %", "sink_share_first", None),
    share("detected sinks %", "sink_share_detected", None),
    number("first token's value", "value_norm_first", None),
    number("sinks' values", "value_norm_sinks", None),
    ANSWER_NO_SINKS,
    NOISE_NO_SINKS,
    number("answer boost", "boost", Some("answer")),
    number("filler boost", "boost", Some("filler")),
];

const FIDELITY: &[Shown<'static>] = &[
    number("KL (nats)", "kl", None),
    number("KL of context (nats)", "kl_context", None),
    share("TV %", "total_variation", None),
    share("TV of context %", "total_variation_context", None),
    share("top key flips %", "top_key_flips", None),
    share("top key flips in context %", "top_key_flips_context", None),
    TOKEN_FLIPS,
];

/// Metrics of the table of attention, and accuracy.
const OF_ATTENTION: [&str; 11] = [
    "exact",
    "share_out",
    "noise_out",
    "share_abs",
    "noise_abs",
    "share_signed",
    "noise_signed",
    "share_uniform",
    "noise_uniform",
    "share_out_best_head",
    "share_abs_best_head",
];

/// Every table of means that the run has numbers for.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let tables = [accuracy, unanswerable, attention, regions, fidelity, by_depth, conventions, shape, other];
    tables.into_iter().filter_map(|table| table(frame)).collect()
}

/// One column of a table: its heading, a quantity, and which prompts it is over.
struct Wanted<'a> {
    heading: String,
    shown: Shown<'a>,
    of: Prompts<'a>,
}

impl<'a> Wanted<'a> {
    /// Over the prompts that means are usually over.
    fn usual(frame: &'a Frame, shown: &[Shown<'a>]) -> Vec<Self> {
        let of = Prompts::usual(frame);
        shown.iter().map(|&shown| Self { heading: shown.heading.to_owned(), shown, of }).collect()
    }

    fn column(&self, usual: Prompts<'_>) -> Column {
        let other = self.of.cities.filter(|_| self.of.cities != usual.cities);
        let cities = other.map_or(String::new(), |cities| format!(" {cities}"));
        numbers(&self.heading).named(format!("{}{cities}", self.shown.name()))
    }
}

/// A table with a row for each case, or for each of its depths, and a column for each quantity, less those without a number.
fn table(
    frame: &Frame,
    (id, title, note): (&'static str, &'static str, String),
    depths: &[f64],
    wanted: &[Wanted<'_>],
) -> Option<Sheet> {
    let names = Names::new(frame);
    // Prompts are counted as the first column has them.
    let usual = wanted.first().map_or_else(|| Prompts::usual(frame), |wanted| wanted.of);
    let mut columns = names.columns();
    columns.extend((!depths.is_empty()).then(|| numbers("depth %").named("depth_pct").key()));
    columns.push(numbers("prompts").key());
    columns.extend(wanted.iter().map(|wanted| wanted.column(usual)));
    let row = |(case, depth_pct): &(Case, Option<f64>)| {
        let estimates: Vec<Cell> = wanted.iter().map(|w| estimate(frame, case, w.shown, w.of.at(*depth_pct))).collect();
        let measured = estimates.iter().any(|cell| !cell.is_none());
        let depth: Vec<Cell> = depth_pct.iter().map(|&depth| Cell::count(Some(depth))).collect();
        measured.then(|| [names.cells(case), depth, vec![usual.at(*depth_pct).count(frame, case)], estimates].concat())
    };
    let at: Vec<Option<f64>> = if depths.is_empty() { vec![None] } else { depths.iter().copied().map(Some).collect() };
    let places: Vec<_> =
        frame.cases().into_iter().flat_map(|case| at.iter().map(move |&depth| (case.clone(), depth))).collect();
    // The bootstrap takes its time: rows are worked out side by side and come out in order.
    let rows = places.par_iter().filter_map(row).collect();
    without_zeros(Sheet::new(id, title, note, columns, rows)).trimmed()
}

/// The table with dashes for columns of shares and effects that are zero in every row: regions that the prompts do not have.
fn without_zeros(mut sheet: Sheet) -> Sheet {
    let is_of_region = |column: &Column| ["share_", "logit_out_sum"].iter().any(|of| column.name.starts_with(of));
    for i in (0..sheet.columns.len()).filter(|&i| is_of_region(&sheet.columns[i])) {
        if sheet.rows.iter().all(|row| row[i].exact == Some(0.0)) {
            sheet.rows.iter_mut().for_each(|row| row[i] = Cell::none());
        }
    }
    sheet
}

/// What models say where the text holds no answer, beside what they say of the same texts where it does.
fn unanswerable(frame: &Frame) -> Option<Sheet> {
    if !frame.cities().iter().any(|cities| cities == "absent") {
        return None;
    }
    let (absent, train) = ([NUMBER, OTHER_NEEDLE, SAID_LOG_PROB], [NUMBER, SAID_LOG_PROB]);
    let wanted = |shown: Shown<'static>, cities: &'static str, prefix: &str| Wanted {
        heading: format!("{prefix}{}", shown.heading),
        shown,
        of: Prompts { cities: Some(cities), depth_pct: None },
    };
    let absent = absent.map(|shown| wanted(shown, "absent", ""));
    let train = train.map(|shown| wanted(shown, "train", "answerable: "));
    let note = format!(
        "Asked for cities that the text does not name, the models answer by themselves. Says a number: one all \
         the same [95 % Wilson interval]; another city's: one that the text gives to another city. Log-probability: of the \
         number that is said, by the model that says it; answerable: the same texts, asked for what they hold {INTERVALS}."
    );
    let wanted: Vec<Wanted<'_>> = absent.into_iter().chain(train).collect();
    table(frame, ("unanswerable", "Questions without an answer", note), &[], &wanted)
}

/// What means are over, for the notes.
fn over(frame: &Frame) -> &'static str {
    match frame.usual_cities() {
        Some(_) => "means over prompts with training cities",
        None => "means over prompts",
    }
}

const INTERVALS: &str = "[95 % bootstrap interval]";

fn accuracy(frame: &Frame) -> Option<Sheet> {
    let mut wanted = Wanted::usual(frame, &[ACCURACY]);
    let usual = frame.usual_cities();
    let others = frame.cities().iter().filter(|cities| usual.is_some_and(|usual| usual != *cities));
    wanted.extend(others.map(|cities| Wanted {
        heading: format!("{} cities: accuracy %", cities_name(cities)),
        shown: ACCURACY,
        of: Prompts { cities: Some(cities), depth_pct: None },
    }));
    wanted.extend(Wanted::usual(frame, ANSWERS));
    let asked = frame.metrics().iter().any(|(metric, ..)| metric == ACCURACY.metric);
    let (title, note) = if asked {
        let hits = "Exact matches of the numbers asked for [95 % Wilson interval]";
        ("Answers", format!("{hits}; otherwise {} {INTERVALS}.", over(frame)))
    } else {
        ("Prediction", format!("{} {INTERVALS}.", capital(over(frame))))
    };
    let sheet = table(frame, ("accuracy", title, note), &[], &wanted)?;
    let hits = |case: &Case| frame.proportion(case.pick(ACCURACY.quantity()));
    let at_the_floor = |case: &Case| Some(hits(case)).filter(|found| found.n > 0 && found.hits == 0);
    Some(with_words(frame, sheet, "remark", |case| at_the_floor(case).map(|_| "accuracy at the floor")))
}

/// Ways to read a row's shares: a name, the answer's and the noise's.
const READINGS: [(&str, Shown<'static>, Option<Shown<'static>>); 6] = [
    ("out", ANSWER, Some(NOISE)),
    ("signed", share("", "share_signed", Some("answer")), Some(share("", "noise_signed", None))),
    ("|a|", ANSWER_ABS, Some(NOISE_ABS)),
    ("even", ANSWER_EVEN, Some(share("", "noise_uniform", None))),
    ("best head, out", share("", "share_out_best_head", Some("answer")), None),
    ("best head, |a|", share("", "share_abs_best_head", Some("answer")), None),
];

/// Shares of the answer and of noise, a row for each reading.
fn attention(frame: &Frame) -> Option<Sheet> {
    let (names, usual) = (Names::new(frame), Prompts::usual(frame));
    let keys = [words("reading"), numbers("prompts")].map(Column::key);
    let found = [numbers("answer %").named("answer"), numbers("noise %").named("noise"), words("").named("remark")];
    let columns = [names.columns(), keys.into(), found.into()].concat();
    let row = |(case, (reading, answer, noise)): &(Case, (&str, Shown<'_>, Option<Shown<'_>>))| {
        let shares = [Some(*answer), *noise].map(|shown| shown.map(|shown| estimate(frame, case, shown, usual)));
        let shares = shares.map(|cell| cell.unwrap_or_else(Cell::none));
        let remark = answer_near_even(frame, case).filter(|_| *reading == READINGS[0].0);
        let remark = remark.map_or_else(Cell::none, Cell::words);
        let measured = shares.iter().any(|cell| !cell.is_none());
        let place = [names.cells(case), vec![Cell::words(*reading), usual.count(frame, case)]].concat();
        measured.then(|| [place, shares.into(), vec![remark]].concat())
    };
    let rows: Vec<_> =
        frame.cases().into_iter().flat_map(|case| READINGS.map(|reading| (case.clone(), reading))).collect();
    let rows = rows.par_iter().filter_map(row).collect();
    let note = format!(
        "Shares of the answer and of noise (template, filler, distractors). Out: of what the heads write; it sees values \
         and what is cancelled. Signed: of the weights as they are added. |a|: of their magnitudes. Even: if attention \
         were spread evenly. None says whether what is written matters: `ablate` does. Mean over heads and layers; {} \
         {INTERVALS}.",
        over(frame)
    );
    Sheet::new("attention", "Where the attention goes", note, columns, rows).trimmed()
}

/// The share of every region but the answer: of the output where that was measured, of |attention| otherwise.
fn regions(frame: &Frame) -> Option<Sheet> {
    let headline = frame.headline();
    let what = if headline == "share_out" { "what the heads write" } else { "|attention|" };
    let note = format!("Shares of {what} by region in %. Mean over heads and layers; {} {INTERVALS}.", over(frame));
    let others = frame.regions().iter().filter(|region| *region != "answer");
    let shown: Vec<Shown<'_>> = others.map(|region| share(region, headline, Some(region))).collect();
    let sheet = table(frame, ("regions", "Regions", note), &[], &Wanted::usual(frame, &shown))?;
    // Where nothing is asked, regions are all there is.
    Some(if frame.asks() { sheet.details() } else { sheet })
}

/// Whether the interval of the answer's share of the output holds what an even spread would give.
fn answer_near_even(frame: &Frame, case: &Case) -> Option<&'static str> {
    let of = |shown: Shown<'_>| frame.estimate(case, shown.quantity(), frame.usual_cities(), None);
    let (even, _) = of(ANSWER_EVEN)?;
    of(ANSWER)?.1.is_some_and(|share| share.contains(even)).then_some("near even")
}

/// The table with a column of words about its cases, if there are any.
fn with_words<'a>(
    frame: &Frame,
    mut sheet: Sheet,
    name: &'static str,
    about: impl Fn(&Case) -> Option<&'a str>,
) -> Sheet {
    let (names, known) = (Names::new(frame), frame.cases());
    let of_row = |row: &Vec<Cell>| known.iter().find(|case| row.starts_with(&names.cells(case))).and_then(&about);
    let found: Vec<Option<&str>> = sheet.rows.iter().map(of_row).collect();
    if found.iter().any(Option::is_some) {
        sheet.columns.push(words("").named(name));
        let cell = |words: Option<&str>| words.map_or_else(Cell::none, Cell::words);
        sheet.rows.iter_mut().zip(found).for_each(|(row, words)| row.push(cell(words)));
    }
    sheet
}

fn fidelity(frame: &Frame) -> Option<Sheet> {
    let note = format!("Against the untreated pass over the same prompt; {} {INTERVALS}. {DESTROYED}", over(frame));
    let sheet = table(frame, ("fidelity", "What quantisation changes", note), &[], &Wanted::usual(frame, FIDELITY))?;
    Some(with_words(frame, sheet, "verdict", |case| is_destroyed(frame, case).then_some("destroyed")))
}

const DESTROYED: &str =
    "Destroyed: the interval of its accuracy lies below half of the untreated accuracy, or, where nothing \
    is asked, more than half of its most likely tokens have changed.";

/// Whether the model is another one under a condition.
fn is_destroyed(frame: &Frame, case: &Case) -> bool {
    let untreated = Case { treated: ConditionKey::default(), ..case.clone() };
    let accuracy = |case: &Case| frame.proportion(case.pick(ACCURACY.quantity()));
    match (accuracy(&untreated).fraction, accuracy(case)) {
        _ if case.treated.condition.is_none() => false,
        (Some(before), after) => after.hi < 0.5 * before,
        (None, _) => frame.mean(case.pick(TOKEN_FLIPS.quantity())).is_some_and(|flips| flips > 0.5),
    }
}

fn conventions(frame: &Frame) -> Option<Sheet> {
    let note = format!("Signed rows in the other conventions, and raw masses; {} {INTERVALS}.", over(frame));
    // BOS stands for the answer where nothing is asked.
    let asked = frame.asks() && frame.regions().iter().any(|region| region == "answer");
    let skip = if asked { "bos" } else { "answer" };
    let shown: Vec<_> = CONVENTIONS.iter().filter(|shown| shown.region != Some(skip)).copied().collect();
    let wanted = Wanted::usual(frame, &shown);
    table(frame, ("conventions", "Signs and masses", note), &[], &wanted).map(Sheet::details)
}

fn shape(frame: &Frame) -> Option<Sheet> {
    let note = format!(
        "How spread out the rows are, and what is left without the first token and detected sinks; {} {INTERVALS}.",
        over(frame)
    );
    table(frame, ("shape", "Shape of the rows", note), &[], &Wanted::usual(frame, SHAPE)).map(Sheet::details)
}

/// Accuracy and shares with a row for each depth, where there are several.
fn by_depth(frame: &Frame) -> Option<Sheet> {
    let depths = frame.depths_pct();
    if depths.len() < 2 {
        return None;
    }
    let shown = [ACCURACY, LOG_PROB, ANSWER, NOISE, ANSWER_ABS, NOISE_ABS, number("lambda", "lambda", None)];
    let note =
        format!("By depth of the answer in the text: accuracy [95 % Wilson interval]; {} {INTERVALS}.", over(frame));
    table(frame, ("depth", "By depth", note), &depths, &Wanted::usual(frame, &shown)).map(Sheet::details)
}

/// Metrics that no other table knows, one row for each.
fn other(frame: &Frame) -> Option<Sheet> {
    let known = [ANSWERS, CONVENTIONS, SHAPE, FIDELITY].concat();
    let is_known = |metric: &str| known.iter().any(|shown| shown.metric == metric) || OF_ATTENTION.contains(&metric);
    let (names, usual) = (Names::new(frame), Prompts::usual(frame));
    let mut columns = names.columns();
    columns.extend([words("metric"), words("region"), words("unit"), numbers("prompts")].map(Column::key));
    columns.push(numbers("mean"));
    let mut rows = Vec::new();
    for case in frame.cases() {
        for (metric, region, unit) in frame.metrics().iter().filter(|(metric, ..)| !is_known(metric)) {
            let mean = estimate(frame, &case, number(metric, metric, region.as_deref()), usual);
            let word = |text: &Option<String>| text.as_deref().map_or_else(Cell::none, Cell::words);
            let place = vec![Cell::words(metric), word(region), word(unit), usual.count(frame, &case)];
            rows.extend((!mean.is_none()).then(|| [names.cells(&case), place, vec![mean]].concat()));
        }
    }
    let note = format!("{} {INTERVALS}.", capital(over(frame)));
    Sheet::new("other", "Other measures", note, columns, rows).details().trimmed()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The record's word for a set of cities, for people.
pub(crate) fn cities_name(cities: &str) -> &str {
    match cities {
        "train" => "training",
        "heldout" => "held-out",
        other => other,
    }
}
