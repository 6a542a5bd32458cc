//! Alternative texts of figures: their titles, and the main numbers of the run.

use super::figure::ReportFigure;
use crate::results::table::ColumnRole;
use crate::results::view::{Sheet, SheetCell};

/// Number of rows of a table that are listed one by one; of more, the least and the most are.
const ROWS: usize = 6;

impl ReportFigure {
    /// Describes the figure: its title, its models, how its numbers were pooled, and the numbers of the main table.
    pub(super) fn alt_text(&self, models: &[String], main: Option<&Sheet>) -> String {
        let title = self.recipe("Title").unwrap_or("Figure").trim_end_matches('.');
        let of = if models.is_empty() { String::new() } else { format!(", for {}", models.join(" and ")) };
        let pooled = self.recipe("pooling").map(|pooling| format!(" ({pooling})")).unwrap_or_default();
        let numbers = main.and_then(main_numbers).map(|numbers| format!(" {numbers}.")).unwrap_or_default();
        format!("{title}{of}{pooled}.{numbers}")
    }
}

/// Returns the numbers of the first column of results of a table: `Answers: diff, 4096 tokens: accuracy 80 % [49, 94]; …`.
fn main_numbers(sheet: &Sheet) -> Option<String> {
    let is_result = |at: &usize| sheet.columns[*at].role == ColumnRole::Result && sheet.columns[*at].number;
    let at = (1..sheet.columns.len()).find(is_result)?;
    let rows: Vec<&Vec<SheetCell>> = sheet.rows.iter().filter(|row| row[at].exact.is_some()).collect();
    let words = |row: &Vec<SheetCell>| {
        let (name, unit) = match sheet.columns[at].heading.strip_suffix(" %") {
            Some(name) => (name, " %"),
            None => (sheet.columns[at].heading.as_str(), ""),
        };
        let number = format!("{name} {}{unit} {}", row[at].text, row[at].aside);
        format!("{}: {}", sheet.about(row), number.trim_end())
    };
    let size = |row: &&&Vec<SheetCell>| row[at].exact.unwrap_or_default();
    let listed = match rows.len() {
        0 => return None,
        1..=ROWS => rows.iter().map(|row| words(row)).collect::<Vec<_>>().join("; "),
        n => {
            let least = rows.iter().min_by(|a, b| size(a).total_cmp(&size(b)))?;
            let most = rows.iter().max_by(|a, b| size(a).total_cmp(&size(b)))?;
            format!("of {n} rows the least is {}; the most {}", words(least), words(most))
        }
    };
    Some(format!("{}: {listed}", sheet.title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::SavedFigure;
    use crate::results::view::{numbers, words};

    fn figure(title: Option<&str>) -> ReportFigure {
        let recipe = title.into_iter().map(|title| ("Title".into(), title.into())).collect();
        ReportFigure { file: "x.png".into(), saved: SavedFigure { size: (1, 1), recipe, bytes: Vec::new() } }
    }

    fn sheet(rows: &[(&str, f64)]) -> Sheet {
        let columns = vec![
            words("model").key(),
            numbers("N").key(),
            numbers("accuracy %").named(crate::results::metric::EXACT.name),
        ];
        let row = |&(model, x): &(&str, f64)| {
            let accuracy = SheetCell { aside: "[1, 99]".into(), ..SheetCell::number(Some(x), |x| format!("{x:.0}")) };
            vec![SheetCell::words(model), SheetCell::count(Some(1)), accuracy]
        };
        Sheet::new("answers", "Answers", String::new(), columns, rows.iter().map(row).collect())
    }

    #[test]
    fn a_figure_is_described_by_its_title_and_the_main_numbers() {
        let alt = figure(Some("Needle retrieval")).alt_text(&["diff".into()], Some(&sheet(&[("diff", 80.0)])));
        assert_eq!(alt, "Needle retrieval, for diff. Answers: diff, N=1: accuracy 80 % [1, 99].");
        assert_eq!(figure(None).alt_text(&[], None), "Figure.");
    }

    #[test]
    fn of_many_rows_the_least_and_the_most_are_listed() {
        let rows: Vec<(&str, f64)> = (0..9).map(|i| (["a", "b", "c"][i % 3], 10.0 * ((i * 4) % 9) as f64)).collect();
        let alt = figure(Some("X")).alt_text(&[], Some(&sheet(&rows)));
        assert!(alt.contains("of 9 rows the least is a, N=1: accuracy 0 % [1, 99]"), "{alt}");
        assert!(alt.contains("; the most c, N=1: accuracy 80 %"), "{alt}");
    }
}
