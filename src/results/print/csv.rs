//! Tables as CSV.

use super::super::table::{Cell, Table, TableColumn};
use super::super::{Column, Row};
use anyhow::Result;
use std::io::Write;

const NUMBERS: [&str; 16] = [
    "unit",
    "n",
    "seeds",
    "cells",
    "mean_baseline",
    "mean_other",
    "diff",
    "lo",
    "hi",
    "detectable",
    "wins",
    "ties",
    "losses",
    "test",
    "p",
    "p_adjusted",
];

/// Writes rows with all their numbers in full; a missing one is an empty field.
pub(crate) fn write_rows(rows: &[Row], groups: &[Column], out: &mut impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let keys = ["baseline", "other", "metric", "region", "level"];
    csv.write_record(keys.into_iter().chain(groups.iter().map(|group| group.name())).chain(NUMBERS))?;
    for row in rows {
        let keys =
            [&row.baseline, &row.other, &row.metric, row.region.as_deref().unwrap_or_default(), row.level.name()];
        let group = groups.iter().map(|group| row.group.get(group.name()).map_or("", String::as_str));
        let numbers = numbers(row);
        csv.write_record(keys.into_iter().chain(group).chain(numbers.iter().map(String::as_str)))?;
    }
    csv.flush()?;
    Ok(())
}

fn numbers(row: &Row) -> [String; 16] {
    let difference = &row.difference;
    [
        row.unit.clone().unwrap_or_default(),
        difference.n.to_string(),
        optional(difference.seeds),
        difference.cells.to_string(),
        difference.mean_baseline.to_string(),
        difference.mean_other.to_string(),
        difference.diff.to_string(),
        optional(difference.lo),
        optional(difference.hi),
        optional(difference.detectable),
        difference.wins.to_string(),
        difference.ties.to_string(),
        difference.losses.to_string(),
        difference.test.map_or("", |test| test.name()).to_owned(),
        optional(difference.p),
        optional(difference.p_adjusted),
    ]
}

fn optional(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// Writes a table with its numbers in full; the ends of the intervals of a column follow as `_lo` and `_hi`, where
/// the column says so.
pub(crate) fn write_table(table: &Table, out: &mut impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let mut header = Vec::new();
    for column in &table.columns {
        header.push(column.name.clone());
        if column.interval {
            header.extend(["_lo", "_hi"].map(|end| format!("{}{end}", column.name)));
        }
    }
    csv.write_record(header)?;
    for row in &table.rows {
        csv.write_record(table.columns.iter().zip(row).flat_map(|(column, cell)| fields(column, cell)))?;
    }
    csv.flush()?;
    Ok(())
}

fn fields(column: &TableColumn, cell: &Cell) -> Vec<String> {
    let mut fields = vec![if column.number { optional(cell.exact) } else { cell.text.clone() }];
    if column.interval {
        fields.push(optional(cell.interval.map(|interval| interval.lo)));
        fields.push(optional(cell.interval.map(|interval| interval.hi)));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::super::super::table::{numbers, words};
    use super::*;
    use crate::stats::Interval;

    #[test]
    fn numbers_are_written_in_full_and_ends_of_intervals_have_columns_of_their_own() {
        let columns =
            vec![words("variant"), numbers("first digits %").named("first_digit").with_interval(), numbers("n")];
        let interval = Some(Interval { lo: 0.25, hi: 0.875 });
        let share = Cell { exact: Some(0.515625), interval, ..Cell::words("52") };
        let rows = vec![
            vec![Cell::words("diff"), share, Cell::count(3)],
            vec![Cell::words("diff-v2"), Cell::none(), Cell::count(0)],
        ];
        let mut out = Vec::new();
        write_table(&Table::new("x", "X", String::new(), columns, rows), &mut out).unwrap();
        let expected =
            "variant,first_digit,first_digit_lo,first_digit_hi,n\ndiff,0.515625,0.25,0.875,3\ndiff-v2,,,,0\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
