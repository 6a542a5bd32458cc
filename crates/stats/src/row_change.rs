//! Changes of attention rows from another pass over the same prompt: divergence, and how far those of two maps cancel.

/// Changes of the rows of one head: squares, summed over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowChange {
    /// Rows of the other pass.
    before: f64,
    /// Changes of the rows.
    change: f64,
    /// Changes of the first map.
    first: f64,
    /// Changes of the second map, weighted.
    second: f64,
}

/// A row of a head over the keys that it sees.
#[derive(Clone, Debug)]
pub struct MixedRow {
    /// The mixture of the maps.
    pub effective: Vec<f32>,
    /// `None` of a single map.
    pub maps: Option<TwoMaps>,
}

/// The rows of two maps over the same keys.
#[derive(Clone, Debug)]
pub struct TwoMaps {
    pub first: Vec<f32>,
    pub second: Vec<f32>,
    /// Weight of the second in the mixture; that of the first is 1.
    pub weight: f32,
}

impl RowChange {
    /// Adds a row before and after, over the same keys.
    pub fn add(&mut self, before: &MixedRow, after: &MixedRow) {
        for (&before, &after) in before.effective.iter().zip(&after.effective) {
            self.before += f64::from(before).powi(2);
            self.change += (f64::from(after) - f64::from(before)).powi(2);
        }
        let Some((before, after)) = before.maps.as_ref().zip(after.maps.as_ref()) else { return };
        for i in 0..before.first.len() {
            self.first += (f64::from(after.first[i]) - f64::from(before.first[i])).powi(2);
            let weighted_after = f64::from(after.weight) * f64::from(after.second[i]);
            let weighted_before = f64::from(before.weight) * f64::from(before.second[i]);
            self.second += (weighted_after - weighted_before).powi(2);
        }
    }

    /// Norm of the changes of the mixture over the norm of its rows before; `None` without rows.
    pub fn error(&self) -> Option<f64> {
        (self.before > 0.0).then(|| (self.change / self.before).sqrt())
    }

    /// Part of the changes of the two maps that their difference cancels, 1 - |e1 - e2|^2 / (|e1|^2 + |e2|^2), where e2 is
    /// that of the weighted second map. `None` of a single map, or if neither changes.
    pub fn cancelled(&self) -> Option<f64> {
        let of_both = self.first + self.second;
        (of_both > 0.0).then(|| 1.0 - self.change / of_both)
    }
}

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
        let [total_a, total_b] = [a, b].map(|row| row.iter().map(|x| f64::from(x.abs())).sum::<f64>());
        let usable = [total_a, total_b].iter().all(|&total| total.is_finite() && total > 0.0);
        if a.len() != b.len() || !usable {
            return None;
        }
        let mut kl = 0.0;
        let mut variation = 0.0;
        for (a, b) in a.iter().zip(b) {
            let p = f64::from(a.abs()) / total_a;
            let q = f64::from(b.abs()) / total_b;
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

    /// The change of a row of two maps with weight -`lambda` by these errors.
    fn changed(lambda: f32, errors: [[f32; 3]; 2]) -> RowChange {
        let maps = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]];
        let changed = [0, 1].map(|j| [0, 1, 2].map(|i| maps[j][i] + errors[j][i]));
        let row = |[first, second]: [[f32; 3]; 2]| MixedRow {
            effective: [0, 1, 2].map(|i| first[i] - lambda * second[i]).to_vec(),
            maps: Some(TwoMaps { first: first.to_vec(), second: second.to_vec(), weight: -lambda }),
        };
        let mut found = RowChange::default();
        found.add(&row(maps), &row(changed));
        found
    }

    const ERROR: [f32; 3] = [0.125, -0.125, 0.0];
    const OTHER: [f32; 3] = [0.0625, 0.0625, -0.125];

    #[test]
    fn equal_errors_cancel_opposite_ones_add_up_and_unrelated_ones_do_neither() {
        let same = changed(1.0, [ERROR, ERROR]);
        assert_eq!((same.cancelled(), same.error()), (Some(1.0), Some(0.0)));
        let opposite = changed(1.0, [ERROR, ERROR.map(|x| -x)]);
        assert_eq!(opposite.cancelled(), Some(-1.0));
        let unrelated = changed(1.0, [ERROR, OTHER]);
        assert_eq!(unrelated.cancelled(), Some(0.0));
    }

    #[test]
    fn the_second_map_counts_with_its_weight() {
        let found = changed(0.5, [ERROR, ERROR]);
        // |e - e / 2|^2 = |e|^2 / 4 of |e|^2 + |e|^2 / 4
        assert!((found.cancelled().unwrap() - 0.8).abs() < 1e-12);
    }

    #[test]
    fn a_single_map_has_an_error_and_nothing_that_cancels() {
        let mut found = RowChange::default();
        let row = |weights: [f32; 2]| MixedRow { effective: weights.to_vec(), maps: None };
        found.add(&row([0.5, 0.5]), &row([1.0, 0.0]));
        assert_eq!((found.error(), found.cancelled()), (Some(1.0), None));
        assert_eq!(RowChange::default().error(), None);
    }

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
