//! The streaming kernel of a layer: tiles of queries that fit in cache, in parallel.
//!
//! A tile belongs to one output head. Each block of queries of a head has its own probe state, and the states of a head
//! are merged in query order, so probe results do not depend on the number of threads.

use super::head_probes::{covering_range, HeadProbes};
use super::keys::{LayerKeys, PackedKeys};
use super::packed_layer::{PackedLayer, PromptRows};
use super::tile::{QueryTile, TILE};
use super::{Heads, ResolvedTreatment, RowProbe};
use crate::kernels::{in_chunks, with_values, PANEL};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Minimum number of queries per task and probe state.
const BLOCK: usize = 256;
/// Maximum number of tasks per head: a probe may keep O(T) numbers per task.
const BLOCKS: usize = 16;

/// Computes the mixture of a layer (B, T, H, value width) for B prompts with T queries each, and the state of the
/// probes of each prompt and head. Queries that are neither `needed` (T) nor observed give zeros.
pub(super) fn mixture<'a>(
    heads: &Heads<'_>,
    layer: usize,
    shared: Option<SharedTokens<'_>>,
    needed: Option<&[bool]>,
    prompts: &'a [BatchedPrompt<'a>],
) -> Result<(Tensor, Vec<Vec<HeadProbes<'a>>>)> {
    let (batch, n, _, d) = heads.q.dims4()?;
    let (scalars, first) = (heads.scalars()?, shared.map_or(0, |shared| shared.tokens));
    // Own keys begin with a whole panel, which may begin with the last of the shared ones.
    let border = first / PANEL * PANEL;
    let whole_panels = shared.filter(|_| border > 0);
    let before = whole_panels.map(|shared| shared.keys.packed(border, heads.products)).transpose()?;
    let last = shared.map(|shared| shared.keys.rows(border..first)).transpose()?;
    let grid = BlockGrid::new(first, n);
    let Heads { q, k, v, .. } = heads;
    let sizes = (k.dim(2)?, v.dim(2)?, d);
    let compute = |[q, k, v]: [&[f32]; 3]| -> Result<TaskResults<'a>> {
        let layer_of = |(i, prompt): (usize, &BatchedPrompt<'a>)| {
            let of = |x: &'_ [f32]| x.len() / batch * i..x.len() / batch * (i + 1);
            let (k, v) = (&k[of(k)], &v[of(v)]);
            let own = match &last {
                None => PackedKeys::new(k, v, sizes, border, heads.products),
                Some([last_k, last_v]) => {
                    PackedKeys::new(&[last_k, k].concat(), &[last_v, v].concat(), sizes, border, heads.products)
                }
            };
            let rows = PromptRows { q: &q[of(q)], first, row: i * n, shared: before.as_ref(), own };
            PackedLayer::new(rows, &scalars, heads, prompt.treated, layer)
        };
        let layers = prompts.par_iter().enumerate().map(layer_of).collect::<Result<Vec<_>>>()?;
        Ok(run_tasks(&layers, grid, needed, prompts))
    };
    let (outs, learned) = with_values([q, k, v], compute)??;
    let (heads_of, width) = (heads.wiring.heads(), heads.wiring.value_slices() * d);
    let out = rows_of_tasks(&outs, grid, batch, (heads_of, width));
    let out = Tensor::from_vec(out, (batch, n, heads_of, width), heads.q.device())?;
    Ok((out, by_prompt(learned, batch, heads_of)))
}

/// One prompt of a batch.
pub(super) struct BatchedPrompt<'a> {
    pub(super) treated: Option<&'a ResolvedTreatment>,
    /// The probes of each head, with their indices.
    pub(super) probes: Vec<Vec<(usize, &'a dyn RowProbe)>>,
}

/// Tokens that the prompts of a batch share, before their own.
#[derive(Clone, Copy)]
pub(super) struct SharedTokens<'a> {
    pub(super) keys: &'a LayerKeys,
    /// Number of shared tokens, which is the position of the first query.
    pub(super) tokens: usize,
}

/// Blocks of queries, counted from the first token of the prompt, so that a state of a probe covers the same rows
/// wherever a pass begins.
#[derive(Clone, Copy)]
struct BlockGrid {
    /// Queries.
    first: usize,
    end: usize,
    /// Queries of a block.
    length: usize,
    /// Blocks with queries.
    count: usize,
}

impl BlockGrid {
    fn new(first: usize, queries: usize) -> Self {
        let end = first + queries;
        let length = end.div_ceil(BLOCKS).next_multiple_of(TILE).max(BLOCK);
        Self { first, end, length, count: end.div_ceil(length) - first / length }
    }

    /// The queries of a block.
    fn queries(self, block: usize) -> Range<usize> {
        let start = (self.first / self.length + block) * self.length;
        start.max(self.first)..(start + self.length).min(self.end)
    }

    /// The block of a query, and the query's place in it.
    fn place(self, query: usize) -> (usize, usize) {
        let block = query / self.length - self.first / self.length;
        (block, query - self.queries(block).start)
    }

    /// Index of the task of a block, prompt and head. Late blocks cost most, so they start first.
    fn task(self, block: usize, prompt: usize, head: usize, (batch, heads): (usize, usize)) -> usize {
        ((self.count - 1 - block) * batch + prompt) * heads + head
    }
}

/// Rows (queries, value width) and states of probes of every task.
type TaskResults<'a> = (Vec<Vec<f32>>, Vec<HeadProbes<'a>>);

/// Computes every block of every head and prompt.
fn run_tasks<'a>(
    layers: &[PackedLayer<'_>],
    grid: BlockGrid,
    needed: Option<&[bool]>,
    prompts: &'a [BatchedPrompt<'a>],
) -> TaskResults<'a> {
    let (batch, heads, layer) = (layers.len(), layers[0].wiring.heads(), layers[0].layer);
    // Buffers of finished tasks, reused by later ones.
    let tiles = Mutex::new(Vec::new());
    let run = |task: usize| {
        let (head, prompt, block) = (task % heads, task / heads % batch, grid.count - 1 - task / (heads * batch));
        let mut tile = tiles.lock().expect("no task has panicked").pop().unwrap_or_default();
        let mut probes = HeadProbes::start(layer, head, &prompts[prompt].probes[head]);
        let is_needed = |query: usize| needed.is_none_or(|needed| needed[query - grid.first]);
        let out = block_of(&layers[prompt], head, grid.queries(block), &mut probes, is_needed, &mut tile);
        tiles.lock().expect("no task has panicked").push(tile);
        (out, probes)
    };
    (0..heads * batch * grid.count).into_par_iter().with_max_len(1).map(run).unzip()
}

/// Output rows of all heads: (B, T, H, value width).
fn rows_of_tasks(outs: &[Vec<f32>], grid: BlockGrid, batch: usize, (heads, width): (usize, usize)) -> Vec<f32> {
    let n = grid.end - grid.first;
    in_chunks(batch * n * heads * width, TILE * heads * width, |chunk, out| {
        for (i, out) in out.chunks_exact_mut(heads * width).enumerate() {
            let row = chunk * TILE + i;
            let (block, at) = grid.place(grid.first + row % n);
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let of_task = &outs[grid.task(block, row / n, head, (batch, heads))];
                out.copy_from_slice(&of_task[at * width..][..width]);
            }
        }
    })
}

/// Merges the states of the tasks of each prompt and head.
fn by_prompt(learned: Vec<HeadProbes<'_>>, batch: usize, heads: usize) -> Vec<Vec<HeadProbes<'_>>> {
    let mut merged: Vec<Option<HeadProbes<'_>>> = (0..batch * heads).map(|_| None).collect();
    // Reversed again, for query order within a head.
    for (task, later) in learned.into_iter().enumerate().rev() {
        match &mut merged[task % (batch * heads)] {
            Some(probes) => probes.merge(later),
            first => *first = Some(later),
        }
    }
    let mut merged = merged.into_iter().flatten();
    (0..batch).map(|_| merged.by_ref().take(heads).collect()).collect()
}

/// Computes a block of queries of a head tile by tile and passes the wanted rows to the probes. Returns (queries, value
/// width).
fn block_of(
    packed: &PackedLayer<'_>,
    head: usize,
    block: Range<usize>,
    probes: &mut HeadProbes<'_>,
    is_needed: impl Fn(usize) -> bool,
    tile: &mut QueryTile,
) -> Vec<f32> {
    let width = packed.value_width();
    let mut out = vec![0.0; block.len() * width];
    // Tiles are counted from the first token, so that none crosses a block of keys.
    for first in (block.start / TILE * TILE..block.end).step_by(TILE) {
        let queries = first.max(block.start)..(first + TILE).min(block.end);
        let wanted = probes.wanted(queries.clone());
        // Covering range: computing a row in a larger tile does not change it.
        let is_computed = |query| is_needed(query) || wanted.contains(&query);
        let Some(computed) = covering_range(queries, is_computed) else { continue };
        tile.compute(packed, head, computed.clone(), !wanted.is_empty(), probes.wants_logits(&wanted));
        for query in wanted {
            tile.show(packed, head, query, &mut |row| probes.observe(row));
        }
        tile.output(
            packed,
            head,
            &mut out[(computed.start - block.start) * width..(computed.end - block.start) * width],
        );
    }
    out
}
