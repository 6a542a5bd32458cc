//! `difftool quantize`: what survives when attention logits are cut to few bits (the paper's Figure 8)?

use super::execute::{self, Found};
use super::flags::{self, Defaults};
use super::session::Session;
use crate::cli::QuantizeArgs;
use crate::experiment::{Experiment, Grid, Quantisation, Show};
use crate::plot::{quality, Estimate, Figure, QualityLine, QualityPanel};
use crate::stats::Interval;
use crate::summary::{Pick, Proportion, Setting, Summary};
use crate::table::{left, percent, percent_in, percent_or_dash, points_in, right, short, short_in, Table};
use crate::treatment::{Condition, UNTREATED};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

const DEFAULTS: Defaults = Defaults { settings: &[(2, 2)], samples: 7, heldout: |_| 0 };

/// The paper's claim, printed beside our numbers.
const PAPER: &str = "\
The paper (Figure 8; 3B models, HellaSwag zero-shot, read off the figure to about 2 points):
  Transformer  65 % to 8 bits, 50 % at 6, 40 % at 4;  DIFF 65 % to 6 bits, 60 % at 4: `4-bit DIFF ~ 6-bit Transformer`";

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &QuantizeArgs) -> Result<()> {
    execute::preset(experiment(args)?, &args.run.output, &args.part)
}

fn experiment(args: &QuantizeArgs) -> Result<Experiment> {
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, args.text.as_deref(), &DEFAULTS)?;
    let experiment = flags::experiment(Show::Quantize, &args.run, grid, Some(&args.prompts), args.text.as_deref())?;
    let quantise = Quantisation { bits: args.bits.clone(), scope: args.scope, exempt_sinks: args.exempt_sinks };
    let experiment = Experiment { quantise: Some(quantise), ..experiment };
    experiment.conditions()?;
    Ok(experiment)
}

/// Draws a figure for each setting.
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let report = Report { summary, session };
    let figures = summary.settings().iter().map(|&setting| report.figure(setting)).collect::<Result<Vec<_>>>()?;
    for (i, figure) in figures.iter().enumerate() {
        let name = if i == 0 { "bits".to_owned() } else { format!("bits-{}", i + 1) };
        session.save(figure, &name, "mean over prompts, 95 % intervals: Wilson for accuracy, bootstrap otherwise")?;
    }
    Ok(())
}

/// Prints the tables.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    Report { summary: &found.summary, session }.print()
}

/// One row of the table: a model in one setting under one condition.
#[derive(Clone, Debug, Serialize)]
struct Row {
    model: String,
    ctx_tok: usize,
    needles: usize,
    retrieve: usize,
    /// Nothing for the untreated passes.
    condition: Option<String>,
    bits: Option<u32>,
    accuracy: Proportion,
    answer_log_prob_nats: Option<f64>,
    answer_share_out: Option<f64>,
    noise_share_out: Option<f64>,
    answer_share_abs: Option<f64>,
    noise_share_abs: Option<f64>,
    kl_nats: Option<f64>,
    kl_context_nats: Option<f64>,
    total_variation: Option<f64>,
    top_key_flips: Option<f64>,
    top_token_flips: Option<f64>,
    nll_nats: Option<f64>,
    /// See [`Report::destroyed`].
    destroyed: bool,
}

/// A paired difference between two (model, condition).
#[derive(Clone, Debug, Serialize)]
struct Difference {
    of: String,
    baseline: String,
    ctx_tok: usize,
    needles: usize,
    retrieve: usize,
    metric: &'static str,
    n: usize,
    difference: f64,
    lo: f64,
    hi: f64,
}

/// Metrics whose differences are printed; the first is a fraction.
const COMPARED: [(&str, &str); 3] = [("exact", "accuracy"), ("answer_log_prob", "answer log-prob"), ("nll", "NLL")];

struct Report<'a> {
    summary: &'a Summary,
    session: &'a Session,
}

impl Report<'_> {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &setting in self.summary.settings() {
            for model in self.summary.models() {
                rows.extend(self.session.setup.conditions.iter().map(|condition| self.row(setting, model, condition)));
            }
        }
        rows
    }

    fn row(&self, setting: Setting, model: &str, condition: &Condition) -> Row {
        let name = condition.column();
        let pick = |metric| Pick::of(model, metric).setting(setting).condition(name.as_deref());
        let mean = |metric| self.summary.mean(pick(metric));
        Row {
            model: model.to_owned(),
            ctx_tok: setting.0,
            needles: setting.1,
            retrieve: setting.2,
            condition: name.clone(),
            bits: condition.bits(),
            accuracy: self.summary.proportion(pick("exact")),
            answer_log_prob_nats: mean("answer_log_prob"),
            // Plain text has no answer, and so no noise.
            answer_share_out: self.summary.mean(pick("share_out").region("answer")).filter(|_| setting.1 > 0),
            noise_share_out: mean("noise_out").filter(|_| setting.1 > 0),
            answer_share_abs: self.summary.mean(pick("share_abs").region("answer")).filter(|_| setting.1 > 0),
            noise_share_abs: mean("noise_abs").filter(|_| setting.1 > 0),
            kl_nats: mean("kl"),
            kl_context_nats: mean("kl_context"),
            total_variation: mean("total_variation"),
            top_key_flips: mean("top_key_flips"),
            top_token_flips: mean("top_token_flips"),
            nll_nats: mean("nll"),
            destroyed: self.destroyed(setting, model, name.as_deref()),
        }
    }

    /// Whether the model is another one under a condition: the 95 % interval of its accuracy lies below half of the
    /// untreated accuracy, or, where nothing is asked, more than half of its most likely tokens have changed.
    fn destroyed(&self, setting: Setting, model: &str, condition: Option<&str>) -> bool {
        let pick = |metric, condition| Pick::of(model, metric).setting(setting).condition(condition);
        let accuracy = |condition| self.summary.proportion(pick("exact", condition));
        match (accuracy(None).fraction, accuracy(condition)) {
            _ if condition.is_none() => false,
            (Some(before), after) => after.hi < 0.5 * before,
            (None, _) => self.summary.mean(pick("top_token_flips", condition)).is_some_and(|flips| flips > 0.5),
        }
    }

    fn paired(&self, setting: Setting, a: (&str, &Condition), b: (&str, &Condition)) -> Vec<Difference> {
        let name = |(model, condition): (&str, &Condition)| format!("{model} {condition}");
        let columns = (a.1.column(), b.1.column());
        let seed = self.session.setup.grid.seed();
        let of = |&(metric, _): &(&'static str, &str)| {
            let pick = |model, condition| Pick::of(model, metric).setting(setting).condition(condition);
            let (a_pick, b_pick) = (pick(a.0, columns.0.as_deref()), pick(b.0, columns.1.as_deref()));
            let paired = self.summary.paired(a_pick, b_pick, seed)?;
            Some(Difference {
                of: name(b),
                baseline: name(a),
                ctx_tok: setting.0,
                needles: setting.1,
                retrieve: setting.2,
                metric,
                n: paired.n,
                difference: paired.diff,
                lo: paired.lo,
                hi: paired.hi,
            })
        };
        COMPARED.iter().filter_map(of).collect()
    }

    /// To the untreated passes, and of every model to the first under the same condition.
    fn differences(&self) -> Vec<Difference> {
        let mut list = Vec::new();
        let conditions = &self.session.setup.conditions;
        let Some((untreated, treated)) = conditions.split_first() else { return list };
        for &setting in self.summary.settings() {
            for model in self.summary.models() {
                for condition in treated {
                    list.extend(self.paired(setting, (model, untreated), (model, condition)));
                }
            }
            let Some((first, others)) = self.summary.models().split_first() else { continue };
            for model in others {
                for condition in conditions {
                    list.extend(self.paired(setting, (first, condition), (model, condition)));
                }
                // The paper's claim.
                let of_bits = |bits| conditions.iter().find(|condition| condition.bits() == Some(bits));
                if let (Some(four), Some(six)) = (of_bits(4), of_bits(6)) {
                    list.extend(self.paired(setting, (first, six), (model, four)));
                }
            }
        }
        list
    }

    fn print(&self) -> Result<()> {
        let (rows, differences) = (self.rows(), self.differences());
        let mut out = crate::terminal::stdout();
        if self.session.output.json {
            writeln!(out, "{:#}", json!({ "rows": rows, "differences": differences }))?;
            return Ok(());
        }
        if let Some(quantise) = &self.session.setup.experiment.quantise {
            let sinks = if quantise.exempt_sinks { ", sinks exempt" } else { "" };
            let scope = quantise.scope.name();
            writeln!(out, "Dynamic absmax quantisation of attention logits, one scale per {scope}{sinks}\n")?;
        }
        writeln!(out, "{}", table(&rows))?;
        if let Some(even) = self.even() {
            writeln!(out, "\n{even}")?;
        }
        if matches!(self.session.setup.grid, Grid::Needle(_)) && self.session.setup.has_own_prompts() {
            writeln!(out, "\n{PAPER}")?;
        }
        writeln!(out, "\nPaired differences on the same prompts [95 % bootstrap interval]; accuracy in points\n")?;
        writeln!(out, "{}", difference_table(&differences))?;
        Ok(())
    }

    /// What the shares would be of attention that is spread evenly; nothing of text, which has no answer.
    fn even(&self) -> Option<String> {
        matches!(self.session.setup.grid, Grid::Needle(_)).then_some(())?;
        let model = self.summary.models().first()?;
        let answer = self.summary.mean(Pick::of(model, "share_uniform").region("answer"))?;
        let noise = self.summary.mean(Pick::of(model, "noise_uniform"))?;
        Some(format!("Spread evenly, attention gives the answer {} % and noise {} %.", percent(answer), percent(noise)))
    }

    fn figure(&self, setting: Setting) -> Result<Figure> {
        let categories: Vec<String> = self
            .session
            .setup
            .conditions
            .iter()
            .map(|c| c.bits().map_or(c.to_string(), |bits| bits.to_string()))
            .collect();
        let panels = [
            ("needle accuracy", "exact match (%)", "exact", None, Some((0.0, 100.0)), 100.0),
            ("answer log-probability", "log-probability (nats)", "answer_log_prob", None, None, 1.0),
            ("what the answer gives", "share of the output (%)", "share_out", Some("answer"), None, 100.0),
            ("NLL of prose", "NLL (nats per token)", "nll", None, None, 1.0),
        ];
        let mut drawn = Vec::new();
        let of_setting = |&(_, _, _, region, _, _): &(_, _, _, Option<&str>, _, _)| setting.1 > 0 || region.is_none();
        for (title, y_label, metric, region, y_range, factor) in panels.into_iter().filter(of_setting) {
            let line = |model: &String| QualityLine {
                model: model.clone(),
                estimates: self
                    .session
                    .setup
                    .conditions
                    .iter()
                    .map(|condition| self.estimate(setting, model, condition, (metric, region), factor))
                    .collect(),
            };
            let lines: Vec<QualityLine> = self.summary.models().iter().map(line).collect();
            if lines.iter().any(|line| line.estimates.iter().any(Option::is_some)) {
                let (title, y_label) = (title.to_owned(), y_label.to_owned());
                drawn.push(QualityPanel { title, y_label, y_range, lines });
            }
        }
        let scope = self.session.setup.experiment.quantise.as_ref().map_or("none", |quantise| quantise.scope.name());
        let asked = if setting.1 > 0 { format!("N={} R={} · ", setting.1, setting.2) } else { String::new() };
        let exempt = self.session.setup.experiment.quantise.as_ref().is_some_and(|quantise| quantise.exempt_sinks);
        let exempt = if exempt { ", sinks exempt" } else { "" };
        let subtitle =
            format!("one scale per {scope}{exempt} · {asked}{}", self.session.setup.caption_of(&[setting.0]));
        let title = "What is left with few bits per attention logit";
        quality(&drawn, &categories, &self.session.heading(title, &subtitle), "bits per attention logit")
    }

    fn estimate(
        &self,
        setting: Setting,
        model: &str,
        condition: &Condition,
        (metric, region): (&str, Option<&str>),
        factor: f64,
    ) -> Option<Estimate> {
        let condition = condition.column();
        let pick = Pick::of(model, metric).setting(setting).condition(condition.as_deref());
        let pick = region.map_or(pick, |region| pick.region(region));
        let (value, interval) = if metric == "exact" {
            let p = self.summary.proportion(pick);
            (p.fraction?, p.interval())
        } else {
            self.summary.mean_in(pick, self.session.setup.grid.seed())?
        };
        let interval = Some((factor * interval.lo, factor * interval.hi));
        Some(Estimate { value: factor * value, interval })
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("tokens"),
        right("N"),
        right("R"),
        left("condition"),
        right("accuracy % [95 %]"),
        right("log-prob"),
        right("answer %: out"),
        right("|a|"),
        right("noise %: out"),
        right("|a|"),
        right("KL"),
        right("KL context"),
        right("TV %"),
        right("key flips %"),
        right("token flips %"),
        right("NLL"),
        left(""),
    ]);
    for row in rows {
        let accuracy = row.accuracy.fraction.map(|fraction| percent_in(fraction, row.accuracy.interval()));
        table.row([
            row.model.clone(),
            row.ctx_tok.to_string(),
            count_or_dash(row.needles),
            count_or_dash(row.retrieve),
            row.condition.clone().unwrap_or_else(|| UNTREATED.to_owned()),
            accuracy.unwrap_or("-".to_owned()),
            short(row.answer_log_prob_nats),
            percent_or_dash(row.answer_share_out),
            percent_or_dash(row.answer_share_abs),
            percent_or_dash(row.noise_share_out),
            percent_or_dash(row.noise_share_abs),
            short(row.kl_nats),
            short(row.kl_context_nats),
            percent_or_dash(row.total_variation),
            percent_or_dash(row.top_key_flips),
            percent_or_dash(row.top_token_flips),
            short(row.nll_nats),
            if row.destroyed { "destroyed".to_owned() } else { String::new() },
        ]);
    }
    table
}

/// Needles; plain text has none.
fn count_or_dash(needles: usize) -> String {
    if needles == 0 {
        "-".to_owned()
    } else {
        needles.to_string()
    }
}

fn difference_table(differences: &[Difference]) -> Table {
    let mut columns = vec![left("difference"), right("tokens"), right("N"), right("R"), right("prompts")];
    columns.extend(COMPARED.iter().map(|&(_, heading)| right(heading)));
    let mut table = Table::new(&columns);
    let same = |a: &Difference, b: &Difference| {
        let setting = |d: &Difference| (d.ctx_tok, d.needles, d.retrieve);
        (&a.of, &a.baseline, setting(a)) == (&b.of, &b.baseline, setting(b))
    };
    for group in differences.chunk_by(same) {
        let first = &group[0];
        let mut row = vec![
            format!("{} - {}", first.of, first.baseline),
            first.ctx_tok.to_string(),
            count_or_dash(first.needles),
            count_or_dash(first.retrieve),
            first.n.to_string(),
        ];
        row.extend(COMPARED.iter().map(|&(metric, _)| {
            let Some(d) = group.iter().find(|d| d.metric == metric) else { return "-".to_owned() };
            let interval = Interval { lo: d.lo, hi: d.hi };
            if metric == "exact" {
                points_in(d.difference, interval)
            } else {
                short_in(d.difference, interval)
            }
        }));
        table.row(row);
    }
    table
}
