//! Plans: which two inputs, or which two values of a column, are compared.

use super::super::cells::{Cell, Cells, Key, Mask};
use super::super::field::{names, Field, Value};
use super::super::select::{MetricName, Metrics, Selection, Where};
use crate::bail_usage;
use crate::base::names::{is_short_for, ShortNames};
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use strum::IntoStaticStr;

/// The largest number of values of one column that are compared at once.
const MOST_SIDES: usize = 64;

/// Two sets of cells and how they are joined.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) baseline: Side,
    pub(crate) other: Side,
    /// Columns in which two cells of a pair may differ.
    pub(crate) free: Mask,
}

/// A set of cells.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// Its name in tables.
    pub(crate) label: String,
    filter: Filter,
}

#[derive(Clone, Copy, Debug)]
enum Filter {
    Input(usize),
    Value(Field, u32),
}

impl Side {
    pub(crate) fn holds(&self, cell: &Cell) -> bool {
        match self.filter {
            Filter::Input(input) => cell.input as usize == input,
            Filter::Value(column, value) => cell.key[column as usize] == value,
        }
    }
}

impl Plan {
    /// Returns the level of the numbers where layers or heads are compared.
    pub(crate) fn level(&self) -> Level {
        match (self.free[Field::Layer as usize], self.free[Field::Head as usize]) {
            (_, true) => Level::Head,
            (true, _) => Level::Layer,
            _ => Level::Model,
        }
    }

    /// Returns the names of the columns in which the cells of a pair may differ.
    pub(crate) fn free_names(&self) -> String {
        names(|column| self.free[column as usize])
    }
}

/// Plans every value of `by` against the first, or every input against the first.
///
/// # Errors
/// Usage errors if there are no two of them.
pub(crate) fn plans(
    cells: &Cells,
    selection: &Selection,
    inputs: &[String],
    baseline: Option<&str>,
) -> Result<Vec<Plan>> {
    for (input, name) in inputs.iter().enumerate() {
        if !cells.iter().any(|cell| cell.input as usize == input) {
            if selection.mentions(Field::Head) && !cells.has(Field::Head, |head| head.is_some()) {
                bail_usage!("{name}: no records of single heads, which `ratio` and `heads` write");
            }
            bail_usage!("{name}: no records left to compare; see --metric, --where and --group-by");
        }
    }
    match (selection.by, inputs) {
        (Some(by), _) => by_column(cells, by, baseline),
        (None, [name]) => {
            bail_usage!("{name} alone can be compared with itself only --by a column: {}", varying(cells))
        }
        (None, _) if baseline.is_some() => bail_usage!("--baseline needs --by; inputs are compared with the first one"),
        (None, inputs) => {
            let mut models = vec![BTreeSet::new(); inputs.len()];
            for cell in cells.iter() {
                models[cell.input as usize].insert(cell.key[Field::Model as usize]);
            }
            (1..inputs.len()).map(|other| two_inputs(cells, inputs, &models, other)).collect()
        }
    }
}

/// Lists the columns that have more than one value, with their values.
fn varying(cells: &Cells) -> String {
    let counts = |column: Field| -> BTreeSet<u32> { cells.iter().map(|c| c.key[column as usize]).collect() };
    let found: Vec<String> = Field::ALL
        .into_iter()
        .filter(|column| column.can_be_compared())
        .filter_map(|column| {
            let values = counts(column);
            let shown: Vec<String> = values.iter().map(|&value| cells.value_name(column, value)).collect();
            (shown.len() > 1).then(|| format!("{column} ({})", shown.join(", ")))
        })
        .collect();
    if found.is_empty() {
        return "but none of its columns has two values".into();
    }
    found.join(", ")
}

fn by_column(cells: &Cells, by: Field, baseline: Option<&str>) -> Result<Vec<Plan>> {
    let mut first: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.key[by as usize] != 0 || by.missing_counts()) {
        let (seen, place) = (first.entry(cell.key[by as usize]), (cell.input, cell.record));
        seen.and_modify(|first| *first = place.min(*first)).or_insert(place);
    }
    if first.len() > MOST_SIDES {
        bail_usage!("--by {by}: more than {MOST_SIDES} values; narrow them down with --where {by}=…");
    }
    let mut values: Vec<u32> = first.keys().copied().collect();
    values.sort_by_key(|value| first[value]);
    if by == Field::Condition {
        // The untreated passes are the baseline wherever they stand.
        values.sort_by_key(|&value| value != 0);
    }
    let listed: Vec<String> = values.iter().map(|&value| cells.value_name(by, value)).collect();
    let of_models = by == Field::Model;
    if let Some(text) = baseline {
        let meant = listed.iter().position(|model| of_models && is_short_for(text.trim(), model));
        let wanted = by.parse(text).ok().and_then(|value| cells.number(by, value.as_ref()));
        match meant.or_else(|| values.iter().position(|&value| wanted == Some(value))) {
            Some(place) => values[..=place].rotate_right(1),
            None => bail_usage!("--baseline {text}: {by} is one of {}", listed.join(", ")),
        }
    }
    if by == Field::Condition && baseline.is_none() && values.len() > 1 && values[0] != 0 {
        bail_usage!(
            "--by condition: there are no untreated records to compare with; --baseline names one of {}",
            listed.join(", ")
        );
    }
    if values.len() < 2 {
        let only = listed.first().map_or("no values", String::as_str);
        bail_usage!("--by {by}: there is nothing to compare {only} with; {}", varying(cells));
    }
    let names = if of_models { ShortNames::of(&listed) } else { ShortNames::default() };
    let side = |value: u32| {
        let whole = cells.value_name(by, value);
        let name = names.name(&whole);
        let label = if of_models || by == Field::Variant { name.to_owned() } else { format!("{by}={name}") };
        Side { label, filter: Filter::Value(by, value) }
    };
    let free = free(Some(by));
    let (first, others) = values.split_first().expect("there are two values");
    let plan = |&other: &u32| {
        let mut plan = Plan { baseline: side(*first), other: side(other), free };
        plan.free[Field::Seed as usize] &= !share_prompts(cells, &plan);
        plan
    };
    Ok(others.iter().map(plan).collect())
}

/// Returns whether both sides have the same seeds: the same prompts but for what is compared.
fn share_prompts(cells: &Cells, plan: &Plan) -> bool {
    let seeds = |side: &Side| -> BTreeSet<u32> {
        cells.iter().filter(|cell| side.holds(cell)).map(|cell| cell.key[Field::Seed as usize]).collect()
    };
    seeds(&plan.baseline) == seeds(&plan.other)
}

/// Returns the columns in which the cells of a pair may differ when `compared` is compared.
fn free(compared: Option<Field>) -> Mask {
    let frees = |column: Field| column.is_finding() || compared.is_some_and(|compared| compared.frees(column));
    Field::ALL.map(frees)
}

/// Plans the first input against another: their models against each other where each has only one, model by model otherwise.
/// `models` are those of every input.
fn two_inputs(cells: &Cells, inputs: &[String], models: &[BTreeSet<u32>], other: usize) -> Result<Plan> {
    let values = |input: usize, column: Field| -> BTreeSet<u32> {
        let of_input = cells.iter().filter(|cell| cell.input as usize == input);
        of_input.map(|cell| cell.key[column as usize]).collect()
    };
    let (a, b) = (&models[0], &models[other]);
    let across = a.len() == 1 && b.len() == 1 && a != b;
    if !across && a.is_disjoint(b) {
        let list = |models: &BTreeSet<u32>| {
            let names: Vec<String> = models.iter().map(|&model| cells.value_name(Field::Model, model)).collect();
            names.join(", ")
        };
        bail_usage!(
            "{} holds {} and {} holds {}: no model in common, and not one each; leave one each with --where model=…",
            inputs[0],
            list(a),
            inputs[other],
            list(b)
        );
    }
    let mut free = free(across.then_some(Field::Model));
    // A folder of the same name may hold another model now.
    free[Field::Variant as usize] |= values(0, Field::Variant) != values(other, Field::Variant);
    // Two runs that quantise with one scope each: the scope is what is compared.
    let scopes =
        [0, other].map(|input| values(input, Field::Scope).into_iter().filter(|&s| s != 0).collect::<Vec<_>>());
    let scopes_differ = scopes[0].len() == 1 && scopes[1].len() == 1 && scopes[0] != scopes[1];
    [Field::Scope, Field::Condition].iter().for_each(|&column| free[column as usize] = scopes_differ);
    let names: Vec<String> = a.iter().chain(b).map(|&model| cells.value_name(Field::Model, model)).collect();
    let short = ShortNames::of(&names);
    // A model's name says more than a path, if it tells which input is meant.
    let label = |input: usize| {
        let alone = models[input].len() == 1 && models.iter().filter(|set| **set == models[input]).count() == 1;
        match models[input].first() {
            Some(&model) if across && alone => short.name(&cells.value_name(Field::Model, model)).to_owned(),
            _ => inputs[input].clone(),
        }
    };
    let side = |input: usize| Side { label: label(input), filter: Filter::Input(input) };
    Ok(Plan { baseline: side(0), other: side(other), free })
}

/// The level of numbers: the whole model, layers or heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// Means over layers and heads, or quantities that know of neither.
    #[default]
    Model,
    /// Of layers.
    Layer,
    /// Of single heads.
    Head,
}

impl Level {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub(crate) fn of(key: &Key) -> Self {
        match (key[Field::Layer as usize], key[Field::Head as usize]) {
            (0, 0) => Self::Model,
            (_, 0) => Self::Layer,
            _ => Self::Head,
        }
    }
}

/// Checks that what was asked for occurs.
///
/// # Errors
/// A usage error with what does occur.
pub(crate) fn check(selection: &Selection, cells: &Cells) -> Result<()> {
    for condition in &selection.wheres {
        let Where { column, text, .. } = condition;
        if !cells.has(*column, |value| selection.meets(condition, value)) {
            bail_usage!("--where {text}: no record has it; {column} is one of {}", cells.all_values(*column));
        }
    }
    let Metrics::Named(names) = &selection.metrics else { return Ok(()) };
    for MetricName { metric, region } in names {
        let known = |column, text: &str| cells.number(column, Some(&Value::text(text))).is_some();
        if !known(Field::Metric, metric) {
            bail_usage!("--metric {metric}: not measured; there are {}", cells.all_values(Field::Metric));
        }
        if let Some(region) = region.as_ref().filter(|region| !known(Field::Region, region)) {
            bail_usage!("--metric {metric}[{region}]: regions are {}", cells.all_values(Field::Region));
        }
    }
    Ok(())
}
