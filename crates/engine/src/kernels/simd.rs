//! Vectorised loops: plain Rust that `pulp` compiles for AVX-512, AVX2 and a baseline, one of which is chosen at run
//! time.
//!
//! A function under `#[pulp::with_simd(name = pulp::Arch::new())]` is an entry point. Every function it calls must be
//! `#[inline(always)]` (closures are not); others are compiled for the baseline, with a library call for every
//! `mul_add`.
//!
//! Sums have 16 fixed lanes that are added in a fixed order, so a result depends on the instruction set (fused
//! multiply-add or not) and not on the number of threads.

use pulp::Simd;
use std::ops::Range;

const LANES: usize = 16;

/// The upper bits of ln 2, so that n * LN2_HIGH is exact. The lower bits are subtracted separately.
const LN2_HIGH: f32 = 355.0 / 512.0;

/// 1.5 * 2^23: adding it rounds a number below 2^22 to the nearest integer.
const ROUND: f32 = 12_582_912.0;

/// exp(x) to 2 units in the last place for x <= 88, 0 below -87.3.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    exp_below_88(if x > 88.0 { 88.0 } else { x }) // NaN is preserved
}

/// [`exp`] for x <= 88.
///
/// Cody-Waite reduction to |r| <= ln(2)/2 and the degree-5 polynomial of Cephes `expf`, without branches so that it
/// vectorises. At a head width of 32 the softmax takes a quarter of attention's time.
#[inline(always)]
fn exp_below_88(x: f32) -> f32 {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND); // the integer n sits in the low bits of the mantissa
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut y = 1.987_569_2e-4_f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1, 1.0, 1.0] {
        y = y.mul_add(r, c);
    }
    // 2^n from the bits of n. A cast `as i32` saturates, which does not vectorise.
    let scaled = y * f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    if x < -87.3 {
        0.0
    } else {
        scaled
    }
}

/// The logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh(x) to 2 units in the last place: the minimax polynomial of Cephes `tanhf` for |x| < 0.625, otherwise
/// 1 - 2 / (exp(2|x|) + 1), which would cancel near 0.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let mut p = -5.704_988_7e-3_f32;
    for c in [2.063_908_8e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = p.mul_add(square, c);
    }
    let near = (p * square).mul_add(x, x);
    let far = (1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0)).copysign(x);
    if magnitude < 0.625 {
        near
    } else {
        far
    }
}

/// The sum of a slice.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += chunk[i];
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for &value in tail {
        total += value;
    }
    total
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a {
        b
    } else {
        a
    }
}

/// The largest number, or -inf of an empty slice. NaNs are ignored.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    let mut largest = f32::NEG_INFINITY;
    for lane in lanes {
        largest = larger(largest, lane);
    }
    for &value in tail {
        largest = larger(largest, value);
    }
    largest
}

/// The dot product.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    let mut lanes = [0.0f32; LANES];
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks::<LANES>();
    for (x, y) in x.iter().zip(y) {
        for i in 0..LANES {
            lanes[i] = x[i].mul_add(y[i], lanes[i]);
        }
    }
    let mut total = sum(&lanes);
    for (x, y) in x_tail.iter().zip(y_tail) {
        total = x.mul_add(*y, total);
    }
    total
}

/// Replaces logits by their softmax and returns log(sum(exp(logits))). Logits that are all -inf become zeros.
#[inline(always)]
pub fn softmax(row: &mut [f32]) -> f32 {
    let largest = max(row);
    if largest == f32::NEG_INFINITY {
        row.fill(0.0);
        return largest;
    }
    for x in row.iter_mut() {
        *x = exp(*x - largest);
    }
    let total = sum(row);
    let inverse = 1.0 / total;
    for x in row.iter_mut() {
        *x *= inverse;
    }
    largest + total.ln()
}

/// One block of keys of an online softmax. Row i of `block`, whose `columns` are a multiple of 16, holds logits in
/// `visible[i]`. First, largest\[i\] becomes the maximum of itself and these logits. Then the logits become exp(logit -
/// largest\[i\]), and the rest of the row becomes zero. sums\[i\] is the sum of these exponentials over all blocks so far,
/// and grown\[i\] the factor for the outputs of earlier blocks.
#[pulp::with_simd(softmax_block = pulp::Arch::new())]
#[inline(always)]
pub fn softmax_block_simd<'a, S: Simd>(
    simd: S,
    block: &'a mut [f32],
    columns: usize,
    visible: &'a [Range<usize>],
    largest: &'a mut [f32],
    sums: &'a mut [f32],
    grown: &'a mut [f32],
) {
    let rows = block.chunks_mut(LANES * columns).zip(visible.chunks(LANES)).zip(largest.chunks_mut(LANES));
    for (((block, visible), largest), (sums, grown)) in rows.zip(sums.chunks_mut(LANES).zip(grown.chunks_mut(LANES))) {
        let mut added = [0.0; LANES];
        for (i, row) in block.chunks_exact_mut(columns).enumerate() {
            let before = largest[i];
            added[i] = softmax_row(simd, row, visible[i].clone(), &mut largest[i]);
            grown[i] = before - largest[i];
        }
        // The exponentials of 16 rows at once.
        for (i, (grown, sum)) in grown.iter_mut().zip(sums).enumerate() {
            *grown = exp_below_88(*grown);
            *sum = *sum * *grown + added[i];
        }
    }
}

/// One row of [`softmax_block`]. Returns the sum of its exponentials.
#[inline(always)]
fn softmax_row<S: Simd>(simd: S, row: &mut [f32], Range { start, end }: Range<usize>, largest: &mut f32) -> f32 {
    // Whole chunks, with -inf for keys that are not visible: its exponential is 0.
    let first = start / LANES * LANES;
    let last = end.next_multiple_of(LANES);
    row[..first].fill(0.0);
    row[last.max(first)..].fill(0.0);
    if start == end {
        row[first..last.max(first)].fill(0.0);
        return 0.0;
    }
    row[first..start].fill(f32::NEG_INFINITY);
    row[end..last].fill(f32::NEG_INFINITY);
    let row = row[first..last].as_chunks_mut::<LANES>().0;
    *largest = larger(*largest, max_of_chunks(simd, row));
    for chunk in row.iter_mut() {
        for x in chunk {
            *x = exp_below_88(*x - *largest);
        }
    }
    sum_of_chunks(simd, row)
}

/// The largest number, in four registers that do not wait for each other.
#[inline(always)]
fn max_of_chunks<S: Simd>(simd: S, row: &[[f32; LANES]]) -> f32 {
    let (fours, rest) = S::as_simd_f32s(row.as_flattened()).0.as_chunks::<4>();
    let mut lanes = [simd.splat_f32s(f32::NEG_INFINITY); 4];
    for four in fours {
        for i in 0..4 {
            lanes[i] = simd.max_f32s(four[i], lanes[i]);
        }
    }
    for &x in rest {
        lanes[0] = simd.max_f32s(x, lanes[0]);
    }
    simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(lanes[0], lanes[1]), simd.max_f32s(lanes[2], lanes[3])))
}

/// The sum, in four registers that do not wait for each other.
#[inline(always)]
fn sum_of_chunks<S: Simd>(simd: S, row: &[[f32; LANES]]) -> f32 {
    let (fours, rest) = S::as_simd_f32s(row.as_flattened()).0.as_chunks::<4>();
    let mut lanes = [simd.splat_f32s(0.0); 4];
    for four in fours {
        for i in 0..4 {
            lanes[i] = simd.add_f32s(four[i], lanes[i]);
        }
    }
    for &x in rest {
        lanes[0] = simd.add_f32s(x, lanes[0]);
    }
    simd.reduce_sum_f32s(simd.add_f32s(simd.add_f32s(lanes[0], lanes[1]), simd.add_f32s(lanes[2], lanes[3])))
}

/// `to = from * factor`.
#[pulp::with_simd(copy_scaled = pulp::Arch::new())]
#[inline(always)]
pub fn copy_scaled_simd<'a, S: pulp::Simd>(_simd: S, to: &'a mut [f32], from: &'a [f32], factor: f32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from * factor;
    }
}

/// Replaces every x by cap * tanh(x / cap).
#[pulp::with_simd(soft_cap = pulp::Arch::new())]
#[inline(always)]
pub fn soft_cap_simd<S: pulp::Simd>(_simd: S, row: &mut [f32], cap: f32) {
    for x in row {
        *x = cap * tanh(*x / cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_standard_library() {
        for i in -8_700..=8_800 {
            let x = i as f32 / 100.0;
            let got = exp(x);
            let want = f64::from(x).exp();
            assert!((f64::from(got) / want - 1.0).abs() < 4e-7, "exp({x}) = {got}, want {want}");
        }
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn tanh_agrees_with_the_standard_library() {
        for i in -12_000..=12_000 {
            let x = i as f32 / 1000.0;
            let got = f64::from(tanh(x));
            let want = f64::from(x).tanh();
            assert!((got - want).abs() <= 2e-7 * want.abs(), "tanh({x}) = {got}, want {want}");
        }
        assert_eq!([tanh(1e9), tanh(f32::NEG_INFINITY), tanh(1e-20)], [1.0, -1.0, 1e-20]);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn softmax_sums_to_one_and_returns_the_log_sum() {
        let logits: Vec<f32> = (0..1001).map(|i| ((i * 37) % 101) as f32 / 10.0 - 5.0).collect();
        let mut row = logits.clone();
        let lse = softmax(&mut row);
        let want = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        assert!((f64::from(lse) - want).abs() < 1e-5);
        assert!((row.iter().map(|&p| f64::from(p)).sum::<f64>() - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_fully_masked_row_becomes_zero_not_nan() {
        let mut row = [f32::NEG_INFINITY; 3];
        softmax(&mut row);
        assert_eq!(row, [0.0; 3]);
    }

    #[test]
    fn nan_is_not_swallowed_by_softmax() {
        let mut row = [0.0, f32::NAN, 1.0];
        softmax(&mut row);
        assert!(row.iter().any(|x| x.is_nan()));
    }
}
