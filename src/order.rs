//! Sorted vectors, maps and sets of a few things.
//!
//! Whatever sorts in the standard library, collecting into an ordered map or set too, is compiled anew for every kind of element and
//! every comparison: ten kilobytes each, in sixty places a twentieth of what compiling this crate takes. Where there is
//! little to sort, the functions here do it with one sort, of positions, and with insertions.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

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
pub(crate) fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

/// A map of entries, or the first error among them.
pub(crate) fn try_map<K: Ord, V, E>(entries: impl IntoIterator<Item = Result<(K, V), E>>) -> Result<BTreeMap<K, V>, E> {
    let mut map = BTreeMap::new();
    for entry in entries {
        let (key, value) = entry?;
        map.insert(key, value);
    }
    Ok(map)
}

/// A set of things.
pub(crate) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
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

    proptest! {
        #[test]
        fn things_are_sorted_as_the_standard_library_sorts_them(items: Vec<(u8, u32)>) {
            let (mut ours, mut theirs) = (items.clone(), items.clone());
            sort_by_key(&mut ours, |item| item.0);
            theirs.sort_by_key(|item| item.0);
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(map(items.clone()), items.clone().into_iter().collect());
            prop_assert_eq!(set(items.clone()), items.into_iter().collect());
        }
    }

    #[test]
    fn the_first_error_is_what_a_map_comes_to() {
        assert_eq!(try_map([Ok((1, 2)), Err("no"), Err("never")]), Err("no"));
    }
}
