//! Scoring a needle prompt: one teacher-forced pass says whether greedy decoding would have answered.
//!
//! Greedy decoding gives the value exactly if and only if every token of the value has the largest logit given the
//! tokens before it, so one pass over the prompt with its answers in place is enough.

use crate::attention::{RowProbe, Sighting, Stream};
use crate::model::Transformer;
use crate::ops::{cross_entropy, TokenScores};
use crate::prompt::Prompt;
use anyhow::Result;
use candle_core::Tensor;

/// How one asked number was answered.
#[derive(Clone, Debug)]
pub struct QueryScore {
    /// Whether every token of the value has the largest logit.
    pub exact: bool,
    /// Log-probability of the value, in nats.
    pub log_prob_nats: f64,
    /// Rank of the value's first token among all tokens; 1 is best.
    pub first_rank: usize,
}

/// A scored prompt with what the probes saw on the way.
pub struct Scored {
    /// One per query of the prompt.
    pub queries: Vec<QueryScore>,
    /// In (layer, head, probe) order.
    pub sightings: Vec<Sighting>,
}

/// One pass over the prompt, watched by `probes`.
///
/// # Errors
/// If the prompt does not fit the model.
pub fn score(model: &Transformer, prompt: &Prompt, probes: &[&dyn RowProbe]) -> Result<Scored> {
    let mut stream = Stream::new(probes);
    let hidden = model.hidden(std::slice::from_ref(&prompt.ids), &mut stream)?; // 1,T,E
    let rows: Vec<u32> = prompt.queries.iter().flat_map(|q| q.rows()).map(|row| row as u32).collect();
    let targets: Vec<u32> = rows.iter().map(|&row| prompt.ids[row as usize + 1]).collect();
    let n = rows.len();
    let picked = hidden.get(0)?.index_select(&Tensor::from_vec(rows, n, hidden.device())?, 0)?; // rows,E
    let logits = model.logits(&picked)?; // rows,W
    let (_, scores) = cross_entropy(&logits, targets.clone(), vec![1.0; n])?;
    let mut first = 0;
    let mut queries = Vec::with_capacity(prompt.queries.len());
    for query in &prompt.queries {
        let of_query: &TokenScores = &scores[first..first + query.rows().len()].to_vec();
        let row = logits.get(first)?.to_vec1::<f32>()?;
        let logit = row[targets[first] as usize];
        queries.push(QueryScore {
            exact: of_query.iter().all(|s| s.hit),
            log_prob_nats: -of_query.iter().map(|s| f64::from(s.nll_nats)).sum::<f64>(),
            first_rank: 1 + row.iter().filter(|&&other| other > logit).count(),
        });
        first += of_query.len();
    }
    Ok(Scored { queries, sightings: stream.sightings })
}
