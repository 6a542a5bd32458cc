//! A run as the terminal sees it: watched, its figures and tables beside its records, and a last word.

use super::progress::Terminal;
use super::{start_threads, stop_on_signal};
use crate::bail_usage;
use crate::cli::{OutputArgs, PartArgs, RecordFormat};
use crate::experiment::{self, Finished, Measures, Part, Setup, Shard, Start};
use crate::frame::Frame;
use crate::measure::Measure;
use crate::plot::{Figure, Heading};
use crate::record::Record;
use crate::runfolder;
use crate::table::plural;
use anyhow::{bail, Result};

/// How an experiment is run.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) output: OutputArgs,
    pub(super) part: Part,
}

impl How {
    /// As flags say.
    ///
    /// # Errors
    /// Usage errors for formats of records that cannot be had.
    pub(super) fn new(output: &OutputArgs, part: &PartArgs) -> Result<Self> {
        if output.records == RecordFormat::Parquet && !cfg!(feature = "parquet") {
            bail_usage!(
                "--records parquet: this difftool was built without it; `cargo build --release --features parquet`"
            );
        }
        if output.records != RecordFormat::Csv && part.shard.is_some() {
            bail_usage!("--records: shards are put together as CSV; give it to `difftool merge`");
        }
        let start = part.resume.clone().map_or_else(|| Start::New(output.out.clone()), Start::Resume);
        Ok(Self { output: output.clone(), part: Part { start, shard: part.shard } })
    }

    /// Starts as many threads as are asked for.
    pub(super) fn start_threads(&self) -> Result<()> {
        start_threads(self.output.threads)
    }
}

/// What was found, for tables and figures.
pub(super) struct Gathered {
    pub(super) frame: Frame,
    pub(super) measures: Measures,
}

/// A run whose records are written.
pub(super) struct Session {
    pub(super) setup: Setup,
    pub(super) output: OutputArgs,
    pub(super) shard: Option<Shard>,
    pub(super) run: Finished,
}

impl Session {
    /// Runs the measures, or goes on with them, and shows their records to `see`.
    pub(super) fn run(
        setup: Setup,
        how: How,
        measures: &mut [&mut dyn Measure],
        see: &mut dyn FnMut(&Record),
    ) -> Result<Self> {
        let stop = stop_on_signal()?;
        let mut terminal = Terminal::new(&setup, how.part.shard, how.output.quiet, see);
        let run = experiment::run(&setup, &how.part, measures, &mut terminal, &stop);
        terminal.finish();
        Ok(Self { run: run?, setup, output: how.output, shard: how.part.shard })
    }

    /// What stands above a figure.
    pub(super) fn heading<'a>(&self, title: &'a str, subtitle: &'a str) -> Heading<'a> {
        Heading { title, subtitle, page: self.output.figures.page.page() }
    }

    /// Saves a figure with its recipe in every format that is asked for; `name` has no extension.
    pub(super) fn save(&mut self, figure: &Figure, name: &str, pooling: &str) -> Result<()> {
        let recipe = self.recipe(pooling);
        let files = self.output.figures.files(name);
        files.iter().try_for_each(|file| figure.save(&self.run.outputs.place(file, None), &recipe))
    }

    pub(super) fn recipe(&self, pooling: &str) -> Vec<(String, String)> {
        let mut recipe = recipe(self.setup.grid.seed(), pooling);
        let models = self.setup.models.iter();
        recipe.extend(models.map(|m| (format!("model {}", m.name), format!("sha256 {}", m.info.weights_sha256))));
        recipe
    }

    /// Says where the results are, and fails if some are missing.
    pub(super) fn conclude(&self) -> Result<()> {
        let (run, folder) = (&self.run, self.run.outputs.folder());
        let path = folder.path().display();
        if !run.is_complete() {
            bail!(
                "stopped after {} of {} prompts; what was measured is in {path}; the same command with --resume {path} \
                 goes on, instead of --out",
                run.finished,
                run.cells
            );
        }
        if run.failures > 0 {
            bail!(
                "{} failed ({}); see the error column of {}",
                plural(run.failures, "prompt"),
                run.first_error.as_deref().unwrap_or("no reason given"),
                runfolder::results(folder.path()).display()
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

/// What every figure says of how it was made; `seed` may be several.
pub(super) fn recipe(seed: impl std::fmt::Display, pooling: &str) -> Vec<(String, String)> {
    vec![
        ("Software".to_owned(), format!("difftool {}", env!("CARGO_PKG_VERSION"))),
        ("command".to_owned(), crate::terminal::arguments().join(" ")),
        ("seed".to_owned(), seed.to_string()),
        ("pooling".to_owned(), pooling.to_owned()),
    ]
}
