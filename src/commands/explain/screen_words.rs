//! Words of screens that are no metric, column, region, condition or claim.

/// A word in the rows, corners or notes of screens.
pub(super) struct ScreenWord {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
}

impl ScreenWord {
    /// Returns `true` if a row is called so, or so behind a number: `8 best by cost`.
    pub(super) fn is_in(&self, row: &str) -> bool {
        row.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').eq_ignore_ascii_case(self.name)
    }
}

const fn word(name: &'static str, meaning: &'static str) -> ScreenWord {
    ScreenWord { name, meaning }
}

pub(super) const SCREEN_WORDS: [ScreenWord; 17] = [
    word(
        "nats",
        "Natural logarithms of probabilities: a change of 0.1 nats changes a probability by a tenth, one of 1 nat \
         by a factor of 2.7.",
    ),
    word("points", "Percentage points: from 50 to 55 % are 5 points."),
    word("other needles", "The region `distractor`: needles with other answers."),
    word("prose", "The region `filler`: the text between needles."),
    word("untreated", "Passes without a condition, which changes are from."),
    word("exact", "Attention logits as they are, which those of few bits are compared with."),
    word(
        "as many random keys",
        "The control of the condition above it: as many keys are hidden, drawn at random. What both cost comes \
         from the number of keys.",
    ),
    word(
        "best by cost",
        "So many heads are taken out: the first of a ranking by what each costs alone, made on other prompts. In \
         brackets, the mean of three draws of as many random heads of the same layers.",
    ),
    word(
        "best by attribution",
        "So many heads are taken out: the first of a ranking by `head_attribution`, made on other prompts.",
    ),
    word(
        "best by share_out",
        "So many heads are taken out: the first of a ranking by `share_out` of the answer, made on other prompts.",
    ),
    word("retrieval heads %", "The share of a model's heads with a retrieval score above 0.1 (Wu et al. 2024)."),
    word("top 1", "The largest magnitude: `top_1`."),
    word("perplexity", "e to the power of the mean negative log-likelihood of the next token."),
    word(
        "bits/byte",
        "The negative log-likelihood of all tokens in bits, over the bytes of their text: for models with other \
         tokenizers.",
    ),
    word("by class", "The examples of `shots`, one class after the other."),
    word("alternating", "The examples of `shots`, one of each class in turn."),
    word("part", "A segment of the text: a sentence, a passage, a file or a group of them."),
];
