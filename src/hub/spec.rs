//! Name of a model on the Hub, validated for use in paths and URLs.

use super::PREFIX;
use crate::bail_usage;
use anyhow::Result;

/// The default branch.
const MAIN: &str = "main";

/// Maximum length of `org/name`, in bytes.
const REPO_MAX: usize = 96;

/// A model with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSpec {
    /// `org/name`.
    pub repo: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl HubSpec {
    /// Parses `hf:org/name[@revision]`.
    ///
    /// # Errors
    /// A usage error if it does not follow the Hub's rules for names.
    pub fn parse(spec: &str) -> Result<Self> {
        let name = spec.strip_prefix(PREFIX).unwrap_or(spec);
        let (repo, revision) = name.split_once('@').unwrap_or((name, MAIN));
        let Some((org, name)) = repo.split_once('/') else {
            bail_usage!("{spec}: a model on the Hub is {PREFIX}org/name or {PREFIX}org/name@revision");
        };
        for part in [org, name] {
            if let Some(fault) = fault(part, "-._") {
                bail_usage!("{spec}: {part:?} {fault}; a model on the Hub is {PREFIX}org/name");
            }
        }
        if repo.len() > REPO_MAX {
            bail_usage!("{spec}: {repo:?} has more than {REPO_MAX} characters");
        }
        // A cached revision is a file below `refs`, and no part of it may leave that folder.
        for part in revision.split('/') {
            if let Some(fault) = fault(part, "-._+") {
                bail_usage!("{spec}: the revision {revision:?} is not a branch, tag or commit: {part:?} {fault}");
            }
        }
        Ok(Self { repo: repo.to_owned(), revision: revision.to_owned() })
    }

    /// Returns whether the revision is a full commit.
    pub fn is_pinned(&self) -> bool {
        is_commit(&self.revision)
    }
}

impl std::fmt::Display for HubSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}", self.repo)?;
        if self.revision == MAIN {
            return Ok(());
        }
        write!(f, "@{}", self.revision)
    }
}

/// Returns whether the text is a full git commit.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Describes the fault of a part of a name. `--` is refused because the cache uses it for `/`.
fn fault(part: &str, punctuation: &str) -> Option<&'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || punctuation.contains(c);
    if part.is_empty() {
        Some("is empty")
    } else if !part.chars().all(known) {
        Some("has a character other than letters, digits, '-', '.' and '_'")
    } else if part.contains("..") || part.contains("--") {
        Some("has \"..\" or \"--\"")
    } else if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) {
        Some("begins or ends with '-' or '.'")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit_code;

    #[test]
    fn a_spec_is_read_and_written_back() {
        for (text, repo, revision) in [
            ("hf:HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M", "main"),
            ("hf:org/name@v1.0", "org/name", "v1.0"),
            ("hf:org/name@refs/pr/1", "org/name", "refs/pr/1"),
            (
                "hf:org/a.b_c-d@0123456789abcdef0123456789abcdef01234567",
                "org/a.b_c-d",
                &"0123456789abcdef".repeat(3)[..40],
            ),
        ] {
            let spec = HubSpec::parse(text).unwrap();
            assert_eq!((&*spec.repo, &*spec.revision), (repo, revision));
            assert_eq!(spec.to_string(), text);
        }
        assert!(HubSpec::parse("hf:a/b@0123456789abcdef0123456789abcdef01234567").unwrap().is_pinned());
        assert!(!HubSpec::parse("hf:a/b@0123456789").unwrap().is_pinned());
    }

    #[test]
    fn invalid_names_are_usage_errors_that_quote_them() {
        let long = format!("hf:org/{}", "n".repeat(93));
        for (text, words) in [
            ("hf:", "hf:org/name"),
            ("hf:gpt2", "hf:org/name"),
            ("hf:/name", "\"\" is empty"),
            ("hf:org/", "\"\" is empty"),
            ("hf:../name", "\"..\" has"),
            ("hf:org/..", "\"..\" has"),
            ("hf:org/a..b", "\"a..b\" has"),
            ("hf:org/a--b", "\"a--b\" has"),
            ("hf:org/.git", "\".git\" begins"),
            ("hf:org/name/more", "\"name/more\" has a character"),
            ("hf:org/na me", "\"na me\" has a character"),
            ("hf:org\\x/name", "has a character"),
            ("hf:org/name?x", "has a character"),
            ("hf:org/name@", "the revision \"\""),
            ("hf:org/name@../../x", "the revision \"../../x\""),
            ("hf:org/name@/x", "the revision \"/x\""),
            ("hf:org/name@a//b", "the revision \"a//b\""),
            ("hf:org/name@a#b", "the revision \"a#b\""),
            ("hf:org/name@a@b", "the revision \"a@b\""),
            (&long, "more than 96"),
        ] {
            let error = HubSpec::parse(text).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(words) && message.contains(text), "{text}: {message}");
            assert_eq!(exit_code(&error), 2, "{text}");
        }
    }
}
