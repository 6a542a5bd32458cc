//! `difftool ratio`: attention to the answer against noise (the paper's Table 3 and Figure 1).

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::hidden::{hidden, note_on_hidden};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, PROMPTS};
use super::needle::REGIONS;
use super::shared::{grid, Measured, RunFlags};
use crate::figures::{RunFigure, View};
use crate::measures::MeasureName;
use crate::results::run_table::{number_table, RunTable};
use crate::results::screen::{note_on_changes, note_on_limits, Screen, SideBySide};
use crate::results::table::Table;
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use clap::Args;
use names::metric::{ANSWER_REGION, ENTROPY, NOISE_ABS, NOISE_OUT, SHARE_ABS, SHARE_OUT, SINK_SHARE_FIRST};
use names::{Column, Number};
use serde::{Deserialize, Serialize};
use text::NeedlePrompts;

pub(super) static RATIO: Command = Command {
    name: "ratio",
    about: "Share of attention and output by region of the prompt, sinks, and entropy",
    examples: &[
        ("Shares of attention and output at 4k tokens", "difftool ratio --ctx 4k"),
        ("The same for plain text", "difftool ratio --text book.txt --ctx 2k --model ./llama"),
    ],
    defaults: Some(&PROMPTS),
    flags: Measured::<RatioFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<RatioFlags>,
        read: read::<RatioFlags>,
        screen,
        tables: &[],
        figures: &FIGURES,
        next: Next::measuring("heads", "the role of each head"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct RatioFlags {
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

impl MeasuringFlags for RatioFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        models.fill(&mut self.prompts, &PROMPTS)
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let mut plan = Plan::new(grid(&self.prompts), vec![MeasureName::AnswerByHead, MeasureName::Shape]);
        plan.passes.hides = true;
        Ok(vec![plan])
    }
}

/// The numbers that answer the question, where prompts have an answer.
const OF_PROMPTS: [Number<'static>; 4] =
    [SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall(), SHARE_ABS.of(ANSWER_REGION), NOISE_ABS.overall()];

/// Those of plain text, besides the share of the first token.
const OF_TEXT: [Number<'static>; 3] = [SHARE_OUT.of("filler"), SINK_SHARE_FIRST.overall(), ENTROPY.overall()];

/// The shares of the first token: that which begins sequences, or another; models may differ in that.
fn of_first_token(frame: &Frame) -> Vec<Number<'static>> {
    let shares = ["bos", "first"].map(|region| SHARE_OUT.of(region));
    shares.into_iter().filter(|share| frame.by_prompt(*share, &[]).mean() != Some(0.0)).collect()
}

/// What `difftool ratio` prints.
fn screen(frame: &Frame) -> Screen {
    let numbers = if frame.asks() { OF_PROMPTS.to_vec() } else { [&of_first_token(frame)[..], &OF_TEXT].concat() };
    let attention = SideBySide::of("attention", "Attention", &numbers).table(frame);
    Screen {
        tables: attention.into_iter().chain(hidden(frame)).collect(),
        notes: [note_on_changes(frame), note_on_hidden(frame), note_on_limits(frame)].into_iter().flatten().collect(),
        ..Screen::default()
    }
}

const FIGURES: [RunFigure; 2] = [
    REGIONS,
    RunFigure {
        file: "heads",
        title: "Share in the output, by layer and head",
        subtitle: "rows that predict the answer, of plain text the last 32",
        pooling:
            "mean over prompts and the rows that predict the answer, of plain text the last 32; share of the output",
        table: &RunTable::made("", "", by_head),
        view: View::Heads,
    },
];

/// The share of the answer in the output of every head; where nothing is asked for, that of the first token.
fn by_head(frame: &Frame) -> Option<Table> {
    let numbers = if frame.asks() { vec![SHARE_OUT.of(ANSWER_REGION)] } else { of_first_token(frame) };
    number_table(frame, &numbers, &[Column::Layer, Column::Head])
}
