//! Many-shot prompts: examples of a classification whose mapping is drawn anew for every prompt, and a question for one more.
//!
//! Words fall into a few classes, and each class has a label that nobody can know: the paper's Figures 6 and 7 in synthetic
//! form. A word is a city, its label a special magic number, in the sentence that needles have, so that models which were
//! trained on needles can be asked too. The examples of more shots begin with those of fewer, and arrangements of the same
//! examples differ in their order alone: what differs between two prompts of one seed is what the two specs say.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::plan::{distinct_values, Plan};
use super::{CitySet, Prompt, Tokenizer};
use crate::bail_usage;
use crate::rng::Rng;

/// What a many-shot prompt is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShotsSpec {
    /// Tokens that it has at most.
    pub ctx_tok: usize,
    /// Examples.
    pub shots: usize,
    /// Words, all of them in turn before one comes again.
    pub words: usize,
    /// Classes that the words are dealt to.
    pub classes: usize,
    /// In which order the examples stand.
    pub order: Order,
    /// Which of the many such orders.
    pub arrangement: u64,
}

/// How the same examples are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Order {
    /// As it comes.
    Random,
    /// One class after the other.
    ByClass,
    /// One example of each class in turn.
    Alternating,
}

impl Order {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What the task of a record begins with; the order follows.
const TASK: &str = "shots ";

impl ShotsSpec {
    /// The task that records name: `shots by-class`.
    pub fn task(&self) -> String {
        format!("{TASK}{}", self.order.name())
    }

    /// Checks what can be checked without a tokenizer.
    ///
    /// # Errors
    /// A usage error that says what is wrong.
    pub fn check(&self) -> Result<()> {
        let Self { shots, words, classes, .. } = *self;
        let known = CitySet::Train.cities().len();
        if shots == 0 {
            bail_usage!("`shots` 0: without an example nobody can know a label");
        }
        if !(2..=known).contains(&words) {
            bail_usage!("`words` {words}: there can be 2 to {known}");
        }
        if !(2..=words).contains(&classes) {
            bail_usage!("`classes` {classes}: {words} words can have 2 to {words}");
        }
        Ok(())
    }
}

/// The order of the examples that the task of a record names; nothing for other tasks.
pub fn order_of(task: &str) -> Option<&str> {
    task.strip_prefix(TASK)
}

/// Builds the prompt of a seed. It asks for the word of the first example drawn, which more shots show again.
///
/// # Errors
/// Usage errors if the spec is inconsistent or the examples take more than `ctx_tok`; an error that names the word and the seed
/// if the tokenizer has no boundary where a label begins.
pub fn build(spec: &ShotsSpec, seed: u64, tokenizer: &Tokenizer) -> Result<Prompt> {
    spec.check()?;
    let drawn = draw(spec, Rng::new(seed, "shots"));
    let asked = drawn[0].word;
    let examples = arranged(drawn, spec, Rng::new(seed, &format!("arrangement {}", spec.arrangement)));
    let last = examples.iter().rposition(|example| example.word == asked).expect("it was drawn");
    let needles = examples.into_iter().map(|Example { word, label, .. }| (word, label)).collect();
    let plan = Plan::of(needles, last);
    let boundaries: Vec<(usize, u64)> = (0..spec.shots as u64).map(|place| (0, place)).collect();
    let (layout, order) = plan.lay_out(&[], &boundaries, tokenizer.chat());
    let encoded = tokenizer.encode_prompt(&layout.text, &layout.markup)?;
    let n_tok = tokenizer.prompt_tok(&encoded);
    if n_tok > spec.ctx_tok {
        bail_usage!(
            "`shots` {}: so many examples take {n_tok} tokens, `ctx_tok` allows {}; have fewer of them, or more tokens",
            spec.shots,
            spec.ctx_tok
        );
    }
    let mut prompt =
        plan.prompt(layout, &order, encoded, tokenizer).with_context(|| format!("prompt of seed {seed}"))?;
    // Where the last example of the word stands among the examples: there is no filler to tell a depth by.
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

/// The examples: all words in turn, in another order each time round.
fn draw(spec: &ShotsSpec, mut rng: Rng) -> Vec<Example> {
    let words = rng.sample(CitySet::Train.cities(), spec.words);
    let labels = distinct_values(spec.classes, &mut rng);
    let example = |(i, &word): (usize, &&'static str)| {
        let class = i % spec.classes;
        Example { word, class, label: labels[class].clone() }
    };
    let mut round: Vec<Example> = words.iter().enumerate().map(example).collect();
    let mut drawn = Vec::with_capacity(spec.shots);
    while drawn.len() < spec.shots {
        rng.shuffle(&mut round);
        drawn.extend(round.iter().take(spec.shots - drawn.len()).cloned());
    }
    drawn
}

fn arranged(mut examples: Vec<Example>, spec: &ShotsSpec, mut rng: Rng) -> Vec<Example> {
    rng.shuffle(&mut examples);
    let mut classes: Vec<usize> = (0..spec.classes).collect();
    rng.shuffle(&mut classes);
    let place = |class: usize| classes.iter().position(|&other| other == class).expect("every class has a place");
    match spec.order {
        Order::Random => {}
        Order::ByClass => examples.sort_by_key(|example| place(example.class)),
        Order::Alternating => {
            let mut seen = vec![0; spec.classes];
            let mut turn = |class: usize| {
                seen[class] += 1;
                (seen[class], place(class))
            };
            let mut turns: Vec<((usize, usize), Example)> =
                examples.into_iter().map(|example| (turn(example.class), example)).collect();
            turns.sort_by_key(|(turn, _)| *turn);
            examples = turns.into_iter().map(|(_, example)| example).collect();
        }
    }
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit_code;
    use crate::prompt::Region;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const SPEC: ShotsSpec =
        ShotsSpec { ctx_tok: 4096, shots: 24, words: 8, classes: 4, order: Order::Random, arrangement: 0 };

    fn prompt(spec: &ShotsSpec, seed: u64) -> Prompt {
        build(spec, seed, Tokenizer::embedded()).unwrap()
    }

    /// Words and labels in the order of the text.
    fn examples(prompt: &Prompt) -> Vec<(&str, &str)> {
        prompt.needles.iter().map(|needle| (needle.city.as_str(), needle.value.as_str())).collect()
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
            prop_assert_eq!(labels[query.city.as_str()], query.value.as_str());
            let asked = Tokenizer::embedded().decode(&prompt.ids[query.predicted.clone()]).unwrap();
            prop_assert_eq!(asked, query.value.as_str());
            // All examples of the word count as its needle, all others as distractors.
            let regions = prompt.regions(Some(0));
            for needle in &prompt.needles {
                let expected = if needle.city == query.city { Region::Answer } else { Region::Distractor };
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
                .all(|one| sorted(one) == sorted(&whole) && one.queries[0].city == whole.queries[0].city));
            assert_ne!(examples(&all[0]), examples(&all[1]), "{order:?}");
        }
    }

    #[test]
    fn the_examples_of_more_shots_hold_those_of_fewer() {
        let (few, many) = (prompt(&ShotsSpec { shots: 5, ..SPEC }, 9), prompt(&SPEC, 9));
        assert!(examples(&few).iter().all(|example| examples(&many).contains(example)));
        assert_eq!(few.queries[0].city, many.queries[0].city);
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
    fn what_cannot_be_is_a_usage_error_that_says_why() {
        for (spec, expected) in [
            (ShotsSpec { shots: 0, ..SPEC }, "`shots` 0"),
            (ShotsSpec { words: 1, ..SPEC }, "`words` 1: there can be 2 to"),
            (ShotsSpec { words: 9999, ..SPEC }, "`words` 9999"),
            (ShotsSpec { classes: 9, ..SPEC }, "`classes` 9: 8 words can have 2 to 8"),
            (ShotsSpec { classes: 1, ..SPEC }, "`classes` 1"),
            (ShotsSpec { ctx_tok: 100, ..SPEC }, "`ctx_tok` allows 100"),
        ] {
            let error = build(&spec, 0, Tokenizer::embedded()).unwrap_err();
            assert!(error.to_string().contains(expected) && exit_code(&error) == 2, "{error}");
        }
        assert_eq!((order_of(&SPEC.task()), order_of("needle")), (Some("random"), None));
    }
}
