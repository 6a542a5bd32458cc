//! Many-shot prompts: examples of a classification that is drawn anew for every prompt, and one question.
//!
//! Words are divided into a few classes, and each class has a random label: a synthetic version of the paper's Figures
//! 6 and 7. A word is a city and its label a special magic number, in the sentences of needles, so that models trained
//! on needles can answer. Prompts with more shots contain the examples of those with fewer, and arrangements differ
//! only in the order of the examples, so two prompts of one seed differ only as their specs do.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::needle::form::CITIES;
use super::needle::plan::{Boundary, NeedlePlan};
use super::{CitySet, Prompt, Tokenizer};
use base::bail_usage;
use base::spec_file::flag_defaults;
use names::repeated;
use names::values::TokenRange;
use stats::Rng;

/// Many-shot prompts: every prompt with each number of shots, in each order and arrangement.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ShotsPrompts {
    /// Numbers of examples
    #[arg(long, value_delimiter = ',', default_value = "8,32,128", value_name = "N")]
    pub shots: Vec<usize>,
    /// Number of words that are classified
    #[arg(long, default_value_t = 64, value_name = "N", hide_short_help = true)]
    pub words: usize,
    /// Number of classes, each with its own label
    #[arg(long, default_value_t = 8, value_name = "N", hide_short_help = true)]
    pub classes: usize,
    /// Orders of the examples
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random,by-class", hide_short_help = true)]
    pub order: Vec<Order>,
    /// Arrangements of the examples for each prompt and order
    #[arg(long, default_value_t = 4, value_name = "N", hide_short_help = true)]
    pub arrangements: usize,
    /// Number of prompts, each with its own classification
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub samples: usize,
    /// Largest prompt length in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the prompts
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
}

impl Default for ShotsPrompts {
    fn default() -> Self {
        flag_defaults()
    }
}

impl ShotsPrompts {
    /// Largest prompt length, in tokens.
    pub fn ctx_tok(&self) -> usize {
        self.ctx.and_then(TokenRange::single).unwrap_or(0)
    }

    pub(super) fn spec(&self, shots: usize, order: Order, arrangement: u64) -> ShotsSpec {
        let Self { words, classes, .. } = *self;
        ShotsSpec { ctx_tok: self.ctx_tok(), shots, words, classes, order, arrangement }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.arrangements == 0 || self.order.is_empty() || self.shots.is_empty() {
            bail_usage!("--arrangements, --order and --shots each name at least one");
        }
        if let Some(shots) = repeated(&self.shots) {
            bail_usage!("--shots {shots} is named twice");
        }
        if let Some(order) = repeated(&self.order) {
            bail_usage!("--order {} is named twice", order.name());
        }
        self.shots.iter().try_for_each(|&shots| self.spec(shots, Order::Random, 0).check())
    }
}

/// Specification of a many-shot prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShotsSpec {
    /// Maximum length of the prompt, in tokens.
    pub ctx_tok: usize,
    /// Number of examples.
    pub shots: usize,
    /// Number of words. All are used before one repeats.
    pub words: usize,
    /// Number of classes.
    pub classes: usize,
    /// Order of the examples.
    pub order: Order,
    /// Index of the arrangement among all with this order.
    pub arrangement: u64,
}

/// Order of the examples.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Order {
    /// Random order
    Random,
    /// One class after the other
    ByClass,
    /// One example of each class in turn
    Alternating,
}

impl Order {
    /// Name in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Prefix of the task in records, before the order.
const TASK: &str = "shots ";

impl ShotsSpec {
    /// Name of the task in records: `shots by-class`.
    pub fn task(&self) -> String {
        format!("{TASK}{}", self.order.name())
    }

    /// Checks what does not need a tokenizer. Inconsistencies are usage errors.
    pub fn check(&self) -> Result<()> {
        let Self { ctx_tok, shots, words, classes, .. } = *self;
        let known = CitySet::Train.cities().len();
        if shots == 0 {
            bail_usage!("--shots 0: at least one example is needed");
        }
        if shots > ctx_tok {
            bail_usage!("--shots {shots}: a prompt of {ctx_tok} tokens (--ctx) has no room for as many examples");
        }
        if !(2..=known).contains(&words) {
            bail_usage!("--words {words}: expected 2 to {known}");
        }
        if !(2..=words).contains(&classes) {
            bail_usage!("--classes {classes}: expected 2 to {words}, the number of words");
        }
        Ok(())
    }
}

/// The order of the examples in a task name of records, or `None` for other tasks.
pub fn order_of(task: &str) -> Option<&str> {
    task.strip_prefix(TASK)
}

/// Builds the prompt of a seed. The question is about the word of the first example drawn, which more shots repeat.
///
/// # Errors
/// Usage errors if the spec is inconsistent or the examples exceed `ctx_tok`. An error with the word and the seed if
/// the tokenizer joins a label with its surroundings.
pub fn build(spec: &ShotsSpec, seed: u64, tokenizer: &Tokenizer) -> Result<Prompt> {
    spec.check()?;
    let drawn = draw(spec, Rng::new(seed, "shots"));
    let asked = drawn[0].word;
    let examples = arranged(drawn, spec, Rng::new(seed, &format!("arrangement {}", spec.arrangement)));
    let last = examples.iter().rposition(|example| example.word == asked).expect("it was drawn");
    let needles = examples.iter().map(|example| CITIES.fact(example.word, &example.label)).collect();
    let plan = NeedlePlan::asking(&CITIES, needles, last, 0.0, Rng::new(0, "no filler"));
    let boundaries: Vec<_> = (0..spec.shots as u64).map(|order| Boundary { sentences: 0, order }).collect();
    let layout = plan.lay_out(&[], &boundaries, " ", tokenizer.chat());
    let encoded = tokenizer.encode_prompt(&layout.text, &layout.markup)?;
    let n_tok = tokenizer.prompt_tok(&encoded);
    if n_tok > spec.ctx_tok {
        bail_usage!(
            "--shots {}: these examples take {n_tok} tokens, but --ctx allows {}; reduce --shots or raise --ctx",
            spec.shots,
            spec.ctx_tok
        );
    }
    let mut prompt = layout.prompt(&plan, encoded, tokenizer).with_context(|| format!("prompt of seed {seed}"))?;
    // Position of the word's last example among the examples, since there is no filler.
    let within = prompt.queries[0].needle.start - prompt.haystack.start;
    prompt.queries[0].depth_real_pct = 100.0 * within as f64 / prompt.haystack.len().max(1) as f64;
    Ok(prompt)
}

/// An example: a word, its class, and the label of the class.
#[derive(Clone, Debug)]
struct Example {
    word: &'static str,
    class: usize,
    label: String,
}

/// Draws the examples: rounds of all words, each round in a new order.
fn draw(spec: &ShotsSpec, mut rng: Rng) -> Vec<Example> {
    let words = rng.sample(CitySet::Train.cities(), spec.words);
    let labels = CITIES.values.draw(spec.classes, &mut rng);
    let mut round = Vec::new();
    for (i, &word) in words.iter().enumerate() {
        let class = i % spec.classes;
        round.push(Example { word, class, label: labels[class].clone() });
    }
    let mut drawn = Vec::with_capacity(spec.shots);
    while drawn.len() < spec.shots {
        rng.shuffle(&mut round);
        drawn.extend(round.iter().take(spec.shots - drawn.len()).cloned());
    }
    drawn
}

/// Shuffles the examples, and puts them into their order.
fn arranged(mut examples: Vec<Example>, spec: &ShotsSpec, mut rng: Rng) -> Vec<Example> {
    rng.shuffle(&mut examples);
    let mut classes: Vec<usize> = (0..spec.classes).collect();
    rng.shuffle(&mut classes);
    let mut places = vec![0; spec.classes];
    for (place, &class) in classes.iter().enumerate() {
        places[class] = place;
    }
    match spec.order {
        Order::Random => {}
        Order::ByClass => examples.sort_by_key(|example| places[example.class]),
        Order::Alternating => {
            let mut turns = vec![0; spec.classes];
            let mut ordered = Vec::with_capacity(examples.len());
            for example in examples {
                turns[example.class] += 1;
                ordered.push(((turns[example.class], places[example.class]), example));
            }
            ordered.sort_by_key(|(turn, _)| *turn);
            examples = ordered.into_iter().map(|(_, example)| example).collect();
        }
    }
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::exit_code;
    use names::Region;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const SPEC: ShotsSpec =
        ShotsSpec { ctx_tok: 4096, shots: 24, words: 8, classes: 4, order: Order::Random, arrangement: 0 };

    fn prompt(spec: &ShotsSpec, seed: u64) -> Prompt {
        build(spec, seed, Tokenizer::embedded()).unwrap()
    }

    /// Words and labels in the order of the text.
    fn examples(prompt: &Prompt) -> Vec<(&str, &str)> {
        prompt.needles.iter().map(|needle| (needle.name.as_str(), needle.value.as_str())).collect()
    }

    fn sorted(prompt: &Prompt) -> Vec<(&str, &str)> {
        let mut examples = examples(prompt);
        examples.sort_unstable();
        examples
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn every_word_has_one_label_and_the_question_is_about_a_word_that_was_shown(
            shots in 1_usize..60, words in 2_usize..16, seed: u64,
            order in prop_oneof![Just(Order::Random), Just(Order::ByClass), Just(Order::Alternating)]
        ) {
            let spec = ShotsSpec { shots, words, classes: 2 + seed as usize % (words - 1), order, ..SPEC };
            let prompt = prompt(&spec, seed);
            prop_assert_eq!((prompt.needles.len(), prompt.queries.len()), (shots, 1));
            let labels: BTreeMap<&str, &str> = examples(&prompt).into_iter().collect();
            prop_assert!(examples(&prompt).iter().all(|(word, label)| labels[word] == *label));
            let different: BTreeSet<&str> = labels.values().copied().collect();
            prop_assert!(different.len() <= spec.classes && (shots < words || different.len() == spec.classes));
            let query = &prompt.queries[0];
            prop_assert_eq!(labels[query.name.as_str()], query.value.as_str());
            let asked = Tokenizer::embedded().decode(&prompt.ids[query.predicted.clone()]).unwrap();
            prop_assert_eq!(asked, query.value.as_str());
            // All examples of the word count as its needle, all others as distractors.
            let regions = prompt.regions(Some(0));
            for needle in &prompt.needles {
                let expected = if needle.name == query.name { Region::Answer } else { Region::Distractor };
                prop_assert!(regions[needle.answer.clone()].iter().all(|&region| region == expected));
            }
        }
    }

    #[test]
    fn arrangements_and_orders_of_a_seed_hold_the_same_examples_and_ask_the_same() {
        let whole = prompt(&SPEC, 3);
        for order in [Order::Random, Order::ByClass, Order::Alternating] {
            let all: Vec<Prompt> =
                (0..3).map(|arrangement| prompt(&ShotsSpec { order, arrangement, ..SPEC }, 3)).collect();
            assert!(all
                .iter()
                .all(|one| sorted(one) == sorted(&whole) && one.queries[0].name == whole.queries[0].name));
            assert_ne!(examples(&all[0]), examples(&all[1]), "{order:?}");
        }
    }

    #[test]
    fn the_examples_of_more_shots_hold_those_of_fewer() {
        let few = prompt(&ShotsSpec { shots: 5, ..SPEC }, 9);
        let many = prompt(&SPEC, 9);
        assert!(examples(&few).iter().all(|example| examples(&many).contains(example)));
        assert_eq!(few.queries[0].name, many.queries[0].name);
        assert_ne!(prompt(&SPEC, 10).queries[0].value, many.queries[0].value, "every prompt has its own mapping");
    }

    #[test]
    fn classes_stand_together_or_take_turns() {
        let labels = |order| {
            let prompt = prompt(&ShotsSpec { order, ..SPEC }, 1);
            prompt.needles.iter().map(|needle| needle.value.clone()).collect::<Vec<String>>()
        };
        let by_class = labels(Order::ByClass);
        assert_eq!(by_class.chunk_by(|a, b| a == b).count(), 4);
        let alternating = labels(Order::Alternating);
        assert!(alternating.chunks(4).all(|turn| turn == &alternating[..4]), "{alternating:?}");
        assert!(labels(Order::Random).chunk_by(|a, b| a == b).count() > 4);
    }

    #[test]
    fn impossible_specs_are_usage_errors_with_the_reason() {
        for (spec, expected) in [
            (ShotsSpec { shots: 0, ..SPEC }, "--shots 0"),
            (ShotsSpec { words: 1, ..SPEC }, "--words 1: expected 2 to"),
            (ShotsSpec { words: 9999, ..SPEC }, "--words 9999"),
            (ShotsSpec { classes: 9, ..SPEC }, "--classes 9: expected 2 to 8"),
            (ShotsSpec { classes: 1, ..SPEC }, "--classes 1"),
            (ShotsSpec { ctx_tok: 100, ..SPEC }, "--ctx allows 100"),
        ] {
            let error = build(&spec, 0, Tokenizer::embedded()).unwrap_err();
            assert!(error.to_string().contains(expected) && exit_code(&error) == 2, "{error}");
        }
        assert_eq!((order_of(&SPEC.task()), order_of("needle")), (Some("random"), None));
    }

    #[test]
    fn orders_shots_and_arrangements_of_a_prompt_share_its_seed() {
        let grid = super::super::Grid::Shots(ShotsPrompts {
            shots: vec![4, 8],
            arrangements: 3,
            samples: 5,
            ctx: Some(1024.into()),
            ..ShotsPrompts::default()
        });
        let prompts = grid.prompts();
        assert_eq!((prompts.len(), grid.count()), (60, Some(60)));
        let mut by_seed: BTreeMap<u64, usize> = BTreeMap::new();
        prompts.iter().for_each(|prompt| *by_seed.entry(prompt.seed(1)).or_default() += 1);
        assert_eq!(by_seed.into_values().collect::<Vec<_>>(), [12; 5]);
        assert!(prompts.iter().enumerate().all(|(i, prompt)| prompt.index == i as u64));
    }
}
