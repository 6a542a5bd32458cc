//! Vectorised loops over slices of numbers, for measurements on every key of every row.
//!
//! As in `ops::simd`, entry points have `#[pulp::with_simd]`, everything they call is `#[inline(always)]`, and sums
//! have a fixed number of lanes that are added in a fixed order. The last bits of a result may depend on the
//! instruction set, but not on the number of threads.

const LANES: usize = 16;

/// The largest |x|; 0 for an empty slice. NaNs are ignored.
#[pulp::with_simd(max_magnitude = pulp::Arch::new())]
#[inline(always)]
pub fn max_magnitude_simd<S: pulp::Simd>(_simd: S, x: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i].abs());
        }
    }
    let mut largest = 0.0;
    for lane in lanes {
        largest = larger(largest, lane);
    }
    for x in tail {
        largest = larger(largest, x.abs());
    }
    largest
}

/// The sum, in `f64`.
#[pulp::with_simd(sum = pulp::Arch::new())]
#[inline(always)]
pub fn sum_simd<S: pulp::Simd>(_simd: S, x: &[f32]) -> f64 {
    total(x)
}

/// The sum of |x|, in `f64`.
#[pulp::with_simd(sum_magnitudes = pulp::Arch::new())]
#[inline(always)]
pub fn sum_magnitudes_simd<S: pulp::Simd>(_simd: S, x: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f64::from(chunk[i].abs());
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for x in tail {
        sum += f64::from(x.abs());
    }
    sum
}

/// Computes into += scale * |x|, up to the length of the shorter slice.
#[pulp::with_simd(add_magnitudes = pulp::Arch::new())]
#[inline(always)]
pub fn add_magnitudes_simd<'a, S: pulp::Simd>(_simd: S, into: &'a mut [f32], x: &'a [f32], scale: f32) {
    for (sum, x) in into.iter_mut().zip(x) {
        *sum = x.abs().mul_add(scale, *sum);
    }
}

/// The sums of the second, third and fourth powers of x - centre.
#[pulp::with_simd(central_powers = pulp::Arch::new())]
#[inline(always)]
pub fn central_powers_simd<S: pulp::Simd>(_simd: S, x: &[f32], centre: f64) -> [f64; 3] {
    let mut lanes = [[0.0_f64; LANES]; 3];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            let d = f64::from(chunk[i]) - centre;
            let square = d * d;
            lanes[0][i] += square;
            lanes[1][i] = square.mul_add(d, lanes[1][i]);
            lanes[2][i] = square.mul_add(square, lanes[2][i]);
        }
    }
    let mut sums = [0.0; 3];
    for (sum, lanes) in sums.iter_mut().zip(lanes) {
        for lane in lanes {
            *sum += lane;
        }
    }
    for &x in tail {
        let d = f64::from(x) - centre;
        sums[0] += d * d;
        sums[1] += d * d * d;
        sums[2] += d * d * (d * d);
    }
    sums
}

/// Adds scale times the sum of x[edges\[i\]..edges[i + 1]] to sums\[i\]. Edges are ascending; positions beyond the end of
/// `x` are ignored.
#[pulp::with_simd(add_segments = pulp::Arch::new())]
#[inline(always)]
pub fn add_segments_simd<'a, S: pulp::Simd>(
    _simd: S,
    x: &'a [f32],
    edges: &'a [usize],
    scale: f64,
    sums: &'a mut [f64],
) {
    for (sum, edge) in sums.iter_mut().zip(edges.windows(2)) {
        *sum += scale * total(segment(x, edge[0], edge[1]));
    }
}

/// Replaces peaks\[i\] by scale times the number of largest magnitude in x[edges\[i\]..edges[i + 1]] if that has a larger
/// magnitude. Of
/// -a and a, a is kept, in any order. NaNs are ignored.
#[pulp::with_simd(peak_segments = pulp::Arch::new())]
#[inline(always)]
pub fn peak_segments_simd<'a, S: pulp::Simd>(
    _simd: S,
    x: &'a [f32],
    edges: &'a [usize],
    scale: f32,
    peaks: &'a mut [f32],
) {
    for (peak, edge) in peaks.iter_mut().zip(edges.windows(2)) {
        *peak = higher_peak(*peak, scale * peak_of(segment(x, edge[0], edge[1])));
    }
}

/// The number of larger magnitude; `a` if `b` is NaN, `b` if `a` is NaN.
#[inline(always)]
pub fn higher_peak(a: f32, b: f32) -> f32 {
    if b.abs() > a.abs() || (b.abs() == a.abs() && b > a) || a.is_nan() {
        b
    } else {
        a
    }
}

#[inline(always)]
fn segment(x: &[f32], start: usize, end: usize) -> &[f32] {
    let end = if end < x.len() { end } else { x.len() };
    if start < end {
        &x[start..end]
    } else {
        &[]
    }
}

#[inline(always)]
fn total(x: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    let mut sum = 0.0;
    for &x in tail {
        sum += f64::from(x);
    }
    if !chunks.is_empty() {
        for lane in lanes {
            sum += lane;
        }
    }
    sum
}

/// The number of largest magnitude; NaN if there are only NaNs. It makes two passes over a slice in cache,
/// because one pass for both signs does not vectorise.
#[inline(always)]
fn peak_of(x: &[f32]) -> f32 {
    let high = most(x, 1.0);
    let low = -most(x, -1.0);
    if high < low {
        f32::NAN // only NaNs: both still have their initial values
    } else if high.abs() >= low.abs() {
        high
    } else {
        low
    }
}

/// The largest sign * x; -inf if there are only NaNs.
#[inline(always)]
fn most(x: &[f32], sign: f32) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], sign * chunk[i]);
        }
    }
    let mut most = f32::NEG_INFINITY;
    for &x in tail {
        most = larger(most, sign * x);
    }
    if !chunks.is_empty() {
        for lane in lanes {
            most = larger(most, lane);
        }
    }
    most
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a {
        b
    } else {
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nans_hide_no_peak_and_make_none() {
        let mut peaks = [f32::NAN; 3];
        peak_segments(&[f32::NAN, -3.0, 2.0, f32::NAN, f32::NAN], &[0, 3, 5, 9], 1.0, &mut peaks);
        assert_eq!(peaks[0], -3.0);
        assert!(peaks[1].is_nan() && peaks[2].is_nan(), "{peaks:?}");
        assert_eq!(max_magnitude(&[1.0, f32::NAN, -4.0]), 4.0);
    }

    #[test]
    fn of_two_opposite_peaks_the_positive_one_is_kept_in_either_order() {
        assert_eq!((higher_peak(-2.0, 2.0), higher_peak(2.0, -2.0)), (2.0, 2.0));
        let mut peak = [f32::NAN];
        peak_segments(&[-2.0, 2.0, -2.0], &[0, 3], 1.0, &mut peak);
        assert_eq!(peak, [2.0]);
    }

    proptest! {
        #[test]
        fn vectorised_loops_agree_with_plain_ones(
            x in prop::collection::vec(-9.0_f32..9.0, 0..80), centre in -3.0..3.0
        ) {
            let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            prop_assert_eq!(max_magnitude(&x), x.iter().fold(0.0, |most: f32, x| most.max(x.abs())));
            prop_assert!((sum(&x) - wide.iter().sum::<f64>()).abs() < 1e-9);
            prop_assert!((sum_magnitudes(&x) - wide.iter().map(|x| x.abs()).sum::<f64>()).abs() < 1e-9);
            for (power, found) in (2..).zip(central_powers(&x, centre)) {
                let plain: f64 = wide.iter().map(|x| (x - centre).powi(power)).sum();
                prop_assert!((found - plain).abs() < 1e-9 * (1.0 + plain.abs()), "{found} {plain}");
            }
        }

        #[test]
        fn segments_agree_with_plain_slices(
            x in prop::collection::vec(-9.0_f32..9.0, 0..200), mut edges in prop::collection::vec(0_usize..220, 2..9)
        ) {
            edges.sort_unstable();
            let mut sums = vec![1.0; edges.len() - 1];
            let mut peaks = vec![f32::NAN; edges.len() - 1];
            add_segments(&x, &edges, -2.0, &mut sums);
            peak_segments(&x, &edges, 1.0, &mut peaks);
            for (i, edge) in edges.windows(2).enumerate() {
                let slice = &x[edge[0].min(x.len())..edge[1].min(x.len())];
                let plain: f64 = slice.iter().map(|&x| f64::from(x)).sum();
                prop_assert!((sums[i] - (1.0 - 2.0 * plain)).abs() < 1e-9);
                let peak = slice.iter().copied().fold(f32::NAN, higher_peak);
                prop_assert!(peaks[i] == peak || (peaks[i].is_nan() && peak.is_nan()), "{} {peak}", peaks[i]);
            }
        }
    }
}
