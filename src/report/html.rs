//! Sections as one HTML file that needs no network and asks for none.

use super::Section;
use crate::tables::{Cell, Column};
use anyhow::{Context, Result};
use askama::Template;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page. Whatever comes from outside is escaped by the template, which knows that it is HTML by its name.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    sections: &'a [Section],
    policy: String,
    style: &'static str,
    script: &'static str,
}

/// The page as text.
///
/// # Errors
/// If the template cannot be filled in.
pub fn html(title: &str, sections: &[Section]) -> Result<String> {
    let page = Page { title, sections, policy: policy(), style: STYLE, script: SCRIPT };
    let text = page.render().context("the report cannot be written as HTML")?;
    Ok(format!("{}\n", text.trim_end()))
}

/// What the browser is to allow: our style, our script and embedded images. Nothing is fetched, and no script that came
/// in with a name or an error message would run even if it were not escaped.
fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!("default-src 'none'; img-src data:; style-src {}; script-src {}", hash(STYLE), hash(SCRIPT))
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
    fn style_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }

    #[test]
    fn style_and_script_fetch_nothing() {
        for word in ["http:", "https:", "url(", "@import", "fetch", "XMLHttpRequest", "import("] {
            assert!(!STYLE.contains(word) && !SCRIPT.contains(word), "{word}");
        }
    }

    #[test]
    fn the_policy_lets_nothing_in_but_our_style_and_script() {
        let policy = policy();
        assert!(policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn a_page_without_runs_is_still_a_page_and_its_title_is_escaped() {
        let page = html("<script>alert('&')</script>", &[]).unwrap();
        assert!(page.contains("<title>&#60;script&#62;alert(&#39;&#38;&#39;)&#60;/script&#62;</title>"), "{page}");
        assert_eq!(page.matches("<script").count(), 1);
    }
}
