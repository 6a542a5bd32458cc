//! Text of a needle prompt: its parts in bytes while it is written, and their token ranges once it is encoded.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{bail, Result};

use super::facts::Fact;
use super::filler::{Filler, SPACE};
use super::form::AnswerForm;
use super::plan::{Boundary, NeedlePlan};
use crate::{Encoded, Needle, Prompt, Query, Tokenizer, Window, Wrapping};

/// The text of a prompt while it is written: every byte belongs to a part, and parts become ranges of tokens.
#[derive(Default)]
pub(crate) struct PromptLayout {
    pub(crate) text: String,
    /// End of each part in bytes, in the order of the text.
    ends: Vec<(usize, TextPart)>,
    /// Byte ranges written by a chat template, where names of special tokens stand for special tokens.
    pub(crate) markup: Vec<Range<usize>>,
    /// Needles and distractors in the order of the text, with their index among the needles of the plan; `None` for a
    /// distractor of the filler.
    placed: Vec<(Fact, Option<usize>)>,
    /// The answers, as indices of facts of the plan.
    answers: Vec<usize>,
    /// Index of the needle at the depth asked for.
    controlled: usize,
}

/// A part of a prompt's text. Needles are numbered in the order of the text, answers in the order of the questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TextPart {
    Template,
    Filler,
    Needle(usize),
    Value(usize),
    Question,
    Predicted(usize),
}

impl PromptLayout {
    fn push(&mut self, part: TextPart, text: &str) {
        self.text.push_str(text);
        self.ends.push((self.text.len(), part));
    }

    /// Appends text of a chat template.
    fn push_markup(&mut self, part: TextPart, text: &str) {
        let start = self.text.len();
        self.push(part, text);
        self.markup.push(start..self.text.len());
    }

    /// Appends a separator and the sentence of a fact, with its answer as a part of its own.
    fn push_fact(&mut self, separator: &str, fact: &Fact, whole: TextPart, inner: TextPart) {
        self.push(whole, separator);
        self.push(whole, &fact.before);
        self.push(inner, &fact.value);
        self.push(whole, &fact.behind);
    }

    /// Appends a separator and the sentence of a needle or a distractor.
    fn push_needle(&mut self, separator: &str, fact: &Fact, index: Option<usize>) {
        let place = self.placed.len();
        self.push_fact(separator, fact, TextPart::Needle(place), TextPart::Value(place));
        self.placed.push((fact.clone(), index));
    }

    /// The part of each token, by the rule in the documentation of the crate.
    fn parts(&self, offsets: &[(usize, usize)]) -> Vec<TextPart> {
        let mut parts = Vec::with_capacity(offsets.len());
        for &(start, end) in offsets {
            let visible = self.text.as_bytes()[start..end].iter().position(|byte| !byte.is_ascii_whitespace());
            // Tokenizers that trim offsets leave an empty range at the end of a white-space token.
            let at = if start == end { start.saturating_sub(1) } else { start + visible.unwrap_or(0) };
            let index = self.ends.partition_point(|&(end, _)| end <= at);
            parts.push(self.ends[index.min(self.ends.len() - 1)].1);
        }
        parts
    }
}

impl NeedlePlan {
    /// Writes the text, with `separator` between sentences. In a chat, the answers are the assistant's.
    pub(crate) fn lay_out(
        &self,
        filler: &[Filler],
        boundaries: &[Boundary],
        separator: &str,
        chat: Option<&Wrapping>,
    ) -> PromptLayout {
        let (boundaries, controlled) = self.in_order(boundaries);
        let answers = self.answers(&boundaries);
        let preamble = self.form.preamble(answers.len());
        let mut layout = PromptLayout { controlled, ..PromptLayout::default() };
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Template, &chat.around.before);
        }
        layout.push(TextPart::Template, &self.example);
        layout.push(TextPart::Template, &preamble);
        let gap = if preamble.is_empty() { "" } else { self.form.gap };
        self.lay_out_haystack(&mut layout, filler, &boundaries, gap, separator);
        self.lay_out_question(&mut layout, &answers, chat);
        layout.answers = answers;
        layout
    }

    /// Writes needles and filler; `gap` stands before the first sentence.
    fn lay_out_haystack(
        &self,
        layout: &mut PromptLayout,
        filler: &[Filler],
        boundaries: &[Boundary],
        gap: &str,
        separator: &str,
    ) {
        let mut order: Vec<usize> = (0..boundaries.len()).collect();
        order.sort_by_key(|&i| boundaries[i]);
        let mut order = order.into_iter().peekable();
        let mut before = gap;
        for count in 0..=filler.len() {
            // The sentence that a needle stands before, or else behind.
            let place = filler.get(count).or(filler.last());
            while let Some(i) = order.next_if(|&i| boundaries[i].sentences == count) {
                let fact = &self.facts[i];
                let joins = place.is_some_and(|filler| filler.sentence.joined) && ends_unspaced(&fact.sentence());
                layout.push_needle(if joins { "" } else { before }, fact, Some(i));
                before = separator;
            }
            let Some(Filler { sentence, fact, .. }) = filler.get(count) else { break };
            match fact {
                Some(fact) => layout.push_needle(before, fact, None),
                None => {
                    let behind_prose = layout.ends.last().is_some_and(|&(_, part)| part == TextPart::Filler);
                    let joins = sentence.joined && (behind_prose || ends_unspaced(&layout.text));
                    layout.push(TextPart::Filler, if joins { "" } else { before });
                    layout.push(TextPart::Filler, &sentence.text);
                }
            }
            before = separator;
        }
    }

    /// Writes the question and the answers.
    fn lay_out_question(&self, layout: &mut PromptLayout, answers: &[usize], chat: Option<&Wrapping>) {
        let form = self.form;
        layout.push(TextPart::Question, &format!("\n{}", form.question(&self.about, answers.len())));
        let mut lead = form.lead;
        if let Some(chat) = chat {
            layout.push_markup(TextPart::Question, &chat.around.after);
            lead = "";
        }
        layout.push(TextPart::Question, &format!("{lead}{}", form.prefix(&self.about, answers.len())));
        if let Some(lead) = &self.lead {
            layout.push(TextPart::Question, lead);
        }
        for (i, fact) in answers.iter().map(|&answer| &self.facts[answer]).enumerate() {
            let is_first = i == 0;
            match form.answers {
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
        if let AnswerForm::List { end, .. } = form.answers {
            layout.push(TextPart::Question, end);
        }
    }
}

impl PromptLayout {
    /// Converts the parts of the text into verified token ranges.
    pub(crate) fn prompt(self, plan: &NeedlePlan, encoded: Encoded, tokenizer: &Tokenizer) -> Result<Prompt> {
        let bos = tokenizer.prompt_bos_id();
        let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids).collect();
        let offsets: Vec<_> = bos.iter().map(|_| (0, 0)).chain(encoded.offsets).collect();
        let mut parts = self.parts(&offsets);
        // The begin-of-sequence token belongs to no text.
        parts[..usize::from(bos.is_some())].fill(TextPart::Template);
        let spans = Spans::new(&parts, &ids, tokenizer);
        // Sentences of files may be in scripts whose tokens join an answer with its surroundings.
        let is_lenient = plan.form.is_of_file();
        let mut needles = Vec::new();
        for (place, (fact, _)) in self.placed.iter().enumerate() {
            needles.push(spans.needle(place, fact, is_lenient)?);
        }
        let queries = self.queries(plan, &parts, &spans, &needles)?;
        let start = parts.iter().position(|&part| part != TextPart::Template).unwrap_or(0);
        let end = parts.iter().position(|&part| part == TextPart::Question).unwrap_or(parts.len());
        // A chat template may have written the begin-of-sequence token.
        let has_bos = tokenizer.bos().id.is_some_and(|id| ids.first() == Some(&id));
        let haystack = start..end;
        Ok(Prompt {
            text: self.text,
            ids,
            offsets,
            queries,
            needles,
            segments: Vec::new(),
            haystack,
            has_bos,
            window: Window::default(),
        })
    }

    /// The questions; `needles` are those of the text, in its order.
    fn queries(
        &self,
        plan: &NeedlePlan,
        parts: &[TextPart],
        spans: &Spans<'_>,
        needles: &[Needle],
    ) -> Result<Vec<Query>> {
        let is_filler: Vec<bool> = parts.iter().map(|&part| self.is_filler(part)).collect();
        let mut queries = Vec::new();
        for (question, &i) in self.answers.iter().enumerate() {
            let Fact { name, value, .. } = &plan.facts[i];
            let predicted = spans.range(&[TextPart::Predicted(question)], value, name, false)?;
            let place = self.place(i);
            // Without an answer in the text, the depth is that of the controlled needle.
            let at = place.or_else(|| self.place(self.controlled)).expect("every needle is laid out");
            let depth_real_pct = depth_pct(&is_filler, needles[at].span.start);
            let controlled = i == self.controlled || place.is_none();
            queries.push(Query {
                name: name.clone(),
                value: value.clone(),
                needle: place.map_or(0..0, |place| needles[place].span.clone()),
                answer: place.map_or(0..0, |place| needles[place].answer.clone()),
                predicted,
                controlled,
                depth_req_pct: if controlled { plan.depth_pct } else { depth_real_pct },
                depth_real_pct,
            });
        }
        Ok(queries)
    }

    /// The place of a needle of the plan in the order of the text; `None` for a fact that is not in it.
    fn place(&self, needle: usize) -> Option<usize> {
        self.placed.iter().position(|(_, index)| *index == Some(needle))
    }

    /// `true` for prose and for distractors of the filler.
    fn is_filler(&self, part: TextPart) -> bool {
        match part {
            TextPart::Filler => true,
            TextPart::Needle(place) | TextPart::Value(place) => self.placed[place].1.is_none(),
            _ => false,
        }
    }
}

/// Token ranges of the parts of an encoded text.
struct Spans<'a> {
    /// From the first token of a part to its last.
    ranges: HashMap<TextPart, Range<usize>>,
    ids: &'a [u32],
    tokenizer: &'a Tokenizer,
}

impl<'a> Spans<'a> {
    fn new(parts: &[TextPart], ids: &'a [u32], tokenizer: &'a Tokenizer) -> Self {
        let mut ranges = HashMap::new();
        for (i, &part) in parts.iter().enumerate() {
            ranges.entry(part).or_insert(i..i).end = i + 1;
        }
        Self { ranges, ids, tokenizer }
    }

    /// The needle at a place of the text. With `is_lenient`, its tokens may hold more than its text.
    fn needle(&self, place: usize, fact: &Fact, is_lenient: bool) -> Result<Needle> {
        let whole = TextPart::Needle(place);
        let inner = TextPart::Value(place);
        let span = self.range(&[whole, inner], fact.sentence().trim(), &fact.name, is_lenient)?;
        let answer = match fact.value.as_str() {
            "" => span.start..span.start,
            value => self.range(&[inner], value, &fact.name, is_lenient)?,
        };
        Ok(Needle { name: fact.name.clone(), value: fact.value.clone(), span, answer })
    }

    /// The tokens of the `wanted` parts, which must decode to `expected`; with `is_lenient`, to a text that holds it.
    fn range(&self, wanted: &[TextPart], expected: &str, name: &str, is_lenient: bool) -> Result<Range<usize>> {
        let ranges = || wanted.iter().filter_map(|part| self.ranges.get(part));
        let start = ranges().map(|range| range.start).min().unwrap_or(0);
        let range = start..ranges().map(|range| range.end).max().unwrap_or(0);
        let decoded = self.tokenizer.decode(&self.ids[range.clone()])?;
        if range.is_empty() || !self.reads(&decoded, expected, is_lenient)? {
            bail!(
                "{expected:?} of {name} cannot be separated from its surroundings: its tokens read {decoded:?}, so this \
                 tokenizer has no boundary where it begins or ends"
            );
        }
        Ok(range)
    }

    /// Returns `true` if decoded tokens are a text, or what the tokenizer makes of it, such as composed letters; with `is_lenient`, if
    /// they hold it.
    fn reads(&self, decoded: &str, expected: &str, is_lenient: bool) -> Result<bool> {
        let fits = |text: &str| decoded.trim() == text || is_lenient && decoded.contains(text);
        if fits(expected) {
            return Ok(true);
        }
        let own = self.tokenizer.decode(&self.tokenizer.encode(expected)?.ids)?;
        Ok(!own.trim().is_empty() && fits(own.trim()))
    }
}

/// Returns `true` if a text ends as sentences do that no space follows.
fn ends_unspaced(text: &str) -> bool {
    text.ends_with(['。', '！', '？', '｡', '」', '』'])
}

/// Filler tokens before a position, in percent of all filler tokens.
fn depth_pct(is_filler: &[bool], position: usize) -> f64 {
    let before = is_filler[..position].iter().filter(|&&is_filler| is_filler).count();
    let all = is_filler.iter().filter(|&&is_filler| is_filler).count();
    100.0 * before as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::form::CITIES;
    use super::*;

    #[test]
    fn a_token_belongs_to_the_part_of_its_first_visible_byte() {
        let mut layout = PromptLayout::default();
        layout.push(TextPart::Template, "Find.");
        let fact = CITIES.fact("Oslo", "12");
        layout.push_fact("\n", &fact, TextPart::Needle(0), TextPart::Value(0));
        layout.push(TextPart::Filler, " A cat.");
        let text = layout.text.clone();
        let at = |needle: &str| text.find(needle).unwrap();
        let value = at("12");
        let prose = at(" A");
        // Tokens: "Find", ".\n", "The", " ", trimmed space, " 1", "2", ".", " A".
        let offsets = [
            (0, 4),
            (4, 6),
            (6, 9),
            (value - 1, value),
            (value, value),
            (value - 1, value + 1),
            (value + 1, value + 2),
            (prose - 1, prose),
            (prose, prose + 2),
        ];
        let expected = [
            TextPart::Template,
            TextPart::Template,
            TextPart::Needle(0),
            TextPart::Needle(0),
            TextPart::Needle(0),
            TextPart::Value(0),
            TextPart::Value(0),
            TextPart::Needle(0),
            TextPart::Filler,
        ];
        assert_eq!(layout.parts(&offsets), expected);
    }
}
