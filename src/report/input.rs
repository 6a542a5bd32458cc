//! A run folder, read back: its manifest, its records, its figures.

use super::figure::ReportFigure;
use crate::results::folder::{
    other_kind, CONTEXTS, DRAWN, EXPERIMENT, EXPLORER, MANIFEST, MASSIVE, RANKINGS, RESULTS, TOKENS,
};
use crate::results::manifest::{Manifest, OutputFile};
use crate::results::record;
use crate::results::{About, Findings, Frame, FrameBuilder, RunConfig, Tokens};
use anyhow::{ensure, Context as _, Result};
use base::bail_usage;
use base::files;
use std::path::{Path, PathBuf};

/// A run folder, read for a report.
pub(crate) struct SavedRun {
    /// The folder as it was named.
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Manifest,
    /// The records, grouped, with the tokens, massive activations and drawn heads that the folder lists.
    pub(crate) frame: Frame,
    /// The experiment file that says what was run, if the folder holds it.
    pub(super) experiment: Option<String>,
    /// The explorer of its maps, an HTML page.
    pub(super) explorer: Option<String>,
    /// The PNG files, in the order they were drawn.
    pub(super) figures: Vec<ReportFigure>,
}

impl SavedRun {
    /// Reads the folder.
    ///
    /// # Errors
    /// Usage errors if it is not a run folder; others if a file cannot be read, or is not the one that the manifest
    /// describes: a report on changed results would name the wrong recipe.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        if folder.is_file() {
            bail_usage!("{shown} is a file; name the run folder that it is in");
        }
        if !folder.is_dir() {
            bail_usage!("there is no run folder {shown}");
        }
        if !folder.join(MANIFEST).is_file() {
            if let Some(other) = other_kind(folder) {
                bail_usage!("{other}");
            }
            bail_usage!(
                "{shown} has no {MANIFEST}, which a run writes when it ends: is it a run folder, and has the run ended?"
            );
        }
        let manifest = Manifest::read(&folder.join(MANIFEST))?;
        let mut frame = FrameBuilder::new(about(folder, &manifest)?);
        let mut found = Findings::default();
        let mut figures = Vec::new();
        let mut explorer = None;
        for output in &manifest.outputs {
            let is_figure = output.file.to_lowercase().ends_with(".png");
            if !is_figure
                && ![RESULTS, TOKENS, MASSIVE, RANKINGS, DRAWN, CONTEXTS, EXPLORER].contains(&output.file.as_str())
            {
                continue;
            }
            let path = checked(folder, output)?;
            match output.file.as_str() {
                RESULTS => _ = record::read_each(&path, |record| frame.add(record))?,
                TOKENS => found.tokens = Tokens::read(&path)?,
                MASSIVE => found.massive = files::csv_lines(&path)?.collect::<Result<_>>()?,
                RANKINGS => found.ranked = files::csv_lines(&path)?.collect::<Result<_>>()?,
                CONTEXTS => found.contexts = files::json_lines(&path)?,
                DRAWN => found.drawn = files::csv_lines(&path)?.collect::<Result<_>>()?,
                EXPLORER => explorer = Some(files::text(&path, files::TEXT_MAX)?),
                file => figures.push(ReportFigure::read(&path, file)?),
            }
        }
        let frame = frame.finish(found);
        Ok(Self { experiment: experiment_of(folder)?, folder: folder.to_owned(), manifest, frame, explorer, figures })
    }
}

/// The experiment as a file, if there is one. The manifest has no hash of it, so a link could show any file of the reader.
fn experiment_of(folder: &Path) -> Result<Option<String>> {
    let path = folder.join(EXPERIMENT);
    ensure!(!path.is_symlink(), "{} is a link, which may lead out of the run folder", path.display());
    path.is_file().then(|| files::text(&path, files::CONFIG_MAX)).transpose()
}

/// Models and settings of the run for its frame. Resampling uses the seed of the run, so tables are those it printed.
fn about(folder: &Path, manifest: &Manifest) -> Result<About> {
    let seed = manifest.seeds.get("bootstrap").copied().unwrap_or(0);
    let of_maps = manifest.outputs.iter().any(|output| output.file == DRAWN);
    let config = RunConfig::of(&manifest.config).context(MANIFEST)?;
    Ok(About { config, models: manifest.models.clone(), seed, of_maps, folder: Some(folder.to_owned()) })
}

/// The path of an output that is what the manifest says it is.
fn checked(folder: &Path, output: &OutputFile) -> Result<PathBuf> {
    let path = output.path(folder)?;
    ensure!(
        output.is_unchanged(folder)?,
        "{} is not the file that {} describes (its SHA-256 differs): it was changed after the run, or the run goes on",
        path.display(),
        folder.join(MANIFEST).display()
    );
    Ok(path)
}
