//! Collection of a head's data as its rows pass: pooled maps, and pairs as bytes.

use super::codes::{triangle, CodeType};
use super::detail::{HeadDetail, HeadSketch, PairCodes, PooledQuantity, TopHeads};
use super::stored_pairs::StoredPairs;
use crate::measures::{
    Allocation, Contribution, Contributions, PooledMapCollector, PooledMapProbe, PooledMapSpec, Pooling, RowQuantity,
    SinkCollector, SinkProbe, TargetCollector, TargetProbe,
};
use anyhow::Result;
use engine::attention::{AttentionRow, RowCollector, RowProbe};
use engine::model::{Agreement, Transformer};
use names::{HeadPlace, LayersAndHeads, Region};
use std::collections::BTreeMap;
use std::sync::Arc;
use text::Prompt;

/// Exponent of the finest step of pairs. 2^-17 is an eighth of a weight in a uniform row of 16k keys.
pub(super) const FINEST: i8 = -17;

/// The [`Agreement`] of each head, which contributions of keys are made of. Empty for variants where it is
/// unknown before a layer ends.
///
/// With weight a[t,s] and value v_s, key s contributes the part c = a[t,s] v_s to the mixture of row t. Its output is
/// u_s, and that of the whole mixture u. The contribution of s is ⟨u_s, u⟩ / ⟨u, u⟩: signed, summing to 1 over the keys
/// of a row, and over the keys of a region to the row's `share_out`. Unlike weights, it is small for keys whose value
/// is small or cancelled by others.
pub(crate) type Agreements = BTreeMap<HeadPlace, Agreement>;

/// Agreements and scores of the heads of a model, from before its pass.
#[derive(Debug, Default)]
pub(crate) struct KnownHeads {
    pub(crate) agreements: Agreements,
    /// How much each brings the answer, on other prompts, by which heads are ranked; empty where it is not measured.
    pub(crate) scores: BTreeMap<HeadPlace, f64>,
}

pub(crate) fn agreements(model: &Transformer) -> Result<Agreements> {
    let heads = model.config.wiring().heads();
    let mut agreements = Agreements::new();
    for at in HeadPlace::all(model.config.layers.len(), heads) {
        if let Some(agreement) = model.agreement(at.layer, at.head)? {
            agreements.insert(at, agreement);
        }
    }
    Ok(agreements)
}

/// Collects the data of all heads, with details of some.
pub(crate) struct ExploreProbe {
    plan: Arc<ExplorePlan>,
}

struct ExplorePlan {
    keep: StoredPairs,
    pooled: Vec<(PooledQuantity, Pooling, PooledMapProbe)>,
    known: Arc<KnownHeads>,
    /// Shares of weights and contributions of the regions, for scores.
    answer: TargetProbe<Allocation>,
    given: TargetProbe<Contributions>,
    /// Detailed heads in this order; `None` for those with the best scores.
    chosen: Option<Vec<HeadPlace>>,
    /// `true` if the prompt has questions. If not, heads are ranked by layer, last first.
    asks: bool,
    sinks: SinkProbe,
    /// Bins of pooled maps in a bin of the small map, along a side.
    thumb_factor: usize,
    top: Arc<TopHeads>,
}

/// Amount of stored data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolution {
    /// Softmax maps per head of the model: 1 or 2.
    pub(crate) maps: usize,
    /// Number of detailed heads.
    pub(crate) heads: usize,
    /// Tokens per bin of pooled maps, a power of two.
    pub(crate) bin_tok: usize,
    /// Tokens per bin of the small map of every head, a power of two of at least `bin_tok`.
    pub(crate) thumb_tok: usize,
}

/// The pooled quantities of heads with `maps` maps.
pub(crate) fn quantities(maps: usize) -> Vec<RowQuantity> {
    let first = [RowQuantity::Effective, RowQuantity::Logits(0)];
    let second = [RowQuantity::Map(0), RowQuantity::Map(1), RowQuantity::Subtracted, RowQuantity::Logits(1)];
    first.into_iter().chain(second.into_iter().filter(|_| maps > 1)).collect()
}

impl ExploreProbe {
    /// Creates a probe for one pass over a prompt: of the `chosen` heads, which are the detailed ones in this order, or of
    /// all. Heads without an [`Agreement`] have no contributions and are scored by their |weights|.
    pub(crate) fn new(
        prompt: &Prompt,
        resolution: Resolution,
        known: Arc<KnownHeads>,
        chosen: Option<Vec<HeadPlace>>,
    ) -> Self {
        let keep = StoredPairs::new(prompt);
        let mut pooled = Vec::new();
        for quantity in pooled_quantities(resolution.maps, !known.agreements.is_empty()) {
            for pooling in [Pooling::Max, Pooling::Mean] {
                let spec = grid_spec(quantity, pooling, &keep, resolution.bin_tok);
                pooled.push((quantity, pooling, PooledMapProbe::new(spec)));
            }
        }
        let targets = prompt.targets();
        let plan = ExplorePlan {
            pooled,
            known,
            answer: TargetProbe::new(&targets, Allocation::default()),
            given: TargetProbe::new(&targets, Contributions::default()),
            chosen,
            asks: !prompt.queries.is_empty(),
            sinks: SinkProbe::new(keep.tokens),
            thumb_factor: resolution.thumb_tok / resolution.bin_tok,
            top: Arc::new(TopHeads::new(resolution.heads)),
            keep,
        };
        Self { plan: Arc::new(plan) }
    }
}

/// All pooled quantities.
fn pooled_quantities(maps: usize, contributions: bool) -> Vec<PooledQuantity> {
    let of_rows = quantities(maps).into_iter().map(PooledQuantity::Of);
    of_rows.chain(contributions.then_some(PooledQuantity::Contribution)).collect()
}

/// Bins of a pooled map. Their edges are multiples of the bin size.
fn grid_spec(quantity: PooledQuantity, pooling: Pooling, keep: &StoredPairs, bin_tok: usize) -> PooledMapSpec {
    let bins = keep.tokens.div_ceil(bin_tok);
    let tokens = 0..bins * bin_tok;
    let quantity = match quantity {
        PooledQuantity::Of(quantity) => quantity,
        // Contributions are passed to the map in place of the weights.
        PooledQuantity::Contribution => RowQuantity::Effective,
    };
    let queries = tokens.clone();
    let keys = tokens;
    PooledMapSpec { heads: LayersAndHeads::default(), quantity, pooling, queries, keys, rows: bins, columns: bins }
}

impl RowProbe for ExploreProbe {
    fn wants(&self, layer: usize, head: usize, _query: usize) -> bool {
        self.plan.chosen.as_ref().is_none_or(|chosen| chosen.contains(&HeadPlace { layer, head }))
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, layer: usize, head: usize) -> Box<dyn RowCollector> {
        let plan = &self.plan;
        Box::new(ExploreCollector {
            plan: Arc::clone(plan),
            at: HeadPlace { layer, head },
            answer: plan.answer.start(layer, head),
            given: plan.given.start(layer, head),
            sinks: plan.sinks.start(layer, head),
            pooled: plan.pooled.iter().map(|(.., probe)| probe.start(layer, head)).collect(),
            detail: HeadDetail::default(),
            sketch: None,
            row: Vec::new(),
        })
    }
}

/// State of one head.
pub(super) struct ExploreCollector {
    plan: Arc<ExplorePlan>,
    at: HeadPlace,
    answer: Box<dyn RowCollector>,
    given: Box<dyn RowCollector>,
    sinks: Box<dyn RowCollector>,
    pooled: Vec<Box<dyn RowCollector>>,
    /// Data of the rows so far, without pooled maps.
    detail: HeadDetail,
    /// Known after the last row.
    sketch: Option<HeadSketch>,
    /// Scratch space for the contributions of a row.
    row: Vec<f32>,
}

impl ExploreCollector {
    /// The sketch of the head, and the ranking that its details were entered in.
    ///
    /// # Panics
    /// If the head was not [finished](RowCollector::finish).
    pub(super) fn into_parts(self) -> (HeadSketch, Arc<TopHeads>) {
        (self.sketch.expect("the pass finishes its sinks"), Arc::clone(&self.plan.top))
    }

    /// Score for the ranking: how much the head brings the answer; where it is not measured, the answer's share of the head's output, as a mean
    /// over questions.
    fn score(&mut self) -> f64 {
        let answer = std::mem::replace(&mut self.answer, self.plan.answer.start(0, 0))
            .into_collector::<TargetCollector<Allocation>>();
        let given = std::mem::replace(&mut self.given, self.plan.given.start(0, 0))
            .into_collector::<TargetCollector<Contributions>>();
        if let Some(chosen) = &self.plan.chosen {
            return -(chosen.iter().position(|at| *at == self.at).unwrap_or(chosen.len()) as f64);
        }
        if let Some(score) = self.plan.known.scores.get(&self.at) {
            return *score;
        }
        if !self.plan.asks {
            return self.at.layer as f64;
        }
        let shares: Vec<f64> = match self.plan.known.agreements.get(&self.at) {
            Some(agreement) => given.summaries.iter().map(|given| answer_share(&given.rows, agreement)).collect(),
            None => answer.summaries.iter().map(|a| a.share_abs(Region::Answer)).collect(),
        };
        stats::mean(&shares).unwrap_or(f64::NAN)
    }

    /// Pools a row and the contributions of its keys.
    fn pool(&mut self, row: &AttentionRow<'_>) {
        let keep = &self.plan.keep;
        let agreement = self.plan.known.agreements.get(&self.at).filter(|_| row.query >= keep.contributions_from);
        if let Some(agreement) = agreement {
            contributions_of_keys(row, agreement, &mut self.row);
        }
        for ((quantity, ..), pooled) in self.plan.pooled.iter().zip(&mut self.pooled) {
            match quantity {
                PooledQuantity::Of(_) => pooled.observe(row),
                PooledQuantity::Contribution if agreement.is_some() => {
                    pooled.observe(&AttentionRow { effective: &self.row, ..*row })
                }
                PooledQuantity::Contribution => {}
            }
        }
        if agreement.is_some() && keep.answers(row.query) {
            let runs = keep.runs(row.query, row.first_visible);
            self.detail.contributions.resize_with(1, PairCodes::default);
            self.detail.contributions[0].add(&self.row, &runs, CodeType::Word, i8::MIN, |steps| steps);
        }
    }
}

impl RowCollector for ExploreCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        if self.plan.answer.wants(self.at.layer, self.at.head, row.query) {
            self.answer.observe(row);
            self.given.observe(row);
        }
        if self.plan.sinks.wants(self.at.layer, self.at.head, row.query) {
            self.sinks.observe(row);
        }
        self.detail.lambdas.extend(row.mix.get(1).map(|mix| -mix));
        self.detail.taken.resize_with(row.sinks.len(), Vec::new);
        self.detail.taken.iter_mut().zip(row.sinks).for_each(|(taken, &sink)| taken.push(sink));
        self.pool(row);
        let keep = &self.plan.keep;
        if row.first_visible > 0 {
            self.detail.window = Some(row.query + 1 - row.first_visible);
        }
        let runs = keep.runs(row.query, row.first_visible);
        // Treated passes store only pooled maps and the rows that predict an answer.
        if self.plan.chosen.is_none() {
            self.detail.maps.resize_with(row.maps.len(), PairCodes::default);
            for (pairs, map) in self.detail.maps.iter_mut().zip(row.maps) {
                pairs.add(map, &runs, CodeType::Byte, FINEST, |steps| steps as u8);
            }
        }
        if keep.answers(row.query) {
            for (all, rows) in [(&mut self.detail.answers, row.maps), (&mut self.detail.logits, row.logits)] {
                all.resize_with(rows.len(), PairCodes::default);
                let pairs = all.iter_mut().zip(rows);
                pairs.for_each(|(pairs, row)| pairs.add(row, &runs, CodeType::Word, i8::MIN, |steps| steps));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.answer.merge(later.answer);
        self.given.merge(later.given);
        self.sinks.merge(later.sinks);
        self.pooled.iter_mut().zip(later.pooled).for_each(|(pooled, later)| pooled.merge(later));
        self.detail.append(later.detail);
    }

    fn finish(&mut self) {
        let score = self.score();
        let sinks = std::mem::replace(&mut self.sinks, self.plan.sinks.start(0, 0));
        let mut detail = std::mem::take(&mut self.detail);
        detail.shrink_maps();
        let mut thumb = Vec::new();
        for (&(quantity, pooling, _), pooled) in self.plan.pooled.iter().zip(std::mem::take(&mut self.pooled)) {
            let map = pooled.into_collector::<PooledMapCollector>().map();
            detail.pooled.push((quantity, pooling, triangle(&map)));
            if (quantity, pooling) == (PooledQuantity::Of(RowQuantity::Effective), Pooling::Max) {
                thumb = triangle(&map.coarser(self.plan.thumb_factor));
                detail.effective = Some(map);
            }
        }
        self.sketch = Some(HeadSketch { thumb, sinks: sinks.into_collector::<SinkCollector>().sinks() });
        self.plan.top.enter(self.at, score, detail);
    }
}

/// Contributions of all keys of a row: (query + 1).
fn contributions_of_keys(row: &AttentionRow<'_>, agreement: &Agreement, into: &mut Vec<f32>) {
    let mut mixture = vec![0.0; row.values.width()];
    row.values.weigh(0, row.effective, &mut mixture);
    row.values.along(0, row.effective, &agreement.shares_of(&mixture), into);
}

/// `share_out` of the answer in the rows of one question. Equals that of [`LayerSums::add_head`](crate::measures::LayerSums::add_head),
/// except for variants with one norm over all heads, where the factor of each row counts as 1.
fn answer_share(rows: &[Contribution], agreement: &Agreement) -> f64 {
    let mut part = 0.0;
    let mut whole = 0.0;
    for row in rows {
        let (part_of_row, whole_of_row) = agreement.products(row.part(Region::Answer), &row.total());
        part += part_of_row;
        whole += whole_of_row;
    }
    part / whole
}

#[cfg(test)]
mod tests {
    use super::super::codes::RUN;
    use super::*;
    use crate::measures::testing::{random_rows, watch};
    use text::{Needle, Query, Window};

    /// Symmetric and positive definite: rows have values of three channels.
    const GRAM: [f32; 9] = [2.0, 0.5, 0.0, 0.5, 1.0, -0.25, 0.0, -0.25, 3.0];

    /// 300 tokens, with the value at 100..103 and a question at the end.
    fn prompt() -> Prompt {
        let query = Query {
            name: "Oslo".into(),
            value: "123".into(),
            needle: 95..104,
            answer: 100..103,
            predicted: 296..299,
            controlled: true,
            depth_req_pct: 30.0,
            depth_real_pct: 30.0,
        };
        Prompt {
            text: String::new(),
            ids: vec![0; 300],
            offsets: vec![(0, 0); 300],
            queries: vec![query],
            needles: vec![Needle { name: "Oslo".into(), value: "123".into(), span: 95..104, answer: 100..103 }],
            haystack: 10..280,
            has_bos: true,
            segments: Vec::new(),
            window: Window::default(),
        }
    }

    fn detail(rows: &[crate::measures::testing::TestRow], block: usize) -> (Vec<u8>, f64, HeadDetail) {
        let resolution = Resolution { maps: 2, heads: 1, bin_tok: 4, thumb_tok: 32 };
        let agreements =
            Agreements::from([(HeadPlace { layer: 0, head: 0 }, Agreement::new(GRAM.to_vec(), 3, Some(1e-5)))]);
        let known = KnownHeads { agreements, ..KnownHeads::default() };
        let probe = ExploreProbe::new(&prompt(), resolution, Arc::new(known), None);
        let mut sink = watch::<ExploreCollector>(&probe, rows, block);
        sink.finish();
        let (sketch, top) = sink.into_parts();
        let best = top.finish().remove(0);
        (sketch.thumb, best.score, best.kept)
    }

    #[test]
    fn merging_blocks_equals_observing_all_rows() {
        let rows = random_rows(300, 4);
        let (thumb, score, whole) = detail(&rows, 300);
        for block in [64, 100] {
            let (thumb_of_blocks, score_of_blocks, blocks) = detail(&rows, block);
            assert_eq!(thumb_of_blocks, thumb);
            assert!((score_of_blocks - score).abs() < 1e-9 && score > 0.0, "{score_of_blocks} {score}");
            assert_eq!((&blocks.maps, &blocks.answers), (&whole.maps, &whole.answers));
            assert_eq!((&blocks.logits, &blocks.lambdas), (&whole.logits, &whole.lambdas));
            assert_eq!(blocks.contributions, whole.contributions);
            // Means are sums in a different order; the largest magnitudes are equal.
            let peaks = |detail: &HeadDetail| {
                let of_peaks = detail.pooled.iter().filter(|(_, pooling, _)| *pooling == Pooling::Max);
                of_peaks.map(|(pooled, _, bytes)| (*pooled, bytes.clone())).collect::<Vec<_>>()
            };
            assert!(peaks(&blocks) == peaks(&whole));
        }
    }

    #[test]
    fn answer_rows_are_kept_in_sixteen_bits_and_the_others_in_eight() {
        let rows = random_rows(300, 5);
        let (_, _, detail) = detail(&rows, 128);
        assert_eq!((detail.maps.len(), detail.answers.len(), detail.logits.len()), (2, 2, 2));
        assert_eq!(detail.maps[0].codes.len(), 300 * 301 / 2);
        assert_eq!(detail.answers[1].codes.len(), 296 + 297 + 298);
        // The first answer's row, first run: query 295 sees 296 keys.
        let step = f32::from(detail.answers[1].exponents[0]).exp2();
        for key in 0..RUN {
            let weight = f32::from(detail.answers[1].codes[key]) * step;
            assert!((weight - rows[295].maps[1][key]).abs() <= 0.5001 * step);
        }
        assert_eq!(detail.lambdas.len(), 300);
    }

    #[test]
    fn contributions_are_projections_of_weighed_values_and_sum_to_one() {
        let rows = random_rows(300, 6);
        let (_, _, detail) = detail(&rows, 128);
        let row = &rows[295];
        let value = |key: usize| -> Vec<f64> { row.values[key].iter().map(|&v| f64::from(v)).collect() };
        let weights = row.effective();
        let with_gram = |x: &[f64]| -> Vec<f64> {
            (0..3).map(|i| (0..3).map(|j| f64::from(GRAM[3 * i + j]) * x[j]).sum()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mixture: Vec<f64> =
            (0..3).map(|c| (0..296).map(|key| f64::from(weights[key]) * value(key)[c]).sum()).collect();
        let whole = dot(&mixture, &with_gram(&mixture));
        let mut sum = 0.0;
        let mut code = 0;
        for run in 0..=295 / RUN {
            let step = f32::from(detail.contributions[0].exponents[run]).exp2();
            for (key, &weight) in weights.iter().enumerate().take(296).skip(run * RUN).take(RUN) {
                let want = f64::from(weight) * dot(&value(key), &with_gram(&mixture)) / whole;
                let read = f64::from(f32::from(detail.contributions[0].codes[code]) * step);
                assert!((read - want).abs() <= 0.51 * f64::from(step) + 1e-6, "key {key}: {read} and {want}");
                sum += read;
                code += 1;
            }
        }
        assert!((sum - 1.0).abs() < 1e-2, "{sum}");
    }
}
