//! Tables of means: what each model did under each condition, with 95 % intervals.

use super::data::{cities_name, Case, Data, Prompts, Quantity};
use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use rayon::prelude::*;

const fn hits(heading: &'static str, metric: &'static str) -> Quantity<'static> {
    Quantity { heading, metric, region: None, kind: Kind::Hits }
}

const fn share<'a>(heading: &'a str, metric: &'a str, region: Option<&'a str>) -> Quantity<'a> {
    Quantity { heading, metric, region, kind: Kind::Share }
}

const fn number<'a>(heading: &'a str, metric: &'a str, region: Option<&'a str>) -> Quantity<'a> {
    Quantity { heading, metric, region, kind: Kind::Number }
}

pub(super) const ACCURACY: Quantity<'static> = hits("accuracy %", "exact");
pub(super) const LOG_PROB: Quantity<'static> = number("answer log-prob (nats)", "answer_log_prob", None);
pub(super) const ANSWER: Quantity<'static> = share("answer, out %", "share_out", Some("answer"));
pub(super) const NOISE: Quantity<'static> = share("noise, out %", "noise_out", None);
pub(super) const ANSWER_ABS: Quantity<'static> = share("answer, |a| %", "share_abs", Some("answer"));
pub(super) const NOISE_ABS: Quantity<'static> = share("noise, |a| %", "noise_abs", None);
const ANSWER_SIGNED: Quantity<'static> = share("answer, signed %", "share_signed", Some("answer"));
const NOISE_SIGNED: Quantity<'static> = share("noise, signed %", "noise_signed", None);
pub(super) const NLL: Quantity<'static> = number("NLL of prose (nats)", "nll", None);
pub(super) const ENTROPY: Quantity<'static> = number("entropy (nats)", "entropy", None);
pub(super) const KEYS_90: Quantity<'static> = number("keys for 90 %", "keys_90", None);

const ANSWERS: &[Quantity<'static>] = &[
    hits("generated exact %", "generated_exact"),
    hits("generated contains %", "generated_contains"),
    LOG_PROB,
    number("rank of first token", "answer_first_rank", None),
    NLL,
    number("NLL of AR hits (nats)", "nll_ar_hit", None),
    number("NLL of others (nats)", "nll_other", None),
    share("AR hits %", "ar_hit_share", None),
];

const CONVENTIONS: &[Quantity<'static>] = &[
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
    number("context RMS", "context_rms", None),
    number("answer's direct effect (logits)", "logit_out_sum", Some("answer")),
];

const SHAPE: &[Quantity<'static>] = &[
    ENTROPY,
    KEYS_90,
    number("keys for 99 %", "keys_99", None),
    share("largest weight %", "weight_max", None),
    number("sinks", "sinks", None),
    share("first token %", "sink_share_first", None),
    share("detected sinks %", "sink_share_detected", None),
    share("answer without sinks %", "share_abs_no_sinks", Some("answer")),
    share("noise without sinks %", "noise_abs_no_sinks", None),
    number("answer boost", "boost", Some("answer")),
    number("filler boost", "boost", Some("filler")),
];

const FIDELITY: &[Quantity<'static>] = &[
    number("KL (nats)", "kl", None),
    number("KL of context (nats)", "kl_context", None),
    share("TV %", "total_variation", None),
    share("TV of context %", "total_variation_context", None),
    share("top key flips %", "top_key_flips", None),
    share("top key flips in context %", "top_key_flips_context", None),
    share("top token flips %", "top_token_flips", None),
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
pub(super) fn sheets(data: &Data<'_>) -> Vec<Sheet> {
    let tables =
        [accuracy(data), attention(data), fidelity(data), by_depth(data), conventions(data), shape(data), other(data)];
    tables.into_iter().flatten().collect()
}

/// One column of a table: its heading, a quantity, and which prompts it is over.
struct Wanted<'a> {
    heading: String,
    quantity: Quantity<'a>,
    of: Prompts<'a>,
}

impl<'a> Wanted<'a> {
    /// Over the prompts that means are usually over.
    fn usual(data: &'a Data<'_>, quantity: Quantity<'a>) -> Self {
        let of = Prompts { cities: data.usual_cities(), depth_pct: None };
        Self { heading: quantity.heading.to_owned(), quantity, of }
    }
}

/// What says which case a row is about, as far as cases differ: columns and the cells of a case.
pub(super) struct Names {
    needles: bool,
    condition: bool,
}

impl Names {
    pub(super) fn new(data: &Data<'_>) -> Self {
        Self {
            needles: data.settings.iter().any(|setting| setting.1 > 0),
            condition: data.conditions.iter().any(|condition| condition.name.is_some()),
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![words("model"), numbers("tokens")];
        columns.extend(self.needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
        columns.extend(self.condition.then(|| words("condition")));
        columns
    }

    fn cells(&self, case: &Case) -> Vec<Cell> {
        let (ctx, needles, retrieve) = case.setting;
        let mut cells = vec![Cell::words(&case.model), Cell::count(Some(ctx))];
        cells.extend(
            self.needles.then(|| [Cell::count(Some(needles)), Cell::count(Some(retrieve))]).into_iter().flatten(),
        );
        cells.extend(self.condition.then(|| Cell::words(case.condition.name())));
        cells
    }
}

/// A table with a row for each case and a column for each quantity, less those without a number.
fn table(
    data: &Data<'_>,
    (id, title, note): (&'static str, &'static str, String),
    wanted: &[Wanted<'_>],
) -> Option<Sheet> {
    let names = Names::new(data);
    let mut columns = names.columns();
    columns.push(numbers("prompts"));
    columns.extend(wanted.iter().map(|wanted| numbers(&wanted.heading)));
    let row = |case: &Case| {
        let estimates: Vec<Cell> = wanted.iter().map(|w| data.estimate(case, w.quantity, w.of)).collect();
        let of = wanted.first().map_or_else(Prompts::default, |wanted| wanted.of);
        let measured = estimates.iter().any(|cell| !cell.is_none());
        measured.then(|| [names.cells(case), vec![Cell::count(Some(data.count(case, of)))], estimates].concat())
    };
    // The bootstrap takes its time: rows are worked out side by side and come out in order.
    let rows = data.cases().par_iter().map(row).collect::<Vec<_>>().into_iter().flatten().collect();
    Sheet { id, title, note, columns, rows, detail: false }.trimmed()
}

fn details(sheet: Sheet) -> Sheet {
    Sheet { detail: true, ..sheet }
}

/// What means are over, for the notes.
fn over(data: &Data<'_>) -> &'static str {
    match data.usual_cities() {
        Some(_) => "means over prompts with training cities",
        None => "means over prompts",
    }
}

const INTERVALS: &str = "[95 % bootstrap interval]";

fn accuracy(data: &Data<'_>) -> Option<Sheet> {
    let mut wanted = vec![Wanted::usual(data, ACCURACY)];
    let others = data.cities.iter().filter(|cities| data.usual_cities().is_some_and(|usual| usual != *cities));
    wanted.extend(others.map(|cities| Wanted {
        heading: format!("{} cities: accuracy %", cities_name(cities)),
        quantity: ACCURACY,
        of: Prompts { cities: Some(cities), depth_pct: None },
    }));
    wanted.extend(ANSWERS.iter().map(|&quantity| Wanted::usual(data, quantity)));
    let asked = data.metrics.iter().any(|(metric, ..)| metric == ACCURACY.metric);
    let (title, note) = if asked {
        (
            "Answers",
            format!(
                "Exact matches of the numbers asked for [95 % Wilson interval]; otherwise {} {INTERVALS}.",
                over(data)
            ),
        )
    } else {
        ("Prediction", format!("{} {INTERVALS}.", capital(over(data))))
    };
    table(data, ("accuracy", title, note), &wanted)
}

fn attention(data: &Data<'_>) -> Option<Sheet> {
    let mut quantities =
        vec![ANSWER, ANSWER_SIGNED, ANSWER_ABS, share("answer, even %", "share_uniform", Some("answer"))];
    quantities.extend([NOISE, NOISE_SIGNED, NOISE_ABS, share("noise, even %", "noise_uniform", None)]);
    let others = data.regions.iter().filter(|region| *region != "answer");
    quantities.extend(others.map(|region| share(region, data.headline, Some(region))));
    let best_head = if data.headline == "share_out" { "share_out_best_head" } else { "share_abs_best_head" };
    quantities.push(share("best head's answer", best_head, Some("answer")));
    let wanted: Vec<Wanted<'_>> = quantities.into_iter().map(|quantity| Wanted::usual(data, quantity)).collect();
    let what = if data.headline == "share_out" {
        "What regions give the output of the heads in % of it (out); beside it shares of weights as they are added \
         (signed), of their magnitude (|a|), and of attention spread evenly. Out sees values and what is cancelled, the \
         others do not; none of them says whether what is written matters."
    } else {
        "Share of |attention| by region in %."
    };
    let note = format!("{what} Mean over heads and layers; {} {INTERVALS}.", over(data));
    let sheet = table(data, ("attention", "Where the attention goes", note), &wanted)?;
    without_zeros(sheet).trimmed()
}

/// The table with dashes for columns that are zero in every row: regions that the prompts do not have.
fn without_zeros(mut sheet: Sheet) -> Sheet {
    for i in 0..sheet.columns.len() {
        if sheet.rows.iter().all(|row| row[i].exact == Some(0.0)) {
            sheet.rows.iter_mut().for_each(|row| row[i] = Cell::none());
        }
    }
    sheet
}

fn fidelity(data: &Data<'_>) -> Option<Sheet> {
    let note = format!("Against the unquantised pass over the same prompt; {} {INTERVALS}.", over(data));
    let wanted: Vec<Wanted<'_>> = FIDELITY.iter().map(|&quantity| Wanted::usual(data, quantity)).collect();
    table(data, ("fidelity", "What quantisation changes", note), &wanted)
}

fn conventions(data: &Data<'_>) -> Option<Sheet> {
    let note = format!("Signed rows in the other conventions, and raw masses; {} {INTERVALS}.", over(data));
    // BOS stands for the answer where nothing is asked.
    let asked = data.regions.iter().any(|region| region == "answer" && data.settings.iter().any(|s| s.1 > 0));
    let skip = if asked { "bos" } else { "answer" };
    let quantities = CONVENTIONS.iter().filter(|quantity| quantity.region != Some(skip));
    let wanted: Vec<Wanted<'_>> = quantities.map(|&quantity| Wanted::usual(data, quantity)).collect();
    table(data, ("conventions", "Signs and masses", note), &wanted).map(details)
}

fn shape(data: &Data<'_>) -> Option<Sheet> {
    let note = format!(
        "How spread out the rows are, and what is left without the first token and detected sinks; {} {INTERVALS}.",
        over(data)
    );
    let wanted: Vec<Wanted<'_>> = SHAPE.iter().map(|&quantity| Wanted::usual(data, quantity)).collect();
    table(data, ("shape", "Shape of the rows", note), &wanted).map(details)
}

/// Accuracy and headline shares with a row for each depth, where there are several.
fn by_depth(data: &Data<'_>) -> Option<Sheet> {
    if data.depths_pct.len() < 2 {
        return None;
    }
    let names = Names::new(data);
    let quantities = [ACCURACY, LOG_PROB, ANSWER, NOISE, ANSWER_ABS, NOISE_ABS];
    let mut columns = names.columns();
    columns.extend([numbers("depth %"), numbers("prompts")]);
    columns.extend(quantities.iter().map(|quantity| numbers(quantity.heading)));
    let row = |(case, depth): &(Case, f64)| {
        let of = Prompts { cities: data.usual_cities(), depth_pct: Some(*depth) };
        let estimates: Vec<Cell> = quantities.iter().map(|&quantity| data.estimate(case, quantity, of)).collect();
        let measured = estimates.iter().any(|cell| !cell.is_none());
        let place = vec![Cell::count(Some(*depth)), Cell::count(Some(data.count(case, of)))];
        measured.then(|| [names.cells(case), place, estimates].concat())
    };
    let places: Vec<(Case, f64)> =
        data.cases().iter().flat_map(|case| data.depths_pct.iter().map(|&depth| (case.clone(), depth))).collect();
    let rows = places.par_iter().map(row).collect::<Vec<_>>().into_iter().flatten().collect();
    let note =
        format!("By depth of the answer in the text: accuracy [95 % Wilson interval]; {} {INTERVALS}.", over(data));
    Sheet { id: "depth", title: "By depth", note, columns, rows, detail: true }.trimmed()
}

/// Metrics that no other table knows, one row for each.
fn other(data: &Data<'_>) -> Option<Sheet> {
    let known = [ANSWERS, CONVENTIONS, SHAPE, FIDELITY].concat();
    let is_known =
        |metric: &str| known.iter().any(|quantity| quantity.metric == metric) || OF_ATTENTION.contains(&metric);
    let names = Names::new(data);
    let mut columns = names.columns();
    columns.extend([words("metric"), words("region"), words("unit"), numbers("prompts"), numbers("mean")]);
    let mut rows = Vec::new();
    for case in data.cases() {
        for (metric, region, unit) in data.metrics.iter().filter(|(metric, ..)| !is_known(metric)) {
            let of = Prompts { cities: data.usual_cities(), depth_pct: None };
            let mean = data.estimate(&case, number(metric, metric, region.as_deref()), of);
            let word = |text: &Option<String>| text.as_deref().map_or_else(Cell::none, Cell::words);
            let place = vec![Cell::words(metric), word(region), word(unit), Cell::count(Some(data.count(&case, of)))];
            rows.extend((!mean.is_none()).then(|| [names.cells(&case), place, vec![mean]].concat()));
        }
    }
    let note = format!("{} {INTERVALS}.", capital(over(data)));
    Sheet { id: "other", title: "Other measures", note, columns, rows, detail: true }.trimmed()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
