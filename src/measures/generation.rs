//! Answers in freely generated text.
//!
//! Numbers are whole runs of digits. Published scores often count a value as said if its digits occur anywhere in the
//! output, so that 51234 says 123. Of values that are no numbers, an answer says those of the prompt's needles that
//! occur in it as whole words of their language, whatever their case; in scripts without spaces, those that it contains.

use super::{decoded, encoded, number, Measure, MeasureData, MeasureOutput, Needs, ObservedPass, PassKey};
use crate::results::run_table::{number_table, Content, RunTable};
use crate::results::table::Table;
use crate::results::Frame;
use anyhow::Result;
use engine::model::generate::{numbers, Generation, StopReason};
use names::metric::{GENERATED_ACCURACY, GENERATED_CONTAINS, SAID_NUMBER, SAID_OTHER_NEEDLE};
use names::Column;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use text::{folded, is_inside_word, Prompt, Query};

/// Scores generated text and pools it.
#[derive(Default)]
pub(crate) struct GenerationMeasure {
    /// Generated texts, in the order of the prompts.
    pub(crate) pooled: Vec<Generated>,
}

impl Measure for GenerationMeasure {
    fn needs(&self) -> Needs {
        Needs { generation: true, ..Needs::default() }
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let Some(generation) = pass.generation else { return Ok(()) };
        let generated = Generated::new(&pass, generation);
        let asks_for_numbers = pass.prompt.asks_for_numbers();
        for (i, query) in pass.prompt.queries.iter().enumerate() {
            let mut hits = Vec::new();
            if query.is_answerable() {
                hits.push((GENERATED_ACCURACY, generated.exact[i]));
                hits.push((GENERATED_CONTAINS, generated.contains[i]));
            }
            if asks_for_numbers {
                hits.push((SAID_NUMBER, generated.said[i].is_some()));
            }
            hits.push((SAID_OTHER_NEEDLE, generated.copied[i]));
            for (metric, hit) in hits {
                output.push(Some(i), "generated", number(&metric, f64::from(u8::from(hit)), 1));
            }
        }
        output.pooled = Some(Box::new(generated));
        Ok(())
    }

    fn absorb(&mut self, _key: PassKey, pooled: MeasureData) {
        self.pooled.push(*pooled.downcast().expect("this measure pools generated text"));
    }

    fn encode(&self, pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        encoded::<Generated>(pooled)
    }

    fn decode(&self, bytes: &[u8]) -> Result<MeasureData> {
        decoded::<Generated>(bytes)
    }
}

impl GenerationMeasure {
    /// The first words that a model generated without treatment, for each of its prompts.
    pub(crate) fn first_words<'a>(&'a self, model: &'a str) -> impl Iterator<Item = String> + 'a {
        const WORDS: usize = 12;
        let untreated = self.pooled.iter().filter(move |said| said.model == model && said.condition.is_none());
        untreated.map(|said| said.text.split_whitespace().take(WORDS).collect::<Vec<_>>().join(" "))
    }
}

/// The text that one model generated for one prompt; a line of `generations.jsonl`. Lists have one entry for each
/// number asked for, in the order of the question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Generated {
    model: String,
    /// Condition; `None` for untreated attention.
    condition: Option<String>,
    /// Index among the prompts of the same kind.
    sample: Option<u64>,
    seed: Option<u64>,
    /// Requested length of the prompt with its answers, in tokens.
    ctx_tok: usize,
    needles: Option<usize>,
    retrieve: Option<usize>,
    /// Requested depth, in percent of the filler.
    depth_req_pct: Option<f64>,
    /// Set of the cities: `train` or `absent`.
    cities: Option<String>,
    /// The names asked for.
    asked: Vec<String>,
    /// Their values.
    expected: Vec<String>,
    text: String,
    /// Its token ids, without the end-of-sequence token.
    ids: Vec<u32>,
    stop: StopReason,
    /// `true` if the i-th number of the text is value i.
    exact: Vec<bool>,
    /// `true` if the value is any number of the text.
    contains: Vec<bool>,
    /// The i-th number of the answer; `None` if it has fewer.
    said: Vec<Option<String>>,
    /// `true` if that number is the value of another needle in the prompt.
    copied: Vec<bool>,
}

impl Generated {
    fn new(pass: &ObservedPass<'_>, generation: &Generation) -> Self {
        let id = pass.identity;
        let queries = &pass.prompt.queries;
        let values: Vec<&str> = queries.iter().map(|query| query.value.as_str()).collect();
        let sayable = Sayable::new(pass.prompt);
        let text = folded(&generation.text);
        let values_said = sayable.find(&text);
        let said = match sayable {
            Sayable::Numbers => first_numbers(&generation.text, queries.len()),
            Sayable::Values(_) => (0..queries.len()).map(|i| Some(values_said.get(i)?.text.clone())).collect(),
        };
        let mut copied = Vec::new();
        for (query, said) in queries.iter().zip(&said) {
            copied.push(is_copied(pass.prompt, query, said.as_deref()));
        }
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
            asked: queries.iter().map(|query| query.name.clone()).collect(),
            expected: queries.iter().map(|query| query.value.clone()).collect(),
            text: generation.text.clone(),
            ids: generation.ids.clone(),
            stop: generation.stop,
            said,
            copied,
            exact: exact(&text, &values_said, &values),
            contains: contains(&values_said, &values),
        }
    }
}

/// A value that a text says.
struct Said {
    /// Its place in the text.
    at: Range<usize>,
    text: String,
}

/// The values that a text may say.
enum Sayable<'a> {
    /// Any number.
    Numbers,
    /// These texts, the longest first.
    Values(Vec<&'a str>),
}

impl<'a> Sayable<'a> {
    /// The values that answers to a prompt may say.
    fn new(prompt: &'a Prompt) -> Self {
        if prompt.asks_for_numbers() {
            return Self::Numbers;
        }
        let mut values: Vec<&str> = prompt.needles.iter().map(|needle| needle.value.as_str()).collect();
        values.extend(prompt.queries.iter().map(|query| query.value.as_str()));
        values.retain(|value| !value.is_empty());
        values.sort_unstable_by_key(|value| (std::cmp::Reverse(value.len()), *value));
        values.dedup();
        Self::Values(values)
    }

    /// The values in a [`folded`] text, in order.
    fn find(&self, text: &str) -> Vec<Said> {
        let values = match self {
            Self::Numbers => {
                let said = numbers(text).into_iter().map(|at| Said { text: text[at.clone()].to_owned(), at });
                return said.collect();
            }
            Self::Values(values) => values,
        };
        let mut said: Vec<Said> = Vec::new();
        for value in values {
            let folded = folded(value);
            for (start, _) in text.match_indices(&folded) {
                let at = start..start + folded.len();
                let is_free = said.iter().all(|other| at.end <= other.at.start || other.at.end <= at.start);
                if is_free && !is_inside_word(text, at.start) && !is_inside_word(text, at.end) {
                    said.push(Said { at, text: (*value).to_owned() });
                }
            }
        }
        said.sort_unstable_by_key(|said| said.at.start);
        said
    }
}

/// Returns, for each value, `true` if it is the i-th one said in `text`. Only white space may come before the first one.
fn exact(text: &str, values_said: &[Said], values: &[&str]) -> Vec<bool> {
    let begin = text.len() - text.trim_start().len();
    let mut exact = Vec::new();
    for (i, value) in values.iter().enumerate() {
        exact.push(values_said.get(i).is_some_and(|said| said.text == *value && (i > 0 || said.at.start == begin)));
    }
    exact
}

/// The first `n` numbers of an answer; `None` for those it does not have. If its first sentence has no number, it has
/// none, because numbers after a refusal are not an answer.
fn first_numbers(text: &str, n: usize) -> Vec<Option<String>> {
    let mut said = numbers(text);
    let begin = text.len() - text.trim_start().len();
    let ends = [". ", "! ", "? ", "\n"].iter().filter_map(|mark| Some(begin + text[begin..].find(mark)?));
    if let (Some(first), Some(end)) = (said.first(), ends.min()) {
        if first.start > end {
            said.clear();
        }
    }
    (0..n).map(|i| said.get(i).map(|at| text[at.clone()].to_owned())).collect()
}

/// Returns `true` if a number is the value of another needle in the prompt.
fn is_copied(prompt: &Prompt, query: &Query, number: Option<&str>) -> bool {
    let mut others = prompt.needles.iter().filter(|needle| needle.name != query.name && needle.value != query.value);
    number.is_some_and(|number| others.any(|needle| needle.value == number))
}

/// Returns, for each value, `true` if it was said.
fn contains(values_said: &[Said], values: &[&str]) -> Vec<bool> {
    values.iter().map(|value| values_said.iter().any(|said| said.text == *value)).collect()
}

pub(crate) const UNANSWERABLE: RunTable = RunTable {
    id: "unanswerable",
    title: "Questions without an answer",
    note: "Asked for names that the text does not hold (absent), beside the same texts asked for what they hold [95 % interval].",
    content: Content::Made(unanswerable),
};

/// Answers to questions without an answer, beside those to the same texts with one.
fn unanswerable(frame: &Frame) -> Option<Table> {
    let asks_for_absent = frame.cities.iter().any(|cities| cities == "absent");
    let numbers = [SAID_NUMBER.overall(), SAID_OTHER_NEEDLE.overall()];
    asks_for_absent.then(|| number_table(frame, &numbers, &[Column::Cities]))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::{needle, CitySet, Haystack, NeedleSpec, Tokenizer};

    fn exact(text: &str, values: &[&str]) -> Vec<bool> {
        super::exact(text, &Sayable::Numbers.find(text), values)
    }

    fn contains(text: &str, values: &[&str]) -> Vec<bool> {
        super::contains(&Sayable::Numbers.find(text), values)
    }

    #[test]
    fn values_that_are_no_numbers_are_said_as_whole_words_in_any_case() {
        let sayable = Sayable::Values(vec!["quiet-harbor", "QXVBA", "harbor"]);
        let said =
            |text: &str| -> Vec<String> { sayable.find(&folded(text)).into_iter().map(|said| said.text).collect() };
        assert_eq!(said(" qxvba, QXVBAS and Quiet-Harbor."), ["QXVBA", "quiet-harbor"]);
        assert_eq!(said("harbors"), [""; 0]);
        let text = folded(" Quiet-harbor, QXVBA");
        assert_eq!(super::exact(&text, &sayable.find(&text), &["quiet-harbor", "QXVBA"]), [true, true]);
    }

    #[test]
    fn values_are_said_as_their_language_writes_words() {
        for (value, text, exact, contains) in [
            ("Fuß", " Fußball", false, false),
            ("Fuß", " Der FUSS.", false, true),
            ("Straße", " STRASSE", true, true),
            ("Москва", " МОСКВА.", true, true),
            ("Москва", " Москвадан", false, false),
            ("Οδυσσεύς", " ΟΔΥΣΣΕΎΣ", true, true),
            ("Łódź", " łódź, nie Kraków", true, true),
            ("Jürgen", " Ju\u{308}rgen", true, true),
            ("Jose", " José", false, false),
            ("İzmir", " İZMİR'de", true, true),
            ("Ann", " It's Ann's.", false, true),
            ("북경", " 북경 입니다", true, true),
            ("北京", "答案是北京。", false, true),
            ("東京", "東京です", true, true),
            ("สายรุ้ง", "รหัสคือสายรุ้งครับ", false, true),
            ("दिल्ली", " दिल्ली।", true, true),
            ("بيت", " بيتك", false, false),
        ] {
            let text = folded(text);
            let said = Sayable::Values(vec![value]).find(&text);
            let found = (super::exact(&text, &said, &[value]), super::contains(&said, &[value]));
            assert_eq!(found, (vec![exact], vec![contains]), "{value} in {text}");
        }
    }

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
    fn numbers_of_other_needles_count_as_copied() {
        let spec = NeedleSpec {
            ctx_tok: 400,
            needles: 3,
            retrieve: 1,
            depth_pct: 50.0,
            cities: CitySet::Absent,
            ..NeedleSpec::default()
        };
        let prompt = needle::build(&spec, 7, Tokenizer::embedded(), &Haystack::Embedded).unwrap();
        let query = &prompt.queries[0];
        let other = prompt.needles[1].value.clone();
        assert!(is_copied(&prompt, query, Some(&other)) && !is_copied(&prompt, query, Some(&query.value)));
        assert!(!is_copied(&prompt, query, None));
        assert_eq!(first_numbers(&format!(" {other}. And 7"), 3), [Some(other.clone()), Some("7".into()), None]);
        assert_eq!(first_numbers(" not in the text. That of Hanoi is: 7", 1), [None]);
        assert_eq!(first_numbers("\n\n7", 1), [Some("7".into())]);
        let left = Tokenizer::embedded().decode(prompt.tokens_before_answer()).unwrap();
        assert!(left.ends_with("number is:"), "the space before an answer is part of it: {left}");
    }

    #[test]
    fn a_value_is_contained_as_a_whole_number_only() {
        assert_eq!(contains("the number is 48213!", &["48213"]), [true]);
        assert_eq!(contains("148213 482130 48,213", &["48213"]), [false]);
        assert_eq!(contains("2: 22222, 1: 11111", &["11111", "22222", "33333"]), [true, true, false]);
    }
}
