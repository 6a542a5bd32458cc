//! The heads that attend most to the answer.

use super::data::{Condition, Data};
use super::sheet::{numbers, words, Cell, Kind, Sheet};
use crate::stats::{bootstrap_mean, mean, RESAMPLES};

/// Heads listed of each model.
const TOP: usize = 8;

/// The table, if single heads were measured without quantisation.
pub(super) fn sheet(data: &Data<'_>) -> Option<Sheet> {
    let asked = data.settings.iter().any(|setting| setting.1 > 0);
    if !asked || !data.conditions.contains(&Condition::default()) {
        return None;
    }
    let rows = data.models.iter().flat_map(|model| top(data, model)).collect();
    let columns = vec![words("model"), numbers("layer"), numbers("head"), numbers("prompts"), numbers("answer %")];
    let share = if data.headline == "share_out" { "its share of what they write" } else { "share of |attention|" };
    let note = format!(
        "The {TOP} heads of each model that attend most to the answer: {share}, mean over all prompts [95 % bootstrap \
         interval]."
    );
    Sheet { id: "heads", title: "Heads", note, columns, rows, detail: true }.trimmed()
}

fn top(data: &Data<'_>, model: &str) -> Vec<Vec<Cell>> {
    let heads = data.summary.heads(model, (data.headline, Some("answer")));
    let mut heads: Vec<_> = heads.into_iter().filter_map(|(at, values)| Some((mean(&values)?, at, values))).collect();
    heads.sort_by(|a, b| b.0.total_cmp(&a.0));
    heads.truncate(TOP);
    let row = |(share, (layer, head), values): (f64, (usize, usize), Vec<f64>)| {
        let interval = bootstrap_mean(&values, RESAMPLES, data.seed).filter(|_| values.len() > 1);
        let place =
            [Cell::words(model), Cell::count(Some(layer)), Cell::count(Some(head)), Cell::count(Some(values.len()))];
        [place.to_vec(), vec![Cell::estimate(Kind::Share, share, interval)]].concat()
    };
    heads.into_iter().map(row).collect()
}
