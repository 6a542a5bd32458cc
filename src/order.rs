//! Sorted vectors and maps of a few things.
//!
//! What sorts in the standard library, and its ordered maps and sets, are compiled anew for every kind of element and every
//! comparison: ten kilobytes each, in over a hundred places a tenth of what compiling this crate takes. The functions here sort
//! positions, by one sort, and keep maps in sorted vectors, which is for few things, or such as come in order: what may grow to
//! tens of thousands in any order, as the tensors of a checkpoint do, is for the standard library to keep.

use litemap::LiteMap;
use std::cmp::Ordering;

/// Sorts by a comparison; equals stay in order.
pub(crate) fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut order = positions(items.len(), &|a, b| compare(&items[a], &items[b]));
    // Round by round: each place takes what belongs there, and hands on what was in it.
    for first in 0..items.len() {
        let mut place = first;
        while order[place] != first {
            let from = std::mem::replace(&mut order[place], place);
            items.swap(place, from);
            place = from;
        }
        order[place] = place;
    }
}

/// Sorts by a key; equals stay in order.
pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// A map of entries; of equal keys the last one counts.
pub(crate) fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> LiteMap<K, V> {
    let mut map = LiteMap::new();
    for (key, value) in entries {
        map.insert(key, value);
    }
    map
}

/// A map of entries, or the first error among them.
pub(crate) fn try_map<K: Ord, V, E>(entries: impl IntoIterator<Item = Result<(K, V), E>>) -> Result<LiteMap<K, V>, E> {
    let mut map = LiteMap::new();
    for entry in entries {
        let (key, value) = entry?;
        map.insert(key, value);
    }
    Ok(map)
}

/// The values of a map in the order of their keys.
pub(crate) fn into_values<K, V>(map: LiteMap<K, V>) -> impl Iterator<Item = V> {
    map.into_iter().map(|(_, value)| value)
}

/// What there is, once each, sorted.
pub(crate) fn sorted_distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    sort_by(&mut items, T::cmp);
    items.dedup();
    items
}

/// The positions of `n` things, sorted by a comparison of two positions; equals stay in order.
pub(crate) fn positions(n: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn things_are_sorted_as_the_standard_library_sorts_them(items: Vec<(u8, u32)>) {
            let (mut ours, mut theirs) = (items.clone(), items.clone());
            sort_by_key(&mut ours, |item| item.0);
            theirs.sort_by_key(|item| item.0);
            prop_assert_eq!(&ours, &theirs);
            let ours: Vec<(u8, u32)> = map(items.clone()).into_iter().collect();
            let theirs: BTreeMap<u8, u32> = items.clone().into_iter().collect();
            prop_assert_eq!(ours, theirs.into_iter().collect::<Vec<_>>());
            let ours = sorted_distinct(items.clone());
            prop_assert_eq!(ours, items.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_is_what_a_map_comes_to() {
        assert_eq!(try_map([Ok((1, 2)), Err("no"), Err("never")]), Err("no"));
    }
}
