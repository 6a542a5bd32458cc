//! What each segment of a text gives the answer, beside the attention that it gets.
//!
//! With L(S) the log-probability of the answer behind a text of the segments S, tokenised as a whole, and T all of them:
//!
//! * gives\[s\] = L(T) - L(T without s), the text being as if s had never been there;
//! * alone\[s\] = L(s) - L(nothing): of two segments that say the same, each gives little and is much alone;
//! * through others\[s\] = gives\[s\] less what L loses if the rows of question and answer do not see s: what reaches the answer through
//!   rows of other segments;
//! * the share of s in what all heads write in the rows of the answer, as `share_out` of a region (`output.rs`).

use super::{decoded, encoded, number, Measure, MeasureData, MeasureOutput, Needs, ObservedPass, PassKey};
use crate::results::record::Measurement;
use crate::results::run_table::{number_table, Content, RunTable};
use crate::results::table::Table;
use crate::results::{Frame, Said};
use anyhow::{Context as _, Result};
use engine::attention::{AttentionRow, RowCollector, RowProbe, Trace};
use engine::model::Transformer;
use names::metric::{
    Metric, ACCURACY, ALONE, ANSWER_LOG_PROB, CONTEXT_FLOOR, GIVES, GIVES_LOG_ODDS, GIVES_SPREAD, GIVES_TOGETHER,
    GIVES_WORST, HARMS, LOG_PROB_WITHOUT, SEGMENT_SHARE, SHARE_AGREES, THROUGH_OTHERS, THROUGH_SHARE,
};
use names::{group_name, segment_name, HeadPlace, Number, SegmentKind};
use stats::{mean, pearson, Moments};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use text::Prompt;

/// Log-odds that halve: a segment that takes as much from the answer harms it.
pub(crate) const HALF_ODDS: f64 = std::f64::consts::LN_2;

/// A change of the answer's log-probability from which a group of segments is opened, and a segment counts as one that costs it, in nats.
pub(crate) const NOTABLE_NATS: f64 = 0.1;

/// The numbers of a text as a whole.
pub(crate) const SUMMARY: [Number<'static>; 11] = [
    ACCURACY.overall(),
    GIVES.of("right"),
    GIVES.of("other"),
    GIVES.of("otherwise"),
    GIVES.of("each"),
    GIVES_TOGETHER.of("other"),
    GIVES_WORST.overall(),
    HARMS.overall(),
    LOG_PROB_WITHOUT.of("all"),
    THROUGH_SHARE.overall(),
    SHARE_AGREES.overall(),
];

pub(crate) const CONTEXTS: RunTable = RunTable {
    id: "contexts",
    title: "What parts of texts give answers",
    note: "Changes of the log-probability of the answer, in nats: means over texts [95 % interval]. Negative: costs the answer.",
    content: Content::Made(contexts),
};

/// The means, of runs that take parts out of texts: others have an accuracy too.
fn contexts(frame: &Frame) -> Option<Table> {
    if frame.has(GIVES.name) {
        number_table(frame, &SUMMARY, &[])
    } else {
        None
    }
}

/// The score of an answer behind a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AnswerScore {
    /// Log-probability that one of the right answers follows, in nats.
    pub log_prob_nats: f64,
    /// The same less that of the wrong answer, where there is one.
    pub contrast_nats: f64,
    /// `true` if a right answer is the most likely text.
    pub hit: bool,
}

impl AnswerScore {
    /// Log-odds of the right answers.
    pub fn log_odds(self) -> f64 {
        // Of a probability next to 1, what is left is rounding.
        let rest = (-self.log_prob_nats.exp_m1()).max(1e-7);
        self.log_prob_nats - rest.ln()
    }
}

/// What the text without one segment scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentScores {
    /// What it gives in each order of the text, in nats.
    pub gives_nats: Vec<f64>,
    /// The same in log-odds, as a mean over orders.
    pub gives_log_odds: f64,
    /// What the answer scores behind it alone, less behind nothing, in nats.
    pub alone_nats: f64,
    /// What the answer loses if its rows, and those of the question, do not see it, in nats; `None` where that is not measured.
    pub hidden_nats: Option<f64>,
}

impl SegmentScores {
    /// What it gives, as a mean over orders, in nats.
    pub fn gives(&self) -> f64 {
        mean(&self.gives_nats).unwrap_or(0.0)
    }
}

/// Segments next to each other that were taken out together.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupScores {
    pub segments: Range<usize>,
    pub gives_nats: f64,
}

/// What was measured of a text besides the pass over all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextScores {
    pub kinds: Vec<SegmentKind>,
    /// By segment; `None` of those that were only taken out in a group.
    pub segments: Vec<Option<SegmentScores>>,
    /// Empty of a text in which every segment was taken out.
    pub groups: Vec<GroupScores>,
    /// With the text as it stands.
    pub whole: AnswerScore,
    /// Without any segment.
    pub nothing: AnswerScore,
    /// Without the segment that gives least, if one costs the answer something.
    pub without_worst: Option<AnswerScore>,
    /// Without all that cost at least 0.1 nats, dropped at once.
    pub without_harmful: Option<AnswerScore>,
    /// With nothing but the right segments, if it is known which these are.
    pub only_right: Option<AnswerScore>,
    /// Changes by sentences that say nothing of it, in nats; empty where that is not measured.
    pub inserted_nats: Vec<f64>,
    /// The most likely answer, up to the end of its line.
    pub said: String,
}

impl ContextScores {
    /// What the segments of some kinds give, with their log-odds.
    fn of_kinds(&self, wanted: impl Fn(SegmentKind) -> bool) -> Vec<&SegmentScores> {
        let segments = self.segments.iter().zip(&self.kinds).filter(|(_, kind)| wanted(**kind));
        segments.filter_map(|(segment, _)| segment.as_ref()).collect()
    }

    /// The segment that costs most, chosen in one of the first two orders and measured in the other, as a mean over both: the largest of
    /// several is above its own mean. `None` in one order.
    fn worst(&self) -> Option<f64> {
        let others = self.of_kinds(|kind| kind != SegmentKind::Right);
        let of_order = |chosen: usize, measured: usize| {
            let worst = others.iter().min_by(|a, b| a.gives_nats[chosen].total_cmp(&b.gives_nats[chosen]))?;
            worst.gives_nats.get(measured).copied()
        };
        if others.iter().any(|segment| segment.gives_nats.len() < 2) {
            return None;
        }
        Some((of_order(0, 1)? + of_order(1, 0)?) / 2.0)
    }
}

/// Scores of contexts.
#[derive(Default)]
pub(crate) struct ContextMeasure {
    /// What models say.
    pub(crate) said: Vec<Said>,
}

impl Measure for ContextMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        if prompt.segments.is_empty() {
            return Vec::new();
        }
        vec![Box::new(SegmentProbe { rows: prompt.answer_rows(), segments: prompt.segments.clone().into() })]
    }

    fn needs(&self) -> Needs {
        Needs { trace: true, ..Needs::default() }
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let shares = shares(&mut pass)?;
        let mut records = Vec::new();
        let Some(scores) = pass.context else {
            // A treated pass: its score alone.
            let score = &pass.queries[0];
            records.push(number(&ACCURACY, f64::from(u8::from(score.hit)), 1));
            records.push(number(&ANSWER_LOG_PROB, score.log_prob_nats, 1));
            output.extend(Some(0), pass.prompt.rows_name(), records);
            return Ok(());
        };
        records.push(number(&ACCURACY, f64::from(u8::from(scores.whole.hit)), 1));
        records.push(number(&ANSWER_LOG_PROB, scores.whole.log_prob_nats, 1));
        add_summary(scores, &mut records);
        add_segments(scores, &shares, &mut records);
        output.extend(Some(0), pass.prompt.rows_name(), records);
        let model = pass.identity.model.clone();
        output.pooled = Some(Box::new(Said { model, sample: pass.sample, text: scores.said.clone() }));
        Ok(())
    }

    fn absorb(&mut self, _key: PassKey, pooled: MeasureData) {
        self.said.push(*pooled.downcast().expect("this measure pools what models say"));
    }

    fn encode(&self, pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        encoded::<Said>(pooled)
    }

    fn decode(&self, bytes: &[u8]) -> Result<MeasureData> {
        decoded::<Said>(bytes)
    }
}

/// A measurement of a region.
fn of(metric: &Metric, region: impl Into<String>, value: f64) -> Measurement {
    Measurement { region: Some(region.into().into()), ..number(metric, value, 1) }
}

fn add_summary(scores: &ContextScores, records: &mut Vec<Measurement>) {
    for (kind, name) in [
        (SegmentKind::Right, "right"),
        (SegmentKind::Other, "other"),
        (SegmentKind::Otherwise, "otherwise"),
        (SegmentKind::Unknown, "each"),
    ] {
        let gives: Vec<f64> = scores.of_kinds(|of| of == kind).iter().map(|segment| segment.gives()).collect();
        records.extend(mean(&gives).map(|mean| of(&GIVES, name, mean)));
    }
    let together = scores.only_right.map(|only| scores.whole.contrast_nats - only.contrast_nats);
    records.extend(together.map(|nats| of(&GIVES_TOGETHER, "other", nats)));
    records.push(of(&LOG_PROB_WITHOUT, "all", scores.nothing.log_prob_nats));
    for (name, score) in [("worst", scores.without_worst), ("harmful", scores.without_harmful)] {
        records.extend(score.map(|score| of(&LOG_PROB_WITHOUT, name, score.log_prob_nats)));
    }
    records.extend(scores.worst().map(|nats| number(&GIVES_WORST, nats, 1)));
    let others = scores.of_kinds(|kind| kind != SegmentKind::Right);
    if !others.is_empty() {
        let harms = others.iter().any(|segment| segment.gives_log_odds <= -HALF_ODDS);
        records.push(number(&HARMS, f64::from(u8::from(harms)), 1));
    }
    let floor = scores.inserted_nats.iter().map(|nats| nats.abs()).reduce(f64::max);
    records.extend(floor.map(|nats| number(&CONTEXT_FLOOR, nats, scores.inserted_nats.len())));
    records.extend(through_share(scores).map(|share| number(&THROUGH_SHARE, share, 1)));
}

/// The part of what segments give that goes through others, as a part of the sum of sizes.
fn through_share(scores: &ContextScores) -> Option<f64> {
    let mut through = 0.0;
    let mut direct = 0.0;
    for segment in scores.segments.iter().flatten() {
        let hidden = segment.hidden_nats?;
        through += (segment.gives_nats[0] - hidden).abs();
        direct += hidden.abs();
    }
    (through + direct > 0.0).then(|| through / (through + direct))
}

fn add_segments(scores: &ContextScores, shares: &[f64], records: &mut Vec<Measurement>) {
    for (index, share) in shares.iter().enumerate() {
        records.push(of(&SEGMENT_SHARE, segment_name(index), *share));
    }
    let mut pairs: (Vec<f64>, Vec<f64>) = Default::default();
    for (index, segment) in scores.segments.iter().enumerate() {
        let Some(segment) = segment else { continue };
        let name = || segment_name(index);
        records.push(of(&GIVES, name(), segment.gives()));
        records.push(of(&GIVES_LOG_ODDS, name(), segment.gives_log_odds));
        records.push(of(&ALONE, name(), segment.alone_nats));
        records.extend(segment.hidden_nats.map(|hidden| of(&THROUGH_OTHERS, name(), segment.gives_nats[0] - hidden)));
        records.extend(spread(&segment.gives_nats).map(|spread| of(&GIVES_SPREAD, name(), spread)));
        pairs.0.push(segment.gives());
        pairs.1.push(shares.get(index).copied().unwrap_or(f64::NAN));
    }
    if pairs.0.len() > 2 && pairs.1.iter().all(|share| share.is_finite()) {
        records.extend(pearson(&pairs.0, &pairs.1).map(|r| number(&SHARE_AGREES, r, pairs.0.len())));
    }
    for group in &scores.groups {
        records.push(of(&GIVES, group_name(&group.segments), group.gives_nats));
    }
}

/// Standard deviation over orders; `None` of one.
fn spread(numbers: &[f64]) -> Option<f64> {
    Moments::from_iter(numbers.iter().copied()).variance().map(f64::sqrt)
}

/// Observes the rows that predict the answer.
struct SegmentProbe {
    rows: Range<usize>,
    segments: Arc<[Range<usize>]>,
}

impl RowProbe for SegmentProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.rows.contains(&query)
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(SegmentCollector { segments: Arc::clone(&self.segments), rows: BTreeMap::new() })
    }
}

/// What each segment contributes to the rows of one head.
struct SegmentCollector {
    segments: Arc<[Range<usize>]>,
    /// By query: (segments + 1, value width), the last of all other keys.
    rows: BTreeMap<usize, Vec<f64>>,
}

impl RowCollector for SegmentCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let width = row.values.width();
        let mut parts = vec![0.0; (self.segments.len() + 1) * width];
        let mut whole = vec![0.0; width];
        let seen = row.first_visible..row.effective.len();
        row.values.weigh(seen.start, &row.effective[seen.clone()], &mut whole);
        for (place, keys) in self.segments.iter().enumerate() {
            let visible = keys.start.max(seen.start)..keys.end.min(seen.end);
            if !visible.is_empty() {
                let part = &mut parts[place * width..][..width];
                row.values.weigh(visible.start, &row.effective[visible], part);
                whole.iter_mut().zip(&*part).for_each(|(whole, part)| *whole -= part);
            }
        }
        parts[self.segments.len() * width..].copy_from_slice(&whole);
        self.rows.insert(row.query, parts);
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.rows.extend(later.into_collector::<Self>().rows);
    }
}

/// The share of each segment in what all heads write in the rows of the answer: a mean over layers, weighted as that of `share_out`.
fn shares(pass: &mut ObservedPass<'_>) -> Result<Vec<f64>> {
    let Some(trace) = pass.trace.filter(|_| !pass.probe_results.is_empty()) else { return Ok(Vec::new()) };
    let count = pass.prompt.segments.len();
    let mut layers: BTreeMap<usize, BTreeMap<usize, Vec<f64>>> = BTreeMap::new();
    for result in std::mem::take(&mut pass.probe_results) {
        let HeadPlace { layer, head } = result.at;
        for (row, parts) in result.collector.into_collector::<SegmentCollector>().rows {
            let written = pass.model.head_output(layer, head, row, trace)?.write(&parts)?; // segments + 1,E
            let sum = layers.entry(layer).or_default().entry(row).or_default();
            sum.resize(written.len(), 0.0);
            sum.iter_mut().zip(&written).for_each(|(sum, &x)| *sum += f64::from(x));
        }
    }
    let mut shares = vec![0.0; count];
    let mut weights = 0.0;
    for (layer, rows) in layers {
        let LayerShares { of_segments, weight } = layer_shares(pass.model, trace, layer, rows, count)?;
        if weight.is_finite() && weight > 0.0 {
            shares.iter_mut().zip(of_segments).for_each(|(share, of_layer)| *share += weight * of_layer);
            weights += weight;
        }
    }
    Ok(shares.into_iter().map(|share| share / weights).collect())
}

/// Shares of segments in the output of one layer, and the part of the residual stream that it makes new.
struct LayerShares {
    of_segments: Vec<f64>,
    weight: f64,
}

/// The same from what its heads write: by row, (segments + 1, E).
fn layer_shares(
    model: &Transformer,
    trace: &Trace,
    layer: usize,
    rows: BTreeMap<usize, Vec<f64>>,
    count: usize,
) -> Result<LayerShares> {
    let mut inner = vec![0.0; count];
    let mut square = 0.0;
    let mut residual = 0.0;
    for (row, mut written) in rows {
        model.norm_after_attention(layer, row, trace, &mut written)?;
        let width = written.len() / (count + 1);
        let whole: Vec<f64> = (0..width).map(|i| written.iter().skip(i).step_by(width).sum()).collect(); // E
        for (inner, part) in inner.iter_mut().zip(written.chunks_exact(width)) {
            *inner += part.iter().zip(&whole).map(|(a, b)| a * b).sum::<f64>();
        }
        square += whole.iter().map(|x| x * x).sum::<f64>();
        residual += trace.residual_square(layer, row).context("the row was not traced")?;
    }
    Ok(LayerShares {
        of_segments: inner.into_iter().map(|inner| inner / square).collect(),
        weight: square / (residual + square),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(gives_nats: &[f64]) -> Option<SegmentScores> {
        let gives_log_odds = mean(gives_nats).unwrap();
        Some(SegmentScores { gives_nats: gives_nats.to_vec(), gives_log_odds, ..SegmentScores::default() })
    }

    #[test]
    fn the_worst_segment_is_chosen_in_one_order_and_measured_in_the_other() {
        let kinds = vec![SegmentKind::Right, SegmentKind::Other, SegmentKind::Other];
        let segments = vec![segment(&[-9.0, -9.0]), segment(&[-2.0, 0.5]), segment(&[0.0, -1.0])];
        let scores = ContextScores { kinds: kinds.clone(), segments, ..ContextScores::default() };
        // The second costs most in the first order and 0.5 less in the other; the third the other way round.
        assert_eq!(scores.worst(), Some((0.5 + 0.0) / 2.0));
        let one = ContextScores { kinds, segments: vec![segment(&[1.0]); 3], ..ContextScores::default() };
        assert_eq!(one.worst(), None);
    }

    #[test]
    fn a_summary_is_of_the_kinds_that_there_are() {
        let kinds = vec![SegmentKind::Right, SegmentKind::Other, SegmentKind::Other];
        let segments = vec![segment(&[3.0]), segment(&[-1.0]), segment(&[0.5])];
        let mut records = Vec::new();
        add_summary(&ContextScores { kinds, segments, ..ContextScores::default() }, &mut records);
        let value = |metric: &Metric, region: Option<&str>| {
            let is = |record: &&Measurement| record.metric == metric.name && record.region.as_deref() == region;
            records.iter().find(is).and_then(|record| record.value)
        };
        assert_eq!((value(&GIVES, Some("right")), value(&GIVES, Some("other"))), (Some(3.0), Some(-0.25)));
        assert_eq!((value(&GIVES, Some("each")), value(&HARMS, None)), (None, Some(1.0)), "one halves the odds");
        assert_eq!(value(&CONTEXT_FLOOR, None), None);
    }

    #[test]
    fn log_odds_do_not_saturate_before_rounding_does() {
        let odds = |p: f64| AnswerScore { log_prob_nats: p.ln(), ..AnswerScore::default() }.log_odds();
        assert!((odds(0.5)).abs() < 1e-12 && (odds(0.9) - 9f64.ln()).abs() < 1e-9 && odds(1.0).is_finite());
    }
}
