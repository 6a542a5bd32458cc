//! Experiments that look at one prompt: the maps that `heatmap` draws, and the page that `explore` writes.

use super::{Experiment, Grid, Show};
use crate::attention::Selection;
use crate::bail_usage;
use crate::measure::{MapSpec, TokenSpan};
use crate::probe::{Pooling, RowQuantity};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which maps are drawn, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Heatmap {
    /// What of them.
    pub map: MapKind,
    /// The layer; nothing for the one with the most attention to the answer, and of a text the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<usize>,
    /// The head of that layer; nothing for the mean over those selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// Every selected layer and head as small multiples, instead.
    pub every_head: bool,
    /// What pairs of tokens in one bin come to.
    pub pool: Pooling,
    /// Longer side of a map, in pixels.
    pub size_px: u32,
    /// Query tokens.
    pub queries: TokenSpan,
    /// Key tokens.
    pub keys: TokenSpan,
    /// Logarithmic colours.
    pub log: bool,
    /// Where the matrices are written too, as `.npy` or `.csv`; see `docs/questions.md` for the names of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Write them token by token instead of pooled.
    pub full: bool,
}

impl Default for Heatmap {
    fn default() -> Self {
        Self {
            map: MapKind::default(),
            layer: None,
            head: None,
            every_head: false,
            pool: Pooling::Max,
            size_px: 560,
            queries: TokenSpan::default(),
            keys: TokenSpan::default(),
            log: false,
            data: None,
            full: false,
        }
    }
}

/// What the page holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Explore {
    /// Heads of each model that are kept token by token.
    pub keep: usize,
    /// Size of the page in MB, at most; nothing for 15, or 40 of longer prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mb: Option<usize>,
}

impl Default for Explore {
    fn default() -> Self {
        Self { keep: 8, max_mb: None }
    }
}

/// What a heat map shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapKind {
    /// What weighs the values: A1 − λA2, or the only map.
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
    /// In the order of the panels.
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

/// Longest side of a small multiple, in pixels.
pub const SMALL_PX: u32 = 200;

/// Pixels per bin, at least: single pixels can hardly be seen.
const PIXELS_PER_BIN: u32 = 2;

/// The same of small multiples.
const PIXELS_PER_SMALL_BIN: u32 = 4;

/// Heads that a page can keep token by token.
const KEPT: std::ops::RangeInclusive<usize> = 1..=64;

/// Prompts up to this many tokens fill a small page and few bins; longer ones a large page and many bins.
pub(super) const SHORT_TOK: usize = 8192;
const SMALL_MB: usize = 15;
const LARGE_MB: usize = 40;

impl Heatmap {
    /// What can be said without the models.
    ///
    /// # Errors
    /// Usage errors with the field.
    pub(super) fn check(&self, ctx_tok: usize, select: &Selection) -> Result<()> {
        for (field, one, all) in [("layer", self.layer, &select.layers), ("head", self.head, &select.heads)] {
            if let (Some(one), Some(all)) = (one, all) {
                if !all.contains(&one) {
                    bail_usage!("`{field}` {one} is not among `{field}s`");
                }
            }
        }
        for (field, span) in [("queries", self.queries), ("keys", self.keys)] {
            if span.start >= ctx_tok {
                bail_usage!("`{field}` {span}: the prompt has tokens 0 to {}", ctx_tok.saturating_sub(1));
            }
        }
        if let Some(end) = self.queries.end.filter(|&end| self.keys.start >= end) {
            bail_usage!("`keys` {}: no query before token {end} sees these keys", self.keys);
        }
        if self.every_head && self.map == MapKind::All {
            bail_usage!("`every_head` draws one kind of map: give `map` effective, a1, a2, logits1 or logits2");
        }
        if self.every_head && (self.layer.is_some() || self.head.is_some() || self.data.is_some()) {
            bail_usage!("`every_head` draws all: leave `layer`, `head` and `data` out");
        }
        if !(64..=4096).contains(&self.size_px) {
            bail_usage!("`size_px` {}: a map can have 64 to 4096 pixels", self.size_px);
        }
        if self.full && self.data.is_none() {
            bail_usage!("`full` is about `data`: name its file");
        }
        if let Some(path) = &self.data {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("npy" | "csv")) {
                bail_usage!("`data` {}: the name must end in .npy or .csv", path.display());
            }
        }
        Ok(())
    }

    pub(super) fn spec(&self, bins: Option<usize>) -> MapSpec {
        MapSpec {
            quantities: self.map.quantities(),
            pooling: self.pool,
            bins,
            queries: self.queries,
            keys: self.keys,
            by_head: self.every_head,
        }
    }

    /// Bins along the longer side.
    pub(super) fn bins(&self) -> usize {
        let bins = if self.every_head {
            self.size_px.min(SMALL_PX) / PIXELS_PER_SMALL_BIN
        } else {
            self.size_px / PIXELS_PER_BIN
        };
        bins as usize
    }
}

impl Explore {
    /// What can be said without the models.
    ///
    /// # Errors
    /// A usage error.
    pub(super) fn check(&self) -> Result<()> {
        if !KEPT.contains(&self.keep) {
            bail_usage!("`keep` {}: {} to {} heads can be kept token by token", self.keep, KEPT.start(), KEPT.end());
        }
        if self.max_mb == Some(0) {
            bail_usage!("`max_mb` 0: the page itself takes half a megabyte");
        }
        Ok(())
    }

    /// Bytes of the page over a prompt of `ctx_tok` tokens, at most, about.
    pub fn budget(&self, ctx_tok: usize) -> usize {
        self.max_mb.unwrap_or(if ctx_tok > SHORT_TOK { LARGE_MB } else { SMALL_MB }) * 1_000_000
    }
}

impl Experiment {
    /// What is drawn, if maps are.
    pub fn heatmap(&self) -> Heatmap {
        self.heatmap.clone().unwrap_or_default()
    }

    /// What is kept, if a page is written.
    pub fn explore(&self) -> Explore {
        self.explore.clone().unwrap_or_default()
    }

    /// Whether maps can be shown of these prompts, which are one that asks one question, and as is asked for.
    ///
    /// # Errors
    /// Usage errors with the field.
    pub(super) fn check_maps(&self) -> Result<()> {
        for (key, given, show) in
            [("heatmap", self.heatmap.is_some(), "heatmap"), ("explore", self.explore.is_some(), "explore")]
        {
            if given && self.show.name() != show {
                bail_usage!("[{key}] is for show = \"{show}\"");
            }
        }
        if !self.show.is_of_maps() {
            return Ok(());
        }
        let asks = match &self.grid {
            Grid::Needle(grid) => grid.settings.iter().map(|&(_, retrieve)| retrieve).max(),
            Grid::Text(_) => Some(1),
            Grid::Shots(_) => None,
        };
        let of_one = "looks at one prompt that asks one question: one `ctx_tok`, one of `settings` with R = 1, one of \
                      `depths_pct`, `samples` = 1";
        if self.grid.count() != Some(1) || asks != Some(1) {
            bail_usage!("show = \"{}\" {of_one}", self.show.name());
        }
        if self.show == Show::Heatmap {
            return self.heatmap().check(self.grid.ctx_tok()[0], &self.select);
        }
        self.explore().check()
    }
}
