//! Sections as one HTML file that needs no network and asks for none.

use super::{Explorer, Included, Report, Section};
use crate::html::{self, Allowed, Head};
use crate::tables::{Cell, Column};
use crate::terminal::escaped_lines;
use anyhow::{Context, Result};
use askama::Template;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(include_str!("script.js"), include_str!("explorer.js"));

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
    let pages: Vec<&Allowed> = report.sections.iter().filter_map(Section::included).map(|page| &page.allowed).collect();
    let head = Head::with_pages(&report.title, &[html::STYLE, STYLE], SCRIPT, &pages);
    let page = Page { head, report, script: SCRIPT };
    let text = page.render().context("the report cannot be written as HTML")?;
    // What would turn the direction of writing, in a name or a path, is shown by its number.
    Ok(format!("{}\n", escaped_lines(text.replace("\r\n", "\n").trim_end())))
}

impl Section {
    /// The address of the explorer's page, if it is linked.
    fn linked(&self) -> Option<&str> {
        match &self.explorer {
            Some(Explorer::Linked(href)) => Some(href),
            _ => None,
        }
    }

    /// The explorer, if it is in the report.
    fn included(&self) -> Option<&Included> {
        match &self.explorer {
            Some(Explorer::Included(page)) => Some(page),
            _ => None,
        }
    }
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

    #[test]
    fn marks_that_turn_the_direction_of_writing_are_shown_by_their_numbers() {
        let title = "evil\u{202e}txt\u{0}".to_owned();
        let page = html(&Report { title, sections: Vec::new(), compared: None }).unwrap();
        assert!(page.contains(r"evil\u{202e}txt\u{0}") && !page.contains(['\u{202e}', '\u{0}']), "{page}");
    }
}
