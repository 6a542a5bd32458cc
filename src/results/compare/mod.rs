//! Comparing runs, measurement by measurement.
//!
//! Two records are *paired* if everything that was asked for is the same but what is compared: for two models the same
//! prompt (its settings and its seed), the same question, rows, bits, layer, head, metric and region. What is reported is
//! the difference within pairs; records without another half are listed and left out. The way from records to rows:
//!
//! 1. [`Input`]s are found and their manifests compared: other prompts are refused, all else that differs is said.
//! 2. Records are selected: none that failed, of layers and heads that nobody asked for, or that do not meet the conditions.
//! 3. Sides are chosen. Between two inputs of one model each, models are compared with each
//!    other; otherwise inputs are compared model by model. With a column to compare by, all inputs are one heap of
//!    records, and every value of the column is compared with the first.
//!    Where depths are spoken of, only the question of each prompt counts whose needle was put there.
//! 4. Their records are paired; the same measurement twice is an error.
//! 5. Pairs become [`Row`]s, one for each metric, region and group. Several questions of one prompt are not
//!    independent, nor is what else is made of one seed, so means, differences and intervals are over prompts, each the mean of
//!    all that has its seed. Interval and test are of the same hypothesis: Tango's and McNemar's of hits and misses, in which
//!    questions of one prompt count as much as they differ, and Student's t corrected for skewness of anything else. All
//!    p-values are corrected together.
//!
//! Where models are [`Replicates`] (recipes, each trained from several seeds), seeds of one number are paired, and what is
//! independent are seeds and prompts: each prompt that all seeds have counts once for each seed, intervals and p-values are
//! those of [`Replicated`](crate::stats::Replicated), and fewer than three seeds have neither.
//!
//! Nothing depends on the order of records but which value of a column is the baseline when none is named: the first.

mod fail_if;
mod input;
mod manifests;
mod notes;
mod pairing;
mod request;
mod rows;
mod tables;

pub use fail_if::FailIf;
pub use input::Input;
pub use manifests::Mismatch;
pub use request::{Counts, MetricName, Request, Where};

use super::column::{self, Column, Value};
use super::difference::Row;
use super::pair::joined_columns;
use super::record::{self, metric_name, Identity, Record, Units};
use crate::bail_usage;
use crate::base::names::Replicates;
use anyhow::{bail, Result};
use manifests::check_manifests;
use notes::{note_pairs, note_rows};
use pairing::Pairing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The inputs, each with its number of records.
    pub inputs: Vec<(Input, Counts)>,
    /// Differences between the manifest of the first input and that of each other, where both have one.
    pub differences: Vec<(String, Vec<Mismatch>)>,
    /// The sets that were paired.
    pub pairings: Vec<PairedSets>,
    /// Columns that there is a row for each value of.
    pub groups: Vec<Column>,
    pub rows: Vec<Row>,
    /// Further notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

/// Two sets of records that were paired.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PairedSets {
    pub baseline: String,
    /// The side that is compared with it.
    pub other: String,
    /// Columns in which the records of a pair may differ.
    pub regardless_of: String,
    pub pairs: usize,
    /// Records of the baseline that the other does not have.
    pub only_baseline: Unpaired,
    /// Records of the other that the baseline does not have.
    pub only_other: Unpaired,
}

/// Records without another half.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Unpaired {
    /// Number of each metric.
    pub by_metric: BTreeMap<String, usize>,
    /// All of them, in words.
    pub cases: Vec<String>,
}

/// Compares inputs, or what is within them, as a request asks.
///
/// # Errors
/// Usage errors if the request is not possible, or the prompts are not the same; others if a file cannot be read or
/// holds the same measurement twice.
pub fn compare(request: &Request) -> Result<Comparison> {
    if !request.key.is_empty() {
        return tables::compare_tables(request);
    }
    request.check_columns()?;
    if let Some(i) = (1..request.inputs.len()).find(|&i| request.inputs[..i].contains(&request.inputs[i])) {
        if request.compared().is_some() {
            bail_usage!("{} is named twice", request.inputs[i].display());
        }
    }
    let inputs = request.inputs.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut notes = Vec::new();
    let checked = check_manifests(&inputs, request, &mut notes)?;
    let mut files = inputs.iter().map(|input| record::read(&input.results)).collect::<Result<Vec<_>>>()?;
    if let Some(pattern) = &request.replicates {
        files.iter_mut().for_each(|records| take_as_replicates(records, pattern));
    }
    let request = &request.with_full_names(&files);
    let (mut selected, mut counts, mut units) = (Vec::new(), Vec::new(), Units::default());
    for (input, records) in inputs.iter().zip(&files) {
        let (of_input, count) = request.select(input, records, &mut units)?;
        selected.push(of_input);
        counts.push(count);
    }
    request.check_occurrence(&files)?;
    check_none_is_empty(request, &names, &files, &selected)?;
    let pairings = pairing::pairings(request, &names, &selected, checked.ignores_seeds)?;
    pairings.iter().try_for_each(|pairing| check_pairing(pairing, &names, &files))?;
    let groups = rows::groups(request, &pairings)?;
    let rows = rows::rows(request, &pairings, &groups, &units)?;
    note_pairs(&pairings, request, &mut notes);
    note_rows(&rows, request, &groups, &mut notes);
    let pairings = pairings.iter().map(PairedSets::of).collect();
    let inputs = inputs.into_iter().zip(counts).collect();
    Ok(Comparison { inputs, differences: checked.differences, pairings, groups, rows, notes })
}

/// Takes models as replicates: their recipe stands for the model, beside the training seed.
fn take_as_replicates(records: &mut [Record], pattern: &Replicates) {
    for records in records.chunk_by_mut(|a, b| Arc::ptr_eq(&a.identity, &b.identity)) {
        let Some((model, seed)) = pattern.split(&records[0].identity.model) else { continue };
        let identity = Identity { model, replicate: Some(seed), ..(*records[0].identity).clone() };
        let shared = Arc::new(identity);
        records.iter_mut().for_each(|record| record.identity = shared.clone());
    }
}

/// Checks that there is something to compare of every input.
fn check_none_is_empty(
    request: &Request,
    names: &[String],
    files: &[Vec<Record>],
    selected: &[Vec<&Record>],
) -> Result<()> {
    let Some((name, _)) = names.iter().zip(selected).find(|(_, records)| records.is_empty()) else { return Ok(()) };
    let mut records = files.iter().flatten().filter(|record| record.measure.error.is_none());
    if request.mentions(Column::Head) && records.all(|record| record.measure.head.is_none()) {
        bail_usage!("{name}: no records of single heads, which `ratio` and `heads` write");
    }
    bail_usage!("{name}: no records left to compare; see --metric, --where and --group-by")
}

/// Checks a pairing.
///
/// # Errors
/// If a side holds the same measurement twice, or nothing can be paired.
fn check_pairing(pairing: &Pairing<'_>, names: &[String], files: &[Vec<Record>]) -> Result<()> {
    if let Some(twice) = pairing.joined.duplicate {
        return Err(duplicate(pairing, names, files, twice));
    }
    if pairing.joined.pairs.is_empty() {
        nothing_in_common(pairing)?;
    }
    Ok(())
}

/// Returns a record in words, without the columns of `but`: `accuracy · model=diff ctx_tok=4096 seed=17`.
fn described(record: &Record, but: &[Column]) -> String {
    let region = record.measure.region.as_deref().filter(|_| !but.contains(&Column::Region));
    let mut text = format!("{} ·", metric_name(&record.measure.metric, region));
    for column in joined_columns(but) {
        if let Some(value) = column.get(record).filter(|_| !matches!(column, Column::Metric | Column::Region)) {
            text += &format!(" {column}={value}");
        }
    }
    text
}

/// The same measurement twice on one side: an error with the places, and the column that would tell the two apart.
fn duplicate(pairing: &Pairing<'_>, names: &[String], files: &[Vec<Record>], twice: [&Record; 2]) -> anyhow::Error {
    let [first, second] = twice.map(|record| {
        let places = names.iter().zip(files).flat_map(|(name, file)| (1..).zip(file).map(move |(at, r)| (name, at, r)));
        let place = places.into_iter().find(|(.., other)| std::ptr::eq(*other, record));
        place.map_or_else(String::new, |(name, number, _)| format!("record {number} of {name}"))
    });
    let [a, b] = twice;
    let apart = Column::ALL.iter().find(|column| !column.is_finding() && column.get(a) != column.get(b));
    let advice = match apart {
        Some(column) => format!(
            "they differ in {column} ({} and {}): keep one with --where {column}=…",
            column.text(a),
            column.text(b)
        ),
        None => "was one run appended to another, or a file given twice?".into(),
    };
    anyhow::anyhow!("the same case twice, {first} and {second}: {}; {advice}", described(a, &pairing.free))
}

/// Says why no record has another half.
fn nothing_in_common(Pairing { baseline, other, free, joined }: &Pairing<'_>) -> Result<()> {
    let (Some(a), Some(b)) = (joined.only_baseline.first(), joined.only_other.first()) else {
        bail!("nothing to compare");
    };
    let apart = joined_columns(free).into_iter().find(|column| {
        let values: BTreeSet<Option<Value<'_>>> = joined.only_other.iter().map(|record| column.get(record)).collect();
        !joined.only_baseline.iter().any(|record| values.contains(&column.get(record)))
    });
    let reason = match apart {
        Some(column) => {
            let advice = match column {
                Column::Seed => ": other prompts; --allow-different-prompts pairs them by case only",
                _ => "",
            };
            format!("{column} is {} and {} there{advice}", column.text(a), column.text(b))
        }
        None => format!("for example {} and {}", described(a, free), described(b, free)),
    };
    bail_usage!("{baseline} and {other} have no case in common: {reason}")
}

impl PairedSets {
    fn of(Pairing { baseline, other, free, joined }: &Pairing<'_>) -> Self {
        Self {
            baseline: baseline.clone(),
            other: other.clone(),
            regardless_of: column::names(|column| column.is_finding() || free.contains(&column)),
            pairs: joined.pairs.len(),
            only_baseline: Unpaired::of(&joined.only_baseline, free),
            only_other: Unpaired::of(&joined.only_other, free),
        }
    }
}

impl Unpaired {
    fn of(records: &[&Record], free: &[Column]) -> Self {
        let mut unpaired = Self::default();
        for record in records {
            *unpaired.by_metric.entry(record.measure.metric.to_string()).or_insert(0) += 1;
            unpaired.cases.push(described(record, free));
        }
        unpaired
    }
}

#[cfg(test)]
mod tests;
