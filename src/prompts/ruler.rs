//! Tasks of RULER (Hsieh et al. 2024, "RULER: What's the Real Context Size of Your Long-Context Language Models?").
//!
//! Texts and settings are those of <https://github.com/NVIDIA/RULER>, files `scripts/synthetic.yaml` and
//! `scripts/data/synthetic/{constants,niah,variable_tracking}.py`, copyright NVIDIA, Apache License 2.0; the prompts are
//! built by difftool. `docs/questions.md` says where they differ.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::facts::{FactKinds, KeyKind, ValueKind};
use super::wording::{AnswerForm, Wording};

/// A task of RULER.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
pub enum RulerTask {
    /// A number in noise
    #[serde(rename = "niah_single_1")]
    #[strum(serialize = "niah_single_1")]
    #[value(name = "niah_single_1")]
    NiahSingle1,
    /// A number in prose
    #[serde(rename = "niah_single_2")]
    #[strum(serialize = "niah_single_2")]
    #[value(name = "niah_single_2")]
    NiahSingle2,
    /// A UUID in prose
    #[serde(rename = "niah_single_3")]
    #[strum(serialize = "niah_single_3")]
    #[value(name = "niah_single_3")]
    NiahSingle3,
    /// One of four numbers in prose
    #[serde(rename = "niah_multikey_1")]
    #[strum(serialize = "niah_multikey_1")]
    #[value(name = "niah_multikey_1")]
    NiahMultikey1,
    /// A number among nothing but others
    #[serde(rename = "niah_multikey_2")]
    #[strum(serialize = "niah_multikey_2")]
    #[value(name = "niah_multikey_2")]
    NiahMultikey2,
    /// A UUID of a UUID among nothing but others
    #[serde(rename = "niah_multikey_3")]
    #[strum(serialize = "niah_multikey_3")]
    #[value(name = "niah_multikey_3")]
    NiahMultikey3,
    /// Four numbers of one key in prose
    #[serde(rename = "niah_multivalue")]
    #[strum(serialize = "niah_multivalue")]
    #[value(name = "niah_multivalue")]
    NiahMultivalue,
    /// The numbers of four keys in prose
    #[serde(rename = "niah_multiquery")]
    #[strum(serialize = "niah_multiquery")]
    #[value(name = "niah_multiquery")]
    NiahMultiquery,
    /// Variable tracking: five variables of one chain in noise
    #[serde(rename = "vt")]
    #[strum(serialize = "vt")]
    #[value(name = "vt")]
    Vt,
}

/// Settings of a task besides its texts.
pub struct RulerSettings {
    /// Needles in the text and needles asked for.
    pub setting: (usize, usize),
    /// Name of the haystack; `None` for prose.
    pub haystack: Option<&'static str>,
    /// Keys, values, chains.
    pub(super) kinds: FactKinds,
}

/// One number of a word in prose.
const NIAH: FactKinds = FactKinds { keys: KeyKind::Words, values: ValueKind::Digits, values_per_key: 1, hops: 0 };

impl RulerTask {
    /// All tasks.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Settings of the task.
    pub fn settings(self) -> RulerSettings {
        let uuid = FactKinds { values: ValueKind::Uuid, ..NIAH };
        let chain = FactKinds { keys: KeyKind::Variables, hops: 4, ..NIAH };
        let (setting, haystack, kinds) = match self {
            Self::NiahSingle1 => ((1, 1), Some("noise"), NIAH),
            Self::NiahSingle2 => ((1, 1), None, NIAH),
            Self::NiahSingle3 => ((1, 1), None, uuid),
            Self::NiahMultikey1 => ((4, 1), None, NIAH),
            Self::NiahMultikey2 => ((1, 1), Some("needles"), NIAH),
            Self::NiahMultikey3 => ((1, 1), Some("needles"), FactKinds { keys: KeyKind::Uuid, ..uuid }),
            Self::NiahMultivalue => ((1, 1), None, FactKinds { values_per_key: 4, ..NIAH }),
            Self::NiahMultiquery => ((4, 4), None, NIAH),
            Self::Vt => ((1, 1), Some("noise"), chain),
        };
        RulerSettings { setting, haystack, kinds }
    }

    /// Tokens that a model may generate.
    pub fn answers_tok(self) -> usize {
        wording(self).answers_tok
    }
}

/// The texts of a task.
pub(super) fn wording(task: RulerTask) -> &'static Wording {
    match task {
        RulerTask::Vt => &VARIABLE_TRACKING,
        _ => &NEEDLES,
    }
}

/// `niah` of RULER's `constants.py`, in the singular for one answer, as `niah.py` changes it.
const NEEDLES: Wording = Wording {
    preamble: [
        "A special magic {noun} is hidden within the following text. Make sure to memorize it. I will quiz you about the \
         {noun} afterwards.",
        "Some special magic {noun}s are hidden within the following text. Make sure to memorize it. I will quiz you about \
         the {noun}s afterwards.",
    ],
    gap: "\n",
    has_lines: true,
    needle: ["One of the special magic {noun}s for {key} is: ", "."],
    link: ["", ""],
    question: [
        "What is the special magic {noun} for {query} mentioned in the provided text?",
        "What are all the special magic {noun}s for {query} mentioned in the provided text?",
    ],
    last_key: ", and ",
    lead: " ",
    prefix: [
        "The special magic {noun} for {query} mentioned in the provided text is",
        "The special magic {noun}s for {query} mentioned in the provided text are",
    ],
    answers: AnswerForm::List { before: " ", between: ",", end: "." },
    digits: 7,
    answers_tok: 128,
    example_tok: 0,
};

/// `variable_tracking` of RULER's `constants.py`.
const VARIABLE_TRACKING: Wording = Wording {
    preamble: ["Memorize and track the chain(s) of variable assignment hidden in the following text."; 2],
    gap: "\n\n",
    needle: ["VAR ", " = {value}"],
    link: ["VAR ", " = VAR {previous}"],
    question: ["Question: Find all variables that are assigned the value {query} in the text above."; 2],
    prefix:
        ["Answer: According to the chain(s) of variable assignment in the text above, {n} variables are assigned the \
              value {query}, they are:"; 2],
    answers: AnswerForm::List { before: " ", between: "", end: "" },
    digits: 5,
    answers_tok: 30,
    example_tok: 500,
    ..NEEDLES
};
