//! Names of models for people: short ones that tell models apart, recipe and training seed. And lists of names.

use crate::serde_as_str;
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// Short names of models: the fewest parts of their paths, next to each other, that tell them apart; files without `.gguf`.
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
            let others: Vec<&Vec<&str>> = parts.iter().filter(|other| *other != own).collect();
            let short = telling(own, &others).join("/");
            if *model != short && !short.is_empty() {
                pairs.push((model.clone(), short));
            }
        }
        Self { pairs }
    }

    /// The short name of a model.
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

/// The distinct strings in the order of their first occurrence.
pub fn distinct(all: impl Iterator<Item: Into<String>>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all.map(Into::into) {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// ` (did you mean `NAME`?)` for the known name that is most like a typed one; nothing if none is much like it.
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let scored = known.into_iter().map(|name| (strsim::jaro(typed, name), name));
    let nearest = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.75);
    nearest.map_or_else(String::new, |(_, name)| format!(" (did you mean `{name}`?)"))
}

/// Numbers as lists in names have them: `0+2`.
pub fn joined(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

/// The first element that stands in the list before.
pub fn repeated<T: PartialEq>(list: &[T]) -> Option<&T> {
    (1..list.len()).find(|&i| list[..i].contains(&list[i])).map(|i| &list[i])
}

/// The fewest parts of a path, next to each other, that no other path has so; of several the last ones.
fn telling<'a>(own: &'a [&'a str], others: &[&Vec<&str>]) -> &'a [&'a str] {
    let mut runs = (1..=own.len()).flat_map(|n| own.windows(n).rev());
    runs.find(|run| !says_little(run) && !others.iter().any(|other| has_run(other, run))).unwrap_or(own)
}

fn has_run(parts: &[&str], run: &[&str]) -> bool {
    !run.is_empty() && parts.windows(run.len()).any(|parts| parts == run)
}

/// Names of the folders of checkpoints, before their number.
const CHECKPOINTS: [&str; 6] = ["checkpoint", "epoch", "global_step", "iter", "seed", "step"];

/// Returns `true` for parts that are no name of a model: `checkpoint-8000`, `.` and `..`.
fn says_little(run: &[&str]) -> bool {
    run.iter().all(|part| matches!(*part, "." | "..") || is_checkpoint(part))
}

fn is_checkpoint(part: &str) -> bool {
    let word = part.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_']);
    word != part && CHECKPOINTS.contains(&word)
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
    pub fn split(&self, model: &str) -> Option<(String, u64)> {
        model.rmatch_indices(&self.before).find_map(|(at, _)| self.split_at(model, at))
    }

    /// The recipe of a model; of one without a seed its own name.
    pub fn recipe(&self, model: &str) -> String {
        self.split(model).map_or_else(|| model.to_owned(), |(recipe, _)| recipe)
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

/// Returns `true` if `typed` is the name of this model or some parts of its path next to each other, with or without `.gguf`.
pub fn is_short_for(typed: &str, model: &str) -> bool {
    let stem = model.strip_suffix(".gguf").unwrap_or(model);
    typed == model || [model, stem].iter().any(|name| has_run(&parts_of(name), &parts_of(typed)))
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
    fn the_fewest_parts_that_tell_models_apart_are_their_names() {
        let hub = "/root/.cache/hub/models--org--Model-1B/snapshots/0123456789abcdef";
        let other_hub = "/root/.cache/hub/models--other--Model-1B/snapshots/fedcba9876543210";
        let cases: [(&[&str], &[&str]); 19] = [
            (&[], &[]),
            (&["transformer"], &["transformer"]),
            (&["/home/me/models/a/diff"], &["diff"]),
            (&["runs/diff-300M/checkpoint-8000"], &["diff-300M"]),
            (&["a/diff/seed-3/"], &["diff"]),
            (&["checkpoint-8000"], &["checkpoint-8000"]),
            (&["runs/a/diff", "runs/a/diff-v2"], &["diff", "diff-v2"]),
            (&["runs/a/diff", "runs/b/diff", "transformer"], &["a", "b", "transformer"]),
            (&["runs/a/diff", "runs/a/base", "runs/b/diff"], &["a/diff", "base", "b"]),
            (&["diff", "x/diff"], &["diff", "x"]),
            (&["diff", "x/diff", "x/base"], &["diff", "x/diff", "base"]),
            (&["runs/d/checkpoint-8", "runs/b/checkpoint-8"], &["d", "b"]),
            (&["runs/d/checkpoint-8", "runs/d/checkpoint-9"], &["d/checkpoint-8", "d/checkpoint-9"]),
            (&["a/diff/seed-1", "a/diff/seed-2", "a/base/seed-1"], &["diff/seed-1", "diff/seed-2", "base"]),
            (&["./m", "../m"], &["./m", "../m"]),
            (&["/a/m.Q4_1.gguf", "/b/other.gguf"], &["m.Q4_1", "other"]),
            (&["a/m.gguf", "b/m.gguf", "b/m"], &["a", "m.gguf", "b/m"]),
            (&[hub], &["Model-1B"]),
            (&[hub, other_hub], &["org", "other"]),
        ];
        for (names, expected) in cases {
            assert_eq!(short(names), expected, "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn no_two_models_have_one_name(names in proptest::collection::btree_set("[abm]{1,2}(/[abm]{1,2}){0,3}", 1..6)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = short(&names);
            prop_assert_eq!(short.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{:?}", short);
        }
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
                && is_short_for("diff-300M", "runs/diff-300M/checkpoint-8000")
        );
        assert!(!is_short_for("iff", "runs/a/diff") && !is_short_for("diff", "runs/a/diff-v2"));
        assert!(!is_short_for("", "runs/a/diff") && !is_short_for("runs/diff", "runs/a/diff"));
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
