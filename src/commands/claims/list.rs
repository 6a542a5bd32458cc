//! The claims of the Differential Transformer paper (Ye et al. 2024, "Differential Transformer"), as values.

use crate::results::metric::{
    ACCURACY, ANSWER_REGION, LARGEST, MAP_COSINE, MAP_COSINE_CHANCE, NLL, NLL_LATE, NOISE_ABS, NOISE_OUT, NOISE_REGION,
    SAID_NUMBER, SHARE_ABS, SHARE_OUT,
};
use crate::results::{Column, Cut, Number, Value};

/// A claim: what the paper says, and the number that decides it.
#[derive(Debug)]
pub(super) struct Claim {
    /// Where the paper makes it: `T2` for Table 2, `F5` for Figure 5, `P` for its premise.
    pub(super) id: &'static str,
    /// The claim in few words; of a second reading, only that.
    pub(super) label: &'static str,
    /// `true` if it is the claim before in another reading.
    pub(super) is_second: bool,
    /// The claim in a sentence, and where it stands.
    pub(super) says: &'static str,
    /// The paper's own numbers: of the Transformer, and of the Differential Transformer.
    pub(super) paper: Option<[f64; 2]>,
    /// Both numbers with their unit, for tables; what the paper gives instead, if it has no two numbers.
    pub(super) paper_words: &'static str,
    /// How it is measured here; of what the paper leaves open, the reading that is used.
    pub(super) reading: &'static str,
    /// What the verdict does not say.
    pub(super) unsaid: &'static str,
    /// The series that measures it.
    pub(super) series: &'static str,
    /// The name of its figure, without an extension; empty for that of the series.
    pub(super) figure: &'static str,
    pub(super) number: Number<'static>,
    /// The records that it is about, besides model and condition.
    pub(super) only: &'static [Cut<'static>],
    /// The condition of the differential model, and of the standard one.
    pub(super) under: [Cut<'static>; 2],
    pub(super) against: Against,
    pub(super) over: Over,
    pub(super) better: Better,
}

/// What the number of the differential model is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// The same of the standard model.
    Standard,
    /// Another number of the model itself.
    Own(Number<'static>),
}

/// What a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// All prompts.
    Prompts,
    /// The prompts of each depth: the claim is of all depths.
    EachDepth,
    /// The prompts with the most examples.
    MostExamples,
    /// Those prompts: whether an answer is right in some arrangements of the examples, and wrong in others.
    OrderOfExamples,
}

/// The direction of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Better {
    Higher,
    Lower,
    /// Lower by less than this.
    NoLowerThan(f64),
}

/// Accuracy that counts as "as good", as a fraction.
const MARGIN: f64 = 0.05;

const UNTREATED: Cut<'static> = (Column::Condition, None);
pub(super) const TASK: Cut<'static> = (Column::Task, Some(Value::Text("needle")));

pub(super) const SHOTS: Cut<'static> = (Column::Task, Some(Value::Text("shots random")));

pub(super) const fn needles(n: u64) -> Cut<'static> {
    (Column::Needles, Some(Value::Int(n)))
}

const fn bits(n: u64) -> Cut<'static> {
    (Column::Bits, Some(Value::Int(n)))
}

/// What most claims share.
const COMMON: Claim = Claim {
    id: "",
    label: "",
    is_second: false,
    says: "",
    paper: None,
    paper_words: "",
    reading: "",
    unsaid: "",
    series: "",
    figure: "",
    number: ACCURACY.overall(),
    only: &[],
    under: [UNTREATED, UNTREATED],
    against: Against::Standard,
    over: Over::Prompts,
    better: Better::Higher,
};

/// Of attention to the answer and to noise.
const SHARES: &str =
    "Segments as in the paper's Figure 1: noise is all context but the answer's needle; the first token and the \
                      question are none. Mean over all heads of all layers, in the rows that predict the answer.";

/// Fields that the claims about attention share.
const ATTENTION: Claim = Claim { id: "T3", unsaid: SHARES, series: "attention", only: &[TASK, needles(1)], ..COMMON };

/// Fields that the claims about few bits share.
const FEW_BITS: Claim = Claim { id: "F8", series: "bits", only: &[TASK, needles(2)], ..COMMON };

/// Fields that the claims about the largest numbers share.
const OUTLIERS: Claim = Claim { id: "T5", series: "outliers", figure: "ccdf", better: Better::Lower, ..COMMON };

/// Fields that the claims about examples share.
const EXAMPLES: Claim = Claim { series: "examples", only: &[SHOTS], ..COMMON };

/// Fields that the claims about the loss on text share.
const LOSS: Claim = Claim { series: "text", better: Better::Lower, ..COMMON };

/// All claims, in the order of tables.
pub(super) static CLAIMS: [Claim; 16] = [
    Claim {
        id: "T2",
        label: "more of 6 needles",
        says: "Of six needles, two asked for, the Differential Transformer gives more answers (Table 2; 3B, 4k tokens).",
        paper: Some([0.55, 0.85]),
        paper_words: "55 → 85 %",
        reading: "Accuracy: every token of an answer has the largest logit. Depths 0, 25, 50, 75 and 100 %.",
        unsaid: "A model that never learned to copy from its context answers nothing, whatever its attention.",
        series: "answers",
        only: &[TASK, needles(6)],
        ..COMMON
    },
    Claim {
        label: "more on the answer",
        says: "More attention goes to the answer (Table 3, answer at 50 % depth).",
        paper: Some([0.03, 0.31]),
        paper_words: "3 → 31 %",
        reading: "The share of the answer in what heads write. The paper does not say how signed weights are normalised.",
        number: SHARE_OUT.of(ANSWER_REGION),
        ..ATTENTION
    },
    Claim {
        label: "by |a|",
        is_second: true,
        says: "The same by the magnitudes of the weights.",
        paper_words: "",
        reading: "The share of the answer in the sum of |a|, which also counts what cancels.",
        number: SHARE_ABS.of(ANSWER_REGION),
        ..ATTENTION
    },
    Claim {
        label: "less on noise",
        says: "Less attention goes to noise (Table 3, answer at 50 % depth).",
        paper: Some([0.52, 0.02]),
        paper_words: "52 → 2 %",
        reading: "The share of noise in what heads write.",
        number: NOISE_OUT.overall(),
        better: Better::Lower,
        ..ATTENTION
    },
    Claim {
        label: "by |a|",
        is_second: true,
        says: "The same by the magnitudes of the weights.",
        paper_words: "",
        reading: "The share of noise in the sum of |a|, which also counts what cancels.",
        number: NOISE_ABS.overall(),
        better: Better::Lower,
        ..ATTENTION
    },
    Claim {
        id: "F5",
        label: "more at every depth",
        says: "Of eight needles, one asked for, it gives more answers at every depth (Figure 5; at 64k tokens, mean over depths).",
        paper: Some([0.52, 0.86]),
        paper_words: "52 → 86 %",
        reading: "The depth with the least gain. Supported if all depths gain; contradicted if one loses, corrected for the depths.",
        unsaid: "At depths where the standard model answers everything, nothing can be gained.",
        series: "depths",
        only: &[TASK, needles(8)],
        over: Over::EachDepth,
        ..COMMON
    },
    Claim {
        id: "F4",
        label: "lower loss late",
        says: "The negative log-likelihood late in a long context is lower (Figure 4, without printed numbers).",
        paper_words: "lower",
        reading: "Mean over the tokens in the second half of a window, in nats.",
        unsaid: "Whether the gain grows with the context: compare it with F3.",
        number: NLL_LATE.overall(),
        ..LOSS
    },
    Claim {
        label: "more at 4 bits",
        says: "With attention logits cut to 4 bits it keeps more accuracy (Figure 8, HellaSwag).",
        paper: Some([0.34, 0.59]),
        paper_words: "34 → 59 %",
        reading: "Accuracy of needles. All logits of a layer share one scale, the largest magnitude; the paper does not say which share it.",
        unsaid: "One scale for each row changes the outcome: --scope row.",
        under: [bits(4), bits(4)],
        ..FEW_BITS
    },
    Claim {
        label: "4 bits as its 6",
        says: "At 4 bits it is as good as the Transformer at 6 bits (Figure 8).",
        paper: Some([0.59, 0.59]),
        paper_words: "59, 59 %",
        reading: "Supported if it loses less than 5 points of the standard model's accuracy at 6 bits.",
        unsaid: "The margin of 5 points is this program's.",
        under: [bits(4), bits(6)],
        better: Better::NoLowerThan(MARGIN),
        ..FEW_BITS
    },
    Claim {
        label: "smaller logits",
        says: "The largest attention logits are smaller (Table 5, the largest of 0.4M tokens).",
        paper: Some([318.0, 38.8]),
        paper_words: "318 → 38.8",
        reading: "The largest |logit| of all maps in a window, mean over windows: a maximum over all of them has no interval.",
        unsaid: "Windows have fewer tokens than the paper's pool, so their largest are smaller than its.",
        number: LARGEST.of("logits"),
        ..OUTLIERS
    },
    Claim {
        label: "smaller hidden",
        says: "The largest hidden states are smaller (Table 5).",
        paper: Some([3608.6, 1688.2]),
        paper_words: "3609 → 1688",
        reading: "The largest |activation| at the output of a layer in a window, mean over windows.",
        unsaid: "The paper's median hidden state is twice as large; the largest over the median is in `difftool outliers`.",
        number: LARGEST.of("hidden"),
        ..OUTLIERS
    },
    Claim {
        id: "F6",
        label: "many examples",
        says: "Given many examples of a classification, it is more accurate (Figure 6, four data sets).",
        paper_words: "+5 to +22",
        reading: "Accuracy with the most examples, each a word with the label of its class, all of them new in every prompt.",
        unsaid: "Classes of real texts: here, words are all that there is to know.",
        over: Over::MostExamples,
        ..EXAMPLES
    },
    Claim {
        id: "F7",
        label: "order of examples",
        says: "Its answers depend less on the order of the examples (Figure 7, TREC, random order: best less worst in points).",
        paper: Some([19.0, 4.0]),
        paper_words: "19 → 4",
        reading: "Share of prompts that are answered right in some of four arrangements of their examples, and wrong in others. The \
                  best less the worst of a few orders has no interval.",
        unsaid: "A model that is always right, or always wrong, does not depend on the order.",
        over: Over::OrderOfExamples,
        better: Better::Lower,
        ..EXAMPLES
    },
    Claim {
        id: "T4",
        label: "invents fewer",
        says: "It hallucinates less (Table 4; mean accuracy of six summaries and question sets, judged by GPT-4o).",
        paper: Some([0.35, 0.46]),
        paper_words: "35 → 46 %",
        reading: "A proxy: share of questions about names that the text does not hold to which a number is said.",
        unsaid: "A base model that is trained only on questions with an answer has no way to decline.",
        series: "invented",
        number: SAID_NUMBER.overall(),
        only: &[(Column::Cities, Some(Value::Text("absent")))],
        better: Better::Lower,
        ..COMMON
    },
    Claim {
        id: "F3",
        label: "lower loss on text",
        says: "Of the same size and data, its validation loss is lower (Figure 3; numbers of Table 6, 1.4B).",
        paper: Some([3.087, 3.062]),
        paper_words: "3.09 → 3.06",
        reading: "Mean negative log-likelihood of the embedded prose, in nats a token.",
        unsaid: "Nothing of how the models were trained: only the same data, tokens and seeds make it a comparison of architectures.",
        number: NLL.overall(),
        ..LOSS
    },
    Claim {
        id: "P",
        label: "maps agree on noise",
        says: "Both maps of a head hold the same noise, which their difference cancels (section 2.1).",
        paper_words: "",
        reading: "Cosine of both maps over the keys of noise, beside what it is when the keys of the second map are permuted.",
        unsaid: "Whether what cancels would have done harm.",
        figure: "maps",
        number: MAP_COSINE.of(NOISE_REGION),
        against: Against::Own(MAP_COSINE_CHANCE.of(NOISE_REGION)),
        ..ATTENTION
    },
];
