//! Gradients of the log-probability of an answer with respect to what each layer's attention adds to the residual stream.
//!
//! Only rows from some row on are differentiated: the keys and values of the tokens before it are constants. Layers are
//! differentiated one after the other, from the last to the first, each from its input in a pass over these rows, so memory
//! is that of one layer.

use super::self_attention::RotaryPositions;
use super::Transformer;
use crate::attention::{LastRows, Prefix};
use crate::kernels::{cross_entropy, gradient_in_candle, numbers};
use anyhow::{ensure, Context, Result};
use candle_core::{Tensor, Var};
use std::ops::Range;

/// Gradients of the log-probability of one answer, in nats, for the rows of a prompt from some row on.
pub struct TermGradients {
    start: usize,
    width: usize,
    /// By layer: (rows, E).
    layers: Vec<Vec<f32>>,
}

impl TermGradients {
    /// Gradients of the rows from `start` on: by layer, (rows, E).
    pub fn new(start: usize, width: usize, layers: Vec<Vec<f32>>) -> Self {
        Self { start, width, layers }
    }

    /// The gradient with respect to the term that the attention of a layer adds to the residual stream in a row: (E).
    ///
    /// # Panics
    /// If the row is before those that were differentiated, or after the answer.
    pub fn of(&self, layer: usize, row: usize) -> &[f32] {
        &self.layers[layer][(row - self.start) * self.width..][..self.width]
    }
}

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

    /// For each of these answers, the gradients of the log-probability of the tokens that its rows predict.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradients(&self, answers: &[Range<usize>]) -> Result<Vec<TermGradients>> {
        let Self { model, start, .. } = *self;
        let (last, before) = self.residuals.split_last().context("the pass has layers")?;
        let tables = model.rotary_tables(start + last.dim(1)?);
        let positions = RotaryPositions { tables: &tables, start };
        let mut of_streams = answers.iter().map(|answer| self.of_answer(last, answer)).collect::<Result<Vec<_>>>()?;
        let mut of_terms = vec![Vec::new(); answers.len()];
        for (layer, x) in before.iter().enumerate().rev() {
            let block = model.blocks.block(layer)?;
            let mut rows = LastRows::new(self.prefix, start);
            for (of_stream, of_terms) in of_streams.iter_mut().zip(&mut of_terms) {
                let n = of_stream.dim(1)?; // rows up to the last of the answer
                let x = Var::from_tensor(&x.narrow(1, 0, n)?.contiguous()?)?; // 1,n,E
                let term = Var::zeros(x.shape(), x.dtype(), x.device())?; // 1,n,E
                rows.term = Some(term.clone());
                let y = block.forward(&x, layer, &positions, &mut rows)?; // 1,n,E
                let gradients = (y * &*of_stream)?.sum_all()?.backward()?;
                of_terms.push(numbers(gradients.get(&term).context("the attention of a layer is added")?)?);
                *of_stream = gradients.get(&x).context("the input of a layer is used")?.clone();
            }
        }
        let width = model.config.width;
        let in_order = of_terms.into_iter().map(|layers| layers.into_iter().rev().collect());
        Ok(in_order.map(|layers| TermGradients::new(start, width, layers)).collect())
    }

    /// The gradient of an answer with respect to the residual stream after the last layer, in the rows up to its last one:
    /// (1, T - start, E) -> (1, n, E).
    fn of_answer(&self, last: &Tensor, answer: &Range<usize>) -> Result<Tensor> {
        let rows = answer.start - self.start..answer.end - self.start;
        let targets: Vec<u32> = answer.clone().map(|row| self.ids[row + 1]).collect();
        let x = last.narrow(1, 0, rows.end)?.contiguous()?; // 1,n,E
        let hidden = self.model.finished(x.clone())?; // 1,n,embedding width
        let of_answer = hidden.narrow(1, rows.start, rows.len())?.flatten_to(1)?.contiguous()?; // rows,embedding width
        let products = self.model.head.linear(&of_answer)?; // rows,W
        let count = targets.len();
        let of_products = gradient_in_candle(&products, &Tensor::new(-(count as f32), x.device())?, |products| {
            let logits = self.model.finished_logits(products.clone()).map_err(candle_core::Error::wrap)?; // rows,W
            Ok(cross_entropy(&logits, targets.clone(), vec![1.0; count])?.0)
        })?;
        let of_hidden = self.model.head.pull_back(&of_products)?.unsqueeze(0)?; // 1,rows,embedding width
        let of_hidden = of_hidden.pad_with_zeros(1, rows.start, 0)?; // 1,n,embedding width
        let gradient =
            gradient_in_candle(&x, &of_hidden, |x| self.model.finished(x.clone()).map_err(candle_core::Error::wrap));
        Ok(gradient?)
    }
}
