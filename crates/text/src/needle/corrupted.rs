//! The second prompt of activation patching: another answer in the text, and everything else in its place.

use super::form::CITIES;
use crate::{Prompt, Tokenizer};
use anyhow::{bail, ensure, Result};
use stats::Rng;

/// Values that are tried until one has tokens of the same lengths.
const ATTEMPTS: usize = 1000;

impl Prompt {
    /// The prompt with other values in the needles that are asked for, at every place of each. A value has as many tokens as
    /// before, and they stand for as many bytes, so that every token keeps its place. The answers after the questions stay.
    ///
    /// # Errors
    /// If a question has no needle, or the tokenizer joins a value with its surroundings or has no other value like it.
    pub fn corrupted(&self, seed: u64, tokenizer: &Tokenizer) -> Result<Self> {
        let mut other = self.clone();
        let mut rng = Rng::new(seed, "other values");
        let mut taken: Vec<String> = self.needles.iter().map(|needle| needle.value.clone()).collect();
        for query in &self.queries {
            if !query.is_answerable() {
                bail!("the text does not hold the answer about {}, so no other can be put in its place", query.name)
            }
            let name = &query.name;
            let value = &query.value;
            let (ids, lengths) = value_tokens(name, value, tokenizer)?;
            let (other_value, other_ids) = another_value(name, &lengths, &taken, &mut rng, tokenizer)?;
            for needle in other.needles.iter_mut().filter(|needle| needle.name == *name && needle.value == *value) {
                let answer = needle.answer.clone();
                ensure!(
                    ids == self.ids[answer.clone()],
                    "{value} of {name} has other tokens by itself than in the prompt"
                );
                other.ids[answer.clone()].copy_from_slice(&other_ids);
                let end = self.offsets[answer.end - 1].1;
                other.text.replace_range(end - value.len()..end, &other_value);
                needle.value.clone_from(&other_value);
            }
            taken.push(other_value);
        }
        Ok(other)
    }
}

/// A value that is not among those `taken`, whose tokens have these lengths in bytes, and its tokens.
fn another_value(
    name: &str,
    lengths: &[usize],
    taken: &[String],
    rng: &mut Rng,
    tokenizer: &Tokenizer,
) -> Result<(String, Vec<u32>)> {
    for _ in 0..ATTEMPTS {
        let value = CITIES.values.draw(1, rng).swap_remove(0);
        if taken.contains(&value) {
            continue;
        }
        let (ids, value_lengths) = value_tokens(name, &value, tokenizer)?;
        if value_lengths == lengths {
            return Ok((value, ids));
        }
    }
    bail!("{}: none of {ATTEMPTS} other values of {name} has as many tokens of the same lengths", tokenizer.name)
}

/// The tokens of a value in its sentence, and their lengths in bytes.
fn value_tokens(name: &str, value: &str, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<usize>)> {
    let fact = CITIES.fact(name, value);
    let encoded = tokenizer.encode(&fact.sentence())?;
    let value_start = fact.before.len();
    let value_end = value_start + value.len();
    let mut ids = Vec::new();
    let mut lengths = Vec::new();
    for (id, (start, end)) in encoded.ids.into_iter().zip(encoded.offsets) {
        if end > value_start && start < value_end {
            ids.push(id);
            lengths.push(end - start);
        }
    }
    Ok((ids, lengths))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{needle, CitySet, Haystack, NeedleSpec};

    #[test]
    fn only_the_values_asked_for_differ_and_every_token_keeps_its_place() {
        let spec = NeedleSpec { ctx_tok: 400, needles: 3, retrieve: 2, ..NeedleSpec::default() };
        let tokenizer = Tokenizer::embedded();
        let prompt = needle::build(&spec, 5, tokenizer, &Haystack::Embedded).unwrap();
        let other = prompt.corrupted(7, tokenizer).unwrap();
        assert_eq!(other, prompt.corrupted(7, tokenizer).unwrap(), "the seed decides");
        let changed: Vec<usize> = (0..prompt.ids.len()).filter(|&i| prompt.ids[i] != other.ids[i]).collect();
        let within = |i: &usize| prompt.queries.iter().any(|query| query.answer.contains(i));
        assert!(!changed.is_empty() && changed.iter().all(within), "{changed:?}");
        assert_eq!((&other.offsets, &other.queries), (&prompt.offsets, &prompt.queries));
        for query in &prompt.queries {
            let value = tokenizer.decode(&other.ids[query.answer.clone()]).unwrap();
            assert_ne!(value, query.value);
            assert!(other.text.contains(&CITIES.fact(&query.name, &value).sentence()) && !prompt.text.contains(&value));
            assert_eq!(other.needles.iter().find(|needle| needle.name == query.name).unwrap().value, value);
        }
        assert_eq!(tokenizer.encode(&other.text).unwrap().ids, other.ids[1..], "as the tokenizer cuts it");
    }

    #[test]
    fn a_question_without_an_answer_has_no_other_prompt() {
        let spec = NeedleSpec { ctx_tok: 400, needles: 2, cities: CitySet::Absent, ..NeedleSpec::default() };
        let prompt = needle::build(&spec, 5, Tokenizer::embedded(), &Haystack::Embedded).unwrap();
        let error = prompt.corrupted(7, Tokenizer::embedded()).unwrap_err().to_string();
        assert!(error.contains("does not hold the answer"), "{error}");
    }
}
