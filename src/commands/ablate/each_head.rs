//! The cost of each head, and which other measurement of heads predicts it.

use crate::results::pair::{on_shared_prompts, PromptNumbers};
use crate::results::run_table::RunTable;
use crate::results::table::{basis, key_column, numbers, numbers_in, words, Cell, Table, TableRows};
use crate::results::{of_head, of_model, under, Frame, Sides, Verdict};
use names::metric::{
    Kind, ACCURACY, ANSWER_LOG_PROB, ANSWER_REGION, HEAD_ATTRIBUTION, RETRIEVAL_SCORE, SHARE_ABS, SHARE_OUT,
    SINK_SHARE_FIRST,
};
use names::{Column, HeadPlace, Number};
use serde::Serialize;
use stats::{
    correlation_interval, correlation_on_other_prompts, pearson, simultaneous_interval, spearman, Correlation,
    Interval, CORRELATION_RESAMPLES,
};

/// Number of heads that are listed of each model.
const TOP: usize = 10;

/// The measurements that are compared with the cost of heads.
const CHEAP: [Number<'static>; 5] = [
    HEAD_ATTRIBUTION.overall(),
    SHARE_OUT.of(ANSWER_REGION),
    SHARE_ABS.of(ANSWER_REGION),
    RETRIEVAL_SCORE.overall(),
    SINK_SHARE_FIRST.overall(),
];

pub(super) const EACH_HEAD: RunTable = RunTable::made("each-head", "Cost of each head", strongest);
pub(super) const EVERY_COST: RunTable = RunTable::made("", "", all);
pub(super) const PREDICTORS: RunTable = RunTable::made("predictors", "Prediction of the cost of heads", predictors);

/// The changes with another output of one head, over prompts.
#[derive(Clone, Debug)]
pub(super) struct HeadCost {
    pub(super) at: HeadPlace,
    /// Change of the answer's log-probability from the untreated passes over the same prompts, in nats, by prompt.
    changes: PromptNumbers,
    /// Change of the accuracy, as a fraction, by prompt.
    exact: PromptNumbers,
    /// Interval of the mean of `changes`: 95 % for the intervals of all heads together.
    pub(super) interval: Option<Interval>,
}

/// A head with its cost and what else was measured of it; a row of `heads.csv`.
#[derive(Debug, Serialize)]
pub(super) struct HeadRow {
    model: String,
    layer: usize,
    head: usize,
    prompts: usize,
    log_prob_change_nats: f64,
    lo: Option<f64>,
    hi: Option<f64>,
    accuracy_change: Option<f64>,
    head_attribution: Option<f64>,
    share_out: Option<f64>,
    share_abs: Option<f64>,
    retrieval_score: Option<f64>,
    sink_share_first: Option<f64>,
}

impl HeadCost {
    /// Mean change of the answer's log-probability, in nats.
    pub(super) fn change(&self) -> f64 {
        self.changes.mean().unwrap_or(f64::NAN)
    }
}

/// The costs of all heads of a model, if the run took out each head by itself.
fn costs(frame: &Frame, model: &str) -> Vec<HeadCost> {
    let each = frame.conditions.each_head();
    let mut costs = Vec::new();
    for &(at, condition) in &each {
        let sides = Sides {
            baseline: vec![of_model(model), under(condition.baseline.as_deref())],
            other: vec![of_model(model), under(Some(&condition.name))],
        };
        let [changes, exact] =
            [&ANSWER_LOG_PROB, &ACCURACY].map(|metric| frame.differences_by_prompt(metric.overall(), &sides));
        if !changes.is_empty() {
            let interval = simultaneous_interval(&changes.values(), each.len());
            costs.push(HeadCost { at, changes, exact, interval });
        }
    }
    costs
}

/// The same, the largest changes first.
pub(super) fn dearest_first(frame: &Frame, model: &str) -> Vec<HeadCost> {
    let mut costs = costs(frame, model);
    costs.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    costs
}

/// The rows of `heads.csv`.
pub(super) fn head_rows(frame: &Frame) -> Vec<HeadRow> {
    let mut rows = Vec::new();
    for model in &frame.models {
        for cost in costs(frame, model) {
            let [head_attribution, share_out, share_abs, retrieval_score, sink_share_first] =
                CHEAP.map(|number| frame.by_prompt(number, &of_head(model, cost.at)).mean());
            rows.push(HeadRow {
                model: model.clone(),
                layer: cost.at.layer,
                head: cost.at.head,
                prompts: cost.changes.len(),
                log_prob_change_nats: cost.change(),
                lo: cost.interval.map(|interval| interval.lo),
                hi: cost.interval.map(|interval| interval.hi),
                accuracy_change: cost.exact.mean(),
                head_attribution,
                share_out,
                share_abs,
                retrieval_score,
                sink_share_first,
            });
        }
    }
    rows
}

/// The heads without which the answer's log-probability changes most.
fn strongest(frame: &Frame) -> Option<Table> {
    let mut rows: Vec<(&str, HeadCost)> = Vec::new();
    for model in &frame.models {
        rows.extend(dearest_first(frame, model).into_iter().take(TOP).map(|cost| (model.as_str(), cost)));
    }
    let (title, what) = if frame.conditions.restores() {
        (
            "Answer carried by each head",
            "One head at a time, on the prompt with another answer, outputs what it does on the prompt itself: change of \
             the log-probability of the prompt's answer",
        )
    } else {
        (
            "Cost of each head",
            "One head at a time taken out: change of the answer's log-probability from the untreated passes",
        )
    };
    let heads = frame.conditions.each_head().len();
    TableRows::of(&rows)
        .column(key_column(Column::Model), |(model, _)| Cell::words(*model))
        .column(words("head").key(), |(_, cost)| Cell::words(cost.at.to_string()))
        .column(basis("prompt"), |(_, cost)| Cell::count(cost.changes.len()))
        .column(numbers_in("change", "nats").named("answer_log_prob_change"), |(_, cost)| {
            Cell::value(Kind::Number, cost.change(), cost.interval).into_estimate()
        })
        .column(numbers_in("change", "points").named("accuracy_change"), |(_, cost)| {
            Cell::value(Kind::Hit, cost.exact.mean(), None)
        })
        .column(words("verdict"), |(_, cost)| Cell::words(Verdict::of_interval(cost.interval).name()))
        .table(
            "each-head",
            title,
            format!("{what} [interval, 95 % for all {heads} heads together], the largest first."),
        )
        .with_rows()
}

/// Every head by itself: the change of the answer's log-probability.
fn all(frame: &Frame) -> Option<Table> {
    let mut rows: Vec<(&str, HeadCost)> = Vec::new();
    for model in &frame.models {
        rows.extend(costs(frame, model).into_iter().map(|cost| (model.as_str(), cost)));
    }
    TableRows::of(&rows)
        .column(key_column(Column::Model), |(model, _)| Cell::words(*model))
        .column(key_column(Column::Layer), |(_, cost)| Cell::count(cost.at.layer))
        .column(key_column(Column::Head), |(_, cost)| Cell::count(cost.at.head))
        .column(numbers_in("change", "nats").named("answer_log_prob_change"), |(_, cost)| {
            Cell::value(Kind::Number, cost.change(), cost.interval).into_estimate()
        })
        .noted("")
        .with_rows()
}

/// A correlation over heads of a measurement with the cost on other prompts.
struct HeadCorrelation {
    r: f64,
    interval: Option<Interval>,
}

impl HeadCorrelation {
    /// The correlation of what was measured of each head with what it costs, both head by head and prompt by prompt.
    fn of(correlation: Correlation, measured: &[Vec<f64>], lost: &[Vec<f64>], seed: u64) -> Option<Self> {
        Some(Self {
            r: correlation_on_other_prompts(correlation, measured, lost)?,
            interval: correlation_interval(correlation, measured, lost, CORRELATION_RESAMPLES, seed),
        })
    }

    fn cell(&self) -> Cell {
        Cell::value(Kind::Number, self.r, self.interval).into_estimate()
    }
}

/// A measurement of a model's heads, and its correlations with their cost on other prompts.
struct Predictor<'a> {
    model: &'a str,
    measured: String,
    heads: usize,
    prompts: usize,
    linear: HeadCorrelation,
    ranked: HeadCorrelation,
}

impl<'a> Predictor<'a> {
    /// `None` if nothing was measured of some head, or nothing correlates.
    fn of(
        frame: &Frame,
        model: &'a str,
        measured: String,
        numbers: Vec<PromptNumbers>,
        lost: &[PromptNumbers],
    ) -> Option<Self> {
        let mut numbers = on_shared_prompts(&numbers.iter().chain(lost).cloned().collect::<Vec<_>>());
        let lost = numbers.split_off(lost.len());
        let correlation = |r| HeadCorrelation::of(r, &numbers, &lost, frame.about.seed);
        let linear = correlation(pearson)?;
        let ranked = correlation(spearman)?;
        Some(Self { model, measured, heads: lost.len(), prompts: lost.first()?.len(), linear, ranked })
    }
}

/// Correlation over heads of each cheap measurement with the cost on other prompts, and that of the cost itself.
fn predictors(frame: &Frame) -> Option<Table> {
    let restores = frame.conditions.restores();
    let mut rows = Vec::new();
    for model in &frame.models {
        let costs = costs(frame, model);
        let lost: Vec<PromptNumbers> =
            costs.iter().map(|cost| if restores { cost.changes.clone() } else { cost.changes.negated() }).collect();
        for number in CHEAP {
            let measured = costs.iter().map(|cost| frame.by_prompt(number, &of_head(model, cost.at))).collect();
            rows.extend(Predictor::of(frame, model, number.heading(), measured, &lost));
        }
        let itself = if restores { "what it carries" } else { "its cost" };
        rows.extend(Predictor::of(frame, model, itself.to_owned(), lost.clone(), &lost));
    }
    let (title, with) = if restores {
        ("Prediction of what heads carry", "carries: the log-probability that it restores")
    } else {
        ("Prediction of the cost of heads", "costs: the loss of log-probability without it")
    };
    let note = format!(
        "How well other measurements of heads, of the untreated passes, predict on one half of the prompts what a head {with} on the \
         other half: Pearson's correlation over heads, which the heads that cost most decide, and Spearman's, in which all heads count \
         alike, the mean of both ways round [95 % interval over heads and prompts]. The last row is that number itself on the other \
         half, which nothing can predict better."
    );
    TableRows::of(&rows)
        .column(key_column(Column::Model), |row| Cell::words(row.model))
        .column(words("measured").key(), |row| Cell::words(&row.measured))
        .column(basis("head"), |row| Cell::count(row.heads))
        .column(basis("prompt"), |row| Cell::count(row.prompts))
        .column(numbers("correlation"), |row| row.linear.cell())
        .column(numbers("rank correlation").named("rank_correlation"), |row| row.ranked.cell())
        .table("predictors", title, note)
        .with_rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::About;
    use names::metric::Metric;
    use stats::Rng;
    use std::sync::Arc;

    fn record(seed: u64, condition: Option<String>, metric: &Metric, at: Option<HeadPlace>, value: f64) -> Record {
        let identity = Identity {
            model: "m".into(),
            ctx_tok: 8,
            seed: Some(seed),
            condition: condition.map(Into::into),
            ..Identity::default()
        };
        let measure = Measurement {
            metric: metric.name.into(),
            layer: at.map(|at| at.layer),
            head: at.map(|at| at.head),
            value: Some(value),
            ..Measurement::default()
        };
        Record { identity: Arc::new(identity), measure }
    }

    /// Eight prompts of two layers of two heads: head (l, h) costs 2 l + h nats, a little more with each prompt, and its
    /// retrieval score is the more the less it costs.
    fn frame() -> Frame {
        let mut records = Vec::new();
        for prompt in 0..8 {
            records.push(record(prompt, None, &ANSWER_LOG_PROB, None, -1.0));
            for at in HeadPlace::all(2, 2) {
                let cost = (2 * at.layer + at.head) as f64 + 0.01 * prompt as f64;
                let condition = Some(format!("ablate({at})"));
                records.push(record(prompt, condition, &ANSWER_LOG_PROB, None, -1.0 - cost));
                records.push(record(prompt, None, &RETRIEVAL_SCORE, Some(at), 1.0 - 0.1 * cost));
            }
        }
        Frame::new(About::default(), &records)
    }

    #[test]
    fn heads_are_listed_by_what_they_cost_and_joined_with_what_else_was_measured() {
        let frame = frame();
        let table = strongest(&frame).unwrap();
        let heads: Vec<&str> = table.rows.iter().map(|row| row[1].text.as_str()).collect();
        assert_eq!(heads, ["1.1", "1.0", "0.1", "0.0"]);
        assert_eq!(table.rows[0].last().unwrap().text, "lower");
        let rows = head_rows(&frame);
        assert_eq!((rows.len(), rows[1].head, rows[1].prompts), (4, 1, 8));
        assert!((rows[1].log_prob_change_nats + 1.035).abs() < 1e-9 && rows[1].hi.unwrap() < -1.0);
        assert!((rows[1].retrieval_score.unwrap() - 0.8965).abs() < 1e-9 && rows[1].share_out.is_none());
    }

    #[test]
    fn correlations_are_of_the_same_prompts_whatever_the_order_of_the_records() {
        let conditions = frame().conditions;
        // Each head costs on every second prompt what it scores on the others.
        let cost = |place: u64, prompt: u64| ((7 * place + 5 * (prompt % 2)) % 11) as f64;
        let mut records = Vec::new();
        for (place, (at, condition)) in (0_u64..).zip(conditions.each_head()) {
            for prompt in 0..8 {
                let log_prob = -1.0 - cost(place, prompt);
                records.push(record(prompt, Some(condition.name.clone()), &ANSWER_LOG_PROB, None, log_prob));
                records.push(record(prompt, None, &RETRIEVAL_SCORE, Some(at), cost(place, prompt + 1)));
            }
        }
        records.extend((0..8).map(|prompt| record(prompt, None, &ANSWER_LOG_PROB, None, -1.0)));
        let cells = |records: &[Record]| predictors(&Frame::new(About::default(), records)).unwrap().rows;
        let found = cells(&records);
        let interval = found[0][4].interval.unwrap();
        assert!(interval.lo > 1.0 - 1e-9, "every resample of prompts agrees: {interval:?}");
        let mut rng = Rng::new(0, "order of records");
        for _ in 0..5 {
            rng.shuffle(&mut records);
            assert_eq!(cells(&records), found);
        }
    }

    #[test]
    fn what_is_more_where_heads_cost_less_predicts_the_cost_backwards_and_the_cost_predicts_itself() {
        let table = predictors(&frame()).unwrap();
        let measured: Vec<&str> = table.rows.iter().map(|row| row[1].text.as_str()).collect();
        assert_eq!(measured, ["retrieval %", "its cost"], "only what was measured");
        for (row, want) in table.rows.iter().zip([-1.0, 1.0]) {
            assert!([4, 5].iter().all(|&column| (row[column].exact.unwrap() - want).abs() < 1e-9), "{row:?}");
        }
    }
}
