//! The files of a run folder besides the records: figures and tables made of them, and the manifest that lists all of them.

use super::execute::config;
use super::{Run, RunStart};
use crate::measures::{GenerationMeasure, MeasureName};
use crate::results::folder::{CONTEXTS, DRAWN, GENERATIONS, MANIFEST, MASSIVE, RANKINGS, RESULTS, TOKENS};
use crate::results::manifest::{Manifest, OutputFile, PROMPTS_SEED};
use anyhow::Result;
use base::files::{self, replace, replace_csv};
use base::memory::peak_rss_bytes;
use names::metric::ACCURACY;
use names::ModelInfo;
use plot::{recipe, Figure, FigureHeading, Page};
use serde::Serialize;
use std::path::PathBuf;

/// How a run shows what came out.
#[derive(Clone, Debug, Default)]
pub struct OutputStyle {
    /// Says nothing of what it writes.
    pub quiet: bool,
    /// The page of figures.
    pub page: Page,
    /// The formats of figures, as extensions of their files.
    pub figures: Vec<&'static str>,
}

/// Metadata of a figure by name: its title, version, command, seed, pooling and models.
pub(super) type Recipe = Vec<(String, String)>;

/// A recipe with the title of its figure.
pub fn titled(figure: &Figure, mut recipe: Recipe) -> Recipe {
    recipe.insert(0, ("Title".to_owned(), figure.title().to_owned()));
    recipe
}

/// The recipe of a figure of a run, without the title.
pub fn recipe_of<'a>(
    command: &[String],
    seed: u64,
    models: impl Iterator<Item = &'a ModelInfo>,
    pooling: &str,
) -> Recipe {
    let mut recipe = recipe(command, seed, pooling);
    let models: Vec<String> = models.map(|model| format!("{} sha256 {}", model.name, model.weights_sha256)).collect();
    recipe.push(("models".to_owned(), models.join("\n")));
    recipe
}

impl Run {
    /// Adds a file to the list and returns its path; the caller writes it.
    pub fn add_file(&self, file: &str, rows: Option<u64>) -> PathBuf {
        let path = self.folder.join(file);
        if self.is_resumed() {
            let _ = std::fs::remove_file(&path); // the run may have been killed while it wrote its figures
        }
        self.files.borrow_mut().push((file.to_owned(), rows));
        path
    }

    /// Names of the figures and pages that were added.
    pub fn figures(&self) -> Vec<String> {
        let mut figures: Vec<String> = self.files.borrow().iter().map(|(file, _)| file.clone()).collect();
        figures.retain(|file| [".png", ".svg", ".pdf", ".html"].iter().any(|end| file.ends_with(end)));
        figures
    }

    /// Says of each model that began no reply with the answer to a question of the user how it did begin, of up to three prompts;
    /// `None` where there is nothing to say.
    pub fn other_words(&self) -> Option<String> {
        let mut models = Vec::new();
        for model in self.frame.models.iter().filter(|_| self.setup().sources.ask_without_lead()) {
            if self.frame.mean(model, None, ACCURACY.name, None) != Some(0.0) {
                continue;
            }
            let measures = self.series.iter().flat_map(|series| series.measures.of_type::<GenerationMeasure>());
            let said: Vec<String> = measures.flat_map(|generation| generation.first_words(model)).take(3).collect();
            let how = if said.is_empty() {
                " (`difftool needle --generate` shows how)".to_owned()
            } else {
                format!(", but says “{}”", said.join("”, “"))
            };
            models.push(format!("{} begins no reply with the answer{how}", self.frame.short_names.name(model)));
        }
        const HELP: &str = "with `lead` in the needles file, or --lead beside --question, a reply begins in your words";
        (!models.is_empty()).then(|| format!("{}; {HELP}", models.join("; ")))
    }

    fn is_resumed(&self) -> bool {
        matches!(self.part.start, RunStart::Resume(_))
    }

    /// The heading of a figure.
    pub fn heading<'a>(&self, title: &'a str, subtitle: &'a str) -> FigureHeading<'a> {
        FigureHeading { title, subtitle, page: self.style.page, models: &[] }
    }

    /// Saves a figure with its recipe in every format; `name` has no extension.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save_figure(&self, figure: &Figure, name: &str, pooling: &str) -> Result<()> {
        let recipe = titled(figure, self.recipe(pooling));
        for extension in &self.style.figures {
            figure.save(&self.add_file(&format!("{name}.{extension}"), None), &recipe)?;
        }
        Ok(())
    }

    /// What it takes to make a figure again: version, command, seed, pooling and models.
    pub fn recipe(&self, pooling: &str) -> Recipe {
        let models = self.setup().models.iter().map(|model| &model.info);
        recipe_of(&self.folder.command(), self.setup().grid.seed(), models, pooling)
    }

    /// Writes what was pooled over prompts, or is derived from the records, and has a file of its own.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save_tables(&self) -> Result<()> {
        let frame = &self.frame;
        let measures = self.series.iter().flat_map(|series| series.measures.of_type::<GenerationMeasure>());
        let generated: Vec<_> = measures.flat_map(|generation| &generation.pooled).collect();
        if self.series.iter().any(|series| series.setup.plan.measures.contains(&MeasureName::Generation)) {
            self.save_lines(GENERATIONS, &generated)?;
        }
        self.save_table(MASSIVE, &frame.found.massive)?;
        self.save_table(DRAWN, &frame.found.drawn)?;
        self.save_table(RANKINGS, &frame.found.ranked)?;
        if !frame.found.contexts.is_empty() {
            self.save_lines(CONTEXTS, &frame.found.contexts)?;
        }
        if !frame.found.tokens.0.is_empty() {
            frame.found.tokens.write(&self.add_file(TOKENS, Some(frame.found.tokens.count() as u64)))?;
        }
        Ok(())
    }

    /// Writes rows, if there are any, as a CSV file with the fields of `T` as columns.
    pub(crate) fn save_table<T: Serialize>(&self, file: &str, rows: &[T]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        replace_csv(&self.add_file(file, Some(rows.len() as u64)), rows)
    }

    /// Writes rows as JSON lines.
    fn save_lines<T: Serialize>(&self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.add_file(file, Some(rows.len() as u64));
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row)?;
            lines.push(b'\n');
        }
        replace(&path, |partial| Ok(std::fs::write(partial, lines)?))
    }

    /// Writes the manifest. It marks the run as finished, so it must be written after all other files. Files that could not be
    /// written are listed without a hash, so that a resumed run makes them again.
    ///
    /// # Errors
    /// If a file cannot be read, or the manifest cannot be written.
    pub fn write_manifest(&self) -> Result<()> {
        let setup = self.setup();
        let mut outputs = Vec::new();
        for (file, rows) in [(RESULTS.to_owned(), Some(self.store.rows()))].iter().chain(&*self.files.borrow()) {
            let path = self.folder.join(file);
            outputs.push(if path.is_file() {
                files::sync(&path)?;
                OutputFile::describe(self.folder.path(), file, *rows)?
            } else {
                OutputFile { file: file.clone(), ..OutputFile::default() }
            });
        }
        let seed = setup.grid.seed();
        let reading = &setup.plan.passes.reading;
        let mut machines = self.begun.machines.iter().cloned();
        let machine = machines.next();
        let manifest = Manifest {
            argv: self.folder.command(),
            machine: machine.unwrap_or_default(),
            other_machines: machines.collect(),
            config: config(&self.series, &self.left_out),
            caption: self.caption(),
            models: setup.models.iter().map(|model| model.info.clone()).collect(),
            haystack_sha256: Some(setup.sources.haystack.sha256()),
            text_sha256: setup.sources.contexts_sha256.clone().or_else(|| setup.sources.text.sha256()),
            needles_sha256: setup.sources.needles.as_ref().map(|file| file.sha256.clone()),
            prompts_sha256: self.store.prompts_sha256(),
            dtype: reading.dtype.name().into(),
            device: reading.device.to_string(),
            shard: self.part.shard.map(|shard| shard.to_string()),
            resumed_cells: self.resumed as u64,
            threads: rayon::current_num_threads(),
            seeds: [(PROMPTS_SEED.to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: self.folder.started_utc(),
            wall_s: self.folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs,
            ..Manifest::default()
        };
        let path = self.folder.join(MANIFEST);
        if self.is_resumed() {
            let _ = std::fs::remove_file(&path); // a file that it listed was missing
        }
        files::sync_folder_of(&path);
        manifest.write(&path)
    }
}
