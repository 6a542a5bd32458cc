//! `difftool quantize`: what survives when attention logits are cut to few bits (the paper's Figure 8)?

use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::cli::QuantizeArgs;
use crate::experiment::{Experiment, Quantisation, Show};
use crate::metric::{Kind, Label, Metric, ANSWER_LOG_PROB, ANSWER_REGION, EXACT, NLL, SHARE_OUT};
use crate::plot::{quality, Figure, PointEstimate, QualityLine, QualityPanel};
use crate::results::{setting_name, Frame, Pick, Setting};
use crate::treatment::Condition;
use anyhow::Result;

pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: CTX_TOK, settings: &[(2, 2)], samples: 7, heldout: |_| 0 };

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &QuantizeArgs) -> Result<Experiment> {
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, args.text.as_deref(), &DEFAULTS)?;
    let experiment =
        flags::experiment(Show::Quantize, &args.run, grid, args.prompts.haystack.as_deref(), args.text.as_deref())?;
    let quantise = Quantisation { bits: args.bits.clone(), scope: args.scope, exempt_sinks: args.exempt_sinks };
    Ok(Experiment { quantise: Some(quantise), ..experiment })
}

/// Draws a figure for each setting.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let frame = &found.frame;
    let drawing = QuantizeFigures { frame, session };
    let figures = frame.settings().iter().map(|&setting| drawing.figure(setting)).collect::<Result<Vec<_>>>()?;
    for (i, figure) in figures.iter().enumerate() {
        let name = if i == 0 { "bits".to_owned() } else { format!("bits-{}", i + 1) };
        session.save(
            figure,
            &name,
            "mean over prompts, 95 % intervals: Wilson for accuracy, Student's t corrected for skewness otherwise",
        )?;
    }
    Ok(())
}

/// The panels of the figure: a metric and region each.
const PANELS: [(&Metric, Option<&str>); 4] =
    [(&EXACT, None), (&ANSWER_LOG_PROB, None), (&SHARE_OUT, Some(ANSWER_REGION)), (&NLL, None)];

struct QuantizeFigures<'a> {
    frame: &'a Frame,
    session: &'a Session,
}

impl QuantizeFigures<'_> {
    fn figure(&self, setting: Setting) -> Result<Figure> {
        let categories: Vec<String> = self
            .session
            .setup
            .conditions
            .iter()
            .map(|c| c.bits().map_or(c.to_string(), |bits| bits.to_string()))
            .collect();
        let mut drawn = Vec::new();
        let of_setting = |(_, region): &&(&Metric, Option<&str>)| setting.1 > 0 || region.is_none();
        for &(metric, region) in PANELS.iter().filter(of_setting) {
            let line = |model: &String| QualityLine {
                model: model.clone(),
                estimates: self
                    .session
                    .setup
                    .conditions
                    .iter()
                    .map(|condition| self.estimate(setting, model, condition, (metric, region)))
                    .collect(),
            };
            let lines: Vec<QualityLine> = self.frame.models().iter().map(line).collect();
            if lines.iter().any(|line| line.estimates.iter().any(Option::is_some)) {
                let label = Label::of(metric, region);
                let y_range = (metric.kind == Kind::Hit).then_some((0.0, 100.0));
                drawn.push(QualityPanel { title: label.text.clone(), y_label: label.heading(), y_range, lines });
            }
        }
        let scope = self.session.setup.experiment.quantise.as_ref().map_or("none", |quantise| quantise.scope.name());
        let asked = if setting.1 > 0 { setting_name(setting.1, setting.2) + " · " } else { String::new() };
        let exempt = self.session.setup.experiment.quantise.as_ref().is_some_and(|quantise| quantise.exempt_sinks);
        let exempt = if exempt { ", sinks exempt" } else { "" };
        let subtitle =
            format!("one scale per {scope}{exempt} · {asked}{}", self.session.setup.caption_of(&[setting.0]));
        let title = "What is left with few bits per attention logit";
        quality(&drawn, &categories, &self.session.heading(title, &subtitle), "bits per attention logit")
    }

    fn estimate(
        &self,
        setting: Setting,
        model: &str,
        condition: &Condition,
        (metric, region): (&'static Metric, Option<&'static str>),
    ) -> Option<PointEstimate> {
        let condition = condition.column();
        let pick = Pick::of(model, metric.name).setting(setting).condition(condition.as_deref());
        let found = self.frame.estimate(pick.metric(metric, region))?;
        let factor = if metric.kind == Kind::Number { 1.0 } else { 100.0 };
        let interval = found.interval.map(|interval| (factor * interval.lo, factor * interval.hi));
        Some(PointEstimate { value: factor * found.value, interval })
    }
}
