//! Keys and values of consecutive tokens in one layer, packed for the kernel. Values are lent to probes with the row that
//! weights them.

use crate::kernels::{add_products, multiply_panel, Mat, MatMut, Panels, PANEL};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of memory that are added at once where tokens follow one at a time.
const ROOM: usize = 64;

/// Keys whose weighted values are summed in `f32` before the sum is added to `f64`.
const SUMMED_KEYS: usize = 512;

/// Keys and values of consecutive tokens, packed by head.
pub(super) struct PackedKeys {
    /// Position of the first token, at the beginning of a panel of keys.
    pub(super) first: usize,
    /// Position after the last token.
    pub(super) end: usize,
    d: usize,
    /// Tokens that there is memory for.
    room: usize,
    /// K^T of every key head: (d, tokens).
    k: Vec<Panels>,
    /// V of every value head: (tokens, d).
    pub(super) v: Vec<Panels>,
}

impl PackedKeys {
    /// Packs keys (tokens, key heads, d) and values (tokens, value heads, d) of tokens from position `first` on.
    pub(super) fn new(k: &[f32], v: &[f32], k_heads: usize, v_heads: usize, d: usize, first: usize) -> Self {
        assert!(first.is_multiple_of(PANEL), "packed keys begin with a panel");
        let tokens = k.len() / (k_heads * d);
        Self {
            first,
            end: first + tokens,
            d,
            room: tokens,
            k: (0..k_heads).into_par_iter().map(|head| Panels::new(of_head(k, head, k_heads, d).t())).collect(),
            v: packed_values(v, v_heads, d),
        }
    }

    /// Copies a range of tokens that begins with a panel, with memory for `more` tokens.
    pub(super) fn part(&self, tokens: Range<usize>, more: usize) -> Self {
        let rows = tokens.start - self.first..tokens.end - self.first;
        let panels = rows.start / PANEL..rows.end.div_ceil(PANEL);
        Self {
            first: tokens.start,
            end: tokens.end,
            d: self.d,
            room: tokens.len() + more,
            k: self.k.iter().map(|k| k.with_panels(panels.clone())).collect(),
            v: self.v.iter().map(|v| v.with_rows(rows.clone(), more)).collect(),
        }
    }

    /// Adds keys (tokens, key heads, d) and values (tokens, value heads, d) of the next tokens. If there is no memory left
    /// for them, tokens before the panel of `needed` are dropped.
    pub(super) fn append(&mut self, k: &[f32], v: &[f32], needed: usize) {
        let d = self.d;
        for (k, v) in k.chunks_exact(self.k.len() * d).zip(v.chunks_exact(self.v.len() * d)) {
            if self.end - self.first == self.room {
                *self = self.part(needed / PANEL * PANEL..self.end, ROOM);
            }
            let token = self.end - self.first;
            for (packed, k) in self.k.iter_mut().zip(k.chunks_exact(d)) {
                k.iter().enumerate().for_each(|(channel, &x)| packed.set(channel, token, x));
            }
            for (packed, v) in self.v.iter_mut().zip(v.chunks_exact(d)) {
                v.iter().enumerate().for_each(|(channel, &x)| packed.set(token, channel, x));
            }
            self.end += 1;
        }
    }

    /// Keys of a head, and the index of the panel that begins with the key at `position`.
    pub(super) fn panel(&self, head: usize, position: usize) -> (&Panels, usize) {
        (&self.k[head], (position - self.first) / PANEL)
    }

    /// K^T of the first `tokens` tokens, for each of these key heads: (heads, d, tokens). The tokens begin with a text.
    pub(super) fn transposed_keys(&self, heads: &[usize], tokens: usize) -> Vec<f32> {
        let mut k = Vec::with_capacity(heads.len() * self.d * tokens);
        for &head in heads {
            for channel in 0..self.d {
                for first in (0..tokens).step_by(PANEL) {
                    k.extend_from_slice(&self.k[head].row(first / PANEL, channel)[..PANEL.min(tokens - first)]);
                }
            }
        }
        k
    }

    /// V of the first `tokens` tokens, for each of these lists of value heads side by side: (lists, tokens, value width).
    pub(super) fn joined_values(&self, lists: &[Vec<usize>], tokens: usize) -> Vec<f32> {
        let mut v = Vec::new();
        for heads in lists {
            for token in 0..tokens {
                for &head in heads {
                    for first in (0..self.d).step_by(PANEL) {
                        v.extend_from_slice(&self.v[head].row(first / PANEL, token)[..PANEL.min(self.d - first)]);
                    }
                }
            }
        }
        v
    }
}

/// One of the heads of x (tokens, heads, d): (tokens, d).
fn of_head(x: &[f32], head: usize, heads: usize, d: usize) -> Mat<'_> {
    Mat::new(&x[head * d..], x.len() / (heads * d), d, heads * d)
}

/// Packs V of each of `heads` value heads of v (T, heads, d): (T, d) each.
pub(super) fn packed_values(v: &[f32], heads: usize, d: usize) -> Vec<Panels> {
    (0..heads).into_par_iter().map(|head| Panels::new(of_head(v, head, heads, d))).collect()
}

/// Values of the keys of one output head: its value slices side by side, as packed by the kernel.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// V of every value head of the layer, for the keys from `border` on: (T - border, d).
    heads: &'a [Panels],
    /// V of every value head for the keys before `border`: (border, d). Empty without such keys.
    before: &'a [Panels],
    /// The first key of `heads`.
    border: usize,
    /// The value heads that this output head reads.
    slices: &'a [usize],
    d: usize,
}

impl<'a> Values<'a> {
    /// Creates the values of `slices` of the packed value heads `heads`, each (T, d).
    pub fn new(heads: &'a [Panels], slices: &'a [usize], d: usize) -> Self {
        Self { heads, before: &[], border: 0, slices, d }
    }

    /// Adds the packed values `before` of the keys before `border`, which become the first key of the others.
    pub(super) fn after(self, before: &'a [Panels], border: usize) -> Self {
        Self { before, border, ..self }
    }

    /// The parts of a range of keys: packed value heads, and the keys in them.
    fn parts(&self, keys: Range<usize>) -> impl Iterator<Item = (&'a [Panels], Range<usize>)> {
        let border = self.border.clamp(keys.start, keys.end);
        let later = border - self.border.min(border)..keys.end - self.border.min(keys.end);
        [(self.before, keys.start..border), (self.heads, later)].into_iter().filter(|(_, keys)| !keys.is_empty())
    }

    /// Width of a value.
    pub fn width(&self) -> usize {
        self.slices.len() * self.d
    }

    /// sum += Σ_i weights\[i\] v\[first + i\], with sum (value width).
    ///
    /// # Panics
    /// If `sum` has another width, or there are fewer keys.
    pub fn weigh(&self, first: usize, weights: &[f32], sum: &mut [f64]) {
        assert_eq!(sum.len(), self.width(), "width of a value");
        for (slice, sum) in self.slices.iter().zip(sum.chunks_exact_mut(self.d)) {
            for (panel, sum) in sum.chunks_mut(PANEL).enumerate() {
                for (i, weights) in weights.chunks(SUMMED_KEYS).enumerate() {
                    let keys = first + i * SUMMED_KEYS..first + i * SUMMED_KEYS + weights.len();
                    let mut part = [0.0; PANEL];
                    let mut weights = weights;
                    for (heads, keys) in self.parts(keys) {
                        let (of_keys, later) = weights.split_at(keys.len());
                        let of_panel = MatMut::new(&mut part, 1, PANEL, PANEL);
                        let of_keys = Mat::new(of_keys, 1, of_keys.len(), of_keys.len());
                        // The parts of a sum are added in the order of the keys, as the whole sum is.
                        multiply_panel(of_panel, true, of_keys, heads[*slice].rows(panel, keys));
                        weights = later;
                    }
                    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += f64::from(part));
                }
            }
        }
    }

    /// into\[i\] = weights\[i\] v\[first + i\] · direction, with direction (value width).
    ///
    /// # Panics
    /// If `direction` has another width, or there are fewer keys.
    pub fn along(&self, first: usize, weights: &[f32], direction: &[f64], into: &mut Vec<f32>) {
        assert_eq!(direction.len(), self.width(), "width of a value");
        into.clear();
        into.resize(weights.len(), 0.0);
        let keys = first..first + weights.len();
        for (&slice, direction) in self.slices.iter().zip(direction.chunks_exact(self.d)) {
            for (panel, direction) in direction.chunks(PANEL).enumerate() {
                let mut padded = [0.0; PANEL];
                padded.iter_mut().zip(direction).for_each(|(to, &x)| *to = x as f32);
                let mut into = into.as_mut_slice();
                for (heads, keys) in self.parts(keys.clone()) {
                    let (of_keys, later) = into.split_at_mut(keys.len());
                    add_products(of_keys, heads[slice].rows(panel, keys), &padded);
                    into = later;
                }
            }
        }
        into.iter_mut().zip(weights).for_each(|(product, weight)| *product *= weight);
    }

    /// Euclidean norm of the value of a key.
    pub fn norm(&self, key: usize) -> f64 {
        let panels = self.slices.iter().flat_map(|&slice| (0..self.d.div_ceil(PANEL)).map(move |panel| (slice, panel)));
        let (heads, at) = if key < self.border { (self.before, key) } else { (self.heads, key - self.border) };
        let squares = panels.flat_map(|(slice, panel)| heads[slice].row(panel, at)).map(|&x| f64::from(x).powi(2));
        squares.sum::<f64>().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Rng;

    #[test]
    fn a_weighted_sum_uses_the_slices_of_the_head() {
        let t = 1100; // more keys than one part
        let d = 40; // more channels than one panel
        let mut rng = Rng::new(1, "values");
        let mut random = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
        let v = [random(t * d), random(t * d), random(t * d)];
        let weights = random(t);
        let heads: Vec<Panels> = v.iter().map(|v| Panels::new(Mat::new(v, t, d, d))).collect();
        let values = Values::new(&heads, &[2, 0], d);
        let first = 7;
        let keys = 1050;
        let mut got = vec![1.0; 2 * d];
        values.weigh(first, &weights[..keys], &mut got);
        for (channel, got) in got.iter().enumerate() {
            let v = &v[[2, 0][channel / d]];
            let product = |i: usize| f64::from(weights[i]) * f64::from(v[(first + i) * d + channel % d]);
            let want = 1.0 + (0..keys).map(product).sum::<f64>();
            assert!((got - want).abs() < 1e-4, "channel {channel}: {got} instead of {want}");
        }
        let direction: Vec<f64> = random(2 * d).into_iter().map(f64::from).collect();
        let mut along = vec![9.0];
        values.along(first, &weights[..keys], &direction, &mut along);
        for (i, along) in along.iter().enumerate() {
            let product =
                |(channel, z): (usize, &f64)| z * f64::from(v[[2, 0][channel / d]][(first + i) * d + channel % d]);
            let want = f64::from(weights[i]) * direction.iter().enumerate().map(product).sum::<f64>();
            assert!((f64::from(*along) - want).abs() < 1e-4, "key {i}: {along} instead of {want}");
        }
        let norm: f64 = [2, 0].iter().flat_map(|&s| &v[s][3 * d..4 * d]).map(|&x| f64::from(x).powi(2)).sum();
        assert!((values.norm(3) - norm.sqrt()).abs() < 1e-5);
    }
}
