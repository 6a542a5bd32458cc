//! `y = x @ w^T` as a differentiable op.

use super::{has_kernels, in_chunks, multiply, multiply_panel, slice, with_values, Mat, MatMut, Panels, PANEL};
use candle_core::{CpuStorage, CustomOp2, Layout, Module as _, Result, Shape, Tensor};
use pulp::Simd;
use rayon::prelude::*;

/// Rows of x from which packing all of w takes less time than it saves.
const PACKED_ROWS: usize = 256;

/// Inner size of a block: the part of w that is multiplied at once.
const DEPTH: usize = 512;

struct Linear;

/// `x @ w^T`: x (.., E), w (F, E) -> (.., F), as `torch.nn.Linear` without bias.
///
/// # Errors
/// If the inner sizes or the number types differ, or an argument is not contiguous.
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    if has_kernels(x) {
        return x.apply_op2(w, Linear);
    }
    candle_nn::Linear::new(w.clone(), None).forward(x)
}

/// The shape of the output: (.., E), (F, E) -> (.., F).
fn output_dims(x: &[usize], w: &Shape) -> Result<Vec<usize>> {
    let (f, e) = w.dims2()?;
    match x.split_last() {
        Some((last, before)) if *last == e => Ok([before, &[f]].concat()),
        _ => candle_core::bail!("linear: x {x:?} does not fit w {w:?}"),
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(s1, l1, "linear")?;
        let w = slice(s2, l2, "linear")?;
        let (f, e) = l2.shape().dims2()?;
        let dims = output_dims(l1.dims(), l2.shape())?;
        let y = product(x, Mat::new(w, f, e, e).t(), e, f);
        Ok((CpuStorage::F32(y), Shape::from(dims)))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (f, e) = w.dims2()?;
        let dx = with_values([w, dy], |[w, dy]| product(dy, Mat::new(w, f, e, e), f, e))?;
        let dx = Tensor::from_vec(dx, x.shape(), x.device())?;
        if !w.track_op() {
            return Ok((Some(dx), None)); // w is a constant
        }
        let dw = with_values([x, dy], |[x, dy]| weight_gradient(x, dy, f, e))?;
        Ok((Some(dx), Some(Tensor::from_vec(dw, w.shape(), w.device())?)))
    }
}

/// x @ w: x (rows, E), w (E, F).
fn product(x: &[f32], w: Mat<'_>, e: usize, f: usize) -> Vec<f32> {
    // All kernels add in the same order, so that a row has the same numbers whether it is multiplied with few others
    // or many.
    match x.len() / e {
        1 if w.row_stride == 1 => one_row(x, w, e, f),
        0..PACKED_ROWS => few_rows(x, w, e, f),
        _ => packed(x, &Panels::new(w), e, f),
    }
}

/// [`product`] of one row with columns of w that are contiguous, as in decoding: w is read once and not packed.
fn one_row(x: &[f32], w: Mat<'_>, e: usize, f: usize) -> Vec<f32> {
    in_chunks(f, PANEL, |panel, y: &mut [f32]| {
        // Columns follow each other `col_stride` apart.
        row_products(y, x, &w.data[panel * PANEL * w.col_stride..], e, w.col_stride);
    })
}

/// `y[j] = x · column j`, each a sum in the order of x from 0, as in [`multiply_panel`]. Column j has `e` numbers from
/// `j * stride` on.
#[allow(unreachable_pub, reason = "the macro derives a public function from it")]
#[pulp::with_simd(row_products = pulp::Arch::new())]
#[inline(always)]
pub fn row_products_simd<'a, S: Simd>(
    _simd: S,
    y: &'a mut [f32],
    x: &'a [f32],
    columns: &'a [f32],
    e: usize,
    stride: usize,
) {
    // Sums that are computed at once, because each waits for its last product.
    const AT_ONCE: usize = 8;
    // Fused where the vectors of `multiply_panel` are.
    let is_fused = S::F32_LANES >= 8 || cfg!(target_arch = "aarch64");
    let add = |sum: f32, x: f32, w: f32| if is_fused { x.mul_add(w, sum) } else { x * w + sum };
    for (part, y) in y.chunks_mut(AT_ONCE).enumerate() {
        let column = |j: usize| &columns[(part * AT_ONCE + j) * stride..][..e];
        if let Ok(y) = <&mut [f32; AT_ONCE]>::try_from(&mut *y) {
            let columns: [&[f32]; AT_ONCE] = std::array::from_fn(column);
            let mut sums = [0.0; AT_ONCE];
            for (k, &x) in x[..e].iter().enumerate() {
                for j in 0..AT_ONCE {
                    sums[j] = add(sums[j], x, columns[j][k]);
                }
            }
            *y = sums;
        } else {
            for (j, y) in y.iter_mut().enumerate() {
                *y = x.iter().zip(column(j)).fold(0.0, |sum, (&x, &w)| add(sum, x, w));
            }
        }
    }
}

/// [`product`] with few rows: a task packs the blocks of one panel of w into the cache, one after the
/// other, for all rows.
fn few_rows(x: &[f32], w: Mat<'_>, e: usize, f: usize) -> Vec<f32> {
    let rows = x.len() / e;
    let panels = f.div_ceil(PANEL);
    // (panels, rows, PANEL)
    let columns = in_chunks(panels * rows * PANEL, rows * PANEL, |panel, y: &mut [f32]| {
        let first = panel * PANEL;
        for start in (0..e).step_by(DEPTH) {
            let depth = start..(start + DEPTH).min(e);
            let block = Panels::new(w.part(depth.clone(), first..(first + PANEL).min(f)));
            let x = Mat::new(&x[start..], rows, depth.len(), e);
            multiply_panel(MatMut::new(&mut *y, rows, PANEL, PANEL), start > 0, x, block.rows(0, 0..depth.len()));
        }
    });
    in_chunks(rows * f, f, |row, y| {
        for (panel, y) in y.chunks_mut(PANEL).enumerate() {
            y.copy_from_slice(&columns[(panel * rows + row) * PANEL..][..y.len()]);
        }
    })
}

/// [`product`] with w packed once for all tasks: a quarter faster than packing it for each.
fn packed(x: &[f32], w: &Panels, e: usize, f: usize) -> Vec<f32> {
    let of_task = rows_of_task(x.len() / e);
    in_chunks(x.len() / e * f, of_task * f, |task, y| {
        let rows = y.len() / f;
        let x = &x[task * of_task * e..][..rows * e];
        for panel in 0..f / PANEL {
            multiply_in_depth(&mut y[panel * PANEL..], f, x, rows, w, panel);
        }
        let left = f % PANEL;
        if left > 0 {
            let mut columns = vec![0.0; rows * PANEL];
            multiply_in_depth(&mut columns, PANEL, x, rows, w, f / PANEL);
            for (y, columns) in y.chunks_exact_mut(f).zip(columns.chunks_exact(PANEL)) {
                y[f - left..].copy_from_slice(&columns[..left]);
            }
        }
    })
}

/// Rows of a task: many for each reading of the weights, and at least four tasks for each thread. Results do not depend
/// on it. Kernels take 6 or 8 rows at once.
fn rows_of_task(rows: usize) -> usize {
    const AT_ONCE: usize = 24;
    (rows / (4 * rayon::current_num_threads())).clamp(2 * AT_ONCE, 8 * AT_ONCE) / AT_ONCE * AT_ONCE
}

/// Computes one panel of columns of x @ w, x (rows, E), into rows of y that start `stride` apart. Blocks of [`DEPTH`]
/// rows of w take 64 KiB, so that the block and the part of x stay in the second-level cache.
fn multiply_in_depth(y: &mut [f32], stride: usize, x: &[f32], rows: usize, w: &Panels, panel: usize) {
    let e = x.len() / rows;
    for start in (0..e).step_by(DEPTH) {
        let depth = start..(start + DEPTH).min(e);
        let columns = MatMut::new(&mut *y, rows, PANEL, stride);
        let x = Mat::new(&x[start..], rows, depth.len(), e);
        multiply_panel(columns, start > 0, x, w.rows(panel, depth));
    }
}

/// dw = dy^T @ x. Tasks are rows of dw, so that no two tasks add to the same number.
fn weight_gradient(x: &[f32], dy: &[f32], f: usize, e: usize) -> Vec<f32> {
    const OUT_ROWS: usize = 128;
    let rows = x.len() / e;
    let mut dw = vec![0.0; f * e];
    dw.par_chunks_mut(OUT_ROWS * e).enumerate().for_each(|(chunk, dw)| {
        let start = chunk * OUT_ROWS;
        let n = dw.len() / e;
        multiply(MatMut::new(dw, n, e, e), true, Mat::new(&dy[start..], rows, n, f).t(), Mat::new(x, rows, e, e));
    });
    dw
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Rng;

    #[test]
    fn packed_products_are_products_whatever_the_width_and_depth() {
        let rows = PACKED_ROWS + 3;
        let mut rng = Rng::new(1, "linear");
        for (e, f) in [(9, PANEL), (9, PANEL + 1), (DEPTH, 3 * PANEL - 8), (2 * DEPTH + 5, PANEL + 1)] {
            let mut random = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
            let x = random(rows * e);
            let w = random(f * e);
            let y = product(&x, Mat::new(&w, f, e, e).t(), e, f);
            for (i, y) in y.iter().enumerate() {
                let x = &x[i / f * e..][..e];
                let w = &w[i % f * e..][..e];
                let products = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                let want: f64 = products().sum();
                let size: f64 = products().map(f64::abs).sum();
                assert!((f64::from(*y) - want).abs() < 1e-6 * size, "{e}, {f}, {i}: {y} instead of {want}");
            }
        }
    }

    #[test]
    fn a_row_has_the_same_numbers_with_few_others_and_with_many() {
        let rows = PACKED_ROWS + 5;
        let e = DEPTH + 7;
        let f = 2 * PANEL + 3;
        let mut rng = Rng::new(2, "linear");
        let mut random = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
        let x = random(rows * e);
        let w = random(f * e);
        let of =
            |rows: std::ops::Range<usize>| product(&x[rows.start * e..rows.end * e], Mat::new(&w, f, e, e).t(), e, f);
        let all = of(0..rows);
        for few in [0..1, 3..5, 7..40, 100..200, rows - 1..rows] {
            assert_eq!(of(few.clone()), all[few.start * f..few.end * f], "{few:?}");
        }
    }

    #[test]
    fn tasks_have_whole_kernels_of_rows_and_some_go_to_every_thread() {
        for threads in [1, 2, 16] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let rows = pool.install(|| rows_of_task(4096));
            assert!(rows % 8 == 0 && rows % 6 == 0 && 4096 / rows >= 4 * threads, "{threads} threads: {rows}");
        }
    }
}
