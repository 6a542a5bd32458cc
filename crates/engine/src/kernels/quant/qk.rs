//! Fake quantisation of queries and keys before their product, in `f32` or `f64`: dynamic, symmetric, one scale per group of
//! rows.
//!
//! A number x becomes s * code, where the code is the number of the [`Format`] next to x / s, ties to even, and s = absmax /
//! (largest code). The [`Scope`] says which rows of a head share one. Rows are counted from the first token, so that groups do
//! not depend on how a text is cut. Formats of 4-bit floating-point numbers have a scale for a few channels of a row besides:
//! [`block_scale`].
//!
//! Two changes of the numbers come before the rounding. [Smoothing](Quantiser::smooth) rounds a key less the mean of the
//! keys of its head over the text, which is added again afterwards: q . mean is the same for all keys of a row, and a
//! softmax does not see it (SageAttention, arXiv 2410.02367). [Rotation](Quantiser::rotate) multiplies queries and keys by
//! one orthogonal matrix, which leaves their products as they are (QuaRot, arXiv 2404.00456).

use super::largest_code;
use candle_core::WithDType;
use names::condition::{Format, Quantiser, Scope};

/// Queries and keys that share one scale with [`Scope::Block`].
const QUERY_BLOCK: usize = 128;
const KEY_BLOCK: usize = 64;

/// The code next to a number, ties to even; of 4-bit floating-point numbers, at most the largest.
fn code(format: Format, x: f64) -> f64 {
    match format {
        Format::Int(_) => x.round_ties_even(),
        Format::Fp8 => next_float(x, 3, -6),
        Format::Nvfp4 | Format::Mxfp4 => next_float(x, 1, 0).clamp(-6.0, 6.0),
    }
}

/// Channels of a row that share a scale of their own.
fn channels(format: Format) -> Option<usize> {
    match format {
        Format::Int(_) | Format::Fp8 => None,
        Format::Nvfp4 => Some(16),
        Format::Mxfp4 => Some(32),
    }
}

/// The scale of numbers up to `largest` in a group that shares a scale. NVFP4 rounds the scale that fits, in units of the
/// group's, to [`Format::Fp8`]. MXFP4 takes the power of two below `largest`, divided by the largest power of two among
/// the codes, 4, so that numbers just below the next power of two become 6 times the scale.
fn block_scale<F: WithDType>(format: Format, largest: F, of_group: F) -> F {
    match format {
        Format::Int(_) | Format::Fp8 => of_group,
        Format::Nvfp4 => F::from_f64(code(Format::Fp8, (largest / F::from_f64(6.0) / of_group).to_f64())) * of_group,
        Format::Mxfp4 => F::from_f64(2f64.powi(exponent(largest.to_f64()).max(-125) - 2)),
    }
}

/// Rounds numbers of a row of a group that shares a scale.
fn round<F: WithDType>(format: Format, of_group: F, row: &mut [F]) {
    let channels = channels(format).unwrap_or(row.len());
    for block in row.chunks_mut(channels) {
        let scale = block_scale(format, largest(F::zero(), block), of_group);
        for x in block {
            let code = if scale == F::zero() { 0.0 } else { code(format, (*x / scale).to_f64()) };
            *x = F::from_f64(code) * scale;
        }
    }
}

/// The floating-point number next to `x` with `mantissa` bits after the point and no exponent below `least`, ties to even.
/// Numbers below 2^`least` are as far apart as those just above.
fn next_float(x: f64, mantissa: i32, least: i32) -> f64 {
    let step = 2f64.powi(exponent(x).max(least) - mantissa);
    (x / step).round_ties_even() * step
}

/// The exponent of the power of two next to a magnitude, not above it.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// The largest of a magnitude and those of numbers.
fn largest<F: WithDType>(mut largest: F, numbers: &[F]) -> F {
    for &x in numbers {
        let magnitude = if x < F::zero() { F::zero() - x } else { x };
        if magnitude > largest {
            largest = magnitude;
        }
    }
    largest
}

/// The rows of one head: (tokens, d).
pub struct HeadRows<'a> {
    /// Position of the first row.
    pub(crate) first: usize,
    /// Width of a row.
    pub(crate) d: usize,
    /// Mean that is taken off before the rounding and added afterwards: (d), or empty.
    pub(crate) mean: &'a [f64],
    /// Positions of rows that stay as they are and do not count for scales.
    pub(crate) exempt: &'a [usize],
}

/// Rounds the queries of one head.
pub fn quantise_queries<F: WithDType>(quantiser: &Quantiser, of: &HeadRows<'_>, rows: &mut [F]) {
    round_rows(quantiser, of, QUERY_BLOCK, rows);
}

/// Rounds the keys of one head.
pub fn quantise_keys<F: WithDType>(quantiser: &Quantiser, of: &HeadRows<'_>, rows: &mut [F]) {
    round_rows(quantiser, of, KEY_BLOCK, rows);
}

fn round_rows<F: WithDType>(quantiser: &Quantiser, of: &HeadRows<'_>, block: usize, rows: &mut [F]) {
    let group = match quantiser.scope {
        Scope::Block => block,
        Scope::Token => 1,
        _ => usize::MAX,
    };
    let mut mean: Vec<F> = of.mean.iter().map(|&x| F::from_f64(x)).collect();
    mean.resize(of.d, F::zero());
    if quantiser.rotate {
        rows.chunks_exact_mut(of.d).for_each(hadamard);
        mean.chunks_exact_mut(of.d).for_each(hadamard);
    }
    let mut first = of.first;
    let mut rest = rows;
    while !rest.is_empty() {
        let length = (group - first % group).min(rest.len() / of.d);
        let (of_group, later) = rest.split_at_mut(length * of.d);
        let rows = (first..).zip(of_group.chunks_exact_mut(of.d));
        round_group(
            quantiser.format,
            &mean,
            rows.filter(|(position, _)| !of.exempt.contains(position)).map(|(_, row)| row).collect(),
        );
        first += length;
        rest = later;
    }
}

/// Rounds rows that share one scale, less a mean.
fn round_group<F: WithDType>(format: Format, mean: &[F], mut rows: Vec<&mut [F]>) {
    for row in &mut rows {
        row.iter_mut().zip(mean).for_each(|(x, &mean)| *x -= mean);
    }
    let largest = rows.iter().fold(F::zero(), |most, row| largest(most, row));
    let scale = largest / F::from_f64(largest_code(format).into());
    for row in rows {
        // Zeros and tiny numbers have no scale.
        if (scale.to_f64() as f32).is_normal() {
            round(format, scale, row);
        }
        row.iter_mut().zip(mean).for_each(|(x, &mean)| *x += mean);
    }
}

/// Multiplies a row by the Hadamard matrix over its width, divided by the root of its size, so that it is orthogonal. Of a
/// width that is no power of two, blocks of the largest power of two that divides it are multiplied one by one.
fn hadamard<F: WithDType>(row: &mut [F]) {
    let size = 1 << row.len().trailing_zeros();
    let scale = F::one() / F::from_f64(f64::from(size).sqrt());
    for block in row.chunks_exact_mut(size as usize) {
        let mut half = 1;
        while half < block.len() {
            for pair in block.chunks_exact_mut(2 * half) {
                let (left, right) = pair.split_at_mut(half);
                for (a, b) in left.iter_mut().zip(right) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::condition::Quantised;
    use proptest::prelude::*;

    fn quantiser(format: Format, scope: Scope) -> Quantiser {
        let of = Quantised::Qk;
        Quantiser { of, format, scope, smooth: false, rotate: false, exempt_sinks: false, layers: None }
    }

    fn rounded<F: WithDType>(format: Format, scope: Scope, d: usize, rows: &[F]) -> Vec<F> {
        let mut rows = rows.to_vec();
        quantise_keys(&quantiser(format, scope), &HeadRows { first: 0, d, mean: &[], exempt: &[] }, &mut rows);
        rows
    }

    /// All magnitudes of a format with so many bits of the exponent and the mantissa and an exponent bias, up to `largest`.
    fn magnitudes(exponents: i32, mantissa: i32, bias: i32, largest: f64) -> Vec<f64> {
        let fractions = 0..1 << mantissa;
        // The subnormal ones, then those of each exponent.
        let mut all: Vec<f64> = fractions.clone().map(|i| f64::from(i) * 2f64.powi(1 - bias - mantissa)).collect();
        for e in 1..1 << exponents {
            all.extend(fractions.clone().map(|i| (1.0 + f64::from(i) / 2f64.powi(mantissa)) * 2f64.powi(e - bias)));
        }
        all.retain(|&x| x <= largest);
        all
    }

    /// The nearest of ascending magnitudes, of two equally near ones that of even index, with the sign of `x`.
    fn nearest(known: &[f64], x: f64) -> f64 {
        let distance = |i: usize| (known[i] - x.abs()).abs();
        let mut best = 0;
        for i in 1..known.len() {
            if distance(i) < distance(best) || distance(i) == distance(best) && i.is_multiple_of(2) {
                best = i;
            }
        }
        known[best].copysign(x)
    }

    #[test]
    fn fp4_has_eight_magnitudes_up_to_6_and_fp8_of_e4m3_up_to_448() {
        let fp4 = magnitudes(2, 1, 1, 6.0);
        assert_eq!(fp4, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        let fp8 = magnitudes(4, 3, 7, 448.0);
        assert_eq!((fp8.len(), fp8[1], fp8[126]), (127, 2f64.powi(-9), 448.0));
        for (format, known) in [(Format::Nvfp4, fp4), (Format::Fp8, fp8)] {
            let largest = *known.last().unwrap();
            for i in 0..=20_000 {
                let x = largest * (f64::from(i) / 10_000.0 - 1.0);
                assert_eq!(code(format, x), nearest(&known, x), "{format}: {x}");
            }
        }
    }

    #[test]
    fn sixteen_channels_of_nvfp4_share_an_e4m3_scale_and_thirty_two_of_mxfp4_a_power_of_two() {
        let blocks = |blocks: &[(usize, &[f64])]| {
            let padded = blocks.iter().map(|(width, numbers)| [*numbers, &vec![0.0; width - numbers.len()]].concat());
            padded.flatten().collect::<Vec<f64>>()
        };
        // The group's scale is 1, as 2688 = 6 * 448. 2.7 / 6 is next to 14/32, whose largest multiple is 6 * 14/32.
        let nvfp4 = [(16, &[2688.0, -1300.0, 100.0][..]), (16, &[3.0, 0.6, -0.24]), (16, &[2.7, -0.44]), (8, &[1e-4])];
        let expected =
            [(16, &[2688.0, -1344.0, 0.0][..]), (16, &[3.0, 0.5, -0.25]), (16, &[2.625, -0.4375]), (8, &[0.0])];
        assert_eq!(rounded(Format::Nvfp4, Scope::Head, 56, &blocks(&nvfp4)), blocks(&expected));
        // Scales 1, 2^-6 and 4.
        let mxfp4 = [(32, &[7.0, -5.0, 0.3, 0.2][..]), (32, &[0.1, 0.01]), (8, &[-16.0, 14.1])];
        let expected = [(32, &[6.0, -4.0, 0.5, 0.0][..]), (32, &[0.09375, 0.0078125]), (8, &[-16.0, 16.0])];
        assert_eq!(rounded(Format::Mxfp4, Scope::Token, 72, &blocks(&mxfp4)), blocks(&expected));
    }

    #[test]
    fn rows_of_a_group_share_the_scale_of_its_largest_number() {
        let rows = [7.0_f32, 3.4, -14.0, 6.9, 70.0, 4.0];
        assert_eq!(rounded(Format::Int(4), Scope::Token, 2, &rows), [7.0, 3.0, -14.0, 6.0, 70.0, 0.0]);
        assert_eq!(rounded(Format::Int(4), Scope::Head, 2, &rows), [10.0, 0.0, -10.0, 10.0, 70.0, 0.0]);
    }

    #[test]
    fn blocks_are_counted_from_the_first_token() {
        let by = quantiser(Format::Int(8), Scope::Block);
        let rows: Vec<f32> = (0..300).map(|i| (i as f32 * 0.7).sin() * (1.0 + i as f32)).collect();
        let mut whole = rows.clone();
        let mut parts = rows.clone();
        quantise_queries(&by, &HeadRows { first: 0, d: 1, mean: &[], exempt: &[] }, &mut whole);
        let (before, after) = parts.split_at_mut(128);
        quantise_queries(&by, &HeadRows { first: 0, d: 1, mean: &[], exempt: &[] }, before);
        quantise_queries(&by, &HeadRows { first: 128, d: 1, mean: &[], exempt: &[] }, after);
        assert_eq!(whole, parts);
        // The blocks of keys are half as long.
        let mut keys = rows;
        quantise_keys(&by, &HeadRows { first: 0, d: 1, mean: &[], exempt: &[] }, &mut keys);
        assert_ne!(whole, keys);
    }

    #[test]
    fn exempt_rows_stay_as_they_are_and_do_not_count() {
        let mut rows = [1000.0_f32, -300.0, 7.0, 3.4];
        let of = HeadRows { first: 10, d: 2, mean: &[], exempt: &[10] };
        quantise_keys(&quantiser(Format::Int(4), Scope::Head), &of, &mut rows);
        assert_eq!(rows, [1000.0, -300.0, 7.0, 3.0]);
    }

    #[test]
    fn a_mean_is_taken_off_before_the_rounding_and_added_again() {
        let mut rows = [107.0_f32, 96.6];
        let mean = [100.0];
        let of = HeadRows { first: 0, d: 1, mean: &mean, exempt: &[] };
        quantise_keys(&quantiser(Format::Int(4), Scope::Head), &of, &mut rows);
        assert_eq!(rows, [107.0, 97.0]);
    }

    #[test]
    fn zeros_and_tiny_numbers_are_left_as_they_are() {
        for format in [Format::Int(4), Format::Fp8, Format::Nvfp4, Format::Mxfp4] {
            assert_eq!(rounded(format, Scope::Head, 2, &[0.0_f32; 4]), [0.0; 4]);
            assert_eq!(rounded(format, Scope::Token, 1, &[1e-44_f32; 3]), [1e-44; 3]);
            assert!(rounded::<f32>(format, Scope::Block, 2, &[]).is_empty());
        }
    }

    proptest! {
        #[test]
        fn a_rotation_keeps_products_and_is_its_own_inverse(
            rows in prop::collection::vec(-9.0_f32..9.0, 24), width in prop::sample::select(vec![4, 6, 8, 12])
        ) {
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let mut a = rows[..width].to_vec();
            let mut b = rows[12..12 + width].to_vec();
            let before = product(&a, &b);
            hadamard(&mut a);
            hadamard(&mut b);
            prop_assert!((product(&a, &b) - before).abs() < 1e-3);
            hadamard(&mut a);
            prop_assert!(a.iter().zip(&rows).all(|(a, b)| (a - b).abs() < 1e-4));
        }

        #[test]
        fn the_error_of_integers_is_at_most_half_a_step(
            rows in prop::collection::vec(-40.0_f32..40.0, 1..50), bits in 2_u32..=16
        ) {
            let largest = rows.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
            let step = largest / ((1 << (bits - 1)) - 1) as f32;
            for (x, y) in rows.iter().zip(rounded(Format::Int(bits), Scope::Head, 1, &rows)) {
                prop_assert!((x - y).abs() <= 0.5 * step + largest * 2e-7, "{} became {}", x, y);
            }
        }
    }
}
