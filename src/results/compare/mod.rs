//! Comparing runs, cell by cell.
//!
//! Two measurements are of the same *cell* if everything that was asked for is the same but what is compared: for two
//! models the same prompt (its settings and its seed), the same question, rows, bits, layer, head, metric and region.
//! Such cells are paired, and what is reported is the difference within pairs; cells without another half are listed
//! and left out. The way from records to rows:
//!
//! 1. [`Input`]s are found and their manifests compared: other prompts are refused, all else that differs is said.
//! 2. Records become cells, without those that failed, of layers and heads that nobody asked for, or that do not meet
//!    the conditions.
//! 3. A plan says which cells are put side by side. Between two inputs of one model each, models are compared with each
//!    other; otherwise inputs are compared model by model. With a column to compare by, all inputs are one heap of
//!    cells, and every value of the column is compared with the first.
//!    Where depths are spoken of, only the question of each prompt counts whose needle was put there.
//! 4. Cells are joined; a cell that is there twice is an error.
//! 5. Pairs become [`Row`]s, one for each metric, region and group. Several questions of one prompt are not
//!    independent, nor is what else is made of one seed, so means, differences and intervals are over prompts, each the mean of
//!    all that has its seed. Interval and test are of the same hypothesis: Tango's and McNemar's of hits and misses, in which
//!    questions of one prompt count as much as they differ, and Student's t corrected for skewness of anything else. All
//!    p-values are corrected together.
//!
//! Where models are [`Replicates`] (recipes, each trained from several seeds), seeds of one number are paired, and what is
//! independent are seeds and prompts: each prompt that all seeds have counts once for each seed, intervals and p-values are
//! those of [`Replicated`](crate::stats::Replicated), and fewer than three seeds have neither.
//!
//! Nothing depends on the order of records but which value of a column is the baseline when none is named: the first.

mod fail_if;
mod input;
mod manifests;
pub(super) mod plan;

pub use fail_if::FailIf;
pub use input::Input;
pub use manifests::Mismatch;
pub use plan::Level;

use super::cells::{Cell, Cells, Collector, Counts, Key};
use super::field::{Field, COLUMNS};
use super::rows::{self, Row};
use super::sample::{join, Joined};
use super::select::{Metrics, Selection, Where};
use crate::bail_usage;
use crate::base::names::Replicates;
use crate::results::record;
use crate::stats::{LEAST_PROMPTS, LEAST_SEEDS};
use anyhow::{bail, Result};
use manifests::Prompts;
use plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Below so many prompts intervals of numbers with a long tail are too narrow.
const FEW_PROMPTS: usize = 20;

/// Below so many training seeds intervals are too narrow if some seeds learn and others do not.
const FEW_SEEDS: usize = 6;

/// A comparison that is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Run folders or results files; all are compared with the first.
    pub inputs: Vec<PathBuf>,
    /// Compare the values of this column instead, over all inputs.
    pub by: Option<Field>,
    /// The value of that column that others are compared with; the first one if none is named.
    pub baseline: Option<String>,
    /// The metrics to compare.
    pub metrics: Metrics,
    /// Only these records.
    pub wheres: Vec<Where>,
    /// One row for each value of these.
    pub group_by: Vec<Field>,
    /// Models whose names differ in their training seed are replicates of one recipe: recipes are compared, or each with itself
    /// where `by` is a column, and intervals are over seeds and prompts.
    pub replicates: Option<Replicates>,
    /// Pair cells even if their prompts are not the same.
    pub allow_different_prompts: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The inputs, each with its number of records.
    pub inputs: Vec<(Input, Counts)>,
    /// Differences between the manifest of the first input and that of each other, where both have one.
    pub differences: Vec<(String, Vec<Mismatch>)>,
    /// The sets that were paired.
    pub pairings: Vec<PairedSets>,
    /// Columns that there is a row for each value of.
    pub groups: Vec<Field>,
    /// The differences.
    pub rows: Vec<Row>,
    /// Further notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

/// Two sets of cells that were joined.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PairedSets {
    /// The baseline's name.
    pub baseline: String,
    /// The side that is compared with it.
    pub other: String,
    /// Columns in which the cells of a pair may differ.
    pub regardless_of: String,
    /// Pairs of cells.
    pub pairs: usize,
    /// Cells of the baseline that the other does not have.
    pub only_baseline: Unpaired,
    /// Cells of the other that the baseline does not have.
    pub only_other: Unpaired,
}

/// Cells without another half.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Unpaired {
    /// How many of each metric.
    pub by_metric: BTreeMap<String, usize>,
    /// All of them, in words.
    pub cells: Vec<String>,
}

/// Compares.
///
/// # Errors
/// Usage errors if the request is not possible, or the prompts are not the same; others if a file cannot be read or
/// holds a cell twice.
pub fn compare(request: &Request) -> Result<Comparison> {
    let selection = Selection {
        metrics: request.metrics.clone(),
        wheres: request.wheres.clone(),
        by: request.by.or(request.replicates.as_ref().map(|_| Field::Model)),
        group_by: request.group_by.clone(),
        replicates: request.replicates.clone(),
    };
    selection.check_columns()?;
    if let Some(i) = (1..request.inputs.len()).find(|&i| request.inputs[..i].contains(&request.inputs[i])) {
        if request.by.is_some() || request.replicates.is_some() {
            bail_usage!("{} is named twice", request.inputs[i].display());
        }
    }
    let inputs = request.inputs.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>>>()?;
    let mut notes = Vec::new();
    let checked = check_manifests(&inputs, request, &mut notes)?;
    let (cells, counts) = read(&inputs, &selection)?;
    plan::check(&selection, &cells)?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut plans = plan::plans(&cells, &selection, &names, request.baseline.as_deref())?;
    if checked.by_cell_only {
        plans.iter_mut().for_each(|plan| plan.free[Field::Seed as usize] = true);
    }
    let joined = plans.iter().map(|plan| joined(&cells, plan, &names)).collect::<Result<Vec<_>>>()?;
    let groups = rows::groups(&selection, &plans, &joined)?;
    let rows = rows::rows(&cells, &selection, &plans, &joined, &groups)?;
    note_pairs(&plans, &joined, request, &mut notes);
    note_rows(&rows, &selection, &groups, &mut notes);
    let pairings = plans.iter().zip(&joined).map(|(plan, joined)| pairing(&cells, plan, joined)).collect();
    let inputs = inputs.into_iter().zip(counts).collect();
    Ok(Comparison { inputs, differences: checked.differences, pairings, groups, rows, notes })
}

/// Differences between the manifests.
struct Checked {
    differences: Vec<(String, Vec<Mismatch>)>,
    /// Whether seeds do not tell prompts apart: those of a cell are not the same anyway.
    by_cell_only: bool,
}

/// Compares the manifest of every input with that of the first.
fn check_manifests(inputs: &[Input], request: &Request, notes: &mut Vec<String>) -> Result<Checked> {
    for input in inputs {
        if input.manifest.is_none() && inputs.len() > 1 {
            notes.push(format!("{} has no manifest.json: what its run differed in is not known", input.name));
        }
        if input.was_edited()? {
            bail!(
                "{} is not the file that its manifest describes (its SHA-256 differs): it was changed after the run, or \
                 the run goes on; copy it elsewhere to compare it without its manifest",
                input.results.display()
            );
        }
        let by_model = request.by == Some(Field::Model) || request.replicates.is_some();
        if by_model && input.manifest.as_ref().is_some_and(manifests::mixes_tokenizers) {
            notes.push(format!("{}: its models cut the same text into different tokens", input.name));
        }
    }
    let mut checked = Checked { differences: Vec::new(), by_cell_only: false };
    let Some((first, others)) = inputs.split_first() else { bail_usage!("nothing to compare: name runs or results") };
    for other in others {
        let prompts = match (&first.manifest, &other.manifest) {
            (Some(a), Some(b)) => {
                if (&a.tool.version, &a.tool.source) != (&b.tool.version, &b.tool.source) {
                    notes.push(format!(
                        "{} and {} were measured by two builds of difftool: what differs may be theirs",
                        first.name, other.name
                    ));
                }
                checked.differences.push((other.name.clone(), manifests::differences(a, b)));
                manifests::prompts(a, b)
            }
            _ => Prompts::Unknown("a manifest is missing"),
        };
        match prompts {
            Prompts::Same => {}
            Prompts::Different(reason) if !request.allow_different_prompts => bail_usage!(
                "{} and {} are of different prompts, so their cells are not pairs: {reason}; \
                 --allow-different-prompts compares them nevertheless, cell by cell",
                first.name,
                other.name
            ),
            Prompts::Different(_) => checked.by_cell_only = true,
            Prompts::Unknown(_) if request.allow_different_prompts => checked.by_cell_only = true,
            Prompts::Unknown(why) => notes.push(format!(
                "{} and {}: {why}, so prompts are taken as the same where settings and seeds are",
                first.name, other.name
            )),
        }
    }
    Ok(checked)
}

/// Reads the inputs one after the other; only their cells stay in memory.
fn read(inputs: &[Input], selection: &Selection) -> Result<(Cells, Vec<Counts>)> {
    let mut collector = Collector::new(selection);
    let mut counts = Vec::new();
    for input in inputs {
        counts.push(collector.add_all(&input.results.display().to_string(), &record::read(&input.results)?)?);
    }
    let mut cells = collector.finish();
    if selection.mentions(Field::DepthReqPct) {
        cells.keep_at_their_depth();
        for (input, counts) in (0..).zip(&mut counts) {
            counts.kept = cells.iter().filter(|cell| cell.input == input).count();
        }
    }
    Ok((cells, counts))
}

/// Joins the cells of both sides of a plan.
///
/// # Errors
/// If a side holds a cell twice, or nothing can be joined.
fn joined(cells: &Cells, plan: &Plan, inputs: &[String]) -> Result<Joined> {
    let [baseline, other] =
        [&plan.baseline, &plan.other].map(|side| cells.iter().filter(|cell| side.holds(cell)).collect::<Vec<Cell>>());
    let joined = join(baseline, other, &plan.free);
    if let Some((first, second)) = &joined.duplicate {
        return Err(duplicate(cells, plan, inputs, first, second));
    }
    if joined.pairs.is_empty() {
        nothing_in_common(cells, plan, &joined)?;
    }
    Ok(joined)
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
            format!("they differ in {column} ({} and {}): keep one with --where {column}=…", names[0], names[1])
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
                Field::Seed => ": other prompts; --allow-different-prompts pairs them by cell only",
                _ => "",
            };
            format!("{column} is {} and {} there{advice}", cells.name(a, column), cells.name(b, column))
        }
        None => format!("for example {} and {}", cells.describe(a, &plan.free), cells.describe(b, &plan.free)),
    };
    bail_usage!("{} and {} have no cell in common: {reason}", plan.baseline.label, plan.other.label)
}

fn pairing(cells: &Cells, plan: &Plan, joined: &Joined) -> PairedSets {
    let unpaired = |keys: &[Key]| {
        let mut by_metric = BTreeMap::new();
        keys.iter().for_each(|key| *by_metric.entry(cells.name(key, Field::Metric)).or_insert(0) += 1);
        Unpaired { by_metric, cells: keys.iter().map(|key| cells.describe(key, &plan.free)).collect() }
    };
    PairedSets {
        baseline: plan.baseline.label.clone(),
        other: plan.other.label.clone(),
        regardless_of: plan.free_names(),
        pairs: joined.pairs.len(),
        only_baseline: unpaired(&joined.only_baseline),
        only_other: unpaired(&joined.only_other),
    }
}

/// Says when pairs are not pairs of the same prompt.
fn note_pairs(plans: &[Plan], joined: &[Joined], request: &Request, notes: &mut Vec<String>) {
    match request.by {
        Some(by) if by.makes_prompts() && plans.iter().any(|plan| plan.free[Field::Seed as usize]) => {
            notes.push(format!(
            "prompts of another {by} are others: cells are paired by their sample, which takes nothing out of the noise"
        ))
        }
        _ if plans.iter().any(|plan| plan.free[Field::Seed as usize]) => {
            notes.push("different prompts: the pairing is by cell only, which takes nothing out of the noise".into());
        }
        _ => {
            for (plan, joined) in plans.iter().zip(joined).filter(|(_, joined)| joined.moved > 0) {
                notes.push(format!(
                    "{} and {}: in {} of {} pairs the needle is at other depths: other tokenizers, or other prompts",
                    plan.baseline.label,
                    plan.other.label,
                    joined.moved,
                    joined.pairs.len()
                ));
            }
        }
    }
}

fn note_rows(rows: &[Row], selection: &Selection, groups: &[Field], notes: &mut Vec<String>) {
    let kinds: Vec<&str> =
        groups.iter().filter(|column| !selection.group_by.contains(column)).map(|column| column.name()).collect();
    if !kinds.is_empty() {
        notes.push(format!("a row for each {}: their values are not averaged", kinds.join(", ")));
    }
    let seeds: BTreeSet<_> = rows.iter().filter_map(|row| row.difference.seeds).collect();
    if let (Some(least), Some(most)) = (seeds.first(), seeds.last()) {
        notes.push(of_seeds(*least, *most));
        return;
    }
    let least =
        |range: std::ops::Range<usize>| rows.iter().map(|row| row.difference.n).filter(|n| range.contains(n)).min();
    if least(1..LEAST_PROMPTS).is_some() {
        notes.push(format!("fewer than {LEAST_PROMPTS} prompts have neither interval nor test"));
    }
    if let Some(least) = least(LEAST_PROMPTS..FEW_PROMPTS) {
        notes.push(format!(
            "n below {FEW_PROMPTS}, down to {least}: intervals are too narrow if a few prompts differ by far more than others"
        ));
    }
}

/// Returns a note on the units of intervals, where models are replicates.
fn of_seeds(least: usize, most: usize) -> String {
    let count = match (least, most) {
        (1, 1) => "1 training seed".to_owned(),
        _ if least == most => format!("{most} training seeds"),
        _ => format!("{least} to {most} training seeds"),
    };
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

#[cfg(test)]
mod tests;
