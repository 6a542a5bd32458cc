//! Texts with a question about them, cut into segments that can be left out: a document in sentences, or passages that were
//! retrieved.

mod file;
pub mod flags;
mod layout;
mod split;

pub use file::read_questions;
pub use flags::ContextPrompts;
pub(crate) use flags::OWN_ANSWER;
pub use layout::{Kept, INSTRUCTION};
pub use split::Split;

use names::SegmentKind;

/// A text with a question about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Its name: that of its file, or its number from 1.
    pub id: String,
    /// The document that it is from, if others are from the same.
    pub document: Option<String>,
    pub question: String,
    /// Right answers; empty if none is known.
    pub answers: Vec<String>,
    /// An answer that is not right.
    pub wrong: Option<String>,
    /// Beginning of the reply, which the answer follows.
    pub lead: Option<String>,
    /// The parts that can be left out, in the order of the text.
    pub segments: Vec<Segment>,
}

/// A part of a text that can be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// White space between it and the part before, which goes with it.
    pub before: String,
    pub text: String,
    pub kind: SegmentKind,
}

impl Context {
    /// The indices of segments of a kind.
    pub fn of_kind(&self, kind: SegmentKind) -> Vec<usize> {
        (0..self.segments.len()).filter(|&i| self.segments[i].kind == kind).collect()
    }

    /// Returns `true` if it is known which segments are right.
    pub fn has_kinds(&self) -> bool {
        self.segments.iter().any(|segment| segment.kind != SegmentKind::Unknown)
    }
}
