//! Training batches: documents by global index, with a target and a loss weight for every position.

use super::corpus::Corpora;
use super::spec::{LossSpec, Stage};
use anyhow::Result;
use base::bail_usage;
use stats::Rng;
use text::{document, Document, Haystack, Tokenizer};

/// The tokens of one step. `targets`, `weights` and `kinds` are flat over (B, T).
pub struct Batch {
    /// Inputs: B rows of T ids.
    pub inputs: Vec<Vec<u32>>,
    /// The token after each input.
    pub targets: Vec<u32>,
    /// Loss weight of each target.
    pub weights: Vec<f32>,
    /// Kind of each target.
    pub kinds: Vec<TargetKind>,
}

/// Consecutive rows of a batch.
pub struct BatchPart<'a> {
    /// See [`Batch::inputs`].
    pub inputs: &'a [Vec<u32>],
    /// See [`Batch::targets`].
    pub targets: &'a [u32],
    /// See [`Batch::weights`].
    pub weights: &'a [f32],
}

impl Batch {
    /// Splits the batch into parts of whole rows with about `tokens` tokens, at least one row each.
    pub fn parts(&self, tokens: usize) -> impl Iterator<Item = BatchPart<'_>> {
        let t = self.inputs.first().map_or(1, Vec::len).max(1);
        let rows = (tokens / t).max(1);
        let flat = self.targets.chunks(rows * t).zip(self.weights.chunks(rows * t));
        self.inputs.chunks(rows).zip(flat).map(|(inputs, (targets, weights))| BatchPart { inputs, targets, weights })
    }
}

/// The kind of a target token, for its loss weight and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Ordinary text.
    Text,
    /// A digit of a value stated for the first time.
    NewDigit,
    /// The n-th digit (1-based) of a value the context has stated before.
    Recall(u8),
}

/// The source of a run's batches. The same seed gives every variant the same data in the same order.
pub struct DataSource<'a> {
    haystack: Haystack,
    tokenizer: &'a Tokenizer,
    /// Tokens of the digits; `None` if the tokenizer joins digits.
    digits: Option<Vec<u32>>,
    texts: Option<&'a Corpora>,
    seed: u64,
}

impl<'a> DataSource<'a> {
    /// Creates a source with the embedded haystack.
    pub fn new(seed: u64, tokenizer: &'a Tokenizer) -> Self {
        let digits = digits(tokenizer).ok();
        Self { haystack: Haystack::Embedded, digits, tokenizer, texts: None, seed }
    }

    /// The source with these texts, for stages that have some.
    pub(super) fn with_texts(self, texts: &'a Corpora) -> Self {
        Self { texts: Some(texts), ..self }
    }

    /// Returns `true` if the tokenizer can state facts: it makes a token of each digit.
    pub(super) fn states_facts(&self) -> bool {
        self.digits.is_some()
    }

    /// The batch whose first document has the global index `first_document`.
    pub fn batch(&self, stage: &Stage, loss: &LossSpec, first_document: u64) -> Result<Batch> {
        let rows = stage.step_tok / stage.ctx_tok;
        let mut batch = Batch { inputs: Vec::new(), targets: Vec::new(), weights: Vec::new(), kinds: Vec::new() };
        for row in 0..rows as u64 {
            // Documents are numbered over the whole run; each seed has its own sequence of them.
            let seed = (self.seed << 32) + first_document + row;
            let (document, digits) = self.document(stage, seed)?;
            let inputs = &document.ids[..stage.ctx_tok];
            let targets = &document.ids[1..];
            for (&target, &digit) in targets.iter().zip(&document.digit[1..]) {
                let kind = match digit {
                    0 if digits.contains(&target) => TargetKind::NewDigit,
                    0 => TargetKind::Text,
                    position => TargetKind::Recall(position),
                };
                batch.weights.push(weight(kind, loss));
                batch.kinds.push(kind);
            }
            batch.inputs.push(inputs.to_vec());
            batch.targets.extend(targets);
        }
        Ok(batch)
    }

    /// The document of a seed: a window of a text, or facts; then also the tokens of digits.
    fn document(&self, stage: &Stage, seed: u64) -> Result<(Document, &[u32])> {
        let texts = self.texts.and_then(|texts| texts.of(stage));
        // A stream of its own, which leaves documents of facts as they are without texts.
        if let Some(texts) = texts.filter(|_| Rng::new(seed, "train source").unit() < stage.data.text_share) {
            let ids = texts.drawn(stage.ctx_tok, seed);
            return Ok((Document { digit: vec![0; ids.len()], ids }, &[]));
        }
        let Some(digits) = &self.digits else { bail_usage!("{}", joins_digits(self.tokenizer)) };
        Ok((document(&stage.data, stage.ctx_tok, seed, self.tokenizer, &self.haystack)?, digits))
    }
}

/// The tokens of the digits 0 to 9.
///
/// # Errors
/// If the tokenizer fails. A usage error if it does not make one token of each digit of a number.
pub(super) fn digits(tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let digits = tokenizer.encode("0123456789")?.ids;
    let in_a_sentence = tokenizer.encode(" The number is: 9876543210.")?.ids;
    let found = in_a_sentence.iter().filter(|id| digits.contains(id)).count();
    if digits.len() != 10 || found != 10 {
        bail_usage!("{}", joins_digits(tokenizer));
    }
    Ok(digits)
}

fn joins_digits(tokenizer: &Tokenizer) -> String {
    format!(
        "{}: it does not make one token of each digit, by which facts are taught and scored; train on texts alone \
         (stage.data.text)",
        tokenizer.name
    )
}

fn weight(kind: TargetKind, loss: &LossSpec) -> f32 {
    match kind {
        TargetKind::Text => 1.0,
        TargetKind::NewDigit => loss.new_digits as f32,
        TargetKind::Recall(1) => loss.first_digit as f32,
        TargetKind::Recall(_) => loss.other_digits as f32,
    }
}
