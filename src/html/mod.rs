//! Common parts of HTML pages: rendering, head, base style and content security policy.
//!
//! A page is one file that opens from disk and loads nothing from the network. Its own style follows the base style.

use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use minijinja::{context, Environment, UndefinedBehavior, Value};
use sha2::{Digest, Sha256};

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
        let style = styles.concat();
        let own = PageHashes { style: hash(&style), script: hash(script) };
        let mut pages = vec![&own];
        pages.extend(frames.iter().filter(|page| ***page != own));
        pages.dedup();
        let policy = policy(&pages);
        Self { title, style, policy }
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
    /// Reads them from the policy of a page that difftool has written; `None` if there is none in the form of
    /// [`policy`].
    pub(crate) fn read(page: &str) -> Option<Self> {
        let (_, rest) = page.split_once(POLICY_BEFORE)?;
        let (style, rest) = rest.strip_prefix(ONLY)?.strip_prefix(STYLES)?.split_once(SCRIPTS)?;
        let (script, _) = rest.split_once('"')?;
        let is_hash = |text: &str| {
            let code = text.strip_prefix("'sha256-").and_then(|text| text.strip_suffix('\''));
            code.and_then(|code| STANDARD.decode(code).ok()).is_some_and(|hash| hash.len() == 32)
        };
        (is_hash(style) && is_hash(script)).then(|| Self { style: style.to_owned(), script: script.to_owned() })
    }
}

/// The text before the policy in `head.html`.
const POLICY_BEFORE: &str = r#"<meta http-equiv="Content-Security-Policy" content=""#;
/// Nothing is loaded from elsewhere; images are part of the page.
const ONLY: &str = "default-src 'none'; img-src data:; ";
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
        assert!(policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn hashes_of_a_page_are_read_back_and_allowed_by_the_page_that_frames_it() {
        let inner = Head::new("inner", &[STYLE], "inner()");
        let page = format!("<!DOCTYPE html>{POLICY_BEFORE}{}\">", inner.policy);
        let hashes = PageHashes::read(&page).unwrap();
        assert_eq!(hashes, PageHashes { style: hash(STYLE), script: hash("inner()") });
        let outer = Head::with_frames("outer", &[STYLE], "outer()", &[&hashes, &hashes]).policy;
        assert_eq!(outer.matches("'sha256-").count(), 4, "{outer}");
        for script in ["inner()", "outer()"] {
            assert!(outer.contains(&hash(script)));
        }
    }

    #[test]
    fn policies_in_another_form_are_not_read() {
        let ours = Head::new("page", &[STYLE], "run()").policy;
        for theirs in [
            "default-src *".to_owned(),
            ours.replace("script-src ", "script-src 'unsafe-inline' "),
            ours.replace("default-src 'none'", "default-src data:"),
            ours.replace("sha256-", "sha256-AAAA"),
            format!("{ours}; connect-src *"),
        ] {
            assert_eq!(PageHashes::read(&format!("{POLICY_BEFORE}{theirs}\">")), None, "{theirs}");
        }
        assert_eq!(PageHashes::read("<p>maps</p>"), None);
    }
}
