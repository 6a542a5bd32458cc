//! Attention for measuring: rows are lent to probes and then dropped.
//!
//! Rows are computed by the kernel ([`blocks`]), or by candle's own ops ([`Portable`]) on other devices and for other
//! number types.

use super::blocks::{self, BatchedPrompt};
use super::keys::PackedKeys;
use super::portable::Portable;
use super::probes::{HeadProbes, IndexedProbe};
use super::{treat, Attend, Heads, Prefix, ProbeResult, ResidualProbe, ResolvedTreatment, RowProbe, Trace};
use crate::kernels::{has_kernels, with_values};
use candle_core::{Result, Tensor};
use names::{HeadPlace, LayersAndHeads};
use std::ops::Range;

/// Computes the mixture without gradients and lends its rows to probes. One prompt at a time (B = 1).
pub struct Stream<'a> {
    probes: &'a [&'a dyn RowProbe],
    residual: Option<&'a mut dyn ResidualProbe>,
    selection: LayersAndHeads,
    pub(super) treated: Option<&'a ResolvedTreatment>,
    needed: Option<NeededRows>,
    /// Intermediate values of some rows, if requested.
    pub trace: Option<Trace>,
    /// Results of the probes, in the order (layer, head, probe).
    pub probe_results: Vec<ProbeResult>,
    /// Keys and values of the layers, if they are kept.
    pub(super) kept: Option<Vec<PackedKeys>>,
}

/// The queries whose outputs are needed in one layer; in others, all are.
pub struct NeededRows {
    pub layer: usize,
    /// One for each query.
    pub rows: Vec<bool>,
}

impl NeededRows {
    /// The needed rows of a layer; `None` for all.
    pub(super) fn of(&self, layer: usize) -> Option<&[bool]> {
        (self.layer == layer).then_some(&self.rows)
    }
}

impl<'a> Stream<'a> {
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

    pub fn observes_residual(&self) -> bool {
        self.residual.is_some()
    }

    /// Applies a treatment to the attention. Probes observe treated rows.
    pub fn treated(self, treated: Option<&'a ResolvedTreatment>) -> Self {
        Self { treated, ..self }
    }

    /// Skips rows of `layer` that are not needed: its output is zero for queries that are neither needed nor observed,
    /// and its MLP for those that are not needed. In the last layer, only rows that predict something are needed.
    pub fn with_needed_rows(self, layer: usize, rows: Vec<bool>) -> Self {
        Self { needed: Some(NeededRows { layer, rows }), ..self }
    }

    /// Traces these rows, in ascending order: see [`Trace`].
    pub fn tracing(self, rows: Vec<usize>) -> Self {
        Self { trace: Some(Trace::new(rows)), ..self }
    }

    /// The first row that the stream observes, if it is before `end`; otherwise `end`.
    pub fn first_observed_row(&self, layers: usize, heads: usize, end: usize) -> usize {
        if self.residual.is_some() || self.kept.is_some() {
            return 0;
        }
        let traced = self.trace.iter().flat_map(|trace| trace.rows().first());
        let end = traced.fold(end, |end, &row| end.min(row));
        let mut selected: Vec<HeadPlace> = HeadPlace::all(layers, heads).collect();
        selected.retain(|at| self.selection.has(*at));
        let mut rows = 0..end;
        let observed = rows
            .find(|&row| self.probes.iter().any(|probe| selected.iter().any(|at| probe.wants(at.layer, at.head, row))));
        observed.unwrap_or(end)
    }

    /// Treatment and probes in a layer of `heads` heads.
    pub(super) fn of_layer(&self, layer: usize, heads: usize) -> BatchedPrompt<'a> {
        let mut probes: Vec<Vec<_>> = vec![Vec::new(); heads];
        for head in (0..heads).filter(|&head| self.selection.has(HeadPlace { layer, head })) {
            let indexed = self.probes.iter().copied().enumerate();
            probes[head].extend(indexed.map(|(index, probe)| IndexedProbe { index, probe }));
        }
        BatchedPrompt { treated: self.treated, probes }
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
        self.needed.as_ref()?.of(layer)
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

/// Attends like a [`Stream`] and sums the outputs of heads over sets of rows (B = 1).
pub struct HeadOutputSums<'a> {
    stream: Stream<'a>,
    /// The rows of each set.
    sets: Vec<Vec<Range<usize>>>,
    /// Sums over the rows of each set and layer: (H, value width), row-major.
    pub sums: Vec<Vec<Vec<f64>>>,
    /// Number of rows in each set.
    pub counts: Vec<usize>,
}

impl<'a> HeadOutputSums<'a> {
    pub fn new(stream: Stream<'a>, sets: Vec<Vec<Range<usize>>>) -> Self {
        let n = sets.len();
        Self { stream, sets, sums: vec![Vec::new(); n], counts: vec![0; n] }
    }

    /// See [`Stream::take_prefix`].
    pub fn take_prefix(&mut self, ids: &[u32]) -> Option<Prefix> {
        self.stream.take_prefix(ids)
    }
}

impl Attend for HeadOutputSums<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        self.stream.attend(layer, heads)
    }

    fn head_outputs(&mut self, _layer: usize, heads: Tensor) -> Result<Tensor> {
        let t = heads.dim(1)?;
        let row_width = heads.elem_count() / t;
        with_values([&heads], |[values]| {
            for ((rows, sums), count) in self.sets.iter().zip(&mut self.sums).zip(&mut self.counts) {
                let mut sum = vec![0.0; row_width];
                *count = 0;
                for row in rows.iter().flat_map(|rows| rows.start..rows.end.min(t)) {
                    let row = &values[row * row_width..][..row_width];
                    sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
                    *count += 1;
                }
                sums.push(sum);
            }
        })?;
        Ok(heads)
    }
}
