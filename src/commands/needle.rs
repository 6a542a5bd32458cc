//! `difftool needle`: does the model find the needle, and where did its attention go?

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::hidden::{hidden, note_on_hidden, HIDDEN_FOREST};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, CTX_TOK};
use super::shared::{Measured, RunFlags};
use crate::figures::{Over, Panel, RunFigure, View};
use crate::measures::MeasureName;
use crate::results::run_table::{number_table, RunTable};
use crate::results::screen::{note_on_changes, note_on_limits, Screen, ScreenTable, SideBySide};
use crate::results::table::{Cell, Table};
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use base::bail_usage;
use clap::Args;
use engine::model::generate::MAX_NEW;
use names::metric::{
    ACCURACY, ANSWER_REGION, GENERATED_ACCURACY, GENERATED_CONTAINS, NOISE_OUT, SAID_NUMBER, SAID_OTHER_NEEDLE,
    SHARE_OUT,
};
use names::{Column, Cut, Number, Value};
use plot::region_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use text::{Grid, NeedlePrompts, PromptDefaults, FILE, QUESTION, RULER};

pub(super) const DEFAULTS: PromptDefaults = PromptDefaults { ctx_tok: CTX_TOK, samples: 2, each: true };

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
        figures: &FIGURES,
        next: Next::measuring("ablate", "what noise costs"),
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

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let generates = self.generate || self.unanswerable;
        if let Some(max_new) = self.max_new.filter(|_| !generates) {
            bail_usage!("--max-new {max_new}: models generate only with --generate or --unanswerable; add one of them");
        }
        let mut plan = Plan::new(Grid::Needle(self.prompts.clone()), vec![MeasureName::Answer]);
        plan.passes.hides = true;
        if generates {
            let of_task = self.prompts.task.and_then(|task| NonZeroUsize::new(task.answers_tok));
            plan.passes.max_new = Some(self.max_new.or(of_task).unwrap_or(MAX_NEW).get());
            plan.measures.push(MeasureName::Generation);
        }
        Ok(vec![plan])
    }
}

/// The numbers that answer the question of needle prompts.
const ANSWERS: [Number<'static>; 4] =
    [ACCURACY.overall(), GENERATED_ACCURACY.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()];

/// Those of RULER's tasks, whose score is that of generated answers, and of questions of the user.
const OTHER_ANSWERS: [Number<'static>; 4] =
    [ACCURACY.overall(), GENERATED_CONTAINS.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()];

/// What `difftool needle` prints.
fn screen(frame: &Frame) -> Screen {
    let is_other = |task: &String| RULER.iter().chain([&&FILE, &&QUESTION]).any(|form| form.name == task);
    let numbers =
        if !frame.tasks.is_empty() && frame.tasks.iter().all(is_other) { &OTHER_ANSWERS[..] } else { &ANSWERS };
    let answers = SideBySide::of("answers", "Answers", numbers).table(frame);
    Screen {
        tables: answers.into_iter().chain(hidden(frame)).chain(absent(frame)).collect(),
        notes: [note_on_changes(frame), note_on_hidden(frame), note_on_limits(frame)].into_iter().flatten().collect(),
        ..Screen::default()
    }
}

/// The answers to questions without an answer in the text.
fn absent(frame: &Frame) -> Option<ScreenTable> {
    const ABSENT: [Cut<'static>; 1] = [(Column::Cities, Some(Value::Text("absent")))];
    let numbers = [SAID_NUMBER.overall(), SAID_OTHER_NEEDLE.overall()];
    let title = "Asked for names that the text does not hold";
    let table = SideBySide { only: &ABSENT, ..SideBySide::of("unanswerable", title, &numbers) };
    frame.cities.iter().any(|cities| cities == "absent").then(|| table.table(frame))?
}

const FIGURES: [RunFigure; 6] = [
    RunFigure {
        file: "accuracy",
        title: "Needle retrieval: accuracy",
        subtitle: "95 % Wilson intervals",
        pooling: "mean over prompts",
        table: &BY_DEPTH,
        view: View::Grid { down: "depth_pct", value: ACCURACY.name },
    },
    RunFigure {
        file: "generated",
        title: "Needle retrieval: generated texts that contain the answer",
        subtitle: "95 % Wilson intervals",
        pooling: "mean over prompts",
        table: &BY_DEPTH,
        view: View::Grid { down: "depth_pct", value: GENERATED_CONTAINS.name },
    },
    RunFigure {
        file: "noise",
        title: "Needle retrieval: noise in the output",
        subtitle: "rows that predict the answer, all heads of all layers",
        pooling: "mean over prompts",
        table: &BY_DEPTH,
        view: View::Grid { down: "depth_pct", value: NOISE_OUT.name },
    },
    REGIONS,
    HIDDEN_FOREST,
    RunFigure {
        file: "length",
        title: "Length of the prompt",
        subtitle: "bands: 95 % intervals over prompts",
        pooling: "mean over prompts",
        table: &OF_LENGTHS,
        view: View::Lines {
            over: Over::Numbers { key: "tokens", label: "tokens" },
            panels: &[
                Panel::of(&[ACCURACY.name]),
                Panel::of(&[GENERATED_CONTAINS.name]),
                Panel::of(&[SHARE_OUT.name]),
                Panel::of(&[NOISE_OUT.name]),
            ],
        },
    },
];

const BY_DEPTH: RunTable = RunTable::of_numbers(
    &[ACCURACY.overall(), GENERATED_CONTAINS.overall(), NOISE_OUT.overall()],
    &[Column::DepthReqPct, Column::Task],
);

const OF_LENGTHS: RunTable = RunTable::of_numbers(
    &[ACCURACY.overall(), GENERATED_CONTAINS.overall(), SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall()],
    &[],
);

/// The share of each region in the output of the rows that predict the answer.
pub(super) const REGIONS: RunFigure = RunFigure {
    file: "regions",
    title: "Shares of the regions in the output",
    subtitle: "rows that predict the answer, all heads of all layers",
    pooling: "all heads of all layers, mean over the rows that predict the answer; share of the output",
    table: &RunTable::made("", "", shares_of_regions),
    view: View::Lines {
        over: Over::Names { key: "region", label: "region of the prompt" },
        panels: &[Panel::titled("share of the output", &[SHARE_OUT.name])],
    },
};

/// A row for each region that prompts with an answer have. The share of a region that a prompt lacks is zero, and no number.
fn shares_of_regions(frame: &Frame) -> Option<Table> {
    let mut table = number_table(frame, &[SHARE_OUT.overall()], &[Column::Region]).filter(|_| frame.asks())?;
    let region = table.place(Column::Region.name())?;
    for row in &mut table.rows {
        row[region] = Cell::words(region_name(&row[region].text));
        if let Some(share) = row.last_mut().filter(|share| share.exact == Some(0.0)) {
            *share = Cell::none();
        }
    }
    let with_number = table.rows.iter().filter(|row| row.last().is_some_and(|share| !share.is_none()));
    let there: BTreeSet<String> = with_number.map(|row| row[region].text.clone()).collect();
    table.rows.retain(|row| there.contains(&row[region].text));
    Some(table)
}
