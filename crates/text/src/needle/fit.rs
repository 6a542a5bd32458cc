//! Filling of a context with as much filler as fits besides the needles and the questions.

use anyhow::{bail, Result};

use super::distractors::DistractorDraw;
use super::filler::{total_tok, Filler};
use super::layout::PromptLayout;
use super::plan::{Boundary, NeedlePlan};
use super::{NeedleSpec, Texts};
use crate::text::TOKENLESS_MAX;
use crate::{Encoded, Wrapping};
use base::bail_usage;
use base::error::TooShort;
use stats::Rng;

/// Length that a prompt may lack before a sentence of own text is cut to fill it, in percent.
const SHORT_PCT: f64 = 2.0;

/// The parts of the text of one prompt.
pub(super) struct Builder<'a> {
    pub(super) plan: &'a NeedlePlan,
    pub(super) spec: &'a NeedleSpec,
    pub(super) texts: Texts<'a>,
    pub(super) chat: Option<&'a Wrapping>,
    /// Tokens of the context that stay free.
    pub(super) reserved_tok: usize,
}

impl Builder<'_> {
    /// Tokens of the context for the prompt.
    fn room_tok(&self) -> usize {
        self.spec.ctx_tok.saturating_sub(self.reserved_tok)
    }

    /// Fills the context, with random numbers for prose and for distractors.
    pub(super) fn fitted(&self, prose: Rng, distractors: Rng) -> Result<(PromptLayout, Encoded)> {
        let plan = self.plan;
        let haystack = self.texts.haystack;
        let tokenizer = self.texts.tokenizer;
        let room_tok = self.room_tok();
        let separator = plan.separator(haystack);
        let mut filler = self.filler(prose, distractors)?;
        loop {
            let mut parts = filler.clone();
            let mut boundaries = plan.boundaries(&filler);
            if haystack.is_own() {
                plan.cut_for_depth(&mut parts, &mut boundaries, tokenizer)?;
            }
            let layout = plan.lay_out(&parts, &boundaries, separator, self.chat);
            let encoded = tokenizer.encode_prompt(&layout.text, &layout.markup)?;
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
            return Ok((layout, encoded));
        }
    }

    fn too_short(&self, least_tok: usize) -> anyhow::Error {
        let needles = self.plan.n_needles;
        let answers = self.plan.n_answers();
        let ctx_tok = self.spec.ctx_tok;
        let least_tok = least_tok + self.reserved_tok;
        TooShort(format!(
            "a context of {ctx_tok} tokens is too short (needles: {needles}, questions: {answers}): it takes at least {least_tok}"
        ))
        .into()
    }

    /// Draws as many sentences as fit besides the needles and the questions.
    fn filler(&self, prose: Rng, distractors: Rng) -> Result<Vec<Filler>> {
        let plan = self.plan;
        let haystack = self.texts.haystack;
        let tokenizer = self.texts.tokenizer;
        let room_tok = self.room_tok();
        let separator = plan.separator(haystack);
        let bare = plan.lay_out(&[], &vec![Boundary::default(); plan.n_needles], separator, self.chat);
        let bare_tok = tokenizer.prompt_tok(&tokenizer.encode_prompt(&bare.text, &bare.markup)?);
        let mut facts = DistractorDraw::new(plan.form, self.spec.cities, &plan.facts, distractors);
        let further = self.distractors(&mut facts, separator)?;
        let fixed_tok = bare_tok + total_tok(&further);
        let mut filler = if haystack.is_needles() {
            let sentences = facts.by_ref().map(|fact| Filler::distractor(fact, separator, tokenizer));
            self.filled(sentences, fixed_tok, room_tok)?
        } else {
            let sentences = haystack.sentences(prose).map(|sentence| Filler::new(sentence, separator, tokenizer));
            self.filled(sentences, fixed_tok, room_tok)?
        };
        for distractor in further {
            filler.insert(facts.place(filler.len() + 1), distractor);
        }
        Ok(filler)
    }

    /// Takes the sentences that fit into `room_tok` tokens, of which `fixed_tok` are taken.
    fn filled(
        &self,
        sentences: impl Iterator<Item = Result<Filler>>,
        fixed_tok: usize,
        room_tok: usize,
    ) -> Result<Vec<Filler>> {
        let haystack = self.texts.haystack;
        let tokenizer = self.texts.tokenizer;
        let mut filler: Vec<Filler> = Vec::new();
        let mut total_tok = fixed_tok;
        for next in sentences {
            let next = next?;
            total_tok += next.n_tok;
            if total_tok == fixed_tok && filler.len() >= TOKENLESS_MAX {
                bail!("{}: the tokenizer returned no tokens for {} sentences", tokenizer.name, filler.len());
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
        let hint = if haystack.is_needles() {
            ": there are no more names"
        } else {
            ": give a longer text, or a smaller --ctx"
        };
        bail_usage!(
            "{} has {have_tok} tokens; a context of {} needs {}{hint}",
            haystack.name(),
            self.spec.ctx_tok,
            room_tok.saturating_sub(fixed_tok)
        )
    }

    /// Draws the distractors that fill their share of the context.
    fn distractors(&self, facts: &mut DistractorDraw, separator: &str) -> Result<Vec<Filler>> {
        let share = self.spec.distractors_pct;
        let wanted_tok = share / 100.0 * self.spec.ctx_tok as f64;
        let mut drawn = Vec::new();
        let mut total_tok = 0;
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
