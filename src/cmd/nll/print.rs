//! The tables, or the same as JSON.

use super::{Difference, Position, Report, Row};
use crate::cmd::execute::Found;
use crate::cmd::session::Session;
use crate::measure::Estimate;
use crate::table::{left, percent, right, Table};
use anyhow::Result;
use serde_json::json;
use std::io::Write;

/// Prints the tables.
pub(in crate::cmd) fn print(session: &Session, found: &Found) -> Result<()> {
    let report = Report::new(session, found);
    let (rows, differences, positions) = (report.rows(), report.differences(), report.positions());
    let mut out = crate::terminal::stdout();
    if session.output.json {
        let ar_max_count = session.setup.ar_max_count();
        let all = json!({ "models": rows, "differences": differences, "positions": positions, "ar_max_count": ar_max_count, "skip": report.skip });
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "Negative log-likelihood of the next token in nats [95 % bootstrap interval over {}]\n",
        report.drawn_from()
    )?;
    writeln!(out, "{}\n\n{}", table(&rows), ar_hit_rule(session))?;
    if report.skip > 0 {
        writeln!(
            out,
            "Without the first {} tokens of every window: they say how a window begins (--skip)",
            report.skip
        )?;
    }
    if !differences.is_empty() {
        writeln!(out, "\nPaired differences on the same tokens\n\n{}", difference_table(&differences))?;
    }
    if report.others().count() + 1 < report.scored.len() {
        writeln!(
            out,
            "\nModels with other tokens than the first have no paired differences; compare bits per byte, \
             and only where their windows are of the same text"
        )?;
    }
    writeln!(out, "\nBy position in the window\n\n{}", position_table(&positions))?;
    Ok(())
}

/// What counts as an AR hit.
fn ar_hit_rule(session: &Session) -> String {
    let rule = "AR hits complete a bigram seen earlier in their window";
    let count = session.setup.ar_max_count();
    if count == 0 {
        return format!("{rule}, however frequent it is");
    }
    let without = session.setup.models.iter().filter(|model| model.tokenizer().is_err());
    let without: Vec<&str> = without.map(|model| model.name.as_str()).collect();
    let but = match without.as_slice() {
        [] => String::new(),
        names => format!(" (not left out for {}, without tokenizer)", names.join(", ")),
    };
    format!("{rule} that occurs at most {count} times in 200k tokens of reference prose{but}")
}

/// `0.838 [0.835, 0.841]`.
fn nats(found: Option<Estimate>) -> String {
    let Some(Estimate { mean, interval, .. }) = found else { return "-".to_owned() };
    let interval = interval.map_or(String::new(), |i| format!(" [{:.3}, {:.3}]", i.lo, i.hi));
    format!("{mean:.3}{interval}")
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(found: Option<Estimate>) -> String {
    let Some(Estimate { mean, interval, .. }) = found else { return "-".to_owned() };
    let interval = interval.map_or(String::new(), |i| format!(" [{:+.4}, {:+.4}]", i.lo, i.hi));
    format!("{mean:+.4}{interval}")
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("windows"),
        right("tokens"),
        right("NLL"),
        right("perplexity"),
        right("bits/byte"),
        right("AR hits %"),
        right("NLL of AR hits"),
        right("NLL of others"),
    ]);
    for row in rows {
        table.row([
            row.label.clone(),
            row.windows.to_string(),
            row.tokens.to_string(),
            nats(row.nll_nats),
            row.perplexity.map_or("-".to_owned(), |x| format!("{x:.3}")),
            row.bits_per_byte.map_or("-".to_owned(), |x| format!("{x:.3}")),
            row.ar_hit_share.map_or("-".to_owned(), percent),
            nats(row.ar_hit_nll_nats),
            nats(row.other_nll_nats),
        ]);
    }
    table
}

fn difference_table(differences: &[Difference]) -> Table {
    let mut table = Table::new(&[left("difference"), left("of"), right("tokens"), right("NLL")]);
    for found in differences {
        table.row([
            format!("{} - {}", found.of, found.baseline),
            found.tokens.name().to_owned(),
            found.nll_nats.map_or("-".to_owned(), |nll| nll.n.to_string()),
            difference_nats(found.nll_nats),
        ]);
    }
    table
}

fn position_table(positions: &[Position]) -> Table {
    let headings = [left("model"), right("positions"), right("tokens"), right("NLL"), right("minus the first model")];
    let mut table = Table::new(&headings);
    for at in positions {
        table.row([
            at.model.clone(),
            format!("{}-{}", at.first, at.last),
            at.nll_nats.map_or("-".to_owned(), |nll| nll.n.to_string()),
            nats(at.nll_nats),
            difference_nats(at.difference_nats),
        ]);
    }
    table
}
