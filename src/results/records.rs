//! The store of records: what a live run adds to, and what results files are read into. Whatever is asked of records selects
//! from it.

use super::record::{read_each, Identity, Measurement, Record};
use anyhow::Result;
use names::column::{depth, int, shown, Column, Cut, Value};
use names::metric::Number;
use names::HeadPlace;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What a measurement is of, in what unit: the records of many prompts share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity {
    pub(crate) metric: Cow<'static, str>,
    pub(crate) region: Option<Cow<'static, str>>,
    /// `None` for the mean over layers.
    pub(crate) layer: Option<usize>,
    /// `None` for the mean over heads.
    pub(crate) head: Option<usize>,
    pub(crate) unit: Option<Cow<'static, str>>,
}

impl Quantity {
    fn of(Measurement { layer, head, region, metric, unit, .. }: &Measurement) -> Self {
        Self { metric: metric.clone(), region: region.clone(), layer: *layer, head: *head, unit: unit.clone() }
    }

    /// Returns `true` if it is of the whole model.
    pub(crate) fn is_of_model(&self) -> bool {
        self.layer.is_none() && self.head.is_none()
    }

    /// Returns `true` if it is meant where some columns are mentioned: those of layers and heads only where these are.
    pub(crate) fn is_meant(&self, mentions: impl Fn(Column) -> bool) -> bool {
        match (mentions(Column::Layer), mentions(Column::Head)) {
            (false, false) => self.is_of_model(),
            (true, false) => self.layer.is_some(),
            (_, true) => self.at().is_some(),
        }
    }

    /// The head that it is of, if it is of one.
    pub(crate) fn at(&self) -> Option<HeadPlace> {
        let (layer, head) = self.layer.zip(self.head)?;
        Some(HeadPlace { layer, head })
    }
}

impl Quantity {
    /// Its value in a column; `None` where it is missing, and in columns of identities.
    pub(crate) fn value(&self, column: Column) -> Option<Value<'_>> {
        match column {
            Column::Layer => int(self.layer),
            Column::Head => int(self.head),
            Column::Metric => Some(Value::Text(&self.metric)),
            Column::Region => self.region.as_deref().map(Value::Text),
            _ => None,
        }
    }
}

impl Identity {
    /// Its value in a column; `None` where it is missing, and in columns of measurements.
    pub(crate) fn value(&self, column: Column) -> Option<Value<'_>> {
        match column {
            Column::Model => Some(Value::Text(&self.model)),
            Column::Replicate => self.replicate.map(Value::Int),
            Column::Variant => Some(Value::Text(&self.variant)),
            Column::Task => Some(Value::Text(&self.task)),
            Column::CtxTok => int(Some(self.ctx_tok)),
            Column::Needles => int(self.needles),
            Column::Retrieve => int(self.retrieve),
            Column::DepthReqPct => depth(self.depth_req_pct),
            Column::DepthRealPct => depth(self.depth_real_pct),
            Column::Cities => self.cities.as_deref().map(Value::Text),
            Column::Sample => self.sample.map(Value::Int),
            Column::Seed => self.seed.map(Value::Int),
            Column::Query => int(self.query),
            Column::Rows => self.rows.as_deref().map(Value::Text),
            Column::Condition => self.condition.as_deref().map(Value::Text),
            Column::Placed => self.placed.map(|placed| Value::Text(if placed { "true" } else { "false" })),
            Column::Bits => self.bits.map(|n| Value::Int(n.into())),
            Column::Scope => self.scope.as_deref().map(Value::Text),
            Column::Input => int(self.input),
            Column::Tokens => int(self.tokens),
            Column::Layer | Column::Head | Column::Metric | Column::Region => None,
        }
    }

    /// Returns `true` if it is meant where some columns are mentioned: by depth, only the question of each prompt counts whose
    /// needle was put there.
    pub(crate) fn is_meant(&self, mentions: impl Fn(Column) -> bool) -> bool {
        !mentions(Column::DepthReqPct) || self.placed != Some(false)
    }
}

/// A record of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRef<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) quantity: &'a Quantity,
    /// Not a number if it has none.
    pub(crate) value: f64,
    /// Its place among all records that were added, failures among them.
    pub(crate) place: u32,
}

impl<'a> RecordRef<'a> {
    /// Its value in a column; `None` where it is missing.
    pub(crate) fn value(&self, column: Column) -> Option<Value<'a>> {
        self.identity.value(column).or_else(|| self.quantity.value(column))
    }

    /// Its value in a column in words, `none` where it is missing.
    pub(crate) fn text(&self, column: Column) -> String {
        shown(self.value(column))
    }
}

/// A number of a quantity. There are millions of them.
#[derive(Clone, Copy, Debug)]
struct Entry {
    value: f64,
    /// The place of its identity.
    identity: u32,
    place: u32,
}

/// Records, by what they measure.
#[derive(Debug, Default)]
pub struct Records {
    /// In the order in which they first came.
    identities: Vec<Arc<Identity>>,
    /// In the order in which they were added.
    numbers: BTreeMap<Quantity, Vec<Entry>>,
    /// Records that say why there is no number.
    pub failures: Vec<Record>,
    /// Number of records that were added.
    added: u32,
}

impl Records {
    /// The store of these records.
    #[cfg(test)]
    pub(crate) fn of(records: &[Record]) -> Self {
        let mut store = Self::default();
        records.iter().for_each(|record| store.add(record));
        store
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let Record { identity, measure } = record;
        self.added += 1;
        if measure.error.is_some() {
            self.failures.push(record.clone());
            return;
        }
        if self.identities.last().is_none_or(|last| !Arc::ptr_eq(last, identity)) {
            self.identities.push(identity.clone());
        }
        let entry = Entry {
            value: measure.value.unwrap_or(f64::NAN),
            identity: self.identities.len() as u32 - 1,
            place: self.added - 1,
        };
        self.numbers.entry(Quantity::of(measure)).or_default().push(entry);
    }

    /// Adds the records of a file with changed identities. Returns `true` if its seeds have lost digits.
    ///
    /// # Errors
    /// As [`read`](super::record::read).
    pub(crate) fn read(
        &mut self,
        path: &Path,
        mut see: impl FnMut(&Record),
        change: impl Fn(&mut Identity),
    ) -> Result<bool> {
        let first = self.identities.len();
        let are_seeds_cut = read_each(path, |record| {
            see(record);
            self.add(record);
        })?;
        self.identities[first..].iter_mut().for_each(|identity| change(Arc::make_mut(identity)));
        Ok(are_seeds_cut)
    }

    /// The identities, in the order in which they first came.
    pub(crate) fn identities(&self) -> impl Iterator<Item = &Identity> {
        self.identities.iter().map(|identity| &**identity)
    }

    /// The quantities, by metric and region.
    pub(crate) fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        self.numbers.keys()
    }

    /// The values of a column, in their order.
    pub(crate) fn values(&self, column: Column) -> BTreeSet<Value<'_>> {
        let of_identities = self.identities().filter_map(|identity| identity.value(column));
        of_identities.chain(self.quantities().filter_map(|quantity| quantity.value(column))).collect()
    }

    /// Selects numbers by quantity, in the order in which they were added. Numbers that are not finite are left out, here and
    /// below.
    pub(crate) fn select(
        &self,
        of_quantity: impl Fn(&Quantity) -> bool,
        of_identity: impl Fn(&Identity) -> bool,
    ) -> Vec<RecordRef<'_>> {
        let is_wanted: Vec<bool> = self.identities().map(of_identity).collect();
        let mut selected = Vec::new();
        for (quantity, numbers) in self.numbers.iter().filter(|(quantity, _)| of_quantity(quantity)) {
            let wanted =
                numbers.iter().filter(|number| number.value.is_finite() && is_wanted[number.identity as usize]);
            selected.extend(wanted.map(|number| self.record(quantity, number)));
        }
        selected
    }

    /// Selects a number where records have some values, in the order in which they were added. Of layers and heads it is where
    /// these, or further columns, mention them, and of all regions where they mention the region.
    pub(crate) fn of_number(&self, number: Number<'_>, only: &[Cut<'_>], further: &[Column]) -> Vec<RecordRef<'_>> {
        let mentions = |column| further.contains(&column) || only.iter().any(|(mentioned, _)| *mentioned == column);
        let (of_quantity, of_identity): (Vec<Cut<'_>>, Vec<Cut<'_>>) =
            only.iter().partition(|(column, _)| column.is_of_measurement());
        let first = Quantity { metric: number.metric.name.into(), ..Quantity::default() };
        let mut selected = Vec::new();
        for (quantity, numbers) in self.numbers.range(&first..) {
            if quantity.metric != first.metric {
                break;
            }
            let is_of_region = if mentions(Column::Region) {
                quantity.region.is_some()
            } else {
                quantity.region.as_deref() == number.region
            };
            let has_values = of_quantity.iter().all(|(column, value)| quantity.value(*column) == *value);
            if is_of_region && has_values && quantity.is_meant(mentions) {
                let records = numbers.iter().map(|number| self.record(quantity, number));
                selected.extend(records.filter(|record| {
                    record.value.is_finite()
                        && record.identity.is_meant(mentions)
                        && of_identity.iter().all(|(column, value)| record.identity.value(*column) == *value)
                }));
            }
        }
        selected
    }

    fn record<'a>(&'a self, quantity: &'a Quantity, entry: &Entry) -> RecordRef<'a> {
        let identity = &*self.identities[entry.identity as usize];
        RecordRef { identity, quantity, value: entry.value, place: entry.place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::metric::{ACCURACY, LAMBDA, SHARE_ABS};

    fn record(identity: &Arc<Identity>, quantity: Quantity, value: Option<f64>) -> Record {
        let Quantity { metric, region, layer, head, unit } = quantity;
        let measure = Measurement { layer, head, region, metric, value, unit, ..Measurement::default() };
        Record { identity: identity.clone(), measure }
    }

    fn identities() -> [Arc<Identity>; 2] {
        ["a", "b"].map(|model| Arc::new(Identity { model: model.into(), ..Identity::default() }))
    }

    #[test]
    fn numbers_are_selected_by_what_they_are_of_in_the_order_in_which_they_came() {
        let [a, b] = identities();
        let accuracy = Quantity { metric: ACCURACY.name.into(), ..Quantity::default() };
        let of_head = Quantity { layer: Some(1), head: Some(0), ..accuracy.clone() };
        let failure = Measurement { error: Some("no room".into()), ..Measurement::default() };
        let records = Records::of(&[
            record(&b, accuracy.clone(), Some(1.0)),
            Record { identity: b.clone(), measure: failure },
            record(&b, of_head.clone(), Some(0.5)),
            record(&a, accuracy.clone(), None),
            record(&a, accuracy, Some(0.0)),
            record(&b, Quantity { metric: LAMBDA.name.into(), ..Quantity::default() }, Some(f64::INFINITY)),
        ]);
        let selected = records.select(Quantity::is_of_model, |_| true);
        let found: Vec<_> =
            selected.iter().map(|record| (&*record.identity.model, record.value, record.place)).collect();
        assert_eq!(found, [("b", 1.0, 0), ("a", 0.0, 4)]);
        assert_eq!(records.select(|_| true, |identity| identity.model == "b").len(), 2);
        let of_b = (Column::Model, Some(Value::Text("b")));
        let head = |head| [of_b, (Column::Layer, Some(Value::Int(1))), (Column::Head, Some(Value::Int(head)))];
        let sum = |only: &[Cut<'_>]| {
            records.of_number(ACCURACY.overall(), only, &[]).iter().map(|record| record.value).sum::<f64>()
        };
        assert_eq!((sum(&[of_b]), sum(&head(0)), sum(&head(1))), (1.0, 0.5, 0.0));
        assert_eq!((records.added, records.failures.len(), records.select(|_| true, |_| true).len()), (6, 1, 3));
        assert_eq!(records.values(Column::Model).len() + records.values(Column::Layer).len(), 3);
    }

    #[test]
    fn a_metric_in_two_units_is_two_quantities_and_one_number() {
        let [a, _] = identities();
        let share = Quantity { metric: SHARE_ABS.name.into(), region: Some("answer".into()), ..Quantity::default() };
        let in_unit = |unit: &'static str| Quantity { unit: Some(unit.into()), ..share.clone() };
        let all = ["fraction", "percent"].map(|unit| record(&a, in_unit(unit), Some(0.5)));
        let records = Records::of(&all);
        let found = records.of_number(SHARE_ABS.of("answer"), &[(Column::Model, Some(Value::Text("a")))], &[]);
        assert_eq!((records.quantities().count(), found.len()), (2, 2));
    }
}
