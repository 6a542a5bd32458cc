//! Products of `bf16` numbers with sums in `f32`, two at a time: the instruction `vdpbf16ps` of AVX512-BF16.
//!
//! The right-hand side is packed as in [`Panels`](super::Panels), two rows in one: a number of 32 bits holds the number
//! of an even row and that of the next row. The left-hand side is rounded while it is read, one instruction for about
//! thirty that multiply.

use super::panels::PanelsOf;
use super::{in_chunks, multiply_panel, Mat, MatMut, Panels, PANEL};
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
    /// Returns `true` if this processor has instructions for these products. Without them, they are computed slowly.
    pub fn are_fast(self) -> bool {
        self == Self::F32 || are_fast()
    }
}

/// A matrix packed for one number type.
pub(crate) enum Packed {
    /// See [`Products::F32`].
    F32(Panels),
    /// See [`Products::Bf16`].
    Bf16(PairPanels),
}

impl Packed {
    /// Packs a matrix.
    pub(crate) fn new(matrix: Mat<'_>, products: Products) -> Self {
        match products {
            Products::F32 => Self::F32(Panels::new(matrix)),
            Products::Bf16 => Self::Bf16(PairPanels::new(matrix)),
        }
    }

    /// Copies a range of panels.
    pub(crate) fn with_panels(&self, panels: Range<usize>) -> Self {
        match self {
            Self::F32(matrix) => Self::F32(matrix.with_panels(panels)),
            Self::Bf16(matrix) => Self::Bf16(matrix.with_panels(panels)),
        }
    }

    /// Sets a number.
    pub(crate) fn set(&mut self, row: usize, column: usize, x: f32) {
        match self {
            Self::F32(matrix) => matrix.set(row, column, x),
            Self::Bf16(matrix) => matrix.set(row, column, x),
        }
    }

    /// One row of a panel as it is multiplied, with zeros beyond the last column.
    pub(crate) fn row(&self, panel: usize, row: usize) -> [f32; PANEL] {
        match self {
            Self::F32(matrix) => *matrix.row(panel, row),
            Self::Bf16(matrix) => {
                let pairs = matrix.pairs(panel, row / 2 * 2..row + 1)[0].0;
                pairs.map(|pair| widened(if row.is_multiple_of(2) { pair & 0xffff } else { pair >> 16 }))
            }
        }
    }

    /// `dst = a @ panel`, or `dst += a @ panel` with `add`, for a range of rows of a panel: see [`multiply_panel`].
    ///
    /// # Panics
    /// As [`multiply_panel`], or if the range splits a pair of rows.
    pub(crate) fn multiply(&self, dst: MatMut<'_>, add: bool, a: Mat<'_>, panel: usize, rows: Range<usize>) {
        match self {
            Self::F32(panels) => multiply_panel(dst, add, a, panels.rows(panel, rows)),
            Self::Bf16(panels) => panels.multiply(dst, add, a, panel, rows),
        }
    }
}

/// Two rows of a panel, rounded to `bf16`; the even row is in the lower half of each number.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct PairLine([u32; PANEL]);

/// A matrix in panels of [`PANEL`] columns, each stored pair of rows after pair of rows and padded with zeros.
pub(crate) type PairPanels = PanelsOf<PairLine>;

impl PairPanels {
    /// Rounds and packs a matrix.
    pub(crate) fn new(matrix: Mat<'_>) -> Self {
        let pairs = matrix.rows.div_ceil(2);
        let lines = in_chunks(pairs * matrix.cols.div_ceil(PANEL), pairs, |panel, lines: &mut [PairLine]| {
            let first = panel * PANEL;
            let width = PANEL.min(matrix.cols - first);
            for (pair, line) in lines.iter_mut().enumerate() {
                let at = 2 * pair * matrix.row_stride + first * matrix.col_stride;
                let next = if 2 * pair + 1 < matrix.rows { Some(at + matrix.row_stride) } else { None };
                for (col, number) in line.0[..width].iter_mut().enumerate() {
                    let col = col * matrix.col_stride;
                    let odd = next.map_or(0, |next| rounded(matrix.data[next + col]));
                    *number = rounded(matrix.data[at + col]) | odd << 16;
                }
            }
        });
        Self { lines, rows: pairs }
    }

    /// Copies a range of rows that begins with an even one, followed by `more` rows of zeros.
    pub(crate) fn with_rows(&self, rows: Range<usize>, more: usize) -> Self {
        self.with_lines(rows.start / 2..rows.end.div_ceil(2), more.div_ceil(2))
    }

    /// Rounds and sets a number.
    pub(crate) fn set(&mut self, row: usize, column: usize, x: f32) {
        let pair = &mut self.line_mut(column / PANEL, row / 2).0[column % PANEL];
        *pair =
            if row.is_multiple_of(2) { *pair & 0xffff_0000 | rounded(x) } else { *pair & 0xffff | rounded(x) << 16 };
    }

    /// The pairs of a range of rows of a panel.
    ///
    /// # Panics
    /// If the range begins with an odd row.
    fn pairs(&self, panel: usize, rows: Range<usize>) -> &[PairLine] {
        assert!(rows.start.is_multiple_of(2), "pairs of rows begin with an even one");
        &self.lines[panel * self.rows..(panel + 1) * self.rows][rows.start / 2..rows.end.div_ceil(2)]
    }

    /// `dst = a @ panel`, or `dst += a @ panel` with `add`, for a range of rows of a panel.
    ///
    /// Every number is a sum in the order of the pairs, the odd row of each first, starting from 0 or from `dst`. So a
    /// row of `dst` does not depend on the rows computed with it.
    ///
    /// # Panics
    /// If the shapes do not agree, the rows of `a` are not contiguous, or the range begins with an odd row.
    pub(crate) fn multiply(&self, dst: MatMut<'_>, add: bool, a: Mat<'_>, panel: usize, rows: Range<usize>) {
        let lines = self.pairs(panel, rows.clone());
        let shape = (dst.rows, dst.cols, a.cols, a.col_stride);
        assert!(shape == (a.rows, PANEL, rows.len(), 1), "panel product's shapes");
        #[cfg(target_arch = "x86_64")]
        if are_fast() {
            return avx512::multiply(dst, add, a, lines);
        }
        multiply_slowly(dst, add, a, lines);
    }
}

/// The bits of the nearest `bf16`, ties to even.
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    if x.is_nan() {
        bits >> 16 | 0x40 // the upper bits alone could be infinity
    } else {
        nearest
    }
}

/// The `f32` of a `bf16`'s bits.
fn widened(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Returns `true` if this processor has the instruction.
fn are_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// [`PairPanels::multiply`] without the instruction.
fn multiply_slowly(dst: MatMut<'_>, add: bool, a: Mat<'_>, panel: &[PairLine]) {
    for (row, dst) in dst.data.chunks_mut(dst.row_stride).take(dst.rows).enumerate() {
        let (dst, a) = (&mut dst[..PANEL], &a.data[row * a.row_stride..][..a.cols]);
        if !add {
            dst.fill(0.0);
        }
        for (line, a) in panel.iter().zip(a.chunks(2)) {
            let a = [a[0], a.get(1).copied().unwrap_or(0.0)].map(|x| widened(rounded(x)));
            for (sum, &pair) in dst.iter_mut().zip(&line.0) {
                *sum += a[1] * widened(pair >> 16);
                *sum += a[0] * widened(pair & 0xffff);
            }
        }
    }
}

/// [`PairPanels::multiply`] with the instruction.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions that not every processor has, and loads of registers")]
mod avx512 {
    use super::{Mat, MatMut, PairLine, PANEL};
    use std::arch::x86_64::{
        __m512, __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_set1_epi32,
        _mm512_setzero_ps, _mm512_storeu_ps,
    };
    use std::mem::transmute;

    /// Numbers of a register.
    const LANES: usize = 16;
    /// Pairs of a row that are rounded at once: two registers of numbers.
    const AT_ONCE: usize = LANES;

    /// [`super::PairPanels::multiply`], which has checked the shapes and the processor.
    pub(super) fn multiply(dst: MatMut<'_>, add: bool, a: Mat<'_>, panel: &[PairLine]) {
        let mut row = 0;
        while row < a.rows {
            let (dst_rows, a_rows) = (&mut dst.data[row * dst.row_stride..], &a.data[row * a.row_stride..]);
            let (strides, depth) = ((dst.row_stride, a.row_stride), a.cols);
            // SAFETY: the processor has the instructions.
            row += unsafe {
                match a.rows - row {
                    12.. => multiply_rows::<12>(dst_rows, add, a_rows, strides, depth, panel),
                    8.. => multiply_rows::<8>(dst_rows, add, a_rows, strides, depth, panel),
                    4.. => multiply_rows::<4>(dst_rows, add, a_rows, strides, depth, panel),
                    2.. => multiply_rows::<2>(dst_rows, add, a_rows, strides, depth, panel),
                    _ => multiply_rows::<1>(dst_rows, add, a_rows, strides, depth, panel),
                }
            };
        }
    }

    /// Computes the first M rows, with M x 2 registers of sums. Returns M.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn multiply_rows<const M: usize>(
        dst: &mut [f32],
        add: bool,
        a: &[f32],
        (dst_stride, a_stride): (usize, usize),
        depth: usize,
        panel: &[PairLine],
    ) -> usize {
        let mut sums = [[_mm512_setzero_ps(); 2]; M];
        if add {
            for i in 0..M {
                let dst = dst[i * dst_stride..][..PANEL].as_chunks().0;
                sums[i] = [load(&dst[0]), load(&dst[1])];
            }
        }
        let mut pairs = [[0_u32; AT_ONCE]; M];
        for (part, lines) in panel.chunks(AT_ONCE).enumerate() {
            let start = part * 2 * AT_ONCE;
            let length = (depth - start).min(2 * AT_ONCE);
            for i in 0..M {
                pairs[i] = rounded(&a[i * a_stride + start..][..length]);
            }
            for (k, line) in lines.iter().enumerate() {
                let [left, right] = registers(line);
                for i in 0..M {
                    let x: __m512bh = as_pairs(_mm512_set1_epi32(pairs[i][k] as i32));
                    sums[i] = [_mm512_dpbf16_ps(sums[i][0], x, left), _mm512_dpbf16_ps(sums[i][1], x, right)];
                }
            }
        }
        for i in 0..M {
            let dst = dst[i * dst_stride..][..PANEL].as_chunks_mut().0;
            store(&mut dst[0], sums[i][0]);
            store(&mut dst[1], sums[i][1]);
        }
        M
    }

    /// Up to 32 numbers as pairs, zeros beyond.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn rounded(numbers: &[f32]) -> [u32; AT_ONCE] {
        let mut filled = [0.0; 2 * LANES];
        let numbers: &[f32; 2 * LANES] = match numbers.try_into() {
            Ok(numbers) => numbers,
            Err(_) => {
                filled[..numbers.len()].copy_from_slice(numbers);
                &filled
            }
        };
        let halves = numbers.as_chunks().0;
        let pairs = _mm512_cvtne2ps_pbh(load(&halves[1]), load(&halves[0]));
        // SAFETY: both types are 64 bytes, and every pattern is valid.
        unsafe { transmute(pairs) }
    }

    /// The two registers of a line.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn registers(line: &PairLine) -> [__m512bh; 2] {
        // SAFETY: both types are 128 bytes, and every pattern is valid.
        unsafe { transmute(line.0) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn as_pairs(numbers: __m512i) -> __m512bh {
        // SAFETY: both types are 64 bytes, and every pattern is valid.
        unsafe { transmute(numbers) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(numbers: &[f32; LANES]) -> __m512 {
        // SAFETY: the array has as many numbers as a register.
        unsafe { _mm512_loadu_ps(numbers.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(numbers: &mut [f32; LANES], register: __m512) {
        // SAFETY: the array has as many numbers as a register.
        unsafe { _mm512_storeu_ps(numbers.as_mut_ptr(), register) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn rounding_is_to_the_nearest_and_ties_to_even() {
        let mut rng = Rng::new(1, "bf16");
        let some = (0..10_000).map(|_| rng.normal() as f32);
        for x in some.chain([0.0, -0.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, f32::INFINITY, f32::MAX]) {
            assert_eq!(rounded(x), u32::from(half::bf16::from_f32(x).to_bits()), "{x}");
        }
        assert!(widened(rounded(f32::NAN)).is_nan());
    }

    proptest! {
        #[test]
        fn a_product_of_pairs_is_that_of_rounded_numbers_whatever_rows_and_depths_it_is_cut_into(
            rows in 1_usize..30, inner in 1_usize..150, cols in 1_usize..70, add: bool, transposed: bool, seed: u64
        ) {
            let mut rng = Rng::new(seed, "pairs");
            let mut random = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
            let (a, b, before) = (random(rows * inner), random(inner * cols), random(rows * PANEL));
            let b = if transposed { Mat::new(&b, cols, inner, inner).t() } else { Mat::new(&b, inner, cols, cols) };
            let panels = PairPanels::new(b);
            let at = |x: &[f32], i: usize| f64::from(half::bf16::from_f32(x[i]).to_f32());
            for panel in 0..cols.div_ceil(PANEL) {
                let lines = panels.pairs(panel, 0..inner);
                let [mut whole, mut by_row, mut by_depth, mut slow] = [(); 4].map(|()| before.clone());
                let a_whole = Mat::new(&a, rows, inner, inner);
                panels.multiply(MatMut::new(&mut whole, rows, PANEL, PANEL), add, a_whole, panel, 0..inner);
                multiply_slowly(MatMut::new(&mut slow, rows, PANEL, PANEL), add, a_whole, lines);
                for row in 0..rows {
                    let of_row = MatMut::new(&mut by_row[row * PANEL..], 1, PANEL, PANEL);
                    panels.multiply(of_row, add, Mat::new(&a[row * inner..], 1, inner, inner), panel, 0..inner);
                }
                let cut = inner / 4 * 2;
                for (depth, add) in [(0..cut, add), (cut..inner, add || cut > 0)] {
                    let a = Mat::new(&a[depth.start..], rows, depth.len(), inner);
                    panels.multiply(MatMut::new(&mut by_depth, rows, PANEL, PANEL), add, a, panel, depth);
                }
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!([bits(&by_row), bits(&by_depth)], [bits(&whole), bits(&whole)]);
                for (i, (&got, &slow)) in whole.iter().zip(&slow).enumerate() {
                    let (row, col) = (i / PANEL, panel * PANEL + i % PANEL);
                    let b_at = |k: usize| if col < cols { at(b.data, k * b.row_stride + col * b.col_stride) } else { 0.0 };
                    let products = (0..inner).map(|k| at(&a, row * inner + k) * b_at(k));
                    let want = products.clone().sum::<f64>() + if add { f64::from(before[i]) } else { 0.0 };
                    let size = products.map(f64::abs).sum::<f64>() + 1.0;
                    prop_assert!((f64::from(got) - want).abs() < 1e-5 * size, "{got} instead of {want}");
                    prop_assert!((f64::from(got) - f64::from(slow)).abs() < 1e-6 * size, "{got} instead of {slow}");
                }
            }
        }
    }
}
