//! Runs, read back as a page for people: what was asked, what came out and how sure it is, and how to run it again.
//!
//! A [`SavedRun`] is read from its folder and becomes a [`Section`]: its main figure, its differences, its tables, its
//! recipe. A [`Report`] of sections, with a comparison of the runs if it is asked for, is written as one self-contained
//! HTML file ([`html()`]) or as Markdown ([`markdown()`]). Everything on the page comes from the folder: nothing is
//! measured or made up here.

mod facts;
mod figure;
mod html;
mod input;
mod markdown;

pub(crate) use html::html;
pub(crate) use input::SavedRun;
pub(crate) use markdown::markdown;

use crate::explore::packed;
use crate::results::differences::{differences, differences_of_run, Detail, MOST_CONDITIONS, SETTING};
use crate::results::screen::{Chapter, Screen};
use crate::results::table::Table;
use crate::results::{Frame, Row};
use anyhow::Result;
use figure::ReportFigure;
use names::metric::{ACCURACY, ANSWER_REGION, ENTROPY, NLL, NOISE_OUT, SHARE_OUT, SINK_SHARE_FIRST};
use names::{distinct, Column, Number};

/// The contents of a page.
pub(crate) struct Report {
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
    /// The runs compared, if that was asked for.
    pub(crate) compared: Option<ComparedRuns>,
}

/// Runs, or the models of one, compared on the same prompts.
#[derive(Debug)]
pub(crate) struct ComparedRuns {
    /// Notes on the inputs and their pairs.
    notes: Vec<String>,
    /// The differences.
    table: Option<Table>,
    /// Their forest plot.
    forest: Option<ReportFigure>,
}

impl ComparedRuns {
    /// The comparison of rows, with notes on them.
    pub(crate) fn new(rows: &[Row], groups: &[Column], notes: Vec<String>) -> Self {
        Self { notes, table: differences(rows, groups, Detail::Verdict), forest: ReportFigure::forest(rows, groups) }
    }
}

/// One run on a page.
pub(crate) struct Section {
    run: SavedRun,
    /// The explorer of its maps, packed.
    explorer: Option<String>,
    /// The forest plot of the differences that belong to the question.
    forest: Option<ReportFigure>,
    failures: Option<Table>,
    /// Tables of results.
    results: Vec<Table>,
    /// What is said of parts of the run, each with its figure.
    chapters: Vec<Chapter>,
    lambda: Option<Table>,
    models: Option<Table>,
}

impl Section {
    /// The section of a run: the tables of its screen, and all others folded away.
    ///
    /// # Errors
    /// If the explorer of its maps cannot be packed.
    pub(crate) fn new(run: SavedRun, mut screen: Screen, details: Vec<Table>) -> Result<Self> {
        let chapters = std::mem::take(&mut screen.chapters);
        let of_screen = screen.into_tables(&details);
        let names = &run.frame.short_names;
        let has_forest = chapters.is_empty() && run.frame.treated.len() <= MOST_CONDITIONS;
        Ok(Self {
            failures: facts::failures(&run.frame),
            explorer: run.explorer.as_deref().map(packed).transpose()?.flatten(),
            forest: has_forest.then(|| forest(&run.frame)).flatten(),
            chapters,
            results: of_screen.into_iter().chain(details).map(|table| table.with_names(names)).collect(),
            lambda: facts::lambda(&run),
            models: facts::models(&run),
            run,
        })
    }

    /// The short names of the models.
    fn model_names(&self) -> Vec<String> {
        let frame = &self.run.frame;
        frame.models.iter().map(|model| frame.short_name(model)).collect()
    }

    /// The figure of a chapter.
    fn figure_of(&self, chapter: &Chapter) -> Option<&ReportFigure> {
        let file = format!("{}.png", chapter.figure?);
        self.run.figures.iter().find(|figure| figure.file == file)
    }

    /// The figures that are no chapter's.
    fn other_figures(&self) -> impl Iterator<Item = &ReportFigure> {
        let of_chapters = self.chapters.iter().filter_map(|chapter| self.figure_of(chapter));
        let of_chapters: Vec<&str> = of_chapters.map(|figure| figure.file.as_str()).collect();
        self.run.figures.iter().filter(move |figure| !of_chapters.contains(&figure.file.as_str()))
    }

    /// All tables, in the order in which they stand.
    fn all_tables(&self) -> impl Iterator<Item = &Table> {
        self.failures.iter().chain(self.tables(false)).chain(self.tables(true))
    }

    /// The tables that are shown, or those that are folded away.
    fn tables(&self, detail: bool) -> impl Iterator<Item = &Table> {
        let is_lambda_detail = !self.chapters.is_empty();
        let lambda = self.lambda.iter().filter(move |_| detail == is_lambda_detail);
        let models = self.models.iter().filter(move |_| detail);
        self.results.iter().filter(move |table| table.detail == detail).chain(lambda).chain(models)
    }
}

/// The forest plot of the differences of models and conditions.
fn forest(frame: &Frame) -> Option<ReportFigure> {
    let names = &frame.short_names;
    let rows = differences_of_run(frame, &compared(frame), |model, condition| {
        if frame.has_conditions() {
            format!("{}, {}", names.name(model), frame.condition_words(condition))
        } else {
            names.name(model).to_owned()
        }
    });
    ReportFigure::forest(&rows, &SETTING)
}

/// The metrics whose differences are drawn.
fn compared(frame: &Frame) -> [Number<'static>; 3] {
    if frame.asks() {
        [ACCURACY.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()]
    } else {
        [NLL.overall(), ENTROPY.overall(), SINK_SHARE_FIRST.overall()]
    }
}

/// Models that the title of a report names at most.
const MOST_TITLE_MODELS: usize = 3;

/// The default title of a report: the names of the runs, and of their models if there are few.
pub(crate) fn title(sections: &[Section]) -> String {
    let names = distinct(sections.iter().map(|section| facts::name(&section.run)));
    let models = distinct(sections.iter().flat_map(Section::model_names));
    let of = if models.len() <= MOST_TITLE_MODELS { format!(": {}", models.join(", ")) } else { String::new() };
    format!("difftool {}{}", names.join(", "), of.trim_end_matches(": "))
}
