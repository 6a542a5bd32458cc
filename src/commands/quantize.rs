//! `difftool quantize`: what survives when attention logits (the paper's Figure 8), or queries and keys, are cut to few bits?

use super::command::{read, typed, Action, Command, Measuring};
use super::drawing::metric_panel;
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{grid, Measured, RunFlags};
use crate::bail_usage;
use crate::base::names::{distinct, joined, repeated};
use crate::base::spec_file::flag_defaults;
use crate::figures::{lines, Figure, LineAxes};
use crate::kernels::quant::{Format, Quantised, Quantiser, Scope};
use crate::measures::MeasureName;
use crate::prompts::{NeedleCounts, NeedlePrompts, PromptDefaults};
use crate::results::metric::{
    Metric, ACCURACY, ANSWER_LOG_PROB, ANSWER_REGION, ERROR_CANCELLED, NLL, SHARE_OUT, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
};
use crate::results::screen::{note_on_condition, Screen, SideBySide};
use crate::results::{Frame, Pick, Setting};
use crate::run::{Plan, Run};
use crate::treatments::{Condition, Treatment};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

const DEFAULTS: PromptDefaults =
    PromptDefaults { ctx_tok: 1024, settings: &[NeedleCounts { needles: 2, asked: 2 }], samples: 7 };

pub(super) static QUANTIZE: Command = Command {
    name: "quantize",
    about: "Round attention logits, or queries and keys, to few bits, and measure what is lost",
    examples: &[
        ("Accuracy with 8, 6 and 4 bits", "difftool quantize --bits 8,6,4"),
        ("One scale for each row, sinks exempt", "difftool quantize --bits 4 --scope row --exempt-sinks"),
        ("Queries and keys instead, keys less their mean", "difftool quantize --of qk --bits 8,4,fp8,nvfp4 --smooth"),
        ("One layer at a time: which breaks first?", "difftool quantize --of qk --bits 4 --each-layer"),
    ],
    defaults: Some(&DEFAULTS),
    flags: Measured::<QuantizeFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<QuantizeFlags>,
        read: read::<QuantizeFlags>,
        screen,
        tables: &[],
        next: "difftool outliers, the logits that set the scale",
    }),
};

#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct QuantizeFlags {
    /// Numbers to quantise
    #[arg(long, value_enum, default_value_t = Quantised::Logits, hide_short_help = true)]
    pub of: Quantised,
    /// Bits per number, 2 to 16; of queries and keys also fp8 (e4m3), nvfp4 and mxfp4
    #[arg(long, value_delimiter = ',', default_value = "16,8,6,4", value_name = "BITS")]
    pub bits: Vec<Format>,
    /// Numbers that share one scale [default: tensor for logits, block for queries and keys]
    #[arg(long, value_enum, hide_short_help = true)]
    pub scope: Option<Scope>,
    /// Leave attention sinks exact: their logits, or their keys, are not rounded and do not affect the scale
    #[arg(long, hide_short_help = true)]
    pub exempt_sinks: bool,
    /// Subtract the mean of the keys before rounding, and add it again afterwards (with --of qk)
    #[arg(long, hide_short_help = true)]
    pub smooth: bool,
    /// Multiply queries and keys by a Hadamard matrix before they are rounded (with --of qk)
    #[arg(long, hide_short_help = true)]
    pub rotate: bool,
    /// Also quantise one layer at a time
    #[arg(long, hide_short_help = true)]
    pub each_layer: bool,
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

impl Default for QuantizeFlags {
    fn default() -> Self {
        flag_defaults()
    }
}

impl MeasuringFlags for QuantizeFlags {
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
            grid: grid(&self.prompts),
            measures: vec![MeasureName::Answer, MeasureName::Fidelity],
            conditions,
            ..Plan::default()
        })
    }

    /// Draws a figure for each setting, and one by layer for each format that one layer at a time has.
    fn draw(&self, run: &Run) -> Result<()> {
        let conditions = run.setup.conditions.clone();
        let quantisers = conditions.iter().filter_map(Condition::quantiser);
        let of_some_layers = quantisers.filter(|quantiser| quantiser.layers.is_some());
        let formats = distinct(of_some_layers.map(|quantiser| quantiser.format.to_string()));
        for (i, &setting) in run.frame.settings.iter().enumerate() {
            let ending = if i == 0 { String::new() } else { format!("-{}", i + 1) };
            let figure = self.figure(run, &run.frame, setting, &by_format(&conditions), None)?;
            run.save_figure(&figure, &format!("bits{ending}"), POOLING)?;
            for format in &formats {
                let by_layer = by_layer(&conditions, format);
                let figure = self.figure(run, &run.frame, setting, &by_layer, Some(format))?;
                run.save_figure(&figure, &format!("layers-{format}{ending}"), POOLING)?;
            }
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

/// What `difftool quantize` prints: accuracy, changes of the next token, and the models at the fewest bits.
fn screen(frame: &Frame) -> Screen {
    const UNTREATED: &str = "exact";
    let main = if frame.asks() { &ACCURACY } else { &NLL };
    let answers = [main.overall()];
    let flips = [TOP_TOKEN_FLIPS.overall()];
    let corner = "next token changed %";
    let tables = [
        SideBySide { untreated: UNTREATED, ..SideBySide::of("answers", "Few bits", &answers) },
        SideBySide { corner, plain: true, levels: true, ..SideBySide::of("fidelity", "", &flips) },
    ];
    let fewest =
        frame.treated.iter().filter(|condition| condition.bits.is_some()).min_by_key(|condition| condition.bits);
    Screen {
        tables: tables.iter().filter_map(|table| table.table(frame)).collect(),
        notes: fewest.and_then(|fewest| note_on_condition(frame, fewest.name())).into_iter().collect(),
        ..Screen::default()
    }
}

const POOLING: &str =
    "mean over prompts, 95 % intervals: Wilson for accuracy, Student's t corrected for skewness otherwise";

/// The panels of a figure of logits: a metric and region each.
const OF_LOGITS: [(&Metric, Option<&str>); 4] =
    [(&ACCURACY, None), (&ANSWER_LOG_PROB, None), (&SHARE_OUT, Some(ANSWER_REGION)), (&NLL, None)];

/// The panels of a figure of queries and keys.
const OF_QK: [(&Metric, Option<&str>); 5] =
    [(&ACCURACY, None), (&ANSWER_LOG_PROB, None), (&NLL, None), (&TOTAL_VARIATION, None), (&ERROR_CANCELLED, None)];

/// A place on the x axis: its label and the condition.
type Category<'a> = (String, &'a Condition);

/// The conditions that quantise all layers, by format, beside those that quantise nothing.
fn by_format(conditions: &[Condition]) -> Vec<Category<'_>> {
    let format = |condition: &Condition| Some(condition.quantiser()?.format.to_string());
    let of_all = conditions.iter().filter(|condition| condition.quantiser().is_none_or(|by| by.layers.is_none()));
    let of_all: Vec<&Condition> = of_all.collect();
    let mut categories = Vec::new();
    for condition in &of_all {
        let alike = of_all.iter().filter(|other| format(other) == format(condition)).count();
        // Conditions that differ in more than the format have their whole names.
        let label = format(condition).filter(|_| alike == 1).unwrap_or_else(|| condition.to_string());
        categories.push((label, *condition));
    }
    categories
}

/// The conditions with a format by the layer that is quantised, beside none and all.
fn by_layer<'a>(conditions: &'a [Condition], format: &str) -> Vec<Category<'a>> {
    let mut categories = Vec::new();
    for condition in conditions {
        match condition.quantiser() {
            None if condition.is_untreated() => categories.push(("none".to_owned(), condition)),
            Some(by) if by.format.to_string() == format => {
                let layers = by.layers.as_ref().map_or_else(|| "all".to_owned(), |layers| joined(layers));
                categories.push((layers, condition));
            }
            _ => {}
        }
    }
    categories
}

impl QuantizeFlags {
    /// Draws metrics over conditions; with a format, over the layers that are quantised to it.
    fn figure(
        &self,
        run: &Run,
        frame: &Frame,
        setting: Setting,
        categories: &[Category<'_>],
        format: Option<&str>,
    ) -> Result<Figure> {
        let of_qk = self.of == Quantised::Qk;
        let (title, x_label) = match (format, of_qk) {
            (Some(_), _) => ("One quantised layer at a time", "quantised layer"),
            (None, true) => ("What is left with few bits per query and key", "format of queries and keys"),
            (None, false) => ("What is left with few bits per attention logit", "bits per attention logit"),
        };
        let conditions: Vec<Option<String>> = categories.iter().map(|(_, condition)| condition.column()).collect();
        let places: Vec<f64> = (0..categories.len()).map(|i| i as f64).collect();
        let mut panels = Vec::new();
        for &quantity in if of_qk { OF_QK.as_slice() } else { &OF_LOGITS } {
            panels.push(metric_panel(frame, quantity, (x_label, &places), |pick, i| Pick {
                setting: Some(setting),
                condition: conditions[i].as_deref(),
                ..pick
            }));
        }
        // A text has no answer, and a model of one map no second one whose errors may cancel.
        panels.retain(|panel| !panel.lines.is_empty());
        let scale = self.scope.map_or_else(String::new, |scope| format!("one scale per {}", scope.name()));
        let mut parts = vec![scale];
        let refinements =
            [(self.smooth, "keys less their mean"), (self.rotate, "rotated"), (self.exempt_sinks, "sinks exempt")];
        parts.extend(refinements.into_iter().filter(|(given, _)| *given).map(|(_, words)| words.to_owned()));
        let mut subtitle = parts.join(", ");
        if let Some(format) = format {
            subtitle += &format!(" · format {format}");
        }
        if setting.needles > 0 {
            subtitle += &format!(" · {}", setting.name());
        }
        subtitle += &format!(" · {}", run.setup.caption_of(&[setting.ctx_tok]));
        let labels: Vec<String> = categories.iter().map(|(label, _)| label.clone()).collect();
        lines(&panels, LineAxes::Categories(&labels), &run.heading(title, &subtitle))
    }
}
