//! Sections as one HTML file that needs no network and asks for none.

use super::figure::ReportFigure;
use super::{facts, ComparedRuns, InnerPage, Report, Section};
use crate::html::{self, PageCode};
use crate::results::screen::Chapter;
use crate::results::table::Table;
use anyhow::Result;
use base::terminal::escaped_lines;
use minijinja::context;
use minijinja::value::{Serde, Value};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(include_str!("script.js"), include_str!("framed.js"));

/// The page as text.
///
/// # Errors
/// If the template cannot be filled in.
pub(crate) fn html(report: &Report) -> Result<String> {
    let own = PageCode { style: STYLE, script: SCRIPT };
    let sections = report.sections.iter().map(|section| section.all_tables().count());
    let compared = report.compared.iter().filter(|compared| compared.table.is_some()).count();
    let values = context! {
        head => html::head(&report.title, &own, report.sections.iter().flat_map(|section| &section.pages).map(|page| &page.code)),
        script => SCRIPT,
        tables => compared + sections.sum::<usize>(),
        compared => report.compared.as_ref().map(ComparedRuns::values),
        sections => report.sections.iter().map(Section::values).collect::<Vec<_>>(),
    };
    let text = html::render("page.html", include_str!("page.html"), values)?;
    // Marks that turn the direction of writing, in a name or a path, are shown by their numbers.
    Ok(format!("{}\n", escaped_lines(text.replace("\r\n", "\n").trim_end())))
}

impl ComparedRuns {
    /// The values for the template.
    fn values(&self) -> Value {
        let forest = self.forest.iter();
        let figures = forest.map(|figure| figure_values(figure, figure.alt_text(&[])));
        context! {
            figures => figures.collect::<Vec<_>>(),
            notes => &self.notes,
            tables => values_of(self.table.iter()),
        }
    }
}

impl InnerPage {
    /// The values for the template.
    fn values(&self) -> Value {
        let Self { name, title, summary, note, packed, .. } = self;
        context! { name => *name, title => *title, summary => *summary, note => *note, packed, megabytes => format!("{:.1}", packed.len() as f64 / 1e6) }
    }
}

impl Section {
    /// The values for the template.
    fn values(&self) -> Value {
        let run = &self.run;
        context! {
            analysis => Serde(facts::analysis(run)),
            command => facts::command(run),
            conclusion => self.conclusion(),
            contents => values_of(self.all_tables()),
            details => values_of(self.tables(true)),
            environment => Serde(facts::environment(run)),
            experiment => &run.experiment,
            pages => self.pages.iter().map(InnerPage::values).collect::<Vec<_>>(),
            failures => values_of(self.failures.iter()),
            main_figure => self.figures(self.other_figures().take(1)),
            figures => self.figures(self.other_figures().skip(1)),
            chapters => self.chapters.iter().map(|chapter| self.chapter(chapter)).collect::<Vec<_>>(),
            forest => self.figures(self.forest.iter()),
            folder => run.folder.display().to_string(),
            has_results => !self.results.is_empty(),
            name => facts::name(run),
            question => run.frame.about.config.question.trim(),
            recipe => Serde(facts::recipe(run)),
            sentence => facts::sentence(run),
            tables => values_of(self.tables(false)),
        }
    }

    fn chapter(&self, chapter: &Chapter) -> Value {
        let figures = self.figures(self.figure_of(chapter).into_iter());
        context! { figures, ..Value::from(Serde(chapter)) }
    }

    fn figures<'a>(&self, figures: impl Iterator<Item = &'a ReportFigure>) -> Vec<Value> {
        let models = self.model_names();
        figures.map(|figure| figure_values(figure, figure.alt_text(&models))).collect()
    }
}

fn values_of<'a>(tables: impl Iterator<Item = &'a Table>) -> Value {
    Value::from(Serde(tables.collect::<Vec<_>>()))
}

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
        assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
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
