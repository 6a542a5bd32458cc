//! `difftool heads`: what is each head for?

use super::command::{read, typed, Action, Command, Measuring};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{Measured, RunFlags};
use crate::figures::{RunFigure, View};
use crate::measures::MeasureName;
use crate::measures::{by_role, EVERY_HEAD, ROLES, SINKS, STRONGEST};
use crate::prompts::{Grid, NeedleCounts, NeedlePrompts, PromptDefaults};
use crate::results::metric::{ANSWER_REGION, INDUCTION, MAP_COSINE, MAP_COSINE_CHANCE, NOISE_REGION};
use crate::results::screen::{note_on_levels, Screen, ScreenTable};
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

const DEFAULTS: PromptDefaults =
    PromptDefaults { ctx_tok: 1024, settings: &[NeedleCounts { needles: 1, asked: 1 }], samples: 4 };

pub(super) static HEADS: Command = Command {
    name: "heads",
    about: "Roles of heads: retrieval, induction, previous token, sinks, and output from the answer",
    examples: &[
        ("Roles of the heads of the built-in models", "difftool heads --ctx 1k"),
        ("The same of another model, as JSON", "difftool heads --model ./llama --json"),
    ],
    defaults: Some(&DEFAULTS),
    flags: Measured::<HeadsFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<HeadsFlags>,
        read: read::<HeadsFlags>,
        screen,
        tables: &[&STRONGEST, &ROLES, &SINKS],
        figures: &FIGURES,
        next: "difftool ablate --parts heads, what heads cost",
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct HeadsFlags {
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

/// What `difftool heads` prints.
fn screen(frame: &Frame) -> Screen {
    let table =
        by_role(frame).map(|table| ScreenTable::of_run("Strongest head of each role (its score)", frame, table));
    let note = "Head 2.0 is head 0 of layer 2. Retrieval heads: those with a retrieval score above 0.1.";
    let notes = [note.to_owned()].into_iter().chain(note_on_agreement(frame)).collect();
    Screen { tables: table.into_iter().collect(), notes, ..Screen::default() }
}

/// How far the two maps of differential models agree, in one sentence.
fn note_on_agreement(frame: &Frame) -> Option<String> {
    let is_differential = |model: &&String| frame.mean(model, None, MAP_COSINE.name, Some(NOISE_REGION)).is_some();
    let names: Vec<String> = frame.models.iter().filter(is_differential).map(|model| frame.short_name(model)).collect();
    let numbers = [
        ("noise", MAP_COSINE.of(NOISE_REGION)),
        ("by chance", MAP_COSINE_CHANCE.of(NOISE_REGION)),
        ("answer", MAP_COSINE.of(ANSWER_REGION)),
        ("by chance", MAP_COSINE_CHANCE.of(ANSWER_REGION)),
    ];
    note_on_levels(frame, &format!("Cosine of both maps of {}", names.join(", ")), &numbers)
}

impl MeasuringFlags for HeadsFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        models.fill(&mut self.prompts, &DEFAULTS)
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        Ok(Plan {
            grid: Grid::Needle(self.prompts.clone()),
            measures: vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles, MeasureName::Premise],
            ..Plan::default()
        })
    }
}

/// A figure for each role.
const FIGURES: [RunFigure; 9] = [
    of_role("heads-answer-nats", "Heads: answer nats", "answer nats"),
    of_role("heads-answer-out", "Heads: answer out", "answer out"),
    of_role("heads-retrieval", "Heads: retrieval", "retrieval"),
    of_role("heads-query", "Heads: query", "query"),
    of_role("heads-previous-token", "Heads: previous token", "previous token"),
    of_role("heads-induction", "Heads: induction", INDUCTION.name),
    of_role("heads-duplicate-token", "Heads: duplicate token", "duplicate token"),
    of_role("heads-sink", "Heads: sink", "sink"),
    of_role("heads-cancelling", "Heads: cancelling", "cancelling"),
];

const fn of_role(file: &'static str, title: &'static str, role: &'static str) -> RunFigure {
    let view = View::Heads { value: role };
    RunFigure { file, title, subtitle: "", pooling: "mean over prompts", table: &EVERY_HEAD, view }
}
