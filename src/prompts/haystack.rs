//! The haystack: prose that is unrelated to the needles.
//!
//! The embedded haystack is generated from sentence templates (`assets/corpus`): short plain sentences with a small
//! vocabulary, in paragraphs about one topic, person and place, without digits, city names or repeated sentences. The
//! user's own text can replace it, and so can a few sentences again and again (noise) or nothing but distractors
//! (needles).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{bail, Context, Result};
use sha2::{Digest, Sha256};

use super::segment::{self, Sentence};
use super::text::without_byte_order_mark;
use crate::bail_usage;
use crate::base::files;
use crate::base::rng::Rng;

/// Sentence templates, and the word lists that fill them.
const SENTENCES: &str = include_str!("../../assets/corpus/sentences.txt");
const WORDS: &str = include_str!("../../assets/corpus/words.toml");

/// Names of haystacks that are no files.
const PROSE: &str = "prose";
const NOISE: &str = "noise";
const NEEDLES: &str = "needles";

/// The sentences that noise repeats, as in RULER (NVIDIA, Apache License 2.0), which has them of Mohtashami & Jaggi
/// 2023, "Landmark Attention".
const NOISE_SENTENCES: &str =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

/// Number of sentences in a paragraph of the embedded haystack, drawn uniformly from this inclusive range.
const PARAGRAPH: (usize, usize) = (3, 6);

/// Source of filler sentences.
#[derive(Clone, Debug)]
pub struct Haystack {
    source: HaystackSource,
}

#[derive(Clone, Debug)]
enum HaystackSource {
    Embedded,
    Noise,
    Needles,
    Own { path: PathBuf, sentences: Vec<Sentence> },
}

impl Haystack {
    /// The embedded haystack.
    pub fn embedded() -> Self {
        Self { source: HaystackSource::Embedded }
    }

    /// The haystack of this name: `prose`, the embedded one, as without a name; `noise`, a few sentences again and again;
    /// `needles`, nothing but distractors. Other names are paths.
    ///
    /// # Errors
    /// Those of [`from_path`](Self::from_path).
    pub fn named(name: Option<&Path>) -> Result<Self> {
        match name.map(|path| (path, path.to_str())) {
            None | Some((_, Some(PROSE))) => Ok(Self::embedded()),
            Some((_, Some(NOISE))) => Ok(Self { source: HaystackSource::Noise }),
            Some((_, Some(NEEDLES))) => Ok(Self { source: HaystackSource::Needles }),
            Some((path, _)) => Self::from_path(path),
        }
    }

    /// Reads the user's own text: a UTF-8 file, or a folder with files, which are read in the order of their names.
    ///
    /// The text is split into sentences by the rules of Unicode, at line ends, and after 60 words. Sentences that look
    /// like needles are left out, because they would compete with the real ones.
    ///
    /// # Errors
    /// If `path` cannot be read, is not UTF-8 or has no sentences.
    pub fn from_path(path: &Path) -> Result<Self> {
        let mut sentences = Vec::new();
        for file in text_files(path)? {
            let bytes = files::bytes(&file, files::TEXT_MAX).context("the haystack")?;
            let Ok(text) = String::from_utf8(bytes) else { bail!("the haystack {} is not UTF-8 text", file.display()) };
            let text = without_byte_order_mark(text);
            let kept = segment::sentences(&text).into_iter().filter(|sentence| !looks_like_a_needle(&sentence.text));
            sentences.extend(kept.flat_map(segment::parts));
        }
        if sentences.is_empty() {
            bail!("the haystack {} holds no sentence", path.display());
        }
        Ok(Self { source: HaystackSource::Own { path: path.to_owned(), sentences } })
    }

    /// `true` for the user's own text, whose sentences may be cut to fit.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.source, HaystackSource::Own { .. })
    }

    /// `true` for nothing but distractors.
    pub(super) fn is_needles(&self) -> bool {
        matches!(self.source, HaystackSource::Needles)
    }

    /// `true` for text to read, and not noise or needles.
    pub(super) fn is_prose(&self) -> bool {
        matches!(self.source, HaystackSource::Embedded | HaystackSource::Own { .. })
    }

    /// The sentences in random order, without repetition except in noise. None for needles, which depend on the prompt.
    ///
    /// The embedded haystack is practically endless. Own text starts at a random sentence, wraps around, and ends when
    /// each sentence has been used once.
    pub fn sentences(&self, mut rng: Rng) -> Box<dyn Iterator<Item = Sentence> + '_> {
        match &self.source {
            HaystackSource::Embedded => {
                let corpus = Corpus::embedded();
                let mut prose = Prose { rng, queue: VecDeque::new(), seen: HashSet::new(), corpus };
                Box::new(std::iter::from_fn(move || Some(Sentence { text: prose.next()?, joined: false })))
            }
            HaystackSource::Noise => {
                Box::new(std::iter::repeat(Sentence { text: NOISE_SENTENCES.to_owned(), joined: false }))
            }
            HaystackSource::Needles => Box::new(std::iter::empty()),
            HaystackSource::Own { sentences, .. } => {
                let (later, earlier) = sentences.split_at(rng.below(sentences.len()));
                Box::new(earlier.iter().chain(later).cloned())
            }
        }
    }

    /// SHA-256 of the source of the sentences, in hexadecimal: the text, or the templates and words of the embedded
    /// haystack.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        match &self.source {
            HaystackSource::Embedded => {
                hash.update(SENTENCES);
                hash.update(WORDS);
            }
            HaystackSource::Noise => hash.update(NOISE_SENTENCES),
            HaystackSource::Needles => hash.update(NEEDLES),
            HaystackSource::Own { sentences, .. } => {
                for Sentence { text, joined } in sentences {
                    hash.update(if *joined { text.clone() } else { format!("\n{text}") });
                }
            }
        }
        crate::base::hash::hex(&hash.finalize())
    }

    /// Name in messages: the path, or "the embedded haystack".
    pub fn name(&self) -> Cow<'static, str> {
        match &self.source {
            HaystackSource::Embedded => "the embedded haystack".into(),
            HaystackSource::Noise => "the haystack of noise".into(),
            HaystackSource::Needles => "the haystack of needles".into(),
            HaystackSource::Own { path, .. } => format!("the haystack {}", path.display()).into(),
        }
    }
}

/// The files of a haystack path, sorted by name, without hidden ones.
fn text_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.exists() {
        bail_usage!("cannot read the haystack {}: No such file or folder", path.display());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = visible_files(path).with_context(|| format!("cannot read the haystack {}", path.display()))?;
    if files.is_empty() {
        bail!("the haystack {} holds no file", path.display());
    }
    Ok(files)
}

fn visible_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().is_file() && !entry.file_name().to_string_lossy().starts_with('.') {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The lines of an asset, without blank lines and comments.
pub(super) fn lines(asset: &'static str) -> Vec<&'static str> {
    asset.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn looks_like_a_needle(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    lower.contains("special magic") || lower.contains("magic number")
}

/// Generated prose: paragraphs from templates, without repeated sentences.
struct Prose {
    rng: Rng,
    /// The rest of the current paragraph.
    queue: VecDeque<String>,
    seen: HashSet<String>,
    corpus: &'static Corpus,
}

impl Prose {
    fn next(&mut self) -> Option<String> {
        // There are five million different sentences, so paragraphs of only repeated ones are rare. The bound turns a
        // broken corpus into an error instead of an endless loop.
        for _ in 0..1000 {
            if let Some(sentence) = self.queue.pop_front() {
                return Some(sentence);
            }
            for sentence in self.corpus.paragraph(&mut self.rng) {
                if self.seen.insert(sentence.clone()) {
                    self.queue.push_back(sentence);
                }
            }
        }
        None
    }
}

/// Part of a parsed template: literal text or a slot.
enum Piece {
    Text(&'static str),
    Slot(&'static str),
}

struct Corpus {
    topics: Vec<Vec<Vec<Piece>>>,
    words: BTreeMap<String, Vec<String>>,
}

impl Corpus {
    fn embedded() -> &'static Self {
        static CORPUS: OnceLock<Corpus> = OnceLock::new();
        CORPUS.get_or_init(|| {
            let words = toml::from_str(WORDS).expect("words.toml is tested");
            let topics = SENTENCES.split("\n## ").skip(1).map(|topic| {
                let (_heading, templates) = topic.split_once('\n').expect("a topic has sentences");
                lines(templates).into_iter().map(parse).collect()
            });
            Corpus { topics: topics.collect(), words }
        })
    }

    /// Creates one paragraph: a topic, a person, a place, and a few different templates.
    fn paragraph(&self, rng: &mut Rng) -> Vec<String> {
        let topic = rng.pick(&self.topics);
        let (gender, pronouns) = *rng.pick(&[("she", ["She", "her", "her"]), ("he", ["He", "his", "him"])]);
        let name = rng.pick(&self.words[gender]).clone();
        let place = rng.pick(&self.words["place"]).clone();
        let fixed = [("name", name.as_str()), ("He", pronouns[0]), ("his", pronouns[1]), ("him", pronouns[2])];
        let length = PARAGRAPH.0 + rng.below(PARAGRAPH.1 - PARAGRAPH.0 + 1);
        let templates = rng.sample(&(0..topic.len()).collect::<Vec<_>>(), length);
        templates.into_iter().map(|i| self.sentence(&topic[i], &fixed, &place, rng)).collect()
    }

    /// Fills the slots of one template without repeating a word within the sentence.
    fn sentence(&self, template: &[Piece], fixed: &[(&str, &str)], place: &str, rng: &mut Rng) -> String {
        let mut sentence = String::new();
        let mut used: Vec<&str> = Vec::new();
        for piece in template {
            let word = match *piece {
                Piece::Text(text) => text,
                Piece::Slot(slot) => match fixed.iter().find(|(name, _)| *name == slot) {
                    Some((_, word)) => word,
                    None if slot == "place" && !used.contains(&place) => place,
                    None => loop {
                        let word = rng.pick(&self.words[slot]).as_str();
                        if !used.contains(&word) {
                            break word;
                        }
                    },
                },
            };
            if matches!(piece, Piece::Slot(_)) {
                if (sentence.ends_with(" a ") || sentence == "A ") && word.starts_with(['a', 'e', 'i', 'o', 'u']) {
                    sentence.insert(sentence.len() - 1, 'n');
                }
                used.push(word);
            }
            sentence.push_str(word);
        }
        // A sentence may start with a slot such as {his}.
        sentence[..1].make_ascii_uppercase();
        sentence
    }
}

fn parse(template: &'static str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (i, part) in template.split(['{', '}']).enumerate() {
        match (i % 2, part.is_empty()) {
            (0, true) => {}
            (0, false) => pieces.push(Piece::Text(part)),
            _ => pieces.push(Piece::Slot(part)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::{CitySet, Tokenizer};
    use super::*;

    fn prose(seed: u64, count: usize) -> Vec<String> {
        Haystack::embedded().sentences(Rng::new(seed, "prose")).take(count).map(|sentence| sentence.text).collect()
    }

    #[test]
    fn a_haystack_of_64k_tokens_repeats_no_sentence() {
        let tokenizer = Tokenizer::embedded();
        let mut seen = HashSet::new();
        let mut total_tok = 0;
        for sentence in Haystack::embedded().sentences(Rng::new(0, "prose")) {
            let text = sentence.text;
            total_tok += tokenizer.encode(&format!(" {text}")).unwrap().ids.len();
            assert!(seen.insert(text.clone()), "{text} comes twice");
            if total_tok > 65_536 {
                return;
            }
        }
        panic!("the haystack ended after {total_tok} tokens");
    }

    #[test]
    fn prose_is_short_plain_sentences_without_digits_cities_or_words_of_the_needle() {
        let cities: HashSet<_> = [CitySet::Train, CitySet::HeldOut].iter().flat_map(|set| set.cities()).collect();
        for sentence in prose(1, 20_000) {
            let text = sentence.strip_suffix('.').unwrap();
            assert!(text.starts_with(|first: char| first.is_ascii_uppercase()), "{sentence}");
            assert!(text.chars().all(|c| c.is_ascii_alphabetic() || c == ' '), "{sentence}");
            assert!((5..=16).contains(&text.split(' ').count()), "{sentence}");
            for word in text.split(' ') {
                assert!(!cities.contains(&word) && !["special", "magic", "number"].contains(&word), "{sentence}");
            }
        }
    }

    #[test]
    fn articles_fit_the_next_word() {
        for sentence in prose(2, 20_000) {
            let words: Vec<&str> = sentence.split(' ').collect();
            for pair in words.windows(2) {
                let vowel = pair[1].starts_with(['a', 'e', 'i', 'o', 'u']) || pair[1].starts_with("hour");
                let wrong = if vowel { "a" } else { "an" };
                assert_ne!(pair[0].to_lowercase(), wrong, "{sentence}");
            }
        }
    }

    #[test]
    fn the_corpus_is_large_and_every_slot_has_its_list() {
        let corpus = Corpus::embedded();
        let templates: Vec<&Vec<Piece>> = corpus.topics.iter().flatten().collect();
        assert!(templates.len() >= 250, "{} templates", templates.len());
        assert!(corpus.topics.iter().all(|topic| topic.len() >= PARAGRAPH.1));
        let mut used: HashSet<&str> = ["he", "she"].into();
        for piece in templates.into_iter().flatten() {
            if let Piece::Slot(slot) = piece {
                assert!(["name", "He", "his", "him"].contains(slot) || corpus.words.contains_key(*slot), "{slot}");
                used.insert(slot);
            }
        }
        assert!(corpus.words.keys().all(|list| used.contains(list.as_str())));
    }

    #[test]
    fn own_text_is_cut_into_sentences_and_its_needles_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.txt"), "Third one!  Fourth\n\n \nFifth is 5.5 long.").unwrap();
        std::fs::write(folder.path().join("a.txt"), "First. The special magic Oslo number is: 12345. Second?").unwrap();
        std::fs::write(folder.path().join(".hidden"), "Not this.").unwrap();
        let haystack = Haystack::from_path(folder.path()).unwrap();
        let from = |seed| haystack.sentences(Rng::new(seed, "prose")).map(|sentence| sentence.text);
        let drawn: Vec<String> = from(5).collect();
        let mut sorted = drawn.clone();
        sorted.sort();
        assert_eq!(sorted, ["Fifth is 5.5 long.", "First.", "Fourth", "Second?", "Third one!"]);
        // From a random position, wrapping around.
        let text = "First. Second? Third one! Fourth Fifth is 5.5 long. ".repeat(2);
        assert!(text.contains(&drawn.join(" ")), "{drawn:?}");
        assert!((0..20).any(|seed| from(seed).next() != Some(drawn[0].clone())));
        assert_ne!(haystack.sha256(), Haystack::embedded().sha256());
    }

    #[test]
    fn an_unusable_haystack_is_an_error_with_path_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let message = |path: &Path| {
            let message = format!("{:#}", Haystack::from_path(path).unwrap_err());
            assert!(message.contains(&path.display().to_string()) && !message.contains('\n'), "{message}");
            message
        };
        assert!(message(&path("none")).starts_with("cannot read the haystack"));
        assert!(message(folder.path()).ends_with("holds no file"));
        std::fs::write(path("empty"), " \n").unwrap();
        assert!(message(&path("empty")).ends_with("holds no sentence"));
        std::fs::write(path("binary"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(message(&path("binary")).ends_with("is not UTF-8 text"));
    }
}
