//! The fixed sentences of prompts and training documents.

use super::facts::{Fact, ValueKind};
use super::needle_spec::NeedleForm;
use super::ruler;

/// The wordings of a fact, by their index in [`DocumentSpec::wordings`]: the texts before, between and behind the city
/// and the value. The first is the needle of the evaluation.
pub const WORDINGS: [[&str; 3]; 8] = [
    ["The special magic ", " number is: ", "."],
    ["", " ", "."],
    ["", " number: ", "."],
    ["In ", " the number is ", "."],
    ["The number of ", " is ", "."],
    ["The magic number of ", " is ", "."],
    ["", " has the number ", "."],
    ["People in ", " know the number ", "."],
];

/// The instructions before the haystack.
#[cfg(test)]
pub(super) const PREAMBLE: &str =
    "There are special magic numbers hidden in the irrelevant text below. Find them and remember them.";

/// The sentence of a needle in its published form.
pub fn sentence(city: &str, value: &str) -> String {
    format!("{}{value}{}", stem(city), WORDINGS[0][2])
}

/// A needle up to its value, which is also the prefix of its answer.
pub(super) fn stem(city: &str) -> String {
    let [before, between, _] = WORDINGS[0];
    format!("{before}{city}{between}")
}

/// The question about cities, in the order given.
#[cfg(test)]
pub(super) fn question(cities: &[&str]) -> String {
    let cities: Vec<String> = cities.iter().map(|city| (*city).to_owned()).collect();
    NeedleForm::default().about(NUMBERS.question, &cities, cities.len())
}

/// The texts of a kind of needle prompt: instructions, haystack, question, answers. Pairs are for one answer and for
/// several. Texts have places for `{noun}` (what the values are), `{key}`, `{value}`, `{previous}` (the key before in
/// a chain), `{query}` (what is asked about) and `{n}` (the number of answers).
pub(super) struct Wording {
    /// Instructions before the haystack.
    pub(super) preamble: [&'static str; 2],
    /// Text between instructions and haystack.
    pub(super) gap: &'static str,
    /// Whether sentences stand on lines of their own where the haystack is no prose.
    pub(super) has_lines: bool,
    /// A needle before and behind its answer. Of a chain, the first needle.
    pub(super) needle: [&'static str; 2],
    /// A further needle of a chain.
    pub(super) link: [&'static str; 2],
    /// The question.
    pub(super) question: [&'static str; 2],
    /// Text between the last two keys of a question; others have a comma.
    pub(super) last_key: &'static str,
    /// Text between question and answers, which a chat template replaces.
    pub(super) lead: &'static str,
    /// Text before all answers.
    pub(super) prefix: [&'static str; 2],
    /// Whether each answer is repeated as a sentence, or they are a list.
    pub(super) answers: AnswerForm,
    /// Digits of a value.
    pub(super) digits: usize,
    /// Tokens that the answers are given at least, as a part of the length of the prompt.
    pub(super) answers_tok: usize,
    /// Most tokens of a worked example before the prompt; 0 for none.
    pub(super) example_tok: usize,
}

/// How answers stand behind the question.
#[derive(Clone, Copy)]
pub(super) enum AnswerForm {
    /// Each in the sentence of its needle.
    Sentences,
    /// A list.
    List {
        /// Text before each answer.
        before: &'static str,
        /// Text between two answers.
        between: &'static str,
        /// Text behind the last one.
        end: &'static str,
    },
}

/// Special magic numbers of cities.
const NUMBERS: Wording = Wording {
    preamble: ["There are special magic {noun}s hidden in the irrelevant text below. Find them and remember them."; 2],
    gap: "\n",
    has_lines: false,
    needle: ["The special magic {key} {noun} is: ", "."],
    link: ["", ""],
    question: ["What is the special magic {query} {noun}?", "What are the special magic {query} {noun}s?"],
    last_key: " and ",
    lead: "\n",
    prefix: [""; 2],
    answers: AnswerForm::Sentences,
    digits: 5,
    answers_tok: 0,
    example_tok: 0,
};

/// Needles, questions and answers of a file, in any language, with nothing in English around them.
const FILE: Wording = Wording {
    preamble: [""; 2],
    gap: "",
    needle: ["", ""],
    question: ["{query}"; 2],
    answers: AnswerForm::List { before: "", between: "", end: "" },
    ..NUMBERS
};

/// The text with its places filled in.
fn filled(text: &str, places: &[(&str, &str)]) -> String {
    places.iter().fold(text.to_owned(), |text, (place, content)| text.replace(&format!("{{{place}}}"), content))
}

impl NeedleForm {
    /// The texts of prompts of this form.
    pub(super) fn wording(&self) -> &'static Wording {
        match self {
            Self::Cities { .. } => &NUMBERS,
            Self::File => &FILE,
            Self::Ruler(task) => ruler::wording(*task),
        }
    }

    /// The noun for values.
    fn noun(&self) -> &'static str {
        match self.kinds().values {
            ValueKind::Digits => "number",
            ValueKind::Uuid => "uuid",
        }
    }

    /// The needle that gives a key its value. In a chain the key is the answer.
    pub(super) fn fact(&self, key: &str, value: &str) -> Fact {
        self.sentence(self.wording().needle, key, if self.kinds().hops > 0 { key } else { value }, value)
    }

    /// The needle that gives a key the value of another one.
    pub(super) fn link(&self, key: &str, previous: &str) -> Fact {
        self.sentence(self.wording().link, key, key, previous)
    }

    fn sentence(&self, around: [&str; 2], key: &str, answer: &str, other: &str) -> Fact {
        let places = [("noun", self.noun()), ("key", key), ("value", other), ("previous", other)];
        let [before, behind] = around.map(|text| filled(text, &places));
        Fact { key: key.to_owned(), value: answer.to_owned(), before, behind }
    }

    /// The instructions before the haystack.
    pub(super) fn preamble(&self, answers: usize) -> String {
        filled(self.wording().preamble[usize::from(answers > 1)], &[("noun", self.noun())])
    }

    /// A text about `asked`, in this order, with so many answers: the question, or what stands before the answers.
    pub(super) fn about(&self, texts: [&str; 2], asked: &[String], answers: usize) -> String {
        let query = match asked {
            [others @ .., last] if !others.is_empty() => {
                format!("{}{}{last}", others.join(", "), self.wording().last_key)
            }
            asked => asked.concat(),
        };
        let n = answers.to_string();
        filled(texts[usize::from(answers > 1)], &[("noun", self.noun()), ("query", &query), ("n", &n)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_texts_are_those_that_the_embedded_models_are_trained_on() {
        let form = NeedleForm::default();
        assert_eq!(form.preamble(1), PREAMBLE);
        let fact = form.fact("Oslo", "12345");
        assert_eq!((fact.before.as_str(), fact.sentence()), (stem("Oslo").as_str(), sentence("Oslo", "12345")));
        assert_eq!(question(&["Oslo"]), "What is the special magic Oslo number?");
        assert_eq!(question(&["Oslo", "Rome", "Lima"]), "What are the special magic Oslo, Rome and Lima numbers?");
    }
}
