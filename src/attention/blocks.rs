//! The streaming kernel of a layer: tiles of queries that fit in cache, in parallel.
//!
//! A tile belongs to one output head. Each block of queries of a head has its own probe state, and the states of a head
//! are merged in query order, so probe results do not depend on the number of threads.

use super::head_probes::{covering_range, HeadProbes};
use super::packed_layer::PackedLayer;
use super::tile::{QueryTile, TILE};
use super::{Heads, ResolvedTreatment, RowProbe};
use crate::ops::{in_chunks, with_values};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Minimum number of queries per task and probe state.
const BLOCK: usize = 256;
/// Maximum number of tasks per head: a probe may keep O(T) numbers per task.
const BLOCKS: usize = 16;

/// Computes the mixture of a layer (1, T, H, value width) and the state of the probes of each head. Queries that are
/// neither needed nor observed give zeros.
pub(super) fn mixture<'a>(
    heads: &Heads<'_>,
    treated: Option<&ResolvedTreatment>,
    layer: usize,
    needed: Option<&[bool]>,
    probes: &'a [Vec<(usize, &'a dyn RowProbe)>],
) -> Result<(Tensor, Vec<HeadProbes<'a>>)> {
    let (_, t, _, d) = heads.q.dims4()?;
    let (scalars, wiring) = (heads.scalars()?, heads.wiring);
    let length = t.div_ceil(BLOCKS).next_multiple_of(TILE).max(BLOCK);
    let blocks = t.div_ceil(length);
    let blocks_of = |slices: [&[f32]; 3]| -> Result<(Vec<Vec<f32>>, Vec<HeadProbes<'a>>)> {
        let packed = PackedLayer::new(slices, &scalars, heads, treated, layer)?;
        // Buffers of finished tasks, reused by later ones.
        let tiles = Mutex::new(Vec::new());
        // Late blocks cost most, so they start first.
        let run = |task: usize| {
            let (head, block) = (task % wiring.heads(), blocks - 1 - task / wiring.heads());
            let start = block * length;
            let mut tile = tiles.lock().expect("no task has panicked").pop().unwrap_or_default();
            let mut probes = HeadProbes::start(layer, head, &probes[head]);
            let out = block_of(&packed, head, start..(start + length).min(t), &mut probes, needed, &mut tile);
            tiles.lock().expect("no task has panicked").push(tile);
            (out, probes)
        };
        Ok((0..wiring.heads() * blocks).into_par_iter().with_max_len(1).map(run).unzip())
    };
    let Heads { q, k, v, .. } = heads;
    let of = "attention";
    // One `?` for each tensor and one for the packed layer.
    let (outs, learned) =
        with_values(q, of, |q| with_values(k, of, |k| with_values(v, of, |v| blocks_of([q, k, v]))))????;
    let (heads_of, width) = (wiring.heads(), wiring.value_slices() * d);
    // Output rows of all heads, block by block: (queries, H, value width).
    let out = in_chunks(t * heads_of * width, length * heads_of * width, |block, out| {
        for head in 0..heads_of {
            let of_head = &outs[(blocks - 1 - block) * heads_of + head];
            let rows = out.chunks_exact_mut(heads_of * width).zip(of_head.chunks_exact(width));
            rows.for_each(|(out, row)| out[head * width..][..width].copy_from_slice(row));
        }
    });
    let mut merged: Vec<Option<HeadProbes<'a>>> = (0..heads_of).map(|_| None).collect();
    // Reversed again, for query order within a head.
    for (task, later) in learned.into_iter().enumerate().rev() {
        match &mut merged[task % heads_of] {
            Some(probes) => probes.merge(later),
            first => *first = Some(later),
        }
    }
    let out = Tensor::from_vec(out, (1, t, heads_of, width), heads.q.device())?;
    Ok((out, merged.into_iter().flatten().collect()))
}

/// Computes a block of queries of a head tile by tile and passes the wanted rows to the probes. Returns (queries, value
/// width).
fn block_of(
    packed: &PackedLayer<'_>,
    head: usize,
    block: Range<usize>,
    probes: &mut HeadProbes<'_>,
    needed: Option<&[bool]>,
    tile: &mut QueryTile,
) -> Vec<f32> {
    let width = packed.value_width();
    let mut out = vec![0.0; block.len() * width];
    for first in block.clone().step_by(TILE) {
        let queries = first..(first + TILE).min(block.end);
        let wanted = probes.wanted(queries.clone());
        // Covering range: computing a row in a larger tile does not change it.
        let Some(computed) = covering_range(queries, needed, |query| wanted.contains(&query)) else { continue };
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
