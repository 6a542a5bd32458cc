//! Paired differences as a table: the same for runs, comparisons and reports.

use crate::results::run_table::{Content, RunTable};
use crate::results::table::{basis, numbers, words, Cell, ColumnRole, Table, TableColumn, TableRows};
use crate::results::{within, Column, Difference, Frame, Row, Test, Verdict};

/// The columns of a table of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The difference with its interval, and the verdict.
    Verdict,
    /// Also the means, the power and the test.
    Full,
}

pub(crate) const DIFFERENCES: RunTable =
    RunTable { id: "differences", title: "Differences", note: "", content: Content::Made(of_run) };

/// All differences of models and conditions of a run.
fn of_run(frame: &Frame) -> Option<Table> {
    differences(&frame.rows(None), &within::GROUPS, Detail::Full)
}

/// Builds the table of rows, which have a column for each group.
pub(crate) fn differences(rows: &[Row], groups: &[Column], detail: Detail) -> Option<Table> {
    let is_full = detail == Detail::Full;
    let mut table = TableRows::of(rows)
        .column(words("metric").key(), |row| Cell::words(row.label().comparison_heading()))
        .column(words("difference").with(ColumnRole::Part), |row| {
            Cell::words(format!("{} - {}", row.other, row.baseline))
        });
    for &group in groups {
        table = table.column(group_column(group), |row| group_cell(row, group));
    }
    let several_levels = rows.iter().any(|row| row.level != rows[0].level);
    let has_seeds = rows.iter().any(|row| row.difference.seeds.is_some());
    table
        .column_if(several_levels, words("of").key(), |row| Cell::words(row.level.name()))
        .column_if(has_seeds, basis("seeds"), |row| Cell::optional(row.difference.seeds))
        .column(basis("prompts").named("n"), |row| Cell::count(row.difference.n))
        .column_if(is_full, basis("cases"), |row| Cell::count(row.difference.cases))
        .column_if(is_full, numbers("baseline"), |row| mean(row, Some(row.difference.mean_baseline)))
        .column_if(is_full, numbers("other"), |row| mean(row, Some(row.difference.mean_other)))
        .column(numbers("change [95 %]").named("diff"), difference_cell)
        .column(words("verdict"), |row| Cell::words(row.difference.verdict().name()))
        .column_if(is_full, numbers("detectable"), |row| mean(row, row.difference.detectable))
        .column_if(is_full, numbers("wins/ties/losses"), |row| {
            let Difference { wins, ties, losses, .. } = row.difference;
            Cell::words(format!("{wins}/{ties}/{losses}"))
        })
        .column_if(is_full, words("test").with(ColumnRole::Basis), |row| {
            Cell::optional_words(row.difference.test.map(Test::name))
        })
        .column_if(is_full, numbers("p (holm)").named("p_adjusted"), |row| {
            Cell::number(row.difference.p_adjusted, p_value)
        })
        .table(
            "differences",
            "Differences",
            format!(
                "The same prompts, other less baseline [95 % interval]; fractions in percentage points. {}",
                Verdict::RULE
            ),
        )
        .trimmed()
}

/// The column of a group: its heading is short where cases have a short one.
fn group_column(group: Column) -> TableColumn {
    let heading = match group {
        Column::CtxTok => "tokens",
        Column::Needles => "N",
        Column::Retrieve => "R",
        _ => group.name(),
    };
    let head = if group.is_text() { words(heading) } else { numbers(heading) };
    head.named(group.name()).key()
}

fn group_cell(row: &Row, group: Column) -> Cell {
    let text = row.group.get(group.name()).cloned().unwrap_or_default();
    let exact = text.parse().ok().filter(|_| !group.is_text());
    Cell { exact, ..Cell::words(text) }
}

/// A mean in the unit of its difference: fractions in percent.
fn mean(row: &Row, x: Option<f64>) -> Cell {
    Cell::value(row.label().kind, x, None)
}

/// Returns the difference of a row with its interval: `+12 [+2, +22]`.
pub(crate) fn difference_cell(row: &Row) -> Cell {
    Cell::difference(row.label().kind, &row.difference)
}

/// Returns the value of a row in a group, in words: `diff`, or `ctx_tok=4096`.
pub(crate) fn group_value(row: &Row, column: Column) -> Option<String> {
    let value = row.group.get(column.name())?;
    Some(if column.is_text() && value != "none" { value.clone() } else { format!("{column}={value}") })
}

/// Formats a p-value with three decimals.
fn p_value(p: f64) -> String {
    if p < 0.001 {
        "<0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_p_value_is_not_zero() {
        assert_eq!((p_value(0.0), p_value(0.0314)), ("<0.001".to_owned(), "0.031".to_owned()));
    }

    #[test]
    fn a_row_has_its_difference_in_points_and_a_verdict() {
        let difference = Difference {
            n: 30,
            diff: 0.117,
            lo: Some(0.017),
            hi: Some(0.217),
            p_adjusted: Some(0.04),
            ..Difference::default()
        };
        let row = Row {
            metric: crate::results::metric::ACCURACY.name.into(),
            baseline: "transformer".into(),
            other: "diff".into(),
            group: [("needles".to_owned(), "4".to_owned())].into(),
            difference,
            ..Row::default()
        };
        let table = differences(&[row], &[Column::Needles], Detail::Verdict).unwrap();
        let line: Vec<String> = table.rows[0].iter().map(Cell::line).collect();
        assert_eq!(line, ["accuracy", "diff - transformer", "4", "30", "+12 [+2, +22]", "higher"]);
    }
}
