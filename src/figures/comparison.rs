//! Differences as panels of a forest.

use crate::results::differences::{difference_cell, group_value};
use crate::results::screen::column_words;
use crate::results::{Compared, Difference, Row};
use names::condition::condition_words;
use names::{distinct, Column};
use plot::{ForestPanel, ForestRow, PointEstimate};

/// A panel for each metric and region of rows, labelled with the groups that tell its rows apart.
pub(crate) fn panels_of_rows(rows: &[Row], groups: &[Column]) -> Vec<ForestPanel> {
    rows.chunk_by(|a, b| a.name() == b.name()).map(|rows| panel_of_metric(rows, groups)).collect()
}

/// The panel of rows with the same metric and region. Rows are named by what has more values, what is compared or the
/// groups, and coloured by the other; rows with one name are next to each other.
fn panel_of_metric(rows: &[Row], groups: &[Column]) -> ForestPanel {
    let mut groups = groups.to_vec();
    groups.retain(|column| rows.iter().any(|row| row.group.get(column.name()) != rows[0].group.get(column.name())));
    let label = rows[0].label();
    let has_one_baseline = rows.iter().all(|row| row.baseline == rows[0].baseline);
    let mut drawn = Vec::new();
    for row in rows {
        let values = groups.iter().filter_map(|&column| group_value(row, column));
        let values: Vec<String> = values.map(|value| compared_words(&value)).collect();
        let mut other = compared_words(&row.other);
        if !has_one_baseline {
            other += &format!(" less {}", compared_words(&row.baseline));
        }
        drawn.push(ForestRow {
            label: if values.is_empty() { other.clone() } else { values.join(" · ") },
            series: other,
            difference: scaled_difference(&row.difference, label.kind.factor()),
            text: difference_cell(row).line().replace('-', "−"),
        });
    }
    let labels = distinct(drawn.iter().map(|row| &row.label));
    if distinct(drawn.iter().map(|row| &row.series)).len() > labels.len() {
        drawn.iter_mut().for_each(|row| std::mem::swap(&mut row.label, &mut row.series));
    }
    let labels = distinct(drawn.iter().map(|row| &row.label));
    drawn.sort_by_key(|row| labels.iter().position(|label| *label == row.label));
    ForestPanel { title: label.text.clone(), unit: label.difference_unit().to_owned(), rows: drawn }
}

/// A difference, multiplied by a factor.
fn scaled_difference(difference: &Difference, factor: f64) -> PointEstimate {
    let interval = difference.interval().map(|interval| (factor * interval.lo, factor * interval.hi));
    PointEstimate { value: factor * difference.diff, interval }
}

/// Words for what is compared, or for the value of a group: `512 tokens` for `ctx_tok=512`.
pub(crate) fn compared_words(compared: &Compared) -> String {
    match compared {
        Compared::Named(name) => condition_words(name),
        Compared::Value(Column::Condition, condition) if condition == "none" => "the untreated passes".to_owned(),
        Compared::Value(Column::Condition, condition) => condition_words(condition),
        Compared::Value(column, value) => column_words(*column, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_what_has_more_values_and_coloured_by_the_other() {
        let named = |models: &[&str]| {
            let mut rows = Vec::new();
            for &model in models {
                for condition in ["mask(noise)", "mask(distractor)", "silence(noise)"] {
                    let group = [("model".to_owned(), model.to_owned())].into();
                    let other = Compared::Value(Column::Condition, condition.to_owned());
                    let metric = "accuracy".to_owned();
                    rows.push(Row { other, group, metric, ..Row::default() });
                }
            }
            let panel = panels_of_rows(&rows, &[Column::Model]).remove(0);
            panel.rows.into_iter().map(|row| format!("{}: {}", row.label, row.series)).collect::<Vec<_>>()
        };
        assert_eq!(named(&["a"])[..2], ["noise hidden: noise hidden", "other needles hidden: other needles hidden"]);
        assert_eq!(named(&["a", "b"])[..2], ["noise hidden: a", "noise hidden: b"]);
        assert_eq!(named(&["a", "b", "c"])[..2], ["a: noise hidden", "a: other needles hidden"]);
    }

    #[test]
    fn rows_of_several_baselines_are_named_by_both_sides_and_so_have_one_colour() {
        let row = |other: &str, baseline: &str| Row {
            other: other.into(),
            baseline: baseline.into(),
            metric: "accuracy".to_owned(),
            ..Row::default()
        };
        let rows = [row("diff, 4 bits", "diff, exact"), row("diff, 4 bits", "transformer, 4 bits")];
        let panel = panels_of_rows(&rows, &[]).remove(0);
        let names: Vec<&str> = panel.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(names, ["diff, 4 bits less diff, exact", "diff, 4 bits less transformer, 4 bits"]);
        assert!(panel.rows.iter().all(|row| row.series == row.label));
    }
}
