//! What was found, in words: each sentence follows from an interval and quotes it.

use super::effects::{Contrast, Effect, Effects, Knockout};
use super::nats;
use crate::attention::{Removal, Selection};
use crate::frame::Setting;
use crate::prompt::Region;
use crate::table::{percent, plural};
use crate::treatment::{Condition, KeySelection, Treatment};
use std::fmt::Write as _;

/// A change of log-probability that nobody would notice: the right answer is 5 % more or less likely.
const HARDLY_NATS: f64 = 0.05;

/// What was found, a sentence for each model and question.
pub(super) fn words(effects: &Effects) -> Vec<String> {
    let mut sentences: Vec<String> = effects.conditions.iter().filter_map(condition_words).collect();
    let alike =
        |a: &Knockout, b: &Knockout| a.best.model == b.best.model && a.best.setting == b.best.setting && a.by == b.by;
    sentences.extend(effects.heads.chunk_by(alike).map(head_words));
    sentences.extend(effects.contrasts.iter().filter_map(contrast_words));
    sentences
}

/// `1024 tokens`, or `4096 tokens, N 4 R 2` where it is more than one needle.
fn setting((tokens, needles, retrieve): Setting) -> String {
    match (needles, retrieve) {
        (1, 1) => format!("{tokens} tokens"),
        _ => format!("{tokens} tokens, N {needles} R {retrieve}"),
    }
}

/// `diff, 1024 tokens`.
fn place(effect: &Effect) -> String {
    format!("{}, {}", effect.model, setting(effect.setting))
}

/// `accuracy 95.0 -> 20.0 %, log-probability -3.10 [-3.50, -2.71] nats`.
fn change(effect: &Effect) -> String {
    let of = |fraction: Option<f64>| percent(fraction.unwrap_or_default());
    let (before, after) = (of(effect.untreated_accuracy.fraction), of(effect.accuracy.fraction));
    format!("accuracy {before} -> {after} %, log-probability {} nats", nats(effect.log_prob_nats))
}

/// Keys whose absence from all layers and heads answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Noise,
    /// As many keys as there are of noise.
    AsManyAsNoise,
    Answer,
}

impl Hidden {
    /// What a condition hides, if that is all it does, and does everywhere: no layer or head speaks for all of them.
    fn of(condition: &str) -> Option<Self> {
        let condition: Condition = condition.parse().ok()?;
        let [Treatment::Remove { how: Removal::Mask, keys, of, .. }] = condition.treatments() else { return None };
        if *of != Selection::default() {
            return None;
        }
        match keys {
            KeySelection::Regions(regions) if *regions == Region::NOISE => Some(Self::Noise),
            KeySelection::Regions(regions) if *regions == [Region::Needle, Region::Answer] => Some(Self::Answer),
            KeySelection::RandomLike(regions) if *regions == Region::NOISE => Some(Self::AsManyAsNoise),
            _ => None,
        }
    }
}

/// What taking noise, or the answer, away says; other conditions speak for themselves in the table.
fn condition_words(effect: &Effect) -> Option<String> {
    let name = effect.condition.as_str();
    let half = 0.5 * effect.untreated_accuracy.fraction.unwrap_or_default();
    let destroyed = effect.accuracy.hi < half;
    let survives = effect.accuracy.fraction.unwrap_or_default() >= half;
    let said = match Hidden::of(name)? {
        Hidden::Noise => noise_words(effect),
        Hidden::Answer => match (destroyed, survives) {
            (true, _) => "without the answer's needle most answers are lost, as it must be",
            (_, true) => "the answer survives without its needle: these prompts do not measure retrieval",
            _ => "without the answer's needle most is lost, in too few prompts to be sure",
        },
        Hidden::AsManyAsNoise => match (destroyed, survives) {
            (true, _) => "as many random keys take the answer with them: what matters is which keys go, not how many",
            (_, true) => "as many random keys can go as well: the answer hardly depends on these rows",
            _ => "as many random keys take most answers with them, in too few prompts to be sure",
        },
    };
    Some(format!("{}: {said} ({name}: {}).", place(effect), change(effect)))
}

/// What noise costs, or gives. That a model answers better or worse is said of its accuracy alone: an answer may be less likely
/// and still be given every time.
fn noise_words(effect: &Effect) -> &'static str {
    match (effect.log_prob_nats.sign(), effect.exact.sign()) {
        _ if effect.log_prob_nats.is_within(HARDLY_NATS) => "noise makes next to no difference, less than 0.05 nats",
        (1, 1) => "noise costs this model: it answers better without",
        (-1, -1) => "this model needs what counts as noise: it answers worse without",
        (1, -1) => "without noise the answer is more likely on average, but found less often",
        (-1, 1) => "without noise the answer is less likely on average, but found more often",
        (1, _) if effect.exact.difference == 0.0 => "noise makes the answer less likely, but costs no accuracy",
        (-1, _) if effect.exact.difference == 0.0 => "without noise the answer is less likely, but found as often",
        (1, _) => "noise makes the answer less likely; that it costs accuracy cannot be told from chance",
        (-1, _) => "without noise the answer is less likely; that it is found less often cannot be told from chance",
        _ => "no cost of noise can be told from chance in these prompts",
    }
}

/// What the heads of one model say: from how many on the best are worth more than others. The numbers are those of as many
/// heads as the sentence is about, of the most where it is about any number.
fn head_words(of_model: &[Knockout]) -> String {
    let mut by_number: Vec<&Knockout> = of_model.iter().collect();
    by_number.sort_by_key(|knockout| knockout.n);
    let matters = |knockout: &&Knockout| knockout.best_less_random.is_some_and(|less| less.sign() < 0);
    let first = by_number.iter().position(matters);
    let at = first.unwrap_or(by_number.len() - 1);
    let (told, more) = (by_number[at], &by_number[at + 1..]);
    let (n, by) = (told.n, told.by);
    let said = match first {
        Some(_) if n == 1 => format!("the best head by {by} is worth more than another of its layer"),
        Some(_) if more.iter().all(matters) => {
            format!("from {n} heads on, the best by {by} are worth more than others of their layers")
        }
        Some(_) => format!("the best {n} heads by {by} are worth more than others of their layers"),
        None if told.random.is_none() => format!("the best heads by {by} were compared with no others"),
        None => format!("the best heads by {by} are worth no more than others of their layers"),
    };
    let mut text = format!("{}: {said} ({}", place(&told.best), knockout_words(told));
    let exception = more.iter().find(|knockout| first.is_some() && !matters(knockout));
    if let Some((n, less)) = exception.and_then(|knockout| Some((knockout.n, knockout.best_less_random?))) {
        let _ = write!(text, "; not with {n} heads out: best - random {} nats", nats(less));
    }
    text + ")."
}

/// `best 1 out: accuracy …; 1 other, mean of 3 draws: log-probability … nats; best - random … nats`.
fn knockout_words(knockout: &Knockout) -> String {
    let n = knockout.n;
    let mut text = format!("best {n} out: {}", change(&knockout.best));
    if let Some(random) = &knockout.random {
        let (others, draws) = (if n == 1 { "other" } else { "others" }, random.draws);
        let mean = if draws == 1 { "1 draw".to_owned() } else { format!("mean of {draws} draws") };
        let _ = write!(text, "; {n} {others}, {mean}: log-probability {} nats", nats(random.log_prob_nats));
    }
    if let Some(less) = knockout.best_less_random {
        let _ = write!(text, "; best - random {} nats", nats(less));
    }
    text
}

fn contrast_words(contrast: &Contrast) -> Option<String> {
    let name = contrast.condition.as_str();
    if Hidden::of(name) != Some(Hidden::Noise) {
        return None;
    }
    let said = match contrast.log_prob_nats.sign() {
        1 => "gains more from the absence of noise than",
        -1 => "gains less from the absence of noise than",
        _ => "gains or loses no more from the absence of noise, as far as can be told, than",
    };
    let nats = nats(contrast.log_prob_nats);
    Some(format!(
        "{} {said} {} ({}, {name}: {nats} nats, {}).",
        contrast.model,
        contrast.baseline,
        setting(contrast.setting),
        plural(contrast.prompts, "prompt")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Proportion;
    use crate::tables::Delta;

    fn delta(difference: f64, half: f64) -> Delta {
        Delta { difference, lo: difference - half, hi: difference + half }
    }

    fn effect(condition: &str, hits: usize, log_prob: Delta) -> Effect {
        let of = |hits: usize| Proportion {
            hits,
            n: 10,
            fraction: Some(hits as f64 / 10.0),
            lo: (hits as f64 / 10.0 - 0.2).max(0.0),
            hi: (hits as f64 / 10.0 + 0.2).min(1.0),
        };
        Effect {
            model: "m".into(),
            setting: (8, 1, 1),
            condition: condition.into(),
            draws: 1,
            prompts: 10,
            accuracy: of(hits),
            untreated_accuracy: of(9),
            exact: delta(0.0, 0.1),
            log_prob_nats: log_prob,
        }
    }

    fn said(effect: Effect) -> Vec<String> {
        words(&Effects { conditions: vec![effect], ..Effects::default() })
    }

    #[test]
    fn words_follow_the_interval_and_not_the_estimate() {
        assert!(said(effect("mask(noise)", 9, delta(0.5, 0.6)))[0].contains("no cost of noise can be told from chance"));
        assert!(said(effect("mask(noise)", 9, delta(0.01, 0.005)))[0].contains("next to no difference"));
        assert!(said(effect("mask(needle+answer)", 0, delta(-9.0, 1.0)))[0].contains("as it must be"));
        assert!(said(effect("mask(needle+answer)", 8, delta(-0.1, 1.0)))[0].contains("do not measure retrieval"));
        assert!(said(effect("mask(filler)", 8, delta(0.1, 1.0))).is_empty());
    }

    #[test]
    fn a_model_answers_better_or_worse_only_where_its_accuracy_says_so() {
        let noise = |log_prob: f64, exact: Delta| {
            said(Effect { exact, ..effect("mask(noise, rows=all)", 9, delta(log_prob, 0.1)) }).remove(0)
        };
        assert!(noise(0.5, delta(0.2, 0.1)).contains("noise costs this model: it answers better without"));
        assert!(noise(-0.5, delta(-0.2, 0.1)).contains("needs what counts as noise: it answers worse without"));
        assert!(noise(0.5, delta(0.0, 0.0)).contains("noise makes the answer less likely, but costs no accuracy"));
        assert!(noise(-0.5, delta(0.0, 0.0)).contains("without noise the answer is less likely, but found as often"));
        assert!(noise(0.5, delta(0.1, 0.2)).contains("that it costs accuracy cannot be told from chance"));
        assert!(noise(-0.5, delta(-0.1, 0.2)).contains("found less often cannot be told from chance"));
        assert!(noise(-0.5, delta(0.2, 0.1)).contains("less likely on average, but found more often"));
    }

    #[test]
    fn no_layer_or_head_speaks_for_all_and_no_treatment_for_another() {
        for keys in ["noise", "needle+answer", "random:noise"] {
            for name in ["mask(KEYS, layers=1)", "mask(KEYS, heads=0)", "mask(KEYS); quantise(4, row)", "silence(KEYS)"]
            {
                let name = name.replace("KEYS", keys);
                let silent = said(effect(&name, 8, delta(0.5, 0.1)));
                assert!(silent.is_empty(), "{name}: {silent:?}");
            }
            assert_eq!(said(effect(&format!("mask({keys}, rows=question)"), 8, delta(0.5, 0.1))).len(), 1);
        }
    }

    #[test]
    fn models_are_compared_by_what_noise_costs_and_not_by_what_it_costs_one_layer() {
        let contrast = |condition: &str| Contrast {
            model: "b".into(),
            baseline: "a".into(),
            setting: (8, 1, 1),
            condition: condition.into(),
            prompts: 10,
            exact: delta(0.0, 0.1),
            log_prob_nats: delta(0.5, 0.1),
        };
        let said = |condition| words(&Effects { contrasts: vec![contrast(condition)], ..Effects::default() });
        assert!(said("mask(noise)")[0].starts_with("b gains more from the absence of noise than a"));
        for other in ["mask(noise, layers=0)", "mask(noise, heads=0)", "mask(noise); ablate(0.1)"] {
            assert!(said(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn sentences_of_several_needles_say_so() {
        let of = |setting| said(Effect { setting, ..effect("mask(noise)", 9, delta(0.5, 0.1)) }).remove(0);
        assert!(of((8, 1, 1)).starts_with("m, 8 tokens: noise makes"));
        assert!(of((8, 4, 2)).starts_with("m, 8 tokens, N 4 R 2: noise makes"));
    }

    #[test]
    fn heads_matter_where_the_best_cost_more_than_others() {
        let text = said_of_heads(&[(1, delta(-0.1, 0.5)), (4, delta(-2.9, 0.5))]);
        assert!(text.contains("from 4 heads on") && text.contains("best 4 out: accuracy 90.0 -> 20.0 %"), "{text}");
        assert!(said_of_heads(&[(1, delta(-0.1, 0.5))]).contains("worth no more than others"));
    }

    #[test]
    fn the_numbers_of_a_sentence_about_heads_are_those_of_as_many_heads() {
        let text = said_of_heads(&[(8, delta(2.0, 0.5)), (1, delta(-7.0, 0.5))]);
        assert!(
            text.contains("the best head by share_out is worth more than another of its layer (best 1 out"),
            "{text}"
        );
        assert!(text.contains("; 1 other, 1 draw: ") && text.contains("; best - random -7.0"), "{text}");
        assert!(text.contains("; not with 8 heads out: best - random 2.0"), "{text}");
        let text = said_of_heads(&[(1, delta(-0.1, 0.5)), (2, delta(-3.0, 0.5)), (4, delta(0.0, 0.5))]);
        assert!(text.contains("the best 2 heads by share_out are worth more") && !text.contains("from 2"), "{text}");
    }

    /// What is said of so many heads out, with the difference between the best and random ones.
    fn said_of_heads(knockouts: &[(usize, Delta)]) -> String {
        let knockout = |&(n, less): &(usize, Delta)| Knockout {
            n,
            by: "share_out",
            best: effect("ablate(best:1:share_out)", 2, delta(-3.0, 0.5)),
            random: Some(effect("ablate(random:1:share_out:0)", 9, delta(-0.1, 0.2))),
            best_less_random: Some(less),
        };
        words(&Effects { heads: knockouts.iter().map(knockout).collect(), ..Effects::default() }).remove(0)
    }
}
