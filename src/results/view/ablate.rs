//! Costs of noise and heads: conditions against the untreated passes, on the same prompts.

use super::sheet::{basis, numbers, words, Sheet, SheetCell, SheetColumn};
use crate::attention::LayersAndHeads;
use crate::results::metric::{Kind, ANSWER_LOG_PROB, EXACT};
use crate::results::{Case, ConditionKey, Difference, Estimate, Frame, HeadPlace, Pick, Setting};
use crate::treatments::{
    Condition, HeadSelection, PairedPrompt, Ranking, Replacement, RowSelection, Treatment, UNTREATED,
};
use std::collections::BTreeSet;

/// Name of the table of differences between models.
pub(super) const CONTRASTS: &str = "contrasts";

/// The change under a condition, or under several of one kind, in one model and setting.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) model: String,
    pub(crate) setting: Setting,
    /// The condition; of draws of random heads, the first.
    pub(crate) condition: String,
    /// Number of conditions that are averaged: the draws of random heads.
    pub(crate) draws: usize,
    accuracy: Option<Estimate>,
    /// Change of the accuracy, as a fraction.
    pub(crate) exact: Difference,
    /// Change of the answer's log-probability, in nats.
    pub(crate) log_prob_nats: Difference,
}

/// A number of heads taken out: the best, and others of the same layers.
#[derive(Clone, Debug)]
pub(crate) struct HeadsOut {
    pub(crate) n: usize,
    pub(crate) by: &'static str,
    pub(crate) best: Change,
    /// `None` without draws.
    pub(crate) random: Option<Change>,
    /// Log-probability without the best heads less that without random ones, in nats.
    best_less_random: Option<Difference>,
}

/// Conditions by their purpose.
#[derive(Default)]
struct Purposes {
    plain: Vec<String>,
    heads: Vec<HeadsCondition>,
    /// Conditions that replace one head each, if every head of every layer has one, and by what.
    each: Vec<(HeadPlace, String)>,
    each_with: Option<Replacement>,
    /// The untreated pass over the corrupted prompt.
    corrupted: Option<String>,
    /// The rows in which heads are out, and what replaces them: the same for all `heads`.
    manner: Option<(RowSelection, Replacement)>,
}

/// A condition without the best heads of a ranking, and the draws of others.
struct HeadsCondition {
    n: usize,
    by: Ranking,
    best: String,
    random: Vec<String>,
}

impl Purposes {
    fn of(frame: &Frame) -> Self {
        let names = frame.treated().iter().filter_map(|treated| treated.condition.as_deref()?.parse().ok());
        Self::of_conditions(names)
    }

    fn of_conditions(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let mut purposes = Self::default();
        let conditions: Vec<Condition> = conditions.into_iter().collect();
        purposes.each_with = replaces_each_head(&conditions);
        let corrupted = conditions.iter().find(|condition| condition.only_corrupts());
        purposes.corrupted = corrupted.and_then(Condition::column);
        for condition in conditions {
            let Some(name) = condition.column() else { continue };
            if let Some((at, _)) = single_head(&condition).filter(|(_, with)| purposes.each_with == Some(*with)) {
                purposes.each.push((at, name));
                continue;
            }
            match condition.treatments() {
                [Treatment::Replace { others: false, heads, of, rows, with }] if *of == LayersAndHeads::default() => {
                    purposes.add_heads(heads, (*rows, *with), name);
                }
                _ => purposes.plain.push(name),
            }
        }
        purposes
    }

    /// Adds the best heads, and draws that are compared with them: as many by the same ranking, in the same rows.
    fn add_heads(&mut self, heads: &HeadSelection, manner: (RowSelection, Replacement), name: String) {
        let is_alike = self.manner.is_none_or(|first| first == manner);
        let is_kind = |n: usize, by: Ranking| move |kind: &&mut HeadsCondition| (kind.n, kind.by) == (n, by);
        match *heads {
            HeadSelection::Best { n, by } if is_alike => {
                self.manner = Some(manner);
                self.heads.push(HeadsCondition { n, by, best: name, random: Vec::new() });
            }
            HeadSelection::Random { n, by, .. } if is_alike => match self.heads.iter_mut().find(is_kind(n, by)) {
                Some(kind) => kind.random.push(name),
                None => self.plain.push(name),
            },
            _ => self.plain.push(name),
        }
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

/// What conditions put in the place of each head of a grid of layers and heads once.
fn replaces_each_head(conditions: &[Condition]) -> Option<Replacement> {
    let singles: Vec<(HeadPlace, Replacement)> = conditions.iter().filter_map(single_head).collect();
    let is_whole = |with: &Replacement| {
        let heads: Vec<HeadPlace> = singles.iter().filter(|(_, of)| of == with).map(|(head, _)| *head).collect();
        let unique: BTreeSet<HeadPlace> = heads.iter().copied().collect();
        let most = |number: fn(&HeadPlace) -> usize| unique.iter().map(number).max().map_or(0, |most| most + 1);
        heads.len() > 1 && heads.len() == unique.len() && heads.len() == most(|head| head.0) * most(|head| head.1)
    };
    singles.iter().map(|(_, with)| *with).find(is_whole)
}

/// Conditions that replace the output of one head each.
pub(crate) struct EachHead {
    pub(super) conditions: Vec<(HeadPlace, String)>,
    /// Whether outputs on the clean prompt are put into passes over the corrupted one.
    pub(crate) restores: bool,
    /// The condition from which changes count; `None` for the untreated pass over the prompt itself.
    pub(super) baseline: Option<String>,
}

/// Returns the conditions that replace each head by itself, if the run has them for all heads.
pub(crate) fn each_head(frame: &Frame) -> EachHead {
    let purposes = Purposes::of(frame);
    let restores = purposes.each_with == Some(Replacement::Patch(PairedPrompt::Clean));
    EachHead { conditions: purposes.each, restores, baseline: purposes.corrupted.filter(|_| restores) }
}

/// The condition from which a condition's change counts: the untreated pass over the same prompt, if the run has it.
fn baseline<'a>(condition: &str, corrupted: Option<&'a str>) -> Option<&'a str> {
    let reads = condition.parse::<Condition>().map_or(PairedPrompt::Clean, |condition| condition.prompt());
    corrupted.filter(|&corrupted| reads == PairedPrompt::Corrupted && condition != corrupted)
}

/// Returns the changes under conditions that are no rankings of heads, setting by setting and model by model.
pub(crate) fn condition_changes(frame: &Frame) -> Vec<Change> {
    let purposes = Purposes::of(frame);
    let of = |(setting, model): (Setting, &String)| {
        let of_name = |name: &String| {
            let from = baseline(name, purposes.corrupted.as_deref());
            change(frame, (setting, model), from, std::slice::from_ref(name))
        };
        purposes.plain.iter().filter_map(of_name).collect::<Vec<_>>()
    };
    places(frame).flat_map(of).collect()
}

/// Returns the changes without the best heads of rankings, setting by setting and model by model.
pub(crate) fn heads_out_changes(frame: &Frame) -> Vec<HeadsOut> {
    let purposes = Purposes::of(frame);
    let of = |(setting, model): (Setting, &String)| {
        purposes.heads.iter().filter_map(|kind| heads_out_of(frame, setting, model, kind)).collect::<Vec<_>>()
    };
    places(frame).flat_map(of).collect()
}

fn places(frame: &Frame) -> impl Iterator<Item = (Setting, &String)> {
    frame.settings().iter().flat_map(|&setting| frame.models().iter().map(move |model| (setting, model)))
}

fn pick<'a>(setting: Setting, model: &'a str, condition: Option<&'a str>) -> Pick<'a> {
    Pick::of(model, EXACT.name).setting(setting).condition(condition)
}

/// The mean change over conditions, from another one.
fn change(frame: &Frame, (setting, model): (Setting, &str), from: Option<&str>, names: &[String]) -> Option<Change> {
    let of = |metric| {
        let of = |condition| pick(setting, model, condition).metric(metric, None);
        let draws: Vec<_> = names.iter().map(|name| (of(from), of(Some(name)))).collect();
        frame.difference_of_draws(&draws)
    };
    Some(Change {
        model: model.to_owned(),
        setting,
        condition: names.first()?.clone(),
        draws: names.len(),
        accuracy: frame.estimate(pick(setting, model, Some(&names[0]))),
        exact: of(&EXACT)?,
        log_prob_nats: of(&ANSWER_LOG_PROB)?,
    })
}

fn heads_out_of(frame: &Frame, setting: Setting, model: &str, kind: &HeadsCondition) -> Option<HeadsOut> {
    let log_prob = |name| pick(setting, model, Some(name)).metric(&ANSWER_LOG_PROB, None);
    let random: Vec<_> = kind.random.iter().map(|name| (log_prob(name.as_str()), log_prob(&kind.best))).collect();
    Some(HeadsOut {
        n: kind.n,
        by: kind.by.name(),
        best: change(frame, (setting, model), None, std::slice::from_ref(&kind.best))?,
        random: change(frame, (setting, model), None, &kind.random),
        best_less_random: frame.difference_of_draws(&random),
    })
}

fn place_cells(model: &str, (tokens, needles, retrieve): Setting) -> Vec<SheetCell> {
    let numbers = [tokens, needles, retrieve].map(|n| SheetCell::count(Some(n)));
    [vec![SheetCell::words(model)], numbers.into()].concat()
}

fn place_columns(heading: &str) -> Vec<SheetColumn> {
    [words(heading), numbers("tokens"), numbers("N"), numbers("R")].map(SheetColumn::key).into()
}

/// The table of conditions: accuracy, and its change and that of the log-probability from the untreated passes.
pub(super) fn conditions(frame: &Frame) -> Option<Sheet> {
    let columns = [
        place_columns("model"),
        vec![words("condition").key(), basis("prompts")],
        vec![
            numbers("accuracy %").named(EXACT.name),
            numbers("change, nats").named("answer_log_prob_change"),
            words("verdict"),
        ],
    ]
    .concat();
    let plain = |found: Option<Estimate>| {
        let cell = found.map_or_else(SheetCell::none, |found| SheetCell::estimate(Kind::Hit, found));
        SheetCell { aside: String::new(), ..cell }
    };
    let row = |change: &Change| {
        let numbers = vec![
            SheetCell::words(&change.condition),
            SheetCell::count(Some(change.exact.n)),
            plain(change.accuracy),
            SheetCell::difference(Kind::Number, &change.log_prob_nats),
            SheetCell::words(change.log_prob_nats.verdict().name()),
        ];
        [place_cells(&change.model, change.setting), numbers].concat()
    };
    let untreated = |change: &Change| {
        let case = Case { setting: change.setting, model: change.model.clone(), treated: ConditionKey::default() };
        let found = frame.estimate(case.pick(&EXACT, None));
        let none = [SheetCell::none(), SheetCell::none()];
        let numbers = vec![SheetCell::words(UNTREATED), SheetCell::count(Some(change.exact.n)), plain(found)];
        [place_cells(&change.model, change.setting), numbers, none.into()].concat()
    };
    let mut rows = Vec::new();
    for group in condition_changes(frame).chunk_by(|a, b| (&a.model, a.setting) == (&b.model, b.setting)) {
        rows.push(untreated(&group[0]));
        rows.extend(group.iter().map(row));
    }
    let mut note =
        "The same prompts under each condition: accuracy, and change of the answer's log-probability from the \
                untreated passes [95 % interval]."
            .to_owned();
    if let Some(corrupted) = Purposes::of(frame).corrupted {
        note += &format!(" With from=clean, they are passes over the prompt with another answer: {corrupted}.");
    }
    Sheet::new("conditions", "Costs of conditions", note, columns, rows).trimmed()
}

/// The table of heads taken out: the best of a ranking beside random ones of the same layers.
pub(super) fn heads_out(frame: &Frame) -> Option<Sheet> {
    let columns = [
        place_columns("model"),
        vec![numbers("heads out").named("n").key(), words("by").key(), basis("draws"), basis("prompts")],
        vec![
            numbers("best, points").named("best_exact_change"),
            numbers("random, points").named("random_exact_change"),
            numbers("best, nats").named("best_log_prob_change"),
            numbers("random, nats").named("random_log_prob_change"),
            numbers("best - random, nats").named("best_less_random_log_prob"),
            words("verdict"),
        ],
    ]
    .concat();
    let row = |out: &HeadsOut| {
        let (best, random, less) = (&out.best, out.random.as_ref(), out.best_less_random.as_ref());
        let of =
            |found: Option<&Difference>, kind| found.map_or_else(SheetCell::none, |d| SheetCell::difference(kind, d));
        let numbers = vec![
            SheetCell::count(Some(out.n)),
            SheetCell::words(out.by),
            SheetCell::count(random.map(|random| random.draws)),
            SheetCell::count(Some(best.exact.n)),
            of(Some(&best.exact), Kind::Hit),
            of(random.map(|random| &random.exact), Kind::Hit),
            of(Some(&best.log_prob_nats), Kind::Number),
            of(random.map(|random| &random.log_prob_nats), Kind::Number),
            of(less, Kind::Number),
            less.map_or_else(SheetCell::none, |less| SheetCell::words(less.verdict().name())),
        ];
        [place_cells(&best.model, best.setting), numbers].concat()
    };
    let note =
        "Without the best heads of a ranking, made on prompts of its own, and without as many random ones of the same \
                layers: changes from the untreated passes [95 % interval, of random heads over draws and prompts].";
    let rows = heads_out_changes(frame).iter().map(row).collect();
    Sheet::new("heads-out", "Heads taken out", note.to_owned(), columns, rows).trimmed()
}

/// The table of contrasts: the change in one model less the change in the first, prompt by prompt.
pub(super) fn contrasts(frame: &Frame) -> Option<Sheet> {
    let purposes = Purposes::of(frame);
    let columns = [
        place_columns("difference"),
        vec![words("condition").key(), basis("prompts")],
        vec![
            numbers("points").named("exact_change"),
            numbers("nats").named("answer_log_prob_change"),
            words("verdict"),
        ],
    ]
    .concat();
    let mut rows = Vec::new();
    for &setting in frame.settings() {
        let Some((first, others)) = frame.models().split_first() else { continue };
        for model in others {
            for name in &purposes.plain {
                let of = |metric| {
                    let from = baseline(name, purposes.corrupted.as_deref());
                    let pair = |model| {
                        (
                            pick(setting, model, from).metric(metric, None),
                            pick(setting, model, Some(name)).metric(metric, None),
                        )
                    };
                    frame.contrast(pair(first), pair(model))
                };
                let (Some(exact), Some(log_prob)) = (of(&EXACT), of(&ANSWER_LOG_PROB)) else { continue };
                let numbers = vec![
                    SheetCell::words(name),
                    SheetCell::count(Some(exact.n)),
                    SheetCell::difference(Kind::Hit, &exact),
                    SheetCell::difference(Kind::Number, &log_prob),
                    SheetCell::words(log_prob.verdict().name()),
                ];
                rows.push([place_cells(&format!("{model} - {first}"), setting), numbers].concat());
            }
        }
    }
    let note = "The change under a condition in one model less that in the first, prompt by prompt [95 % interval]; the verdict \
                is on the log-probability.";
    Sheet::new(CONTRASTS, "Contrasts of models", note.to_owned(), columns, rows).trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purposes(names: &[&str]) -> Purposes {
        Purposes::of_conditions(names.iter().map(|name| name.parse().unwrap()))
    }

    #[test]
    fn conditions_are_told_apart_by_the_heads_that_they_take_out() {
        let names = ["none", "ablate(best:2:share_abs)", "ablate(random:2:share_abs:0)", "ablate(0.1)", "mask(noise)"];
        let found = purposes(&names);
        assert_eq!(found.plain, ["ablate(0.1)", "mask(noise)"]);
        assert_eq!((found.heads.len(), found.heads[0].n, found.heads[0].random.len()), (1, 2, 1));
    }

    #[test]
    fn single_heads_are_a_map_if_no_head_is_missing() {
        let all = ["ablate(0.0)", "ablate(0.1)", "ablate(1.0)", "ablate(1.1)", "ablate(0.0+0.1)"];
        let found = purposes(&all);
        assert_eq!(found.plain, ["ablate(0.0+0.1)"]);
        assert_eq!(found.each[2], ((1, 0), "ablate(1.0)".to_owned()));
        assert_eq!(purposes(&all[1..]).plain.len(), 4, "0.0 is missing");
        assert!(purposes(&["ablate(0.0)", "mask(noise)"]).each.is_empty());
    }

    #[test]
    fn patches_of_each_head_are_a_map_beside_knock_outs_and_count_from_the_corrupted_prompt() {
        let names = ["patch(none, from=clean)", "ablate(0.0)", "patch(0.0, from=clean)", "patch(0.1, from=clean)"];
        let found = purposes(&names);
        assert_eq!(found.plain, [names[0], names[1]]);
        assert_eq!((found.each.len(), found.corrupted.as_deref()), (2, Some(names[0])));
        assert_eq!(baseline(names[2], Some(names[0])), Some(names[0]));
        assert_eq!(
            [names[0], names[1], "patch(0.0, from=corrupted)"].map(|name| baseline(name, Some(names[0]))),
            [None; 3]
        );
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
        let found = purposes(&[first.as_slice(), others.as_slice()].concat());
        assert_eq!(found.plain, others);
        assert_eq!((found.heads.len(), &*found.heads[0].random), (1, &["ablate(random:2:share_abs:0)".to_owned()][..]));
    }
}
