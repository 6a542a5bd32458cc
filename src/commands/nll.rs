//! `difftool nll`: how well text is predicted, by position in the window (the paper's Figure 4), and with or without the
//! help of what was read before (its Table 6).

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, CTX_TOK};
use super::shared::{Measured, RunFlags};
use crate::figures::{Over, Panel, RunFigure, View};
use crate::measures::MeasureName;
use crate::measures::{ar_hit_definition, nll_side_by_side, positions_drawn};
use crate::results::run_table::RunTable;
use crate::results::screen::{note_on_changes, Screen, ScreenTable};
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use base::bail_usage;
use base::FileName;
use clap::Args;
use names::values::TokenRange;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use text::{BosChoice, Grid, OwnText, SpecialTokens, TextWindows};

/// Why there is one length.
const ONE_LENGTH: &str = "nll pools windows of one length";

/// Windows of prose if nobody says how many: 100k tokens of 4k windows.
const WINDOWS: usize = 25;

/// More windows than any text has: all of them.
const ALL_WINDOWS: usize = 1_000_000;

pub(super) static NLL: Command = Command {
    name: "nll",
    about: "Negative log-likelihood of a text, by position, and of tokens that can be recalled from the context",
    examples: &[
        ("The embedded prose", "difftool nll"),
        ("Your own text", "difftool nll --text book.txt --ctx 2k --model ./llama"),
    ],
    defaults: None,
    flags: Measured::<NllFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<NllFlags>,
        read: read::<NllFlags>,
        screen,
        tables: &[],
        figures: &FIGURES,
        next: Next::measuring("needle", "retrieval from the context"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Text")]
pub(super) struct NllFlags {
    /// UTF-8 text to measure instead of the embedded prose: windows slide over it, and every token is scored once
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName, conflicts_with = "ids")]
    pub text: Option<PathBuf>,
    /// Token ids to measure instead of the embedded prose, separated by white space; the model needs no tokenizer
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName, hide_short_help = true)]
    pub ids: Option<PathBuf>,
    /// Length of a window in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Tokens from the start of one window to the start of the next. Each window scores the tokens that the previous one did
    /// not, with at least ctx - stride tokens of context from the second window on [default: half of --ctx]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "TOKENS", hide_short_help = true)]
    pub stride: Option<TokenRange>,
    /// Largest number of windows [default: 25 of the embedded prose; all of a text]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Tokens at the beginning of every window that only means by position include
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    pub skip: usize,
    /// Base seed of the embedded prose
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
}

/// What `difftool nll` prints.
fn screen(frame: &Frame) -> Screen {
    let table = nll_side_by_side(frame).map(|table| ScreenTable::of_run("Prediction of text", frame, table));
    let has_hits = frame.found.tokens.0.iter().any(|scored| scored.tokens().any(|token| token.ar_hit));
    let on_hits = has_hits.then(|| ar_hit_definition(frame) + ".");
    Screen {
        tables: table.into_iter().collect(),
        notes: note_on_changes(frame).into_iter().chain(on_hits).collect(),
        ..Screen::default()
    }
}

impl MeasuringFlags for NllFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        let ctx = models.one_ctx_tok(self.ctx, CTX_TOK, ONE_LENGTH)?;
        self.ctx = Some(ctx);
        if self.text.is_some() || self.ids.is_some() {
            self.stride.get_or_insert((ctx.single().unwrap_or(2) / 2).max(1).into());
            self.samples.get_or_insert(ALL_WINDOWS);
        }
        self.samples.get_or_insert(WINDOWS);
        Ok(())
    }

    fn plans(&self, run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        if self.text.is_some() && self.ids.is_some() {
            bail_usage!("--text and --ids exclude each other: leave one of them out");
        }
        if self.ids.is_some() && run.reading.bos != BosChoice::Auto {
            bail_usage!("--bos: token ids are taken as they are; leave out --bos or --ids");
        }
        if self.ids.is_some() && run.reading.special_tokens != SpecialTokens::Text {
            bail_usage!("--special-tokens: token ids are taken as they are; leave out --special-tokens or --ids");
        }
        if self.stride.is_some_and(|stride| stride.single().is_none()) {
            bail_usage!("--stride: {ONE_LENGTH}; give it one number");
        }
        let grid = Grid::Text(TextWindows {
            ctx_tok: self.ctx.and_then(TokenRange::single).into_iter().collect(),
            samples: self.samples.unwrap_or_default(),
            stride: self.stride.and_then(TokenRange::single),
            seed: self.seed,
            own: OwnText::of_file(self.text.as_ref()),
            ids: self.ids.clone(),
        });
        Ok(vec![Plan { skip: self.skip, ..Plan::new(grid, vec![MeasureName::Nll]) }])
    }
}

const FIGURES: [RunFigure; 1] = [POSITIONS];

/// The loss by the number of tokens before.
pub(super) const POSITIONS: RunFigure = RunFigure {
    file: "nll",
    title: "Does more context predict the next token better?",
    subtitle: "bands: 95 % intervals; differences below 0 are better than the first model",
    pooling: "mean over the tokens of a range of positions, in powers of two; cumulative: mean over positions",
    table: &RunTable::made("", "", positions_drawn),
    view: View::Lines {
        over: Over::Numbers { key: "from", label: "position (tokens of context)" },
        panels: &[Panel::of(&["cumulative_nats"]), Panel::of(&["nll_nats"]), Panel::of(&["difference_nats"])],
    },
};
