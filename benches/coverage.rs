//! Coverage of 95 % intervals, by number of prompts and shape of what is measured: `cargo bench --bench coverage` prints
//! the tables of docs/results.md. `-- SAMPLES` says how many samples each number is from.
//!
//! The last column is what difftool prints, the one before it the percentile bootstrap.

use difftool::base::rng::Rng;
use difftool::stats::{mean, quantile, test_mean, wilson_of_groups, Interval, PairedHits, PromptOutcomes, Replicated};
use rayon::prelude::*;

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
    print_head(&["differences", "n", "percentile bootstrap", "printed"]);
    let rows = shapes.map(|(name, truth, draw)| {
        print_rows(name, |n| {
            coverage(&format!("{name} {n}"), samples, |rng| {
                let numbers: Vec<f64> = (0..n).map(|_| draw(rng)).collect();
                [Some(bootstrap(&numbers, rng)), test_mean(&numbers).map(|test| test.interval)]
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

/// The percentile bootstrap.
fn bootstrap(numbers: &[f64], rng: &mut Rng) -> Interval {
    let resample = |_| mean(&numbers.iter().map(|_| *rng.pick(numbers)).collect::<Vec<f64>>()).unwrap();
    let mut means: Vec<f64> = (0..RESAMPLES).map(resample).collect();
    means.sort_by(f64::total_cmp);
    Interval { lo: quantile(&means, 0.025), hi: quantile(&means, 0.975) }
}

/// Differences of hits, of one question a prompt.
fn paired_hits(samples: u64) -> Vec<String> {
    print_head(&["differences of hits", "n", "percentile bootstrap", "printed"]);
    let rows = [(0.1, 0.0), (0.1, 0.1), (0.3, 0.1), (0.5, 0.0)].map(|(wins, losses)| {
        let name = format!("hits, {:.0} % won and {:.0} % lost", 100.0 * wins, 100.0 * losses);
        print_rows(&name, |n| {
            coverage(&format!("{name} {n}"), samples, |rng| {
                let outcome = |x: f64| f64::from(x < wins) - f64::from(x >= wins && x < wins + losses);
                let numbers: Vec<f64> = (0..n).map(|_| outcome(rng.unit())).collect();
                let mut prompts = Vec::new();
                for &x in &numbers {
                    let wins = usize::from(x > 0.0);
                    prompts.push(PromptOutcomes { wins, losses: usize::from(x < 0.0), questions: 1 });
                }
                let intervals = [bootstrap(&numbers, rng), PairedHits::new(&prompts).unwrap().interval()];
                intervals.map(|interval| Some(interval.contains(wins - losses)))
            })
        })
    });
    println!();
    rows.into()
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
