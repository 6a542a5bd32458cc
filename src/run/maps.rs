//! The experiments on one prompt: settings of the maps that `heatmap` draws, and the size of the page that `explore` writes.

use super::{Experiment, Grid, Show};
use crate::attention::LayersAndHeads;
use crate::bail_usage;
use crate::measures::probe::RowQuantity;
use crate::measures::{MapSpec, TokenSpan};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of `heatmap`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields, default)]
pub struct Heatmap {
    /// Kind of map
    #[arg(long, value_enum, default_value_t = MapKind::Effective)]
    pub map: MapKind,
    /// Layer, counted from 0 [default: the layer with the most attention to the answer; the last one with --text]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "L")]
    pub layer: Option<usize>,
    /// Head of that layer, counted from 0 [default: the mean over heads]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "H")]
    pub head: Option<usize>,
    /// Draw every layer and head as small multiples
    #[arg(long = "grid", conflicts_with_all = ["layer", "head", "data", "full"])]
    pub every_head: bool,
    /// Query tokens to draw, as in 4000..4096 [default: all]
    #[arg(long = "query", value_name = "FROM..TO", default_value = "0..", hide_default_value = true)]
    pub queries: TokenSpan,
    /// Key tokens to draw, as in 0..80 [default: all]
    #[arg(long = "key", value_name = "FROM..TO", default_value = "0..", hide_default_value = true)]
    pub keys: TokenSpan,
    /// Also write the matrix of every map as .npy or .csv; with several maps, file names get model, layer, head and map
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Write --data token by token instead of pooled
    #[arg(long, requires = "data")]
    pub full: bool,
}

/// The kind of attention map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapKind {
    /// The weights of the values: A1 − λA2, or the only map.
    #[default]
    Effective,
    /// The first softmax map.
    A1,
    /// The second softmax map.
    A2,
    /// Scaled logits of the first map.
    Logits1,
    /// Scaled logits of the second map.
    Logits2,
    /// A1, A2, λA2 and A1 − λA2 in one figure.
    All,
}

impl MapKind {
    /// Returns the quantities of the panels, in order.
    pub(super) fn quantities(self) -> Vec<RowQuantity> {
        match self {
            Self::Effective => vec![RowQuantity::Effective],
            Self::A1 => vec![RowQuantity::Map(0)],
            Self::A2 => vec![RowQuantity::Map(1)],
            Self::Logits1 => vec![RowQuantity::Logits(0)],
            Self::Logits2 => vec![RowQuantity::Logits(1)],
            Self::All => {
                vec![RowQuantity::Map(0), RowQuantity::Map(1), RowQuantity::Subtracted, RowQuantity::Effective]
            }
        }
    }
}

/// Longer side of a map, in pixels.
pub const MAP_PX: u32 = 560;

/// Longest side of a small multiple, in pixels.
pub const SMALL_PX: u32 = 200;

/// Pixels per bin: single pixels can hardly be seen.
const PIXELS_PER_BIN: u32 = 2;

/// Pixels per bin of small multiples.
const PIXELS_PER_SMALL_BIN: u32 = 4;

/// Longest prompt with the small page size and few bins, in tokens.
pub(super) const SHORT_TOK: usize = 8192;
/// Approximate size limit of the page of a short prompt.
const SMALL_MB: usize = 15;
/// Approximate size limit of the page of a long prompt.
const LARGE_MB: usize = 40;

impl Heatmap {
    /// Checks everything that does not depend on the models.
    pub(super) fn check(&self, ctx_tok: usize, select: &LayersAndHeads) -> Result<()> {
        for (field, one, all) in [("layer", self.layer, &select.layers), ("head", self.head, &select.heads)] {
            if let (Some(one), Some(all)) = (one, all) {
                if !all.contains(&one) {
                    bail_usage!("--{field} {one} is not among --{field}s");
                }
            }
        }
        for (field, span) in [("query", self.queries), ("key", self.keys)] {
            if span.start >= ctx_tok {
                bail_usage!("--{field} {span}: the prompt has tokens 0 to {}", ctx_tok.saturating_sub(1));
            }
        }
        if let Some(end) = self.queries.end.filter(|&end| self.keys.start >= end) {
            bail_usage!("--key {}: no query before token {end} sees these keys", self.keys);
        }
        if self.every_head && self.map == MapKind::All {
            bail_usage!("--grid draws one kind of map: give --map effective, a1, a2, logits1 or logits2");
        }
        if self.every_head && (self.layer.is_some() || self.head.is_some() || self.data.is_some()) {
            bail_usage!("--grid draws all: leave --layer, --head and --data out");
        }
        if self.full && self.data.is_none() {
            bail_usage!("--full is about --data: name its file");
        }
        if let Some(path) = &self.data {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("npy" | "csv")) {
                bail_usage!("--data {}: the name must end in .npy or .csv", path.display());
            }
        }
        Ok(())
    }

    pub(super) fn spec(&self, bins: Option<usize>) -> MapSpec {
        MapSpec {
            quantities: self.map.quantities(),
            bins,
            queries: self.queries,
            keys: self.keys,
            by_head: self.every_head,
        }
    }

    /// Returns the number of bins along the longer side.
    pub(super) fn bins(&self) -> usize {
        let bins = if self.every_head { SMALL_PX / PIXELS_PER_SMALL_BIN } else { MAP_PX / PIXELS_PER_BIN };
        bins as usize
    }
}

/// Returns the approximate size limit of an explorer's page for a prompt of `ctx_tok` tokens, in bytes.
pub fn page_budget(ctx_tok: usize) -> usize {
    (if ctx_tok > SHORT_TOK { LARGE_MB } else { SMALL_MB }) * 1_000_000
}

impl Experiment {
    /// Returns the settings of `heatmap`, or their defaults.
    pub fn heatmap(&self) -> Heatmap {
        self.heatmap.clone().unwrap_or_default()
    }

    /// Checks the settings of an experiment on maps, which needs one prompt with one question.
    pub(super) fn check_maps(&self) -> Result<()> {
        if self.heatmap.is_some() && self.show != Show::Heatmap {
            bail_usage!("[heatmap] is for show = \"heatmap\"");
        }
        if self.costs.is_some() && self.show != Show::Explore {
            bail_usage!("--costs is for show = \"explore\"");
        }
        if !self.show.is_of_maps() {
            return Ok(());
        }
        let asks = match &self.grid {
            Grid::Needle(grid) => grid.settings.iter().map(|&(_, retrieve)| retrieve).max(),
            Grid::Text(_) => Some(1),
            Grid::Shots(_) => None,
        };
        let of_one = "measures one prompt with one question: one --ctx, one of `settings` with R = 1, one of \
                      --depths, --samples = 1";
        if self.grid.count() != Some(1) || asks != Some(1) {
            bail_usage!("show = \"{}\" {of_one}", self.show.name());
        }
        match self.show {
            Show::Heatmap => self.heatmap().check(self.grid.ctx_tok()[0], &self.select),
            _ => Ok(()),
        }
    }
}
