//! Paired differences as a table: the same for runs, comparisons and reports.

use crate::results::table::ColumnRole;
use crate::results::table::{basis, numbers, words, Cell, Table, TableColumn};
use crate::results::{Column, Difference, Row};

/// The columns of a table of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The difference with its interval, and the verdict.
    Verdict,
    /// Also the means, the power and the test.
    Full,
}

/// A column of rows.
struct RowColumn {
    column: TableColumn,
    cell: Box<dyn Fn(&Row) -> Cell>,
}

fn column(column: TableColumn, cell: impl Fn(&Row) -> Cell + 'static) -> RowColumn {
    RowColumn { column, cell: Box::new(cell) }
}

/// Builds the table of rows, which have a column for each group.
pub(crate) fn differences(rows: &[Row], groups: &[Column], detail: Detail) -> Option<Table> {
    let mut columns = vec![
        column(words("metric").key(), |row| Cell::words(row.label().comparison_heading())),
        column(words("difference").with(ColumnRole::Part), |row| {
            Cell::words(format!("{} - {}", row.other, row.baseline))
        }),
    ];
    columns.extend(groups.iter().map(|&group| group_column(group)));
    if rows.iter().any(|row| row.level != rows[0].level) {
        columns.push(column(words("of").key(), |row| Cell::words(row.level.name())));
    }
    if rows.iter().any(|row| row.difference.seeds.is_some()) {
        columns.push(column(basis("seeds"), |row| Cell::optional(row.difference.seeds)));
    }
    columns.push(column(basis("prompts").named("n"), |row| Cell::count(row.difference.n)));
    if detail == Detail::Full {
        columns.push(column(basis("cells"), |row| Cell::count(row.difference.cells)));
        columns.push(column(numbers("baseline"), |row| mean(row, row.difference.mean_baseline)));
        columns.push(column(numbers("other"), |row| mean(row, row.difference.mean_other)));
    }
    columns.push(column(numbers("change [95 %]").named("diff"), difference_cell));
    columns.push(column(words("verdict"), |row| Cell::words(row.difference.verdict().name())));
    if detail == Detail::Full {
        columns.extend(power_and_test());
    }
    let note = "The same prompts, other less baseline [95 % interval]; fractions in percentage points.".to_owned();
    let rows = rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row)).collect()).collect();
    let heads = columns.into_iter().map(|column| column.column).collect();
    Table::new("differences", "Differences", note, heads, rows).trimmed()
}

/// The column of a group: its heading is short where cases have a short one.
fn group_column(group: Column) -> RowColumn {
    let name = group.name();
    let heading = match group {
        Column::CtxTok => "tokens",
        Column::Needles => "N",
        Column::Retrieve => "R",
        _ => name,
    };
    let head = if group.is_text() { words(heading) } else { numbers(heading) };
    column(head.named(name).key(), move |row| {
        let text = row.group.get(name).cloned().unwrap_or_default();
        let exact = text.parse().ok().filter(|_| !group.is_text());
        Cell { exact, ..Cell::words(text) }
    })
}

fn power_and_test() -> Vec<RowColumn> {
    vec![
        column(numbers("detectable"), |row| row.difference.detectable.map_or_else(Cell::none, |size| mean(row, size))),
        column(numbers("wins/ties/losses"), |row| {
            let Difference { wins, ties, losses, .. } = row.difference;
            Cell::words(format!("{wins}/{ties}/{losses}"))
        }),
        column(words("test").with(ColumnRole::Basis), |row| {
            row.difference.test.map_or_else(Cell::none, |test| Cell::words(test.name()))
        }),
        column(numbers("p (holm)").named("p_adjusted"), |row| Cell::number(row.difference.p_adjusted, p_value)),
    ]
}

/// A mean in the unit of its difference: fractions in percent.
fn mean(row: &Row, x: f64) -> Cell {
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
        let difference = Difference { n: 30, diff: 0.117, lo: Some(0.017), hi: Some(0.217), ..Difference::default() };
        let row = Row {
            metric: crate::results::metric::EXACT.name.into(),
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
