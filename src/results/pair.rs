//! Pairs of records of the same measurement on two sides, and which records are of one prompt.
//!
//! Everything that counts prompts or pairs records goes through this file: estimates, differences of models, conditions, runs
//! and training seeds, and contrasts, which are differences of differences.

use super::records::RecordRef;
use names::column::{Column, Value, PROMPT_COLUMNS};
use stats::mean;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

/// The same measurement on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    /// The record of the baseline; the other's is the same but in the columns that are compared.
    pub(crate) record: RecordRef<'a>,
    /// The value of the baseline.
    pub(crate) a: f64,
    /// The value of the other.
    pub(crate) b: f64,
}

/// Two sides, joined. Everything is sorted by the columns, whatever the order of the records was.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'a> {
    pub(crate) pairs: Vec<Pair<'a>>,
    pub(crate) only_baseline: Vec<RecordRef<'a>>,
    pub(crate) only_other: Vec<RecordRef<'a>>,
    /// Number of pairs with different realised depths, which the same prompt has only with another tokenizer.
    pub(crate) moved: usize,
    /// The first two records of one side of the same measurement; the second of them is left out.
    pub(crate) duplicate: Option<[RecordRef<'a>; 2]>,
}

/// Joins two sides on every column that is not `free`.
pub(crate) fn pairs<'a>([mut baseline, mut other]: [Vec<RecordRef<'a>>; 2], free: &[Column]) -> Pairs<'a> {
    let mut columns = joined_columns(free);
    if let Some(first) = baseline.first().or(other.first()).copied() {
        // Of millions of records, most columns have one value.
        columns
            .retain(|column| baseline.iter().chain(&other).any(|record| record.value(*column) != first.value(*column)));
    }
    let order = |a: &RecordRef<'_>, b: &RecordRef<'_>| order(a, b, &columns);
    let mut joined = Pairs::default();
    for side in [&mut baseline, &mut other] {
        side.sort_by(order);
        side.dedup_by(|later, earlier| {
            let is_same = order(earlier, later).is_eq();
            if is_same {
                joined.duplicate.get_or_insert([*earlier, *later]);
            }
            is_same
        });
    }
    let join = Join::of(&baseline, &other, order);
    for (a, b) in join.both {
        joined.moved += usize::from(a.identity.depth_real_pct != b.identity.depth_real_pct);
        joined.pairs.push(Pair { record: *a, a: a.value, b: b.value });
    }
    joined.only_baseline.extend(join.only_first);
    joined.only_other.extend(join.only_second);
    joined
}

/// Two sorted lists, joined.
pub(crate) struct Join<'l, T> {
    pub(crate) both: Vec<(&'l T, &'l T)>,
    pub(crate) only_first: Vec<&'l T>,
    pub(crate) only_second: Vec<&'l T>,
}

impl<'l, T> Join<'l, T> {
    /// Joins two lists without equals, each sorted by `order`.
    pub(crate) fn of(first: &'l [T], second: &'l [T], order: impl Fn(&T, &T) -> Ordering) -> Self {
        let mut join = Self { both: Vec::new(), only_first: Vec::new(), only_second: Vec::new() };
        let mut i = 0;
        let mut j = 0;
        while let (Some(a), Some(b)) = (first.get(i), second.get(j)) {
            let order = order(a, b);
            match order {
                Ordering::Less => join.only_first.push(a),
                Ordering::Greater => join.only_second.push(b),
                Ordering::Equal => join.both.push((a, b)),
            }
            i += usize::from(order.is_le());
            j += usize::from(order.is_ge());
        }
        join.only_first.extend(&first[i..]);
        join.only_second.extend(&second[j..]);
        join
    }
}

/// The columns in which the records of a pair agree.
pub(crate) fn joined_columns(free: &[Column]) -> Vec<Column> {
    Column::ALL.iter().copied().filter(|column| !column.is_finding() && !free.contains(column)).collect()
}

/// Compares two records column by column.
fn order(a: &RecordRef<'_>, b: &RecordRef<'_>, columns: &[Column]) -> Ordering {
    let same_identity = std::ptr::eq(a.identity, b.identity);
    let differing = columns.iter().filter(|column| !same_identity || column.is_of_measurement());
    differing
        .map(|&column| a.value(column).cmp(&b.value(column)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The differences b - a of pairs as records, to be paired once more.
pub(crate) fn differences<'a>(pairs: &[Pair<'a>]) -> Vec<RecordRef<'a>> {
    pairs.iter().map(|pair| RecordRef { value: pair.b - pair.a, ..pair.record }).collect()
}

/// The columns that tell prompts and models apart; missing where they do not.
pub(crate) type PromptKey<'a> = [Option<Value<'a>>; PROMPT_COLUMNS];

/// The items of each prompt, in the order in which prompts first come. The questions of one prompt are not independent,
/// nor is whatever else is made of one seed. `free`: columns that do not tell prompts apart.
pub(crate) fn by_prompt<'a, T>(
    items: impl IntoIterator<Item = (RecordRef<'a>, T)>,
    free: &[Column],
) -> Vec<(PromptKey<'a>, Vec<T>)> {
    let mut prompts: Vec<(PromptKey<'a>, Vec<T>)> = Vec::new();
    let mut places: HashMap<PromptKey<'a>, usize> = HashMap::new();
    for (record, item) in items {
        let prompt = prompt_of(&record, free);
        let place = *places.entry(prompt).or_insert(prompts.len());
        if place == prompts.len() {
            prompts.push((prompt, Vec::new()));
        }
        prompts[place].1.push(item);
    }
    prompts
}

/// Numbers of one kind by the seed of their prompt, each the mean over the prompt's questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PromptNumbers(BTreeMap<u64, f64>);

impl PromptNumbers {
    /// Averages the numbers of each prompt; what has no seed is not of a prompt.
    pub(crate) fn of(records: &[RecordRef<'_>]) -> Self {
        let mut prompts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for record in records {
            if let Some(seed) = record.identity.seed {
                prompts.entry(seed).or_default().push(record.value);
            }
        }
        Self(prompts.into_iter().filter_map(|(seed, numbers)| Some((seed, mean(&numbers)?))).collect())
    }

    /// The numbers, in the order of the seeds.
    pub(crate) fn values(&self) -> Vec<f64> {
        self.0.values().copied().collect()
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        mean(&self.values())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The negated numbers.
    pub(crate) fn negated(&self) -> Self {
        Self(self.0.iter().map(|(&seed, number)| (seed, -number)).collect())
    }
}

/// The numbers of several lists on the prompts that all of them have, in one order of prompts. What is correlated or
/// divided prompt by prompt goes through here.
pub(crate) fn on_shared_prompts(lists: &[PromptNumbers]) -> Vec<Vec<f64>> {
    on_shared_keys(&lists.iter().map(|list| &list.0).collect::<Vec<_>>())
}

/// The values of several maps at the keys that all of them have, in their order.
pub(crate) fn on_shared_keys<K: Ord, V: Copy>(maps: &[&BTreeMap<K, V>]) -> Vec<Vec<V>> {
    let Some((first, others)) = maps.split_first() else { return Vec::new() };
    let shared: Vec<&K> = first.keys().filter(|key| others.iter().all(|map| map.contains_key(key))).collect();
    maps.iter().map(|map| shared.iter().map(|key| map[key]).collect()).collect()
}

/// What tells a record's prompt from others: the seed, where there is one. Whatever is made of one seed is made of the
/// same random numbers, and no more evidence than one prompt: many-shot prompts of one mapping, a text that is asked for what it
/// holds and for what it does not.
fn prompt_of<'a>(record: &RecordRef<'a>, free: &[Column]) -> PromptKey<'a> {
    let has_seed = record.identity.seed.is_some() && !free.contains(&Column::Seed);
    let mut prompt = [None; PROMPT_COLUMNS];
    for (value, column) in prompt.iter_mut().zip(Column::ALL) {
        let follows_from_seed =
            has_seed && (Column::Task as usize..Column::Seed as usize).contains(&(*column as usize));
        if !follows_from_seed && !free.contains(column) {
            *value = record.value(*column);
        }
    }
    prompt
}
