//! Quantisation of numbers to bytes. Neighbouring numbers in a run share a step, which is a power of two, so that
//! coarser steps are bit shifts.

use crate::measures::PooledMap;

/// Maximum number of neighbouring numbers that share a step.
pub(crate) const RUN: usize = 64;

/// Integer code of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeType {
    /// 0 to 255 steps.
    Byte,
    /// -127 to 127 steps, as two's complement.
    SignedByte,
    /// -32,767 to 32,767 steps, as two's complement.
    Word,
}

impl CodeType {
    /// The largest code.
    fn most(self) -> f32 {
        match self {
            CodeType::Byte => 255.0,
            CodeType::SignedByte => 127.0,
            CodeType::Word => 32_767.0,
        }
    }
}

/// Passes the code of each number of a run to `take` and returns the exponent e of the step 2^e: the smallest, but at
/// least `floor`, that can represent the largest number. The error is at most half a step. NaN and infinities become 0.
pub(crate) fn encode(run: &[f32], code: CodeType, floor: i8, mut take: impl FnMut(i16)) -> i8 {
    let finite = run.iter().map(|&x| if x.is_finite() { x } else { 0.0 });
    let largest = finite.clone().map(f32::abs).fold(0.0, f32::max);
    let exponent = exponent(largest / code.most()).max(floor);
    let per_step = (-f32::from(exponent)).exp2();
    let least = if code == CodeType::Byte { 0.0 } else { -code.most() };
    // In a run of zeros, the reciprocal of the step is infinite. 0 times infinity is NaN, which the cast turns into 0.
    finite.for_each(|x| take((x * per_step).round().clamp(least, code.most()) as i16));
    exponent
}

/// The smallest e with 2^e >= x, limited to exponents whose reciprocals are finite `f32`.
fn exponent(x: f32) -> i8 {
    if x <= 0.0 {
        return i8::MIN;
    }
    x.log2().ceil().clamp(-120.0, 120.0) as i8
}

/// Converts an unsigned code to steps that are 2^`by` times as large.
pub(crate) fn coarser(code: u8, by: u32) -> u8 {
    match by {
        0 => code,
        1..=8 => ((u32::from(code) + (1 << (by - 1))) >> by) as u8,
        _ => 0,
    }
}

/// The part of a pooled map on and below the diagonal: exponents of the runs, then signed codes.
pub(crate) fn triangle(grid: &PooledMap) -> Vec<u8> {
    let mut exponents = Vec::new();
    let mut codes = Vec::new();
    for (row, values) in grid.values.chunks(grid.columns.max(1)).enumerate() {
        for run in values[..(row + 1).min(grid.columns)].chunks(RUN) {
            exponents.push(encode(run, CodeType::SignedByte, i8::MIN, |steps| codes.push(steps as u8)) as u8);
        }
    }
    exponents.extend(codes);
    exponents
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn codes(run: &[f32], code: CodeType, floor: i8) -> (i8, Vec<i16>) {
        let mut codes = Vec::new();
        let exponent = encode(run, code, floor, |steps| codes.push(steps));
        (exponent, codes)
    }

    #[test]
    fn a_run_of_zeros_takes_the_smallest_step() {
        assert_eq!(codes(&[0.0, f32::NAN, f32::INFINITY], CodeType::Byte, i8::MIN), (i8::MIN, vec![0, 0, 0]));
        assert_eq!(codes(&[0.0], CodeType::Byte, -17), (-17, vec![0]));
    }

    #[test]
    fn a_triangle_has_the_runs_of_each_row_up_to_the_diagonal() {
        let values: Vec<f32> = (0..9).map(|i| if i % 3 > i / 3 { f32::NAN } else { i as f32 }).collect();
        let edges = vec![0, 1, 2, 3];
        let grid =
            PooledMap { rows: 3, columns: 3, values, row_edges: edges.clone(), column_edges: edges, sinks: vec![] };
        // Largest values of the rows are 0, 4 and 8; steps 2^-4 and 2^-3 (8 / 127 > 2^-4).
        assert_eq!(triangle(&grid), [-128_i8 as u8, -4_i8 as u8, -3_i8 as u8, 0, 48, 64, 48, 56, 64]);
    }

    proptest! {
        #[test]
        fn decoded_values_are_within_half_a_step(
            run in prop::collection::vec(-3.0_f32..3.0, 1..RUN), floor in -30_i8..-1, kind in 0_usize..3
        ) {
            let code = [CodeType::Byte, CodeType::SignedByte, CodeType::Word][kind];
            let run: Vec<f32> = run.into_iter().map(|x| if code == CodeType::Byte { x.abs() } else { x }).collect();
            let (exponent, codes) = codes(&run, code, floor);
            let step = f32::from(exponent).exp2();
            for (x, &steps) in run.iter().zip(&codes) {
                prop_assert!((f32::from(steps) * step - x).abs() <= 0.5001 * step);
            }
            // A step of half the size is too small, unless the floor forbids it.
            let largest = run.iter().map(|x| x.abs()).fold(0.0, f32::max);
            prop_assert!(exponent == floor || largest > 0.4999 * step * code.most());
        }

        #[test]
        fn coarser_codes_are_within_three_quarters_of_a_step(x in 0.0_f32..1.0, by in 0_u32..12) {
            let (exponent, codes) = codes(&[x], CodeType::Byte, -17);
            let step = (f32::from(exponent) + by as f32).exp2();
            let read = f32::from(coarser(codes[0] as u8, by)) * step;
            prop_assert!((read - x).abs() <= 0.7501 * step, "{read} for {x}");
        }
    }
}
