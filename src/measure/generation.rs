//! What does the model answer when it is left to speak?
//!
//! Differs from the literature, where a value counts as found if its digits stand anywhere in the output: there 123 is
//! found in 51234. Here numbers are whole runs of digits.

use super::{number, Findings, Kept, Measure, Place, Seen};
use crate::attention::RowProbe;
use crate::generate::{numbers, Generation, Stop};
use crate::prompt::Prompt;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Scores generated text, and keeps it.
#[derive(Default)]
pub struct GenerationMeasure {
    /// What was generated, in the order of the prompts.
    pub pooled: Vec<Generated>,
}

/// What one model said to one prompt. Lists have one entry for each number asked for, in the order of the question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// Name of the model.
    pub model: String,
    /// What was done to the attention; nothing where it was left alone.
    pub condition: Option<String>,
    /// Index among the prompts of the same kind.
    pub sample: Option<u64>,
    /// Seed of the prompt.
    pub seed: Option<u64>,
    /// Length of the prompt asked for, answers included, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text.
    pub needles: Option<usize>,
    /// Needles asked for.
    pub retrieve: Option<usize>,
    /// Depth asked for, in percent of the filler.
    pub depth_req_pct: Option<f64>,
    /// Where cities come from: `train` or `heldout`.
    pub cities: Option<String>,
    /// The cities asked for.
    pub asked: Vec<String>,
    /// Their values.
    pub expected: Vec<String>,
    /// What the model said.
    pub text: String,
    /// Its tokens, without the one that ends the text.
    pub ids: Vec<u32>,
    /// Why it ends.
    pub stop: Stop,
    /// Whether the values are the first numbers it says, in order.
    pub exact: Vec<bool>,
    /// Whether it says the values at all.
    pub contains: Vec<bool>,
}

/// Whether the i-th number of `text` is value i. White space may stand before the first value, and nothing else.
fn exact(text: &str, values: &[&str]) -> Vec<bool> {
    let found = numbers(text);
    let first = text.len() - text.trim_start().len();
    let said = |i: usize| found.get(i).filter(|number| i > 0 || number.start == first).map(|at| &text[at.clone()]);
    values.iter().enumerate().map(|(i, value)| said(i) == Some(value)).collect()
}

/// Whether each value is among the numbers of `text`.
fn contains(text: &str, values: &[&str]) -> Vec<bool> {
    let found = numbers(text);
    values.iter().map(|value| found.iter().any(|at| text[at.clone()] == **value)).collect()
}

impl Generated {
    fn new(seen: &Seen<'_>, generation: &Generation) -> Self {
        let (id, queries) = (seen.identity, &seen.prompt.queries);
        let values: Vec<&str> = queries.iter().map(|query| query.value.as_str()).collect();
        Self {
            model: id.model.clone(),
            condition: id.condition.as_deref().map(str::to_owned),
            sample: id.sample,
            seed: id.seed,
            ctx_tok: id.ctx_tok,
            needles: id.needles,
            retrieve: id.retrieve,
            depth_req_pct: id.depth_req_pct,
            cities: id.cities.as_deref().map(str::to_owned),
            asked: queries.iter().map(|query| query.city.clone()).collect(),
            expected: queries.iter().map(|query| query.value.clone()).collect(),
            text: generation.text.clone(),
            ids: generation.ids.clone(),
            stop: generation.stop,
            exact: exact(&generation.text, &values),
            contains: contains(&generation.text, &values),
        }
    }
}

impl Measure for GenerationMeasure {
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        Vec::new()
    }

    fn wants_generation(&self) -> bool {
        true
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let Some(generation) = seen.generation else { return Ok(()) };
        let generated = Generated::new(&seen, generation);
        for (query, (&exact, &contains)) in generated.exact.iter().zip(&generated.contains).enumerate() {
            for (metric, hit) in [("generated_exact", exact), ("generated_contains", contains)] {
                let found = number(metric, f64::from(u8::from(hit)), Some("fraction"), 1);
                findings.push(Some(query), "generated", found);
            }
        }
        findings.pooled = Some(Box::new(generated));
        Ok(())
    }

    fn absorb(&mut self, _place: Place, pooled: Kept) {
        self.pooled.push(*pooled.downcast().expect("this measure pools generated text"));
    }

    fn encode(&self, pooled: &Kept) -> Result<Option<Vec<u8>>> {
        let generated = pooled.downcast_ref::<Generated>().expect("this measure pools generated text");
        postcard::to_stdvec(generated).map(Some).context("generated text cannot be written")
    }

    fn decode(&self, bytes: &[u8]) -> Result<Kept> {
        let generated: Generated = postcard::from_bytes(bytes).context("what was generated cannot be read")?;
        Ok(Box::new(generated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_answer_begins_with_the_value_and_nothing_continues_it() {
        for (text, hit) in [
            ("48213", true),
            (" \n48213.", true),
            ("48213 or 99999", true),
            ("482130", false),
            ("**48213**", false),
            ("It is 48213.", false),
            ("48,213", false),
            ("99999, no: 48213", false),
            ("", false),
        ] {
            assert_eq!(exact(text, &["48213"]), [hit], "{text:?}");
        }
    }

    #[test]
    fn several_values_are_the_first_numbers_in_order() {
        let values = ["11111", "22222"];
        assert_eq!(exact("11111. The Rome number is: 22222. And 33333", &values), [true, true]);
        assert_eq!(exact("22222 and 11111", &values), [false, false]);
        assert_eq!(exact("33333, 22222", &values), [false, true], "each number is scored by itself");
        assert_eq!(exact("The numbers: 11111, 22222", &values), [false, true]);
        assert_eq!(exact("11111", &values), [true, false]);
    }

    #[test]
    fn a_value_is_contained_as_a_whole_number_only() {
        assert_eq!(contains("the number is 48213!", &["48213"]), [true]);
        assert_eq!(contains("148213 482130 48,213", &["48213"]), [false]);
        assert_eq!(contains("2: 22222, 1: 11111", &["11111", "22222", "33333"]), [true, true, false]);
    }
}
