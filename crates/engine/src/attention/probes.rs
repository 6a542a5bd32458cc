//! Probes of attention rows and of the residual stream, and the states that they keep.

use super::Values;
use names::HeadPlace;
use std::any::Any;
use std::ops::Range;

/// One attention row of one output head, lent to probes.
pub struct AttentionRow<'a> {
    /// Position of the query token; the keys are 0..=query.
    pub query: usize,
    /// The first visible key: 0 without a window. Weights before it are 0, and logits there are undefined.
    pub first_visible: usize,
    /// Logits of each map as input to the softmax: scaled, soft-capped and quantised if configured, -inf where masked;
    /// (query + 1) each. Empty unless a probe requests logits.
    pub logits: &'a [&'a [f32]],
    /// Softmax rows of the maps j = 0, 1: (query + 1) each.
    pub maps: &'a [&'a [f32]],
    /// Weight of each map: 1, or 1 and -lambda.
    pub mix: &'a [f32],
    /// Weight of the sink in each map, which sums to 1 with the row. Empty without sinks.
    pub sinks: &'a [f32],
    /// The mixture of the maps, which weights the values: (query + 1).
    pub effective: &'a [f32],
    pub values: Values<'a>,
}

/// A measurement of attention rows. It selects rows and creates one [`RowCollector`] per head and block of queries.
pub trait RowProbe: Sync {
    /// Returns `true` if the probe observes this query of this head. Rows that no probe wants cost nothing.
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool;
    /// Returns `true` if it reads [`AttentionRow::logits`], which cost a copy.
    fn wants_logits(&self) -> bool {
        false
    }
    /// Creates an empty state for one head.
    fn start(&self, layer: usize, head: usize) -> Box<dyn RowCollector>;
}

/// State of a probe for one head.
pub trait RowCollector: Any + Send {
    /// Processes a row, which is borrowed: collectors keep numbers rather than rows.
    fn observe(&mut self, row: &AttentionRow<'_>);
    /// Adds the state of `later`, created by the same probe for later queries of the same head.
    fn merge(&mut self, later: Box<dyn RowCollector>);
    /// Called once after all rows of the head, in the order of heads. Frees what is no longer needed.
    fn finish(&mut self) {}
}

impl dyn RowCollector {
    /// Downcasts the state to the type that its probe created.
    ///
    /// # Panics
    /// If it was created by another kind of probe.
    pub fn into_collector<C: RowCollector>(self: Box<Self>) -> Box<C> {
        let any: Box<dyn Any> = self;
        any.downcast().expect("a collector of the probe that started it")
    }
}

/// Result of one probe for one head of one layer.
pub struct ProbeResult {
    pub at: HeadPlace,
    /// Index of the probe in the list given to [`Stream::new`](super::Stream::new).
    pub probe: usize,
    /// State of the probe after all rows.
    pub collector: Box<dyn RowCollector>,
}

/// A measurement of the residual stream.
pub trait ResidualProbe {
    /// Processes a site: 0 is the embeddings, l + 1 the output of layer l. `values` is (T, E), row-major.
    fn observe(&mut self, site: usize, values: &[f32], width: usize);
}

/// A probe and its index among those of the pass.
#[derive(Clone, Copy)]
pub(super) struct IndexedProbe<'a> {
    pub(super) index: usize,
    pub(super) probe: &'a dyn RowProbe,
}

/// The probes of a head with their states.
pub(super) struct HeadProbes<'a> {
    pub(super) at: HeadPlace,
    probes: Vec<(IndexedProbe<'a>, Box<dyn RowCollector>)>,
}

impl<'a> HeadProbes<'a> {
    /// Creates empty states for `probes`.
    pub(super) fn start(at: HeadPlace, probes: &[IndexedProbe<'a>]) -> Self {
        let probes = probes.iter().map(|&indexed| (indexed, indexed.probe.start(at.layer, at.head))).collect();
        Self { at, probes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    /// The queries whose rows a probe wants.
    pub(super) fn wanted(&self, queries: Range<usize>) -> Vec<usize> {
        let HeadPlace { layer, head } = self.at;
        queries.filter(|&query| self.probes.iter().any(|(of, _)| of.probe.wants(layer, head, query))).collect()
    }

    /// Returns `true` if a probe that wants one of these rows reads its logits.
    pub(super) fn wants_logits(&self, wanted: &[usize]) -> bool {
        let mut probes = self.probes.iter().map(|(of, _)| of.probe).filter(|probe| probe.wants_logits());
        probes.any(|probe| wanted.iter().any(|&query| probe.wants(self.at.layer, self.at.head, query)))
    }

    /// Passes a row to the probes that want it.
    pub(super) fn observe(&mut self, row: &AttentionRow<'_>) {
        for (of, collector) in &mut self.probes {
            if of.probe.wants(self.at.layer, self.at.head, row.query) {
                collector.observe(row);
            }
        }
    }

    /// Merges the states of the same probes for later queries.
    pub(super) fn merge(&mut self, later: Self) {
        self.probes.iter_mut().zip(later.probes).for_each(|((_, collector), (_, later))| collector.merge(later));
    }

    pub(super) fn finish(self) -> impl Iterator<Item = ProbeResult> + 'a {
        let Self { at, probes } = self;
        probes.into_iter().map(move |(of, mut collector)| {
            collector.finish();
            ProbeResult { at, probe: of.index, collector }
        })
    }
}
