//! Heads by their places: `18.6` is head 6 of layer 18.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Place of an output head. It is displayed as conditions name it: `2.0` is head 0 of layer 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeadPlace {
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
}

impl HeadPlace {
    /// All heads of `layers` layers with `heads` heads each, in order.
    pub fn all(layers: usize, heads: usize) -> impl Iterator<Item = Self> {
        (0..layers).flat_map(move |layer| (0..heads).map(move |head| Self { layer, head }))
    }
}

impl fmt::Display for HeadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.layer, self.head)
    }
}

/// The observed layers and heads; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayersAndHeads {
    /// 0-based layers; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// 0-based output heads; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<usize>>,
}

impl LayersAndHeads {
    /// Returns `true` if a head is selected.
    pub fn has(&self, at: HeadPlace) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(&at.layer))
            && self.heads.as_ref().is_none_or(|heads| heads.contains(&at.head))
    }
}
