//! `difftool heads`: what is each head for?

use super::execute::{self, Found};
use super::flags::{self, Defaults};
use super::session::Session;
use crate::cli::HeadsArgs;
use crate::experiment::{Experiment, Show};
use crate::plot::{head_grid, HeadGrid, HeadScale};
use crate::stats::{bootstrap_mean, mean, rank_stability, Interval, RESAMPLES};
use crate::summary::{HeadMetric, Summary};
use crate::table::{left, percent, percent_in, right, short, short_in, Table};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

const DEFAULTS: Defaults = Defaults { settings: &[(1, 1)], samples: 4, heldout: |_| 0 };

/// Heads that are listed of each role if nobody says how many.
const TOP: usize = 3;

/// A head whose first token takes less than this is no sink, by the threshold of Gu et al. (2025).
const SINK_SHARE: f64 = 0.3;
/// A sink whose value is shorter than this part of the usual one gives nothing back.
const NULL_VALUE: f64 = 0.25;

/// Something that a head can be for, and the number that says how much it is.
struct Role {
    /// In tables and as `--rank` of other commands.
    name: &'static str,
    metric: HeadMetric,
    /// Whether the number is a fraction, to be shown in percent.
    fraction: bool,
    /// The same number of the single maps.
    maps: [Option<&'static str>; 2],
    /// What the number is, for the figure.
    what: &'static str,
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

const ROLES: [Role; 10] = [
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

/// The value norm of the first token, for sinks.
const FIRST_VALUE: HeadMetric = ("value_norm_first", None);

/// All numbers of single heads that the tables need.
pub(super) fn metrics() -> Vec<HeadMetric> {
    let mut metrics = vec![FIRST_VALUE];
    for role in &ROLES {
        metrics.push(role.metric);
        metrics.extend(role.maps.iter().flatten().map(|&name| (name, None)));
    }
    metrics
}

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &HeadsArgs) -> Result<()> {
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, None, &DEFAULTS)?;
    let experiment = flags::experiment(Show::Heads, &args.run, grid, Some(&args.prompts), None)?;
    execute::preset(Experiment { top: Some(args.top), ..experiment }, &args.run.output, &args.part)
}

/// One head in one role.
#[derive(Clone, Debug, Serialize)]
struct HeadScore {
    model: String,
    role: &'static str,
    metric: &'static str,
    layer: usize,
    head: usize,
    /// Prompts.
    n: usize,
    /// Mean over prompts, with its 95 % bootstrap interval.
    score: f64,
    lo: f64,
    hi: f64,
    /// Fraction of bootstrap resamples of the prompts in which it is among the first.
    in_top: f64,
    /// The score of each map alone; nothing where there is one map.
    maps: [Option<f64>; 2],
    /// The first token's value norm over the mean one, for sinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_norm: Option<f64>,
}

impl HeadScore {
    fn interval(&self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }

    /// What a sink gives back.
    fn sink_kind(&self) -> Option<&'static str> {
        let norm = self.value_norm.filter(|_| self.score > SINK_SHARE)?;
        Some(if norm < NULL_VALUE { "null sink" } else { "broadcasting sink" })
    }
}

/// The mean of a metric of one head.
fn mean_of(summary: &Summary, model: &str, metric: HeadMetric, at: (usize, usize)) -> Option<f64> {
    summary.heads(model, metric).into_iter().find(|(place, _)| *place == at).and_then(|(_, values)| mean(&values))
}

/// Every head of a model in a role, strongest first; ties in the order of layers and heads.
fn scores(summary: &Summary, model: &str, role: &Role, k: usize, seed: u64) -> Vec<HeadScore> {
    let heads = summary.heads(model, role.metric);
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let stability = rank_stability(&values, k, RESAMPLES, seed);
    let of_head = |((at, values), in_top): (&((usize, usize), Vec<f64>), f64)| {
        let interval = bootstrap_mean(values, RESAMPLES, seed)?;
        let sink = role.metric.0 == "sink_share_first";
        Some(HeadScore {
            model: model.to_owned(),
            role: role.name,
            metric: role.metric.0,
            layer: at.0,
            head: at.1,
            n: values.len(),
            score: mean(values)?,
            lo: interval.lo,
            hi: interval.hi,
            in_top,
            maps: role.maps.map(|map| mean_of(summary, model, (map?, None), *at)),
            value_norm: if sink { mean_of(summary, model, FIRST_VALUE, *at) } else { None },
        })
    };
    let mut scores: Vec<HeadScore> = heads.iter().zip(stability).filter_map(of_head).collect();
    scores.sort_by(|a, b| b.score.total_cmp(&a.score));
    scores
}

/// Draws a figure for each role that has numbers.
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let caption = session.setup.caption();
    for role in &ROLES {
        let factor = if role.fraction { 100.0 } else { 1.0 };
        let grids: Vec<HeadGrid> = summary
            .models()
            .iter()
            .filter_map(|model| {
                let means = summary.heads(model, role.metric).into_iter();
                let means: Vec<_> = means.map(|(at, values)| (at, mean(&values).map(|x| factor * x))).collect();
                (!means.is_empty()).then(|| HeadGrid::of(model, means))
            })
            .collect();
        if grids.is_empty() {
            continue;
        }
        let title = format!("Heads: {}", role.name);
        let end = role.fraction.then_some(100.0);
        let scale = HeadScale { label: role.what, end, uniform: None };
        let figure = head_grid(&grids, &session.heading(&title, &caption), &scale)?;
        session.save(&figure, &format!("heads-{}", role.name.replace(' ', "-")), "mean over prompts")?;
    }
    Ok(())
}

/// Prints the strongest heads of each role.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    let (summary, seed) = (&found.summary, session.setup.grid.seed());
    let k = session.setup.experiment.top.unwrap_or(TOP);
    let mut all = Vec::new();
    for role in &ROLES {
        for model in summary.models() {
            all.push((role, scores(summary, model, role, k, seed)));
        }
    }
    let mut out = crate::terminal::stdout();
    if session.output.json {
        let heads: Vec<HeadScore> = all.into_iter().flat_map(|(_, scores)| scores).collect();
        writeln!(out, "{:#}", json!({ "rows": heads, "k": k }))?;
        return Ok(());
    }
    let layers = "layers and heads count from 0; scores are means over prompts";
    writeln!(out, "The {k} strongest heads of each role: {layers} [95 % bootstrap interval]\n\n{}", table(&all, k))?;
    writeln!(out, "\n{NOTE}")?;
    Ok(())
}

/// What the roles are.
const NOTE: &str = "\
answer out: the answer's share of what the head writes. answer logits: its direct effect on the right token's logit, less the
mean logit. retrieval: how often the largest key is the token to copy (Wu et al. 2024). query: share of the question's rows on
the needle. previous token, induction, duplicate token: on repeated random tokens. sink: share on the first token, with the
norm of its value over the mean one. cancelling: 1 - sum |a| / sum (A1 + lambda A2). loud: RMS before the head norm.";

fn table(all: &[(&Role, Vec<HeadScore>)], k: usize) -> Table {
    let mut table = Table::new(&[
        left("role"),
        left("model"),
        right("layer"),
        right("head"),
        right("score [95 %]"),
        right(if k == 1 { "first in % of resamples" } else { "among these in %" }),
        right("A1"),
        right("A2"),
        left(""),
    ]);
    for (role, scores) in all {
        let show = |x: Option<f64>| match x {
            Some(x) if role.fraction => percent(x),
            x => short(x),
        };
        for head in scores.iter().take(k) {
            let shown = if role.fraction { percent_in } else { short_in };
            let sink = head.value_norm.map(|norm| {
                let kind = head.sink_kind().unwrap_or("no sink");
                format!("{kind}, value {} of the mean", short(Some(norm)))
            });
            table.row([
                role.name.to_owned(),
                head.model.clone(),
                head.layer.to_string(),
                head.head.to_string(),
                if head.n > 1 { shown(head.score, head.interval()) } else { show(Some(head.score)) },
                format!("{:.0}", 100.0 * head.in_top),
                show(head.maps[0]),
                show(head.maps[1]),
                sink.unwrap_or_default(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measure, Record};
    use std::sync::Arc;

    fn add(summary: &mut Summary, seed: u64, head: usize, metric: &'static str, value: f64) {
        let identity = Identity { model: "m".into(), seed: Some(seed), ..Identity::default() };
        let measure = Measure {
            layer: Some(0),
            head: Some(head),
            metric: metric.into(),
            value: Some(value),
            ..Measure::default()
        };
        summary.add(&Record { identity: Arc::new(identity), measure });
        let whole = Measure { metric: "exact".into(), value: Some(1.0), ..Measure::default() };
        let identity = Identity { model: "m".into(), seed: Some(seed), ..Identity::default() };
        summary.add(&Record { identity: Arc::new(identity), measure: whole });
    }

    #[test]
    fn the_strongest_head_comes_first_with_its_maps_and_sinks_say_of_which_kind_they_are() {
        let mut summary = Summary::with_heads(&metrics());
        for seed in 0..4 {
            for head in 0..2 {
                add(&mut summary, seed, head, "induction", [0.2, 0.8][head]);
                add(&mut summary, seed, head, "induction_a2", 0.25);
                add(&mut summary, seed, head, "sink_share_first", [0.9, 0.1][head]);
                add(&mut summary, seed, head, "value_norm_first", 0.05);
            }
        }
        let role = |name: &str| ROLES.iter().find(|role| role.name == name).unwrap();
        let induction = scores(&summary, "m", role("induction"), 1, 0);
        let first = &induction[0];
        assert_eq!((first.head, first.score, first.in_top, first.maps), (1, 0.8, 1.0, [None, Some(0.25)]));
        let sinks = scores(&summary, "m", role("sink"), 1, 0);
        assert_eq!([sinks[0].sink_kind(), sinks[1].sink_kind()], [Some("null sink"), None]);
        assert!(scores(&summary, "m", role("query"), 1, 0).is_empty());
    }
}
