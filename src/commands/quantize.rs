//! `difftool quantize`: what survives when attention logits (the paper's Figure 8), or queries and keys, are cut to few bits?

use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::base::names::{distinct, joined};
use crate::cli::QuantizeArgs;
use crate::figures::{lines, Figure, Line, LineAxes, LinePanel, PointEstimate};
use crate::kernels::quant::{Quantised, Quantiser, Scope};
use crate::results::metric::{
    Kind, Label, Metric, ANSWER_LOG_PROB, ANSWER_REGION, ERROR_CANCELLED, EXACT, NLL, SHARE_OUT, TOTAL_VARIATION,
};
use crate::results::{setting_name, Frame, Pick, Setting};
use crate::run::{Experiment, Quantisation, Show};
use crate::treatments::Condition;
use anyhow::Result;

pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: CTX_TOK, settings: &[(2, 2)], samples: 7 };

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors; models that cannot be read.
pub(super) fn experiment(args: &QuantizeArgs) -> Result<Experiment> {
    let experiment =
        flags::prompts_experiment(Show::Quantize, &args.run, &args.prompts, args.text.as_deref(), &DEFAULTS)?;
    let usual = if args.of == Quantised::Qk { Scope::Block } else { Scope::Tensor };
    let quantise = Quantisation {
        of: args.of,
        bits: args.bits.clone(),
        scope: args.scope.unwrap_or(usual),
        exempt_sinks: args.exempt_sinks,
        smooth: args.smooth,
        rotate: args.rotate,
    };
    let mut conditions = Vec::new();
    if args.each_layer {
        let configs = flags::configs(&args.run.model, &args.run.reading)?;
        let layers = configs.iter().map(|config| config.layers.len()).min().unwrap_or(0);
        for layer in 0..layers {
            conditions.extend(quantise.conditions(Some(&[layer]))?);
        }
    }
    Ok(Experiment { quantise: Some(quantise), conditions, ..experiment })
}

/// Draws a figure for each setting, and one by layer for each format that one layer at a time has.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let drawing = QuantizeFigures { frame: &found.frame, session };
    let mut figures = Vec::new();
    for (i, &setting) in found.frame.settings().iter().enumerate() {
        let ending = if i == 0 { String::new() } else { format!("-{}", i + 1) };
        figures.push((format!("bits{ending}"), drawing.by_format(setting)?));
        for (format, figure) in drawing.by_layer(setting)? {
            figures.push((format!("layers-{format}{ending}"), figure));
        }
    }
    for (name, figure) in figures {
        session.save(
            &figure,
            &name,
            "mean over prompts, 95 % intervals: Wilson for accuracy, Student's t corrected for skewness otherwise",
        )?;
    }
    Ok(())
}

/// The panels of a figure of logits: a metric and region each.
const OF_LOGITS: [(&Metric, Option<&str>); 4] =
    [(&EXACT, None), (&ANSWER_LOG_PROB, None), (&SHARE_OUT, Some(ANSWER_REGION)), (&NLL, None)];

/// The panels of a figure of queries and keys.
const OF_QK: [(&Metric, Option<&str>); 5] =
    [(&EXACT, None), (&ANSWER_LOG_PROB, None), (&NLL, None), (&TOTAL_VARIATION, None), (&ERROR_CANCELLED, None)];

/// A condition on the x axis, with its label.
type Category<'a> = (String, &'a Condition);

struct QuantizeFigures<'a> {
    frame: &'a Frame,
    session: &'a Session,
}

impl<'a> QuantizeFigures<'a> {
    fn conditions(&self) -> &'a [Condition] {
        &self.session.setup.conditions
    }

    fn is_of_qk(&self) -> bool {
        self.quantisers().any(|quantiser| quantiser.of == Quantised::Qk)
    }

    fn quantisers(&self) -> impl Iterator<Item = &'a Quantiser> {
        self.conditions().iter().filter_map(Condition::quantiser)
    }

    /// The format of a quantiser, with the words that some of the conditions have besides and others not.
    fn category(&self, quantiser: &Quantiser) -> String {
        let format = quantiser.format.to_string();
        let mut category = format.clone();
        for word in quantiser.words() {
            // `fp` is a part of the name of the format.
            if !format.starts_with(&word) && !self.quantisers().all(|other| other.words().contains(&word)) {
                category += &format!(" {}", word.replace('-', " "));
            }
        }
        category
    }

    /// Metrics by number format, of conditions that quantise all layers.
    fn by_format(&self, setting: Setting) -> Result<Figure> {
        let mut categories: Vec<Category<'_>> = Vec::new();
        for condition in self.conditions() {
            match condition.quantiser() {
                None => categories.push((condition.to_string(), condition)),
                Some(quantiser) if quantiser.layers.is_none() => categories.push((self.category(quantiser), condition)),
                Some(_) => {}
            }
        }
        let (title, x_label) = if self.is_of_qk() {
            ("What is left with few bits per query and key", "format of queries and keys")
        } else {
            ("What is left with few bits per attention logit", "bits per attention logit")
        };
        self.figure(setting, &categories, (title, x_label), "")
    }

    /// Metrics by the layer that is quantised, beside none and all: (format, figure).
    fn by_layer(&self, setting: Setting) -> Result<Vec<(String, Figure)>> {
        let of_some_layers = self.quantisers().filter(|quantiser| quantiser.layers.is_some());
        let mut drawn: Vec<(String, Figure)> = Vec::new();
        for format in distinct(of_some_layers.map(|quantiser| quantiser.format.to_string())) {
            let mut categories: Vec<Category<'_>> = Vec::new();
            for condition in self.conditions() {
                match condition.quantiser() {
                    None if condition.is_untreated() => categories.push(("none".to_owned(), condition)),
                    Some(by) if by.format.to_string() == format => {
                        let layers = by.layers.as_ref().map_or_else(|| "all".to_owned(), |layers| joined(layers));
                        categories.push((layers, condition));
                    }
                    _ => {}
                }
            }
            let names = ("One quantised layer at a time", "quantised layer");
            let figure = self.figure(setting, &categories, names, &format!("{} · ", format_name(&format)))?;
            drawn.push((format, figure));
        }
        Ok(drawn)
    }

    fn figure(
        &self,
        setting: Setting,
        categories: &[Category<'_>],
        (title, x_label): (&str, &str),
        format: &str,
    ) -> Result<Figure> {
        let panels = if self.is_of_qk() { OF_QK.as_slice() } else { &OF_LOGITS };
        let mut drawn = Vec::new();
        for &(metric, region) in panels.iter().filter(|(_, region)| setting.1 > 0 || region.is_none()) {
            let mut lines = Vec::new();
            for model in self.frame.models() {
                let estimates = categories.iter().enumerate().filter_map(|(i, (_, condition))| {
                    Some((i as f64, self.estimate(setting, model, condition, (metric, region))?))
                });
                lines.push(Line::new(self.frame.short_name(model), estimates));
            }
            // A model of one map has no second one whose errors may cancel.
            lines.retain(|line| !line.points.is_empty());
            if !lines.is_empty() {
                let label = Label::of(metric, region);
                drawn.push(LinePanel {
                    title: label.text.clone(),
                    x_label: x_label.to_owned(),
                    y_label: label.heading(),
                    y_range: (metric.kind == Kind::Hit).then_some((0.0, 100.0)),
                    lines,
                });
            }
        }
        let labels: Vec<String> = categories.iter().map(|(label, _)| label.clone()).collect();
        let asked = if setting.1 > 0 { setting_name(setting.1, setting.2) + " · " } else { String::new() };
        let prompts = self.session.setup.caption_of(&[setting.0]);
        let scale = self.scale_name().map_or_else(String::new, |scale| scale + " · ");
        let subtitle = format!("{format}{scale}{asked}{prompts}");
        lines(&drawn, LineAxes::Categories(&labels), &self.session.heading(title, &subtitle))
    }

    /// The numbers that share one scale, and the transformations before the rounding; `None` if conditions differ in them.
    fn scale_name(&self) -> Option<String> {
        let Some(quantise) = &self.session.setup.experiment.quantise else {
            let mut scopes = self.quantisers().map(|quantiser| quantiser.scope);
            let first = scopes.next().unwrap_or(Scope::Tensor);
            return scopes.all(|scope| scope == first).then(|| format!("one scale per {}", scope_name(first)));
        };
        let scope = scope_name(quantise.scope);
        let flags = [
            (quantise.smooth, ", keys less their mean"),
            (quantise.rotate, ", rotated"),
            (quantise.exempt_sinks, ", sinks exempt"),
        ];
        let flags: String = flags.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect();
        Some(format!("one scale per {scope}{flags}"))
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
        Some(PointEstimate::scaled(&found, metric.kind.factor()))
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Block => "block of 128 queries or 64 keys",
        scope => scope.name(),
    }
}

/// Name of a format in a subtitle.
fn format_name(format: &str) -> String {
    if format.starts_with("fp") {
        format.to_owned()
    } else {
        format!("{format} bits")
    }
}
