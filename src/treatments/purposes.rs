//! The purposes of conditions: which are compared with what.

use super::{Condition, HeadSelection, KeySelection, PairedPrompt, Replacement, RowSelection, Treatment};
use crate::attention::{HeadPlace, LayersAndHeads};
use crate::results::{HeadsCondition, PlainCondition, Purposes};
use std::collections::BTreeSet;

/// Returns the purposes of conditions, given by their names. Names that are no conditions have none.
pub(crate) fn purposes<'a>(names: impl IntoIterator<Item = &'a str>) -> Purposes {
    let conditions: Vec<Condition> = names.into_iter().filter_map(|name| name.parse().ok()).collect();
    let each_with = replaces_each_head(&conditions);
    let corrupted = conditions.iter().find(|condition| condition.only_corrupts()).and_then(Condition::column);
    let restores = each_with == Some(Replacement::Patch(PairedPrompt::Clean));
    let mut purposes = Purposes { restores, corrupted, ..Purposes::default() };
    // The rows in which heads are out, and what replaces them: the same for all.
    let mut manner = None;
    for condition in &conditions {
        let Some(name) = condition.column() else { continue };
        if let Some((at, _)) = single_head(condition).filter(|(_, with)| each_with == Some(*with)) {
            purposes.each.push((at, name));
        } else if !add_heads(&mut purposes.heads, &mut manner, condition, &name) {
            let reads_corrupted = condition.prompt() == PairedPrompt::Corrupted;
            let from = purposes.corrupted.clone().filter(|corrupted| reads_corrupted && name != *corrupted);
            let patches = condition.patched_rows().next().is_some();
            purposes.plain.push(PlainCondition { name, from, patches, removed: removed_regions(condition) });
        }
    }
    purposes
}

/// Adds a condition without the best heads of a ranking, or one of the draws that are compared with it: as many heads by the same
/// ranking, in the same rows. Returns `false` if it is neither.
fn add_heads(
    known: &mut Vec<HeadsCondition>,
    manner: &mut Option<(RowSelection, Replacement)>,
    condition: &Condition,
    name: &str,
) -> bool {
    let [Treatment::Replace { others: false, heads, of, rows, with }] = condition.treatments() else { return false };
    if *of != LayersAndHeads::default() || manner.is_some_and(|first| first != (*rows, *with)) {
        return false;
    }
    match *heads {
        HeadSelection::Best { n, by } => {
            *manner = Some((*rows, *with));
            known.push(HeadsCondition { n, by: by.name(), best: name.to_owned(), random: Vec::new() });
            true
        }
        HeadSelection::Random { n, by, .. } => {
            let best = known.iter_mut().find(|best| (best.n, best.by) == (n, by.name()));
            best.map(|best| best.random.push(name.to_owned())).is_some()
        }
        _ => false,
    }
}

/// The regions that a condition removes from all heads in the rows that predict an answer, if it does nothing else.
fn removed_regions(condition: &Condition) -> Vec<&'static str> {
    match condition.treatments() {
        [Treatment::Remove { keys: KeySelection::Regions(regions), of, rows: RowSelection::Answer, .. }]
            if *of == LayersAndHeads::default() =>
        {
            regions.iter().map(|region| region.name()).collect()
        }
        _ => Vec::new(),
    }
}

/// The head whose output a condition replaces, and by what, if it replaces one head and does nothing else.
fn single_head(condition: &Condition) -> Option<(HeadPlace, Replacement)> {
    match condition.treatments() {
        [Treatment::Replace { others: false, heads: HeadSelection::Named(heads), of, with, .. }]
            if *of == LayersAndHeads::default() =>
        {
            <[HeadPlace; 1]>::try_from(heads.as_slice()).ok().map(|[head]| (head, *with))
        }
        _ => None,
    }
}

/// The replacement that conditions put in the place of each head of all layers once.
fn replaces_each_head(conditions: &[Condition]) -> Option<Replacement> {
    let singles: Vec<(HeadPlace, Replacement)> = conditions.iter().filter_map(single_head).collect();
    singles.iter().map(|(_, with)| *with).find(|with| {
        let heads: Vec<HeadPlace> = singles.iter().filter(|(_, of)| of == with).map(|(head, _)| *head).collect();
        let unique: BTreeSet<HeadPlace> = heads.iter().copied().collect();
        let layers = unique.iter().map(|at| at.layer + 1).max().unwrap_or(0);
        let width = unique.iter().map(|at| at.head + 1).max().unwrap_or(0);
        heads.len() > 1 && heads.len() == unique.len() && heads.len() == layers * width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purposes(names: &[&str]) -> Purposes {
        super::purposes(names.iter().copied())
    }

    fn plain(purposes: &Purposes) -> Vec<&str> {
        purposes.plain.iter().map(|plain| plain.name.as_str()).collect()
    }

    #[test]
    fn conditions_are_told_apart_by_the_heads_that_they_take_out() {
        let names = ["none", "ablate(best:2:share_abs)", "ablate(random:2:share_abs:0)", "ablate(0.1)", "mask(noise)"];
        let read = purposes(&names);
        assert_eq!(plain(&read), ["ablate(0.1)", "mask(noise)"]);
        assert_eq!((read.heads.len(), read.heads[0].n, read.heads[0].random.len()), (1, 2, 1));
    }

    #[test]
    fn single_heads_are_a_map_if_no_head_is_missing() {
        let all = ["ablate(0.0)", "ablate(0.1)", "ablate(1.0)", "ablate(1.1)", "ablate(0.0+0.1)"];
        let read = purposes(&all);
        assert_eq!(plain(&read), ["ablate(0.0+0.1)"]);
        assert_eq!(read.each[2], (HeadPlace { layer: 1, head: 0 }, "ablate(1.0)".to_owned()));
        assert_eq!(purposes(&all[1..]).plain.len(), 4, "0.0 is missing");
        assert!(purposes(&["ablate(0.0)", "mask(noise)"]).each.is_empty());
    }

    #[test]
    fn patches_of_each_head_are_a_map_beside_knock_outs_and_count_from_the_corrupted_prompt() {
        let names = ["patch(none, from=clean)", "ablate(0.0)", "patch(0.0, from=clean)", "patch(0.1, from=clean)"];
        let read = purposes(&names);
        assert_eq!(plain(&read), [names[0], names[1]]);
        assert_eq!((read.each.len(), read.corrupted.as_deref()), (2, Some(names[0])));
        assert_eq!(read.baseline_of_each(), Some(names[0]));
        let read = purposes(&[names[0], names[1], "patch(0.0, from=corrupted)", "patch(0.0+0.1, from=clean)"]);
        let from: Vec<Option<&str>> = read.plain.iter().map(|plain| plain.from.as_deref()).collect();
        assert_eq!(from, [None, None, None, Some(names[0])]);
    }

    #[test]
    fn draws_are_averaged_only_where_they_are_of_the_same_rows_layers_and_ablation() {
        let others = [
            "ablate(random:2:share_abs:1, rows=all)",
            "ablate(random:2:share_abs:2, zero)",
            "ablate(random:2:share_abs:3, layers=0)",
            "ablate(random:3:share_abs:4)",
            "ablate(best:2:share_abs, layers=0)",
            "ablate(best:2:share_abs, rows=all)",
        ];
        let first = ["ablate(best:2:share_abs)", "ablate(random:2:share_abs:0)"];
        let read = purposes(&[first.as_slice(), others.as_slice()].concat());
        assert_eq!(plain(&read), others);
        assert_eq!((read.heads.len(), &*read.heads[0].random), (1, &["ablate(random:2:share_abs:0)".to_owned()][..]));
    }
}
