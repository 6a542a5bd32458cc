//! Attention for measuring: rows are lent to probes as they pass, and then dropped.
//!
//! Who computes them is not seen from outside: the kernel ([`blocks`]), or candle's own ops ([`Portable`]) where the heads are
//! on another device or of another number type.

use super::portable::Portable;
use super::{blocks, Attend, Heads, Trace, Treated, Values};
use crate::ops::{has_kernels, with_values};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::ops::Range;

/// One row of attention of one output head, on its way past.
pub struct Row<'a> {
    /// Position of the query token; the keys are 0..=query.
    pub query: usize,
    /// The first key it sees: 0 without a window. Weights before it are 0, and logits there mean nothing.
    pub first_visible: usize,
    /// Keys that are masked, in no order and perhaps more than once; never its own key.
    pub masked: &'a [Range<usize>],
    /// Scaled logits of the maps as the softmax takes them, soft-capped and quantised if they are, -inf where masked: each
    /// (query + 1).
    /// Nothing unless a probe asks for them.
    pub logits: &'a [&'a [f32]],
    /// Softmax rows of the maps j = 0, 1: each (query + 1).
    pub maps: &'a [&'a [f32]],
    /// Weight of each map: 1, or 1 and -lambda.
    pub mix: &'a [f32],
    /// What the sink takes of each map, which sums to 1 with it; nothing without sinks.
    pub sinks: &'a [f32],
    /// The mixture, which weighs the values: (query + 1).
    pub effective: &'a [f32],
    /// The values of the keys.
    pub values: Values<'a>,
}

impl Row<'_> {
    /// Runs of the keys that it sees, rising: up to its own those of its window, but for what is masked.
    pub fn visible(&self) -> Vec<Range<usize>> {
        let mut masked = self.masked.to_vec();
        masked.sort_by_key(|keys| keys.start);
        let (mut next, mut runs) = (self.first_visible, Vec::new());
        for keys in masked {
            if next < keys.start {
                runs.push(next..keys.start);
            }
            next = next.max(keys.end);
        }
        runs.push(next..self.query + 1);
        runs
    }
}

/// A measurement of rows: says which rows it wants and makes one [`RowSink`] per head and block of queries.
pub trait RowProbe: Sync {
    /// Whether the row of this query of this head is to be seen. Rows nobody wants cost nothing.
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool;
    /// Whether it looks at [`Row::logits`], which cost a copy.
    fn wants_logits(&self) -> bool {
        false
    }
    /// A fresh state for one head.
    fn start(&self, layer: usize, head: usize) -> Box<dyn RowSink>;
}

/// What a probe has learned of one head so far.
pub trait RowSink: Any + Send {
    /// Takes note of a row. The row is borrowed: keep numbers, not rows.
    fn see(&mut self, row: &Row<'_>);
    /// Adds what `later`, made by the same probe for later queries of the same head, has learned.
    fn merge(&mut self, later: Box<dyn RowSink>);
    /// Called once, when all rows of the head have passed, heads in order: the time to let go of what is not needed.
    fn finish(&mut self) {}
}

impl dyn RowSink {
    /// The state as what its probe knows it as.
    ///
    /// # Panics
    /// If a probe of another kind has started it.
    pub fn into_sink<S: RowSink>(self: Box<Self>) -> Box<S> {
        let any: Box<dyn Any> = self;
        any.downcast().expect("a sink of the probe that started it")
    }
}

/// What one probe learned of one head of one layer.
pub struct Sighting {
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
    /// Index of the probe in the list given to [`Stream::new`].
    pub probe: usize,
    /// The probe's state after all rows.
    pub sink: Box<dyn RowSink>,
}

/// Looks at the residual stream as it passes.
pub trait ResidualProbe {
    /// Site 0 is the embeddings, site l + 1 the output of layer l; `values` is (T, E), row-major.
    fn see(&mut self, site: usize, values: &[f32], width: usize);
}

/// The layers and heads that probes are shown; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// 0-based layers; nothing for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// 0-based output heads; nothing for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<usize>>,
}

impl Selection {
    /// Whether a head of a layer is in it.
    pub fn has(&self, layer: usize, head: usize) -> bool {
        let within = |list: &Option<Vec<usize>>, index| list.as_ref().is_none_or(|list| list.contains(&index));
        within(&self.layers, layer) && within(&self.heads, head)
    }
}

/// Computes the mixture without gradients and shows its rows to probes. One prompt at a time (B = 1).
pub struct Stream<'a> {
    probes: &'a [&'a dyn RowProbe],
    residual: Option<&'a mut dyn ResidualProbe>,
    selection: Selection,
    treated: Option<&'a Treated>,
    /// A layer, and for every query whether its output there is needed.
    needed: Option<(usize, Vec<bool>)>,
    /// What passed at some rows, if asked for.
    pub trace: Option<Trace>,
    /// What was learned, in (layer, head, probe) order.
    pub sightings: Vec<Sighting>,
}

impl<'a> Stream<'a> {
    /// A stream watched by `probes`.
    pub fn new(probes: &'a [&'a dyn RowProbe]) -> Self {
        Self {
            probes,
            residual: None,
            selection: Selection::default(),
            treated: None,
            needed: None,
            trace: None,
            sightings: Vec::new(),
        }
    }

    /// Shows rows of these layers and heads only.
    pub fn only(self, selection: &Selection) -> Self {
        Self { selection: selection.clone(), ..self }
    }

    /// Shows the residual stream to `probe`.
    pub fn with_residual(self, probe: &'a mut dyn ResidualProbe) -> Self {
        Self { residual: Some(probe), ..self }
    }

    /// Whether something looks at the residual stream.
    pub fn watches_residual(&self) -> bool {
        self.residual.is_some()
    }

    /// Does this to the attention. Probes see treated rows.
    pub fn treated(self, treated: Option<&'a Treated>) -> Self {
        Self { treated, ..self }
    }

    /// Leaves the outputs of `layer` zero for queries that are neither needed nor wanted by a probe, and its MLP out where they
    /// are not needed: of the last layer nothing is asked but the rows that predict something.
    pub fn with_needed_rows(self, layer: usize, needed: Vec<bool>) -> Self {
        Self { needed: Some((layer, needed)), ..self }
    }

    /// Keeps what passes at these rows, which are ascending: see [`Trace`].
    pub fn tracing(self, rows: Vec<usize>) -> Self {
        Self { trace: Some(Trace::new(rows)), ..self }
    }

    /// The probes that are shown rows of this head, each with its index.
    fn watching(&self, layer: usize, head: usize) -> Vec<(usize, &'a dyn RowProbe)> {
        let selected = self.selection.has(layer, head);
        self.probes.iter().enumerate().filter(|_| selected).map(|(i, &probe)| (i, probe)).collect()
    }
}

impl Attend for Stream<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let batch = heads.q.dim(0)?;
        if batch != 1 {
            candle_core::bail!("streaming attention takes one prompt at a time, got {batch}");
        }
        let watching: Vec<_> = (0..heads.wiring.heads()).map(|head| self.watching(layer, head)).collect();
        let needed = self.needed(layer);
        let (out, watched) = match has_kernels(&heads.q) {
            true => blocks::mixture(heads, self.treated, layer, needed, &watching)?,
            false => Portable::new(heads, self.treated, layer)?.watched(needed, &watching)?,
        };
        for (head, watched) in watched.into_iter().enumerate() {
            let finished = watched.finish().into_iter();
            self.sightings.extend(finished.map(|(probe, sink)| Sighting { layer, head, probe, sink }));
        }
        if let Some(trace) = &mut self.trace {
            trace.mixture(&out, heads.gate.as_ref())?;
        }
        Ok(out)
    }

    fn needed(&self, layer: usize) -> Option<&[bool]> {
        self.needed.as_ref().filter(|(of, _)| *of == layer).map(|(_, needed)| needed.as_slice())
    }

    fn written(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        match self.treated {
            None => Ok(heads),
            Some(treated) => treated.replace(layer, 0, heads),
        }
    }

    fn attended(&mut self, _layer: usize, x: &Tensor) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.attended(x))
    }

    fn residual(&mut self, site: usize, x: &Tensor) -> Result<()> {
        if let Some(trace) = &mut self.trace {
            trace.residual(x)?;
        }
        let Some(probe) = &mut self.residual else { return Ok(()) };
        let (_, _, width) = x.dims3()?;
        with_values(x, "residual stream", |values| probe.see(site, values, width))
    }
}
