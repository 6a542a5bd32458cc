//! Coverage of 95 % intervals, by number of prompts and shape of what is measured: `cargo bench --bench coverage` prints
//! the tables of docs/results.md. `-- SAMPLES` says how many samples each number is from; `-- verdicts` prints the last table alone.
//!
//! The last column is what difftool prints, the one before it the percentile bootstrap. The last table is of verdicts: how many
//! tables without an effect have a decided row, and how many rows with one are decided.

use rayon::prelude::*;
use stats::Rng;
use stats::{holm, mean, quantile, test_mean, wilson_of_groups, Interval, PairedHits, PromptOutcomes, Replicated};

/// Resamples of each bootstrap.
const RESAMPLES: usize = 999;
/// Numbers of prompts.
const PROMPTS: [usize; 4] = [6, 10, 30, 100];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let samples: u64 = arguments.iter().find_map(|text| text.parse().ok()).unwrap_or(4000);
    if !arguments.iter().any(|text| text == "verdicts") {
        intervals(samples);
    }
    verdicts(samples);
}

/// Coverage of intervals.
fn intervals(samples: u64) {
    println!("Share of {samples} samples whose 95 % interval holds the true mean, in %.\n");
    let rows = [means(samples), paired_hits(samples), accuracy(samples)].concat();
    println!("What is printed, and in brackets the percentile bootstrap:\n");
    print_head(&["", "6 prompts", "10", "30", "100"]);
    rows.iter().for_each(|row| println!("| {row} |"));
    println!();
    seeds(samples);
    println!();
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
    if rng.unit() < probability {
        -5.0 + 0.5 * rng.normal()
    } else {
        0.1 * rng.normal()
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

/// Rows of a table of verdicts, and how many of them have an effect where one is to be found.
const ROWS: usize = 12;
const ROWS_WITH_EFFECT: usize = 3;
/// Size of that effect, in standard errors of the mean.
const EFFECT: f64 = 4.0;
/// Patterns of signs that are drawn where there are more.
const PATTERNS: usize = 999;

/// Verdicts of tables of independent rows over the same prompts, in %: what is printed, and in brackets those by flipped signs.
fn verdicts(samples: u64) {
    let shapes: [Shape; 4] = [
        ("normal", 0.0, |rng| rng.normal()),
        ("two long tails", 0.0, |rng| (1.5 * rng.normal()).exp() - (1.5 * rng.normal()).exp()),
        ("lognormal", 0.0, |rng| rng.normal().exp() - 0.5_f64.exp()),
        ("long tail (lognormal, 1.5)", 0.0, |rng| (1.5 * rng.normal()).exp() - 1.125_f64.exp()),
    ];
    let wanted = [("tables without an effect that have a decided row", 0.0), ("decided rows with an effect", EFFECT)];
    for (title, effect) in wanted {
        print_head(&[title, "6 prompts", "10", "30"]);
        for shape in shapes {
            let cells = [6, 10, 30].map(|n| {
                let [printed, flipped] = decided(shape, n, effect, samples);
                format!("{printed:.0} ({flipped:.0})")
            });
            println!("| {} | {} |", shape.0, cells.join(" | "));
        }
        println!();
    }
}

/// The share of tables with a decided row if there is no effect, otherwise of the rows with one that are decided, in %, by each
/// kind of verdict.
fn decided((name, _, draw): Shape, n: usize, effect: f64, samples: u64) -> [f64; 2] {
    let mut rng = Rng::new(0, name);
    let variance = (0..100_000).map(|_| draw(&mut rng).powi(2)).sum::<f64>() / 100_000.0;
    let shift = effect * (variance / n as f64).sqrt();
    let share_of = |p_values: Vec<f64>| {
        let decided = p_values[..if effect == 0.0 { ROWS } else { ROWS_WITH_EFFECT }].iter().filter(|&&p| p < 0.05);
        if effect == 0.0 {
            decided.count().min(1) as f64
        } else {
            decided.count() as f64 / ROWS_WITH_EFFECT as f64
        }
    };
    let shares = (0..samples).into_par_iter().map(|seed| {
        let mut rng = Rng::new(seed, &format!("{name} {n}"));
        let mut table: Vec<Vec<f64>> = (0..ROWS).map(|_| (0..n).map(|_| draw(&mut rng)).collect()).collect();
        table[..ROWS_WITH_EFFECT].iter_mut().flatten().for_each(|x| *x += shift);
        let p_values: Vec<f64> = table.iter().map(|row| test_mean(row).map_or(1.0, |test| test.p)).collect();
        [share_of(holm(&p_values)), share_of(by_signs(&table, &mut rng))]
    });
    let shares: Vec<[f64; 2]> = shares.collect();
    [0, 1].map(|kind| 100.0 * shares.iter().map(|of_kinds| of_kinds[kind]).sum::<f64>() / samples as f64)
}

/// The p-value of each row of (rows, prompts), corrected for all: the largest |t| of the rows that are no clearer, with the signs of
/// prompts flipped in all rows alike (Westfall and Young, 1993). Exact of symmetrical numbers.
fn by_signs(table: &[Vec<f64>], rng: &mut Rng) -> Vec<f64> {
    let n = table[0].len();
    // Squares stay as they are, so this has the order of |t|.
    let size = |row: &[f64], signs: &[f64]| {
        let sum: f64 = row.iter().zip(signs).map(|(x, sign)| x * sign).sum();
        sum.abs() / row.iter().map(|x| x * x).sum::<f64>().sqrt()
    };
    let unflipped: Vec<f64> = table.iter().map(|row| size(row, &vec![1.0; n])).collect();
    let mut unclear_first: Vec<usize> = (0..table.len()).collect();
    unclear_first.sort_by(|&a, &b| unflipped[a].total_cmp(&unflipped[b]));
    // The sign of the last prompt can stay.
    let all = 1 << (n - 1);
    let patterns = PATTERNS.min(all - 1);
    let mut as_large = vec![1; table.len()];
    for pattern in 1..=patterns {
        let bits = if patterns == PATTERNS { rng.below(all) } else { pattern };
        let signs: Vec<f64> = (0..n).map(|prompt| if bits >> prompt & 1 == 1 { -1.0 } else { 1.0 }).collect();
        let mut largest = 0.0_f64;
        for &row in &unclear_first {
            largest = largest.max(size(&table[row], &signs));
            as_large[row] += usize::from(largest > unflipped[row] * (1.0 - 1e-12));
        }
    }
    let mut p_values = vec![0.0; table.len()];
    let mut clearer = 0.0_f64;
    for &row in unclear_first.iter().rev() {
        clearer = clearer.max(as_large[row] as f64 / (patterns + 1) as f64);
        p_values[row] = clearer;
    }
    p_values
}
