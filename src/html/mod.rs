//! What the pages that we write have in common: their head, their base style, and a policy that lets nothing else in.
//!
//! A page is one file that opens from disk and asks the network for nothing. A page's own style comes after the base one.

use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use minijinja::{context, Environment, UndefinedBehavior, Value};
use sha2::{Digest, Sha256};

/// Colours, fonts and widths, in the light and in the dark.
pub(crate) const STYLE: &str = include_str!("base.css");

/// A template: its name, which says that it is HTML, and its text.
pub(crate) type Template = (&'static str, &'static str);

const HEAD: Template = ("head.html", include_str!("head.html"));

/// A page, filled in. What comes from outside is escaped, unless the template says that it is safe; a name that the
/// templates know and the values do not is an error.
///
/// # Errors
/// If the templates and the values do not fit.
pub(crate) fn filled(page: Template, parts: &[Template], values: Value) -> Result<String> {
    let fill = || -> Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        for (name, text) in parts.iter().chain([&HEAD, &page]) {
            environment.add_template(name, text)?;
        }
        environment.get_template(page.0)?.render(values)
    };
    fill().with_context(|| format!("{} cannot be filled in", page.0))
}

/// The head of a page. Templates include it as `head.html`, with a value `head`.
pub(crate) struct Head<'a> {
    pub(crate) title: &'a str,
    /// Goes into the page as it is.
    pub(crate) style: String,
    pub(crate) policy: String,
}

impl<'a> Head<'a> {
    /// The head of a page of these styles and this script.
    pub(crate) fn new(title: &'a str, styles: &[&str], script: &str) -> Self {
        Self::with_pages(title, styles, script, &[])
    }

    /// The same of a page that shows others in frames.
    pub(crate) fn with_pages(title: &'a str, styles: &[&str], script: &str, pages: &[&Allowed]) -> Self {
        let style = styles.concat();
        let own = Allowed { style: hash(&style), script: hash(script) };
        let mut allowed = vec![&own];
        pages.iter().filter(|page| ***page != own).for_each(|page| allowed.push(page));
        allowed.dedup();
        let policy = policy(&allowed);
        Self { title, style, policy }
    }

    /// What templates fill in.
    pub(crate) fn values(&self) -> Value {
        context! { title => self.title, style => &self.style, policy => &self.policy }
    }
}

/// What a page lets in: its style and its script, by their hashes as a policy has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    style: String,
    script: String,
}

impl Allowed {
    /// What the policy in a page that we have written lets in; nothing if there is none of this form.
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

/// What stands before the policy in `head.html`.
const POLICY_BEFORE: &str = r#"<meta http-equiv="Content-Security-Policy" content=""#;
/// Nothing is fetched; images stand in the page.
const ONLY: &str = "default-src 'none'; img-src data:; ";
const STYLES: &str = "style-src ";
const SCRIPTS: &str = "; script-src ";

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// What the browser is to allow: our styles, our scripts and embedded images. Nothing is fetched, and no script that came in
/// with a name, a token or an error message would run even if it were not escaped.
fn policy(allowed: &[&Allowed]) -> String {
    let all = |of: fn(&Allowed) -> &str| allowed.iter().map(|page| of(page)).collect::<Vec<_>>().join(" ");
    format!("{ONLY}{STYLES}{}{SCRIPTS}{}", all(|page| &page.style), all(|page| &page.script))
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

    #[test]
    fn what_a_page_lets_in_is_read_back_and_let_in_by_a_page_around_it() {
        let inner = Head::new("inner", &[STYLE], "inner()");
        let page = format!("<!DOCTYPE html>{POLICY_BEFORE}{}\">", inner.policy);
        let allowed = Allowed::read(&page).unwrap();
        assert_eq!(allowed, Allowed { style: hash(STYLE), script: hash("inner()") });
        let outer = Head::with_pages("outer", &[STYLE], "outer()", &[&allowed, &allowed]).policy;
        assert_eq!(outer.matches("'sha256-").count(), 4, "{outer}");
        for script in ["inner()", "outer()"] {
            assert!(outer.contains(&hash(script)));
        }
    }

    #[test]
    fn policies_that_are_not_ours_let_nothing_in() {
        let ours = Head::new("page", &[STYLE], "run()").policy;
        for theirs in [
            "default-src *".to_owned(),
            ours.replace("script-src ", "script-src 'unsafe-inline' "),
            ours.replace("default-src 'none'", "default-src data:"),
            ours.replace("sha256-", "sha256-AAAA"),
            format!("{ours}; connect-src *"),
        ] {
            assert_eq!(Allowed::read(&format!("{POLICY_BEFORE}{theirs}\">")), None, "{theirs}");
        }
        assert_eq!(Allowed::read("<p>maps</p>"), None);
    }
}
