//! Names of models for people: short ones that tell models apart, recipe and training seed. And lists of names.

use super::values::serde_as_str;
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// Short names of models: the last parts of their paths that tell them apart, files without `.gguf`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShortNames {
    /// Full and short name of each model whose names differ.
    pairs: Vec<(String, String)>,
}

impl ShortNames {
    /// Finds the short names of models.
    pub fn of<'a>(models: impl IntoIterator<Item = &'a String>) -> Self {
        let models: Vec<&String> = models.into_iter().collect();
        let mut parts: Vec<Vec<&str>> = Vec::new();
        for model in &models {
            let stem = model.strip_suffix(".gguf").filter(|stem| models.iter().all(|other| other.as_str() != *stem));
            parts.push(parts_of(stem.unwrap_or(model)));
        }
        let mut pairs = Vec::new();
        for (model, own) in models.into_iter().zip(&parts) {
            let mut n = 1.min(own.len());
            while n < own.len() && parts.iter().any(|other| other != own && other.ends_with(&own[own.len() - n..])) {
                n += 1;
            }
            let short = own[own.len() - n..].join("/");
            if *model != short && !short.is_empty() {
                pairs.push((model.clone(), short));
            }
        }
        Self { pairs }
    }

    /// Returns the short name of a model.
    pub fn name<'a>(&'a self, model: &'a str) -> &'a str {
        self.pairs.iter().find(|(full, _)| full == model).map_or(model, |(_, short)| short)
    }

    /// Replaces full names by short ones within a text. Where several names begin, the longest is meant.
    pub fn shortened(&self, text: &str) -> String {
        let mut rest = text;
        let mut short_text = String::new();
        while let Some((at, length, short)) = self.first(rest) {
            short_text.push_str(&rest[..at]);
            short_text.push_str(short);
            rest = &rest[at + length..];
        }
        short_text + rest
    }

    /// The first full name in a text: its place, its length, and the short name.
    fn first(&self, text: &str) -> Option<(usize, usize, &str)> {
        let places = self.pairs.iter().filter_map(|(full, short)| Some((text.find(full)?, full.len(), short.as_str())));
        places.min_by_key(|&(at, length, _)| (at, Reverse(length)))
    }
}

/// Returns the distinct strings in the order of their first occurrence.
pub(crate) fn distinct(all: impl Iterator<Item: Into<String>>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all.map(Into::into) {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Returns ` (did you mean `NAME`?)` for the known name that is most like a typed one; nothing if none is much like it.
pub(crate) fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let scored = known.into_iter().map(|name| (strsim::jaro(typed, name), name));
    let nearest = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.75);
    nearest.map_or_else(String::new, |(_, name)| format!(" (did you mean `{name}`?)"))
}

/// Numbers as lists in names have them: `0+2`.
pub(crate) fn joined(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

/// Returns the first element that stands in the list before.
pub(crate) fn repeated<T: PartialEq>(list: &[T]) -> Option<&T> {
    (1..list.len()).find(|&i| list[..i].contains(&list[i])).map(|i| &list[i])
}

/// Splits a path into its parts. A snapshot in a Hugging Face cache, `models--ORG--NAME/snapshots/HASH`, has the parts of its
/// name on the Hub.
fn parts_of(path: &str) -> Vec<&str> {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    if let [.., repository, "snapshots", _] = parts.as_slice() {
        if let Some((organisation, name)) = repository.strip_prefix("models--").and_then(|name| name.split_once("--")) {
            return vec![organisation, name];
        }
    }
    parts
}

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
        model.rmatch_indices(&self.before).find_map(|(at, _)| self.split_at(model, at))
    }

    /// Recipe and seed of a model, if the pattern matches from `at` on.
    fn split_at(&self, model: &str, at: usize) -> Option<(String, u64)> {
        let rest = &model[at + self.before.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(end);
        let rest = rest.strip_prefix(self.after.as_str())?;
        Some((format!("{}{rest}", &model[..at]), digits.parse().ok()?))
    }
}

/// Returns `true` if `typed` is the name of this model or the end of its path after a `/`, with or without `.gguf`.
pub(crate) fn is_short_for(typed: &str, model: &str) -> bool {
    let stem = model.strip_suffix(".gguf").unwrap_or(model);
    let folders = [model, stem].into_iter().find_map(|name| name.strip_suffix(typed));
    folders.is_some_and(|folders| folders.is_empty() || folders.ends_with('/'))
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

serde_as_str!(Replicates);

impl fmt::Display for Replicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn short(names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let short = ShortNames::of(&names);
        names.iter().map(|name| short.name(name).to_owned()).collect()
    }

    #[test]
    fn the_last_parts_that_tell_models_apart_are_their_names() {
        assert_eq!(short(&["/home/me/models/a/diff"]), ["diff"]);
        assert_eq!(short(&["runs/a/diff", "runs/a/diff-v2"]), ["diff", "diff-v2"]);
        assert_eq!(short(&["runs/a/diff", "runs/b/diff", "transformer"]), ["a/diff", "b/diff", "transformer"]);
        assert_eq!(short(&["diff", "x/diff"]), ["diff", "x/diff"]);
        assert_eq!(short(&["/a/m.Q4_1.gguf", "/b/other.gguf"]), ["m.Q4_1", "other"]);
        assert_eq!(short(&["a/m.gguf", "b/m.gguf", "b/m"]), ["a/m", "m.gguf", "b/m"]);
        let hub = "/root/.cache/hub/models--org--Model-1B/snapshots/0123456789abcdef";
        assert_eq!(short(&[hub]), ["Model-1B"]);
        assert!(short(&[]).is_empty());
    }

    #[test]
    fn names_within_a_text_are_shortened_once_and_whole() {
        let names = ["a/diff", "a/diff-v2"].map(str::to_owned);
        let short = ShortNames::of(&names);
        assert_eq!(short.shortened("a/diff-v2 - a/diff mask(noise)"), "diff-v2 - diff mask(noise)");
        assert_eq!(short.shortened("a/b, 1/2"), "a/b, 1/2");
    }

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
                && is_short_for("m.Q4_1", "models/m.Q4_1.gguf")
                && is_short_for("m.Q4_1.gguf", "models/m.Q4_1.gguf")
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
