//! The numbers of records, grouped by quantity. Identities are kept once for all numbers of a question, and quantities once for
//! all questions, so that a night of measurements fits in memory.

use crate::results::record::{Identity, Measurement};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A quantity: a metric of a region, layer and head.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Measured {
    /// Name of the quantity.
    pub(crate) metric: Cow<'static, str>,
    /// Part of the prompt.
    pub(crate) region: Option<Cow<'static, str>>,
    /// Missing for the mean over layers.
    pub(crate) layer: Option<usize>,
    /// Missing for the mean over heads.
    pub(crate) head: Option<usize>,
}

impl Measured {
    /// The quantity of a measurement.
    pub(crate) fn of(found: &Measurement) -> Self {
        Self { metric: found.metric.clone(), region: found.region.clone(), layer: found.layer, head: found.head }
    }

    /// The mean over layers and heads of a metric.
    pub(crate) fn mean(metric: &str, region: Option<&str>) -> Self {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Self { metric: owned(metric), region: region.map(owned), layer: None, head: None }
    }
}

/// A number and where it is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    /// Index of its identity in [`Numbers::identities`].
    pub(crate) identity: u32,
    /// Its record in the file, counted from 1.
    pub(crate) record: u32,
    /// The number.
    pub(crate) value: f64,
}

/// The numbers of records.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    identities: Vec<Arc<Identity>>,
    groups: BTreeMap<Measured, Vec<Number>>,
}

impl Numbers {
    /// Adds the number of a record of its file. Neighbours share their identity.
    pub(crate) fn add(&mut self, measured: Measured, identity: &Arc<Identity>, record: u32, value: f64) {
        if self.identities.last().is_none_or(|last| !Arc::ptr_eq(last, identity)) {
            self.identities.push(identity.clone());
        }
        let number = Number { identity: self.identities.len() as u32 - 1, record, value };
        self.groups.entry(measured).or_default().push(number);
    }

    /// The identities of the numbers, in the order of the records.
    pub(crate) fn identities(&self) -> &[Arc<Identity>] {
        &self.identities
    }

    /// The identity of a number.
    pub(crate) fn identity(&self, number: &Number) -> &Identity {
        &self.identities[number.identity as usize]
    }

    /// The numbers of a quantity.
    pub(crate) fn of(&self, measured: &Measured) -> &[Number] {
        self.groups.get(measured).map_or(&[], Vec::as_slice)
    }

    /// The numbers of a metric of single heads: layer by layer, head by head.
    pub(crate) fn heads<'a>(
        &'a self,
        metric: &'a str,
        region: Option<&'a str>,
    ) -> impl Iterator<Item = ((usize, usize), &'a [Number])> {
        let from = self.groups.range(Measured::mean(metric, region)..);
        let of = from.take_while(move |(m, _)| m.metric == metric && m.region.as_deref() == region);
        of.filter_map(|(m, numbers)| Some(((m.layer?, m.head?), numbers.as_slice())))
    }

    /// All numbers, by quantity.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Measured, &[Number])> {
        self.groups.iter().map(|(measured, numbers)| (measured, numbers.as_slice()))
    }

    /// Keeps the numbers of identities that pass a test.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Identity) -> bool) {
        let identities = &self.identities;
        for numbers in self.groups.values_mut() {
            numbers.retain(|number| keep(&identities[number.identity as usize]));
        }
    }
}
