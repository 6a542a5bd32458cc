//! Difference of two proportions of hits on the same prompts.
//!
//! The interval is Tango's (1998, "Equivalence test and confidence interval for the difference in proportions for the
//! paired-sample design"): all differences d that the score statistic
//!
//! z(d) = (wins − losses − n d) / √(n (2 q(d) + d (1 − d)))
//!
//! does not reject, with q(d) the most likely probability of a loss if the difference is d. z(0) is the statistic of
//! McNemar (1947), (wins − losses) / √(wins + losses), so interval and test agree. Where fewer than 25 pairs are discordant, the
//! test is the exact one, the binomial test of wins among them, which the statistic comes close to only for more.

use super::interval::POWER;
use super::mean_interval::LEAST_PROMPTS;
use super::{Interval, LEVEL};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// Number of discordant pairs from which on the statistic is close enough to normal.
const NORMAL: f64 = 25.0;

/// Fewest discordant pairs of which the exact test can decide anything: 2 / 2⁶ = 0.03.
pub const LEAST_DISCORDANT: usize = 6;

/// Steps of bisection; each halves a range of at most 2.
const STEPS: usize = 50;

/// Outcomes of two models on the same prompts.
///
/// Several questions of one prompt are not independent. Their number is divided by the design effect, the variance of
/// the difference between prompts over that of independent questions (as in [`wilson_of_groups`](super::wilson_of_groups)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedHits {
    /// Effective number of independent pairs, between the number of prompts and that of questions.
    n: f64,
    /// Share of pairs that only the other model answers.
    wins: f64,
    /// Share of pairs that only the baseline answers.
    losses: f64,
    prompts: usize,
}

/// Outcomes of the questions of one prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptOutcomes {
    /// Questions that only the other model answers.
    pub wins: usize,
    /// Questions that only the baseline answers.
    pub losses: usize,
    pub questions: usize,
}

impl PromptOutcomes {
    /// The outcomes of questions by their changes: above 0 if won, below if lost.
    pub fn of_changes(changes: &[f64]) -> Self {
        let wins = changes.iter().filter(|&&change| change > 0.0).count();
        let losses = changes.iter().filter(|&&change| change < 0.0).count();
        Self { wins, losses, questions: changes.len() }
    }

    fn is_possible(&self) -> bool {
        self.questions > 0 && self.wins + self.losses <= self.questions
    }
}

impl PairedHits {
    /// Counts the outcomes of prompts; all have equal weight. `None` for fewer than [`LEAST_PROMPTS`] prompts.
    ///
    /// # Panics
    /// If a prompt has no questions, or fewer than wins and losses.
    pub fn new(prompts: &[PromptOutcomes]) -> Option<Self> {
        assert!(prompts.iter().all(PromptOutcomes::is_possible), "more outcomes than questions");
        if prompts.len() < LEAST_PROMPTS {
            return None;
        }
        let k = prompts.len() as f64;
        let questions = prompts.iter().map(|of| of.questions as f64).sum::<f64>();
        let wins = prompts.iter().map(|of| of.wins as f64 / of.questions as f64).sum::<f64>() / k;
        let losses = prompts.iter().map(|of| of.losses as f64 / of.questions as f64).sum::<f64>() / k;
        let difference = wins - losses;
        let differences = prompts.iter().map(|of| (of.wins as f64 - of.losses as f64) / of.questions as f64);
        let squares: f64 = differences.map(|of_prompt| (of_prompt - difference).powi(2)).sum();
        let between = squares / (k - 1.0) / k;
        let independent = (wins + losses - difference * difference) / questions;
        let most = questions / k;
        let design_effect = if independent > 0.0 { (between / independent).clamp(1.0, most) } else { most };
        Some(Self { n: questions / design_effect, wins, losses, prompts: prompts.len() })
    }

    /// The share of the other model's hits less that of the baseline's.
    pub fn difference(&self) -> f64 {
        self.wins - self.losses
    }

    /// The score statistic of a true difference.
    fn statistic(&self, d: f64) -> f64 {
        let n = self.n;
        let wins = self.n * self.wins;
        let losses = self.n * self.losses;
        let off = wins - losses - n * d;
        // q is the larger root of 2 n q² + b q + c = 0.
        let b = (2.0 * n - wins + losses) * d - wins - losses;
        let c = -losses * d * (1.0 - d);
        let q = ((b * b - 8.0 * n * c).max(0.0).sqrt() - b) / (4.0 * n);
        let variance = n * (2.0 * q + d * (1.0 - d));
        if off.abs() < 1e-12 {
            0.0
        } else {
            off / variance.max(0.0).sqrt()
        }
    }

    /// The 95 % interval of the difference, within -1..=1.
    pub fn interval(&self) -> Interval {
        Interval { lo: self.end_before(-1.0), hi: self.end_before(1.0) }
    }

    /// The last difference that is not rejected, on the way from the estimate to a bound.
    fn end_before(&self, bound: f64) -> f64 {
        let z = normal(0.5 + LEVEL / 2.0);
        if self.statistic(bound).abs() <= z {
            return bound;
        }
        let mut inside = self.difference();
        let mut outside = bound;
        for _ in 0..STEPS {
            let middle = 0.5 * (inside + outside);
            if self.statistic(middle).abs() <= z {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside
    }

    /// The two-sided p-value of McNemar's test; 1 if the models agree everywhere.
    pub fn p(&self) -> f64 {
        if self.n * (self.wins + self.losses) < NORMAL {
            return self.exact_p();
        }
        2.0 * Normal::standard().cdf(-self.statistic(0.0).abs())
    }

    /// Two-sided p-value of the binomial test of wins among the discordant pairs.
    fn exact_p(&self) -> f64 {
        let wins = (self.n * self.wins).round() as u64;
        let losses = (self.n * self.losses).round() as u64;
        let fewer = Binomial::new(0.5, wins + losses).map_or(1.0, |chance| chance.cdf(wins.min(losses)));
        (2.0 * fewer).min(1.0)
    }

    /// The smallest true difference that the test detects on so many prompts with a probability of 80 %, if the
    /// models disagree as often as here, or as the difference takes. `None` if no difference is large enough.
    pub fn smallest_detectable(&self) -> Option<f64> {
        if !self.detects(self.n, 1.0) {
            return None;
        }
        let mut too_small = 0.0;
        let mut enough = 1.0;
        for _ in 0..STEPS {
            let middle = 0.5 * (too_small + enough);
            if self.detects(self.n, middle) {
                enough = middle;
            } else {
                too_small = middle;
            }
        }
        Some(enough)
    }

    /// Returns `true` if `n` pairs detect a difference: d √n ≥ z(0.975) √p + z(0.8) √(p − d²), with p the probability that
    /// the models disagree (Miettinen 1968).
    fn detects(&self, n: f64, d: f64) -> bool {
        let disagree = (self.wins + self.losses).max(d);
        d * n.sqrt() >= normal(0.5 + LEVEL / 2.0) * disagree.sqrt() + normal(POWER) * (disagree - d * d).sqrt()
    }
}

fn normal(level: f64) -> f64 {
    Normal::standard().inverse_cdf(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    fn outcomes(wins: usize, losses: usize, questions: usize) -> PromptOutcomes {
        PromptOutcomes { wins, losses, questions }
    }

    /// Prompts of one question.
    fn single(wins: usize, losses: usize, n: usize) -> PairedHits {
        let mut prompts = vec![outcomes(1, 0, 1); wins];
        prompts.resize(wins + losses, outcomes(0, 1, 1));
        prompts.resize(n, outcomes(0, 0, 1));
        PairedHits::new(&prompts).unwrap()
    }

    /// Probability of each outcome, (wins, losses), of `n` pairs.
    fn chances(n: usize, p_win: f64, p_loss: f64) -> Vec<((usize, usize), f64)> {
        let log_factorial = |n: usize| (1..=n).map(|i| (i as f64).ln()).sum::<f64>();
        let power = |p: f64, n: usize| if n == 0 { 0.0 } else { n as f64 * p.ln() };
        let pairs = (0..=n).flat_map(|wins| (0..=n - wins).map(move |losses| (wins, losses)));
        let chance = |(wins, losses): (usize, usize)| {
            let ties = n - wins - losses;
            let ways = log_factorial(n) - log_factorial(wins) - log_factorial(losses) - log_factorial(ties);
            (ways + power(p_win, wins) + power(p_loss, losses) + power(1.0 - p_win - p_loss, ties)).exp()
        };
        pairs.map(|outcome| (outcome, chance(outcome))).filter(|(_, chance)| *chance > 0.0).collect()
    }

    #[test]
    fn the_interval_covers_and_the_test_errs_as_often_as_they_say() {
        for (p_win, p_loss) in [(0.0, 0.0), (0.0, 0.1), (0.1, 0.1), (0.1, 0.3), (0.25, 0.25), (0.0, 0.5), (0.05, 0.9)] {
            for n in [6, 10, 30] {
                let of = |test: fn(&PairedHits, f64) -> bool| {
                    let mut held = chances(n, p_win, p_loss);
                    held.retain(|((wins, losses), _)| test(&single(*wins, *losses, n), p_win - p_loss));
                    held.into_iter().map(|(_, chance)| chance).sum::<f64>()
                };
                let covered = of(|found, truth| {
                    let Interval { lo, hi } = found.interval();
                    lo - 1e-9 <= truth && truth <= hi + 1e-9
                });
                assert!(covered > 0.943, "{n}: {p_win} {p_loss}: {covered}");
                let rejected = of(|found, _| found.p() < 0.05);
                assert!(p_win != p_loss || rejected < 0.066, "{n}: {p_win} {p_loss}: {rejected}");
            }
        }
    }

    #[test]
    fn the_statistic_uses_the_most_likely_probabilities_of_a_difference() {
        for (wins, losses, n, d) in [(9, 2, 60, 0.1), (9, 2, 60, -0.2), (3, 8, 20, 0.05), (0, 4, 12, -0.5)] {
            // The largest likelihood over the probability q of a loss, found by trying.
            let log_likelihood = |q: f64| {
                let log = |count: usize, p: f64| if count == 0 { 0.0 } else { count as f64 * p.ln() };
                log(wins, q + d) + log(losses, q) + log(n - wins - losses, 1.0 - 2.0 * q - d)
            };
            let least = (-d).max(0.0);
            let most = (1.0 - d) / 2.0;
            let tried = (1..200_000).map(|i| least + (most - least) * f64::from(i) / 200_000.0);
            let q = tried.max_by(|a, b| log_likelihood(*a).total_cmp(&log_likelihood(*b))).unwrap();
            let expected = (wins as f64 - losses as f64 - n as f64 * d) / (n as f64 * (2.0 * q + d * (1.0 - d))).sqrt();
            let found = single(wins, losses, n).statistic(d);
            assert!((found - expected).abs() < 1e-3 * expected.abs(), "{found} {expected}");
        }
    }

    #[test]
    fn the_test_is_mcnemars() {
        // z = 14 / √40 of many discordant pairs; the binomial test of few: 2 Σ_{i ≤ 2} C(11, i) / 2¹¹, and 4 to 0.
        assert!((single(27, 13, 60).p() - 0.026_857).abs() < 1e-6, "{}", single(27, 13, 60).p());
        assert!((single(9, 2, 60).p() - 0.065_430).abs() < 1e-6, "{}", single(9, 2, 60).p());
        assert!((single(4, 0, 60).p() - 0.125).abs() < 1e-9);
        assert_eq!(single(0, 0, 8).p(), 1.0);
        assert_eq!(single(5, 5, 30).p(), 1.0);
    }

    #[test]
    fn models_that_agree_everywhere_may_still_differ_on_other_prompts() {
        // z² / (n + z²)
        let Interval { lo, hi } = single(0, 0, 30).interval();
        assert!((hi - 3.841_459 / 33.841_459).abs() < 1e-6 && (lo + hi).abs() < 1e-12, "{lo} {hi}");
        let Interval { lo, hi } = single(12, 0, 12).interval();
        assert!(lo > 0.5 && hi == 1.0, "{lo} {hi}");
    }

    #[test]
    fn questions_of_one_prompt_count_as_much_as_they_differ() {
        let of = |prompts: &[PromptOutcomes]| PairedHits::new(prompts).unwrap();
        let one = single(8, 1, 20);
        let mut alike = vec![outcomes(2, 0, 2); 8];
        alike.resize(9, outcomes(0, 2, 2));
        alike.resize(20, outcomes(0, 0, 2));
        let alike = of(&alike);
        assert!((one.interval().lo - alike.interval().lo).abs() < 1e-9 && (one.p() - alike.p()).abs() < 1e-9);
        assert!((of(&[outcomes(1, 0, 2); 20]).n - 40.0).abs() < 1e-9, "no variation between prompts");
        assert_eq!(of(&[outcomes(0, 0, 2); 20]).n, 20.0, "the design effect is not known");
        assert_eq!(PairedHits::new(&[outcomes(1, 0, 1); 5]), None);
    }

    #[test]
    fn a_detectable_difference_is_found_four_times_in_five() {
        for (wins, losses, n) in [(3, 3, 30), (10, 4, 40), (0, 0, 30)] {
            let found = single(wins, losses, n);
            let size = found.smallest_detectable().unwrap();
            let disagree = ((wins + losses) as f64 / n as f64).max(size);
            let mut rejected = chances(n, (disagree + size) / 2.0, (disagree - size) / 2.0);
            rejected.retain(|((wins, losses), _)| single(*wins, *losses, n).p() < 0.05);
            let power = rejected.into_iter().map(|(_, chance)| chance).sum::<f64>();
            // Where all that disagree must be wins, the normal distribution errs on the safe side.
            assert!((0.72..0.97).contains(&power), "{wins} {losses} {n}: {size} {power}");
        }
    }

    #[test]
    fn two_questions_of_a_prompt_that_share_its_luck_are_covered() {
        let mut rng = Rng::new(9, "paired hits");
        let mut covered = 0;
        for _ in 0..2000 {
            let mut prompts = Vec::new();
            for _ in 0..30 {
                // Wins of 0.3 and losses of 0.1; both questions alike in every other prompt.
                let mut outcome = || match rng.unit() {
                    x if x < 0.3 => (1, 0),
                    x if x < 0.4 => (0, 1),
                    _ => (0, 0),
                };
                let first = outcome();
                let second = outcome();
                let second = if rng.unit() < 0.5 { first } else { second };
                prompts.push(outcomes(first.0 + second.0, first.1 + second.1, 2));
            }
            covered += usize::from(PairedHits::new(&prompts).unwrap().interval().contains(0.2));
        }
        let covered = covered as f64 / 2000.0;
        assert!((0.925..0.98).contains(&covered), "{covered}");
    }

    proptest! {
        #[test]
        fn of_many_discordant_pairs_the_interval_holds_0_if_and_only_if_p_is_at_least_5_percent(
            prompts in prop::collection::vec((1_usize..3, 0_usize..3), 40..60)
        ) {
            let prompts: Vec<_> = prompts.into_iter().map(|(wins, losses)| outcomes(wins, losses, 4)).collect();
            let found = PairedHits::new(&prompts).unwrap();
            let Interval { lo, hi } = found.interval();
            prop_assume!(found.n * (found.wins + found.losses) >= NORMAL);
            prop_assert!((found.p() - 0.05).abs() < 1e-6 || (found.p() < 0.05) == (lo > 0.0 || hi < 0.0), "{found:?}");
            prop_assert!(lo <= found.difference() && found.difference() <= hi && lo < hi);
        }

        #[test]
        fn swapping_the_models_turns_the_interval_round(prompts in prop::collection::vec((0_usize..2, 0_usize..2), 6..30)) {
            let swapped: Vec<_> = prompts.iter().map(|&(wins, losses)| outcomes(losses, wins, 2)).collect();
            let prompts: Vec<_> = prompts.iter().map(|&(wins, losses)| outcomes(wins, losses, 2)).collect();
            let there = PairedHits::new(&prompts).unwrap();
            let back = PairedHits::new(&swapped).unwrap();
            let a = there.interval();
            let b = back.interval();
            prop_assert!((a.lo + b.hi).abs() < 1e-9 && (a.hi + b.lo).abs() < 1e-9 && (there.p() - back.p()).abs() < 1e-12);
        }
    }
}
