//! Plan of a needle prompt: the draws that do not depend on the filler, the layout of the text, and the token ranges of
//! its parts.

use std::ops::Range;

use anyhow::{bail, Result};

use super::facts::{self, Fact, ValueKind};
use super::layout::{PromptLayout, TextPart};
use super::needle_spec::NeedleForm;
use super::wording::AnswerForm;
use super::{Encoded, Haystack, Needle, NeedleSpec, Prompt, Query, Sentence, Tokenizer, Window, Wrapping};
use crate::base::rng::Rng;

/// Digits of a value by default, and so the maximum number of its tokens.
const VALUE_DIGITS: usize = 5;

/// Largest distance of a needle from the depth asked for that is not reported, in percent of the filler.
pub const DEPTH_TOLERANCE_PCT: f64 = 2.0;

/// A sentence of filler, with its number of tokens.
#[derive(Clone)]
pub(super) struct Filler {
    pub(super) sentence: Sentence,
    pub(super) n_tok: usize,
    /// The distractor that the sentence is, if it is one.
    fact: Option<Fact>,
}

/// What stands before a sentence of prose.
const SPACE: &str = " ";

impl Filler {
    /// Counts the tokens of a sentence behind a separator.
    pub(super) fn new(sentence: Sentence, separator: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let n_tok = tokenizer.encode(&sentence.in_context(separator))?.ids.len();
        Ok(Self { sentence, n_tok, fact: None })
    }

    /// Counts the tokens of a distractor behind a separator.
    pub(super) fn distractor(fact: Fact, separator: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let sentence = Sentence { text: fact.sentence(), joined: false };
        Ok(Self { fact: Some(fact), ..Self::new(sentence, separator, tokenizer)? })
    }

    /// The bytes at which the sentence can be cut, with the number of tokens before. None of a distractor.
    fn cuts(&self, tokenizer: &Tokenizer) -> Result<Vec<(usize, usize)>> {
        if self.fact.is_some() {
            return Ok(Vec::new());
        }
        let text = self.sentence.in_context(SPACE);
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
        Ok(Some(Self::new(beginning, SPACE, tokenizer)?).filter(|beginning| beginning.n_tok <= most_tok))
    }

    /// Two parts, the first as close to `wanted_tok` tokens as possible, or `None` for a single word.
    fn halves(&self, wanted_tok: f64, tokenizer: &Tokenizer) -> Result<Option<[Self; 2]>> {
        let off = |n_tok: usize| (n_tok as f64 - wanted_tok).abs();
        let cuts = self.cuts(tokenizer)?;
        let nearest = cuts.into_iter().min_by(|&(_, a), &(_, b)| off(a).total_cmp(&off(b)));
        let Some((byte, _)) = nearest else { return Ok(None) };
        let [left, right] = self.sentence.split_at(byte);
        Ok(Some([Self::new(left, SPACE, tokenizer)?, Self::new(right, SPACE, tokenizer)?]))
    }
}

/// Draws `n` different numbers of [`VALUE_DIGITS`] digits.
pub(super) fn distinct_values(n: usize, rng: &mut Rng) -> Vec<String> {
    facts::values(ValueKind::Digits, VALUE_DIGITS, n, rng)
}

/// Draws of a needle prompt that do not depend on the filler.
pub(super) struct NeedlePlan {
    pub(super) form: NeedleForm,
    /// The needles, key by key; those of a chain in its order. The first is the controlled one.
    pub(super) needles: Vec<Fact>,
    /// Facts that are not in the text, about keys that are not, key by key.
    pub(super) absent: Vec<Fact>,
    /// Needles of each key.
    per_key: usize,
    /// Indices of the keys asked for, in the order of the question; absent keys follow the others.
    pub(super) asked: Vec<usize>,
    /// What the question names for each of them: the key; the value of a chain.
    about: Vec<String>,
    /// A worked example, before the prompt.
    pub(super) example: String,
    depth_pct: f64,
    /// Stream for the positions of the other needles.
    rng: Rng,
}

/// A needle in the order of the text.
struct PlacedFact<'a> {
    fact: &'a Fact,
    /// Its index among the needles of the plan; `None` for a distractor of the filler.
    needle: Option<usize>,
}

/// The text of a prompt, with its needles and answers in order.
pub(super) struct LaidOut<'a> {
    pub(super) layout: PromptLayout,
    placed: Vec<PlacedFact<'a>>,
    /// The answers, as indices into the needles followed by the absent facts.
    answers: Vec<usize>,
    /// Index of the needle at the depth asked for.
    controlled: usize,
}

impl NeedlePlan {
    /// Draws needles and questions of a spec.
    pub(super) fn draw(spec: &NeedleSpec, mut rng: Rng) -> Self {
        let (form, kinds) = (spec.form, spec.form.kinds());
        let keys = facts::keys(kinds.keys, spec.cities.cities(), spec.needles * (kinds.hops + 1), &mut rng);
        let n_values = spec.needles * kinds.values_per_key;
        let values = facts::values(kinds.values, form.wording().digits, n_values, &mut rng);
        let mut asked: Vec<usize> = (0..spec.retrieve).collect();
        rng.shuffle(&mut asked);
        let about = asked.iter().map(|&i| if kinds.hops > 0 { &values[i] } else { &keys[i] }).cloned().collect();
        Self {
            needles: of_keys(&form, &keys, &values),
            absent: Vec::new(),
            per_key: kinds.answers_per_key(),
            asked,
            about,
            example: String::new(),
            depth_pct: spec.depth_pct,
            rng,
            form,
        }
    }

    /// Creates a plan of these needles in this order, with one of them asked for, without filler.
    pub(super) fn of(needles: Vec<(&'static str, String)>, asked: usize) -> Self {
        let form = NeedleForm::default();
        let needles = needles.iter().map(|(key, value)| form.fact(key, value)).collect();
        Self::asking(form, needles, asked, 0.0, Rng::new(0, "no filler"))
    }

    /// Creates a plan of these needles, the first at a depth, with a question about one of them.
    pub(super) fn asking(form: NeedleForm, needles: Vec<Fact>, asked: usize, depth_pct: f64, rng: Rng) -> Self {
        let about = vec![needles[asked].key.clone()];
        let (absent, example) = (Vec::new(), String::new());
        Self { form, needles, absent, per_key: 1, asked: vec![asked], about, example, depth_pct, rng }
    }

    /// Asks for keys that no needle names. The text stays that of the answerable prompt. `declined` is the answer,
    /// instead of random values.
    pub(super) fn ask_for_absent(&mut self, spec: &NeedleSpec, mut rng: Rng, declined: Option<&str>) {
        let named = |key: &str| self.needles.iter().any(|fact| fact.key == key);
        let kinds = self.form.kinds();
        let keys = match self.form.has_cities() {
            true => {
                let cities = spec.cities.cities().iter().copied();
                let others: Vec<&str> = cities.filter(|city| !named(city)).collect();
                facts::keys(kinds.keys, &others, spec.retrieve, &mut rng)
            }
            false => {
                let mut keys = facts::keys(kinds.keys, &[], spec.needles + spec.retrieve, &mut rng);
                keys.retain(|key| !named(key));
                keys
            }
        };
        let keys = &keys[..spec.retrieve];
        let n_values = self.needles.len() + spec.retrieve * kinds.values_per_key;
        let mut values = facts::values(kinds.values, self.form.wording().digits, n_values, &mut rng);
        values.retain(|value| !self.needles.iter().any(|fact| fact.value == *value));
        self.absent = of_keys(&self.form, keys, &values);
        if let Some(declined) = declined {
            self.absent.iter_mut().for_each(|fact| fact.value = declined.to_owned());
        }
        self.asked = (spec.needles..spec.needles + spec.retrieve).collect();
        self.about = keys.to_vec();
    }

    /// A needle, or a fact that is not in the text.
    fn fact(&self, i: usize) -> &Fact {
        self.needles.get(i).unwrap_or_else(|| &self.absent[i - self.needles.len()])
    }

    /// All facts, also those that are not in the text.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.needles.iter().chain(&self.absent)
    }

    /// Number of answers.
    pub(super) fn n_answers(&self) -> usize {
        self.asked.len() * self.per_key
    }

    /// What stands between two sentences.
    pub(super) fn separator(&self, haystack: &Haystack) -> &'static str {
        if self.form.wording().has_lines && !haystack.is_prose() {
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
        let answers_tok = self.form.wording().answers_tok;
        if answers_tok == 0 {
            return Ok(0);
        }
        let answers = self.asked.iter().flat_map(|&key| self.of_key(key)).map(|i| format!(" {}", self.fact(i).value));
        let taken = tokenizer.encode(&answers.collect::<String>())?.ids.len();
        Ok(answers_tok.saturating_sub(taken))
    }

    /// Indices of the facts of a key.
    fn of_key(&self, key: usize) -> Range<usize> {
        key * self.per_key..(key + 1) * self.per_key
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

    /// The boundaries with the needles of each chain in its order, and the needle at the depth asked for.
    fn in_order(&self, boundaries: &[(usize, u64)]) -> (Vec<(usize, u64)>, usize) {
        let mut ordered = boundaries.to_vec();
        if self.form.kinds().hops > 0 {
            ordered.chunks_mut(self.per_key).for_each(<[_]>::sort_unstable);
        }
        let controlled = ordered.iter().position(|boundary| boundaries.first() == Some(boundary)).unwrap_or(0);
        (ordered, controlled)
    }

    /// Writes the text, with `separator` between sentences. In a chat, the answers are the assistant's.
    pub(super) fn lay_out<'a>(
        &'a self,
        filler: &'a [Filler],
        boundaries: &[(usize, u64)],
        separator: &'static str,
        chat: Option<&Wrapping>,
    ) -> LaidOut<'a> {
        let (boundaries, controlled) = self.in_order(boundaries);
        let answers = self.answers(&boundaries);
        let (mut layout, wording) = (PromptLayout::default(), self.form.wording());
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Template, &chat.around.before);
        }
        layout.push(TextPart::Template, &self.example);
        let preamble = self.form.preamble(answers.len());
        layout.push(TextPart::Template, &preamble);
        let gap = if preamble.is_empty() { "" } else { wording.gap };
        let placed = self.lay_out_haystack(&mut layout, filler, &boundaries, [gap, separator]);
        self.lay_out_question(&mut layout, &answers, chat);
        LaidOut { layout, placed, answers, controlled }
    }

    /// The answers: of several needles of a key, in the order of the text.
    fn answers(&self, boundaries: &[(usize, u64)]) -> Vec<usize> {
        let of_key = |&key: &usize| {
            let mut of_key: Vec<usize> = self.of_key(key).collect();
            of_key.sort_by_key(|&i| boundaries.get(i).copied());
            of_key
        };
        self.asked.iter().flat_map(of_key).collect()
    }

    /// Writes needles and filler; `gap` stands before the first sentence. Returns needles and distractors in the order of
    /// the text.
    fn lay_out_haystack<'a>(
        &'a self,
        layout: &mut PromptLayout,
        filler: &'a [Filler],
        boundaries: &[(usize, u64)],
        [gap, separator]: [&'static str; 2],
    ) -> Vec<PlacedFact<'a>> {
        let mut order: Vec<usize> = (0..self.needles.len()).collect();
        order.sort_by_key(|&i| boundaries[i]);
        let mut order = order.into_iter().peekable();
        let mut placed = Vec::new();
        let (mut before, mut behind_prose) = (gap, false);
        for count in 0..=filler.len() {
            let needles = std::iter::from_fn(|| order.next_if(|&i| boundaries[i].0 == count));
            let needles = needles.map(|i| PlacedFact { fact: &self.needles[i], needle: Some(i) });
            let distractor = filler.get(count).and_then(|filler| filler.fact.as_ref());
            let distractor = distractor.map(|fact| PlacedFact { fact, needle: None });
            for of_place in needles.chain(distractor) {
                let place = placed.len();
                layout.push_fact(before, of_place.fact, TextPart::Needle(place), TextPart::Value(place));
                placed.push(of_place);
                (before, behind_prose) = (separator, false);
            }
            if let Some(Filler { sentence, fact: None, .. }) = filler.get(count) {
                layout.push(TextPart::Filler, if sentence.joined && behind_prose { "" } else { before });
                layout.push(TextPart::Filler, &sentence.text);
                (before, behind_prose) = (separator, true);
            }
        }
        placed
    }

    /// Writes the question and the answers.
    fn lay_out_question(&self, layout: &mut PromptLayout, answers: &[usize], chat: Option<&Wrapping>) {
        let wording = self.form.wording();
        let question = self.form.about(wording.question, &self.about, answers.len());
        layout.push(TextPart::Question, &format!("\n{question}"));
        let mut lead = wording.lead;
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Question, &chat.around.after);
            lead = "";
        }
        let prefix = self.form.about(wording.prefix, &self.about, answers.len());
        layout.push(TextPart::Question, &format!("{lead}{prefix}"));
        for (i, fact) in answers.iter().map(|&answer| self.fact(answer)).enumerate() {
            let is_first = i == 0;
            match wording.answers {
                AnswerForm::Sentences => {
                    let before = if is_first { "" } else { SPACE };
                    layout.push_fact(before, fact, TextPart::Question, TextPart::Predicted(i));
                }
                AnswerForm::List { before, between, .. } => {
                    layout.push(TextPart::Question, if is_first { "" } else { between });
                    layout.push(TextPart::Question, before);
                    layout.push(TextPart::Predicted(i), &fact.value);
                }
            }
        }
        if let AnswerForm::List { end, .. } = wording.answers {
            layout.push(TextPart::Question, end);
        }
    }

    /// Converts the parts of the text into verified token ranges.
    pub(super) fn prompt(&self, laid_out: LaidOut<'_>, encoded: Encoded, tokenizer: &Tokenizer) -> Result<Prompt> {
        let LaidOut { layout, placed, answers, controlled } = laid_out;
        let bos = tokenizer.prompt_bos_id();
        let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids).collect();
        let offsets: Vec<_> = bos.iter().map(|_| (0, 0)).chain(encoded.offsets).collect();
        let mut parts = layout.parts(&offsets);
        // The begin-of-sequence token belongs to no text.
        parts[..usize::from(bos.is_some())].fill(TextPart::Template);
        // Sentences of files may be in scripts whose tokens join an answer with its surroundings.
        let mut spans =
            Spans { parts: &parts, ids: &ids, tokenizer, is_lenient: self.form == NeedleForm::File, from: 0 };
        let needles = placed.iter().enumerate().map(|(place, placed)| spans.needle(place, placed.fact));
        let needles = needles.collect::<Result<Vec<_>>>()?;
        spans.is_lenient = false;
        let is_filler = |part: &TextPart| match part {
            TextPart::Filler => true,
            TextPart::Needle(place) | TextPart::Value(place) => placed[*place].needle.is_none(),
            _ => false,
        };
        let mut queries = Vec::new();
        for (question, &i) in answers.iter().enumerate() {
            let fact = self.fact(i);
            let predicted = spans.next_range(&[TextPart::Predicted(question)], &fact.value, &fact.key)?;
            let needle_at =
                |i| placed.iter().position(|placed| placed.needle == Some(i)).map(|place: usize| &needles[place]);
            // Without an answer in the text, the depth is that of the controlled needle.
            let at = needle_at(i).or_else(|| needle_at(controlled)).expect("every needle is laid out");
            let depth_real_pct = depth_pct(&parts, at.span.start, is_filler);
            let (needle, answer) = needle_at(i).map_or((0..0, 0..0), |n| (n.span.clone(), n.answer.clone()));
            let controlled = i == controlled || needle.is_empty();
            queries.push(Query {
                city: fact.key.clone(),
                value: fact.value.clone(),
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

/// The needles of keys: each with its values, or the chains of as many values.
fn of_keys(form: &NeedleForm, keys: &[String], values: &[String]) -> Vec<Fact> {
    let kinds = form.kinds();
    if kinds.hops == 0 {
        let of_key = keys.iter().zip(values.chunks(kinds.values_per_key));
        return of_key.flat_map(|(key, values)| values.iter().map(|value| form.fact(key, value))).collect();
    }
    let chain = |(keys, value): (&[String], &String)| {
        let links: Vec<Fact> = keys.windows(2).map(|pair| form.link(&pair[1], &pair[0])).collect();
        std::iter::once(form.fact(&keys[0], value)).chain(links)
    };
    keys.chunks(kinds.hops + 1).zip(values).flat_map(chain).collect()
}

/// Token ranges of the parts of an encoded text, in their order.
struct Spans<'a> {
    parts: &'a [TextPart],
    ids: &'a [u32],
    tokenizer: &'a Tokenizer,
    /// Whether tokens may hold more than the expected text.
    is_lenient: bool,
    /// Token from which on parts are looked for.
    from: usize,
}

impl Spans<'_> {
    /// The next needle, at a place of the text.
    fn needle(&mut self, place: usize, fact: &Fact) -> Result<Needle> {
        let (whole, inner) = (TextPart::Needle(place), TextPart::Value(place));
        let span = self.next_range(&[whole, inner], fact.sentence().trim(), &fact.key)?;
        self.from = span.start;
        let answer = match fact.value.as_str() {
            "" => span.start..span.start,
            value => self.next_range(&[inner], value, &fact.key)?,
        };
        self.from = span.end;
        Ok(Needle { city: fact.key.clone(), value: fact.value.clone(), span, answer })
    }

    /// The next tokens of the `wanted` parts, which must decode to `expected`.
    fn next_range(&self, wanted: &[TextPart], expected: &str, key: &str) -> Result<Range<usize>> {
        let parts = &self.parts[self.from..];
        let before = parts.iter().position(|part| wanted.contains(part)).unwrap_or(0);
        let tokens = parts[before..].iter().take_while(|part| wanted.contains(part)).count();
        let start = self.from + before;
        let range = start..start + tokens;
        let found = self.tokenizer.decode(&self.ids[range.clone()])?;
        if range.is_empty() || !self.is_lenient && found.trim() != expected {
            bail!(
                "{expected:?} of {key} cannot be separated from its surroundings: its tokens read {found:?}, so this \
                 tokenizer has no boundary where it begins or ends"
            );
        }
        Ok(range)
    }
}

/// Filler tokens before a position, in percent of all filler tokens.
fn depth_pct(parts: &[TextPart], position: usize, is_filler: impl Fn(&TextPart) -> bool) -> f64 {
    let count = |parts: &[TextPart]| parts.iter().filter(|part| is_filler(part)).count();
    100.0 * count(&parts[..position]) as f64 / count(parts).max(1) as f64
}
