//! Differences: how one side of pairs differs from the other, with an interval and a test.
//!
//! Several questions of one prompt are not independent, so means, differences and intervals are over prompts, each the mean of
//! its questions. Interval and test are of the same hypothesis, that of the mean: they agree on whether it is 0. The verdict is
//! that of the test, corrected for the rows of its table. Those of hits and misses are Tango's and McNemar's, those of other
//! numbers Student's t, corrected for skewness. Where models are replicates, trained from several seeds, seeds and prompts are
//! what is independent; so are draws of random heads and prompts.

use super::pair::{by_prompt, on_shared_keys, pairs, Pair, PromptKey};
use super::records::RecordRef;
use super::Estimate;
use names::column::{Column, Value};
use names::metric::Kind;
use serde::Serialize;
use stats::{holm, mean, smallest_detectable, test_mean, Interval, PairedHits, PromptOutcomes, Replicated, LEVEL};
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// A test of the hypothesis that the mean difference is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Test {
    /// McNemar's test, of hits and misses.
    Mcnemar,
    /// Student's t, corrected for skewness, of means over the questions of each prompt; of the mean over training seeds and
    /// prompts, where models are replicates.
    T,
    /// The sign test over training seeds, where all seeds and prompts differ alike.
    Sign,
}

impl Test {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The difference of two sides of pairs, other − baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Number of prompts: what is independent, and what means and interval are over.
    pub n: usize,
    /// Number of training seeds, where models are replicates; `n` is then of the prompts that all seeds have.
    pub seeds: Option<usize>,
    /// Number of pairs: more than prompts, where a prompt has several questions.
    pub cases: usize,
    /// Mean of the baseline, over prompts.
    pub mean_baseline: f64,
    pub mean_other: f64,
    /// Mean over prompts of the difference.
    pub diff: f64,
    /// Lower end of the 95 % interval of `diff`; missing of fewer than six prompts, of fewer than three seeds, and where all
    /// prompts differ alike.
    pub lo: Option<f64>,
    pub hi: Option<f64>,
    /// The smallest true difference that this test would have shown on so many prompts (and seeds, of replicates) with 80 %
    /// power; missing where they do not tell.
    pub detectable: Option<f64>,
    /// Number of prompts (seeds, of replicates) where the other is larger.
    pub wins: usize,
    /// Where both are equal.
    pub ties: usize,
    /// Where the other is smaller.
    pub losses: usize,
    /// The test that `p` is of; missing without an interval.
    pub test: Option<Test>,
    /// Two-sided p-value.
    pub p: Option<f64>,
    /// The p-value corrected for all rows of its table (Holm), which the verdict follows.
    pub p_adjusted: Option<f64>,
}

/// The sign of a difference, if it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Higher,
    Lower,
    /// The difference may be 0, or there is no test.
    Undecided,
}

impl Verdict {
    /// The rule of [`Verdict::of`], as captions of tables say it.
    pub(crate) const RULE: &str = "Verdict: p < 0.05, corrected for all rows (Holm).";

    /// The verdict on a difference by its p-value, corrected for the rows of its table. `cargo bench --bench coverage` measures how
    /// many tables without an effect have a decided row.
    pub(crate) fn of(difference: f64, p_adjusted: Option<f64>) -> Self {
        match p_adjusted.is_some_and(|p| p < 1.0 - LEVEL) {
            true if difference > 0.0 => Self::Higher,
            true => Self::Lower,
            false => Self::Undecided,
        }
    }

    /// The verdict of one of several intervals that hold together, by its [side](Interval::side) of 0.
    pub(crate) fn of_interval(interval: Option<Interval>) -> Self {
        match interval.map_or(0, |interval| interval.side()) {
            1 => Self::Higher,
            -1 => Self::Lower,
            _ => Self::Undecided,
        }
    }

    /// The verdicts on the changes of a table.
    pub(crate) fn of_table(changes: &[Estimate]) -> Vec<Self> {
        let adjusted = corrected(&changes.iter().map(|change| change.p).collect::<Vec<_>>());
        changes.iter().zip(adjusted).map(|(change, p)| Self::of(change.value, p)).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Undecided => "undecided",
        }
    }
}

impl Difference {
    pub fn interval(&self) -> Option<Interval> {
        self.lo.zip(self.hi).map(|(lo, hi)| Interval { lo, hi })
    }

    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.diff, self.p_adjusted)
    }

    /// Returns `true` if the verdict is not open.
    pub(crate) fn is_decided(&self) -> bool {
        self.verdict() != Verdict::Undecided
    }

    /// The difference of two sides of records: over training seeds and prompts where models are replicates, otherwise over prompts.
    /// `free`: columns that do not tell prompts apart, as they are compared.
    pub(crate) fn of_sides(sides: [Vec<RecordRef<'_>>; 2], free: &[Column], kind: Kind) -> Option<Self> {
        let has_seeds = sides.iter().flatten().any(|record| record.identity.replicate.is_some());
        let pairs = pairs(sides, free).pairs;
        if has_seeds {
            Self::of_seeds(&pairs, free, kind)
        } else {
            Self::of_prompts(&pairs, free, kind)
        }
    }

    /// The difference over prompts, with the test of hits and misses or that of other numbers; `None` of no pairs, and of
    /// numbers so large that their mean overflows. `free`: columns that do not tell prompts apart, as they are compared.
    pub(crate) fn of_prompts(pairs: &[Pair<'_>], free: &[Column], kind: Kind) -> Option<Self> {
        let prompts = by_prompt(pairs.iter().map(|pair| (pair.record, (pair.a, pair.b))), free);
        Self::of_numbers(&prompts.into_iter().map(|(_, numbers)| numbers).collect::<Vec<_>>(), kind)
    }

    /// The same from the numbers of each prompt, each of the baseline and of the other.
    pub(crate) fn of_numbers(prompts: &[Vec<(f64, f64)>], kind: Kind) -> Option<Self> {
        let means: Vec<(f64, f64)> = prompts.iter().map(|numbers| mean_of_both(numbers)).collect();
        let differences: Vec<f64> = means.iter().map(|(a, b)| b - a).collect();
        let cases = prompts.iter().map(Vec::len).sum();
        let difference = Self { n: prompts.len(), ..Self::of_means(&means, &differences, cases)? };
        if kind == Kind::Hit && are_hits(prompts) {
            return Some(difference.with_hits(prompts));
        }
        let test = test_mean(&differences);
        Some(Self {
            detectable: smallest_detectable(&differences),
            test: test.map(|_| Test::T),
            p: test.map(|test| test.p),
            ..difference.with_interval(test.map(|test| test.interval), kind)
        })
    }

    /// Adds interval, power and test of hits and misses.
    fn with_hits(self, prompts: &[Vec<(f64, f64)>]) -> Self {
        let mut outcomes = Vec::new();
        for numbers in prompts {
            let changes: Vec<f64> = numbers.iter().map(|(a, b)| b - a).collect();
            outcomes.push(PromptOutcomes::of_changes(&changes));
        }
        let hits = PairedHits::new(&outcomes);
        Self {
            detectable: hits.and_then(|hits| hits.smallest_detectable()),
            test: hits.map(|_| Test::Mcnemar),
            p: hits.map(|hits| hits.p()),
            ..self.with_interval(hits.map(|hits| hits.interval()), Kind::Hit)
        }
    }

    /// The difference over training seeds and prompts, where models are replicates.
    pub(crate) fn of_seeds(pairs: &[Pair<'_>], free: &[Column], kind: Kind) -> Option<Self> {
        let mut seeds: BTreeMap<Option<Value<'_>>, MeansByPrompt<'_>> = BTreeMap::new();
        for (mut prompt, means) in prompt_means(pairs, free) {
            let seed = prompt[Column::Replicate as usize].take();
            prompt[Column::Variant as usize] = None; // a folder may hold another model than its neighbours
            seeds.entry(seed).or_default().insert(prompt, means);
        }
        let seeds: Vec<MeansByPrompt<'_>> = seeds.into_values().collect();
        Some(Self { seeds: Some(seeds.len()), ..Self::of_replicates(&seeds, pairs.len(), kind)? })
    }

    /// The difference over draws of random heads and prompts, from the pairs of each draw. Of one draw it is that over
    /// prompts. A rate changes by no more than its baseline leaves, which is the same in all draws.
    pub(crate) fn of_draws(draws: &[Vec<Pair<'_>>], free: &[Column], kind: Kind) -> Option<Self> {
        if let [pairs] = draws {
            return Self::of_prompts(pairs, free, kind);
        }
        let tables: Vec<MeansByPrompt<'_>> =
            draws.iter().map(|pairs| prompt_means(pairs, free).into_iter().collect()).collect();
        let difference = Self::of_replicates(&tables, draws.iter().map(Vec::len).sum(), kind)?;
        let Some(most) = kind.most() else { return Some(difference) };
        let interval = difference.interval();
        let least = -difference.mean_baseline;
        let possible = interval.map(|interval| interval.within(least, most + least));
        Some(difference.with_interval(possible, kind))
    }

    /// The difference over replicates and the prompts that all of them have, from the means of each prompt.
    fn of_replicates(replicates: &[MeansByPrompt<'_>], cases: usize, kind: Kind) -> Option<Self> {
        let tables = on_shared_keys(&replicates.iter().collect::<Vec<_>>());
        let mut differences = Vec::new();
        let mut means = Vec::new();
        for prompts in &tables {
            differences.push(prompts.iter().map(|(a, b)| b - a).collect::<Vec<f64>>());
            let (a, b): (Vec<f64>, Vec<f64>) = prompts.iter().copied().unzip();
            means.extend(mean(&a).zip(mean(&b)));
        }
        let across = Replicated::new(&differences)?;
        let difference = Self::of_means(&means, &across.of_seeds, cases)?;
        Some(Self {
            n: tables.first().map_or(0, Vec::len),
            detectable: across.detectable,
            test: across.p.map(|_| if across.interval.is_some() { Test::T } else { Test::Sign }),
            p: across.p,
            ..difference.with_interval(across.interval, kind)
        })
    }

    /// Means of pairs and their differences, without interval and test; `None` of no pairs, or if a mean is not finite.
    fn of_means(pairs: &[(f64, f64)], differences: &[f64], cases: usize) -> Option<Self> {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let mean_baseline = mean(&a)?;
        let mean_other = mean(&b)?;
        let diff = mean(differences)?;
        [mean_baseline, mean_other, diff].iter().all(|x| x.is_finite()).then(|| Self {
            cases,
            mean_baseline,
            mean_other,
            diff,
            wins: differences.iter().filter(|&&diff| diff > 0.0).count(),
            ties: differences.iter().filter(|&&diff| diff == 0.0).count(),
            losses: differences.iter().filter(|&&diff| diff < 0.0).count(),
            ..Self::default()
        })
    }

    /// Adds an interval; rates differ by at most 1.
    fn with_interval(self, interval: Option<Interval>, kind: Kind) -> Self {
        let interval = interval.map(|interval| kind.most().map_or(interval, |most| interval.within(-most, most)));
        Self { lo: interval.map(|interval| interval.lo), hi: interval.map(|interval| interval.hi), ..self }
    }
}

/// The means of both sides of each prompt.
type MeansByPrompt<'a> = BTreeMap<PromptKey<'a>, (f64, f64)>;

/// The prompts of pairs, each with its means.
fn prompt_means<'a>(pairs: &[Pair<'a>], free: &[Column]) -> Vec<(PromptKey<'a>, (f64, f64))> {
    let mut prompts = Vec::new();
    for (prompt, values) in by_prompt(pairs.iter().map(|pair| (pair.record, (pair.a, pair.b))), free) {
        prompts.push((prompt, mean_of_both(&values)));
    }
    prompts
}

fn mean_of_both(numbers: &[(f64, f64)]) -> (f64, f64) {
    let (a, b): (Vec<f64>, Vec<f64>) = numbers.iter().copied().unzip();
    (mean(&a).unwrap_or(f64::NAN), mean(&b).unwrap_or(f64::NAN))
}

/// Returns `true` if all numbers are hits (1) and misses (0).
pub(crate) fn are_hits(prompts: &[Vec<(f64, f64)>]) -> bool {
    prompts.iter().flatten().flat_map(|&(a, b)| [a, b]).all(|x| x == 0.0 || x == 1.0)
}

/// Corrects the p-values of the rows of a table as one family: whoever reads the table looks at all of them.
pub(crate) fn correct<'a>(rows: impl IntoIterator<Item = &'a mut Difference>) {
    correct_among(0, rows);
}

/// The same in a family of at least `family` rows: those that are not here count as rows without an effect.
pub(crate) fn correct_among<'a>(family: usize, rows: impl IntoIterator<Item = &'a mut Difference>) {
    let mut rows: Vec<&mut Difference> = rows.into_iter().collect();
    let mut p_values: Vec<Option<f64>> = rows.iter().map(|row| row.p).collect();
    let tested = p_values.iter().flatten().count();
    p_values.extend(std::iter::repeat_n(Some(1.0), family.saturating_sub(tested)));
    let adjusted = corrected(&p_values);
    for (row, adjusted) in rows.iter_mut().zip(adjusted) {
        row.p_adjusted = adjusted;
    }
}

/// P-values corrected as one family (Holm); those that are missing count for nothing.
fn corrected(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut adjusted = holm(&p_values.iter().flatten().copied().collect::<Vec<f64>>()).into_iter();
    p_values.iter().map(|p| p.and_then(|_| adjusted.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::Identity;
    use super::super::records::{Quantity, RecordRef};
    use super::*;
    use stats::Rng;

    /// A question of a prompt, and its values on both sides.
    type Question = (Identity, (f64, f64));

    fn question(seed: u64, query: usize, values: (f64, f64)) -> Question {
        (Identity { seed: Some(seed), query: Some(query), ..Identity::default() }, values)
    }

    /// Calls `test` with the pairs of some questions.
    fn with_pairs<T>(questions: &[Question], test: impl Fn(&[Pair<'_>]) -> T) -> T {
        let quantity = Quantity::default();
        let mut pairs = Vec::new();
        for (identity, (a, b)) in questions {
            let record = RecordRef { identity, quantity: &quantity, value: *a, place: 0 };
            pairs.push(Pair { record, a: *a, b: *b });
        }
        test(&pairs)
    }

    /// The difference of hits, or of other numbers.
    fn compared(questions: &[Question], hits: bool) -> Option<Difference> {
        let kind = if hits { Kind::Hit } else { Kind::Number };
        with_pairs(questions, |pairs| Difference::of_prompts(pairs, &[], kind))
    }

    #[test]
    fn questions_of_a_prompt_are_averaged_before_prompts_are() {
        let pairs = [
            question(0, 0, (0.0, 0.25)),
            question(0, 1, (0.0, 0.75)),
            question(1, 0, (1.0, 1.0)),
            question(1, 1, (1.0, 1.0)),
        ];
        let row = compared(&pairs, false).unwrap();
        assert_eq!((row.n, row.cases, row.diff, row.mean_other), (2, 4, 0.25, 0.75));
        assert_eq!((row.wins, row.ties, row.losses, row.test), (1, 1, 0, None), "two prompts have no test");
    }

    #[test]
    fn what_is_made_of_one_seed_is_one_prompt_whatever_else_differs() {
        let changes: [fn(&mut Identity, usize); 4] = [
            |identity, value| identity.task = value.to_string(),
            |identity, value| identity.needles = Some(value),
            |identity, value| identity.cities = Some(value.to_string().into()),
            |identity, value| identity.sample = Some(value as u64),
        ];
        for change in changes {
            // In the order of their columns, in which the two of a seed are not neighbours.
            let mut questions = Vec::new();
            for (value, prompt) in [1, 2].into_iter().flat_map(|value| (0..6).map(move |prompt| (value, prompt))) {
                let mut question = question(prompt, 0, (0.0, 1.0));
                change(&mut question.0, value);
                questions.push(question);
            }
            let row = compared(&questions, true).unwrap();
            assert_eq!((row.n, row.cases, row.wins, row.test), (6, 12, 6, Some(Test::Mcnemar)));
            let mut of_three_models = Vec::new();
            for (seed, (identity, values)) in
                [3, 4, 5].into_iter().flat_map(|seed| questions.iter().map(move |q| (seed, q)))
            {
                of_three_models.push((Identity { replicate: Some(seed), ..identity.clone() }, *values));
            }
            assert_eq!(with_pairs(&of_three_models, |pairs| Difference::of_seeds(pairs, &[], Kind::Hit)).unwrap().n, 6);
            questions.iter_mut().for_each(|(identity, _)| identity.seed = None);
            assert_eq!(compared(&questions, true).unwrap().n, 2);
        }
    }

    #[test]
    fn hits_and_misses_are_tested_by_mcnemar_and_questions_that_are_alike_count_once() {
        let gained: Vec<Question> = (0..6).map(|prompt| question(prompt, 0, (0.0, 1.0))).collect();
        let row = compared(&gained, true).unwrap();
        assert_eq!((row.wins, row.ties, row.losses, row.test), (6, 0, 0, Some(Test::Mcnemar)));
        // The exact test: 2 / 2⁶.
        assert!((row.p.unwrap() - 0.031_25).abs() < 1e-9, "{row:?}");
        // Both questions of six prompts: twelve hits more, and no more evidence.
        let twice: Vec<Question> =
            (0..6).flat_map(|prompt| [0, 1].map(|query| question(prompt, query, (0.0, 1.0)))).collect();
        let row = compared(&twice, true).unwrap();
        assert_eq!((row.n, row.cases, row.wins, row.test), (6, 12, 6, Some(Test::Mcnemar)));
        assert!((row.p.unwrap() - 0.031_25).abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn numbers_that_are_not_hits_are_tested_by_t_whatever_they_are_called() {
        let pairs: Vec<Question> = (0..6).map(|prompt| question(prompt, 0, (0.0, 0.5 / (prompt + 1) as f64))).collect();
        assert_eq!(compared(&pairs, true).unwrap().test, Some(Test::T));
        let zeros: Vec<Question> = (0..6).map(|prompt| question(prompt, 0, (0.0, 0.0))).collect();
        let row = compared(&zeros, false).unwrap();
        assert_eq!((row.diff, row.lo, row.p, row.test), (0.0, None, None, None), "numbers that all agree");
        // Hits that agree everywhere may differ elsewhere.
        let row = compared(&zeros, true).unwrap();
        assert!(row.lo.unwrap() < -0.3 && row.hi.unwrap() > 0.3 && row.p == Some(1.0), "{row:?}");
    }

    #[test]
    fn numbers_that_overflow_have_no_difference() {
        assert_eq!(compared(&[question(0, 0, (f64::MIN, f64::MAX))], false), None);
        assert_eq!(compared(&[question(0, 0, (0.0, f64::MAX)), question(0, 1, (0.0, f64::MAX))], false), None);
    }

    #[test]
    fn few_prompts_have_a_difference_but_neither_interval_nor_test() {
        for n in [1, 5] {
            let pairs: Vec<Question> = (0..n).map(|prompt| question(prompt, 0, (0.5, 0.75 + prompt as f64))).collect();
            let row = compared(&pairs, false).unwrap();
            assert_eq!((row.n, row.lo, row.hi, row.p, row.test), (n as usize, None, None, None, None));
            let hits: Vec<Question> = (0..n).map(|prompt| question(prompt, 0, (0.0, 1.0))).collect();
            assert_eq!(compared(&hits, true).unwrap().p, None);
        }
    }

    #[test]
    fn draws_of_random_heads_count_in_the_interval() {
        // Each draw costs another amount, the same in every prompt but for a little.
        let draw = |cost: f64| -> Vec<Question> {
            (0..20).map(|prompt| question(prompt, 0, (0.0, cost + 0.01 * (prompt % 3) as f64))).collect()
        };
        let of = |costs: &[f64]| {
            let questions: Vec<Question> = costs.iter().flat_map(|&cost| draw(cost)).collect();
            with_pairs(&questions, |pairs| {
                let draws: Vec<Vec<Pair<'_>>> = pairs.chunks(20).map(<[Pair<'_>]>::to_vec).collect();
                Difference::of_draws(&draws, &[], Kind::Number).unwrap()
            })
        };
        let three = of(&[-1.0, -2.0, -3.0]);
        let one = of(&[-2.0]);
        assert!((three.diff - one.diff).abs() < 1e-12 && three.n == 20 && three.cases == 60 && three.seeds.is_none());
        // Student's t of two degrees of freedom is 4.302653, the standard error of draws 1 / √3.
        let half = three.hi.unwrap() - three.diff;
        assert!((half - 4.302_653 / 3.0_f64.sqrt()).abs() < 0.01, "{three:?}");
        assert!(one.hi.unwrap() - one.diff < 0.01, "{one:?}");
        assert_eq!(of(&[-1.0, -2.0]).lo, None, "two draws say nothing of others");
    }

    #[test]
    fn a_rate_cannot_change_by_more_than_its_baseline_leaves() {
        // 90 % are answered; each draw of heads costs another part of that.
        let draws: Vec<Vec<Question>> = [0, 2, 8]
            .map(|kept| {
                (0..10).map(|prompt| question(prompt, 0, (f64::from(prompt > 0), f64::from(prompt > kept)))).collect()
            })
            .into();
        let of = |kind| {
            with_pairs(&draws.concat(), |pairs| {
                let draws: Vec<Vec<Pair<'_>>> = pairs.chunks(10).map(<[Pair<'_>]>::to_vec).collect();
                Difference::of_draws(&draws, &[], kind).unwrap().interval().unwrap()
            })
        };
        let [hits, numbers] = [Kind::Hit, Kind::Number].map(of);
        assert!(numbers.lo < -0.9 && numbers.hi > 0.1, "{numbers:?}");
        assert!((hits.lo + 0.9).abs() < 1e-12 && (hits.hi - 0.1).abs() < 1e-12, "{hits:?}");
    }

    /// How often the interval of 1,500 experiments holds the truth. Each has 100 prompts of two questions, which share
    /// the luck of their prompt, and both models its difficulty. `as_one`: the questions are known to be of one prompt.
    fn coverage(as_one: bool, truth: f64) -> f64 {
        let mut rng = Rng::new(31, "prompts");
        let mut experiment = || {
            let mut pairs = Vec::new();
            for prompt in 0..100 {
                let difficulty = 3.0 * rng.normal();
                let luck = rng.normal();
                for query in 0..2 {
                    let a = difficulty + 0.3 * rng.normal();
                    let seen_as = if as_one { prompt } else { 2 * prompt + query };
                    pairs.push(question(seen_as, query as usize, (a, a + truth + luck + 0.3 * rng.normal())));
                }
            }
            compared(&pairs, false).unwrap()
        };
        let covers = |row: &Difference| row.lo.unwrap() <= truth && truth <= row.hi.unwrap();
        (0..1500).filter(|_| covers(&experiment())).count() as f64 / 1500.0
    }

    #[test]
    fn intervals_of_the_paired_difference_cover_the_truth_as_often_as_they_say() {
        let found = coverage(true, 0.4);
        assert!((0.93..=0.97).contains(&found), "{found}");
    }

    #[test]
    fn questions_taken_as_prompts_of_their_own_would_not() {
        let found = coverage(false, 0.4);
        assert!(found < 0.88, "{found}");
    }

    #[test]
    fn all_rows_are_one_family() {
        let row = |p: Option<f64>| Difference { p, diff: -1.0, ..Difference::default() };
        let mut rows = [row(Some(0.01)), row(None), row(Some(0.04)), row(Some(0.03))];
        correct(&mut rows);
        // statsmodels 0.15.0: multipletests([0.01, 0.04, 0.03], method="holm")[1]
        let found: Vec<f64> = rows.iter().filter_map(|row| row.p_adjusted).collect();
        assert!(found.iter().zip([0.03, 0.06, 0.06]).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
        let verdicts = [Verdict::Lower, Verdict::Undecided, Verdict::Undecided, Verdict::Undecided];
        assert_eq!(rows.map(|row| row.verdict()), verdicts);
    }

    #[test]
    fn of_twelve_rows_without_an_effect_hardly_any_table_has_a_decided_verdict() {
        let mut rng = Rng::new(12, "no effect");
        let mut decided = 0;
        let mut decided_row_by_row = 0;
        for _ in 0..4000 {
            let mut rows = Vec::new();
            for row in 0..12 {
                let hits = row % 2 == 0;
                let number = |rng: &mut Rng| if hits { f64::from(rng.unit() < 0.7) } else { rng.normal() };
                let prompts = (0..30).map(|prompt| question(prompt, 0, (number(&mut rng), number(&mut rng))));
                rows.extend(compared(&prompts.collect::<Vec<_>>(), hits));
            }
            correct(&mut rows);
            decided += u32::from(rows.iter().any(|row| row.is_decided()));
            decided_row_by_row += u32::from(rows.iter().any(|row| Verdict::of(row.diff, row.p) != Verdict::Undecided));
        }
        assert!(
            decided <= 200 && decided_row_by_row > 1400,
            "{decided} of 4000, {decided_row_by_row} without correction"
        );
    }

    #[test]
    fn rates_differ_by_at_most_1_and_their_intervals_too() {
        // Means over draws: all prompts are won, one of them by little.
        let mut questions = vec![question(0, 0, (0.0, 0.2))];
        questions.extend((1..6).map(|prompt| question(prompt, 0, (0.0, 1.0))));
        let of = |kind| with_pairs(&questions, |pairs| Difference::of_prompts(pairs, &[], kind)).unwrap().hi.unwrap();
        assert!(of(Kind::Number) > 1.0, "{}", of(Kind::Number));
        assert_eq!([Kind::Hit, Kind::Rate].map(of), [1.0, 1.0]);
        let seeds = |kind| {
            let changes = [(1, 0.9), (2, 1.0), (3, 1.0)].into();
            [Estimate::of_seeds(&changes, kind), Estimate::of_changes(&changes, kind)]
                .map(|e| e.unwrap().interval.unwrap().hi)
        };
        assert!(seeds(Kind::Number)[0] > 1.0);
        assert_eq!(seeds(Kind::Rate), [1.0, 1.0]);
    }
}
