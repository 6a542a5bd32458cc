//! `difftool heads`: what is each head for?

use super::command::{read, typed, Action, Command, Measuring};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{Measured, RunFlags};
use crate::figures::{cells, CellGrid, CellScale};
use crate::measures::MeasureName;
use crate::prompts::{Grid, NeedleCounts, NeedlePrompts, PromptDefaults};
use crate::results::metric::Label;
use crate::results::screen::{Screen, ScreenTable};
use crate::results::view::{by_role, HEAD_ROLES, ROLES, SINKS, STRONGEST};
use crate::results::Frame;
use crate::results::Pick;
use crate::run::{Plan, Run};
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
    Screen { tables: table.into_iter().collect(), notes: vec![note.to_owned()], ..Screen::default() }
}

impl MeasuringFlags for HeadsFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        models.fill(&mut self.prompts, &DEFAULTS)
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        Ok(Plan {
            grid: Grid::Needle(self.prompts.clone()),
            measures: vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
            ..Plan::default()
        })
    }

    /// Draws a figure for each role that has numbers.
    fn draw(&self, run: &Run) -> Result<()> {
        let frame = &run.frame;
        let caption = run.setup.caption();
        for role in &HEAD_ROLES {
            let factor = role.metric.kind.factor();
            let mut grids = Vec::new();
            for model in &frame.models {
                let heads = frame.heads(Pick { region: role.region, ..Pick::of(model, role.metric) });
                if !heads.is_empty() {
                    let means = heads.into_iter().map(|(at, values)| (at, values.mean().map(|x| factor * x)));
                    grids.push(CellGrid::of_heads(frame.short_name(model), means));
                }
            }
            if grids.is_empty() {
                continue;
            }
            let title = format!("Heads: {}", role.name);
            let label = Label::of(role.metric, role.region).heading();
            let scale = CellScale::of_heads(&label);
            let figure = cells(&[grids], &run.heading(&title, &caption), &scale)?;
            run.save_figure(&figure, &format!("heads-{}", role.name.replace(' ', "-")), "mean over prompts")?;
        }
        Ok(())
    }
}
