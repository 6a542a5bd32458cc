//! The text around the content of one user message.
//!
//! It is found by rendering a message with a marker as its content: the text before the marker, and the text after it,
//! which ends with the generation prompt.
//!
//! The generation prompt of some models opens a thinking block, or ends before the channel of the answer. An answer
//! directly behind it would stand where the model thinks. The text that the template itself writes between the
//! generation prompt and an answer is therefore added, see [`Opening`].

use super::chat::{message, ChatTemplate, MARK};
use super::thinking::{self, Opening};
use anyhow::{bail, Result};

/// The text that a chat template writes around the content of a user's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The text before.
    pub before: String,
    /// The text behind, up to where the assistant's answer begins.
    pub after: String,
    /// The part of the text behind that comes between the generation prompt and the answer.
    pub opening: Option<Opening>,
}

impl ChatTemplate {
    /// The text before and after the content of one user message. The second part ends where the assistant's answer begins.
    ///
    /// # Errors
    /// If the template is invalid, raises an exception, or does not write the content exactly once and unchanged.
    pub fn text_around(&self) -> Result<Around> {
        let text =
            self.rendered(&[message("user", MARK)], true, &[])?.map_err(|refused| self.with_location(&refused))?;
        let Some((before, after)) = text.split_once(MARK) else {
            bail!("{}: the template changes or drops the content of a user message", self.name);
        };
        if after.contains(MARK) {
            bail!("{}: the template writes the content of a user message more than once", self.name);
        }
        let opening = thinking::opening(self, after)?;
        let after = format!("{after}{}", opening.as_ref().map_or("", |opening| &opening.text));
        Ok(Around { before: before.to_owned(), after, opening })
    }
}
