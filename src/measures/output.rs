//! Output of heads and layers, by region of the prompt.
//!
//! In row t of a head with mixture weights a and values v, region R contributes c_R = Σ_{s in R} a[t,s] v[s], and the
//! head's mixture is o = Σ_R c_R. This is the decomposition of Kobayashi et al. (2020, "Attention is not only a
//! weight"), summed by region.
//!
//! The part c_R goes through the head norm, with the row's factor and gain, and the head's columns of W_O to u_R. The head
//! writes u = Σ_R u_R. Then
//!
//! * share_out\[R\] = Σ_t ⟨u_R, u⟩ / Σ_t ⟨u, u⟩ over the rows t of one answer: signed, sums to 1, the same for a row and
//!   its negative. It is the projection of a part on the whole (the alignment of Mickus et al. 2022 and Kobayashi et al.
//!   2020, for a partition).
//!
//! With u_{R,h} the output of head h that comes from region R, a layer adds u = Σ_h Σ_R u_{R,h} to the residual stream x in
//! a row. Where a family has a norm after attention, u_{R,h} has gone through it with the factor of the row. Over the rows t
//! of one answer, for a layer l:
//!
//! * s_l\[R\] = Σ_t ⟨Σ_h u_{R,h}, u⟩ / Σ_t ⟨u, u⟩, which sums to 1 over the regions. Heads count by what they write, and
//!   what one head writes against another counts as little as it adds;
//! * w_l = Σ_t ⟨u, u⟩ / Σ_t (⟨x, x⟩ + ⟨u, u⟩), between 0 and 1. Residual streams grow from layer to layer, and the norms of
//!   later layers divide what was written by their size: ⟨u, u⟩ alone would weigh the last layers most. ⟨u, u⟩ / ⟨x, x⟩ has
//!   no limit, and would weigh the first layer most, which is added to small embeddings;
//! * share_out\[R\] = Σ_l w_l s_l\[R\] / Σ_l w_l.
//!
//! Only measured heads count. Biases belong to no region and are left out.
//!
//! Sinks are known only after all rows of a head, when values are gone. To tell their part, the probe can keep the
//! contributions of single keys of noise that have at least 1/32 of a row's |a|, of which there are at most 32.

use super::target::TargetSummary;
use anyhow::{Context, Result};
use engine::attention::{AttentionRow, Trace};
use engine::model::Transformer;
use names::Region;
use stats::simd::sum_magnitudes;
use std::collections::BTreeMap;
use std::ops::Range;

const REGIONS: usize = Region::ALL.len();

/// Largest number of keys of a row that are kept one by one: those with at least this part of its |a|.
const STRONG_KEYS: usize = 32;

/// Contributions to the rows of one target of one head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contributions {
    /// `true` to keep single keys of noise with much weight: [`Contribution::strong_keys`].
    pub(super) with_strong_keys: bool,
    /// In the order of queries.
    pub rows: Vec<Contribution>,
}

/// Contributions of the regions to one row of one head.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// Position of the query token.
    pub(super) query: usize,
    /// c_R of each region in the order of [`Region::ALL`]: (regions, value width).
    parts: Vec<f64>,
    /// Keys of noise with at least 1/32 of the row's |a|, ascending. Empty unless they are asked for.
    strong_keys: Vec<StrongKey>,
}

/// A key with much weight in a row.
#[derive(Clone, Debug, PartialEq)]
struct StrongKey {
    /// Its position.
    key: usize,
    /// Its contribution a\[t,s\] v\[s\]: (value width).
    part: Vec<f64>,
}

impl TargetSummary for Contributions {
    fn add(&mut self, row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]) {
        let width = row.values.width();
        let mut parts = vec![0.0; REGIONS * width];
        for (region, keys) in regions {
            let visible = visible(row, keys);
            if !visible.is_empty() {
                let sum = &mut parts[*region as usize * width..][..width];
                row.values.weigh(visible.start, &row.effective[visible], sum);
            }
        }
        let strong_keys = if self.with_strong_keys { strong_keys(row, regions) } else { Vec::new() };
        self.rows.push(Contribution { query: row.query, parts, strong_keys });
    }

    fn merge(&mut self, later: Self) {
        self.rows.extend(later.rows);
    }
}

/// The keys of a range that a row sees.
fn visible(row: &AttentionRow<'_>, keys: &Range<usize>) -> Range<usize> {
    keys.start.max(row.first_visible)..keys.end.min(row.effective.len())
}

/// The strong keys of noise of a row.
fn strong_keys(row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]) -> Vec<StrongKey> {
    let least = (sum_magnitudes(row.effective) / STRONG_KEYS as f64) as f32;
    let mut strong_keys = Vec::new();
    for (_, keys) in regions.iter().filter(|(region, _)| Region::NOISE.contains(region)) {
        for key in visible(row, keys) {
            let weight = row.effective[key];
            if weight != 0.0 && weight.abs() >= least {
                let mut part = vec![0.0; row.values.width()];
                row.values.weigh(key, &[weight], &mut part);
                strong_keys.push(StrongKey { key, part });
            }
        }
    }
    strong_keys
}

impl Contribution {
    /// C_R: (value width).
    pub(crate) fn part(&self, region: Region) -> &[f64] {
        let width = self.parts.len() / REGIONS;
        &self.parts[region as usize * width..][..width]
    }

    /// O, the sum over regions: (value width).
    pub fn total(&self) -> Vec<f64> {
        let width = self.parts.len() / REGIONS;
        (0..width).map(|channel| self.parts.iter().skip(channel).step_by(width).sum()).collect()
    }
}

/// Output of the heads of one layer in the rows of one answer, as it is added up.
pub struct LayerSums<'a> {
    model: &'a Transformer,
    trace: &'a Trace,
    layer: usize,
    /// Σ_h u_{R,h} before the norm after attention, by row: (regions, E).
    written: BTreeMap<usize, Vec<f64>>,
    /// The part of it that comes from detected sinks in noise, by row: (E). Without rows where there are none.
    sinks: BTreeMap<usize, Vec<f64>>,
}

impl<'a> LayerSums<'a> {
    /// Creates empty sums of a layer.
    pub fn new(model: &'a Transformer, trace: &'a Trace, layer: usize) -> Self {
        Self { model, trace, layer, written: BTreeMap::new(), sinks: BTreeMap::new() }
    }

    /// Computes the output of a head from its rows, and adds it. Returns ⟨u_R, u⟩ / ⟨u, u⟩ in the order of [`Region::ALL`]; NaN if the
    /// head's output is 0.
    ///
    /// # Errors
    /// If a row was not traced.
    pub fn add_head(&mut self, head: usize, rows: &[Contribution]) -> Result<[f64; REGIONS]> {
        let mut inner = [0.0; REGIONS];
        let mut whole = 0.0;
        for row in rows {
            let output = self.model.head_output(self.layer, head, row.query, self.trace)?;
            let written = output.write(&row.parts)?; // regions,E
            add(self.written.entry(row.query).or_default(), &written);
            let parts: Vec<&[f32]> = written.chunks_exact(written.len() / REGIONS).collect();
            let total = sum(&parts); // E
            inner.iter_mut().zip(&parts).for_each(|(inner, part)| *inner += dot(part, &total));
            whole += total.iter().map(|x| x * x).sum::<f64>();
        }
        Ok(inner.map(|inner| inner / whole))
    }

    /// Adds what comes from `sinks`, the detected sinks of a head, as far as they are strong keys of noise.
    ///
    /// # Errors
    /// If a row was not traced.
    pub(super) fn add_sinks(&mut self, head: usize, rows: &[Contribution], sinks: &[usize]) -> Result<()> {
        for row in rows {
            let strong = row.strong_keys.iter().filter(|strong| sinks.contains(&strong.key));
            let parts: Vec<&[f64]> = strong.map(|strong| strong.part.as_slice()).collect();
            if !parts.is_empty() {
                let output = self.model.head_output(self.layer, head, row.query, self.trace)?;
                let written = output.write(&sum(&parts))?; // E
                add(self.sinks.entry(row.query).or_default(), &written);
            }
        }
        Ok(())
    }

    /// Computes the output of the layer from these sums.
    ///
    /// # Errors
    /// If a row was not traced.
    pub fn finish(mut self) -> Result<LayerOutput> {
        let mut inner = [0.0; REGIONS];
        let mut sinks = 0.0;
        let mut square = 0.0;
        let mut residual = 0.0;
        for (&row, written) in &mut self.written {
            self.model.norm_after_attention(self.layer, row, self.trace, written)?;
            let parts: Vec<&[f64]> = written.chunks_exact(written.len() / REGIONS).collect();
            let whole = sum(&parts); // E
            inner.iter_mut().zip(&parts).for_each(|(inner, part)| *inner += dot(part, &whole));
            if let Some(part) = self.sinks.get_mut(&row) {
                self.model.norm_after_attention(self.layer, row, self.trace, part)?;
                sinks += dot(part, &whole);
            }
            square += dot(&whole, &whole);
            residual += self.trace.residual_square(self.layer, row).context("the row was not traced")?;
        }
        Ok(LayerOutput {
            share_out: inner.map(|inner| inner / square),
            noise_sinks: sinks / square,
            weight: square / (residual + square),
        })
    }
}

/// Adds `other` to `sum`, which is empty or as long.
fn add(sum: &mut Vec<f64>, other: &[f32]) {
    sum.resize(other.len(), 0.0);
    sum.iter_mut().zip(other).for_each(|(sum, &x)| *sum += f64::from(x));
}

/// The sum of vectors of equal length.
fn sum<T: Copy>(parts: &[&[T]]) -> Vec<f64>
where
    f64: From<T>,
{
    (0..parts[0].len()).map(|i| parts.iter().map(|part| f64::from(part[i])).sum()).collect()
}

fn dot<T: Copy>(a: &[T], b: &[f64]) -> f64
where
    f64: From<T>,
{
    a.iter().zip(b).map(|(&a, b)| f64::from(a) * b).sum()
}

/// Output of the heads of one layer in the rows of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerOutput {
    /// s_l of each region in the order of [`Region::ALL`]; NaN if the output is 0.
    pub share_out: [f64; REGIONS],
    /// The part of it that comes from detected sinks in noise.
    pub(super) noise_sinks: f64,
    /// w_l: the square of the output over the sum of it and that of the residual stream that it is added to.
    pub weight: f64,
}

impl LayerOutput {
    /// S_l of noise.
    pub(super) fn noise_out(&self) -> f64 {
        sum_of_noise(&self.share_out)
    }
}

/// The sum over the regions of noise.
pub(super) fn sum_of_noise(by_region: &[f64; REGIONS]) -> f64 {
    Region::NOISE.iter().map(|&region| by_region[region as usize]).sum()
}

/// The mean of a share over layers, weighted by w_l; NaN if nothing is written. Layers that write nothing have no
/// share.
pub fn mean_over_layers(layers: &[LayerOutput], share: impl Fn(&LayerOutput) -> f64) -> f64 {
    let writing = layers.iter().filter(|layer| layer.weight.is_finite() && layer.weight > 0.0);
    let whole: f64 = writing.clone().map(|layer| layer.weight).sum();
    writing.map(|layer| layer.weight * share(layer)).sum::<f64>() / whole
}

#[cfg(test)]
mod tests {
    use super::super::target::{TargetCollector, TargetProbe};
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;
    use text::TargetRows;

    /// Contributions that a probe of one target collects from rows, which are passed to it in blocks.
    fn contributions(target: &TargetRows, with_strong_keys: bool, rows: &[TestRow], block: usize) -> Vec<Contribution> {
        let empty = Contributions { with_strong_keys, rows: Vec::new() };
        let probe = TargetProbe::new(std::slice::from_ref(target), empty);
        watch::<TargetCollector<Contributions>>(&probe, rows, block).summaries.remove(0).rows
    }

    fn target(regions: &[Region]) -> TargetRows {
        TargetRows { query: None, rows: 0..regions.len(), regions: regions.to_vec() }
    }

    #[test]
    fn a_region_contributes_its_weights_times_its_values() {
        use Region::*;
        // Values of two channels; the rows weight them with 0.75 - 0.5 * 0.5 and 0.25 - 0.5 * 0.5.
        let row = TestRow::two(&[0.75, 0.25], &[0.5, 0.5], 0.5).with_values(&[&[2.0, 4.0], &[-8.0, 1.0]]);
        let rows = [TestRow::one(&[1.0]).with_values(&[&[2.0, 4.0]]), row];
        let of_rows = contributions(&target(&[Filler, Answer]), false, &rows, 1);
        let [first, second] = of_rows.as_slice() else { panic!("two rows") };
        assert_eq!((first.part(Filler), first.part(Answer)), (&[2.0, 4.0][..], &[0.0, 0.0][..]));
        assert_eq!((second.part(Filler), second.part(Answer)), (&[1.0, 2.0][..], &[0.0, 0.0][..]));
        assert_eq!((second.query, second.total()), (1, vec![1.0, 2.0]));
    }

    #[test]
    fn strong_keys_are_those_of_noise_with_a_32nd_of_the_weight() {
        use Region::*;
        // Keys 1 and 2 have 1/64 and 1/32 of |a|; key 3 has more, but is the answer's.
        let row = TestRow::one(&[-0.5, 1.0 / 64.0, 1.0 / 32.0, 0.25, 0.203_125]);
        let row = row.with_values(&[&[2.0], &[1.0], &[-64.0], &[1.0], &[1.0]]);
        let target = TargetRows { rows: 4..5, ..target(&[Template, Filler, Distractor, Answer, Question]) };
        let rows =
            [TestRow::one(&[1.0]), TestRow::one(&[0.5; 2]), TestRow::one(&[0.25; 3]), TestRow::one(&[0.25; 4]), row];
        let strong = |key, part| StrongKey { key, part: vec![part] };
        assert_eq!(contributions(&target, true, &rows, 2)[0].strong_keys, [strong(0, -1.0), strong(2, -2.0)]);
        assert!(contributions(&target, false, &rows, 2)[0].strong_keys.is_empty());
    }

    proptest! {
        #[test]
        fn regions_sum_to_the_mixture_for_any_blocks(tokens in 2_usize..60, block in 1_usize..60, seed: u64) {
            let rows = random_rows(tokens, seed);
            let regions: Vec<Region> = (0..tokens).map(|key| Region::ALL[key * key % REGIONS]).collect();
            let target = target(&regions);
            let merged = contributions(&target, false, &rows, block);
            prop_assert_eq!(&merged, &contributions(&target, false, &rows, tokens));
            for (row, contribution) in rows.iter().zip(&merged) {
                for (channel, got) in contribution.total().iter().enumerate() {
                    let weighed = row.effective().iter().zip(&row.values).map(|(a, v)| a * v[channel]).sum::<f32>();
                    prop_assert!((got - f64::from(weighed)).abs() < 1e-5, "{got} instead of {weighed}");
                }
            }
        }
    }

    fn layer(answer: f64, weight: f64) -> LayerOutput {
        let mut share_out = [0.0; REGIONS];
        share_out[Region::Answer as usize] = answer;
        share_out[Region::Filler as usize] = 1.0 - answer;
        LayerOutput { share_out, noise_sinks: 0.0, weight }
    }

    #[test]
    fn layers_count_by_what_they_write() {
        let answer = |layer: &LayerOutput| layer.share_out[Region::Answer as usize];
        let layers = [layer(0.2, 0.75), layer(0.6, 0.25), layer(f64::NAN, 0.0)];
        assert!((mean_over_layers(&layers, answer) - 0.3).abs() < 1e-12);
        assert!((mean_over_layers(&layers, LayerOutput::noise_out) - 0.7).abs() < 1e-12);
        assert!(mean_over_layers(&layers[2..], answer).is_nan() && mean_over_layers(&[], answer).is_nan());
    }
}
