//! Attention maps of one prompt, pooled into bins during the pass.

use super::{token_text, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey, TokenSpan};
use crate::attention::{LayersAndHeads, RowProbe};
use crate::measures::probe::{runs, GridCollector, GridMean, GridProbe, GridSpec, PooledMap, Pooling, RowQuantity};
use crate::prompts::{Prompt, Region, Tokenizer};
use anyhow::{bail, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Longest axis with token texts, in tokens.
const TEXTS: usize = 80;

/// (Layer, head) and the pooled map of that head.
type HeadMap = ((usize, usize), PooledMap);

/// Settings of the maps.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// The quantities, in the order of the panels.
    pub quantities: Vec<RowQuantity>,
    /// Largest number of bins along each side; `None` for one per token.
    pub bins: Option<usize>,
    /// Query tokens.
    pub queries: TokenSpan,
    /// Key tokens.
    pub keys: TokenSpan,
    /// Keep every head instead of the mean over heads.
    pub by_head: bool,
}

/// Attention maps of chosen heads of each model.
pub struct MapMeasure {
    /// Settings of the maps.
    pub spec: MapSpec,
    /// The heads of each model.
    pub heads: Vec<LayersAndHeads>,
    /// The maps, by model and condition.
    pub maps: BTreeMap<PassKey, Maps>,
}

/// The maps of one model under one condition.
#[derive(Clone, Debug)]
pub struct Maps {
    /// One map for each quantity that the model has and each (layer, head); without `by_head`, the mean over heads with
    /// the first (layer, head). A standard model has only the mixture, which equals its one map.
    pub grids: Vec<(RowQuantity, (usize, usize), PooledMap)>,
    /// The same for the target's rows, as one row of key bins.
    pub profiles: Vec<(RowQuantity, (usize, usize), PooledMap)>,
    /// Regions of the prompt for its first question.
    pub regions: Vec<(Region, Range<usize>)>,
    /// Query tokens of the maps.
    pub queries: Range<usize>,
    /// Key tokens of the maps.
    pub keys: Range<usize>,
    /// Texts of the query tokens; empty if there are more than 80.
    pub query_texts: Vec<String>,
    /// Texts of the key tokens; empty if there are more than 80.
    pub key_texts: Vec<String>,
}

impl MapMeasure {
    /// Creates a measure for these heads of each model.
    pub fn new(spec: MapSpec, heads: Vec<LayersAndHeads>) -> Self {
        Self { spec, heads, maps: BTreeMap::new() }
    }

    /// Returns, for each quantity, the grid of the map and the grid of the target's rows.
    fn specs(&self, model: usize, prompt: &Prompt) -> Vec<GridSpec> {
        let queries = self.spec.queries.within(prompt.ids.len());
        let keys = self.spec.keys.within(prompt.ids.len());
        let target = prompt.targets().first().map_or(0..0, |target| target.rows.clone());
        let bins = self.spec.bins.unwrap_or(usize::MAX);
        let of = |quantity: &RowQuantity, queries: &Range<usize>, rows: usize| GridSpec {
            heads: self.heads[model].clone(),
            quantity: *quantity,
            pooling: Pooling::Max,
            queries: queries.clone(),
            keys: keys.clone(),
            rows,
            columns: bins,
        };
        self.spec.quantities.iter().flat_map(|q| [of(q, &queries, bins), of(q, &target, 1)]).collect()
    }
}

impl Measure for MapMeasure {
    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let boxed = |spec| Box::new(GridProbe::new(spec)) as Box<dyn RowProbe>;
        self.specs(model, prompt).into_iter().map(boxed).collect()
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let n_tok = pass.prompt.ids.len();
        let (queries, keys) = (self.spec.queries.within(n_tok), self.spec.keys.within(n_tok));
        for (field, range) in [("--query", &queries), ("--key", &keys)] {
            if range.is_empty() {
                bail!("{field}: the prompt has tokens 0 to {}, none of them in that range", n_tok - 1);
            }
        }
        let mut found: BTreeMap<usize, Vec<HeadMap>> = BTreeMap::new();
        for result in pass.probe_results {
            let collector = result.collector.into_collector::<GridCollector>();
            // The second map of a standard model has only NaN.
            let grid = collector.grid();
            if grid.values.iter().any(|value| !value.is_nan()) {
                found.entry(result.probe).or_default().push(((result.layer, result.head), grid));
            }
        }
        let asked = &self.spec.quantities;
        let lacks = |quantity| asked.iter().position(|&q| q == quantity).is_some_and(|i| !found.contains_key(&(2 * i)));
        if asked.contains(&RowQuantity::Effective) && lacks(RowQuantity::Map(1)) {
            // A standard model's only map equals its mixture: keep one of them.
            found.retain(|probe, _| asked[probe / 2] != RowQuantity::Map(0));
        }
        let (mut grids, mut profiles) = (Vec::new(), Vec::new());
        for (probe, heads) in found {
            let list = if probe % 2 == 0 { &mut grids } else { &mut profiles };
            let quantity = self.spec.quantities[probe / 2];
            let heads = if self.spec.by_head { heads } else { mean_over_heads(heads)? };
            list.extend(heads.into_iter().map(|(at, grid)| (quantity, at, grid)));
        }
        let first = pass.prompt.targets().into_iter().next();
        let regions = first.map(|target| runs(&target.regions)).unwrap_or_default();
        let texts = |range: &Range<usize>| texts(range, &pass.prompt.ids, pass.tokenizer);
        let (query_texts, key_texts) = (texts(&queries)?, texts(&keys)?);
        output.pooled =
            Some(Box::new(Maps { grids, profiles, regions, queries, keys, query_texts, key_texts }) as MeasureData);
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let maps = pooled.downcast::<Maps>().expect("this measure pools maps");
        self.maps.entry(key).or_insert(*maps);
    }
}

fn mean_over_heads(heads: Vec<HeadMap>) -> Result<Vec<HeadMap>> {
    let mut mean = GridMean::default();
    for (_, grid) in &heads {
        mean.add(grid)?;
    }
    let first = heads.first().map(|(at, _)| *at);
    Ok(first.zip(mean.grid()).into_iter().collect())
}

/// Returns the texts of a range of tokens; none if there are too many to draw.
fn texts(range: &Range<usize>, ids: &[u32], tokenizer: Option<&Tokenizer>) -> Result<Vec<String>> {
    if range.len() > TEXTS {
        return Ok(Vec::new());
    }
    ids[range.clone()].iter().map(|&id| token_text(tokenizer, id)).collect()
}
