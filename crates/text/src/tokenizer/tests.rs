//! Training of the embedded tokenizer, with a test that its file is the result; tests of tokenizers.

use std::collections::HashSet;

use super::*;
use crate::document::WORDINGS;
use crate::needle::facts::made_up;
use crate::needle::tests::{question, sentence, PREAMBLE};
use crate::{CitySet, Haystack};
use stats::Rng;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::AddedToken;

/// Vocabulary size of the embedded tokenizer, in tokens.
pub(crate) const EMBEDDED_VOCAB_SIZE: usize = 1024;

/// Number of prose sentences in the training text.
const TRAIN_PROSE: usize = 4_000;
/// Number of repetitions of each training city.
const TRAIN_CITY_TIMES: usize = 64;
/// Number of made-up names.
const TRAIN_MADE_UP: usize = 3_000;

/// Trains the tokenizer on the embedded corpus: prose, and needles with training cities and made-up names.
/// `assets/tokenizer.json` is the pretty-printed result and must not change.
fn train(vocab_size: usize) -> Result<tokenizers::Tokenizer> {
    let special = ["<bos>", "<eos>", "<pad>"].map(|name| AddedToken::from(name, true));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab_size)
        .show_progress(false)
        .special_tokens(special.to_vec())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let pieces = vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(pieces)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let text = training_text().into_iter();
    tokenizer.train(&mut TrainerWrapper::from(trainer), text).map_err(|error| anyhow!(error))?;
    Ok(tokenizer)
}

/// Training text of the embedded tokenizer. Every sentence has a leading space.
fn training_text() -> Vec<String> {
    let mut rng = Rng::new(0, "tokenizer");
    let mut text: Vec<String> = Haystack::Embedded
        .sentences(Rng::new(0, "tokenizer prose"))
        .take(TRAIN_PROSE)
        .map(|prose| prose.text)
        .collect();
    let cities =
        CitySet::Train.cities().iter().flat_map(|city| std::iter::repeat_n(String::from(*city), TRAIN_CITY_TIMES));
    let mut names: Vec<String> = cities.collect();
    names.extend((0..TRAIN_MADE_UP).map(|_| made_up(&mut rng)));
    for (i, name) in names.iter().enumerate() {
        // Half of the facts are needles.
        let [before, between, behind] = WORDINGS[if i % 2 == 0 { 0 } else { i / 2 % WORDINGS.len() }];
        text.push(format!("{before}{name}{between}7{behind}"));
    }
    let mut text: Vec<String> = text.iter().map(|sentence| format!(" {sentence}")).collect();
    // The lines of a prompt, which begin without a space.
    for cities in CitySet::Train.cities().chunks_exact(3) {
        text.push(PREAMBLE.to_owned());
        text.push(sentence(cities[0], "7"));
        text.push(question(&cities[..1]));
        text.push(question(cities));
    }
    text
}

#[test]
fn retraining_makes_the_embedded_tokenizer_byte_for_byte() {
    let json = train(EMBEDDED_VOCAB_SIZE).unwrap().to_string(true).unwrap() + "\n";
    if std::env::var_os("DIFFTOOL_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tokenizer.json"), &json).unwrap();
        return;
    }
    assert!(json == Tokenizer::embedded().json, "set DIFFTOOL_BLESS=1 to rewrite it (and retrain all models)");
}

#[test]
fn the_special_tokens_and_the_size_are_fixed() {
    let tokenizer = Tokenizer::embedded();
    assert_eq!(tokenizer.vocab_size(), EMBEDDED_VOCAB_SIZE);
    assert_eq!(tokenizer.text_bos.id, Some(0));
    let ids = ["<bos>", "<eos>", "<pad>"].map(|name| tokenizer.inner.token_to_id(name));
    assert_eq!(ids, [Some(0), Some(1), Some(2)]);
    assert_eq!(tokenizer.sha256.len(), 64);
}

#[test]
fn a_needle_has_one_token_a_word_and_a_digit() {
    let tokenizer = Tokenizer::embedded();
    let ids = tokenizer.encode(" The special magic Paris number is: 48213.").unwrap().ids;
    let tokens: Vec<String> = ids.iter().map(|&id| tokenizer.decode(&[id]).unwrap()).collect();
    let expected =
        [" The", " special", " magic", " Par", "is", " number", " is", ":", " ", "4", "8", "2", "1", "3", "."];
    assert_eq!(tokens, expected);
}

#[test]
fn any_text_survives_and_special_names_are_text() {
    for text in ["", " ", "\n\n", "Zo\u{eb} says: <bos> 100%\t{~}", "  two  spaces ", "\u{1f600} it's 3.14"] {
        let encoded = Tokenizer::embedded().encode(text).unwrap();
        assert_eq!(Tokenizer::embedded().decode(&encoded.ids).unwrap(), text);
        assert!(encoded.ids.iter().all(|&id| id > 2));
    }
}

#[test]
fn held_out_cities_are_new_but_made_of_pieces_seen_in_training() {
    let tokenizer = Tokenizer::embedded();
    let text = training_text();
    let mut seen = vec![0; EMBEDDED_VOCAB_SIZE];
    for sentence in &text {
        tokenizer.encode(sentence).unwrap().ids.iter().for_each(|&id| seen[id as usize] += 1);
    }
    let text = text.concat();
    // As words: a made-up name may happen to begin like a city.
    let words: HashSet<&str> = text.split(|c: char| !c.is_ascii_alphabetic()).collect();
    for city in CitySet::HeldOut.cities() {
        assert!(!words.contains(city), "{city} is in the training text");
        let ids = tokenizer.encode(&format!(" {city}")).unwrap().ids;
        assert!((2..=3).contains(&ids.len()), "{city} has {} tokens", ids.len());
        assert!(ids.iter().all(|&id| seen[id as usize] >= 30), "{city} has a piece hardly seen in training");
    }
}

#[test]
fn training_cities_are_mostly_two_tokens() {
    let tokenizer = Tokenizer::embedded();
    let n_tok = |city: &&&str| tokenizer.encode(&format!(" {city}")).unwrap().ids.len();
    let cities = CitySet::Train.cities();
    assert!(cities.iter().filter(|city| n_tok(city) == 2).count() * 2 > cities.len());
    assert!(cities.iter().filter(|city| n_tok(city) <= 3).count() * 100 > 95 * cities.len());
}

#[test]
fn a_file_that_is_no_tokenizer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let open = || Tokenizer::open(folder.path(), &TokenizerOptions::default());
    let message = || format!("{:#}", open().err().unwrap());
    assert!(message().starts_with(&format!("cannot read {}", path.display())));
    std::fs::write(&path, "{}").unwrap();
    assert!(message().starts_with(&format!("{} is not a tokenizer", path.display())));
    std::fs::write(&path, &Tokenizer::embedded().json).unwrap();
    assert_eq!(open().unwrap().sha256, Tokenizer::embedded().sha256);
}

#[test]
fn the_begin_token_is_the_one_that_a_tokenizer_adds_by_itself() {
    let mut json: serde_json::Value = serde_json::from_str(EMBEDDED).unwrap();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<pad>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [2], "tokens": ["<pad>"]}}
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let tokenizer = Tokenizer::open(folder.path(), &TokenizerOptions::default()).unwrap();
    assert_eq!(tokenizer.text_bos.id, Some(2));
    assert_eq!(tokenizer.bos().to_string(), "<pad> (post-processor)");
    assert_eq!(tokenizer.encode("A cat.").unwrap(), Tokenizer::embedded().encode("A cat.").unwrap());
}
