//! Results of training by variant and training seed: the numbers that tables and contrasts are made of.

use super::curves::{CurveRow, TrainingCurves};
use super::spec::{Contrast, TrainSpec};
use crate::results::metric::{Kind, Label};
use crate::stats::mean;
use std::collections::BTreeMap;

/// Share of first digits from which on recall counts as learned.
pub const LEARNED: f64 = 0.9;

/// The end of training, as a fraction of its tokens.
pub const END: f64 = 1.0;

/// Times at which runs are compared, as fractions of their tokens.
pub const TIMES: [f64; 3] = [0.15, 0.5, END];

/// Numbers by training seed.
pub type BySeed = BTreeMap<u64, f64>;

/// A quantity of training runs.
#[derive(Clone, Copy, Debug)]
pub struct RunQuantity {
    /// Its name in tables.
    pub name: &'static str,
    pub kind: Kind,
    /// Unit in tables; empty for pure numbers.
    pub unit: &'static str,
    /// Its number from the lines of a run up to some time; `None` if it was not measured.
    pub of: fn(&[CurveRow]) -> Option<f64>,
}

impl RunQuantity {
    const fn number(name: &'static str, unit: &'static str, of: fn(&[CurveRow]) -> Option<f64>) -> Self {
        Self { name, kind: Kind::Number, unit, of }
    }

    const fn rate(name: &'static str, of: fn(&[CurveRow]) -> Option<f64>) -> Self {
        Self { name, kind: Kind::Rate, unit: "%", of }
    }

    /// Returns its label in tables.
    pub fn label(&self) -> Label {
        Label { text: self.name.to_owned(), kind: self.kind, unit: self.unit.to_owned() }
    }
}

/// Share of first digits that are predicted.
pub const FIRST_DIGITS: RunQuantity = RunQuantity::rate("first digits", |lines| Some(lines.last()?.digit1_hit));

/// Accuracy on unseen prompts with one needle, in the latest evaluation.
pub const ONE_NEEDLE: RunQuantity =
    RunQuantity::rate("one needle", |lines| lines.iter().rev().find_map(|line| line.one_needle));

/// Tokens until first digits reach [`LEARNED`] at the last context length; infinite if they never do.
pub const TOKENS_UNTIL_LEARNED: RunQuantity = RunQuantity::number("learned after", "tokens", |lines| {
    let ctx_tok = lines.last()?.ctx_tok;
    let first = lines.iter().find(|line| line.ctx_tok == ctx_tok && line.digit1_hit >= LEARNED);
    Some(first.map_or(f64::INFINITY, |line| line.tokens as f64))
});

/// Tokens trained on.
pub const TOKENS: RunQuantity = RunQuantity::number("tokens", "", |lines| Some(lines.last()?.tokens as f64));

/// Measurements inside the layers.
pub const INSIDE: [RunQuantity; 4] = [
    RunQuantity::number("context RMS", "", |lines| lines.last()?.context_rms),
    RunQuantity::number("least head's context RMS", "", |lines| lines.last()?.context_rms_least),
    RunQuantity::number(crate::results::metric::LAMBDA.name, "", |lines| lines.last()?.lambda),
    RunQuantity::number("gradient norm of q and k", "", |lines| lines.last()?.grad_norm_qk),
];

/// A spec and the training curves of its runs.
#[derive(Clone, Debug)]
pub struct Study {
    /// The spec.
    pub spec: TrainSpec,
    /// Its runs.
    pub curves: TrainingCurves,
}

impl Study {
    /// Returns a quantity of each run of a variant, at the first line of its log at or after a time. Runs that have
    /// not got there are left out.
    pub fn at(&self, variant: usize, time: f64, quantity: &RunQuantity) -> BySeed {
        let tokens = (time * self.spec.total_tokens() as f64) as usize;
        let runs = self.curves.of(variant).filter_map(|(run, lines)| {
            let last = lines.iter().position(|line| line.tokens >= tokens)?;
            Some((run.seed, (quantity.of)(&lines[..=last])?))
        });
        runs.collect()
    }

    /// Returns a quantity at the end of the finished runs of a variant.
    pub fn at_end(&self, variant: usize, quantity: &RunQuantity) -> BySeed {
        self.at(variant, END, quantity)
    }

    /// Returns the two sides of a contrast at the end, `less` and `of`: means over their variants, of seeds that
    /// all variants of the side have.
    pub fn contrast(&self, contrast: &Contrast, quantity: &RunQuantity) -> [BySeed; 2] {
        [&contrast.less, &contrast.of].map(|names| {
            let mut by_seed: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let mut variants = 0;
            for (variant, _) in self.spec.variants.iter().enumerate().filter(|(_, spec)| names.contains(&spec.name)) {
                variants += 1;
                for (seed, number) in self.at_end(variant, quantity) {
                    by_seed.entry(seed).or_default().push(number);
                }
            }
            by_seed.retain(|_, numbers| numbers.len() == variants);
            by_seed.into_iter().filter_map(|(seed, numbers)| Some((seed, mean(&numbers)?))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::TrainRun;
    use super::*;

    /// A run whose log has these lines: tokens, context length and first digits. Seeds below 3 have an evaluation.
    fn run(variant: usize, seed: u64, curves: &[(usize, usize, f64)]) -> (TrainRun, Vec<CurveRow>) {
        let line = |&(tokens, ctx_tok, digit1_hit): &(usize, usize, f64)| CurveRow {
            tokens,
            ctx_tok,
            digit1_hit,
            one_needle: (seed < 3).then_some(digit1_hit),
            ..CurveRow::default()
        };
        (TrainRun { name: format!("{variant}/seed-{seed}"), variant, seed }, curves.iter().map(line).collect())
    }

    /// Two variants: three seeds of both, and a fourth of the second that is not finished.
    fn study() -> Study {
        let mut spec = TrainSpec::parse(include_str!("../../experiments/study-a-norm.toml"), "study-a").unwrap();
        spec.variants.truncate(2);
        let total = spec.total_tokens();
        let mut runs = Vec::new();
        for (seed, end) in [(1, 0.5), (2, 0.6), (3, 0.7)] {
            runs.push(run(0, seed, &[(1, 128, 0.95), (2, 256, 0.4), (total, 256, end)]));
            runs.push(run(1, seed, &[(1, 128, 0.1), (2, 256, 0.9), (total, 256, end + 0.25)]));
        }
        runs.push(run(1, 4, &[(1, 128, 0.99)]));
        Study { spec, curves: TrainingCurves::of_runs(runs) }
    }

    #[test]
    fn the_end_is_that_of_finished_runs() {
        assert_eq!(study().at_end(1, &FIRST_DIGITS), [(1, 0.75), (2, 0.85), (3, 0.95)].into());
        assert_eq!(study().at_end(1, &ONE_NEEDLE), [(1, 0.75), (2, 0.85)].into());
    }

    #[test]
    fn recall_at_a_shorter_context_is_not_learned() {
        let never = f64::INFINITY;
        assert_eq!(study().at_end(0, &TOKENS_UNTIL_LEARNED), [(1, never), (2, never), (3, never)].into());
        assert_eq!(study().at_end(1, &TOKENS_UNTIL_LEARNED), [(1, 2.0), (2, 2.0), (3, 2.0)].into());
    }

    #[test]
    fn a_side_of_a_contrast_is_the_mean_of_its_variants_of_seeds_that_all_have() {
        let study = study();
        let names: Vec<String> = study.spec.variants.iter().map(|variant| variant.name.clone()).collect();
        let contrast = Contrast { name: "both".into(), of: names.clone(), less: names[..1].to_vec() };
        let [less, of] = study.contrast(&contrast, &FIRST_DIGITS);
        assert_eq!(less, study.at_end(0, &FIRST_DIGITS));
        assert_eq!(of, [(1, 0.625), (2, 0.725), (3, 0.825)].into());
        let one = TrainingCurves::of_runs(vec![run(0, 1, &[(study.spec.total_tokens(), 128, 0.5)])]);
        let [less, of] = Study { curves: one, ..study }.contrast(&contrast, &FIRST_DIGITS);
        assert_eq!((less, of), ([(1, 0.5)].into(), BySeed::new()));
    }
}
