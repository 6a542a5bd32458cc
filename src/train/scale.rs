//! How what training comes to grows with the number of parameters: specs that differ in size alone, each with the curves of its
//! runs. A line is fitted for each variant and seed, by least squares against the logarithm of the parameters; the unit is the
//! seed, as in [`summary`](super::summary).

use super::curves::{CurveRow, TrainingCurves};
use super::spec::{TrainSpec, VariantSpec};
use super::summary::{at, finished, level, one_needle, Level, TIMES};
use crate::bail_usage;
use crate::prompt::Tokenizer;
use anyhow::Result;

/// A spec of one size, and what its runs came to.
#[derive(Clone, Debug)]
pub struct Size {
    /// The spec.
    pub spec: TrainSpec,
    /// Its runs.
    pub curves: TrainingCurves,
    /// Parameters of each variant.
    parameters: Vec<usize>,
}

/// A variant of one size at the end, means over its finished seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct AtSize {
    /// Name in the spec.
    pub variant: String,
    /// Parameters.
    pub parameters: usize,
    /// Finished seeds.
    pub seeds: usize,
    /// First digits predicted.
    pub first_digit: Level,
    /// Negative log-likelihood of ordinary text, in nats.
    pub text_nats: Level,
    /// Unseen prompts with one needle answered exactly, as far as they were asked.
    pub one_needle: Option<Level>,
}

/// How a variant grows, over the seeds that are there at all sizes: change for ten times the parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Name in the spec.
    pub variant: String,
    /// Share of the training tokens by then: one of [`TIMES`].
    pub time: f64,
    /// Seeds.
    pub seeds: usize,
    /// Of first digits predicted.
    pub first_digit: Level,
    /// The same less that of the first variant, seed by seed; nothing of the first.
    pub first_digit_less_first: Option<Level>,
    /// Of the negative log-likelihood of ordinary text, in nats.
    pub text_nats: Level,
    /// The same less that of the first variant.
    pub text_nats_less_first: Option<Level>,
}

impl Size {
    /// A spec and its runs.
    ///
    /// # Errors
    /// If a model of the spec cannot be.
    pub fn new(spec: TrainSpec, curves: TrainingCurves) -> Result<Self> {
        let configs = spec.configs(Tokenizer::embedded().vocab_size())?;
        Ok(Self { parameters: configs.iter().map(|config| config.parameters()).collect(), spec, curves })
    }

    /// The end of a variant's finished runs.
    fn ends(&self, variant: usize) -> Vec<&[CurveRow]> {
        finished(&self.spec, &self.curves, variant).map(|(_, lines)| lines).collect()
    }

    /// What a run of a seed had come to at a share of its tokens.
    fn at(&self, variant: usize, seed: u64, time: f64) -> Option<&CurveRow> {
        let run = self.curves.of(variant).find(|(run, _)| run.seed == seed);
        at(run?.1, (time * self.spec.total_tokens() as f64) as usize)
    }
}

/// Whether sizes can be put on one line: the same variants after as many tokens, of at least two sizes.
///
/// # Errors
/// A usage error with what differs.
pub fn check_sizes(sizes: &[Size]) -> Result<()> {
    let names = |size: &Size| size.spec.variants.iter().map(|variant| variant.name.clone()).collect::<Vec<_>>();
    let Some((first, others)) = sizes.split_first() else { return Ok(()) };
    for other in others {
        if names(other) != names(first) {
            bail_usage!("the variants are {} here, {} there", names(first).join(", "), names(other).join(", "));
        }
        let tokens = [first, other].map(|size| size.spec.total_tokens());
        if tokens[0] != tokens[1] {
            bail_usage!("runs have {} tokens here, {} there", tokens[0], tokens[1]);
        }
        if other.parameters == first.parameters {
            bail_usage!("models of one size, {} parameters, make no line", first.parameters[0]);
        }
    }
    Ok(())
}

/// The variants, which are those of every size.
fn variants(sizes: &[Size]) -> &[VariantSpec] {
    sizes.first().map_or(&[], |size| &size.spec.variants)
}

/// Every variant at the end, from the smallest size to the largest.
pub fn at_sizes(sizes: &[Size]) -> Vec<AtSize> {
    let mut found = Vec::new();
    for (variant, of) in variants(sizes).iter().enumerate() {
        let mut of_variant: Vec<AtSize> = Vec::new();
        for size in sizes {
            let ends = size.ends(variant);
            let over = |outcome: fn(&[CurveRow]) -> Option<f64>| {
                level(&ends.iter().filter_map(|lines| outcome(lines)).collect::<Vec<f64>>())
            };
            let first_digit = over(|lines| lines.last().map(|line| line.digit1_hit));
            let text_nats = over(|lines| lines.last().map(|line| line.text_nats));
            of_variant.extend(first_digit.zip(text_nats).map(|(first_digit, text_nats)| AtSize {
                variant: of.name.clone(),
                parameters: size.parameters[variant],
                seeds: ends.len(),
                first_digit,
                text_nats,
                one_needle: over(one_needle),
            }));
        }
        of_variant.sort_by_key(|at| at.parameters);
        found.extend(of_variant);
    }
    found
}

/// How every variant grows, at each of [`TIMES`].
pub fn growth(sizes: &[Size]) -> Vec<Growth> {
    let mut found = Vec::new();
    for (variant, of) in variants(sizes).iter().enumerate() {
        for time in TIMES {
            let slopes = |quantity: fn(&CurveRow) -> f64| Slopes::of(sizes, variant, time, quantity);
            let (digits, text) = (slopes(|line| line.digit1_hit), slopes(|line| line.text_nats));
            let (Some(first_digit), Some(text_nats)) = (level(&digits.own), level(&text.own)) else { continue };
            found.push(Growth {
                variant: of.name.clone(),
                time,
                seeds: digits.own.len(),
                first_digit,
                first_digit_less_first: level(&digits.less_first),
                text_nats,
                text_nats_less_first: level(&text.less_first),
            });
        }
    }
    found
}

/// Slopes of a variant, seed by seed.
struct Slopes {
    own: Vec<f64>,
    /// Of seeds that the first variant has too; empty of the first.
    less_first: Vec<f64>,
}

impl Slopes {
    fn of(sizes: &[Size], variant: usize, time: f64, quantity: fn(&CurveRow) -> f64) -> Self {
        let of_seed = |variant: usize, seed: u64| {
            let point = |size: &Size| {
                Some(((size.parameters[variant] as f64).log10(), quantity(size.at(variant, seed, time)?)))
            };
            slope(&sizes.iter().map(point).collect::<Option<Vec<_>>>()?)
        };
        let seeds = || sizes.first().map_or(&[][..], |size| size.spec.seeds()).iter();
        let less_first = |&seed: &u64| Some(of_seed(variant, seed)? - of_seed(0, seed)?);
        Self {
            own: seeds().filter_map(|&seed| of_seed(variant, seed)).collect(),
            less_first: if variant == 0 { Vec::new() } else { seeds().filter_map(less_first).collect() },
        }
    }
}

/// The slope of the line with the least squares; nothing of points at one place.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / n, sum.1 + point.1 / n));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (across > 0.0).then(|| points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / across)
}

#[cfg(test)]
mod tests {
    use super::super::spec::TrainRun;
    use super::*;

    /// The spec of a size, whose runs end with `digits` of first digits and `text` nats; of seeds 1 to `seeds`.
    fn size(file: &str, seeds: u64, ends: impl Fn(usize, u64) -> (f64, f64)) -> Size {
        let spec = TrainSpec::parse(file, "study-f").unwrap();
        let run = |(variant, seed)| {
            let (digit1_hit, text_nats) = ends(variant, seed);
            let line = CurveRow { tokens: spec.total_tokens(), digit1_hit, text_nats, ..CurveRow::default() };
            (TrainRun { name: format!("{variant}/seed-{seed}"), variant, seed }, vec![line])
        };
        let runs = (0..2).flat_map(|variant| (1..=seeds).map(move |seed| (variant, seed))).map(run).collect();
        Size::new(spec, TrainingCurves::of_runs(runs)).unwrap()
    }

    const FILES: [&str; 3] = [
        include_str!("../../experiments/study-f-0.3m.toml"),
        include_str!("../../experiments/study-f-1.2m.toml"),
        include_str!("../../experiments/study-f-5m.toml"),
    ];

    #[test]
    fn slopes_are_per_tenfold_parameters_and_seed_by_seed() {
        let parameters = |file: &str| size(file, 0, |_, _| (0.0, 0.0)).parameters;
        let sizes: Vec<Size> = FILES
            .map(|file| {
                let decades = parameters(file).into_iter().map(|n| (n as f64).log10()).collect::<Vec<_>>();
                // The second variant gains 0.1 more for ten times the parameters; seeds differ in where they start.
                size(file, 3, |variant, seed| {
                    let gain = 0.2 + 0.1 * variant as f64;
                    (gain * decades[variant] - 1.0 + 0.01 * seed as f64, 5.0 - 0.4 * decades[variant])
                })
            })
            .into();
        check_sizes(&sizes).unwrap();
        let growth = growth(&sizes);
        assert_eq!(growth.len(), 2 * TIMES.len(), "all that was logged is the end");
        let (first, second) = (&growth[0], &growth[TIMES.len()]);
        assert!((first.first_digit.mean - 0.2).abs() < 1e-9 && first.first_digit_less_first.is_none(), "{first:?}");
        assert!((second.first_digit.mean - 0.3).abs() < 1e-9 && second.seeds == 3);
        let more = second.first_digit_less_first.unwrap();
        assert!((more.mean - 0.1).abs() < 1e-9 && more.interval.is_some());
        assert!((second.text_nats.mean + 0.4).abs() < 1e-9);
        let ends = at_sizes(&sizes);
        assert_eq!(ends.iter().map(|at| at.variant.as_str()).collect::<Vec<_>>()[..3], ["transformer"; 3]);
        assert!(ends[..3].is_sorted_by_key(|at| at.parameters) && ends[0].seeds == 3);
    }

    #[test]
    fn a_seed_that_lacks_a_size_makes_no_line() {
        let sizes: Vec<Size> =
            [(FILES[0], 3), (FILES[1], 2)].map(|(file, seeds)| size(file, seeds, |_, _| (0.5, 3.0))).into();
        assert!(growth(&sizes).iter().all(|growth| growth.seeds == 2 && growth.first_digit.interval.is_none()));
    }

    #[test]
    fn sizes_that_are_not_sizes_of_one_study_are_refused() {
        let of = |file: &str| size(file, 1, |_, _| (0.5, 3.0));
        let refusal = |a: Size, b: Size| format!("{:#}", check_sizes(&[a, b]).unwrap_err());
        assert!(refusal(of(FILES[0]), of(FILES[0])).contains("models of one size"));
        assert!(refusal(of(FILES[0]), of(&FILES[1].replace("name = \"diff\"", "name = \"v1\""))).contains("v1"));
        let longer = FILES[1].replacen("tokens = ", "tokens = 1", 1);
        assert!(refusal(of(FILES[0]), of(&longer)).contains("tokens here"));
    }
}
