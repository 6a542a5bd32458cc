//! The heads that attend most to the answer.

use super::sheet::{numbers, words, Cell, Kind, Sheet};
use super::strongest::{listed, strongest, Strong};
use crate::frame::Frame;

/// Heads listed of each model, unless somebody says how many.
const TOP: usize = 8;

/// The table, if single heads were measured without treatment.
pub(super) fn sheet(frame: &Frame) -> Option<Sheet> {
    let top = listed(frame, TOP);
    if !frame.asks() || top == 0 {
        return None;
    }
    let answer = (frame.headline(), Some("answer"));
    let of = |model: &String| strongest(frame, model, answer, top).map(|head| row(model, &head)).collect::<Vec<_>>();
    let rows = frame.models().iter().flat_map(of).collect();
    let columns = vec![
        words("model").key(),
        numbers("layer").key(),
        numbers("head").key(),
        numbers("prompts").key(),
        numbers("answer %").named(format!("{}[answer]", frame.headline())),
        numbers("stable %").named("in_top"),
    ];
    let share = if frame.headline() == "share_out" { "its share of what they write" } else { "share of |attention|" };
    let note = format!(
        "The {top} heads of each model that attend most to the answer: {share}, mean over all prompts [95 % bootstrap \
         interval]; stable: how often they are among these when prompts are drawn anew."
    );
    Sheet::new("heads", "Heads", note, columns, rows).details().trimmed()
}

fn row(model: &str, head: &Strong) -> Vec<Cell> {
    let (layer, index) = head.at;
    let [prompts, share, stable] = head.cells(Kind::Share);
    vec![Cell::words(model), Cell::count(Some(layer)), Cell::count(Some(index)), prompts, share, stable]
}
