//! What a spec came to, as a table on stdout.

use crate::stats::Interval;
use crate::table::{left, percent, points, right, Table};
use crate::train::VariantSummary;
use anyhow::Result;
use std::io::Write;

/// Prints a line per variant.
pub(super) fn summary(lines: &[VariantSummary]) -> Result<()> {
    let Some(first) = lines.first() else { return Ok(()) };
    let difference = format!("less {} [95 %]", first.variant);
    let mut table = Table::new(&[
        left("variant"),
        right("seeds"),
        right("0.9 of first digits"),
        right("after tokens"),
        right("first digits % [95 %]"),
        right(difference),
        right("one needle %"),
    ]);
    for line in lines {
        let interval = |lo: Option<f64>, hi: Option<f64>| Some(Interval { lo: lo?, hi: hi? });
        let digits = match interval(line.first_digit_lo, line.first_digit_hi) {
            Some(Interval { lo, hi }) => format!("{} [{}, {}]", percent(line.first_digit), percent(lo), percent(hi)),
            None => percent(line.first_digit),
        };
        let difference = match (line.difference, interval(line.difference_lo, line.difference_hi)) {
            (Some(difference), Some(Interval { lo, hi })) => {
                format!("{} [{}, {}]", points(difference), points(lo), points(hi))
            }
            (Some(difference), None) => points(difference),
            (None, _) => "-".to_owned(),
        };
        table.row([
            line.variant.clone(),
            line.seeds.to_string(),
            format!("{} of {}", line.learned, line.seeds),
            line.learned_tok.map_or("-".to_owned(), |tokens| tokens.to_string()),
            digits,
            difference,
            line.one_needle.map_or("-".to_owned(), percent),
        ]);
    }
    let mut out = crate::terminal::stdout();
    writeln!(out, "{table}")?;
    if lines.iter().any(|line| line.seeds < 3) {
        writeln!(out, "\nFewer than three seeds: no interval, and nothing to generalise from.")?;
    } else {
        writeln!(out, "\nIntervals are over training seeds (Student's t); differences are paired by seed.")?;
    }
    Ok(())
}
