//! `difftool needle`: does the model find the needle, and where did its attention go?

use super::draw_allocation;
use super::execute::{self, Found};
use super::flags::{self, Defaults};
use super::remarks::{answer_near_even, at_the_floor, joined, EVEN};
use super::session::Session;
use super::setting_name;
use crate::cli::NeedleArgs;
use crate::experiment::{Experiment, Generate, Grid, Show};
use crate::plot::{accuracy, AccuracyPanel, Hits};
use crate::summary::{Difference, Pick, Proportion, Setting, Summary};
use crate::table::{left, percent_in, percent_or_dash, points_in, right, Table};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

pub(super) const DEFAULTS: Defaults = Defaults {
    settings: &[(1, 1), (2, 2), (4, 2), (6, 2)], // the paper's Table 2
    samples: 12,
    heldout: |samples| samples.div_ceil(3),
};

/// What models are compared on: name in the summary, metric and region of the records.
const COMPARED: [(&str, &str, Option<&str>); 8] = [
    ("exact", "exact", None),
    ("generated_exact", "generated_exact", None),
    ("answer_share_out", "share_out", Some("answer")),
    ("answer_share_signed", "share_signed", Some("answer")),
    ("answer_share_abs", "share_abs", Some("answer")),
    ("noise_share_out", "noise_out", None),
    ("noise_share_signed", "noise_signed", None),
    ("noise_share_abs", "noise_abs", None),
];

/// What the columns of shares are, in words.
const SHARES: &str = "\
Answer and noise: shares of what the heads write while they predict the answer (out), of their attention as it is added
up (signed), and of its magnitude (|a|); mean over heads and layers";

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &NeedleArgs) -> Result<()> {
    execute::preset(experiment(args)?, &args.run.output, &args.part)
}

fn experiment(args: &NeedleArgs) -> Result<Experiment> {
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, None, &DEFAULTS)?;
    let generate = args.generate.then_some(Generate { max_new: args.max_new });
    Ok(Experiment { generate, ..flags::experiment(Show::Needle, &args.run, grid, Some(&args.prompts), None)? })
}

/// Draws the figures.
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let Some(panels) = accuracy_panels(summary, &session.setup.grid) else {
        return Ok(()); // nothing but failures
    };
    let caption = session.setup.caption();
    let subtitle = format!("in %, with 95 % Wilson intervals and numbers of prompts n · {caption}");
    let figure = accuracy(&panels, &session.heading("Needle retrieval: exact-match accuracy", &subtitle))?;
    session.save(&figure, "accuracy", "mean over prompts")?;
    draw_allocation(session, summary)
}

fn accuracy_panels(summary: &Summary, grid: &Grid) -> Option<Vec<AccuracyPanel>> {
    let Grid::Needle(grid) = grid else { return None };
    let depths = summary.depths_pct();
    let mut panels = Vec::new();
    for model in summary.models() {
        for &(needles, retrieve) in &grid.settings {
            let cell = |depth: f64, ctx: usize| {
                let pick = Pick::of(model, "exact").cities("train").depth_pct(depth);
                let found = summary.proportion(pick.setting((ctx, needles, retrieve)));
                Some(Hits { accuracy: found.fraction?, interval: (found.lo, found.hi), n: found.n })
            };
            panels.push(AccuracyPanel {
                model: model.clone(),
                setting: setting_name(needles, retrieve),
                ctx_tok: grid.ctx_tok.clone(),
                depths_pct: depths.clone(),
                accuracy: depths.iter().map(|&d| grid.ctx_tok.iter().map(|&ctx| cell(d, ctx)).collect()).collect(),
            });
        }
    }
    (!panels.is_empty()).then_some(panels)
}

/// One row of the table: a model in one setting.
#[derive(Clone, Debug, Serialize)]
struct Row {
    model: String,
    ctx_tok: usize,
    needles: usize,
    retrieve: usize,
    /// Over numbers asked, cities the model was trained on.
    accuracy: Proportion,
    accuracy_heldout: Proportion,
    /// What it says by itself, if it was left to: see the measure `generation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    generated_exact: Option<Proportion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generated_contains: Option<Proportion>,
    answer_log_prob_nats: Option<f64>,
    #[serde(flatten)]
    shares: Shares,
    lambda: Option<f64>,
    /// Direct effect of the answer's tokens on its logits, through all heads.
    answer_logit_out: Option<f64>,
    /// What the numbers do not say by themselves.
    remarks: String,
}

/// Shares of the answer and of noise, in the three readings, and what attention spread evenly would give.
#[derive(Clone, Debug, Serialize)]
struct Shares {
    answer_share_out: Option<f64>,
    noise_share_out: Option<f64>,
    answer_share_signed: Option<f64>,
    noise_share_signed: Option<f64>,
    answer_share_abs: Option<f64>,
    noise_share_abs: Option<f64>,
    answer_share_uniform: Option<f64>,
    noise_share_uniform: Option<f64>,
}

impl Shares {
    fn new<'a>(summary: &Summary, pick: &dyn Fn(&'static str) -> Pick<'a>) -> Self {
        let answer = |metric| summary.mean(pick(metric).region("answer"));
        let noise = |metric| summary.mean(pick(metric));
        Self {
            answer_share_out: answer("share_out"),
            noise_share_out: noise("noise_out"),
            answer_share_signed: answer("share_signed"),
            noise_share_signed: noise("noise_signed"),
            answer_share_abs: answer("share_abs"),
            noise_share_abs: noise("noise_abs"),
            answer_share_uniform: answer("share_uniform"),
            noise_share_uniform: noise("noise_uniform"),
        }
    }

    /// As the columns of the table have them.
    fn cells(&self) -> [String; 6] {
        let answer = [self.answer_share_out, self.answer_share_signed, self.answer_share_abs];
        let noise = [self.noise_share_out, self.noise_share_signed, self.noise_share_abs];
        let [a, b, c] = answer.map(percent_or_dash);
        let [d, e, f] = noise.map(percent_or_dash);
        [a, b, c, d, e, f]
    }

    /// The same of attention that is spread evenly, where all readings agree.
    fn even_cells(&self) -> [String; 6] {
        let [answer, noise] = [self.answer_share_uniform, self.noise_share_uniform].map(percent_or_dash);
        [answer.clone(), answer.clone(), answer, noise.clone(), noise.clone(), noise]
    }
}

/// The table: settings in order, models within.
fn rows(summary: &Summary, seed: u64) -> Vec<Row> {
    let row = |setting: Setting, model: &String| {
        let pick = |metric| Pick::of(model, metric).setting(setting);
        let trained = |metric: &'static str| pick(metric).cities("train");
        let accuracy = summary.proportion(trained("exact"));
        let generated = |metric| Some(summary.proportion(pick(metric).cities("train"))).filter(|found| found.n > 0);
        Row {
            model: model.clone(),
            ctx_tok: setting.0,
            needles: setting.1,
            retrieve: setting.2,
            remarks: joined([at_the_floor(&accuracy), answer_near_even(summary, &trained, seed)]),
            accuracy,
            accuracy_heldout: summary.proportion(pick("exact").cities("heldout")),
            generated_exact: generated("generated_exact"),
            generated_contains: generated("generated_contains"),
            answer_log_prob_nats: summary.mean(pick("answer_log_prob").cities("train")),
            shares: Shares::new(summary, &trained),
            lambda: summary.mean(trained("lambda")),
            answer_logit_out: summary.mean(trained("logit_out_sum").region("answer")),
        }
    };
    let settings = summary.settings().iter();
    settings.flat_map(|&setting| summary.models().iter().map(move |model| row(setting, model))).collect()
}

/// Prints the tables.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let (rows, differences) =
        (rows(summary, session.setup.grid.seed()), summary.differences(&COMPARED, session.setup.grid.seed()));
    let mut out = crate::terminal::stdout();
    if session.output.json {
        writeln!(out, "{:#}", json!({ "rows": rows, "differences": differences }))?;
        return Ok(());
    }
    writeln!(out, "{}\n\n{SHARES}", accuracy_table(&rows))?;
    if !differences.is_empty() {
        writeln!(out, "\nPaired differences on the same prompts, in percentage points [95 % bootstrap interval]\n")?;
        writeln!(out, "{}", difference_table(&differences))?;
    }
    Ok(())
}

/// With two columns more if models were left to answer by themselves.
fn accuracy_table(rows: &[Row]) -> Table {
    let generated = rows.iter().any(|row| row.generated_exact.is_some());
    let mut columns = vec![left("model"), right("tokens"), right("N"), right("R")];
    columns.extend([right("accuracy % [95 %]"), right("held-out cities %")]);
    if generated {
        columns.extend([right("generated exact %"), right("generated contains %")]);
    }
    for share in ["answer %: out", "signed", "|a|", "noise %: out", "signed", "|a|"] {
        columns.push(right(share));
    }
    columns.push(left(""));
    let mut table = Table::new(&columns);
    let accuracy = |p: &Proportion| p.fraction.map_or("-".to_owned(), |fraction| percent_in(fraction, p.interval()));
    for row in rows {
        let mut cells = vec![row.model.clone()];
        cells.extend([row.ctx_tok, row.needles, row.retrieve].map(|number| number.to_string()));
        cells.extend([&row.accuracy, &row.accuracy_heldout].map(accuracy));
        if generated {
            let found = [&row.generated_exact, &row.generated_contains];
            cells.extend(found.map(|found| found.as_ref().map_or("-".to_owned(), accuracy)));
        }
        cells.extend(row.shares.cells());
        cells.push(row.remarks.clone());
        table.row(cells);
    }
    // One line for every setting would say nearly the same again.
    if let Some(row) = rows.last() {
        let mut cells =
            vec![EVEN.to_owned(), row.ctx_tok.to_string(), row.needles.to_string(), row.retrieve.to_string()];
        cells.extend(std::iter::repeat_n("-".to_owned(), if generated { 4 } else { 2 }));
        cells.extend(row.shares.even_cells());
        cells.push(String::new());
        table.row(cells);
    }
    table
}

/// A column for each of what was measured: accuracy, generated accuracy, and the shares as in the table above.
fn difference_table(differences: &[Difference]) -> Table {
    let headings = ["accuracy", "generated exact", "answer: out", "signed", "|a|", "noise: out", "signed", "|a|"];
    let headings = headings.into_iter().zip(COMPARED);
    let shown: Vec<_> = headings.filter(|(_, (name, ..))| differences.iter().any(|d| d.metric == *name)).collect();
    let mut columns = vec![left("difference"), right("tokens"), right("N"), right("R"), right("prompts")];
    columns.extend(shown.iter().map(|(heading, _)| right(*heading)));
    let mut table = Table::new(&columns);
    let setting = |d: &Difference| (d.of.clone(), d.ctx_tok, d.needles, d.retrieve);
    for group in differences.chunk_by(|a, b| setting(a) == setting(b)) {
        let first = &group[0];
        let points = |metric: &str| {
            let found = group.iter().find(|d| d.metric == metric);
            found.map_or("-".to_owned(), |d| points_in(d.difference, d.interval()))
        };
        let mut cells = vec![format!("{} - {}", first.of, first.baseline)];
        cells.extend([first.ctx_tok, first.needles, first.retrieve, first.n].map(|number| number.to_string()));
        cells.extend(shown.iter().map(|(_, (name, ..))| points(name)));
        table.row(cells);
    }
    table
}
