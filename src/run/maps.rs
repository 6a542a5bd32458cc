//! Maps of one prompt: those that `heatmap` draws and `explore` writes, and their measures.

use super::prompt::PromptRun;
use super::reference::bringers;
use super::{check, MapsOfOnePrompt, Setup};
use crate::explore::{agreements, ExploreMeasure, KnownHeads, Resolution};
use crate::measures::{AnswerMeasure, MapMeasure, Measure, Measures, RowQuantity, ShapeMeasure, TokenSpan};
use crate::results::DrawnHead;
use anyhow::Result;
use base::bail_usage;
use clap::{Args, ValueEnum};
use names::metric::{ANSWER_REGION, SHARE_ABS, SINK_SHARE_FIRST};
use names::{HeadPlace, LayersAndHeads};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use text::{Grid, PlannedPrompt};

/// Settings of `heatmap`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct MapFlags {
    /// Kind of map
    #[arg(long, value_enum, ignore_case = true, default_value_t = MapKind::Effective)]
    pub map: MapKind,
    /// Layer, counted from 0 [default: the layer with the most attention to the answer; in a text, with the least to the first token]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "L", value_parser = names::values::index)]
    pub layer: Option<usize>,
    /// Head of that layer, counted from 0 [default: the mean over heads]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "H", value_parser = names::values::index)]
    pub head: Option<usize>,
    /// Draw every layer and head as a small map
    #[serde(rename = "grid")]
    #[arg(long = "grid", conflicts_with_all = ["layer", "head"], hide_short_help = true)]
    pub every_head: bool,
    /// Queries (rows) to draw, as in 4000..4096 [default: all]
    #[serde(rename = "query")]
    #[arg(
        long = "query",
        value_name = "FROM..TO",
        default_value = "0..",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub queries: TokenSpan,
    /// Keys (columns) to draw, as in 0..80 [default: all]
    #[serde(rename = "key")]
    #[arg(
        long = "key",
        value_name = "FROM..TO",
        default_value = "0..",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub keys: TokenSpan,
    /// Also write the matrices: each as a .npy or .csv file, whose name gets model, layer, head and map if there are several,
    /// or all into one .npz
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub data: Option<PathBuf>,
    /// Write --data token by token instead of pooled
    #[arg(long, requires = "data", hide_short_help = true)]
    pub full: bool,
}

/// The kind of attention map.
#[derive(Clone, Copy, Debug, ValueEnum, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapKind {
    /// Weights of the values: A1 - lambda A2, or the only map
    #[default]
    Effective,
    /// The first softmax map
    A1,
    /// The second softmax map
    A2,
    /// Scaled logits of the first map
    Logits1,
    /// Scaled logits of the second map
    Logits2,
    /// A1, A2, lambda A2 and A1 - lambda A2 in one figure
    All,
}

impl MapKind {
    /// The quantities of the panels, in order.
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
const SHORT_TOK: usize = 8192;
/// Approximate size limit of the page of a short prompt.
const SMALL_MB: usize = 15;
/// Approximate size limit of the page of a long prompt.
const LARGE_MB: usize = 40;

/// Bins along a side of an explorer's maps, for short prompts.
const FEW_BINS: usize = 256;
/// Bins along a side of an explorer's maps, for long prompts.
const MANY_BINS: usize = 512;

/// Heads of each model that an explorer stores token by token.
const KEPT_HEADS: usize = 8;

/// Approximate number of bins in the thumbnails of all heads of a model together.
const THUMB_BINS: f64 = 1.5e6;

impl MapFlags {
    /// Returns `true` if the layer that is drawn is chosen by a pass over the prompt.
    pub(super) fn chooses_layers(&self) -> bool {
        !self.every_head && self.layer.is_none()
    }

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
        if self.every_head && (self.layer.is_some() || self.head.is_some()) {
            bail_usage!("--grid draws every layer and head: leave --layer and --head out");
        }
        if self.full && self.data.is_none() {
            bail_usage!("--full needs --data FILE, the file to write");
        }
        if let Some(path) = &self.data {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("npy" | "npz" | "csv")) {
                bail_usage!("--data {}: the name must end in .npy, .npz or .csv", path.display());
            }
        }
        Ok(())
    }

    /// The measure of maps of these heads of each model, with at most this number of bins along a side; `None` for
    /// one per token.
    pub(super) fn measure(&self, bins: Option<usize>, heads: Vec<LayersAndHeads>) -> MapMeasure {
        MapMeasure {
            quantities: self.map.quantities(),
            bins,
            queries: self.queries,
            keys: self.keys,
            by_head: self.every_head,
            heads,
            maps: BTreeMap::new(),
        }
    }

    /// The number of bins along the longer side.
    pub(super) fn bins(&self) -> usize {
        let bins = if self.every_head { SMALL_PX / PIXELS_PER_SMALL_BIN } else { MAP_PX / PIXELS_PER_BIN };
        bins as usize
    }
}

/// The approximate size limit of an explorer's page for a prompt of `ctx_tok` tokens, in bytes.
pub fn page_budget(ctx_tok: usize) -> usize {
    (if ctx_tok > SHORT_TOK { LARGE_MB } else { SMALL_MB }) * 1_000_000
}

/// Adds the measures of attention maps to `measures`.
///
/// # Errors
/// A usage error for layers, heads and maps that the models do not have, and for maps that do not fit.
pub(super) fn add_maps(setup: &Setup, measures: &mut Measures) -> Result<()> {
    match &setup.plan.maps {
        Some(MapsOfOnePrompt::Heatmap(spec)) => {
            let heads = drawn(setup, spec)?;
            measures.push(spec.measure(Some(spec.bins()), heads.clone()));
            if spec.full {
                measures.push(spec.measure(None, heads));
            }
        }
        Some(MapsOfOnePrompt::Explorer) => {
            check(setup, &setup.grid.prompts())?;
            let mut known = Vec::new();
            for (index, model) in setup.models.iter().enumerate() {
                // Where these prompts cannot be measured, the answer's share ranks heads.
                let scores = bringers(setup, index).unwrap_or_default();
                known.push(KnownHeads { agreements: agreements(&model.transformer)?, scores });
            }
            measures.push(ExploreMeasure::new(resolutions(setup), known));
        }
        None => {}
    }
    Ok(())
}

/// The heads of each model whose maps are drawn: those of the given layer and head, all of them, or those
/// of the layer that has most to see, which takes an extra pass over the prompt.
///
/// # Errors
/// A usage error for layers, heads and maps that the models do not have.
fn drawn(setup: &Setup, spec: &MapFlags) -> Result<Vec<LayersAndHeads>> {
    if matches!(spec.map, MapKind::A2 | MapKind::Logits2) && !setup.has_second_map() {
        bail_usage!("none of these models has a second map: give another --map");
    }
    let asked = &setup.plan.passes.select;
    if spec.every_head {
        return Ok(vec![asked.clone(); setup.models.len()]);
    }
    let layers = match spec.layer {
        Some(layer) => vec![layer; setup.models.len()],
        None => layers_to_draw(setup)?,
    };
    let heads = spec.head.map(|head| vec![head]).or(asked.heads.clone());
    Ok(layers.into_iter().map(|layer| LayersAndHeads { layers: Some(vec![layer]), heads: heads.clone() }).collect())
}

/// The heads that were drawn or stored token by token; those of an explorer with the best first.
pub(super) fn drawn_heads(setup: &Setup, measures: &Measures) -> Vec<DrawnHead> {
    let mut drawn = Vec::new();
    for explorer in measures.of_type::<ExploreMeasure>() {
        for (key, maps) in explorer.of_passes.iter().filter(|(key, _)| key.condition == 0) {
            let model = &setup.models[key.model].name;
            drawn.extend(maps.details.iter().map(|head| DrawnHead::new(model, head.at)));
        }
    }
    if let Some(maps) = measures.of_type::<MapMeasure>().next() {
        for (model, selection) in setup.models.iter().zip(&maps.heads) {
            let config = &model.transformer.config;
            let all = HeadPlace::all(config.layers.len(), config.wiring().heads());
            let heads = all.filter(|at| selection.has(*at));
            drawn.extend(heads.map(|at| DrawnHead::new(&model.name, at)));
        }
    }
    drawn
}

/// The layer of each model with the head that brings the answer most; where that is not measured, with the most attention to the
/// answer; in a text, which has no answer, with the least to the first token.
fn layers_to_draw(setup: &Setup) -> Result<Vec<usize>> {
    let prompts = setup.grid.prompts();
    check(setup, &prompts)?;
    Ok((0..setup.models.len()).map(|model| layer_to_draw(setup, model, &prompts[0])).collect())
}

fn layer_to_draw(setup: &Setup, index: usize, planned: &PlannedPrompt) -> usize {
    let model = &setup.models[index];
    let select = &setup.plan.passes.select;
    // Where these prompts cannot be measured, attention to the answer decides.
    let scores = bringers(setup, index).unwrap_or_default();
    if let Some((at, _)) = scores.iter().filter(|(at, _)| select.has(**at)).max_by(|a, b| a.1.total_cmp(b.1)) {
        return at.layer;
    }
    let is_text = matches!(setup.grid, Grid::Text(_));
    let (metric, region, sign) =
        if is_text { (SINK_SHARE_FIRST.name, None, -1.0) } else { (SHARE_ABS.name, Some(ANSWER_REGION), 1.0) };
    let measure: &dyn Measure = if is_text { &ShapeMeasure } else { &AnswerMeasure { by_head: true, sinks: false } };
    let records = planned
        .build(setup.grid.seed(), &setup.sources, model.tokenizer())
        .and_then(|prompt| {
            let measures = [measure];
            PromptRun { setup, model: index, planned, prompt: &prompt, only: select, measures: &measures }
                .untreated(None)
        })
        .unwrap_or_default(); // an error of this prompt occurs again in the run, which reports it
    let mut seen = vec![0.0; model.transformer.config.layers.len()];
    for m in records.iter().map(|record| &record.measure) {
        let is_asked = m.metric == metric && m.region.as_deref() == region;
        if let (true, Some(layer), Some(_), Some(share)) = (is_asked, m.layer, m.head, m.value) {
            seen[layer] += sign * share;
        }
    }
    (0..seen.len())
        .filter(|layer| select.layers.as_ref().is_none_or(|layers| layers.contains(layer)))
        .max_by(|&a, &b| seen[a].total_cmp(&seen[b]))
        .unwrap_or(0)
}

/// The resolution of each model's maps in an explorer.
fn resolutions(setup: &Setup) -> Vec<Resolution> {
    let tokens = setup.grid.ctx_tok()[0];
    let bins = if tokens > SHORT_TOK { MANY_BINS } else { FEW_BINS };
    let bin_tok = tokens.div_ceil(bins).next_power_of_two();
    let mut resolutions = Vec::new();
    for model in &setup.models {
        let layers = model.transformer.config.layers.len();
        let wiring = model.transformer.config.wiring();
        let thumb_bins = ((THUMB_BINS / (layers * wiring.heads()) as f64).sqrt() as usize).clamp(16, 64);
        let thumb_tok = tokens.div_ceil(thumb_bins).next_power_of_two().max(bin_tok);
        resolutions.push(Resolution { maps: wiring.maps(), heads: KEPT_HEADS, bin_tok, thumb_tok });
    }
    resolutions
}
