//! Output of each head, by region of the prompt. Output of all heads of a layer: [`super::layer_output`].
//!
//! The part c_R of a row's mixture that comes from region R goes through the head norm, with the row's factor and gain,
//! and the head's columns of W_O to u_R. The head writes u = Σ_R u_R. Then
//!
//! * share_out\[R\] = Σ_t ⟨u_R, u⟩ / Σ_t ⟨u, u⟩ over the rows t of one answer: signed, sums to 1, the same for a row and
//!   its negative. It is the projection of a part on the whole (the alignment of Mickus et al. 2022 and Kobayashi et al.
//!   2020, for a partition);
//! * logit_out\[R\], the mean over rows of the direct effect on the logit of the right next token, less the mean logit:
//!   (unembedding row - mean row) through the final norm, as it was in that row, times u_R. Parts sum to the direct
//!   effect of the whole head (direct logit attribution, Elhage et al. 2021).

use super::layer_output::LayerSums;
use crate::attention::Trace;
use crate::measures::probe::Contribution;
use crate::model::{Readout, Transformer};
use crate::prompts::Region;
use anyhow::Result;

const REGIONS: usize = Region::ALL.len();

/// Output of one head in the rows of one answer, by region in the order of [`Region::ALL`].
#[derive(Clone, Debug, PartialEq)]
pub struct RegionOutputs {
    /// ⟨u_R, u⟩ / ⟨u, u⟩; NaN if the head's output is 0.
    pub share_out: [f64; REGIONS],
    /// Direct effect on the logit of the right next token less the mean logit; `None` if the path to the logits is not
    /// linear or there is no next token.
    pub logit_out: Option<[f64; REGIONS]>,
}

impl RegionOutputs {
    /// Computes the output of a head from its rows, and adds it to that of its layer. `readouts` has, for each row, the
    /// path to the logit of the next token.
    ///
    /// # Errors
    /// If a row was not traced.
    pub fn of(
        model: &Transformer,
        trace: &Trace,
        (layer, head): (usize, usize),
        rows: &[Contribution],
        readouts: &[Option<Readout<'_>>],
        of_layer: &mut LayerSums,
    ) -> Result<Self> {
        let (mut inner, mut whole) = ([0.0; REGIONS], 0.0);
        let (mut logit_out, mut followed) = ([0.0; REGIONS], 0);
        for (row, readout) in rows.iter().zip(readouts) {
            let output = model.head_output(layer, head, row.query, trace)?;
            let written = output.write(row.parts())?; // regions,E
            of_layer.add(row.query, &written);
            let parts: Vec<&[f32]> = written.chunks_exact(written.len() / REGIONS).collect();
            let total = sum(&parts); // E
            inner.iter_mut().zip(&parts).for_each(|(inner, part)| *inner += dot(part, &total));
            whole += total.iter().map(|x| x * x).sum::<f64>();
            if let Some(readout) = readout {
                let pulled = output.pull_back(&readout.of_attention(layer)?)?; // value width
                for region in Region::ALL {
                    let effect: f64 = row.part(region).iter().zip(&pulled).map(|(c, z)| c * z).sum();
                    logit_out[region as usize] += effect;
                }
                followed += 1;
            }
        }
        Ok(Self {
            share_out: inner.map(|inner| inner / whole),
            logit_out: (followed > 0).then(|| logit_out.map(|sum| sum / f64::from(followed))),
        })
    }
}

/// Returns, for each row, the path to the logit of the token that follows it in `ids`.
///
/// # Errors
/// If a row was not traced.
pub fn readouts<'a>(
    model: &'a Transformer,
    trace: &'a Trace,
    ids: &[u32],
    rows: impl Iterator<Item = usize>,
) -> Result<Vec<Option<Readout<'a>>>> {
    let of = |row: usize| match ids.get(row + 1) {
        Some(&next) => model.readout(row, next, trace),
        None => Ok(None),
    };
    rows.map(of).collect()
}

/// Returns the sum of vectors of equal length.
fn sum(parts: &[&[f32]]) -> Vec<f64> {
    (0..parts[0].len()).map(|i| parts.iter().map(|part| f64::from(part[i])).sum()).collect()
}

fn dot(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(&a, b)| f64::from(a) * b).sum()
}
