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
