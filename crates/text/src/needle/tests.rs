//! Tests of prompts whose needles are numbers of cities.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::*;
use crate::tokenizer::tests::EMBEDDED_VOCAB_SIZE;
use crate::{Query, TokenizerOptions};
use base::error::exit_code;
use names::Region;

mod forms;

pub(crate) const PREAMBLE: &str =
    "There are special magic numbers hidden in the irrelevant text below. Find them and remember them.";

/// A needle up to its value, which is also the prefix of its answer.
pub(crate) fn stem(name: &str) -> String {
    CITIES.fact(name, "").before
}

pub(crate) fn sentence(name: &str, value: &str) -> String {
    CITIES.fact(name, value).sentence()
}

/// The question about names, in the order given.
pub(crate) fn question(names: &[&str]) -> String {
    CITIES.question(&names.iter().map(ToString::to_string).collect::<Vec<_>>(), names.len())
}

const SPEC: NeedleSpec = NeedleSpec {
    ctx_tok: 1024,
    needles: 4,
    retrieve: 2,
    depth_pct: 50.0,
    cities: CitySet::HeldOut,
    form: &CITIES,
    distractors_pct: 0.0,
};

#[test]
fn the_texts_are_those_that_the_embedded_models_are_trained_on() {
    assert_eq!(CITIES.preamble(1), PREAMBLE);
    assert_eq!(sentence("Oslo", "12345"), "The special magic Oslo number is: 12345.");
    assert_eq!(question(&["Oslo"]), "What is the special magic Oslo number?");
    assert_eq!(question(&["Oslo", "Rome", "Lima"]), "What are the special magic Oslo, Rome and Lima numbers?");
}

fn prompt(spec: &NeedleSpec, seed: u64) -> Prompt {
    build(spec, seed, Tokenizer::embedded(), &Haystack::Embedded).unwrap()
}

fn specs() -> impl Strategy<Value = NeedleSpec> {
    let cities = prop_oneof![Just(CitySet::Train), Just(CitySet::HeldOut)];
    let depth_pct = prop_oneof![Just(0.0), Just(25.0), Just(50.0), Just(75.0), Just(100.0), 0.0..=100.0];
    (320usize..8192, 1usize..=8, 1usize..=3, depth_pct, cities).prop_map(
        |(ctx_tok, needles, retrieve, depth_pct, cities)| NeedleSpec {
            ctx_tok,
            needles,
            retrieve: retrieve.min(needles),
            depth_pct,
            cities,
            ..SPEC
        },
    )
}

/// Text of the tokens in a region.
fn text_of(prompt: &Prompt, regions: &[Region], region: Region) -> String {
    let ids: Vec<u32> =
        prompt.ids.iter().zip(regions).filter(|(_, &other)| other == region).map(|(&id, _)| id).collect();
    Tokenizer::embedded().decode(&ids).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn regions_partition_the_prompt_and_decode_to_the_expected_text(spec in specs(), seed: u64) {
        let prompt = prompt(&spec, seed);
        prop_assert_eq!(prompt.queries.len(), spec.retrieve);
        for (i, query) in prompt.queries.iter().enumerate() {
            let regions = prompt.regions(Some(i));
            prop_assert_eq!(regions.len(), prompt.ids.len());
            let text = |region| text_of(&prompt, &regions, region);
            prop_assert_eq!(prompt.ids[0], 0);
            prop_assert_eq!(regions.iter().filter(|&&region| region == Region::Bos).count(), 1);
            prop_assert_eq!(text(Region::Template), PREAMBLE);
            prop_assert_eq!(text(Region::Answer), query.value.as_str());
            prop_assert_eq!(text(Region::Needle).trim().to_owned(), stem(&query.name) + ".");
            let mut others: Vec<String> = prompt.needles.iter().filter(|needle| needle.name != query.name)
                .map(|needle| sentence(&needle.name, &needle.value)).collect();
            prop_assert_eq!(text(Region::Distractor).trim().to_owned(), others.join(" "));
            others.push(sentence(&query.name, &query.value));
            let filler = text(Region::Filler);
            prop_assert!(!filler.contains("magic") && !filler.contains(|c: char| c.is_ascii_digit()));
            let names: Vec<&str> = prompt.queries.iter().map(|query| query.name.as_str()).collect();
            let answer = |query: &Query| sentence(&query.name, &query.value);
            let answers: Vec<String> = prompt.queries.iter().map(answer).collect();
            prop_assert_eq!(text(Region::Question), format!("\n{}\n{}", question(&names), answers.join(" ")));
            prop_assert!(others.iter().all(|needle| prompt.text.contains(needle)));
        }
    }

    #[test]
    fn the_rows_of_a_query_predict_its_value(spec in specs(), seed: u64) {
        let prompt = prompt(&spec, seed);
        let tokenizer = Tokenizer::embedded();
        for query in &prompt.queries {
            let text = |span: Range<usize>| tokenizer.decode(&prompt.ids[span]).unwrap();
            prop_assert_eq!(text(query.predicted.clone()), query.value.as_str());
            prop_assert_eq!(text(query.rows().start + 1..query.rows().end + 1), query.value.as_str());
            prop_assert_eq!(query.rows().len(), 5);
            prop_assert!(text(0..query.predicted.start).ends_with(&stem(&query.name)));
            prop_assert!(query.answer.end < query.predicted.start);
            prop_assert!(query.needle.start < query.answer.start && query.answer.end < query.needle.end);
        }
    }

    #[test]
    fn the_context_is_honoured_and_full(spec in specs(), seed: u64) {
        let prompt = prompt(&spec, seed);
        prop_assert!(prompt.ids.len() <= spec.ctx_tok);
        prop_assert!(prompt.ids.len() + LONGEST_TOK > spec.ctx_tok, "{} of {}", prompt.ids.len(), spec.ctx_tok);
    }

    #[test]
    fn the_controlled_depth_is_within_a_sentence_of_the_one_asked_for(spec in specs(), seed: u64) {
        let prompt = prompt(&spec, seed);
        let filler_tok = prompt.regions(Some(0)).iter().filter(|&&region| region == Region::Filler).count();
        let controlled: Vec<&Query> = prompt.queries.iter().filter(|query| query.controlled).collect();
        prop_assert_eq!(controlled.len(), 1);
        let query = controlled[0];
        prop_assert_eq!(query.depth_req_pct, spec.depth_pct);
        let off_tok = (query.depth_real_pct - spec.depth_pct).abs() / 100.0 * filler_tok as f64;
        prop_assert!(off_tok <= LONGEST_TOK as f64 / 2.0, "{off_tok} tokens off");
        if spec.depth_pct == 0.0 || spec.depth_pct == 100.0 {
            prop_assert_eq!(query.depth_real_pct, spec.depth_pct);
        }
    }

    #[test]
    fn names_and_values_of_a_prompt_are_distinct_and_of_the_set(spec in specs(), seed: u64) {
        let prompt = prompt(&spec, seed);
        let mut names: Vec<&str> = prompt.needles.iter().map(|needle| needle.name.as_str()).collect();
        prop_assert!(names.iter().all(|name| spec.cities.cities().contains(name)));
        let mut values: Vec<usize> = prompt.needles.iter().map(|needle| needle.value.parse().unwrap()).collect();
        prop_assert!(values.iter().all(|&value| (10_000..=99_999).contains(&value)));
        names.sort_unstable();
        names.dedup();
        values.sort_unstable();
        values.dedup();
        prop_assert_eq!((names.len(), values.len()), (spec.needles, spec.needles));
    }
}

/// More tokens than in any sentence of the embedded haystack.
const LONGEST_TOK: usize = 40;

#[test]
fn a_seed_names_a_prompt_and_seeds_differ() {
    for seed in 0..20 {
        assert_eq!(prompt(&SPEC, seed), prompt(&SPEC, seed));
        assert_ne!(prompt(&SPEC, seed).text, prompt(&SPEC, seed + 1).text);
    }
}

#[test]
fn prompts_of_one_seed_share_their_needles_and_prose_at_all_depths() {
    let at = |depth_pct| prompt(&NeedleSpec { depth_pct, ..SPEC }, 3);
    let drawn = |prompt: &Prompt| {
        let mut needles: Vec<_> = prompt.needles.iter().map(|n| (n.name.clone(), n.value.clone())).collect();
        needles.sort();
        (needles, text_of(prompt, &prompt.regions(Some(0)), Region::Filler).trim().to_owned())
    };
    assert_eq!(drawn(&at(0.0)), drawn(&at(100.0)));
}

#[test]
fn the_controlled_needle_takes_any_place_in_the_question() {
    let places = |seed| prompt(&SPEC, seed).queries.iter().position(|query| query.controlled);
    assert!((0..20).any(|seed| places(seed) == Some(0)) && (0..20).any(|seed| places(seed) == Some(1)));
}

#[test]
fn own_text_is_a_haystack_until_it_runs_out() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Caf\u{e9} na\u{ef}ve \u{2013} a line of prose! ".repeat(40)).unwrap();
    let own = Haystack::from_path(file.path()).unwrap();
    let tokenizer = Tokenizer::embedded();
    let prompt = build(&NeedleSpec { ctx_tok: 512, ..SPEC }, 1, tokenizer, &own).unwrap();
    assert!(prompt.ids.len() <= 512 && prompt.text.contains("Caf\u{e9} na\u{ef}ve"));
    let error = build(&NeedleSpec { ctx_tok: 65_536, ..SPEC }, 1, tokenizer, &own).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("tokens; a context of 65536 needs 65") && exit_code(&error) == 2, "{message}");
    assert!(message.contains(&file.path().display().to_string()), "{message}");
}

#[test]
fn mistakes_in_a_spec_are_usage_errors_that_say_what_is_wrong() {
    for (spec, expected) in [
        (NeedleSpec { retrieve: 5, ..SPEC }, "cannot retrieve 5 of 4 needles"),
        (NeedleSpec { needles: 0, retrieve: 0, ..SPEC }, "at least one needle"),
        (NeedleSpec { retrieve: 0, ..SPEC }, "at least one needle and one question"),
        (NeedleSpec { needles: 999, ..SPEC }, "999 needles need as many cities; there are 50"),
        (NeedleSpec { depth_pct: 101.0, ..SPEC }, "a depth of 101 percent: it is between 0 and 100"),
        (NeedleSpec { depth_pct: f64::NAN, ..SPEC }, "a depth of NaN"),
        (NeedleSpec { ctx_tok: 100, ..SPEC }, "100 tokens is too short (needles: 4, questions: 2): it takes at least"),
    ] {
        let error = build(&spec, 0, Tokenizer::embedded(), &Haystack::Embedded).unwrap_err();
        assert!(error.to_string().contains(expected) && exit_code(&error) == 2, "{error}");
    }
}

#[test]
fn an_unanswerable_prompt_has_the_text_of_its_twin_and_asks_for_what_is_not_in_it() {
    for seed in 0..20 {
        let spec = NeedleSpec { cities: CitySet::Train, ..SPEC };
        let twin = prompt(&spec, seed);
        let absent = prompt(&NeedleSpec { cities: CitySet::Absent, ..spec }, seed);
        // The other name may change the filler by a sentence, and so the order of needles at one boundary.
        let facts = |prompt: &Prompt| -> BTreeSet<(String, String)> {
            prompt.needles.iter().map(|needle| (needle.name.clone(), needle.value.clone())).collect()
        };
        assert_eq!(facts(&twin), facts(&absent));
        assert_eq!(absent.queries.len(), 2);
        for query in &absent.queries {
            assert!(!query.is_answerable() && query.controlled && query.depth_req_pct == 50.0);
            assert!(absent.needles.iter().all(|needle| needle.name != query.name && needle.value != query.value));
            assert_eq!(query.predicted.len(), 5);
        }
        assert!(twin.queries.iter().all(Query::is_answerable));
        let regions = absent.regions(Some(0));
        assert!(!regions.contains(&Region::Needle) && regions.contains(&Region::Distractor));
    }
}

#[test]
fn the_context_that_an_error_names_is_enough() {
    let error = build(&NeedleSpec { ctx_tok: 100, ..SPEC }, 0, Tokenizer::embedded(), &Haystack::Embedded).unwrap_err();
    let least = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(prompt(&NeedleSpec { ctx_tok: least, ..SPEC }, 0).ids.len(), least);
}

/// The embedded tokenizer with additional merges of two tokens each, as a user's file. Digits may merge.
fn other_tokenizer(merges: &[[&str; 2]], bos: &str) -> Tokenizer {
    let mut json: serde_json::Value = serde_json::from_str(&Tokenizer::embedded().json).unwrap();
    json["pre_tokenizer"] = serde_json::to_value(ByteLevel::new(false, true, false)).unwrap();
    for (id, [left, right]) in (EMBEDDED_VOCAB_SIZE..).zip(merges) {
        json["model"]["merges"].as_array_mut().unwrap().push(serde_json::json!([left, right]));
        json["model"]["vocab"][format!("{left}{right}")] = id.into();
    }
    let text = serde_json::to_string(&json).unwrap().replace("<bos>", bos);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
    Tokenizer::open(folder.path(), &TokenizerOptions::default()).unwrap()
}

const DIGITS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[test]
fn a_token_that_holds_the_space_before_a_value_belongs_to_the_value() {
    let tokenizer = other_tokenizer(&DIGITS.map(|digit| ["\u{120}", digit]), "<bos>");
    let prompt = build(&SPEC, 0, &tokenizer, &Haystack::Embedded).unwrap();
    let query = &prompt.queries[0];
    assert_eq!(tokenizer.decode(&prompt.ids[query.answer.clone()]).unwrap(), format!(" {}", query.value));
    assert_eq!(query.predicted.len(), 5);
}

#[test]
fn a_tokenizer_without_a_boundary_before_a_value_is_an_error_with_name_and_seed() {
    let mut merges = vec![[":", "\u{120}"]];
    merges.extend(DIGITS.map(|digit| [":\u{120}", digit]));
    let error = build(&SPEC, 77, &other_tokenizer(&merges, "<bos>"), &Haystack::Embedded).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.starts_with("prompt of seed 77: ") && message.contains("no boundary"), "{message}");
    assert!(CitySet::HeldOut.cities().iter().any(|city| message.contains(&format!(" of {city} "))), "{message}");
}

#[test]
fn a_tokenizer_without_a_begin_token_gives_prompts_without_one() {
    let prompt = build(&SPEC, 0, &other_tokenizer(&[], "<none>"), &Haystack::Embedded).unwrap();
    assert!(!prompt.has_bos && prompt.regions(Some(0))[..2] == [Region::First, Region::Template] && prompt.ids[0] > 2);
}
