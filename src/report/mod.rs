//! Runs, read back as a page for people: what was asked, what came out and how sure it is, and how to run it again.
//!
//! A [`SavedRun`] is read from its folder and becomes a [`Section`]: its main figure, its differences, its tables, its
//! recipe. A [`Report`] of sections, with a comparison of the runs if it is asked for, is written as one self-contained
//! HTML file ([`html()`]) or as Markdown ([`markdown()`]). Everything on the page comes from the folder: nothing is
//! measured or made up here.

mod conclusion;
mod facts;
mod figure;
mod html;
mod input;
mod markdown;

pub(crate) use html::html;
pub(crate) use input::SavedRun;
pub(crate) use markdown::markdown;

use crate::explore;
use crate::html::{packed, PageCode};
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
    /// Pages that it shows in frames.
    pages: Vec<InnerPage>,
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

/// A page of a run that a report shows in a frame.
pub(crate) struct InnerPage {
    /// Its name in links and styles.
    name: &'static str,
    title: &'static str,
    /// The words that open it.
    summary: &'static str,
    note: &'static str,
    /// Its style and script, which the policy of the report allows.
    code: PageCode,
    /// The page: deflated, as base64.
    packed: String,
}

impl InnerPage {
    /// The explorer of a run; `None` for a file that is not as an explorer of this build.
    fn explorer(page: &str) -> Result<Option<Self>> {
        if !explore::is_own(page)? {
            return Ok(None);
        }
        Ok(Some(Self {
            name: "explorer",
            title: "Explorer",
            summary: "Walk around in the maps of this run",
            note: "The explorer has a frame of its own: Tab goes into it, and on from it. Its help is under “Keys and gestures”.",
            code: explore::code(),
            packed: packed(page.as_bytes())?,
        }))
    }

    /// A text whose parts can be taken out.
    ///
    /// # Errors
    /// If it cannot be compressed.
    pub(crate) fn text(page: &str, code: PageCode) -> Result<Self> {
        Ok(Self {
            name: "text",
            title: "Text",
            summary: "Take parts of the text out",
            note:
                "The text has a frame of its own: Tab goes into it, arrows from part to part, and Enter takes one out.",
            code,
            packed: packed(page.as_bytes())?,
        })
    }
}

impl Section {
    /// The section of a run: the tables of its screen, and all others folded away. `text`: the page of its text, if it has one.
    ///
    /// # Errors
    /// If a page cannot be compressed.
    pub(crate) fn new(run: SavedRun, mut screen: Screen, details: Vec<Table>, text: Option<InnerPage>) -> Result<Self> {
        let explorer = run.explorer.as_deref().map(InnerPage::explorer).transpose()?.flatten();
        let chapters = std::mem::take(&mut screen.chapters);
        let of_screen = screen.into_tables(&details);
        let names = &run.frame.short_names;
        let has_forest = chapters.is_empty() && run.frame.treated.len() <= MOST_CONDITIONS;
        Ok(Self {
            failures: facts::failures(&run.frame),
            pages: explorer.into_iter().chain(text).collect(),
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

    /// The sentences that begin the section; none where chapters have their own.
    fn conclusion(&self) -> Option<String> {
        conclusion::of_run(&self.run.frame).filter(|_| self.chapters.is_empty())
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
