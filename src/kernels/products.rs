//! Number types of the products in kernels: `f32`, or on request `bf16` with sums in `f32`.

use super::pairs::{are_fast, PairPanels};
use super::{multiply_panel, Mat, MatMut, Panels};
use std::ops::Range;

/// The number type that a kernel multiplies in. Sums and everything else are `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// Without rounding.
    F32,
    /// Rounded to 8 significant bits, two products in one instruction. Processors with AVX512-BF16 do this at twice the
    /// rate.
    Bf16,
}

impl Products {
    /// Returns `true` if this processor has instructions for these products. Without them, the same products are computed slowly.
    pub fn are_fast(self) -> bool {
        self == Self::F32 || are_fast()
    }
}

/// A matrix packed for one number type.
pub enum Packed {
    /// See [`Products::F32`].
    F32(Panels),
    /// See [`Products::Bf16`].
    Bf16(PairPanels),
}

impl Packed {
    /// Packs a matrix.
    pub fn new(matrix: Mat<'_>, products: Products) -> Self {
        match products {
            Products::F32 => Self::F32(Panels::new(matrix)),
            Products::Bf16 => Self::Bf16(PairPanels::new(matrix)),
        }
    }

    /// `dst = a @ panel`, or `dst += a @ panel` with `add`, for a range of rows of a panel: see [`multiply_panel`].
    ///
    /// # Panics
    /// As [`multiply_panel`], or if the range splits a pair of rows.
    pub fn multiply(&self, dst: MatMut<'_>, add: bool, a: Mat<'_>, panel: usize, rows: Range<usize>) {
        match self {
            Self::F32(panels) => multiply_panel(dst, add, a, panels.rows(panel, rows)),
            Self::Bf16(panels) => panels.multiply(dst, add, a, panel, rows),
        }
    }
}
