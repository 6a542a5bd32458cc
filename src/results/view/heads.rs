//! Purposes of heads: the strongest heads of each role, of the answer, and sinks.

use super::strongest::{strongest, strongest_head, Strong};
use crate::results::metric::{
    Kind, Metric, ANSWER_REGION, CANCELLED, DUPLICATE_TOKEN, INDUCTION, LOGIT_OUT, PREVIOUS_TOKEN, QUERY_SCORE,
    RETRIEVAL_SCORE, SHARE_OUT, SINK_SHARE_FIRST, VALUE_NORM_FIRST,
};
use crate::results::table::{basis, numbers, words, Cell, Table, TableColumn};
use crate::results::table::{fixed, short};
use crate::results::{Frame, HeadPlace};
use crate::stats::mean;

/// Number of heads that are listed of each role.
const TOP_OF_ROLE: usize = 3;
/// Number of heads that are listed of each model.
const TOP: usize = 8;

/// A head whose first token takes less than this is no sink, by the threshold of Gu et al. (2025).
const SINK_SHARE: f64 = 0.3;
/// A sink whose value is shorter than this part of the mean gives nothing back.
const NULL_VALUE: f64 = 0.25;

/// A purpose of heads, and the metric that scores it.
pub(crate) struct HeadRole {
    /// Its name in tables and files.
    pub(crate) name: &'static str,
    pub(crate) metric: &'static Metric,
    pub(crate) region: Option<&'static str>,
}

const fn role(name: &'static str, metric: &'static Metric, region: Option<&'static str>) -> HeadRole {
    HeadRole { name, metric, region }
}

/// The roles of heads, in the order of tables.
pub(crate) const HEAD_ROLES: [HeadRole; 9] = [
    role("answer logits", &LOGIT_OUT, Some(ANSWER_REGION)),
    role("answer out", &SHARE_OUT, Some(ANSWER_REGION)),
    role("retrieval", &RETRIEVAL_SCORE, None),
    role("query", &QUERY_SCORE, None),
    role("previous token", &PREVIOUS_TOKEN, None),
    role("induction", &INDUCTION, None),
    role("duplicate token", &DUPLICATE_TOKEN, None),
    role("sink", &SINK_SHARE_FIRST, None),
    role("cancelling", &CANCELLED, None),
];

/// Returns the name of a head, as conditions have it: `2.0` is head 0 of layer 2.
pub(super) fn head_name((layer, head): HeadPlace) -> String {
    format!("{layer}.{head}")
}

/// Every table of heads that the run has numbers for.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let is_of_roles = frame.config_text("show") == "heads" || frame.has(RETRIEVAL_SCORE.name);
    let of_roles = if is_of_roles { [roles(frame), sinks(frame)] } else { [None, None] };
    [answer_heads(frame)].into_iter().chain(of_roles).flatten().collect()
}

/// The strongest head of each role, a column for each model.
pub(super) fn by_role(frame: &Frame) -> Option<Table> {
    let mut columns = vec![words("role").key(), words("scored by").key()];
    columns.extend(frame.models().iter().map(words));
    let cell = |role: &HeadRole, model: &String| {
        strongest_head(frame, model, (role.metric.name, role.region)).map_or_else(Cell::none, |head| {
            let [_, score, _] = head.cells(role.metric.kind);
            let text = format!("{} ({})", head_name(head.at), score.text);
            Cell { exact: Some(head.score), ..Cell::words(text) }
        })
    };
    let row = |role: &HeadRole| {
        let cells: Vec<Cell> = frame.models().iter().map(|model| cell(role, model)).collect();
        let is_known = cells.iter().any(|cell| !cell.is_none());
        let names = vec![Cell::words(role.name), Cell::words(role.metric.heading(role.region))];
        is_known.then(|| [names, cells].concat())
    };
    let mut rows: Vec<Vec<Cell>> = HEAD_ROLES.iter().filter_map(row).collect();
    let shares: Vec<Option<f64>> = frame.models().iter().map(|model| retrieval_heads(frame, model)).collect();
    if shares.iter().any(Option::is_some) {
        let names = vec![Cell::words("retrieval heads"), Cell::words("retrieval heads %")];
        let cell = |share: Option<f64>| share.map_or_else(Cell::none, |share| Cell::value(Kind::Share, share, None));
        rows.push([names, shares.into_iter().map(cell).collect()].concat());
    }
    let note =
        "The strongest head of each role (score, mean over prompts). Head 2.0 is head 0 of layer 2. Retrieval heads: \
                share of heads with a retrieval score above 0.1."
            .to_owned();
    (!rows.is_empty()).then(|| Table::new("strongest", "Heads by role", note, columns, rows))
}

/// Retrieval score above which a head is a retrieval head (Wu et al. 2024).
const RETRIEVAL: f64 = 0.1;

/// The share of a model's heads that are retrieval heads; `None` if it has no scores.
fn retrieval_heads(frame: &Frame, model: &str) -> Option<f64> {
    let heads = frame.heads(model, None, RETRIEVAL_SCORE.name, None);
    let is_one = |values: &[f64]| f64::from(u8::from(mean(values).is_some_and(|score| score > RETRIEVAL)));
    mean(&heads.iter().map(|(_, values)| is_one(values)).collect::<Vec<f64>>())
}

fn roles(frame: &Frame) -> Option<Table> {
    let keys = [words("role"), words("model"), words("head")].map(TableColumn::key);
    let numbers = [basis("prompts"), numbers("score"), numbers("stable %").named("in_top")];
    let mut rows = Vec::new();
    for role in &HEAD_ROLES {
        for model in frame.models() {
            let heads = strongest(frame, model, (role.metric.name, role.region), TOP_OF_ROLE);
            rows.extend(heads.map(|head| role_row(model, role, &head)));
        }
    }
    let note = format!(
        "The {TOP_OF_ROLE} strongest heads of each role, fractions in % [95 % interval]; stable: share of resamples of the \
         prompts in which a head is among them."
    );
    let columns = [keys.to_vec(), numbers.into()].concat();
    Table::new("roles", "Heads of each role", note, columns, rows).details().trimmed()
}

fn role_row(model: &str, role: &HeadRole, head: &Strong) -> Vec<Cell> {
    let place = [Cell::words(role.name), Cell::words(model), Cell::words(head_name(head.at))];
    [place, head.cells(role.metric.kind)].concat()
}

/// The strongest sinks of each model, and the length of the value that they attend to.
fn sinks(frame: &Frame) -> Option<Table> {
    let columns = [
        words("model").key(),
        words("head").key(),
        numbers("on first token %").named(SINK_SHARE_FIRST.name),
        numbers("its value / mean value").named(VALUE_NORM_FIRST.name),
        words("kind"),
    ];
    let row = |model: &str, head: Strong| {
        let norm = mean(&frame.head(model, None, VALUE_NORM_FIRST.name, None, head.at));
        vec![
            Cell::words(model),
            Cell::words(head_name(head.at)),
            Cell::value(Kind::Share, head.score, None),
            Cell::number(norm, |x| short(Some(x))),
            norm.map_or_else(Cell::none, |norm| Cell::words(kind_of_sink(head.score, norm))),
        ]
    };
    let of = |model: &String| {
        let heads = strongest(frame, model, (SINK_SHARE_FIRST.name, None), TOP_OF_ROLE);
        heads.map(|head| row(model, head)).collect::<Vec<_>>()
    };
    let rows = frame.models().iter().flat_map(of).collect();
    let note = format!(
        "Sinks from {} % on the first token on (Gu et al. 2025). The value of a null sink is shorter than {NULL_VALUE} of the \
         mean; that of a broadcasting sink is not.",
        fixed(100.0 * SINK_SHARE, 0)
    );
    Table::new("sinks", "Sinks", note, columns.into(), rows).details().trimmed()
}

/// Returns the kind of a sink; `value_norm` is the norm of the first token's value over the mean one.
fn kind_of_sink(share: f64, value_norm: f64) -> &'static str {
    match share > SINK_SHARE {
        false => "no sink",
        true if value_norm < NULL_VALUE => "null",
        true => "broadcasting",
    }
}

/// The metric that tells the heads which matter for the answer: the direct effect on its logits, which predicts best what it
/// costs to take a head out; the share of their output where a model has no direct effect, behind a soft cap.
fn answer_metric(frame: &Frame) -> &'static Metric {
    let has_effect = |model: &String| !frame.heads(model, None, LOGIT_OUT.name, Some(ANSWER_REGION)).is_empty();
    if frame.models().iter().all(has_effect) {
        &LOGIT_OUT
    } else {
        &SHARE_OUT
    }
}

/// The heads that matter most for the answer, if single heads were measured without treatment.
fn answer_heads(frame: &Frame) -> Option<Table> {
    let metric = answer_metric(frame);
    if !frame.asks() {
        return None;
    }
    let row = |model: &str, head: &Strong| {
        let [prompts, score, stable] = head.cells(metric.kind);
        let (layer, index) = head.at;
        let place = [Cell::words(model), Cell::count(Some(layer)), Cell::count(Some(index))];
        [place.to_vec(), vec![prompts, score, stable]].concat()
    };
    let of = |model: &String| {
        let heads = strongest(frame, model, (metric.name, Some(ANSWER_REGION)), TOP);
        heads.map(|head| row(model, &head)).collect::<Vec<_>>()
    };
    let rows = frame.models().iter().flat_map(of).collect();
    let columns = vec![
        words("model").key(),
        numbers("layer").key(),
        numbers("head").key(),
        basis("prompts"),
        numbers(metric.heading(Some(ANSWER_REGION))).named(metric.name_of(Some(ANSWER_REGION))),
        numbers("stable %").named("in_top"),
    ];
    let note = format!(
        "The {TOP} heads of each model with the largest {} [95 % interval]; stable: share of resamples of the prompts in \
         which a head is among them.",
        metric.heading(Some(ANSWER_REGION)).trim_end_matches(" %")
    );
    Table::new("heads", "Strongest heads for the answer", note, columns, rows).details().trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::metric::ANSWER_LOG_PROB;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::About;
    use std::sync::Arc;

    fn record(seed: u64, head: usize, metric: &Metric, value: f64) -> Record {
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(seed), ..Identity::default() });
        let (layer, head) = (Some(0), Some(head));
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
        let frame = Frame::of(About::default(), &records).unwrap();
        let line = |row: &Vec<Cell>| row.iter().map(Cell::line).collect::<Vec<_>>();
        let rows = |table: Table| table.rows.iter().map(line).collect::<Vec<_>>();
        let found = rows(roles(&frame).unwrap());
        assert_eq!(found[0], ["induction", "m", "0.1", "4", "80.0 [-]", "100"]);
        assert_eq!(found.len(), 4, "roles that were not measured have no rows");
        let found = rows(sinks(&frame).unwrap());
        assert_eq!(found, [["m", "0.0", "90.0", "0.050", "null"], ["m", "0.1", "10.0", "0.050", "no sink"]]);
        assert_eq!(kind_of_sink(0.5, 0.5), "broadcasting");
        assert_eq!(rows(by_role(&frame).unwrap())[0], ["induction", "induction %", "0.1 (80.0)"]);
    }
}
