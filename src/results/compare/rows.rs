//! From pairs to rows: one difference for each metric, region, group and pair of sides.

use super::super::column::{shown, Column, Value};
use super::super::difference::{correct, Difference, Level, Row};
use super::super::metric::kind_of;
use super::super::pair::Pair;
use super::super::record::Units;
use super::pairing::Pairing;
use super::request::Request;
use crate::bail_usage;
use anyhow::{Context, Result};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Columns whose values are different kinds of measurement, never to be averaged over.
const KINDS: [Column; 6] = [Column::Model, Column::Task, Column::Rows, Column::Condition, Column::Bits, Column::Scope];

/// The key of a row; rows are in its order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RowKey<'a> {
    /// Rank among the selected metrics.
    rank: usize,
    metric: &'a str,
    region: Option<&'a str>,
    level: Level,
    /// Values of the columns that there are rows for.
    group: Vec<Option<Value<'a>>>,
    /// Index among the pairings.
    pairing: usize,
}

/// Returns one row for each metric, region, group and pairing.
///
/// # Errors
/// If numbers are so large that their mean overflows.
pub(super) fn rows(
    request: &Request,
    pairings: &[Pairing<'_>],
    groups: &[Column],
    units: &Units<'_>,
) -> Result<Vec<Row>> {
    let mut pairs: BTreeMap<RowKey<'_>, Vec<Pair<'_>>> = BTreeMap::new();
    for (index, pairing) in pairings.iter().enumerate() {
        for pair in &pairing.joined.pairs {
            let measure = &pair.record.measure;
            let key = RowKey {
                rank: request.rank(measure).unwrap_or(usize::MAX),
                metric: &measure.metric,
                region: measure.region.as_deref().filter(|_| !pairing.free.contains(&Column::Region)),
                level: Level::of(measure).max(pairing.level()),
                group: groups.iter().map(|&column| pairing.shared(pair, column)).collect(),
                pairing: index,
            };
            pairs.entry(key).or_default().push(*pair);
        }
    }
    let mut rows = pairs
        .par_iter()
        .map(|(key, pairs)| row(request, key, pairs, &pairings[key.pairing], groups, units))
        .collect::<Result<Vec<Row>>>()?;
    correct(rows.iter_mut().map(|row| &mut row.difference));
    Ok(rows)
}

fn row(
    request: &Request,
    key: &RowKey<'_>,
    pairs: &[Pair<'_>],
    pairing: &Pairing<'_>,
    groups: &[Column],
    units: &Units<'_>,
) -> Result<Row> {
    let difference = match request.replicates {
        Some(_) => Difference::of_seeds(pairs, &pairing.free, kind_of(key.metric)),
        None => Difference::of_prompts(pairs, &pairing.free, kind_of(key.metric)),
    };
    let difference = difference.with_context(|| format!("{}: its numbers are too large to be averaged", key.metric))?;
    Ok(Row {
        baseline: pairing.baseline.clone(),
        other: pairing.other.clone(),
        group: groups.iter().zip(&key.group).map(|(column, value)| (column.to_string(), shown(*value))).collect(),
        metric: key.metric.to_owned(),
        region: key.region.map(str::to_owned),
        level: key.level,
        unit: units.get(key.metric).map(str::to_owned),
        difference,
    })
}

/// Returns the columns that there is a row for each value of: those asked for, and those whose values are different kinds of
/// measurement.
///
/// # Errors
/// A usage error if one is what is compared.
pub(super) fn groups(request: &Request, pairings: &[Pairing<'_>]) -> Result<Vec<Column>> {
    for column in &request.group_by {
        if pairings.iter().any(|pairing| pairing.free.contains(column)) {
            bail_usage!("--group-by {column}: it is what is compared, or a property of it");
        }
    }
    let by_condition = varies(pairings, Column::Condition);
    let mut groups = Vec::new();
    for column in KINDS {
        // The condition's name holds its bits and scope.
        let in_name = by_condition && matches!(column, Column::Bits | Column::Scope);
        if !in_name && !request.group_by.contains(&column) && varies(pairings, column) {
            groups.push(column);
        }
    }
    for &column in &request.group_by {
        if !groups.contains(&column) {
            groups.push(column);
        }
    }
    Ok(groups)
}

/// Returns `true` if a column has two values in pairs of one metric. Metrics have rows of their own anyway, so what differs
/// between metrics only needs no column.
fn varies(pairings: &[Pairing<'_>], column: Column) -> bool {
    let mut first: BTreeMap<&str, Option<Value<'_>>> = BTreeMap::new();
    let mut pairs = pairings.iter().flat_map(|pairing| pairing.joined.pairs.iter().map(move |pair| (pairing, pair)));
    pairs.any(|(pairing, pair)| {
        let value = pairing.shared(pair, column);
        *first.entry(&pair.record.measure.metric).or_insert(value) != value
    })
}
