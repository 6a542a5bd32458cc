//! Pooled attention maps: rows are added to bins one by one, so that the T x T map is never stored.

use engine::attention::{AttentionRow, RowCollector, RowProbe};
use names::{HeadPlace, LayersAndHeads};
use stats::simd::{add_segments, higher_peak, peak_segments};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The pooled quantity of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowQuantity {
    /// The mixture.
    Effective,
    /// The softmax map j = 0, 1.
    Map(usize),
    /// The subtracted part: lambda times map 1.
    Subtracted,
    /// The logits of map j = 0, 1.
    Logits(usize),
}

impl RowQuantity {
    /// The values of a row with a factor on them; `None` if the model has no such map.
    fn of_row<'a>(self, row: &AttentionRow<'a>) -> Option<(&'a [f32], f32)> {
        match self {
            RowQuantity::Effective => Some((row.effective, 1.0)),
            RowQuantity::Map(map) => Some((row.maps.get(map)?, 1.0)),
            RowQuantity::Subtracted => Some((row.maps.get(1)?, -*row.mix.get(1)?)),
            RowQuantity::Logits(map) => Some((row.logits.get(map)?, 1.0)),
        }
    }

    /// The quantity for the sink; `None` without sinks and for logits.
    fn of_sink(self, row: &AttentionRow<'_>) -> Option<f32> {
        match self {
            RowQuantity::Effective if row.sinks.is_empty() => None,
            RowQuantity::Effective => Some(row.sinks.iter().zip(row.mix).map(|(sink, mix)| sink * mix).sum()),
            RowQuantity::Map(map) => row.sinks.get(map).copied(),
            RowQuantity::Subtracted => Some(row.sinks.get(1)? * -*row.mix.get(1)?),
            RowQuantity::Logits(_) => None,
        }
    }
}

/// Reduction of the (query, key) pairs in a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The value of largest magnitude, with its sign. Positive if -a and a tie.
    Max,
    /// The mean over the visible pairs.
    Mean,
}

/// Part of the maps, quantity and resolution of a pooled map.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledMapSpec {
    /// Heads to pool, each separately. A large model has too many heads to keep half a million bins for each.
    pub heads: LayersAndHeads,
    pub quantity: RowQuantity,
    /// Reduction within a bin.
    pub pooling: Pooling,
    /// Token positions of the queries.
    pub queries: Range<usize>,
    /// Token positions of the keys.
    pub keys: Range<usize>,
    /// Maximum number of query bins, limited by the number of queries. 1 gives a profile over keys.
    pub rows: usize,
    /// Maximum number of key bins.
    pub columns: usize,
}

/// Pools rows into one [`PooledMap`] per head.
pub struct PooledMapProbe {
    plan: Arc<PooledMapPlan>,
}

struct PooledMapPlan {
    spec: PooledMapSpec,
    row_edges: Vec<usize>,
    column_edges: Vec<usize>,
}

impl PooledMapProbe {
    /// Creates a probe for a part of the map. An empty range gives a map without bins.
    pub fn new(spec: PooledMapSpec) -> Self {
        let row_edges = edges(&spec.queries, spec.rows);
        let column_edges = edges(&spec.keys, spec.columns);
        Self { plan: Arc::new(PooledMapPlan { spec, row_edges, column_edges }) }
    }
}

/// The edges of at most `bins` bins over tokens: bin i of n over t tokens covers floor(i t / n)..floor((i + 1) t / n).
fn edges(tokens: &Range<usize>, bins: usize) -> Vec<usize> {
    let bins = bins.min(tokens.len());
    (0..=bins).map(|i| tokens.start + (i * tokens.len()).checked_div(bins).unwrap_or(0)).collect()
}

impl RowProbe for PooledMapProbe {
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool {
        let spec = &self.plan.spec;
        let bins = self.plan.row_edges.len() > 1 && self.plan.column_edges.len() > 1;
        bins && spec.queries.contains(&query) && spec.heads.has(HeadPlace { layer, head })
    }

    fn wants_logits(&self) -> bool {
        matches!(self.plan.spec.quantity, RowQuantity::Logits(_))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(PooledMapCollector { plan: Arc::clone(&self.plan), rows: BTreeMap::new() })
    }
}

/// The bins of one head, as far as rows were observed.
pub struct PooledMapCollector {
    plan: Arc<PooledMapPlan>,
    rows: BTreeMap<usize, BinRow>,
}

/// One row of bins, up to the last visible key.
#[derive(Default)]
struct BinRow {
    /// Visible keys of each query.
    seen: Vec<Range<usize>>,
    /// For [`Pooling::Mean`].
    sums: Vec<f64>,
    /// For [`Pooling::Max`].
    peaks: Vec<f32>,
    /// Weight of the sink for each query; empty without sinks.
    sinks: Vec<f32>,
}

impl BinRow {
    fn observe(&mut self, seen: Range<usize>, values: &[f32], factor: f32, plan: &PooledMapPlan) {
        let all = &plan.column_edges;
        // Keys before a window belong to no bin.
        let clipped = (seen.start > 0).then(|| all.iter().map(|&edge| edge.max(seen.start)).collect::<Vec<_>>());
        let edges = clipped.as_ref().unwrap_or(all);
        let visible = all[..all.len() - 1].partition_point(|&start| start < seen.end);
        self.seen.push(seen);
        if plan.spec.pooling == Pooling::Max {
            self.peaks.resize(visible.max(self.peaks.len()), f32::NAN);
            peak_segments(values, edges, factor, &mut self.peaks[..visible]);
        } else {
            self.sums.resize(visible.max(self.sums.len()), 0.0);
            add_segments(values, edges, f64::from(factor), &mut self.sums[..visible]);
        }
    }

    fn merge(&mut self, later: &BinRow) {
        self.seen.extend(later.seen.iter().cloned());
        self.sums.resize(self.sums.len().max(later.sums.len()), 0.0);
        self.sums.iter_mut().zip(&later.sums).for_each(|(mine, theirs)| *mine += theirs);
        self.peaks.resize(self.peaks.len().max(later.peaks.len()), f32::NAN);
        self.peaks.iter_mut().zip(&later.peaks).for_each(|(mine, theirs)| *mine = higher_peak(*mine, *theirs));
        self.sinks.extend(&later.sinks);
    }

    /// The number of visible pairs in a bin of keys.
    fn pairs(&self, keys: Range<usize>) -> usize {
        let ends = self.seen.iter().map(|seen| (keys.start.max(seen.start), keys.end.min(seen.end)));
        ends.map(|(start, end)| end.saturating_sub(start)).sum()
    }

    fn sink(&self, pooling: Pooling) -> f32 {
        match pooling {
            Pooling::Max => self.sinks.iter().copied().fold(f32::NAN, higher_peak),
            Pooling::Mean => {
                let sum: f64 = self.sinks.iter().map(|&sink| f64::from(sink)).sum();
                (sum / self.sinks.len() as f64) as f32
            }
        }
    }

    fn value(&self, column: usize, keys: Range<usize>, pooling: Pooling) -> f32 {
        let value = match pooling {
            Pooling::Max => self.peaks.get(column).copied(),
            // 0 / 0 gives NaN for bins without visible keys.
            Pooling::Mean => self.sums.get(column).map(|sum| (sum / self.pairs(keys) as f64) as f32),
        };
        value.unwrap_or(f32::NAN)
    }
}

impl PooledMapCollector {
    /// The map of the rows observed so far.
    pub fn map(&self) -> PooledMap {
        let row_edges = self.plan.row_edges.clone();
        let column_edges = self.plan.column_edges.clone();
        let rows = row_edges.len() - 1;
        let columns = column_edges.len() - 1;
        let mut values = vec![f32::NAN; rows * columns];
        for (&i, row) in &self.rows {
            for (column, keys) in column_edges.windows(2).enumerate() {
                values[i * columns + column] = row.value(column, keys[0]..keys[1], self.plan.spec.pooling);
            }
        }
        let mut sinks = Vec::new();
        if self.rows.values().any(|row| !row.sinks.is_empty()) {
            sinks.resize(rows, f32::NAN);
            self.rows.iter().for_each(|(&i, row)| sinks[i] = row.sink(self.plan.spec.pooling));
        }
        PooledMap { rows, columns, values, row_edges, column_edges, sinks }
    }
}

impl RowCollector for PooledMapCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let plan = Arc::clone(&self.plan);
        if !plan.spec.queries.contains(&row.query) {
            return;
        }
        if let Some((values, factor)) = plan.spec.quantity.of_row(row) {
            let bin = plan.row_edges.partition_point(|&start| start <= row.query) - 1;
            let bin = self.rows.entry(bin).or_default();
            bin.observe(row.first_visible..row.query + 1, values, factor, &plan);
            bin.sinks.extend(plan.spec.quantity.of_sink(row));
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        for (bin, row) in later.rows {
            self.rows.entry(bin).or_default().merge(&row);
        }
    }
}

/// An attention map pooled into bins.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledMap {
    /// Number of query bins.
    pub rows: usize,
    /// Number of key bins.
    pub columns: usize,
    /// Pooled values in the unit of the [`RowQuantity`]: (rows, columns), row-major. NaN if no key of the bin is
    /// visible to any of its queries.
    pub values: Vec<f32>,
    /// Bin i holds the queries `row_edges[i]..row_edges[i + 1]`: rows + 1 token positions.
    pub row_edges: Vec<usize>,
    /// Bin j holds the keys `column_edges[j]..column_edges[j + 1]`: columns + 1 token positions.
    pub column_edges: Vec<usize>,
    /// Weight of the sink pooled over the queries of each bin: (rows). Empty without sinks.
    pub sinks: Vec<f32>,
}

impl PooledMap {
    /// Pools `by` x `by` bins into one, by the largest magnitude as in [`Pooling::Max`].
    pub(crate) fn coarser(&self, by: usize) -> Self {
        let by = by.max(1);
        let row_edges = every(by, &self.row_edges);
        let column_edges = every(by, &self.column_edges);
        let rows = row_edges.len() - 1;
        let columns = column_edges.len() - 1;
        let mut values = vec![f32::NAN; rows * columns];
        for (i, &value) in self.values.iter().enumerate() {
            let bin = i / self.columns / by * columns + i % self.columns / by;
            values[bin] = higher_peak(values[bin], value);
        }
        let sinks = self.sinks.chunks(by).map(|part| part.iter().copied().fold(f32::NAN, higher_peak)).collect();
        Self { rows, columns, values, row_edges, column_edges, sinks }
    }

    /// The mean of maps with the same bins, such as those of several heads; `None` without maps. NaN bins are left
    /// out. For [`Pooling::Mean`] it equals the pooled mean map. For [`Pooling::Max`] it is the mean of the peaks of each
    /// head, which may be at different keys, not the peak of the mean map.
    pub(super) fn mean(maps: &[&Self]) -> Option<Self> {
        let first = maps.first()?;
        let n = maps.len() as f64;
        let mut values = vec![(0.0, 0_u32); first.values.len()];
        let mut sinks = vec![0.0; first.sinks.len()];
        for map in maps {
            for ((sum, count), &value) in values.iter_mut().zip(&map.values).filter(|(_, value)| !value.is_nan()) {
                *sum += f64::from(value);
                *count += 1;
            }
            sinks.iter_mut().zip(&map.sinks).for_each(|(sum, &sink)| *sum += f64::from(sink));
        }
        Some(Self {
            // 0 / 0 gives NaN for bins without keys.
            values: values.into_iter().map(|(sum, count)| (sum / f64::from(count)) as f32).collect(),
            sinks: sinks.into_iter().map(|sum| (sum / n) as f32).collect(),
            ..(*first).clone()
        })
    }
}

/// Every `by`-th edge, and the last one.
fn every(by: usize, edges: &[usize]) -> Vec<usize> {
    let mut coarse: Vec<usize> = edges.iter().copied().step_by(by).collect();
    coarse.extend(edges.last().filter(|last| coarse.last() != Some(last)));
    coarse
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use engine::attention::Values;
    use proptest::prelude::*;

    const POOLINGS: [Pooling; 2] = [Pooling::Max, Pooling::Mean];

    fn spec(quantity: RowQuantity, pooling: Pooling, tokens: usize, bins: usize) -> PooledMapSpec {
        let queries = 0..tokens;
        let keys = 0..tokens;
        PooledMapSpec { heads: LayersAndHeads::default(), quantity, pooling, queries, keys, rows: bins, columns: bins }
    }

    fn pooled(spec: PooledMapSpec, rows: &[TestRow], block: usize) -> PooledMap {
        watch::<PooledMapCollector>(&PooledMapProbe::new(spec), rows, block).map()
    }

    /// Keys 0..4 with signs.
    fn signed() -> Vec<TestRow> {
        [&[1.0][..], &[0.5, -0.5], &[0.25, -0.75, 0.5], &[-1.0, 0.25, 0.25, 0.5]].map(TestRow::one).to_vec()
    }

    #[test]
    fn bins_are_pooled_over_visible_keys_only() {
        let of = |pooling| pooled(spec(RowQuantity::Effective, pooling, 4, 2), &signed(), 9);
        let mean = of(Pooling::Mean);
        assert_eq!((mean.rows, mean.columns), (2, 2));
        assert_eq!((&mean.row_edges, &mean.column_edges), (&vec![0, 2, 4], &vec![0, 2, 4]));
        let thirds = |sum: f64| (sum / 3.0) as f32;
        let expected = [(Pooling::Max, [1.0, -1.0, 0.5]), (Pooling::Mean, [thirds(1.0), -1.25 / 4.0, thirds(1.25)])];
        for (pooling, values) in expected {
            let map = of(pooling);
            assert!(map.values[1].is_nan(), "nothing above the diagonal");
            assert_eq!([map.values[0], map.values[2], map.values[3]], values);
        }
    }

    #[test]
    fn sink_weights_are_pooled_over_the_queries_of_a_bin() {
        let with = |sink: f32, row: &TestRow| TestRow { sinks: vec![sink], ..row.clone() };
        let rows: Vec<TestRow> = signed().iter().zip([0.5, 0.25, 0.125, 0.75]).map(|(row, s)| with(s, row)).collect();
        for (pooling, sinks) in [(Pooling::Max, [0.5, 0.75]), (Pooling::Mean, [0.375, 0.4375])] {
            let map = pooled(spec(RowQuantity::Effective, pooling, 4, 2), &rows, 1);
            assert_eq!(map.sinks, sinks, "{pooling:?}");
            assert_eq!(PooledMap::mean(&[&map, &map]).unwrap().sinks, sinks);
        }
        assert!(pooled(spec(RowQuantity::Logits(0), Pooling::Max, 4, 2), &rows, 9).sinks.is_empty());
        assert!(pooled(spec(RowQuantity::Effective, Pooling::Max, 4, 2), &signed(), 9).sinks.is_empty());
    }

    #[test]
    fn coarsening_a_map_equals_pooling_into_coarser_bins() {
        let rows = random_rows(24, 3);
        let fine = pooled(spec(RowQuantity::Effective, Pooling::Max, 24, 12), &rows, 9);
        for (by, bins) in [(1, 12), (2, 6), (3, 4), (12, 1)] {
            let map = fine.coarser(by);
            let want = pooled(spec(RowQuantity::Effective, Pooling::Max, 24, bins), &rows, 9);
            let same = map.values.iter().zip(&want.values).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
            assert!(same && map.row_edges == want.row_edges, "{by}");
        }
        assert_eq!(fine.coarser(5).row_edges, [0, 10, 20, 24]);
    }

    #[test]
    fn with_a_bin_per_token_the_pooled_map_is_the_map() {
        let rows = random_rows(13, 1);
        for pooling in POOLINGS {
            let map = pooled(spec(RowQuantity::Effective, pooling, 13, 100), &rows, 4);
            assert_eq!((map.rows, map.columns), (13, 13));
            for (query, row) in rows.iter().enumerate() {
                assert_eq!(map.values[query * 13..][..=query], row.effective(), "{pooling:?}");
                assert!(map.values[query * 13..(query + 1) * 13][query + 1..].iter().all(|x| x.is_nan()));
            }
        }
    }

    #[test]
    fn every_quantity_is_read_from_its_field() {
        let mut row = TestRow::two(&[0.75, 0.25], &[0.5, 0.5], 0.5);
        row.logits = vec![vec![3.0, -4.0], vec![5.0, 6.0]];
        let rows = [TestRow::two(&[1.0], &[1.0], 0.5), row];
        let expected = [
            (RowQuantity::Effective, [0.5, 0.0]),
            (RowQuantity::Map(0), [0.75, 0.25]),
            (RowQuantity::Map(1), [0.5, 0.5]),
            (RowQuantity::Subtracted, [0.25, 0.25]),
            (RowQuantity::Logits(0), [3.0, -4.0]),
            (RowQuantity::Logits(1), [5.0, 6.0]),
        ];
        for (quantity, values) in expected {
            for pooling in POOLINGS {
                let probe = PooledMapProbe::new(spec(quantity, pooling, 2, 2));
                assert_eq!(probe.wants_logits(), matches!(quantity, RowQuantity::Logits(_)));
                assert_eq!(watch::<PooledMapCollector>(&probe, &rows, 2).map().values[2..], values, "{quantity:?}");
            }
        }
    }

    #[test]
    fn a_map_the_model_lacks_leaves_the_bins_empty() {
        for quantity in [RowQuantity::Map(1), RowQuantity::Subtracted, RowQuantity::Logits(1)] {
            let map = pooled(spec(quantity, Pooling::Mean, 4, 2), &signed(), 2);
            assert!(map.values.iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn a_map_with_one_row_is_a_profile_over_keys() {
        let profile = PooledMapSpec {
            queries: 2..4,
            keys: 1..4,
            rows: 1,
            columns: 3,
            ..spec(RowQuantity::Effective, Pooling::Mean, 4, 1)
        };
        let map = pooled(profile, &signed(), 3);
        assert_eq!(map.values, [-0.25, 0.375, 0.5]);
    }

    #[test]
    fn keys_before_a_window_are_in_no_bin() {
        let probe = PooledMapProbe::new(spec(RowQuantity::Logits(0), Pooling::Max, 4, 4));
        let mut collector = probe.start(0, 0);
        let logits: &[f32] = &[9.0, 9.0, 1.0, 2.0];
        let map: &[f32] = &[0.0, 0.0, 0.3, 0.7];
        let values = Values::new(&[], &[], 0);
        let row = AttentionRow {
            query: 3,
            first_visible: 2,
            logits: &[logits],
            maps: &[map],
            mix: &[1.0],
            sinks: &[],
            effective: map,
            values,
        };
        collector.observe(&row);
        let map = collector.into_collector::<PooledMapCollector>().map();
        assert!(map.values[12..14].iter().all(|x| x.is_nan()), "{:?}", map.values);
        assert_eq!(map.values[14..], [1.0, 2.0]);
    }

    #[test]
    fn only_selected_heads_and_queries_are_wanted() {
        let probe = PooledMapProbe::new(PooledMapSpec {
            heads: LayersAndHeads { layers: Some(vec![1]), heads: Some(vec![2]) },
            ..spec(RowQuantity::Effective, Pooling::Max, 9, 3)
        });
        assert!(probe.wants(1, 2, 8) && !probe.wants(1, 2, 9) && !probe.wants(2, 1, 8));
        for empty in [
            PooledMapSpec { keys: 3..3, ..spec(RowQuantity::Effective, Pooling::Max, 4, 2) },
            PooledMapSpec { columns: 0, ..spec(RowQuantity::Effective, Pooling::Max, 4, 2) },
        ] {
            let map = pooled(empty, &signed(), 2);
            assert_eq!((map.columns, map.values.len()), (0, 0));
        }
    }

    #[test]
    fn the_mean_of_maps_passes_over_bins_without_keys() {
        let one = pooled(spec(RowQuantity::Effective, Pooling::Max, 4, 2), &signed(), 4);
        let mut other = one.clone();
        other.values.iter_mut().for_each(|value| *value *= 3.0);
        other.values[3] = f32::NAN;
        let map = PooledMap::mean(&[&one, &other]).unwrap();
        assert!(map.values[1].is_nan());
        assert_eq!([map.values[0], map.values[2], map.values[3]], [2.0, -2.0, 0.5]);
    }

    proptest! {
        #[test]
        fn bins_partition_the_tokens(start in 0_usize..50, tokens in 0_usize..200, bins in 0_usize..60) {
            let bounds = edges(&(start..start + tokens), bins);
            prop_assert_eq!(bounds.len(), bins.min(tokens) + 1);
            prop_assert_eq!(bounds[0], start);
            prop_assert!(bounds.windows(2).all(|edge| edge[0] < edge[1]));
            prop_assert!(bounds.len() == 1 || bounds[bounds.len() - 1] == start + tokens);
        }

        #[test]
        fn merging_blocks_equals_observing_all_rows(
            tokens in 1_usize..40, bins in 1_usize..12, block in 1_usize..40, seed: u64
        ) {
            let rows = random_rows(tokens, seed);
            for pooling in POOLINGS {
                let spec = spec(RowQuantity::Effective, pooling, tokens, bins);
                let whole = pooled(spec.clone(), &rows, tokens);
                let merged = pooled(spec, &rows, block);
                for (a, b) in whole.values.iter().zip(&merged.values) {
                    prop_assert!((a - b).abs() < 1e-6 || (a.is_nan() && b.is_nan()), "{a} {b}");
                }
            }
        }

        #[test]
        fn means_of_bins_times_their_pairs_add_up_to_the_rows(tokens in 1_usize..40, bins in 1_usize..12, seed: u64) {
            let rows = random_rows(tokens, seed);
            let map = pooled(spec(RowQuantity::Map(0), Pooling::Mean, tokens, bins), &rows, 7);
            let mut total = 0.0;
            for (bin, x) in map.values.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                let row = bin / map.columns;
                let keys = &map.column_edges[bin % map.columns..];
                let queries = map.row_edges[row]..map.row_edges[row + 1];
                let pairs: usize = queries.map(|query| keys[1].min(query + 1).saturating_sub(keys[0])).sum();
                total += x * pairs as f32;
            }
            prop_assert!((total - tokens as f32).abs() < 1e-3, "{total}");
        }
    }
}
