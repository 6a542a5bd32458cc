//! Tests of prompts whose needles are not numbers of cities.

use super::super::form::{NeedleCounts, FILE, RULER};
use super::super::*;
use crate::{Haystack, NeedlesFile};
use base::error::exit_code;
use names::Region;
use std::path::Path;

const SPEC: NeedleSpec = NeedleSpec { needles: 2, cities: CitySet::Train, ..super::SPEC };

fn haystack(name: Option<&str>) -> Haystack {
    Haystack::named(name.map(Path::new)).unwrap()
}

fn prompt(spec: &NeedleSpec, name: Option<&str>, seed: u64) -> Prompt {
    build(spec, seed, Tokenizer::embedded(), &haystack(name)).unwrap()
}

fn form(task: &str) -> &'static NeedleForm {
    RULER.into_iter().find(|form| form.name == task).unwrap()
}

fn task(form: &'static NeedleForm, ctx_tok: usize, seed: u64) -> Prompt {
    let NeedleCounts { needles, asked: retrieve } = form.setting;
    prompt(&NeedleSpec { ctx_tok, needles, retrieve, form, ..SPEC }, form.haystack, seed)
}

fn text(prompt: &Prompt, tokens: std::ops::Range<usize>) -> String {
    Tokenizer::embedded().decode(&prompt.ids[tokens]).unwrap().trim().to_owned()
}

/// Checks that every answer stands where its query says, in the haystack and behind the question, and that regions tell its
/// needle from all others.
#[track_caller]
fn assert_answers_stand_where_they_should(prompt: &Prompt) {
    let mut values = Vec::new();
    for (i, query) in prompt.queries.iter().enumerate() {
        assert_eq!(text(prompt, query.predicted.clone()), query.value, "{}", prompt.text);
        assert_eq!(text(prompt, query.answer.clone()), query.value);
        assert!(query.needle.start <= query.answer.start && query.answer.end <= query.needle.end);
        let regions = prompt.regions(Some(i));
        let of = |region: Region| regions.iter().filter(|&&other| other == region).count();
        assert_eq!(
            (of(Region::Answer), of(Region::Needle)),
            (query.answer.len(), query.needle.len() - query.answer.len())
        );
        let others: usize = prompt.needles.iter().map(|needle| needle.span.len()).sum();
        assert_eq!(of(Region::Distractor), others - query.needle.len());
        values.push(&query.value);
    }
    values.sort();
    values.dedup();
    assert_eq!(values.len(), prompt.queries.len());
    assert_eq!(prompt.queries.iter().filter(|query| query.controlled).count(), 1);
}

#[test]
fn several_values_of_a_name_are_asked_for_in_the_order_of_the_text() {
    for seed in 0..10 {
        let queries = task(form("niah_multivalue"), 1024, seed).queries;
        assert!(queries
            .windows(2)
            .all(|pair| pair[0].name == pair[1].name && pair[0].needle.end <= pair[1].needle.start));
    }
}

#[test]
fn a_chain_stands_in_its_order_and_each_link_names_the_one_before() {
    let mut controlled = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let prompt = task(form("vt"), 1024, seed);
        assert!(prompt.queries.len() == 5 && prompt.needles.len() == 5);
        assert_answers_stand_where_they_should(&prompt);
        for pair in prompt.queries.windows(2) {
            assert!(pair[0].needle.end <= pair[1].needle.start);
            assert!(text(&prompt, pair[1].needle.clone()).contains(&format!("= VAR {}", pair[0].value)));
        }
        controlled.extend(prompt.queries.iter().position(|query| query.controlled));
    }
    assert!(controlled.len() > 2, "any of them may be at the depth asked for: {controlled:?}");
}

#[test]
fn distractors_fill_their_share_of_the_context() {
    for share in [5.0, 40.0] {
        let prompt = prompt(&NeedleSpec { distractors_pct: share, ..SPEC }, None, 2);
        let tokens: usize = prompt.needles.iter().map(|needle| needle.span.len()).sum();
        let asked: usize = prompt.queries.iter().map(|query| query.needle.len()).sum();
        let missing = share / 100.0 * 1024.0 - (tokens - asked) as f64;
        assert!(missing.abs() < 20.0, "{missing} of {share} %");
        assert!(prompt.ids.len() <= 1024 && prompt.ids.len() > 980);
        assert_answers_stand_where_they_should(&prompt);
    }
    let without = prompt(&SPEC, None, 2);
    let with = prompt(&NeedleSpec { distractors_pct: 5.0, ..SPEC }, None, 2);
    let asked = |prompt: &Prompt| prompt.queries.iter().map(|query| query.name.clone()).collect::<Vec<_>>();
    assert_eq!(asked(&without), asked(&with), "a sweep asks the same questions");
}

#[test]
fn a_haystack_of_needles_has_nothing_else_and_noise_is_the_same_again_and_again() {
    let needles = prompt(&SPEC, Some("needles"), 1);
    let regions = needles.regions(Some(0));
    assert!(!regions.contains(&Region::Filler));
    assert!(regions.iter().filter(|&&region| region == Region::Distractor).count() > 700);
    assert_answers_stand_where_they_should(&needles);
    let depth = needles.queries.iter().find(|query| query.controlled).unwrap().depth_real_pct;
    assert!((45.0..55.0).contains(&depth), "{depth}");
    let noise = prompt(&SPEC, Some("noise"), 1);
    assert!(noise.text.matches("Here we go. There and back again.").count() > 20);
    let cities = build(&NeedleSpec { ctx_tok: 8192, ..SPEC }, 1, Tokenizer::embedded(), &haystack(Some("needles")));
    let error = cities.unwrap_err();
    assert!(error.to_string().contains("no more names") && exit_code(&error) == 2, "{error}");
}

#[test]
fn the_tasks_of_ruler_have_their_texts_and_leave_room_for_the_answer() {
    for of in RULER {
        let prompt = task(of, 2048, 5);
        assert_answers_stand_where_they_should(&prompt);
        let room = prompt.tokens_before_answer().len() + of.answers_tok;
        assert!(room <= 2048 && room > 1900, "{}: {room}", of.name);
    }
    let single = task(form("niah_single_1"), 1024, 5).text;
    assert!(single
        .starts_with("A special magic number is hidden within the following text. Make sure to memorize it. I will"));
    assert!(single.contains(" quiz you about the number afterwards.\nThe grass is green."), "{single}");
    assert!(single.contains("There and back again.\nOne of the special magic numbers for "), "{single}");
    assert!(single.contains(" mentioned in the provided text? The special magic number for "), "{single}");
    let several = task(form("niah_multiquery"), 1024, 5);
    let names: Vec<&str> = several.queries.iter().map(|query| query.name.as_str()).collect();
    let asked =
        format!("What are all the special magic numbers for {}, and {} mentioned", names[..3].join(", "), names[3]);
    assert!(several.text.contains(&asked), "{}", several.text);
    let chain = task(form("vt"), 1024, 5).text;
    assert_eq!(
        chain
            .matches("Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n")
            .count(),
        2
    );
    assert_eq!(chain.matches(" in the text above, 5 variables are assigned the value ").count(), 2, "{chain}");
}

#[test]
fn a_context_that_is_too_short_for_a_task_is_refused_with_one_that_is_not() {
    for of in RULER {
        let NeedleCounts { needles, asked: retrieve } = of.setting;
        let spec = NeedleSpec { ctx_tok: 150, needles, retrieve, form: of, ..SPEC };
        let build = |ctx_tok| {
            let spec = NeedleSpec { ctx_tok, ..spec.clone() };
            build(&spec, 3, Tokenizer::embedded(), &haystack(of.haystack))
        };
        let error = build(150).unwrap_err();
        assert_eq!(exit_code(&error), 2);
        let least: usize = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
        build(least).unwrap();
    }
}

#[test]
fn needles_of_a_file_stand_in_the_text_with_their_distractor_and_nothing_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("needles.jsonl");
    let lines =
        "{\"needle\": \"Yuki lives beside the opera.\", \"question\": \"Who has been there?\", \"answer\": \"Yuki\", \
                 \"distractor\": \"Ann likes the opera.\"}\n\
                 {\"needle\": \"The boat is named Dora.\", \"question\": \"Which name?\", \"answer\": \"Dora\"}\n";
    std::fs::write(&path, lines).unwrap();
    let file = NeedlesFile::read(&path).unwrap();
    let texts = Texts { haystack: &Haystack::Embedded, file: Some(&file), tokenizer: Tokenizer::embedded() };
    let spec = NeedleSpec { ctx_tok: 512, retrieve: 1, form: &FILE, ..SPEC };
    let mut asked = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let prompt = build_of(&spec, seed, texts).unwrap();
        assert_answers_stand_where_they_should(&prompt);
        let query = &prompt.queries[0];
        assert!(prompt.text.ends_with(&format!("\n{}\n{}", query.name, query.value)), "{}", prompt.text);
        assert_eq!(prompt.needles.len(), if query.value == "Yuki" { 3 } else { 2 });
        asked.insert(query.value.clone());
    }
    assert_eq!(asked.len(), 2);
    let error = build_of(&NeedleSpec { needles: 3, ..spec }, 0, texts).unwrap_err();
    assert!(error.to_string().ends_with("has 2 needles, not 3") && exit_code(&error) == 2, "{error}");
}

#[test]
fn settings_that_exclude_each_other_are_usage_errors() {
    let refused = |spec: NeedleSpec| {
        let error = spec.check().unwrap_err();
        assert_eq!(exit_code(&error), 2);
        error.to_string()
    };
    assert!(refused(NeedleSpec { distractors_pct: 100.0, ..SPEC }).contains("--distractors 100"));
    assert!(refused(NeedleSpec { form: &FILE, ..SPEC }).contains("--needles-file"));
    let absent = |form| NeedleSpec { retrieve: 1, cities: CitySet::Absent, form, ..SPEC };
    assert!(refused(absent(&FILE)).contains("--needles-file"));
    assert!(refused(absent(form("vt"))).contains("--task vt"));
    assert!(refused(NeedleSpec { needles: 241, ..SPEC }).contains("241 needles need as many cities"));
}
