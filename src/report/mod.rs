//! Runs, read back as a page for people: what was asked, what came out and how sure it is, and how to run it again.
//!
//! A [`SavedRun`] is read from its folder and becomes a [`Section`]: what was found in words, tables of its records, its figures,
//! its recipe. A [`Report`] of sections, with a comparison of the runs if it is asked for, is written as one self-contained HTML file ([`html()`]) or as Markdown ([`markdown()`]), and [`splice()`]
//! puts the latter between markers of a README. Everything on the page comes from the folder: nothing is measured or
//! made up here.

mod alt;
mod explorer;
mod facts;
mod figure;
mod findings;
mod html;
mod input;
mod markdown;
mod splice;

pub use findings::Findings;
pub use html::html;
pub use input::SavedRun;
pub use markdown::markdown;
pub(crate) use markdown::markdown_table;
pub use splice::splice;

use crate::runfolder::EXPLORER;
use crate::tables::{self, Sheet};
use anyhow::Result;
use explorer::{Explorer, Included};
use facts::Fact;
use figure::Figure;
use std::path::{Path, PathBuf};

/// What is put on a page.
#[derive(Debug)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// The runs, in order.
    pub sections: Vec<Section>,
    /// The runs compared, if that was asked for.
    pub compared: Option<Compared>,
}

/// Runs, or the models of one, compared on the same prompts.
#[derive(Debug)]
pub struct Compared {
    /// What was found.
    pub findings: Findings,
    /// What a reader should know besides.
    pub notes: Vec<String>,
    /// The differences.
    pub(crate) sheet: Option<Sheet>,
}

/// One run on a page.
#[derive(Debug)]
pub struct Section {
    /// An explorer of its maps.
    explorer: Option<Explorer>,
    /// The hash that the run's manifest has for the explorer's page.
    explorer_sha256: Option<String>,
    findings: Findings,
    folder: PathBuf,
    /// What the run is called: its preset or subcommand.
    name: String,
    question: Option<String>,
    /// Paragraphs.
    analysis: Vec<String>,
    /// What was run.
    sentence: String,
    command: String,
    failures: Option<Sheet>,
    /// Tables of results.
    results: Vec<Sheet>,
    figures: Vec<Figure>,
    lambda: Option<Sheet>,
    models: Option<Sheet>,
    recipe: Vec<Fact>,
    /// The experiment file.
    experiment: Option<String>,
    environment: Vec<Fact>,
}

impl Section {
    /// The section of a run. Its bootstrap intervals have the seed that the run had, so they are those it printed.
    pub fn new(run: SavedRun) -> Self {
        let frame = run.frame();
        let results = tables::sheets(&frame);
        let paragraphs = facts::config(&run, "analysis").unwrap_or_default().split("\n\n").map(str::trim);
        Self {
            name: facts::name(&run),
            question: facts::config(&run, "question").map(ToOwned::to_owned),
            analysis: paragraphs.filter(|text| !text.is_empty()).map(ToOwned::to_owned).collect(),
            sentence: facts::sentence(&run, &frame),
            command: facts::command(&run),
            failures: facts::failures(&frame),
            explorer: None,
            explorer_sha256: run.sha256_of(EXPLORER).map(ToOwned::to_owned),
            findings: Findings::of_run(&frame, &results),
            results,
            lambda: facts::lambda(&run),
            models: facts::models(&run),
            recipe: facts::recipe(&run),
            environment: facts::environment(&run),
            experiment: run.experiment,
            figures: run.figures,
            folder: run.folder,
        }
    }

    /// The folder of the run.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the explorer of its maps is, if the run made one.
    pub fn explorer_page(&self) -> Option<PathBuf> {
        Some(self.folder.join(EXPLORER)).filter(|page| self.explorer_sha256.is_some() && page.is_file())
    }

    /// Links the explorer from the report.
    pub fn link_explorer(&mut self, href: String) {
        self.explorer = Some(Explorer::Linked(href));
    }

    /// Takes the explorer into the report.
    ///
    /// # Errors
    /// If its page cannot be read, or is not the one that the run wrote.
    pub fn include_explorer(&mut self, page: &Path) -> Result<()> {
        let sha256 = self.explorer_sha256.as_deref().unwrap_or_default();
        self.explorer = Some(Explorer::Included(Included::read(page, sha256)?));
        Ok(())
    }

    /// All tables, in the order in which they stand.
    fn all_tables(&self) -> impl Iterator<Item = &Sheet> {
        self.failures.iter().chain(self.tables(false)).chain(self.tables(true))
    }

    /// What a figure shows, for those who do not see it.
    fn alt(&self, figure: &Figure) -> String {
        let models: Vec<&str> =
            self.models.iter().flat_map(|sheet| &sheet.rows).map(|row| row[0].text.as_str()).collect();
        figure.alt(&models, &self.results)
    }

    /// Tables that the first look is for, and those for the second.
    fn tables(&self, detail: bool) -> impl Iterator<Item = &Sheet> {
        let lambda = self.lambda.iter().filter(move |_| !detail);
        let models = self.models.iter().filter(move |_| detail);
        self.results.iter().filter(move |sheet| sheet.detail == detail).chain(lambda).chain(models)
    }
}

/// What the report is called if nobody says: the runs by name.
pub fn title(sections: &[Section]) -> String {
    let mut names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
    names.dedup();
    format!("difftool {}", names.join(", "))
}
