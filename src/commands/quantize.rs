//! `difftool quantize`: what survives when attention logits (the paper's Figure 8), or queries and keys, are cut to few bits?

use super::flags::{self, Defaults, CTX_TOK};
use super::session::{RunResults, Session};
use crate::base::names::distinct;
use crate::cli::QuantizeArgs;
use crate::figures::{quality, Figure, PointEstimate, QualityLine, QualityPanel};
use crate::results::metric::{
    Kind, Label, Metric, ANSWER_LOG_PROB, ANSWER_REGION, ERROR_CANCELLED, EXACT, NLL, SHARE_OUT, TOTAL_VARIATION,
};
use crate::results::{setting_name, Frame, Pick, Setting};
use crate::run::{Experiment, Quantisation, Quantised, ScaleScope, Show};
use crate::treatments::Condition;
use anyhow::Result;
use strum::VariantArray as _;

pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: CTX_TOK, settings: &[(2, 2)], samples: 7 };

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors; models that cannot be read.
pub(super) fn experiment(args: &QuantizeArgs) -> Result<Experiment> {
    let experiment =
        flags::prompts_experiment(Show::Quantize, &args.run, &args.prompts, args.text.as_deref(), &DEFAULTS)?;
    let usual = if args.of == Quantised::Qk { ScaleScope::Block } else { ScaleScope::Tensor };
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
        self.scopes().any(|scope| has_word(&scope, "qk"))
    }

    /// The `scope` of each condition that quantises.
    fn scopes(&self) -> impl Iterator<Item = String> + 'a {
        self.conditions().iter().filter_map(Condition::scope)
    }

    /// Returns `true` if the scopes of all conditions that quantise have a word.
    fn is_common(&self, word: &str) -> bool {
        self.scopes().all(|scope| has_word(&scope, word))
    }

    /// The format of a condition, with what some conditions have besides and others not.
    fn category(&self, condition: &Condition, format: String) -> String {
        let scope = condition.scope().unwrap_or_default();
        // `fp` is a part of the name of the format.
        let words = scope.split('-').filter(|word| !self.is_common(word) && !format.starts_with(word));
        std::iter::once(format.as_str()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Metrics by number format, of conditions that quantise all layers.
    fn by_format(&self, setting: Setting) -> Result<Figure> {
        let category = |condition: &'a Condition| match condition.format() {
            Some((format, None)) => Some((self.category(condition, format), condition)),
            Some((_, Some(_))) => None,
            None => Some((condition.to_string(), condition)),
        };
        let categories: Vec<Category<'_>> = self.conditions().iter().filter_map(category).collect();
        let (title, x_label) = if self.is_of_qk() {
            ("What is left with few bits per query and key", "format of queries and keys")
        } else {
            ("What is left with few bits per attention logit", "bits per attention logit")
        };
        self.figure(setting, &categories, (title, x_label), "")
    }

    /// Metrics by the layer that is quantised, beside none and all: (format, figure).
    fn by_layer(&self, setting: Setting) -> Result<Vec<(String, Figure)>> {
        let formats = self.conditions().iter().filter_map(Condition::format);
        let formats = distinct(formats.filter(|(_, layers)| layers.is_some()).map(|(format, _)| format));
        let mut drawn: Vec<(String, Figure)> = Vec::new();
        for format in formats {
            let category = |condition: &'a Condition| match condition.format() {
                None if condition.is_untreated() => Some(("none".to_owned(), condition)),
                Some((of, None)) if of == format => Some(("all".to_owned(), condition)),
                Some((of, Some(layers))) if of == format => {
                    Some((layers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"), condition))
                }
                _ => None,
            };
            let categories: Vec<Category<'_>> = self.conditions().iter().filter_map(category).collect();
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
            let estimate = |model: &str, condition| self.estimate(setting, model, condition, (metric, region));
            let line = |model: &String| QualityLine {
                model: self.frame.short_name(model),
                estimates: categories.iter().map(|(_, condition)| estimate(model, condition)).collect(),
            };
            let mut lines: Vec<QualityLine> = self.frame.models().iter().map(line).collect();
            // A model of one map has no second one whose errors may cancel.
            lines.retain(|line| line.estimates.iter().any(Option::is_some));
            if !lines.is_empty() {
                let label = Label::of(metric, region);
                let y_range = (metric.kind == Kind::Hit).then_some((0.0, 100.0));
                drawn.push(QualityPanel { title: label.text.clone(), y_label: label.heading(), y_range, lines });
            }
        }
        let labels: Vec<String> = categories.iter().map(|(label, _)| label.clone()).collect();
        let asked = if setting.1 > 0 { setting_name(setting.1, setting.2) + " · " } else { String::new() };
        let prompts = self.session.setup.caption_of(&[setting.0]);
        let scale = self.scale_name().map_or_else(String::new, |scale| scale + " · ");
        let subtitle = format!("{format}{scale}{asked}{prompts}");
        quality(&drawn, &labels, &self.session.heading(title, &subtitle), x_label)
    }

    /// The numbers that share one scale, and the transformations before the rounding; `None` if conditions differ in them.
    fn scale_name(&self) -> Option<String> {
        let name = |scope| match scope {
            ScaleScope::Block => "block of 128 queries or 64 keys",
            scope => scope.name(),
        };
        let Some(quantise) = &self.session.setup.experiment.quantise else {
            let common = ScaleScope::VARIANTS.iter().find(|scope| self.is_common(scope.name()));
            return common.map(|&scope| format!("one scale per {}", name(scope)));
        };
        let scope = name(quantise.scope);
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
        Some(PointEstimate::of(&found, metric.kind.factor()))
    }
}

/// Returns `true` if a scope, such as `qk-block-smooth`, has a word.
fn has_word(scope: &str, word: &str) -> bool {
    scope.split('-').any(|of| of == word)
}

/// Name of a format in a subtitle.
fn format_name(format: &str) -> String {
    if format.starts_with("fp") {
        format.to_owned()
    } else {
        format!("{format} bits")
    }
}
