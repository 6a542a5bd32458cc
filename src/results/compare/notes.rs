//! Notes on a comparison for the reader, one sentence each.

use super::super::rows::{Pairing, Row};
use super::super::table::plural;
use super::request::Request;
use names::column::Column;
use stats::{LEAST_PROMPTS, LEAST_SEEDS};
use std::collections::BTreeSet;

/// Below so many prompts intervals of numbers with a long tail are too narrow.
const FEW_PROMPTS: usize = 20;

/// Below so many training seeds intervals are too narrow if some seeds learn and others do not.
const FEW_SEEDS: usize = 6;

/// Says when pairs are not pairs of the same prompt.
pub(super) fn note_pairs(pairings: &[Pairing<'_>], request: &Request, notes: &mut Vec<String>) {
    if pairings.iter().any(|pairing| pairing.free.contains(&Column::Seed)) {
        notes.push(match request.by.filter(|by| by.makes_prompts()) {
            Some(by) => format!(
                "prompts of another {by} are others: records are paired by their sample, which takes nothing out of the noise"
            ),
            None => "different prompts: the pairing is by setting and sample only, which takes nothing out of the noise".into(),
        });
        return;
    }
    for Pairing { baseline, other, joined, .. } in pairings.iter().filter(|pairing| pairing.joined.moved > 0) {
        notes.push(format!(
            "{baseline} and {other}: in {} of {} pairs the needle is at other depths: other tokenizers, or other prompts",
            joined.moved,
            joined.pairs.len()
        ));
    }
}

pub(super) fn note_rows(rows: &[Row], request: &Request, groups: &[Column], notes: &mut Vec<String>) {
    let kinds: Vec<&str> =
        groups.iter().filter(|column| !request.group_by.contains(column)).map(|column| column.name()).collect();
    if !kinds.is_empty() {
        notes.push(format!("a row for each {}: their values are not averaged", kinds.join(", ")));
    }
    if rows.len() > 1 {
        notes.push(format!("verdicts are by p < 0.05, corrected for all {} rows (Holm)", rows.len()));
    }
    let seeds: BTreeSet<_> = rows.iter().filter_map(|row| row.difference.seeds).collect();
    if let (Some(least), Some(most)) = (seeds.first(), seeds.last()) {
        notes.push(seeds_note(*least, *most));
        return;
    }
    let prompts: BTreeSet<usize> = rows.iter().map(|row| row.difference.n).collect();
    if prompts.range(1..LEAST_PROMPTS).next().is_some() {
        notes.push(format!("n below {LEAST_PROMPTS} has neither interval nor test"));
    }
    if let Some(least) = prompts.range(LEAST_PROMPTS..FEW_PROMPTS).next() {
        notes.push(format!(
            "n below {FEW_PROMPTS}, down to {least}: intervals are too narrow if a few of them differ by far more than others"
        ));
    }
}

/// A note on the units of intervals, where models are replicates.
fn seeds_note(least: usize, most: usize) -> String {
    let seeds = plural(most, "training seed");
    let count = if least == most { seeds } else { format!("{least} to {seeds}") };
    match (least < LEAST_SEEDS, most < LEAST_SEEDS) {
        (_, true) => format!(
            "{count}: differences of these models, which say nothing of other seeds; intervals take {LEAST_SEEDS}"
        ),
        (true, _) => format!("intervals rest on {count}, on the prompts of all; below {LEAST_SEEDS} there are none"),
        _ if least < FEW_SEEDS => format!(
            "intervals rest on {count} and their prompts; if some seeds learn and others do not, they hold the truth about two \
             times in three"
        ),
        _ => format!("intervals rest on {count} and their prompts: they are of other seeds and other prompts"),
    }
}
