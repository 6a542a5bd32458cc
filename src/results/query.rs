//! One query over the numbers of records: which numbers are wanted, what makes a row of them, and what a row is compared with.

use super::difference::Difference;
use super::estimate::Estimate;
use super::records::{RecordRef, Records};
use names::column::{Column, Cut, Value};
use names::metric::Number;
use rayon::prelude::*;
use std::collections::HashMap;

/// The numbers that are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query<'a> {
    /// Values that records have in these columns.
    pub(crate) only: &'a [Cut<'a>],
    /// The columns whose values make a row, in the order of [`ResultRow::keys`]. Numbers of layers and heads are meant
    /// where a column of theirs is mentioned, by region all regions, and by depth only questions whose needle was put there.
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

/// Values of the columns that make rows.
type Key<'a> = Vec<Option<Value<'a>>>;

/// The records of a number by the values of the columns that make rows.
type Groups<'a> = HashMap<Key<'a>, Vec<RecordRef<'a>>>;

impl Records {
    /// Answers a query. Rows stand in the order in which their values first come in the records.
    pub(crate) fn query<'a>(&'a self, query: &Query<'_>) -> Vec<ResultRow<'a>> {
        let groups: Vec<Groups<'a>> = query.numbers.par_iter().map(|number| self.groups(query, *number)).collect();
        let mut places: HashMap<&Key<'a>, u32> = HashMap::new();
        for (key, records) in groups.iter().flatten() {
            let place = places.entry(key).or_insert(u32::MAX);
            *place = records[0].place.min(*place);
        }
        let mut rows: Vec<(&Key<'a>, u32)> = places.into_iter().collect();
        rows.sort_by_key(|(_, place)| *place);
        rows.par_iter().map(|(key, _)| query.row(&groups, key)).collect()
    }

    /// The records of a number, by row.
    fn groups<'a>(&'a self, query: &Query<'_>, number: Number<'_>) -> Groups<'a> {
        let mut groups: Groups<'a> = HashMap::new();
        for record in self.of_number(number, query.only, query.rows) {
            let key = query.rows.iter().map(|&column| record.value(column)).collect();
            groups.entry(key).or_default().push(record);
        }
        groups
    }
}

impl Query<'_> {
    fn row<'a>(&self, groups: &[Groups<'a>], key: &Key<'a>) -> ResultRow<'a> {
        let mut row = ResultRow { keys: key.clone(), numbers: Vec::new(), changes: Vec::new() };
        for (number, groups) in self.numbers.iter().zip(groups) {
            let records = groups.get(key).map_or(&[][..], Vec::as_slice);
            row.numbers.push(Estimate::of(records, number.metric.kind));
            row.changes.push(self.baseline_of(groups, key).and_then(|(baseline, free)| {
                Difference::of_sides([baseline.to_vec(), records.to_vec()], &free, number.metric.kind)
            }));
        }
        row
    }

    /// The records of the row that a row is compared with, and the columns in which the two may differ; `None` if there is no
    /// such row, or it is this one.
    fn baseline_of<'g, 'a>(&self, groups: &'g Groups<'a>, key: &Key<'a>) -> Option<(&'g [RecordRef<'a>], Vec<Column>)> {
        let (column, value) = self.against?;
        let place = self.rows.iter().position(|&of| of == column)?;
        if key[place] == value {
            return None;
        }
        let rows = groups.iter().filter(|(other, _)| {
            let mut columns = self.rows.iter().zip(*other).zip(key);
            other[place] == value && columns.all(|((&of, other), own)| column.frees(of) || other == own)
        });
        let (_, baseline) = rows.min_by_key(|(_, records)| records[0].place)?;
        Some((baseline, column.freed()))
    }
}
