//! Records boiled down to cells: a key of small numbers and one value, so that a night of measurements fits in memory.

use super::choice::Choice;
use super::field::{Field, Value, COLUMNS};
use crate::bail_usage;
use crate::record::Record;
use anyhow::{bail, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What names a cell: for each column the number of its value, 0 for a missing one. Once all is read, values are
/// numbered by size, so keys sort like what they mean and do not depend on the order of the records.
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

/// The values of one column.
#[derive(Clone, Debug, Default)]
struct Values {
    numbers: HashMap<Value, u32>,
    /// The value of number i + 1.
    list: Vec<Value>,
}

impl Values {
    fn number(&mut self, value: Option<Value>) -> u32 {
        let Some(value) = value else { return 0 };
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        self.list.push(value.clone());
        let number = self.list.len() as u32;
        self.numbers.insert(value, number);
        number
    }

    /// Numbers the values by size; gives the new number of every old one.
    fn sort(&mut self) -> Vec<u32> {
        let old = std::mem::take(&mut self.list);
        self.list = old.clone();
        self.list.sort();
        self.numbers = self.list.iter().cloned().zip(1..).collect();
        std::iter::once(0).chain(old.iter().map(|value| self.numbers[value])).collect()
    }
}

/// The cells of all inputs.
#[derive(Debug)]
pub(super) struct Cells {
    values: Vec<Values>,
    pub(super) cells: Vec<Cell>,
    units: BTreeMap<u32, Option<String>>,
}

impl Cells {
    /// What a key says, in words: `exact · model=diff ctx_tok=4096 seed=17`, without the columns of `but`.
    pub(super) fn describe(&self, key: &Key, but: &Mask) -> String {
        let metric = self.name(key, Field::Metric);
        let region = self.text(key, Field::Region).map(|region| format!("[{region}]")).unwrap_or_default();
        let shown = |&column: &Field| {
            !matches!(column, Field::Metric | Field::Region) && !column.is_finding() && !but[column as usize]
        };
        let rest: Vec<String> = Field::ALL
            .into_iter()
            .filter(shown)
            .filter_map(|column| Some(format!("{column}={}", self.text(key, column)?)))
            .collect();
        format!("{metric}{region} · {}", rest.join(" "))
    }

    /// Keeps of the questions of each prompt the one whose needle was put at the depth asked for, and what is of no question.
    pub(super) fn keep_at_their_depth(&mut self) {
        if let Some(elsewhere) = self.number(Field::Placed, Some(&Value::text("false"))) {
            self.cells.retain(|cell| cell.key[Field::Placed as usize] != elsewhere);
        }
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
        self.values[column as usize].list.get(index).map(ToString::to_string)
    }

    /// The same, `none` for 0.
    pub(super) fn value_name(&self, column: Field, number: u32) -> String {
        self.value_text(column, number).unwrap_or_else(|| "none".into())
    }

    /// The number of a value; nothing if it does not occur.
    pub(super) fn number(&self, column: Field, value: Option<&Value>) -> Option<u32> {
        value.map_or(Some(0), |value| self.values[column as usize].numbers.get(value).copied())
    }

    /// Whether a column has a value that passes a test, a missing one included.
    pub(super) fn has(&self, column: Field, test: impl Fn(Option<&Value>) -> bool) -> bool {
        test(None) || self.values[column as usize].list.iter().any(|value| test(Some(value)))
    }

    /// The values of a column that occur in any record, whether it is compared or not.
    pub(super) fn all_values(&self, column: Field) -> String {
        let list = &self.values[column as usize].list;
        let mut shown: Vec<String> = list.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
        if list.len() > MOST_SHOWN {
            shown.push(format!("… ({} in all)", list.len()));
        }
        if shown.is_empty() {
            shown.push("none".into());
        }
        shown.join(", ")
    }

    /// The unit of a metric, by its number.
    pub(super) fn unit(&self, metric: u32) -> Option<&str> {
        self.units.get(&metric)?.as_deref()
    }
}

/// Values listed in an error.
const MOST_SHOWN: usize = 24;

/// Takes in records one by one.
pub(super) struct Collector<'a> {
    choice: &'a Choice,
    cells: Cells,
    /// The identity seen last, the numbers of its values, and whether it is chosen.
    last: Option<(Arc<crate::record::Identity>, Key, bool)>,
}

/// Columns of the measure rather than of the identity.
const OF_MEASURE: [Field; 4] = [Field::Layer, Field::Head, Field::Metric, Field::Region];

impl<'a> Collector<'a> {
    pub(super) fn new(choice: &'a Choice) -> Self {
        let values = Field::ALL.iter().map(|_| Values::default()).collect();
        Self { choice, cells: Cells { values, cells: Vec::new(), units: BTreeMap::new() }, last: None }
    }

    /// Takes note of all records of an input, the file `name`.
    pub(super) fn add_all(&mut self, input: usize, name: &str, records: &[Record]) -> Result<Counts> {
        let mut counts = Counts { records: records.len(), ..Counts::default() };
        for (number, record) in (1..).zip(records) {
            self.add((input as u32, number, name), record, &mut counts)?;
        }
        Ok(counts)
    }

    fn add(&mut self, at: (u32, u32, &str), record: &Record, counts: &mut Counts) -> Result<()> {
        if record.measure.error.is_some() {
            counts.errors += 1;
            return Ok(());
        }
        let (mut key, identity_chosen) = self.identity(at, record)?;
        for column in OF_MEASURE {
            key[column as usize] = self.cells.values[column as usize].number(column.of(record));
        }
        let Some(value) = record.measure.value.filter(|value| value.is_finite()) else {
            counts.missing += 1;
            return Ok(());
        };
        if identity_chosen && self.choice.measure(record) {
            self.check_unit(at, key[Field::Metric as usize], record)?;
            self.cells.cells.push(Cell { key, value, input: at.0, record: at.1 });
            counts.kept += 1;
        }
        Ok(())
    }

    /// The identity's part of the key, worked out once for neighbours that share it.
    fn identity(&mut self, (_, number, name): (u32, u32, &str), record: &Record) -> Result<(Key, bool)> {
        if let Some((last, key, chosen)) = &self.last {
            if Arc::ptr_eq(last, &record.identity) {
                return Ok((*key, *chosen));
            }
        }
        let mut key = [0; COLUMNS];
        for column in Field::ALL.into_iter().filter(|column| !OF_MEASURE.contains(column)) {
            key[column as usize] =
                self.cells.values[column as usize].number(self.choice.value(column, &record.identity));
        }
        let chosen = self.choice.identity(&record.identity);
        if let Some(pattern) = self.choice.replicates.as_ref().filter(|_| chosen && key[Field::Replicate as usize] == 0)
        {
            bail_usage!(
                "{name}, record {number}: the name of model {} has no training seed (`{pattern}`), so it is no replicate; \
                 say where it stands with `replicates`, or leave the model out with `wheres` model=…",
                record.identity.model
            );
        }
        self.last = Some((record.identity.clone(), key, chosen));
        Ok((key, chosen))
    }

    /// A metric has one unit everywhere: numbers in two units have no difference.
    fn check_unit(&mut self, (_, number, name): (u32, u32, &str), metric: u32, record: &Record) -> Result<()> {
        let unit = record.measure.unit.as_deref();
        let known = self.cells.units.entry(metric).or_insert_with(|| unit.map(String::from));
        if known.as_deref() != unit {
            let (known, unit) = (known.as_deref().unwrap_or("no unit"), unit.unwrap_or("no unit"));
            bail!("{name}, record {number}: {} is in {unit} here, but in {known} before", record.measure.metric);
        }
        Ok(())
    }

    /// All cells, with values numbered by size.
    pub(super) fn finish(mut self) -> Cells {
        let renumbered: Vec<Vec<u32>> = self.cells.values.iter_mut().map(Values::sort).collect();
        for cell in &mut self.cells.cells {
            cell.key.iter_mut().zip(&renumbered).for_each(|(number, new)| *number = new[*number as usize]);
        }
        let metrics = &renumbered[Field::Metric as usize];
        self.cells.units =
            self.cells.units.into_iter().map(|(metric, unit)| (metrics[metric as usize], unit)).collect();
        self.cells
    }
}
