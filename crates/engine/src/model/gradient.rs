//! Attribution of the log-probability of an answer to heads, by its gradients with respect to what they write.
//!
//! Only rows from some row on are differentiated: the keys and values of the tokens before it are constants. Layers are
//! differentiated one after the other, from the last to the first, each from its input in a pass over these rows, so memory
//! is that of one layer.

use super::memory::LOGIT_POSITIONS;
use super::self_attention::RotaryPositions;
use super::Transformer;
use crate::attention::{LastRows, Prefix, Written};
use crate::kernels::{cross_entropy, gradient_in_candle, numbers_as};
use anyhow::{ensure, Context, Result};
use candle_core::{DType, Tensor, Var};
use std::ops::Range;

/// What the log-probability of an answer loses without a head, to first order, in nats: by layer (H).
pub type HeadAttributions = Vec<Vec<f64>>;

/// The last rows of a text in an untreated pass, to be differentiated.
pub struct LastPass<'a> {
    model: &'a Transformer,
    ids: &'a [u32],
    prefix: &'a Prefix,
    start: usize,
    /// The residual stream at each site: (1, T - start, E).
    residuals: Vec<Tensor>,
}

impl<'a> LastPass<'a> {
    /// Computes the rows of `ids` from `start` on; `prefix` has the keys and values before them.
    ///
    /// # Errors
    /// If the ids do not fit the model, or the model has a mixture of experts, whose choice is not differentiated.
    pub fn new(model: &'a Transformer, ids: &'a [u32], prefix: &'a Prefix, start: usize) -> Result<Self> {
        ensure!(model.config.experts.is_none(), "the choice of experts is not differentiated");
        ensure!(start <= prefix.common_tokens(ids), "passes share only the tokens with which both begin");
        let mut rows = LastRows::new(prefix, start);
        model.hidden_from(&[ids[start..].to_vec()], start, &mut rows)?;
        Ok(Self { model, ids, prefix, start, residuals: rows.residuals })
    }

    /// For each of these answers, Σ_t ⟨∂L/∂o, o - ō⟩ of every head: L is the log-probability of the tokens that the answer's rows
    /// predict, o what the head writes, after its norm and gate, and ō what it would write instead. The sum is over the rows t of all
    /// of the answers, of which those after an answer do not matter to it. `means` has ō, by layer: (H, value width).
    ///
    /// # Errors
    /// If the device fails.
    pub fn attributions(&self, answers: &[Range<usize>], means: &[Vec<f32>]) -> Result<Vec<HeadAttributions>> {
        let Self { model, start, .. } = *self;
        let (last, before) = self.residuals.split_last().context("the pass has layers")?;
        let tables = model.rotary_tables(start + last.dim(1)?);
        let positions = RotaryPositions { tables: &tables, start };
        let mut of_streams = answers.iter().map(|answer| self.of_answer(last, answer)).collect::<Result<Vec<_>>>()?;
        let mut attributions: Vec<HeadAttributions> = vec![Vec::new(); answers.len()];
        for (layer, x) in before.iter().enumerate().rev() {
            let block = model.blocks.block(layer)?;
            let mean = Tensor::from_slice(&means[layer], (model.config.wiring().heads(), ()), x.device())?; // H,value width
            let mut rows = LastRows::new(self.prefix, start);
            rows.keeps_written = true;
            for (of_stream, attributions) in of_streams.iter_mut().zip(&mut attributions) {
                let n = of_stream.dim(1)?; // rows up to the last of the answer
                let x = Var::from_tensor(&x.narrow(1, 0, n)?.contiguous()?)?; // 1,n,E
                let y = block.forward(&x, layer, &positions, &mut rows)?; // 1,n,E
                let gradients = (y * &*of_stream)?.sum_all()?.backward()?;
                let Written { outputs, change } = rows.written.take().context("the heads of a layer write")?;
                let gradient = gradients.get(&change).context("what heads write is used")?; // 1,n,H,value width
                let lost = (outputs.broadcast_sub(&mean)? * gradient)?.get(0)?; // n,H,value width
                let lost = lost.index_select(&self.rows_of(answers, n)?, 0)?; // rows,H,value width
                attributions.push(numbers_as(&lost.to_dtype(DType::F64)?.sum((0, 2))?)?); // H
                *of_stream = gradients.get(&x).context("the input of a layer is used")?.clone();
            }
        }
        attributions.iter_mut().for_each(|layers| layers.reverse());
        Ok(attributions)
    }

    /// The rows of these answers among the first `n`, counted from the first row of the pass.
    fn rows_of(&self, answers: &[Range<usize>], n: usize) -> Result<Tensor> {
        let rows = answers.iter().cloned().flatten().map(|row| row - self.start).filter(|&row| row < n);
        Ok(Tensor::from_iter(rows.map(|row| row as u32), self.residuals[0].device())?)
    }

    /// The gradient of an answer with respect to the residual stream after the last layer, in the rows up to its last one:
    /// (1, T - start, E) -> (1, n, E).
    fn of_answer(&self, last: &Tensor, answer: &Range<usize>) -> Result<Tensor> {
        let mut parts = vec![last.narrow(1, 0, answer.start - self.start)?.zeros_like()?]; // 1,before,E
        for first in answer.clone().step_by(LOGIT_POSITIONS) {
            parts.push(self.of_rows(last, first..answer.end.min(first + LOGIT_POSITIONS))?);
        }
        Ok(Tensor::cat(&parts, 1)?) // 1,n,E
    }

    /// The gradient of the log-probability of what some rows predict with respect to the residual stream after the last layer in these
    /// rows: (1, T - start, E) -> (1, rows, E).
    fn of_rows(&self, last: &Tensor, rows: Range<usize>) -> Result<Tensor> {
        let count = rows.len();
        let targets = &self.ids[rows.start + 1..=rows.end];
        let x = last.narrow(1, rows.start - self.start, count)?.contiguous()?; // 1,rows,E
        let hidden = self.model.finished(x.clone())?.flatten_to(1)?; // rows,embedding width
        let products = self.model.head.linear(&hidden)?; // rows,W
        let of_products = gradient_in_candle(&products, &Tensor::new(-(count as f32), x.device())?, |products| {
            let logits = self.model.finished_logits(products.clone()).map_err(candle_core::Error::wrap)?; // rows,W
            Ok(cross_entropy(&logits, targets.to_vec(), vec![1.0; count])?.0)
        })?;
        let of_hidden = self.model.head.pull_back(&of_products)?.unsqueeze(0)?; // 1,rows,embedding width
        let gradient =
            gradient_in_candle(&x, &of_hidden, |x| self.model.finished(x.clone()).map_err(candle_core::Error::wrap));
        Ok(gradient?)
    }
}
