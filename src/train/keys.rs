//! The tables and keys of a training spec, with the meanings and defaults that `difftool explain` prints.

/// A key of a table of a spec.
pub struct SpecKey {
    /// Its name in the table.
    pub key: &'static str,
    /// Its meaning, in a sentence or two.
    pub meaning: &'static str,
    /// Its value where it is left out, as in TOML or in words; `None` if it is required.
    pub default: Option<&'static str>,
}

/// A table of a spec.
pub struct SpecTable {
    /// Its name: `stage.data`.
    pub name: &'static str,
    /// Its meaning, in a sentence or two.
    pub meaning: &'static str,
    /// Its keys, in order.
    pub keys: &'static [SpecKey],
}

impl SpecTable {
    /// The name of a key of this table: `stage.data.facts`. Keys of the spec itself have no table in theirs.
    pub fn key_name(&self, key: &SpecKey) -> String {
        if self.name == SPEC {
            key.key.to_owned()
        } else {
            format!("{}.{}", self.name, key.key)
        }
    }
}

/// The keys that are in no table.
const SPEC: &str = "spec";

const fn key(key: &'static str, meaning: &'static str, default: &'static str) -> SpecKey {
    SpecKey { key, meaning, default: Some(default) }
}

const fn required(key: &'static str, meaning: &'static str) -> SpecKey {
    SpecKey { key, meaning, default: None }
}

/// All tables of a spec.
pub const SPEC_TABLES: [SpecTable; 10] = [
    SpecTable {
        name: SPEC,
        meaning: "What a spec is to find out, and its seeds.",
        keys: &[
            key("question", "What the run is to find out.", "empty"),
            key("expectation", "What was expected before it.", "none"),
            key(
                "seed",
                "Seed of initial weights and data, below 2³²; a run's folder is `VARIANT`. It or `seeds` is \
                 required.",
                "none",
            ),
            key(
                "seeds",
                "Several seeds, each for every variant; folders are `VARIANT/seed-N`. It or `seed` is \
                 required.",
                "none",
            ),
        ],
    },
    SpecTable {
        name: "start",
        meaning: "The model that training starts from, in place of random weights.",
        keys: &[
            key("from", "The model that training starts from, as of `--model`.", "random weights"),
            key(
                "noise",
                "Length of a random vector that is added to each row of the second map's queries, over that \
                 of the row.",
                "0.0",
            ),
        ],
    },
    SpecTable {
        name: "model",
        meaning: "Sizes that all variants share. With `[start]` it is left out, or says what the start model is.",
        keys: &[
            required("width", "Width of the residual stream."),
            required("layers", "Number of layers."),
            required(
                "heads",
                "Heads of the standard variant, an even number; variants with doubled values have half as \
                 many.",
            ),
            key("kv_heads", "Key/value heads, counted as the standard variant does; a divisor of `heads`.", "heads"),
            required("head_dim", "Width of a head."),
            required("ffn", "Hidden width of SwiGLU."),
            required("rope_theta", "Base of RoPE."),
            required("max_ctx_tok", "Longest context, in tokens."),
        ],
    },
    SpecTable {
        name: "variant",
        meaning: "A variant, of which a spec may have several.",
        keys: &[
            required("name", "Name of its folder and in tables: letters, digits, - and _."),
            required("attention", "A preset, or a preset with other choices."),
            key("ffn", "Hidden width of SwiGLU where it differs, to match parameter counts.", "model.ffn"),
            key(
                "heads",
                "Heads where they differ, counted as in `model.heads`; as many key/value heads.",
                "model.heads",
            ),
            key("head_dim", "Width of a head where it differs.", "model.head_dim"),
            key(
                "rate",
                "Peak learning rate where it differs; those of later cycles change in proportion.",
                "optimizer.rate",
            ),
            key("qk_norm", "Whether queries and keys of each head have an RMSNorm with a gain.", "false"),
            key("embedding_deviation", "Standard deviation of the embeddings at the start.", "0.02"),
            key("zero_output", "Whether the output projection of attention starts at 0.", "false"),
        ],
    },
    SpecTable {
        name: "optimizer",
        meaning: "AdamW and its schedule.",
        keys: &[
            key("rate", "Learning rate of AdamW at its peak, between a linear warm-up and a cosine.", "0.002"),
            key("final_fraction", "Rate at the end of a cosine over its peak.", "0.05"),
            key("warmup_tok", "Tokens of the linear warm-up.", "200_000"),
            key("beta1", "Decay of the first moment.", "0.9"),
            key("beta2", "Decay of the second moment.", "0.95"),
            key("weight_decay", "Decoupled weight decay, of matrices only.", "0.1"),
            key("clip", "Largest norm of the gradient of all parameters.", "1.0"),
        ],
    },
    SpecTable {
        name: "loss",
        meaning: "Weights of tokens in the loss; other text has 1.",
        keys: &[
            key("first_digit", "Weight of the first digit of a value that the context states.", "10.0"),
            key("other_digits", "Weight of its other digits.", "3.0"),
            key("new_digits", "Weight of the digits of a value that is stated for the first time.", "0.1"),
        ],
    },
    SpecTable {
        name: "stage",
        meaning: "A stage of training; stages follow each other.",
        keys: &[
            required("ctx_tok", "Context, in tokens."),
            required("tokens", "Tokens to train on; what is no whole step is left out."),
            required("step_tok", "Tokens of a step, a multiple of `ctx_tok`."),
            key("cycle_rate", "Peak of a new cosine (a warm restart), from the second stage on.", "the cosine goes on"),
            required("data", "A table of its own; `{}` for its defaults."),
        ],
    },
    SpecTable {
        name: "stage.data",
        meaning: "Contents of the documents of a stage.",
        keys: &[
            key("facts", "Fewest and most facts of a document; fewer if it is full.", "[4, 12]"),
            key(
                "restate",
                "Restatements per new fact, on average, until all are stated; then only restatements. 0: \
                 never.",
                "2.0",
            ),
            key("prose", "Share of sentences that are prose, at least.", "0.5"),
            key(
                "wordings",
                "Weights of the eight wordings of a fact, in the order of `crates/text/src/document.rs`; \
                 those left out have 0.",
                "[1.0]",
            ),
            key("exam", "Probability that a document begins with a whole needle prompt.", "0.25"),
            key(
                "text",
                "People's texts: files, each a document, and folders of them; paths are from the current \
                 folder.",
                "[]",
            ),
            key("text_share", "Share of documents that are windows of these texts; the others state facts.", "1.0"),
            key(
                "exam_needles",
                "Fewest and most needles of such a prompt; fewer if the context has no room.",
                "[1, 8]",
            ),
            key("synthetic", "Probability that a fact is about a made-up name, not a city.", "0.25"),
        ],
    },
    SpecTable {
        name: "watch",
        meaning: "When to evaluate, log and save.",
        keys: &[
            key("log_every_tok", "Tokens that a line of `log.csv` covers.", "50_000"),
            key(
                "eval_every_tok",
                "Tokens between evaluations, on unseen needle prompts of the stage's context.",
                "500_000",
            ),
            key(
                "eval_samples",
                "Prompts of an evaluation for each setting: 1 of 1 needle, 2 of 2, 2 of 4, and 2 of 2 with \
                 held-out cities; 0: none.",
                "20",
            ),
            key("held_out_windows", "Windows of held-out documents of an evaluation, spread over all of them.", "20"),
            key("needles", "Further numbers of needles in evaluations, two of them asked for.", "[]"),
            key("save_every_tok", "Tokens between checkpoints.", "500_000"),
        ],
    },
    SpecTable {
        name: "contrast",
        meaning: "A comparison of means over variants, seed by seed.",
        keys: &[
            required("name", "What it says, in tables."),
            required("of", "Variants whose mean counts, seed by seed."),
            required("less", "Variants whose mean is taken off."),
        ],
    },
];
