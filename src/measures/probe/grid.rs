//! Pooled attention maps: rows are added to bins one by one, so that the T x T map is never stored.

use crate::attention::{AttentionRow, LayersAndHeads, RowCollector, RowProbe};
use crate::stats::simd::{add_segments, higher_peak, peak_segments};
use anyhow::ensure;
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
    /// The values of a row with a factor on them, or `None` if the model has no such map.
    fn of<'a>(self, row: &AttentionRow<'a>) -> Option<(&'a [f32], f32)> {
        match self {
            RowQuantity::Effective => Some((row.effective, 1.0)),
            RowQuantity::Map(map) => Some((row.maps.get(map)?, 1.0)),
            RowQuantity::Subtracted => Some((row.maps.get(1)?, -*row.mix.get(1)?)),
            RowQuantity::Logits(map) => Some((row.logits.get(map)?, 1.0)),
        }
    }

    /// The quantity for the sink; `None` without sinks and for logits.
    fn of_sink(self, row: &AttentionRow<'_>) -> Option<f32> {
        let mixed = || row.sinks.iter().zip(row.mix).map(|(sink, mix)| sink * mix).sum();
        match self {
            RowQuantity::Effective => (!row.sinks.is_empty()).then(mixed),
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
pub struct GridSpec {
    /// Heads to pool, each separately. A large model has too many heads to keep a grid of half a million bins for each.
    pub heads: LayersAndHeads,
    /// Quantity to pool.
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
pub struct GridProbe {
    plan: Arc<GridPlan>,
}

struct GridPlan {
    spec: GridSpec,
    row_edges: Vec<usize>,
    column_edges: Vec<usize>,
}

impl GridProbe {
    /// Creates a probe for a part of the map. An empty range gives a grid without bins.
    pub fn new(spec: GridSpec) -> Self {
        let (row_edges, column_edges) = (edges(&spec.queries, spec.rows), edges(&spec.keys, spec.columns));
        Self { plan: Arc::new(GridPlan { spec, row_edges, column_edges }) }
    }
}

/// Edges of at most `bins` bins over tokens: bin i of n over t tokens covers floor(i t / n)..floor((i + 1) t / n).
fn edges(tokens: &Range<usize>, bins: usize) -> Vec<usize> {
    let bins = bins.min(tokens.len());
    (0..=bins).map(|i| tokens.start + (i * tokens.len()).checked_div(bins).unwrap_or(0)).collect()
}

impl RowProbe for GridProbe {
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool {
        let spec = &self.plan.spec;
        let bins = self.plan.row_edges.len() > 1 && self.plan.column_edges.len() > 1;
        bins && spec.queries.contains(&query) && spec.heads.has(layer, head)
    }

    fn wants_logits(&self) -> bool {
        matches!(self.plan.spec.quantity, RowQuantity::Logits(_))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(GridCollector { plan: Arc::clone(&self.plan), rows: BTreeMap::new() })
    }
}

/// The bins of one head, as far as rows were observed.
pub struct GridCollector {
    plan: Arc<GridPlan>,
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
    fn observe(&mut self, seen: Range<usize>, values: &[f32], factor: f32, plan: &GridPlan) {
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

    /// Number of visible pairs in a bin of keys.
    fn pairs(&self, keys: Range<usize>) -> u64 {
        let overlap = |seen: &Range<usize>| keys.end.min(seen.end).saturating_sub(keys.start.max(seen.start));
        self.seen.iter().map(|seen| overlap(seen) as u64).sum()
    }

    fn sink(&self, pooling: Pooling) -> f32 {
        let sum = || self.sinks.iter().map(|&sink| f64::from(sink)).sum::<f64>();
        match pooling {
            Pooling::Max => self.sinks.iter().copied().fold(f32::NAN, higher_peak),
            Pooling::Mean => (sum() / self.sinks.len() as f64) as f32,
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

impl GridCollector {
    /// The map of the rows observed so far.
    pub fn grid(&self) -> PooledMap {
        let (row_edges, column_edges) = (self.plan.row_edges.clone(), self.plan.column_edges.clone());
        let (rows, columns) = (row_edges.len() - 1, column_edges.len() - 1);
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

impl RowCollector for GridCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let plan = Arc::clone(&self.plan);
        if !plan.spec.queries.contains(&row.query) {
            return;
        }
        if let Some((values, factor)) = plan.spec.quantity.of(row) {
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
    pub fn coarser(&self, by: usize) -> PooledMap {
        let edges = |edges: &[usize]| {
            let mut coarse: Vec<usize> = edges.iter().copied().step_by(by.max(1)).collect();
            let last = edges.last().copied();
            coarse.extend(last.filter(|last| coarse.last() != Some(last)));
            coarse
        };
        let (row_edges, column_edges) = (edges(&self.row_edges), edges(&self.column_edges));
        let (rows, columns) = (row_edges.len() - 1, column_edges.len() - 1);
        let mut values = vec![f32::NAN; rows * columns];
        for (i, &value) in self.values.iter().enumerate() {
            let bin = i / self.columns / by.max(1) * columns + i % self.columns / by.max(1);
            values[bin] = higher_peak(values[bin], value);
        }
        let peak = |part: &[f32]| part.iter().copied().fold(f32::NAN, higher_peak);
        let sinks = self.sinks.chunks(by.max(1)).map(peak).collect();
        PooledMap { rows, columns, values, row_edges, column_edges, sinks }
    }
}

/// Mean of maps with the same bins over heads, layers or prompts, in the order they are added. For [`Pooling::Mean`]
/// it equals the pooled mean map. For [`Pooling::Max`] it is the mean of the peaks of each head,
/// which may be at different keys, not the peak of the mean map.
#[derive(Clone, Debug, Default)]
pub struct GridMean {
    frame: Option<PooledMap>,
    sums: Vec<f64>,
    counts: Vec<u64>,
    sinks: Vec<f64>,
    grids: u64,
}

impl GridMean {
    /// Adds a map. NaN bins are skipped.
    ///
    /// # Errors
    /// If its bins differ from those of earlier maps.
    pub fn add(&mut self, grid: &PooledMap) -> anyhow::Result<()> {
        let frame = self.frame.get_or_insert_with(|| grid.clone());
        let same = frame.row_edges == grid.row_edges && frame.column_edges == grid.column_edges;
        ensure!(same, "cannot average maps with different bins");
        self.sums.resize(grid.values.len(), 0.0);
        self.counts.resize(grid.values.len(), 0);
        self.sinks.resize(frame.sinks.len(), 0.0);
        for (i, value) in grid.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.sums[i] += f64::from(*value);
            self.counts[i] += 1;
        }
        self.sinks.iter_mut().zip(&grid.sinks).for_each(|(sum, &sink)| *sum += f64::from(sink));
        self.grids += 1;
        Ok(())
    }

    /// The mean, or `None` without maps.
    pub fn grid(&self) -> Option<PooledMap> {
        let bins = self.sums.iter().zip(&self.counts);
        // 0 / 0 gives NaN for bins without keys.
        let values = bins.map(|(sum, &count)| (sum / count as f64) as f32).collect();
        let sinks = self.sinks.iter().map(|sum| (sum / self.grids as f64) as f32).collect();
        self.frame.clone().map(|frame| PooledMap { values, sinks, ..frame })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use crate::attention::Values;
    use proptest::prelude::*;

    const POOLINGS: [Pooling; 2] = [Pooling::Max, Pooling::Mean];

    fn spec(quantity: RowQuantity, pooling: Pooling, tokens: usize, bins: usize) -> GridSpec {
        let (queries, keys) = (0..tokens, 0..tokens);
        GridSpec { heads: LayersAndHeads::default(), quantity, pooling, queries, keys, rows: bins, columns: bins }
    }

    fn grid(spec: GridSpec, rows: &[TestRow], block: usize) -> PooledMap {
        watch::<GridCollector>(&GridProbe::new(spec), rows, block).grid()
    }

    /// Keys 0..4 with signs.
    fn signed() -> Vec<TestRow> {
        [&[1.0][..], &[0.5, -0.5], &[0.25, -0.75, 0.5], &[-1.0, 0.25, 0.25, 0.5]].map(TestRow::one).to_vec()
    }

    #[test]
    fn bins_are_pooled_over_visible_keys_only() {
        let of = |pooling| grid(spec(RowQuantity::Effective, pooling, 4, 2), &signed(), 9);
        let mean = of(Pooling::Mean);
        assert_eq!((mean.rows, mean.columns), (2, 2));
        assert_eq!((&mean.row_edges, &mean.column_edges), (&vec![0, 2, 4], &vec![0, 2, 4]));
        let thirds = |sum: f64| (sum / 3.0) as f32;
        let expected = [(Pooling::Max, [1.0, -1.0, 0.5]), (Pooling::Mean, [thirds(1.0), -1.25 / 4.0, thirds(1.25)])];
        for (pooling, values) in expected {
            let found = of(pooling);
            assert!(found.values[1].is_nan(), "nothing above the diagonal");
            assert_eq!([found.values[0], found.values[2], found.values[3]], values);
        }
    }

    #[test]
    fn sink_weights_are_pooled_over_the_queries_of_a_bin() {
        let with = |sink: f32, row: &TestRow| TestRow { sinks: vec![sink], ..row.clone() };
        let rows: Vec<TestRow> = signed().iter().zip([0.5, 0.25, 0.125, 0.75]).map(|(row, s)| with(s, row)).collect();
        for (pooling, sinks) in [(Pooling::Max, [0.5, 0.75]), (Pooling::Mean, [0.375, 0.4375])] {
            let found = grid(spec(RowQuantity::Effective, pooling, 4, 2), &rows, 1);
            assert_eq!(found.sinks, sinks, "{pooling:?}");
            let mut mean = GridMean::default();
            (0..2).for_each(|_| mean.add(&found).unwrap());
            assert_eq!(mean.grid().unwrap().sinks, sinks);
        }
        assert!(grid(spec(RowQuantity::Logits(0), Pooling::Max, 4, 2), &rows, 9).sinks.is_empty());
        assert!(grid(spec(RowQuantity::Effective, Pooling::Max, 4, 2), &signed(), 9).sinks.is_empty());
    }

    #[test]
    fn coarsening_a_grid_equals_pooling_into_coarser_bins() {
        let rows = random_rows(24, 3);
        let fine = grid(spec(RowQuantity::Effective, Pooling::Max, 24, 12), &rows, 9);
        for (by, bins) in [(1, 12), (2, 6), (3, 4), (12, 1)] {
            let found = fine.coarser(by);
            let want = grid(spec(RowQuantity::Effective, Pooling::Max, 24, bins), &rows, 9);
            let same = found.values.iter().zip(&want.values).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
            assert!(same && found.row_edges == want.row_edges, "{by}");
        }
        assert_eq!(fine.coarser(5).row_edges, [0, 10, 20, 24]);
    }

    #[test]
    fn with_a_bin_per_token_the_grid_is_the_map() {
        let rows = random_rows(13, 1);
        for pooling in POOLINGS {
            let found = grid(spec(RowQuantity::Effective, pooling, 13, 100), &rows, 4);
            assert_eq!((found.rows, found.columns), (13, 13));
            for (query, row) in rows.iter().enumerate() {
                assert_eq!(found.values[query * 13..][..=query], row.effective(), "{pooling:?}");
                assert!(found.values[query * 13..(query + 1) * 13][query + 1..].iter().all(|x| x.is_nan()));
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
                let probe = GridProbe::new(spec(quantity, pooling, 2, 2));
                assert_eq!(probe.wants_logits(), matches!(quantity, RowQuantity::Logits(_)));
                assert_eq!(watch::<GridCollector>(&probe, &rows, 2).grid().values[2..], values, "{quantity:?}");
            }
        }
    }

    #[test]
    fn a_map_the_model_lacks_leaves_the_grid_empty() {
        for quantity in [RowQuantity::Map(1), RowQuantity::Subtracted, RowQuantity::Logits(1)] {
            let found = grid(spec(quantity, Pooling::Mean, 4, 2), &signed(), 2);
            assert!(found.values.iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn a_grid_with_one_row_is_a_profile_over_keys() {
        let profile = GridSpec {
            queries: 2..4,
            keys: 1..4,
            rows: 1,
            columns: 3,
            ..spec(RowQuantity::Effective, Pooling::Mean, 4, 1)
        };
        let found = grid(profile, &signed(), 3);
        assert_eq!(found.values, [-0.25, 0.375, 0.5]);
    }

    #[test]
    fn keys_before_a_window_are_in_no_bin() {
        let probe = GridProbe::new(spec(RowQuantity::Logits(0), Pooling::Max, 4, 4));
        let mut sink = probe.start(0, 0);
        let (logits, map): (&[f32], &[f32]) = (&[9.0, 9.0, 1.0, 2.0], &[0.0, 0.0, 0.3, 0.7]);
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
        sink.observe(&row);
        let found = sink.into_collector::<GridCollector>().grid();
        assert!(found.values[12..14].iter().all(|x| x.is_nan()), "{:?}", found.values);
        assert_eq!(found.values[14..], [1.0, 2.0]);
    }

    #[test]
    fn only_selected_heads_and_queries_are_wanted() {
        let probe = GridProbe::new(GridSpec {
            heads: LayersAndHeads { layers: Some(vec![1]), heads: Some(vec![2]) },
            ..spec(RowQuantity::Effective, Pooling::Max, 9, 3)
        });
        assert!(probe.wants(1, 2, 8) && !probe.wants(1, 2, 9) && !probe.wants(2, 1, 8));
        for empty in [
            GridSpec { keys: 3..3, ..spec(RowQuantity::Effective, Pooling::Max, 4, 2) },
            GridSpec { columns: 0, ..spec(RowQuantity::Effective, Pooling::Max, 4, 2) },
        ] {
            let found = grid(empty, &signed(), 2);
            assert_eq!((found.columns, found.values.len()), (0, 0));
        }
    }

    #[test]
    fn the_mean_of_grids_passes_over_bins_without_keys_and_refuses_other_bins() {
        let one = grid(spec(RowQuantity::Effective, Pooling::Max, 4, 2), &signed(), 4);
        let mut other = one.clone();
        other.values.iter_mut().for_each(|value| *value *= 3.0);
        other.values[3] = f32::NAN;
        let mut mean = GridMean::default();
        assert_eq!(mean.grid(), None);
        mean.add(&one).unwrap();
        mean.add(&other).unwrap();
        let found = mean.grid().unwrap();
        assert!(found.values[1].is_nan());
        assert_eq!([found.values[0], found.values[2], found.values[3]], [2.0, -2.0, 0.5]);
        assert!(mean.add(&grid(spec(RowQuantity::Effective, Pooling::Max, 4, 3), &signed(), 4)).is_err());
    }

    proptest! {
        #[test]
        fn bins_partition_the_tokens(start in 0_usize..50, tokens in 0_usize..200, bins in 0_usize..60) {
            let found = edges(&(start..start + tokens), bins);
            prop_assert_eq!(found.len(), bins.min(tokens) + 1);
            prop_assert_eq!(found[0], start);
            prop_assert!(found.windows(2).all(|edge| edge[0] < edge[1]));
            prop_assert!(found.len() == 1 || found[found.len() - 1] == start + tokens);
        }

        #[test]
        fn merging_blocks_equals_observing_all_rows(
            tokens in 1_usize..40, bins in 1_usize..12, block in 1_usize..40, seed: u64
        ) {
            let rows = random_rows(tokens, seed);
            for pooling in POOLINGS {
                let spec = spec(RowQuantity::Effective, pooling, tokens, bins);
                let (whole, merged) = (grid(spec.clone(), &rows, tokens), grid(spec, &rows, block));
                for (a, b) in whole.values.iter().zip(&merged.values) {
                    prop_assert!((a - b).abs() < 1e-6 || (a.is_nan() && b.is_nan()), "{a} {b}");
                }
            }
        }

        #[test]
        fn means_of_bins_times_their_pairs_add_up_to_the_rows(tokens in 1_usize..40, bins in 1_usize..12, seed: u64) {
            let rows = random_rows(tokens, seed);
            let found = grid(spec(RowQuantity::Map(0), Pooling::Mean, tokens, bins), &rows, 7);
            let pairs = |bin: usize| {
                let (row, keys) = (bin / found.columns, &found.column_edges[bin % found.columns..]);
                let queries = found.row_edges[row]..found.row_edges[row + 1];
                queries.map(|query| keys[1].min(query + 1).saturating_sub(keys[0])).sum::<usize>()
            };
            let sums = found.values.iter().enumerate().map(|(bin, x)| x * pairs(bin) as f32);
            let total: f32 = sums.filter(|x| !x.is_nan()).sum();
            prop_assert!((total - tokens as f32).abs() < 1e-3, "{total}");
        }
    }
}
