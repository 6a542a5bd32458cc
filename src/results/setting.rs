//! The setting of prompts.

use super::record::Identity;
use names::column::Cut;
use names::column::{Column, Value};

/// Sizes of prompts that are measured alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Context, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text; 0 for plain text.
    pub needles: usize,
    /// Needles asked for.
    pub asked: usize,
}

impl Setting {
    pub(super) fn of(id: &Identity) -> Self {
        Self { ctx_tok: id.ctx_tok, needles: id.needles.unwrap_or(0), asked: id.retrieve.unwrap_or(0) }
    }

    /// The columns of its prompts, with their values.
    pub(crate) fn cuts(self) -> [Cut<'static>; 3] {
        let count = |n: usize| Some(Value::Int(n as u64)).filter(|_| n > 0);
        [
            (Column::CtxTok, count(self.ctx_tok)),
            (Column::Needles, count(self.needles)),
            (Column::Retrieve, count(self.asked)),
        ]
    }

    /// Its name, without the context: `N=4 R=2`.
    pub(crate) fn name(&self) -> String {
        format!("N={} R={}", self.needles, self.asked)
    }
}
