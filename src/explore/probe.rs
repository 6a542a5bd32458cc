//! What the explorer keeps of a head as its rows pass: pooled maps, and token pairs as bytes.

use super::codes::{encode, triangle, Code, RUN};
use super::keep::Keep;
use super::race::Race;
use crate::attention::{Row, RowProbe, RowSink, Selection};
use crate::probe::{
    AnswerProbe, AnswerSink, GridProbe, GridSink, GridSpec, LambdaProbe, LambdaSink, Pooling, Quantity, ReceivedSink,
    SinkProbe,
};
use crate::prompt::{Prompt, Region};
use std::any::Any;
use std::sync::Arc;

/// The exponent of the finest step of token pairs: 2^-17 is an eighth of what each of 16k keys gets of a uniform row.
pub(super) const FINEST: i8 = -17;

/// What is kept of every head, and of some more.
pub struct ExploreProbe {
    plan: Arc<Plan>,
}

struct Plan {
    keep: Keep,
    pooled: Vec<(Quantity, Pooling)>,
    grids: Vec<GridProbe>,
    answer: AnswerProbe,
    /// Whether the prompt has questions: else later layers come first.
    asks: bool,
    sinks: SinkProbe,
    thumb_bins: usize,
    race: Arc<Race<Detail>>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Resolution {
    /// Softmax maps per head of the model: 1 or 2.
    pub maps: usize,
    /// Heads that are kept token by token.
    pub heads: usize,
    /// Tokens per bin of pooled maps, a power of two.
    pub bin_tok: usize,
    /// Bins of the small picture of every head.
    pub thumb_bins: usize,
}

impl Resolution {
    /// About the memory of a head that is kept token by token, in bytes, while its rows pass: a byte for each pair of each
    /// map, and for each pooled map sums and peaks.
    pub fn head_bytes(&self, tokens: usize) -> u64 {
        let bins = tokens.div_ceil(self.bin_tok) as u64;
        let pooled = bins * bins / 2 * (8 + 4) * quantities(self.maps).len() as u64;
        // Blocks of rows are put together by copying.
        2 * Keep::pairs_of(tokens) * self.maps as u64 + pooled
    }
}

/// What is pooled of heads of so many maps.
pub fn quantities(maps: usize) -> Vec<Quantity> {
    let first = [Quantity::Effective, Quantity::Logits(0)];
    let second = [Quantity::Map(0), Quantity::Map(1), Quantity::Subtracted, Quantity::Logits(1)];
    first.into_iter().chain(second.into_iter().filter(|_| maps > 1)).collect()
}

impl ExploreProbe {
    /// A probe for one pass over a prompt.
    pub fn new(prompt: &Prompt, resolution: Resolution) -> Self {
        let keep = Keep::of(prompt);
        let bins = keep.tokens.div_ceil(resolution.bin_tok);
        let spec = |quantity, pooling| GridSpec {
            heads: Selection::default(),
            quantity,
            pooling,
            // Whole bins: their edges are multiples of their size.
            queries: 0..bins * resolution.bin_tok,
            keys: 0..bins * resolution.bin_tok,
            rows: bins,
            columns: bins,
        };
        let poolings = [Pooling::Max, Pooling::Mean];
        let pooled: Vec<(Quantity, Pooling)> =
            quantities(resolution.maps).into_iter().flat_map(|q| poolings.map(|pooling| (q, pooling))).collect();
        let grids = pooled.iter().map(|&(quantity, pooling)| GridProbe::new(spec(quantity, pooling))).collect();
        let targets = prompt.targets();
        let plan = Plan {
            pooled,
            grids,
            answer: AnswerProbe::new(&targets),
            asks: !prompt.queries.is_empty(),
            sinks: SinkProbe::new(keep.tokens, Vec::new()),
            thumb_bins: resolution.thumb_bins,
            race: Arc::new(Race::new(resolution.heads)),
            keep,
        };
        Self { plan: Arc::new(plan) }
    }
}

impl RowProbe for ExploreProbe {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, layer: usize, head: usize) -> Box<dyn RowSink> {
        let plan = &self.plan;
        Box::new(ExploreSink {
            plan: Arc::clone(plan),
            at: (layer, head),
            answer: plan.answer.start(layer, head),
            sinks: plan.sinks.start(layer, head),
            lambda: LambdaProbe.start(layer, head),
            grids: plan.grids.iter().map(|probe| probe.start(layer, head)).collect(),
            maps: Vec::new(),
            answers: Vec::new(),
            logits: Vec::new(),
            window: None,
            finished: None,
        })
    }
}

/// Token pairs as codes, row after row, of each row its kept runs. [`encode`] says what they mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs<T> {
    /// One for each run.
    pub exponents: Vec<i8>,
    /// One for each pair; the last run of a row ends at its query.
    pub codes: Vec<T>,
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self { exponents: Vec::new(), codes: Vec::new() }
    }
}

impl<T> Pairs<T> {
    pub(super) fn add(&mut self, row: &[f32], runs: &[usize], (code, floor): (Code, i8), to: fn(i16) -> T) {
        for &run in runs {
            let keys = run * RUN..((run + 1) * RUN).min(row.len());
            self.exponents.push(encode(&row[keys], code, floor, |steps| self.codes.push(to(steps))));
        }
    }

    fn append(&mut self, later: Self) {
        self.exponents.extend(later.exponents);
        self.codes.extend(later.codes);
    }
}

/// Appends the pairs of later rows, map by map.
fn append<T>(mine: &mut Vec<Pairs<T>>, later: Vec<Pairs<T>>) {
    mine.resize_with(later.len().max(mine.len()), Pairs::default);
    mine.iter_mut().zip(later).for_each(|(mine, later)| mine.append(later));
}

/// The state of one head.
pub(super) struct ExploreSink {
    plan: Arc<Plan>,
    at: (usize, usize),
    answer: Box<dyn RowSink>,
    sinks: Box<dyn RowSink>,
    lambda: Box<dyn RowSink>,
    grids: Vec<Box<dyn RowSink>>,
    maps: Vec<Pairs<u8>>,
    answers: Vec<Pairs<i16>>,
    logits: Vec<Pairs<i16>>,
    window: Option<usize>,
    finished: Option<HeadSketch>,
}

/// What is kept of every head.
#[derive(Clone, Debug)]
pub struct HeadSketch {
    /// Its effective map, largest magnitudes, in bins of a multiple of the pooled maps' size, as [`triangle`] bytes.
    pub thumb: Vec<u8>,
    /// Keys that are attention sinks.
    pub sinks: Vec<usize>,
}

/// What is kept of a head that is kept token by token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Pooled maps as [`triangle`] bytes.
    pub grids: Vec<(Quantity, Pooling, Vec<u8>)>,
    /// The softmax maps.
    pub maps: Vec<Pairs<u8>>,
    /// The rows of them that predict an answer, more finely.
    pub answers: Vec<Pairs<i16>>,
    /// The logits of these rows.
    pub logits: Vec<Pairs<i16>>,
    /// Weight of the second map for each query; nothing for one map.
    pub lambdas: Vec<f32>,
    /// Keys that a query sees; nothing if it sees all before it.
    pub window: Option<usize>,
}

fn read<S: 'static>(sink: Box<dyn RowSink>) -> Box<S> {
    sink.into_any().downcast().expect("a sink of the probe that it was started by")
}

impl ExploreSink {
    /// The sketch of the head, and the race that its detail takes part in.
    ///
    /// # Panics
    /// If the head was not [finished](RowSink::finish).
    pub(super) fn into_parts(self) -> (HeadSketch, Arc<Race<Detail>>) {
        (self.finished.expect("the pass finishes its sinks"), Arc::clone(&self.plan.race))
    }

    fn score(&mut self) -> f64 {
        let answer = read::<AnswerSink>(std::mem::replace(&mut self.answer, self.plan.answer.start(0, 0)));
        if !self.plan.asks {
            return self.at.0 as f64;
        }
        let shares: Vec<f64> = answer.allocations.iter().map(|a| a.share_abs(Region::Answer)).collect();
        crate::stats::mean(&shares).unwrap_or(f64::NAN)
    }
}

impl RowSink for ExploreSink {
    fn see(&mut self, row: &Row<'_>) {
        let keep = &self.plan.keep;
        if self.plan.answer.wants(self.at.0, self.at.1, row.query) {
            self.answer.see(row);
        }
        if self.plan.sinks.wants(self.at.0, self.at.1, row.query) {
            self.sinks.see(row);
        }
        self.lambda.see(row);
        self.grids.iter_mut().for_each(|grid| grid.see(row));
        if row.first_visible > 0 {
            self.window = Some(row.query + 1 - row.first_visible);
        }
        let runs = keep.runs(row.query, row.first_visible);
        self.maps.resize_with(row.maps.len(), Pairs::default);
        for (pairs, map) in self.maps.iter_mut().zip(row.maps) {
            pairs.add(map, &runs, (Code::Byte, FINEST), |steps| steps as u8);
        }
        if keep.answers(row.query) {
            for (all, rows) in [(&mut self.answers, row.maps), (&mut self.logits, row.logits)] {
                all.resize_with(rows.len(), Pairs::default);
                let pairs = all.iter_mut().zip(rows);
                pairs.for_each(|(pairs, row)| pairs.add(row, &runs, (Code::Word, i8::MIN), |steps| steps));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowSink>) {
        let later = read::<ExploreSink>(later);
        self.answer.merge(later.answer);
        self.sinks.merge(later.sinks);
        self.lambda.merge(later.lambda);
        self.grids.iter_mut().zip(later.grids).for_each(|(mine, theirs)| mine.merge(theirs));
        append(&mut self.maps, later.maps);
        append(&mut self.answers, later.answers);
        append(&mut self.logits, later.logits);
        self.window = self.window.or(later.window);
    }

    fn finish(&mut self) {
        let score = self.score();
        let sinks = std::mem::replace(&mut self.sinks, self.plan.sinks.start(0, 0));
        let lambda = std::mem::replace(&mut self.lambda, LambdaProbe.start(0, 0));
        let (mut thumb, mut grids) = (Vec::new(), Vec::new());
        for (&(quantity, pooling), sink) in self.plan.pooled.iter().zip(std::mem::take(&mut self.grids)) {
            let grid = read::<GridSink>(sink).grid();
            if (quantity, pooling) == (Quantity::Effective, Pooling::Max) {
                thumb = triangle(&grid.coarser(grid.rows.div_ceil(self.plan.thumb_bins)));
            }
            grids.push((quantity, pooling, triangle(&grid)));
        }
        self.finished = Some(HeadSketch { thumb, sinks: read::<ReceivedSink>(sinks).sinks() });
        let detail = Detail {
            grids,
            maps: std::mem::take(&mut self.maps),
            answers: std::mem::take(&mut self.answers),
            logits: std::mem::take(&mut self.logits),
            lambdas: read::<LambdaSink>(lambda).lambdas,
            window: self.window,
        };
        self.plan.race.enter(self.at, score, detail);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::{random_rows, watch};
    use crate::prompt::{Query, Window};

    /// 300 tokens; the value at 100..103, asked for at the end.
    fn prompt() -> Prompt {
        let query = Query {
            city: "Oslo".into(),
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
            needles: Vec::new(),
            haystack: 10..280,
            has_bos: true,
            window: Window::default(),
        }
    }

    fn detail(rows: &[crate::probe::testing::OwnRow], block: usize) -> (Vec<u8>, f64, Detail) {
        let probe = ExploreProbe::new(&prompt(), Resolution { maps: 2, heads: 1, bin_tok: 4, thumb_bins: 16 });
        let mut sink = watch::<ExploreSink>(&probe, rows, block);
        sink.finish();
        let (sketch, race) = sink.into_parts();
        let found = race.finish().remove(0);
        (sketch.thumb, found.score, found.kept)
    }

    #[test]
    fn blocks_of_rows_come_to_what_all_rows_come_to() {
        let rows = random_rows(300, 4);
        let (thumb, score, whole) = detail(&rows, 300);
        for block in [64, 100] {
            let (thumb_of_blocks, score_of_blocks, blocks) = detail(&rows, block);
            assert_eq!(thumb_of_blocks, thumb);
            assert!((score_of_blocks - score).abs() < 1e-9 && score > 0.0);
            assert_eq!((&blocks.maps, &blocks.answers), (&whole.maps, &whole.answers));
            assert_eq!((&blocks.logits, &blocks.lambdas), (&whole.logits, &whole.lambdas));
            // Means are sums in another order; largest magnitudes are the same.
            let peaks = |detail: &Detail| {
                let of_peaks = detail.grids.iter().filter(|(_, pooling, _)| *pooling == Pooling::Max);
                of_peaks.map(|(quantity, _, bytes)| (*quantity, bytes.clone())).collect::<Vec<_>>()
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
        // The first answer's row, first run: 295 sees 296 keys.
        let step = f32::from(detail.answers[1].exponents[0]).exp2();
        for key in 0..RUN {
            let weight = f32::from(detail.answers[1].codes[key]) * step;
            assert!((weight - rows[295].maps[1][key]).abs() <= 0.5001 * step);
        }
        assert_eq!(detail.lambdas.len(), 300);
    }
}
