//! Runs, read back as a page for people: what was asked, what came out and how sure it is, and how to run it again.
//!
//! A [`SavedRun`] is read from its folder and becomes a [`Section`]: its main figure, its differences, its tables, its recipe. A [`Report`] of sections, with a
//! comparison of the runs if it is asked for, is written as one self-contained HTML file ([`html()`]) or as Markdown
//! ([`markdown()`]). Everything on the page comes from the folder: nothing is measured or made up here.

mod alt;
mod facts;
mod figure;
mod html;
mod input;
mod markdown;

pub use html::html;
pub use input::SavedRun;
pub use markdown::markdown;

use crate::explore::packed;
use crate::names::distinct;
use crate::results::view::{differences, main_rows, sheets, Detail, Sheet};
use crate::results::{within, Field, Row};
use anyhow::Result;
use facts::Fact;
use figure::ReportFigure;
use std::path::PathBuf;

/// The contents of a page.
#[derive(Debug)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// The runs, in order.
    pub sections: Vec<Section>,
    /// The runs compared, if that was asked for.
    pub compared: Option<ComparedRuns>,
}

/// Runs, or the models of one, compared on the same prompts.
#[derive(Debug)]
pub struct ComparedRuns {
    /// Notes on the inputs and their pairs.
    notes: Vec<String>,
    /// The differences.
    sheet: Option<Sheet>,
    /// Their forest plot.
    forest: Option<ReportFigure>,
}

impl ComparedRuns {
    /// The comparison of rows, with notes on them.
    pub(crate) fn new(rows: &[Row], groups: &[Field], notes: Vec<String>) -> Self {
        Self { notes, sheet: differences(rows, groups, Detail::Verdict), forest: ReportFigure::forest(rows, groups) }
    }
}

/// One run on a page.
#[derive(Debug)]
pub struct Section {
    /// The explorer of its maps, packed.
    explorer: Option<String>,
    /// The forest plot of the differences that belong to the question.
    forest: Option<ReportFigure>,
    folder: PathBuf,
    /// Name of the run: its preset or subcommand.
    name: String,
    question: Option<String>,
    /// Paragraphs.
    analysis: Vec<String>,
    /// The run.
    sentence: String,
    command: String,
    failures: Option<Sheet>,
    /// Tables of results.
    results: Vec<Sheet>,
    figures: Vec<ReportFigure>,
    /// Short names of the models.
    model_names: Vec<String>,
    lambda: Option<Sheet>,
    models: Option<Sheet>,
    recipe: Vec<Fact>,
    /// The experiment file.
    experiment: Option<String>,
    environment: Vec<Fact>,
}

impl Section {
    /// The section of a run. Resampling uses the seed of the run, so tables are those it printed.
    ///
    /// # Errors
    /// If a metric of the records has several units.
    pub fn new(run: SavedRun) -> Result<Self> {
        let frame = run.frame()?;
        let results: Vec<Sheet> =
            sheets(&frame).into_iter().map(|sheet| sheet.with_names(frame.short_names())).collect();
        let short = |mut row: Row| {
            let names = frame.short_names();
            (row.baseline, row.other) = (names.shortened(&row.baseline), names.shortened(&row.other));
            row
        };
        let rows: Vec<Row> = main_rows(&frame).into_iter().map(short).collect();
        let paragraphs = facts::config(&run, "analysis").unwrap_or_default().split("\n\n").map(str::trim);
        Ok(Self {
            name: facts::name(&run),
            question: facts::config(&run, "question").map(ToOwned::to_owned),
            analysis: paragraphs.filter(|text| !text.is_empty()).map(ToOwned::to_owned).collect(),
            sentence: facts::sentence(&run, &frame),
            command: facts::command(&run),
            failures: facts::failures(&frame),
            explorer: run.explorer.as_deref().map(packed).transpose()?.flatten(),
            forest: ReportFigure::forest(&rows, &within::GROUPS),
            model_names: frame.models().iter().map(|model| frame.short_names().name(model).to_owned()).collect(),
            results,
            lambda: facts::lambda(&run),
            models: facts::models(&run),
            recipe: facts::recipe(&run),
            environment: facts::environment(&run),
            experiment: run.experiment,
            figures: run.figures,
            folder: run.folder,
        })
    }

    /// All tables, in the order in which they stand.
    fn all_tables(&self) -> impl Iterator<Item = &Sheet> {
        self.failures.iter().chain(self.tables(false)).chain(self.tables(true))
    }

    /// Describes a figure for those who do not see it.
    fn alt_text(&self, figure: &ReportFigure) -> String {
        figure.alt_text(&self.model_names, self.results.first())
    }

    /// The tables that are shown, or those that are folded away.
    fn tables(&self, detail: bool) -> impl Iterator<Item = &Sheet> {
        let lambda = self.lambda.iter().filter(move |_| !detail);
        let models = self.models.iter().filter(move |_| detail);
        self.results.iter().filter(move |sheet| sheet.detail == detail).chain(lambda).chain(models)
    }
}

/// Models that the title of a report names at most.
const MOST_TITLE_MODELS: usize = 3;

/// Returns the default title of a report: the names of the runs, and of their models if there are few.
pub fn title(sections: &[Section]) -> String {
    let names = distinct(sections.iter().map(|section| section.name.as_str()));
    let models = distinct(sections.iter().flat_map(|section| &section.model_names));
    let of = if models.len() <= MOST_TITLE_MODELS { format!(": {}", models.join(", ")) } else { String::new() };
    format!("difftool {}{}", names.join(", "), of.trim_end_matches(": "))
}
