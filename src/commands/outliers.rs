//! `difftool outliers`: the largest attention logits and hidden states (the paper's Table 5), and massive activations.

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, CTX_TOK};
use super::shared::{Measured, RunFlags};
use crate::measures::{outliers_side_by_side, CHANNELS};
use crate::measures::{MeasureName, OutlierMeasure, Outliers, PassKey};
use crate::results::screen::{Screen, ScreenTable, SideBySide};
use crate::results::Frame;
use crate::run::{Plan, Run};
use anyhow::Result;
use base::FileName;
use clap::Args;
use names::metric::{SINK_RATE, TOKEN_KINDS};
use names::values::TokenRange;
use names::Number;
use plot::{lines, Line, LineAxes, LinePanel};
use serde::{Deserialize, Serialize};
use stats::Tally;
use std::path::PathBuf;
use text::{Grid, OwnText, TextWindows};

/// Least number of tokens that are pooled by default.
const POOLED_TOK: usize = 50_000;

pub(super) static OUTLIERS: Command = Command {
    name: "outliers",
    about: "The largest attention logits and hidden states, and massive activations",
    examples: &[("The largest logits and hidden states over 50k tokens", "difftool outliers")],
    defaults: None,
    flags: Measured::<OutliersFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<OutliersFlags>,
        read: read::<OutliersFlags>,
        screen,
        tables: &[],
        figures: &[],
        next: Next::measuring("quantize", "what few bits cost"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Text")]
pub(super) struct OutliersFlags {
    /// Number of windows to pool over [default: as many as hold 50k tokens]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// UTF-8 text to measure from its beginning, instead of the embedded prose
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName)]
    pub text: Option<PathBuf>,
    /// Length of a window in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the embedded prose
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
}

/// What `difftool outliers` prints.
fn screen(frame: &Frame) -> Screen {
    const SINKS: [Number<'static>; 3] =
        [SINK_RATE.of(TOKEN_KINDS[0]), SINK_RATE.of(TOKEN_KINDS[1]), SINK_RATE.of(TOKEN_KINDS[2])];
    let outliers = outliers_side_by_side(frame).map(|table| ScreenTable::of_run("Outliers", frame, table));
    let sinks = SideBySide { levels: true, ..SideBySide::of("sink-rate", "", &SINKS) }.table(frame);
    let none = "No massive activations (|x| > 100 and at least 1000 times the layer's median).".to_owned();
    Screen {
        tables: outliers.into_iter().chain(CHANNELS.filled(frame).map(ScreenTable::below)).chain(sinks).collect(),
        notes: frame.found.massive.is_empty().then_some(none).into_iter().collect(),
        ..Screen::default()
    }
}

impl MeasuringFlags for OutliersFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        let ctx = models.one_ctx_tok(self.ctx, CTX_TOK, "outliers pools windows of one length")?;
        self.ctx = Some(ctx);
        self.samples.get_or_insert(POOLED_TOK.div_ceil(ctx.single().unwrap_or(1)));
        Ok(())
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let grid = Grid::Text(TextWindows {
            ctx_tok: self.ctx.and_then(TokenRange::single).into_iter().collect(),
            samples: self.samples.unwrap_or_default(),
            seed: self.seed,
            own: OwnText::of_file(self.text.as_ref()),
            ..TextWindows::default()
        });
        Ok(vec![Plan::new(grid, vec![MeasureName::Outliers, MeasureName::SinkRate])])
    }

    fn draw(&self, run: &Run) -> Result<()> {
        draw(run)
    }
}

/// Draws how many logits and hidden states are above each magnitude, if a series of the run has pooled them.
pub(super) fn draw(run: &Run) -> Result<()> {
    let models = by_model(run);
    if models.iter().all(|(_, outliers)| outliers.tokens == 0) {
        return Ok(()); // nothing but failures
    }
    let logits = models.iter().map(|(model, outliers)| line(model, &outliers.all_logits()));
    let hidden = models.iter().map(|(model, outliers)| line(model, &outliers.all_hidden()));
    let panels = [
        ("attention logits", "|logit|", logits.collect()),
        ("hidden states", "|activation|", hidden.collect::<Vec<Line>>()),
    ];
    let panels = panels.map(|(title, x_label, lines)| LinePanel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "fraction above".to_owned(),
        y_range: None,
        marks: Vec::new(),
        lines,
    });
    let caption = run.caption();
    let subtitle = format!("all maps over visible keys; the output of every layer · {caption}");
    let heading = run.heading("How large logits and hidden states get", &subtitle);
    let figure = lines(&panels, LineAxes::LogLog, &heading)?;
    run.save_figure(&figure, "ccdf", "all layers, heads and maps; log-binned histogram, 128 bins per doubling")
}

/// The pooled numbers of each model.
fn by_model(run: &Run) -> Vec<(String, Outliers)> {
    let mut measures = run.series.iter().flat_map(|series| series.measures.of_type::<OutlierMeasure>());
    let Some(measure) = measures.next() else { return Vec::new() };
    let names = run.setup().models.iter().map(|model| run.frame.short_name(&model.name));
    names
        .enumerate()
        .filter_map(|(model, name)| Some((name, measure.pooled.get(&PassKey { model, condition: 0 })?.clone())))
        .collect()
}

/// The complementary cumulative distribution of a model's magnitudes.
fn line(model: &str, tally: &Tally) -> Line {
    // The smallest tenth stretches over decades that nobody asks about.
    let points = tally.histogram.ccdf().into_iter().filter(|&(_, share)| share > 0.0 && share < 0.9);
    Line::new(model.to_owned(), points)
}
