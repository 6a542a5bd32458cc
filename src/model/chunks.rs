//! Sizes of the chunks in which a pass computes, which bound its memory.

/// Rows that an MLP processes at once, at most.
const MLP_ROWS: usize = 4096;

/// Rows that an MLP processes at once even if its hidden layer is wide: with fewer, packing weights would cost more than
/// it saves.
const LEAST_MLP_ROWS: usize = 512;

/// Size of a hidden layer of these rows, in bytes. mimalloc keeps larger blocks apart, and finds no place for them where
/// smaller ones were freed.
const HIDDEN_BYTES: usize = 24 << 20;

/// Rows that an MLP with a hidden layer of `ffn` channels processes at once.
pub(super) fn mlp_rows(ffn: usize) -> usize {
    (HIDDEN_BYTES / (4 * ffn.max(1))).clamp(LEAST_MLP_ROWS, MLP_ROWS)
}

/// Rows of the output head that are expanded at once, if it is not in memory as `f32`.
pub(super) const HEAD_ROWS: usize = 4096;

/// Positions whose logits are held at once when all tokens are scored.
pub(crate) const LOGIT_POSITIONS: usize = 128;
