//! Forms of needles as data: their names and values, and all texts of a prompt around them.
//!
//! Texts and settings of the tasks of RULER (Hsieh et al. 2024, "RULER: What's the Real Context Size of Your Long-Context
//! Language Models?") are those of <https://github.com/NVIDIA/RULER>, files `scripts/synthetic.yaml` and
//! `scripts/data/synthetic/{constants,niah,variable_tracking}.py`, copyright NVIDIA, Apache License 2.0; the prompts are
//! built by difftool. `docs/questions.md` says where they differ.

use clap::builder::PossibleValue;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::facts::{Fact, NameKind, ValueKind};

/// Numbers of the needles of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedleCounts {
    /// Needles in the text (the paper's N).
    pub needles: usize,
    /// Needles asked for (the paper's R).
    pub asked: usize,
}

/// A form of needles. Pairs of texts are for one answer and for several. Texts have places for `{noun}` (what the values
/// are), `{name}`, `{value}`, `{previous}` (the name before in a chain), `{query}` (what is asked about) and `{n}` (the
/// number of answers).
#[derive(Debug, PartialEq)]
pub struct NeedleForm {
    /// Name in records; of a task of RULER, in flags too.
    pub name: &'static str,
    /// Line in the help of `--task`.
    about: &'static str,
    /// Numbers of needles in a task of RULER.
    pub setting: NeedleCounts,
    /// Name of the haystack if it is not prose, in a task of RULER.
    pub haystack: Option<&'static str>,
    pub(super) names: NameKind,
    pub(crate) values: ValueKind,
    /// Needles of each name, each with another value.
    pub(super) values_per_name: usize,
    /// Links of a chain: needles that give the value of another name to theirs. 0 for needles without chains.
    pub(super) hops: usize,
    /// Instructions before the haystack.
    preamble: [&'static str; 2],
    /// Text between instructions and haystack.
    pub(super) gap: &'static str,
    /// `true` if sentences stand on lines of their own where the haystack is no prose.
    pub(super) has_lines: bool,
    /// A needle before and behind its answer. Of a chain, the first needle.
    needle: [&'static str; 2],
    /// A further needle of a chain.
    link: [&'static str; 2],
    question: [&'static str; 2],
    /// Text between the last two names of a question; others have a comma.
    last_name: &'static str,
    /// Text between question and answers, which a chat template replaces.
    pub(super) lead: &'static str,
    /// Text before all answers.
    prefix: [&'static str; 2],
    pub(super) answers: AnswerForm,
    /// Least number of tokens that the length of the prompt holds for the answers.
    pub answers_tok: usize,
    /// Most tokens of a worked example before the prompt; 0 for none.
    pub(super) example_tok: usize,
}

/// Form of the answers behind the question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AnswerForm {
    /// Each in the sentence of its needle.
    Sentences,
    /// A list, with the texts before each answer, between two answers, and behind the last one.
    List { before: &'static str, between: &'static str, end: &'static str },
}

/// Special magic numbers of cities.
pub const CITIES: NeedleForm = NeedleForm {
    name: "needle",
    about: "",
    setting: NeedleCounts { needles: 1, asked: 1 },
    haystack: None,
    names: NameKind::Cities,
    values: ValueKind::Digits(5),
    values_per_name: 1,
    hops: 0,
    preamble: ["There are special magic {noun}s hidden in the irrelevant text below. Find them and remember them."; 2],
    gap: "\n",
    has_lines: false,
    needle: ["The special magic {name} {noun} is: ", "."],
    link: ["", ""],
    question: ["What is the special magic {query} {noun}?", "What are the special magic {query} {noun}s?"],
    last_name: " and ",
    lead: "\n",
    prefix: [""; 2],
    answers: AnswerForm::Sentences,
    answers_tok: 0,
    example_tok: 0,
};

/// Needles, questions and answers of a file, in any language, with nothing in English around them.
pub const FILE: NeedleForm = NeedleForm {
    name: "needle(file)",
    names: NameKind::Questions,
    preamble: [""; 2],
    gap: "",
    needle: ["", ""],
    question: ["{query}"; 2],
    answers: AnswerForm::List { before: "", between: "", end: "" },
    ..CITIES
};

/// The question about a text of the user.
pub const QUESTION: NeedleForm = NeedleForm { name: "question", ..FILE };

/// `niah` of RULER's `constants.py`, in the singular for one answer, as `niah.py` changes it: a number of a word in prose.
const NIAH: NeedleForm = NeedleForm {
    names: NameKind::Words,
    values: ValueKind::Digits(7),
    preamble: [
        "A special magic {noun} is hidden within the following text. Make sure to memorize it. I will quiz you about the \
         {noun} afterwards.",
        "Some special magic {noun}s are hidden within the following text. Make sure to memorize it. I will quiz you about \
         the {noun}s afterwards.",
    ],
    has_lines: true,
    needle: ["One of the special magic {noun}s for {name} is: ", "."],
    question: [
        "What is the special magic {noun} for {query} mentioned in the provided text?",
        "What are all the special magic {noun}s for {query} mentioned in the provided text?",
    ],
    last_name: ", and ",
    lead: " ",
    prefix: [
        "The special magic {noun} for {query} mentioned in the provided text is",
        "The special magic {noun}s for {query} mentioned in the provided text are",
    ],
    answers: AnswerForm::List { before: " ", between: ",", end: "." },
    answers_tok: 128,
    ..CITIES
};

/// `variable_tracking` of RULER's `constants.py`.
const VARIABLE_TRACKING: NeedleForm = NeedleForm {
    name: "vt",
    about: "Variable tracking: five variables of one chain in noise",
    haystack: Some("noise"),
    names: NameKind::Variables,
    values: ValueKind::Digits(5),
    hops: 4,
    preamble: ["Memorize and track the chain(s) of variable assignment hidden in the following text."; 2],
    gap: "\n\n",
    needle: ["VAR ", " = {value}"],
    link: ["VAR ", " = VAR {previous}"],
    question: ["Question: Find all variables that are assigned the value {query} in the text above."; 2],
    prefix:
        ["Answer: According to the chain(s) of variable assignment in the text above, {n} variables are assigned the \
              value {query}, they are:"; 2],
    answers: AnswerForm::List { before: " ", between: "", end: "" },
    answers_tok: 30,
    example_tok: 500,
    ..NIAH
};

/// The tasks of RULER.
pub static RULER: [&NeedleForm; 9] = [
    &NeedleForm { name: "niah_single_1", about: "A number in noise", haystack: Some("noise"), ..NIAH },
    &NeedleForm { name: "niah_single_2", about: "A number in prose", ..NIAH },
    &NeedleForm { name: "niah_single_3", about: "A UUID in prose", values: ValueKind::Uuid, ..NIAH },
    &NeedleForm {
        name: "niah_multikey_1",
        about: "One of four numbers in prose",
        setting: NeedleCounts { needles: 4, asked: 1 },
        ..NIAH
    },
    &NeedleForm {
        name: "niah_multikey_2",
        about: "A number among nothing but other needles",
        haystack: Some("needles"),
        ..NIAH
    },
    &NeedleForm {
        name: "niah_multikey_3",
        about: "The UUID of a UUID, among nothing but other needles",
        haystack: Some("needles"),
        names: NameKind::Uuid,
        values: ValueKind::Uuid,
        ..NIAH
    },
    &NeedleForm { name: "niah_multivalue", about: "Four numbers of one name in prose", values_per_name: 4, ..NIAH },
    &NeedleForm {
        name: "niah_multiquery",
        about: "The numbers of four names in prose",
        setting: NeedleCounts { needles: 4, asked: 4 },
        ..NIAH
    },
    &VARIABLE_TRACKING,
];

impl ValueEnum for &'static NeedleForm {
    fn value_variants<'a>() -> &'a [Self] {
        &RULER
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.about))
    }
}

impl Serialize for NeedleForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static NeedleForm {
    /// Reads the name of a task of RULER.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_str(&String::deserialize(deserializer)?, false).map_err(serde::de::Error::custom)
    }
}

impl NeedleForm {
    pub fn has_cities(&self) -> bool {
        self.names == NameKind::Cities
    }

    pub(super) fn is_of_file(&self) -> bool {
        self.names == NameKind::Questions
    }

    /// Name of the task in records: `needle`, `needle(distractors=5%)`, `niah_single_1`.
    pub fn task(&self, distractors_pct: f64) -> String {
        match distractors_pct {
            0.0 => self.name.to_owned(),
            share => format!("{}(distractors={share}%)", self.name),
        }
    }

    /// Number of answers to a question about one name.
    pub(super) fn answers_per_name(&self) -> usize {
        self.values_per_name.max(self.hops + 1)
    }

    fn noun(&self) -> &'static str {
        match self.values {
            ValueKind::Digits(_) => "number",
            ValueKind::Uuid => "uuid",
        }
    }

    /// The needle that gives a name its value. In a chain the name is the answer.
    pub fn fact(&self, name: &str, value: &str) -> Fact {
        self.sentence(self.needle, name, if self.hops > 0 { name } else { value }, value)
    }

    /// The needle that gives a name the value of another one.
    pub(super) fn link(&self, name: &str, previous: &str) -> Fact {
        self.sentence(self.link, name, name, previous)
    }

    fn sentence(&self, around: [&str; 2], name: &str, answer: &str, other: &str) -> Fact {
        let places = [("noun", self.noun()), ("name", name), ("value", other), ("previous", other)];
        let [before, behind] = around.map(|text| filled(text, &places));
        Fact { name: name.to_owned(), value: answer.to_owned(), before, behind }
    }

    /// The instructions before the haystack.
    pub(super) fn preamble(&self, answers: usize) -> String {
        filled(self.preamble[usize::from(answers > 1)], &[("noun", self.noun())])
    }

    /// The question about `asked`, in this order.
    pub(super) fn question(&self, asked: &[String], answers: usize) -> String {
        self.about_asked(self.question, asked, answers)
    }

    /// The text before the answers.
    pub(super) fn prefix(&self, asked: &[String], answers: usize) -> String {
        self.about_asked(self.prefix, asked, answers)
    }

    fn about_asked(&self, texts: [&str; 2], asked: &[String], answers: usize) -> String {
        let query = match asked {
            [others @ .., last] if !others.is_empty() => format!("{}{}{last}", others.join(", "), self.last_name),
            asked => asked.concat(),
        };
        let n = answers.to_string();
        filled(texts[usize::from(answers > 1)], &[("noun", self.noun()), ("query", &query), ("n", &n)])
    }
}

/// The text with its places filled in.
fn filled(text: &str, places: &[(&str, &str)]) -> String {
    places.iter().fold(text.to_owned(), |text, (place, content)| text.replace(&format!("{{{place}}}"), content))
}
