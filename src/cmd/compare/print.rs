//! Rows as a table, CSV, JSON or Markdown.

use super::in_short;
use crate::cli::{CompareArgs, Format};
use crate::compare::{Comparison, Correction, Row};
use crate::report::markdown_table;
use crate::stats::{Interval, LEVEL, RESAMPLES};
use crate::table::{unsigned_zero, Role};
use crate::tables::{numbers, table, words, Cell, Column, Sheet};
use anyhow::Result;
use serde_json::json;
use std::io::Write;

/// Prints the rows on stdout.
pub(super) fn print(comparison: &Comparison, args: &CompareArgs) -> Result<()> {
    let mut out = crate::terminal::stdout();
    match args.format {
        Format::Table => writeln!(out, "{}", table(&sheet(comparison, args.correction)))?,
        Format::Csv => write_csv(comparison, &mut out)?,
        Format::Json => writeln!(out, "{:#}", json_of(comparison, args))?,
        Format::Markdown => write!(out, "{}", markdown_table(&sheet(comparison, args.correction)))?,
    }
    out.flush()?;
    Ok(())
}

/// A column of rows: its head, and what stands under it.
struct Shown {
    head: Column,
    cell: Box<dyn Fn(&Row) -> String>,
}

impl Shown {
    fn words(heading: &'static str, cell: impl Fn(&Row) -> String + 'static) -> Self {
        Self { head: words(heading), cell: Box::new(cell) }
    }

    fn number(heading: &'static str, cell: impl Fn(&Row) -> String + 'static) -> Self {
        Self { head: numbers(heading), cell: Box::new(cell) }
    }

    fn with(self, role: Role) -> Self {
        Self { head: self.head.with(role), ..self }
    }

    fn of(&self, row: &Row) -> Cell {
        let text = (self.cell)(row);
        // Sorted by the number that it begins with.
        let exact = text.split([' ', '/']).next().and_then(|first| first.trim_start_matches('<').parse().ok());
        Cell { exact: exact.filter(|_| self.head.number), ..Cell::words(text) }
    }
}

/// What all tables of rows show.
fn columns(comparison: &Comparison, correction: Correction) -> Vec<Shown> {
    let rows = &comparison.rows;
    let mut columns = vec![
        Shown::words("metric", Row::name).with(Role::Key),
        Shown::words("compared", |row| format!("{} - {}", row.other, row.baseline)).with(Role::Part),
    ];
    for group in &comparison.groups {
        let name = group.name();
        let value = move |row: &Row| row.group.get(name).cloned().unwrap_or_default();
        let shown = if group.is_text() { Shown::words(name, value) } else { Shown::number(name, value) };
        columns.push(shown.with(Role::Key));
    }
    if rows.iter().any(|row| row.level != rows[0].level) {
        columns.push(Shown::words("of", |row| row.level.name().to_owned()).with(Role::Key));
    }
    if rows.iter().any(|row| row.seeds.is_some()) {
        let seeds = Shown::number("seeds", |row| row.seeds.map_or("-".to_owned(), |n| n.to_string()));
        columns.push(seeds.with(Role::Basis));
    }
    columns.extend([
        Shown::words("unit", |row| row.unit.clone().unwrap_or_default()).with(Role::Basis),
        Shown::number("n", |row| row.n.to_string()).with(Role::Basis),
        Shown::number("cells", |row| row.cells.to_string()).with(Role::Basis),
        Shown::number("baseline", |row| fixed(row.mean_baseline, decimals(row))),
        Shown::number("other", |row| fixed(row.mean_other, decimals(row))),
        Shown::number("difference [95 %]", difference),
        Shown::number("detectable", |row| row.detectable.map_or("-".to_owned(), |size| fixed(size, decimals(row)))),
        Shown::number("wins/ties/losses", |row| format!("{}/{}/{}", row.wins, row.ties, row.losses)),
        Shown::words("test", |row| row.test.map_or("-", |test| test.name()).to_owned()).with(Role::Basis),
        Shown::number(p_heading(correction), |row| row.p_adjusted.map_or("-".to_owned(), p_value)),
    ]);
    if rows.iter().any(|row| row.needed.is_some()) {
        columns.push(Shown::number("n needed", |row| row.needed.map_or("-".to_owned(), |n| n.to_string())));
    }
    columns
}

/// The table, for terminals, Markdown and reports. Models leave out the folders that all of them lie in.
pub(in crate::cmd) fn sheet(comparison: &Comparison, correction: Correction) -> Sheet {
    let columns = columns(comparison, correction);
    let rows = in_short(&comparison.rows);
    let rows = rows.iter().map(|row| columns.iter().map(|column| column.of(row)).collect()).collect();
    let note =
        "Means over prompts, and their paired difference [95 % bootstrap interval]. Detectable: the smallest true \
                difference that so many prompts would have shown with 80 % power.";
    let heads = columns.into_iter().map(|column| column.head).collect();
    Sheet::new("compared", "Differences", note.to_owned(), heads, rows)
}

fn p_heading(correction: Correction) -> &'static str {
    match correction {
        Correction::Holm => "p (holm)",
        Correction::Bh => "p (bh)",
        Correction::None => "p",
    }
}

/// All numbers in full; a missing one is an empty field.
fn write_csv(comparison: &Comparison, out: &mut impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let groups = comparison.groups.iter().map(|group| group.name());
    let numbers =
        "unit,n,seeds,cells,mean_baseline,mean_other,diff,lo,hi,detectable,needed,wins,ties,losses,test,p,p_adjusted";
    let names = ["baseline", "other", "metric", "region", "level"];
    csv.write_record(names.into_iter().chain(groups).chain(numbers.split(',')))?;
    for row in &comparison.rows {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let optional = |number: Option<f64>| number.map(|x| x.to_string()).unwrap_or_default();
        let level = row.level.name().to_owned();
        let mut fields = vec![row.baseline.clone(), row.other.clone(), row.metric.clone(), text(&row.region), level];
        fields.extend(comparison.groups.iter().map(|group| row.group.get(group.name()).cloned().unwrap_or_default()));
        fields.extend([text(&row.unit), row.n.to_string()]);
        fields.push(row.seeds.map(|n| n.to_string()).unwrap_or_default());
        fields.push(row.cells.to_string());
        fields.extend([row.mean_baseline, row.mean_other, row.diff].map(|x| x.to_string()));
        fields.extend([optional(row.lo), optional(row.hi), optional(row.detectable)]);
        fields.push(row.needed.map(|n| n.to_string()).unwrap_or_default());
        fields.extend([row.wins, row.ties, row.losses].map(|n| n.to_string()));
        fields.push(row.test.map_or("", |test| test.name()).to_owned());
        fields.extend([optional(row.p), optional(row.p_adjusted)]);
        csv.write_record(fields)?;
    }
    csv.flush()?;
    Ok(())
}

fn json_of(comparison: &Comparison, args: &CompareArgs) -> serde_json::Value {
    let inputs: Vec<_> = comparison
        .inputs
        .iter()
        .map(|(input, counts)| {
            json!({
                "name": input.name,
                "results": input.results.display().to_string(),
                "has_manifest": input.manifest.is_some(),
                "records": counts.records,
                "compared": counts.kept,
                "errors": counts.errors,
                "missing": counts.missing,
            })
        })
        .collect();
    let differ: Vec<_> =
        comparison.differences.iter().map(|(other, list)| json!({ "other": other, "in": list })).collect();
    json!({
        "inputs": inputs,
        "manifests_differ": differ,
        "pairings": comparison.pairings,
        "notes": comparison.notes,
        "level": LEVEL,
        "resamples": RESAMPLES,
        "seed": args.seed,
        "replicates": args.replicates.as_ref().map(ToString::to_string),
        "correction": args.correction,
        "rows": comparison.rows,
    })
}

/// Decimals that show a row's interval to two digits, or its numbers to four where there is none.
fn decimals(row: &Row) -> usize {
    let width = row.lo.zip(row.hi).map_or(0.0, |(lo, hi)| hi - lo);
    let largest = row.mean_baseline.abs().max(row.mean_other.abs());
    // Equal differences of unequal numbers differ by their rounding.
    let (size, digits) = if width > 1e-9 * largest { (width, 2) } else { (largest, 4) };
    if size <= 0.0 || !size.is_finite() {
        return 1;
    }
    (digits - 1 - size.log10().floor() as i32).clamp(0, 9) as usize
}

fn fixed(x: f64, decimals: usize) -> String {
    format!("{:.*}", decimals, unsigned_zero(x, decimals))
}

/// A difference with its interval: `+0.032 [-0.010, +0.054]`.
pub(super) fn difference(row: &Row) -> String {
    let decimals = decimals(row);
    let signed = |x: f64| format!("{:+.*}", decimals, unsigned_zero(x, decimals));
    match row.lo.zip(row.hi) {
        Some((lo, hi)) if (Interval { lo, hi }).is_point() => format!("{} [-]", signed(row.diff)),
        Some((lo, hi)) => format!("{} [{}, {}]", signed(row.diff), signed(lo), signed(hi)),
        None => signed(row.diff),
    }
}

/// The means and their difference: `0.90 - 0.95 = -0.05 [-0.09, -0.01]`.
pub(super) fn equation(row: &Row) -> String {
    let mean = |x: f64| fixed(x, decimals(row));
    format!("{} - {} = {}", mean(row.mean_other), mean(row.mean_baseline), difference(row))
}

/// A p-value to three decimals.
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

    fn row(diff: f64, lo: f64, hi: f64) -> Row {
        Row { mean_baseline: -0.5, diff, lo: Some(lo), hi: Some(hi), ..Row::default() }
    }

    #[test]
    fn numbers_have_the_digits_that_their_interval_is_worth() {
        assert_eq!(difference(&row(0.03219, -0.0104, 0.0541)), "+0.032 [-0.010, +0.054]");
        assert_eq!(difference(&row(-12.34, -20.0, -5.0)), "-12 [-20, -5]");
        assert_eq!(difference(&row(-0.0001, -0.01, 0.01)), "+0.000 [-0.010, +0.010]");
        assert_eq!(difference(&row(0.0, 0.0, 0.0)), "+0.0000 [-]");
        assert_eq!(difference(&row(0.125, 0.125, 0.125 + 1e-17)), "+0.1250 [-]");
        assert_eq!(difference(&Row { diff: 0.25, ..Row::default() }), "+0.2");
    }

    #[test]
    fn a_tiny_p_value_is_not_zero() {
        assert_eq!((p_value(0.0), p_value(0.0314)), ("<0.001".to_owned(), "0.031".to_owned()));
    }
}
