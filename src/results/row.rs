//! Rows of tables of differences: one difference for each metric, region, group and pair of sides.

use super::compare::Level;
use super::difference::Difference;
use super::metric::Label;
use super::record::metric_name;
use crate::stats::holm;
use serde::Serialize;
use std::collections::BTreeMap;

/// How `other` differs from `baseline` in one metric of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Name of the baseline.
    pub baseline: String,
    /// Name of the other side.
    pub other: String,
    /// Columns and their values, in the order of the groups; a missing value is `none`.
    pub group: BTreeMap<String, String>,
    /// Name of the metric.
    pub metric: String,
    /// Part of the prompt.
    pub region: Option<String>,
    /// Model, layer or head.
    pub level: Level,
    /// Unit of the means and of the difference.
    pub unit: Option<String>,
    /// The difference, with its interval and test.
    #[serde(flatten)]
    pub difference: Difference,
}

impl Row {
    /// Metric and region: `share_abs[answer]`.
    pub fn name(&self) -> String {
        metric_name(&self.metric, self.region.as_deref())
    }

    /// The metric as tables name it.
    pub fn label(&self) -> Label {
        Label::named(&self.metric, self.region.as_deref(), self.unit.as_deref())
    }
}

/// Corrects the p-values of all rows as one family (Holm): whoever reads the table looks at all of them.
pub(crate) fn correct(rows: &mut [Row]) {
    let adjusted = holm(&rows.iter().filter_map(|row| row.difference.p).collect::<Vec<f64>>());
    for (row, adjusted) in rows.iter_mut().filter(|row| row.difference.p.is_some()).zip(adjusted) {
        row.difference.p_adjusted = Some(adjusted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_one_family() {
        let row = |p: Option<f64>| Row { difference: Difference { p, ..Difference::default() }, ..Row::default() };
        let mut rows = [row(Some(0.01)), row(None), row(Some(0.04)), row(Some(0.03))];
        correct(&mut rows);
        // statsmodels 0.15.0: multipletests([0.01, 0.04, 0.03], method="holm")[1]
        let found: Vec<f64> = rows.iter().filter_map(|row| row.difference.p_adjusted).collect();
        assert!(found.iter().zip([0.03, 0.06, 0.06]).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
    }
}
