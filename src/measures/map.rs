//! Attention maps of one prompt, pooled into bins during the pass.

use super::pooled_map::{PooledMap, PooledMapCollector, PooledMapProbe, PooledMapSpec, Pooling, RowQuantity};
use super::{region_ranges, token_text, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey};
use anyhow::{bail, Result};
use engine::attention::RowProbe;
use names::{serde_as_str, HeadPlace, LayersAndHeads, Region};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use text::Prompt;

/// Attention maps of chosen heads of each model.
pub(crate) struct MapMeasure {
    /// The quantities, in the order of the panels.
    pub(crate) quantities: Vec<RowQuantity>,
    /// Largest number of bins along each side; `None` for one per token.
    pub(crate) bins: Option<usize>,
    /// Query tokens.
    pub(crate) queries: TokenSpan,
    /// Key tokens.
    pub(crate) keys: TokenSpan,
    /// Keep every head instead of the mean over heads.
    pub(crate) by_head: bool,
    /// The heads of each model.
    pub(crate) heads: Vec<LayersAndHeads>,
    /// The maps, by model and condition.
    pub(crate) maps: BTreeMap<PassKey, Maps>,
}

/// The maps of one model under one condition.
pub(crate) struct Maps {
    /// One map for each quantity that the model has and each head; without `by_head`, the mean over heads with the place
    /// of the first. A standard model has only the mixture, which equals its one map.
    pub(crate) maps: Vec<(RowQuantity, HeadPlace, PooledMap)>,
    /// The same for the target's rows, as one row of key bins.
    pub(crate) profiles: Vec<(RowQuantity, HeadPlace, PooledMap)>,
    /// Regions of the prompt for its first question.
    pub(crate) regions: Vec<(Region, Range<usize>)>,
    /// Query tokens of the maps.
    pub(crate) queries: Range<usize>,
    /// Key tokens of the maps.
    pub(crate) keys: Range<usize>,
    /// Texts of all tokens of the prompt.
    pub(crate) tokens: Vec<String>,
}

impl Measure for MapMeasure {
    /// Two probes for each quantity: of the map, and of the profile over the target's rows.
    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let queries = self.queries.within(prompt.ids.len());
        let keys = self.keys.within(prompt.ids.len());
        let target = prompt.targets().first().map_or(0..0, |target| target.rows.clone());
        let columns = self.bins.unwrap_or(usize::MAX);
        let mut probes: Vec<Box<dyn RowProbe>> = Vec::new();
        for &quantity in &self.quantities {
            for (queries, rows) in [(&queries, columns), (&target, 1)] {
                probes.push(Box::new(PooledMapProbe::new(PooledMapSpec {
                    heads: self.heads[model].clone(),
                    quantity,
                    pooling: Pooling::Max,
                    queries: queries.clone(),
                    keys: keys.clone(),
                    rows,
                    columns,
                })));
            }
        }
        probes
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let n_tok = pass.prompt.ids.len();
        let queries = self.queries.within(n_tok);
        let keys = self.keys.within(n_tok);
        for (field, range) in [("--query", &queries), ("--key", &keys)] {
            if range.is_empty() {
                bail!("{field}: the prompt has tokens 0 to {}, none of them in that range", n_tok - 1);
            }
        }
        let mut by_probe: BTreeMap<usize, Vec<HeadMap>> = BTreeMap::new();
        for result in pass.probe_results {
            let map = result.collector.into_collector::<PooledMapCollector>().map();
            // The second map of a standard model has only NaN.
            if map.values.iter().any(|value| !value.is_nan()) {
                by_probe.entry(result.probe).or_default().push((result.at, map));
            }
        }
        let asked = &self.quantities;
        let second = asked.iter().position(|&quantity| quantity == RowQuantity::Map(1));
        let lacks_second = second.is_some_and(|i| !by_probe.contains_key(&(2 * i)));
        if asked.contains(&RowQuantity::Effective) && lacks_second {
            // A standard model's only map equals its mixture: keep one of them.
            by_probe.retain(|probe, _| asked[probe / 2] != RowQuantity::Map(0));
        }
        let mut maps = Vec::new();
        let mut profiles = Vec::new();
        for (probe, heads) in by_probe {
            let list = if probe % 2 == 0 { &mut maps } else { &mut profiles };
            let heads = if self.by_head { heads } else { mean_over_heads(&heads) };
            list.extend(heads.into_iter().map(|(at, map)| (asked[probe / 2], at, map)));
        }
        let target = pass.prompt.targets().into_iter().next();
        let regions = target.map(|target| region_ranges(&target.regions)).unwrap_or_default();
        let tokens = pass.prompt.ids.iter().map(|&id| token_text(pass.tokenizer, id)).collect::<Result<_>>()?;
        output.pooled = Some(Box::new(Maps { maps, profiles, regions, queries, keys, tokens }));
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let maps = pooled.downcast::<Maps>().expect("this measure pools maps");
        self.maps.entry(key).or_insert(*maps);
    }
}

/// A head and its pooled map.
type HeadMap = (HeadPlace, PooledMap);

/// The mean over heads, with the place of the first; nothing without heads.
fn mean_over_heads(heads: &[HeadMap]) -> Vec<HeadMap> {
    let maps: Vec<&PooledMap> = heads.iter().map(|(_, map)| map).collect();
    PooledMap::mean(&maps).map(|mean| (heads[0].0, mean)).into_iter().collect()
}

/// A range of token positions: `4000..4096` without its end, or `4000..` up to the end of the text. The default is all
/// positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenSpan {
    /// First position.
    pub start: usize,
    /// One past the last position; `None` for the end of the text.
    pub end: Option<usize>,
}

impl TokenSpan {
    /// Reads a range, which may be empty; `None` of other text.
    fn read(text: &str) -> Option<Self> {
        let (start, end) = text.split_once("..")?;
        let start = if start.is_empty() { 0 } else { start.trim().parse().ok()? };
        let end = if end.is_empty() { None } else { Some(end.trim().parse().ok()?) };
        Some(Self { start, end })
    }

    /// The positions of this range in a prompt of `n_tok` tokens.
    pub(crate) fn within(self, n_tok: usize) -> Range<usize> {
        let end = self.end.unwrap_or(n_tok).min(n_tok);
        self.start.min(end)..end
    }
}

impl FromStr for TokenSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = Self::read(text);
        let span = span.ok_or_else(|| format!("`{text}` is not a range of token positions such as 0..80 or 4000.."))?;
        if span.end.is_some_and(|end| end <= span.start) {
            return Err(format!("`{text}` holds no token"));
        }
        Ok(span)
    }
}

impl fmt::Display for TokenSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.start)?;
        self.end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

serde_as_str!(TokenSpan);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_positions_may_be_open_but_not_empty() {
        let parse = |text: &str| text.parse::<TokenSpan>().map(|span| (span.start, span.end));
        assert_eq!(parse("10..20"), Ok((10, Some(20))));
        assert_eq!(parse("10.."), Ok((10, None)));
        assert_eq!(parse("..20"), Ok((0, Some(20))));
        for bad in ["", "10", "20..10", "5..5", "a..b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let span: TokenSpan = "10..20".parse().unwrap();
        assert_eq!(span.to_string().parse(), Ok(span));
    }
}
