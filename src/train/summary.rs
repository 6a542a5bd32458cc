//! What a whole spec came to, from the curves of its runs: by variant how soon and how well stated numbers are recalled, how far
//! that differs from another variant, seed by seed, and what went on inside on the way.
//!
//! The unit is the seed: an interval is that of the mean over seeds. Fewer than three have none.

use super::curves::{CurveRow, TrainingCurves};
use super::spec::{Contrast, TrainRun, TrainSpec};
use crate::files;
use crate::stats::{mean, student, Interval};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;

/// Share of first digits from which on recall counts as learned.
pub const LEARNED: f64 = 0.9;

/// Times at which the inside of a run is looked at, as fractions of its tokens.
pub const TIMES: [f64; 3] = [0.15, 0.5, 1.0];

/// One line of `summary.csv`: a variant over its seeds. Fractions and tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantSummary {
    /// Name in the spec.
    pub variant: String,
    /// Seeds whose runs are finished.
    pub seeds: usize,
    /// Those in which first digits reached [`LEARNED`] at the last context length.
    pub learned: usize,
    /// Tokens until then, the median over seeds; nothing if half of them or more never did.
    pub learned_tok: Option<usize>,
    /// Seeds that were there earlier than the same seed of the first variant. Never is later than any time.
    pub earlier: usize,
    /// Seeds that were there later.
    pub later: usize,
    /// First digits predicted at the end, mean over seeds.
    pub first_digit: f64,
    /// Its interval.
    pub first_digit_lo: Option<f64>,
    /// Its upper end.
    pub first_digit_hi: Option<f64>,
    /// The same less that of the first variant, of seeds that both have.
    pub difference: Option<f64>,
    /// Its interval.
    pub difference_lo: Option<f64>,
    /// Its upper end.
    pub difference_hi: Option<f64>,
    /// Unseen prompts with one needle answered exactly at the end, mean over seeds.
    pub one_needle: Option<f64>,
}

/// A quantity of a variant at one time, over the seeds that got there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Mean over seeds.
    pub mean: f64,
    /// Its interval, from three seeds on.
    pub interval: Option<Interval>,
}

/// A contrast at the end of training, over the seeds that all its variants have.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrasted {
    /// Name in the spec.
    pub name: String,
    /// Seeds.
    pub seeds: usize,
    /// Of first digits predicted.
    pub first_digit: Level,
    /// Of unseen prompts with one needle answered exactly, as far as they were asked.
    pub one_needle: Option<Level>,
}

/// What went on in a variant at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Inside {
    /// Name in the spec.
    pub variant: String,
    /// Tokens by then: of the line of the log that covers one of [`TIMES`].
    pub tokens: usize,
    /// Seeds that got there.
    pub seeds: usize,
    /// [`INSIDE`], as far as they were logged.
    pub levels: Vec<Option<Level>>,
}

/// A quantity of a line.
type Quantity = fn(&CurveRow) -> Option<f64>;

/// A number that one run ends with.
type Outcome = fn(&[CurveRow]) -> Option<f64>;

/// What is looked at inside: heading and quantity.
pub const INSIDE: [(&str, Quantity); 5] = [
    ("first digits", |line| Some(line.digit1_hit)),
    ("context RMS", |line| line.context_rms),
    ("context RMS of the least head", |line| line.context_rms_least),
    ("lambda", |line| line.lambda),
    ("gradient norm of q and k", |line| line.grad_norm_qk),
];

/// A line for every variant that has finished runs.
pub fn summarise(spec: &TrainSpec, curves: &TrainingCurves) -> Vec<VariantSummary> {
    (0..spec.variants.len()).filter_map(|variant| of_variant(spec, curves, variant)).collect()
}

fn of_variant(spec: &TrainSpec, curves: &TrainingCurves, variant: usize) -> Option<VariantSummary> {
    let runs: Vec<_> = finished(spec, curves, variant).collect();
    let pairs: Vec<_> = if variant == 0 { Vec::new() } else { paired(spec, curves, variant).collect() };
    let ends: Vec<f64> = runs.iter().filter_map(|(_, lines)| end(lines)).collect();
    let differences: Vec<f64> = pairs.iter().filter_map(|(first, other)| Some(end(other)? - end(first)?)).collect();
    let needles: Vec<f64> = runs.iter().filter_map(|(_, lines)| one_needle(lines)).collect();
    let mut times: Vec<usize> = runs.iter().filter_map(|(_, lines)| learned(lines)).collect();
    times.sort_unstable();
    let time = |lines: &[CurveRow]| learned(lines).unwrap_or(usize::MAX);
    let (interval, of_difference) = (student(&ends), student(&differences));
    let ends_of = |interval: Option<Interval>| (interval.map(|i| i.lo), interval.map(|i| i.hi));
    let ((first_digit_lo, first_digit_hi), (difference_lo, difference_hi)) =
        (ends_of(interval), ends_of(of_difference));
    Some(VariantSummary {
        variant: spec.variants[variant].name.clone(),
        seeds: ends.len(),
        learned: times.len(),
        learned_tok: times.get(ends.len() / 2).copied(),
        earlier: pairs.iter().filter(|(first, other)| time(other) < time(first)).count(),
        later: pairs.iter().filter(|(first, other)| time(other) > time(first)).count(),
        first_digit: mean(&ends)?,
        first_digit_lo,
        first_digit_hi,
        difference: mean(&differences),
        difference_lo,
        difference_hi,
        one_needle: mean(&needles),
    })
}

/// Every contrast of the spec that finished runs tell of: the mean of some variants at the end less that of others, seed by
/// seed.
pub fn contrasts(spec: &TrainSpec, curves: &TrainingCurves) -> Vec<Contrasted> {
    let of_contrast = |contrast: &Contrast| {
        let differences = |outcome: Outcome| -> Vec<f64> {
            let of = |variants: &[String], seed| {
                let ends = variants.iter().map(|variant| outcome(of_seed(spec, curves, variant, seed)?));
                mean(&ends.collect::<Option<Vec<_>>>()?)
            };
            let difference = |&seed: &u64| Some(of(&contrast.of, seed)? - of(&contrast.less, seed)?);
            spec.seeds().iter().filter_map(difference).collect()
        };
        let first_digits = differences(end);
        Some(Contrasted {
            name: contrast.name.clone(),
            seeds: first_digits.len(),
            first_digit: level(&first_digits)?,
            one_needle: level(&differences(one_needle)),
        })
    };
    spec.contrasts.iter().filter_map(of_contrast).collect()
}

/// The curves of a variant's finished run from a seed.
fn of_seed<'a>(spec: &TrainSpec, curves: &'a TrainingCurves, variant: &str, seed: u64) -> Option<&'a [CurveRow]> {
    let index = spec.variants.iter().position(|other| other.name == variant)?;
    finished(spec, curves, index).find(|(run, _)| run.seed == seed).map(|(_, lines)| lines)
}

/// What went on in each variant at each of [`TIMES`].
pub fn inside(spec: &TrainSpec, curves: &TrainingCurves) -> Vec<Inside> {
    let mut found = Vec::new();
    for (index, variant) in spec.variants.iter().enumerate() {
        for time in TIMES {
            let tokens = (time * spec.total_tokens() as f64) as usize;
            let at: Vec<&CurveRow> = curves.of(index).filter_map(|(_, lines)| at(lines, tokens)).collect();
            let Some(first) = at.first() else { continue };
            let of = |quantity: Quantity| level(&at.iter().filter_map(|line| quantity(line)).collect::<Vec<f64>>());
            found.push(Inside {
                variant: variant.name.clone(),
                tokens: first.tokens,
                seeds: at.len(),
                levels: INSIDE.iter().map(|(_, quantity)| of(*quantity)).collect(),
            });
        }
    }
    found
}

pub(super) fn level(numbers: &[f64]) -> Option<Level> {
    Some(Level { mean: mean(numbers)?, interval: student(numbers) })
}

/// The first line at or after a time.
pub(super) fn at(lines: &[CurveRow], tokens: usize) -> Option<&CurveRow> {
    lines.iter().find(|line| line.tokens >= tokens)
}

pub(super) fn finished<'a>(
    spec: &TrainSpec,
    curves: &'a TrainingCurves,
    variant: usize,
) -> impl Iterator<Item = (&'a TrainRun, &'a [CurveRow])> {
    let tokens = spec.total_tokens();
    curves.of(variant).filter(move |(_, lines)| lines.last().is_some_and(|line| line.tokens >= tokens))
}

/// The finished runs of the first variant and of another, seed by seed.
fn paired<'a>(
    spec: &'a TrainSpec,
    curves: &'a TrainingCurves,
    variant: usize,
) -> impl Iterator<Item = (&'a [CurveRow], &'a [CurveRow])> {
    finished(spec, curves, variant).filter_map(|(run, other)| {
        let first = finished(spec, curves, 0).find(|(first, _)| first.seed == run.seed)?;
        Some((first.1, other))
    })
}

fn end(lines: &[CurveRow]) -> Option<f64> {
    lines.last().map(|line| line.digit1_hit)
}

/// Tokens at the first line of the last context length whose first digits are learned.
fn learned(lines: &[CurveRow]) -> Option<usize> {
    let ctx_tok = lines.last()?.ctx_tok;
    lines.iter().find(|line| line.ctx_tok == ctx_tok && line.digit1_hit >= LEARNED).map(|line| line.tokens)
}

pub(super) fn one_needle(lines: &[CurveRow]) -> Option<f64> {
    lines.iter().rev().find_map(|line| line.one_needle)
}

/// Writes `summary.csv`, over what may be there.
///
/// # Errors
/// If it cannot be written.
pub fn write(lines: &[VariantSummary], path: &Path) -> Result<()> {
    files::replace_csv(path, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variant: usize, seed: u64, curves: &[(usize, usize, f64)]) -> (TrainRun, Vec<CurveRow>) {
        let line = |&(tokens, ctx_tok, digit1_hit): &(usize, usize, f64)| CurveRow {
            tokens,
            ctx_tok,
            digit1_hit,
            context_rms: Some(digit1_hit / 2.0),
            one_needle: (seed < 3).then_some(digit1_hit),
            ..CurveRow::default()
        };
        (TrainRun { name: format!("{variant}/seed-{seed}"), variant, seed }, curves.iter().map(line).collect())
    }

    /// Two variants: three seeds of both, a fourth of the second that is not finished.
    fn study() -> (TrainSpec, TrainingCurves) {
        let mut spec = TrainSpec::parse(include_str!("../../experiments/study-a-norm.toml"), "study-a").unwrap();
        spec.variants.truncate(2);
        let names = [spec.variants[1].name.clone(), spec.variants[0].name.clone()];
        let [of, less] = names.map(|name| vec![name]);
        spec.contrasts = vec![Contrast { name: "norm".into(), of, less }];
        let total = spec.total_tokens();
        let mut runs = Vec::new();
        for (seed, end) in [(1, 0.5), (2, 0.6), (3, 0.7)] {
            runs.push(run(0, seed, &[(1, 128, 0.95), (2, 256, 0.4), (total, 256, end)]));
            runs.push(run(1, seed, &[(1, 128, 0.1), (2, 256, 0.9), (total, 256, end + 0.25)]));
        }
        runs.push(run(1, 4, &[(1, 128, 0.99)]));
        (spec, TrainingCurves::of_runs(runs))
    }

    #[test]
    fn seeds_are_paired_and_what_was_learned_at_a_shorter_context_does_not_count() {
        let (spec, curves) = study();
        let lines = summarise(&spec, &curves);
        let (first, second) = (&lines[0], &lines[1]);
        assert_eq!((first.seeds, first.learned, first.learned_tok, first.difference), (3, 0, None, None));
        assert_eq!((second.seeds, second.learned, second.learned_tok), (3, 3, Some(2)));
        assert_eq!((second.earlier, second.later, first.earlier), (3, 0, 0), "never is later than any time");
        assert!((second.first_digit - 0.85).abs() < 1e-12 && (second.difference.unwrap() - 0.25).abs() < 1e-12);
        // The seeds differ, the difference does not.
        assert!(second.first_digit_hi.unwrap() - second.first_digit_lo.unwrap() > 0.4);
        assert!(second.difference_hi.unwrap() - second.difference_lo.unwrap() < 1e-9);
    }

    #[test]
    fn contrasts_are_of_seeds_that_all_their_variants_have() {
        let (spec, curves) = study();
        let found = contrasts(&spec, &curves);
        assert_eq!((found.len(), found[0].name.as_str(), found[0].seeds), (1, "norm", 3));
        assert!((found[0].first_digit.mean - 0.25).abs() < 1e-12 && found[0].first_digit.interval.is_some());
        // A quarter of the prompts more, of the two seeds that were asked.
        let one_needle = found[0].one_needle.unwrap();
        assert!((one_needle.mean - 0.25).abs() < 1e-12 && one_needle.interval.is_none());
        let none = TrainingCurves::of_runs(vec![run(0, 1, &[(1, 128, 0.5)])]);
        assert_eq!(contrasts(&spec, &none), []);
    }

    #[test]
    fn the_inside_is_looked_at_when_a_share_of_the_tokens_is_trained_on() {
        let (spec, curves) = study();
        let found = inside(&spec, &curves);
        // All that was logged from 15 % of the tokens on is the end.
        assert_eq!(found.len(), 6);
        assert_eq!(
            (found[2].variant.as_str(), found[2].tokens, found[2].seeds),
            ("transformer", spec.total_tokens(), 3)
        );
        let rms = found[2].levels[1].unwrap();
        assert!((rms.mean - 0.3).abs() < 1e-12 && rms.interval.unwrap().contains(0.3) && found[2].levels[3].is_none());
    }
}
