//! Results of training by variant and training seed: the numbers that tables, contrasts and curves are made of.

use super::metrics::FIRST_DIGITS;
use super::spec::{Contrast, TrainSpec};
use crate::results::{Estimate, Records};
use names::metric::Metric;
use stats::mean;
use std::collections::BTreeMap;

/// Share of first digits from which on recall counts as learned.
const LEARNED: f64 = 0.9;

/// The end of training, as a fraction of its tokens.
pub(crate) const END: f64 = 1.0;

/// Numbers by training seed.
pub(crate) type BySeed<T = f64> = BTreeMap<u64, T>;

/// A spec and the records of its runs.
#[derive(Debug)]
pub(crate) struct Study {
    pub(crate) spec: TrainSpec,
    pub(crate) records: Records,
}

/// A number of a run at a line of its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurvePoint {
    /// Tokens trained on.
    pub(crate) tokens: usize,
    /// Context length of the stage.
    pub(crate) ctx_tok: usize,
    pub(crate) value: f64,
}

impl Study {
    /// A metric in each run of a variant, in the order of its log.
    pub(crate) fn curves(&self, variant: usize, metric: &Metric) -> BySeed<Vec<CurvePoint>> {
        let name = &self.spec.variants[variant].name;
        let mut curves: BySeed<Vec<CurvePoint>> = BTreeMap::new();
        for record in self.records.select(|quantity| quantity.metric == metric.name, |id| id.model == *name) {
            let (Some(seed), Some(tokens)) = (record.identity.replicate, record.identity.tokens) else { continue };
            let point = CurvePoint { tokens, ctx_tok: record.identity.ctx_tok, value: record.value };
            curves.entry(seed).or_default().push(point);
        }
        curves
    }

    /// The first point of a metric in each run of a variant at or after a time. Runs that have not got there are left
    /// out.
    pub(crate) fn points_at(&self, variant: usize, time: f64, metric: &Metric) -> BySeed<CurvePoint> {
        let from = (time * self.spec.total_tokens() as f64) as usize;
        let curves = self.curves(variant, metric).into_iter();
        curves
            .filter_map(|(seed, points)| Some((seed, points.into_iter().find(|point| point.tokens >= from)?)))
            .collect()
    }

    /// The numbers of these points.
    fn numbers_at(&self, variant: usize, time: f64, metric: &Metric) -> BySeed {
        self.points_at(variant, time, metric).into_iter().map(|(seed, point)| (seed, point.value)).collect()
    }

    /// Their mean.
    pub(crate) fn mean_at(&self, variant: usize, time: f64, metric: &Metric) -> Option<Estimate> {
        Estimate::of_seeds(&self.numbers_at(variant, time, metric), metric.kind)
    }

    /// The tokens until first digits reached [`LEARNED`] at the last context length, of the finished runs of a variant;
    /// infinite if they never did.
    pub(crate) fn learned_after(&self, variant: usize) -> BySeed {
        let mut learned = BySeed::new();
        let mut curves = self.curves(variant, &FIRST_DIGITS);
        for (seed, end) in self.points_at(variant, END, &FIRST_DIGITS) {
            let mut points = curves.remove(&seed).into_iter().flatten();
            let first = points.find(|point| point.ctx_tok == end.ctx_tok && point.value >= LEARNED);
            learned.insert(seed, first.map_or(f64::INFINITY, |point| point.tokens as f64));
        }
        learned
    }

    /// A contrast of a metric at the end.
    pub(crate) fn change(&self, contrast: &Contrast, metric: &Metric) -> Option<Estimate> {
        let changes = self.contrast(contrast, |variant| self.numbers_at(variant, END, metric));
        Estimate::of_changes(&changes, metric.kind)
    }

    /// A contrast of the numbers of variants, seed by seed. A side is the mean over its variants, of seeds that all of
    /// them have.
    pub(crate) fn contrast(&self, contrast: &Contrast, numbers: impl Fn(usize) -> BySeed) -> BySeed {
        let side = |names: &[String]| {
            let mut by_seed: BySeed<Vec<f64>> = BTreeMap::new();
            let mut variants = 0;
            for (variant, _) in self.spec.variants.iter().enumerate().filter(|(_, spec)| names.contains(&spec.name)) {
                variants += 1;
                numbers(variant).into_iter().for_each(|(seed, number)| by_seed.entry(seed).or_default().push(number));
            }
            by_seed.retain(|_, numbers| numbers.len() == variants);
            by_seed
        };
        let less = side(&contrast.less);
        let differences = side(&contrast.of).into_iter();
        differences.filter_map(|(seed, of)| Some((seed, mean(&of)? - mean(less.get(&seed)?)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::{identity, record};
    use super::super::metrics::ONE_NEEDLE;
    use super::*;

    fn spec() -> TrainSpec {
        let mut spec = TrainSpec::parse(include_str!("../../experiments/study-a-norm.toml"), "study-a").unwrap();
        spec.variants.truncate(2);
        spec
    }

    /// Adds a run whose log has these lines: tokens, context length and first digits. Seeds below 3 have an evaluation.
    fn add_run(study: &mut Study, variant: usize, seed: u64, lines: &[(usize, usize, f64)]) {
        let name = study.spec.variants[variant].name.clone();
        for &(tokens, ctx_tok, digits) in lines {
            let line = identity(&name, seed, tokens, ctx_tok);
            study.records.add(&record(&line, &FIRST_DIGITS, digits));
            if seed < 3 {
                study.records.add(&record(&line, &ONE_NEEDLE, digits));
            }
        }
    }

    /// Two variants: three seeds of both, and a fourth of the second that is not finished.
    fn study() -> Study {
        let mut study = Study { spec: spec(), records: Records::default() };
        let total = study.spec.total_tokens();
        for (seed, end) in [(1, 0.5), (2, 0.625), (3, 0.6875)] {
            add_run(&mut study, 0, seed, &[(1, 128, 0.95), (2, 256, 0.4), (total, 256, end)]);
            add_run(&mut study, 1, seed, &[(1, 128, 0.1), (2, 256, 0.9), (total, 256, end + 0.25)]);
        }
        add_run(&mut study, 1, 4, &[(1, 128, 0.99)]);
        study
    }

    #[test]
    fn the_end_is_that_of_finished_runs() {
        assert_eq!(study().numbers_at(1, END, &FIRST_DIGITS), [(1, 0.75), (2, 0.875), (3, 0.9375)].into());
        assert_eq!(study().numbers_at(1, END, &ONE_NEEDLE), [(1, 0.75), (2, 0.875)].into());
    }

    #[test]
    fn recall_at_a_shorter_context_is_not_learned() {
        let never = f64::INFINITY;
        assert_eq!(study().learned_after(0), [(1, never), (2, never), (3, never)].into());
        assert_eq!(study().learned_after(1), [(1, 2.0), (2, 2.0), (3, 2.0)].into());
    }

    #[test]
    fn a_side_of_a_contrast_is_the_mean_of_its_variants_of_seeds_that_all_have() {
        let study = study();
        let names: Vec<String> = study.spec.variants.iter().map(|variant| variant.name.clone()).collect();
        let both = Contrast { name: "both".into(), of: names.clone(), less: names[..1].to_vec() };
        let second = Contrast { of: names[1..].to_vec(), ..both.clone() };
        let change =
            |study: &Study, contrast| study.contrast(contrast, |variant| study.numbers_at(variant, END, &FIRST_DIGITS));
        assert_eq!(change(&study, &both), [(1, 0.125), (2, 0.125), (3, 0.125)].into());
        assert_eq!(change(&study, &second), [(1, 0.25), (2, 0.25), (3, 0.25)].into());
        let mut one = Study { spec: spec(), records: Records::default() };
        let total = one.spec.total_tokens();
        add_run(&mut one, 0, 1, &[(total, 128, 0.5)]);
        assert_eq!(change(&one, &both), BySeed::new());
    }
}
