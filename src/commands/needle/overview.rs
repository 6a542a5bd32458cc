//! Figures over all prompts of a run: what changes with the length, and how accuracy and noise go together over models.

use super::super::session::Session;
use crate::figures::{curves, Curve, CurvePanel, PointEstimate};
use crate::results::metric::{Metric, ANSWER_REGION, EXACT, NOISE_OUT, SHARE_OUT};
use crate::results::{Frame, Pick};
use anyhow::Result;

/// Fewest models whose points are worth a figure.
const MIN_MODELS: usize = 4;

/// Meaning of the numbers, in the recipe.
const OVER: &str = "mean over prompts of all settings and depths";

const ACCURACY: &str = "accuracy (%)";
const NOISE: &str = "noise in output (%)";

/// Draws accuracy and shares by the length of the prompt, if there are several lengths.
pub(super) fn draw_by_length(session: &mut Session, frame: &Frame) -> Result<()> {
    let lengths = session.setup.grid.ctx_tok().to_vec();
    if lengths.len() < 2 {
        return Ok(());
    }
    let shown = [
        ("Accuracy", ACCURACY, Some((0.0, 100.0)), &EXACT, None),
        ("Answer", "answer in output (%)", None, &SHARE_OUT, Some(ANSWER_REGION)),
        ("Noise", NOISE, None, &NOISE_OUT, None),
    ];
    let panel = |(title, y_label, y_range, metric, region): (&str, &str, _, &'static Metric, _)| {
        let of_model = |model: &String| {
            let pick = Pick::of(model, metric.name).metric(metric, region);
            let at = |&length: &usize| Some((length as f64, percent(frame, pick.ctx_tok(length))?));
            Curve::of(frame.short_name(model), lengths.iter().filter_map(at))
        };
        let curves = frame.models().iter().map(of_model).collect();
        CurvePanel { title: title.into(), y_label: y_label.into(), y_range, curves }
    };
    let panels: Vec<CurvePanel> = shown.into_iter().map(panel).collect();
    let subtitle = format!("bands: 95 % intervals over prompts · {}", session.setup.caption());
    let figure = curves(&panels, &session.heading("Length of the prompt", &subtitle), "tokens", true)?;
    session.save(&figure, "length", OVER)
}

/// Draws accuracy against noise with a point for each model, if there are enough of them.
pub(super) fn draw_models(session: &mut Session, frame: &Frame) -> Result<()> {
    if frame.models().len() < MIN_MODELS {
        return Ok(());
    }
    let of_model = |model: &String| {
        let noise = percent(frame, Pick::of(model, NOISE_OUT.name));
        let accuracy = percent(frame, Pick::of(model, EXACT.name));
        Curve::of(frame.short_name(model), noise.zip(accuracy).map(|(noise, accuracy)| (noise.value, accuracy)))
    };
    let curves_of_models = frame.models().iter().map(of_model).collect();
    let title = "Accuracy and noise".to_owned();
    let panel = CurvePanel { title, y_label: ACCURACY.into(), y_range: Some((0.0, 100.0)), curves: curves_of_models };
    let subtitle = format!("a point for each model; lines: 95 % intervals over prompts · {}", session.setup.caption());
    let heading = session.heading("Accuracy against noise in the output", &subtitle);
    let figure = curves(&[panel], &heading, NOISE, false)?;
    session.save(&figure, "models", OVER)
}

/// A mean in percent.
fn percent(frame: &Frame, pick: Pick<'_>) -> Option<PointEstimate> {
    Some(PointEstimate::of(&frame.estimate(pick)?, 100.0))
}
