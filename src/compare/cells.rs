//! The numbers of all inputs as cells: each with a key of small numbers that says what it is of.

use super::choice::Choice;
use super::field::{Field, Value, COLUMNS};
use crate::bail_usage;
use crate::frame::{Measured, Numbers};
use crate::record::{metric_name, Identity, Record};
use anyhow::{bail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What names a cell: for each column the number of its value, 0 for a missing one. Values are numbered by size, so keys sort
/// like what they mean and do not depend on the order of the records.
pub(super) type Key = [u32; COLUMNS];

/// Columns, by their places.
pub(super) type Mask = [bool; COLUMNS];

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) key: Key,
    pub(super) value: f64,
    /// Which input it is from.
    pub(super) input: u32,
    /// Its record there, counted from 1.
    pub(super) record: u32,
}

/// What was read of one input.
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
#[derive(Debug)]
pub(super) struct Cells {
    numbers: Numbers,
    /// The input of each identity, and its part of the keys.
    identities: Vec<(u32, Key)>,
    /// The values of each column that occur in any record, whether it is compared or not, by size.
    values: Vec<Vec<Value>>,
    /// The unit of each metric.
    units: BTreeMap<String, Option<String>>,
}

impl Cells {
    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Cell> + '_ {
        self.numbers.groups().flat_map(move |(measured, numbers)| {
            let of_measured =
                Field::OF_MEASURE.map(|column| (column, self.known(column, column.of_measured(measured).as_ref())));
            numbers.iter().map(move |number| {
                let (input, mut key) = self.identities[number.identity as usize];
                of_measured.iter().for_each(|&(column, value)| key[column as usize] = value);
                Cell { key, value: number.value, input, record: number.record }
            })
        })
    }

    /// What a key says, in words: `exact · model=diff ctx_tok=4096 seed=17`, without the columns of `but`.
    pub(super) fn describe(&self, key: &Key, but: &Mask) -> String {
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

    /// Keeps of the questions of each prompt the one whose needle was put at the depth asked for, and what is of no question.
    pub(super) fn keep_at_their_depth(&mut self) {
        self.numbers.retain(|id| id.placed != Some(false));
    }

    /// A key's value in a column; nothing where it is missing.
    pub(super) fn text(&self, key: &Key, column: Field) -> Option<String> {
        self.value_text(column, key[column as usize])
    }

    /// The same, `none` where it is missing.
    pub(super) fn name(&self, key: &Key, column: Field) -> String {
        self.value_name(column, key[column as usize])
    }

    /// The value of a number in a column; nothing for 0.
    pub(super) fn value_text(&self, column: Field, number: u32) -> Option<String> {
        let index = (number as usize).checked_sub(1)?;
        self.values[column as usize].get(index).map(ToString::to_string)
    }

    /// The same, `none` for 0.
    pub(super) fn value_name(&self, column: Field, number: u32) -> String {
        self.value_text(column, number).unwrap_or_else(|| "none".into())
    }

    /// The number of a value; nothing if it does not occur.
    pub(super) fn number(&self, column: Field, value: Option<&Value>) -> Option<u32> {
        let Some(value) = value else { return Some(0) };
        self.values[column as usize].binary_search(value).ok().map(|index| index as u32 + 1)
    }

    /// The same of a value that occurs.
    fn known(&self, column: Field, value: Option<&Value>) -> u32 {
        self.number(column, value).expect("every value was taken note of")
    }

    /// Whether a column has a value that passes a test, a missing one included.
    pub(super) fn has(&self, column: Field, test: impl Fn(Option<&Value>) -> bool) -> bool {
        test(None) || self.values[column as usize].iter().any(|value| test(Some(value)))
    }

    /// The values of a column that occur in any record, whether it is compared or not.
    pub(super) fn all_values(&self, column: Field) -> String {
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
    pub(super) fn unit(&self, metric: &str) -> Option<&str> {
        self.units.get(metric)?.as_deref()
    }
}

/// Values listed in an error.
const MOST_SHOWN: usize = 24;

/// Takes in records one by one.
pub(super) struct Collector<'a> {
    choice: &'a Choice,
    numbers: Numbers,
    /// How many identities there were after each input.
    ends: Vec<usize>,
    values: Vec<BTreeSet<Value>>,
    units: BTreeMap<String, Option<String>>,
    /// The identity seen last, and whether it is chosen.
    last: Option<(Arc<Identity>, bool)>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(choice: &'a Choice) -> Self {
        Self {
            choice,
            numbers: Numbers::default(),
            ends: Vec::new(),
            values: vec![BTreeSet::new(); COLUMNS],
            units: BTreeMap::new(),
            last: None,
        }
    }

    /// Takes note of all records of the next input, the file `name`.
    pub(super) fn add_all(&mut self, name: &str, records: &[Record]) -> Result<Counts> {
        let mut counts = Counts { records: records.len(), ..Counts::default() };
        for (number, record) in (1..).zip(records) {
            self.add((number, name), record, &mut counts)?;
        }
        self.ends.push(self.numbers.identities().len());
        Ok(counts)
    }

    fn add(&mut self, at: (u32, &str), record: &Record, counts: &mut Counts) -> Result<()> {
        if record.measure.error.is_some() {
            counts.errors += 1;
            return Ok(());
        }
        let (measured, is_chosen) = (Measured::of(&record.measure), self.identity(at, &record.identity)?);
        for column in Field::OF_MEASURE {
            self.values[column as usize].extend(column.of_measured(&measured));
        }
        let Some(value) = record.measure.value.filter(|value| value.is_finite()) else {
            counts.missing += 1;
            return Ok(());
        };
        if is_chosen && self.choice.measure(&measured) {
            self.check_unit(at, record)?;
            self.numbers.add(measured, &record.identity, at.0, value);
            counts.kept += 1;
        }
        Ok(())
    }

    /// Takes note of an identity's values, once for neighbours that share it; whether it is chosen.
    fn identity(&mut self, (number, name): (u32, &str), identity: &Arc<Identity>) -> Result<bool> {
        if let Some((_, is_chosen)) = self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, identity)) {
            return Ok(*is_chosen);
        }
        for column in Field::ALL {
            self.values[column as usize].extend(self.choice.value(column, identity));
        }
        let is_chosen = self.choice.identity(identity);
        let no_seed = self.choice.value(Field::Replicate, identity).is_none();
        if let Some(pattern) = self.choice.replicates.as_ref().filter(|_| is_chosen && no_seed) {
            bail_usage!(
                "{name}, record {number}: the name of model {} has no training seed (`{pattern}`), so it is no replicate; \
                 say where it stands with `replicates`, or leave the model out with `wheres` model=…",
                identity.model
            );
        }
        self.last = Some((identity.clone(), is_chosen));
        Ok(is_chosen)
    }

    /// A metric has one unit everywhere: numbers in two units have no difference.
    fn check_unit(&mut self, (number, name): (u32, &str), record: &Record) -> Result<()> {
        let (metric, unit) = (&*record.measure.metric, record.measure.unit.as_deref());
        match self.units.get(metric) {
            Some(known) if known.as_deref() != unit => {
                let (known, unit) = (known.as_deref().unwrap_or("no unit"), unit.unwrap_or("no unit"));
                bail!("{name}, record {number}: {metric} is in {unit} here, but in {known} before")
            }
            Some(_) => {}
            None => _ = self.units.insert(metric.to_owned(), unit.map(ToOwned::to_owned)),
        }
        Ok(())
    }

    /// All cells.
    pub(super) fn finish(self) -> Cells {
        let values = self.values.into_iter().map(|values| values.into_iter().collect()).collect();
        let mut cells = Cells { numbers: self.numbers, identities: Vec::new(), values, units: self.units };
        let key = |(place, identity): (usize, &Arc<Identity>)| {
            let input = self.ends.partition_point(|&end| end <= place) as u32;
            (input, Field::ALL.map(|column| cells.known(column, self.choice.value(column, identity).as_ref())))
        };
        cells.identities = cells.numbers.identities().iter().enumerate().map(key).collect();
        cells
    }
}
