//! Rows: one difference for each metric, region, group and pair of sides, and what many tests at once cost.

use super::cells::Cells;
use super::compare::plan::{Level, Plan};
use super::difference::Difference;
use super::field::Field;
use super::sample::{Joined, Pair};
use super::select::Selection;
use crate::bail_usage;
use crate::results::metric::{is_hit, Label};
use crate::results::record::metric_name;
use crate::stats::holm;
use anyhow::{Context, Result};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// How `other` differs from `baseline` in one metric of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Name of the baseline.
    pub baseline: String,
    /// Name of the other side.
    pub other: String,
    /// Columns and their values, in the order of the groups; a missing value is `none`.
    pub group: BTreeMap<String, String>,
    /// Name of the metric.
    pub metric: String,
    /// Part of the prompt.
    pub region: Option<String>,
    /// Model, layer or head.
    pub level: Level,
    /// Unit of the means and of the difference.
    pub unit: Option<String>,
    /// The difference, with its interval and test.
    #[serde(flatten)]
    pub difference: Difference,
}

impl Row {
    /// Metric and region: `share_abs[answer]`.
    pub fn name(&self) -> String {
        metric_name(&self.metric, self.region.as_deref())
    }

    /// The metric as tables name it.
    pub fn label(&self) -> Label {
        Label::named(&self.metric, self.region.as_deref(), self.unit.as_deref())
    }
}

/// The key of a row; rows are in its order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    /// Rank among the selected metrics.
    rank: usize,
    metric: u32,
    region: u32,
    level: Level,
    /// Values of the columns that there are rows for.
    group: Vec<u32>,
    /// Index among the plans.
    plan: usize,
}

/// Returns one row for each metric, region, group and plan.
///
/// # Errors
/// If numbers are so large that their mean overflows.
pub(crate) fn rows(
    cells: &Cells,
    selection: &Selection,
    plans: &[Plan],
    joined: &[Joined],
    groups: &[Field],
) -> Result<Vec<Row>> {
    let mut pairs: BTreeMap<RowKey, Vec<Pair>> = BTreeMap::new();
    for (plan, pair) in joined.iter().enumerate().flat_map(|(i, j)| j.pairs.iter().map(move |pair| (i, pair))) {
        let (metric, region) = (cells.name(&pair.key, Field::Metric), cells.text(&pair.key, Field::Region));
        let rank = selection.rank(&metric, region.as_deref()).unwrap_or(usize::MAX);
        let group = groups.iter().map(|&column| pair.key[column as usize]).collect();
        let of = |column: Field| pair.key[column as usize];
        let level = Level::of(&pair.key).max(plans[plan].level());
        let key = RowKey { rank, metric: of(Field::Metric), region: of(Field::Region), level, group, plan };
        pairs.entry(key).or_default().push(*pair);
    }
    let row = |(key, pairs): (&RowKey, &Vec<Pair>)| {
        let metric = cells.value_name(Field::Metric, key.metric);
        let found = match selection.replicates {
            Some(_) => Difference::of_seeds(pairs),
            None => Difference::of_prompts(pairs, is_hit(&metric)),
        };
        let difference = found.with_context(|| format!("{metric}: its numbers are too large to be averaged"))?;
        Ok(named(difference, cells, key, &plans[key.plan], groups))
    };
    let mut rows = pairs.par_iter().map(row).collect::<Result<Vec<Row>>>()?;
    correct(&mut rows);
    Ok(rows)
}

/// Columns whose values are different kinds of measurement, never to be averaged over.
const KINDS: [Field; 6] = [Field::Model, Field::Task, Field::Rows, Field::Condition, Field::Bits, Field::Scope];

/// Returns the columns that there is a row for each value of: those asked for, and those whose values are different kinds of measurement.
///
/// # Errors
/// A usage error if one is what is compared.
pub(crate) fn groups(selection: &Selection, plans: &[Plan], joined: &[Joined]) -> Result<Vec<Field>> {
    for &column in &selection.group_by {
        if plans.iter().any(|plan| plan.free[column as usize]) {
            bail_usage!("--group-by {column}: it is what is compared, or a property of it");
        }
    }
    // Metrics have rows of their own anyway, so what differs between metrics only needs no column.
    let varies = |column: Field| {
        let mut first = BTreeMap::<u32, u32>::new();
        let mut keys = joined.iter().flat_map(|joined| &joined.pairs).map(|pair| pair.key);
        keys.any(|key| {
            *first.entry(key[Field::Metric as usize]).or_insert(key[column as usize]) != key[column as usize]
        })
    };
    // The condition's name holds its bits and scope.
    let by_name = varies(Field::Condition);
    let in_name = |column: Field| by_name && matches!(column, Field::Bits | Field::Scope);
    let kind = |&column: &Field| !selection.group_by.contains(&column) && varies(column) && !in_name(column);
    let mut groups: Vec<Field> = KINDS.into_iter().filter(kind).collect();
    for &column in &selection.group_by {
        if !groups.contains(&column) {
            groups.push(column);
        }
    }
    Ok(groups)
}

fn named(difference: Difference, cells: &Cells, key: &RowKey, plan: &Plan, groups: &[Field]) -> Row {
    let RowKey { metric, region, level, group, .. } = key;
    let named = |(column, value): (&Field, &u32)| (column.to_string(), cells.value_name(*column, *value));
    let name = cells.value_name(Field::Metric, *metric);
    Row {
        baseline: plan.baseline.label.clone(),
        other: plan.other.label.clone(),
        group: groups.iter().zip(group).map(named).collect(),
        unit: cells.unit(&name).map(String::from),
        metric: name,
        region: cells.value_text(Field::Region, *region),
        level: *level,
        difference,
    }
}

/// Corrects the p-values of all rows as one family (Holm): whoever reads the table looks at all of them.
pub(crate) fn correct(rows: &mut [Row]) {
    let adjusted = holm(&rows.iter().filter_map(|row| row.difference.p).collect::<Vec<f64>>());
    for (row, adjusted) in rows.iter_mut().filter(|row| row.difference.p.is_some()).zip(adjusted) {
        row.difference.p_adjusted = Some(adjusted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_one_family() {
        let row = |p: Option<f64>| Row { difference: Difference { p, ..Difference::default() }, ..Row::default() };
        let mut rows = [row(Some(0.01)), row(None), row(Some(0.04)), row(Some(0.03))];
        correct(&mut rows);
        // statsmodels 0.15.0: multipletests([0.01, 0.04, 0.03], method="holm")[1]
        let found: Vec<f64> = rows.iter().filter_map(|row| row.difference.p_adjusted).collect();
        assert!(found.iter().zip([0.03, 0.06, 0.06]).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
    }
}
