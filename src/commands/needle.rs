//! `difftool needle`: does the model find the needle, and where did its attention go?

mod overview;

use super::command::{read, typed, Action, Command, Measuring};
use super::drawing::draw_regions;
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, CTX_TOK};
use super::shared::{Measured, RunFlags};
use crate::bail_usage;
use crate::base::values::tokens_name;
use crate::figures::{cells, CellGrid, CellScale, GridCell};
use crate::measures::MeasureName;
use crate::model::generate::MAX_NEW;
use crate::prompts::{Grid, NeedleCounts, NeedlePrompts, PromptDefaults, FILE, RULER};
use crate::results::metric::{
    Metric, ACCURACY, ANSWER_REGION, ATTRIBUTION, GENERATED_ACCURACY, GENERATED_CONTAINS, NOISE_ATTRIBUTION, NOISE_OUT,
    SAID_NUMBER, SAID_OTHER_NEEDLE, SHARE_OUT,
};
use crate::results::screen::{note_on_changes, note_on_levels, Screen, ScreenTable, SideBySide};
use crate::results::{Column, Cut, Frame, Number, Pick, Setting, Value};
use crate::run::{Plan, Run};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;

pub(super) const DEFAULTS: PromptDefaults =
    PromptDefaults { ctx_tok: CTX_TOK, settings: &[NeedleCounts { needles: 4, asked: 2 }], samples: 8 };

pub(super) static NEEDLE: Command = Command {
    name: "needle",
    about: "Needle-in-a-haystack prompts: accuracy, and attention by region of the prompt",
    examples: &[
        ("The built-in models at 4k tokens", "difftool needle --ctx 4k"),
        ("The settings of the paper's Table 2", "difftool needle --ctx 4k --needles 1,2,4,6"),
        (
            "Other models, one needle, lengths up to 8k",
            "difftool needle --model ./a --model ./b --needles 1 --ctx 1k..8k:1k",
        ),
        ("A quick run into a named folder", "difftool needle --ctx 1k --samples 2 --out runs/quick"),
        ("Also questions without an answer in the text", "difftool needle --ctx 1k --unanswerable"),
        ("Accuracy by the share of distractors", "difftool needle --ctx 2k --distractors 0%,1%,5%"),
        ("A task of RULER, decoded too", "difftool needle --model ./llama --task niah_multivalue --ctx 4k --generate"),
        ("Your own needles and questions", "difftool needle --model ./llama --needles-file mine.jsonl --ctx 1k"),
    ],
    defaults: Some(&DEFAULTS),
    flags: Measured::<NeedleFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<NeedleFlags>,
        read: read::<NeedleFlags>,
        screen,
        tables: &[],
        next: "difftool ablate, what noise costs",
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct NeedleFlags {
    /// Also generate answers greedily and score them (generations.jsonl)
    #[arg(long, hide_short_help = true)]
    pub generate: bool,
    /// Also ask for names that are not in the text, and count invented and copied numbers (implies --generate)
    #[arg(long, conflicts_with = "question", hide_short_help = true)]
    pub unanswerable: bool,
    /// Largest number of generated tokens [default: 48]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub max_new: Option<NonZeroUsize>,
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

impl MeasuringFlags for NeedleFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompts.unanswerable = self.unanswerable;
        models.fill(&mut self.prompts, &DEFAULTS)
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        let generates = self.generate || self.unanswerable;
        if let Some(max_new) = self.max_new.filter(|_| !generates) {
            bail_usage!("--max-new {max_new}: models generate only with --generate or --unanswerable; add one of them");
        }
        let mut plan =
            Plan { grid: Grid::Needle(self.prompts.clone()), measures: vec![MeasureName::Answer], ..Plan::default() };
        if generates {
            let of_task = self.prompts.task.and_then(|task| NonZeroUsize::new(task.answers_tok));
            plan.max_new = Some(self.max_new.or(of_task).unwrap_or(MAX_NEW).get());
            plan.measures.push(MeasureName::Generation);
        }
        Ok(plan)
    }

    /// Draws the figures.
    fn draw(&self, run: &Run) -> Result<()> {
        let frame = &run.frame;
        if !frame.has(ACCURACY.name) {
            return Ok(()); // nothing but failures
        }
        draw_accuracy(run, frame, ("accuracy", "accuracy", "accuracy (%)"), &ACCURACY)?;
        if frame.has(GENERATED_CONTAINS.name) {
            let names = ("generated", "generated texts that contain the answer", "answer in the text (%)");
            draw_accuracy(run, frame, names, &GENERATED_CONTAINS)?;
        }
        draw_regions(run, frame)?;
        overview::draw_by_length(run, frame)?;
        overview::draw_models(run, frame)
    }
}

/// The numbers that answer the question of needle prompts.
const ANSWERS: [Number<'static>; 4] =
    [ACCURACY.overall(), GENERATED_ACCURACY.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()];

/// Those of RULER's tasks, whose score is that of generated answers, and of questions of a file.
const OTHER_ANSWERS: [Number<'static>; 4] =
    [ACCURACY.overall(), GENERATED_CONTAINS.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()];

/// What `difftool needle` prints.
fn screen(frame: &Frame) -> Screen {
    let is_other = |task: &String| RULER.iter().chain([&&FILE]).any(|form| form.name == task);
    let numbers = match !frame.tasks.is_empty() && frame.tasks.iter().all(is_other) {
        true => &OTHER_ANSWERS[..],
        false => &ANSWERS,
    };
    let answers = SideBySide::of("answers", "Answers", numbers).table(frame);
    Screen {
        tables: answers.into_iter().chain(absent(frame)).collect(),
        notes: note_on_changes(frame).into_iter().chain(note_on_attribution(frame)).collect(),
        ..Screen::default()
    }
}

/// What models answer where the text holds no answer.
fn absent(frame: &Frame) -> Option<ScreenTable> {
    const ABSENT: [Cut<'static>; 1] = [(Column::Cities, Some(Value::Text("absent")))];
    let numbers = [SAID_NUMBER.overall(), SAID_OTHER_NEEDLE.overall()];
    let title = "Asked for names that the text does not hold";
    let table = SideBySide { only: &ABSENT, ..SideBySide::of("unanswerable", title, &numbers) };
    frame.cities.iter().any(|cities| cities == "absent").then(|| table.table(frame))?
}

/// What the answer gains from the answer's needle and loses by noise, as attribution estimates it.
pub(super) fn note_on_attribution(frame: &Frame) -> Option<String> {
    let numbers = [("answer", ATTRIBUTION.of(ANSWER_REGION)), ("noise", NOISE_ATTRIBUTION.overall())];
    note_on_levels(frame, "Attribution in nats", &numbers)
}

/// Draws a metric of answers by depth and length: (file, title, label), metric.
fn draw_accuracy(run: &Run, frame: &Frame, (file, title, label): (&str, &str, &str), metric: &Metric) -> Result<()> {
    let Some(grids) = accuracy_grids(frame, &run.setup.grid, metric) else { return Ok(()) };
    let subtitle = format!("in %, with 95 % Wilson intervals · {}", run.setup.caption());
    let scale =
        CellScale { label, end: Some(100.0), decimals: 0, x_label: &grids.x_label, y_label: "depth of the needle (%)" };
    let title = format!("Needle retrieval: {title}");
    let heading = run.heading(&title, &subtitle);
    let figure = cells(&grids.rows, &heading, &scale)?;
    run.save_figure(&figure, file, "mean over prompts")
}

/// Rows of grids of accuracy, and the label of their columns.
struct AccuracyGrids {
    rows: Vec<Vec<CellGrid>>,
    x_label: String,
}

/// Label, task and setting of a column.
type GridColumn<'a> = (String, &'a str, Setting);

/// Accuracy by depth and length, models side by side and settings one below the other; by depth and setting if there is
/// only one length.
fn accuracy_grids(frame: &Frame, grid: &Grid, metric: &Metric) -> Option<AccuracyGrids> {
    let Grid::Needle(grid) = grid else { return None };
    let form = grid.form();
    let shares = grid.shares();
    let lengths = grid.ctx_tok();
    let mut settings: Vec<(String, String, Setting)> = Vec::new(); // (name, task, setting without its length)
    for &share in &shares {
        for NeedleCounts { needles, asked } in grid.settings() {
            let setting = Setting { ctx_tok: 0, needles, asked };
            let suffix = if shares.len() > 1 { format!(" {share}%") } else { String::new() };
            settings.push((setting.name() + &suffix, form.task(share), setting));
        }
    }
    // The columns of each row of grids, with what stands beside the titles of its grids.
    let mut columns_of_rows: Vec<(String, Vec<GridColumn<'_>>)> = Vec::new();
    if let [ctx_tok] = lengths[..] {
        let columns = settings.iter().map(|(name, task, at)| (name.clone(), task.as_str(), Setting { ctx_tok, ..*at }));
        columns_of_rows.push((format!("{} tokens", tokens_name(ctx_tok)), columns.collect()));
    } else {
        for (name, task, at) in &settings {
            let columns =
                lengths.iter().map(|&ctx_tok| (tokens_name(ctx_tok), task.as_str(), Setting { ctx_tok, ..*at }));
            columns_of_rows.push((name.clone(), columns.collect()));
        }
    }
    let depths = frame.depths_pct();
    let mut rows = Vec::new();
    for (detail, columns) in columns_of_rows {
        let mut row = Vec::new();
        for model in &frame.models {
            let mut cells = Vec::new();
            for &depth in &depths {
                let depth_pct = Some(depth);
                let of_depth = columns.iter().map(|&(_, task, setting)| {
                    let (setting, task) = (Some(setting), Some(task));
                    accuracy_cell(frame, Pick { setting, depth_pct, task, ..Pick::of(model, metric) })
                });
                cells.push(of_depth.collect());
            }
            row.push(CellGrid {
                title: frame.short_name(model),
                detail: detail.clone(),
                rows: depths.iter().map(|depth| format!("{}", (depth * 10.0).round() / 10.0)).collect(),
                columns: columns.iter().map(|(name, ..)| name.clone()).collect(),
                cells,
            });
        }
        rows.push(row);
    }
    let x_label = match (lengths.len(), shares.len() > 1) {
        (1, true) => "needles N, asked for R, distractors",
        (1, false) => "needles N, asked for R",
        _ => "context length (tokens)",
    };
    rows.retain(|row| !row.is_empty());
    (!rows.is_empty()).then(|| AccuracyGrids { rows, x_label: x_label.to_owned() })
}

/// The accuracy on some prompts, with its interval.
fn accuracy_cell(frame: &Frame, pick: Pick<'_>) -> Option<GridCell> {
    let estimate = frame.estimate(pick)?;
    let (lo, hi) = estimate.interval.map_or((0.0, 1.0), |interval| (interval.lo, interval.hi));
    Some(GridCell { value: 100.0 * estimate.value, detail: format!("{:.0}–{:.0}", 100.0 * lo, 100.0 * hi) })
}
