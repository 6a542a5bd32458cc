//! What each key gives a head's output: the contribution map.
//!
//! With weight a[t,s] and value v_s, key s gives the mixture of row t the part c = a[t,s] v_s, which is written as u_s; all
//! of them together as u. The contribution of s is ⟨u_s, u⟩ / ⟨u, u⟩: signed, sums to 1 over the keys of a row, and over
//! the keys of a region to `share_out` of that row. It sees what the weights do not: a key with a small value, or one whose
//! value is cancelled by others, contributes little however much it is attended to.

use crate::attention::Row;
use crate::model::{Agreement, Transformer};
use crate::probe::Contribution;
use crate::prompt::Region;
use anyhow::Result;
use std::collections::BTreeMap;

/// What parts of the heads' mixtures have in common, by layer and head; empty where that is not known before a layer ends.
pub type Agreements = BTreeMap<(usize, usize), Agreement>;

/// Those of all heads of a model.
///
/// # Errors
/// If a weight is not `f32` on the CPU.
pub fn agreements(model: &Transformer) -> Result<Agreements> {
    let heads = model.config.wiring().heads();
    let all = (0..model.config.layers.len()).flat_map(|layer| (0..heads).map(move |head| (layer, head)));
    let found = |at: (usize, usize)| Ok(model.agreement(at.0, at.1)?.map(|found| (at, found)));
    all.filter_map(|at| found(at).transpose()).collect()
}

/// The contributions of all keys of a row: (query + 1).
pub(super) fn of_keys(row: &Row<'_>, agreement: &Agreement, into: &mut Vec<f32>) {
    let mut mixture = vec![0.0; row.values.width()];
    row.values.weigh(0, row.effective, &mut mixture);
    row.values.along(0, row.effective, &agreement.shares_of(&mixture), into);
}

/// `share_out` of the answer in the rows of one question: as [`Written`](crate::measure::Written) has it, but for variants
/// with one norm over all heads, where each row counts as if its factor were 1.
pub(super) fn answer_share(rows: &[Contribution], agreement: &Agreement) -> f64 {
    let of = |row: &Contribution| agreement.of(row.part(Region::Answer), &row.total());
    let (part, whole) = rows.iter().map(of).fold((0.0, 0.0), |sum, x| (sum.0 + x.0, sum.1 + x.1));
    part / whole
}
