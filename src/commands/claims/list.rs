//! The claims of the Differential Transformer paper (Ye et al. 2024, "Differential Transformer"), as values.

use names::metric::{
    Kind, ACCURACY, ANSWER_REGION, CANCELLED, HIDDEN_ACCURACY, LARGEST, MAP_COSINE, MAP_COSINE_STRANGERS, NLL,
    NLL_AR_HIT, NLL_LATE, NOISE_ABS, NOISE_OUT, NOISE_REGION, NOISE_SIGNED, SAID_NUMBER, SHARE_ABS, SHARE_OUT,
    SHARE_SIGNED,
};
use names::{Column, Cut, Number, Value};

/// A claim: what the paper says, and the number that decides it.
#[derive(Debug)]
pub(in crate::commands) struct Claim {
    /// Where the paper makes it: `T2` for Table 2, `F5` for Figure 5, `P` for its premise.
    pub(in crate::commands) id: &'static str,
    /// The claim in few words; of a second reading, only that.
    pub(in crate::commands) label: &'static str,
    /// `true` if it is the claim before in another reading.
    pub(super) is_second: bool,
    /// `true` if it stands in the tables and not on the screen.
    pub(super) is_detail: bool,
    /// The claim in a sentence, and where it stands.
    pub(in crate::commands) says: &'static str,
    /// The paper's own numbers: of the Transformer, and of the Differential Transformer.
    pub(super) paper: Option<[f64; 2]>,
    /// Both numbers with their unit, for tables; what the paper gives instead, if it has no two numbers.
    pub(in crate::commands) paper_words: &'static str,
    /// How it is measured here; of what the paper leaves open, the reading that is used.
    pub(in crate::commands) reading: &'static str,
    /// What the verdict does not say.
    pub(in crate::commands) unsaid: &'static str,
    /// The series that measures it.
    pub(super) series: &'static str,
    /// The name of its figure, without an extension; empty for that of the series.
    pub(super) figure: &'static str,
    pub(super) number: Number<'static>,
    /// The condition of the differential model, and of the standard one.
    pub(super) under: [Cut<'static>; 2],
    pub(super) against: Against,
    pub(super) over: Over,
    pub(super) better: Better,
    /// The smallest change that is of interest, in the unit of the number.
    pub(super) interest: Interest,
    /// `true` if it is about two maps that hardly differ, or logits as large as before, in a model whose training began with the
    /// function of the standard one.
    pub(super) follows_from_start: bool,
    /// The setting to try where everything, or nothing, is answered.
    pub(super) decide: &'static str,
}

impl Claim {
    /// `T3: less on noise, in output`: its place in the paper and its label, of a second reading behind that of the first.
    pub(in crate::commands) fn title(&self) -> String {
        let place = CLAIMS.iter().position(|claim| std::ptr::eq(claim, self)).unwrap_or_default();
        let first = CLAIMS[..=place].iter().rev().find(|claim| !claim.is_second).unwrap_or(self);
        let reading = if self.is_second { format!(", {}", self.label) } else { String::new() };
        format!("{}: {}{reading}", self.id, first.label)
    }

    /// The kind of its number: a change of hits where that of two prompts is what counts.
    pub(super) fn kind(&self) -> Kind {
        match self.over {
            Over::AbsentLessPresent | Over::Doublings => Kind::HitChange,
            _ => self.number.metric.kind,
        }
    }
}

/// The smallest change that is of interest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Interest {
    /// This one.
    Of(f64),
    /// This part of the number of the standard model.
    Part(f64),
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
    /// The slope of the number over the logarithm of the needles: its change where they double.
    Doublings,
    /// The prompts with the most examples.
    MostExamples,
    /// Those prompts: whether an answer is right in some arrangements of the examples, and wrong in others.
    OrderOfExamples,
    /// Questions about names that the text does not hold, less the same about names that it does.
    AbsentLessPresent,
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
const fn bits(n: u64) -> Cut<'static> {
    (Column::Bits, Some(Value::Int(n)))
}

/// Accuracy below which there is nothing to lose, as a fraction.
pub(super) const LEAST_TO_LOSE: f64 = 0.2;

/// Smallest changes of interest: five points of answers, two of shares, 0.005 nats (a fifth of what the paper finds), and a tenth
/// of the largest numbers.
const POINTS: Interest = Interest::Of(0.05);
const SHARE_POINTS: Interest = Interest::Of(0.02);
const NATS: Interest = Interest::Of(0.005);

/// What most claims share.
const COMMON: Claim = Claim {
    id: "",
    label: "",
    is_second: false,
    is_detail: false,
    says: "",
    paper: None,
    paper_words: "",
    reading: "",
    unsaid: "",
    series: "",
    figure: "",
    number: ACCURACY.overall(),
    under: [UNTREATED, UNTREATED],
    against: Against::Standard,
    over: Over::Prompts,
    better: Better::Higher,
    interest: POINTS,
    follows_from_start: false,
    decide: "other --needles",
};

/// Of attention to the answer and to noise.
const SHARES: &str =
    "Segments as in the paper's Figure 1: noise is all context but the answer's needle; the first token and the \
                      question are none. Mean over all heads of all layers, in the rows that predict the answer.";

/// Fields that the claims about attention share.
const ATTENTION: Claim =
    Claim { id: "T3", unsaid: SHARES, series: "answers", figure: "attention", interest: SHARE_POINTS, ..COMMON };

/// Fields that the claims about one of several needles share.
const LADDER: Claim = Claim { series: "depths", ..COMMON };

/// Fields that the claims about few bits share.
const FEW_BITS: Claim =
    Claim { id: "F8", series: "bits", follows_from_start: true, decide: "other --needles, or --scope head", ..COMMON };

/// Fields that the claims about the largest numbers share.
const OUTLIERS: Claim = Claim {
    id: "T5",
    series: "outliers",
    figure: "ccdf",
    better: Better::Lower,
    interest: Interest::Part(0.1),
    follows_from_start: true,
    ..COMMON
};

/// Fields that the claims about examples share.
const EXAMPLES: Claim =
    Claim { series: "examples", decide: "another --ctx, so that there are more or fewer examples", ..COMMON };

/// Fields that the claims about the loss on text share.
const LOSS: Claim = Claim { series: "text", better: Better::Lower, interest: NATS, ..COMMON };

/// Fields that the claims about both maps share.
const MAPS: Claim = Claim {
    id: "P",
    unsaid: "Whether what cancels would have done harm.",
    series: "maps",
    figure: "maps",
    interest: SHARE_POINTS,
    follows_from_start: true,
    ..COMMON
};

/// All claims, in the order of tables. The first of an id is the one that is meant where its id is primary.
pub(super) static CLAIMS: [Claim; 24] = [
    Claim {
        id: "T2",
        label: "more answers",
        says: "Of six needles, two asked for, the Differential Transformer gives more answers (Table 2; 3B, 4k tokens).",
        paper: Some([0.55, 0.85]),
        paper_words: "55 → 85 %",
        reading: "Accuracy: every token of an answer has the largest logit. Depths 0, 25, 50, 75 and 100 %; as many needles as leave \
                  the standard model nearest to 55 %.",
        unsaid: "A model that never learned to copy from its context answers nothing, whatever its attention.",
        series: "answers",
        ..COMMON
    },
    Claim {
        id: "T2",
        label: "falls less",
        says: "Its answers become less accurate by less as needles are added (Table 2: from 100 to 55 %, and from 100 to 85 %).",
        paper_words: "",
        reading: "Slope of the accuracy over the logarithm of the needles, in points where they double. One of 6 to 40 is asked for.",
        unsaid: "Slopes of models that answer everything, or nothing, are 0.",
        over: Over::Doublings,
        interest: Interest::Of(0.02),
        ..LADDER
    },
    Claim {
        label: "less on noise",
        says: "Less attention goes to noise (Table 3, answer at 50 % depth; 51 → 2 % over all depths).",
        paper: Some([0.52, 0.02]),
        paper_words: "52 → 2 %",
        reading: "The share of noise in the signed weights, A1 - lambda A2, over their sum. Mean over depths.",
        number: NOISE_SIGNED.overall(),
        better: Better::Lower,
        ..ATTENTION
    },
    Claim {
        label: "in output",
        is_second: true,
        says: "The same in what heads write.",
        reading: "The share of noise in what heads write into the residual stream.",
        number: NOISE_OUT.overall(),
        better: Better::Lower,
        ..ATTENTION
    },
    Claim {
        label: "by |a|",
        is_second: true,
        is_detail: true,
        says: "The same by the magnitudes of the weights.",
        reading: "The share of noise in the sum of |a|, which also counts what cancels.",
        number: NOISE_ABS.overall(),
        follows_from_start: true,
        better: Better::Lower,
        ..ATTENTION
    },
    Claim {
        label: "more on answers",
        says: "More attention goes to the answer (Table 3, answer at 50 % depth; 5 → 32 % over all depths).",
        paper: Some([0.03, 0.31]),
        paper_words: "3 → 31 %",
        reading: "The share of the answer in the signed weights, A1 - lambda A2, over their sum: the paper does not say how they are \
                  normalised. Mean over depths.",
        number: SHARE_SIGNED.of(ANSWER_REGION),
        ..ATTENTION
    },
    Claim {
        label: "in output",
        is_second: true,
        says: "The same in what heads write.",
        reading: "The share of the answer in what heads write into the residual stream.",
        number: SHARE_OUT.of(ANSWER_REGION),
        ..ATTENTION
    },
    Claim {
        label: "by |a|",
        is_second: true,
        is_detail: true,
        says: "The same by the magnitudes of the weights.",
        reading: "The share of the answer in the sum of |a|, which also counts what cancels.",
        number: SHARE_ABS.of(ANSWER_REGION),
        follows_from_start: true,
        ..ATTENTION
    },
    Claim {
        id: "N",
        label: "cost of noise",
        says: "Noise does less harm to its answers: what the paper says of attention noise, as a cause.",
        reading: "Points of accuracy that come back where the rows that predict the answer do not see noise.",
        unsaid: "Noise that reaches those rows through other rows.",
        series: "answers",
        number: HIDDEN_ACCURACY.of(NOISE_REGION),
        better: Better::Lower,
        ..COMMON
    },
    Claim {
        id: "F5",
        label: "over all depths",
        says: "Of eight needles, one asked for, it gives more answers (Figure 5; at 64k tokens, mean over depths).",
        paper: Some([0.52, 0.86]),
        paper_words: "52 → 86 %",
        reading: "Accuracy of one needle asked for, of 6 to 40, over all depths.",
        unsaid: "At depths where the standard model answers everything, nothing can be gained.",
        ..LADDER
    },
    Claim {
        id: "F5",
        label: "no depth loses",
        is_second: true,
        is_detail: true,
        says: "There is no depth at which it gives fewer answers (Figure 5: equal at 100 %, more elsewhere).",
        reading: "The depth with the least gain. Supported if no depth loses 5 points; contradicted if one does, corrected for the depths.",
        unsaid: "The margin of 5 points is this program's.",
        over: Over::EachDepth,
        better: Better::NoLowerThan(MARGIN),
        ..LADDER
    },
    Claim {
        id: "F3",
        label: "loss on text",
        says: "Of the same size and data, its validation loss is lower (Figure 3; numbers of Table 6, 1.4B).",
        paper: Some([3.087, 3.062]),
        paper_words: "3.09 → 3.06",
        reading: "Mean negative log-likelihood of the embedded prose, in nats a token.",
        unsaid: "Nothing of how the models were trained: only the same data, tokens and seeds make it a comparison of architectures.",
        number: NLL.overall(),
        ..LOSS
    },
    Claim {
        id: "T6",
        label: "on AR hits",
        is_detail: true,
        says: "Its loss is lower on tokens that complete a bigram seen earlier (Table 6, AR-Hit, 1.4B).",
        paper: Some([0.898, 0.880]),
        paper_words: "0.898 → 0.880",
        reading: "Mean negative log-likelihood of AR hits in the embedded prose, in nats a token.",
        unsaid: "Nothing of how the models were trained, as F3.",
        number: NLL_AR_HIT.overall(),
        ..LOSS
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
        label: "more at 6 bits",
        says: "With attention logits cut to 6 bits it keeps more accuracy (Figure 8, HellaSwag).",
        paper: Some([0.59, 0.66]),
        paper_words: "59 → 66 %",
        reading: "Accuracy of needles. All logits of a layer share one scale, the largest magnitude; the paper does not say which share it.",
        unsaid: "One scale for each row changes the outcome: --scope row.",
        under: [bits(6), bits(6)],
        ..FEW_BITS
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
        is_detail: true,
        says: "At 4 bits it is as good as the Transformer at 6 bits (Figure 8).",
        paper: Some([0.59, 0.59]),
        paper_words: "59, 59 %",
        reading: "Supported if it loses less than 5 points of the standard model's accuracy at 6 bits, which has to be 20 % at least.",
        unsaid: "The margin of 5 points is this program's.",
        under: [bits(4), bits(6)],
        better: Better::NoLowerThan(MARGIN),
        ..FEW_BITS
    },
    Claim {
        label: "smaller logits",
        says: "The largest attention logits are smaller (Table 5, the largest of 0.4M tokens).",
        paper: Some([318.0, 38.8]),
        paper_words: "318 → 39",
        reading: "The largest |logit| of all maps in a window, mean over windows: a maximum over all of them has no interval.",
        unsaid: "Windows have fewer tokens than the paper's pool, so their largest are smaller than its; an untrained model has small ones too.",
        number: LARGEST.of("logits"),
        ..OUTLIERS
    },
    Claim {
        label: "smaller hidden",
        is_detail: true,
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
        label: "example order",
        says: "Its answers depend less on the order of the examples (Figure 7, TREC, random order: best less worst in points).",
        paper: Some([0.19, 0.04]),
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
        reading: "A proxy: how many more questions get a number if their name is not in the text than if it is. A model that never says \
                  a number invents none, and gains nothing.",
        unsaid: "A base model that is trained only on questions with an answer has no way to decline.",
        series: "invented",
        number: SAID_NUMBER.overall(),
        over: Over::AbsentLessPresent,
        better: Better::Lower,
        decide: "models that can decline",
        ..COMMON
    },
    Claim {
        label: "agree on noise",
        says: "Both maps of a head hold the same noise (section 2.1).",
        reading: "Cosine of both maps of a head on noise, less that of its first map and the second maps of the other heads of its layer.",
        number: MAP_COSINE.of(NOISE_REGION),
        against: Against::Own(MAP_COSINE_STRANGERS.of(NOISE_REGION)),
        interest: Interest::Of(0.05),
        ..MAPS
    },
    Claim {
        label: "noise cancels",
        is_second: true,
        is_detail: true,
        says: "Both maps of a head hold the same noise, which their difference cancels (section 2.1).",
        reading: "The part of both maps' weights on noise that cancels, less that of the answer.",
        number: CANCELLED.of(NOISE_REGION),
        against: Against::Own(CANCELLED.of(ANSWER_REGION)),
        ..MAPS
    },
];
