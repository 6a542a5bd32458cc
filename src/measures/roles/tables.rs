//! Purposes of heads: the strongest heads of each role, of the answer, and sinks.

use crate::results::pair::{on_shared_prompts, PromptNumbers};
use crate::results::run_table::{number_table, Content, RunTable};
use crate::results::screen::ModelRows;
use crate::results::table::{
    basis, fixed, key_column, numbers, numbers_in, numbers_of, short, words, Cell, Table, TableColumn, TableRows,
};
use crate::results::{of_head, of_model, under, Estimate, Frame};
use names::metric::{
    Kind, ANSWER_REGION, CANCELLED, DUPLICATE_TOKEN, HEAD_ATTRIBUTION, INDUCTION, PREVIOUS_TOKEN, QUERY_SCORE,
    RETRIEVAL_SCORE, SHARE_OUT, SINK_SHARE_FIRST, VALUE_NORM_FIRST,
};
use names::{Column, HeadPlace, Number};
use stats::{rank_stability, RESAMPLES};

/// Number of heads that are listed of each role.
const TOP_OF_ROLE: usize = 3;
/// Number of heads that are listed of each model.
const TOP: usize = 8;

/// A head whose first token takes less than this is no sink, by the threshold of Gu et al. (2025).
const SINK_SHARE: f64 = 0.3;
/// A sink whose value is shorter than this part of the mean gives nothing back.
const NULL_VALUE: f64 = 0.25;

/// A purpose of heads, and the number that scores it.
struct HeadRole {
    /// Its name in tables.
    name: &'static str,
    number: Number<'static>,
}

const fn role(name: &'static str, number: Number<'static>) -> HeadRole {
    HeadRole { name, number }
}

/// The roles of heads, in the order of tables.
const HEAD_ROLES: [HeadRole; 9] = [
    role("answer nats", HEAD_ATTRIBUTION.overall()),
    role("answer out", SHARE_OUT.of(ANSWER_REGION)),
    role("retrieval", RETRIEVAL_SCORE.overall()),
    role("query", QUERY_SCORE.overall()),
    role("previous token", PREVIOUS_TOKEN.overall()),
    role(INDUCTION.name, INDUCTION.overall()),
    role("duplicate token", DUPLICATE_TOKEN.overall()),
    role("sink", SINK_SHARE_FIRST.overall()),
    role("cancelling", CANCELLED.overall()),
];

impl HeadRole {
    /// Its name on screens, with the unit of its score: `retrieval %`.
    fn label(&self) -> String {
        let unit = if self.number.label().unit == "%" { " %" } else { "" };
        self.name.to_owned() + unit
    }
}

/// The number that scores a role of heads, by the role's name or its label on screens.
pub(crate) fn role_number(label: &str) -> Option<Number<'static>> {
    let role = HEAD_ROLES.into_iter().find(|role| role.name == label || role.label() == label);
    role.map(|role| role.number)
}

/// A head with its scores by the metric of a role.
struct ScoredHead<'a> {
    role: &'a HeadRole,
    model: &'a str,
    at: HeadPlace,
    /// Mean over prompts.
    score: f64,
    values: PromptNumbers,
    /// Fraction of resamples of the prompts in which it is among the strongest, if that was counted.
    in_top: Option<f64>,
}

/// The heads of a model, in the order of layers and heads.
fn scored<'a>(frame: &Frame, model: &'a str, role: &'a HeadRole) -> Vec<ScoredHead<'a>> {
    let mut heads = Vec::new();
    for (at, values) in frame.heads(role.number, &[of_model(model), under(None)]) {
        if let Some(score) = values.mean() {
            heads.push(ScoredHead { role, model, at, score, values, in_top: None });
        }
    }
    heads
}

/// The `top` strongest heads of each model, with the stability of their ranks; equals in the order of layers and heads.
fn strongest<'a>(frame: &'a Frame, role: &'a HeadRole, top: usize) -> Vec<ScoredHead<'a>> {
    let mut of_models = Vec::new();
    for model in &frame.models {
        let mut heads = scored(frame, model, role);
        let values = on_shared_prompts(&heads.iter().map(|head| head.values.clone()).collect::<Vec<_>>());
        for (head, in_top) in heads.iter_mut().zip(rank_stability(&values, top, RESAMPLES, frame.about.seed)) {
            head.in_top = Some(in_top);
        }
        heads.sort_by(|a, b| b.score.total_cmp(&a.score));
        heads.truncate(top);
        of_models.extend(heads);
    }
    of_models
}

/// Adds the columns of prompts, of the score with an interval, and of its stability in percent; the interval is missing of few
/// prompts, the stability of a single one.
fn score_columns<'a>(rows: TableRows<'a, ScoredHead<'a>>, score: TableColumn) -> TableRows<'a, ScoredHead<'a>> {
    rows.column(basis("prompt"), |head| Cell::count(head.values.len()))
        .column(score, ScoredHead::score_cell)
        .column(numbers_in("stable", "%").named("in_top"), |head| {
            Cell::number(head.in_top.filter(|_| head.values.len() > 1), |x| fixed(100.0 * x, 0))
        })
}

impl ScoredHead<'_> {
    fn score_cell(&self) -> Cell {
        let prompts = self.values.len();
        let score = Estimate::of_means(&self.values.values(), prompts, self.role.number.metric.kind);
        let interval = score.and_then(|score| score.interval);
        Cell::value(self.role.number.metric.kind, score.map(|score| score.value), interval)
            .into_estimate()
            .of_several(prompts)
    }
}

pub(crate) const STRONGEST: RunTable = RunTable {
    id: "strongest",
    title: "Heads by role",
    note: "The strongest head of each role, and its score.",
    content: Content::Made(by_role),
};

pub(crate) const ROLES: RunTable =
    RunTable { id: "roles", title: "Heads of each role", note: "", content: Content::Made(roles) };

pub(crate) const SINKS: RunTable = RunTable { id: "sinks", title: "Sinks", note: "", content: Content::Made(sinks) };

pub(crate) const ANSWER_HEADS: RunTable =
    RunTable { id: "heads", title: "Strongest heads for the answer", note: "", content: Content::Made(answer_heads) };

/// Every head with its score in each role, under the name of the role.
pub(crate) const EVERY_HEAD: RunTable = RunTable::made("", "", every_head);

fn every_head(frame: &Frame) -> Option<Table> {
    let numbers = HEAD_ROLES.each_ref().map(|role| role.number);
    let mut table = number_table(frame, &numbers, &[Column::Layer, Column::Head])?;
    for role in &HEAD_ROLES {
        let name = role.number.metric.name_of(role.number.region);
        let scored = table.columns.iter_mut().find(|column| column.name == name);
        scored.into_iter().for_each(|column| column.name = role.name.to_owned());
    }
    Some(table)
}

/// The strongest head of each role, a column for each model.
pub(crate) fn by_role(frame: &Frame) -> Option<Table> {
    let mut table = ModelRows::new("role", &frame.models);
    for role in &HEAD_ROLES {
        table.row(role.label(), |model| strongest_cell(frame, model, role));
    }
    table.row("retrieval heads %", |model| Cell::value(Kind::Share, retrieval_heads(frame, model), None));
    let mut table = table.table("")?;
    table.columns.iter_mut().for_each(|column| column.number = false);
    Some(table)
}

/// The strongest head of a role and its score: `2.0 (51.3)`.
fn strongest_cell(frame: &Frame, model: &str, role: &HeadRole) -> Cell {
    let heads = scored(frame, model, role).into_iter();
    let Some(head) = heads.min_by(|a, b| b.score.total_cmp(&a.score)) else { return Cell::none() };
    let text = format!("{} ({})", head.at, head.score_cell().text);
    Cell { exact: Some(head.score), ..Cell::words(text) }
}

/// Retrieval score above which a head is a retrieval head (Wu et al. 2024).
const RETRIEVAL: f64 = 0.1;

/// The share of a model's heads that are retrieval heads; `None` if it has no scores.
fn retrieval_heads(frame: &Frame, model: &str) -> Option<f64> {
    let retrieval = role("retrieval", RETRIEVAL_SCORE.overall());
    let heads = scored(frame, model, &retrieval);
    // A mean of exactly this much may come out a little above it.
    let retrieving = heads.iter().filter(|head| head.score > RETRIEVAL + 1e-9).count();
    (!heads.is_empty()).then(|| retrieving as f64 / heads.len() as f64)
}

fn roles(frame: &Frame) -> Option<Table> {
    let mut heads = Vec::new();
    for role in &HEAD_ROLES {
        heads.extend(strongest(frame, role, TOP_OF_ROLE));
    }
    let note = format!(
        "The {TOP_OF_ROLE} strongest heads of each role, fractions in % [95 % interval]; stable: share of resamples of the \
         prompts in which a head is among them."
    );
    let table = TableRows::of(&heads)
        .column(words("role").key(), |head| Cell::words(head.role.name))
        .column(key_column(Column::Model), |head| Cell::words(head.model))
        .column(words("head").key(), |head| Cell::words(head.at.to_string()));
    score_columns(table, numbers("score")).noted(note).trimmed()
}

/// The strongest sinks of each model, and the length of the value that they attend to.
fn sinks(frame: &Frame) -> Option<Table> {
    let sink = role("sink", SINK_SHARE_FIRST.overall());
    let mut heads = Vec::new();
    for head in strongest(frame, &sink, TOP_OF_ROLE) {
        let norm = frame.by_prompt(VALUE_NORM_FIRST.overall(), &of_head(head.model, head.at)).mean();
        heads.push((head, norm));
    }
    let note = format!(
        "Sinks from {} % on the first token on (Gu et al. 2025). The value of a null sink is shorter than {NULL_VALUE} of the \
         mean; that of a broadcasting sink is not.",
        fixed(100.0 * SINK_SHARE, 0)
    );
    TableRows::of(&heads)
        .column(key_column(Column::Model), |(head, _)| Cell::words(head.model))
        .column(words("head").key(), |(head, _)| Cell::words(head.at.to_string()))
        .column(numbers_in("on first token", "%").named(SINK_SHARE_FIRST.name), |(head, _)| {
            Cell::value(Kind::Share, head.score, None)
        })
        .column(numbers("its value / mean value").named(VALUE_NORM_FIRST.name), |(_, norm)| {
            Cell::number(*norm, |x| short(Some(x)))
        })
        .column(words("kind"), |(head, norm)| Cell::optional_words(norm.map(|norm| kind_of_sink(head.score, norm))))
        .noted(note)
        .trimmed()
}

/// The kind of a sink; `value_norm` is the norm of the first token's value over the mean one.
fn kind_of_sink(share: f64, value_norm: f64) -> &'static str {
    if share > SINK_SHARE && value_norm < NULL_VALUE {
        "null"
    } else if share > SINK_SHARE {
        "broadcasting"
    } else {
        "no sink"
    }
}

/// The heads that matter most for the answer, if single heads were measured without treatment.
fn answer_heads(frame: &Frame) -> Option<Table> {
    if !frame.asks() {
        return None;
    }
    // Attribution predicts best what it costs to take a head out. Not every model and run has it.
    let readings = [HEAD_ATTRIBUTION.overall(), SHARE_OUT.of(ANSWER_REGION)];
    let mut roles = readings.into_iter().map(|number| role("answer", number));
    let role = roles.find(|role| frame.models.iter().all(|model| !scored(frame, model, role).is_empty()))?;
    let label = role.number.label();
    let note = format!(
        "The {TOP} heads of each model with the largest {} [95 % interval]; stable: share of resamples of the prompts in \
         which a head is among them.",
        label.comparison_heading()
    );
    let heads = strongest(frame, &role, TOP);
    let table = TableRows::of(&heads)
        .column(key_column(Column::Model), |head| Cell::words(head.model))
        .column(key_column(Column::Layer), |head| Cell::count(head.at.layer))
        .column(key_column(Column::Head), |head| Cell::count(head.at.head));
    score_columns(table, numbers_of(label).named(role.number.metric.name_of(role.number.region))).noted(note).trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::About;
    use names::metric::{Metric, ANSWER_LOG_PROB};
    use std::sync::Arc;

    fn record(seed: u64, head: usize, metric: &Metric, value: f64) -> Record {
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(seed), ..Identity::default() });
        let layer = Some(0);
        let head = Some(head);
        let measure =
            Measurement { layer, head, metric: metric.name.into(), value: Some(value), ..Measurement::default() };
        Record { identity, measure }
    }

    #[test]
    fn the_strongest_head_comes_first_and_sinks_have_a_kind() {
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(0), ..Identity::default() });
        let whole = Measurement { metric: ANSWER_LOG_PROB.name.into(), value: Some(-1.0), ..Measurement::default() };
        let mut records = vec![Record { identity, measure: whole }];
        for seed in 0..4 {
            for head in 0..2 {
                records.push(record(seed, head, &INDUCTION, [0.2, 0.8][head]));
                records.push(record(seed, head, &SINK_SHARE_FIRST, [0.9, 0.1][head]));
                records.push(record(seed, head, &VALUE_NORM_FIRST, 0.05));
            }
        }
        let frame = Frame::new(About::default(), &records);
        let line = |row: &Vec<Cell>| row.iter().map(Cell::line).collect::<Vec<_>>();
        let rows = |table: Table| table.rows.iter().map(line).collect::<Vec<_>>();
        let found = rows(roles(&frame).unwrap());
        assert_eq!(found[0], [INDUCTION.name, "m", "0.1", "4", "80.0 [-]", "100"]);
        assert_eq!(found.len(), 4, "roles that were not measured have no rows");
        let found = rows(sinks(&frame).unwrap());
        assert_eq!(found, [["m", "0.0", "90.0", "0.050", "null"], ["m", "0.1", "10.0", "0.050", "no sink"]]);
        assert_eq!(kind_of_sink(0.5, 0.5), "broadcasting");
        assert_eq!(rows(by_role(&frame).unwrap())[0], ["induction %", "0.1 (80.0)"]);
    }
}
