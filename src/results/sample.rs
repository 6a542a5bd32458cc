//! Samples and pairs: the numbers of one quantity, which of them belong to one prompt, and how two samples are joined.
//!
//! Everything that counts prompts or pairs cells goes through this file: estimates, differences of models, conditions, runs
//! and training seeds, and contrasts, which are differences of differences.

use super::cells::{Cell, Key, Mask};
use super::field::Field;
use crate::stats::mean;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The same cell on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    /// The cell's key without the columns that are compared.
    pub(crate) key: Key,
    /// The value of the baseline.
    pub(crate) a: f64,
    /// The value of the other.
    pub(crate) b: f64,
}

/// Two samples, joined. Everything is in the order of the keys, whatever the order of the records was.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) pairs: Vec<Pair>,
    /// Cells of the baseline alone.
    pub(crate) only_baseline: Vec<Key>,
    /// Cells of the other alone.
    pub(crate) only_other: Vec<Key>,
    /// Number of pairs with different realised depths, which the same prompt has only with another tokenizer.
    pub(crate) moved: usize,
    /// The first two cells of one side with the same key; the second of them is left out.
    pub(crate) duplicate: Option<(Cell, Cell)>,
}

/// A cell of one side: its key without the columns that are compared, and where it is from.
struct Half {
    key: Key,
    cell: Cell,
}

/// Joins two samples on every column that is not free.
pub(crate) fn join(baseline: Vec<Cell>, other: Vec<Cell>, free: &Mask) -> Joined {
    let mut joined = Joined::default();
    let mut halves = |cells: Vec<Cell>| {
        let mut halves: Vec<Half> =
            cells.into_iter().map(|cell| Half { key: without(&cell.key, free), cell }).collect();
        halves.sort_by_key(|half| (half.key, half.cell.input, half.cell.record));
        if let Some(two) = halves.windows(2).find(|two| two[0].key == two[1].key) {
            joined.duplicate.get_or_insert((two[0].cell, two[1].cell));
        }
        halves.dedup_by_key(|half| half.key);
        halves
    };
    let (baseline, other) = (halves(baseline), halves(other));
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
    joined
}

/// Returns the differences b - a of pairs as a sample of their own, to be paired once more.
pub(crate) fn differences(pairs: &[Pair]) -> Vec<Cell> {
    pairs.iter().map(|pair| Cell { key: pair.key, value: pair.b - pair.a, input: 0, record: 0 }).collect()
}

/// Joins two quantities by training seed: other less baseline, of the seeds that both have.
pub(crate) fn differences_by_seed(baseline: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>) -> BTreeMap<u64, f64> {
    baseline.iter().filter_map(|(seed, a)| Some((*seed, other.get(seed)? - a))).collect()
}

/// Returns the values of each prompt, in the order in which prompts first come. The questions of one prompt are not
/// independent, nor is whatever else is made of one seed.
pub(crate) fn by_prompt<T>(cells: impl IntoIterator<Item = (Key, T)>) -> Vec<(Key, Vec<T>)> {
    let mut prompts: Vec<(Key, Vec<T>)> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for (key, value) in cells {
        let prompt = prompt_of(&key);
        let place = *places.entry(prompt).or_insert(prompts.len());
        if place == prompts.len() {
            prompts.push((prompt, Vec::new()));
        }
        prompts[place].1.push(value);
    }
    prompts
}

/// Returns the mean of each prompt.
pub(crate) fn prompt_means(cells: &[Cell]) -> Vec<f64> {
    let prompts = by_prompt(cells.iter().map(|cell| (cell.key, cell.value)));
    prompts.iter().filter_map(|(_, values)| mean(values)).collect()
}

/// Returns the part of a key that tells prompts apart: the seed, where there is one. Whatever is made of one seed is made of
/// the same random numbers, and no more evidence than one prompt: many-shot prompts of one mapping, a text that is asked for
/// what it holds and for what it does not.
fn prompt_of(key: &Key) -> Key {
    let mut prompt = without(key, &Field::ALL.map(Field::is_finding));
    prompt[Field::PROMPT..].fill(0);
    if prompt[Field::Seed as usize] != 0 {
        prompt[Field::Task as usize..Field::Seed as usize].fill(0);
    }
    prompt
}

/// Returns a key without the columns of a mask.
pub(crate) fn without(key: &Key, free: &Mask) -> Key {
    std::array::from_fn(|i| if free[i] { 0 } else { key[i] })
}
