//! Experiments on attention maps: which heads are drawn, whether their maps fit into memory, and their measures.

use super::maps::{Heatmap, MapKind, SHORT_TOK};
use super::{check_selection, Cell, Measures, Setup, Show};
use crate::attention::LayersAndHeads;
use crate::bail_usage;
use crate::base::memory::{check_fits, size_name};
use crate::explore::{agreements, ExploreMeasure, Resolution};
use crate::measures::{AnswerMeasure, MapMeasure};
use crate::model::open::Model;
use crate::results::metric::{ANSWER_REGION, SHARE_ABS};
use crate::results::DrawnHead;
use anyhow::Result;

/// Bytes of a bin of a map at full resolution: a sum, a count and the value.
const FULL_BIN_BYTES: u64 = 24;

/// Bins along a side of an explorer's maps, for short prompts.
const FEW_BINS: usize = 256;
/// Bins along a side of an explorer's maps, for long prompts.
const MANY_BINS: usize = 512;

/// Heads of each model that an explorer stores token by token.
pub(super) const KEPT_HEADS: usize = 8;

/// Approximate number of bins in the thumbnails of all heads of a model together.
const THUMB_BINS: f64 = 1.5e6;

impl Setup {
    /// Adds the measures of attention maps to `measures`.
    ///
    /// # Errors
    /// A usage error for layers, heads and maps that the models do not have, and for maps that do not fit.
    pub(super) fn add_maps(&self, measures: &mut Measures) -> Result<()> {
        match self.experiment.show {
            Show::Heatmap => {
                let spec = self.experiment.heatmap();
                let heads = self.drawn(&spec)?;
                if spec.full {
                    self.check_full(&spec, &heads)?;
                    measures.whole_maps = Some(MapMeasure::new(spec.spec(None), heads.clone()));
                }
                measures.maps = Some(MapMeasure::new(spec.spec(Some(spec.bins())), heads));
            }
            Show::Explore => {
                let agreements = self.models.iter().map(|model| agreements(&model.transformer));
                let agreements = agreements.collect::<Result<_>>()?;
                measures.explorer = Some(ExploreMeasure::new(self.resolutions(), agreements));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the heads of each model whose maps are drawn: those of the given layer and head, all of them, or those
    /// of the layer with the most attention to the answer, which takes an extra pass over the prompt.
    ///
    /// # Errors
    /// A usage error for layers, heads and maps that the models do not have.
    fn drawn(&self, spec: &Heatmap) -> Result<Vec<LayersAndHeads>> {
        if matches!(spec.map, MapKind::A2 | MapKind::Logits2) && !self.has_second_map() {
            bail_usage!("none of these models has a second map: give another --map");
        }
        self.models.iter().try_for_each(|model| check_selection(&self.experiment, model))?;
        let asked = &self.experiment.select;
        let heads = spec.head.map(|head| vec![head]).or(asked.heads.clone());
        let of_layer = |layer: usize| LayersAndHeads { layers: Some(vec![layer]), heads: heads.clone() };
        Ok(match spec.layer {
            _ if spec.every_head => vec![asked.clone(); self.models.len()],
            Some(layer) => vec![of_layer(layer); self.models.len()],
            None => self.layers_of_the_answer()?.into_iter().map(of_layer).collect(),
        })
    }

    /// Returns the heads that were drawn or stored token by token; those of an explorer with the best first.
    pub fn drawn_heads(&self, measures: &Measures) -> Vec<DrawnHead> {
        let mut drawn = Vec::new();
        let mut add = |model: &Model, (layer, head)| drawn.push(DrawnHead { model: model.name.clone(), layer, head });
        if let Some(explorer) = &measures.explorer {
            for (key, found) in explorer.found.iter().filter(|(key, _)| key.condition == 0) {
                found.details.iter().for_each(|head| add(&self.models[key.model], head.at));
            }
        }
        if let Some(maps) = &measures.maps {
            for (model, selection) in self.models.iter().zip(&maps.heads) {
                let config = &model.transformer.config;
                let heads = config.wiring().heads();
                let all = (0..config.layers.len()).flat_map(|layer| (0..heads).map(move |head| (layer, head)));
                all.filter(|&(layer, head)| selection.has(layer, head)).for_each(|at| add(model, at));
            }
        }
        drawn
    }

    /// Returns the layer of each model with the most attention to the answer; for a text, which has no answer, the last
    /// layer.
    fn layers_of_the_answer(&self) -> Result<Vec<usize>> {
        let (cells, measure) = (self.grid.cells(), AnswerMeasure { by_head: true, sinks: false });
        self.check(&cells)?;
        Ok((0..self.models.len()).map(|model| self.layer_of_the_answer(model, &cells[0], &measure)).collect())
    }

    fn layer_of_the_answer(&self, index: usize, cell: &Cell, measure: &AnswerMeasure) -> usize {
        let model = &self.models[index];
        let prompt = cell.prompt(self.grid.seed(), &self.sources, model.tokenizer());
        // An error of this prompt occurs again in the run, which reports it.
        let found = |prompt| self.untreated_records(index, &self.experiment.select, (cell, &prompt, None), &[measure]);
        let records = prompt.and_then(found).unwrap_or_default();
        let mut answer = vec![0.0; model.transformer.config.layers.len()];
        for m in records.iter().map(|record| &record.measure) {
            let is_answer = m.metric == SHARE_ABS.name && m.region.as_deref() == Some(ANSWER_REGION);
            if let (true, Some(layer), Some(_), Some(share)) = (is_answer, m.layer, m.head, m.value) {
                answer[layer] += share;
            }
        }
        let asked = &self.experiment.select.layers;
        let allowed = |layer: &usize| asked.as_ref().is_none_or(|layers| layers.contains(layer));
        let most = (0..answer.len()).filter(allowed).max_by(|&a, &b| answer[a].total_cmp(&answer[b]));
        most.unwrap_or(0)
    }

    /// Checks that maps at full resolution fit into memory.
    fn check_full(&self, spec: &Heatmap, drawn: &[LayersAndHeads]) -> Result<()> {
        let ctx_tok = self.grid.ctx_tok()[0];
        let (queries, keys) = (spec.queries.within(ctx_tok).len(), spec.keys.within(ctx_tok).len());
        let heads = |(model, selection): (&Model, &LayersAndHeads)| {
            selection.heads.as_ref().map_or(model.transformer.config.wiring().heads(), Vec::len)
        };
        let maps: usize = self.models.iter().zip(drawn).map(heads).sum();
        let bytes = (queries * keys * maps * spec.map.quantities().len()) as u64 * FULL_BIN_BYTES;
        let takes = || format!("--full: {maps} maps of {queries} x {keys} tokens take about {}", size_name(bytes));
        let change = "zoom in with --query and --key, choose a --head, or leave --full out";
        check_fits(2 * bytes, takes, change) // half of the free memory is for the passes
    }

    /// Returns the resolution of each model's maps in an explorer.
    fn resolutions(&self) -> Vec<Resolution> {
        let tokens = self.grid.ctx_tok()[0];
        let bins = if tokens > SHORT_TOK { MANY_BINS } else { FEW_BINS };
        let bin_tok = tokens.div_ceil(bins).next_power_of_two();
        let resolution = |model: &Model| {
            let config = &model.transformer.config;
            let heads = config.layers.len() * config.wiring().heads();
            let thumb_bins = ((THUMB_BINS / heads as f64).sqrt() as usize).clamp(16, 64);
            Resolution { maps: config.wiring().maps(), heads: KEPT_HEADS, bin_tok, thumb_bins }
        };
        self.models.iter().map(resolution).collect()
    }
}
