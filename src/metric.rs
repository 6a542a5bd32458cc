//! The catalogue of metrics: every quantity that records hold, with its unit, its kind, its label and its meaning.
//!
//! Measures name their records from it; tables, figures, alternative texts, default choices, completions of `--metric` and
//! the page of metrics in `docs/results.md` are made from it. A metric's name stands as a literal nowhere else.

use std::borrow::Cow;
use std::fmt;

/// How the numbers of a metric are read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Hits (1) and misses (0), shown in percent with Wilson intervals.
    Hit,
    /// A fraction, shown in percent.
    Share,
    /// A number in its own unit.
    Number,
}

impl Kind {
    /// Factor from the numbers of a run to those of tables and figures: 100 for percent.
    pub(crate) fn factor(self) -> f64 {
        match self {
            Self::Hit | Self::Share => 100.0,
            Self::Number => 1.0,
        }
    }
}

/// Which way is better for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Larger numbers.
    Higher,
    /// Smaller numbers.
    Lower,
    /// Neither: the number describes.
    Neither,
}

/// A quantity of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in `results.csv`.
    pub name: &'static str,
    /// The unit of its numbers in `results.csv`; `None` for pure numbers.
    pub unit: Option<&'static str>,
    /// How its numbers are shown.
    pub kind: Kind,
    /// A heading of few words; `{}` stands for the region.
    pub label: &'static str,
    /// Definition in one sentence.
    pub meaning: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Whether comparisons show it by default; of a metric by region, for the regions named.
    pub headline: Headline,
    /// Whether it has a number for each region of the prompt, or each site of the model.
    pub by_region: bool,
    /// Endings of its name that stand for variants of it: `_a1` for the first map alone.
    pub variants: &'static [&'static str],
    /// Where its definition comes from, if from others.
    pub source: Option<&'static str>,
}

/// Whether comparisons show a metric by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headline {
    /// Only where it is asked for.
    No,
    /// Everywhere.
    Yes,
    /// For this region.
    Of(&'static str),
}

/// Names of parts of the prompt, or sites of the model, that metrics are about.
pub const ANSWER_REGION: &str = "answer";

/// Endings of names of metrics that are about one softmax map alone, the first or the second.
pub const MAP_ENDINGS: [&str; 2] = ["_a1", "_a2"];
/// Ending of names of metrics that count only keys of the text, without instructions and question.
pub const CONTEXT_ENDING: &str = "_context";

const fn metric(name: &'static str, label: &'static str, meaning: &'static str) -> Metric {
    Metric {
        name,
        unit: None,
        kind: Kind::Number,
        label,
        meaning,
        better: Better::Neither,
        headline: Headline::No,
        by_region: false,
        variants: &[],
        source: None,
    }
}

impl Metric {
    const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn hits(self) -> Self {
        Self { kind: Kind::Hit, unit: Some("fraction"), ..self }
    }

    const fn share(self) -> Self {
        Self { kind: Kind::Share, unit: Some("fraction"), ..self }
    }

    const fn higher(self) -> Self {
        Self { better: Better::Higher, ..self }
    }

    const fn lower(self) -> Self {
        Self { better: Better::Lower, ..self }
    }

    const fn headline(self) -> Self {
        Self { headline: Headline::Yes, ..self }
    }

    const fn headline_of(self, region: &'static str) -> Self {
        Self { headline: Headline::Of(region), ..self }
    }

    const fn by_region(self) -> Self {
        Self { by_region: true, ..self }
    }

    const fn variants(self, variants: &'static [&'static str]) -> Self {
        Self { variants, ..self }
    }

    const fn from(self, source: &'static str) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns its name with the region, as files and flags write it: `share_abs[answer]`.
    pub fn name_of(&self, region: Option<&str>) -> String {
        crate::record::metric_name(self.name, region)
    }

    /// Returns the heading of a column of its numbers: the label with its region and unit.
    pub fn heading(&self, region: Option<&str>) -> String {
        Label::of(self, region).heading()
    }

    /// Returns its names as Markdown: its own, in bold if comparisons show it by default, and those of its variants.
    fn markdown_names(&self) -> String {
        let bold = if self.headline == Headline::No { "" } else { "**" };
        let variants = self.variants.iter().map(|ending| format!(", `{}`", self.variant(ending)));
        let by_region = if self.by_region { " by region" } else { "" };
        format!("{bold}`{}`{bold}{}{by_region}", self.name, variants.collect::<String>())
    }

    /// Returns its name with an ending, one of its [`variants`](Self::variants); its own name for an empty ending.
    pub fn variant(&self, ending: &str) -> Cow<'static, str> {
        if ending.is_empty() {
            self.name.into()
        } else {
            format!("{}{ending}", self.name).into()
        }
    }
}

/// Declares the metrics and the list of all of them, in the order in which tables and comparisons show them.
macro_rules! catalogue {
    ($($constant:ident = $metric:expr;)*) => {
        $(#[allow(missing_docs)] pub const $constant: Metric = $metric;)*

        /// All metrics, in the order in which tables and comparisons show them.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

catalogue! {
    EXACT = metric("exact", "accuracy",
        "Every token of the value has the largest logit, behind right answers to the questions before: 1 or 0. Of the first \
         question that is what greedy decoding would answer.")
        .from("paper, Table 2").hits().higher().headline();
    GENERATED_EXACT = metric("generated_exact", "generated accuracy",
        "The model's own continuation begins with the value: 1 or 0.")
        .from("greedy decoding").hits().higher().headline();
    ANSWER_LOG_PROB = metric("answer_log_prob", "answer log-prob",
        "Log-probability of the value, summed over its tokens.")
        .from("teacher forcing").unit("nats").higher().headline();
    SHARE_OUT = metric("share_out", "{} in output",
        "Part of what the heads of a layer write together into the residual stream that comes from the region, <u_R, u> \
         / <u, u>, as a mean over layers weighted by <u, u> / (<x, x> + <u, u>), where x is the residual stream before; of \
         one head, the same of its own write. It sums to 1 and may be negative.")
        .share().by_region().headline_of(ANSWER_REGION);
    NOISE_OUT = metric("noise_out", "noise in output", "Sum of share_out over template, filler and distractors.")
        .share().lower().headline();
    NOISE_OUT_NO_SINKS = metric("noise_out_no_sinks", "noise in output, no sinks",
        "noise_out less what comes from detected sinks in it.").share().lower().headline();
    SHARE_SIGNED = metric("share_signed", "{} in a",
        "Sum of the signed weights on the region over that of all, sum_R a / sum a. Heads with |sum a| < 0.1 sum \
         |a| are left out.").from("paper, Table 3").share().by_region().headline_of(ANSWER_REGION);
    NOISE_SIGNED = metric("noise_signed", "noise in a", "Sum of share_signed over template, filler and distractors.")
        .from("paper, Table 3").share().lower().headline();
    SHARE_ABS = metric("share_abs", "{} in |a|",
        "Sum of the weights' magnitudes on the region over that of all, sum_R |a| / sum |a|.")
        .share().by_region().headline_of(ANSWER_REGION);
    NOISE_ABS = metric("noise_abs", "noise in |a|", "Sum of share_abs over template, filler and distractors.")
        .share().lower().headline();
    NOISE_ABS_NO_SINKS = metric("noise_abs_no_sinks", "noise in |a|, no sinks",
        "Sum of share_abs_no_sinks over template, filler and distractors.").share().lower().headline();
    ENTROPY = metric("entropy", "entropy", "Entropy of |a| / sum |a|.").from("Shannon").unit("nats").headline();
    SINK_SHARE_DETECTED = metric("sink_share_detected", "sinks in |a|", "Share of |a| on all detected sinks.")
        .share().headline();
    NLL = metric("nll", "NLL", "Mean negative log-likelihood of the scored tokens of prose.")
        .from("teacher forcing").unit("nats").lower().headline();
    NLL_AR_HIT = metric("nll_ar_hit", "NLL of AR hits",
        "Mean negative log-likelihood of AR hits: tokens that complete a bigram seen earlier in the window.")
        .from("Arora et al. 2023").unit("nats").lower().headline();
    NLL_OTHER = metric("nll_other", "NLL of others",
        "Mean negative log-likelihood of the scored tokens that are no AR hits.")
        .from("Arora et al. 2023").unit("nats").lower().headline();
    TOP_TOKEN_FLIPS = metric("top_token_flips", "top token flips",
        "How often the most likely next token is another one under a condition.").share().lower().headline();
    ANSWER_FLIPS = metric("answer_flips", "answers changed",
        "The answer is right in one of two passes, the untreated and the treated one, and wrong in the other: 1 or 0.")
        .from("flips of Dutta et al. 2024").hits().lower().headline();
    TOTAL_VARIATION = metric("total_variation", "total variation",
        "Half the sum of differences of |a| / sum |a| from the untreated pass.")
        .share().lower().headline().variants(&[CONTEXT_ENDING]);
    TOP_1_OVER_MEDIAN = metric("top_1_over_median", "top-1/median", "The largest magnitude over the median.")
        .from("paper, Table 5").by_region().lower().headline();
    KURTOSIS = metric("kurtosis", "kurtosis", "m4 / m2^2 of the numbers themselves; 3 for normal numbers.")
        .from("Pearson").by_region().lower().headline();

    GENERATED_CONTAINS = metric("generated_contains", "generated contains",
        "The model's own continuation contains the value as a whole number: 1 or 0.")
        .from("greedy decoding").hits().higher();
    GENERATED_SET = metric("generated_set", "generated set",
        "The first different values of the model's own continuation are those asked for, in any order: 1 or 0. Of prompts with \
         several answers.")
        .from("greedy decoding").hits().higher();
    SHARE_OUT_HOP = metric("share_out_hop", "{} in output",
        "share_out of the needle of one hop of a chain, in rows that predict the name of hop `query`.").share().by_region();
    SHARE_ABS_HOP = metric("share_abs_hop", "{} in |a|",
        "share_abs of the needle of one hop of a chain, in rows that predict the name of hop `query`.").share().by_region();
    LOGIT_OUT_HOP = metric("logit_out_hop", "{}'s direct effect",
        "Sum of logit_out from the needle of one hop of a chain over the measured heads, in rows that predict the name of hop \
         `query`.")
        .from("direct logit attribution").unit("logits").by_region().higher();
    ANSWER_ROUNDING = metric("answer_rounding", "rounding",
        "How far a change of the embeddings' last bit moves the log-probability of the value, on the first prompt of each \
         kind.")
        .unit("nats").lower();
    ANSWER_FIRST_RANK = metric("answer_first_rank", "rank of first token", "Rank of the value's first token, from 1.")
        .from("teacher forcing").lower();
    SAID_NUMBER = metric("said_number", "says a number", "The model's own continuation holds a number: 1 or 0.")
        .from("greedy decoding").hits();
    SAID_OTHER_NEEDLE = metric("said_other_needle", "another city's",
        "The model's own continuation holds a number that the text gives to another city: 1 or 0.")
        .from("greedy decoding").hits();
    SAID_LOG_PROB = metric("said_log_prob", "log-prob of own number",
        "Log-probability of the first number of the continuation, up to the token that ends it.")
        .from("greedy decoding").unit("nats");
    SHARE_OUT_MEAN_HEAD = metric("share_out_mean_head", "{} in output, mean of heads",
        "Mean of share_out over single heads, each counted alike. Of a head, its write before a norm after attention.")
        .share().by_region();
    NOISE_OUT_MEAN_HEAD = metric("noise_out_mean_head", "noise in output, mean of heads",
        "Sum of share_out_mean_head over template, filler and distractors.").share().lower();
    SHARE_OUT_LAYER = metric("share_out_layer", "{} in output of the layer", "share_out of one layer.")
        .share().by_region();
    WRITE_RATIO_LAYER = metric("write_ratio_layer", "write over residual",
        "Norm of what the heads of a layer write together over that of the residual stream that it is added to. With \
         this ratio r, share_out weighs the layer by r^2 / (1 + r^2).");
    WRITE_NORM_LAYER = metric("write_norm_layer", "norm of the layer's write",
        "Root mean square over rows of the norm of what the heads of a layer write together.");
    WRITE_NORM = metric("write_norm", "norm of the write",
        "Root mean square over rows of the norm of what a head writes, before a norm after attention.");
    NORM_OUT = metric("norm_out", "{}'s norm", "||u_R|| / sum ||u_R'||: how much is written, wherever it points.")
        .share().by_region();
    NOISE_NORM_OUT = metric("noise_norm_out", "noise's norm", "Sum of norm_out over template, filler and distractors.")
        .share();
    LOGIT_OUT = metric("logit_out", "{}'s logit effect",
        "Direct effect of a head on the logit of the right next token, less the mean logit. Missing behind a soft cap.")
        .from("direct logit attribution").unit("logits").by_region().higher();
    LOGIT_OUT_SUM = metric("logit_out_sum", "{}'s direct effect", "Sum of logit_out over the measured heads.")
        .from("direct logit attribution").unit("logits").by_region().higher();
    CONTEXT_RMS = metric("context_rms", "context RMS",
        "Root mean square of what a head weighs together, before its norm.");
    CANCELLED = metric("cancelled", "{} cancelled",
        "Part of the attention that the subtraction removes, 1 - sum |a| / sum (A1 + lambda A2).").share().by_region();
    SHARE_UNIFORM = metric("share_uniform", "{}, even spread",
        "The region's share of the visible keys: what an even spread would give.").share().by_region();
    NOISE_UNIFORM = metric("noise_uniform", "noise, even spread",
        "Sum of share_uniform over template, filler and distractors.").share();
    SHARE_POS = metric("share_pos", "{} in max(a, 0)",
        "Sum of the positive weights on the region over that of all, sum_R max(a, 0) / sum max(a, 0).")
        .share().by_region();
    NOISE_POS = metric("noise_pos", "noise in max(a, 0)", "Sum of share_pos over template, filler and distractors.")
        .share().lower();
    SIGNED_LEFT_OUT = metric("signed_left_out", "heads without signed shares",
        "Number of heads with |sum a| < 0.1 sum |a|.").unit("heads");
    MASS = metric("mass", "{} mass", "Mean signed sum of the region per row; a differential row sums to 1 - lambda.")
        .from("paper, section 2.1").share().by_region();
    MASS_NEG = metric("mass_neg", "negative mass", "Magnitude of the negative part of a row.").share();
    LAMBDA = metric("lambda", "lambda", "Mean weight of the second map.").from("paper, section 2.1").unit("fraction");
    SHARE_OUT_BEST_HEAD = metric("share_out_best_head", "{} in output, best head",
        "The largest share_out of the answer of any head.").share().by_region();
    SHARE_ABS_BEST_HEAD = metric("share_abs_best_head", "{} in |a|, best head",
        "The largest share_abs of the answer of any head.").share().by_region();
    BOOST = metric("boost", "{} boost",
        "Share of |a| over the share of the keys visible to the last row: 1 is an even spread.").by_region();
    SINKS = metric("sinks", "sinks", "Number of keys that all rows attend to.").unit("keys");
    SINK_RATE = metric("sink_rate", "sink rate",
        "Share of heads whose first token has more than 0.3 of |a| on average over the first 64 rows: of texts, random tokens, \
         and one token repeated; with an ending, of one map alone.")
        .from("Gu et al. 2025").share().by_region().variants(&MAP_ENDINGS);
    FIRST_TOKEN_SHARE = metric("first_token_share", "first token's share",
        "Share of |a| on the first token over the first 64 rows, mean over heads, of the same three kinds of tokens.")
        .from("Gu et al. 2025").share().by_region().variants(&MAP_ENDINGS);
    SINK_SHARE_FIRST = metric("sink_share_first", "first token in |a|", "Share of |a| on the first token.")
        .from("Gu et al. 2025").share();
    VALUE_NORM_FIRST = metric("value_norm_first", "first token's value",
        "Norm of the first token's value over the mean norm of all values up to the answer.").from("Gu et al. 2025");
    VALUE_NORM_SINKS = metric("value_norm_sinks", "sinks' values",
        "Mean norm of the sinks' values over the mean norm of all values up to the answer, of heads that have sinks.")
        .from("Gu et al. 2025");
    SHARE_ABS_NO_SINKS = metric("share_abs_no_sinks", "{} in |a|, no sinks",
        "share_abs of what is left without the first token and detected sinks.").share().by_region();
    EFFECTIVE_KEYS = metric("effective_keys", "effective keys",
        "exp of the entropy of |a| / sum |a|, the effective rank of a row: as many keys with equal weights have that entropy.")
        .from("Hill 1973; Roy and Vetterli 2007").unit("keys");
    ATTENTION_DISTANCE = metric("attention_distance", "attention distance",
        "Mean distance from the query to the keys, weighted with |a| / sum |a|.").unit("tokens");
    RETRIEVAL_HEADS = metric("retrieval_heads", "retrieval heads",
        "Share of heads whose retrieval_score, as a mean over prompts, is above 0.1; only in tables.")
        .from("Wu et al. 2024").share();
    KEYS_90 = metric("keys_90", "keys for 90 %", "The fewest keys that hold 90 % of |a|.").unit("keys");
    KEYS_99 = metric("keys_99", "keys for 99 %", "The fewest keys that hold 99 % of |a|.").unit("keys");
    WEIGHT_MAX = metric("weight_max", "largest weight", "The largest |a| / sum |a|.").share();
    RETRIEVAL_SCORE = metric("retrieval_score", "retrieval",
        "How often, in rows that predict the answer, the largest |a| is on the needle's token to copy.")
        .from("Wu et al. 2024").share().variants(&MAP_ENDINGS);
    QUERY_SCORE = metric("query_score", "query", "Mean share of |a| of the question's rows on the asked needle.")
        .share().variants(&MAP_ENDINGS);
    PREVIOUS_TOKEN = metric("previous_token", "previous token",
        "On random tokens twice: mean share of |a| on the token before.")
        .from("Elhage et al. 2021").share().variants(&MAP_ENDINGS);
    DUPLICATE_TOKEN = metric("duplicate_token", "duplicate token",
        "On random tokens twice: mean share of |a| on the same token before.")
        .from("Wang et al. 2023").share().variants(&MAP_ENDINGS);
    INDUCTION = metric("induction", "induction",
        "On random tokens twice: mean share of |a| on the token after the same token.")
        .from("Olsson et al. 2022").share().variants(&MAP_ENDINGS);
    KL = metric("kl", "KL", "Kullback-Leibler divergence of |a| / sum |a| from the untreated pass.")
        .unit("nats").lower().variants(&[CONTEXT_ENDING]);
    TOP_KEY_FLIPS = metric("top_key_flips", "top key flips",
        "How often the key of the largest |a| is another one under a condition.")
        .share().lower().variants(&[CONTEXT_ENDING]);
    ROW_ERROR = metric("row_error", "row error",
        "Norm of the change of rows a from the untreated pass over the norm of the untreated ones, |a' - a| / |a|; with an \
         ending, of one map alone.")
        .share().lower().variants(&MAP_ENDINGS);
    ERROR_CORRELATION = metric("error_correlation", "correlation of maps' errors",
        "Correlation over keys of the changes of the two maps from the untreated pass: where it is positive, their \
         difference changes less.");
    ERROR_CANCELLED = metric("error_cancelled", "errors cancelled",
        "Part of the changes e1 and e2 of the two maps, the second weighted with lambda, that their difference cancels, 1 - \
         |e1 - e2|^2 / (|e1|^2 + |e2|^2): 0 for unrelated changes, negative where they add up.").share().higher();
    OUTPUT_COSINE = metric("output_cosine", "output cosine",
        "Cosine of a layer's attention output with that of the untreated pass, mean over rows and layers.").higher();
    OUTPUT_ERROR_MAX = metric("output_error_max", "largest output error",
        "Largest change of a channel of a layer's attention output over the root mean square of the untreated output, mean \
         over rows and layers.").lower();
    AR_HIT_SHARE = metric("ar_hit_share", "AR hits",
        "Share of scored tokens that complete a bigram seen earlier in the window.").from("Arora et al. 2023").share();
    NLL_POS = metric("nll_pos", "NLL by position",
        "nll_pos_A_B: mean negative log-likelihood of tokens predicted from A to B tokens, none left out.")
        .from("teacher forcing").unit("nats").lower();
    TOP_1 = metric("top_1", "top-1", "The largest magnitude.").from("paper, Table 5").by_region().lower();
    TOP_2 = metric("top_2", "top-2", "The second largest magnitude.").from("paper, Table 5").by_region().lower();
    TOP_3 = metric("top_3", "top-3", "The third largest magnitude.").from("paper, Table 5").by_region().lower();
    TOP_10 = metric("top_10", "top-10", "The tenth largest magnitude.").from("paper, Table 5").by_region().lower();
    TOP_100 = metric("top_100", "top-100", "The hundredth largest magnitude.")
        .from("paper, Table 5").by_region().lower();
    MEDIAN = metric("median", "median", "The median magnitude, within 0.4 %.").from("paper, Table 5").by_region();
    SHARE_BEYOND_6_SIGMA = metric("share_beyond_6_sigma", "beyond 6 sigma",
        "Share of numbers more than six standard deviations from the mean.")
        .from("Dettmers et al. 2022").by_region().lower();
    INF_NORM_MAX = metric("inf_norm_max", "inf-norm", "The largest |x| of any token in a layer's output.")
        .from("Sun et al. 2024").by_region().lower();
    MASSIVE = metric("massive", "massive activations",
        "Number of activations with |x| > 100 and at least 1000 times the layer's median.")
        .from("Sun et al. 2024").by_region().lower();
    MASSIVE_OUTLIER_FEATURE = metric("massive_outlier_feature", "massive, in outlier features",
        "Those of massive in outlier features: channels that are at least 1000 times the median of a layer on at least 6 % of \
         the tokens.").from("Dettmers et al. 2022").by_region();
    CELL = metric("cell", "failed prompt", "No number: a prompt that failed, with the reason in the column error.");
}

/// Returns the catalogue as a Markdown table: the table of metrics in `docs/results.md`.
pub fn markdown() -> String {
    let head = "| metric | unit | in tables | better | meaning |\n|---|---|---|---|---|\n";
    let row = |metric: &Metric| {
        let escaped = |text: &str| text.replace('<', "&lt;").replace('|', "\\|");
        let better = match metric.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
            Better::Neither => "",
        };
        let heading = escaped(&metric.heading(metric.by_region.then_some("*region*")));
        let (unit, meaning) = (metric.unit.unwrap_or("none"), escaped(metric.meaning));
        let source = metric.source.map_or_else(String::new, |source| format!(" ({source})"));
        format!("| {} | {unit} | {heading} | {better} | {meaning}{source} |\n", metric.markdown_names())
    };
    ALL.iter().map(row).fold(head.to_owned(), |table, row| table + &row)
}

/// The name of the mean over positions `first` to `last` of a window.
pub fn nll_of_positions(first: u32, last: u32) -> String {
    format!("{}_{first}_{last}", NLL_POS.name)
}

/// Returns the metric that a name of the records is of: itself, or one that it is a variant of.
pub fn find(name: &str) -> Option<&'static Metric> {
    let is_variant =
        |metric: &Metric| metric.variants.iter().any(|ending| name.strip_suffix(ending) == Some(metric.name));
    let exactly = ALL.iter().find(|metric| metric.name == name || is_variant(metric));
    exactly.or_else(|| name.starts_with(NLL_POS.name).then_some(&NLL_POS))
}

/// Returns the place of a metric and region among the headline ones, in their order. With `any_region`, every region of a
/// headline metric counts.
pub fn headline_rank(name: &str, region: Option<&str>, any_region: bool) -> Option<usize> {
    let counts = |metric: &Metric| match metric.headline {
        Headline::No => false,
        Headline::Yes => true,
        Headline::Of(wanted) => any_region || region == Some(wanted),
    };
    ALL.iter().position(|metric| metric.name == name && counts(metric))
}

/// Returns whether a metric's numbers are hits (1) and misses (0).
pub fn is_hit(name: &str) -> bool {
    find(name).is_some_and(|metric| metric.kind == Kind::Hit)
}

/// A metric as tables, figures and sentences name it. Metrics that are not in the catalogue, of other versions' files, keep
/// the name and unit of their records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name: `answer in output`.
    pub text: String,
    /// How its numbers are shown.
    pub kind: Kind,
    /// The unit of its numbers as they are shown, without a leading blank: `%`, `nats`; empty for pure numbers.
    pub unit: String,
}

impl Label {
    /// The label of a metric of the catalogue.
    pub fn of(metric: &Metric, region: Option<&str>) -> Self {
        Self::named(metric.name, region, metric.unit)
    }

    /// The label of a metric by the name and unit of its records.
    pub fn named(name: &str, region: Option<&str>, unit: Option<&str>) -> Self {
        let Some(metric) = find(name) else {
            let of = region.map_or_else(String::new, |region| format!(" of {region}"));
            let unit = unit.unwrap_or_default().to_owned();
            return Self { text: format!("{}{of}", name.replace('_', " ")), kind: Kind::Number, unit };
        };
        let ending = &name[metric.name.len()..];
        let of_site = if metric.label.contains("{}") { None } else { region };
        let mut text = metric.label.replace("{}", region.unwrap_or("all")).trim().to_owned();
        text += &variant_words(ending);
        text += &of_site.map_or_else(String::new, |region| format!(" of {region}"));
        let unit = match metric.kind {
            Kind::Hit | Kind::Share => "%",
            Kind::Number => metric.unit.filter(|unit| *unit != "fraction").unwrap_or_default(),
        };
        Self { text, kind: metric.kind, unit: unit.to_owned() }
    }

    /// Returns the heading of a column of its numbers: `accuracy %`, `answer log-prob (nats)`.
    pub fn heading(&self) -> String {
        self.with_unit(&self.unit)
    }

    /// Returns the heading of a column of differences of its numbers: of percentages, in percentage points.
    pub fn difference_heading(&self) -> String {
        self.with_unit(self.difference_unit())
    }

    /// Returns its name in tables of differences, whose caption names percentage points.
    pub fn comparison_heading(&self) -> String {
        self.with_unit(if self.unit == "%" { "" } else { &self.unit })
    }

    /// Returns the unit of a difference: `points`, `nats`; empty for pure numbers.
    pub fn difference_unit(&self) -> &str {
        if self.unit == "%" {
            "points"
        } else {
            &self.unit
        }
    }

    fn with_unit(&self, unit: &str) -> String {
        match unit {
            "" => self.text.clone(),
            "%" | "points" => format!("{} {unit}", self.text),
            _ => format!("{} ({unit})", self.text),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The words for an ending of a metric's name.
fn variant_words(ending: &str) -> String {
    match ending {
        "_a1" => " of map 1".to_owned(),
        "_a2" => " of map 2".to_owned(),
        "_context" => " in the text".to_owned(),
        _ => ending.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|metric| find(metric.name) == Some(metric)));
        assert_eq!(find("retrieval_score_a2"), Some(&RETRIEVAL_SCORE));
        assert_eq!(find(&nll_of_positions(256, 511)), Some(&NLL_POS));
        assert_eq!(find("novelty"), None);
    }

    #[test]
    fn every_metric_has_a_meaning_in_sentences() {
        for metric in ALL {
            assert!(metric.meaning.ends_with('.'), "{}", metric.name);
            assert!(metric.by_region || !metric.label.contains("{}"), "{}", metric.name);
        }
    }

    #[test]
    fn labels_have_region_variant_and_unit() {
        let heading = |name: &str, region| Label::named(name, region, None).heading();
        assert_eq!(heading(SHARE_OUT.name, Some("answer")), "answer in output %");
        assert_eq!(heading(ANSWER_LOG_PROB.name, None), "answer log-prob (nats)");
        assert_eq!(heading("kl_context", None), "KL in the text (nats)");
        assert_eq!(heading("induction_a1", None), "induction of map 1 %");
        assert_eq!(heading(TOP_1.name, Some("hidden")), "top-1 of hidden");
        assert_eq!(heading(CANCELLED.name, None), "all cancelled %");
        assert_eq!(heading(&nll_of_positions(1, 3), None), "NLL by position 1 3 (nats)");
        let novelty = Label::named("novelty_score", Some("filler"), Some("keys"));
        assert_eq!((novelty.heading(), novelty.difference_unit()), ("novelty score of filler (keys)".into(), "keys"));
        assert_eq!(Label::of(&EXACT, None).difference_heading(), "accuracy points");
    }

    #[test]
    fn the_headline_of_attention_is_the_answer() {
        assert_eq!(headline_rank(EXACT.name, None, false), Some(0));
        assert!(headline_rank(SHARE_ABS.name, Some("answer"), false).is_some());
        assert_eq!(headline_rank(SHARE_ABS.name, Some("filler"), false), None);
        assert!(headline_rank(SHARE_ABS.name, Some("filler"), true).is_some());
        assert_eq!(headline_rank(MASS.name, Some("answer"), true), None);
    }
}
