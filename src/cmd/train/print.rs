//! Prints the summary of a spec as tables.

use crate::stats::{Interval, LEAST_SEEDS};
use crate::table::{left, percent, points, right, short, Table};
use crate::train::{
    at_sizes, contrasts, growth, inside, Contrasted, Growth, Inside, Level, Size, TrainSpec, TrainingCurves,
    VariantSummary, INSIDE,
};
use anyhow::Result;
use std::collections::BTreeSet;
use std::io::Write;

/// Prints a line per variant, a line per contrast, and measurements inside the layers at several times.
pub(super) fn summary(spec: &TrainSpec, curves: &TrainingCurves, lines: &[VariantSummary]) -> Result<()> {
    let mut out = crate::terminal::stdout();
    let finished: usize = lines.iter().map(|line| line.seeds).sum();
    writeln!(out, "{finished} of {} runs are finished.", spec.runs().len())?;
    if let Some(first) = lines.first() {
        writeln!(out, "\n{}", recall(lines, &first.variant))?;
        if lines.iter().any(|line| line.seeds < LEAST_SEEDS) {
            writeln!(out, "\nFewer than three seeds: no interval, and nothing to generalise from.")?;
        } else {
            writeln!(out, "\nIntervals are over training seeds (Student's t); differences are paired by seed.")?;
        }
    }
    if let Some(table) = of_contrasts(spec, curves) {
        writeln!(out, "\nContrasts at the end, paired by seed, in points [95 %]: first digits, and\nprompts with one needle answered exactly.\n\n{table}")?;
    }
    writeln!(out, "\nInside: means over the seeds that got there ± half their 95 % intervals, after so\nmany tokens.")?;
    let lines = inside(spec, curves);
    writeln!(out, "\n{}", by_time(&lines, "seeds", |line| line.seeds.to_string()))?;
    for (i, (heading, _)) in INSIDE.iter().enumerate() {
        writeln!(out, "\n{}", by_time(&lines, heading, |line| line.levels[i].map_or("-".to_owned(), plus_minus)))?;
    }
    Ok(())
}

/// Prints the results at several model sizes and their growth with the number of parameters; nothing without other sizes.
pub(super) fn scale(sizes: &[Size]) -> Result<()> {
    if sizes.is_empty() {
        return Ok(());
    }
    let mut out = crate::terminal::stdout();
    writeln!(out, "\nSizes: means over seeds at the end [95 %].\n\n{}", of_sizes(sizes))?;
    let growth = growth(sizes);
    if growth.is_empty() {
        writeln!(out, "\nNo seed is there at all sizes: no line can be fitted.")?;
        return Ok(());
    }
    let first = &growth[0].variant;
    writeln!(
        out,
        "\nGrowth: what ten times the parameters change, the slope of a line over all {} sizes",
        sizes.len()
    )?;
    writeln!(out, "for each seed [95 %]: points of first digits, and nats of ordinary text.\n")?;
    writeln!(out, "{}", of_growth(&growth, first))?;
    Ok(())
}

fn of_sizes(sizes: &[Size]) -> Table {
    let mut table = Table::new(&[
        left("variant").key(),
        right("parameters").key(),
        right("seeds"),
        right("first digits %"),
        right("text, nats"),
        right("one needle %"),
    ]);
    for at in at_sizes(sizes) {
        table.row([
            at.variant.clone(),
            at.parameters.to_string(),
            at.seeds.to_string(),
            cell(at.first_digit, percent),
            cell(at.text_nats, number),
            cell(at.one_needle, percent),
        ]);
    }
    table
}

fn of_growth(lines: &[Growth], first: &str) -> Table {
    let mut table = Table::new(&[
        left("variant").key(),
        right("% of tokens").key(),
        right("seeds"),
        right("first digits"),
        right(format!("less {first}")),
        right("text, nats"),
        right(format!("less {first}")),
    ]);
    for line in lines {
        table.row([
            line.variant.clone(),
            format!("{:.0}", 100.0 * line.time),
            line.seeds.to_string(),
            cell(line.first_digit, points),
            cell(line.first_digit_less_first, points),
            cell(line.text_nats, number),
            cell(line.text_nats_less_first, number),
        ]);
    }
    table
}

fn recall(lines: &[VariantSummary], first: &str) -> Table {
    let mut table = Table::new(&[
        left("variant"),
        right("seeds"),
        right("0.9 of first digits"),
        right("after tokens"),
        right("earlier/later"),
        right("first digits % [95 %]"),
        right(format!("less {first} [95 %]")),
        right("one needle %"),
    ]);
    for line in lines {
        let interval = |lo: Option<f64>, hi: Option<f64>| Some(Interval { lo: lo?, hi: hi? });
        let digits = interval(line.first_digit_lo, line.first_digit_hi);
        let of_difference = interval(line.difference_lo, line.difference_hi);
        table.row([
            line.variant.clone(),
            line.seeds.to_string(),
            format!("{} of {}", line.learned, line.seeds),
            line.learned_tok.map_or("-".to_owned(), |tokens| tokens.to_string()),
            line.difference.map_or("-".to_owned(), |_| format!("{}/{}", line.earlier, line.later)),
            within(line.first_digit, digits, percent),
            line.difference.map_or("-".to_owned(), |difference| within(difference, of_difference, points)),
            line.one_needle.map_or("-".to_owned(), percent),
        ]);
    }
    table
}

fn of_contrasts(spec: &TrainSpec, curves: &TrainingCurves) -> Option<Table> {
    let mut table = Table::new(&[left("contrast"), right("seeds"), right("first digits"), right("one needle")]);
    let found = contrasts(spec, curves);
    for Contrasted { name, seeds, first_digit, one_needle } in &found {
        table.row([name.clone(), seeds.to_string(), cell(*first_digit, points), cell(*one_needle, points)]);
    }
    (!found.is_empty()).then_some(table)
}

/// Returns a table with a row for each variant and a column for each time.
fn by_time(lines: &[Inside], heading: &'static str, text: impl Fn(&Inside) -> String) -> Table {
    let times: BTreeSet<usize> = lines.iter().map(|line| line.tokens).collect();
    let mut headings = vec![left(heading).key()];
    headings.extend(times.iter().map(|tokens| right(tokens.to_string())));
    let mut table = Table::new(&headings);
    for of_variant in lines.chunk_by(|a, b| a.variant == b.variant) {
        let at = |tokens: &usize| of_variant.iter().find(|line| line.tokens == *tokens);
        let cells = times.iter().map(|tokens| at(tokens).map_or("-".to_owned(), &text));
        table.row(std::iter::once(of_variant[0].variant.clone()).chain(cells));
    }
    table
}

/// Formats a quantity over seeds; `-` for `None`.
fn cell(level: impl Into<Option<Level>>, text: fn(f64) -> String) -> String {
    level.into().map_or("-".to_owned(), |Level { mean, interval }| within(mean, interval, text))
}

/// Formats a mean with half the width of its symmetric interval: `0.5 ± 0.1`.
fn plus_minus(Level { mean, interval }: Level) -> String {
    match interval {
        Some(Interval { lo, hi }) => format!("{} ± {}", number(mean), number((hi - lo) / 2.0)),
        None => number(mean),
    }
}

fn number(x: f64) -> String {
    short(Some(x))
}

/// Formats a number with its interval, if it has one: `0.5 [0.4, 0.6]`.
fn within(x: f64, interval: Option<Interval>, text: impl Fn(f64) -> String) -> String {
    match interval {
        Some(Interval { lo, hi }) => format!("{} [{}, {}]", text(x), text(lo), text(hi)),
        None => text(x),
    }
}
