//! What conditions are for: by themselves, and beside the other conditions of a run.

use super::words::is_usual;
use super::{
    Condition, ConditionFacts, Conditions, HeadSelection, KeySelection, PairedPrompt, Purpose, Replacement,
    RowSelection, Treatment,
};
use crate::{HeadPlace, LayersAndHeads};
use std::collections::BTreeSet;

impl Conditions {
    /// What is known of the conditions of a run, given by their names in records. Of a name that is no condition, nothing is known.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut read: Vec<(&str, Option<Condition>)> = Vec::new();
        for name in names {
            read.push((name, name.parse().ok()));
        }
        let run = RunConditions::of(read.iter().filter_map(|(_, condition)| condition.as_ref()).collect());
        let mut facts = Vec::new();
        for (name, condition) in &read {
            facts
                .push(condition.as_ref().map_or_else(|| ConditionFacts::unknown(name), |known| run.facts(name, known)));
        }
        Self(facts)
    }
}

impl Condition {
    /// What it is for by itself.
    pub fn purpose(&self) -> Purpose {
        if self.only_corrupts() {
            return Purpose::Corrupted;
        }
        match self.treatments() {
            [] => Purpose::Untreated,
            [treatment] => treatment.purpose(),
            _ if self.patched_rows().next().is_some() => Purpose::Patch,
            _ => Purpose::Other,
        }
    }

    /// The head whose output is replaced, and by what, if it replaces one head and does nothing else.
    fn single_head(&self) -> Option<(HeadPlace, Replacement)> {
        match self.treatments() {
            [Treatment::Replace { others: false, heads: HeadSelection::Named(heads), of, with, .. }]
                if *of == LayersAndHeads::default() =>
            {
                <[HeadPlace; 1]>::try_from(heads.as_slice()).ok().map(|[head]| (head, *with))
            }
            _ => None,
        }
    }

    /// The rows in which heads write something else, and what.
    fn replacement(&self) -> Option<(RowSelection, Replacement)> {
        self.treatments().iter().find_map(|treatment| match treatment {
            Treatment::Replace { rows, with, .. } => Some((*rows, *with)),
            _ => None,
        })
    }
}

impl Treatment {
    /// What a condition with this treatment alone is for.
    fn purpose(&self) -> Purpose {
        if let Some(of) = self.controlled() {
            return Purpose::Control { of: of.to_string() };
        }
        match self {
            Self::Replace { with: Replacement::Patch(_), .. } => Purpose::Patch,
            Self::Quantise(by) => Purpose::Bits {
                bits: by.format.bits(),
                format: by.format.to_string(),
                layers: by.layers.clone(),
                is_usual: is_usual(by),
            },
            Self::Remove { how, keys: KeySelection::Regions(regions), of, rows } if of.heads.is_none() => {
                Purpose::Removed { how: *how, regions: regions.clone(), layers: of.layers.clone(), rows: rows.name() }
            }
            Self::Replace { others: false, heads: HeadSelection::Best { n, by }, of, .. }
                if *of == LayersAndHeads::default() =>
            {
                Purpose::HeadsOut { n: *n, by: by.name() }
            }
            _ => Purpose::Other,
        }
    }

    /// The treatment that it is the control of: with the keys of regions instead of as many random ones, with the best heads of a
    /// ranking instead of as many others.
    fn controlled(&self) -> Option<Self> {
        let mut controlled = self.clone();
        match &mut controlled {
            Self::Remove { keys, .. } => match keys {
                KeySelection::RandomLike(regions) => *keys = KeySelection::Regions(std::mem::take(regions)),
                _ => return None,
            },
            Self::Replace { heads, with: Replacement::Mean | Replacement::Zero, .. } => match *heads {
                HeadSelection::Random { n, by, .. } => *heads = HeadSelection::Best { n, by },
                _ => return None,
            },
            _ => return None,
        }
        Some(controlled)
    }
}

/// The conditions of a run, and what decides on the purpose of one beside the others.
struct RunConditions<'a> {
    all: Vec<&'a Condition>,
    /// `true` if all of them quantise numbers or do nothing.
    only_quantise: bool,
    /// What replaces the output of each head of all layers once, if anything does.
    each_with: Option<Replacement>,
    /// The rows in which the best heads are out, and what replaces them, of the first such condition. Others are not of the same
    /// table, whose numbers differ in the heads alone.
    best_out: Option<(RowSelection, Replacement)>,
}

impl<'a> RunConditions<'a> {
    fn of(all: Vec<&'a Condition>) -> Self {
        let purposes: Vec<Purpose> = all.iter().map(|condition| condition.purpose()).collect();
        let first_best = purposes.iter().position(|purpose| matches!(purpose, Purpose::HeadsOut { .. }));
        Self {
            only_quantise: purposes.iter().all(|purpose| matches!(purpose, Purpose::Untreated | Purpose::Bits { .. })),
            each_with: replaces_each_head(&all),
            best_out: first_best.and_then(|at| all[at].replacement()),
            all,
        }
    }

    fn facts(&self, name: &str, condition: &Condition) -> ConditionFacts {
        let is_exact = condition.is_untreated() && self.only_quantise && self.all.len() > 1;
        ConditionFacts {
            name: name.to_owned(),
            words: if is_exact { "exact".to_owned() } else { condition.words() },
            purpose: self.purpose(condition),
            baseline: self.baseline(condition).map(ToString::to_string),
        }
    }

    fn purpose(&self, condition: &Condition) -> Purpose {
        match (condition.purpose(), condition.single_head()) {
            (_, Some((at, with))) if self.each_with == Some(with) => {
                Purpose::EachHead { at, restores: with == Replacement::Patch(PairedPrompt::Clean) }
            }
            (Purpose::HeadsOut { .. }, _) if condition.replacement() != self.best_out => Purpose::Other,
            (purpose, _) => purpose,
        }
    }

    /// The condition that one is compared with: if it reads the corrupted prompt, the untreated pass over that one.
    fn baseline(&self, condition: &Condition) -> Option<&'a Condition> {
        let reads_corrupted = condition.prompt() == PairedPrompt::Corrupted && !condition.only_corrupts();
        self.all.iter().copied().find(|other| reads_corrupted && other.only_corrupts())
    }
}

/// The replacement that conditions put in the place of each head of all layers once.
fn replaces_each_head(conditions: &[&Condition]) -> Option<Replacement> {
    let singles: Vec<(HeadPlace, Replacement)> = conditions.iter().filter_map(|one| one.single_head()).collect();
    for (_, with) in &singles {
        let heads: Vec<HeadPlace> = singles.iter().filter(|(_, of)| of == with).map(|(head, _)| *head).collect();
        let unique: BTreeSet<HeadPlace> = heads.iter().copied().collect();
        let layers = unique.iter().map(|at| at.layer + 1).max().unwrap_or(0);
        let width = unique.iter().map(|at| at.head + 1).max().unwrap_or(0);
        if heads.len() > 1 && heads.len() == unique.len() && heads.len() == layers * width {
            return Some(*with);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Ranking, Removal};
    use super::*;
    use crate::Region;

    fn facts(names: &[&str]) -> Conditions {
        Conditions::of_names(names.iter().copied())
    }

    fn plain(conditions: &Conditions) -> Vec<&str> {
        conditions.plain().iter().map(|plain| plain.name.as_str()).collect()
    }

    fn control(of: &str) -> Purpose {
        Purpose::Control { of: of.to_owned() }
    }

    #[test]
    fn a_condition_knows_what_it_is_for() {
        let removed = |how, regions: &[Region], layers: Option<usize>, rows| Purpose::Removed {
            how,
            regions: regions.to_vec(),
            layers: layers.map(|layer| vec![layer]),
            rows,
        };
        for (name, purpose) in [
            ("none", Purpose::Untreated),
            ("mask(noise)", removed(Removal::Mask, &Region::NOISE, None, "answer")),
            ("silence(bos, layers=2, rows=all)", removed(Removal::Silence, &[Region::Bos], Some(2), "all")),
            ("mask(noise, heads=1)", Purpose::Other),
            ("mask(noise); mask(bos)", Purpose::Other),
            ("mask(random:noise, layers=2)", control("mask(noise, layers=2)")),
            ("mask(random:20)", Purpose::Other),
            ("ablate(best:2:share_abs, zero)", Purpose::HeadsOut { n: 2, by: Ranking::ShareAbs.name() }),
            ("ablate(random:2:share_abs:1, zero)", control("ablate(best:2:share_abs, zero)")),
            ("keep(best:2:share_abs)", Purpose::Other),
            ("patch(none, rows=question, from=clean)", Purpose::Corrupted),
            ("patch(random:2:share_abs:1, from=clean)", Purpose::Patch),
            ("patch(all, from=corrupted); mask(noise)", Purpose::Patch),
            (
                "quantise-qk(nvfp4, block, layers=1)",
                Purpose::Bits { bits: 4, format: "nvfp4".into(), layers: Some(vec![1]), is_usual: false },
            ),
        ] {
            assert_eq!(name.parse::<Condition>().unwrap().purpose(), purpose, "{name}");
        }
    }

    #[test]
    fn the_untreated_passes_are_the_exact_ones_among_quantised_ones_alone() {
        let words = |names: &[&str]| facts(names).0.into_iter().map(|facts| facts.words).collect::<Vec<_>>();
        assert_eq!(words(&["none", "quantise(4, tensor)"]), ["exact", "4 bits"]);
        assert_eq!(words(&["none", "quantise(4, tensor)", "of old"]), ["exact", "4 bits", "of old"]);
        assert_eq!(words(&["none", "quantise(4, tensor)", "mask(noise)"])[0], "untreated");
        assert_eq!(words(&["none"]), ["untreated"]);
    }

    #[test]
    fn conditions_are_told_apart_by_the_heads_that_they_take_out() {
        let names = ["none", "ablate(random:2:share_abs:0)", "ablate(best:2:share_abs)", "ablate(0.1)", "mask(noise)"];
        let read = facts(&names);
        assert_eq!(plain(&read), ["ablate(0.1)", "mask(noise)"]);
        assert_eq!(read.controls_of(names[2])[0].name, names[1]);
    }

    #[test]
    fn single_heads_are_a_map_if_no_head_is_missing() {
        let all = ["ablate(0.0)", "ablate(0.1)", "ablate(1.0)", "ablate(1.1)", "ablate(0.0+0.1)"];
        let read = facts(&all);
        assert_eq!(plain(&read), ["ablate(0.0+0.1)"]);
        assert_eq!(read.0[2].purpose, Purpose::EachHead { at: HeadPlace { layer: 1, head: 0 }, restores: false });
        assert_eq!(facts(&all[1..]).plain().len(), 4, "0.0 is missing");
        assert!(facts(&["ablate(0.0)", "mask(noise)"]).each_head().is_empty());
    }

    #[test]
    fn patches_of_each_head_are_a_map_beside_knock_outs_and_count_from_the_corrupted_prompt() {
        let names = ["patch(none, from=clean)", "ablate(0.0)", "patch(0.0, from=clean)", "patch(0.1, from=clean)"];
        let read = facts(&names);
        assert_eq!(plain(&read), [names[0], names[1]]);
        assert_eq!((read.each_head().len(), read.corrupted(), read.restores()), (2, Some(names[0]), true));
        assert_eq!(read.each_head()[0].1.baseline.as_deref(), Some(names[0]));
        let read = facts(&[names[0], names[1], "patch(0.0, from=corrupted)", "patch(0.0+0.1, from=clean)"]);
        let baselines: Vec<Option<&str>> = read.plain().iter().map(|plain| plain.baseline.as_deref()).collect();
        assert_eq!(baselines, [None, None, None, Some(names[0])]);
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
        let read = facts(&[first.as_slice(), others.as_slice()].concat());
        assert_eq!(plain(&read), others);
        assert_eq!(read.controls_of(first[0]).len(), 1);
    }
}
