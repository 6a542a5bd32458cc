//! The haystack: prose that is unrelated to the needles.
//!
//! The embedded haystack is generated from sentence templates (`assets/corpus`): short plain sentences with a small
//! vocabulary, in paragraphs about one topic, person and place, without digits, city names or repeated sentences. The
//! user's own text can replace it, and so can a few sentences again and again (noise) or nothing but distractors
//! (needles).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{bail, ensure, Context, Result};
use sha2::{Digest, Sha256};

use super::segment::{self, Sentence};
use super::unwrap;
use base::bail_usage;
use base::files;
use base::files::without_byte_order_mark;
use stats::Rng;

/// Sentence templates, and the word lists that fill them.
const SENTENCES: &str = include_str!("../assets/corpus/sentences.txt");
const WORDS: &str = include_str!("../assets/corpus/words.toml");

/// The sentences that noise repeats, as in RULER (NVIDIA, Apache License 2.0), which has them of Mohtashami & Jaggi
/// 2023, "Landmark Attention".
const NOISE_SENTENCES: &str =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

/// Number of sentences in a paragraph of the embedded haystack, drawn uniformly from this inclusive range.
const PARAGRAPH: (usize, usize) = (3, 6);

/// Source of filler sentences.
#[derive(Clone, Debug)]
pub enum Haystack {
    /// Prose that is generated.
    Embedded,
    /// A few sentences again and again.
    Noise,
    /// Nothing but distractors.
    Needles,
    /// The user's own text.
    Own { path: PathBuf, sentences: Vec<Sentence> },
}

impl Haystack {
    /// The haystack of this name: `prose`, the embedded one, as without a name; `noise`; `needles`. Other names are paths.
    ///
    /// # Errors
    /// Those of [`from_path`](Self::from_path).
    pub fn named(name: Option<&Path>) -> Result<Self> {
        let Some(path) = name else { return Ok(Self::Embedded) };
        match path.to_str() {
            Some("prose") => Ok(Self::Embedded),
            Some("noise") => Ok(Self::Noise),
            Some("needles") => Ok(Self::Needles),
            _ => Self::from_path(path),
        }
    }

    /// Reads the user's own text: a UTF-8 file, or a folder with files, which are read in the order of their names.
    ///
    /// The lines of wrapped paragraphs are joined. The text is split into sentences by the rules of Unicode, at the other
    /// line ends, and after 60 words. Sentences that look like needles are left out, because they would compete with the real ones.
    ///
    /// # Errors
    /// If `path` cannot be read, is not UTF-8 or has no sentences.
    pub fn from_path(path: &Path) -> Result<Self> {
        let mut sentences = Vec::new();
        for file in text_files(path)? {
            let bytes = files::bytes(&file, files::TEXT_MAX).context("the haystack")?;
            let Ok(text) = String::from_utf8(bytes) else { bail!("the haystack {} is not UTF-8 text", file.display()) };
            let text = without_byte_order_mark(text);
            if let Err(why) = files::check_prose(&text) {
                bail_usage!("the haystack {} {why}", file.display());
            }
            let kept = segment::sentences(&unwrap::unwrapped(&text))
                .into_iter()
                .filter(|sentence| !looks_like_a_needle(&sentence.text));
            sentences.extend(kept.flat_map(segment::parts));
        }
        if sentences.is_empty() {
            bail!("the haystack {} holds no sentence", path.display());
        }
        Ok(Self::Own { path: path.to_owned(), sentences })
    }

    /// `true` for the user's own text, whose sentences may be cut to fit.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    /// `true` for nothing but distractors.
    pub(super) fn is_needles(&self) -> bool {
        matches!(self, Self::Needles)
    }

    /// `true` for text to read, and not noise or needles.
    pub(super) fn is_prose(&self) -> bool {
        matches!(self, Self::Embedded | Self::Own { .. })
    }

    /// The sentences in random order, without repetition except in noise. None for needles, which depend on the prompt.
    ///
    /// The embedded haystack is practically endless. Own text starts at a random sentence, wraps around, and ends when
    /// each sentence has been used once.
    pub fn sentences(&self, mut rng: Rng) -> Box<dyn Iterator<Item = Sentence> + '_> {
        match self {
            Self::Embedded => {
                let corpus = Corpus::embedded();
                let mut prose = Prose { rng, queue: VecDeque::new(), seen: HashSet::new(), corpus };
                Box::new(std::iter::from_fn(move || Some(Sentence { text: prose.next(), joined: false })))
            }
            Self::Noise => Box::new(std::iter::repeat(Sentence { text: NOISE_SENTENCES.to_owned(), joined: false })),
            Self::Needles => Box::new(std::iter::empty()),
            Self::Own { sentences, .. } => {
                let (later, earlier) = sentences.split_at(rng.below(sentences.len()));
                Box::new(earlier.iter().chain(later).cloned())
            }
        }
    }

    /// SHA-256 of the source of the sentences, in hexadecimal: the text, or the templates and words of the embedded
    /// haystack.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        match self {
            Self::Embedded => {
                hash.update(SENTENCES);
                hash.update(WORDS);
            }
            Self::Noise => hash.update(NOISE_SENTENCES),
            Self::Needles => hash.update("needles"),
            Self::Own { sentences, .. } => {
                for Sentence { text, joined } in sentences {
                    hash.update(if *joined { text.clone() } else { format!("\n{text}") });
                }
            }
        }
        base::hash::hex(&hash.finalize())
    }

    /// Name in messages: the path, or "the embedded haystack".
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Embedded => "the embedded haystack".into(),
            Self::Noise => "the haystack of noise".into(),
            Self::Needles => "the haystack of needles".into(),
            Self::Own { path, .. } => format!("the haystack {}", path.display()).into(),
        }
    }
}

/// The files of a haystack path and of all folders in it, sorted by their paths, without hidden ones.
fn text_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.exists() {
        bail_usage!("cannot read the haystack {}: No such file or folder", path.display());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    add_files(path, &mut files).with_context(|| format!("cannot read the haystack {}", path.display()))?;
    if files.is_empty() {
        bail!("the haystack {} holds no file", path.display());
    }
    files.sort();
    Ok(files)
}

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            add_files(&path, files)?;
            continue;
        }
        // It may lead round in a circle.
        ensure!(!path.is_dir(), "{} is a link to a folder; name the folder itself", path.display());
        // What is neither a file nor a folder, such as a link to nothing, is an error when it is read.
        files.push(path);
    }
    Ok(())
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
    /// The next sentence. There are five million different ones, so paragraphs of only repeated ones are rare.
    fn next(&mut self) -> String {
        loop {
            if let Some(sentence) = self.queue.pop_front() {
                return sentence;
            }
            for sentence in self.corpus.paragraph(&mut self.rng) {
                if self.seen.insert(sentence.clone()) {
                    self.queue.push_back(sentence);
                }
            }
        }
    }
}

struct Corpus {
    /// Templates, with the names of word lists in braces.
    topics: Vec<Vec<&'static str>>,
    words: BTreeMap<String, Vec<String>>,
}

impl Corpus {
    fn embedded() -> &'static Self {
        static CORPUS: LazyLock<Corpus> = LazyLock::new(|| {
            let topics = SENTENCES.split("\n## ").skip(1).map(|topic| {
                let (_heading, templates) = topic.split_once('\n').expect("a topic has sentences");
                lines(templates)
            });
            Corpus { topics: topics.collect(), words: toml::from_str(WORDS).expect("words.toml is tested") }
        });
        &CORPUS
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
        templates.into_iter().map(|i| self.sentence(topic[i], &fixed, &place, rng)).collect()
    }

    /// Fills the slots of one template without repeating a word within the sentence.
    fn sentence(&self, template: &'static str, fixed: &[(&str, &str)], place: &str, rng: &mut Rng) -> String {
        let mut sentence = String::new();
        let mut used: Vec<&str> = Vec::new();
        for (i, part) in template.split(['{', '}']).enumerate() {
            if i % 2 == 0 {
                sentence.push_str(part);
                continue;
            }
            let word = match fixed.iter().find(|(name, _)| *name == part) {
                Some((_, word)) => word,
                None if part == "place" && !used.contains(&place) => place,
                None => loop {
                    let word = rng.pick(&self.words[part]).as_str();
                    if !used.contains(&word) {
                        break word;
                    }
                },
            };
            if (sentence.ends_with(" a ") || sentence == "A ") && word.starts_with(['a', 'e', 'i', 'o', 'u']) {
                sentence.insert(sentence.len() - 1, 'n');
            }
            used.push(word);
            sentence.push_str(word);
        }
        // A sentence may start with a slot such as {his}.
        sentence[..1].make_ascii_uppercase();
        sentence
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CitySet, Tokenizer};
    use super::*;

    fn prose(seed: u64, count: usize) -> Vec<String> {
        Haystack::Embedded.sentences(Rng::new(seed, "prose")).take(count).map(|sentence| sentence.text).collect()
    }

    #[test]
    fn a_haystack_of_64k_tokens_repeats_no_sentence() {
        let tokenizer = Tokenizer::embedded();
        let mut seen = HashSet::new();
        let mut total_tok = 0;
        for sentence in Haystack::Embedded.sentences(Rng::new(0, "prose")) {
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
        let templates: Vec<&str> = corpus.topics.iter().flatten().copied().collect();
        assert!(templates.len() >= 250, "{} templates", templates.len());
        assert!(corpus.topics.iter().all(|topic| topic.len() >= PARAGRAPH.1));
        let mut used: HashSet<&str> = ["he", "she"].into();
        for slot in templates.into_iter().flat_map(|template| template.split(['{', '}']).skip(1).step_by(2)) {
            assert!(["name", "He", "his", "him"].contains(&slot) || corpus.words.contains_key(slot), "{slot}");
            used.insert(slot);
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
        assert_ne!(haystack.sha256(), Haystack::Embedded.sha256());
    }

    #[test]
    fn folders_in_a_haystack_are_read_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a.txt", "b/c.txt", "b/d/e.txt", ".git/f.txt", "b/.hidden", "g.txt"];
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let found = text_files(folder.path()).unwrap();
        assert_eq!(found, ["a.txt", "b/c.txt", "b/d/e.txt", "g.txt"].map(|name| folder.path().join(name)));
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
