//! Rows of differences as CSV.

use super::super::{Field, Row};
use anyhow::Result;
use std::io::Write;

const NUMBERS: [&str; 17] = [
    "unit",
    "n",
    "seeds",
    "cells",
    "mean_baseline",
    "mean_other",
    "diff",
    "lo",
    "hi",
    "detectable",
    "needed",
    "wins",
    "ties",
    "losses",
    "test",
    "p",
    "p_adjusted",
];

/// Writes rows with all their numbers in full; a missing one is an empty field.
pub(crate) fn write_rows(rows: &[Row], groups: &[Field], out: &mut impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let keys = ["baseline", "other", "metric", "region", "level"];
    csv.write_record(keys.into_iter().chain(groups.iter().map(|group| group.name())).chain(NUMBERS))?;
    for row in rows {
        let group = groups.iter().map(|group| row.group.get(group.name()).cloned().unwrap_or_default());
        let keys = [&row.baseline, &row.other, &row.metric].map(Clone::clone).into_iter();
        let keys = keys.chain([row.region.clone().unwrap_or_default(), row.level.name().to_owned()]);
        csv.write_record(keys.chain(group).chain(numbers(row)))?;
    }
    csv.flush()?;
    Ok(())
}

fn numbers(row: &Row) -> [String; 17] {
    let found = &row.difference;
    let optional = |number: Option<f64>| number.map(|x| x.to_string()).unwrap_or_default();
    [
        row.unit.clone().unwrap_or_default(),
        found.n.to_string(),
        found.seeds.map(|n| n.to_string()).unwrap_or_default(),
        found.cells.to_string(),
        found.mean_baseline.to_string(),
        found.mean_other.to_string(),
        found.diff.to_string(),
        optional(found.lo),
        optional(found.hi),
        optional(found.detectable),
        found.needed.map(|n| n.to_string()).unwrap_or_default(),
        found.wins.to_string(),
        found.ties.to_string(),
        found.losses.to_string(),
        found.test.map_or("", |test| test.name()).to_owned(),
        optional(found.p),
        optional(found.p_adjusted),
    ]
}
