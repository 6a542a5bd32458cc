//! Replicates of a model: its recipe and training seed, from its name.

use std::fmt;
use std::str::FromStr;

/// Folders that `difftool train` makes for a spec with seeds: `VARIANT/seed-N`.
pub const SEED_FOLDERS: &str = "/seed-*";

/// Pattern of the training seed in model names, with `*` for its digits. The rest of the name is the recipe: with
/// `/seed-*`, `runs/norm/diff/seed-3` is seed 3 of `runs/norm/diff`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicates {
    before: String,
    after: String,
}

impl Replicates {
    /// Recipe and seed of a model, from the last match of the pattern, or `None`.
    pub(crate) fn split(&self, model: &str) -> Option<(String, u64)> {
        model.rmatch_indices(&self.before).find_map(|(at, before)| {
            let rest = &model[at + before.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, rest) = rest.split_at(end);
            let rest = rest.strip_prefix(self.after.as_str())?;
            Some((format!("{}{rest}", &model[..at]), digits.parse().ok()?))
        })
    }
}

/// Returns whether `typed` is the name of this recipe or its end after a `/`.
pub(crate) fn is_short_for(typed: &str, recipe: &str) -> bool {
    recipe.strip_suffix(typed).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
}

impl Default for Replicates {
    fn default() -> Self {
        SEED_FOLDERS.parse().expect("a pattern")
    }
}

impl FromStr for Replicates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('*') {
            Some((before, after)) if !before.is_empty() && !after.contains('*') => {
                Ok(Self { before: before.to_owned(), after: after.to_owned() })
            }
            _ => {
                Err(format!("`{text}` is not a pattern of a seed in a model's name, such as `{SEED_FOLDERS}` or `-s*`"))
            }
        }
    }
}

impl fmt::Display for Replicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(pattern: &str, model: &str) -> Option<(String, u64)> {
        pattern.parse::<Replicates>().unwrap().split(model)
    }

    #[test]
    fn a_name_is_a_recipe_and_a_seed() {
        let is = |recipe: &str, seed| Some((recipe.to_owned(), seed));
        assert_eq!(split("/seed-*", "runs/norm/diff/seed-3"), is("runs/norm/diff", 3));
        assert_eq!(split("/seed-*", "runs/seed-1/diff/seed-20"), is("runs/seed-1/diff", 20));
        assert_eq!(split("-s*", "llama-s12-4k"), is("llama-4k", 12));
        assert_eq!(split("-s*-4k", "llama-s12-4k"), is("llama", 12));
        assert_eq!(split("/seed-*", "transformer"), None);
        assert_eq!(split("/seed-*", "diff/seed-one"), None);
        assert_eq!(split("-s*", "llama-s99999999999999999999"), None, "no seed is so large");
    }

    #[test]
    fn a_pattern_needs_text_before_the_seed() {
        for bad in ["", "*", "seed", "s*-*"] {
            assert!(bad.parse::<Replicates>().unwrap_err().contains("`/seed-*`"), "{bad}");
        }
    }

    #[test]
    fn a_recipe_is_found_by_the_end_of_its_name() {
        assert!(
            is_short_for("diff", "runs/a/diff")
                && is_short_for("a/diff", "runs/a/diff")
                && is_short_for("diff", "diff")
        );
        assert!(!is_short_for("iff", "runs/a/diff") && !is_short_for("diff", "runs/a/diff-v2"));
    }

    proptest! {
        #[test]
        fn splitting_never_panics(pattern in "\\PC{0,8}", model in "\\PC{0,20}") {
            if let Ok(pattern) = pattern.parse::<Replicates>() {
                let again = pattern.to_string().parse::<Replicates>();
                prop_assert_eq!(again.as_ref(), Ok(&pattern));
                let _ = pattern.split(&model);
            }
        }
    }
}
