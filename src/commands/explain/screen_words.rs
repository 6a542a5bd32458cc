//! Words of screens that are no metric, column, region, condition or claim.

/// Words of rows and corners, each with its meaning.
pub(super) const SCREEN_WORDS: [(&str, &str); 12] = [
    (
        "nats",
        "Natural logarithms of probabilities: a change of 0.1 nats changes a probability by a tenth, one of 1 nat \
         by a factor of 2.7.",
    ),
    ("points", "Percentage points: from 50 to 55 % are 5 points."),
    ("untreated", "Passes without a condition, which changes are from."),
    ("exact", "Attention logits as they are, which those of few bits are compared with."),
    (
        "as many random keys",
        "The control of the condition above it: as many keys are hidden, drawn at random. What both cost comes \
         from the number of keys.",
    ),
    ("retrieval heads %", "The share of a model's heads with a retrieval score above 0.1 (Wu et al. 2024)."),
    ("top 1", "The largest magnitude: `top_1`."),
    ("perplexity", "e to the power of the mean negative log-likelihood of the next token."),
    (
        "bits/byte",
        "The negative log-likelihood of all tokens in bits, over the bytes of their text: for models with other \
         tokenizers.",
    ),
    ("through", "What reaches the answer through the rows of other parts of the text: `through_others`."),
    ("output %", "A part's share of what all heads write in the rows of the answer: `segment_share`."),
    ("part", "A segment of the text: a sentence, a passage, a file or a group of them."),
];
