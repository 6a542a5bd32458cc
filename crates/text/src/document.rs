//! Training documents: prose with facts that are stated, and restated for the model to recall.
//!
//! A fact gives a number to a name. Most documents mix prose, new facts and restatements; some are whole needle
//! prompts as in the evaluation ("exams"). They use only training cities and made-up names, and other streams of random
//! numbers than the evaluation.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::needle::facts::{made_up, number};
use super::needle::{self, Texts};
use super::{CitySet, Haystack, NeedleSpec, Tokenizer};
use base::bail_usage;
use base::spec_file::pair;
use stats::Rng;

/// The wordings of a fact, by their index in [`DocumentSpec::wordings`]: the texts before, between and behind the name
/// and the value. The first is the needle of the evaluation.
pub(super) const WORDINGS: [[&str; 3]; 8] = [
    ["The special magic ", " number is: ", "."],
    ["", " ", "."],
    ["", " number: ", "."],
    ["In ", " the number is ", "."],
    ["The number of ", " is ", "."],
    ["The magic number of ", " is ", "."],
    ["", " has the number ", "."],
    ["People in ", " know the number ", "."],
];

/// Maximum number of questions in an exam.
const EXAM_QUESTIONS_MAX: usize = 3;

/// Digits of a value, as in the evaluation.
const DIGITS: usize = 5;

/// Composition of training documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentSpec {
    /// Minimum and maximum number of different facts in a document, drawn uniformly. A document that fills up earlier
    /// has fewer.
    #[serde(deserialize_with = "pair")]
    pub facts: [usize; 2],
    /// Mean number of restatements per new fact until all facts are stated. After that, every fact sentence is a
    /// restatement. Each one restates a uniformly chosen earlier fact in the same wording. 0 disables restatements.
    pub restate: f64,
    /// Fraction of prose sentences. It is exceeded if no fact can follow, since stating one fact twice in a row would
    /// be copying rather than recall.
    pub prose: f64,
    /// Weights of the wordings of a fact (`WORDINGS`). Missing ones are 0.
    pub wordings: Vec<f64>,
    /// Probability that a document begins with a needle prompt in the format of the evaluation.
    pub exam: f64,
    /// Minimum and maximum number of needles of such a prompt, drawn uniformly. A context without room for as many has
    /// fewer.
    #[serde(deserialize_with = "pair")]
    pub exam_needles: [usize; 2],
    /// Probability that a fact is about a made-up name rather than a training city.
    pub synthetic: f64,
    /// People's texts: files, each of them a document, and folders of such files. They are in place of what
    /// [`document`] makes, which does not read them.
    pub text: Vec<PathBuf>,
    /// Probability that a document is a window of these texts, if there are any.
    pub text_share: f64,
}

impl Default for DocumentSpec {
    fn default() -> Self {
        Self {
            facts: [4, 12],
            restate: 2.0,
            prose: 0.5,
            wordings: vec![1.0],
            exam: 0.25,
            exam_needles: [1, 8],
            synthetic: 0.25,
            text: Vec::new(),
            text_share: 1.0,
        }
    }
}

impl DocumentSpec {
    /// Checks the numbers. Invalid ones are usage errors that name the field.
    pub fn check(&self) -> Result<()> {
        let [min, max] = self.facts;
        for (name, value) in
            [("prose", self.prose), ("exam", self.exam), ("synthetic", self.synthetic), ("text_share", self.text_share)]
        {
            if !(0.0..=1.0).contains(&value) {
                bail_usage!("{name} = {value} is not between 0 and 1");
            }
        }
        if min == 0 || min > max {
            bail_usage!("facts = [{min}, {max}] is not a range of at least one fact");
        }
        let [least, most] = self.exam_needles;
        let cities = CitySet::Train.cities().len();
        if least == 0 || least > most || most > cities {
            bail_usage!("exam_needles = [{least}, {most}] is not a range of 1 to {cities} needles");
        }
        if !self.restate.is_finite() || self.restate < 0.0 {
            bail_usage!("restate = {} is not a number of restatements of at least 0", self.restate);
        }
        let weights_ok = self.wordings.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        if !weights_ok || self.wordings.iter().sum::<f64>() <= 0.0 || self.wordings.len() > WORDINGS.len() {
            bail_usage!("wordings must be 1 to {} weights, not negative and not all 0", WORDINGS.len());
        }
        if self.synthetic == 0.0 && max.saturating_add(most) > cities {
            bail_usage!("{max} facts need more than the {cities} training cities: set synthetic above 0");
        }
        Ok(())
    }
}

/// A training document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// `ctx_tok + 1` token ids, starting with the begin-of-sequence token. The inputs and targets of a training step
    /// overlap in all but one.
    pub ids: Vec<u32>,
    /// For each token, its position (from 1) in a value that the document stated before and that can be recalled,
    /// otherwise 0.
    pub digit: Vec<u8>,
}

/// Creates the training document of a seed.
///
/// # Errors
/// Usage errors if the spec is inconsistent, the context is too short for an exam, or the user's own text runs out.
pub fn document(
    spec: &DocumentSpec,
    ctx_tok: usize,
    seed: u64,
    tokenizer: &Tokenizer,
    haystack: &Haystack,
) -> Result<Document> {
    spec.check()?;
    let mut rng = Rng::new(seed, "train document");
    let mut writer = DocumentWriter::new(tokenizer);
    let mut facts = Vec::new();
    if rng.unit() < spec.exam {
        facts = writer.exam(spec.exam_needles, ctx_tok, seed, &mut rng, haystack)?;
    }
    // Facts of an exam count in addition, and can be restated later.
    let facts_max = facts.len() + spec.facts[0] + rng.below(spec.facts[1] - spec.facts[0] + 1);
    let mut prose = haystack.sentences(Rng::new(seed, "train prose"));
    // The fact of the previous sentence, which must not be repeated at once.
    let mut last = None;
    while writer.document.ids.len() <= ctx_tok {
        let others = facts.len() - usize::from(last.is_some());
        let restate = others > 0 && rng.unit() * (1.0 + spec.restate) >= 1.0;
        let new = !restate && facts.len() < facts_max;
        let nothing_to_say = !new && (others == 0 || spec.restate == 0.0);
        if nothing_to_say || rng.unit() < spec.prose {
            match prose.next() {
                Some(sentence) => writer.sentence(&sentence.text, 0..0)?,
                None => bail_usage!("{} is too short for a document of {ctx_tok} tokens", haystack.name()),
            }
            last = None;
            continue;
        }
        let index = if new { facts.len() } else { other_than(last, facts.len(), &mut rng) };
        if new {
            facts.push(WordedFact::draw(spec, &facts, &mut rng));
        }
        writer.fact(&facts[index], !new)?;
        last = Some(index);
    }
    let Document { mut ids, mut digit } = writer.document;
    ids.truncate(ctx_tok + 1);
    digit.truncate(ctx_tok + 1);
    Ok(Document { ids, digit })
}

/// A uniform index below `count` other than `last`.
fn other_than(last: Option<usize>, count: usize, rng: &mut Rng) -> usize {
    match last {
        Some(last) => {
            let draw = rng.below(count - 1);
            draw + usize::from(draw >= last)
        }
        None => rng.below(count),
    }
}

/// A name, its number, and its wording.
struct WordedFact {
    name: String,
    value: String,
    wording: usize,
}

impl WordedFact {
    /// Draws a fact with another name and value than `others`.
    fn draw(spec: &DocumentSpec, others: &[WordedFact], rng: &mut Rng) -> Self {
        let name = loop {
            let synthetic = rng.unit() < spec.synthetic;
            let name = if synthetic { made_up(rng) } else { (*rng.pick(CitySet::Train.cities())).to_owned() };
            if others.iter().all(|fact| fact.name != name) {
                break name;
            }
        };
        let value = loop {
            let value = number(DIGITS, rng);
            if others.iter().all(|fact| fact.value != value) {
                break value;
            }
        };
        let mut left = rng.unit() * spec.wordings.iter().sum::<f64>();
        let mut wording = spec.wordings.len() - 1;
        for (i, weight) in spec.wordings.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                wording = i;
                break;
            }
        }
        Self { name, value, wording }
    }

    /// The sentence, and the byte range of the value in it.
    fn sentence(&self) -> (String, Range<usize>) {
        let [before, between, behind] = WORDINGS[self.wording];
        let stem = format!("{before}{}{between}", self.name);
        let value = stem.len()..stem.len() + self.value.len();
        (format!("{stem}{}{behind}", self.value), value)
    }
}

/// Builder of a document.
struct DocumentWriter<'a> {
    document: Document,
    tokenizer: &'a Tokenizer,
}

impl<'a> DocumentWriter<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        let ids: Vec<u32> = tokenizer.text_bos.id.into_iter().collect();
        Self { document: Document { digit: vec![0; ids.len()], ids }, tokenizer }
    }

    /// Appends a sentence after a space. The first sentence has the space too, so that a name at the start of a
    /// sentence always has the same tokens.
    fn sentence(&mut self, sentence: &str, recalled: Range<usize>) -> Result<()> {
        let encoded = self.tokenizer.encode(&format!(" {sentence}"))?;
        let mut digit = 0;
        for (id, (_, end)) in encoded.ids.into_iter().zip(encoded.offsets) {
            // Offsets count the space before the sentence. A token belongs to the value if its last byte does.
            let in_value = end >= 2 && recalled.contains(&(end - 2));
            digit += u8::from(in_value);
            self.document.ids.push(id);
            self.document.digit.push(if in_value { digit } else { 0 });
        }
        Ok(())
    }

    fn fact(&mut self, fact: &WordedFact, restated: bool) -> Result<()> {
        let (sentence, value) = fact.sentence();
        self.sentence(&sentence, if restated { value } else { 0..0 })
    }

    /// Starts the document with a needle prompt of random size. Returns its facts.
    fn exam(
        &mut self,
        [least, most]: [usize; 2],
        ctx_tok: usize,
        seed: u64,
        rng: &mut Rng,
        haystack: &Haystack,
    ) -> Result<Vec<WordedFact>> {
        // A needle takes about 17 tokens and a question 21, besides the instructions and a sentence of filler.
        let room = (ctx_tok.saturating_sub(80) / 24).max(1);
        let most = most.min(room);
        let least = least.min(most);
        let needles = least + rng.below(most - least + 1);
        let retrieve = 1 + rng.below(EXAM_QUESTIONS_MAX.min(needles).min(room + 1 - needles));
        let depth_pct = 100.0 * rng.unit();
        let spec = NeedleSpec { ctx_tok, needles, retrieve, depth_pct, ..NeedleSpec::default() };
        let texts = Texts { haystack, file: None, tokenizer: self.tokenizer };
        let prompt = needle::build_from(&spec, seed, "train exam", "train exam prose", texts)?;
        self.document.digit = vec![0; prompt.ids.len()];
        for query in &prompt.queries {
            for (i, token) in query.predicted.clone().enumerate() {
                self.document.digit[token] = i as u8 + 1;
            }
        }
        self.document.ids = prompt.ids;
        Ok(prompt
            .needles
            .into_iter()
            .map(|needle| WordedFact { name: needle.name, value: needle.value, wording: 0 })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::needle::tests::PREAMBLE;
    use super::*;
    use base::error::exit_code;
    use base::spec_file;

    fn made(spec: &DocumentSpec, ctx_tok: usize, seed: u64) -> Document {
        document(spec, ctx_tok, seed, Tokenizer::embedded(), &Haystack::Embedded).unwrap()
    }

    fn text(document: &Document) -> String {
        Tokenizer::embedded().decode(&document.ids).unwrap()
    }

    /// All features: several wordings, exams, made-up names.
    fn mixed() -> DocumentSpec {
        DocumentSpec { wordings: vec![1.0; WORDINGS.len()], exam: 0.5, synthetic: 0.5, ..DocumentSpec::default() }
    }

    /// Only `City 48213.`
    fn pure_recall() -> DocumentSpec {
        DocumentSpec { facts: [3, 6], prose: 0.0, wordings: vec![0.0, 1.0], exam: 0.0, ..DocumentSpec::default() }
    }

    #[test]
    fn a_document_has_one_token_more_than_the_context_and_begins_with_bos() {
        for seed in 0..50 {
            for ctx_tok in [128, 256, 333, 1024] {
                let document = made(&mixed(), ctx_tok, seed);
                assert_eq!((document.ids.len(), document.digit.len()), (ctx_tok + 1, ctx_tok + 1));
                assert!(document.ids[0] == 0 && document.ids[1..].iter().all(|&id| id > 2));
            }
        }
    }

    #[test]
    fn a_seed_names_a_document_and_seeds_differ() {
        for seed in 0..20 {
            assert_eq!(made(&mixed(), 256, seed), made(&mixed(), 256, seed));
            assert_ne!(made(&mixed(), 256, seed).ids, made(&mixed(), 256, seed + 1).ids);
        }
    }

    #[test]
    fn sentence_by_sentence_gives_the_tokens_of_the_whole_text() {
        for seed in 0..100 {
            let ids = made(&mixed(), 512, seed).ids;
            // The end may cut a word, which then has other tokens.
            let whole = Tokenizer::embedded().encode(&text(&Document { ids: ids.clone(), digit: vec![] })).unwrap().ids;
            assert_eq!(ids[1..500], whole[..499], "seed {seed}");
        }
    }

    #[test]
    fn marked_digits_are_those_of_values_stated_before() {
        let tokenizer = Tokenizer::embedded();
        for seed in 0..200 {
            let document = made(&DocumentSpec { exam: 0.3, ..mixed() }, 512, seed);
            for (i, _) in document.digit.iter().enumerate().filter(|(_, &digit)| digit == 1) {
                let length = document.digit[i..].iter().zip(1..).take_while(|&(&digit, nth)| digit == nth).count();
                assert!(length == 5 || i + length == document.ids.len(), "seed {seed}: {length} digits");
                let value = tokenizer.decode(&document.ids[i..i + length]).unwrap();
                let before = tokenizer.decode(&document.ids[..i]).unwrap();
                assert!(value.parse::<u32>().is_ok() && before.contains(&format!(" {value}")), "seed {seed}: {value}");
            }
        }
    }

    #[test]
    fn every_restated_value_is_marked() {
        let tokenizer = Tokenizer::embedded();
        for seed in 0..100 {
            let document = made(&pure_recall(), 256, seed);
            let mut seen = HashSet::new();
            let marked: Vec<bool> =
                text_values(&text(&document)).into_iter().map(|value| !seen.insert(value)).collect();
            let is_digit = |id: u32| tokenizer.decode(&[id]).unwrap().parse::<u8>().is_ok();
            let digits = document.ids.iter().zip(&document.digit).filter(|(&id, _)| is_digit(id));
            let first_of_each: Vec<bool> = digits.step_by(5).map(|(_, &digit)| digit == 1).collect();
            assert_eq!(marked[..marked.len() - 1], first_of_each[..marked.len() - 1], "seed {seed}");
        }
    }

    fn text_values(text: &str) -> Vec<&str> {
        text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
    }

    #[test]
    fn pure_recall_has_only_names_with_constant_values() {
        for seed in 0..50 {
            let text = text(&made(&pure_recall(), 128, seed));
            let mut facts = std::collections::BTreeMap::new();
            let mut last = "";
            for fact in text.strip_prefix(' ').unwrap().split_inclusive(". ").filter(|fact| fact.ends_with(". ")) {
                let (name, value) = fact.split_once(' ').unwrap();
                assert!(value.len() == 7 && value[..5].parse::<u32>().is_ok(), "{text}");
                assert_eq!(*facts.entry(name).or_insert(value), value, "{text}");
                assert_ne!(name, last, "{text}");
                last = name;
            }
            assert!(facts.len() >= 2, "{text}");
        }
    }

    #[test]
    fn no_document_holds_a_held_out_city() {
        for seed in 0..300 {
            let text = text(&made(&mixed(), 512, seed));
            let words: HashSet<&str> = text.split(|c: char| !c.is_ascii_alphabetic()).collect();
            assert!(CitySet::HeldOut.cities().iter().all(|city| !words.contains(city)), "seed {seed}");
        }
    }

    #[test]
    fn exams_are_prompts_of_the_evaluation_but_not_the_same_ones() {
        let haystack = Haystack::Embedded;
        for seed in 0..100 {
            let exam = text(&made(&DocumentSpec { exam: 1.0, ..mixed() }, 512, seed));
            assert!(exam.starts_with(PREAMBLE) && exam.matches('\n').count() == 3, "{exam}");
            let asked = exam.lines().nth(3).unwrap();
            assert!(asked.starts_with("The special magic ") && asked.contains(" number is: "), "{exam}");
            let spec = NeedleSpec { ctx_tok: 512, needles: 2, retrieve: 1, ..NeedleSpec::default() };
            let prompt = needle::build(&spec, seed, Tokenizer::embedded(), &haystack).unwrap();
            assert_ne!(exam.lines().nth(1).unwrap()[..40], prompt.text.lines().nth(1).unwrap()[..40]);
        }
    }

    #[test]
    fn exams_have_as_many_needles_as_the_spec_says_and_the_context_has_room_for() {
        let needles = |exam_needles: [usize; 2], ctx_tok: usize, seed: u64| {
            let spec = DocumentSpec { exam: 1.0, exam_needles, prose: 1.0, ..DocumentSpec::default() };
            let text = text(&made(&spec, ctx_tok, seed));
            text_values(&text).into_iter().collect::<HashSet<_>>().len()
        };
        let counts: HashSet<usize> = (0..60).map(|seed| needles([20, 24], 1024, seed)).collect();
        assert_eq!(counts, (20..=24).collect());
        assert!((0..20).all(|seed| needles([20, 24], 256, seed) <= 7));
    }

    #[test]
    fn exams_fit_short_contexts() {
        for ctx_tok in 112..200 {
            for seed in 0..20 {
                made(&DocumentSpec { exam: 1.0, ..mixed() }, ctx_tok, seed);
            }
        }
    }

    #[test]
    fn every_setting_has_its_effect() {
        let count = |spec: &DocumentSpec, what: &str| -> usize {
            (0..50).map(|seed| text(&made(spec, 1024, seed)).matches(what).count()).sum()
        };
        let base = DocumentSpec { exam: 0.0, ..DocumentSpec::default() };
        let half = count(&base, "magic") as f64 / count(&base, ". ") as f64;
        assert!((half - 0.5).abs() < 0.05, "{half} of the sentences are facts");
        assert_eq!(count(&DocumentSpec { prose: 1.0, ..base.clone() }, "magic"), 0);
        assert_eq!(count(&DocumentSpec { wordings: vec![0.0, 0.0, 0.0, 1.0], ..base.clone() }, "magic"), 0);
        let seen = |spec: &DocumentSpec| -> (usize, usize) {
            let values =
                |seed| text_values(&text(&made(spec, 1024, seed))).iter().map(|v| v.to_string()).collect::<Vec<_>>();
            let all: Vec<Vec<String>> = (0..50).map(values).collect();
            let distinct = all.iter().map(|values| values.iter().collect::<HashSet<_>>().len()).sum();
            (all.iter().map(Vec::len).sum(), distinct)
        };
        let (all, distinct) = seen(&DocumentSpec { restate: 2.0, facts: [100, 100], ..base.clone() });
        let restated = (all - distinct) as f64 / distinct as f64;
        assert!((restated - 2.0).abs() < 0.4, "{restated} restatements per fact");
        let (all, distinct) = seen(&DocumentSpec { restate: 0.0, ..base.clone() });
        assert_eq!(all, distinct);
        let (_, distinct) = seen(&DocumentSpec { facts: [4, 4], prose: 0.0, ..base });
        // The last value of a document may be cut off.
        assert!((200..=250).contains(&distinct), "{distinct} facts in 50 documents");
    }

    #[test]
    fn mistakes_in_a_spec_are_usage_errors_that_name_the_field() {
        let base = DocumentSpec::default;
        for (spec, expected) in [
            (DocumentSpec { prose: 1.5, ..base() }, "prose = 1.5 is not between 0 and 1"),
            (DocumentSpec { facts: [0, 3], ..base() }, "facts = [0, 3]"),
            (DocumentSpec { facts: [5, 3], ..base() }, "facts = [5, 3]"),
            (DocumentSpec { exam_needles: [0, 3], ..base() }, "exam_needles = [0, 3]"),
            (DocumentSpec { exam_needles: [5, 3], ..base() }, "exam_needles = [5, 3]"),
            (DocumentSpec { exam_needles: [1, 241], ..base() }, "range of 1 to 240 needles"),
            (DocumentSpec { restate: -1.0, ..base() }, "restate = -1"),
            (DocumentSpec { wordings: vec![0.0], ..base() }, "wordings must be 1 to 8 weights"),
            (DocumentSpec { wordings: vec![1.0; 9], ..base() }, "wordings must be 1 to 8 weights"),
            (
                DocumentSpec { facts: [1, 500], synthetic: 0.0, ..base() },
                "500 facts need more than the 240 training cities",
            ),
        ] {
            let error = spec.check().unwrap_err();
            assert!(error.to_string().contains(expected) && exit_code(&error) == 2, "{error}");
        }
        let exam = DocumentSpec { exam: 1.0, ..base() };
        let error = document(&exam, 64, 0, Tokenizer::embedded(), &Haystack::Embedded).unwrap_err();
        assert!(error.to_string().contains("too short"), "{error}");
    }

    #[test]
    fn a_spec_reads_from_toml_with_defaults_and_refuses_unknown_knobs() {
        let spec: DocumentSpec = spec_file::parse("x.toml", "prose = 0.0\nwordings = [0, 1]").unwrap();
        assert_eq!(spec, DocumentSpec { prose: 0.0, wordings: vec![0.0, 1.0], ..DocumentSpec::default() });
        assert!(spec_file::parse::<DocumentSpec>("x.toml", "poetry = 1.0").is_err());
    }
}
