//! Common parts of HTML pages: rendering, head, base style and content security policy.
//!
//! A page is one file that opens from disk and loads nothing from the network. Its own style follows the base style.

use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use minijinja::{context, Environment, UndefinedBehavior, Value};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Base style: colours, fonts and widths, for light and dark displays.
pub(crate) const STYLE: &str = include_str!("base.css");

/// Name and text of a template. The extension `.html` of the name turns escaping on.
pub(crate) type Template = (&'static str, &'static str);

const HEAD: Template = ("head.html", include_str!("head.html"));

/// Renders a page. Values are escaped, unless the template marks them as `safe`; a name without a value is an error.
pub(crate) fn render(page: Template, parts: &[Template], values: Value) -> Result<String> {
    let rendered = || -> Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        for (name, text) in parts.iter().chain([&HEAD, &page]) {
            environment.add_template(name, text)?;
        }
        environment.get_template(page.0)?.render(values)
    };
    rendered().with_context(|| format!("the template {} cannot be rendered", page.0))
}

/// The head of a page. Templates include it as `head.html` and have it as the value `head`.
pub(crate) struct Head<'a> {
    title: &'a str,
    /// Not escaped.
    style: String,
    /// Content of the `Content-Security-Policy`, not escaped.
    policy: String,
}

impl<'a> Head<'a> {
    /// The head of a page with these styles and this script.
    pub(crate) fn new(title: &'a str, styles: &[&str], script: &str) -> Self {
        Self::with_frames(title, styles, script, &[])
    }

    /// The head of a page that shows others in frames: their styles and scripts are allowed too.
    pub(crate) fn with_frames(title: &'a str, styles: &[&str], script: &str, frames: &[&PageHashes]) -> Self {
        let own = PageHashes::of(styles, script);
        let mut pages = vec![&own];
        pages.extend(frames.iter().filter(|page| ***page != own));
        pages.dedup();
        let policy = policy(&pages);
        Self { title, style: styles.concat(), policy }
    }

    /// The values for the templates.
    pub(crate) fn values(&self) -> Value {
        context! { title => self.title, style => &self.style, policy => &self.policy }
    }
}

/// SHA-256 hashes of a page's style and script, in the form of a content security policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageHashes {
    style: String,
    script: String,
}

impl PageHashes {
    /// The hashes of a page with these styles and this script.
    pub(crate) fn of(styles: &[&str], script: &str) -> Self {
        Self { style: hash(&styles.concat()), script: hash(script) }
    }

    /// The content policy of a page with these hashes alone, as it stands in the head of the page.
    pub(crate) fn head(&self) -> String {
        format!("{POLICY_BEFORE}{}\">", policy(&[self]))
    }
}

/// Number of bytes at the beginning of a page that contain its policy.
const PAGE_BEGIN: u64 = 1024;

/// The text before the policy in `head.html`.
const POLICY_BEFORE: &str = r#"<meta http-equiv="Content-Security-Policy" content=""#;
/// Nothing is loaded from elsewhere, no other browser is connected; images are part of the page.
const ONLY: &str = "default-src 'none'; img-src data:; webrtc 'block'; ";
const STYLES: &str = "style-src ";
const SCRIPTS: &str = "; script-src ";

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// A policy that allows the styles and scripts of these pages, and embedded images. A script within a name, a token or
/// an error message would not run even if it were not escaped.
fn policy(pages: &[&PageHashes]) -> String {
    let all = |of: fn(&PageHashes) -> &str| pages.iter().map(|page| of(page)).collect::<Vec<_>>().join(" ");
    format!("{ONLY}{STYLES}{}{SCRIPTS}{}", all(|page| &page.style), all(|page| &page.script))
}

/// Returns whether a file begins like the pages of difftool.
pub(crate) fn is_page(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PAGE_BEGIN).read_to_end(&mut begin));
    read.is_ok() && String::from_utf8_lossy(&begin).contains(&format!("{POLICY_BEFORE}default-src 'none'"))
}

/// Asserts that styles and scripts cannot end their elements and load nothing.
#[cfg(test)]
pub(crate) fn assert_harmless(texts: &[&str]) {
    let words =
        ["</", "http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("];
    for (text, word) in texts.iter().flat_map(|text| words.iter().map(move |word| (text, word))) {
        assert!(!text.contains(word), "{word}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_style_cannot_end_its_element_and_loads_nothing() {
        assert_harmless(&[STYLE]);
    }

    #[test]
    fn the_policy_allows_one_style_and_one_script() {
        let policy = Head::new("title", &[STYLE, "b { color: red; }"], "run()").policy;
        assert!(
            policy.starts_with("default-src 'none'; img-src data:; webrtc 'block'; style-src 'sha256-"),
            "{policy}"
        );
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn a_page_that_frames_others_allows_their_hashes() {
        let inner = PageHashes::of(&[STYLE], "inner()");
        let outer = Head::with_frames("outer", &[STYLE], "outer()", &[&inner, &inner]).policy;
        assert_eq!(outer.matches("'sha256-").count(), 4, "{outer}");
        for script in ["inner()", "outer()"] {
            assert!(outer.contains(&hash(script)));
        }
    }

    #[test]
    fn the_policy_of_a_page_is_found_in_its_head() {
        let head = Head::new("inner", &[STYLE], "inner()");
        let page =
            render(("page.html", r#"{% include "head.html" %}"#), &[], context! { head => head.values() }).unwrap();
        assert!(page.contains(&PageHashes::of(&[STYLE], "inner()").head()), "{page}");
    }
}
