//! Pairings: which two inputs, or which two values of a column, are compared.

use super::super::column::{shown, Column, Value};
use super::super::difference::Level;
use super::super::pair::{pairs, Pair, Pairs};
use super::super::record::Record;
use super::request::Request;
use crate::bail_usage;
use crate::base::names::{is_short_for, ShortNames};
use anyhow::Result;
use std::collections::BTreeSet;

/// The largest number of values of one column that are compared at once.
const MOST_SIDES: usize = 64;

/// Two sets of records, paired.
pub(super) struct Pairing<'a> {
    pub(super) baseline: String,
    pub(super) other: String,
    /// Columns in which the two records of a pair may differ.
    pub(super) free: Vec<Column>,
    pub(super) joined: Pairs<'a>,
}

/// A set of records.
struct Side<'a> {
    label: String,
    /// In the order of the inputs.
    records: Vec<&'a Record>,
}

impl Side<'_> {
    fn values(&self, column: Column) -> BTreeSet<Option<Value<'_>>> {
        values(&self.records, column)
    }
}

impl<'a> Pairing<'a> {
    fn of(baseline: &Side<'a>, other: Side<'a>, mut free: Vec<Column>, ignores_seeds: bool) -> Self {
        if ignores_seeds && !free.contains(&Column::Seed) {
            free.push(Column::Seed);
        }
        let joined = pairs(baseline.records.clone(), other.records, &free);
        Self { baseline: baseline.label.clone(), other: other.label, free, joined }
    }

    /// Returns the value that both records of a pair have; `None` where it is missing, or what is compared.
    pub(super) fn shared<'b>(&self, pair: &Pair<'b>, column: Column) -> Option<Value<'b>> {
        column.get(pair.record).filter(|_| !self.free.contains(&column))
    }

    /// Returns the level of the numbers where layers or heads are compared.
    pub(super) fn level(&self) -> Level {
        match (self.free.contains(&Column::Layer), self.free.contains(&Column::Head)) {
            (_, true) => Level::Head,
            (true, _) => Level::Layer,
            _ => Level::Model,
        }
    }
}

/// Pairs every value of the compared column with the first, or every input with the first. `selected` are the records of each
/// input; `ignores_seeds` says that their seeds do not tell prompts apart.
///
/// # Errors
/// Usage errors if there are no two of them.
pub(super) fn pairings<'a>(
    request: &Request,
    inputs: &[String],
    selected: &[Vec<&'a Record>],
    ignores_seeds: bool,
) -> Result<Vec<Pairing<'a>>> {
    match (request.compared(), inputs) {
        (Some(by), _) => by_column(selected, by, request.baseline.as_deref(), ignores_seeds),
        (None, [name]) => {
            bail_usage!("{name} is the only input: compare its parts with --by COLUMN: {}", varying(selected))
        }
        (None, _) if request.baseline.is_some() => {
            bail_usage!("--baseline needs --by; inputs are compared with the first one")
        }
        (None, inputs) => {
            let models: Vec<_> = selected.iter().map(|records| values(records, Column::Model)).collect();
            (1..inputs.len()).map(|other| two_inputs(inputs, selected, &models, other, ignores_seeds)).collect()
        }
    }
}

/// The values of a column; a missing one counts.
fn values<'a>(records: &[&'a Record], column: Column) -> BTreeSet<Option<Value<'a>>> {
    records.iter().map(|record| column.get(record)).collect()
}

fn list(values: &BTreeSet<Option<Value<'_>>>) -> String {
    values.iter().map(|value| shown(*value)).collect::<Vec<_>>().join(", ")
}

/// Lists the columns that have more than one value, with their values.
fn varying(selected: &[Vec<&Record>]) -> String {
    let records = selected.concat();
    let mut columns = Vec::new();
    for &column in Column::ALL.iter().filter(|column| column.can_be_compared()) {
        let values = values(&records, column);
        if values.len() > 1 {
            columns.push(format!("{column} ({})", list(&values)));
        }
    }
    if columns.is_empty() {
        return "but none of its columns has two values".into();
    }
    columns.join(", ")
}

fn by_column<'a>(
    selected: &[Vec<&'a Record>],
    by: Column,
    baseline: Option<&str>,
    ignores_seeds: bool,
) -> Result<Vec<Pairing<'a>>> {
    let values = compared_values(selected, by, baseline)?;
    let listed: Vec<String> = values.iter().map(|&value| shown(value)).collect();
    let of_models = by == Column::Model;
    let names = if of_models { ShortNames::of(&listed) } else { ShortNames::default() };
    let mut sides = Vec::new();
    for (&value, whole) in values.iter().zip(&listed) {
        let name = names.name(whole);
        let label = if of_models || by == Column::Variant { name.to_owned() } else { format!("{by}={name}") };
        let records = selected.iter().flatten().copied().filter(|record| by.get(record) == value).collect();
        sides.push(Side { label, records });
    }
    let mut pairings = Vec::new();
    let baseline = sides.remove(0);
    for other in sides {
        // The same prompts but for what is compared have the same seeds on both sides.
        let share_prompts = baseline.values(Column::Seed) == other.values(Column::Seed);
        let mut free = freed_by(by);
        free.retain(|&column| column != Column::Seed || !share_prompts);
        pairings.push(Pairing::of(&baseline, other, free, ignores_seeds));
    }
    Ok(pairings)
}

/// Returns the values of a column that are compared: at least two, the baseline first, the others in the order in which they
/// first come.
fn compared_values<'a>(
    selected: &[Vec<&'a Record>],
    by: Column,
    baseline: Option<&str>,
) -> Result<Vec<Option<Value<'a>>>> {
    let mut values = Vec::new();
    for record in selected.iter().flatten() {
        let value = by.get(record);
        if (value.is_some() || by.missing_counts()) && !values.contains(&value) {
            values.push(value);
        }
        if values.len() > MOST_SIDES {
            bail_usage!("--by {by}: more than {MOST_SIDES} values; narrow them down with --where {by}=…");
        }
    }
    if by == Column::Condition {
        // The untreated passes are the baseline wherever they stand.
        values.sort_by_key(Option::is_some);
    }
    let listed: Vec<String> = values.iter().map(|&value| shown(value)).collect();
    if let Some(text) = baseline {
        let wanted = by.parse(text).ok();
        let named = values.iter().position(|&value| wanted == Some(value));
        match named.or_else(|| listed.iter().position(|model| by == Column::Model && is_short_for(text.trim(), model)))
        {
            Some(place) => values[..=place].rotate_right(1),
            None => bail_usage!("--baseline {text}: {by} is one of {}", listed.join(", ")),
        }
    }
    if by == Column::Condition && baseline.is_none() && values.len() > 1 && values[0].is_some() {
        bail_usage!(
            "--by condition: there are no untreated records to compare with; --baseline names one of {}",
            listed.join(", ")
        );
    }
    if values.len() < 2 {
        let only = listed.first().map_or("no values", String::as_str);
        bail_usage!("--by {by}: there is nothing to compare {only} with; {}", varying(selected));
    }
    Ok(values)
}

/// Returns the columns in which the records of a pair may differ when a column is compared.
fn freed_by(compared: Column) -> Vec<Column> {
    Column::ALL.iter().copied().filter(|&column| compared.frees(column)).collect()
}

/// Pairs the first input with another: their models against each other where each has only one, model by model otherwise.
/// `models` are those of every input.
fn two_inputs<'a>(
    inputs: &[String],
    selected: &[Vec<&'a Record>],
    models: &[BTreeSet<Option<Value<'a>>>],
    other: usize,
    ignores_seeds: bool,
) -> Result<Pairing<'a>> {
    let (a, b) = (&models[0], &models[other]);
    let across = a.len() == 1 && b.len() == 1 && a != b;
    if !across && a.is_disjoint(b) {
        bail_usage!(
            "{} holds {} and {} holds {}: they have no model in common; choose one model with --where model=…",
            inputs[0],
            list(a),
            inputs[other],
            list(b)
        );
    }
    let names: Vec<String> = a.iter().chain(b).map(|&model| shown(model)).collect();
    let short = ShortNames::of(&names);
    let [baseline, other] = [0, other].map(|input| {
        // A model's name says more than a path, if it tells which input is meant.
        let alone = models[input].len() == 1 && models.iter().filter(|set| **set == models[input]).count() == 1;
        let label = match models[input].first() {
            Some(&model) if across && alone => short.name(&shown(model)).to_owned(),
            _ => inputs[input].clone(),
        };
        Side { label, records: selected[input].clone() }
    });
    let mut free = if across { freed_by(Column::Model) } else { Vec::new() };
    // A folder of the same name may hold another model now.
    if !across && baseline.values(Column::Variant) != other.values(Column::Variant) {
        free.push(Column::Variant);
    }
    // Two runs that quantise with one scope each: the scope is what is compared.
    let [mut first, mut second] = [&baseline, &other].map(|side| side.values(Column::Scope));
    first.remove(&None);
    second.remove(&None);
    if first.len() == 1 && second.len() == 1 && first != second {
        free.extend([Column::Scope, Column::Condition]);
    }
    Ok(Pairing::of(&baseline, other, free, ignores_seeds))
}
