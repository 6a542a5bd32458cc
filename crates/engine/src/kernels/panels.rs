//! Matrix products whose right-hand side is packed once and read many times.
//!
//! A general product packs its operands on every call. Attention multiplies many small tiles by the same keys and
//! values, where packing would cost as much as multiplying.

use super::{in_chunks, Mat, MatMut};
use pulp::Simd;
use std::ops::Range;

/// Columns of a panel: two AVX-512 registers.
pub const PANEL: usize = 32;

/// Rows of a panel that fit in the first-level cache while they are written column by column.
const IN_CACHE: usize = 64;

/// Rows of a panel in one step of the loop. An Intel Xeon (Granite Rapids) multiplies a tenth faster than with single
/// rows.
const AT_ONCE: usize = 4;

/// One row of a panel. It is aligned so that no register is loaded from two cache lines.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Line([f32; PANEL]);

/// A matrix in panels of [`PANEL`] columns, each stored row after row; the last panel is padded with zeros.
pub struct Panels {
    lines: Vec<Line>,
    /// Rows of a panel.
    rows: usize,
}

impl Panels {
    /// Packs a matrix.
    pub fn new(matrix: Mat<'_>) -> Self {
        let rows = matrix.rows;
        let cols = matrix.cols;
        let lines = in_chunks(rows * cols.div_ceil(PANEL), rows, |panel, lines: &mut [Line]| {
            let first = panel * PANEL;
            let width = PANEL.min(cols - first);
            // In the order of the matrix's memory.
            if matrix.col_stride == 1 {
                for (row, line) in lines.iter_mut().enumerate() {
                    line.0[..width].copy_from_slice(&matrix.data[row * matrix.row_stride + first..][..width]);
                }
            } else {
                for (part, lines) in lines.chunks_mut(IN_CACHE).enumerate() {
                    for col in 0..width {
                        let column = part * IN_CACHE * matrix.row_stride + (first + col) * matrix.col_stride;
                        for (row, line) in lines.iter_mut().enumerate() {
                            line.0[col] = matrix.data[column + row * matrix.row_stride];
                        }
                    }
                }
            }
        });
        Self { lines, rows }
    }

    /// Copies a range of rows, followed by `more` rows of zeros.
    pub fn with_rows(&self, range: Range<usize>, more: usize) -> Self {
        let rows = range.len() + more;
        let mut lines = Vec::with_capacity(self.lines.len() / self.rows * rows);
        for panel in self.lines.chunks_exact(self.rows) {
            lines.extend_from_slice(&panel[range.clone()]);
            lines.resize(lines.len() + more, Line::default());
        }
        Self { lines, rows }
    }

    /// Copies a range of panels.
    pub(crate) fn with_panels(&self, panels: Range<usize>) -> Self {
        Self { lines: self.lines[panels.start * self.rows..panels.end * self.rows].to_vec(), rows: self.rows }
    }

    /// Sets a number, in a new panel of zeros if the column is behind the last panel.
    pub fn set(&mut self, row: usize, column: usize, x: f32) {
        let panel = column / PANEL;
        let at = panel * self.rows + row;
        if at >= self.lines.len() {
            self.lines.resize((panel + 1) * self.rows, Line::default());
        }
        self.lines[at].0[column % PANEL] = x;
    }

    /// A range of rows of a panel.
    pub fn rows(&self, panel: usize, rows: Range<usize>) -> &[Line] {
        &self.lines[panel * self.rows..(panel + 1) * self.rows][rows]
    }

    /// One row of a panel, with zeros beyond the last column.
    pub fn row(&self, panel: usize, row: usize) -> &[f32; PANEL] {
        &self.rows(panel, row..row + 1)[0].0
    }
}

/// `dst = a @ panel`, or `dst += a @ panel` with `add`. `dst` has [`PANEL`] columns.
///
/// Every number is a sum in the order of the panel's rows, starting from 0 or from `dst`. So a row of `dst` does not
/// depend on the rows computed with it, and adding the products of parts of a panel gives the bits of the product of
/// the whole.
///
/// # Panics
/// If the shapes do not agree or the rows of `a` are not contiguous.
#[allow(unreachable_pub, reason = "the macro derives a public function from it")]
#[pulp::with_simd(multiply_panel = pulp::Arch::new())]
#[inline(always)]
pub fn multiply_panel_simd<'a, S: Simd>(simd: S, dst: MatMut<'a>, add: bool, a: Mat<'a>, panel: &'a [Line]) {
    assert!((dst.rows, dst.cols, a.cols, a.col_stride) == (a.rows, PANEL, panel.len(), 1), "panel product's shapes");
    let mut row = 0;
    while row < a.rows {
        let dst_rows = &mut dst.data[row * dst.row_stride..];
        let a_rows = &a.data[row * a.row_stride..];
        let strides = Strides { dst: dst.row_stride, a: a.row_stride };
        // As many rows as there are registers for sums.
        row += match a.rows - row {
            8.. if S::REGISTER_COUNT >= 32 => multiply_rows::<S, 8>(simd, dst_rows, add, a_rows, strides, panel),
            6.. => multiply_rows::<S, 6>(simd, dst_rows, add, a_rows, strides, panel),
            4.. => multiply_rows::<S, 4>(simd, dst_rows, add, a_rows, strides, panel),
            2.. => multiply_rows::<S, 2>(simd, dst_rows, add, a_rows, strides, panel),
            _ => multiply_rows::<S, 1>(simd, dst_rows, add, a_rows, strides, panel),
        };
    }
}

/// How far the rows of a product and of its left factor start apart.
#[derive(Clone, Copy)]
struct Strides {
    dst: usize,
    a: usize,
}

/// Computes the first M rows, with M x 2 registers of sums. Returns M.
#[inline(always)]
fn multiply_rows<S: Simd, const M: usize>(
    simd: S,
    dst: &mut [f32],
    add: bool,
    a: &[f32],
    strides: Strides,
    panel: &[Line],
) -> usize {
    let (lines, last_lines) = panel.as_chunks::<AT_ONCE>();
    let mut rows: [&[[f32; AT_ONCE]]; M] = [&[]; M];
    let mut last: [&[f32]; M] = [&[]; M];
    for i in 0..M {
        (rows[i], last[i]) = a[i * strides.a..][..panel.len()].as_chunks();
    }
    for at in (0..PANEL / S::F32_LANES).step_by(2) {
        let mut sums = [[simd.splat_f32s(0.0); 2]; M];
        if add {
            for i in 0..M {
                let dst = S::as_simd_f32s(&dst[i * strides.dst..][..PANEL]).0;
                sums[i] = [dst[at], dst[at + 1]];
            }
        }
        for k in 0..lines.len() {
            for (step, line) in lines[k].iter().enumerate() {
                let line = S::as_simd_f32s(&line.0).0;
                for i in 0..M {
                    sums[i] = add_product(simd, sums[i], rows[i][k][step], line[at], line[at + 1]);
                }
            }
        }
        for k in 0..last_lines.len() {
            let line = S::as_simd_f32s(&last_lines[k].0).0;
            for i in 0..M {
                sums[i] = add_product(simd, sums[i], last[i][k], line[at], line[at + 1]);
            }
        }
        for i in 0..M {
            let dst = S::as_mut_simd_f32s(&mut dst[i * strides.dst..][..PANEL]).0;
            dst[at] = sums[i][0];
            dst[at + 1] = sums[i][1];
        }
    }
    M
}

/// `sums + x * [left, right]`.
#[inline(always)]
fn add_product<S: Simd>(simd: S, sums: [S::f32s; 2], x: f32, left: S::f32s, right: S::f32s) -> [S::f32s; 2] {
    let x = simd.splat_f32s(x);
    [simd.mul_add_e_f32s(x, left, sums[0]), simd.mul_add_e_f32s(x, right, sums[1])]
}

/// `dst += panel @ x`, one number for each row of the panel. The number of lanes is fixed, so that the order of the
/// sums does not depend on the processor.
#[allow(unreachable_pub, reason = "the macro derives a public function from it")]
#[pulp::with_simd(add_products = pulp::Arch::new())]
#[inline(always)]
pub fn add_products_simd<'a, S: Simd>(_simd: S, dst: &'a mut [f32], panel: &'a [Line], x: &'a [f32; PANEL]) {
    const LANES: usize = 8;
    for (dst, line) in dst.iter_mut().zip(panel) {
        let mut lanes = [0.0_f32; LANES];
        for (line, x) in line.0.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
            for i in 0..LANES {
                lanes[i] = line[i].mul_add(x[i], lanes[i]);
            }
        }
        let halves: [f32; 4] = std::array::from_fn(|i| lanes[i] + lanes[i + 4]);
        *dst += (halves[0] + halves[2]) + (halves[1] + halves[3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::multiply;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_panel_product_is_a_matrix_product_whatever_rows_and_depths_it_is_cut_into(
            rows in 1_usize..20, inner in 1_usize..70, cols in 1_usize..70, add: bool, transposed: bool, seed: u64
        ) {
            let mut rng = stats::Rng::new(seed, "panels");
            let mut random = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
            let a = random(rows * inner);
            let b = random(inner * cols);
            let before = random(rows * cols);
            let b = if transposed { Mat::new(&b, cols, inner, inner).t() } else { Mat::new(&b, inner, cols, cols) };
            let panels = Panels::new(b);
            let width = cols.next_multiple_of(PANEL);
            let mut dst = vec![0.0; rows * width];
            dst.chunks_mut(width).zip(before.chunks(cols)).for_each(|(dst, row)| dst[..cols].copy_from_slice(row));
            let mut by_row = dst.clone();
            let mut by_depth = dst.clone();
            for panel in 0..width / PANEL {
                let lines = panels.rows(panel, 0..inner);
                let of_panel = MatMut::new(&mut dst[panel * PANEL..], rows, PANEL, width);
                multiply_panel(of_panel, add, Mat::new(&a, rows, inner, inner), lines);
                for row in 0..rows {
                    let of_row = MatMut::new(&mut by_row[row * width + panel * PANEL..], 1, PANEL, width);
                    multiply_panel(of_row, add, Mat::new(&a[row * inner..], 1, inner, inner), lines);
                }
                let cut = inner / 2;
                for (depth, add) in [(0..cut, add), (cut..inner, add || cut > 0)] {
                    let of_panel = MatMut::new(&mut by_depth[panel * PANEL..], rows, PANEL, width);
                    let a = Mat::new(&a[depth.start..], rows, depth.len(), inner);
                    multiply_panel(of_panel, add, a, &lines[depth]);
                }
            }
            let mut want = vec![0.0; rows * cols];
            multiply(MatMut::new(&mut want, rows, cols, cols), false, Mat::new(&a, rows, inner, inner), b);
            for i in 0..rows * cols {
                let want = want[i] + if add { before[i] } else { 0.0 };
                let got = dst[i / cols * width + i % cols];
                prop_assert!((got - want).abs() < 1e-4, "{got} instead of {want}");
            }
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!([bits(&by_row), bits(&by_depth)], [bits(&dst), bits(&dst)]);
        }
    }
}
