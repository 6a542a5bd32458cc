//! Attention for measuring: tiles of queries that fit in cache, rows lent to probes as they pass and then dropped.
//!
//! A tile belongs to one output head. Tiles run in parallel; every block of [`BLOCK`] queries of a head has its own
//! probe state, and the states of a head are merged in query order, so what a probe learns does not depend on the
//! number of threads.

use super::pass::Pass;
use super::tile::{Tile, TILE};
use super::{Attend, Heads, Trace, Treated, Values};
use crate::ops::with_values;
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::sync::Mutex;

/// Queries per task and per probe state, at least.
const BLOCK: usize = 256;
/// Tasks per head, at most: a probe may keep O(T) numbers per task.
const BLOCKS: usize = 16;

/// One row of attention of one output head, on its way past.
pub struct Row<'a> {
    /// Position of the query token; the keys are 0..=query.
    pub query: usize,
    /// The first key it sees: 0 without a window. Weights before it are 0, and logits there mean nothing.
    pub first_visible: usize,
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
pub trait RowSink: Send {
    /// Takes note of a row. The row is borrowed: keep numbers, not rows.
    fn see(&mut self, row: &Row<'_>);
    /// Adds what `later`, made by the same probe for later queries of the same head, has learned.
    fn merge(&mut self, later: Box<dyn RowSink>);
    /// Called once, when all rows of the head have passed, heads in order: the time to let go of what is not needed.
    fn finish(&mut self) {}
    /// For reading the result: `sink.into_any().downcast::<MySink>()`.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
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

    /// Leaves the outputs of `layer` zero for queries that are neither needed nor wanted by a probe: of the last layer
    /// nothing is asked but the rows that predict something.
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
        let (batch, t, _, d) = heads.q.dims4()?;
        if batch != 1 {
            candle_core::bail!("streaming attention takes one prompt at a time, got {batch}");
        }
        let (small, wiring) = (heads.small()?, heads.wiring);
        let length = t.div_ceil(BLOCKS).next_multiple_of(TILE).max(BLOCK);
        let blocks = t.div_ceil(length);
        let watching: Vec<_> = (0..wiring.heads()).map(|head| self.watching(layer, head)).collect();
        let treated = self.treated;
        let needed = self.needed.as_ref().filter(|(of, _)| *of == layer).map(|(_, needed)| needed.as_slice());
        let blocks_of = |slices: [&[f32]; 3]| -> Result<Blocks> {
            let pass = Pass::new(slices, &small, heads, treated, layer)?;
            // As many tiles as threads have asked for at once.
            let tiles = Mutex::new(Vec::new());
            // Late blocks cost most: start with them.
            let run = |task: usize| {
                let (head, block) = (task % wiring.heads(), blocks - 1 - task / wiring.heads());
                let start = block * length;
                let mut tile = tiles.lock().expect("no task has panicked").pop().unwrap_or_default();
                let queries = start..(start + length).min(t);
                let finished = run_block(&pass, head, queries, &watching[head], needed, &mut tile);
                tiles.lock().expect("no task has panicked").push(tile);
                finished
            };
            Ok((0..wiring.heads() * blocks).into_par_iter().with_max_len(1).map(run).unzip())
        };
        let Heads { q, k, v, .. } = heads;
        let of = "attention";
        // One `?` for each tensor and one for the pass.
        let (outs, sinks) =
            with_values(q, of, |q| with_values(k, of, |k| with_values(v, of, |v| blocks_of([q, k, v]))))????;
        let (heads_of, width) = (wiring.heads(), wiring.value_slices() * d);
        let mut out = vec![0.0; t * heads_of * width];
        // The outputs of all heads of a block lie together: (queries, H, value width).
        let in_order = outs.par_chunks(heads_of).rev();
        out.par_chunks_mut(length * heads_of * width).zip(in_order).for_each(|(out, of_heads)| {
            for (head, of_head) in of_heads.iter().enumerate() {
                let rows = out.chunks_exact_mut(heads_of * width).zip(of_head.chunks_exact(width));
                rows.for_each(|(out, row)| out[head * width..][..width].copy_from_slice(row));
            }
        });
        let mut merged: Vec<BTreeMap<usize, Box<dyn RowSink>>> = (0..heads_of).map(|_| BTreeMap::new()).collect();
        for (task, sinks) in sinks.into_iter().enumerate().rev() {
            // reversed again: query order within a head
            for (probe, later) in sinks {
                match merged[task % heads_of].entry(probe) {
                    Entry::Occupied(mut sink) => sink.get_mut().merge(later),
                    Entry::Vacant(slot) => _ = slot.insert(later),
                }
            }
        }
        for (head, mut sinks) in merged.into_iter().enumerate() {
            sinks.values_mut().for_each(|sink| sink.finish());
            self.sightings.extend(sinks.into_iter().map(|(probe, sink)| Sighting { layer, head, probe, sink }));
        }
        if let Some(trace) = &mut self.trace {
            let gate = heads.gate.as_ref().map(|gate| gate.flatten_all()?.to_vec1::<f32>()).transpose()?;
            trace.mixture(&out, gate.as_deref(), heads_of * width);
        }
        Tensor::from_vec(out, (1, t, wiring.heads(), width), heads.q.device())
    }

    fn written(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        match self.treated {
            None => Ok(heads),
            Some(treated) => treated.replace(layer, 0, heads),
        }
    }

    fn attended(&mut self, _layer: usize, x: &Tensor) -> Result<()> {
        let Some(trace) = &mut self.trace else { return Ok(()) };
        let (_, _, width) = x.dims3()?;
        with_values(x, "output of attention", |values| trace.attended(values, width))
    }

    fn residual(&mut self, site: usize, x: &Tensor) -> Result<()> {
        if let Some(trace) = &mut self.trace {
            let (_, _, width) = x.dims3()?;
            with_values(x, "residual stream", |values| trace.residual(values, width))?;
        }
        let Some(probe) = &mut self.residual else { return Ok(()) };
        let (_, _, width) = x.dims3()?;
        with_values(x, "residual stream", |values| probe.see(site, values, width))
    }
}

/// The state of each probe after a block of queries of one head, with the probe's index.
type Sinks = Vec<(usize, Box<dyn RowSink>)>;

/// The outputs (queries, value width) and the probes' states of all tasks.
type Blocks = (Vec<Vec<f32>>, Vec<Sinks>);

/// Computes a block of queries of a head, tile by tile, and shows the rows that are wanted.
fn run_block(
    pass: &Pass<'_>,
    head: usize,
    block: Range<usize>,
    probes: &[(usize, &dyn RowProbe)],
    needed: Option<&[bool]>,
    tile: &mut Tile,
) -> (Vec<f32>, Sinks) {
    let width = pass.value_width();
    let mut out = vec![0.0; block.len() * width];
    let mut sinks: Sinks = probes.iter().map(|(index, probe)| (*index, probe.start(pass.layer, head))).collect();
    let wants = |probe: &dyn RowProbe, query| probe.wants(pass.layer, head, query);
    for first in block.clone().step_by(TILE) {
        let queries = first..(first + TILE).min(block.end);
        let wanted: Vec<usize> =
            queries.clone().filter(|&query| probes.iter().any(|(_, probe)| wants(*probe, query))).collect();
        // From the first to the last that anybody asks for: a row is the same in any tile.
        let asked = |query: &usize| needed.is_none_or(|needed| needed[*query]) || wanted.contains(query);
        let (Some(start), Some(last)) = (queries.clone().find(asked), queries.rev().find(asked)) else { continue };
        let keep_logits = probes.iter().any(|(_, p)| p.wants_logits() && wanted.iter().any(|&query| wants(*p, query)));
        tile.compute(pass, head, start..last + 1, !wanted.is_empty(), keep_logits);
        for query in wanted {
            tile.show(pass, head, query, &mut |row| {
                let watching = probes.iter().zip(&mut sinks).filter(|((_, probe), _)| wants(*probe, query));
                watching.for_each(|(_, (_, sink))| sink.see(row));
            });
        }
        tile.output(pass, head, &mut out[(start - block.start) * width..(last + 1 - block.start) * width]);
    }
    (out, sinks)
}
