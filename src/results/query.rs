//! One query over the numbers of records: which numbers are wanted, what makes a row of them, and what a row is compared with.

use super::column::{Column, Value};
use super::difference::Difference;
use super::estimate::Estimate;
use super::frame::Frame;
use super::metric::Metric;
use super::pair::pairs;
use super::record::{Identity, Measurement, Record};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A number that is asked for: a metric, of one region or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number<'a> {
    pub(crate) metric: &'static Metric,
    pub(crate) region: Option<&'a str>,
}

impl Metric {
    /// Its number over all of the prompt, or of no region at all.
    pub(crate) const fn overall(&'static self) -> Number<'static> {
        Number { metric: self, region: None }
    }

    /// Its number of one region.
    pub(crate) const fn of(&'static self, region: &'static str) -> Number<'static> {
        Number { metric: self, region: Some(region) }
    }
}

/// A column with a value, or without one.
pub(crate) type Cut<'a> = (Column, Option<Value<'a>>);

/// The numbers that are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query<'a> {
    /// Values that records have in these columns.
    pub(crate) only: &'a [Cut<'a>],
    /// The columns whose values make a row, in the order of [`ResultRow::keys`]. Where [`Column::DepthReqPct`] is among them,
    /// only questions count whose needle was put at that depth.
    pub(crate) rows: &'a [Column],
    pub(crate) numbers: &'a [Number<'a>],
    /// Each row is compared with the row that is the same but for this column, in which it has this value; `None` for no
    /// differences.
    pub(crate) against: Option<Cut<'a>>,
}

/// A row of results; numbers and changes in the order of [`Query::numbers`].
#[derive(Clone, Debug)]
pub(crate) struct ResultRow<'a> {
    /// Values of the columns that make rows.
    pub(crate) keys: Vec<Option<Value<'a>>>,
    /// Means over prompts.
    pub(crate) numbers: Vec<Option<Estimate>>,
    /// Differences from the row that this one is compared with, prompt by prompt; `None` in that row, and without it.
    pub(crate) changes: Vec<Option<Difference>>,
}

impl ResultRow<'_> {
    /// The largest number of prompts that a number of the row is of.
    pub(crate) fn prompts(&self) -> Option<usize> {
        self.numbers.iter().flatten().map(|estimate| estimate.prompts).max()
    }
}

impl Frame {
    /// Answers a query. Rows stand in the order in which their values first come in the records.
    pub(crate) fn query<'a>(&'a self, query: &Query<'_>) -> Vec<ResultRow<'a>> {
        let groups: Vec<Groups<'a>> = query.numbers.par_iter().map(|number| self.groups(query, *number)).collect();
        let mut keys: Vec<(usize, &Vec<Option<Value<'a>>>)> = Vec::new();
        for group in &groups {
            for (key, records) in group {
                match keys.iter_mut().find(|(_, known)| *known == key) {
                    Some((first, _)) => *first = (*first).min(records.first),
                    None => keys.push((records.first, key)),
                }
            }
        }
        keys.sort_by_key(|(first, _)| *first);
        let row = |(_, key): &(usize, &Vec<Option<Value<'a>>>)| self.result_row(query, &groups, key);
        keys.par_iter().map(row).collect()
    }

    /// The records of a number, by row.
    fn groups<'a>(&'a self, query: &Query<'_>, number: Number<'_>) -> Groups<'a> {
        let by_depth = query.rows.contains(&Column::DepthReqPct)
            || query.only.iter().any(|(column, _)| *column == Column::DepthReqPct);
        let mut groups: Groups<'a> = HashMap::new();
        for (at, identity, measure) in self.numbers_of(number) {
            let is_wanted = query.only.iter().all(|(column, value)| column.of_identity(identity) == *value);
            if !is_wanted || (by_depth && identity.placed == Some(false)) {
                continue;
            }
            let key = query.rows.iter().map(|column| column.of_identity(identity)).collect();
            let group = groups.entry(key).or_insert_with(|| Group { first: at, records: Vec::new() });
            group.first = group.first.min(at);
            group.records.push(Record { identity: identity.clone(), measure });
        }
        groups
    }

    fn result_row<'a>(&'a self, query: &Query<'_>, groups: &[Groups<'a>], key: &[Option<Value<'a>>]) -> ResultRow<'a> {
        let mut row = ResultRow { keys: key.to_vec(), numbers: Vec::new(), changes: Vec::new() };
        for (number, groups) in query.numbers.iter().zip(groups) {
            let records = groups.get(key).map_or(&[][..], |group| &group.records);
            row.numbers.push(Estimate::of(records, number.metric.kind));
            let change = query.against.and_then(|against| {
                let baseline = baseline_of(query.rows, groups, key, against)?;
                let free: Vec<Column> = Column::ALL.iter().copied().filter(|&column| against.0.frees(column)).collect();
                let joined = pairs(baseline.iter().collect(), records.iter().collect(), &free);
                Difference::of_prompts(&joined.pairs, &free, number.metric.kind)
            });
            row.changes.push(change);
        }
        row
    }
}

/// The records of one row, and the place of the first of them among all records.
struct Group {
    first: usize,
    records: Vec<Record>,
}

/// The records of a number by the values of the columns that make rows.
type Groups<'a> = HashMap<Vec<Option<Value<'a>>>, Group>;

/// The records of the row that a row is compared with; `None` if there is none, or it is that row.
fn baseline_of<'g>(
    columns: &[Column],
    groups: &'g Groups<'_>,
    key: &[Option<Value<'_>>],
    (column, value): Cut<'_>,
) -> Option<&'g [Record]> {
    let place = columns.iter().position(|&of| of == column)?;
    if key[place] == value {
        return None;
    }
    let is_baseline = |other: &Vec<Option<Value<'_>>>| {
        other[place] == value
            && columns.iter().zip(other).zip(key).all(|((&of, other), own)| column.frees(of) || other == own)
    };
    groups.iter().find(|(other, _)| is_baseline(other)).map(|(_, group)| group.records.as_slice())
}

/// A record of a number: the place of its identity among all, the identity, and the measurement with its value.
pub(super) type NumberRecord<'a> = (usize, &'a Arc<Identity>, Measurement);
