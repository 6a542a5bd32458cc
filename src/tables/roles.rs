//! What each head is for: the strongest heads of each role.

use super::sheet::{numbers, words, Cell, Kind, Sheet};
use crate::frame::Frame;
use crate::stats::{bootstrap_mean, mean, rank_stability, RESAMPLES};
use crate::table::{percent, short};

/// Heads that are listed of each role if nobody says how many.
const TOP: usize = 3;

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
    /// The same number of the single maps.
    maps: [Option<&'static str>; 2],
    /// What the number is, for the figure.
    pub(crate) what: &'static str,
}

const fn role(name: &'static str, metric: &'static str, region: Option<&'static str>, what: &'static str) -> Role {
    Role { name, metric: (metric, region), fraction: true, maps: [None; 2], what }
}

const fn of_maps(role: Role, first: &'static str, second: &'static str) -> Role {
    Role { maps: [Some(first), Some(second)], ..role }
}

const fn number(role: Role) -> Role {
    Role { fraction: false, ..role }
}

pub(crate) const ROLES: [Role; 10] = [
    role("answer out", "share_out", Some("answer"), "share of what it writes that comes from the answer (%)"),
    number(role("answer logits", "logit_out", Some("answer"), "direct effect of the answer's tokens (logits)")),
    of_maps(
        role("retrieval", "retrieval_score", None, "rows whose largest key is the token to copy (%)"),
        "retrieval_score_a1",
        "retrieval_score_a2",
    ),
    of_maps(
        role("query", "query_score", None, "share of the question's rows on the needle (%)"),
        "query_score_a1",
        "query_score_a2",
    ),
    of_maps(
        role("previous token", "previous_token", None, "share on the token before (%)"),
        "previous_token_a1",
        "previous_token_a2",
    ),
    of_maps(
        role("induction", "induction", None, "share on the token after the same (%)"),
        "induction_a1",
        "induction_a2",
    ),
    of_maps(
        role("duplicate token", "duplicate_token", None, "share on the same token before (%)"),
        "duplicate_token_a1",
        "duplicate_token_a2",
    ),
    role("sink", "sink_share_first", None, "share on the first token (%)"),
    role("cancelling", "cancelled", None, "attention that the subtraction removes (%)"),
    number(role("loud", "context_rms", None, "RMS of the weighed values")),
];

/// What the roles are.
const NOTE: &str = "\
answer out: the answer's share of what the head writes. answer logits: its direct effect on the right token's logit, less the
mean logit. retrieval: how often the largest key is the token to copy (Wu et al. 2024). query: share of the question's rows on
the needle. previous token, induction, duplicate token: on repeated random tokens. sink: share on the first token, with the
norm of its value over the mean one. cancelling: 1 - sum |a| / sum (A1 + lambda A2). loud: RMS before the head norm.";

/// The table, if the run is about it, or roles were measured.
pub(super) fn sheet(frame: &Frame) -> Option<Sheet> {
    let measured = frame.metrics().iter().any(|(metric, ..)| metric == "retrieval_score");
    if frame.config_text("show") != "heads" && !measured {
        return None;
    }
    let asked = frame.config("top").and_then(serde_json::Value::as_u64);
    let top = asked.map_or(TOP, |top| usize::try_from(top).unwrap_or(usize::MAX));
    let columns = vec![
        words("role"),
        words("model"),
        numbers("layer"),
        numbers("head"),
        numbers("prompts"),
        numbers("score"),
        numbers("among these in %").named("in_top"),
        numbers("A1").named("score_a1"),
        numbers("A2").named("score_a2"),
        words("").named("kind"),
    ];
    let of =
        |role: &Role| frame.models().iter().flat_map(|model| strongest(frame, model, role, top)).collect::<Vec<_>>();
    let rows = ROLES.iter().flat_map(of).collect();
    let note = format!(
        "The {top} strongest heads of each role: layers and heads count from 0; scores are means over prompts, fractions in % \
         [95 % bootstrap interval]. {NOTE}"
    );
    Sheet::new("roles", "What heads are for", note, columns, rows).details().trimmed()
}

/// The strongest heads of a model in a role; ties in the order of layers and heads.
fn strongest(frame: &Frame, model: &str, role: &Role, top: usize) -> Vec<Vec<Cell>> {
    let (heads, seed) = (frame.heads(model, role.metric.0, role.metric.1), frame.about.seed);
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let stability = rank_stability(&values, top, RESAMPLES, seed);
    let mut found: Vec<_> = heads.into_iter().zip(stability).filter_map(|(h, s)| Some((mean(&h.1)?, h, s))).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(top);
    let kind = if role.fraction { Kind::Share } else { Kind::Number };
    let row = |(score, (at, values), in_top): (f64, ((usize, usize), Vec<f64>), f64)| {
        let other = |metric: &str| {
            let of_heads = frame.heads(model, metric, None);
            of_heads.into_iter().find(|(place, _)| *place == at).and_then(|(_, values)| mean(&values))
        };
        let several = values.len() > 1;
        let interval = bootstrap_mean(&values, RESAMPLES, seed).filter(|_| several);
        let write = |x: f64| if role.fraction { percent(x) } else { short(Some(x)) };
        let norm = Some("value_norm_first").filter(|_| role.metric.0 == "sink_share_first").and_then(other);
        vec![
            Cell::words(role.name),
            Cell::words(model),
            Cell::count(Some(at.0)),
            Cell::count(Some(at.1)),
            Cell::count(Some(values.len())),
            Cell::estimate(kind, score, interval),
            Cell::number(Some(in_top).filter(|_| several), |x| format!("{:.0}", 100.0 * x)),
            Cell::number(role.maps[0].and_then(other), write),
            Cell::number(role.maps[1].and_then(other), write),
            norm.map_or_else(Cell::none, |norm| Cell::words(sink(score, norm))),
        ]
    };
    found.into_iter().map(row).collect()
}

/// What a sink gives back: `value_norm` is that of the first token over the mean one.
fn sink(share: f64, value_norm: f64) -> String {
    let kind = match share > SINK_SHARE {
        false => "no sink",
        true if value_norm < NULL_VALUE => "null sink",
        true => "broadcasting sink",
    };
    format!("{kind}, value {} of the mean", short(Some(value_norm)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measure, Record};
    use std::sync::Arc;

    fn add(frame: &mut Frame, seed: u64, head: usize, metric: &'static str, value: f64) {
        let identity = Arc::new(Identity { model: "m".into(), seed: Some(seed), ..Identity::default() });
        let (layer, head) = (Some(0), Some(head));
        let measure = Measure { layer, head, metric: metric.into(), value: Some(value), ..Measure::default() };
        frame.add(&Record { identity, measure });
    }

    #[test]
    fn the_strongest_head_comes_first_with_its_maps_and_sinks_say_of_which_kind_they_are() {
        let mut frame = Frame::default();
        for seed in 0..4 {
            for head in 0..2 {
                add(&mut frame, seed, head, "induction", [0.2, 0.8][head]);
                add(&mut frame, seed, head, "induction_a2", 0.25);
                add(&mut frame, seed, head, "sink_share_first", [0.9, 0.1][head]);
                add(&mut frame, seed, head, "value_norm_first", 0.05);
            }
        }
        let strongest = |name: &str| {
            let role = ROLES.iter().find(|role| role.name == name).unwrap();
            strongest(&frame, "m", role, 1).into_iter().map(|row| row.iter().map(Cell::line).collect::<Vec<_>>())
        };
        let induction: Vec<Vec<String>> = strongest("induction").collect();
        assert_eq!(induction, [["induction", "m", "0", "1", "4", "80.0 [-]", "100", "-", "25.0", "-"]]);
        let sinks: Vec<Vec<String>> = strongest("sink").collect();
        assert_eq!(sinks[0][9], "null sink, value 0.050 of the mean");
        assert_eq!(sink(0.1, 0.05), "no sink, value 0.050 of the mean");
        assert_eq!(strongest("query").count(), 0);
    }
}
