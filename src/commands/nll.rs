//! `difftool nll`: how well text is predicted, by position in the window (the paper's Figure 4), and with or without the
//! help of what was read before (its Table 6).

mod draw;

pub(super) use draw::draw;

use super::flags;
use crate::bail_usage;
use crate::cli::NllArgs;
use crate::model::open;
use crate::prompts::BosChoice;
use crate::run::{Experiment, Grid, Show, TextGrid};
use anyhow::Result;

/// Windows of prose if nobody says how many: 100k tokens of 4k windows.
const WINDOWS: usize = 25;

/// More windows than any text has: all of them.
const ALL_WINDOWS: usize = 1_000_000;

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &NllArgs) -> Result<Experiment> {
    let models = open::resolve(&args.model)?;
    if args.ids.is_some() && args.reading.bos != BosChoice::Auto {
        bail_usage!("--bos: token ids are taken as they are; leave out --bos or --ids");
    }
    let what = "nll pools windows of one length";
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &args.model, &args.reading, what)?;
    let own = args.text.is_some() || args.ids.is_some();
    let stride = match args.stride.as_ref().map(|range| range.0.as_slice()) {
        Some([stride]) => Some(*stride),
        Some(_) => bail_usage!("--stride: {what}; give it one number"),
        None => own.then_some((ctx_tok / 2).max(1)),
    };
    let samples = args.samples.unwrap_or(if own { ALL_WINDOWS } else { WINDOWS });
    let grid = Grid::Text(TextGrid { ctx_tok: vec![ctx_tok], samples, stride, seed: args.seed });
    Ok(Experiment {
        skip: args.skip,
        text: args.text.clone(),
        ids: args.ids.clone(),
        reading: args.reading.clone(),
        ..Experiment::new(Show::Nll, models, grid)
    })
}
