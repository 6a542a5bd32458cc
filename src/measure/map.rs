//! Pictures of attention maps of one prompt, pooled to bins as their rows pass.

use super::{token_text, Extent, Findings, Kept, Measure, Place, Seen, TokenSpan};
use crate::attention::{RowProbe, Selection};
use crate::probe::{runs, GridMean, GridProbe, GridSink, GridSpec, PooledMap, Pooling, RowQuantity};
use crate::prompt::{Prompt, Region, Tokenizer};
use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Token texts are kept of at most this many tokens of an axis.
const TEXTS: usize = 80;

/// Layer and head, and the picture of that head.
type HeadMap = ((usize, usize), PooledMap);

/// What is pictured.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// What of the rows, in the order of the panels.
    pub quantities: Vec<RowQuantity>,
    /// What a bin keeps.
    pub pooling: Pooling,
    /// Bins in each direction, at most; nothing for one per token.
    pub bins: Option<usize>,
    /// Query tokens.
    pub queries: TokenSpan,
    /// Key tokens.
    pub keys: TokenSpan,
    /// Keep every head by itself instead of the mean over heads.
    pub by_head: bool,
}

/// Pictures the chosen heads of each model.
pub struct MapMeasure {
    /// What is pictured.
    pub spec: MapSpec,
    /// The heads of each model.
    pub heads: Vec<Selection>,
    /// The pictures, by model and condition.
    pub maps: BTreeMap<Place, Maps>,
    /// Memory that drawing them will take, in bytes, for the estimate.
    pub drawing_bytes: u64,
}

/// A head that is drawn, or kept token by token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnHead {
    /// Name of the model.
    pub model: String,
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
}

/// The pictures of one model.
#[derive(Clone, Debug)]
pub struct Maps {
    /// One for each quantity that the model has and each (layer, head); without `by_head` the mean over heads under
    /// the first of them. Of a standard model's map and its mixture, which are the same, only the mixture.
    pub grids: Vec<(RowQuantity, (usize, usize), PooledMap)>,
    /// The attention of the target's rows by key bin, (layer, head) as above: one row of bins for each quantity.
    pub profiles: Vec<(RowQuantity, (usize, usize), PooledMap)>,
    /// Regions of the prompt as seen from its first question.
    pub regions: Vec<(Region, Range<usize>)>,
    /// Query tokens pictured.
    pub queries: Range<usize>,
    /// Key tokens pictured.
    pub keys: Range<usize>,
    /// Texts of the query tokens, if they are few.
    pub query_texts: Vec<String>,
    /// Texts of the key tokens, if they are few.
    pub key_texts: Vec<String>,
}

impl MapMeasure {
    /// A measure of these heads of each model.
    pub fn new(spec: MapSpec, heads: Vec<Selection>) -> Self {
        Self { spec, heads, maps: BTreeMap::new(), drawing_bytes: 0 }
    }

    /// One grid of the map and one of the target's rows for each quantity.
    fn specs(&self, model: usize, prompt: &Prompt) -> Vec<GridSpec> {
        let queries = self.spec.queries.within(prompt.ids.len());
        let keys = self.spec.keys.within(prompt.ids.len());
        let target = prompt.targets().first().map_or(0..0, |target| target.rows.clone());
        let bins = self.spec.bins.unwrap_or(usize::MAX);
        let of = |quantity: &RowQuantity, queries: &Range<usize>, rows: usize| GridSpec {
            heads: self.heads[model].clone(),
            quantity: *quantity,
            pooling: self.spec.pooling,
            queries: queries.clone(),
            keys: keys.clone(),
            rows,
            columns: bins,
        };
        self.spec.quantities.iter().flat_map(|q| [of(q, &queries, bins), of(q, &target, 1)]).collect()
    }
}

/// Bytes of a bin while the map of its head is pooled and turned into a grid with its counts of pairs, as measured.
const BIN_BYTES: u64 = 18;

/// Bytes of a bin of the mean over heads while it is taken: a sum and a count.
const MEAN_BYTES: u64 = 16;

impl Measure for MapMeasure {
    fn memory_bytes(&self, extent: &Extent) -> u64 {
        let of = |all: usize, asked: &Option<Vec<usize>>| asked.as_ref().map_or(all, Vec::len);
        let selection = &self.heads[extent.model];
        let heads = of(extent.layers, &selection.layers) * of(extent.heads, &selection.heads);
        let quantities = self.spec.quantities.len();
        let tokens = |span: TokenSpan| span.within(extent.ctx_tok).len();
        let (queries, keys) = (tokens(self.spec.queries), tokens(self.spec.keys));
        let bins = |tokens: usize| self.spec.bins.map_or(tokens, |bins| bins.min(tokens)) as u64;
        let map = bins(queries) * bins(keys);
        let mean = if self.spec.by_head { 0 } else { MEAN_BYTES * map };
        quantities as u64 * (heads as u64 * (BIN_BYTES * map + 16 * queries as u64) + mean)
    }

    fn showing_bytes(&self) -> u64 {
        self.drawing_bytes
    }

    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let boxed = |spec| Box::new(GridProbe::new(spec)) as Box<dyn RowProbe>;
        self.specs(model, prompt).into_iter().map(boxed).collect()
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let n_tok = seen.prompt.ids.len();
        let (queries, keys) = (self.spec.queries.within(n_tok), self.spec.keys.within(n_tok));
        for (field, range) in [("`queries`", &queries), ("`keys`", &keys)] {
            if range.is_empty() {
                bail!("{field}: the prompt has tokens 0 to {}, none of them in that range", n_tok - 1);
            }
        }
        let mut found: BTreeMap<usize, Vec<HeadMap>> = BTreeMap::new();
        for result in seen.probe_results {
            let sink = result.sink.into_sink::<GridSink>();
            // A model without a second map has nothing to picture there.
            let grid = sink.grid();
            if grid.values.iter().any(|value| !value.is_nan()) {
                found.entry(result.probe).or_default().push(((result.layer, result.head), grid));
            }
        }
        let asked = &self.spec.quantities;
        let lacks = |quantity| asked.iter().position(|&q| q == quantity).is_some_and(|i| !found.contains_key(&(2 * i)));
        if asked.contains(&RowQuantity::Effective) && lacks(RowQuantity::Map(1)) {
            // A standard model's only map is its mixture: one picture shows both.
            found.retain(|probe, _| asked[probe / 2] != RowQuantity::Map(0));
        }
        let (mut grids, mut profiles) = (Vec::new(), Vec::new());
        for (probe, heads) in found {
            let list = if probe % 2 == 0 { &mut grids } else { &mut profiles };
            let quantity = self.spec.quantities[probe / 2];
            let heads = if self.spec.by_head { heads } else { mean_over_heads(heads)? };
            list.extend(heads.into_iter().map(|(at, grid)| (quantity, at, grid)));
        }
        let first = seen.prompt.targets().into_iter().next();
        let regions = first.map(|target| runs(&target.regions)).unwrap_or_default();
        let texts = |range: &Range<usize>| texts(range, &seen.prompt.ids, seen.tokenizer);
        let (query_texts, key_texts) = (texts(&queries)?, texts(&keys)?);
        findings.pooled =
            Some(Box::new(Maps { grids, profiles, regions, queries, keys, query_texts, key_texts }) as Kept);
        Ok(())
    }

    fn absorb(&mut self, place: Place, pooled: Kept) {
        let maps = pooled.downcast::<Maps>().expect("this measure pools maps");
        self.maps.entry(place).or_insert(*maps);
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

/// The texts of a range of tokens; nothing if there are too many to be read.
fn texts(range: &Range<usize>, ids: &[u32], tokenizer: Option<&Tokenizer>) -> Result<Vec<String>> {
    if range.len() > TEXTS {
        return Ok(Vec::new());
    }
    ids[range.clone()].iter().map(|&id| token_text(tokenizer, id)).collect()
}
