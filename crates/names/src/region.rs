//! Regions of a prompt.

use serde::{Deserialize, Serialize};
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// Kind of a key token with respect to one queried needle. Every token of a prompt is in exactly one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Region {
    /// The begin-of-sequence token.
    Bos,
    /// The first token of a prompt without a begin-of-sequence token, whatever it is: rows attend to it as they would to
    /// that one.
    First,
    /// The instructions before the haystack.
    Template,
    /// Prose of the haystack.
    Filler,
    /// Needles with other answers.
    Distractor,
    /// The sentence with the answer, without the answer itself.
    Needle,
    /// The tokens of the value in that sentence.
    Answer,
    /// The question and everything after it.
    Question,
}

impl Region {
    /// All regions, in the order of columns.
    pub const ALL: [Self; Self::COUNT] = *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The regions that count as noise: everything before the question except the first token and the needle with the
    /// answer.
    pub const NOISE: [Self; 3] = [Self::Template, Self::Filler, Self::Distractor];

    /// Name in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// All values of the column `region`, each with what it is: the regions of a prompt, their unions, the kinds of segments, the sites
/// of outliers, and the kinds of tokens of sink rates.
pub const REGION_MEANINGS: [(&str, &str); 19] = [
    ("bos", "The begin-of-sequence token."),
    (
        "first",
        "The first token of a prompt without a begin-of-sequence token. Heads give it much attention whatever it is: it is no noise.",
    ),
    ("template", "The instructions before the text."),
    ("filler", "Prose of the text."),
    ("distractor", "Needles with other answers, also those of the other questions: other needles."),
    ("needle", "The sentence with the answer, without the answer."),
    ("answer", "The tokens of the answer in that sentence."),
    ("question", "The question and everything behind it."),
    ("noise", "template, filler and distractor: all before the question but the first token and the answer's needle."),
    ("sink", "No token, but a learned sink, which takes weight and writes nothing."),
    ("right", "Segments of a text that hold the answer, as its file says."),
    ("otherwise", "Segments that say that another answer is right."),
    ("other", "Segments that are neither right nor say otherwise."),
    ("unknown", "Segments of a text that nobody said anything of."),
    ("logits", "Attention logits of all maps, before the softmax."),
    ("hidden", "Hidden states, at the output of every layer."),
    ("text", "Prompts of text, of sink rates."),
    ("random", "Prompts of random tokens, of sink rates."),
    ("repeated", "Prompts of one random token again and again, of sink rates."),
];
