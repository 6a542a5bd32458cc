//! One run of a command: progress, figures, and the closing message.

use super::progress::ProgressReporter;
use super::shared::{recipe, OutputArgs};
use super::stop_on_signal;
use crate::figures::{Figure, FigureHeading};
use crate::measures::{Measure, Measures};
use crate::results::folder::RESULTS;
use crate::results::record::Record;
use crate::results::table::plural;
use crate::results::Frame;
use crate::run::{self, RunOutcome, RunPart, Setup};
use anyhow::{bail, Result};

/// The command that opens a folder in a window.
const OPENER: &str = if cfg!(windows) {
    "explorer"
} else if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// The results of a run, for tables and figures.
pub(super) struct RunResults {
    pub(super) frame: Frame,
    pub(super) measures: Measures,
}

/// A run whose records are written.
pub(super) struct Session {
    pub(super) setup: Setup,
    pub(super) output: OutputArgs,
    pub(super) run: RunOutcome,
}

impl Session {
    /// Runs or resumes an experiment; every record is passed to `see`.
    pub(super) fn run(
        setup: Setup,
        output: OutputArgs,
        part: RunPart,
        measures: &mut [&mut dyn Measure],
        see: &mut dyn FnMut(&Record),
    ) -> Result<Self> {
        let stop = stop_on_signal("the prompts in progress")?;
        let mut terminal = ProgressReporter::new(&setup, part.shard, output.quiet, see);
        let run = run::run(&setup, part, measures, &mut terminal, &stop);
        terminal.finish();
        Ok(Self { run: run?, setup, output })
    }

    /// Returns the heading of a figure.
    pub(super) fn heading<'a>(&self, title: &'a str, subtitle: &'a str) -> FigureHeading<'a> {
        FigureHeading { title, subtitle, page: self.output.figures.page.page() }
    }

    /// Saves a figure with its recipe in every requested format; `name` has no extension.
    pub(super) fn save(&mut self, figure: &Figure, name: &str, pooling: &str) -> Result<()> {
        let mut recipe = self.recipe(pooling);
        recipe.insert(0, ("Title".to_owned(), figure.title().to_owned()));
        let files = self.output.figures.files(name);
        files.iter().try_for_each(|file| figure.save(&self.run.add_file(file, None), &recipe))
    }

    pub(super) fn recipe(&self, pooling: &str) -> Vec<(String, String)> {
        let mut recipe = recipe(&self.run.folder.command(), self.setup.grid.seed(), pooling);
        let mut models = Vec::new();
        for model in &self.setup.models {
            models.push(format!("{} sha256 {}", model.name, model.info.weights_sha256));
        }
        recipe.push(("models".to_owned(), models.join("\n")));
        recipe
    }

    /// Prints where the results are. Fails if the run was stopped or prompts failed.
    pub(super) fn conclude(&self) -> Result<()> {
        let run = &self.run;
        let folder = &self.run.folder;
        let path = folder.path().display();
        if !run.is_complete() {
            bail!(
                "stopped after {} of {} prompts; {}",
                run.finished,
                run.prompts,
                self.setup.plan.way_on(folder.path(), run.part.shard)
            );
        }
        if run.failures > 0 {
            bail!(
                "{} failed ({}); see the error column of {}",
                plural(run.failures, "prompt"),
                run.first_error.as_deref().unwrap_or("no reason given"),
                folder.join(RESULTS).display()
            );
        }
        if !self.output.quiet {
            let seconds = folder.elapsed_s();
            match run.part.shard {
                Some(shard) => {
                    crate::say!("shard {shard} is in {path} ({seconds:.0} s); `difftool merge` needs all of them")
                }
                None => {
                    crate::say!("results, manifest and figures in {path} ({seconds:.0} s)");
                    let figures = run.figures();
                    if !figures.is_empty() {
                        crate::say!("figures: {}; to see them: {OPENER} {path}", figures.join(", "));
                    }
                }
            }
        }
        Ok(())
    }
}
