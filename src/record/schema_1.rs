//! Schema 1, which lacked the columns `placed` and `condition`; both follow from the other columns.

use super::{Identity, Record};
use crate::treatment;
use std::collections::HashMap;
use std::sync::Arc;

/// Columns added in schema 2.
const NEW: [&str; 2] = ["placed", "condition"];

/// Returns the columns of schema 1, in order.
pub(super) fn columns() -> Vec<String> {
    super::columns().into_iter().filter(|column| !NEW.contains(&column.as_str())).collect()
}

/// Returns a row of schema 1 with missing values in the new columns.
pub(super) fn widened(row: &csv::StringRecord) -> csv::StringRecord {
    let mut fields = row.iter();
    let of = |column: String| if NEW.contains(&column.as_str()) { "" } else { fields.next().unwrap_or_default() };
    let mut wide: csv::StringRecord = super::columns().into_iter().map(of).collect();
    wide.set_position(row.position().cloned());
    wide
}

/// The fields that identify a prompt.
#[derive(PartialEq, Eq, Hash)]
struct PromptColumns {
    model: String,
    task: String,
    ctx_tok: usize,
    needles: [Option<usize>; 2],
    depth_req: Option<u64>,
    cities: Option<String>,
    of: [Option<u64>; 2],
}

impl PromptColumns {
    fn of(id: &Identity) -> Self {
        Self {
            model: id.model.clone(),
            task: id.task.clone(),
            ctx_tok: id.ctx_tok,
            needles: [id.needles, id.retrieve],
            depth_req: id.depth_req_pct.map(f64::to_bits),
            cities: id.cities.as_deref().map(str::to_owned),
            of: [id.sample, id.seed],
        }
    }
}

/// Returns the distance of a question's needle from the requested depth, in percent, and the question; `None` for a
/// whole prompt.
fn depth_error(id: &Identity) -> Option<(f64, usize)> {
    Some(((id.depth_req_pct? - id.depth_real_pct?).abs(), id.query?))
}

/// Fills the new columns. The only treatment of schema 1 was quantisation, and the placed needle is the one nearest to
/// the requested depth, the first of equally near ones.
pub(super) fn derive(records: &mut [Record]) {
    let mut nearest: HashMap<PromptColumns, (f64, usize)> = HashMap::new();
    for alike in records.chunk_by(|a, b| Arc::ptr_eq(&a.identity, &b.identity)) {
        let id = &*alike[0].identity;
        let Some(found) = depth_error(id) else { continue };
        let best = nearest.entry(PromptColumns::of(id)).or_insert(found);
        if found < *best {
            *best = found;
        }
    }
    for alike in records.chunk_by_mut(|a, b| Arc::ptr_eq(&a.identity, &b.identity)) {
        let mut id = (*alike[0].identity).clone();
        id.placed = depth_error(&id).map(|(_, query)| nearest[&PromptColumns::of(&id)].1 == query);
        id.condition = treatment::of_columns(id.bits, id.scope.as_deref()).map(Into::into);
        let id = Arc::new(id);
        alike.iter_mut().for_each(|record| record.identity = id.clone());
    }
}
