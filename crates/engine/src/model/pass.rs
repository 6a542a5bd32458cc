//! One forward pass over a prompt: scores of its queries, predictions of every token, and results of probes.
//!
//! Greedy decoding produces the value of the first question exactly if and only if every token of the value has the largest
//! logit given the tokens before it, so one pass over the prompt with its answers in place is enough. Answers to further
//! questions are scored behind the right answers to those before, which decoding may have missed.

use crate::attention::{
    Continuations, NeededRows, Prefix, ProbeResult, ResidualProbe, ResolvedTreatment, Stream, Trace,
};
use crate::kernels::{cross_entropy, numbers, TokenScore, TokenScores};
use crate::model::memory::LOGIT_POSITIONS;
use crate::model::Transformer;
use anyhow::{ensure, Result};
use candle_core::Tensor;
use text::Prompt;

/// Score of the answer to one query.
#[derive(Clone, Debug)]
pub struct QueryScore {
    /// `true` if every token of the value has the largest logit.
    pub hit: bool,
    /// Log-probability of the value, in nats.
    pub log_prob_nats: f64,
    /// `true` if its first token has the largest logit.
    pub first_hit: bool,
}

/// Predictions of every token of a prompt but the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// Negative log-likelihood of token i + 1 given those before it, in nats.
    pub nll_nats: Vec<f32>,
    /// The most likely token at that position.
    pub top: Vec<u32>,
}

/// Results of one pass.
pub struct PassResult {
    /// One score per query of the prompt.
    pub queries: Vec<QueryScore>,
    /// Predictions of every token, if requested.
    pub predictions: Option<Predictions>,
    /// Results of the probes, in the order (layer, head, probe).
    pub probe_results: Vec<ProbeResult>,
    /// Intermediate values of the rows that the stream traced.
    pub trace: Option<Trace>,
    /// Keys and values, if the stream kept them.
    pub prefix: Option<Prefix>,
}

/// Runs the prompt through the model and `stream`, and scores its queries, with `all_tokens` also every token.
///
/// # Errors
/// If the prompt does not fit the model, or a prediction is not finite.
pub fn pass(model: &Transformer, prompt: &Prompt, mut stream: Stream<'_>, all_tokens: bool) -> Result<PassResult> {
    if !all_tokens && !stream.observes_residual() {
        let needed = needed_rows(prompt, &stream);
        stream = stream.with_needed_rows(model.last_layer(), needed);
    }
    let hidden = model.hidden(std::slice::from_ref(&prompt.ids), &mut stream)?; // 1,T,E
    let predictions = all_tokens.then(|| predictions(model, &hidden.get(0)?, &prompt.ids)).transpose()?;
    let queries = answers(model, &hidden, prompt, 0)?.remove(0);
    let prefix = stream.take_prefix(&prompt.ids);
    Ok(PassResult { queries, predictions, probe_results: stream.probe_results, trace: stream.trace, prefix })
}

/// The first row of a [`pass`] that something needs even if all rows before it are known: it is observed, traced or
/// predicts an answer. 0 if all rows are.
pub fn first_observed_row(model: &Transformer, prompt: &Prompt, stream: &Stream<'_>, all_tokens: bool) -> usize {
    if all_tokens {
        return 0;
    }
    let answers = prompt.queries.iter().map(|query| query.rows().start).min();
    // Without questions, the last row shows whether numbers are finite.
    let end = answers.unwrap_or(prompt.ids.len() - 1);
    stream.first_observed_row(model.config.layers.len(), model.config.wiring().heads(), end)
}

/// The row at which a pass starts that shares the first `common` tokens with an untreated pass, observes rows from
/// `observed` on, and is `treated`. This is the one place that decides what passes share.
pub fn first_row(observed: usize, common: usize, treated: Option<&ResolvedTreatment>) -> usize {
    observed.min(common).min(treated.map_or(usize::MAX, ResolvedTreatment::first_row))
}

/// Where passes over the same tokens start that share what an untreated pass has computed.
#[derive(Clone, Copy)]
pub struct SharedStart<'a> {
    /// Its keys and values.
    pub prefix: &'a Prefix,
    /// The first row that is computed.
    pub row: usize,
    /// The first layer that is computed.
    pub layer: usize,
    /// Its [`residuals`] in the rows from `row` on, unless all layers are computed.
    pub residuals: &'a [Tensor],
}

impl<'a> SharedStart<'a> {
    /// The start at a row, of all layers.
    pub fn at(prefix: &'a Prefix, row: usize) -> Self {
        Self { prefix, row, layer: 0, residuals: &[] }
    }
}

/// Like one [`pass`] for each of `streams`, without `all_tokens`, as one batch that starts at a row that is not after the
/// [`first_row`] of any of them. If nothing is observed, it may also start at a layer before which none is treated. Results have the
/// same bits.
///
/// # Errors
/// As for [`pass`]; if the prompt begins with other tokens than the prefix, or the model has no kernels.
pub fn continued_passes(
    model: &Transformer,
    prompt: &Prompt,
    streams: Vec<Stream<'_>>,
    start: SharedStart<'_>,
) -> Result<Vec<PassResult>> {
    let SharedStart { prefix, row, layer, residuals } = start;
    ensure!(row <= prefix.common_tokens(&prompt.ids), "passes share only the tokens with which both begin");
    let mut needed = vec![false; prompt.ids.len()];
    for stream in &streams {
        needed.iter_mut().zip(needed_rows(prompt, stream)).for_each(|(needed, more)| *needed |= more);
    }
    let count = streams.len();
    let needed = NeededRows { layer: model.last_layer(), rows: needed.split_off(row) };
    let mut attend = Continuations::new(prefix, row, needed, streams);
    let hidden = match layer {
        0 => model.hidden_from(&vec![prompt.ids[row..].to_vec(); count], row, &mut attend)?, // B,T - row,E
        _ => model.hidden_behind(residuals[layer].repeat((count, 1, 1))?, layer, row, &mut attend)?, // B,T - row,E
    };
    let mut results = Vec::new();
    for (mut stream, queries) in attend.streams.into_iter().zip(answers(model, &hidden, prompt, row)?) {
        let prefix = stream.take_prefix(&prompt.ids);
        let Stream { probe_results, trace, .. } = stream;
        results.push(PassResult { queries, predictions: None, probe_results, trace, prefix });
    }
    Ok(results)
}

/// The residual stream of an untreated pass before each layer and after the last, in the rows from `row` on: (1, T - row, E).
/// `prefix` has the keys and values before them.
pub fn residuals(model: &Transformer, prompt: &Prompt, prefix: &Prefix, row: usize) -> Result<Vec<Tensor>> {
    let mut sites = Sites::default();
    let stream = Stream::new(&[]).with_residual(&mut sites);
    continued_passes(model, prompt, vec![stream], SharedStart::at(prefix, row))?;
    let shape = (1, prompt.ids.len() - row, model.config.width);
    let sites = sites.0.into_iter().map(|values| Tensor::from_vec(values, shape, &model.placement.device));
    Ok(sites.collect::<candle_core::Result<_>>()?)
}

/// The residual stream at each site.
#[derive(Default)]
struct Sites(Vec<Vec<f32>>);

impl ResidualProbe for Sites {
    fn observe(&mut self, _site: usize, values: &[f32], _width: usize) {
        self.0.push(values.to_vec());
    }
}

/// For each row whether its output in the last layer is needed.
fn needed_rows(prompt: &Prompt, stream: &Stream<'_>) -> Vec<bool> {
    let mut needed = vec![false; prompt.ids.len()];
    prompt.queries.iter().flat_map(|query| query.rows()).for_each(|row| needed[row] = true);
    stream.trace.iter().flat_map(Trace::rows).for_each(|&row| needed[row] = true);
    needed
}

/// Scores the queries of each pass of a batch from hidden states (B, T - start, E) of the rows from `start` on.
fn answers(model: &Transformer, hidden: &Tensor, prompt: &Prompt, start: usize) -> Result<Vec<Vec<QueryScore>>> {
    let passes = hidden.dim(0)?;
    if prompt.queries.is_empty() {
        // Without logits, NaN would go unnoticed.
        ensure!(numbers(&hidden.sum_all()?)?[0].is_finite(), "the model's hidden states are not finite");
        return Ok(vec![Vec::new(); passes]);
    }
    let rows: Vec<u32> = prompt.queries.iter().flat_map(|query| query.rows()).map(|row| row as u32).collect();
    let targets: Vec<u32> = rows.iter().map(|&row| prompt.ids[row as usize + 1]).collect();
    let rows: Vec<u32> = rows.into_iter().map(|row| row - start as u32).collect();
    let picked = hidden.index_select(&Tensor::new(rows, hidden.device())?, 1)?.flatten(0, 1)?; // B rows,E
    let scores = scores(model, &picked, &targets.repeat(passes))?;
    scores.chunks_exact(targets.len()).map(|of_pass| of_queries(prompt, of_pass)).collect()
}

/// Scores of tokens (n) from hidden states (n, E), [`LOGIT_POSITIONS`] at a time.
fn scores(model: &Transformer, hidden: &Tensor, targets: &[u32]) -> Result<TokenScores> {
    let mut scores = TokenScores::new();
    for (i, targets) in targets.chunks(LOGIT_POSITIONS).enumerate() {
        let n = targets.len();
        let logits = model.logits(&hidden.narrow(0, i * LOGIT_POSITIONS, n)?)?; // n,W
        scores.extend(cross_entropy(&logits, targets.to_vec(), vec![1.0; n])?.1);
    }
    Ok(scores)
}

/// Sums the scores of the tokens that answer each query.
fn of_queries(prompt: &Prompt, scores: &[TokenScore]) -> Result<Vec<QueryScore>> {
    let mut first = 0;
    let mut queries = Vec::with_capacity(prompt.queries.len());
    for query in &prompt.queries {
        let query_scores = &scores[first..first + query.rows().len()];
        let log_prob_nats = -query_scores.iter().map(|s| f64::from(s.nll_nats)).sum::<f64>();
        ensure!(log_prob_nats.is_finite(), "the model's logits are not finite");
        queries.push(QueryScore {
            hit: query_scores.iter().all(|s| s.hit),
            log_prob_nats,
            first_hit: query_scores[0].hit,
        });
        first += query_scores.len();
    }
    Ok(queries)
}

/// Scores all tokens, [`LOGIT_POSITIONS`] at a time: logits of a whole text would be T x W numbers.
fn predictions(model: &Transformer, hidden: &Tensor, ids: &[u32]) -> Result<Predictions> {
    let targets = &ids[1..];
    let mut predictions = Predictions::default();
    for (i, targets) in targets.chunks(LOGIT_POSITIONS).enumerate() {
        let n = targets.len();
        let logits = model.logits(&hidden.narrow(0, i * LOGIT_POSITIONS, n)?)?; // n,W
        let (_, scores): (_, TokenScores) = cross_entropy(&logits, targets.to_vec(), vec![1.0; n])?;
        predictions.nll_nats.extend(scores.iter().map(|score| score.nll_nats));
        predictions.top.extend(logits.argmax(1)?.to_vec1::<u32>()?);
    }
    ensure!(predictions.nll_nats.iter().all(|nll| nll.is_finite()), "the model's logits are not finite");
    Ok(predictions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::open::{built_in_names, load, LoadOptions};

    #[test]
    fn needed_rows_are_the_same_if_no_others_are_computed() {
        for name in built_in_names() {
            let model = load(name, LoadOptions::default()).unwrap().transformer;
            let ids = vec![(0..400).map(|i| 7 * i % 500).collect::<Vec<u32>>()];
            let needed: Vec<bool> = (0..400).map(|row| [17, 200, 398].contains(&row)).collect();
            let mut stream = Stream::new(&[]).with_needed_rows(model.last_layer(), needed.clone());
            let some = model.hidden(&ids, &mut stream).unwrap().get(0).unwrap(); // T,E
            let all = model.hidden(&ids, &mut Stream::new(&[])).unwrap().get(0).unwrap(); // T,E
            for (row, needed) in needed.into_iter().enumerate() {
                let row = |x: &Tensor| numbers(&x.get(row).unwrap()).unwrap();
                let apart = row(&some).iter().zip(row(&all)).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
                assert_eq!(apart < 1e-4, needed, "{name}: {apart}");
            }
        }
    }
}
