//! The probes that watch a head, whoever computes its rows.

use super::{Row, RowProbe, RowSink};
use std::ops::Range;

/// What the probes of a head have learned, with the index of each.
pub(super) type Sinks = Vec<(usize, Box<dyn RowSink>)>;

/// The probes of a head and what each has learned so far.
pub(super) struct Watched<'a> {
    layer: usize,
    head: usize,
    probes: &'a [(usize, &'a dyn RowProbe)],
    sinks: Sinks,
}

impl<'a> Watched<'a> {
    /// Probes that have seen nothing yet, each with its index.
    pub(super) fn start(layer: usize, head: usize, probes: &'a [(usize, &'a dyn RowProbe)]) -> Self {
        let sinks = probes.iter().map(|(index, probe)| (*index, probe.start(layer, head))).collect();
        Self { layer, head, probes, sinks }
    }

    /// Whether nobody watches.
    pub(super) fn is_alone(&self) -> bool {
        self.probes.is_empty()
    }

    fn wants(&self, probe: &dyn RowProbe, query: usize) -> bool {
        probe.wants(self.layer, self.head, query)
    }

    /// The queries whose rows somebody wants.
    pub(super) fn wanted(&self, queries: Range<usize>) -> Vec<usize> {
        queries.filter(|&query| self.probes.iter().any(|(_, probe)| self.wants(*probe, query))).collect()
    }

    /// Whether somebody who wants one of these rows wants its logits.
    pub(super) fn wants_logits(&self, wanted: &[usize]) -> bool {
        let probes = self.probes.iter().filter(|(_, probe)| probe.wants_logits());
        probes.clone().any(|(_, probe)| wanted.iter().any(|&query| self.wants(*probe, query)))
    }

    /// Shows a row to those who want it.
    pub(super) fn see(&mut self, row: &Row<'_>) {
        let (layer, head) = (self.layer, self.head);
        let wants = |probe: &dyn RowProbe| probe.wants(layer, head, row.query);
        let watching = self.probes.iter().zip(&mut self.sinks).filter(|((_, probe), _)| wants(*probe));
        watching.for_each(|(_, (_, sink))| sink.see(row));
    }

    /// Adds what the same probes have learned of later queries.
    pub(super) fn merge(&mut self, later: Self) {
        self.sinks.iter_mut().zip(later.sinks).for_each(|((_, sink), (_, later))| sink.merge(later));
    }

    /// What they have learned, after the last row.
    pub(super) fn finish(mut self) -> Sinks {
        self.sinks.iter_mut().for_each(|(_, sink)| sink.finish());
        self.sinks
    }
}

/// From the first to the last of `queries` whose output is needed or whose row is `wanted`; of none of them nothing.
pub(super) fn asked(
    queries: Range<usize>,
    needed: Option<&[bool]>,
    wanted: impl Fn(usize) -> bool,
) -> Option<Range<usize>> {
    let asked = |query: &usize| needed.is_none_or(|needed| needed[*query]) || wanted(*query);
    let first = queries.clone().find(asked)?;
    let last = queries.rev().find(asked)?;
    Some(first..last + 1)
}
