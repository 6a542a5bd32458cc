//! The probes of one head, for every implementation of its rows.

use super::{AttentionRow, RowProbe, RowSink};
use std::ops::Range;

/// States of the probes of a head, with the index of each probe.
pub(super) type Sinks = Vec<(usize, Box<dyn RowSink>)>;

/// The probes of a head with their states.
pub(super) struct HeadProbes<'a> {
    layer: usize,
    head: usize,
    probes: &'a [(usize, &'a dyn RowProbe)],
    sinks: Sinks,
}

impl<'a> HeadProbes<'a> {
    /// Creates empty states for `probes`, which come with their indices.
    pub(super) fn start(layer: usize, head: usize, probes: &'a [(usize, &'a dyn RowProbe)]) -> Self {
        let sinks = probes.iter().map(|(index, probe)| (*index, probe.start(layer, head))).collect();
        Self { layer, head, probes, sinks }
    }

    /// Returns whether the head has no probes.
    pub(super) fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    fn wants(&self, probe: &dyn RowProbe, query: usize) -> bool {
        probe.wants(self.layer, self.head, query)
    }

    /// The queries whose rows a probe wants.
    pub(super) fn wanted(&self, queries: Range<usize>) -> Vec<usize> {
        queries.filter(|&query| self.probes.iter().any(|(_, probe)| self.wants(*probe, query))).collect()
    }

    /// Returns whether a probe that wants one of these rows reads its logits.
    pub(super) fn wants_logits(&self, wanted: &[usize]) -> bool {
        let probes = self.probes.iter().filter(|(_, probe)| probe.wants_logits());
        probes.clone().any(|(_, probe)| wanted.iter().any(|&query| self.wants(*probe, query)))
    }

    /// Passes a row to the probes that want it.
    pub(super) fn observe(&mut self, row: &AttentionRow<'_>) {
        let (layer, head) = (self.layer, self.head);
        let wants = |probe: &dyn RowProbe| probe.wants(layer, head, row.query);
        let watching = self.probes.iter().zip(&mut self.sinks).filter(|((_, probe), _)| wants(*probe));
        watching.for_each(|(_, (_, sink))| sink.observe(row));
    }

    /// Merges the states of the same probes for later queries.
    pub(super) fn merge(&mut self, later: Self) {
        self.sinks.iter_mut().zip(later.sinks).for_each(|((_, sink), (_, later))| sink.merge(later));
    }

    /// Finishes the states after the last row.
    pub(super) fn finish(mut self) -> Sinks {
        self.sinks.iter_mut().for_each(|(_, sink)| sink.finish());
        self.sinks
    }
}

/// Smallest range that covers the `queries` that are computed, or `None`.
pub(super) fn covering_range(queries: Range<usize>, is_computed: impl Fn(usize) -> bool) -> Option<Range<usize>> {
    let first = queries.clone().find(|&query| is_computed(query))?;
    let last = queries.rev().find(|&query| is_computed(query))?;
    Some(first..last + 1)
}
