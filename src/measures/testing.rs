//! Hand-made rows for tests of probes, passed to them as by the streaming kernel.

use engine::attention::{AttentionRow, RowCollector, RowProbe, Values};
use engine::kernels::{Mat, Panels};
use stats::Rng;

/// The contents of an attention row.
#[derive(Clone, Debug)]
pub(crate) struct TestRow {
    pub logits: Vec<Vec<f32>>,
    pub maps: Vec<Vec<f32>>,
    pub mix: Vec<f32>,
    /// Weights of the sink in the maps; usually empty.
    pub sinks: Vec<f32>,
    /// The value of every key.
    pub values: Vec<Vec<f32>>,
}

impl TestRow {
    /// Creates a row of one map. The logits are the logarithms of its magnitudes.
    pub(crate) fn one(map: &[f32]) -> Self {
        Self::new(vec![map.to_vec()], vec![1.0])
    }

    /// Creates a row of two maps.
    pub(crate) fn two(first: &[f32], second: &[f32], lambda: f32) -> Self {
        Self::new(vec![first.to_vec(), second.to_vec()], vec![1.0, -lambda])
    }

    fn new(maps: Vec<Vec<f32>>, mix: Vec<f32>) -> Self {
        let logits = maps.iter().map(|map| map.iter().map(|x| x.abs().ln()).collect()).collect();
        let values = vec![vec![1.0]; maps[0].len()];
        Self { logits, maps, mix, sinks: Vec::new(), values }
    }

    /// Sets the values of the keys, 1 by default.
    pub(crate) fn with_values(mut self, values: &[&[f32]]) -> Self {
        assert_eq!(values.len(), self.maps[0].len(), "a value for every key");
        self.values = values.iter().map(|value| value.to_vec()).collect();
        self
    }

    /// The mixture.
    pub(crate) fn effective(&self) -> Vec<f32> {
        let mut effective = Vec::new();
        for key in 0..self.maps[0].len() {
            effective.push(self.maps.iter().zip(&self.mix).map(|(map, mix)| map[key] * mix).sum());
        }
        effective
    }

    pub(crate) fn show(&self, collector: &mut dyn RowCollector) {
        let logits: Vec<&[f32]> = self.logits.iter().map(Vec::as_slice).collect();
        let maps: Vec<&[f32]> = self.maps.iter().map(Vec::as_slice).collect();
        let effective = self.effective();
        let query = effective.len() - 1;
        let mix = self.mix.as_slice();
        let effective = effective.as_slice();
        let keys = self.values.len();
        let width = self.values[0].len();
        let packed = [Panels::new(Mat::new(&self.values.concat(), keys, width, width))];
        let values = Values::new(&packed, &[0], width);
        collector.observe(&AttentionRow {
            query,
            first_visible: 0,
            logits: &logits,
            maps: &maps,
            mix,
            sinks: &self.sinks,
            effective,
            values,
        });
    }
}

/// Passes rows, each of length query + 1, to a probe of layer 0, head 0: to one collector per `block` of queries, merged in
/// query order.
pub(crate) fn watch<C: RowCollector>(probe: &dyn RowProbe, rows: &[TestRow], block: usize) -> Box<C> {
    let mut whole: Option<Box<dyn RowCollector>> = None;
    for rows in rows.chunks(block) {
        let mut collector = probe.start(0, 0);
        for row in rows.iter().filter(|row| probe.wants(0, 0, row.maps[0].len() - 1)) {
            row.show(collector.as_mut());
        }
        match &mut whole {
            Some(whole) => whole.merge(collector),
            None => whole = Some(collector),
        }
    }
    whole.expect("rows").into_collector()
}

/// Random differential rows 0..tokens, with a lambda per row and values of three channels.
pub(crate) fn random_rows(tokens: usize, seed: u64) -> Vec<TestRow> {
    let mut rng = Rng::new(seed, "rows");
    let mut rows = Vec::new();
    for keys in 1..=tokens {
        let first = random_map(&mut rng, keys);
        let second = random_map(&mut rng, keys);
        rows.push(TestRow::two(&first, &second, 0.2 + 0.6 * random_map(&mut rng, 2)[0]));
    }
    let values: Vec<Vec<f32>> = (0..tokens).map(|_| (0..3).map(|_| rng.normal() as f32).collect()).collect();
    for (keys, row) in rows.iter_mut().enumerate() {
        row.values = values[..=keys].to_vec();
    }
    rows
}

fn random_map(rng: &mut Rng, keys: usize) -> Vec<f32> {
    let weights: Vec<f32> = (0..keys).map(|_| (2.0 * rng.normal()).exp() as f32).collect();
    let total: f32 = weights.iter().sum();
    weights.iter().map(|x| x / total).collect()
}
