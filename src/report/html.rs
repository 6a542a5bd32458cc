//! Sections as one HTML file that needs no network and asks for none.

use super::facts::{self, Fact};
use super::figure::ReportFigure;
use super::{ComparedRuns, Report, Section};
use crate::base::html::{self, PageCode, Template};
use crate::base::terminal::escaped_lines;
use crate::explore;
use crate::results::view::{Sheet, SheetCell, SheetColumn};
use anyhow::Result;
use minijinja::{context, Value};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(include_str!("script.js"), include_str!("explorer.js"));

const PAGE: Template = ("page.html", include_str!("page.html"));
const PARTS: [Template; 2] = [("figure.html", include_str!("figure.html")), ("sheet.html", include_str!("sheet.html"))];

/// The page as text.
///
/// # Errors
/// If the template cannot be filled in.
pub fn html(report: &Report) -> Result<String> {
    let own = PageCode { style: STYLE, script: SCRIPT };
    let compared = report.compared.iter().filter(|compared| compared.sheet.is_some()).count();
    let values = context! {
        head => html::head(&report.title, &own, Some(&explore::CODE)),
        script => SCRIPT,
        tables => compared + report.sections.iter().map(|section| section.all_tables().count()).sum::<usize>(),
        compared => report.compared.as_ref().map(ComparedRuns::values),
        sections => list(&report.sections, Section::values),
    };
    let text = html::render(PAGE, &PARTS, values)?;
    // What would turn the direction of writing, in a name or a path, is shown by its number.
    Ok(format!("{}\n", escaped_lines(text.replace("\r\n", "\n").trim_end())))
}

/// A list for the template.
fn list<'a, T: 'a>(items: impl IntoIterator<Item = &'a T>, values: impl Fn(&T) -> Value) -> Value {
    items.into_iter().map(values).collect()
}

impl ComparedRuns {
    /// Returns the values for the template.
    fn values(&self) -> Value {
        let figure = |figure: &ReportFigure| figure_values(figure, figure.alt_text(&[], self.sheet.as_ref()));
        context! {
            figures => list(&self.forest, figure),
            notes => &self.notes,
            tables => list(&self.sheet, Sheet::values),
        }
    }
}

impl Section {
    /// Returns the values for the template.
    fn values(&self) -> Value {
        let run = &self.run;
        let fact = |fact: &Fact| context! { name => &fact.name, value => &fact.value, code => fact.code };
        let explorer = |text: &String| context! { text, megabytes => format!("{:.1}", text.len() as f64 / 1e6) };
        context! {
            analysis => facts::analysis(run),
            command => facts::command(run),
            contents => list(self.all_tables(), |sheet| context! { id => sheet.id, title => sheet.title }),
            details => list(self.tables(true), Sheet::values),
            explorer => self.explorer.as_ref().map(explorer),
            environment => list(&facts::environment(run), fact),
            experiment => &run.experiment,
            failures => list(&self.failures, Sheet::values),
            main_figure => list(run.figures.first(), |figure| self.figure(figure)),
            figures => list(run.figures.iter().skip(1), |figure| self.figure(figure)),
            forest => list(&self.forest, |figure| self.figure(figure)),
            folder => run.folder.display().to_string(),
            has_results => !self.results.is_empty(),
            name => facts::name(run),
            question => facts::config(run, "question"),
            recipe => list(&facts::recipe(run), fact),
            sentence => facts::sentence(run, &self.frame),
            tables => list(self.tables(false), Sheet::values),
        }
    }

    fn figure(&self, figure: &ReportFigure) -> Value {
        figure_values(figure, self.alt_text(figure))
    }
}

/// The values that the template of a figure fills in.
fn figure_values(figure: &ReportFigure, alt: String) -> Value {
    context! {
        file => &figure.file,
        width => figure.saved.size.0,
        height => figure.saved.size.1,
        uri => figure.uri(),
        alt,
        pooling => figure.recipe("pooling"),
    }
}

impl Sheet {
    /// Returns the values for the template.
    fn values(&self) -> Value {
        let column = |column: &SheetColumn| context! { title => column.title(), number => column.number };
        let row =
            |row: &Vec<SheetCell>| row.iter().zip(&self.columns).map(|(cell, column)| cell.values(column)).collect();
        context! {
            id => self.id,
            title => self.title,
            note => &self.note,
            columns => list(&self.columns, column),
            rows => list(&self.rows, row),
        }
    }
}

impl SheetColumn {
    /// Its heading, or its name where the cells speak for themselves: nothing has no name for those who only hear.
    fn title(&self) -> &str {
        if self.heading.is_empty() {
            &self.name
        } else {
            &self.heading
        }
    }
}

impl SheetCell {
    /// Returns the values for the template. The script sorts by the number in full.
    fn values(&self, column: &SheetColumn) -> Value {
        let class = if column.number { "number" } else { "words" };
        context! { text => &self.text, aside => &self.aside, exact => self.exact.map(|x| x.to_string()), class }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements_and_fetch_nothing() {
        html::assert_harmless(&[STYLE, SCRIPT]);
    }

    #[test]
    fn a_page_without_runs_is_still_a_page_and_its_title_is_escaped() {
        let title = "<script>alert('&')</script>".to_owned();
        let page = html(&Report { title, sections: Vec::new(), compared: None }).unwrap();
        assert!(page.contains("<title>&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;&#x2f;script&gt;</title>"), "{page}");
        assert_eq!(page.matches("<script").count(), 1);
    }

    #[test]
    fn marks_that_turn_the_direction_of_writing_are_shown_by_their_numbers() {
        let title = "evil\u{202e}txt\u{0}".to_owned();
        let page = html(&Report { title, sections: Vec::new(), compared: None }).unwrap();
        assert!(page.contains(r"evil\u{202e}txt\u{0}") && !page.contains(['\u{202e}', '\u{0}']), "{page}");
    }
}
