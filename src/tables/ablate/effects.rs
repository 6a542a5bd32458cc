//! What a condition changes on the same prompts, in numbers.

use crate::attention::Selection;
use crate::frame::{Frame, Pick, Proportion, Setting};
use crate::stats::{Interval, Paired, RESAMPLES};
use crate::treatment::{Condition, HeadSelection, Ranking, RowSelection, Treatment};
use std::collections::BTreeMap;

/// What is compared: metrics of the records.
const METRICS: [&str; 2] = ["exact", "answer_log_prob"];

/// A difference with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Delta {
    pub(crate) difference: f64,
    pub(crate) lo: f64,
    pub(crate) hi: f64,
}

impl Delta {
    fn new(paired: &Paired) -> Self {
        Self { difference: paired.diff, lo: paired.lo, hi: paired.hi }
    }

    pub(crate) fn interval(self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }
}

/// What a condition, or several of one kind, changes.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) model: String,
    pub(crate) setting: Setting,
    /// The condition; of random heads the first draw.
    pub(crate) condition: String,
    /// Conditions that are averaged: the draws of random heads.
    pub(crate) draws: usize,
    /// Prompts that were passed both ways.
    pub(crate) prompts: usize,
    /// Hits under the condition; of random heads, under the first draw.
    pub(crate) accuracy: Proportion,
    /// Hits of the untreated passes.
    pub(crate) untreated_accuracy: Proportion,
    /// Change of the accuracy, as a fraction.
    pub(crate) exact: Delta,
    /// Change of the answer's log-probability, in nats.
    pub(crate) log_prob_nats: Delta,
}

/// So many heads knocked out: the best, and others of the same layers.
#[derive(Clone, Debug)]
pub(crate) struct Knockout {
    pub(crate) n: usize,
    pub(crate) by: &'static str,
    pub(crate) best: Effect,
    /// Nothing without draws.
    pub(crate) random: Option<Effect>,
    /// Best less random, of the log-probability, in nats.
    pub(crate) best_less_random: Option<Delta>,
}

/// What a condition changes in one model, less what it changes in the first.
#[derive(Clone, Debug)]
pub(crate) struct Contrast {
    pub(crate) model: String,
    pub(crate) baseline: String,
    pub(crate) setting: Setting,
    pub(crate) condition: String,
    pub(crate) prompts: usize,
    pub(crate) exact: Delta,
    pub(crate) log_prob_nats: Delta,
}

/// Everything that the command says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) conditions: Vec<Effect>,
    pub(crate) heads: Vec<Knockout>,
    pub(crate) contrasts: Vec<Contrast>,
}

impl Effects {
    pub(crate) fn new(frame: &Frame) -> Self {
        let lookup = Lookup(frame);
        let conditions: Vec<Condition> =
            frame.treated().iter().filter_map(|treated| treated.condition.as_deref()?.parse().ok()).collect();
        let kinds = Kinds::of(&conditions);
        let mut effects = Self::default();
        for &setting in frame.settings() {
            for model in frame.models() {
                let of = |names: &[String]| lookup.effect(setting, model, names);
                effects.conditions.extend(kinds.plain.iter().filter_map(|name| of(std::slice::from_ref(name))));
                effects.heads.extend(kinds.heads.iter().filter_map(|kind| lookup.knockout(setting, model, kind)));
            }
            let Some((first, others)) = frame.models().split_first() else { continue };
            for model in others {
                let contrast = |name: &String| lookup.contrast(setting, [first, model], name);
                effects.contrasts.extend(kinds.plain.iter().filter_map(contrast));
            }
        }
        effects
    }
}

/// Conditions by what they are for.
#[derive(Default)]
struct Kinds {
    plain: Vec<String>,
    heads: Vec<KindOfHeads>,
    /// In which rows heads are out, and whether zeros stand for them: all `heads` are alike in that.
    how: Option<(RowSelection, bool)>,
}

/// So many heads by a ranking, and draws of others.
struct KindOfHeads {
    n: usize,
    by: Ranking,
    best: String,
    random: Vec<String>,
}

impl Kinds {
    fn of(conditions: &[Condition]) -> Self {
        let mut kinds = Self::default();
        for condition in conditions {
            let Some(name) = condition.column() else { continue };
            match condition.treatments() {
                [Treatment::Replace { others: false, heads, of, rows, zero }] if *of == Selection::default() => {
                    kinds.add_heads(heads, (*rows, *zero), name);
                }
                _ => kinds.plain.push(name),
            }
        }
        kinds
    }

    /// The best heads, and draws that are compared with them: as many by the same ranking, in the same rows.
    fn add_heads(&mut self, heads: &HeadSelection, how: (RowSelection, bool), name: String) {
        let is_like = self.how.is_none_or(|first| first == how);
        let of_kind = |n: usize, by: Ranking| move |kind: &&mut KindOfHeads| (kind.n, kind.by) == (n, by);
        match *heads {
            HeadSelection::Best { n, by } if is_like => {
                self.how = Some(how);
                self.heads.push(KindOfHeads { n, by, best: name, random: Vec::new() });
            }
            HeadSelection::Random { n, by, .. } if is_like => match self.heads.iter_mut().find(of_kind(n, by)) {
                Some(kind) => kind.random.push(name),
                None => self.plain.push(name),
            },
            _ => self.plain.push(name),
        }
    }
}

/// The numbers of a run.
struct Lookup<'a>(&'a Frame);

/// Means of a metric by prompt.
type ByPrompt = BTreeMap<u64, f64>;

impl Lookup<'_> {
    fn pick<'p>(setting: Setting, model: &'p str, metric: &'p str, name: Option<&'p str>) -> Pick<'p> {
        Pick::of(model, metric).setting(setting).condition(name)
    }

    /// The mean over conditions of each prompt that has all of them.
    fn mean_of(&self, setting: Setting, model: &str, metric: &str, names: &[String]) -> ByPrompt {
        let of = |name: &String| self.0.prompt_means(Self::pick(setting, model, metric, Some(name)));
        let all: Vec<ByPrompt> = names.iter().map(of).collect();
        let Some(first) = all.first() else { return ByPrompt::new() };
        let mean = |prompt: &u64| {
            let values: Option<Vec<f64>> = all.iter().map(|of| of.get(prompt).copied()).collect();
            Some((*prompt, values?.iter().sum::<f64>() / all.len() as f64))
        };
        first.keys().filter_map(mean).collect()
    }

    fn untreated(&self, setting: Setting, model: &str, metric: &str) -> ByPrompt {
        self.0.prompt_means(Self::pick(setting, model, metric, None))
    }

    /// The mean of b - a over prompts that both have.
    fn paired(&self, a: &ByPrompt, b: &ByPrompt) -> Option<Paired> {
        let pairs: Vec<(f64, f64)> = a.iter().filter_map(|(prompt, &a)| Some((a, *b.get(prompt)?))).collect();
        Paired::new(&pairs, RESAMPLES, self.0.about.seed)
    }

    fn effect(&self, setting: Setting, model: &str, names: &[String]) -> Option<Effect> {
        let (treated, untreated) =
            (|metric| self.mean_of(setting, model, metric, names), |metric| self.untreated(setting, model, metric));
        let [exact, log_prob] = METRICS.map(|metric| self.paired(&untreated(metric), &treated(metric)));
        let (exact, log_prob) = (exact?, log_prob?);
        let hits = |name: Option<&str>| self.0.proportion(Self::pick(setting, model, METRICS[0], name));
        Some(Effect {
            model: model.to_owned(),
            setting,
            condition: names[0].clone(),
            draws: names.len(),
            prompts: exact.n,
            accuracy: hits(Some(&names[0])),
            untreated_accuracy: hits(None),
            exact: Delta::new(&exact),
            log_prob_nats: Delta::new(&log_prob),
        })
    }

    fn knockout(&self, setting: Setting, model: &str, kind: &KindOfHeads) -> Option<Knockout> {
        let best = std::slice::from_ref(&kind.best);
        let of = |names: &[String]| self.mean_of(setting, model, METRICS[1], names);
        let less = self.paired(&of(&kind.random), &of(best));
        Some(Knockout {
            n: kind.n,
            by: kind.by.name(),
            best: self.effect(setting, model, best)?,
            random: if kind.random.is_empty() { None } else { self.effect(setting, model, &kind.random) },
            best_less_random: less.as_ref().map(Delta::new),
        })
    }

    /// Changes of one model less those of another, prompt by prompt.
    fn contrast(&self, setting: Setting, [first, other]: [&String; 2], name: &String) -> Option<Contrast> {
        let names = std::slice::from_ref(name);
        let changes = |model: &str, metric: &str| -> ByPrompt {
            let (before, after) = (self.untreated(setting, model, metric), self.mean_of(setting, model, metric, names));
            after.into_iter().filter_map(|(prompt, after)| Some((prompt, after - before.get(&prompt)?))).collect()
        };
        let [exact, log_prob] = METRICS.map(|metric| self.paired(&changes(first, metric), &changes(other, metric)));
        let (exact, log_prob) = (exact?, log_prob?);
        Some(Contrast {
            model: other.clone(),
            baseline: first.clone(),
            setting,
            condition: name.clone(),
            prompts: exact.n,
            exact: Delta::new(&exact),
            log_prob_nats: Delta::new(&log_prob),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measurement, Record};
    use std::sync::Arc;

    fn frame(numbers: &[(u64, Option<&'static str>, f64)]) -> Frame {
        let mut frame = Frame::default();
        for &(seed, condition, log_prob) in numbers {
            for (metric, value) in [("exact", f64::from(u8::from(log_prob > -1.0))), ("answer_log_prob", log_prob)] {
                let identity = Identity {
                    model: "m".into(),
                    ctx_tok: 8,
                    seed: Some(seed),
                    condition: condition.map(Into::into),
                    ..Identity::default()
                };
                let measure = Measurement { metric: metric.into(), value: Some(value), ..Measurement::default() };
                frame.add(&Record { identity: Arc::new(identity), measure });
            }
        }
        frame
    }

    #[test]
    fn draws_of_random_heads_are_averaged_by_prompt_before_they_are_compared() {
        let frame = frame(&[
            (0, None, -0.5),
            (1, None, -0.5),
            (0, Some("best"), -3.0),
            (1, Some("best"), -5.0),
            (0, Some("a"), -0.5),
            (1, Some("a"), -1.5),
            (0, Some("b"), -1.5),
            (1, Some("b"), -2.5),
        ]);
        let kind =
            KindOfHeads { n: 2, by: Ranking::ShareAbs, best: "best".into(), random: vec!["a".into(), "b".into()] };
        let found = Lookup(&frame).knockout((8, 0, 0), "m", &kind).unwrap();
        assert_eq!((found.best.log_prob_nats.difference, found.best.exact.difference), (-3.5, -1.0));
        let random = found.random.unwrap();
        // Prompt 0: one of two draws hits; prompt 1: none.
        assert_eq!((random.draws, random.log_prob_nats.difference, random.exact.difference), (2, -1.0, -0.75));
        let less = found.best_less_random.unwrap();
        assert_eq!((less.difference, less.sign(), random.exact.sign()), (-2.5, -1, -1));
    }

    #[test]
    fn conditions_are_told_apart_by_what_they_knock_out() {
        let names = ["none", "ablate(best:2:share_abs)", "ablate(random:2:share_abs:0)", "ablate(0.1)", "mask(noise)"];
        let kinds = Kinds::of(&names.map(|name| name.parse().unwrap()));
        assert_eq!(kinds.plain, ["ablate(0.1)", "mask(noise)"]);
        assert_eq!((kinds.heads.len(), kinds.heads[0].n, kinds.heads[0].random.len()), (1, 2, 1));
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
        let names = ["ablate(best:2:share_abs)", "ablate(random:2:share_abs:0)"].into_iter().chain(others);
        let kinds = Kinds::of(&names.map(|name| name.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(kinds.plain, others);
        assert_eq!((kinds.heads.len(), &*kinds.heads[0].random), (1, &["ablate(random:2:share_abs:0)".to_owned()][..]));
    }
}
