//! `difftool quantize`: what survives when attention logits (the paper's Figure 8), or queries and keys, are cut to few bits?

use super::measuring::{Measuring, OpenedModels, CTX_TOK};
use super::session::{RunResults, Session};
use super::shared::{grid, Examples, RunFlags};
use crate::bail_usage;
use crate::base::names::{distinct, joined, repeated};
use crate::base::spec_file::flag_defaults;
use crate::base::values::FileName;
use crate::figures::{lines, Figure, Line, LineAxes, LinePanel, PointEstimate};
use crate::kernels::quant::{Format, Quantised, Quantiser, Scope};
use crate::measures::MeasureName;
use crate::prompts::{NeedlePrompts, PromptDefaults};
use crate::results::metric::{
    Kind, Label, Metric, ANSWER_LOG_PROB, ANSWER_REGION, ERROR_CANCELLED, EXACT, NLL, SHARE_OUT, TOTAL_VARIATION,
};
use crate::results::{setting_name, Frame, Pick, Setting};
use crate::run::Plan;
use crate::treatments::{Condition, Treatment};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub(super) const DEFAULTS: PromptDefaults = PromptDefaults { ctx_tok: CTX_TOK, settings: &[(2, 2)], samples: 7 };

pub(super) const EXAMPLES: Examples = &[
    ("Accuracy with 8, 6 and 4 bits", "difftool quantize --bits 8,6,4"),
    ("One scale for each row, sinks exempt", "difftool quantize --bits 4 --scope row --exempt-sinks"),
    ("Queries and keys instead, keys less their mean", "difftool quantize --of qk --bits 8,4,fp8,fp4 --smooth"),
    ("One layer at a time: which breaks first?", "difftool quantize --of qk --bits 4 --each-layer"),
];

#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct QuantizeFlags {
    /// Numbers to quantise
    #[arg(long, value_enum, default_value_t = Quantised::Logits)]
    pub of: Quantised,
    /// Bits per number, 2 to 16; of queries and keys also fp8 (e4m3) and fp4 (e2m1)
    #[arg(long, value_delimiter = ',', default_value = "16,8,6,4", value_name = "BITS")]
    pub bits: Vec<Format>,
    /// Numbers that share one scale [default: tensor for logits, block for queries and keys]
    #[arg(long, value_enum)]
    pub scope: Option<Scope>,
    /// Exempt attention sinks: their logits, or their keys, stay exact and do not affect the scale
    #[arg(long)]
    pub exempt_sinks: bool,
    /// Subtract the mean over the text from keys before rounding, and add it again afterwards (with --of qk)
    #[arg(long)]
    pub smooth: bool,
    /// Multiply queries and keys by a Hadamard matrix before they are rounded (with --of qk)
    #[arg(long)]
    pub rotate: bool,
    /// Also quantise one layer at a time
    #[arg(long)]
    pub each_layer: bool,
    /// Measure windows of this UTF-8 text instead of needle prompts
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName)]
    pub text: Option<PathBuf>,
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

impl Default for QuantizeFlags {
    fn default() -> Self {
        flag_defaults()
    }
}

impl Measuring for QuantizeFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        let usual = if self.of == Quantised::Qk { Scope::Block } else { Scope::Tensor };
        self.scope.get_or_insert(usual);
        models.fill(&mut self.prompts, &DEFAULTS)
    }

    fn plan(&self, run: &RunFlags, models: &OpenedModels) -> Result<Plan> {
        if self.bits.is_empty() && run.condition.is_empty() {
            bail_usage!("--bits is empty; give at least one format");
        }
        let mut conditions = self.conditions(None)?;
        if self.each_layer {
            let layers = models.get()?.iter().map(|model| model.config.layers.len()).min().unwrap_or(0);
            for layer in 0..layers {
                conditions.extend(self.conditions(Some(layer))?);
            }
        }
        Ok(Plan {
            grid: grid(&self.prompts, self.text.as_ref()),
            measures: vec![MeasureName::Answer, MeasureName::Fidelity],
            conditions,
            ..Plan::default()
        })
    }

    /// Draws a figure for each setting, and one by layer for each format that one layer at a time has.
    fn draw(&self, session: &mut Session, results: &RunResults) -> Result<()> {
        let drawing = QuantizeFigures { frame: &results.frame, session };
        let mut figures = Vec::new();
        for (i, &setting) in results.frame.settings().iter().enumerate() {
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
}

impl QuantizeFlags {
    /// One condition for each number format, in one layer or in all.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    fn conditions(&self, layer: Option<usize>) -> Result<Vec<Condition>> {
        if let Some(bits) = repeated(&self.bits) {
            bail_usage!("--bits {bits} is named twice");
        }
        let mut conditions = Vec::new();
        for &format in &self.bits {
            let &Self { of, exempt_sinks, smooth, rotate, .. } = self;
            let (scope, layers) = (self.scope.unwrap_or(Scope::Tensor), layer.map(|layer| vec![layer]));
            let quantiser = Quantiser { of, format, scope, smooth, rotate, exempt_sinks, layers };
            if let Err(mistake) = quantiser.check() {
                bail_usage!("--{mistake}");
            }
            conditions.push(Treatment::Quantise(quantiser).into());
        }
        Ok(conditions)
    }
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
        let quantisers: Vec<&Quantiser> = self.quantisers().collect();
        let scope = quantisers.first()?.scope;
        if quantisers.iter().any(|quantiser| quantiser.scope != scope) {
            return None;
        }
        let mut name = format!("one scale per {}", scope_name(scope));
        if quantisers.iter().all(|quantiser| quantiser.smooth) {
            name += ", keys less their mean";
        }
        if quantisers.iter().all(|quantiser| quantiser.rotate) {
            name += ", rotated";
        }
        if quantisers.iter().all(|quantiser| quantiser.exempt_sinks) {
            name += ", sinks exempt";
        }
        Some(name)
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
        let estimate = self.frame.estimate(pick.metric(metric, region))?;
        Some(PointEstimate::scaled(&estimate, metric.kind.factor()))
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
