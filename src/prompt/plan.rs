//! Plan of a needle prompt: the draws that do not depend on the filler, the layout of the text, and the token ranges of
//! its parts.

use std::ops::Range;

use anyhow::{bail, Result};

use super::layout::{PromptLayout, TextPart};
use super::wording::{question, sentence, PREAMBLE};
use super::{Encoded, Needle, NeedleSpec, Prompt, Query, Sentence, Tokenizer, Window, Wrapping};
use crate::rng::Rng;

/// Range of values, drawn uniformly. All have five digits and so the same number of tokens.
pub(super) const VALUES: (usize, usize) = (10_000, 99_999);

/// Digits of a value, and so the maximum number of its tokens.
pub const VALUE_DIGITS: usize = VALUES.1.ilog10() as usize + 1;

/// Largest distance of a needle from the depth asked for that is not reported, in percent of the filler.
pub const DEPTH_TOLERANCE_PCT: f64 = 2.0;

/// A sentence of filler, with its number of tokens.
#[derive(Clone)]
pub(super) struct Filler {
    pub(super) sentence: Sentence,
    pub(super) n_tok: usize,
}

impl Filler {
    /// Counts the tokens of a sentence.
    pub(super) fn new(sentence: Sentence, tokenizer: &Tokenizer) -> Result<Self> {
        let n_tok = tokenizer.encode(&sentence.in_context())?.ids.len();
        Ok(Self { sentence, n_tok })
    }

    /// The bytes at which the sentence can be cut, with the number of tokens before.
    fn cuts(&self, tokenizer: &Tokenizer) -> Result<Vec<(usize, usize)>> {
        let text = self.sentence.in_context();
        let before = text.len() - self.sentence.text.len();
        let ends: Vec<usize> = tokenizer.encode(&text)?.offsets.iter().map(|&(_, end)| end).collect();
        let tokens = |byte: usize| ends.iter().filter(|&&end| end <= byte + before).count();
        Ok(self.sentence.cuts().into_iter().map(|byte| (byte, tokens(byte))).collect())
    }

    /// The longest beginning of at most `most_tok` tokens, or `None` if the first word is longer.
    pub(super) fn beginning(&self, most_tok: usize, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let cuts = self.cuts(tokenizer)?;
        let Some((byte, _)) = cuts.into_iter().rev().find(|&(_, n_tok)| n_tok <= most_tok) else { return Ok(None) };
        let [beginning, _] = self.sentence.split_at(byte);
        Ok(Some(Self::new(beginning, tokenizer)?).filter(|beginning| beginning.n_tok <= most_tok))
    }

    /// Two parts, the first as close to `wanted_tok` tokens as possible, or `None` for a single word.
    fn halves(&self, wanted_tok: f64, tokenizer: &Tokenizer) -> Result<Option<[Self; 2]>> {
        let off = |n_tok: usize| (n_tok as f64 - wanted_tok).abs();
        let cuts = self.cuts(tokenizer)?;
        let nearest = cuts.into_iter().min_by(|&(_, a), &(_, b)| off(a).total_cmp(&off(b)));
        let Some((byte, _)) = nearest else { return Ok(None) };
        let [left, right] = self.sentence.split_at(byte);
        Ok(Some([Self::new(left, tokenizer)?, Self::new(right, tokenizer)?]))
    }
}

/// Draws `n` different values.
pub(super) fn distinct_values(n: usize, rng: &mut Rng) -> Vec<String> {
    let mut values: Vec<usize> = Vec::new();
    while values.len() < n {
        let value = VALUES.0 + rng.below(VALUES.1 - VALUES.0 + 1);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.iter().map(usize::to_string).collect()
}

/// Draws of a needle prompt that do not depend on the filler.
pub(super) struct NeedlePlan {
    /// City and value of each needle. The first is the controlled one.
    pub(super) needles: Vec<(&'static str, String)>,
    /// Cities that are not in the text, with random values.
    pub(super) absent: Vec<(&'static str, String)>,
    /// Cities asked for, in the order of the question, as indices into the needles followed by the absent ones.
    pub(super) asked: Vec<usize>,
    depth_pct: f64,
    /// Stream for the positions of the other needles.
    rng: Rng,
}

impl NeedlePlan {
    /// Draws needles and questions of a spec.
    pub(super) fn draw(spec: &NeedleSpec, mut rng: Rng) -> Self {
        let cities = rng.sample(spec.cities.cities(), spec.needles);
        let values = distinct_values(spec.needles, &mut rng);
        let mut asked: Vec<usize> = (0..spec.retrieve).collect();
        rng.shuffle(&mut asked);
        let needles = cities.into_iter().zip(values).collect();
        Self { needles, absent: Vec::new(), asked, depth_pct: spec.depth_pct, rng }
    }

    /// Creates a plan of these needles in this order, with one of them asked for, without filler.
    pub(super) fn of(needles: Vec<(&'static str, String)>, asked: usize) -> Self {
        Self { needles, absent: Vec::new(), asked: vec![asked], depth_pct: 0.0, rng: Rng::new(0, "no filler") }
    }

    /// Asks for cities that no needle names. The text stays that of the answerable prompt.
    pub(super) fn ask_for_absent(&mut self, spec: &NeedleSpec, mut rng: Rng) {
        let named = |city: &&str| self.needles.iter().any(|(other, _)| other == city);
        let others: Vec<&str> = spec.cities.cities().iter().copied().filter(|city| !named(city)).collect();
        let cities = rng.sample(&others, spec.retrieve);
        let mut values = distinct_values(spec.needles + spec.retrieve, &mut rng);
        values.retain(|value| !self.needles.iter().any(|(_, other)| other == value));
        self.absent = cities.into_iter().zip(values).collect();
        self.asked = (self.needles.len()..self.needles.len() + spec.retrieve).collect();
    }

    /// City and value of a question.
    fn asked(&self, i: usize) -> &(&'static str, String) {
        self.needles.get(i).unwrap_or_else(|| &self.absent[i - self.needles.len()])
    }

    /// For each needle, the number of filler sentences before it and a number that orders needles at the same boundary.
    pub(super) fn boundaries(&self, filler: &[Filler]) -> Vec<(usize, u64)> {
        let total_tok: usize = filler.iter().map(|filler| filler.n_tok).sum();
        let wanted_tok = total_tok as f64 * self.depth_pct / 100.0;
        let mut rng = self.rng.clone();
        let mut draw = |_| (rng.below(filler.len() + 1), rng.bits());
        let mut boundaries: Vec<(usize, u64)> = (0..self.needles.len()).map(&mut draw).collect();
        let mut before_tok = 0;
        let mut nearest = f64::INFINITY;
        for count in 0..=filler.len() {
            let distance = (before_tok as f64 - wanted_tok).abs();
            if distance < nearest {
                nearest = distance;
                boundaries[0].0 = count;
            }
            before_tok += filler.get(count).map_or(0, |filler| filler.n_tok);
        }
        boundaries
    }

    /// Cuts a sentence for the controlled needle if no boundary is within [`DEPTH_TOLERANCE_PCT`] of the depth asked
    /// for. Other needles keep their places.
    pub(super) fn cut_for_depth(
        &self,
        filler: &mut Vec<Filler>,
        boundaries: &mut [(usize, u64)],
        tokenizer: &Tokenizer,
    ) -> Result<()> {
        let total_tok: usize = filler.iter().map(|filler| filler.n_tok).sum();
        let wanted_tok = total_tok as f64 * self.depth_pct / 100.0;
        let before_tok = |count: usize| filler[..count].iter().map(|filler| filler.n_tok).sum::<usize>() as f64;
        let off_tok = (before_tok(boundaries[0].0) - wanted_tok).abs();
        if 100.0 * off_tok <= DEPTH_TOLERANCE_PCT * total_tok as f64 {
            return Ok(());
        }
        let Some(i) = (0..filler.len()).rfind(|&i| before_tok(i) <= wanted_tok) else { return Ok(()) };
        let Some(halves) = filler[i].halves(wanted_tok - before_tok(i), tokenizer)? else { return Ok(()) };
        let new_off_tok = (before_tok(i) + halves[0].n_tok as f64 - wanted_tok).abs();
        if new_off_tok < off_tok {
            filler.splice(i..=i, halves);
            boundaries[1..].iter_mut().filter(|(count, _)| *count > i).for_each(|(count, _)| *count += 1);
            boundaries[0].0 = i + 1;
        }
        Ok(())
    }

    /// Writes the text. In a chat, the answers are the assistant's. The second result lists the needles in the order of
    /// the text.
    pub(super) fn lay_out(
        &self,
        filler: &[Filler],
        boundaries: &[(usize, u64)],
        chat: Option<&Wrapping>,
    ) -> (PromptLayout, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.needles.len()).collect();
        order.sort_by_key(|&i| boundaries[i]);
        let mut layout = PromptLayout::default();
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Template, chat.before());
        }
        layout.push(TextPart::Template, PREAMBLE);
        let mut separator = "\n";
        let (mut next, mut behind_filler) = (0, false);
        for count in 0..=filler.len() {
            while next < order.len() && boundaries[order[next]].0 == count {
                let (city, value) = &self.needles[order[next]];
                layout.push_sentence(separator, city, value, TextPart::Needle(next), TextPart::Value(next));
                (separator, next, behind_filler) = (" ", next + 1, false);
            }
            if let Some(Filler { sentence, .. }) = filler.get(count) {
                layout.push(TextPart::Filler, if sentence.joined && behind_filler { "" } else { separator });
                layout.push(TextPart::Filler, &sentence.text);
                (separator, behind_filler) = (" ", true);
            }
        }
        let cities: Vec<&str> = self.asked.iter().map(|&i| self.asked(i).0).collect();
        layout.push(TextPart::Question, &format!("\n{}", question(&cities)));
        let mut separator = "\n";
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Question, chat.after());
            separator = "";
        }
        for (i, &asked) in self.asked.iter().enumerate() {
            let (city, value) = self.asked(asked);
            layout.push_sentence(separator, city, value, TextPart::Question, TextPart::Predicted(i));
            separator = " ";
        }
        (layout, order)
    }

    /// Converts the parts of the text into verified token ranges.
    pub(super) fn prompt(
        &self,
        layout: PromptLayout,
        order: &[usize],
        encoded: Encoded,
        tokenizer: &Tokenizer,
    ) -> Result<Prompt> {
        let bos = tokenizer.prompt_bos_id();
        let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids).collect();
        let offsets: Vec<_> = bos.iter().map(|_| (0, 0)).chain(encoded.offsets).collect();
        let mut parts = layout.parts(&offsets);
        // The begin-of-sequence token belongs to no text.
        parts[..usize::from(bos.is_some())].fill(TextPart::Template);
        let spans = Spans { parts: &parts, ids: &ids, tokenizer };
        let mut needles = Vec::new();
        for (place, &i) in order.iter().enumerate() {
            let (city, value) = &self.needles[i];
            let (whole, inner) = (TextPart::Needle(place), TextPart::Value(place));
            let span = spans.verified_range(&[whole, inner], &sentence(city, value), city)?;
            let answer = spans.verified_range(&[inner], value, city)?;
            needles.push(Needle { city: (*city).to_owned(), value: value.clone(), span, answer });
        }
        let mut queries = Vec::new();
        for (question, &i) in self.asked.iter().enumerate() {
            let (city, value) = self.asked(i);
            let predicted = spans.verified_range(&[TextPart::Predicted(question)], value, city)?;
            let needle_at = |i| order.iter().position(|&needle| needle == i).map(|place: usize| &needles[place]);
            // Without an answer in the text, the depth is that of the controlled needle.
            let placed = needle_at(i).or_else(|| needle_at(0)).expect("every needle is laid out");
            let depth_real_pct = depth_pct(&parts, placed.span.start);
            let (needle, answer) = needle_at(i).map_or((0..0, 0..0), |n| (n.span.clone(), n.answer.clone()));
            let controlled = i == 0 || needle.is_empty();
            queries.push(Query {
                city: (*city).to_owned(),
                value: value.clone(),
                needle,
                answer,
                predicted,
                controlled,
                depth_req_pct: if controlled { self.depth_pct } else { depth_real_pct },
                depth_real_pct,
            });
        }
        let start = parts.iter().position(|&part| part != TextPart::Template).unwrap_or(0);
        let end = parts.iter().position(|&part| part == TextPart::Question).unwrap_or(parts.len());
        // A chat template may have written the begin-of-sequence token.
        let has_bos = tokenizer.bos().id.is_some_and(|id| ids.first() == Some(&id));
        Ok(Prompt {
            text: layout.text,
            ids,
            offsets,
            queries,
            needles,
            haystack: start..end,
            has_bos,
            window: Window::default(),
        })
    }
}

/// Token ranges of the parts of an encoded text.
struct Spans<'a> {
    parts: &'a [TextPart],
    ids: &'a [u32],
    tokenizer: &'a Tokenizer,
}

impl Spans<'_> {
    /// The tokens of the `wanted` parts, which must be contiguous and decode to `expected`.
    fn verified_range(&self, wanted: &[TextPart], expected: &str, city: &str) -> Result<Range<usize>> {
        let start = self.parts.iter().position(|part| wanted.contains(part)).unwrap_or(0);
        let end = self.parts.iter().rposition(|part| wanted.contains(part)).map_or(0, |last| last + 1);
        let found = self.tokenizer.decode(&self.ids[start..end])?;
        if found.trim() != expected || !self.parts[start..end].iter().all(|part| wanted.contains(part)) {
            bail!(
                "{expected:?} of {city} cannot be separated from its surroundings: its tokens read {found:?}, so this \
                 tokenizer has no boundary where it begins or ends"
            );
        }
        Ok(start..end)
    }
}

/// Filler tokens before a position, in percent of all filler tokens.
fn depth_pct(parts: &[TextPart], position: usize) -> f64 {
    let count = |parts: &[TextPart]| parts.iter().filter(|&&part| part == TextPart::Filler).count();
    100.0 * count(&parts[..position]) as f64 / count(parts).max(1) as f64
}
