//! Figures of a report, ready to be embedded, with alternative texts: their titles, and the main numbers of the run.

use crate::figures::{forest, FigureHeading, ForestPanel, Page, SavedFigure};
use crate::results::table::{Cell, ColumnRole, Table};
use crate::results::{Column, Row};
use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::path::Path;

/// A PNG file.
#[derive(Debug)]
pub(super) struct ReportFigure {
    /// Its name in the run folder.
    pub(super) file: String,
    pub(super) saved: SavedFigure,
}

impl ReportFigure {
    /// Reads a PNG and the recipe that it carries.
    pub(super) fn read(path: &Path, file: &str) -> Result<Self> {
        Ok(Self { file: file.to_owned(), saved: SavedFigure::read(path)? })
    }

    /// Draws the forest plot of rows; `None` where there is nothing to draw, as of a single prompt, which gives no interval.
    pub(super) fn forest(rows: &[Row], groups: &[Column]) -> Option<Self> {
        rows.iter().find(|row| row.difference.interval().is_some())?;
        let title = "Differences on the same prompts, with 95 % intervals";
        let heading = FigureHeading { title, subtitle: "other less baseline", page: Page::default() };
        let figure = forest(&ForestPanel::of_rows(rows, groups), &heading, "difference").ok()?;
        let bytes = figure.png(&[("Title".to_owned(), title.to_owned())]).ok()?;
        Some(Self { file: "differences".to_owned(), saved: SavedFigure::parse(bytes).ok()? })
    }

    /// Returns a text of its recipe.
    pub(super) fn recipe(&self, wanted: &str) -> Option<&str> {
        self.saved.recipe.iter().find(|(keyword, _)| keyword == wanted).map(|(_, text)| text.as_str())
    }

    /// Returns `data:image/png;base64,…`.
    pub(super) fn uri(&self) -> String {
        format!("data:image/png;base64,{}", STANDARD.encode(&self.saved.bytes))
    }

    /// Describes the figure: its title, its models, how its numbers were pooled, and the numbers of the main table.
    pub(super) fn alt_text(&self, models: &[String], main: Option<&Table>) -> String {
        let title = self.recipe("Title").unwrap_or("Figure").trim_end_matches('.');
        let models = if models.is_empty() { String::new() } else { format!(", for {}", models.join(" and ")) };
        let pooled = self.recipe("pooling").map(|pooling| format!(" ({pooling})")).unwrap_or_default();
        let numbers = main.and_then(main_numbers).map(|numbers| format!(" {numbers}.")).unwrap_or_default();
        format!("{title}{models}{pooled}.{numbers}")
    }
}

/// Number of rows of a table that are listed one by one; of more, the least and the most are.
const ROWS: usize = 6;

/// Returns the numbers of the first column of results of a table: `Answers: diff, 4096 tokens: accuracy 80 % [49, 94]; …`.
fn main_numbers(table: &Table) -> Option<String> {
    let mut columns = table.columns.iter().enumerate().skip(1);
    let (at, column) = columns.find(|(_, column)| column.role == ColumnRole::Result && column.number)?;
    let (name, unit) = match column.heading.strip_suffix(" %") {
        Some(name) => (name, " %"),
        None => (column.heading.as_str(), ""),
    };
    // (number in full, words) of each row
    let mut rows: Vec<(f64, String)> = Vec::new();
    for row in &table.rows {
        let Cell { text, aside, .. } = &row[at];
        if let Some(exact) = row[at].exact {
            let words = format!("{}: {name} {text}{unit} {aside}", table.about(row));
            rows.push((exact, words.trim_end().to_owned()));
        }
    }
    let listed = match rows.len() {
        1..=ROWS => rows.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join("; "),
        n => {
            let (_, least) = rows.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
            let (_, most) = rows.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
            format!("of {n} rows the least is {least}; the most {most}")
        }
    };
    Some(format!("{}: {listed}", table.title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::table::{numbers, words};

    fn figure(title: Option<&str>) -> ReportFigure {
        let recipe = title.into_iter().map(|title| ("Title".into(), title.into())).collect();
        ReportFigure { file: "x.png".into(), saved: SavedFigure { size: (1, 1), recipe, bytes: Vec::new() } }
    }

    fn table(rows: &[(&str, f64)]) -> Table {
        let columns = vec![
            words("model").key(),
            numbers("N").key(),
            numbers("accuracy %").named(crate::results::metric::EXACT.name),
        ];
        let rows = rows.iter().map(|&(model, x)| {
            let accuracy = Cell { aside: "[1, 99]".into(), ..Cell::number(Some(x), |x| format!("{x:.0}")) };
            vec![Cell::words(model), Cell::count(1), accuracy]
        });
        Table::new("answers", "Answers", String::new(), columns, rows.collect())
    }

    #[test]
    fn a_figure_is_described_by_its_title_and_the_main_numbers() {
        let alt = figure(Some("Needle retrieval")).alt_text(&["diff".into()], Some(&table(&[("diff", 80.0)])));
        assert_eq!(alt, "Needle retrieval, for diff. Answers: diff, N=1: accuracy 80 % [1, 99].");
        assert_eq!(figure(None).alt_text(&[], None), "Figure.");
    }

    #[test]
    fn of_many_rows_the_least_and_the_most_are_listed() {
        let rows: Vec<(&str, f64)> = (0..9).map(|i| (["a", "b", "c"][i % 3], 10.0 * ((i * 4) % 9) as f64)).collect();
        let alt = figure(Some("X")).alt_text(&[], Some(&table(&rows)));
        assert!(alt.contains("of 9 rows the least is a, N=1: accuracy 0 % [1, 99]"), "{alt}");
        assert!(alt.contains("; the most c, N=1: accuracy 80 %"), "{alt}");
    }
}
