//! The screen of `difftool ablate`: what it costs to hide keys, to take out heads, and which heads are the dearest.

use super::super::hidden::{nats, points, two_changes};
use super::changes::{condition_changes, heads_out_changes, Change, HeadsOut};
use super::each_head::{dearest_first, HeadCost, PREDICTORS};
use super::flow::{is_in_flow, FLOW};
use crate::results::difference::correct;
use crate::results::screen::{note_on_limits, ModelRows, Screen, ScreenTable};
use crate::results::table::{fixed, Cell, Table};
use crate::results::{of_model, under, Difference, Frame, RankedHead, Setting};
use names::condition::{ConditionFacts, Purpose};
use names::metric::ACCURACY;
use names::{distinct, HeadPlace};
use std::collections::BTreeMap;

/// Heads that are listed of each model.
const DEAREST: usize = 8;

/// What `difftool ablate` prints.
pub(super) fn screen(frame: &Frame) -> Screen {
    let mut changes = condition_changes(frame);
    changes.retain(|change| !is_in_flow(frame, change.condition));
    let (of_layers, others): (Vec<Change<'_>>, Vec<Change<'_>>) = changes.into_iter().partition(is_of_one_layer);
    let heads_out = heads_out(frame);
    let has_points = heads_out.is_some();
    let mut tables = Vec::new();
    tables.extend(conditions(frame, others).map(|table| ScreenTable::of_run("What conditions change", frame, table)));
    let has_both = !tables.is_empty();
    if let Some(table) = flow(frame) {
        let title = "Where the answer travels: nats by rows and silenced keys".to_owned();
        tables.push(ScreenTable { title, ..ScreenTable::below(table) });
    }
    for table in [heads_out, dearest(frame), predictors(frame)].into_iter().flatten() {
        tables.push(if tables.is_empty() {
            ScreenTable::of_run("Costs of heads", frame, table)
        } else {
            ScreenTable::below(table)
        });
    }
    let mut notes = Vec::new();
    if !tables.is_empty() {
        let units = match (has_both, has_points) {
            (true, _) => "Nats: of the answer's log-probability. Points: of accuracy.",
            (false, true) => "Points: of accuracy.",
            (false, false) => "Nats: of the answer's log-probability.",
        };
        notes.push(units.to_owned());
    }
    notes.extend(layers(&of_layers));
    notes.extend(ranked_heads(frame));
    notes.extend(note_on_limits(frame));
    Screen { tables, notes, ..Screen::default() }
}

/// Returns `true` if keys of one layer are hidden: of these the largest change is enough.
fn is_of_one_layer(change: &Change<'_>) -> bool {
    matches!(&change.condition.purpose, Purpose::Removed { layers: Some(layers), .. } if layers.len() == 1)
}

/// The change of the log-probability and that of the accuracy under each condition, below the accuracy of the untreated passes.
fn conditions(frame: &Frame, mut changes: Vec<Change<'_>>) -> Option<Table> {
    correct(changes.iter_mut().flat_map(|change| [&mut change.log_prob_nats, &mut change.exact]));
    let mut table = ModelRows::new("nats, points", &frame.models);
    add_untreated(&mut table, frame);
    for &setting in &frame.settings {
        let of_setting: Vec<&Change<'_>> = changes.iter().filter(|change| change.place.setting == setting).collect();
        for condition in with_controls(frame, &of_setting) {
            table.row(label(frame, setting, condition), |model| {
                let change =
                    of_setting.iter().find(|change| change.place.model == model && change.condition == condition);
                change.map_or_else(Cell::none, |change| {
                    let decided = [&change.log_prob_nats, &change.exact].map(Difference::is_decided);
                    two_changes(change.log_prob_nats.diff, Some(change.exact.diff), decided)
                })
            });
        }
    }
    table.table("conditions").filter(|_| !changes.is_empty())
}

/// The conditions of some changes, each followed by its controls.
fn with_controls<'a>(frame: &'a Frame, changes: &[&Change<'a>]) -> Vec<&'a ConditionFacts> {
    let is_there = |condition: &&ConditionFacts| changes.iter().any(|change| change.condition == *condition);
    let all: Vec<&ConditionFacts> = frame.conditions.0.iter().filter(is_there).collect();
    let has_above = |condition: &ConditionFacts| match &condition.purpose {
        Purpose::Control { of } => all.iter().any(|other| other.name == *of),
        _ => false,
    };
    let mut ordered = Vec::new();
    for condition in all.iter().copied().filter(|condition| !has_above(condition)) {
        ordered.push(condition);
        ordered.extend(frame.conditions.controls_of(&condition.name).into_iter().filter(is_there));
    }
    ordered
}

/// The condition in words, with the length where there are several settings; a control stands below what it is the control of.
fn label(frame: &Frame, setting: Setting, condition: &ConditionFacts) -> String {
    let words = match &condition.purpose {
        Purpose::Control { of } if frame.conditions.get(of).is_some() => "  as many random keys",
        _ => &condition.words,
    };
    match frame.settings.len() {
        0 | 1 => words.to_owned(),
        _ => format!("{words} ({}, {})", setting.ctx_tok, setting.name()),
    }
}

/// The table of rows and keys, without intervals.
fn flow(frame: &Frame) -> Option<Table> {
    let mut table = FLOW.filled(frame)?;
    for row in &mut table.rows {
        for (cell, _) in row.iter_mut().zip(&table.columns).filter(|(_, column)| !column.role.is_key()) {
            cell.text = cell.exact.map_or_else(|| cell.text.clone(), nats);
            cell.aside.clear();
        }
    }
    Some(Table { note: String::new(), ..table })
}

/// The accuracy of the untreated passes.
fn add_untreated(table: &mut ModelRows<'_>, frame: &Frame) {
    table.row("untreated", |model| {
        let accuracy = frame.estimate(ACCURACY.overall(), &[of_model(model), under(None)]);
        accuracy.map_or_else(Cell::none, |level| Cell {
            aside: format!("{:>3} %", fixed(100.0 * level.value, 0)),
            ..Cell::words("")
        })
    });
}

/// Changes of the accuracy without the best heads, those without random ones in brackets.
fn heads_out(frame: &Frame) -> Option<Table> {
    let mut changes = heads_out_changes(frame);
    correct(changes.iter_mut().map(|out| &mut out.best.exact));
    let name = |out: &HeadsOut<'_>| format!("{} best by {}", out.n, out.by);
    let mut table = ModelRows::new("heads out, points (random heads)", &frame.models);
    for wanted in distinct(changes.iter().map(name)) {
        table.row(&wanted, |model| {
            let out = changes.iter().find(|out| out.best.place.model == model && name(out) == wanted);
            out.map_or_else(Cell::none, |out| Cell {
                aside: out.random.as_ref().map_or(String::new(), |random| format!("({})", points(random.exact.diff))),
                number_decided: out.best.exact.is_decided(),
                ..Cell::words(points(out.best.exact.diff))
            })
        });
    }
    table.table("heads-out")
}

/// Least agreement of two halves of the prompts on which heads are ranked: below it, a ranking names nobody.
const LEAST_AGREEMENT: f64 = 0.3;

/// Heads of a ranking that are named, at most.
const NAMED: usize = 4;

/// The best heads of each model, and how far two halves of the prompts on which they were ranked agree, in a sentence for each ranking.
fn ranked_heads(frame: &Frame) -> Vec<String> {
    let mut sentences = Vec::new();
    for ranking in distinct(frame.found.ranked.iter().map(|head| head.ranking.as_str())) {
        let mut of_models = Vec::new();
        for model in &frame.models {
            let heads = frame.found.ranked.iter().filter(|head| head.ranking == ranking && head.model == *model);
            let best: Vec<&RankedHead> = heads.take(NAMED).collect();
            let Some(first) = best.first() else { continue };
            let agreement = first.agreement.unwrap_or(f64::NAN);
            let named: Vec<String> =
                best.iter().map(|head| HeadPlace { layer: head.layer, head: head.head }.to_string()).collect();
            let name = frame.short_name(model);
            of_models.push(if agreement >= LEAST_AGREEMENT {
                format!("{name} {} ({agreement:.2})", named.join(" "))
            } else {
                format!("{name} none, as halves do not agree ({agreement:.2})")
            });
        }
        sentences.push(format!(
            "Best by {ranking} on other prompts (correlation of their halves): {}.",
            of_models.join("; ")
        ));
    }
    sentences
}

/// The heads that change the log-probability most, with their changes in nats.
fn dearest(frame: &Frame) -> Option<Table> {
    let corner = if frame.conditions.restores() { "carries most, nats" } else { "dearest heads, nats" };
    let costs: BTreeMap<&String, Vec<HeadCost>> =
        frame.models.iter().map(|model| (model, dearest_first(frame, model))).collect();
    let mut table = ModelRows::new(corner, &frame.models);
    for place in 0..DEAREST {
        table.row(format!("{}.", place + 1), |model| {
            costs[model].get(place).map_or_else(Cell::none, |cost| {
                let decided = cost.interval.is_some_and(|interval| interval.side() != 0);
                Cell { aside: format!("({:+.2})", cost.change()), decided, ..Cell::words(cost.at.to_string()) }
            })
        });
    }
    table.table("each-head")
}

/// How well other measurements of heads rank their costs.
fn predictors(frame: &Frame) -> Option<Table> {
    let table = PREDICTORS.filled(frame)?;
    let measured = table.place("measured")?;
    let correlation = table.place("rank_correlation")?;
    let mut ranked = ModelRows::new("rank correlation with the cost on other prompts", &frame.models);
    for wanted in distinct(table.rows.iter().map(|row| &row[measured].text)) {
        ranked.row(&wanted, |model| {
            let row = table.rows.iter().find(|row| row[0].text == *model && row[measured].text == wanted);
            row.map_or_else(Cell::none, |row| row[correlation].clone())
        });
    }
    ranked.table("predictors")
}

/// The largest change by hiding keys in one layer, in a sentence.
fn layers(changes: &[Change<'_>]) -> Option<String> {
    let largest = changes.iter().map(|change| change.log_prob_nats.diff.abs()).reduce(f64::max)?;
    Some(format!("Noise hidden in one layer at a time: at most {largest:.2} nats (--tables conditions)."))
}
