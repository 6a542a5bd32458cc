//! The streaming kernel of a layer: tiles of queries that fit in cache, in parallel.
//!
//! A tile belongs to one output head. Each block of queries of a head has its own probe state, and the states of a head
//! are merged in query order, so probe results do not depend on the number of threads.

use super::keys::PackedKeys;
use super::packed_layer::{PackedLayer, PromptKeys, PromptRows};
use super::probes::{HeadProbes, IndexedProbe};
use super::tile::{QueryTile, TILE};
use super::{Heads, ResolvedTreatment};
use crate::kernels::{in_chunks, with_values, PANEL};
use candle_core::{Result, Tensor};
use names::HeadPlace;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Minimum number of queries per task and probe state.
const BLOCK: usize = 256;
/// Maximum number of tasks per head: a probe may keep O(T) numbers per task.
const BLOCKS: usize = 16;

/// Computes the mixture of a layer (B, T, H, value width) for B prompts with T queries each, the state of the probes of
/// each prompt and head, and the keys of each prompt. Queries that are neither `needed` (T) nor observed give zeros. The
/// first tokens of all prompts may be `shared`.
pub(super) fn mixture<'a>(
    heads: &Heads<'_>,
    layer: usize,
    shared: Option<SharedKeys<'_>>,
    needed: Option<&[bool]>,
    prompts: &'a [BatchedPrompt<'a>],
) -> Result<(Tensor, Vec<Vec<HeadProbes<'a>>>, Vec<PackedKeys>)> {
    let (batch, n, _, d) = heads.q.dims4()?;
    let k_heads = heads.k.dim(2)?;
    let v_heads = heads.v.dim(2)?;
    let keys: Vec<PackedKeys> = with_values([&heads.k, &heads.v], |[k, v]| {
        let texts = k.par_chunks_exact(k.len() / batch).zip(v.par_chunks_exact(v.len() / batch));
        let packed = texts.map(|(k, v)| match shared {
            None => PackedKeys::new(k, v, k_heads, v_heads, d, 0),
            Some(shared) => shared.with_own(k, v, n),
        });
        packed.collect()
    })?;
    let earlier = shared.map(|shared| shared.packed);
    let of_prompts: Vec<PromptKeys<'_>> = keys.iter().map(|own| PromptKeys { earlier, own }).collect();
    let (out, learned) = rows(heads, layer, &of_prompts, needed, prompts)?;
    Ok((out, learned, keys))
}

/// Computes the mixture of a layer for the last token of a text (1, 1, H, value width).
pub(super) fn last_row(
    heads: &Heads<'_>,
    layer: usize,
    keys: &PackedKeys,
    treated: Option<&ResolvedTreatment>,
) -> Result<Tensor> {
    let prompt = [BatchedPrompt { treated, probes: vec![Vec::new(); heads.wiring.heads()] }];
    let (out, _) = rows(heads, layer, &[PromptKeys { earlier: None, own: keys }], None, &prompt)?;
    out.to_dtype(heads.v.dtype())
}

/// Computes the mixture for the last tokens of the prompts, and the state of the probes of each prompt and head.
fn rows<'a>(
    heads: &Heads<'_>,
    layer: usize,
    keys: &[PromptKeys<'_>],
    needed: Option<&[bool]>,
    prompts: &'a [BatchedPrompt<'a>],
) -> Result<(Tensor, Vec<Vec<HeadProbes<'a>>>)> {
    let (batch, n, _, d) = heads.q.dims4()?;
    let scalars = heads.scalars()?;
    let grid = BlockGrid::new(keys[0].own.end - n, n);
    let (outs, learned) = with_values([&heads.q], |[q]| -> Result<TaskResults<'a>> {
        let rows_of_prompts = q.par_chunks_exact(q.len() / batch).zip(keys).zip(prompts).enumerate();
        let layers = rows_of_prompts.map(|(i, ((q, &keys), prompt))| {
            PackedLayer::new(PromptRows { q, row: i * n, keys }, &scalars, heads, prompt.treated, layer)
        });
        Ok(run_tasks(&layers.collect::<Result<Vec<_>>>()?, grid, needed, prompts))
    })??;
    let heads_of = heads.wiring.heads();
    let width = heads.wiring.value_slices() * d;
    let out = rows_of_tasks(&outs, grid, batch, heads_of, width);
    let out = Tensor::from_vec(out, (batch, n, heads_of, width), heads.q.device())?;
    Ok((out, by_prompt(learned, batch, heads_of)))
}

/// Keys and values of the first `tokens` tokens of all prompts, packed with others after them.
#[derive(Clone, Copy)]
pub(super) struct SharedKeys<'a> {
    pub(super) packed: &'a PackedKeys,
    pub(super) tokens: usize,
}

impl SharedKeys<'_> {
    /// The own keys and values of a prompt, those of its `n` tokens behind the shared ones.
    fn with_own(self, k: &[f32], v: &[f32], n: usize) -> PackedKeys {
        // They begin with a whole panel, which may begin with the last of the shared ones.
        let mut own = self.packed.part(self.tokens / PANEL * PANEL..self.tokens, n);
        own.append(k, v, 0);
        own
    }
}

/// One prompt of a batch.
pub(super) struct BatchedPrompt<'a> {
    pub(super) treated: Option<&'a ResolvedTreatment>,
    /// The probes of each head.
    pub(super) probes: Vec<Vec<IndexedProbe<'a>>>,
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
    fn task(self, block: usize, prompt: usize, head: usize, batch: usize, heads: usize) -> usize {
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
    let batch = layers.len();
    let heads = layers[0].wiring.heads();
    let layer = layers[0].layer;
    // Buffers of finished tasks, reused by later ones.
    let tiles = Mutex::new(Vec::new());
    let tasks = (0..heads * batch * grid.count).into_par_iter().with_max_len(1).map(|task| {
        let head = task % heads;
        let prompt = task / heads % batch;
        let block = grid.count - 1 - task / (heads * batch);
        let mut tile = tiles.lock().expect("no task has panicked").pop().unwrap_or_default();
        let mut probes = HeadProbes::start(HeadPlace { layer, head }, &prompts[prompt].probes[head]);
        let block = grid.queries(block);
        let needed = needed.map(|needed| &needed[block.start - grid.first..block.end - grid.first]);
        let out = block_rows(&layers[prompt], head, block, &mut probes, needed, &mut tile);
        tiles.lock().expect("no task has panicked").push(tile);
        (out, probes)
    });
    tasks.unzip()
}

/// Output rows of all heads: (B, T, H, value width).
fn rows_of_tasks(outs: &[Vec<f32>], grid: BlockGrid, batch: usize, heads: usize, width: usize) -> Vec<f32> {
    let n = grid.end - grid.first;
    in_chunks(batch * n * heads * width, TILE * heads * width, |chunk, out| {
        for (i, out) in out.chunks_exact_mut(heads * width).enumerate() {
            let row = chunk * TILE + i;
            let (block, at) = grid.place(grid.first + row % n);
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let of_task = &outs[grid.task(block, row / n, head, batch, heads)];
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

/// Computes a block of queries of a head tile by tile and passes the wanted rows to the probes: (queries, value width).
/// Rows that are neither `needed` (queries) nor wanted are zeros.
fn block_rows(
    packed: &PackedLayer<'_>,
    head: usize,
    block: Range<usize>,
    probes: &mut HeadProbes<'_>,
    needed: Option<&[bool]>,
    tile: &mut QueryTile,
) -> Vec<f32> {
    let width = packed.value_width();
    let mut out = vec![0.0; block.len() * width];
    // Tiles are counted from the first token, so that none crosses a block of keys.
    for first in (block.start / TILE * TILE..block.end).step_by(TILE) {
        let queries = first.max(block.start)..(first + TILE).min(block.end);
        let wanted = probes.wanted(queries.clone());
        // Covering range: computing a row in a larger tile does not change it.
        let computed = covering_range(queries, |query| {
            needed.is_none_or(|needed| needed[query - block.start]) || wanted.contains(&query)
        });
        let Some(computed) = computed else { continue };
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

/// Smallest range that covers the `queries` that are computed, or `None`.
pub(super) fn covering_range(queries: Range<usize>, is_computed: impl Fn(usize) -> bool) -> Option<Range<usize>> {
    let first = queries.clone().find(|&query| is_computed(query))?;
    let last = queries.rev().find(|&query| is_computed(query))?;
    Some(first..last + 1)
}
