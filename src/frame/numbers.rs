//! The numbers of records, grouped by what they are of: what tables, figures, reports and comparisons are made from. What was
//! run is kept once for all numbers of a question, and what was measured once for all questions, so that a night of
//! measurements fits in memory.

use crate::record::{Identity, Measurement};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a number is of, on whatever it was measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measured {
    /// Name of the quantity.
    pub metric: Cow<'static, str>,
    /// Part of the prompt.
    pub region: Option<Cow<'static, str>>,
    /// Missing for the mean over layers.
    pub layer: Option<usize>,
    /// Missing for the mean over heads.
    pub head: Option<usize>,
}

impl Measured {
    /// What a finding is of.
    pub fn of(found: &Measurement) -> Self {
        Self { metric: found.metric.clone(), region: found.region.clone(), layer: found.layer, head: found.head }
    }

    /// The mean over layers and heads of a metric.
    fn mean(metric: &str, region: Option<&str>) -> Self {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Self { metric: owned(metric), region: region.map(owned), layer: None, head: None }
    }
}

/// A number and where it is from.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Place of what it was measured on in [`Numbers::identities`].
    pub identity: u32,
    /// Its record in the file, counted from 1.
    pub record: u32,
    /// The number.
    pub value: f64,
}

/// The numbers of records.
#[derive(Debug, Default)]
pub struct Numbers {
    identities: Vec<Arc<Identity>>,
    groups: BTreeMap<Measured, Vec<Number>>,
}

impl Numbers {
    /// Takes note of a number, that of a record of its file. Neighbours share their identity.
    pub fn add(&mut self, measured: Measured, identity: &Arc<Identity>, record: u32, value: f64) {
        if self.identities.last().is_none_or(|last| !Arc::ptr_eq(last, identity)) {
            self.identities.push(identity.clone());
        }
        let number = Number { identity: self.identities.len() as u32 - 1, record, value };
        self.groups.entry(measured).or_default().push(number);
    }

    /// What numbers were measured on, in the order of the records.
    pub fn identities(&self) -> &[Arc<Identity>] {
        &self.identities
    }

    /// What a number was measured on.
    pub fn identity(&self, number: &Number) -> &Identity {
        &self.identities[number.identity as usize]
    }

    /// The means over layers and heads of a metric.
    pub fn means(&self, metric: &str, region: Option<&str>) -> &[Number] {
        self.groups.get(&Measured::mean(metric, region)).map_or(&[], Vec::as_slice)
    }

    /// A metric of single heads: layer by layer, head by head.
    pub fn heads<'a>(
        &'a self,
        metric: &'a str,
        region: Option<&'a str>,
    ) -> impl Iterator<Item = ((usize, usize), &'a [Number])> {
        let from = self.groups.range(Measured::mean(metric, region)..);
        let of = from.take_while(move |(m, _)| m.metric == metric && m.region.as_deref() == region);
        of.filter_map(|(m, numbers)| Some(((m.layer?, m.head?), numbers.as_slice())))
    }

    /// All of them, by what they are of.
    pub fn groups(&self) -> impl Iterator<Item = (&Measured, &[Number])> {
        self.groups.iter().map(|(measured, numbers)| (measured, numbers.as_slice()))
    }

    /// Keeps what was measured on identities that pass a test.
    pub fn retain(&mut self, keep: impl Fn(&Identity) -> bool) {
        let identities = &self.identities;
        for numbers in self.groups.values_mut() {
            numbers.retain(|number| keep(&identities[number.identity as usize]));
        }
    }
}
