//! Names of models for people: short ones that tell models apart, recipe and training seed.

mod replicates;

pub(crate) use replicates::is_short_for;
pub use replicates::{Replicates, SEED_FOLDERS};

use std::cmp::Reverse;

/// Short names of models: the last parts of their paths that tell them apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShortNames {
    /// Full and short name of each model whose names differ.
    pairs: Vec<(String, String)>,
}

impl ShortNames {
    /// Finds the short names of models.
    pub fn of<'a>(models: impl IntoIterator<Item = &'a String>) -> Self {
        let models: Vec<&String> = models.into_iter().collect();
        let parts: Vec<Vec<&str>> = models.iter().map(|model| parts_of(model)).collect();
        let short = |i: usize| {
            let own = &parts[i];
            let is_taken =
                |n: usize| (0..parts.len()).any(|j| parts[j] != *own && parts[j].ends_with(&own[own.len() - n..]));
            let n = (1..=own.len()).find(|&n| !is_taken(n)).unwrap_or(own.len());
            own[own.len() - n..].join("/")
        };
        let pairs = models.iter().enumerate().map(|(i, model)| ((*model).clone(), short(i)));
        Self { pairs: pairs.filter(|(model, short)| model != short && !short.is_empty()).collect() }
    }

    /// Returns the short name of a model.
    pub fn name<'a>(&'a self, model: &'a str) -> &'a str {
        self.pairs.iter().find(|(full, _)| full == model).map_or(model, |(_, short)| short)
    }

    /// Replaces full names by short ones within a text. Where several names begin, the longest is meant.
    pub fn shortened(&self, text: &str) -> String {
        let (mut rest, mut short_text) = (text, String::new());
        let first = |text: &str| {
            let found = self.pairs.iter().filter_map(|(full, short)| text.find(full).map(|at| (at, full.len(), short)));
            found.min_by_key(|&(at, length, _)| (at, Reverse(length)))
        };
        while let Some((at, length, short)) = first(rest) {
            short_text.push_str(&rest[..at]);
            short_text.push_str(short);
            rest = &rest[at + length..];
        }
        short_text + rest
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
