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
//! Where models are [`Replicates`](names::Replicates) (recipes, each trained from several seeds), seeds of one number are paired, and what is
//! independent are seeds and prompts: each prompt that all seeds have counts once for each seed, intervals and p-values are
//! those of [`Replicated`](stats::Replicated), and fewer than three seeds have neither.
//!
//! Nothing depends on the order of records but which value of a column is the baseline when none is named: the first.

mod checks;
mod fail_if;
mod groups;
mod input;
mod manifests;
mod notes;
mod request;
mod sides;
mod tables;

pub use fail_if::FailIf;
pub use input::{Counts, Input};
pub use manifests::Mismatch;
pub use request::{MetricName, Request, Where};

use super::pair::joined_columns;
use super::records::RecordRef;
use super::rows::{Pairing, Row, Rows};
use anyhow::Result;
use base::bail_usage;
use input::input_of;
use manifests::check_manifests;
use names::column::{self, Column};
use names::metric::metric_name;
use notes::{note_pairs, note_rows};
use std::collections::BTreeMap;

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
    let request = &request.of_records()?;
    request.check_columns()?;
    if let Some(i) = (1..request.inputs.len()).find(|&i| request.inputs[..i].contains(&request.inputs[i])) {
        if request.compared().is_some() {
            bail_usage!("{} is named twice", request.inputs[i].display());
        }
    }
    let inputs = request.inputs.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>>>()?;
    let mut notes = Vec::new();
    let checked = check_manifests(&inputs, request, &mut notes)?;
    let (records, mut inputs) = input::read(inputs, request.replicates.as_ref(), &mut notes)?;
    let request = &request.with_full_names(&records);
    let selected = request.select(&records);
    selected.iter().for_each(|record| inputs[input_of(record)].1.kept += 1);
    checks::check_records(request, &records, &selected, &inputs)?;
    let pairings = sides::pairings(request, &inputs, &selected, checked.ignores_seeds)?;
    pairings.iter().try_for_each(|pairing| checks::check_pairing(pairing, &inputs))?;
    let groups = groups::groups(request, &pairings)?;
    let rows = Rows { pairings: &pairings, groups: &groups, of_seeds: request.replicates.is_some() };
    let rows = rows.make(|quantity| request.rank(quantity).unwrap_or(usize::MAX));
    let rows = rows.into_iter().map(|row| Ok(row?.1)).collect::<Result<Vec<Row>>>()?;
    note_pairs(&pairings, request, &mut notes);
    note_rows(&rows, request, &groups, &mut notes);
    let pairings = pairings.iter().map(PairedSets::of).collect();
    Ok(Comparison { inputs, differences: checked.differences, pairings, groups, rows, notes })
}

/// A record in words, without the columns of `but`: `accuracy · model=diff ctx_tok=4096 seed=17`.
fn described(record: &RecordRef<'_>, but: &[Column]) -> String {
    let region = record.quantity.region.as_deref().filter(|_| !but.contains(&Column::Region));
    let mut text = format!("{} ·", metric_name(&record.quantity.metric, region));
    for column in joined_columns(but) {
        if let Some(value) = record.value(column).filter(|_| !matches!(column, Column::Metric | Column::Region)) {
            text += &format!(" {column}={value}");
        }
    }
    text
}

impl PairedSets {
    fn of(Pairing { baseline, other, free, joined }: &Pairing<'_>) -> Self {
        Self {
            baseline: baseline.to_string(),
            other: other.to_string(),
            regardless_of: column::names(|column| column.is_finding() || free.contains(&column)),
            pairs: joined.pairs.len(),
            only_baseline: Unpaired::of(&joined.only_baseline, free),
            only_other: Unpaired::of(&joined.only_other, free),
        }
    }
}

impl Unpaired {
    fn of(records: &[RecordRef<'_>], free: &[Column]) -> Self {
        let mut unpaired = Self::default();
        for record in records {
            *unpaired.by_metric.entry(record.quantity.metric.to_string()).or_insert(0) += 1;
            unpaired.cases.push(described(record, free));
        }
        unpaired
    }
}

#[cfg(test)]
mod tests;
