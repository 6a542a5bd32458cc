//! Contribution map: the contribution of each key to a head's output.
//!
//! With weight a[t,s] and value v_s, key s contributes the part c = a[t,s] v_s to the mixture of row t. Its output is
//! u_s, and that of the whole mixture u. The contribution of s is ⟨u_s, u⟩ / ⟨u, u⟩: signed, summing to 1 over the keys
//! of a row, and over the keys of a region to the row's `share_out`. Unlike weights, it is small for keys whose value
//! is small or cancelled by others.

use crate::attention::AttentionRow;
use crate::measures::probe::Contribution;
use crate::model::{Agreement, Transformer};
use crate::prompts::Region;
use anyhow::Result;
use std::collections::BTreeMap;

/// The [`Agreement`] of each head, by layer and head. Empty for variants where it is unknown before a layer ends.
pub type Agreements = BTreeMap<(usize, usize), Agreement>;

/// Computes the [`Agreements`] of a model.
pub fn agreements(model: &Transformer) -> Result<Agreements> {
    let heads = model.config.wiring().heads();
    let all = (0..model.config.layers.len()).flat_map(|layer| (0..heads).map(move |head| (layer, head)));
    let mut agreements = Agreements::new();
    for (layer, head) in all {
        if let Some(agreement) = model.agreement(layer, head)? {
            agreements.insert((layer, head), agreement);
        }
    }
    Ok(agreements)
}

/// Contributions of all keys of a row: (query + 1).
pub(super) fn of_keys(row: &AttentionRow<'_>, agreement: &Agreement, into: &mut Vec<f32>) {
    let mut mixture = vec![0.0; row.values.width()];
    row.values.weigh(0, row.effective, &mut mixture);
    row.values.along(0, row.effective, &agreement.shares_of(&mixture), into);
}

/// `share_out` of the answer in the rows of one question. Equals that of [`RegionOutputs`](crate::measures::RegionOutputs),
/// except for variants with one norm over all heads, where the factor of each row counts as 1.
pub(super) fn answer_share(rows: &[Contribution], agreement: &Agreement) -> f64 {
    let (mut part, mut whole) = (0.0, 0.0);
    for row in rows {
        let (part_of_row, whole_of_row) = agreement.of(row.part(Region::Answer), &row.total());
        part += part_of_row;
        whole += whole_of_row;
    }
    part / whole
}
