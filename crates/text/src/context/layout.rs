//! A context as a prompt: an instruction, the segments that are kept, the question, and the answer behind it.

use super::Context;
use crate::needle::led;
use crate::{Encoded, Prompt, Query, Tokenizer, Window};
use anyhow::{ensure, Result};
use std::ops::Range;

/// What stands before the text, so that no segment holds the first token, which attention uses as a sink.
pub const INSTRUCTION: &str = "Read the text and answer the question.\n\n";

/// The segments of a context that a prompt has, in its order, and the answer.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub segments: &'a [usize],
    pub answer: &'a str,
}

/// Byte ranges of the parts of a prompt.
#[derive(Default)]
struct Parts {
    text: String,
    markup: Vec<Range<usize>>,
    /// By the index of the segment; empty of those that are left out.
    segments: Vec<Range<usize>>,
    /// Where the question begins.
    question: usize,
    answer: Range<usize>,
}

impl Context {
    /// The prompt with some segments. Whatever is kept, the text is tokenised as a whole: what is left out leaves nothing behind.
    ///
    /// # Errors
    /// If the tokenizer fails, or has no boundary before the answer.
    pub fn prompt(&self, kept: Kept<'_>, tokenizer: &Tokenizer) -> Result<Prompt> {
        let Parts { text, markup, segments, question, answer } = self.parts(kept, tokenizer);
        let encoded = encoded(&text, &markup, tokenizer)?;
        let bos = tokenizer.prompt_bos_id();
        let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids).collect();
        let offsets: Vec<(usize, usize)> = bos.iter().map(|_| (0, 0)).chain(encoded.offsets).collect();
        // A token belongs to the part of its first visible byte.
        let begins: Vec<usize> = offsets.iter().map(|&(start, end)| first_visible(&text, start, end)).collect();
        let skip = bos.iter().count();
        let tokens = |bytes: &Range<usize>| {
            let before = |byte: usize| skip + begins[skip..].iter().take_while(|&&begin| begin < byte).count();
            before(bytes.start)..before(bytes.end)
        };
        let predicted = tokens(&answer);
        ensure!(
            !predicted.is_empty() && predicted.start > 0,
            "the answer `{}` cannot be separated from the question: this tokenizer has no boundary where it begins",
            kept.answer
        );
        let query = Query {
            name: self.question.clone(),
            value: kept.answer.to_owned(),
            needle: 0..0,
            answer: 0..0,
            predicted,
            controlled: true,
            depth_req_pct: 0.0,
            depth_real_pct: 0.0,
        };
        let haystack = tokens(
            &(segments.iter().filter(|part| !part.is_empty()).map(|part| part.start).min().unwrap_or(question)
                ..question),
        );
        let segments = segments.iter().map(|part| if part.is_empty() { 0..0 } else { tokens(part) }).collect();
        let has_bos = tokenizer.bos().id.is_some_and(|id| ids.first() == Some(&id));
        Ok(Prompt {
            text,
            ids,
            offsets,
            queries: vec![query],
            needles: Vec::new(),
            segments,
            haystack,
            has_bos,
            window: Window::default(),
        })
    }

    /// The text of a prompt. White space goes with the part behind it.
    fn parts(&self, kept: Kept<'_>, tokenizer: &Tokenizer) -> Parts {
        let mut parts = Parts { segments: vec![0..0; self.segments.len()], ..Parts::default() };
        let chat = tokenizer.chat();
        if let Some(chat) = chat {
            parts.push_markup(&chat.around.before);
        }
        parts.text += INSTRUCTION;
        for (place, &index) in kept.segments.iter().enumerate() {
            let segment = &self.segments[index];
            let start = parts.text.len();
            // The first segment of a text has nothing before it, and may stand elsewhere.
            let needs_gap = place > 0 && segment.before.is_empty();
            parts.text += if needs_gap { self.usual_gap() } else { &segment.before };
            parts.text += &segment.text;
            parts.segments[index] = start..parts.text.len();
        }
        parts.question = parts.text.len();
        parts.text += &format!("\nQuestion: {}", self.question);
        let opening = match chat {
            Some(chat) => {
                parts.push_markup(&chat.around.after);
                String::new()
            }
            None => "\nAnswer:".to_owned(),
        };
        let lead = self.lead.as_deref().map_or("", str::trim);
        let before = if lead.is_empty() || opening.is_empty() {
            format!("{opening}{lead}")
        } else {
            format!("{opening} {lead}")
        };
        parts.text += &before;
        let start = parts.text.len();
        // Directly behind a chat template, the reply begins with the answer itself.
        let led = if before.is_empty() { String::new() } else { led(&before, "", kept.answer) };
        parts.text += led.strip_prefix(before.as_str()).unwrap_or_default();
        parts.text += kept.answer;
        parts.answer = start..parts.text.len();
        parts
    }

    /// What stands between two segments of this text.
    fn usual_gap(&self) -> &str {
        self.segments.iter().map(|segment| segment.before.as_str()).find(|before| !before.is_empty()).unwrap_or(" ")
    }
}

impl Parts {
    fn push_markup(&mut self, text: &str) {
        let start = self.text.len();
        self.text += text;
        self.markup.push(start..self.text.len());
    }
}

/// The tokens of a prompt. The instruction has its own, so that they do not depend on what follows it.
fn encoded(text: &str, markup: &[Range<usize>], tokenizer: &Tokenizer) -> Result<Encoded> {
    if !markup.is_empty() {
        return tokenizer.encode_prompt(text, markup);
    }
    let mut encoded = tokenizer.encode(INSTRUCTION)?;
    let rest = tokenizer.encode(&text[INSTRUCTION.len()..])?;
    encoded.ids.extend(rest.ids);
    let shift = INSTRUCTION.len();
    encoded.offsets.extend(rest.offsets.into_iter().map(|(start, end)| (start + shift, end + shift)));
    Ok(encoded)
}

/// The first byte of a token that is no white space, or its first byte.
fn first_visible(text: &str, start: usize, end: usize) -> usize {
    let token = text.get(start..end).unwrap_or_default();
    start + token.find(|c: char| !c.is_whitespace()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::*;

    fn context() -> Context {
        let segment =
            |before: &str, text: &str| Segment { before: before.into(), text: text.into(), ..Segment::default() };
        Context {
            question: "How many boats?".into(),
            lead: Some("There are".into()),
            segments: vec![
                segment("", "The harbour is old."),
                segment(" ", "It has 17 boats."),
                segment("\n\n", "It is cold."),
            ],
            ..Context::default()
        }
    }

    #[test]
    fn a_segment_that_is_left_out_leaves_nothing_behind() {
        let text = |kept: &[usize]| {
            let prompt = context().prompt(Kept { segments: kept, answer: "17" }, Tokenizer::embedded()).unwrap();
            prompt.text.strip_prefix(INSTRUCTION).unwrap().to_owned()
        };
        let end = "\nQuestion: How many boats?\nAnswer: There are 17";
        assert_eq!(text(&[0, 1, 2]), format!("The harbour is old. It has 17 boats.\n\nIt is cold.{end}"));
        assert_eq!(text(&[0, 2]), format!("The harbour is old.\n\nIt is cold.{end}"));
        assert_eq!(text(&[2, 0]), format!("\n\nIt is cold. The harbour is old.{end}"), "in another order");
        assert_eq!(text(&[1]), format!(" It has 17 boats.{end}"), "white space goes with what is behind it");
        assert_eq!(text(&[]), end);
    }

    #[test]
    fn segments_and_answer_are_found_in_tokens() {
        let tokenizer = Tokenizer::embedded();
        let prompt = context().prompt(Kept { segments: &[1, 2], answer: "17" }, tokenizer).unwrap();
        let read = |range: &Range<usize>| tokenizer.decode(&prompt.ids[range.clone()]).unwrap();
        assert!(prompt.segments[0].is_empty());
        assert_eq!(read(&prompt.segments[1]).trim(), "It has 17 boats.");
        assert_eq!(read(&prompt.segments[2]).trim(), "It is cold.");
        assert_eq!(prompt.haystack, prompt.segments[1].start..prompt.segments[2].end);
        assert_eq!(read(&prompt.queries[0].predicted).trim(), "17");
        assert_eq!(prompt.queries[0].predicted.end, prompt.ids.len());
    }
}
