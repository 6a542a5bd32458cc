//! Pairs of cells, and cells that have no other half.

use super::cells::{Cell, Cells, Key, Mask};
use super::field::{Field, COLUMNS};
use super::plan::Plan;
use crate::bail_usage;
use anyhow::{bail, Result};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The same cell on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    /// Without the columns that are compared.
    pub(super) key: Key,
    /// The value of the baseline.
    pub(super) a: f64,
    /// The value of the other.
    pub(super) b: f64,
}

/// Two sides, joined. Everything is in the order of the keys, whatever the order of the records was.
#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) pairs: Vec<Pair>,
    /// Cells of the baseline alone.
    pub(super) only_baseline: Vec<Key>,
    /// Cells of the other alone.
    pub(super) only_other: Vec<Key>,
    /// Pairs with different realised depths, which the same prompt has only with another tokenizer.
    pub(super) moved: usize,
}

/// A cell of one side: its key without the columns that are compared, and where it is from.
struct Half {
    key: Key,
    cell: Cell,
}

/// Joins the cells of both sides on every column that is not free.
///
/// # Errors
/// If a side holds a cell twice, or nothing can be joined.
pub(super) fn join(cells: &Cells, plan: &Plan, inputs: &[String]) -> Result<Joined> {
    let half = |of_baseline: bool| {
        let side = if of_baseline { &plan.baseline } else { &plan.other };
        let held = cells.iter().filter(|cell| side.holds(cell));
        let mut halves: Vec<Half> = held.map(|cell| Half { key: without(&cell.key, &plan.free), cell }).collect();
        halves.sort_unstable_by_key(|half| (half.key, half.cell.input, half.cell.record));
        match halves.windows(2).find(|two| two[0].key == two[1].key) {
            Some(two) => Err(duplicate(cells, plan, inputs, &two[0].cell, &two[1].cell)),
            None => Ok(halves),
        }
    };
    let (baseline, other) = (half(true)?, half(false)?);
    let mut joined = Joined::default();
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (baseline.get(i), other.get(j)) {
        match a.key.cmp(&b.key) {
            Ordering::Less => joined.only_baseline.push(a.key),
            Ordering::Greater => joined.only_other.push(b.key),
            Ordering::Equal => {
                let depth = |half: &Half| half.cell.key[Field::DepthRealPct as usize];
                joined.moved += usize::from(depth(a) != depth(b));
                joined.pairs.push(Pair { key: a.key, a: a.cell.value, b: b.cell.value });
            }
        }
        i += usize::from(a.key <= b.key);
        j += usize::from(b.key <= a.key);
    }
    joined.only_baseline.extend(baseline[i..].iter().map(|half| half.key));
    joined.only_other.extend(other[j..].iter().map(|half| half.key));
    if joined.pairs.is_empty() {
        nothing_in_common(cells, plan, &joined)?;
    }
    Ok(joined)
}

fn without(key: &Key, free: &Mask) -> Key {
    std::array::from_fn(|i| if free[i] { 0 } else { key[i] })
}

/// The same cell twice on one side: an error with the places, and the column that would tell the two apart.
fn duplicate(cells: &Cells, plan: &Plan, inputs: &[String], first: &Cell, second: &Cell) -> anyhow::Error {
    let place = |cell: &Cell| format!("record {} of {}", cell.record, inputs[cell.input as usize]);
    let cell = cells.describe(&first.key, &plan.free);
    let apart = Field::ALL.into_iter().find(|&column| {
        let differs = first.key[column as usize] != second.key[column as usize];
        !column.is_finding() && differs
    });
    let advice = match apart {
        Some(column) => {
            let names = [first, second].map(|cell| cells.name(&cell.key, column));
            format!("they differ in {column} ({} and {}): keep one with `wheres` {column}=…", names[0], names[1])
        }
        None => "was one run appended to another, or a file given twice?".into(),
    };
    anyhow::anyhow!("the same cell twice, {} and {}: {cell}; {advice}", place(first), place(second))
}

/// Says why no cell has another half.
fn nothing_in_common(cells: &Cells, plan: &Plan, joined: &Joined) -> Result<()> {
    let (Some(a), Some(b)) = (joined.only_baseline.first(), joined.only_other.first()) else {
        bail!("nothing to compare");
    };
    let values = |keys: &[Key], column: usize| -> BTreeSet<u32> { keys.iter().map(|key| key[column]).collect() };
    let is_apart =
        |&column: &usize| values(&joined.only_baseline, column).is_disjoint(&values(&joined.only_other, column));
    let apart = (0..COLUMNS).find(is_apart);
    let reason = match apart.map(|column| Field::ALL[column]) {
        Some(column) => {
            let advice = match column {
                Field::Seed => ": other prompts; `allow_different_prompts` pairs them by cell only",
                _ => "",
            };
            format!("{column} is {} and {} there{advice}", cells.name(a, column), cells.name(b, column))
        }
        None => format!("for example {} and {}", cells.describe(a, &plan.free), cells.describe(b, &plan.free)),
    };
    bail_usage!("{} and {} have no cell in common: {reason}", plan.baseline.label, plan.other.label)
}
