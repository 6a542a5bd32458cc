//! What training writes down: a line of means every so many tokens, and needle evaluations.

use super::data::{Batch, TargetKind};
use crate::files;
use crate::ops::TokenScores;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One line of `log.csv`: means since the line before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogLine {
    /// Tokens trained on.
    pub tokens: usize,
    /// Context length of the stage.
    pub ctx_tok: usize,
    /// Learning rate.
    pub rate: f64,
    /// Weighted loss, in nats.
    pub loss_nats: f64,
    /// NLL of ordinary text.
    pub text_nats: f64,
    /// NLL of the first digit of a recallable value; chance is ln 10 = 2.30.
    pub digit1_nats: f64,
    /// Share of first digits predicted.
    pub digit1_hit: f64,
    /// Share of second digits predicted.
    pub digit2_hit: f64,
    /// Share of third digits predicted.
    pub digit3_hit: f64,
    /// Share of all later digits predicted.
    pub digit4up_hit: f64,
    /// Mean gradient norm before clipping.
    pub grad_norm: f64,
    /// Mean of the learned lambda over layers (V1 only).
    pub lambda: Option<f64>,
    /// Speed. The only column that differs between two runs of one spec.
    pub tokens_per_s: f64,
}

/// One line of `eval.csv`: unseen needle prompts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvalLine {
    /// Tokens trained on.
    pub tokens: usize,
    /// Context length of the prompts.
    pub ctx_tok: usize,
    /// Needles in the haystack.
    pub needles: usize,
    /// Needles asked for.
    pub retrieve: usize,
    /// `train` or `heldout` cities.
    pub cities: String,
    /// Numbers asked.
    pub n: usize,
    /// Share answered exactly.
    pub exact: f64,
    /// Share whose first digit was right.
    pub first_digit: f64,
    /// Mean log-probability of the answer, in nats.
    pub log_prob_nats: f64,
}

/// Sums that become a [`LogLine`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    steps: usize,
    loss: Sum,
    grad_norm: Sum,
    text: (Sum, usize),
    recall_nats: Sum,
    recall: [(usize, usize); 4], // hits and count of digits 1, 2, 3, 4+
}

/// A sum that survives a checkpoint to the last bit: JSON holds its bits, because a decimal number may be read back one
/// unit off.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
struct Sum(f64);

impl From<u64> for Sum {
    fn from(bits: u64) -> Self {
        Self(f64::from_bits(bits))
    }
}

impl From<Sum> for u64 {
    fn from(sum: Sum) -> Self {
        sum.0.to_bits()
    }
}

impl Tally {
    /// Adds one step.
    pub(super) fn add(&mut self, batch: &Batch, scores: &TokenScores, loss: f64, grad_norm: f64) {
        self.steps += 1;
        self.loss.0 += loss;
        self.grad_norm.0 += grad_norm;
        for (kind, score) in batch.kinds.iter().zip(scores) {
            match kind {
                TargetKind::Text | TargetKind::Declined => {
                    self.text.0 .0 += f64::from(score.nll_nats);
                    self.text.1 += 1;
                }
                TargetKind::NewDigit => {}
                TargetKind::Recall(position) => {
                    let slot = &mut self.recall[usize::from(*position).clamp(1, 4) - 1];
                    slot.0 += usize::from(score.hit);
                    slot.1 += 1;
                    if *position == 1 {
                        self.recall_nats.0 += f64::from(score.nll_nats);
                    }
                }
            }
        }
    }

    /// The means.
    pub(super) fn line(
        &self,
        tokens: usize,
        ctx_tok: usize,
        rate: f64,
        lambda: Option<f64>,
        tokens_per_s: f64,
    ) -> LogLine {
        let mean = |sum: f64, n: usize| sum / n.max(1) as f64;
        let hit = |i: usize| mean(self.recall[i].0 as f64, self.recall[i].1);
        LogLine {
            tokens,
            ctx_tok,
            rate,
            loss_nats: mean(self.loss.0, self.steps),
            text_nats: mean(self.text.0 .0, self.text.1),
            digit1_nats: mean(self.recall_nats.0, self.recall[0].1),
            digit1_hit: hit(0),
            digit2_hit: hit(1),
            digit3_hit: hit(2),
            digit4up_hit: hit(3),
            grad_norm: mean(self.grad_norm.0, self.steps),
            lambda,
            tokens_per_s,
        }
    }
}

/// All lines of a log.
///
/// # Errors
/// If the file cannot be read, or a line is not one of these.
pub(super) fn read<L: for<'de> Deserialize<'de>>(path: &Path) -> Result<Vec<L>> {
    files::csv_lines(path)?.collect()
}

/// Keeps the lines of a CSV up to `tokens` and opens it for more; a resumed run repeats what came after its checkpoint. The
/// last line may be half a line: a killed process was writing it.
///
/// # Errors
/// If the file cannot be read or written. It is then as it was: the new one takes its place when it is whole.
pub(super) fn open<L>(path: &Path, tokens: usize, tokens_of: impl Fn(&L) -> usize) -> Result<csv::Writer<std::fs::File>>
where
    L: Serialize + for<'de> Deserialize<'de>,
{
    let mut kept: Vec<L> = Vec::new();
    if path.exists() {
        let lines: Vec<Result<L>> = files::csv_lines(path)?.collect();
        let last = lines.len().saturating_sub(1);
        for (i, line) in lines.into_iter().enumerate() {
            match line {
                Ok(line) if tokens_of(&line) <= tokens => kept.push(line),
                Err(error) if i < last => return Err(error),
                _ => break,
            }
        }
    }
    let has_lines = !kept.is_empty();
    let mut file = None;
    files::replace(path, |partial| {
        let mut whole = csv::Writer::from_path(partial)?;
        kept.iter().try_for_each(|line| whole.serialize(line))?;
        file = Some(whole.into_inner().map_err(|error| error.into_error())?);
        Ok(())
    })?;
    let file = file.expect("it was written");
    Ok(csv::WriterBuilder::new().has_headers(!has_lines).from_writer(file))
}
