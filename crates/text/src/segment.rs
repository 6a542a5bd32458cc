//! Sentences and words of any language, by the rules of Unicode (UAX #29); sentences do not end behind the abbreviations of
//! CLDR (`assets/cldr`).
//!
//! Scripts without spaces have sentences too (`。`, `।`), and most of them words; where a script has neither spaces nor
//! words that the rules know (Thai), a word is a letter with its marks.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use tokenizers::NormalizedString;
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

/// Abbreviations of all languages without their last period, with a small first letter and with a capital.
static ABBREVIATIONS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let lines = include_str!("../assets/cldr/suppressions.txt").lines().filter(|line| !line.starts_with('#'));
    let mut stems = HashSet::new();
    // Of several words, each is one: `v. Chr.`
    for stem in lines.flat_map(|line| line.split([',', ' '])).filter_map(|word| word.strip_suffix('.')) {
        let mut letters = stem.chars();
        stems.extend(letters.next().map(|first| first.to_uppercase().chain(letters).collect()));
        stems.insert(stem.to_owned());
    }
    stems
});

/// The abbreviations of a text, without their last period. `out.` is one in Portuguese, and the end of a sentence in a text
/// that has `out` without the period too: a word counts that has it more often than not, and a single letter always.
fn abbreviations(text: &str) -> HashSet<&str> {
    let mut with_period: HashMap<&str, isize> = HashMap::new();
    for word in text.split_whitespace().map(|word| word.trim_start_matches(|c: char| !c.is_alphanumeric())) {
        let stem = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        if ABBREVIATIONS.contains(stem) {
            let is_letter = stem.chars().nth(1).is_none();
            let has_period = word[stem.len()..].starts_with('.');
            *with_period.entry(stem).or_default() += if has_period || is_letter { 1 } else { -1 };
        }
    }
    with_period.into_iter().filter(|&(_, count)| count > 0).map(|(stem, _)| stem).collect()
}

/// One of so many words of a German text is `und`, at least.
const WORDS_OF_UND: usize = 200;

/// Returns `true` if a number with a period is an ordinal before a noun: in German, which alone writes both `3.` and nouns with a capital.
fn has_ordinals(text: &str) -> bool {
    let words = text.split_whitespace().count();
    let und = text.split_whitespace().filter(|&word| word == "und").count();
    und * WORDS_OF_UND >= words && und > 0
}

/// Cuts text into sentences, with the white space behind each.
pub(super) fn sentence_bounds(text: &str) -> Vec<&str> {
    let goes_on = NoEnds { abbreviations: abbreviations(text), ordinals: has_ordinals(text) };
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for part in text.split_sentence_bounds() {
        end += part.len();
        if !goes_on.behind(part) || end == text.len() {
            sentences.push(&text[start..end]);
            start = end;
        }
    }
    sentences
}

/// What has a period that ends no sentence.
struct NoEnds<'a> {
    abbreviations: HashSet<&'a str>,
    /// Ordinal numbers of one digit or two.
    ordinals: bool,
}

impl NoEnds<'_> {
    /// Returns `true` if a sentence goes on behind a part of a text: no line ends there.
    fn behind(&self, part: &str) -> bool {
        let words = part.trim_end();
        let last = words.split_whitespace().next_back().and_then(|word| word.strip_suffix('.'));
        let Some(last) = last else { return false };
        let stem = last.trim_start_matches(|c: char| !c.is_alphanumeric());
        let is_ordinal = self.ordinals && stem.len() <= 2 && stem.bytes().all(|byte| byte.is_ascii_digit());
        let goes_on = self.abbreviations.contains(stem) || is_ordinal && !stem.is_empty();
        goes_on && !part[words.len()..].contains(['\n', '\r'])
    }
}

/// Returns `true` if a word or a number goes on at a position of a text. In scripts without spaces none does that the rules
/// know, and a grapheme is never cut.
pub fn is_inside_word(text: &str, position: usize) -> bool {
    let (before, behind) = text.split_at(position);
    let Some(left) = before.graphemes(true).next_back() else { return false };
    let Some(right) = behind.graphemes(true).next() else { return false };
    // Of the two alone, so that neither an apostrophe nor a decimal point joins what is beyond it.
    format!("{left}{right}").split_word_bound_indices().all(|(at, _)| at != left.len())
}

/// Cuts text into sentences, which end at line ends too, and these after [`WORDS_MAX`] words, where possible at a space.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut joined = false;
    for part in sentence_bounds(text) {
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

/// A text in which the same letters of either case, composed or not, are the same.
pub fn folded(text: &str) -> String {
    let mut folded = NormalizedString::from(text);
    // Capitals first: that of `ß` is `SS`, and that of `ς` and `σ` is `Σ`.
    folded.nfd().uppercase().lowercase();
    // Turkish has an `i` with a dot and one without in either case.
    folded.get().replace("i\u{307}", "i")
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
            texts("Low has 5.5 cats.  \"Does he?\" Yes!\nNo"),
            ["Low has 5.5 cats.", "\"Does he?\"", "Yes!", "No"]
        );
        assert_eq!(texts("河很宽。你看见船了吗？看见了！"), ["河很宽。", "你看见船了吗？", "看见了！"]);
        assert_eq!(texts("नदी चौड़ी है। नाव जा रही है।"), ["नदी चौड़ी है।", "नाव जा रही है।"]);
        assert_eq!(texts("هل ترى القارب؟ نعم."), ["هل ترى القارب؟", "نعم."]);
    }

    #[test]
    fn sentences_do_not_end_behind_abbreviations() {
        for (language, text, wanted) in [
            ("en", "(Mr. Low met Dr. Jones on Main St. in May.) The U.S. President, as Fig. 2 says, likes Gen. Lee vs. J. R. Lee. Yes.", 3),
            ("de", "Prof. Dr. Weiß kommt, d. h. am Mo. um 9. Er bringt ca. 3 kg Obst, z. B. Äpfel, ggf. Birnen. Gut.", 3),
            ("es", "El Sr. López y la Sra. Ruiz viven en la Avda. Mayor. Vds. vienen.", 2),
            ("fr", "M. Blanc et le Prof. Noir arrivent en janv. 1912. Bien, dit M. Gris.", 2),
            ("it", "Il dott. Rossi e il Sig. Verdi abitano qui. Cfr. Bianchi, pag. 7. Sì.", 3),
            ("pt", "O Dr. Silva e a Dra. Costa moram na Av. Central. Sim.", 2),
            ("ru", "На ул. Ленина живёт проф. Иванов. В янв. 1912 года он уехал. Да.", 3),
            ("de, ordinals", "Am 3. Oktober und am 24. Mai kam der 2. Weltkrieg zur Sprache. Seit 1990. Es war gut.", 3),
            ("none, a line end", "Mr.\nLow", 2),
            ("none, a word in Portuguese", "He took it out and went out. They were out of bread. They went on foot and on and on. All is well. That is all. So all went home.", 6),
        ] {
            assert_eq!(texts(text).len(), wanted, "{language}: {:?}", texts(text));
        }
    }

    #[test]
    fn a_word_goes_on_where_letters_digits_and_marks_of_its_script_do() {
        for (text, wanted) in [
            ("Fuß|ball", true),
            ("Fuß|,", false),
            ("Fuß| ", false),
            ("МОСК|ВА", true),
            ("4|7", true),
            ("a|7", true),
            ("$|17", false),
            ("Ann|'s", false),
            ("O'|Neill", false),
            ("4|,7", false),
            ("Jose|\u{301}", true),
            ("Jose\u{301}|s", true),
            ("北|京", false),
            ("ひら|がな", false),
            ("カタ|カナ", true),
            ("ไทย|ไทย", false),
            ("서울|은", true),
            ("नदी|याँ", true),
            ("بيت|ك", true),
            ("|a", false),
            ("a|", false),
        ] {
            let position = text.find('|').unwrap();
            assert_eq!(is_inside_word(&text.replace('|', ""), position), wanted, "{text}");
        }
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
