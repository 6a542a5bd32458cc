//! The probes of one head, for every implementation of its rows.

use super::{AttentionRow, ProbeResult, RowProbe, RowSink};
use std::ops::Range;

/// The probes of a head with their states.
pub(super) struct HeadProbes<'a> {
    layer: usize,
    head: usize,
    /// Index, probe and state.
    probes: Vec<(usize, &'a dyn RowProbe, Box<dyn RowSink>)>,
}

impl<'a> HeadProbes<'a> {
    /// Creates empty states for `probes`, which come with their indices.
    pub(super) fn start(layer: usize, head: usize, probes: &'a [(usize, &'a dyn RowProbe)]) -> Self {
        let probes = probes.iter().map(|&(index, probe)| (index, probe, probe.start(layer, head))).collect();
        Self { layer, head, probes }
    }

    /// Returns whether the head has no probes.
    pub(super) fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    /// The queries whose rows a probe wants.
    pub(super) fn wanted(&self, queries: Range<usize>) -> Vec<usize> {
        let is_wanted =
            |query: usize| self.probes.iter().any(|(_, probe, _)| probe.wants(self.layer, self.head, query));
        queries.filter(|&query| is_wanted(query)).collect()
    }

    /// Returns whether a probe that wants one of these rows reads its logits.
    pub(super) fn wants_logits(&self, wanted: &[usize]) -> bool {
        let mut probes = self.probes.iter().filter(|(_, probe, _)| probe.wants_logits());
        probes.any(|(_, probe, _)| wanted.iter().any(|&query| probe.wants(self.layer, self.head, query)))
    }

    /// Passes a row to the probes that want it.
    pub(super) fn observe(&mut self, row: &AttentionRow<'_>) {
        for (_, probe, sink) in &mut self.probes {
            if probe.wants(self.layer, self.head, row.query) {
                sink.observe(row);
            }
        }
    }

    /// Merges the states of the same probes for later queries.
    pub(super) fn merge(&mut self, later: Self) {
        self.probes.iter_mut().zip(later.probes).for_each(|((.., sink), (.., later))| sink.merge(later));
    }

    /// Finishes the states after the last row.
    pub(super) fn finish(self) -> impl Iterator<Item = ProbeResult> + 'a {
        let Self { layer, head, probes } = self;
        probes.into_iter().map(move |(probe, _, mut sink)| {
            sink.finish();
            ProbeResult { layer, head, probe, sink }
        })
    }
}

/// Smallest range that covers the `queries` that are computed, or `None`.
pub(super) fn covering_range(queries: Range<usize>, is_computed: impl Fn(usize) -> bool) -> Option<Range<usize>> {
    let first = queries.clone().find(|&query| is_computed(query))?;
    let last = queries.rev().find(|&query| is_computed(query))?;
    Some(first..last + 1)
}
