//! Sides: which two inputs, or which two values of a column, are compared.

use super::super::records::RecordRef;
use super::super::rows::{Compared, Pairing};
use super::{Counts, Input, Request};
use anyhow::Result;
use base::bail_usage;
use names::column::{shown, Column, Value};
use names::{is_short_for, ShortNames};
use std::collections::BTreeSet;

/// The largest number of values of one column that are compared at once.
const MOST_SIDES: usize = 64;

/// Pairs every value of the compared column with the first, or every input with the first. `ignores_seeds` says that seeds do
/// not tell prompts apart.
///
/// # Errors
/// Usage errors if there are no two of them.
pub(super) fn pairings<'a>(
    request: &Request,
    inputs: &[(Input, Counts)],
    selected: &[RecordRef<'a>],
    ignores_seeds: bool,
) -> Result<Vec<Pairing<'a>>> {
    let (by, values) = match (request.compared(), inputs) {
        (Some(by), _) => (by, compared_values(selected, by, request.baseline.as_deref())?),
        (None, [(Input { name, .. }, _)]) => {
            bail_usage!("{name} is the only input: compare its parts with --by COLUMN: {}", varying(selected))
        }
        (None, _) if request.baseline.is_some() => {
            bail_usage!("--baseline needs --by; inputs are compared with the first one")
        }
        (None, _) => (Column::Input, (0..inputs.len() as u64).map(|input| Some(Value::Int(input))).collect()),
    };
    let mut sides = vec![Vec::new(); values.len()];
    for record in selected {
        if let Some(side) = values.iter().position(|value| *value == record.value(by)) {
            sides[side].push(*record);
        }
    }
    let names = names_of(by, &values);
    let mut pairings = Vec::new();
    for other in 1..sides.len() {
        let (names, mut free) = match by {
            Column::Input => two_inputs(inputs, &sides, other)?,
            by => ([0, other].map(|side| names[side].clone()), freed(by, &sides[0], &sides[other])),
        };
        if ignores_seeds && !free.contains(&Column::Seed) {
            free.push(Column::Seed);
        }
        pairings.push(Pairing::of(names, [0, other].map(|side| sides[side].clone()), free));
    }
    Ok(pairings)
}

/// The values of a column; a missing one counts.
fn values<'a>(records: &[RecordRef<'a>], column: Column) -> BTreeSet<Option<Value<'a>>> {
    records.iter().map(|record| record.value(column)).collect()
}

fn list(values: &BTreeSet<Option<Value<'_>>>) -> String {
    values.iter().map(|value| shown(*value)).collect::<Vec<_>>().join(", ")
}

/// Lists the columns that have more than one value, with their values.
fn varying(selected: &[RecordRef<'_>]) -> String {
    let mut columns = Vec::new();
    for &column in Column::ALL.iter().filter(|column| column.can_be_compared()) {
        let values = values(selected, column);
        if values.len() > 1 {
            columns.push(format!("{column} ({})", list(&values)));
        }
    }
    if columns.is_empty() {
        return "but none of its columns has two values".into();
    }
    columns.join(", ")
}

/// The values of the compared column in words; models by their short names.
fn names_of(by: Column, values: &[Option<Value<'_>>]) -> Vec<Compared> {
    let listed: Vec<String> = values.iter().map(|&value| shown(value)).collect();
    match by {
        Column::Model => {
            let short = ShortNames::of(&listed);
            listed.iter().map(|model| Compared::Named(short.name(model).to_owned())).collect()
        }
        Column::Variant => listed.into_iter().map(Compared::Named).collect(),
        _ => listed.into_iter().map(|value| Compared::Value(by, value)).collect(),
    }
}

/// The columns in which the records of a pair may differ when a column is compared.
fn freed(by: Column, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> Vec<Column> {
    let mut free = by.freed();
    // The same prompts but for what is compared have the same seeds on both sides.
    if values(baseline, Column::Seed) == values(other, Column::Seed) {
        free.retain(|&column| column != Column::Seed);
    }
    free
}

/// The values of a column that are compared: at least two, the baseline first, the others in the order in which they
/// first come.
fn compared_values<'a>(
    selected: &[RecordRef<'a>],
    by: Column,
    baseline: Option<&str>,
) -> Result<Vec<Option<Value<'a>>>> {
    let mut values = in_order(selected, by)?;
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

/// The values of a column in the order in which they first come.
///
/// # Errors
/// A usage error if there are too many.
fn in_order<'a>(selected: &[RecordRef<'a>], by: Column) -> Result<Vec<Option<Value<'a>>>> {
    let mut first: Vec<(Option<Value<'a>>, u32)> = Vec::new();
    for record in selected {
        let value = record.value(by);
        match first.iter_mut().find(|(known, _)| *known == value) {
            Some((_, place)) => *place = record.place.min(*place),
            None if value.is_some() || by.missing_counts() => first.push((value, record.place)),
            None => {}
        }
        if first.len() > MOST_SIDES {
            bail_usage!("--by {by}: more than {MOST_SIDES} values; narrow them down with --where {by}=…");
        }
    }
    first.sort_by_key(|(_, place)| *place);
    Ok(first.into_iter().map(|(value, _)| value).collect())
}

/// The names of the first input and of another, and the columns in which the records of a pair may differ: their models
/// are compared with each other where each has only one, and inputs model by model otherwise.
fn two_inputs(
    inputs: &[(Input, Counts)],
    sides: &[Vec<RecordRef<'_>>],
    other: usize,
) -> Result<([Compared; 2], Vec<Column>)> {
    let models: Vec<_> = sides.iter().map(|records| values(records, Column::Model)).collect();
    let a = &models[0];
    let b = &models[other];
    let across = a.len() == 1 && b.len() == 1 && a != b;
    if !across && a.is_disjoint(b) {
        bail_usage!(
            "{} holds {} and {} holds {}: they have no model in common; choose one model with --where model=…",
            inputs[0].0.name,
            list(a),
            inputs[other].0.name,
            list(b)
        );
    }
    let short = ShortNames::of(&a.iter().chain(b).map(|&model| shown(model)).collect::<Vec<_>>());
    let names = [0, other].map(|input| {
        // A model's name says more than a path, if it tells which input is meant.
        let alone = models[input].len() == 1 && models.iter().filter(|set| **set == models[input]).count() == 1;
        match models[input].first() {
            Some(&model) if across && alone => Compared::Named(short.name(&shown(model)).to_owned()),
            _ => Compared::Named(inputs[input].0.name.clone()),
        }
    });
    let [baseline, other] = [&sides[0], &sides[other]];
    let mut free = if across { Column::Model.freed() } else { Vec::new() };
    // A folder of the same name may hold another model now.
    if !across && values(baseline, Column::Variant) != values(other, Column::Variant) {
        free.push(Column::Variant);
    }
    // Two runs that quantise with one scope each: the scope is what is compared.
    let [mut first, mut second] = [baseline, other].map(|side| values(side, Column::Scope));
    first.remove(&None);
    second.remove(&None);
    if first.len() == 1 && second.len() == 1 && first != second {
        free.extend([Column::Scope, Column::Condition]);
    }
    Ok((names, free))
}
