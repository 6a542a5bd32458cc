//! `difftool ratio`: attention to the answer against noise (the paper's Table 3 and Figure 1).

use super::command::{read, typed, Action, Command, Measuring};
use super::drawing::draw_regions;
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::needle::note_on_attribution;
use super::shared::{grid, Measured, RunFlags};
use crate::attention::HeadPlace;
use crate::figures::{cells, CellGrid, CellScale};
use crate::measures::MeasureName;
use crate::prompts::{Grid, NeedleCounts, NeedlePrompts, PromptDefaults, Region};
use crate::results::metric::{ANSWER_REGION, ENTROPY, NOISE_ABS, NOISE_OUT, SHARE_ABS, SHARE_OUT, SINK_SHARE_FIRST};
use crate::results::screen::{note_on_changes, Screen, SideBySide};
use crate::results::{Frame, Number, Pick};
use crate::run::{Plan, Run};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DEFAULTS: PromptDefaults =
    PromptDefaults { ctx_tok: 1024, settings: &[NeedleCounts { needles: 1, asked: 1 }], samples: 15 };

pub(super) static RATIO: Command = Command {
    name: "ratio",
    about: "Share of attention and output by region of the prompt, sinks, and entropy",
    examples: &[
        ("Shares of attention and output at 4k tokens", "difftool ratio --ctx 4k"),
        ("The same for plain text", "difftool ratio --text book.txt --ctx 2k --model ./llama"),
    ],
    defaults: Some(&DEFAULTS),
    flags: Measured::<RatioFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<RatioFlags>,
        read: read::<RatioFlags>,
        screen,
        tables: &[],
        next: "difftool heads, the role of each head",
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
        models.fill(&mut self.prompts, &DEFAULTS)
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        Ok(Plan {
            grid: grid(&self.prompts),
            measures: vec![MeasureName::AnswerByHead, MeasureName::Shape],
            ..Plan::default()
        })
    }

    /// Draws the figures.
    fn draw(&self, run: &Run) -> Result<()> {
        let frame = &run.frame;
        let is_text = matches!(run.setup.grid, Grid::Text(_));
        if frame.models.is_empty() {
            return Ok(()); // nothing but failures
        }
        let rows = if is_text { "last 32 rows" } else { "rows that predict the answer" };
        let caption = run.setup.caption();
        // Text has no regions but its first token and itself.
        if !is_text {
            draw_regions(run, frame)?;
        }
        let (what, regions): (_, &[Region]) = if is_text {
            ("the first token", &[Region::Bos, Region::First])
        } else {
            ("the answer", &[Region::Answer])
        };
        let grids: Vec<CellGrid> = frame.models.iter().map(|model| head_shares(frame, model, regions)).collect();
        let title = format!("Share of {what} in the output, by layer and head");
        let subtitle = format!("{rows} · {caption}");
        let scale = CellScale::of_heads("share of the output (%)");
        let figure = cells(&[grids], &run.heading(&title, &subtitle), &scale)?;
        run.save_figure(&figure, "heads", &format!("mean over prompts and the {rows}; share of the output"))
    }
}

/// The numbers that answer the question, where prompts have an answer.
const OF_PROMPTS: [Number<'static>; 4] =
    [SHARE_OUT.of(ANSWER_REGION), NOISE_OUT.overall(), SHARE_ABS.of(ANSWER_REGION), NOISE_ABS.overall()];

/// Those of plain text.
const OF_TEXT: [Number<'static>; 5] =
    [SHARE_OUT.of("bos"), SHARE_OUT.of("first"), SHARE_OUT.of("filler"), SINK_SHARE_FIRST.overall(), ENTROPY.overall()];

/// What `difftool ratio` prints.
fn screen(frame: &Frame) -> Screen {
    let numbers = if frame.asks() { &OF_PROMPTS[..] } else { &OF_TEXT };
    Screen {
        tables: SideBySide::of("attention", "Attention", numbers).table(frame).into_iter().collect(),
        notes: note_on_changes(frame).into_iter().chain(note_on_attribution(frame)).collect(),
        ..Screen::default()
    }
}

/// The share of regions together in every head in percent: layers x heads.
fn head_shares(frame: &Frame, model: &str, regions: &[Region]) -> CellGrid {
    let mut sums: BTreeMap<HeadPlace, f64> = BTreeMap::new();
    for region in regions {
        for (at, values) in frame.heads(Pick { region: Some(region.name()), ..Pick::of(model, &SHARE_OUT) }) {
            *sums.entry(at).or_default() += 100.0 * values.mean().unwrap_or(f64::NAN);
        }
    }
    let shares = sums.into_iter().map(|(at, share)| (at, Some(share).filter(|share| share.is_finite())));
    CellGrid::of_heads(frame.short_name(model), shares)
}
