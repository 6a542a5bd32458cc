//! What there are rows for: the values of columns.

use super::super::rows::Pairing;
use super::request::Request;
use anyhow::Result;
use base::bail_usage;
use names::column::{Column, Value};
use std::collections::BTreeMap;

/// Columns whose values are different kinds of measurement, never to be averaged over.
const KINDS: [Column; 6] = [Column::Model, Column::Task, Column::Rows, Column::Condition, Column::Bits, Column::Scope];

/// The columns that there is a row for each value of: those asked for, and those whose values are different kinds of
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
        *first.entry(&pair.record.quantity.metric).or_insert(value) != value
    })
}
