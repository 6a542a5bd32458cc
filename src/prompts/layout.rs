//! Text under construction, with the parts that its bytes belong to.

use std::ops::Range;

use super::facts::Fact;

/// Text under construction: every byte belongs to a part, and parts become ranges of tokens.
#[derive(Default)]
pub(super) struct PromptLayout {
    pub(super) text: String,
    /// End of each part in bytes, in the order of the text.
    ends: Vec<(usize, TextPart)>,
    /// Byte ranges written by a chat template, where names of special tokens stand for special tokens.
    pub(super) markup: Vec<Range<usize>>,
}

/// A part of a prompt's text. Needles are numbered in the order of the text, answers in the order of the questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextPart {
    Template,
    Filler,
    Needle(usize),
    Value(usize),
    Question,
    Predicted(usize),
}

impl PromptLayout {
    pub(super) fn push(&mut self, part: TextPart, text: &str) {
        self.text.push_str(text);
        self.ends.push((self.text.len(), part));
    }

    /// Appends text of a chat template.
    pub(super) fn push_markup(&mut self, part: TextPart, text: &str) {
        let start = self.text.len();
        self.push(part, text);
        self.markup.push(start..self.text.len());
    }

    /// Appends a separator and the sentence of a fact, with its answer as a part of its own.
    pub(super) fn push_fact(&mut self, separator: &str, fact: &Fact, whole: TextPart, inner: TextPart) {
        self.push(whole, separator);
        self.push(whole, &fact.before);
        self.push(inner, &fact.value);
        self.push(whole, &fact.behind);
    }

    /// The part of each token, by the rule in the documentation of [`prompt`](super).
    pub(super) fn parts(&self, offsets: &[(usize, usize)]) -> Vec<TextPart> {
        let part_of = |&(start, end): &(usize, usize)| {
            let visible = self.text.as_bytes()[start..end].iter().position(|byte| !byte.is_ascii_whitespace());
            // Tokenizers that trim offsets leave an empty range at the end of a white-space token.
            let at = if start == end { start.saturating_sub(1) } else { start + visible.unwrap_or(0) };
            let index = self.ends.partition_point(|&(end, _)| end <= at);
            self.ends[index.min(self.ends.len() - 1)].1
        };
        offsets.iter().map(part_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::needle_spec::NeedleForm;
    use super::*;

    #[test]
    fn a_token_belongs_to_the_part_of_its_first_visible_byte() {
        let mut layout = PromptLayout::default();
        layout.push(TextPart::Template, "Find.");
        let form = NeedleForm::default();
        let fact = form.fact("Oslo", "12");
        layout.push_fact("\n", &fact, TextPart::Needle(0), TextPart::Value(0));
        layout.push(TextPart::Filler, " A cat.");
        let text = layout.text.clone();
        let at = |needle: &str| text.find(needle).unwrap();
        let (value, prose) = (at("12"), at(" A"));
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
