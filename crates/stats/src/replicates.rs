//! Difference of two recipes that were trained with several seeds each and measured on the same prompts, generalised to
//! other seeds and prompts.
//!
//! Models that differ only by training seed are *replicates*. The difference of two recipes varies with seeds and with
//! prompts, so an interval must resample both. The variance of this resampling is known in closed form (Owen 2007, "The
//! pigeonhole bootstrap"), and so is its bias with few seeds: it contains (k − 1)/k of the variance of k seeds, and
//! counts the noise three times. Without this bias it is the analysis of variance of a two-way crossed design. The
//! interval uses Student's quantile with the degrees of freedom of that variance (Satterthwaite 1946), because
//! percentiles of five seeds are too narrow. It supposes normal seeds: of three seeds, of which some learn and some do
//! not, it covers far less than 95 %.
//!
//! Draws of random heads, as controls of a condition, are replicates too.

use super::interval::{student_quantile, two_sided_p, NO_WIDTH, POWER};
use super::{mean, Interval, LEVEL};

/// Least number of seeds for an interval.
pub const LEAST_SEEDS: usize = 3;

/// The difference of two recipes.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicated {
    /// Mean over seeds and prompts.
    pub diff: f64,
    /// Mean of each seed over prompts.
    pub of_seeds: Vec<f64>,
    /// The 95 % interval of `diff` over seeds and prompts; `None` for fewer than [`LEAST_SEEDS`] seeds or two prompts, or if
    /// nothing varies.
    pub interval: Option<Interval>,
    /// Two-sided p-value of a difference of 0: of seeds and prompts that all differ alike it is that of a sign test over seeds, and
    /// there is no interval.
    pub p: Option<f64>,
    /// The smallest true difference that this test on as many seeds and prompts detects with a probability of 80 %.
    pub detectable: Option<f64>,
}

impl Replicated {
    /// Compares two recipes from their paired differences, a table of seeds × prompts. `None` without numbers, or if
    /// one is not finite.
    ///
    /// # Panics
    /// If seeds have different numbers of prompts.
    pub fn new(table: &[Vec<f64>]) -> Option<Self> {
        let of_seeds: Vec<f64> = table.iter().map(|of_seed| mean(of_seed)).collect::<Option<_>>()?;
        let diff = mean(&of_seeds).filter(|_| table.iter().flatten().all(|x| x.is_finite()))?;
        let mut found = Self { diff, of_seeds, interval: None, p: None, detectable: None };
        if table.len() < LEAST_SEEDS || table[0].len() < 2 {
            return Some(found);
        }
        let spread = VarianceComponents::new(table)?;
        let error = spread.variance().sqrt();
        let freedom = spread.freedom();
        let p = (error > NO_WIDTH).then(|| two_sided_p(diff / error, freedom)).flatten();
        if p.is_some() {
            let t = student_quantile(0.5 + LEVEL / 2.0, freedom)?;
            found.p = p;
            found.interval = Some(Interval { lo: diff - t * error, hi: diff + t * error });
            found.detectable = Some((t + student_quantile(POWER, freedom)?) * error);
        } else if diff != 0.0 {
            found.p = Some(0.5_f64.powi(table.len() as i32 - 1));
        }
        Some(found)
    }
}

/// Components of the variance of the mean of a table of seeds × prompts: mean squares over the number of cells.
#[derive(Clone, Copy, Debug)]
struct VarianceComponents {
    seeds: VarianceComponent,
    prompts: VarianceComponent,
    /// Residual: noise and the interaction of seeds and prompts. It is contained in both other components.
    residual: VarianceComponent,
}

/// A variance with its degrees of freedom.
#[derive(Clone, Copy, Debug)]
struct VarianceComponent {
    variance: f64,
    freedom: f64,
}

impl VarianceComponent {
    fn new(squares: f64, freedom: f64, cells: f64) -> Self {
        let variance = if freedom > 0.0 { squares / freedom / cells } else { 0.0 };
        Self { variance, freedom }
    }

    /// Its term in the denominator of Satterthwaite's degrees of freedom.
    fn satterthwaite_term(self) -> f64 {
        if self.freedom > 0.0 {
            self.variance.powi(2) / self.freedom
        } else {
            0.0
        }
    }
}

impl VarianceComponents {
    fn new(table: &[Vec<f64>]) -> Option<Self> {
        let k = table.len();
        let n = table.first()?.len();
        let mut prompts = Vec::new();
        for prompt in 0..n {
            prompts.push(mean(&table.iter().map(|seed| seed[prompt]).collect::<Vec<_>>())?);
        }
        let seeds: Vec<f64> = table.iter().map(|seed| mean(seed)).collect::<Option<_>>()?;
        let all = mean(&seeds)?;
        let [squares_of_seeds, squares_of_prompts] =
            [&seeds, &prompts].map(|means| means.iter().map(|x| (x - all).powi(2)).sum::<f64>());
        let mut residuals = Vec::new();
        for (numbers, seed) in table.iter().zip(&seeds) {
            assert_eq!(numbers.len(), n, "all seeds have the same prompts");
            let squares = numbers.iter().zip(&prompts).map(|(x, prompt)| (x - seed - prompt + all).powi(2));
            residuals.push(squares.sum::<f64>());
        }
        let residual: f64 = residuals.iter().sum();
        let k = k as f64;
        let n = n as f64;
        Some(Self {
            seeds: VarianceComponent::new(n * squares_of_seeds, k - 1.0, k * n),
            prompts: VarianceComponent::new(k * squares_of_prompts, n - 1.0, k * n),
            residual: VarianceComponent::new(residual, (k - 1.0) * (n - 1.0), k * n),
        })
    }

    /// The variance of the mean, at least that of seeds alone and that of prompts alone.
    fn variance(&self) -> f64 {
        let [seeds, prompts, residual] = [self.seeds, self.prompts, self.residual].map(|part| part.variance);
        (seeds + prompts - residual).max(seeds).max(prompts)
    }

    fn freedom(&self) -> f64 {
        let terms = [self.seeds, self.prompts, self.residual].map(VarianceComponent::satterthwaite_term);
        (self.variance().powi(2) / (terms[0] + terms[1] + terms[2])).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Moments;
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    /// Draws a table of seeds × prompts with mean 0.3: the sum of an effect of each seed, one of each prompt, and noise.
    fn sample(rng: &mut Rng, seeds: usize, prompts: usize, of_seed: f64, of_prompt: f64) -> Vec<Vec<f64>> {
        let difficulty: Vec<f64> = (0..prompts).map(|_| of_prompt * rng.normal()).collect();
        let mut table = Vec::new();
        for _ in 0..seeds {
            let level = 0.3 + of_seed * rng.normal();
            table.push(difficulty.iter().map(|hard| level + hard + 0.5 * rng.normal()).collect());
        }
        table
    }

    /// The share of 2,000 samples of 20 prompts whose interval contains the true difference.
    fn coverage(rng: &mut Rng, seeds: usize, of_seed: f64, of_prompt: f64) -> f64 {
        let mut covered = 0;
        for _ in 0..2000 {
            let interval = Replicated::new(&sample(rng, seeds, 20, of_seed, of_prompt)).unwrap().interval.unwrap();
            covered += usize::from(interval.contains(0.3));
        }
        covered as f64 / 2000.0
    }

    #[test]
    fn the_interval_covers_other_seeds_and_prompts_as_often_as_it_says() {
        let mut rng = Rng::new(31, "replicates");
        // Where most comes from the seeds, from the prompts, from both alike.
        for (seeds, of_seed, of_prompt) in [(3, 1.0, 0.3), (5, 1.0, 0.5), (8, 1.0, 0.0), (5, 0.1, 1.0), (5, 0.3, 1.0)] {
            let found = coverage(&mut rng, seeds, of_seed, of_prompt);
            // Three standard errors of 2,000 samples about 0.95.
            assert!((0.935..=0.965).contains(&found), "{seeds} seeds, {of_seed}, {of_prompt}: {found}");
        }
        // Without anything but noise the variance is never taken smaller than its larger part: a little too wide.
        let found = coverage(&mut rng, 5, 0.0, 0.0);
        assert!((0.945..=0.995).contains(&found), "{found}");
    }

    #[test]
    fn prompts_alone_would_cover_far_less() {
        // The interval of one seed, resampled over prompts, rarely covers other seeds: the reason for replicates.
        let mut rng = Rng::new(32, "replicates");
        let covers = (0..300).filter(|_| {
            let one = sample(&mut rng, 1, 40, 1.0, 0.5).remove(0);
            crate::test_mean(&one).unwrap().interval.contains(0.3)
        });
        assert!((covers.count() as f64) < 0.5 * 300.0);
    }

    #[test]
    fn resampling_seeds_and_prompts_has_the_variance_that_its_parts_add_up_to() {
        let mut rng = Rng::new(33, "replicates");
        let k = 4_usize;
        let n = 12_usize;
        let table = sample(&mut rng, k, n, 0.7, 0.8);
        let mut means = Moments::default();
        for _ in 0..40_000 {
            let prompts: Vec<usize> = (0..n).map(|_| rng.below(n)).collect();
            let seeds: Vec<usize> = (0..k).map(|_| rng.below(k)).collect();
            let drawn = seeds.iter().flat_map(|&s| prompts.iter().map(move |&p| (s, p)));
            means.push(drawn.map(|(s, p)| table[s][p]).sum::<f64>() / (k * n) as f64);
        }
        let VarianceComponents { seeds, prompts, residual } = VarianceComponents::new(&table).unwrap();
        let short = |n: usize| (n as f64 - 1.0) / n as f64;
        let expected =
            seeds.variance * short(k) + prompts.variance * short(n) + residual.variance * short(k) * short(n);
        assert!((means.variance().unwrap() / expected - 1.0).abs() < 0.03, "{:?} {expected}", means.variance());
    }

    #[test]
    fn without_any_noise_of_prompts_it_is_students_interval() {
        let table: Vec<Vec<f64>> = [0.1, 0.4, 0.2, 0.5].iter().map(|&x| vec![x, x]).collect();
        let found = Replicated::new(&table).unwrap();
        let student = crate::student(&[0.1, 0.4, 0.2, 0.5]).unwrap().interval;
        let interval = found.interval.unwrap();
        assert!((interval.lo - student.lo).abs() < 1e-12 && (interval.hi - student.hi).abs() < 1e-12);
        // Three degrees of freedom have a closed form: 1 - 2/π (arctan x + x / (1 + x²)), x = t / √3, t = 0.3 /
        // (0.182574 / 2).
        let x = 0.3 / (0.182_574_185_835_055_37 / 2.0) / 3.0_f64.sqrt();
        let expected = 1.0 - std::f64::consts::FRAC_2_PI * (x.atan() + x / (1.0 + x * x));
        assert!((found.p.unwrap() - expected).abs() < 1e-9, "{:?} {expected}", found.p);
    }

    #[test]
    fn two_seeds_do_not_generalise() {
        let found = Replicated::new(&[vec![0.1, 0.2], vec![0.3, 0.4]]).unwrap();
        assert_eq!((found.of_seeds.len(), found.interval, found.p, found.detectable), (2, None, None, None));
        assert!((found.diff - 0.25).abs() < 1e-12);
    }

    #[test]
    fn equal_numbers_have_a_sign_test_and_no_interval_and_an_empty_table_has_no_difference() {
        let found = Replicated::new(&vec![vec![1.0; 4]; 3]).unwrap();
        assert_eq!((found.diff, found.interval, found.p, found.detectable), (1.0, None, Some(0.25), None));
        let six = Replicated::new(&vec![vec![-1.0; 4]; 6]).unwrap();
        assert_eq!((six.interval, six.p), (None, Some(0.031_25)), "six seeds that all lose are decided");
        assert_eq!(Replicated::new(&vec![vec![0.0; 4]; 6]).unwrap().p, None);
        assert_eq!(Replicated::new(&[]), None);
        assert_eq!(Replicated::new(&[vec![]]), None);
        assert_eq!(Replicated::new(&[vec![f64::NAN]]), None);
    }

    proptest! {
        #[test]
        fn the_order_of_seeds_and_prompts_changes_nothing_and_the_interval_holds_the_difference(
            table in prop::collection::vec(prop::collection::vec(-1.0..1.0, 6), 3..6)
        ) {
            let turned: Vec<Vec<f64>> =
                table.iter().rev().map(|of_seed: &Vec<f64>| of_seed.iter().rev().copied().collect()).collect();
            let one = Replicated::new(&table).unwrap();
            let other = Replicated::new(&turned).unwrap();
            let a = one.interval.unwrap();
            let b = other.interval.unwrap();
            prop_assert!((one.p.unwrap() - 0.05).abs() < 1e-9 || (one.p.unwrap() < 0.05) != a.contains(0.0));
            prop_assert!((a.lo - b.lo).abs() < 1e-9 && (a.hi - b.hi).abs() < 1e-9);
            prop_assert!(a.contains(one.diff) && one.p.unwrap() <= 1.0);
        }
    }
}
