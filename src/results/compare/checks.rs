//! Checks of what is compared, before and after it is paired.

use super::super::pair::joined_columns;
use super::super::records::{Quantity, RecordRef, Records};
use super::super::rows::Pairing;
use super::input::place_of;
use super::{described, Counts, Input, Request};
use anyhow::{bail, Result};
use base::bail_usage;
use names::column::{Column, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the records that were selected of inputs.
///
/// # Errors
/// A usage error if a model is no replicate, what was asked for does not occur, or there is nothing to compare of an input; an
/// error if a metric has two units.
pub(super) fn check_records(
    request: &Request,
    records: &Records,
    selected: &[RecordRef<'_>],
    inputs: &[(Input, Counts)],
) -> Result<()> {
    if let Some(pattern) = &request.replicates {
        let mut others = records.identities().filter(|identity| identity.replicate.is_none());
        if let Some(other) = others.find(|identity| request.wants_identity(identity)) {
            bail_usage!(
                "the name of model {} has no training seed (`{pattern}`), so it is no replicate; say where it stands with \
                 --replicates, or leave the model out with --where model=…",
                other.model
            );
        }
    }
    check_units(selected, inputs)?;
    request.check_occurrence(records)?;
    let Some((input, _)) = inputs.iter().find(|(_, counts)| counts.kept == 0) else { return Ok(()) };
    if request.mentions(Column::Head) && records.quantities().all(|quantity| quantity.head.is_none()) {
        bail_usage!("{}: no records of single heads, which `ratio` and `heads` write", input.name);
    }
    bail_usage!("{}: no records left to compare; see --metric, --where and --group-by", input.name)
}

/// Checks that each metric is in one unit: numbers in two have no difference.
fn check_units(selected: &[RecordRef<'_>], inputs: &[(Input, Counts)]) -> Result<()> {
    let quantities = selected.chunk_by(|a, b| std::ptr::eq(a.quantity, b.quantity));
    let mut firsts: Vec<&RecordRef<'_>> = quantities.map(|records| &records[0]).collect();
    firsts.sort_by_key(|record| record.place);
    let mut units: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for record in firsts {
        let Quantity { metric, unit, .. } = record.quantity;
        let known = *units.entry(metric).or_insert(unit.as_deref());
        if known != unit.as_deref() {
            let [here, before] = [unit.as_deref(), known].map(|unit| unit.unwrap_or("no unit"));
            let (input, number) = place_of(record, inputs);
            bail!("{}, record {number}: {metric} is in {here} here, but in {before} before", input.results.display());
        }
    }
    Ok(())
}

/// Checks a pairing.
///
/// # Errors
/// If a side holds the same measurement twice, or nothing can be paired.
pub(super) fn check_pairing(pairing: &Pairing<'_>, inputs: &[(Input, Counts)]) -> Result<()> {
    if let Some(twice) = pairing.joined.duplicate {
        return duplicate(pairing, twice, inputs);
    }
    if pairing.joined.pairs.is_empty() {
        return nothing_in_common(pairing);
    }
    Ok(())
}

/// The same measurement twice on one side: an error with the places, and the column that would tell the two apart.
fn duplicate(pairing: &Pairing<'_>, twice: [RecordRef<'_>; 2], inputs: &[(Input, Counts)]) -> Result<()> {
    let [first, second] = twice.map(|record| {
        let (input, number) = place_of(&record, inputs);
        format!("record {number} of {}", input.name)
    });
    let [a, b] = &twice;
    let apart = Column::ALL.iter().copied().find(|column| !column.is_finding() && a.value(*column) != b.value(*column));
    let advice = match apart {
        Some(column) => format!(
            "they differ in {column} ({} and {}): keep one with --where {column}=…",
            a.text(column),
            b.text(column)
        ),
        None => "was one run appended to another, or a file given twice?".into(),
    };
    bail!("the same measurement twice, {first} and {second}: {}; {advice}", described(a, &pairing.free))
}

/// Says why no record has another half.
fn nothing_in_common(Pairing { baseline, other, free, joined }: &Pairing<'_>) -> Result<()> {
    let (Some(a), Some(b)) = (joined.only_baseline.first(), joined.only_other.first()) else {
        bail!("nothing to compare");
    };
    let apart = joined_columns(free).into_iter().find(|column| {
        let values: BTreeSet<Option<Value<'_>>> =
            joined.only_other.iter().map(|record| record.value(*column)).collect();
        !joined.only_baseline.iter().any(|record| values.contains(&record.value(*column)))
    });
    let reason = match apart {
        Some(column) => {
            let advice = match column {
                Column::Seed => ": other prompts; --allow-different-prompts pairs them by setting and sample only",
                _ => "",
            };
            format!("{column} is {} and {} there{advice}", a.text(column), b.text(column))
        }
        None => format!("for example {} and {}", described(a, free), described(b, free)),
    };
    bail_usage!("{baseline} and {other} have no measurement in common: {reason}")
}
