//! Figures over all prompts of a run: what changes with the length, and how accuracy and noise go together over models.

use crate::commands::drawing::metric_panel;
use crate::figures::{lines, Line, LineAxes, LinePanel, PointEstimate};
use crate::results::metric::{ACCURACY, ANSWER_REGION, GENERATED_CONTAINS, NOISE_OUT, SHARE_OUT};
use crate::results::{Frame, Pick};
use crate::run::Run;
use anyhow::Result;

/// Fewest models whose points are worth a figure.
const MIN_MODELS: usize = 4;

/// Meaning of the numbers, in the recipe.
const OVER: &str = "mean over prompts of all settings and depths";

/// Draws accuracy and shares by the length of the prompt, if there are several lengths.
pub(super) fn draw_by_length(run: &Run, frame: &Frame) -> Result<()> {
    let lengths = run.setup.grid.ctx_tok().to_vec();
    if lengths.len() < 2 {
        return Ok(());
    }
    let places: Vec<f64> = lengths.iter().map(|&length| length as f64).collect();
    let mut quantities = vec![(&ACCURACY, None), (&SHARE_OUT, Some(ANSWER_REGION)), (&NOISE_OUT, None)];
    if frame.has(GENERATED_CONTAINS.name) {
        quantities.insert(1, (&GENERATED_CONTAINS, None));
    }
    let mut panels = Vec::new();
    for quantity in quantities {
        panels.push(metric_panel(frame, quantity, ("tokens", &places), |pick, i| Pick {
            ctx_tok: Some(lengths[i]),
            ..pick
        }));
    }
    let subtitle = format!("bands: 95 % intervals over prompts · {}", run.setup.caption());
    let figure = lines(&panels, LineAxes::LogX, &run.heading("Length of the prompt", &subtitle))?;
    run.save_figure(&figure, "length", OVER)
}

/// Draws accuracy against noise with a point for each model, if there are enough of them.
pub(super) fn draw_models(run: &Run, frame: &Frame) -> Result<()> {
    if frame.models.len() < MIN_MODELS {
        return Ok(());
    }
    let mut points = Vec::new();
    for model in &frame.models {
        let noise = percent(frame, Pick::of(model, &NOISE_OUT));
        let accuracy = percent(frame, Pick::of(model, &ACCURACY));
        let point = noise.zip(accuracy).map(|(noise, accuracy)| (noise.value, accuracy));
        points.push(Line::new(frame.short_name(model), point));
    }
    let panel = LinePanel {
        title: "Accuracy and noise".to_owned(),
        x_label: "noise in output (%)".to_owned(),
        y_label: "accuracy (%)".to_owned(),
        y_range: Some((0.0, 100.0)),
        lines: points,
    };
    let subtitle = format!("a point for each model; lines: 95 % intervals over prompts · {}", run.setup.caption());
    let heading = run.heading("Accuracy against noise in the output", &subtitle);
    let figure = lines(&[panel], LineAxes::Linear, &heading)?;
    run.save_figure(&figure, "models", OVER)
}

/// A mean in percent.
fn percent(frame: &Frame, pick: Pick<'_>) -> Option<PointEstimate> {
    Some(PointEstimate::scaled(&frame.estimate(pick)?, 100.0))
}
