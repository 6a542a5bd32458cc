//! `difftool needle`: does the model find the needle, and where did its attention go?

mod overview;

use super::allocation::draw_allocation;
use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::bail_usage;
use crate::cli::NeedleArgs;
use crate::figures::{cells, Cell, CellGrid, CellScale};
use crate::model::generate::MAX_NEW;
use crate::results::metric::EXACT;
use crate::results::{setting_name, Frame, Pick, Setting};
use crate::run::{Experiment, Generate, Grid, Show};
use anyhow::Result;
use std::num::NonZeroUsize;

pub(super) const DEFAULTS: Defaults = Defaults {
    ctx_tok: CTX_TOK,
    settings: &[(1, 1), (2, 2), (4, 2), (6, 2)], // the paper's Table 2
    samples: 4,
};

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &NeedleArgs) -> Result<Experiment> {
    let mut experiment = flags::prompts_experiment(Show::Needle, &args.run, &args.prompts, None, &DEFAULTS)?;
    let speaks = args.generate || args.unanswerable;
    if let Some(max_new) = args.max_new.filter(|_| !speaks) {
        bail_usage!("--max-new {max_new}: models answer by themselves with --generate or --unanswerable");
    }
    let of_task = args.prompts.task.and_then(|task| NonZeroUsize::new(task.answers_tok()));
    let max_new = args.max_new.or(of_task).unwrap_or(MAX_NEW);
    experiment.generate = speaks.then_some(Generate { max_new });
    if let (Grid::Needle(grid), true) = (&mut experiment.grid, args.unanswerable) {
        grid.absent_samples = grid.samples; // as many as there are with an answer, whose text they share
    }
    Ok(experiment)
}

/// Draws the figures.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let frame = &found.frame;
    let Some(grids) = accuracy_grids(frame, &session.setup.grid) else {
        return Ok(()); // nothing but failures
    };
    let caption = session.setup.caption();
    let subtitle = format!("in %, with 95 % Wilson intervals and numbers of prompts n · {caption}");
    let scale = CellScale {
        label: "exact match (%)",
        end: Some(100.0),
        decimals: 0,
        x_label: &grids.x_label,
        y_label: "depth of the needle (%)",
    };
    let heading = session.heading("Needle retrieval: exact-match accuracy", &subtitle);
    let figure = cells(&grids.rows, &heading, &scale)?;
    session.save(&figure, "accuracy", "mean over prompts")?;
    draw_allocation(session, frame)?;
    overview::draw_by_length(session, frame)?;
    overview::draw_models(session, frame)
}

/// Rows of grids of accuracy, and the label of their columns.
struct AccuracyGrids {
    rows: Vec<Vec<CellGrid>>,
    x_label: String,
}

/// Label, task and setting of a column.
type GridColumn<'a> = (String, &'a str, Setting);

/// Accuracy by depth and length, models side by side and settings one below the other; by depth and setting if there is
/// only one length.
fn accuracy_grids(frame: &Frame, grid: &Grid) -> Option<AccuracyGrids> {
    let Grid::Needle(grid) = grid else { return None };
    let forms = grid.forms();
    let has_shares = forms.len() > 1;
    let mut settings: Vec<(String, String, Setting)> = Vec::new(); // (name, task, setting without its length)
    for form in &forms {
        for &(needles, retrieve) in &grid.settings {
            let share = if has_shares { format!(" {}%", form.distractors_pct()) } else { String::new() };
            settings.push((setting_name(needles, retrieve) + &share, form.name(), (0, needles, retrieve)));
        }
    }
    // The columns of each row of grids, with what stands beside the titles of its grids.
    let mut columns_of_rows: Vec<(String, Vec<GridColumn<'_>>)> = Vec::new();
    if let [ctx_tok] = grid.ctx_tok[..] {
        let columns = settings.iter().map(|(name, task, at)| (name.clone(), task.as_str(), (ctx_tok, at.1, at.2)));
        columns_of_rows.push((format!("{} tokens", tokens(ctx_tok)), columns.collect()));
    } else {
        for (name, task, at) in &settings {
            let lengths = grid.ctx_tok.iter();
            let columns = lengths.map(|&ctx_tok| (tokens(ctx_tok), task.as_str(), (ctx_tok, at.1, at.2)));
            columns_of_rows.push((name.clone(), columns.collect()));
        }
    }
    let depths = frame.depths_pct();
    let mut rows = Vec::new();
    for (detail, columns) in columns_of_rows {
        let mut row = Vec::new();
        for model in frame.models() {
            let mut cells = Vec::new();
            for &depth in &depths {
                let of_depth = columns.iter().map(|(_, task, at)| accuracy_cell(frame, model, task, depth, *at));
                cells.push(of_depth.collect());
            }
            row.push(CellGrid {
                title: frame.short_name(model),
                detail: detail.clone(),
                rows: depths.iter().map(|depth| format!("{}", (depth * 10.0).round() / 10.0)).collect(),
                columns: columns.iter().map(|(name, ..)| name.clone()).collect(),
                cells,
            });
        }
        rows.push(row);
    }
    let x_label = match (grid.ctx_tok.len(), has_shares) {
        (1, true) => "needles N, asked for R, distractors",
        (1, false) => "needles N, asked for R",
        _ => "context length (tokens)",
    };
    rows.retain(|row| !row.is_empty());
    (!rows.is_empty()).then(|| AccuracyGrids { rows, x_label: x_label.to_owned() })
}

/// The accuracy of a model on the prompts of one task, depth and setting, with its interval and their number.
fn accuracy_cell(frame: &Frame, model: &str, task: &str, depth: f64, setting: Setting) -> Option<Cell> {
    let found = frame.estimate(Pick::of(model, EXACT.name).depth_pct(depth).task(task).setting(setting))?;
    let (lo, hi) = found.interval.map_or((0.0, 1.0), |interval| (interval.lo, interval.hi));
    let details = vec![format!("{:.0}–{:.0}", 100.0 * lo, 100.0 * hi), format!("n={}", found.trials)];
    Some(Cell { value: 100.0 * found.value, details })
}

/// Formats a number of tokens as on the command line: 512, 4k.
fn tokens(n: usize) -> String {
    if n > 0 && n.is_multiple_of(1024) {
        format!("{}k", n / 1024)
    } else {
        n.to_string()
    }
}
