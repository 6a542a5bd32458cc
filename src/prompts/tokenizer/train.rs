//! Training of the embedded tokenizer, with a test that its file is the result.

use crate::base::rng::Rng;
use crate::prompts::cities::{made_up, CitySet};
use crate::prompts::wording::{self, WORDINGS};
use crate::prompts::{Haystack, Tokenizer};
use anyhow::{anyhow, Result};
use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::AddedToken;

/// Vocabulary size of the embedded tokenizer, in tokens.
pub(in crate::prompts) const EMBEDDED_VOCAB_SIZE: usize = 1024;

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
pub(super) fn training_text() -> Vec<String> {
    let mut rng = Rng::new(0, "tokenizer");
    let mut text: Vec<String> = Haystack::embedded()
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
        text.push(wording::PREAMBLE.to_owned());
        text.push(wording::sentence(cities[0], "7"));
        text.push(wording::question(&cities[..1]));
        text.push(wording::question(cities));
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
    assert!(json == Tokenizer::embedded().json(), "set DIFFTOOL_BLESS=1 to rewrite it (and retrain all models)");
}
