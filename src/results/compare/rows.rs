//! From pairs to rows: one difference for each metric, region, group and pair of sides.

use super::super::column::{shown, Column, Value};
use super::super::difference::{correct, Difference, Level, Row};
use super::super::metric::is_hit;
use super::super::pair::{Pair, Pairs};
use super::super::record::Units;
use super::plan::Sides;
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
    /// Index among the plans.
    plan: usize,
}

/// Returns one row for each metric, region, group and plan.
///
/// # Errors
/// If numbers are so large that their mean overflows.
pub(super) fn rows(
    request: &Request,
    plans: &[Sides<'_>],
    joined: &[Pairs<'_>],
    groups: &[Column],
    units: &Units<'_>,
) -> Result<Vec<Row>> {
    let mut pairs: BTreeMap<RowKey<'_>, Vec<Pair<'_>>> = BTreeMap::new();
    for (index, (plan, joined)) in plans.iter().zip(joined).enumerate() {
        for pair in &joined.pairs {
            let measure = &pair.record.measure;
            let key = RowKey {
                rank: request.rank(measure).unwrap_or(usize::MAX),
                metric: &measure.metric,
                region: measure.region.as_deref().filter(|_| !plan.free.contains(&Column::Region)),
                level: Level::of(measure).max(plan.level()),
                group: groups.iter().map(|&column| value(plan, pair, column)).collect(),
                plan: index,
            };
            pairs.entry(key).or_default().push(*pair);
        }
    }
    let mut rows = pairs
        .par_iter()
        .map(|(key, pairs)| row(request, key, pairs, &plans[key.plan], groups, units))
        .collect::<Result<Vec<Row>>>()?;
    correct(&mut rows);
    Ok(rows)
}

/// Returns the value that both records of a pair have; `None` where it is missing, or what is compared.
fn value<'a>(plan: &Sides<'_>, pair: &Pair<'a>, column: Column) -> Option<Value<'a>> {
    column.get(pair.record).filter(|_| !plan.free.contains(&column))
}

fn row(
    request: &Request,
    key: &RowKey<'_>,
    pairs: &[Pair<'_>],
    plan: &Sides<'_>,
    groups: &[Column],
    units: &Units<'_>,
) -> Result<Row> {
    let difference = match request.replicates {
        Some(_) => Difference::of_seeds(pairs, &plan.free),
        None => Difference::of_prompts(pairs, &plan.free, is_hit(key.metric)),
    };
    let difference = difference.with_context(|| format!("{}: its numbers are too large to be averaged", key.metric))?;
    Ok(Row {
        baseline: plan.baseline.label.clone(),
        other: plan.other.label.clone(),
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
pub(super) fn groups(request: &Request, plans: &[Sides<'_>], joined: &[Pairs<'_>]) -> Result<Vec<Column>> {
    for column in &request.group_by {
        if plans.iter().any(|plan| plan.free.contains(column)) {
            bail_usage!("--group-by {column}: it is what is compared, or a property of it");
        }
    }
    let by_condition = varies(plans, joined, Column::Condition);
    let mut groups = Vec::new();
    for column in KINDS {
        // The condition's name holds its bits and scope.
        let in_name = by_condition && matches!(column, Column::Bits | Column::Scope);
        if !in_name && !request.group_by.contains(&column) && varies(plans, joined, column) {
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
fn varies(plans: &[Sides<'_>], joined: &[Pairs<'_>], column: Column) -> bool {
    let mut first: BTreeMap<&str, Option<Value<'_>>> = BTreeMap::new();
    let mut pairs = plans.iter().zip(joined).flat_map(|(plan, joined)| joined.pairs.iter().map(move |p| (plan, p)));
    pairs.any(|(plan, pair)| {
        let value = value(plan, pair, column);
        *first.entry(&pair.record.measure.metric).or_insert(value) != value
    })
}
