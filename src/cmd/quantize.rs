//! `difftool quantize`: what survives when attention logits are cut to few bits (the paper's Figure 8)?

use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::cli::QuantizeArgs;
use crate::experiment::{Experiment, Quantisation, Show};
use crate::frame::{setting_name, Frame, Pick, Setting};
use crate::plot::{quality, Estimate, Figure, QualityLine, QualityPanel};
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
    let report = Report { frame, session };
    let figures = frame.settings().iter().map(|&setting| report.figure(setting)).collect::<Result<Vec<_>>>()?;
    for (i, figure) in figures.iter().enumerate() {
        let name = if i == 0 { "bits".to_owned() } else { format!("bits-{}", i + 1) };
        session.save(figure, &name, "mean over prompts, 95 % intervals: Wilson for accuracy, bootstrap otherwise")?;
    }
    Ok(())
}

/// What a panel of the figure shows.
struct Shown {
    title: &'static str,
    y_label: &'static str,
    metric: &'static str,
    region: Option<&'static str>,
    y_range: Option<(f64, f64)>,
    /// From the metric's unit to that of the axis.
    factor: f64,
}

const fn number(title: &'static str, y_label: &'static str, metric: &'static str) -> Shown {
    Shown { title, y_label, metric, region: None, y_range: None, factor: 1.0 }
}

const fn percent(title: &'static str, y_label: &'static str, metric: &'static str) -> Shown {
    Shown { factor: 100.0, ..number(title, y_label, metric) }
}

const SHOWN: [Shown; 4] = [
    Shown { y_range: Some((0.0, 100.0)), ..percent("needle accuracy", "exact match (%)", "exact") },
    number("answer log-probability", "log-probability (nats)", "answer_log_prob"),
    Shown { region: Some("answer"), ..percent("what the answer gives", "share of the output (%)", "share_out") },
    number("NLL of prose", "NLL (nats per token)", "nll"),
];

struct Report<'a> {
    frame: &'a Frame,
    session: &'a Session,
}

impl Report<'_> {
    fn figure(&self, setting: Setting) -> Result<Figure> {
        let categories: Vec<String> = self
            .session
            .setup
            .conditions
            .iter()
            .map(|c| c.bits().map_or(c.to_string(), |bits| bits.to_string()))
            .collect();
        let mut drawn = Vec::new();
        let of_setting = |shown: &&Shown| setting.1 > 0 || shown.region.is_none();
        for shown in SHOWN.iter().filter(of_setting) {
            let line = |model: &String| QualityLine {
                model: model.clone(),
                estimates: self
                    .session
                    .setup
                    .conditions
                    .iter()
                    .map(|condition| self.estimate(setting, model, condition, shown))
                    .collect(),
            };
            let lines: Vec<QualityLine> = self.frame.models().iter().map(line).collect();
            if lines.iter().any(|line| line.estimates.iter().any(Option::is_some)) {
                let (title, y_label) = (shown.title.to_owned(), shown.y_label.to_owned());
                drawn.push(QualityPanel { title, y_label, y_range: shown.y_range, lines });
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

    fn estimate(&self, setting: Setting, model: &str, condition: &Condition, shown: &Shown) -> Option<Estimate> {
        let condition = condition.column();
        let pick = Pick::of(model, shown.metric).setting(setting).condition(condition.as_deref());
        let pick = shown.region.map_or(pick, |region| pick.region(region));
        let (value, interval) = if shown.metric == "exact" {
            let p = self.frame.proportion(pick);
            (p.fraction?, p.interval())
        } else {
            self.frame.mean_in(pick)?
        };
        let interval = Some((shown.factor * interval.lo, shown.factor * interval.hi));
        Some(Estimate { value: shown.factor * value, interval })
    }
}
