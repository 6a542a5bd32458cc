//! The screen of a comparison: changes with a column for each model, or for each of what is compared.

use super::in_short;
use crate::figures::compared_words;
use crate::results::compare::Comparison;
use crate::results::differences::{difference_cell, group_value};
use crate::results::screen::{ModelRows, Screen, ScreenTable};
use crate::results::table::{plural, Cell, Table};
use crate::results::Row;
use names::{distinct, is_short_for, Column};

/// The changes of each metric that has a decided one, or is the first. Where a metric has several rows, each that was named has a table of
/// its own, and of others only the first is shown.
pub(super) fn screen(comparison: &Comparison, pairs: &str, are_named: bool) -> Screen {
    let rows = in_short(&comparison.rows);
    let layout = Layout::of(comparison, &rows);
    let metrics = distinct(rows.iter().map(|row| row.label().difference_heading()));
    let is_decided = |metric: &String| rows.iter().any(|row| of_metric(row, metric) && decided(row));
    let labels = distinct(rows.iter().map(|row| layout.label(row)));
    let mut notes = Vec::new();
    let mut shown = metrics.clone();
    let is_several = labels.len() > 1;
    if !are_named || !is_several {
        let others = shown.split_off(metrics.len().min(1));
        let (decided, undecided): (Vec<String>, Vec<String>) = others.into_iter().partition(is_decided);
        if is_several {
            notes.extend((!decided.is_empty()).then(|| format!("Decided too (--metric): {}.", decided.join(", "))));
        } else {
            shown.extend(decided);
            notes.extend((!undecided.is_empty()).then(|| format!("No decided change: {}.", undecided.join(", "))));
        }
    }
    let in_one_table = if is_several { 1 } else { shown.len().max(1) };
    let mut tables = Vec::new();
    for table in shown.chunks(in_one_table).filter_map(|metrics| layout.table(&rows, metrics)) {
        tables.push(if tables.is_empty() {
            ScreenTable { title: layout.title(), shared: layout.shared(&rows, pairs), table }
        } else {
            ScreenTable::below(table)
        });
    }
    Screen { tables, notes, ..Screen::default() }
}

fn of_metric(row: &Row, metric: &str) -> bool {
    row.label().difference_heading() == metric
}

fn decided(row: &Row) -> bool {
    row.difference.is_decided()
}

/// Models in the order in which they ran, as far as a manifest says.
fn in_order_of_run(mut models: Vec<String>, comparison: &Comparison) -> Vec<String> {
    let manifests = comparison.inputs.iter().filter_map(|(input, _)| input.manifest.as_ref());
    let ran: Vec<&str> = manifests.flat_map(|manifest| &manifest.models).map(|model| model.name.as_str()).collect();
    models.sort_by_key(|model| ran.iter().position(|name| is_short_for(model, name)).unwrap_or(usize::MAX));
    models
}

/// What is a column, what a row, and what is said once.
struct Layout {
    /// The groups whose values make rows, beside what is compared.
    groups: Vec<Column>,
    baselines: Vec<String>,
    others: Vec<String>,
    /// The models, if they are the columns.
    models: Vec<String>,
}

impl Layout {
    fn of(comparison: &Comparison, rows: &[Row]) -> Self {
        let model = Column::Model;
        let models = if comparison.groups.contains(&model) {
            distinct(rows.iter().filter_map(|row| row.group.get(model.name()).cloned()))
        } else {
            Vec::new()
        };
        Self {
            groups: comparison.groups.iter().copied().filter(|&column| column != model).collect(),
            baselines: distinct(rows.iter().map(|row| compared_words(&row.baseline))),
            others: distinct(rows.iter().map(|row| compared_words(&row.other))),
            models: in_order_of_run(models, comparison),
        }
    }

    fn columns(&self) -> &[String] {
        if self.models.is_empty() {
            &self.others
        } else {
            &self.models
        }
    }

    /// The column of a row of the comparison.
    fn column(&self, row: &Row) -> String {
        if self.models.is_empty() {
            compared_words(&row.other)
        } else {
            row.group.get(Column::Model.name()).cloned().unwrap_or_default()
        }
    }

    /// The words of a row: what is compared, where models are the columns, and the values of the groups.
    fn label(&self, row: &Row) -> String {
        let mut parts = Vec::new();
        if !self.models.is_empty() && self.others.len() > 1 {
            parts.push(compared_words(&row.other));
        }
        parts.extend(
            self.groups.iter().filter_map(|&column| group_value(row, column)).map(|value| compared_words(&value)),
        );
        parts.join(", ")
    }

    fn title(&self) -> String {
        let one_other = if self.models.is_empty() || self.others.len() > 1 { "" } else { &self.others[0] };
        let what = if one_other.is_empty() { "Change".to_owned() } else { format!("Change by {one_other}") };
        format!("{what} from {}", self.baselines.join(", "))
    }

    fn shared(&self, rows: &[Row], pairs: &str) -> Vec<String> {
        let mut shared = Vec::new();
        let seeds = rows.iter().filter_map(|row| row.difference.seeds).max();
        shared.extend(seeds.map(|seeds| plural(seeds, "training seed")));
        let least = rows.iter().map(|row| row.difference.n).min();
        let most = rows.iter().map(|row| row.difference.n).max();
        shared.extend(least.zip(most).map(|(least, most)| {
            if least == most {
                plural(most, pairs)
            } else {
                format!("{least} to {most} {pairs}s")
            }
        }));
        shared
    }

    /// The changes of some metrics: a row each, or a part each if there are further rows.
    fn table(&self, rows: &[Row], metrics: &[String]) -> Option<Table> {
        // A row without words of its own has those of its metric.
        let has_words = rows.iter().any(|row| !self.label(row).is_empty());
        let corner = if let ([only], true) = (metrics, has_words) { only.as_str() } else { "" };
        let mut table = ModelRows::new(corner, self.columns());
        for metric in metrics {
            let of_metric: Vec<&Row> = rows.iter().filter(|row| of_metric(row, metric)).collect();
            let labels = distinct(of_metric.iter().map(|row| self.label(row)));
            for label in labels {
                let words = if label.is_empty() { metric } else { &label };
                table.row(words, |column| {
                    let row = of_metric.iter().find(|row| self.label(row) == label && self.column(row) == *column);
                    row.map_or_else(Cell::none, |row| Cell { decided: decided(row), ..difference_cell(row) })
                });
            }
        }
        table.table("all")
    }
}
