//! The premise of differential attention, that both maps agree on noise: how far they do, beside what they would by chance.
//!
//! By chance is the mean over all permutations of the second map's keys within a region, which has a closed form: nothing is
//! drawn, so it has no noise of its own. Without it an agreement misleads, because two lists of positive weights always agree
//! a little, and the more the more even they are.

use super::key_weights::KeyWeights;
use super::strangers::{of_strangers, NoiseRows};
use super::target::{RowMean, TargetCollector, TargetProbe, TargetSummary};
use super::{of_head, rounded, Measure, MeasureOutput, ObservedPass};
use crate::results::record::Measurement;
use crate::results::run_table::{number_table, RunTable};
use crate::results::table::Table;
use crate::results::Frame;
use anyhow::Result;
use engine::attention::{AttentionRow, RowProbe};
use names::metric::{
    Metric, CANCELLED, CANCELLED_CHANCE, MAP_COSINE, MAP_COSINE_CHANCE, MAP_COSINE_STRANGERS, NOISE_REGION,
};
use names::{Column, HeadPlace, Region};
use stats::mean;
use std::ops::Range;
use text::Prompt;

/// Number of sets of keys: every region, in the order of [`Region::ALL`], and all regions of noise together.
const KEY_SETS: usize = Region::ALL.len() + 1;

/// The place of noise among them.
const NOISE: usize = Region::ALL.len();

const METRICS: [&Metric; 4] = [&MAP_COSINE, &MAP_COSINE_CHANCE, &CANCELLED, &CANCELLED_CHANCE];

/// The numbers of [`METRICS`]. Each is missing where it is not defined.
type Numbers = [Option<f64>; METRICS.len()];

/// Agreement of both maps, of all heads and by head.
pub(super) struct PremiseMeasure;

impl Measure for PremiseMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let targets = prompt.answerable_targets();
        let agreement = TargetProbe::new(&targets, Agreement::default());
        vec![Box::new(agreement), Box::new(TargetProbe::new(&targets, NoiseRows::default()))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut heads = Vec::new();
        let mut noise = Vec::new();
        for result in pass.probe_results {
            if result.probe == 0 {
                heads.push((result.at, result.collector.into_collector::<TargetCollector<Agreement>>().summaries));
            } else {
                noise.push((result.at, result.collector.into_collector::<TargetCollector<NoiseRows>>().summaries));
            }
        }
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            // Plain text has no answer, and so no noise.
            let sets = if target.query.is_some() { KEY_SETS } else { NOISE };
            let mut records = Vec::new();
            for set in 0..sets {
                let mut of_heads = Vec::new();
                for (at, targets) in &heads {
                    of_heads.push(OfHead { at: *at, numbers: targets[index].0[set].numbers() });
                }
                add_set(set, &of_heads, &mut records);
            }
            if target.query.is_some() {
                let of_target: Vec<_> = noise.iter().map(|(at, targets)| (*at, &targets[index])).collect();
                add_strangers(&of_strangers(&of_target), &mut records);
            }
            output.extend(target.query, pass.prompt.rows_name(), records);
        }
        Ok(())
    }
}

/// The numbers of one head on a set of keys.
struct OfHead {
    at: HeadPlace,
    numbers: Numbers,
}

/// Adds the numbers of a set of keys: means over the heads that have them, and those of each head. `cancelled` of a region, of
/// all heads, is a record of [`super::answer`].
fn add_set(set: usize, heads: &[OfHead], records: &mut Vec<Measurement>) {
    let region = Region::ALL.get(set).map_or(NOISE_REGION, |region| region.name());
    let of_set = |measurement| Measurement { region: Some(region.into()), ..measurement };
    for (i, metric) in METRICS.into_iter().enumerate() {
        let values: Vec<f64> = heads.iter().filter_map(|head| head.numbers[i]).collect();
        if *metric != CANCELLED || set == NOISE {
            records.extend(mean(&values).map(|mean| of_set(rounded(metric, mean, values.len()))));
        }
        for head in heads {
            records.extend(head.numbers[i].map(|x| of_head(head.at, of_set(rounded(metric, x, 1)))));
        }
    }
}

/// Adds the cosines with maps of other heads: their mean, and that of each head.
fn add_strangers(heads: &[(HeadPlace, f64)], records: &mut Vec<Measurement>) {
    let of_noise = |measurement| Measurement { region: Some(NOISE_REGION.into()), ..measurement };
    let cosines: Vec<f64> = heads.iter().map(|(_, cosine)| *cosine).collect();
    records.extend(mean(&cosines).map(|mean| of_noise(rounded(&MAP_COSINE_STRANGERS, mean, cosines.len()))));
    records.extend(heads.iter().map(|&(at, x)| of_head(at, of_noise(rounded(&MAP_COSINE_STRANGERS, x, 1)))));
}

/// Returns `true` if a set of keys has those of a region.
fn has_region(set: usize, region: Region) -> bool {
    set == region as usize || (set == NOISE && Region::NOISE.contains(&region))
}

/// Agreement of both maps in the rows of one target of one head, by set of keys. Without numbers for standard attention.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement([SetAgreement; KEY_SETS]);

impl Agreement {
    /// The cosine of both maps on the keys of a region, `None` for noise; the cosine by chance; the part that is
    /// cancelled; and that by chance. Each is missing where it is not defined.
    pub fn on(&self, region: Option<Region>) -> Numbers {
        self.0[region.map_or(NOISE, |region| region as usize)].numbers()
    }
}

impl TargetSummary for Agreement {
    fn add(&mut self, row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]) {
        let &[first, second] = row.maps else { return };
        for (set, sums) in self.0.iter_mut().enumerate() {
            let of_set = regions.iter().filter(|(region, _)| has_region(set, *region));
            let keys = KeyWeights::of(of_set.map(|(_, range)| range.clone()), row.first_visible, [first, second]);
            sums.add(&keys, -f64::from(row.mix[1]));
        }
    }

    fn merge(&mut self, later: Self) {
        self.0.iter_mut().zip(later.0).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

/// Agreement of both maps on a set of keys, over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SetAgreement {
    cosine: RowMean,
    cosine_chance: RowMean,
    /// Sum of the weight that the subtraction takes from both maps, 2 Σ min(A1, lambda A2).
    cancelled: f64,
    /// Its mean over all permutations of the second map's keys.
    cancelled_chance: f64,
    /// Sum of the weights, Σ (A1 + lambda A2).
    total: f64,
}

impl SetAgreement {
    /// Adds a row with this lambda. A negative one adds the second map, so that nothing is cancelled.
    fn add(&mut self, keys: &KeyWeights, lambda: f64) {
        let cosine = keys.cosine();
        self.cosine.add(cosine.map(|cosine| cosine.found));
        self.cosine_chance.add(cosine.map(|cosine| cosine.chance));
        let common = keys.common(lambda.max(0.0));
        self.cancelled += 2.0 * common.found;
        self.cancelled_chance += 2.0 * common.chance;
        self.total += keys.total(lambda);
    }

    fn merge(&mut self, later: Self) {
        self.cosine.merge(later.cosine);
        self.cosine_chance.merge(later.cosine_chance);
        self.cancelled += later.cancelled;
        self.cancelled_chance += later.cancelled_chance;
        self.total += later.total;
    }

    fn numbers(&self) -> Numbers {
        let of_total = |part: f64| (self.total > 0.0).then(|| part / self.total);
        [self.cosine.mean(), self.cosine_chance.mean(), of_total(self.cancelled), of_total(self.cancelled_chance)]
    }
}

/// The agreement of both maps by region.
pub(crate) const PREMISE: RunTable = RunTable {
    note: "By chance: the mean over all permutations of the second map's keys within the region. Noise: the template, filler and \
           distractor keys together [95 % interval].",
    ..RunTable::made("premise", "Agreement of the two maps", premise)
};

/// A row for each model and region with a cosine.
fn premise(frame: &Frame) -> Option<Table> {
    let numbers = METRICS.map(Metric::overall);
    let mut table = number_table(frame, &numbers, &[Column::Region])?;
    let cosine = table.place(MAP_COSINE.name)?;
    table.rows.retain(|row| !row[cosine].is_none());
    for (metric, heading) in METRICS.iter().zip(["cosine", "cosine by chance", "cancelled %", "cancelled by chance %"])
    {
        let column = table.columns.iter_mut().find(|column| column.name == metric.name);
        column.into_iter().for_each(|column| heading.clone_into(&mut column.heading));
    }
    table.with_rows()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;
    use text::TargetRows;

    proptest! {
        #[test]
        fn agreement_does_not_depend_on_blocks(tokens in 4_usize..40, block in 1_usize..40, seed: u64) {
            let rows = random_rows(tokens, seed);
            let regions = (0..tokens).map(|key| Region::ALL[key % Region::ALL.len()]).collect();
            let probe = TargetProbe::new(&[TargetRows { query: None, rows: 2..tokens, regions }], Agreement::default());
            let whole = watch::<TargetCollector<Agreement>>(&probe, &rows, tokens);
            let merged = watch::<TargetCollector<Agreement>>(&probe, &rows, block);
            for region in Region::ALL.map(Some).into_iter().chain([None]) {
                let [whole, merged] = [&whole, &merged].map(|collector| collector.summaries[0].on(region));
                for (a, b) in whole.into_iter().zip(merged) {
                    prop_assert_eq!(a.is_some(), b.is_some());
                    prop_assert!(a.is_none_or(|a| (-1e-9..=1.0 + 1e-9).contains(&a) && (a - b.unwrap()).abs() < 1e-12));
                }
            }
        }
    }

    /// The agreement of rows with the regions bos, filler, distractor, answer, filler, answer.
    fn agreement(rows: &[TestRow]) -> Agreement {
        use Region::*;
        let regions = vec![Bos, Filler, Distractor, Answer, Filler, Answer];
        let probe = TargetProbe::new(&[TargetRows { query: None, rows: 4..6, regions }], Agreement::default());
        let mut collector = probe.start(0, 0);
        rows.iter().for_each(|row| row.show(collector.as_mut()));
        collector.into_collector::<TargetCollector<Agreement>>().summaries.remove(0)
    }

    #[track_caller]
    fn assert_numbers(found: Numbers, want: Numbers) {
        for (found, want) in found.into_iter().zip(want) {
            assert_eq!(found.is_some(), want.is_some(), "{found:?} {want:?}");
            assert!(found.is_none_or(|found| (found - want.unwrap()).abs() < 1e-6), "{found:?} {want:?}");
        }
    }

    #[test]
    fn maps_agree_by_region_and_less_by_chance() {
        let whole = TestRow::two(&[0.1, 0.3, 0.0, 0.5, 0.1, 0.0], &[0.2, 0.1, 0.1, 0.0, 0.2, 0.4], 0.5);
        let found = agreement(std::slice::from_ref(&whole));
        // Filler: (0.3, 0.1) and (0.1, 0.2), of which half is subtracted: minima 0.05 and 0.1, or 0.1 and 0.05.
        let norms = (0.1_f64 * 0.05).sqrt();
        let [cosine, chance] = [0.05 / norms, 0.4 * 0.3 / (2.0 * norms)].map(Some);
        assert_numbers(found.on(Some(Region::Filler)), [cosine, chance, Some(0.3 / 0.55), Some(0.3 / 0.55)]);
        // Answer: (0.5, 0) and (0, 0.4), which share nothing, and 0.2 if they are exchanged.
        assert_numbers(found.on(Some(Region::Answer)), [0.0, 0.5, 0.0, 0.2 / 0.7].map(Some));
        // One key has no cosine, and weights that are the same in every order.
        assert_numbers(found.on(Some(Region::Bos)), [None, None, Some(1.0), Some(1.0)]);
        assert_numbers(found.on(Some(Region::Question)), [None; 4]);
        // Noise: (0.3, 0, 0.1) and (0.1, 0.1, 0.2).
        let norms = (0.1_f64 * 0.06).sqrt();
        let [cosine, chance] = [0.05 / norms, 0.4 * 0.4 / (3.0 * norms)].map(Some);
        let by_chance = 2.0 * (0.2 + 0.2) / 3.0 / 0.6;
        assert_numbers(found.on(None), [cosine, chance, Some(0.3 / 0.6), Some(by_chance)]);
    }

    #[test]
    fn rows_without_weight_have_no_cosine_and_one_map_has_no_numbers() {
        let none = TestRow::two(&[0.5, 0.0, 0.0, 0.5, 0.0], &[0.0, 0.5, 0.0, 0.0, 0.5], 0.5);
        let some = TestRow::two(&[0.0, 0.5, 0.0, 0.0, 0.5, 0.0], &[0.0, 0.5, 0.0, 0.0, 0.5, 0.0], 1.0);
        let found = agreement(&[none, some]).on(Some(Region::Filler));
        // The first row gives the totals 0.5, of which nothing is shared.
        assert_numbers(found, [1.0, 1.0, 2.0 / 2.5, 2.0 / 2.5].map(Some));
        assert_eq!(agreement(&[TestRow::one(&[0.2; 5])]), Agreement::default());
        // A smaller weight may be 0 on one device and not on another.
        let tiny = TestRow::two(&[1.0, 3e-38, 0.0, 0.0, 1e-38, 0.0], &[0.5, 0.25, 0.0, 0.0, 0.25, 0.0], 1.0);
        assert_eq!(agreement(&[tiny]).on(Some(Region::Filler))[..2], [None, None]);
    }

    #[test]
    fn a_map_that_is_added_cancels_nothing() {
        let maps = [0.0, 0.5, 0.0, 0.0, 0.5, 0.0];
        let found = agreement(&[TestRow::two(&maps, &maps, -0.5)]).on(None);
        assert_numbers(found, [1.0, 2.0 / 3.0, 0.0, 0.0].map(Some));
    }
}
