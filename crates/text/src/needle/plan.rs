//! Plan of a needle prompt: the draws that do not depend on the filler, and the places of the needles in it.

use std::collections::HashSet;
use std::ops::Range;

use anyhow::Result;

use super::facts::Fact;
use super::filler::{total_tok, Filler, SPACE};
use super::form::NeedleForm;
use super::NeedleSpec;
use crate::{Haystack, Tokenizer};
use stats::Rng;

/// Largest distance of a needle from the depth asked for that is not reported, in percent of the filler.
pub const DEPTH_TOLERANCE_PCT: f64 = 2.0;

/// The place of a needle between filler sentences. Needles are in this order in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Boundary {
    /// Filler sentences before it.
    pub(crate) sentences: usize,
    /// Orders needles behind the same sentence.
    pub(crate) order: u64,
}

/// Draws of a needle prompt that do not depend on the filler.
pub(crate) struct NeedlePlan {
    pub(super) form: &'static NeedleForm,
    /// The needles, name by name; those of a chain in its order. The first is the controlled one. Facts about names that
    /// are not in the text follow.
    pub(super) facts: Vec<Fact>,
    /// Number of needles, the facts that are in the text.
    pub(super) n_needles: usize,
    /// Needles of each name.
    pub(super) per_name: usize,
    /// Indices of the names asked for, in the order of the question; absent names follow the others.
    asked: Vec<usize>,
    /// The words of the question about each of them: the name; the value of a chain.
    pub(super) about: Vec<String>,
    /// A worked example, before the prompt.
    pub(super) example: String,
    /// The beginning of the reply, from a file; the form may have another.
    pub(super) lead: Option<String>,
    pub(super) depth_pct: f64,
    /// Stream for the positions of the other needles.
    rng: Rng,
}

impl NeedlePlan {
    /// Draws needles and questions of a spec.
    pub(super) fn draw(spec: &NeedleSpec, mut rng: Rng) -> Self {
        let form = spec.form;
        let names = form.names.draw(spec.cities.cities(), spec.needles * (form.hops + 1), &mut rng);
        let values = form.values.draw(spec.needles * form.values_per_name, &mut rng);
        let mut asked: Vec<usize> = (0..spec.retrieve).collect();
        rng.shuffle(&mut asked);
        let about = asked.iter().map(|&i| if form.hops > 0 { &values[i] } else { &names[i] }).cloned().collect();
        let facts = facts_of_names(form, &names, &values);
        let n_needles = facts.len();
        let per_name = form.answers_per_name();
        let example = String::new();
        let depth_pct = spec.depth_pct;
        Self { form, facts, n_needles, per_name, asked, about, example, lead: None, depth_pct, rng }
    }

    /// Creates a plan of these needles, the first at a depth, with a question about one of them.
    pub(crate) fn asking(form: &'static NeedleForm, facts: Vec<Fact>, asked: usize, depth_pct: f64, rng: Rng) -> Self {
        let about = vec![facts[asked].name.clone()];
        let n_needles = facts.len();
        let example = String::new();
        Self { form, facts, n_needles, per_name: 1, asked: vec![asked], about, example, lead: None, depth_pct, rng }
    }

    /// Asks for names that no needle has. The text stays that of the answerable prompt.
    pub(super) fn ask_for_absent(&mut self, spec: &NeedleSpec, mut rng: Rng) {
        let form = self.form;
        let named: HashSet<&str> = self.facts.iter().map(|fact| fact.name.as_str()).collect();
        let others: Vec<&str> = spec.cities.cities().iter().copied().filter(|city| !named.contains(city)).collect();
        let n_names = if form.has_cities() { spec.retrieve } else { spec.needles + spec.retrieve };
        let mut names = form.names.draw(&others, n_names, &mut rng);
        names.retain(|name| !named.contains(name.as_str()));
        names.truncate(spec.retrieve);
        let n_values = self.n_needles + spec.retrieve * form.values_per_name;
        let mut values = form.values.draw(n_values, &mut rng);
        values.retain(|value| !self.facts.iter().any(|fact| fact.value == *value));
        self.facts.extend(facts_of_names(form, &names, &values));
        self.asked = (spec.needles..spec.needles + spec.retrieve).collect();
        self.about = names;
    }

    /// Number of answers.
    pub(super) fn n_answers(&self) -> usize {
        self.asked.len() * self.per_name
    }

    /// Text between two sentences.
    pub(super) fn separator(&self, haystack: &Haystack) -> &'static str {
        if self.form.has_lines && !haystack.is_prose() {
            "\n"
        } else {
            SPACE
        }
    }

    /// Tokens of the prompt's length that stay free for longer answers than the right ones.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub(super) fn reserved_tok(&self, tokenizer: &Tokenizer) -> Result<usize> {
        if self.form.answers_tok == 0 {
            return Ok(0);
        }
        let answers = self.asked.iter().flat_map(|&name| self.facts_of_name(name));
        let answers: String = answers.map(|i| format!(" {}", self.facts[i].value)).collect();
        Ok(self.form.answers_tok.saturating_sub(tokenizer.encode(&answers)?.ids.len()))
    }

    /// Indices of the facts of a name.
    fn facts_of_name(&self, name: usize) -> Range<usize> {
        name * self.per_name..(name + 1) * self.per_name
    }

    /// The answers, as indices of facts: of several needles of a name, in the order of the text.
    pub(super) fn answers(&self, boundaries: &[Boundary]) -> Vec<usize> {
        let mut answers = Vec::new();
        for &name in &self.asked {
            let mut facts: Vec<usize> = self.facts_of_name(name).collect();
            facts.sort_by_key(|&i| boundaries.get(i).copied());
            answers.extend(facts);
        }
        answers
    }

    /// The place of each needle.
    pub(super) fn boundaries(&self, filler: &[Filler]) -> Vec<Boundary> {
        let wanted_tok = self.wanted_tok(filler);
        let mut rng = self.rng.clone();
        let mut boundaries = Vec::with_capacity(self.n_needles);
        for _ in 0..self.n_needles {
            boundaries.push(Boundary { sentences: rng.below(filler.len() + 1), order: rng.bits() });
        }
        let mut before_tok = 0;
        let mut nearest = f64::INFINITY;
        for count in 0..=filler.len() {
            let distance = (before_tok as f64 - wanted_tok).abs();
            if distance < nearest {
                nearest = distance;
                boundaries[0].sentences = count;
            }
            before_tok += filler.get(count).map_or(0, |filler| filler.n_tok);
        }
        boundaries
    }

    /// Tokens of filler before the depth asked for.
    fn wanted_tok(&self, filler: &[Filler]) -> f64 {
        total_tok(filler) as f64 * self.depth_pct / 100.0
    }

    /// Cuts a sentence for the controlled needle if no boundary is within [`DEPTH_TOLERANCE_PCT`] of the depth asked
    /// for. Other needles keep their places.
    pub(super) fn cut_for_depth(
        &self,
        filler: &mut Vec<Filler>,
        boundaries: &mut [Boundary],
        tokenizer: &Tokenizer,
    ) -> Result<()> {
        let wanted_tok = self.wanted_tok(filler);
        let off_tok = (total_tok(&filler[..boundaries[0].sentences]) as f64 - wanted_tok).abs();
        if 100.0 * off_tok <= DEPTH_TOLERANCE_PCT * total_tok(filler) as f64 {
            return Ok(());
        }
        let Some(i) = (0..filler.len()).rfind(|&i| total_tok(&filler[..i]) as f64 <= wanted_tok) else {
            return Ok(());
        };
        let before_tok = total_tok(&filler[..i]) as f64;
        let Some(halves) = filler[i].halves(wanted_tok - before_tok, tokenizer)? else { return Ok(()) };
        if (before_tok + halves[0].n_tok as f64 - wanted_tok).abs() < off_tok {
            filler.splice(i..=i, halves);
            for other in boundaries[1..].iter_mut().filter(|other| other.sentences > i) {
                other.sentences += 1;
            }
            boundaries[0].sentences = i + 1;
        }
        Ok(())
    }

    /// The boundaries with the needles of each chain in its order, and the needle at the depth asked for.
    pub(super) fn in_order(&self, boundaries: &[Boundary]) -> (Vec<Boundary>, usize) {
        let mut ordered = boundaries.to_vec();
        if self.form.hops > 0 {
            ordered.chunks_mut(self.per_name).for_each(<[_]>::sort_unstable);
        }
        let controlled = ordered.iter().position(|boundary| boundaries.first() == Some(boundary)).unwrap_or(0);
        (ordered, controlled)
    }
}

/// The needles of names: each with its values, or the chains of as many values.
fn facts_of_names(form: &NeedleForm, names: &[String], values: &[String]) -> Vec<Fact> {
    let mut facts = Vec::new();
    if form.hops == 0 {
        for (name, values) in names.iter().zip(values.chunks(form.values_per_name)) {
            facts.extend(values.iter().map(|value| form.fact(name, value)));
        }
        return facts;
    }
    for (chain, value) in names.chunks(form.hops + 1).zip(values) {
        facts.push(form.fact(&chain[0], value));
        facts.extend(chain.windows(2).map(|pair| form.link(&pair[1], &pair[0])));
    }
    facts
}
