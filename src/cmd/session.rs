//! A run as the terminal sees it: announced, with a bar, its figures and tables beside its records, and a last word.

use super::{plural, progress_bar, recipe, start_threads, stop_on_signal};
use crate::cli::{OutputArgs, PartArgs};
use crate::experiment::{self, Finished, Part, Plan, Setup, Shard, Start, Watch};
use crate::frame::Frame;
use crate::measure::{Measure, Measures};
use crate::plot::{Figure, Heading};
use crate::record::Record;
use crate::runfolder::RESULTS;
use anyhow::{bail, Result};
use indicatif::ProgressBar;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) output: OutputArgs,
    pub(super) part: Part,
}

impl How {
    /// From the beginning, all of it.
    pub(super) fn whole(output: &OutputArgs) -> Self {
        let part = Part { start: Start::New(output.out.clone()), shard: None };
        Self { output: output.clone(), part }
    }

    /// As flags say.
    pub(super) fn new(output: &OutputArgs, part: &PartArgs) -> Self {
        let start = part.resume.clone().map_or_else(|| Start::New(output.out.clone()), Start::Resume);
        Self { output: output.clone(), part: Part { start, shard: part.shard } }
    }

    /// Starts as many threads as are asked for.
    pub(super) fn start_threads(&self) -> Result<()> {
        start_threads(self.output.threads)
    }
}

/// What was found, for tables and figures.
pub(super) struct Found {
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
        let mut terminal = Terminal::new(&setup, &how, see);
        let run = experiment::run(&setup, &how.part, measures, &mut terminal, &stop);
        terminal.bar.finish_and_clear();
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
            let resume = if run.can_be_resumed() {
                format!("; the same command with --resume {path} goes on, instead of --out")
            } else {
                String::new()
            };
            bail!("stopped after {} of {} prompts; what was measured is in {path}{resume}", run.finished, run.cells);
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

/// Tells people how far a run is.
struct Terminal<'a> {
    setup: &'a Setup,
    shard: Option<Shard>,
    quiet: bool,
    bar: ProgressBar,
    see: &'a mut dyn FnMut(&Record),
    /// Numbers asked for, and of them those that were found, by model; untreated.
    found: Vec<(String, usize, usize)>,
}

impl<'a> Terminal<'a> {
    fn new(setup: &'a Setup, how: &How, see: &'a mut dyn FnMut(&Record)) -> Self {
        let (shard, quiet) = (how.part.shard, how.output.quiet);
        Self { setup, shard, quiet, bar: ProgressBar::hidden(), see, found: Vec::new() }
    }

    /// What has been found so far, for the progress bar: `; found so far: transformer 92 %, diff 97 %`.
    fn so_far(&self) -> String {
        let share = |(model, asked, found): &(String, usize, usize)| format!("{model} {} %", 100 * found / asked);
        let shares: Vec<String> = self.found.iter().map(share).collect();
        if shares.is_empty() {
            return String::new();
        }
        format!("; found so far: {}", shares.join(", "))
    }

    fn announce(&self, plan: &Plan<'_>) {
        let names: Vec<&str> = self.setup.models.iter().map(|m| m.name.as_str()).collect();
        let shard = self.shard.map_or(String::new(), |shard| format!(" (shard {shard})"));
        let resumed = if plan.resumed > 0 { format!(", {} of them done", plan.resumed) } else { String::new() };
        crate::say!(
            "{}{shard} on {}{resumed}: {}about {} MiB of memory -> {}",
            plural(plan.cells, "prompt"),
            names.join(", "),
            plan.seconds.map_or(String::new(), |seconds| format!("about {seconds:.0} s, ")),
            plan.memory_bytes / (1 << 20),
            plan.folder.display()
        );
        for info in self.setup.models.iter().map(|model| &model.info).filter(|info| info.path.is_some()) {
            if let Some(bos) = &info.bos {
                let chat = if info.chat_template_sha256.is_some() { ", in its chat template" } else { "" };
                crate::say!("{}: {}; prompts begin with {bos}{chat}", info.name, info.layout);
            }
        }
    }
}

impl Watch for Terminal<'_> {
    fn wants_seconds(&self) -> bool {
        !self.quiet
    }

    fn begins(&mut self, plan: &Plan<'_>) {
        if !self.quiet {
            self.announce(plan);
        }
        self.bar = progress_bar(plan.cells, self.quiet);
        self.bar.set_position(plan.resumed as u64);
        self.bar.reset_eta();
    }

    fn record(&mut self, record: &Record) {
        if let (Some(value), "exact", None) =
            (record.measure.value, &*record.measure.metric, record.identity.condition.as_deref())
        {
            let model = &record.identity.model;
            let hit = usize::from(value == 1.0);
            match self.found.iter_mut().find(|(name, ..)| name == model) {
                Some((_, asked, found)) => (*asked, *found) = (*asked + 1, *found + hit),
                None => self.found.push((model.clone(), 1, hit)),
            }
        }
        (self.see)(record);
    }

    fn cell(&mut self) {
        self.bar.inc(1);
        self.bar.set_message(self.so_far());
    }
}
