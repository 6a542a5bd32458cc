//! Correction for many tests.

/// Returns p-values adjusted by Holm's (1979) step-down correction, in the given order, to be compared with the level
/// for the whole family of tests. The i-th smallest of m becomes the running maximum of (m − i + 1)·p, at most 1.
///
/// # Panics
/// If a p-value is outside 0..=1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    assert!(p_values.iter().all(|p| (0.0..=1.0).contains(p)), "p-values outside 0..=1: {p_values:?}");
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut worst = 0.0_f64;
    for (done, &i) in order.iter().enumerate() {
        worst = worst.max(((p_values.len() - done) as f64 * p_values[i]).min(1.0));
        adjusted[i] = worst;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holm_agrees_with_statsmodels() {
        // statsmodels 0.15.0: multipletests(p, method="holm")[1]
        let found = holm(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        let expected = [0.04, 0.09, 0.09, 0.025, 0.5];
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn a_correction_lies_between_the_p_value_and_bonferroni(p in prop::collection::vec(0.0..=1.0, 1..30)) {
            for (raw, adjusted) in p.iter().zip(holm(&p)) {
                prop_assert!((*raw..=(raw * p.len() as f64).min(1.0) + 1e-12).contains(&adjusted));
            }
        }

        #[test]
        fn a_correction_keeps_the_order(p in prop::collection::vec(0.0..=1.0, 2..30)) {
            let adjusted = holm(&p);
            for i in 1..p.len() {
                prop_assert!(p[i - 1] > p[i] || adjusted[i - 1] <= adjusted[i]);
            }
        }
    }

    #[test]
    fn equal_p_values_are_corrected_alike_as_by_statsmodels() {
        // statsmodels 0.15.0: multipletests(p, method="holm")[1]
        let found = holm(&[0.02, 0.02, 0.001, 0.8, 0.04, 0.04, 1.0, 0.0003]);
        let expected = [0.12, 0.12, 0.007, 1.0, 0.16, 0.16, 1.0, 0.0024];
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
    }
}
