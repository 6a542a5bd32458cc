//! What each head is for: the strongest heads of each role, and what sinks give back.

use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use super::strongest::{listed, strongest, Strong};
use crate::frame::Frame;
use crate::stats::mean;
use crate::table::{percent, short};

/// Heads that are listed of each role if nobody says how many.
const TOP: usize = 3;

/// The metric of sinks.
const SINK: &str = "sink_share_first";
/// A head whose first token takes less than this is no sink, by the threshold of Gu et al. (2025).
const SINK_SHARE: f64 = 0.3;
/// A sink whose value is shorter than this part of the usual one gives nothing back.
const NULL_VALUE: f64 = 0.25;

/// Something that a head can be for, and the number that says how much it is.
pub(crate) struct Role {
    /// In tables and as `--rank` of other commands.
    pub(crate) name: &'static str,
    pub(crate) metric: (&'static str, Option<&'static str>),
    /// Whether the number is a fraction, to be shown in percent.
    pub(crate) fraction: bool,
    /// Whether the single maps have the same number: under its name with `_a1` and `_a2`.
    of_maps: bool,
    /// What the number is, for the figure.
    pub(crate) what: &'static str,
}

const fn role(name: &'static str, metric: &'static str, region: Option<&'static str>, what: &'static str) -> Role {
    Role { name, metric: (metric, region), fraction: true, of_maps: false, what }
}

const fn of_maps(role: Role) -> Role {
    Role { of_maps: true, ..role }
}

const fn number(role: Role) -> Role {
    Role { fraction: false, ..role }
}

pub(crate) const ROLES: [Role; 10] = [
    role("answer out", "share_out", Some("answer"), "share of what it writes that comes from the answer (%)"),
    number(role("answer logits", "logit_out", Some("answer"), "direct effect of the answer's tokens (logits)")),
    of_maps(role("retrieval", "retrieval_score", None, "rows whose largest key is the token to copy (%)")),
    of_maps(role("query", "query_score", None, "share of the question's rows on the needle (%)")),
    of_maps(role("previous token", "previous_token", None, "share on the token before (%)")),
    of_maps(role("induction", "induction", None, "share on the token after the same (%)")),
    of_maps(role("duplicate token", "duplicate_token", None, "share on the same token before (%)")),
    role("sink", SINK, None, "share on the first token (%)"),
    role("cancelling", "cancelled", None, "attention that the subtraction removes (%)"),
    number(role("loud", "context_rms", None, "RMS of the weighed values")),
];

/// What the roles are.
const NOTE: &str = "\
Answer out: the answer's share of what the head writes. Answer logits: its direct effect on the right token's logit, less \
the mean logit. Retrieval: how often the largest key is the token to copy (Wu et al. 2024). Query: share of the question's \
rows on the needle. Previous token, induction, duplicate token: on repeated random tokens. Sink: share on the first token. \
Cancelling: 1 - sum |a| / sum (A1 + lambda A2). Loud: RMS before the head norm.";

/// How the table calls a head: `2.0` is head 0 of layer 2, as in the conditions of `ablate`.
fn head_name((layer, head): (usize, usize)) -> Cell {
    Cell::words(format!("{layer}.{head}"))
}

/// The tables, if the run is about them, or roles were measured.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let measured = frame.metrics().iter().any(|(metric, ..)| metric == "retrieval_score");
    if frame.config_text("show") != "heads" && !measured {
        return Vec::new();
    }
    let top = listed(frame, TOP);
    [roles(frame, top), sinks(frame, top)].into_iter().flatten().collect()
}

fn roles(frame: &Frame, top: usize) -> Option<Sheet> {
    let keys = [words("role"), words("model"), words("head"), numbers("prompts")].map(Column::key);
    let numbers = [
        numbers("score"),
        numbers("stable %").named("in_top"),
        numbers("A1").named("score_a1"),
        numbers("A2").named("score_a2"),
    ];
    let of = |role: &Role| -> Vec<Vec<Cell>> {
        let of_model = |model: &String| -> Vec<Vec<Cell>> {
            strongest(frame, model, role.metric, top).map(|head| row(frame, model, role, &head)).collect()
        };
        frame.models().iter().flat_map(of_model).collect()
    };
    let rows = ROLES.iter().flat_map(of).collect();
    let note = format!(
        "The {top} strongest heads of each role. Head 2.0 is head 0 of layer 2. Scores are means over prompts, fractions \
         in % [95 % bootstrap interval]; stable: how often a head is among these when prompts are drawn anew; A1 and A2: \
         the score of a single map. {NOTE}"
    );
    let columns = [keys.to_vec(), numbers.into()].concat();
    Sheet::new("roles", "What heads are for", note, columns, rows).details().trimmed()
}

/// The mean over prompts of another number of a head.
fn of_head(frame: &Frame, model: &str, metric: &str, at: (usize, usize)) -> Option<f64> {
    let heads = frame.heads(model, metric, None);
    heads.into_iter().find(|(place, _)| *place == at).and_then(|(_, values)| mean(&values))
}

fn row(frame: &Frame, model: &str, role: &Role, head: &Strong) -> Vec<Cell> {
    let kind = if role.fraction { Kind::Share } else { Kind::Number };
    let write = |x: f64| if role.fraction { percent(x) } else { short(Some(x)) };
    let [prompts, score, stable] = head.cells(kind);
    let of_map = |map: usize| {
        let metric = format!("{}_a{map}", role.metric.0);
        role.of_maps.then(|| of_head(frame, model, &metric, head.at)).flatten()
    };
    vec![
        Cell::words(role.name),
        Cell::words(model),
        head_name(head.at),
        prompts,
        score,
        stable,
        Cell::number(of_map(1), write),
        Cell::number(of_map(2), write),
    ]
}

/// What the strongest sinks of each model give back.
fn sinks(frame: &Frame, top: usize) -> Option<Sheet> {
    let role = ROLES.iter().find(|role| role.metric.0 == SINK).expect("sinks are a role");
    let columns = [
        words("model").key(),
        words("head").key(),
        numbers("on first token %").named(SINK),
        numbers("its value / mean value").named("value_norm_first"),
        words("kind"),
    ];
    let row = |model: &str, head: Strong| {
        let norm = of_head(frame, model, "value_norm_first", head.at);
        vec![
            Cell::words(model),
            head_name(head.at),
            Cell::number(Some(head.score), percent),
            Cell::number(norm, |x| short(Some(x))),
            norm.map_or_else(Cell::none, |norm| Cell::words(kind_of_sink(head.score, norm))),
        ]
    };
    let of =
        |model: &String| strongest(frame, model, role.metric, top).map(|head| row(model, head)).collect::<Vec<_>>();
    let rows = frame.models().iter().flat_map(of).collect();
    let note = format!(
        "Heads with the largest shares on the first token: sinks from {} % on (Gu et al. 2025). A null sink's value is \
         shorter than {NULL_VALUE} of the mean and gives nothing back; a broadcasting sink's is not.",
        percent(SINK_SHARE)
    );
    Sheet::new("sinks", "Sinks", note, columns.into(), rows).details().trimmed()
}

/// Of which kind a sink is: `value_norm` is that of the first token over the mean one.
fn kind_of_sink(share: f64, value_norm: f64) -> &'static str {
    match share > SINK_SHARE {
        false => "no sink",
        true if value_norm < NULL_VALUE => "null",
        true => "broadcasting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measurement, Record};
    use std::sync::Arc;

    fn add(frame: &mut Frame, seed: u64, head: usize, metric: &'static str, value: f64) {
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(seed), ..Identity::default() });
        let (layer, head) = (Some(0), Some(head));
        let measure = Measurement { layer, head, metric: metric.into(), value: Some(value), ..Measurement::default() };
        frame.add(&Record { identity, measure });
    }

    #[test]
    fn the_strongest_head_comes_first_with_its_maps_and_sinks_say_of_which_kind_they_are() {
        let mut frame = Frame::default();
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(0), ..Identity::default() });
        let whole = Measurement { metric: "answer_log_prob".into(), value: Some(-1.0), ..Measurement::default() };
        frame.add(&Record { identity, measure: whole });
        for seed in 0..4 {
            for head in 0..2 {
                add(&mut frame, seed, head, "induction", [0.2, 0.8][head]);
                add(&mut frame, seed, head, "induction_a2", 0.25);
                add(&mut frame, seed, head, "sink_share_first", [0.9, 0.1][head]);
                add(&mut frame, seed, head, "value_norm_first", 0.05);
            }
        }
        let line = |row: &Vec<Cell>| row.iter().map(Cell::line).collect::<Vec<_>>();
        let rows = |sheet: Sheet| sheet.rows.iter().map(line).collect::<Vec<_>>();
        let found = rows(roles(&frame, 1).unwrap());
        assert_eq!(found[0], ["induction", "m", "0.1", "4", "80.0 [-]", "100", "25.0"]);
        assert_eq!(found[1], ["sink", "m", "0.0", "4", "90.0 [-]", "100", "-"]);
        assert_eq!(found.len(), 2, "roles that were not measured have no rows");
        let found = rows(sinks(&frame, 2).unwrap());
        assert_eq!(found, [["m", "0.0", "90.0", "0.050", "null"], ["m", "0.1", "10.0", "0.050", "no sink"]]);
        assert_eq!(kind_of_sink(0.5, 0.5), "broadcasting");
    }
}
