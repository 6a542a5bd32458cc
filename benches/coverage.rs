//! Coverage of 95 % intervals, by number of prompts and shape of what is measured: `cargo bench --bench coverage` prints
//! the tables of docs/results.md. `-- SAMPLES` says how many samples each number is from.
//!
//! The last columns are what difftool prints; the others are what it was chosen from.

use difftool::rng::Rng;
use difftool::stats::{mean, mean_interval, quantile, wilson_of_groups, Interval, PairedHits, Replicated};
use rayon::prelude::*;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Resamples of each bootstrap.
const RESAMPLES: usize = 999;
/// Numbers of prompts.
const PROMPTS: [usize; 4] = [6, 10, 30, 100];

fn main() {
    let asked = std::env::args().skip(1).find_map(|text| text.parse().ok());
    let samples: u64 = asked.unwrap_or(4000);
    println!("Share of {samples} samples whose 95 % interval holds the true mean, in %.\n");
    let rows = [means(samples), paired_hits(samples), accuracy(samples)].concat();
    println!("What is printed, and in brackets the percentile bootstrap:\n");
    print_head(&["", "6 prompts", "10", "30", "100"]);
    rows.iter().for_each(|row| println!("| {row} |"));
    println!();
    seeds(samples);
}

/// Returns the shares of samples, in percent, for which each of several intervals holds the truth; one that is missing does
/// not count.
fn coverage<const N: usize>(
    name: &str,
    samples: u64,
    holds: impl Fn(&mut Rng) -> [Option<bool>; N] + Sync,
) -> [f64; N] {
    let found: Vec<[Option<bool>; N]> =
        (0..samples).into_par_iter().map(|seed| holds(&mut Rng::new(seed, name))).collect();
    std::array::from_fn(|i| {
        let judged: Vec<bool> = found.iter().filter_map(|of_sample| of_sample[i]).collect();
        100.0 * judged.iter().filter(|&&holds| holds).count() as f64 / judged.len() as f64
    })
}

/// Prints a row for each number of prompts, and returns what is printed and the first interval as one row.
fn print_rows<const N: usize>(name: &str, of_prompts: impl Fn(usize) -> [f64; N]) -> String {
    let mut row = vec![name.to_owned()];
    for n in PROMPTS {
        let found = of_prompts(n);
        let cells: Vec<String> = found.iter().map(|share| format!("{share:.0}")).collect();
        println!("| {name} | {n} | {} |", cells.join(" | "));
        row.push(match found.as_slice() {
            [printed] => format!("{printed:.0}"),
            [first, .., printed] => format!("{printed:.0} ({first:.0})"),
            [] => String::new(),
        });
    }
    row.join(" | ")
}

/// Prints the head of a table.
fn print_head(columns: &[&str]) {
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

/// A distribution of the differences of prompts, with its mean.
type Shape = (&'static str, f64, fn(&mut Rng) -> f64);

/// Means: normal differences; log-probabilities with one long tail, and differences of two such; the log-probability of
/// answers of which one in ten or three in ten is missed.
fn means(samples: u64) -> Vec<String> {
    let shapes: [Shape; 7] = [
        ("normal", 0.0, |rng| rng.normal()),
        ("lognormal", 0.5_f64.exp(), |rng| rng.normal().exp()),
        ("long tail (lognormal, 1.5)", 1.125_f64.exp(), |rng| (1.5 * rng.normal()).exp()),
        ("two long tails", 0.0, |rng| (1.5 * rng.normal()).exp() - (1.5 * rng.normal()).exp()),
        ("bimodal, 3 of 10 missed", -1.5, |rng| missed(rng, 0.3)),
        ("rare misses, 1 of 10", -0.5, |rng| missed(rng, 0.1)),
        ("halves (two questions)", 0.2, |rng| 0.5 * (f64::from(rng.unit() < 0.2) + f64::from(rng.unit() < 0.2))),
    ];
    print_head(&["differences", "n", "percentile bootstrap", "BCa", "studentised bootstrap", "Student's t", "printed"]);
    let rows = shapes.map(|(name, truth, draw)| {
        print_rows(name, |n| {
            coverage(&format!("{name} {n}"), samples, |rng| {
                let numbers: Vec<f64> = (0..n).map(|_| draw(rng)).collect();
                let resampled = Resampled::new(&numbers, rng);
                [
                    Some(resampled.percentiles(0.025, 0.975)),
                    resampled.bca(),
                    resampled.studentised(),
                    Some(students_t(&numbers)),
                    mean_interval(&numbers),
                ]
                .map(|interval| Some(interval?.contains(truth)))
            })
        })
    });
    println!();
    rows.into()
}

/// The log-probability of an answer that is missed with a probability.
fn missed(rng: &mut Rng, probability: f64) -> f64 {
    match rng.unit() < probability {
        true => -5.0 + 0.5 * rng.normal(),
        false => 0.1 * rng.normal(),
    }
}

/// Means and studentised means of resamples of numbers.
struct Resampled<'a> {
    numbers: &'a [f64],
    mean: f64,
    /// Ascending.
    means: Vec<f64>,
    /// Ascending; infinite where all drawn numbers are equal.
    ratios: Vec<f64>,
}

impl<'a> Resampled<'a> {
    fn new(numbers: &'a [f64], rng: &mut Rng) -> Self {
        let whole = mean(numbers).unwrap();
        let (mut means, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..RESAMPLES {
            let drawn: Vec<f64> = numbers.iter().map(|_| *rng.pick(numbers)).collect();
            let of_drawn = mean(&drawn).unwrap();
            means.push(of_drawn);
            ratios.push((of_drawn - whole) / standard_error(&drawn).max(1e-12));
        }
        means.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        Self { numbers, mean: whole, means, ratios }
    }

    fn percentiles(&self, lo: f64, hi: f64) -> Interval {
        Interval { lo: quantile(&self.means, lo), hi: quantile(&self.means, hi) }
    }

    /// Bias-corrected and accelerated (Efron 1987).
    fn bca(&self) -> Option<Interval> {
        let normal = Normal::standard();
        let below = self.means.iter().filter(|&&mean| mean < self.mean).count() as f64;
        let equal = self.means.iter().filter(|&&mean| mean == self.mean).count() as f64;
        let bias = normal.inverse_cdf(((below + 0.5 * equal) / RESAMPLES as f64).clamp(0.001, 0.999));
        let power = |exponent: i32| self.numbers.iter().map(|x| (x - self.mean).powi(exponent)).sum::<f64>();
        let acceleration = power(3) / (6.0 * power(2).powf(1.5));
        let level = |z: f64| normal.cdf(bias + (bias + z) / (1.0 - acceleration * (bias + z)));
        acceleration.is_finite().then(|| self.percentiles(level(-1.96), level(1.96)))
    }

    /// Studentised (Hall 1988); `None` if an end is infinite.
    fn studentised(&self) -> Option<Interval> {
        let error = standard_error(self.numbers);
        let (lo, hi) = (quantile(&self.ratios, 0.025), quantile(&self.ratios, 0.975));
        let is_usable = error > 0.0 && lo > -1e6 && hi < 1e6;
        is_usable.then_some(Interval { lo: self.mean - hi * error, hi: self.mean - lo * error })
    }
}

fn standard_error(numbers: &[f64]) -> f64 {
    let (n, mean) = (numbers.len() as f64, mean(numbers).unwrap());
    (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
}

fn students_t(numbers: &[f64]) -> Interval {
    let t = StudentsT::new(0.0, 1.0, numbers.len() as f64 - 1.0).unwrap().inverse_cdf(0.975);
    let (mean, half) = (mean(numbers).unwrap(), t * standard_error(numbers));
    Interval { lo: mean - half, hi: mean + half }
}

/// Differences of hits, of one question a prompt.
fn paired_hits(samples: u64) -> Vec<String> {
    print_head(&["differences of hits", "n", "percentile bootstrap", "Agresti-Min", "printed"]);
    let rows = [(0.1, 0.0), (0.1, 0.1), (0.3, 0.1), (0.5, 0.0)].map(|(wins, losses)| {
        let name = format!("hits, {:.0} % won and {:.0} % lost", 100.0 * wins, 100.0 * losses);
        print_rows(&name, |n| {
            coverage(&format!("{name} {n}"), samples, |rng| {
                let outcome = |x: f64| f64::from(x < wins) - f64::from(x >= wins && x < wins + losses);
                let numbers: Vec<f64> = (0..n).map(|_| outcome(rng.unit())).collect();
                let count = |sign: f64| numbers.iter().filter(|&&x| x == sign).count();
                let prompts: Vec<_> =
                    numbers.iter().map(|&x| (usize::from(x > 0.0), usize::from(x < 0.0), 1)).collect();
                let intervals = [
                    Resampled::new(&numbers, rng).percentiles(0.025, 0.975),
                    agresti_min(count(1.0) as f64, count(-1.0) as f64, n as f64),
                    PairedHits::new(&prompts).unwrap().interval(),
                ];
                intervals.map(|interval| Some(interval.contains(wins - losses)))
            })
        })
    });
    println!();
    rows.into()
}

/// The interval of Wald with half a pair more of each kind (Agresti & Min 2005).
fn agresti_min(wins: f64, losses: f64, n: f64) -> Interval {
    let (wins, losses, n) = (wins + 0.5, losses + 0.5, n + 2.0);
    let difference = (wins - losses) / n;
    let half = 1.96 * (wins + losses - n * difference * difference).sqrt() / n;
    Interval { lo: difference - half, hi: difference + half }
}

/// Accuracy, of one question a prompt and of two that are alike in every other prompt.
fn accuracy(samples: u64) -> Vec<String> {
    print_head(&["accuracy", "n", "printed"]);
    let rows = [(0.9, 1), (0.6, 1), (0.9, 2), (0.6, 2)].map(|(truth, questions)| {
        let name = format!("accuracy of {:.0} %, questions a prompt: {questions}", 100.0 * truth);
        print_rows(&name, |n| {
            coverage(&format!("{name} {n}"), samples, |rng| {
                let prompt = |_| {
                    let mut hit = || rng.unit() < truth;
                    let (first, second) = (hit(), hit());
                    let second = if rng.unit() < 0.5 { first } else { second };
                    match questions {
                        1 => (usize::from(first), 1),
                        _ => (usize::from(first) + usize::from(second), 2),
                    }
                };
                let prompts: Vec<(usize, usize)> = (0..n).map(prompt).collect();
                [Some(wilson_of_groups(&prompts).contains(truth))]
            })
        })
    });
    println!();
    rows.into()
}

/// Training seeds: normal ones, and those that either learn, with a difference of 1, or do not.
fn seeds(samples: u64) {
    print_head(&["", "3 training seeds", "5", "10"]);
    let shapes: [Shape; 3] = [
        ("normal seeds", 0.0, |rng| rng.normal()),
        ("half of the seeds learn", 0.5, |rng| f64::from(rng.unit() < 0.5)),
        ("3 of 10 seeds learn", 0.3, |rng| f64::from(rng.unit() < 0.3)),
    ];
    for (name, truth, draw) in shapes {
        let shares = [3, 5, 10].map(|seeds| {
            let [share] = coverage(&format!("{name} {seeds}"), samples, |rng| {
                let difficulty: Vec<f64> = (0..20).map(|_| 0.3 * rng.normal()).collect();
                let table: Vec<Vec<f64>> = (0..seeds)
                    .map(|_| {
                        let level = draw(rng);
                        difficulty.iter().map(|hard| level + hard + 0.1 * rng.normal()).collect()
                    })
                    .collect();
                [Replicated::new(&table).unwrap().interval.map(|interval| interval.contains(truth))]
            });
            format!("{share:.0}")
        });
        println!("| {name} | {} |", shares.join(" | "));
    }
}
