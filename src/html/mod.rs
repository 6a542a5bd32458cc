//! What the pages that we write have in common: their head, their base style, and a policy that lets nothing else in.
//!
//! A page is one file that opens from disk and asks the network for nothing. A page's own style comes after the base one.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use sha2::{Digest, Sha256};

/// Colours, fonts and widths, in the light and in the dark.
pub(crate) const STYLE: &str = include_str!("base.css");

/// The head of a page. Templates include it as `head.html`, with a field `head`.
pub(crate) struct Head<'a> {
    pub(crate) title: &'a str,
    /// Goes into the page as it is.
    pub(crate) style: String,
    pub(crate) policy: String,
}

impl<'a> Head<'a> {
    /// The head of a page of these styles and this script.
    pub(crate) fn new(title: &'a str, styles: &[&str], script: &str) -> Self {
        let style = styles.concat();
        let policy = policy(&style, script);
        Self { title, style, policy }
    }
}

/// What the browser is to allow: our style, our script and embedded images. Nothing is fetched, and no script that came in
/// with a name, a token or an error message would run even if it were not escaped.
fn policy(style: &str, script: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!("default-src 'none'; img-src data:; style-src {}; script-src {}", hash(style), hash(script))
}

/// For tests: styles and scripts that can stand in their elements, and fetch nothing.
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
    fn the_base_style_cannot_end_its_element_and_fetches_nothing() {
        assert_harmless(&[STYLE]);
    }

    #[test]
    fn the_policy_lets_nothing_in_but_our_style_and_script() {
        let policy = Head::new("title", &[STYLE, "b { color: red; }"], "run()").policy;
        assert!(policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }
}
