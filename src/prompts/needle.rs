//! Needle prompts: special magic numbers of cities hidden in a haystack, with questions about some of them.
//!
//! The protocol is that of the paper (multi-needle retrieval after LWM and Gemini 1.5), with needles in the published
//! form. It differs in three ways that make scores more meaningful: cities and values of a prompt are distinct, values
//! have five digits, and the prompt ends with the answers (teacher-forced), so that the rows which predict them can be
//! measured.

use anyhow::{bail, Context, Result};

use super::facts::Distractors;
use super::plan::{Filler, LaidOut, NeedlePlan};
use super::text::TOKENLESS_MAX;
use super::{CitySet, Encoded, Haystack, NeedleForm, NeedleSpec, NeedlesFile, Prompt, Tokenizer, Wrapping};
use crate::bail_usage;
use crate::base::error::TooShort;
use crate::base::rng::Rng;

/// Length that a prompt may lack before a sentence of own text is cut to fill it, in percent.
const SHORT_PCT: f64 = 2.0;

/// What prompts are made from besides a spec and a seed.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    /// The filler.
    pub haystack: &'a Haystack,
    /// The needles, for specs whose needles are from a file.
    pub file: Option<&'a NeedlesFile>,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
}

/// Builds the prompt of a seed, determined by spec, seed, tokenizer and haystack.
///
/// # Errors
/// Those of [`build_of`].
pub fn build(spec: &NeedleSpec, seed: u64, tokenizer: &Tokenizer, haystack: &Haystack) -> Result<Prompt> {
    build_of(spec, seed, Texts { haystack, file: None, tokenizer })
}

/// Builds the prompt of a seed, determined by spec, seed and texts.
///
/// # Errors
/// Usage errors if the spec is inconsistent or the haystack too short for the context. [`TooShort`] if the context has
/// no room for the needles. An error with the key and the seed if the tokenizer joins a value with its surroundings.
pub fn build_of(spec: &NeedleSpec, seed: u64, texts: Texts<'_>) -> Result<Prompt> {
    build_from(spec, seed, ["needle", "prose", "absent"], None, texts)
}

/// Like [`build_of`] with named streams of random numbers for needles, prose and absent keys, so that training and
/// evaluation never share a prompt. `declined` is the answer about absent keys, instead of a value.
pub(super) fn build_from(
    spec: &NeedleSpec,
    seed: u64,
    streams: [&str; 3],
    declined: Option<&str>,
    texts: Texts<'_>,
) -> Result<Prompt> {
    spec.check()?;
    if texts.haystack.is_needles() && (spec.form.distractors_pct() > 0.0 || spec.form == NeedleForm::File) {
        bail_usage!("--haystack needles: there is nothing but distractors; leave --distractors and --needles-file out");
    }
    let rng = Rng::new(seed, streams[0]);
    let mut plan = match (spec.form, texts.file) {
        (NeedleForm::File, Some(file)) => file.plan(spec, rng)?,
        (NeedleForm::File, None) => bail!("the needles of this prompt are from a file, which is missing"),
        _ => NeedlePlan::draw(spec, rng),
    };
    if spec.cities == CitySet::Absent {
        plan.ask_for_absent(spec, Rng::new(seed, streams[2]), declined);
    }
    plan.example = example(spec, seed, texts)?;
    let reserved_tok = plan.reserved_tok(texts.tokenizer)?;
    let (streams, chat) = ([streams[1], "distractors"].map(|label| Rng::new(seed, label)), texts.tokenizer.chat());
    let builder = Builder { plan: &plan, spec, texts, chat, reserved_tok };
    builder.fitted(streams, |laid_out, encoded| {
        let prompt = plan.prompt(laid_out, encoded, texts.tokenizer);
        prompt.with_context(|| format!("prompt of seed {seed}"))
    })
}

/// Writes the worked example before a prompt, with its answers; empty for tasks without one.
fn example(spec: &NeedleSpec, seed: u64, texts: Texts<'_>) -> Result<String> {
    let ctx_tok = spec.form.wording().example_tok;
    if ctx_tok == 0 {
        return Ok(String::new());
    }
    let spec = NeedleSpec { ctx_tok, needles: 1, retrieve: 1, ..spec.clone() };
    let plan = NeedlePlan::draw(&spec, Rng::new(seed, "example"));
    let streams = ["example prose", "example distractors"].map(|label| Rng::new(seed, label));
    let builder = Builder { plan: &plan, spec: &spec, texts, chat: None, reserved_tok: 0 };
    builder.fitted(streams, |laid_out, _| Ok(laid_out.layout.text + "\n\n"))
}

/// What the text of one prompt is put together from.
struct Builder<'a> {
    plan: &'a NeedlePlan,
    spec: &'a NeedleSpec,
    texts: Texts<'a>,
    chat: Option<&'a Wrapping>,
    /// Tokens of the context that stay free.
    reserved_tok: usize,
}

impl Builder<'_> {
    /// Tokens of the context for the prompt.
    fn room_tok(&self) -> usize {
        self.spec.ctx_tok.saturating_sub(self.reserved_tok)
    }

    /// Fills the context and passes the text to `finish`. `streams` are for prose and for distractors.
    fn fitted<T>(&self, streams: [Rng; 2], finish: impl FnOnce(LaidOut<'_>, Encoded) -> Result<T>) -> Result<T> {
        let (plan, haystack, tokenizer) = (self.plan, self.texts.haystack, self.texts.tokenizer);
        let (room_tok, separator) = (self.room_tok(), plan.separator(haystack));
        let mut filler = self.filler(streams)?;
        loop {
            let (mut parts, mut boundaries) = (filler.clone(), plan.boundaries(&filler));
            if haystack.is_own() {
                plan.cut_for_depth(&mut parts, &mut boundaries, tokenizer)?;
            }
            let laid_out = plan.lay_out(&parts, &boundaries, separator, self.chat);
            let encoded = tokenizer.encode_prompt(&laid_out.layout.text, &laid_out.layout.markup)?;
            let n_tok = tokenizer.prompt_tok(&encoded);
            // With the embedded tokenizer, sentences have as many tokens in the text as on their own. With others, a
            // sentence may have to go.
            if n_tok > room_tok {
                let last = filler.pop();
                if let Some(last) = last.filter(|_| haystack.is_own()) {
                    filler.extend(last.beginning(last.n_tok.saturating_sub(n_tok - room_tok), tokenizer)?);
                }
                if !filler.is_empty() {
                    continue;
                }
                return Err(self.too_short(n_tok));
            }
            return finish(laid_out, encoded);
        }
    }

    fn too_short(&self, least_tok: usize) -> anyhow::Error {
        let (needles, answers) = (self.plan.needles.len(), self.plan.n_answers());
        let (ctx_tok, reserved_tok) = (self.spec.ctx_tok, self.reserved_tok);
        let reserved = match reserved_tok {
            0 => String::new(),
            _ => format!(", left for longer answers: {reserved_tok} tokens"),
        };
        TooShort(format!(
            "a context of {ctx_tok} tokens is too short (needles: {needles}, questions: {answers}{reserved}): it takes at \
             least {}",
            least_tok + reserved_tok
        ))
        .into()
    }

    /// Draws as many sentences as fit besides the needles and the questions.
    fn filler(&self, [prose, distractors]: [Rng; 2]) -> Result<Vec<Filler>> {
        let (plan, haystack, tokenizer) = (self.plan, self.texts.haystack, self.texts.tokenizer);
        let (room_tok, separator) = (self.room_tok(), plan.separator(haystack));
        let bare = plan.lay_out(&[], &vec![(0, 0); plan.needles.len()], separator, self.chat).layout;
        let bare_tok = tokenizer.prompt_tok(&tokenizer.encode_prompt(&bare.text, &bare.markup)?);
        let mut facts = Distractors::new(&plan.form, self.spec.cities, plan.facts(), distractors);
        let further = self.distractors(&mut facts, separator)?;
        let fixed_tok = bare_tok + further.iter().map(|filler| filler.n_tok).sum::<usize>();
        let further_facts = facts.by_ref().map(|fact| Filler::distractor(fact, separator, tokenizer));
        let sentences = haystack.sentences(prose).map(|sentence| Filler::new(sentence, separator, tokenizer));
        let filler: &mut dyn Iterator<Item = Result<Filler>> =
            if haystack.is_needles() { &mut { further_facts } } else { &mut { sentences } };
        let mut filler = self.filled(filler, fixed_tok, room_tok)?;
        for distractor in further {
            filler.insert(facts.place(filler.len() + 1), distractor);
        }
        Ok(filler)
    }

    /// Takes the sentences that fit into `room_tok` tokens, of which `fixed_tok` are taken.
    fn filled(
        &self,
        sentences: &mut dyn Iterator<Item = Result<Filler>>,
        fixed_tok: usize,
        room_tok: usize,
    ) -> Result<Vec<Filler>> {
        let (haystack, tokenizer) = (self.texts.haystack, self.texts.tokenizer);
        let mut filler: Vec<Filler> = Vec::new();
        let mut total_tok = fixed_tok;
        for next in sentences {
            let next = next?;
            total_tok += next.n_tok;
            if total_tok == fixed_tok && filler.len() >= TOKENLESS_MAX {
                bail!("{}: the tokenizer returned no tokens for {} sentences", tokenizer.name(), filler.len());
            }
            if total_tok > room_tok {
                let left_tok = room_tok.saturating_sub(total_tok - next.n_tok);
                if haystack.is_own() && left_tok as f64 > SHORT_PCT / 100.0 * self.spec.ctx_tok as f64 {
                    filler.extend(next.beginning(left_tok, tokenizer)?);
                }
                // A depth is undefined without filler.
                if filler.is_empty() {
                    return Err(self.too_short(total_tok));
                }
                return Ok(filler);
            }
            filler.push(next);
        }
        let have_tok = total_tok - fixed_tok;
        let hint = if haystack.is_needles() { ": there are no more cities" } else { "" };
        bail_usage!(
            "{} has {have_tok} tokens; a context of {} needs {}{hint}",
            haystack.name(),
            self.spec.ctx_tok,
            room_tok.saturating_sub(fixed_tok)
        )
    }

    /// Draws the distractors that fill their share of the context.
    fn distractors(&self, facts: &mut Distractors<'_>, separator: &str) -> Result<Vec<Filler>> {
        let share = self.spec.form.distractors_pct();
        let wanted_tok = share / 100.0 * self.spec.ctx_tok as f64;
        let (mut drawn, mut total_tok) = (Vec::new(), 0);
        if share == 0.0 {
            return Ok(drawn);
        }
        loop {
            let Some(fact) = facts.next() else {
                bail_usage!(
                    "--distractors {share}: of a context of {} tokens, this takes more cities than there are",
                    self.spec.ctx_tok
                );
            };
            let next = Filler::distractor(fact, separator, self.texts.tokenizer)?;
            total_tok += next.n_tok;
            // As near to the share as whole sentences come.
            if total_tok as f64 > wanted_tok + next.n_tok as f64 / 2.0 {
                return Ok(drawn);
            }
            drawn.push(next);
        }
    }
}

#[cfg(test)]
mod form_tests;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::super::tokenizer::train::EMBEDDED_VOCAB_SIZE;
    use super::super::wording::{question, sentence, stem, PREAMBLE};
    use super::super::{Query, Region};
    use super::*;
    use crate::base::error::exit_code;

    const FORM: NeedleForm = NeedleForm::NUMBERS_OF_CITIES;

    const SPEC: NeedleSpec =
        NeedleSpec { ctx_tok: 1024, needles: 4, retrieve: 2, depth_pct: 50.0, cities: CitySet::HeldOut, form: FORM };

    fn prompt(spec: &NeedleSpec, seed: u64) -> Prompt {
        build(spec, seed, Tokenizer::embedded(), &Haystack::embedded()).unwrap()
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
                form: FORM,
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
                prop_assert_eq!(text(Region::Needle).trim().to_owned(), stem(&query.city) + ".");
                let mut others: Vec<String> = prompt.needles.iter().filter(|needle| needle.city != query.city)
                    .map(|needle| sentence(&needle.city, &needle.value)).collect();
                prop_assert_eq!(text(Region::Distractor).trim().to_owned(), others.join(" "));
                others.push(sentence(&query.city, &query.value));
                let filler = text(Region::Filler);
                prop_assert!(!filler.contains("magic") && !filler.contains(|c: char| c.is_ascii_digit()));
                let cities: Vec<&str> = prompt.queries.iter().map(|query| query.city.as_str()).collect();
                let answer = |query: &Query| sentence(&query.city, &query.value);
                let answers: Vec<String> = prompt.queries.iter().map(answer).collect();
                prop_assert_eq!(text(Region::Question), format!("\n{}\n{}", question(&cities), answers.join(" ")));
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
                prop_assert!(text(0..query.predicted.start).ends_with(&stem(&query.city)));
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
        fn cities_and_values_of_a_prompt_are_distinct_and_of_the_set(spec in specs(), seed: u64) {
            let prompt = prompt(&spec, seed);
            let mut cities: Vec<&str> = prompt.needles.iter().map(|needle| needle.city.as_str()).collect();
            prop_assert!(cities.iter().all(|city| spec.cities.cities().contains(city)));
            let mut values: Vec<usize> = prompt.needles.iter().map(|needle| needle.value.parse().unwrap()).collect();
            prop_assert!(values.iter().all(|&value| (10_000..=99_999).contains(&value)));
            cities.sort_unstable();
            cities.dedup();
            values.sort_unstable();
            values.dedup();
            prop_assert_eq!((cities.len(), values.len()), (spec.needles, spec.needles));
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
        let key = |prompt: &Prompt| {
            let mut needles: Vec<_> = prompt.needles.iter().map(|n| (n.city.clone(), n.value.clone())).collect();
            needles.sort();
            (needles, text_of(prompt, &prompt.regions(Some(0)), Region::Filler).trim().to_owned())
        };
        assert_eq!(key(&at(0.0)), key(&at(100.0)));
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
        let cases = [
            (NeedleSpec { retrieve: 5, ..SPEC }, "cannot retrieve 5 of 4 needles"),
            (NeedleSpec { needles: 0, retrieve: 0, ..SPEC }, "at least one needle"),
            (NeedleSpec { retrieve: 0, ..SPEC }, "at least one needle and one question"),
            (NeedleSpec { needles: 999, ..SPEC }, "999 needles need as many cities; there are 50"),
            (NeedleSpec { depth_pct: 101.0, ..SPEC }, "a depth of 101 percent: it is between 0 and 100"),
            (NeedleSpec { depth_pct: f64::NAN, ..SPEC }, "a depth of NaN"),
            (
                NeedleSpec { ctx_tok: 100, ..SPEC },
                "100 tokens is too short (needles: 4, questions: 2): it takes at least",
            ),
        ];
        for (spec, expected) in cases {
            let error = build(&spec, 0, Tokenizer::embedded(), &Haystack::embedded()).unwrap_err();
            assert!(error.to_string().contains(expected) && exit_code(&error) == 2, "{error}");
        }
    }

    #[test]
    fn an_unanswerable_prompt_has_the_text_of_its_twin_and_asks_for_what_is_not_in_it() {
        for seed in 0..20 {
            let spec = NeedleSpec { cities: CitySet::Train, ..SPEC };
            let (twin, absent) = (prompt(&spec, seed), prompt(&NeedleSpec { cities: CitySet::Absent, ..spec }, seed));
            // The other city's name may change the filler by a sentence, and so the order of needles at one boundary.
            let facts = |prompt: &Prompt| -> BTreeSet<(String, String)> {
                prompt.needles.iter().map(|needle| (needle.city.clone(), needle.value.clone())).collect()
            };
            assert_eq!(facts(&twin), facts(&absent));
            assert_eq!(absent.queries.len(), 2);
            for query in &absent.queries {
                assert!(!query.is_answerable() && query.controlled && query.depth_req_pct == 50.0);
                assert!(absent.needles.iter().all(|needle| needle.city != query.city && needle.value != query.value));
                assert_eq!(query.predicted.len(), 5);
            }
            assert!(twin.queries.iter().all(Query::is_answerable));
            let regions = absent.regions(Some(0));
            assert!(!regions.contains(&Region::Needle) && regions.contains(&Region::Distractor));
        }
    }

    #[test]
    fn the_context_that_an_error_names_is_enough() {
        let error =
            build(&NeedleSpec { ctx_tok: 100, ..SPEC }, 0, Tokenizer::embedded(), &Haystack::embedded()).unwrap_err();
        let least = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(prompt(&NeedleSpec { ctx_tok: least, ..SPEC }, 0).ids.len(), least);
    }

    /// The embedded tokenizer with additional merges of two tokens each, as a user's file. Digits may merge.
    fn other_tokenizer(merges: &[[&str; 2]], bos: &str) -> Tokenizer {
        let mut json: serde_json::Value = serde_json::from_str(Tokenizer::embedded().json()).unwrap();
        json["pre_tokenizer"] = serde_json::to_value(ByteLevel::new(false, true, false)).unwrap();
        for (id, [left, right]) in (EMBEDDED_VOCAB_SIZE..).zip(merges) {
            json["model"]["merges"].as_array_mut().unwrap().push(serde_json::json!([left, right]));
            json["model"]["vocab"][format!("{left}{right}")] = id.into();
        }
        let text = serde_json::to_string(&json).unwrap().replace("<bos>", bos);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tokenizer::from_file(file.path()).unwrap()
    }

    const DIGITS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

    #[test]
    fn a_token_that_holds_the_space_before_a_value_belongs_to_the_value() {
        let tokenizer = other_tokenizer(&DIGITS.map(|digit| ["\u{120}", digit]), "<bos>");
        let prompt = build(&SPEC, 0, &tokenizer, &Haystack::embedded()).unwrap();
        let query = &prompt.queries[0];
        assert_eq!(tokenizer.decode(&prompt.ids[query.answer.clone()]).unwrap(), format!(" {}", query.value));
        assert_eq!(query.predicted.len(), 5);
    }

    #[test]
    fn a_tokenizer_without_a_boundary_before_a_value_is_an_error_that_names_city_and_seed() {
        let mut merges = vec![[":", "\u{120}"]];
        merges.extend(DIGITS.map(|digit| [":\u{120}", digit]));
        let error = build(&SPEC, 77, &other_tokenizer(&merges, "<bos>"), &Haystack::embedded()).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with("prompt of seed 77: ") && message.contains("no boundary"), "{message}");
        assert!(CitySet::HeldOut.cities().iter().any(|city| message.contains(&format!(" of {city} "))), "{message}");
    }

    #[test]
    fn a_tokenizer_without_a_begin_token_gives_prompts_without_one() {
        let prompt = build(&SPEC, 0, &other_tokenizer(&[], "<none>"), &Haystack::embedded()).unwrap();
        assert!(
            !prompt.has_bos && prompt.regions(Some(0))[..2] == [Region::First, Region::Template] && prompt.ids[0] > 2
        );
    }
}
