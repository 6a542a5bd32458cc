//! `difftool quantize`: what survives when attention logits (the paper's Figure 8), or queries and keys, are cut to few bits?

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, PROMPTS};
use super::shared::{grid, Measured, RunFlags};
use crate::figures::{Over, Panel, RunFigure, View};
use crate::measures::MeasureName;
use crate::results::run_table::{number_table, RunTable};
use crate::results::screen::{note_on_condition, note_on_limits, Screen, SideBySide};
use crate::results::table::{key_column, words, Cell, Table, TableColumn};
use crate::results::Frame;
use crate::run::Plan;
use anyhow::Result;
use base::bail_usage;
use base::spec_file::flag_defaults;
use clap::Args;
use names::condition::{Condition, ConditionFacts, Format, Purpose, Quantised, Quantiser, Scope, Treatment};
use names::metric::{
    ACCURACY, ANSWER_LOG_PROB, ANSWER_REGION, ERROR_CANCELLED, NLL, SHARE_OUT, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
};
use names::{distinct, joined, repeated, Column, Number};
use serde::{Deserialize, Serialize};
use text::NeedlePrompts;

pub(super) static QUANTIZE: Command = Command {
    name: "quantize",
    about: "Round attention logits, or queries and keys, to few bits, and measure what is lost",
    examples: &[
        ("Accuracy with 8, 6 and 4 bits", "difftool quantize --bits 8,6,4"),
        ("One scale for each row, sinks exempt", "difftool quantize --bits 4 --scope row --exempt-sinks"),
        ("Queries and keys instead, keys less their mean", "difftool quantize --of qk --bits 8,4,fp8,nvfp4 --smooth"),
        ("One layer at a time: which breaks first?", "difftool quantize --of qk --bits 4 --each-layer"),
    ],
    defaults: Some(&PROMPTS),
    flags: Measured::<QuantizeFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<QuantizeFlags>,
        read: read::<QuantizeFlags>,
        screen,
        tables: &[],
        figures: &FIGURES,
        next: Next::measuring("outliers", "the logits that set the scale"),
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
    /// Numbers that share one scale; of several, the first at all bits, the others at the fewest [default: tensor,head for logits, block
    /// for queries and keys]
    #[arg(long, value_enum, value_delimiter = ',', hide_short_help = true)]
    pub scope: Vec<Scope>,
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
        if self.scope.is_empty() {
            self.scope = if self.of == Quantised::Qk { vec![Scope::Block] } else { vec![Scope::Tensor, Scope::Head] };
        }
        models.fill(&mut self.prompts, &PROMPTS)
    }

    fn plans(&self, run: &RunFlags, models: &OpenedModels) -> Result<Vec<Plan>> {
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
        let mut plan = Plan::new(grid(&self.prompts), vec![MeasureName::Answer, MeasureName::Fidelity]);
        plan.passes.conditions = conditions;
        Ok(vec![plan])
    }
}

impl QuantizeFlags {
    /// The first scope with all formats, and the others with that of the fewest bits.
    fn scopes_and_formats(&self) -> Vec<(Scope, Format)> {
        let fewest = self.bits.iter().copied().min_by_key(|format| format.bits());
        let mut pairs = Vec::new();
        for (place, &scope) in self.scope.iter().enumerate() {
            let formats = self.bits.iter().copied().filter(|&format| place == 0 || Some(format) == fewest);
            pairs.extend(formats.map(|format| (scope, format)));
        }
        pairs
    }

    /// One condition for each number format, in one layer or in all.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    fn conditions(&self, layer: Option<usize>) -> Result<Vec<Condition>> {
        if let Some(bits) = repeated(&self.bits) {
            bail_usage!("--bits {bits} is named twice");
        }
        if let Some(scope) = repeated(&self.scope) {
            bail_usage!("--scope {} is named twice", scope.name());
        }
        let mut conditions = Vec::new();
        for (scope, format) in self.scopes_and_formats() {
            let &Self { of, exempt_sinks, smooth, rotate, .. } = self;
            let layers = layer.map(|layer| vec![layer]);
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
    let quantised = frame.conditions.0.iter().filter(|condition| bits(condition).is_some());
    let fewest = quantised.clone().filter_map(bits).min();
    let at_fewest = quantised.filter(|condition| bits(condition) == fewest);
    let mut notes: Vec<String> = at_fewest.filter_map(|condition| note_on_condition(frame, &condition.name)).collect();
    notes.extend(note_on_limits(frame));
    Screen { tables: tables.iter().filter_map(|table| table.table(frame)).collect(), notes, ..Screen::default() }
}

/// The bits of a condition that quantises numbers.
fn bits(condition: &ConditionFacts) -> Option<u32> {
    match condition.purpose {
        Purpose::Bits { bits, .. } => Some(bits),
        _ => None,
    }
}

const FIGURES: [RunFigure; 2] = [
    RunFigure {
        file: "bits",
        title: "What few bits leave",
        subtitle: "",
        pooling: POOLING,
        table: &RunTable::made("", "", in_all_layers),
        view: View::Lines { over: Over::Names { key: "condition", label: "" }, panels: &PANELS },
    },
    RunFigure {
        file: "layers",
        title: "One quantised layer at a time",
        subtitle: "",
        pooling: POOLING,
        table: &RunTable::made("", "", in_single_layers),
        view: View::Lines { over: Over::Names { key: "layer", label: "quantised layer" }, panels: &PANELS },
    },
];

const POOLING: &str =
    "mean over prompts, 95 % intervals: Wilson for accuracy, Student's t corrected for skewness otherwise";

const PANELS: [Panel; 6] = [
    Panel::of(&[ACCURACY.name]),
    Panel::of(&[ANSWER_LOG_PROB.name]),
    Panel::of(&[NLL.name]),
    Panel::of(&[SHARE_OUT.name]),
    Panel::of(&[TOTAL_VARIATION.name]),
    Panel::of(&[ERROR_CANCELLED.name]),
];

/// The numbers of the panels. A text has no answer, and a model of one map no second one whose errors may cancel.
const DRAWN: [Number<'static>; 6] = [
    ACCURACY.overall(),
    ANSWER_LOG_PROB.overall(),
    NLL.overall(),
    SHARE_OUT.of(ANSWER_REGION),
    TOTAL_VARIATION.overall(),
    ERROR_CANCELLED.overall(),
];

/// The conditions that treat all layers alike.
fn in_all_layers(frame: &Frame) -> Option<Table> {
    let mut table = number_table(frame, &DRAWN, &[])?;
    let condition = table.place(Column::Condition.name())?;
    table.rows.retain(|row| match purpose(frame, &row[condition]) {
        Some(Purpose::Bits { layers, .. }) => layers.is_none(),
        _ => true,
    });
    Some(table)
}

/// The purpose of the condition in a cell.
fn purpose<'a>(frame: &'a Frame, condition: &Cell) -> Option<&'a Purpose> {
    frame.conditions.get(&condition.text).map(|condition| &condition.purpose)
}

/// `4 bits`, `nvfp4`.
fn format_words(format: &str) -> String {
    if format.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{format} bits");
    }
    format.to_owned()
}

/// The conditions that quantise one layer, by format and layer, beside those that quantise none and all of them.
fn in_single_layers(frame: &Frame) -> Option<Table> {
    let formats = distinct(frame.conditions.0.iter().filter_map(|condition| match &condition.purpose {
        Purpose::Bits { format, layers: Some(_), .. } => Some(format),
        _ => None,
    }));
    if formats.is_empty() {
        return None;
    }
    let mut table = number_table(frame, &DRAWN, &[])?;
    let condition = table.place(Column::Condition.name())?;
    let mut rows = Vec::new();
    for format in formats {
        for row in &table.rows {
            let layer = match purpose(frame, &row[condition]) {
                Some(Purpose::Untreated) => "none".to_owned(),
                Some(Purpose::Bits { format: its, layers: None, .. }) if *its == format => "all".to_owned(),
                Some(Purpose::Bits { format: its, layers: Some(layers), .. }) if *its == format => joined(layers),
                _ => continue,
            };
            let mut row = row.clone();
            row.splice(condition..=condition, [format_words(&format), layer].map(Cell::words));
            rows.push(row);
        }
    }
    table.columns.splice(
        condition..=condition,
        [words("format").key(), TableColumn { number: false, ..key_column(Column::Layer) }],
    );
    Table { rows, ..table }.with_rows()
}
