//! The control of the agreement of a head's two maps: the cosine of its first map and the second maps of the other heads of its layer. Maps of one layer read the same keys, so that any two agree more than permuted keys do.

use super::key_weights::KeyWeights;
use super::target::TargetSummary;
use engine::attention::AttentionRow;
use names::{HeadPlace, Region};
use stats::mean;
use std::ops::Range;

/// Most weights of a map that are kept of a head: without them, longer answers to longer prompts have no such number.
const MOST_WEIGHTS: usize = 1 << 16;

/// The weights of both maps on noise, row by row, of the rows of one target of one head.
#[derive(Clone, Debug, Default)]
pub struct NoiseRows {
    rows: Vec<KeyWeights>,
    weights: usize,
}

impl TargetSummary for NoiseRows {
    fn add(&mut self, row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]) {
        let &[first, second] = row.maps else { return };
        let noise = regions.iter().filter(|(region, _)| Region::NOISE.contains(region));
        let keys = KeyWeights::of(noise.map(|(_, range)| range.clone()), row.first_visible, [first, second]);
        self.weights += keys.len();
        if self.weights <= MOST_WEIGHTS {
            self.rows.push(keys);
        }
    }

    fn merge(&mut self, later: Self) {
        self.weights += later.weights;
        self.rows.extend(later.rows);
    }
}

/// The cosine of the first map of each head and the second maps of the others of its layer: a mean over them and over rows. Heads are in any
/// order; one whose layer has no other, or whose rows are too many, is left out.
pub fn of_strangers(heads: &[(HeadPlace, &NoiseRows)]) -> Vec<(HeadPlace, f64)> {
    let mut found = Vec::new();
    for (at, own) in heads.iter().filter(|(_, own)| own.weights <= MOST_WEIGHTS) {
        let others = heads.iter().filter(|(other, _)| other.layer == at.layer && other.head != at.head);
        let mut cosines = Vec::new();
        for (_, other) in others {
            let rows = own.rows.iter().zip(&other.rows);
            cosines.extend(rows.filter_map(|(own, other)| own.cosine_with(other)));
        }
        found.extend(mean(&cosines).map(|cosine| (*at, cosine)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::target::{TargetCollector, TargetProbe};
    use super::super::testing::TestRow;
    use super::*;
    use engine::attention::RowProbe as _;
    use text::TargetRows;

    /// The rows of a head whose two maps have these weights on bos, two keys of noise, the answer, and noise.
    fn head(first: [f32; 5], second: [f32; 5]) -> NoiseRows {
        let regions = vec![Region::Bos, Region::Filler, Region::Distractor, Region::Answer, Region::Filler];
        let probe = TargetProbe::new(&[TargetRows { query: None, rows: 4..5, regions }], NoiseRows::default());
        let mut collector = probe.start(0, 0);
        TestRow::two(&first, &second, 0.5).show(collector.as_mut());
        collector.into_collector::<TargetCollector<NoiseRows>>().summaries.remove(0)
    }

    #[test]
    fn a_head_is_compared_with_the_second_maps_of_the_others_of_its_layer() {
        let heads = [
            (HeadPlace { layer: 0, head: 0 }, head([0.9, 0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5, 0.0])),
            (HeadPlace { layer: 0, head: 1 }, head([0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.6, 0.0, 0.0, 0.8])),
            (HeadPlace { layer: 1, head: 0 }, head([0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0])),
        ];
        let heads: Vec<_> = heads.iter().map(|(at, rows)| (*at, rows)).collect();
        let found = of_strangers(&heads);
        assert_eq!(found.len(), 2, "the only head of layer 1 has no strangers");
        // (1, 0, 0) with (0.6, 0, 0.8), and (0, 0, 1) with (0, 0.5, 0).
        for ((_, found), want) in found.iter().zip([0.6, 0.0]) {
            assert!((found - want).abs() < 1e-6, "{found} {want}");
        }
    }
}
