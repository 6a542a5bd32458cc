//! What hiding regions costs, as screens show it.

use crate::figures::{Panel, RunFigure, View};
use crate::results::run_table::RunTable;
use crate::results::screen::{ModelRows, ScreenTable};
use crate::results::table::{key_column, numbers_of, unsigned_zero, words, Cell, Table, TableRows};
use crate::results::{of_model, under, Estimate, Frame, Setting, Verdict};
use names::metric::{ACCURACY, HIDDEN_ACCURACY, HIDDEN_LOG_PROB, NOISE_REGION};
use names::Column;

/// The regions, and what rows call them: noise, and below it its parts.
const ROWS: [(&str, &str); 3] = [(NOISE_REGION, "noise"), ("distractor", "other needles"), ("filler", "prose")];

/// A forest of the changes by hidden region.
pub(super) const HIDDEN_FOREST: RunFigure = RunFigure {
    file: "hidden",
    title: "What hiding a part of the prompt changes",
    subtitle: "hidden from the rows that predict the answer; whiskers: 95 % intervals",
    pooling: "mean over prompts, paired with the untreated passes",
    table: &RunTable::made("", "", drawn),
    view: View::Forest {
        down: HIDDEN,
        panels: &[
            Panel::titled("log-probability of the answer", &[HIDDEN_LOG_PROB.name]),
            Panel::titled(ACCURACY.label, &[HIDDEN_ACCURACY.name]),
        ],
        x_label: "difference from the untreated passes",
    },
};

/// The changes that the screen has, as a table.
fn drawn(frame: &Frame) -> Option<Table> {
    let changes = changes(frame);
    let [of_log_prob, of_accuracy] = [HIDDEN_LOG_PROB.overall(), HIDDEN_ACCURACY.overall()];
    TableRows::of(&changes)
        .column(words(HIDDEN).key(), |change| Cell::words(&change.label))
        .column(key_column(Column::Model), |change| Cell::words(change.model))
        .column(numbers_of(of_log_prob.label()).named(HIDDEN_LOG_PROB.name), |change| {
            Cell::change(HIDDEN_LOG_PROB.kind, change.log_prob_nats)
        })
        .column(numbers_of(of_accuracy.label()).named(HIDDEN_ACCURACY.name), |change| {
            Cell::change(HIDDEN_ACCURACY.kind, change.accuracy)
        })
        .noted("")
        .with_rows()
}

/// The column of what is hidden.
const HIDDEN: &str = "hidden";

/// The sentence on the table, where there is one.
pub(super) fn note_on_hidden(frame: &Frame) -> Option<String> {
    let note =
        "Hidden from the rows of the answer: what it changes in each model, of the log-probability and of accuracy.";
    frame.has(HIDDEN_LOG_PROB.name).then(|| note.to_owned())
}

/// `+0.9`, never `-0.0`.
pub(super) fn nats(change: f64) -> String {
    format!("{:+.1}", unsigned_zero(change, 1))
}

/// A change of the accuracy: `+8`.
pub(super) fn points(change: f64) -> String {
    format!("{:+.0}", unsigned_zero(100.0 * change, 0))
}

/// Two changes, each with the star of its own test: `+0.9*  +8*`.
pub(super) fn two_changes(nats_change: f64, points_change: Option<f64>, decided: [bool; 2]) -> Cell {
    let [number_decided, of_points] = decided;
    let width = if number_decided { 4 } else { 5 };
    Cell {
        aside: points_change.map_or(String::new(), |change| format!("{:>width$}", points(change))),
        decided: of_points,
        number_decided,
        ..Cell::words(nats(nats_change))
    }
}

/// What hiding a region from the rows of the answer changes in a model.
struct Change<'a> {
    label: String,
    /// `true` if its region is a part of noise.
    is_part: bool,
    model: &'a str,
    log_prob_nats: Estimate,
    accuracy: Option<Estimate>,
}

/// The changes, a row for each region; of several settings, only those without noise.
pub(super) fn hidden(frame: &Frame) -> Option<ScreenTable> {
    let changes = changes(frame);
    let of_accuracy = changes.iter().map(|change| change.accuracy.unwrap_or(change.log_prob_nats));
    let all: Vec<Estimate> = changes.iter().map(|change| change.log_prob_nats).chain(of_accuracy).collect();
    let decided: Vec<bool> = Verdict::of_table(&all).into_iter().map(|verdict| verdict != Verdict::Undecided).collect();
    let (of_nats, of_points) = decided.split_at(changes.len());
    if frame.settings.len() == 1 {
        return with_intervals(frame, &changes, of_nats, of_points);
    }
    let mut rows: Vec<(&str, bool)> = changes.iter().map(|change| (change.label.as_str(), change.is_part)).collect();
    rows.dedup();
    let mut table = ModelRows::new("hidden: nats, points", &frame.models);
    for (row, is_part) in rows {
        table.row(if is_part { format!("  {row}") } else { row.to_owned() }, |model| {
            let at = changes.iter().position(|change| change.label == row && change.model == model);
            at.map_or_else(Cell::none, |at| changes[at].cell([of_nats[at], of_points[at]]))
        });
    }
    table.table("hidden").map(ScreenTable::below)
}

/// The changes of one setting: two rows for each region, with intervals.
fn with_intervals(frame: &Frame, changes: &[Change<'_>], of_nats: &[bool], of_points: &[bool]) -> Option<ScreenTable> {
    let mut table = ModelRows::new("hidden", &frame.models);
    let mut labels: Vec<&str> = changes.iter().map(|change| change.label.as_str()).collect();
    labels.dedup();
    for label in labels {
        let at = |model: &String| changes.iter().position(|change| change.label == label && change.model == model);
        table.row(format!("{label}, nats"), |model| {
            at(model).map_or_else(Cell::none, |at| {
                let change = changes[at].log_prob_nats;
                Cell { decided: of_nats[at], ..Cell::number_in(change.value, change.interval, nats) }
            })
        });
        table.row("  points", |model| {
            at(model).and_then(|at| Some((at, changes[at].accuracy?))).map_or_else(Cell::none, |(at, change)| Cell {
                decided: of_points[at],
                ..Cell::number_in(change.value, change.interval, points)
            })
        });
    }
    table.table("hidden").map(ScreenTable::below)
}

fn changes(frame: &Frame) -> Vec<Change<'_>> {
    let is_several = frame.settings.len() > 1;
    let mut changes = Vec::new();
    for &setting in &frame.settings {
        for &(region, words) in if is_several { &ROWS[..1] } else { &ROWS } {
            let label = if is_several { in_setting(words, setting) } else { words.to_owned() };
            for model in &frame.models {
                let only = [&setting.cuts()[..], &[of_model(model), under(None)]].concat();
                let Some(log_prob_nats) = frame.estimate(HIDDEN_LOG_PROB.of(region), &only) else { continue };
                let accuracy = frame.estimate(HIDDEN_ACCURACY.of(region), &only);
                let is_part = region != NOISE_REGION;
                changes.push(Change { label: label.clone(), is_part, model, log_prob_nats, accuracy });
            }
        }
    }
    changes
}

fn in_setting(words: &str, setting: Setting) -> String {
    format!("{words} ({}, {})", setting.ctx_tok, setting.name())
}

impl Change<'_> {
    fn cell(&self, decided: [bool; 2]) -> Cell {
        let has_accuracy = self.accuracy.is_some();
        let points_change = self.accuracy.map(|change| change.value);
        two_changes(self.log_prob_nats.value, points_change, [decided[0], decided[1] && has_accuracy])
    }
}
