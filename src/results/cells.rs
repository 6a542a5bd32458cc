//! Cells: the numbers of all inputs, each with a key of small integers that identifies it.

use super::field::{Field, Value, COLUMNS};
use super::numbers::{Measured, Number, Numbers};
use crate::results::record::{metric_name, Identity, Record};
use anyhow::{bail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The identity of a cell: for each column the number of its value, 0 for a missing one. Values are numbered by size, so keys
/// sort like their values and do not depend on the order of the records.
pub(crate) type Key = [u32; COLUMNS];

/// A set of columns: a flag for each.
pub(crate) type Mask = [bool; COLUMNS];

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) key: Key,
    pub(crate) value: f64,
    /// Index of its input.
    pub(crate) input: u32,
    /// Its record there, counted from 1.
    pub(crate) record: u32,
}

/// Numbers of records of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of the file.
    pub records: usize,
    /// Records of a failure, which were left out.
    pub errors: usize,
    /// Records without a number, which were left out.
    pub missing: usize,
    /// Records that are compared.
    pub kept: usize,
}

/// The cells of all inputs.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    numbers: Numbers,
    /// The input of each identity, and its part of the keys.
    keys: Vec<(u32, Key)>,
    /// The values of each column that occur in any record, selected or not, by size.
    values: Vec<Vec<Value>>,
    /// The unit of each metric.
    units: BTreeMap<String, Option<String>>,
}

impl Cells {
    /// Iterates over all cells.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Cell> + '_ {
        self.numbers.groups().flat_map(|(measured, numbers)| self.cells(measured, numbers))
    }

    /// Returns the cells of one quantity on identities that pass a test.
    pub(crate) fn of(&self, measured: &Measured, keep: impl Fn(&Identity) -> bool) -> Vec<Cell> {
        let numbers = self.numbers.of(measured);
        if numbers.is_empty() {
            return Vec::new(); // its metric may have no number in the dictionary of values
        }
        let kept = |(number, _): &(&Number, Cell)| keep(self.numbers.identity(number));
        numbers.iter().zip(self.cells(measured, numbers)).filter(kept).map(|(_, cell)| cell).collect()
    }

    /// The numbers, by quantity.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn cells<'a>(&'a self, measured: &Measured, numbers: &'a [Number]) -> impl Iterator<Item = Cell> + 'a {
        let of_measured =
            Field::OF_MEASURE.map(|column| (column, self.known(column, column.of_measured(measured).as_ref())));
        numbers.iter().map(move |number| {
            let (input, mut key) = self.keys[number.identity as usize];
            of_measured.iter().for_each(|&(column, value)| key[column as usize] = value);
            Cell { key, value: number.value, input, record: number.record }
        })
    }

    /// Returns a key in words, without the columns of `but`: `exact · model=diff ctx_tok=4096 seed=17`.
    pub(crate) fn describe(&self, key: &Key, but: &Mask) -> String {
        let metric = metric_name(&self.name(key, Field::Metric), self.text(key, Field::Region).as_deref());
        let shown = |&column: &Field| {
            !matches!(column, Field::Metric | Field::Region) && !column.is_finding() && !but[column as usize]
        };
        let rest: Vec<String> = Field::ALL
            .into_iter()
            .filter(shown)
            .filter_map(|column| Some(format!("{column}={}", self.text(key, column)?)))
            .collect();
        format!("{metric} · {}", rest.join(" "))
    }

    /// Keeps the question of each prompt whose needle was put at the depth asked for, and numbers of no question.
    pub(crate) fn keep_at_their_depth(&mut self) {
        self.numbers.retain(|id| id.placed != Some(false));
    }

    /// Returns a key's value in a column; `None` where it is missing.
    pub(crate) fn text(&self, key: &Key, column: Field) -> Option<String> {
        self.value_text(column, key[column as usize])
    }

    /// The same, `none` where it is missing.
    pub(crate) fn name(&self, key: &Key, column: Field) -> String {
        self.value_name(column, key[column as usize])
    }

    /// Returns the value behind a number of a column; `None` for 0.
    pub(crate) fn value_text(&self, column: Field, number: u32) -> Option<String> {
        let index = (number as usize).checked_sub(1)?;
        self.values[column as usize].get(index).map(ToString::to_string)
    }

    /// The same, `none` for 0.
    pub(crate) fn value_name(&self, column: Field, number: u32) -> String {
        self.value_text(column, number).unwrap_or_else(|| "none".into())
    }

    /// Returns the number of a value; `None` if it does not occur.
    pub(crate) fn number(&self, column: Field, value: Option<&Value>) -> Option<u32> {
        let Some(value) = value else { return Some(0) };
        self.values[column as usize].binary_search(value).ok().map(|index| index as u32 + 1)
    }

    /// Returns the number of a value that occurs.
    fn known(&self, column: Field, value: Option<&Value>) -> u32 {
        self.number(column, value).expect("the collector saw every value")
    }

    /// Returns whether a value of a column passes a test; the missing value counts as one.
    pub(crate) fn has(&self, column: Field, test: impl Fn(Option<&Value>) -> bool) -> bool {
        test(None) || self.values[column as usize].iter().any(|value| test(Some(value)))
    }

    /// Lists the values of a column that occur in any record, selected or not.
    pub(crate) fn all_values(&self, column: Field) -> String {
        let list = &self.values[column as usize];
        let mut shown: Vec<String> = list.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
        if list.len() > MOST_SHOWN {
            shown.push(format!("… ({} in all)", list.len()));
        }
        if shown.is_empty() {
            shown.push("none".into());
        }
        shown.join(", ")
    }

    /// The unit of a metric.
    pub(crate) fn unit(&self, metric: &str) -> Option<&str> {
        self.units.get(metric)?.as_deref()
    }
}

/// Values listed in an error.
const MOST_SHOWN: usize = 24;

/// Selects the records that become cells.
pub(crate) trait Selects {
    /// Returns whether an identity is selected.
    ///
    /// # Errors
    /// A usage error if it cannot be used as it was asked to be.
    fn identity(&self, identity: &Identity) -> Result<bool>;

    /// Returns whether a quantity measured on an identity is selected.
    fn quantity(&self, identity: &Identity, measured: &Measured) -> bool;

    /// Returns an identity's value in a column.
    fn value(&self, column: Field, identity: &Identity) -> Option<Value>;
}

/// Collects cells from records, one by one.
pub(crate) struct Collector<S> {
    selects: S,
    numbers: Numbers,
    /// Number of identities after each input.
    ends: Vec<usize>,
    values: Vec<BTreeSet<Value>>,
    units: BTreeMap<String, Option<String>>,
    /// The latest identity, and whether it is selected.
    last: Option<(Arc<Identity>, bool)>,
}

impl<S: Selects> Collector<S> {
    /// A collector without cells.
    pub(crate) fn new(selects: S) -> Self {
        Self {
            selects,
            numbers: Numbers::default(),
            ends: Vec::new(),
            values: vec![BTreeSet::new(); COLUMNS],
            units: BTreeMap::new(),
            last: None,
        }
    }

    /// Adds all records of the next input, the file `name`.
    pub(crate) fn add_all(&mut self, name: &str, records: &[Record]) -> Result<Counts> {
        let mut counts = Counts { records: records.len(), ..Counts::default() };
        for (number, record) in (1..).zip(records) {
            if record.measure.error.is_some() {
                counts.errors += 1;
                continue;
            }
            let is_cell = self.add(number, record);
            let is_cell = is_cell.map_err(|error| error.context(format!("{name}, record {number}")))?;
            counts.missing += usize::from(record.measure.value.is_none_or(|value| !value.is_finite()));
            counts.kept += usize::from(is_cell);
        }
        self.ends.push(self.numbers.identities().len());
        Ok(counts)
    }

    /// Adds a record, given by its number in its file; returns whether it became a cell.
    ///
    /// # Errors
    /// If its metric has another unit than before, and as [`Selects::identity`].
    pub(crate) fn add(&mut self, number: u32, record: &Record) -> Result<bool> {
        let (measured, is_selected) = (Measured::of(&record.measure), self.note_identity(&record.identity)?);
        for column in Field::OF_MEASURE {
            self.values[column as usize].extend(column.of_measured(&measured));
        }
        let Some(value) = record.measure.value.filter(|value| value.is_finite()) else { return Ok(false) };
        if !is_selected || !self.selects.quantity(&record.identity, &measured) {
            return Ok(false);
        }
        self.check_unit(record)?;
        self.numbers.add(measured, &record.identity, number, value);
        Ok(true)
    }

    /// Notes an identity's values, once for neighbours that share it; returns whether it is selected.
    fn note_identity(&mut self, identity: &Arc<Identity>) -> Result<bool> {
        if let Some((_, is_selected)) = self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, identity)) {
            return Ok(*is_selected);
        }
        for column in Field::ALL {
            self.values[column as usize].extend(self.selects.value(column, identity));
        }
        let is_selected = self.selects.identity(identity)?;
        self.last = Some((identity.clone(), is_selected));
        Ok(is_selected)
    }

    /// A metric has one unit everywhere: numbers in two units have no difference.
    fn check_unit(&mut self, record: &Record) -> Result<()> {
        let (metric, unit) = (&*record.measure.metric, record.measure.unit.as_deref());
        match self.units.get(metric) {
            Some(known) if known.as_deref() != unit => {
                let (known, unit) = (known.as_deref().unwrap_or("no unit"), unit.unwrap_or("no unit"));
                bail!("{metric} is in {unit} here, but in {known} before")
            }
            Some(_) => {}
            None => _ = self.units.insert(metric.to_owned(), unit.map(ToOwned::to_owned)),
        }
        Ok(())
    }

    /// Returns all cells.
    pub(crate) fn finish(self) -> Cells {
        let values = self.values.into_iter().map(|values| values.into_iter().collect()).collect();
        let mut cells = Cells { numbers: self.numbers, keys: Vec::new(), values, units: self.units };
        let key = |(place, identity): (usize, &Arc<Identity>)| {
            let input = self.ends.partition_point(|&end| end <= place) as u32;
            (input, Field::ALL.map(|column| cells.known(column, self.selects.value(column, identity).as_ref())))
        };
        cells.keys = cells.numbers.identities().iter().enumerate().map(key).collect();
        cells
    }
}
