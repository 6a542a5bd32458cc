//! The heads that attend most to the answer.

use super::sheet::{numbers, words, Cell, Kind, Sheet};
use crate::frame::Frame;
use crate::stats::{bootstrap_mean, mean, rank_stability, RESAMPLES};

/// Heads listed of each model, unless somebody says how many.
const TOP: usize = 8;

/// The table, if single heads were measured without treatment.
pub(super) fn sheet(frame: &Frame) -> Option<Sheet> {
    let asked = frame.config("top").and_then(serde_json::Value::as_u64);
    let top = asked.map_or(TOP, |top| usize::try_from(top).unwrap_or(usize::MAX));
    if !frame.asks() || top == 0 {
        return None;
    }
    let rows = frame.models().iter().flat_map(|model| top_heads(frame, model, top)).collect();
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

fn top_heads(frame: &Frame, model: &str, top: usize) -> Vec<Vec<Cell>> {
    let (heads, seed) = (frame.heads(model, frame.headline(), Some("answer")), frame.about.seed);
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let stability = rank_stability(&values, top, RESAMPLES, seed);
    let mut found: Vec<_> = heads.into_iter().zip(stability).filter_map(|(h, s)| Some((mean(&h.1)?, h, s))).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(top);
    let row = |(share, ((layer, head), values), in_top): (f64, ((usize, usize), Vec<f64>), f64)| {
        let several = values.len() > 1;
        let interval = bootstrap_mean(&values, RESAMPLES, seed).filter(|_| several);
        vec![
            Cell::words(model),
            Cell::count(Some(layer)),
            Cell::count(Some(head)),
            Cell::count(Some(values.len())),
            Cell::estimate(Kind::Share, share, interval),
            Cell::number(Some(in_top).filter(|_| several), |x| format!("{:.0}", 100.0 * x)),
        ]
    };
    found.into_iter().map(row).collect()
}
