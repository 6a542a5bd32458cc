//! From pairs of cells to rows: means, differences with their intervals, tests, and what many tests at once cost.

use super::cells::{Cells, Key};
use super::choice::Choice;
use super::field::Field;
use super::join::{Joined, Pair};
use super::plan::{Level, Plan};
use crate::bail_usage;
use crate::record::metric_name;
use crate::stats::{bh, holm, mcnemar, mean, pairs_needed, smallest_detectable, wilcoxon, Paired, Replicated};
use anyhow::{Context, Result};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// How p-values are corrected for the number of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Correction {
    /// Against any false alarm among all rows.
    #[default]
    Holm,
    /// Against too large a share of false alarms (Benjamini and Hochberg).
    Bh,
    /// Not at all.
    None,
}

impl Correction {
    fn apply(self, p_values: &[f64]) -> Vec<f64> {
        match self {
            Self::Holm => holm(p_values),
            Self::Bh => bh(p_values),
            Self::None => p_values.to_vec(),
        }
    }
}

/// Metrics whose numbers are hits (1) and misses (0).
const HITS: [&str; 3] = ["exact", "generated_exact", "generated_contains"];

/// A test of the hypothesis that nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Test {
    /// McNemar's exact test, of hits and misses, where each prompt asks one question.
    Mcnemar,
    /// Wilcoxon's signed-rank test, of means over the questions of each prompt.
    Wilcoxon,
    /// Student's t of the mean over training seeds and prompts, where models are replicates.
    T,
}

impl Test {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How `other` differs from `baseline` in one metric of one group. Differences are `other` − `baseline`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// What is compared with.
    pub baseline: String,
    /// What is compared.
    pub other: String,
    /// Columns and their values, in the order of [`Comparison::groups`](super::Comparison::groups); a missing value is
    /// `none`.
    pub group: BTreeMap<String, String>,
    /// Name of the quantity.
    pub metric: String,
    /// Part of the prompt.
    pub region: Option<String>,
    /// What the numbers are of.
    pub level: Level,
    /// Unit of the means and of the difference.
    pub unit: Option<String>,
    /// Prompts: what is independent, and what means and interval are over.
    pub n: usize,
    /// Training seeds, where models are replicates: with their prompts what the interval is over. `n` is then of the prompts
    /// that all seeds have.
    pub seeds: Option<usize>,
    /// Pairs of cells: more than prompts, where a prompt has several questions.
    pub cells: usize,
    /// Mean of the baseline, over prompts.
    pub mean_baseline: f64,
    /// Mean of the other.
    pub mean_other: f64,
    /// Mean over prompts of the difference.
    pub diff: f64,
    /// Lower end of the 95 % interval of `diff`; missing of a single prompt, and of fewer than three seeds.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// The smallest true difference that so many prompts (seeds, of replicates) would have shown with 80 % power; missing where
    /// they do not tell.
    pub detectable: Option<f64>,
    /// Prompts (seeds, of replicates) that would show the difference asked for with 80 % power.
    pub needed: Option<u64>,
    /// Prompts (seeds, of replicates) where the other is larger.
    pub wins: usize,
    /// Where both are equal.
    pub ties: usize,
    /// Where the other is smaller.
    pub losses: usize,
    /// Which test `p` is of; missing of a single prompt.
    pub test: Option<Test>,
    /// Two-sided p-value.
    pub p: Option<f64>,
    /// The p-value corrected over all rows.
    pub p_adjusted: Option<f64>,
}

impl Row {
    /// Metric and region: `share_abs[answer]`.
    pub fn name(&self) -> String {
        metric_name(&self.metric, self.region.as_deref())
    }
}

/// How rows are worked out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) resamples: usize,
    pub(super) seed: u64,
    pub(super) correction: Correction,
    /// A difference that prompts are wanted for.
    pub(super) detect: Option<f64>,
    /// Whether models are replicates.
    pub(super) replicates: bool,
}

/// What a row is of, in the order of rows.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    /// Place among the chosen metrics.
    rank: usize,
    metric: u32,
    region: u32,
    level: Level,
    /// Values of the columns that rows are made for.
    group: Vec<u32>,
    /// Place of the comparison among the plans.
    plan: usize,
}

/// One row for each metric, region, group and comparison.
///
/// # Errors
/// If numbers are so large that their mean overflows.
pub(super) fn rows(
    cells: &Cells,
    choice: &Choice,
    plans: &[Plan],
    joined: &[Joined],
    groups: &[Field],
    settings: Settings,
) -> Result<Vec<Row>> {
    let mut pairs: BTreeMap<RowKey, Vec<Pair>> = BTreeMap::new();
    for (plan, pair) in joined.iter().enumerate().flat_map(|(i, j)| j.pairs.iter().map(move |pair| (i, pair))) {
        let (metric, region) = (cells.name(&pair.key, Field::Metric), cells.text(&pair.key, Field::Region));
        let rank = choice.rank(&metric, region.as_deref()).unwrap_or(usize::MAX);
        let group = groups.iter().map(|&column| pair.key[column as usize]).collect();
        let of = |column: Field| pair.key[column as usize];
        let level = Level::of(&pair.key).max(plans[plan].level());
        let key = RowKey { rank, metric: of(Field::Metric), region: of(Field::Region), level, group, plan };
        pairs.entry(key).or_default().push(*pair);
    }
    let row = |(key, pairs): (&RowKey, &Vec<Pair>)| {
        let metric = cells.value_name(Field::Metric, key.metric);
        let row = if settings.replicates {
            replicated(pairs, settings)
        } else {
            compared(pairs, HITS.contains(&metric.as_str()), settings)
        };
        let row = row.with_context(|| format!("{metric}: its numbers are too large to be averaged"))?;
        Ok(named(row, cells, key, &plans[key.plan], groups))
    };
    let mut rows = pairs.par_iter().map(row).collect::<Result<Vec<Row>>>()?;
    correct(&mut rows, settings.correction);
    Ok(rows)
}

/// Columns whose values are different kinds of measurement, never to be averaged over.
const KINDS: [Field; 6] = [Field::Model, Field::Task, Field::Rows, Field::Condition, Field::Bits, Field::Scope];

/// Columns that rows are made for: those asked for, and those whose values are different kinds of measurement.
///
/// # Errors
/// A usage error if one is what is compared.
pub(super) fn groups(choice: &Choice, plans: &[Plan], joined: &[Joined]) -> Result<Vec<Field>> {
    for &column in &choice.group_by {
        if plans.iter().any(|plan| plan.free[column as usize]) {
            bail_usage!("`group_by` {column}: it is what is compared, or a property of it");
        }
    }
    // Metrics have rows of their own anyway, so what differs between metrics only needs no column.
    let varies = |column: Field| {
        let mut first = BTreeMap::<u32, u32>::new();
        let mut keys = joined.iter().flat_map(|joined| &joined.pairs).map(|pair| pair.key);
        keys.any(|key| {
            *first.entry(key[Field::Metric as usize]).or_insert(key[column as usize]) != key[column as usize]
        })
    };
    // Its name says what the condition's properties say.
    let by_name = varies(Field::Condition);
    let told = |column: Field| by_name && matches!(column, Field::Bits | Field::Scope);
    let kind = |&column: &Field| !choice.group_by.contains(&column) && varies(column) && !told(column);
    let mut groups: Vec<Field> = KINDS.into_iter().filter(kind).collect();
    for &column in &choice.group_by {
        if !groups.contains(&column) {
            groups.push(column);
        }
    }
    Ok(groups)
}

/// The numbers of a row, without its names; nothing if they overflow.
fn compared(pairs: &[Pair], hits: bool, settings: Settings) -> Option<Row> {
    let prompts: Vec<(f64, f64)> = by_prompt(pairs).into_iter().map(|(_, means)| means).collect();
    let paired = Paired::new(&prompts, settings.resamples, settings.seed)?;
    if ![paired.diff, paired.lo, paired.hi].iter().all(|x| x.is_finite()) {
        return None;
    }
    // One prompt says nothing about others.
    let several = paired.n > 1;
    let differences: Vec<f64> = prompts.iter().map(|(a, b)| b - a).collect();
    let mut row = Row {
        n: paired.n,
        cells: pairs.len(),
        mean_baseline: paired.mean_a,
        mean_other: paired.mean_b,
        diff: paired.diff,
        lo: several.then_some(paired.lo),
        hi: several.then_some(paired.hi),
        detectable: smallest_detectable(&differences),
        needed: settings.detect.and_then(|size| pairs_needed(&differences, size)),
        wins: paired.wins,
        ties: paired.ties,
        losses: paired.losses,
        ..Row::default()
    };
    let binary = hits && pairs.iter().flat_map(|pair| [pair.a, pair.b]).all(|x| x == 0.0 || x == 1.0);
    // Only one pair for each prompt may count: several questions, or several heads, are not independent.
    if binary && pairs.len() == paired.n {
        row.p = several.then(|| mcnemar(row.losses as u64, row.wins as u64));
        row.test = several.then_some(Test::Mcnemar);
    } else {
        row.p = wilcoxon(&differences).map(|found| found.p).filter(|_| several);
        row.test = several.then_some(Test::Wilcoxon);
    }
    Some(row)
}

/// The same where models are replicates: what is independent are seeds and prompts.
fn replicated(pairs: &[Pair], settings: Settings) -> Option<Row> {
    let tables = by_seed(pairs);
    let differences: Vec<Vec<f64>> =
        tables.iter().map(|of_seed| of_seed.iter().map(|(a, b)| b - a).collect()).collect();
    let found = Replicated::new(&differences)?;
    let of = |f: fn(&(f64, f64)) -> f64| {
        mean(
            &tables
                .iter()
                .map(|of_seed| mean(&of_seed.iter().map(f).collect::<Vec<_>>()))
                .collect::<Option<Vec<_>>>()?,
        )
    };
    let count = |test: fn(&f64) -> bool| found.of_seeds.iter().filter(|diff| test(diff)).count();
    Some(Row {
        n: tables.first().map_or(0, Vec::len),
        seeds: Some(tables.len()),
        cells: pairs.len(),
        mean_baseline: of(|(a, _)| *a)?,
        mean_other: of(|(_, b)| *b)?,
        diff: found.diff,
        lo: found.interval.map(|interval| interval.lo),
        hi: found.interval.map(|interval| interval.hi),
        detectable: found.interval.and_then(|_| smallest_detectable(&found.of_seeds)),
        needed: settings.detect.and_then(|size| pairs_needed(&found.of_seeds, size)),
        wins: count(|diff| *diff > 0.0),
        ties: count(|diff| *diff == 0.0),
        losses: count(|diff| *diff < 0.0),
        test: found.p.map(|_| Test::T),
        p: found.p,
        ..Row::default()
    })
}

/// Means of each prompt that all seeds have, seeds × prompts.
fn by_seed(pairs: &[Pair]) -> Vec<Vec<(f64, f64)>> {
    let mut seeds: BTreeMap<u32, BTreeMap<Key, (f64, f64)>> = BTreeMap::new();
    for (mut prompt, means) in by_prompt(pairs) {
        let seed = std::mem::take(&mut prompt[Field::Replicate as usize]);
        prompt[Field::Variant as usize] = 0; // a folder may hold another model than its neighbours
        seeds.entry(seed).or_default().insert(prompt, means);
    }
    let everywhere = |prompt: &&Key| seeds.values().all(|of_seed| of_seed.contains_key(*prompt));
    let shared: Vec<Key> =
        seeds.values().next().into_iter().flat_map(BTreeMap::keys).filter(everywhere).copied().collect();
    seeds.values().map(|of_seed| shared.iter().map(|prompt| of_seed[prompt]).collect()).collect()
}

/// Each prompt, and the means of its pairs, in the order in which prompts come.
fn by_prompt(pairs: &[Pair]) -> Vec<(Key, (f64, f64))> {
    let mut prompts: BTreeMap<Key, (usize, Vec<Pair>)> = BTreeMap::new();
    for (place, pair) in pairs.iter().enumerate() {
        prompts.entry(prompt_of(&pair.key)).or_insert_with(|| (place, Vec::new())).1.push(*pair);
    }
    let mut prompts: Vec<_> = prompts.into_iter().map(|(key, (place, pairs))| (place, (key, means(&pairs)))).collect();
    prompts.sort_by_key(|(place, _)| *place);
    prompts.into_iter().map(|(_, prompt)| prompt).collect()
}

/// What tells prompts apart: the seed, where there is one. All that is made of one seed is made of the same random numbers, and
/// no more evidence than one prompt: many-shot prompts of one mapping, a text that is asked for what it holds and for what it does not.
fn prompt_of(key: &Key) -> Key {
    let mut prompt = *key;
    prompt[Field::PROMPT..].fill(0);
    if prompt[Field::Seed as usize] != 0 {
        prompt[Field::Task as usize..Field::Seed as usize].fill(0);
    }
    prompt
}

fn means(pairs: &[Pair]) -> (f64, f64) {
    let of = |f: fn(&Pair) -> f64| mean(&pairs.iter().map(f).collect::<Vec<f64>>()).unwrap_or(f64::NAN);
    (of(|pair| pair.a), of(|pair| pair.b))
}

fn named(row: Row, cells: &Cells, key: &RowKey, plan: &Plan, groups: &[Field]) -> Row {
    let RowKey { metric, region, level, group, .. } = key;
    let named = |(column, value): (&Field, &u32)| (column.to_string(), cells.value_name(*column, *value));
    let name = cells.value_name(Field::Metric, *metric);
    Row {
        baseline: plan.baseline.label.clone(),
        other: plan.other.label.clone(),
        group: groups.iter().zip(group).map(named).collect(),
        unit: cells.unit(&name).map(String::from),
        metric: name,
        region: cells.value_text(Field::Region, *region),
        level: *level,
        ..row
    }
}

/// All rows are one family: whoever reads the table looks at all of them.
fn correct(rows: &mut [Row], correction: Correction) {
    let adjusted = correction.apply(&rows.iter().filter_map(|row| row.p).collect::<Vec<f64>>());
    for (row, adjusted) in rows.iter_mut().filter(|row| row.p.is_some()).zip(adjusted) {
        row.p_adjusted = Some(adjusted);
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::COLUMNS;
    use super::*;
    use crate::rng::Rng;

    const SETTINGS: Settings =
        Settings { resamples: 400, seed: 0, correction: Correction::Holm, detect: None, replicates: false };

    /// The pair of one question of one prompt.
    fn pair(prompt: u32, query: u32, (a, b): (f64, f64)) -> Pair {
        let mut key = [0; COLUMNS];
        key[Field::Seed as usize] = prompt + 1;
        key[Field::Query as usize] = query + 1;
        Pair { key, a, b }
    }

    #[test]
    fn questions_of_a_prompt_are_averaged_before_prompts_are() {
        let pairs = [pair(0, 0, (0.0, 0.25)), pair(0, 1, (0.0, 0.75)), pair(1, 0, (1.0, 1.0)), pair(1, 1, (1.0, 1.0))];
        let row = compared(&pairs, false, SETTINGS).unwrap();
        assert_eq!((row.n, row.cells, row.diff, row.mean_other), (2, 4, 0.25, 0.75));
        assert_eq!((row.wins, row.ties, row.losses, row.test), (1, 1, 0, Some(Test::Wilcoxon)));
    }

    #[test]
    fn what_is_made_of_one_seed_is_one_prompt_whatever_else_differs() {
        let with = |column: Field, value: u32, pair: Pair| {
            let mut key = pair.key;
            key[column as usize] = value;
            Pair { key, ..pair }
        };
        for column in [Field::Task, Field::Needles, Field::Cities, Field::Sample] {
            // In the order of their keys, in which the two of a seed are not neighbours.
            let pairs: Vec<Pair> = [1, 2]
                .into_iter()
                .flat_map(|value| (0..6).map(move |prompt| (value, pair(prompt, 0, (0.0, 1.0)))))
                .map(|(value, pair)| with(column, value, pair))
                .collect();
            let row = compared(&pairs, true, SETTINGS).unwrap();
            assert_eq!((row.n, row.cells, row.wins, row.test), (6, 12, 6, Some(Test::Wilcoxon)), "{column}");
            let of_three_models: Vec<Pair> = [3, 4, 5]
                .into_iter()
                .flat_map(|seed| pairs.iter().map(move |&pair| (seed, pair)))
                .map(|(seed, pair)| with(Field::Replicate, seed, pair))
                .collect();
            assert_eq!(replicated(&of_three_models, SETTINGS).unwrap().n, 6, "{column}");
            let without_seeds: Vec<Pair> = pairs.iter().map(|&pair| with(Field::Seed, 0, pair)).collect();
            assert_eq!(compared(&without_seeds, true, SETTINGS).unwrap().n, 2, "{column}");
        }
    }

    #[test]
    fn hits_and_misses_of_one_question_each_are_tested_by_mcnemar_and_of_several_by_prompt() {
        let gained: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 1.0))).collect();
        let row = compared(&gained, true, SETTINGS).unwrap();
        assert_eq!((row.wins, row.ties, row.losses, row.test), (6, 0, 0, Some(Test::Mcnemar)));
        // 2 · ½⁶
        assert!((row.p.unwrap() - 0.03125).abs() < 1e-12, "{row:?}");
        // Both questions of six prompts: twelve hits more, and no more evidence.
        let twice: Vec<Pair> = (0..6).flat_map(|prompt| [0, 1].map(|query| pair(prompt, query, (0.0, 1.0)))).collect();
        let row = compared(&twice, true, SETTINGS).unwrap();
        assert_eq!((row.n, row.cells, row.wins, row.test), (6, 12, 6, Some(Test::Wilcoxon)));
        assert!((row.p.unwrap() - 0.03125).abs() < 1e-12, "{row:?}");
    }

    #[test]
    fn hits_of_several_heads_are_not_counted_as_questions() {
        let mut second = pair(0, 0, (0.0, 1.0));
        second.key[Field::Head as usize] = 1;
        let row = compared(&[pair(0, 0, (0.0, 1.0)), second, pair(1, 0, (1.0, 1.0))], true, SETTINGS).unwrap();
        assert_eq!((row.n, row.test), (2, Some(Test::Wilcoxon)));
    }

    #[test]
    fn numbers_that_are_not_hits_are_tested_by_rank_whatever_they_are_called() {
        let pairs: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 0.5))).collect();
        assert_eq!(compared(&pairs, true, SETTINGS).unwrap().test, Some(Test::Wilcoxon));
        let zeros: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 0.0))).collect();
        assert_eq!(compared(&zeros, false, SETTINGS).unwrap().test, Some(Test::Wilcoxon));
    }

    #[test]
    fn numbers_that_overflow_have_no_difference() {
        assert_eq!(compared(&[pair(0, 0, (f64::MIN, f64::MAX))], false, SETTINGS), None);
        assert_eq!(compared(&[pair(0, 0, (0.0, f64::MAX)), pair(0, 1, (0.0, f64::MAX))], false, SETTINGS), None);
    }

    #[test]
    fn one_prompt_has_a_difference_but_neither_interval_nor_test() {
        let row = compared(&[pair(0, 0, (0.5, 0.75))], false, SETTINGS).unwrap();
        assert_eq!((row.diff, row.lo, row.hi, row.p, row.test), (0.25, None, None, None, None));
    }

    #[test]
    fn wilcoxon_agrees_with_scipy_through_a_row() {
        // SciPy 1.17.1: scipy.stats.wilcoxon([1.5, -0.5, 2.0, 3.0, -1.0, 4.0]).pvalue
        let differences = [1.5, -0.5, 2.0, 3.0, -1.0, 4.0];
        let pairs: Vec<Pair> = differences.iter().zip(0..).map(|(d, prompt)| pair(prompt, 0, (7.0, 7.0 + d))).collect();
        assert!((compared(&pairs, false, SETTINGS).unwrap().p.unwrap() - 0.15625).abs() < 1e-12);
    }

    #[test]
    fn all_rows_are_one_family() {
        let row = |p: Option<f64>| Row { p, ..Row::default() };
        let mut rows = [row(Some(0.01)), row(None), row(Some(0.04)), row(Some(0.03))];
        correct(&mut rows, Correction::Holm);
        // statsmodels 0.15.0: multipletests([0.01, 0.04, 0.03], method="holm")[1]
        let found: Vec<f64> = rows.iter().filter_map(|row| row.p_adjusted).collect();
        assert!(found.iter().zip([0.03, 0.06, 0.06]).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
        correct(&mut rows, Correction::None);
        assert_eq!(rows[2].p_adjusted, Some(0.04));
    }

    /// How often the interval of 1,500 experiments holds the truth. Each has 100 prompts of two questions, which share
    /// the luck of their prompt, and both models its difficulty. `as_one`: the questions are known to be of one prompt.
    fn coverage(as_one: bool, truth: f64) -> f64 {
        let mut rng = Rng::new(31, "prompts");
        let mut experiment = |seed| {
            let mut pairs = Vec::new();
            for prompt in 0..100 {
                let (difficulty, luck) = (3.0 * rng.normal(), rng.normal());
                for query in 0..2 {
                    let a = difficulty + 0.3 * rng.normal();
                    let seen_as = if as_one { prompt } else { 2 * prompt + query };
                    pairs.push(pair(seen_as, query, (a, a + truth + luck + 0.3 * rng.normal())));
                }
            }
            compared(&pairs, false, Settings { seed, ..SETTINGS }).unwrap()
        };
        let covers = |row: &Row| row.lo.unwrap() <= truth && truth <= row.hi.unwrap();
        (0..1500).filter(|&seed| covers(&experiment(seed))).count() as f64 / 1500.0
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
}
