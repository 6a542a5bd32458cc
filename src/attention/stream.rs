//! Attention for measuring: rows are lent to probes and then dropped.
//!
//! Rows are computed by the kernel ([`blocks`]), or by candle's own ops ([`Portable`]) on other devices and for other
//! number types.

use super::blocks::{self, BatchedPrompt};
use super::head_probes::HeadProbes;
use super::keys::PackedKeys;
use super::portable::Portable;
use super::{treat, Attend, Heads, Prefix, ResolvedTreatment, Trace, Values};
use crate::kernels::{has_kernels, with_values};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use std::any::Any;

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
    /// The values of the keys.
    pub values: Values<'a>,
}

/// A measurement of attention rows. It selects rows and creates one [`RowSink`] per head and block of queries.
pub trait RowProbe: Sync {
    /// Returns whether the probe observes this query of this head. Rows that no probe wants cost nothing.
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool;
    /// Returns whether it reads [`AttentionRow::logits`], which cost a copy.
    fn wants_logits(&self) -> bool {
        false
    }
    /// Creates an empty state for one head.
    fn start(&self, layer: usize, head: usize) -> Box<dyn RowSink>;
}

/// State of a probe for one head.
pub trait RowSink: Any + Send {
    /// Processes a row, which is borrowed: sinks keep numbers rather than rows.
    fn observe(&mut self, row: &AttentionRow<'_>);
    /// Adds the state of `later`, created by the same probe for later queries of the same head.
    fn merge(&mut self, later: Box<dyn RowSink>);
    /// Called once after all rows of the head, in the order of heads. Frees what is no longer needed.
    fn finish(&mut self) {}
}

impl dyn RowSink {
    /// Downcasts the state to the type that its probe created.
    ///
    /// # Panics
    /// If it was created by another kind of probe.
    pub fn into_sink<S: RowSink>(self: Box<Self>) -> Box<S> {
        let any: Box<dyn Any> = self;
        any.downcast().expect("a sink of the probe that started it")
    }
}

/// Result of one probe for one head of one layer.
pub struct ProbeResult {
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
    /// Index of the probe in the list given to [`Stream::new`].
    pub probe: usize,
    /// State of the probe after all rows.
    pub sink: Box<dyn RowSink>,
}

/// A measurement of the residual stream.
pub trait ResidualProbe {
    /// Processes a site: 0 is the embeddings, l + 1 the output of layer l. `values` is (T, E), row-major.
    fn observe(&mut self, site: usize, values: &[f32], width: usize);
}

/// The observed layers and heads; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayersAndHeads {
    /// 0-based layers; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// 0-based output heads; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<usize>>,
}

impl LayersAndHeads {
    /// Returns whether a head of a layer is selected.
    pub fn has(&self, layer: usize, head: usize) -> bool {
        let within = |list: &Option<Vec<usize>>, index| list.as_ref().is_none_or(|list| list.contains(&index));
        within(&self.layers, layer) && within(&self.heads, head)
    }
}

/// Computes the mixture without gradients and lends its rows to probes. One prompt at a time (B = 1).
pub struct Stream<'a> {
    probes: &'a [&'a dyn RowProbe],
    residual: Option<&'a mut dyn ResidualProbe>,
    selection: LayersAndHeads,
    pub(super) treated: Option<&'a ResolvedTreatment>,
    /// A layer, and for each query whether its output there is needed.
    needed: Option<(usize, Vec<bool>)>,
    /// Intermediate values of some rows, if requested.
    pub trace: Option<Trace>,
    /// Results of the probes, in the order (layer, head, probe).
    pub probe_results: Vec<ProbeResult>,
    /// Keys and values of the layers, if they are kept.
    kept: Option<Vec<PackedKeys>>,
}

impl<'a> Stream<'a> {
    /// Creates a stream observed by `probes`.
    pub fn new(probes: &'a [&'a dyn RowProbe]) -> Self {
        Self {
            probes,
            residual: None,
            selection: LayersAndHeads::default(),
            treated: None,
            needed: None,
            trace: None,
            probe_results: Vec::new(),
            kept: None,
        }
    }

    /// Keeps the keys and values of all layers: see [`Stream::take_prefix`].
    pub fn keeping(self) -> Self {
        Self { kept: Some(Vec::new()), ..self }
    }

    /// Takes the keys and values of a finished untreated pass over `ids`, with which other passes over texts that begin
    /// alike start later. `None` if they were not [kept](Stream::keeping).
    ///
    /// # Panics
    /// If the pass was treated.
    pub fn take_prefix(&mut self, ids: &[u32]) -> Option<Prefix> {
        assert!(self.kept.is_none() || self.treated.is_none(), "only untreated keys and values are shared");
        Some(Prefix { ids: ids.to_vec(), layers: self.kept.take()? })
    }

    /// Restricts probes to these layers and heads.
    pub fn only(self, selection: &LayersAndHeads) -> Self {
        Self { selection: selection.clone(), ..self }
    }

    /// Passes the residual stream to `probe`.
    pub fn with_residual(self, probe: &'a mut dyn ResidualProbe) -> Self {
        Self { residual: Some(probe), ..self }
    }

    /// Returns whether a probe observes the residual stream.
    pub fn observes_residual(&self) -> bool {
        self.residual.is_some()
    }

    /// Applies a treatment to the attention. Probes observe treated rows.
    pub fn treated(self, treated: Option<&'a ResolvedTreatment>) -> Self {
        Self { treated, ..self }
    }

    /// Skips rows of `layer` that are not needed: its output is zero for queries that are neither needed nor observed,
    /// and its MLP for those that are not needed. In the last layer, only rows that predict something are needed.
    pub fn with_needed_rows(self, layer: usize, needed: Vec<bool>) -> Self {
        Self { needed: Some((layer, needed)), ..self }
    }

    /// Traces these rows, in ascending order: see [`Trace`].
    pub fn tracing(self, rows: Vec<usize>) -> Self {
        Self { trace: Some(Trace::new(rows)), ..self }
    }

    /// The first row that the stream observes, if it is before `end`; otherwise `end`.
    pub(crate) fn first_observed_row(&self, (layers, heads): (usize, usize), end: usize) -> usize {
        if self.residual.is_some() || self.kept.is_some() {
            return 0;
        }
        let end = self.trace.iter().flat_map(|trace| trace.rows().first()).fold(end, |end, &row| end.min(row));
        let of_layer = |layer| (0..heads).map(move |head| (layer, head));
        let all = (0..layers).flat_map(of_layer);
        let selected: Vec<(usize, usize)> = all.filter(|&(layer, head)| self.selection.has(layer, head)).collect();
        let wants = |probe: &&dyn RowProbe, row| selected.iter().any(|&(layer, head)| probe.wants(layer, head, row));
        (0..end).find(|&row| self.probes.iter().any(|probe| wants(probe, row))).unwrap_or(end)
    }

    /// Treatment and probes in a layer of `heads` heads.
    pub(super) fn of_layer(&self, layer: usize, heads: usize) -> BatchedPrompt<'a> {
        let probes_of = |head: usize| {
            let selected = self.selection.has(layer, head);
            self.probes.iter().enumerate().filter(|_| selected).map(|(i, &probe)| (i, probe)).collect()
        };
        BatchedPrompt { treated: self.treated, probes: (0..heads).map(probes_of).collect() }
    }

    /// Takes the results of a layer: states of the probes by head, the mixture (1, T, H, value width) and the output
    /// gate (1, T, H x value width).
    pub(super) fn conclude(
        &mut self,
        watched: Vec<HeadProbes<'_>>,
        mixture: &Tensor,
        gate: Option<&Tensor>,
    ) -> Result<()> {
        self.probe_results.extend(watched.into_iter().flat_map(HeadProbes::finish));
        self.trace.as_mut().map_or(Ok(()), |trace| trace.mixture(mixture, gate))
    }
}

impl Attend for Stream<'_> {
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        let Some(treated) = self.treated else { return Ok(heads) };
        let means = treated.key_means(layer, &heads.k)?;
        treated.quantised_heads(layer, heads, 0, &means)
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let batch = heads.q.dim(0)?;
        if batch != 1 {
            candle_core::bail!("streaming attention takes one prompt at a time, got {batch}");
        }
        let prompt = [self.of_layer(layer, heads.wiring.heads())];
        let needed = self.needed(layer);
        let (out, watched) = if has_kernels(&heads.v) {
            let (out, watched, keys) = blocks::mixture(heads, layer, None, needed, &prompt)?;
            if let Some(kept) = &mut self.kept {
                kept.extend(keys);
            }
            (out, watched.into_iter().flatten().collect())
        } else {
            Portable::new(heads, self.treated, layer)?.watched(needed, &prompt[0].probes)?
        };
        self.conclude(watched, &out, heads.gate.as_ref())?;
        Ok(out)
    }

    fn needed(&self, layer: usize) -> Option<&[bool]> {
        self.needed.as_ref().filter(|(of, _)| *of == layer).map(|(_, needed)| needed.as_slice())
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        treat::replace(&[self.treated], layer, 0, heads)
    }

    fn attention_output(&mut self, _layer: usize, x: &Tensor) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.attention_output(x))
    }

    fn residual(&mut self, site: usize, x: &Tensor) -> Result<()> {
        if let Some(trace) = &mut self.trace {
            trace.residual(x)?;
        }
        let Some(probe) = &mut self.residual else { return Ok(()) };
        let (_, _, width) = x.dims3()?;
        with_values([x], |[values]| probe.observe(site, values, width))
    }
}
