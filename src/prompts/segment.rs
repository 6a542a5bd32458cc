//! Sentences and words of any language, by the rules of Unicode (UAX #29).
//!
//! Scripts without spaces have sentences too (`。`, `।`), and most of them words; where a script has neither spaces nor
//! words that the rules know (Thai), a word is a letter with its marks.

use unicode_segmentation::UnicodeSegmentation;

/// Words of a sentence, at most; a longer one is cut, since filler is put together from sentences.
const WORDS_MAX: usize = 60;

/// A sentence of a haystack, or a part of one. Runs of white space in it are one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Its text, without white space around it.
    pub text: String,
    /// `true` if it follows the one before without a space, as in Chinese.
    pub joined: bool,
}

impl Sentence {
    /// Its text as it stands in a prompt, behind a separator or not.
    pub(super) fn in_context(&self, separator: &str) -> String {
        format!("{}{}", if self.joined { "" } else { separator }, self.text)
    }

    /// Two parts of it, of which the first has so many bytes.
    pub(super) fn split_at(&self, byte: usize) -> [Self; 2] {
        let (left, right) = self.text.split_at(byte);
        let joined = !left.ends_with(char::is_whitespace);
        let left = Self { text: left.trim_end().to_owned(), joined: self.joined };
        [left, Self { text: right.to_owned(), joined }]
    }

    /// The bytes at which it can be cut: behind a space, and between words that no space separates, as in Thai.
    pub(super) fn cuts(&self) -> Vec<usize> {
        let mut before = "";
        let mut cuts = Vec::new();
        for (start, part) in self.text.split_word_bound_indices() {
            if before.ends_with(' ') || has_letters(before) && has_letters(part) {
                cuts.push(start);
            }
            before = part;
        }
        cuts
    }
}

fn has_letters(part: &str) -> bool {
    part.contains(char::is_alphanumeric)
}

/// Cuts text into sentences, which end at line ends too, and these after [`WORDS_MAX`] words, where possible at a space.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut joined = false;
    for part in text.split_sentence_bounds() {
        let words: Vec<&str> = part.split_whitespace().collect();
        let joins = joined && !part.starts_with(char::is_whitespace);
        joined = !part.ends_with(char::is_whitespace);
        if !words.is_empty() {
            sentences.push(Sentence { text: words.join(" "), joined: joins });
        }
    }
    sentences
}

/// The parts of a sentence that have no more than [`WORDS_MAX`] words.
pub(super) fn parts(mut sentence: Sentence) -> Vec<Sentence> {
    let mut parts = Vec::new();
    while let Some((end, _)) = sentence.text.unicode_word_indices().nth(WORDS_MAX) {
        let space = sentence.text[..end].rfind(' ').map(|space| space + 1);
        let [part, rest] = sentence.split_at(space.unwrap_or(end));
        parts.push(part);
        sentence = rest;
    }
    parts.push(sentence);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        sentences(text).into_iter().flat_map(parts).map(|sentence| sentence.text).collect()
    }

    #[test]
    fn sentences_end_where_their_language_ends_them() {
        assert_eq!(
            texts("Mr. Low has 5.5 cats.  \"Does he?\" Yes!\nNo"),
            ["Mr.", "Low has 5.5 cats.", "\"Does he?\"", "Yes!", "No"]
        );
        assert_eq!(texts("河很宽。你看见船了吗？看见了！"), ["河很宽。", "你看见船了吗？", "看见了！"]);
        assert_eq!(texts("नदी चौड़ी है। नाव जा रही है।"), ["नदी चौड़ी है।", "नाव जा रही है।"]);
        assert_eq!(texts("هل ترى القارب؟ نعم."), ["هل ترى القارب؟", "نعم."]);
    }

    #[test]
    fn sentences_without_a_space_between_them_are_joined_without_one() {
        let joined = |text: &str| sentences(text).iter().map(|sentence| sentence.joined).collect::<Vec<_>>();
        assert_eq!(joined("河很宽。船很小。\n天很高。"), [false, true, false]);
        assert_eq!(joined("One. Two.\u{3000}三。四。"), [false, false, false, true]);
    }

    #[test]
    fn a_sentence_can_be_cut_behind_spaces_and_between_words_without_one() {
        let cuts = |text: &str| Sentence { text: text.into(), joined: false }.cuts();
        assert_eq!(cuts("A well-known cat, 5.5 – \u{e9}t\u{e9}."), [2, 13, 18, 22, 26]);
        assert_eq!(cuts("河很宽，船 小"), [3, 6, 16]);
        assert_eq!(cuts("แม่น้ำ เรือ").len(), 6, "between letters with their marks, and behind the space");
        assert!(cuts("one").is_empty());
    }

    #[test]
    fn long_sentences_are_cut_at_spaces_and_otherwise_between_words() {
        let words = |text: &str| texts(text).iter().map(|part| part.unicode_words().count()).collect::<Vec<_>>();
        assert_eq!(words(&"word ".repeat(130)), [60, 60, 10]);
        assert_eq!(words(&"河".repeat(130)), [60, 60, 10]);
        let thai = texts(&"แม่น้ำกว้างมาก ".repeat(40));
        assert!(thai.len() > 3 && thai.iter().all(|part| part.starts_with("แม่น้ำ")), "{thai:?}");
        let unbroken = "แม่น้ำกว้างมาก".repeat(40);
        assert_eq!(texts(&unbroken).concat(), unbroken);
    }
}
