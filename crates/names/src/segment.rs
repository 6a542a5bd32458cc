//! Segments of a text: what is known of them before anything is measured.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// What a segment of a text says, if its file tells.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SegmentKind {
    /// Nobody said.
    #[default]
    Unknown,
    /// It holds the answer, or a part of it.
    Right,
    /// It says that another answer is right.
    Otherwise,
    /// Neither.
    Other,
}

impl SegmentKind {
    /// Its name in records and files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The name of a segment as a region of records: `s5` for the fifth.
pub fn segment_name(index: usize) -> String {
    format!("s{}", index + 1)
}

/// The index of a segment by its name; `None` for other regions.
pub fn segment_index(name: &str) -> Option<usize> {
    name.strip_prefix('s')?.parse::<usize>().ok()?.checked_sub(1)
}
