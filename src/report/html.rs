//! Sections as one HTML file that needs no network and asks for none.

use super::Report;
use crate::html::{self, Head};
use crate::tables::{Cell, Column};
use anyhow::{Context, Result};
use askama::Template;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page. Whatever comes from outside is escaped by the template, which knows that it is HTML by its name.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    head: Head<'a>,
    report: &'a Report,
    script: &'static str,
}

impl Page<'_> {
    /// How many tables there are.
    fn tables(&self) -> usize {
        let compared = self.report.compared.iter().filter(|compared| compared.sheet.is_some()).count();
        compared + self.report.sections.iter().map(|section| section.all_tables().count()).sum::<usize>()
    }
}

/// The page as text.
///
/// # Errors
/// If the template cannot be filled in.
pub fn html(report: &Report) -> Result<String> {
    let head = Head::new(&report.title, &[html::STYLE, STYLE], SCRIPT);
    let page = Page { head, report, script: SCRIPT };
    let text = page.render().context("the report cannot be written as HTML")?;
    Ok(format!("{}\n", text.trim_end()))
}

impl Column {
    /// Its heading, or its name where the cells speak for themselves: nothing has no name for those who only hear.
    fn title(&self) -> &str {
        if self.heading.is_empty() {
            &self.name
        } else {
            &self.heading
        }
    }
}

impl Cell {
    /// The class attribute of a cell of this column.
    fn class(&self, column: &Column) -> &'static str {
        if column.number {
            r#" class="number""#
        } else {
            r#" class="words""#
        }
    }

    /// The attribute with the number in full, by which the script sorts.
    fn data(&self) -> String {
        self.exact.map(|x| format!(r#" data-value="{x}""#)).unwrap_or_default()
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
        assert!(page.contains("<title>&#60;script&#62;alert(&#39;&#38;&#39;)&#60;/script&#62;</title>"), "{page}");
        assert_eq!(page.matches("<script").count(), 1);
    }
}
