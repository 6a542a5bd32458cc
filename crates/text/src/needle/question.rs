//! Texts of the user in place of made prompts: windows of them, or one whole text with a question that it answers.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::facts::Fact;
use super::filler::Filler;
use super::form::QUESTION;
use super::place::{led, places};
use super::plan::{Boundary, NeedlePlan};
use super::NeedlePrompts;
use crate::segment::sentence_bounds;
use crate::unwrap::unwrapped;
use crate::{Prompt, Sentence, Sources, Text, Tokenizer};
use base::bail_usage;
use base::FileName;
use stats::Rng;

/// The flags of a text of the user, in which needles cannot be placed.
pub const OWN_TEXT: [&str; 2] = ["text", "prompt"];

/// A text of the user.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct OwnText {
    /// UTF-8 text to measure instead of needle prompts: all of it with a question, otherwise windows of the prompt length
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName)]
    pub text: Option<PathBuf>,
    /// Measure this text, as --text FILE does
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "TEXT", conflicts_with = "text", hide_short_help = true)]
    pub prompt: Option<String>,
    /// Question to put behind the text, which holds the answer
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "QUESTION", requires = "answer", hide_short_help = true)]
    pub question: Option<String>,
    /// Answer to --question, as it stands in the text
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "ANSWER", requires = "question", hide_short_help = true)]
    pub answer: Option<String>,
    /// Beginning of the reply to --question, which the answer follows
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "WORDS", requires = "question", hide_short_help = true)]
    pub lead: Option<String>,
}

impl OwnText {
    /// A file, without a question.
    pub fn of_file(text: Option<&PathBuf>) -> Self {
        Self { text: text.cloned(), ..Self::default() }
    }

    pub fn is_given(&self) -> bool {
        self.text.is_some() || self.prompt.is_some()
    }

    /// Returns `true` if a question makes the text a needle prompt.
    pub fn is_asked(&self) -> bool {
        self.question.is_some() || self.answer.is_some() || self.lead.is_some()
    }

    /// Reads the text; `None` if none is given.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, or is empty.
    pub fn read(&self) -> Result<Option<Text>> {
        match (&self.text, &self.prompt) {
            (Some(path), _) => Text::from_path(path).map(Some),
            (None, Some(text)) => Text::own("--prompt".into(), text.clone()).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Checks that text, question and answer go together.
    pub(super) fn check(&self) -> Result<()> {
        if self.lead.is_some() && self.question.is_none() {
            bail_usage!("--lead: it begins the reply to a question; give --question and --answer too");
        }
        match (self.is_given(), &self.question, &self.answer) {
            (true, None, None) => {
                bail_usage!("--text: this command asks about it; give --question and --answer too")
            }
            (false, Some(_), _) | (false, _, Some(_)) => {
                bail_usage!("--question: give the text that holds the answer too (--text FILE)")
            }
            (_, Some(_), None) | (_, None, Some(_)) => bail_usage!("--question and --answer: give both"),
            _ => Ok(()),
        }
    }
}

/// A text with a question, and the answer at its places in the text.
#[derive(Clone, Debug)]
pub struct Question {
    /// The text before each of the sentences that hold the answer, and the text behind the last.
    around: Vec<String>,
    /// Those sentences, in the order of the text. Their name is the question.
    facts: Vec<Fact>,
    /// The beginning of the reply, with what separates it from the answer.
    pub(crate) lead: Option<String>,
}

impl Question {
    /// Finds the answer.
    ///
    /// # Errors
    /// A usage error if it is in no place of the text.
    pub fn new(own: &OwnText, text: &Text) -> Result<Self> {
        let Text::Own { text: whole, .. } = text else {
            bail_usage!("--question: give the text that holds the answer too (--text FILE)")
        };
        let name = text.name();
        let [question, answer] = [&own.question, &own.answer].map(|text| text.as_deref().unwrap_or_default().trim());
        if question.is_empty() || answer.is_empty() {
            bail_usage!("--question and --answer: neither may be empty");
        }
        let places = match places(whole, answer) {
            Ok(places) => places,
            Err(how) => bail_usage!("--answer: {name} {how}; `difftool context` takes answers that no sentence holds"),
        };
        let mut asked = Self { around: Vec::new(), facts: Vec::new(), lead: None };
        asked.add_places(whole, &places, question);
        let lead = own.lead.as_deref().map(str::trim).filter(|lead| !lead.is_empty());
        asked.lead = lead.map(|lead| led(lead, &asked.facts[0].before, answer));
        Ok(asked)
    }

    /// Cuts the text into sentences that hold the answer, and what is around them.
    fn add_places(&mut self, whole: &str, places: &[Range<usize>], question: &str) {
        let mut end = 0;
        for (i, at) in places.iter().enumerate() {
            let sentence = sentence_around(whole, at.clone());
            let start = sentence.start.max(end);
            self.around.push(whole[end..start].to_owned());
            // A sentence that holds the answer once more ends before what leads to it.
            let holds_next = places.get(i + 1).is_some_and(|next| next.start < sentence.end);
            end = if holds_next { at.end } else { sentence.end };
            self.facts.push(Fact {
                name: question.to_owned(),
                value: whole[at.clone()].to_owned(),
                before: whole[start..at.start].to_owned(),
                behind: whole[at.end..end].to_owned(),
            });
        }
        self.around.push(whole[end..].trim_end().to_owned());
    }

    /// Builds the prompt: the text as it stands, the question and the answer.
    ///
    /// # Errors
    /// If the tokenizer fails, or joins the answer behind the question with what is before it.
    pub fn prompt(&self, depth_pct: f64, tokenizer: &Tokenizer) -> Result<Prompt> {
        // The place that counts for the depth is the last, as that of several examples of a word.
        let facts: Vec<Fact> = self.facts.iter().rev().cloned().collect();
        let boundaries: Vec<Boundary> =
            (1..=facts.len()).rev().map(|sentences| Boundary { sentences, order: 0 }).collect();
        let mut plan = NeedlePlan::asking(&QUESTION, facts, 0, depth_pct, Rng::new(0, "no draws"));
        plan.lead.clone_from(&self.lead);
        let mut filler = Vec::new();
        for text in self.around.iter().cloned() {
            filler.push(Filler { sentence: Sentence { text, joined: true }, n_tok: 0, fact: None });
        }
        let layout = plan.lay_out(&filler, &boundaries, "", tokenizer.chat());
        let encoded = tokenizer.encode_prompt(&layout.text, &layout.markup)?;
        layout.prompt(&plan, encoded, tokenizer)
    }
}

impl NeedlePrompts {
    /// Takes the length of the prompt and the depth of the answer from the text, if there is one with a question.
    ///
    /// # Errors
    /// Those of the tokenizers and of [`Question::prompt`].
    pub fn measure_own_text<'a>(
        &mut self,
        sources: &Sources,
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
    ) -> Result<()> {
        let Some(question) = &sources.question else { return Ok(()) };
        let mut ctx_tok = 0;
        let mut depths = Vec::new();
        for tokenizer in tokenizers {
            let prompt = question.prompt(0.0, tokenizer?)?;
            ctx_tok = ctx_tok.max(prompt.ids.len());
            depths.extend(prompt.queries.iter().map(|query| (10.0 * query.depth_real_pct).round() / 10.0));
        }
        depths.truncate(1);
        self.ctx = vec![ctx_tok.into()];
        self.depths = depths;
        Ok(())
    }
}

/// The sentences that a part of a text is in, without white space around them. Where the text is wrapped they go on in the
/// next line: then only white space differs, and characters that are none are counted.
fn sentence_around(text: &str, part: Range<usize>) -> Range<usize> {
    let visible = |text: &str| text.chars().filter(|char| !char.is_whitespace()).count();
    let first = visible(&text[..part.start]);
    let last = first + visible(&text[part.clone()]) - 1;
    let mut start = 0;
    let mut end = 0;
    for sentence in sentence_bounds(&unwrapped(text)) {
        if end <= first {
            start = end;
        }
        if end <= last {
            end += visible(sentence);
        }
    }
    let mut places = text.char_indices().filter(|(_, char)| !char.is_whitespace());
    let begin = places.nth(start).map_or(part.start, |(at, _)| at);
    let behind = text.char_indices().filter(|(_, char)| !char.is_whitespace()).nth(end - 1);
    begin..behind.map_or(part.end, |(at, char)| at + char.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::exit_code;
    use names::Region;

    const TEXT: &str = "The river is wide here. Old Mr Low counts boats, and\nhe saw 17 of them on Monday.\n\nNobody waves. No boats go by.\n";

    fn asked(text: &str, question: &str, answer: &str) -> Result<Question> {
        led_by(None, text, question, answer)
    }

    fn led_by(lead: Option<&str>, text: &str, question: &str, answer: &str) -> Result<Question> {
        let own = OwnText {
            lead: lead.map(str::to_owned),
            prompt: Some(text.into()),
            question: Some(question.into()),
            answer: Some(answer.into()),
            ..OwnText::default()
        };
        Question::new(&own, &own.read()?.expect("a text is given"))
    }

    #[test]
    fn a_text_is_measured_as_it_stands_with_its_answer_where_it_is() {
        let prompt = asked(TEXT, "How many boats?", "17").unwrap().prompt(40.0, Tokenizer::embedded()).unwrap();
        assert_eq!(prompt.text, format!("{}\nHow many boats?\n17", TEXT.trim_end()));
        let of = |region: Region| -> String {
            let tokens = prompt.regions(Some(0)).into_iter().zip(&prompt.offsets).filter(|(of, _)| *of == region);
            tokens.map(|(_, &(start, end))| &prompt.text[start..end]).collect()
        };
        assert_eq!(of(Region::Answer).trim(), "17");
        assert_eq!(of(Region::Needle).trim(), "Old Mr Low counts boats, and\nhe saw  of them on Monday.");
        assert_eq!(of(Region::Filler), "The river is wide here.\n\nNobody waves. No boats go by.");
        assert_eq!(of(Region::Question).trim(), "How many boats?\n17");
    }

    #[test]
    fn the_answer_follows_the_lead_as_it_stands_in_the_text() {
        for (text, answer, lead, wanted) in [
            (TEXT, "17", "He saw", "\nHe saw 17"),
            ("Das Passwort lautet „Regenbogen“.", "Regenbogen", "Es lautet „", "\nEs lautet „Regenbogen"),
        ] {
            let question = led_by(Some(lead), text, "Was?", answer).unwrap();
            let prompt = question.prompt(40.0, Tokenizer::embedded()).unwrap();
            assert!(prompt.text.ends_with(wanted), "{}", prompt.text);
        }
    }

    #[test]
    fn an_answer_in_several_places_is_the_answer_in_each() {
        let text = "Low has boats. He likes boats and boats. Nobody waves.\n\nNo boats go by.";
        let prompt = asked(text, "What?", "boats").unwrap().prompt(40.0, Tokenizer::embedded()).unwrap();
        assert_eq!(prompt.text, format!("{text}\nWhat?\nboats"));
        let regions = prompt.regions(Some(0));
        let of = |region: Region| -> String {
            let tokens = regions.iter().zip(&prompt.offsets).filter(|(of, _)| **of == region);
            tokens.map(|(_, &(start, end))| &prompt.text[start..end]).collect()
        };
        assert_eq!(of(Region::Answer), " boats boats boats boats");
        assert_eq!(of(Region::Needle), "Low has. He likes and.No go by.");
        assert_eq!(of(Region::Filler).trim(), "Nobody waves.");
        assert_eq!(prompt.queries.len(), 1);
        let query = &prompt.queries[0];
        assert!(query.controlled && query.answer.start > prompt.ids.len() / 2, "the last place counts: {query:?}");
    }

    #[test]
    fn a_corrupted_prompt_has_another_answer_at_every_place() {
        let text = "Low has 12345 boats. Nobody waves. He counted 12345 of them.";
        let prompt = asked(text, "How many?", "12345").unwrap().prompt(40.0, Tokenizer::embedded()).unwrap();
        let other = prompt.corrupted(0, Tokenizer::embedded()).unwrap();
        assert_eq!(other.text.matches("12345").count(), 1, "the answer behind the question stays: {}", other.text);
        assert_eq!(other.regions(Some(0)), prompt.regions(Some(0)));
        assert_eq!(other.needles[0].value, other.needles[1].value);
    }

    #[test]
    fn an_answer_in_no_place_is_an_error() {
        for (answer, wanted) in [("18", "does not hold \"18\""), (" ", "neither may be empty")] {
            let error = asked(TEXT, "How many boats?", answer).unwrap_err();
            assert!(error.to_string().contains(wanted) && exit_code(&error) == 2, "{error}");
        }
    }
}
