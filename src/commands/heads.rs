//! `difftool heads`: what is each head for?

use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::cli::HeadsArgs;
use crate::figures::{cells, CellGrid, CellScale};
use crate::results::metric::{Kind, Label};
use crate::results::view::HEAD_ROLES;
use crate::run::{Experiment, Show};
use crate::stats::mean;
use anyhow::Result;

pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: CTX_TOK, settings: &[(1, 1)], samples: 4 };

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &HeadsArgs) -> Result<Experiment> {
    flags::prompts_experiment(Show::Heads, &args.run, &args.prompts, None, &DEFAULTS)
}

/// Draws a figure for each role that has numbers.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let frame = &found.frame;
    let caption = session.setup.caption();
    for role in &HEAD_ROLES {
        let is_share = role.metric.kind == Kind::Share;
        let factor = if is_share { 100.0 } else { 1.0 };
        let mut grids = Vec::new();
        for model in frame.models() {
            let heads = frame.heads(model, None, role.metric.name, role.region);
            if !heads.is_empty() {
                let means = heads.into_iter().map(|(at, values)| (at, mean(&values).map(|x| factor * x)));
                grids.push(CellGrid::of_heads(frame.short_name(model), means));
            }
        }
        if grids.is_empty() {
            continue;
        }
        let title = format!("Heads: {}", role.name);
        let label = Label::of(role.metric, role.region).heading();
        let scale = CellScale::of_heads(&label, is_share.then_some(100.0));
        let figure = cells(&[grids], &session.heading(&title, &caption), &scale)?;
        session.save(&figure, &format!("heads-{}", role.name.replace(' ', "-")), "mean over prompts")?;
    }
    Ok(())
}
