//! The logs of training: means at regular intervals, and evaluations on needle prompts.

use super::data::{Batch, TargetKind};
use anyhow::Result;
use base::files;
use engine::kernels::TokenScores;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One line of `log.csv`: means since the previous line.
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
    /// NLL of the first digit of a value that the context has stated; chance is ln 10 = 2.30. Numbers of digits are `None`
    /// where no such digit was trained on.
    pub digit1_nats: Option<f64>,
    /// Share of these first digits that are predicted.
    pub digit1_hit: Option<f64>,
    /// Share of second digits that are predicted.
    pub digit2_hit: Option<f64>,
    /// Share of third digits that are predicted.
    pub digit3_hit: Option<f64>,
    /// Share of later digits that are predicted.
    pub digit4up_hit: Option<f64>,
    /// Mean gradient norm before clipping.
    pub grad_norm: f64,
    /// Mean of the learned lambda over layers (V1 only).
    pub lambda: Option<f64>,
    /// Speed. The only column that differs between repetitions of a run.
    pub tokens_per_s: f64,
}

/// One line of `eval.csv`: an evaluation on unseen needle prompts.
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
    /// Number of questions.
    pub n: usize,
    /// Share of questions answered right.
    #[serde(rename = "exact")]
    pub accuracy: f64,
    /// Share of questions with the right first digit.
    pub first_digit: f64,
    /// Mean log-probability of the answer, in nats.
    pub log_prob_nats: f64,
}

/// One line of `held_out.csv`: the loss of held-out documents of people's texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldOutLine {
    /// Tokens trained on.
    pub tokens: usize,
    /// Context length of the windows.
    pub ctx_tok: usize,
    /// Windows, the same at each time.
    pub windows: usize,
    /// Mean negative log-likelihood of a token.
    pub heldout_nats: f64,
}

/// Sums over steps for the next [`LogLine`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct LogSums {
    steps: usize,
    loss: Sum,
    grad_norm: Sum,
    text: (Sum, usize),
    recall_nats: Sum,
    recall: [(usize, usize); 4], // hits and count of digits 1, 2, 3, 4+
}

/// A sum that is stored in a checkpoint as its bits, because a decimal number in JSON may not read back exactly.
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

impl LogSums {
    /// Adds one step.
    pub(super) fn add(&mut self, batch: &Batch, scores: &TokenScores, loss: f64, grad_norm: f64) {
        self.steps += 1;
        self.loss.0 += loss;
        self.grad_norm.0 += grad_norm;
        for (kind, score) in batch.kinds.iter().zip(scores) {
            match kind {
                TargetKind::Text => {
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

    /// The log line with the means.
    pub(super) fn line(
        &self,
        tokens: usize,
        ctx_tok: usize,
        rate: f64,
        lambda: Option<f64>,
        tokens_per_s: f64,
    ) -> LogLine {
        let hits = self.recall.map(|(hits, n)| (n > 0).then(|| mean(hits as f64, n)));
        LogLine {
            tokens,
            ctx_tok,
            rate,
            loss_nats: mean(self.loss.0, self.steps),
            text_nats: mean(self.text.0 .0, self.text.1),
            digit1_nats: hits[0].map(|_| mean(self.recall_nats.0, self.recall[0].1)),
            digit1_hit: hits[0],
            digit2_hit: hits[1],
            digit3_hit: hits[2],
            digit4up_hit: hits[3],
            grad_norm: mean(self.grad_norm.0, self.steps),
            lambda,
            tokens_per_s,
        }
    }
}

/// The mean of `n` numbers; 0 without numbers.
fn mean(sum: f64, n: usize) -> f64 {
    sum / n.max(1) as f64
}

/// Reads all lines of a log; none of one that is not there.
pub(super) fn read<L: for<'de> Deserialize<'de>>(path: &Path) -> Result<Vec<L>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    files::csv_lines(path)?.collect()
}

/// Opens a log for appending after removing the lines beyond `tokens`, which a resumed run writes again. The last line
/// may be incomplete if the process was killed. The file is replaced atomically.
pub(super) fn open<L>(path: &Path, tokens: usize, tokens_of: impl Fn(&L) -> usize) -> Result<csv::Writer<std::fs::File>>
where
    L: Serialize + for<'de> Deserialize<'de>,
{
    let mut kept: Vec<L> = Vec::new();
    if files::is_there(path) {
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
