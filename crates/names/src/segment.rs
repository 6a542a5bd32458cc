//! Segments of a text: what is known of them before anything is measured.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use strum::{IntoStaticStr, VariantArray};

/// Whether a segment of a text holds the answer, as far as its file says.
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
    /// The file does not say.
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

/// The name of segments next to each other as a region of records: `s5-8` for the fifth to the eighth.
pub fn group_name(segments: &Range<usize>) -> String {
    format!("{}-{}", segment_name(segments.start), segments.end)
}

/// The indices of segments by the name of their group; `None` for other regions.
pub fn group_segments(name: &str) -> Option<Range<usize>> {
    let (first, last) = name.split_once('-')?;
    Some(segment_index(first)?..last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_and_groups_are_read_as_they_are_written() {
        assert_eq!((segment_name(4), segment_index("s5")), ("s5".to_owned(), Some(4)));
        assert_eq!((group_name(&(4..8)), group_segments("s5-8")), ("s5-8".to_owned(), Some(4..8)));
        for other in ["s0", "s", "filler", "5"] {
            assert_eq!(segment_index(other), None, "{other}");
        }
        for other in ["s5", "s0-3", "s2-x", "far-off"] {
            assert_eq!(group_segments(other), None, "{other}");
        }
    }
}
