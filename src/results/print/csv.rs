//! Tables as CSV.

use super::super::record::fields;
use super::super::table::{Cell, Table, TableColumn};
use super::super::{Difference, Row};
use anyhow::Result;
use names::Column;
use std::io::Write;

/// Writes rows with all their numbers in full; a missing one is an empty field.
pub(crate) fn write_rows(rows: &[Row], groups: &[Column], out: &mut impl Write) -> Result<()> {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    let keys = ["baseline", "other", "metric", "region", "level"].map(str::to_owned);
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    csv.write_record([&keys[..], &groups, &["unit".to_owned()], &fields(&Difference::default())].concat())?;
    for row in rows {
        let Row { baseline, other, group, metric, region, level, unit, difference } = row;
        let group: Vec<Option<&String>> = groups.iter().map(|column| group.get(column)).collect();
        csv.serialize((baseline, other, metric, region, level, group, unit, difference))?;
    }
    csv.flush()?;
    Ok(())
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
        csv.write_record(table.columns.iter().zip(row).flat_map(|(column, cell)| fields_of(column, cell)))?;
    }
    csv.flush()?;
    Ok(())
}

fn fields_of(column: &TableColumn, cell: &Cell) -> Vec<String> {
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
    use stats::Interval;

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
