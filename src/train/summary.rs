//! What a whole spec came to, from the logs of its runs: by variant how soon and how well stated numbers are recalled, and how
//! far that differs from the first variant, seed by seed.
//!
//! The unit is the seed: an interval is that of the mean over seeds. Fewer than three have none.

use super::log::{read, EvalLine, LogLine};
use super::spec::{TrainRun, TrainSpec};
use super::{EVAL_FILE, LOG_FILE};
use crate::stats::{mean, student, Interval};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Share of first digits from which on recall counts as learned.
pub const LEARNED: f64 = 0.9;

/// What runs left behind, in the order of the spec.
pub struct Logs(Vec<(TrainRun, Vec<LogLine>, Vec<EvalLine>)>);

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

impl Logs {
    /// Reads what the runs of `spec` have left in `out`; those that have not begun are left out.
    ///
    /// # Errors
    /// If a log cannot be read.
    pub fn read(spec: &TrainSpec, out: &Path) -> Result<Self> {
        let mut found = Vec::new();
        for run in spec.runs() {
            let dir = out.join(&run.name);
            if dir.join(LOG_FILE).exists() {
                found.push((run, read(&dir.join(LOG_FILE))?, read(&dir.join(EVAL_FILE))?));
            }
        }
        Ok(Self(found))
    }

    /// The runs of a variant.
    pub fn of(&self, variant: usize) -> impl Iterator<Item = (&TrainRun, &[LogLine], &[EvalLine])> {
        let runs = self.0.iter().filter(move |(run, ..)| run.variant == variant);
        runs.map(|(run, log, evals)| (run, log.as_slice(), evals.as_slice()))
    }

    /// A line for every variant that has finished runs.
    pub fn summarise(&self, spec: &TrainSpec) -> Vec<VariantSummary> {
        let last = |variant: usize| -> Vec<(u64, f64)> {
            let finished = self.finished(spec, variant);
            finished.filter_map(|(run, log, _)| Some((run.seed, log.last()?.digit1_hit))).collect()
        };
        let first = last(0);
        let line = |variant: usize| {
            let ends = last(variant);
            let numbers: Vec<f64> = ends.iter().map(|(_, end)| *end).collect();
            let interval = student(&numbers);
            let of_first = |seed: u64| first.iter().find(|(other, _)| *other == seed).map(|(_, end)| *end);
            let paired: Vec<f64> = ends.iter().filter_map(|(seed, end)| Some(end - of_first(*seed)?)).collect();
            let paired = if variant == 0 { Vec::new() } else { paired };
            let needles: Vec<f64> = self.finished(spec, variant).filter_map(|(.., evals)| one_needle(evals)).collect();
            let mut learned: Vec<usize> = self.finished(spec, variant).filter_map(|(_, log, _)| learned(log)).collect();
            learned.sort_unstable();
            let lo = |interval: Option<Interval>| interval.map(|interval| interval.lo);
            let hi = |interval: Option<Interval>| interval.map(|interval| interval.hi);
            Some(VariantSummary {
                variant: spec.variants[variant].name.clone(),
                seeds: ends.len(),
                learned: learned.len(),
                learned_tok: learned.get(ends.len() / 2).copied(),
                first_digit: mean(&numbers)?,
                first_digit_lo: lo(interval),
                first_digit_hi: hi(interval),
                difference: mean(&paired),
                difference_lo: lo(student(&paired)),
                difference_hi: hi(student(&paired)),
                one_needle: mean(&needles),
            })
        };
        (0..spec.variants.len()).filter_map(line).collect()
    }

    fn finished<'a>(
        &'a self,
        spec: &TrainSpec,
        variant: usize,
    ) -> impl Iterator<Item = (&'a TrainRun, &'a [LogLine], &'a [EvalLine])> {
        let tokens = spec.total_tokens();
        self.of(variant).filter(move |(_, log, _)| log.last().is_some_and(|line| line.tokens >= tokens))
    }
}

/// Tokens at the first line of the last context length whose first digits are learned.
fn learned(log: &[LogLine]) -> Option<usize> {
    let ctx_tok = log.last()?.ctx_tok;
    log.iter().find(|line| line.ctx_tok == ctx_tok && line.digit1_hit >= LEARNED).map(|line| line.tokens)
}

fn one_needle(evals: &[EvalLine]) -> Option<f64> {
    let line = evals.iter().rev().find(|line| line.needles == 1 && line.cities == "train");
    line.map(|line| line.exact)
}

/// Writes `summary.csv`, over what may be there.
///
/// # Errors
/// If it cannot be written.
pub fn write(lines: &[VariantSummary], path: &Path) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let folder = path.parent().context("a summary is in a folder")?;
    let mut csv = csv::Writer::from_writer(tempfile::NamedTempFile::new_in(folder).with_context(context)?);
    lines.iter().try_for_each(|line| csv.serialize(line)).with_context(context)?;
    csv.into_inner().map_err(|error| error.into_error()).with_context(context)?.persist(path).with_context(context)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        name: &str,
        variant: usize,
        seed: u64,
        ends: &[(usize, usize, f64)],
    ) -> (TrainRun, Vec<LogLine>, Vec<EvalLine>) {
        let line = |&(tokens, ctx_tok, digit1_hit): &(usize, usize, f64)| LogLine {
            tokens,
            ctx_tok,
            digit1_hit,
            ..LogLine::default()
        };
        let run = TrainRun { name: format!("{name}/seed-{seed}"), variant, seed };
        (run, ends.iter().map(line).collect(), Vec::new())
    }

    #[test]
    fn seeds_are_paired_and_what_was_learned_at_a_shorter_context_does_not_count() {
        let mut spec: TrainSpec = toml::from_str(include_str!("../../experiments/study-a-norm.toml")).unwrap();
        spec.variants.truncate(2);
        let total = spec.total_tokens();
        let mut logs = Vec::new();
        for (seed, end) in [(1, 0.5), (2, 0.6), (3, 0.7)] {
            logs.push(run("transformer", 0, seed, &[(1, 128, 0.95), (2, 256, 0.4), (total, 256, end)]));
            logs.push(run("transformer-norm", 1, seed, &[(1, 128, 0.1), (2, 256, 0.9), (total, 256, end + 0.25)]));
        }
        logs.push(run("transformer-norm", 1, 4, &[(1, 128, 0.99)])); // not finished
        let lines = Logs(logs).summarise(&spec);
        let (first, second) = (&lines[0], &lines[1]);
        assert_eq!((first.seeds, first.learned, first.learned_tok, first.difference), (3, 0, None, None));
        assert_eq!((second.seeds, second.learned, second.learned_tok), (3, 3, Some(2)));
        assert!((second.first_digit - 0.85).abs() < 1e-12 && (second.difference.unwrap() - 0.25).abs() < 1e-12);
        // The seeds differ, the difference does not.
        assert!(second.first_digit_hi.unwrap() - second.first_digit_lo.unwrap() > 0.4);
        assert!(second.difference_hi.unwrap() - second.difference_lo.unwrap() < 1e-9);
    }
}
