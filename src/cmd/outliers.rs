//! `difftool outliers`: the largest attention logits and hidden states (the paper's Table 5), and massive activations.

use super::execute::{self, Found};
use super::flags;
use super::session::Session;
use crate::bail_usage;
use crate::cli::OutliersArgs;
use crate::experiment::{Experiment, Grid, Show, TextGrid};
use crate::measure::{MassiveAt, Outliers, Place, RANKS};
use crate::plot::{ccdf, CcdfLine, CcdfPanel};
use crate::stats::Tally;
use crate::table::{left, percent_or_dash, right, short, Table};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

/// The paper's Table 5, printed beside ours.
const PAPER: &str = "\
The paper (Table 5; 3B models, 0.4M tokens of their own text): top-1, 2, 3, 10, 100, median
  logits  Transformer  318.0  308.2  304.9  284.7  251.5  5.4    DIFF    38.8   38.8   37.3   32.0   27.4  3.3
  hidden  Transformer 3608.6 3607.4 3603.6 3552.1 2448.2  0.6    DIFF  1688.2 1672.5 1672.1 1624.3  740.9  1.2";

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &OutliersArgs) -> Result<()> {
    execute::preset(experiment(args)?, &args.run.output, &args.part)
}

fn experiment(args: &OutliersArgs) -> Result<Experiment> {
    let run = &args.run;
    let what = "outliers pools windows of one length";
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &run.model, &run.reading, what)?;
    let [tokens] = args.tokens.0.as_slice() else { bail_usage!("--tokens: {what}; give it one number") };
    let samples = args.samples.unwrap_or(tokens.div_ceil(ctx_tok.max(1)));
    let grid = Grid::Text(TextGrid { ctx_tok: vec![ctx_tok], samples, stride: None, seed: args.seed });
    flags::experiment(Show::Outliers, &args.run, grid, None, args.text.as_deref())
}

/// What was pooled of each model.
fn by_model(session: &Session, found: &Found) -> Vec<(String, Outliers)> {
    let Some(measure) = &found.measures.outliers else { return Vec::new() };
    let names = session.setup.models.iter().map(|model| model.name.clone());
    names
        .enumerate()
        .filter_map(|(model, name)| Some((name, measure.pooled.get(&Place { model, condition: 0 })?.clone())))
        .collect()
}

/// Draws the figure, and writes the tables as files.
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let found = by_model(session, found);
    write_tables(session, &found)?;
    draw_ccdf(session, &found)
}

/// One row of Table 5.
#[derive(Clone, Debug, Serialize)]
struct Row {
    model: String,
    /// `logits` or `hidden`.
    of: &'static str,
    /// Nothing for all layers together.
    layer: Option<usize>,
    numbers: u64,
    top_1: Option<f32>,
    top_2: Option<f32>,
    top_3: Option<f32>,
    top_10: Option<f32>,
    top_100: Option<f32>,
    /// Within a factor of 1 +- 2^-8.
    median: Option<f64>,
    top_1_over_median: Option<f64>,
    kurtosis: Option<f64>,
    share_beyond_6_sigma: Option<f64>,
    /// The largest infinity norm of a token; hidden states of one layer only.
    inf_norm_max: Option<f32>,
    /// Massive activations; hidden states only.
    massive: Option<usize>,
    /// What the logits are, where that is not scaled products of queries and keys.
    tap: Option<String>,
}

impl Row {
    fn new(model: &str, of: &'static str, layer: Option<usize>, tally: &Tally<()>) -> Self {
        let [top_1, top_2, top_3, top_10, top_100] = RANKS.map(|rank| tally.top.magnitude(rank));
        Self {
            model: model.to_owned(),
            of,
            layer,
            numbers: tally.histogram.n(),
            top_1,
            top_2,
            top_3,
            top_10,
            top_100,
            median: tally.median(),
            top_1_over_median: tally.max_over_median(),
            kurtosis: tally.moments.kurtosis(),
            share_beyond_6_sigma: tally.share_beyond_sigmas(6.0),
            inf_norm_max: None,
            massive: None,
            tap: None,
        }
    }
}

/// All layers together first, then each.
fn rows(session: &Session, found: &[(String, Outliers)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (model, outliers) in found {
        rows.push(Row::new(model, "logits", None, &outliers.all_logits()));
    }
    for (model, outliers) in found {
        let massive = Some(outliers.massive.len());
        rows.push(Row { massive, ..Row::new(model, "hidden", None, &outliers.all_hidden()) });
    }
    for (model, outliers) in found {
        rows.extend(outliers.logits.iter().map(|(&layer, tally)| Row::new(model, "logits", Some(layer), tally)));
    }
    for (model, outliers) in found {
        rows.extend(outliers.hidden.iter().map(|(&layer, tally)| Row {
            inf_norm_max: outliers.inf_norm.get(&layer).copied(),
            massive: Some(outliers.massive.iter().filter(|at| at.layer == layer).count()),
            ..Row::new(model, "hidden", Some(layer), tally)
        }));
    }
    for row in rows.iter_mut().filter(|row| row.of == "logits") {
        row.tap = taps(session).find(|(model, _)| *model == row.model).map(|(_, tap)| tap.to_owned());
    }
    rows
}

/// Models whose logits are something else than scaled products of queries and keys, and what.
fn taps(session: &Session) -> impl Iterator<Item = (&str, &str)> {
    session.setup.models.iter().filter_map(|model| Some((model.name.as_str(), model.info.logit_tap.as_deref()?)))
}

fn massive(found: &[(String, Outliers)]) -> Vec<MassiveAt> {
    let of = |(model, outliers): &(String, Outliers)| {
        let named = |at: &MassiveAt| MassiveAt { model: model.clone(), ..at.clone() };
        outliers.massive.iter().map(named).collect::<Vec<_>>()
    };
    found.iter().flat_map(of).collect()
}

/// `outliers.csv` in the layout of Table 5, and `massive.csv` if there is anything to list.
fn write_tables(session: &mut Session, found: &[(String, Outliers)]) -> Result<()> {
    session.run.outputs.save_table("outliers.csv", &rows(session, found))?;
    let massive = massive(found);
    if !massive.is_empty() {
        session.run.outputs.save_table("massive.csv", &massive)?;
    }
    Ok(())
}

fn draw_ccdf(session: &mut Session, found: &[(String, Outliers)]) -> Result<()> {
    let line = |model: &str, tally: &Tally<()>| CcdfLine {
        model: model.to_owned(),
        // The smallest thousandth stretches over decades that nobody asks about.
        points: tally.histogram.ccdf().into_iter().filter(|&(_, share)| share > 0.0 && share < 0.999).collect(),
        median: tally.median(),
    };
    let panel = |title: &str, x_label: &str, tally: fn(&Outliers) -> Tally<()>| CcdfPanel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        lines: found.iter().map(|(model, outliers)| line(model, &tally(outliers))).collect(),
    };
    if found.iter().all(|(_, outliers)| outliers.tokens == 0) {
        return Ok(()); // nothing but failures
    }
    let panels = [
        panel("attention logits", "|logit|", Outliers::all_logits),
        panel("hidden states", "|activation|", Outliers::all_hidden),
    ];
    let subtitle = format!("all maps over visible keys; the output of every layer · {}", session.setup.caption());
    let figure = ccdf(&panels, &session.heading("How large logits and hidden states get", &subtitle))?;
    session.save(&figure, "ccdf", "all layers, heads and maps; log-binned histogram, 128 bins per doubling")
}

/// Prints the tables.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    let found = by_model(session, found);
    let (rows, massive) = (rows(session, &found), massive(&found));
    let mut out = crate::terminal::stdout();
    if session.output.json {
        writeln!(out, "{:#}", json!({ "rows": rows, "massive": massive }))?;
        return Ok(());
    }
    let tokens = found.iter().map(|(_, outliers)| outliers.tokens).max().unwrap_or(0);
    writeln!(out, "Magnitudes over {tokens} tokens: top-k exact, medians within 0.4 %\n")?;
    writeln!(out, "{}", table(rows.iter().filter(|row| row.layer.is_none())))?;
    for (model, tap) in taps(session) {
        writeln!(out, "\nLogits of {model}: {tap}")?;
    }
    if session.setup.has_own_prompts() {
        writeln!(out, "\n{PAPER}")?;
    }
    writeln!(out, "\nBy layer\n\n{}", table(rows.iter().filter(|row| row.layer.is_some())))?;
    match massive.as_slice() {
        [] => writeln!(out, "\nNo massive activations (|x| > 100 and at least 1000 times the layer's median)")?,
        massive => writeln!(out, "\nMassive activations (all in massive.csv)\n\n{}", massive_table(massive))?,
    }
    Ok(())
}

fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let mut table = Table::new(&[
        left("model"),
        left("of"),
        right("layer"),
        right("top-1"),
        right("2"),
        right("3"),
        right("10"),
        right("100"),
        right("median"),
        right("top-1/median"),
        right("kurtosis"),
        right("beyond 6 sigma %"),
        right("inf-norm"),
        right("massive"),
    ]);
    for row in rows {
        let top = |x: Option<f32>| short(x.map(f64::from));
        table.row([
            row.model.clone(),
            row.of.to_owned(),
            row.layer.map_or("all".to_owned(), |layer| layer.to_string()),
            top(row.top_1),
            top(row.top_2),
            top(row.top_3),
            top(row.top_10),
            top(row.top_100),
            short(row.median),
            short(row.top_1_over_median),
            short(row.kurtosis),
            percent_or_dash(row.share_beyond_6_sigma),
            top(row.inf_norm_max),
            row.massive.map_or("-".to_owned(), |n| n.to_string()),
        ]);
    }
    table
}

/// The largest of them, ten at most.
fn massive_table(massive: &[MassiveAt]) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("layer"),
        right("window"),
        right("position"),
        left("token"),
        right("channel"),
        right("value"),
        left("sink"),
    ]);
    let mut largest: Vec<&MassiveAt> = massive.iter().collect();
    largest.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()));
    for at in largest.into_iter().take(10) {
        table.row([
            at.model.clone(),
            at.layer.to_string(),
            at.sample.to_string(),
            at.position.to_string(),
            format!("{:?}", at.token),
            at.channel.to_string(),
            short(Some(f64::from(at.value))),
            if at.sink { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}
