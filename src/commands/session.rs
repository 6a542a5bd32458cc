//! One run of a command: progress, figures, and the closing message.

use super::progress::ProgressReporter;
use super::report::check_page;
use super::shared::{recipe, OutputArgs, PartArgs};
use super::stop_on_signal;
use crate::bail_usage;
use crate::figures::{Figure, FigureHeading};
use crate::measures::{Measure, Measures};
use crate::results::folder::{RunFolder, RESULTS};
use crate::results::record::Record;
use crate::results::table::plural;
use crate::results::Frame;
use crate::run::{self, RunOutcome, RunPart, RunShard, RunStart, Setup};
use anyhow::{bail, Result};

/// The output and the part of a run.
#[derive(Clone, Debug)]
pub(super) struct RunOptions {
    pub(super) output: OutputArgs,
    pub(super) part: RunPart,
}

impl RunOptions {
    /// Returns the options of the flags.
    ///
    /// # Errors
    /// A usage error if a shard is to have a report, or the folder to resume is none.
    pub(super) fn new(output: &OutputArgs, part: &PartArgs) -> Result<Self> {
        if output.report.is_some() && part.shard.is_some() {
            bail_usage!("--report: a shard has no report; give --report to `difftool merge`");
        }
        let start = match &part.resume {
            Some(folder) => RunStart::Resume(RunFolder::reopen(folder)?),
            None => RunStart::New(output.out.clone()),
        };
        Self::of(output, RunPart { start, shard: part.shard })
    }

    /// Returns the options of a part.
    ///
    /// # Errors
    /// A usage error if the report cannot be written.
    pub(super) fn of(output: &OutputArgs, part: RunPart) -> Result<Self> {
        output.report.as_deref().map_or(Ok(()), |page| check_page("--report", page))?;
        Ok(Self { output: output.clone(), part })
    }
}

/// The results of a run, for tables and figures.
pub(super) struct RunResults {
    pub(super) frame: Frame,
    pub(super) measures: Measures,
}

/// A run whose records are written.
pub(super) struct Session {
    pub(super) setup: Setup,
    pub(super) output: OutputArgs,
    pub(super) shard: Option<RunShard>,
    pub(super) run: RunOutcome,
}

impl Session {
    /// Runs or resumes an experiment; every record is passed to `see`.
    pub(super) fn run(
        setup: Setup,
        options: RunOptions,
        measures: &mut [&mut dyn Measure],
        see: &mut dyn FnMut(&Record),
    ) -> Result<Self> {
        let stop = stop_on_signal()?;
        let mut terminal = ProgressReporter::new(&setup, options.part.shard, options.output.quiet, see);
        let run = run::run(&setup, &options.part, measures, &mut terminal, &stop);
        terminal.finish();
        Ok(Self { run: run?, setup, output: options.output, shard: options.part.shard })
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
        files.iter().try_for_each(|file| figure.save(&self.run.outputs.add_file(file, None), &recipe))
    }

    pub(super) fn recipe(&self, pooling: &str) -> Vec<(String, String)> {
        let mut recipe = recipe(&self.run.outputs.folder().command(), self.setup.grid.seed(), pooling);
        let mut models = Vec::new();
        for model in &self.setup.models {
            models.push(format!("{} sha256 {}", model.name, model.info.weights_sha256));
        }
        recipe.push(("models".to_owned(), models.join("\n")));
        recipe
    }

    /// Prints where the results are. Fails if the run was stopped or prompts failed.
    pub(super) fn conclude(&self) -> Result<()> {
        let (run, folder) = (&self.run, self.run.outputs.folder());
        let path = folder.path().display();
        if !run.is_complete() {
            bail!(
                "stopped after {} of {} prompts, which are in {path}; to continue, repeat the command with --resume {path} \
                 instead of --out",
                run.finished,
                run.cases
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
            match self.shard {
                Some(shard) => {
                    crate::say!("shard {shard} is in {path} ({seconds:.0} s); `difftool merge` needs all of them")
                }
                None => crate::say!("results, manifest and figures in {path} ({seconds:.0} s)"),
            }
        }
        Ok(())
    }
}
