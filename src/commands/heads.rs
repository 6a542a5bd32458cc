//! `difftool heads`: what is each head for?

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, PROMPTS};
use super::shared::{Measured, RunFlags};
use crate::figures::{RunFigure, View};
use crate::measures::MeasureName;
use crate::measures::{by_role, EVERY_HEAD, ROLES, SINKS, STRONGEST};
use crate::results::screen::{note_on_levels, Screen, ScreenTable};
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use clap::Args;
use names::metric::{ANSWER_REGION, MAP_COSINE, MAP_COSINE_CHANCE, MAP_COSINE_STRANGERS, NOISE_REGION};
use serde::{Deserialize, Serialize};
use text::{Grid, NeedlePrompts};

pub(super) static HEADS: Command = Command {
    name: "heads",
    about: "Roles of heads: retrieval, induction, previous token, sinks, and output from the answer",
    examples: &[
        ("Roles of the heads of the built-in models", "difftool heads --ctx 1k"),
        ("The same of another model, as JSON", "difftool heads --model ./llama --json"),
    ],
    defaults: Some(&PROMPTS),
    flags: Measured::<HeadsFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<HeadsFlags>,
        read: read::<HeadsFlags>,
        screen,
        tables: &[&STRONGEST, &ROLES, &SINKS],
        figures: &FIGURES,
        next: Next::measuring("ablate --parts heads", "what heads cost"),
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
    let note = "Heads as LAYER.HEAD, from 0. Retrieval heads: a retrieval score above 0.1.";
    let notes = [note.to_owned()].into_iter().chain(note_on_agreement(frame)).collect();
    Screen { tables: table.into_iter().collect(), notes, ..Screen::default() }
}

/// How far the two maps of differential models agree, in one sentence.
fn note_on_agreement(frame: &Frame) -> Option<String> {
    let mut names = Vec::new();
    for model in &frame.models {
        let is_differential = frame.mean(model, None, MAP_COSINE.name, Some(NOISE_REGION)).is_some();
        names.extend(is_differential.then(|| frame.short_name(model)));
    }
    let numbers = [
        ("noise", MAP_COSINE.of(NOISE_REGION)),
        ("with strangers", MAP_COSINE_STRANGERS.of(NOISE_REGION)),
        ("by chance", MAP_COSINE_CHANCE.of(NOISE_REGION)),
        ("answer", MAP_COSINE.of(ANSWER_REGION)),
        ("by chance", MAP_COSINE_CHANCE.of(ANSWER_REGION)),
    ];
    note_on_levels(frame, &format!("Cosine of both maps of {}", names.join(", ")), &numbers)
}

impl MeasuringFlags for HeadsFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        models.fill(&mut self.prompts, &PROMPTS)
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let measures = vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles, MeasureName::Premise];
        Ok(vec![Plan::new(Grid::Needle(self.prompts.clone()), measures)])
    }
}

const FIGURES: [RunFigure; 1] = [RunFigure {
    file: "heads",
    title: "Scores of heads",
    subtitle: "",
    pooling: "mean over prompts",
    table: &EVERY_HEAD,
    view: View::Heads,
}];
