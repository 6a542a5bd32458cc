//! `difftool needle`: does the model find the needle, and where did its attention go?

mod overview;

use super::allocation::draw_allocation;
use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::bail_usage;
use crate::cli::NeedleArgs;
use crate::figures::{accuracy, AccuracyPanel, Hits};
use crate::model::generate::MAX_NEW;
use crate::results::metric::EXACT;
use crate::results::{setting_name, Frame, Pick};
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
    let Some(panels) = accuracy_panels(frame, &session.setup.grid) else {
        return Ok(()); // nothing but failures
    };
    let caption = session.setup.caption();
    let subtitle = format!("in %, with 95 % Wilson intervals and numbers of prompts n · {caption}");
    let figure = accuracy(&panels, &session.heading("Needle retrieval: exact-match accuracy", &subtitle))?;
    session.save(&figure, "accuracy", "mean over prompts")?;
    draw_allocation(session, frame)?;
    overview::draw_by_length(session, frame)?;
    overview::draw_models(session, frame)
}

fn accuracy_panels(frame: &Frame, grid: &Grid) -> Option<Vec<AccuracyPanel>> {
    let Grid::Needle(grid) = grid else { return None };
    let depths = frame.depths_pct();
    let mut panels = Vec::new();
    let forms = grid.forms();
    let kinds: Vec<_> =
        forms.iter().flat_map(|form| grid.settings.iter().map(move |&setting| (form, setting))).collect();
    for model in frame.models() {
        for &(form, (needles, retrieve)) in &kinds {
            let task = form.name();
            let cell = |depth: f64, ctx: usize| {
                let pick = Pick::of(model, EXACT.name).depth_pct(depth).task(&task);
                let found = frame.estimate(pick.setting((ctx, needles, retrieve)))?;
                let interval = found.interval.map_or((0.0, 1.0), |interval| (interval.lo, interval.hi));
                Some(Hits { accuracy: found.value, interval, n: found.trials })
            };
            panels.push(AccuracyPanel {
                model: frame.short_name(model),
                setting: setting_name(needles, retrieve),
                distractors_pct: (forms.len() > 1).then_some(form.distractors_pct()),
                ctx_tok: grid.ctx_tok.clone(),
                depths_pct: depths.clone(),
                accuracy: depths.iter().map(|&d| grid.ctx_tok.iter().map(|&ctx| cell(d, ctx)).collect()).collect(),
            });
        }
    }
    (!panels.is_empty()).then_some(panels)
}
