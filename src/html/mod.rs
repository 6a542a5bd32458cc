//! Common parts of HTML pages: rendering, head, base style and content security policy.
//!
//! A page is one file that opens from disk and loads nothing from the network. Its own style follows the base style.

use anyhow::{Context, Result};
use base::files;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use flate2::write::DeflateEncoder;
use flate2::Compression;
use minijinja::{context, Environment, UndefinedBehavior, Value};
use sha2::{Digest, Sha256};
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Base style: colours, fonts and widths, for light and dark displays.
const STYLE: &str = include_str!("base.css");

/// Renders a page from the template of a name, whose extension `.html` turns escaping on. Values are escaped, unless the
/// template marks them as `safe`; a name without a value is an error.
pub(crate) fn render(name: &str, template: &str, values: Value) -> Result<String> {
    fill(name, template, values).with_context(|| format!("the template {name} cannot be rendered"))
}

fn fill(name: &str, template: &str, values: Value) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template("head.html", include_str!("head.html"))?;
    environment.add_template(name, template)?;
    environment.get_template(name)?.render(values)
}

/// The parts of a page that its content policy allows by their hashes.
pub(crate) struct PageCode {
    /// The page's own style, which follows the base style.
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
}

impl PageCode {
    fn full_style(&self) -> String {
        [STYLE, self.style].concat()
    }
}

/// The value `head` of the templates, which include `head.html`. A page may show others in frames: style and script of those
/// are allowed too.
pub(crate) fn head<'a>(title: &str, own: &'a PageCode, framed: impl IntoIterator<Item = &'a PageCode>) -> Value {
    let pages: Vec<&PageCode> = [own].into_iter().chain(framed).collect();
    context! { title, style => own.full_style(), policy => policy(&pages) }
}

/// Bytes as pages hold them, deflated.
///
/// # Errors
/// If they cannot be compressed.
pub(crate) fn deflate(raw: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(9));
    encoder.write_all(raw).and_then(|()| encoder.finish()).context("cannot compress the data of a page")
}

/// A page as another holds it: deflated, as base64.
///
/// # Errors
/// If it cannot be compressed.
pub(crate) fn packed(page: &[u8]) -> Result<String> {
    Ok(STANDARD.encode(deflate(page)?))
}

/// Number of bytes at the beginning of a page that contain its policy.
const PAGE_BEGIN: u64 = 1024;

/// The beginning of every policy: nothing is loaded from elsewhere.
const ONLY: &str = "default-src 'none'; ";

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// A policy that allows the styles and scripts of these pages, and embedded images. A script within a name, a token or
/// an error message would not run even if it were not escaped.
fn policy(pages: &[&PageCode]) -> String {
    let styles: Vec<String> = pages.iter().map(|page| hash(&page.full_style())).collect();
    let scripts: Vec<String> = pages.iter().map(|page| hash(page.script)).collect();
    format!("{ONLY}img-src data:; style-src {}; script-src {}", styles.join(" "), scripts.join(" "))
}

/// Returns `true` if a file begins like the pages of difftool.
pub(crate) fn is_page(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = files::open(path).and_then(|file| Ok(file.take(PAGE_BEGIN).read_to_end(&mut begin)?));
    read.is_ok()
        && String::from_utf8_lossy(&begin).contains(&format!("http-equiv=\"Content-Security-Policy\" content=\"{ONLY}"))
}

/// Asserts that styles and scripts cannot end their elements and load nothing.
#[cfg(test)]
pub(crate) fn assert_harmless(texts: &[&str]) {
    for word in
        ["</", "http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("]
    {
        assert!(!texts.iter().any(|text| text.contains(word)), "{word}");
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
        let policy = policy(&[&PageCode { style: "b { color: red; }", script: "run()" }]);
        assert!(policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn a_page_that_frames_another_allows_its_hashes() {
        let [own, framed] = ["outer()", "inner()"].map(|script| PageCode { style: "", script });
        let policy = policy(&[&own, &framed]);
        assert_eq!(policy.matches("'sha256-").count(), 4, "{policy}");
        assert!(policy.contains(&hash("inner()")) && policy.contains(&hash("outer()")));
    }
}
