//! The catalogue of metrics: every quantity that results hold, with its unit, its kind, its label and its meaning. Those of
//! training logs are in the training itself, where they are logged.
//!
//! Measures name their records from it; tables, figures, alternative texts, default choices, completions of `--metric` and
//! what `difftool explain` says are made from it. A metric's name stands as a literal nowhere else.

use stats::Interval;
use std::fmt;

/// The way in which the numbers of a metric are read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Hits (1) and misses (0), shown in percent with Wilson intervals.
    Hit,
    /// A hit that is won (1) or lost (-1), or neither (0), shown in percentage points with Tango's intervals.
    HitChange,
    /// A fraction between 0 and 1, shown in percent.
    Rate,
    /// A fraction, shown in percent, that may be negative or above 1.
    Share,
    /// A number in its own unit.
    Number,
}

impl Kind {
    /// Factor from the numbers of a run to those of tables and figures: 100 for percent.
    pub fn factor(self) -> f64 {
        match self {
            Self::Hit | Self::HitChange | Self::Rate | Self::Share => 100.0,
            Self::Number => 1.0,
        }
    }

    /// The largest number, with 0 the smallest one; `None` if there is no such limit.
    pub fn most(self) -> Option<f64> {
        matches!(self, Self::Hit | Self::Rate).then_some(1.0)
    }
}

/// A quantity of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in `results.csv`.
    pub name: &'static str,
    /// The unit of its numbers in `results.csv`; `None` for pure numbers.
    pub unit: Option<&'static str>,
    pub kind: Kind,
    /// A heading of few words; `{}` stands for the region.
    pub label: &'static str,
    /// Definition in one sentence.
    pub meaning: &'static str,
    /// The comparisons that show it by default; of a metric by region, for the region named.
    pub headline: Headline,
    /// `true` if it has a number for each region of the prompt, or each site of the model.
    pub by_region: bool,
    /// Where its definition comes from, if from others.
    pub source: Option<&'static str>,
    /// The sign that all its numbers have; none for those that may have either.
    pub sign: Option<Sign>,
    /// What its numbers do not say, where readers take them for it; empty otherwise.
    pub unsaid: &'static str,
}

/// The sign of numbers, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Positive,
    Negative,
}

/// The comparisons that show a metric by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headline {
    /// Only where it is asked for.
    No,
    Yes,
    /// For this region.
    Of(&'static str),
}

/// Names of parts of the prompt, or sites of the model, that metrics are about.
pub const ANSWER_REGION: &str = "answer";
/// Template, filler and distractors together.
pub const NOISE_REGION: &str = "noise";

/// Kinds of tokens, which are regions of the records: the beginning of the text, random tokens, and one random token again
/// and again.
pub const TOKEN_KINDS: [&str; 3] = ["text", "random", "repeated"];

/// Most occurrences of a bigram that still counts as an AR hit, in 200 thousand tokens: about one in 4,096.
pub const AR_MAX_COUNT: usize = 50;

/// Least part of the tokens of a layer on which the channel of an outlier feature is large (Dettmers et al. 2022,
/// "LLM.int8()"). The massive activations of other channels belong to single tokens (Sun et al. 2024).
pub const OUTLIER_FEATURE: f64 = 0.06;

/// A pure number; what else it is follows.
pub const fn metric(name: &'static str, label: &'static str, meaning: &'static str) -> Metric {
    Metric {
        name,
        unit: None,
        kind: Kind::Number,
        label,
        meaning,
        headline: Headline::No,
        by_region: false,
        source: None,
        sign: None,
        unsaid: "",
    }
}

impl Metric {
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn hits(self) -> Self {
        Self { kind: Kind::Hit, unit: Some("fraction"), ..self }
    }

    const fn hit_changes(self) -> Self {
        Self { kind: Kind::HitChange, unit: Some("fraction"), ..self }
    }

    pub const fn rate(self) -> Self {
        Self { kind: Kind::Rate, unit: Some("fraction"), ..self }
    }

    const fn share(self) -> Self {
        Self { kind: Kind::Share, unit: Some("fraction"), ..self }
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

    const fn positive(self) -> Self {
        Self { sign: Some(Sign::Positive), ..self }
    }

    const fn negative(self) -> Self {
        Self { sign: Some(Sign::Negative), ..self }
    }

    /// Least and largest number that is possible.
    pub fn range(&self) -> Interval {
        match (self.sign, self.kind.most()) {
            (_, Some(most)) => Interval { lo: 0.0, hi: most },
            (Some(Sign::Positive), None) => Interval { lo: 0.0, hi: f64::INFINITY },
            (Some(Sign::Negative), None) => Interval { lo: f64::NEG_INFINITY, hi: 0.0 },
            (None, None) => Interval { lo: f64::NEG_INFINITY, hi: f64::INFINITY },
        }
    }

    const fn unsaid(self, unsaid: &'static str) -> Self {
        Self { unsaid, ..self }
    }

    const fn from(self, source: &'static str) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Its name with the region, as files and flags write it: `share_abs[answer]`.
    pub fn name_of(&self, region: Option<&str>) -> String {
        metric_name(self.name, region)
    }

    /// The heading of a column of its numbers: the label with its region and unit.
    pub fn heading(&self, region: Option<&str>) -> String {
        Label::of(self, region).heading()
    }
}

/// A number that is asked for: a metric, of one region or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<'a> {
    pub metric: &'static Metric,
    pub region: Option<&'a str>,
}

impl Metric {
    /// Its number over all of the prompt, or of no region at all.
    pub const fn overall(&'static self) -> Number<'static> {
        Number { metric: self, region: None }
    }

    /// Its number of one region.
    pub const fn of(&'static self, region: &'static str) -> Number<'static> {
        Number { metric: self, region: Some(region) }
    }
}

/// Declares metrics and the list of all of them: of runs, in the order in which tables and comparisons show them.
#[macro_export]
macro_rules! catalogue {
    ($($constant:ident = $metric:expr;)*) => {
        $(#[allow(missing_docs)] pub const $constant: Metric = $metric;)*

        /// All metrics of this catalogue, in its order.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

catalogue! {
    ACCURACY = metric("accuracy", "accuracy",
        "Every token of the value has the largest logit, given the right tokens before it: 1 or 0. For the first question this \
         equals greedy decoding.")
        .from("paper, Table 2").hits().headline()
        .unsaid("At 0 and 100 % no difference can be seen.");
    GENERATED_ACCURACY = metric("generated_accuracy", "generated accuracy",
        "The greedily decoded answer begins with the value: 1 or 0.")
        .hits().headline();
    ANSWER_LOG_PROB = metric("answer_log_prob", "answer log-prob",
        "Log-probability of the value, summed over its tokens.")
        .unit("nats").negative().headline();
    HIDDEN_LOG_PROB = metric("hidden_log_prob", "{} hidden",
        "Change of L if the rows that predict the answer do not see the region, as under the condition mask(region): positive where \
         the region does harm.")
        .unit("nats").by_region().headline_of(NOISE_REGION)
        .unsaid("What the region does to the text between, whose rows still see it.");
    HIDDEN_ACCURACY = metric("hidden_accuracy", "{} hidden, accuracy", "Change of accuracy by the same: 1, 0 or -1.")
        .hit_changes().by_region();
    GIVES = metric("gives", "{} gives",
        "L with a segment of the text less L of the text without it, tokenised again: positive where it helps, negative where it costs \
         the answer. Of right, otherwise (passages that state another answer) and other segments, or of each: the mean over those of a text.")
        .unit("nats").by_region()
        .unsaid("Of segments that say the same each gives little, since the others remain: see alone.");
    GIVES_TOGETHER = metric("gives_together", "{} give together",
        "L less L of the text without all segments of the kind at once.").unit("nats").by_region().headline_of("other");
    GIVES_WORST = metric("gives_worst", "worst gives",
        "What the segment gives that costs the answer most, chosen in one order of the text and measured in another. Right segments do \
         not count.").unit("nats").headline();
    HARMS = metric("harms", "has one that harms",
        "A segment that is not right takes at least half of the answer's odds: 1 or 0.").hits().headline();
    SHARE_OUT = metric("share_out", "{} in output",
        "Part of what all heads write into the residual stream that comes from the region, <u_R, u> / <u, u>: a mean over layers, \
         weighted by the part of the stream that they make new. It sums to 1 and may be negative.")
        .share().by_region().headline_of(ANSWER_REGION)
        .unsaid("What the region costs or gives the answer: hidden_log_prob says that.");
    NOISE_OUT = metric("noise_out", "noise in output", "Sum of share_out over template, filler and distractors.")
        .share().headline();
    NOISE_OUT_NO_SINKS = metric("noise_out_no_sinks", "noise in output, no sinks",
        "noise_out less what comes from detected sinks in it.").share().headline();
    HEAD_ATTRIBUTION = metric("head_attribution", "head attribution",
        "First-order estimate of what L would lose if the head wrote its mean over reference prompts instead, <dL/do, o - mean o>.")
        .from("attribution patching, Nanda 2023").unit("nats")
        .unsaid("Where the answer is certain it is near 0, whatever the head does.");
    SHARE_SIGNED = metric("share_signed", "{} in a",
        "Sum of the signed weights on the region over the sum of all, sum_R a / sum a. Heads with |sum a| < 0.1 sum |a| are left \
         out.").from("paper, Table 3").share().by_region().headline_of(ANSWER_REGION)
        .unsaid("How much heads write: each counts as much as any other.");
    NOISE_SIGNED = metric("noise_signed", "noise in a", "Sum of share_signed over template, filler and distractors.")
        .from("paper, Table 3").share().headline();
    SHARE_ABS = metric("share_abs", "{} in |a|",
        "Sum of the magnitudes of the weights on the region over the sum of all, sum_R |a| / sum |a|.")
        .rate().by_region().headline_of(ANSWER_REGION)
        .unsaid("It also counts attention that the subtraction cancels later.");
    NOISE_ABS = metric("noise_abs", "noise in |a|", "Sum of share_abs over template, filler and distractors.")
        .rate().headline();
    ENTROPY = metric("entropy", "entropy", "Entropy of |a| / sum |a|.").from("Shannon").unit("nats").positive().headline();
    SINK_SHARE_DETECTED = metric("sink_share_detected", "sinks in |a|", "Share of |a| on all detected sinks.")
        .rate().headline();
    NLL = metric("nll", "NLL", "Mean negative log-likelihood of the scored tokens of prose.")
        .unit("nats").positive().headline();
    NLL_LATE = metric("nll_late", "NLL late in the window",
        "Mean negative log-likelihood of the scored tokens in the second half of a window.")
        .from("paper, Figure 4").unit("nats").positive();
    NLL_AR_HIT = metric("nll_ar_hit", "NLL of AR hits",
        "Mean negative log-likelihood of AR hits: tokens that complete a bigram seen earlier in the window.")
        .from("Arora et al. 2023").unit("nats").positive().headline();
    NLL_OTHER = metric("nll_other", "NLL of others",
        "Mean negative log-likelihood of the scored tokens that are no AR hits.")
        .from("Arora et al. 2023").unit("nats").positive().headline();
    TOP_TOKEN_FLIPS = metric("top_token_flips", "top token flips",
        "How often the most likely next token differs from the untreated pass.").rate().headline();
    ANSWER_FLIPS = metric("answer_flips", "answers changed",
        "The answer is right in only one of two passes, the untreated and the treated one: 1 or 0.")
        .from("flips of Dutta et al. 2024").hits().headline();
    TOTAL_VARIATION = metric("total_variation", "total variation",
        "Half the sum of differences of |a| / sum |a| from the untreated pass.")
        .rate().headline();
    TOP_1_OVER_MEDIAN = metric("top_1_over_median", "top 1/median", "The largest magnitude over the median.")
        .from("paper, Table 5").by_region().headline();
    LARGEST = metric("largest_of_window", "largest of a window, {}",
        "The largest magnitude of a window: of the logits of all maps, of the hidden states at the output of every layer.")
        .from("paper, Table 5").by_region().positive();
    KURTOSIS = metric("kurtosis", "kurtosis",
        "The fourth central moment of the signed numbers over the square of the second, m4 / m2^2: 3 for normal numbers.")
        .from("Pearson").by_region().headline();

    GIVES_LOG_ODDS = metric("gives_log_odds", "{} gives, log-odds",
        "Log-odds of the answer, log P - log (1 - P), less those of the text without the segment. They go on where P is next to 1.").unit("nats").by_region();
    GIVES_SPREAD = metric("gives_spread", "spread of {}",
        "Standard deviation over orders of the text of what a segment gives.").unit("nats").by_region().positive();
    ALONE = metric("alone", "{} alone",
        "L behind a segment as the only one, less L behind none.").unit("nats").by_region();
    THROUGH_OTHERS = metric("through_others", "{} through others",
        "gives less what L loses if the rows of question and answer do not see the segment: what comes through rows of other segments.")
        .unit("nats").by_region();
    SEGMENT_SHARE = metric("segment_share", "{} in output",
        "The part of what all heads write in the rows of the answer that comes from a segment, as share_out of a region.")
        .share().by_region();
    LOG_PROB_WITHOUT = metric("log_prob_without", "answer without {}",
        "L of the text without the segment that costs most, without all that cost at least 0.1 nats (harmful), or without any (all).")
        .unit("nats").by_region().negative();
    THROUGH_SHARE = metric("through_share", "through others",
        "Sum of the sizes of through_others over the sum of it and of what L loses if segments are not seen.").rate();
    SHARE_AGREES = metric("share_agrees", "attention with what it gives",
        "Pearson's correlation over the segments of a text between their share in the output and what they give.").from("Pearson");
    CONTEXT_FLOOR = metric("context_floor", "floor",
        "Largest change of L by one of six sentences of other prose, put at places spread over the text.").unit("nats").positive();
    GENERATED_CONTAINS = metric("generated_contains", "generated contains",
        "The decoded answer contains the value as a whole number or word: 1 or 0.")
        .hits();
    SAID_NUMBER = metric("said_number", "says a number", "The decoded answer holds a number: 1 or 0.")
        .hits();
    SAID_OTHER_NEEDLE = metric("said_other_needle", "another needle's",
        "The decoded answer holds a value that the text gives to another key: 1 or 0.")
        .hits();
    CANCELLED = metric("cancelled", "{} cancelled",
        "Part of the attention that the subtraction removes, 1 - sum |a| / sum (A1 + lambda A2).").share().by_region();
    CANCELLED_CHANCE = metric("cancelled_chance", "{} cancelled by chance",
        "Mean of cancelled over all permutations of A2's keys within the region: in a row of n keys, sum_ij min(A1_i, lambda A2_j) / n \
         stands for sum_i min(A1_i, lambda A2_i).").share().by_region();
    MAP_COSINE = metric("map_cosine", "map cosine",
        "Cosine of both maps over the keys of the region that a row sees, <A1, A2> / (|A1| |A2|): a mean over the rows that predict \
         the answer. Rows with fewer than two such keys, or with less than 1e-31 on them in a map, are left out.")
        .positive().by_region();
    MAP_COSINE_CHANCE = metric("map_cosine_chance", "map cosine by chance",
        "Mean of map_cosine over all permutations of A2's keys within the region, sum A1 sum A2 / (n |A1| |A2|) for n keys.").positive().by_region();
    MAP_COSINE_STRANGERS = metric("map_cosine_strangers", "map cosine of strangers",
        "Mean cosine of A1 and the second maps of the other heads of the layer, over the keys of noise and the rows that predict the \
         answer.").positive().by_region();
    LAMBDA = metric("lambda", "lambda", "Mean weight of the second map.").from("paper, section 2.1").unit("fraction");
    SINK_RATE = metric("sink_rate", "sink rate",
        "Share of heads that give the first token more than 0.3 of |a| on average over the first 64 rows: of texts, of random \
         tokens, and of one token repeated.")
        .from("Gu et al. 2025").rate().by_region();
    SINK_SHARE_FIRST = metric("sink_share_first", "first token in |a|", "Share of |a| on the first token.")
        .from("Gu et al. 2025").rate();
    VALUE_NORM_FIRST = metric("value_norm_first", "first token's value",
        "Norm of the first token's value over the mean norm of all values up to the answer.").from("Gu et al. 2025");
    RETRIEVAL_SCORE = metric("retrieval_score", "retrieval",
        "How often, in rows that predict the answer, the largest |a| is on the needle's token to copy.")
        .from("Wu et al. 2024").rate();
    QUERY_SCORE = metric("query_score", "query", "Mean share of |a| on the needle asked for, in the rows of the question.")
        .rate();
    PREVIOUS_TOKEN = metric("previous_token", "previous token",
        "On random tokens that come twice: mean share of |a| on the token before.")
        .from("Elhage et al. 2021").rate();
    DUPLICATE_TOKEN = metric("duplicate_token", "duplicate token",
        "On random tokens that come twice: mean share of |a| on the same token before.")
        .from("Wang et al. 2023").rate();
    INDUCTION = metric("induction", "induction",
        "On random tokens that come twice: mean share of |a| on the token after the same token.")
        .from("Olsson et al. 2022").rate();
    KL = metric("kl", "KL", "Kullback-Leibler divergence of |a| / sum |a| from the untreated pass.")
        .unit("nats").positive();
    ROW_ERROR = metric("row_error", "row error",
        "Change of a row from the untreated pass over the untreated row, as norms, |a' - a| / |a|.")
        .share();
    ERROR_CANCELLED = metric("error_cancelled", "errors cancelled",
        "Part of the changes e1 of the first map and e2 of lambda times the second that their difference cancels, 1 - \
         |e1 - e2|^2 / (|e1|^2 + |e2|^2): 0 for unrelated changes, negative where they add up.").share();
    OUTPUT_COSINE = metric("output_cosine", "output cosine",
        "Cosine between a layer's attention outputs in the treated and the untreated pass, mean over rows and layers.");
    AR_HIT_SHARE = metric("ar_hit_share", "AR hits",
        "Share of scored tokens that complete a bigram seen earlier in the window.").from("Arora et al. 2023").rate();
    NLL_POS = metric("nll_pos", "NLL by position",
        "nll_pos_A_B: mean negative log-likelihood of the tokens that follow A to B others, none left out.")
        .unit("nats").positive();
    TOP_K = metric("top", "top", "top_K: the K-th largest magnitude.").from("paper, Table 5").by_region();
    MEDIAN = metric("median", "median", "The median magnitude, within 0.4 %.").from("paper, Table 5").by_region();
    SHARE_BEYOND_6_SIGMA = metric("share_beyond_6_sigma", "beyond 6 sigma",
        "Share of numbers more than six standard deviations from the mean.")
        .from("Dettmers et al. 2022").by_region();
    INF_NORM_MAX = metric("inf_norm_max", "inf-norm", "The largest |x| of any token in a layer's output.")
        .from("Sun et al. 2024").by_region();
    MASSIVE = metric("massive", "massive activations",
        "Number of activations with |x| > 100 and at least 1000 times the layer's median.")
        .from("Sun et al. 2024").by_region();
    CELL = metric("cell", "failed prompt", "No number: a prompt that failed, with the reason in the column error.");
}

/// The name of the mean over positions `first` to `last` of a window.
pub fn nll_of_positions(first: u32, last: u32) -> String {
    format!("{}_{first}_{last}", NLL_POS.name)
}

/// The name of the `k`-th largest magnitude.
pub fn top_k(k: usize) -> String {
    format!("{}_{k}", TOP_K.name)
}

/// The metric that a name of the records is of: itself, or one whose names end in numbers.
pub fn find(name: &str) -> Option<&'static Metric> {
    let same_name = ALL.iter().find(|metric| metric.name == name);
    same_name.or_else(|| {
        [&NLL_POS, &TOP_K].into_iter().find(|metric| {
            let numbers = name.strip_prefix(metric.name).and_then(|rest| rest.strip_prefix('_'));
            numbers.is_some_and(|numbers| numbers.split('_').all(|number| number.parse::<u32>().is_ok()))
        })
    })
}

/// The place of a metric and region among the headline ones, in their order. With `any_region`, every region of a
/// headline metric counts.
pub fn headline_rank(name: &str, region: Option<&str>, any_region: bool) -> Option<usize> {
    ALL.iter().position(|metric| {
        let counts = match metric.headline {
            Headline::No => false,
            Headline::Yes => true,
            Headline::Of(wanted) => any_region || region == Some(wanted),
        };
        metric.name == name && counts
    })
}

/// The kind of a metric by its name.
pub fn kind_of(name: &str) -> Kind {
    find(name).map_or(Kind::Number, |metric| metric.kind)
}

/// A metric as tables, figures and sentences name it. Metrics that are not in the catalogue, of other versions' files, keep
/// the name and unit of their records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name: `answer in output`.
    pub text: String,
    pub kind: Kind,
    /// The unit of its numbers as they are shown, without a leading blank: `%`, `nats`; empty for pure numbers.
    pub unit: String,
}

impl Label {
    /// The label of a metric of the catalogue.
    pub fn of(metric: &Metric, region: Option<&str>) -> Self {
        Self::numbered(metric, "", region)
    }

    /// The label of a metric by the name and unit of its records.
    pub fn named(name: &str, region: Option<&str>, unit: Option<&str>) -> Self {
        let Some(metric) = find(name) else {
            let of = region.map_or_else(String::new, |region| format!(" of {region}"));
            let unit = unit.unwrap_or_default().to_owned();
            return Self { text: format!("{}{of}", name.replace('_', " ")), kind: Kind::Number, unit };
        };
        Self::numbered(metric, &name[metric.name.len()..], region)
    }

    /// The label of a metric with the numbers that its name ends in.
    fn numbered(metric: &Metric, numbers: &str, region: Option<&str>) -> Self {
        let of_site = if metric.label.contains("{}") { None } else { region };
        let mut text = metric.label.replace("{}", region.unwrap_or("all")).trim().to_owned();
        text += &numbers.replace('_', " ");
        text += &of_site.map_or_else(String::new, |region| format!(" of {region}"));
        let unit = match metric.kind {
            Kind::Hit | Kind::Rate | Kind::Share => "%",
            Kind::HitChange => "points",
            Kind::Number => metric.unit.filter(|unit| *unit != "fraction").unwrap_or_default(),
        };
        Self { text, kind: metric.kind, unit: unit.to_owned() }
    }

    /// The heading of a column of its numbers: `accuracy %`, `answer log-prob (nats)`.
    pub fn heading(&self) -> String {
        self.with_unit(&self.unit)
    }

    /// The heading of a column of differences of its numbers: of percentages, in percentage points.
    pub fn difference_heading(&self) -> String {
        self.with_unit(self.difference_unit())
    }

    /// Its name in tables of differences, whose caption names percentage points.
    pub fn comparison_heading(&self) -> String {
        self.with_unit(if self.unit == "%" { "" } else { &self.unit })
    }

    /// The unit of a difference: `points`, `nats`; empty for pure numbers.
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

impl Number<'_> {
    pub fn label(&self) -> Label {
        Label::of(self.metric, self.region)
    }

    /// The heading of its column: `answer in output %`.
    pub fn heading(&self) -> String {
        self.metric.heading(self.region)
    }
}

/// The name of a metric with its region, as in `share_abs[answer]`.
pub fn metric_name(metric: &str, region: Option<&str>) -> String {
    metric.to_owned() + &region.map_or(String::new(), |region| format!("[{region}]"))
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
        assert_eq!((find("top_100"), find("top_1_over_median")), (Some(&TOP_K), Some(&TOP_1_OVER_MEDIAN)));
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
    fn labels_have_region_numbers_and_unit() {
        let heading = |name: &str, region| Label::named(name, region, None).heading();
        assert_eq!(heading(SHARE_OUT.name, Some("answer")), "answer in output %");
        assert_eq!(heading(ANSWER_LOG_PROB.name, None), "answer log-prob (nats)");
        assert_eq!(heading(&top_k(10), Some("hidden")), "top 10 of hidden");
        assert_eq!(heading(CANCELLED.name, None), "all cancelled %");
        assert_eq!(heading(&nll_of_positions(1, 3), None), "NLL by position 1 3 (nats)");
        let novelty = Label::named("novelty_score", Some("filler"), Some("keys"));
        assert_eq!((novelty.heading(), novelty.difference_unit()), ("novelty score of filler (keys)".into(), "keys"));
        assert_eq!(Label::of(&ACCURACY, None).difference_heading(), "accuracy points");
    }

    #[test]
    fn the_headline_of_attention_is_the_answer() {
        assert_eq!(headline_rank(ACCURACY.name, None, false), Some(0));
        assert!(headline_rank(SHARE_ABS.name, Some("answer"), false).is_some());
        assert_eq!(headline_rank(SHARE_ABS.name, Some("filler"), false), None);
        assert!(headline_rank(SHARE_ABS.name, Some("filler"), true).is_some());
        assert_eq!(headline_rank(CANCELLED.name, Some("answer"), true), None);
    }
}
