//! Tables as CSV.

use super::super::view::{Sheet, SheetCell, SheetColumn};
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
        let group = groups.iter().map(|group| row.group.get(group.name()).cloned().unwrap_or_default());
        let keys = [&row.baseline, &row.other, &row.metric].map(Clone::clone).into_iter();
        let keys = keys.chain([row.region.clone().unwrap_or_default(), row.level.name().to_owned()]);
        csv.write_record(keys.chain(group).chain(numbers(row)))?;
    }
    csv.flush()?;
    Ok(())
}

fn numbers(row: &Row) -> [String; 16] {
    let found = &row.difference;
    let optional = |number: Option<f64>| number.map(|x| x.to_string()).unwrap_or_default();
    [
        row.unit.clone().unwrap_or_default(),
        found.n.to_string(),
        found.seeds.map(|n| n.to_string()).unwrap_or_default(),
        found.cells.to_string(),
        found.mean_baseline.to_string(),
        found.mean_other.to_string(),
        found.diff.to_string(),
        optional(found.lo),
        optional(found.hi),
        optional(found.detectable),
        found.wins.to_string(),
        found.ties.to_string(),
        found.losses.to_string(),
        found.test.map_or("", |test| test.name()).to_owned(),
        optional(found.p),
        optional(found.p_adjusted),
    ]
}

/// Writes a table with its numbers in full; the ends of the intervals of a column follow as `_lo` and `_hi`, where
/// the column says so.
pub(crate) fn write_sheet(sheet: &Sheet, out: &mut impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let names = |column: &SheetColumn| {
        let ends = if column.interval { &["_lo", "_hi"][..] } else { &[] };
        [""].iter().chain(ends).map(|end| format!("{}{end}", column.name)).collect::<Vec<_>>()
    };
    csv.write_record(sheet.columns.iter().flat_map(names))?;
    for row in &sheet.rows {
        csv.write_record(sheet.columns.iter().zip(row).flat_map(|(column, cell)| fields(column, cell)))?;
    }
    csv.flush()?;
    Ok(())
}

fn fields(column: &SheetColumn, cell: &SheetCell) -> Vec<String> {
    let text = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    let value = if column.number { text(cell.exact) } else { cell.text.clone() };
    if !column.interval {
        return vec![value];
    }
    vec![value, text(cell.interval.map(|interval| interval.lo)), text(cell.interval.map(|interval| interval.hi))]
}

#[cfg(test)]
mod tests {
    use super::super::super::view::{numbers, words};
    use super::*;
    use crate::stats::Interval;

    #[test]
    fn numbers_are_written_in_full_and_ends_of_intervals_have_columns_of_their_own() {
        let columns =
            vec![words("variant"), numbers("first digits %").named("first_digit").with_interval(), numbers("n")];
        let interval = Some(Interval { lo: 0.25, hi: 0.875 });
        let share = SheetCell { exact: Some(0.515625), interval, ..SheetCell::words("52") };
        let rows = vec![
            vec![SheetCell::words("diff"), share, SheetCell::count(Some(3))],
            vec![SheetCell::words("diff-v2"), SheetCell::none(), SheetCell::count(Some(0))],
        ];
        let mut out = Vec::new();
        write_sheet(&Sheet::new("x", "X", String::new(), columns, rows), &mut out).unwrap();
        let expected =
            "variant,first_digit,first_digit_lo,first_digit_hi,n\ndiff,0.515625,0.25,0.875,3\ndiff-v2,,,,0\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
