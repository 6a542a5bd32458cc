//! `difftool ratio`: attention to the answer against noise (the paper's Table 3 and Figure 1).

use super::draw_allocation;
use super::execute::{self, Found};
use super::flags::{self, Defaults};
use super::remarks::EVEN;
use super::session::Session;
use crate::cli::RatioArgs;
use crate::experiment::{Experiment, Grid, Show};
use crate::plot::{head_grid, HeadGrid, HeadScale};
use crate::prompt::Region;
use crate::stats::{bootstrap_mean, mean, rank_stability, RESAMPLES};
use crate::summary::{Difference, HeadMetric, Pick, Setting, Summary};
use crate::table::{left, percent_in, percent_or_dash, points_in, right, short, short_in, Column, Table};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

const DEFAULTS: Defaults = Defaults { settings: &[(1, 1)], samples: 15, heldout: |_| 0 };

/// The paper's Table 3, printed beside ours.
const PAPER: &str = "\
The paper (Table 3; 3B models, signed shares, other prompts; mean over heads and layers, depths 0, 25, 50, 75, 100 %):
  Transformer  answer  3  3  3  7  9 %   noise 51 54 52 49 49 %
  DIFF         answer 27 30 31 32 40 %   noise  1  2  2  2  1 %";

/// What the three readings can and cannot see.
const READINGS: &str = "\
out: what reaches the output: the keys' values, weighed, through head norm and W_O, projected on what the head writes. It
sees values and what is cancelled, but not whether what is written matters to the answer. signed: weights as they are
added; without values, and divided by 1 - lambda, which may be negative. |a|: where weight is, cancelled or not; without
values too.";

/// What models are compared on: name, metric and region of the records, and whether it is a fraction.
const COMPARED: [(&str, &str, Option<&str>, bool); 12] = [
    ("answer: out", "share_out", Some("answer"), true),
    ("noise: out", "noise_out", None, true),
    ("answer: signed", "share_signed", Some("answer"), true),
    ("noise: signed", "noise_signed", None, true),
    ("answer: |a|", "share_abs", Some("answer"), true),
    ("noise: |a|", "noise_abs", None, true),
    ("BOS: out", "share_out", Some("bos"), true),
    ("question: out", "share_out", Some("question"), true),
    ("answer without sinks", "share_abs_no_sinks", Some("answer"), true),
    ("noise without sinks", "noise_abs_no_sinks", None, true),
    ("entropy (nats)", "entropy", None, false),
    ("keys holding 90 %", "keys_90", None, false),
];

/// Those of them that plain text has.
const OF_TEXT: [&str; 3] = ["BOS: out", "entropy (nats)", "keys holding 90 %"];

/// Heads that are listed if nobody says how many.
const TOP: usize = 8;

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &RatioArgs) -> Result<()> {
    execute::preset(experiment(args)?, &args.run.output, &args.part)
}

fn experiment(args: &RatioArgs) -> Result<Experiment> {
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, args.text.as_deref(), &DEFAULTS)?;
    let experiment = flags::experiment(Show::Ratio, &args.run, grid, Some(&args.prompts), args.text.as_deref())?;
    Ok(Experiment { top: Some(args.top), ..experiment })
}

fn is_text(session: &Session) -> bool {
    matches!(session.setup.grid, Grid::Text(_))
}

/// Draws the figures.
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let is_text = is_text(session);
    if summary.models().is_empty() {
        return Ok(()); // nothing but failures
    }
    let rows = if is_text { "last 32 rows" } else { "rows that predict the answer" };
    let caption = session.setup.caption();
    // Text has no depths and no regions but BOS and itself: nothing to stack.
    if !is_text {
        draw_allocation(session, summary)?;
    }
    let (what, region) = if is_text { ("BOS", Region::Bos) } else { ("the answer", Region::Answer) };
    let metric = head_metric(&session.setup.grid);
    let grids: Vec<HeadGrid> = summary.models().iter().map(|model| head_shares(summary, model, metric)).collect();
    let title = format!("What {what} gives each head's output, by layer and head");
    let subtitle = format!("{rows} · {caption}");
    let uniform = summary.models().first().and_then(|model| {
        summary.mean(Pick::of(model, "share_uniform").region(region.name())).map(|share| 100.0 * share)
    });
    let scale = HeadScale { label: "share of the output (%)", end: Some(100.0), uniform };
    let figure = head_grid(&grids, &session.heading(&title, &subtitle), &scale)?;
    session.save(&figure, "heads", &format!("mean over prompts and the {rows}; share of the output"))
}

/// The share that heads are told by: of the answer, or of the beginning of a text.
pub(super) fn head_metric(grid: &Grid) -> HeadMetric {
    ("share_out", Some(if matches!(grid, Grid::Text(_)) { "bos" } else { "answer" }))
}

/// A share of every head in percent: layers x heads.
fn head_shares(summary: &Summary, model: &str, metric: HeadMetric) -> HeadGrid {
    let means = summary.heads(model, metric).into_iter();
    HeadGrid::of(model, means.map(|(at, values)| (at, mean(&values).map(|x| 100.0 * x))))
}

/// A head that writes what the answer gives it.
#[derive(Serialize)]
struct TopHead {
    model: String,
    layer: usize,
    head: usize,
    /// Mean over prompts of the answer's share of its output, with its 95 % bootstrap interval.
    share_out: f64,
    lo: f64,
    hi: f64,
    /// Fraction of bootstrap resamples of the prompts in which it is among the K first.
    in_top: f64,
}

/// The K heads of a model whose output owes most to the answer.
fn top_heads(summary: &Summary, model: &str, k: usize, seed: u64) -> Vec<TopHead> {
    let heads = summary.heads(model, ("share_out", Some("answer")));
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let stability = rank_stability(&values, k, RESAMPLES, seed);
    let mut list: Vec<TopHead> = heads
        .iter()
        .zip(stability)
        .filter_map(|(((layer, head), values), in_top)| {
            let interval = bootstrap_mean(values, RESAMPLES, seed)?;
            let share_out = mean(values)?;
            let (model, (lo, hi)) = (model.to_owned(), (interval.lo, interval.hi));
            Some(TopHead { model, layer: *layer, head: *head, share_out, lo, hi, in_top })
        })
        .collect();
    list.sort_by(|a, b| b.share_out.total_cmp(&a.share_out));
    list.truncate(k);
    list
}

/// Prints the tables.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    let summary = &found.summary;
    let (seed, is_text) = (session.setup.grid.seed(), is_text(session));
    let compared = COMPARED.iter().filter(|(name, ..)| !is_text || OF_TEXT.contains(name));
    let metrics: Vec<_> = compared.map(|&(name, metric, region, _)| (name, metric, region)).collect();
    let differences = summary.differences(&metrics, seed);
    let k = if is_text { 0 } else { session.setup.experiment.top.unwrap_or(TOP) };
    let heads: Vec<TopHead> = summary.models().iter().flat_map(|model| top_heads(summary, model, k, seed)).collect();
    let mut out = crate::terminal::stdout();
    if session.output.json {
        let rows = json_rows(summary);
        writeln!(out, "{:#}", json!({ "rows": rows, "differences": differences, "top_heads": heads }))?;
        return Ok(());
    }
    writeln!(
        out,
        "What each region gives the output of the heads, in % of it: mean over heads and layers\n\n{}",
        by_depth(summary, is_text)
    )?;
    writeln!(out, "\nThree readings and raw masses, in %; an even spread has the same share in all three\n")?;
    writeln!(out, "{}\n\n{READINGS}", conventions(summary, is_text))?;
    if let Some(left_out) = left_out(summary) {
        writeln!(out, "{left_out}")?;
    }
    // The paper's prompts are of this form; text and others' prompts are not.
    if !is_text && session.setup.has_own_prompts() {
        writeln!(out, "\n{PAPER}")?;
    }
    writeln!(out, "\nWhat the heads write, and what the subtraction of maps removes\n")?;
    writeln!(out, "{}", output_table(summary, is_text))?;
    writeln!(out, "\nShape of the rows, and shares with the first token and detected sinks excluded\n")?;
    writeln!(out, "{}", shapes(summary, is_text))?;
    if !heads.is_empty() {
        writeln!(out, "\nHeads that attend most to the answer, by its share of what they write [95 % bootstrap interval over prompts]\n")?;
        writeln!(out, "{}", heads_table(&heads, k))?;
    }
    if !differences.is_empty() {
        writeln!(out, "\nPaired differences on the same prompts [95 % bootstrap interval]; shares in points\n")?;
        writeln!(out, "{}", difference_table(&differences, is_text))?;
    }
    Ok(())
}

/// Settings in order, models within.
fn settings_and_models(summary: &Summary) -> Vec<(Setting, &String)> {
    let settings = summary.settings().iter();
    settings.flat_map(|&setting| summary.models().iter().map(move |model| (setting, model))).collect()
}

/// What says which setting a row is of; plain text has no needles.
fn setting_columns(is_text: bool) -> Vec<Column> {
    let needles = [right("N"), right("R")];
    std::iter::once(right("tokens")).chain(needles.into_iter().filter(|_| !is_text)).collect()
}

fn setting_cells((ctx_tok, needles, retrieve): Setting, is_text: bool) -> Vec<String> {
    let asked = [needles, retrieve].into_iter().filter(|_| !is_text);
    std::iter::once(ctx_tok).chain(asked).map(|n| n.to_string()).collect()
}

/// Rows: model x depth of the controlled needle. Columns: every region that occurs.
fn by_depth(summary: &Summary, is_text: bool) -> Table {
    let share = |setting, model, depth, region: Region| {
        summary.mean(Pick::of(model, "share_out").region(region.name()).setting(setting).depth_pct(depth))
    };
    let depths = summary.depths_pct();
    let rows = settings_and_models(summary);
    let occurs = |region: &Region| {
        rows.iter().any(|&(s, m)| depths.iter().any(|&d| share(s, m, d, *region).is_some_and(|x| x != 0.0)))
    };
    let regions: Vec<Region> = Region::ALL.into_iter().filter(occurs).collect();
    let mut columns = vec![left("model")];
    columns.extend(setting_columns(is_text));
    columns.extend((!is_text).then(|| right("depth %")));
    columns.extend(regions.iter().map(|region| right(region.name())));
    columns.extend((!is_text).then(|| [right("noise"), right("best head's answer")]).into_iter().flatten());
    columns.push(right("lambda"));
    let mut table = Table::new(&columns);
    for &(setting, model) in &rows {
        for &depth in &depths {
            let pick = |metric| Pick::of(model, metric).setting(setting).depth_pct(depth);
            let mut cells = vec![model.clone()];
            cells.extend(setting_cells(setting, is_text));
            cells.extend((!is_text).then(|| format!("{depth:.0}")));
            cells.extend(regions.iter().map(|&region| percent_or_dash(share(setting, model, depth, region))));
            if !is_text {
                cells.push(percent_or_dash(summary.mean(pick("noise_out"))));
                cells.push(percent_or_dash(summary.mean(pick("share_out_best_head").region("answer"))));
            }
            cells.push(short(summary.mean(pick("lambda"))));
            table.row(cells);
        }
    }
    if let Some(&(setting, model)) = rows.last() {
        let pick = |metric| Pick::of(model, metric).setting(setting);
        let mut cells = vec![EVEN.to_owned()];
        cells.extend(setting_cells(setting, is_text));
        cells.extend((!is_text).then(|| "all".to_owned()));
        let even = |region: &Region| summary.mean(pick("share_uniform").region(region.name()));
        cells.extend(regions.iter().map(|region| percent_or_dash(even(region))));
        if !is_text {
            cells.extend([percent_or_dash(summary.mean(pick("noise_uniform"))), "-".to_owned()]);
        }
        cells.push("-".to_owned());
        table.row(cells);
    }
    table
}

/// Cells of a table: heading, metric and region.
type Cells = &'static [(&'static str, &'static str, Option<&'static str>)];
/// Cells that are shown in one way.
type Group = (Cells, fn(Option<f64>) -> String);

fn table_of(summary: &Summary, cells: &[Group], is_text: bool) -> Table {
    let mut columns: Vec<Column> = vec![left("model")];
    columns.extend(setting_columns(is_text));
    columns.extend(cells.iter().flat_map(|(cells, _)| cells.iter().map(|(heading, ..)| right(*heading))));
    let mut table = Table::new(&columns);
    for (setting, model) in settings_and_models(summary) {
        let mut row = vec![model.clone()];
        row.extend(setting_cells(setting, is_text));
        for (cells, show) in cells {
            row.extend(cells.iter().map(|&(_, metric, region)| {
                let pick = Pick::of(model, metric).setting(setting);
                show(summary.mean(region.map_or(pick, |region| pick.region(region))))
            }));
        }
        table.row(row);
    }
    table
}

fn conventions(summary: &Summary, is_text: bool) -> Table {
    const NEEDLE: Cells = &[
        ("answer: out", "share_out", Some("answer")),
        ("signed", "share_signed", Some("answer")),
        ("|a|", "share_abs", Some("answer")),
        ("positive", "share_pos", Some("answer")),
        ("even", "share_uniform", Some("answer")),
        ("noise: out", "noise_out", None),
        ("signed", "noise_signed", None),
        ("|a|", "noise_abs", None),
        ("positive", "noise_pos", None),
        ("even", "noise_uniform", None),
        ("answer mass", "mass", Some("answer")),
        ("filler mass", "mass", Some("filler")),
        ("negative mass", "mass_neg", None),
    ];
    const TEXT: Cells = &[
        ("BOS: out", "share_out", Some("bos")),
        ("signed", "share_signed", Some("bos")),
        ("|a|", "share_abs", Some("bos")),
        ("positive", "share_pos", Some("bos")),
        ("even", "share_uniform", Some("bos")),
        ("BOS mass", "mass", Some("bos")),
        ("text mass", "mass", Some("filler")),
        ("negative mass", "mass_neg", None),
    ];
    table_of(summary, &[(if is_text { TEXT } else { NEEDLE }, percent_or_dash)], is_text)
}

/// What the heads write: how much, how far it speaks for the right token, and what is cancelled before.
fn output_table(summary: &Summary, is_text: bool) -> Table {
    const NORMS: Cells = &[("context RMS", "context_rms", None)];
    const LOGITS: Cells = &[
        ("answer's logits", "logit_out_sum", Some("answer")),
        ("filler's", "logit_out_sum", Some("filler")),
        ("question's", "logit_out_sum", Some("question")),
    ];
    const NORM_SHARES: Cells =
        &[("answer's norm %", "norm_out", Some("answer")), ("noise's norm %", "noise_norm_out", None)];
    const CANCELLED: Cells = &[("cancelled %", "cancelled", None)];
    const OF_REGIONS: Cells =
        &[("of the answer %", "cancelled", Some("answer")), ("of the filler %", "cancelled", Some("filler"))];
    let mut cells: Vec<Group> = vec![(NORMS, short)];
    if !is_text {
        cells.extend::<[Group; 2]>([(LOGITS, short), (NORM_SHARES, percent_or_dash)]);
    }
    cells.push((CANCELLED, percent_or_dash));
    cells.extend((!is_text).then_some::<Group>((OF_REGIONS, percent_or_dash)));
    table_of(summary, &cells, is_text)
}

/// Of how many heads a signed share was not taken, if of any.
fn left_out(summary: &Summary) -> Option<String> {
    let of = |model: &String| {
        let count = summary.mean(Pick::of(model, "signed_left_out")).filter(|&count| count > 0.0)?;
        Some(format!("{} of {model}", short(Some(count))))
    };
    let counts: Vec<String> = summary.models().iter().filter_map(of).collect();
    (!counts.is_empty()).then(|| {
        format!(
            "Signed shares leave out heads whose rows sum to less than a tenth of their magnitude: {} (mean over \
                 prompts).",
            counts.join(", ")
        )
    })
}

fn shapes(summary: &Summary, is_text: bool) -> Table {
    const SHAPE: Cells = &[
        ("entropy (nats)", "entropy", None),
        ("keys for 90 %", "keys_90", None),
        ("99 %", "keys_99", None),
        ("sinks", "sinks", None),
    ];
    const SINKS: Cells =
        &[("first token %", "sink_share_first", None), ("detected sinks %", "sink_share_detected", None)];
    const VALUES: Cells =
        &[("first token's value", "value_norm_first", None), ("sinks' values", "value_norm_sinks", None)];
    const NEEDLE: Cells =
        &[("answer without %", "share_abs_no_sinks", Some("answer")), ("noise without %", "noise_abs_no_sinks", None)];
    const BOOST: Cells = &[("answer boost", "boost", Some("answer")), ("filler boost", "boost", Some("filler"))];
    let needle: [Group; 2] = [(NEEDLE, percent_or_dash), (BOOST, short)];
    let mut cells: Vec<Group> = vec![(SHAPE, short), (SINKS, percent_or_dash), (VALUES, short)];
    cells.extend(needle.into_iter().filter(|_| !is_text));
    table_of(summary, &cells, is_text)
}

fn heads_table(heads: &[TopHead], k: usize) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("layer"),
        right("head"),
        right("answer %"),
        right(if k == 1 { "first in % of resamples" } else { "among these in % of resamples" }),
    ]);
    for head in heads {
        let interval = crate::stats::Interval { lo: head.lo, hi: head.hi };
        table.row([
            head.model.clone(),
            head.layer.to_string(),
            head.head.to_string(),
            percent_in(head.share_out, interval),
            format!("{:.0}", 100.0 * head.in_top),
        ]);
    }
    table
}

fn difference_table(differences: &[Difference], is_text: bool) -> Table {
    let mut columns = vec![left("difference")];
    columns.extend(setting_columns(is_text));
    columns.extend([left("of"), right("prompts"), right("mean [95 %]")]);
    let mut table = Table::new(&columns);
    for d in differences {
        let is_share = COMPARED.iter().any(|&(name, .., is_share)| name == d.metric && is_share);
        let shown = if is_share { points_in(d.difference, d.interval()) } else { short_in(d.difference, d.interval()) };
        let mut row = vec![format!("{} - {}", d.of, d.baseline)];
        row.extend(setting_cells((d.ctx_tok, d.needles, d.retrieve), is_text));
        row.extend([d.metric.clone(), d.n.to_string(), shown]);
        table.row(row);
    }
    table
}

/// Every mean of the tables: model, setting, depth, metric, region, value.
fn json_rows(summary: &Summary) -> Vec<serde_json::Value> {
    let mut rows = Vec::new();
    for (setting, model) in settings_and_models(summary) {
        for depth in summary.depths_pct() {
            for (metric, region) in summary.metrics() {
                let pick = Pick::of(model, &metric).setting(setting).depth_pct(depth);
                let pick = region.as_deref().map_or(pick, |region| pick.region(region));
                let Some(value) = summary.mean(pick) else { continue };
                rows.push(json!({
                    "model": model, "ctx_tok": setting.0, "needles": setting.1, "retrieve": setting.2,
                    "depth_pct": depth, "metric": metric, "region": region, "mean": value,
                }));
            }
        }
    }
    rows
}
