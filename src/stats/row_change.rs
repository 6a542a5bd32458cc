//! Changes of attention rows from another pass over the same prompt, and whether those of two maps cancel.

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

/// A row and, of two maps, their rows and the weight of the second.
pub type MixedRow<'a> = (&'a [f32], Option<([&'a [f32]; 2], f32)>);

impl RowChange {
    /// Adds a row before and after, over the same keys.
    pub fn add(&mut self, before: MixedRow<'_>, after: MixedRow<'_>) {
        for (&before, &after) in before.0.iter().zip(after.0) {
            self.before += f64::from(before).powi(2);
            self.change += (f64::from(after) - f64::from(before)).powi(2);
        }
        let (Some((before, weight_before)), Some((after, weight_after))) = (before.1, after.1) else { return };
        for i in 0..before[0].len() {
            self.first += (f64::from(after[0][i]) - f64::from(before[0][i])).powi(2);
            let weighted = |weight: f32, row: &[f32]| f64::from(weight) * f64::from(row[i]);
            self.second += (weighted(weight_after, after[1]) - weighted(weight_before, before[1])).powi(2);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The change of a row of two maps with weight -`lambda` by these errors.
    fn changed(lambda: f32, errors: [[f32; 3]; 2]) -> RowChange {
        let maps = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]];
        let add = |errors: [[f32; 3]; 2]| [0, 1].map(|j| [0, 1, 2].map(|i| maps[j][i] + errors[j][i]));
        let mixed = |maps: [[f32; 3]; 2]| [0, 1, 2].map(|i| maps[0][i] - lambda * maps[1][i]);
        let (before, after) = (maps, add(errors));
        let mut found = RowChange::default();
        let row = |maps: &[[f32; 3]; 2]| maps.to_owned();
        let (b, a) = (row(&before), row(&after));
        found.add((&mixed(before), Some(([&b[0], &b[1]], -lambda))), (&mixed(after), Some(([&a[0], &a[1]], -lambda))));
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
        found.add((&[0.5, 0.5], None), (&[1.0, 0.0], None));
        assert_eq!((found.error(), found.cancelled()), (Some(1.0), None));
        assert_eq!(RowChange::default().error(), None);
    }
}
