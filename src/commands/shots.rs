//! `difftool shots`: how many examples of a new classification does a model need, and does their order matter?

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, CTX_TOK};
use super::shared::{Measured, RunFlags};
use crate::figures::{Over, Panel, RunFigure, View};
use crate::measures::MeasureName;
use crate::results::run_table::{row_columns, sorted_rows, table_of_rows, Content, RunTable};
use crate::results::screen::{Screen, SideBySide};
use crate::results::table::{numbers_in, words, Cell, Table};
use crate::results::{Frame, Query};
use crate::run::Plan;
use anyhow::Result;
use clap::Args;
use names::metric::{ACCURACY, ANSWER_LOG_PROB};
use names::{Column, Cut, Number};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use stats::{Interval, Robustness, RESAMPLES};
use text::shots::order_of;
use text::{Grid, ShotsPrompts};

pub(super) static SHOTS: Command = Command {
    name: "shots",
    about: "Many-shot classification: accuracy by number and order of the examples",
    examples: &[
        ("Accuracy of the built-in models by number of examples", "difftool shots"),
        (
            "Effect of the order of the examples on another model",
            "difftool shots --model ./llama --order random,by-class --arrangements 8",
        ),
    ],
    defaults: None,
    flags: Measured::<ShotsFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<ShotsFlags>,
        read: read::<ShotsFlags>,
        screen,
        tables: &[&TABLE],
        figures: &FIGURES,
        next: Next::of_run("show", "--tables all", "every order of the examples"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct ShotsFlags {
    #[command(flatten)]
    pub prompts: ShotsPrompts,
}

impl MeasuringFlags for ShotsFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompts.ctx = Some(models.one_ctx_tok(self.prompts.ctx, CTX_TOK, "examples share one budget")?);
        Ok(())
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let grid = Grid::Shots(self.prompts.clone());
        Ok(vec![Plan::new(grid, vec![MeasureName::Answer])])
    }
}

/// What `difftool shots` prints: accuracy by number and order of the examples, and whether their arrangement matters.
fn screen(frame: &Frame) -> Screen {
    let numbers = [ACCURACY.overall()];
    let table = SideBySide { by: &[Column::Task], levels: true, ..SideBySide::of("shots", "Many shots", &numbers) };
    Screen {
        tables: table.table(frame).into_iter().collect(),
        notes: TABLE.filled(frame).and_then(|table| note_on_arrangements(&table)).into_iter().collect(),
        ..Screen::default()
    }
}

/// Says what the best arrangement of the same examples has more than the worst, beside what chance alone gives.
fn note_on_arrangements(table: &Table) -> Option<String> {
    let effect = table.place(BEST_LESS_WORST)?;
    let chance = table.place(BY_CHANCE)?;
    let effects: Vec<f64> = table.rows.iter().filter_map(|row| row[effect].exact).collect();
    let least = effects.iter().copied().reduce(f64::min)?;
    let most = effects.iter().copied().reduce(f64::max)?;
    let most_by_chance = table.rows.iter().filter_map(|row| Some(row[chance].interval?.hi)).reduce(f64::max)?;
    let beyond = table.rows.iter().filter_map(|row| Some(row[effect].exact? > row[chance].interval?.hi));
    let points = |x: f64| format!("{:.0}", 100.0 * x);
    let verdict = match beyond.filter(|is_beyond| *is_beyond).count() {
        0 => format!("no more than chance gives (up to {})", points(most_by_chance)),
        beyond => format!("more than chance gives in {beyond} of {} rows and models", effects.len()),
    };
    Some(format!("Best less worst arrangement: {} to {} points, {verdict}.", points(least), points(most)))
}

const TABLE: RunTable = RunTable {
    id: "shots",
    title: "Many shots",
    note: "N examples and a question [95 % interval]. Best - worst: of the arrangements of the same examples; by chance: its mean \
           and middle 95 % if the arrangement did not matter.",
    content: Content::Made(table),
};

const BEST_LESS_WORST: &str = "best_less_worst";
const BY_CHANCE: &str = "best_less_worst_by_chance";

/// A row for each model, number of examples and order: the answers, and the effect of the arrangement of the examples.
fn table(frame: &Frame) -> Option<Table> {
    const NUMBERS: [Number<'static>; 2] = [ACCURACY.overall(), ANSWER_LOG_PROB.overall()];
    if !frame.is_of_shots() {
        return None;
    }
    let columns = row_columns(frame, &[Column::Task]);
    let rows = sorted_rows(frame, &Query { rows: &columns, numbers: &NUMBERS, ..Query::default() });
    let mut table = table_of_rows(&columns, &rows, &NUMBERS)?;
    let effects = rows.par_iter().map(|row| {
        let only: Vec<Cut<'_>> = columns.iter().copied().zip(row.keys.iter().copied()).collect();
        Robustness::new(&frame.arrangements(ACCURACY.overall(), &only), RESAMPLES / 5, frame.about.seed)
    });
    let effects: Vec<Option<Robustness>> = effects.collect();
    for (row, effect) in table.rows.iter_mut().zip(effects) {
        row.push(in_points(effect.map(|effect| effect.best_less_worst), None));
        row.push(in_points(effect.map(|effect| effect.by_chance), effect.map(|effect| effect.chance)));
    }
    table.columns.push(numbers_in("best - worst", "points").named(BEST_LESS_WORST));
    table.columns.push(numbers_in("by chance", "points").named(BY_CHANCE));
    let order = table.place(Column::Task.name())?;
    table.columns[order] = words("order").key();
    for row in &mut table.rows {
        row[order] = Cell::optional_words(order_of(&row[order].text));
    }
    table.trimmed()
}

/// `+12 [+2, +22]`.
fn in_points(x: Option<f64>, interval: Option<Interval>) -> Cell {
    x.map_or_else(Cell::none, |x| Cell {
        percent: true,
        ..Cell::number_in(x, interval, |x| format!("{:+.0}", 100.0 * x))
    })
}

const FIGURES: [RunFigure; 1] = [RunFigure {
    file: "shots",
    title: "Many-shot learning of a new classification",
    subtitle: "bands: 95 % intervals over prompts; by chance, the middle 95 %",
    pooling: "mean over prompts and arrangements; 95 % Wilson intervals over prompts",
    table: &TABLE,
    view: View::Lines {
        over: Over::Numbers { key: "N", label: "examples in the prompt" },
        panels: &[
            Panel::of(&[ACCURACY.name]),
            Panel::titled("best less worst arrangement", &[BEST_LESS_WORST]),
            Panel::titled("best less worst by chance", &[BY_CHANCE]),
        ],
    },
}];
