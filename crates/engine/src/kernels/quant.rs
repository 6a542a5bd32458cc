//! Fake quantisation of attention logits, or of queries and keys before their product (`qk.rs`): dynamic symmetric absmax, as
//! in the paper's section 3.6.
//!
//! With b bits a number x becomes `s * round(x / s)`, s = absmax / (2^(b-1) - 1), so codes are between -(2^(b-1) - 1)
//! and 2^(b-1) - 1, and the error is at most s / 2. The [`Scope`](names::condition::Scope) says which numbers share an absmax; the paper does not
//! say which it used. Of logits, only visible keys count.

mod qk;

pub use qk::{quantise_keys, quantise_queries, HeadRows};

use names::condition::Format;

/// Distance of two neighbouring quantised integers. 0 if the step would not be a normal number, because there is nothing to
/// quantise, or it is zero or tiny.
pub fn step(format: Format, absmax: f32) -> f32 {
    let step = absmax / largest_code(format);
    if step.is_normal() {
        step
    } else {
        0.0
    }
}

/// The largest code, of formats with scales of their own times the largest such scale.
fn largest_code(format: Format) -> f32 {
    match format {
        Format::Int(bits) => ((1u32 << (bits - 1)) - 1) as f32,
        Format::Fp8 => 448.0,
        Format::Nvfp4 => 6.0 * 448.0,
        Format::Mxfp4 => 6.0,
    }
}

/// The largest magnitude; 0 of an empty slice. NaNs are ignored.
#[pulp::with_simd(absmax = pulp::Arch::new())]
#[inline(always)]
pub fn absmax_simd<S: pulp::Simd>(_simd: S, logits: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (chunks, tail) = logits.as_chunks::<16>();
    for chunk in chunks {
        for i in 0..16 {
            let magnitude = chunk[i].abs();
            lanes[i] = if magnitude > lanes[i] { magnitude } else { lanes[i] };
        }
    }
    lanes.iter().chain(tail).fold(0.0, |largest: f32, x| largest.max(x.abs()))
}

/// Rounds every logit to the nearest multiple of `step`, ties to even. With a step of 0 nothing changes.
#[pulp::with_simd(quantise = pulp::Arch::new())]
#[inline(always)]
pub fn quantise_simd<S: pulp::Simd>(_simd: S, logits: &mut [f32], step: f32) {
    /// 1.5 * 2^23: adding it rounds a number below 2^22 to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    if step == 0.0 {
        return;
    }
    for x in logits {
        // A product with 1 / step could give a code beyond the largest.
        *x = ((*x / step + ROUND) - ROUND) * step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The valid numbers of bits of logits.
    const BITS: std::ops::RangeInclusive<u32> = 2..=16;

    fn quantised(logits: &[f32], bits: u32) -> Vec<f32> {
        let mut result = logits.to_vec();
        quantise(&mut result, step(Format::Int(bits), absmax(logits)));
        result
    }

    #[test]
    fn four_bits_have_seven_codes_on_either_side() {
        assert_eq!(quantised(&[7.0, -7.0, 3.4, -3.6, 0.5, 1.5, 0.2], 4), [7.0, -7.0, 3.0, -4.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn two_bits_keep_a_sign_at_most() {
        assert_eq!(quantised(&[8.0, -5.0, 3.9, 0.0], 2), [8.0, -8.0, 0.0, 0.0]);
    }

    #[test]
    fn constant_empty_and_zero_rows_are_left_as_they_are() {
        for bits in BITS {
            assert!(quantised(&[], bits).is_empty());
            assert_eq!(quantised(&[0.0; 5], bits), [0.0; 5]);
            let constant = quantised(&[2.5; 5], bits);
            assert!(constant.iter().all(|x| (x - 2.5).abs() < 1e-6), "{bits} bits: {constant:?}");
            assert_eq!(quantised(&[1e-44; 5], bits), [1e-44; 5], "too small for a scale");
        }
    }

    proptest! {
        #[test]
        fn the_error_is_at_most_half_a_step(
            logits in prop::collection::vec(-400.0f32..400.0, 1..200),
            bits in BITS,
        ) {
            let largest = absmax(&logits);
            let step = step(Format::Int(bits), largest);
            for (x, y) in logits.iter().zip(quantised(&logits, bits)) {
                // Half a step, and the rounding of f32 on the way.
                prop_assert!((x - y).abs() <= 0.5 * step + largest * 2e-7, "{x} became {y} with step {step}");
                prop_assert!(y.abs() <= largest * (1.0 + 1e-6));
                prop_assert!((y / step - (y / step).round()).abs() < 0.01, "{y} is no multiple of {step}");
            }
        }

        #[test]
        fn absmax_is_that_of_plain_code(logits in prop::collection::vec(-400.0f32..400.0, 0..100)) {
            prop_assert_eq!(absmax(&logits), logits.iter().fold(0.0f32, |a, x| a.max(x.abs())));
        }
    }
}
