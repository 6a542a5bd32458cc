//! Sizes of the chunks in which a pass computes, which bound its memory.

/// Rows that an MLP processes at once.
pub(super) const MLP_ROWS: usize = 4096;

/// Rows of the output head that are read from disk at once.
pub(super) const HEAD_ROWS: usize = 16_384;

/// Positions whose logits are held at once when all tokens are scored.
pub(crate) const LOGIT_POSITIONS: usize = 128;
