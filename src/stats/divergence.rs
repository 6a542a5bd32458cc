//! Divergence of two attention rows.

/// Least probability in the denominator of the divergence, so that it stays finite where a weight becomes 0.
const FLOOR: f64 = 1e-12;

/// Divergence of a row `b` from a row `a` over the same keys. Rows may be signed; each is normalised to a distribution
/// of its magnitudes, p = |a| / sum |a|.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Kullback-Leibler divergence sum p ln(p / q) in nats, with q at least 1e-12.
    pub kl_nats: f64,
    /// Total variation distance, half of sum |p - q|: 0 to 1.
    pub total_variation: f64,
}

impl Divergence {
    /// Computes the divergence. `None` if the rows differ in length, or one of them is empty, all zero or not finite.
    pub fn of(a: &[f32], b: &[f32]) -> Option<Self> {
        let total = |row: &[f32]| row.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        let (total_a, total_b) = (total(a), total(b));
        let usable = |total: f64| total.is_finite() && total > 0.0;
        if a.len() != b.len() || !usable(total_a) || !usable(total_b) {
            return None;
        }
        let (mut kl, mut variation) = (0.0, 0.0);
        for (a, b) in a.iter().zip(b) {
            let (p, q) = (f64::from(a.abs()) / total_a, f64::from(b.abs()) / total_b);
            variation += (p - q).abs();
            if p > 0.0 {
                kl += p * (p / q.max(FLOOR)).ln();
            }
        }
        Some(Self { kl_nats: kl.max(0.0), total_variation: 0.5 * variation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_coins_diverge_as_on_paper() {
        let found = Divergence::of(&[0.5, 0.5], &[0.25, 0.75]).unwrap();
        assert!((found.kl_nats - 0.5 * (4.0f64 / 3.0).ln()).abs() < 1e-12, "0.5 ln 2 + 0.5 ln 2/3");
        assert!((found.total_variation - 0.25).abs() < 1e-12);
    }

    #[test]
    fn signs_do_not_matter_but_magnitudes_do() {
        let found = Divergence::of(&[0.6, -0.2, 0.2], &[-0.6, 0.2, 0.2]).unwrap();
        assert_eq!((found.kl_nats, found.total_variation), (0.0, 0.0));
    }

    #[test]
    fn a_weight_that_vanished_costs_much_but_not_everything() {
        let found = Divergence::of(&[0.5, 0.5], &[1.0, 0.0]).unwrap();
        assert!(found.kl_nats > 10.0 && found.kl_nats.is_finite());
        assert_eq!(found.total_variation, 0.5);
    }

    #[test]
    fn rows_of_nothing_have_no_divergence() {
        for (a, b) in [(&[][..], &[][..]), (&[0.0], &[1.0]), (&[1.0], &[f32::NAN]), (&[1.0], &[0.5, 0.5])] {
            assert_eq!(Divergence::of(a, b), None);
        }
    }

    proptest! {
        #[test]
        fn a_row_does_not_diverge_from_its_multiples(row in prop::collection::vec(-1.0f32..1.0, 1..50)) {
            prop_assume!(row.iter().any(|x| x.abs() > 1e-3));
            let halved: Vec<f32> = row.iter().map(|x| x * 0.5).collect();
            let found = Divergence::of(&row, &halved).unwrap();
            prop_assert!(found.kl_nats < 1e-9 && found.total_variation < 1e-9);
        }
    }
}
