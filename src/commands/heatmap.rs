//! `difftool heatmap`: pictures of attention maps.

mod draw;
mod matrices;

use super::flags;
use super::session::{RunResults, Session};
use crate::bail_usage;
use crate::base::files::folder_of;
use crate::cli::HeatmapArgs;
use crate::run::{Experiment, Show};
use anyhow::{Context, Result};
use draw::Picture;
use matrices::{taken, write_matrices};

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &HeatmapArgs) -> Result<Experiment> {
    let experiment = flags::one_prompt_experiment(Show::Heatmap, &args.run, &args.prompt, args.text.as_deref())?;
    Ok(Experiment { heatmap: Some(args.heatmap.clone()), ..experiment })
}

/// Draws the figures, and writes the matrices if they are asked for.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let Some(measure) = found.measures.maps.as_ref().filter(|measure| !measure.maps.is_empty()) else {
        return Ok(()); // nothing but failures
    };
    let spec = session.setup.experiment.heatmap();
    Picture { spec: &spec, drawn: &measure.heads, frame: &found.frame, maps: &measure.maps }.draw(session)?;
    if let Some(path) = &spec.data {
        let whole = found.measures.whole_maps.as_ref();
        write_matrices(path, whole.unwrap_or(measure), &spec, &session.setup)?;
    }
    Ok(())
}

/// Checks that the matrices can be written where they are asked for, before anything is measured.
///
/// # Errors
/// Usage errors; if the folder cannot be written to.
pub(super) fn check_data(experiment: &Experiment) -> Result<()> {
    let Some(path) = experiment.heatmap.as_ref().and_then(|spec| spec.data.as_deref()) else { return Ok(()) };
    let folder = folder_of(path);
    if !folder.is_dir() {
        bail_usage!("--data {}: there is no folder {}", path.display(), folder.display());
    }
    if let Some(found) = taken(path) {
        let shown = path.display();
        bail_usage!("--data {shown}: {} exists already; results are never overwritten", found.display());
    }
    tempfile::tempfile_in(folder).with_context(|| format!("--data {}: cannot write there", path.display()))?;
    Ok(())
}
