//! Activation patching: the prompt with another answer, and what heads write on both.

use super::Setup;
use crate::treatments::{rows_of, PairedOutputs};
use anyhow::Result;
use engine::attention::{HeadOutputSums, Prefix, Stream};
use engine::model::open::Model;
use names::condition::{PairedPrompt, RowSelection};
use std::ops::Range;
use text::Prompt;

/// The passes in which outputs of heads are recorded.
#[derive(Default)]
pub(super) struct PairedPasses {
    /// Outputs of heads that conditions take.
    pub(super) outputs: PairedOutputs,
    /// The corrupted prompt, if conditions patch.
    pub(super) corrupted: Option<Corrupted>,
    /// Keys and values of the untreated pass over the prompt itself, if there was one and passes share them.
    pub(super) clean: Option<Prefix>,
}

/// The corrupted prompt of a pair.
pub(super) struct Corrupted {
    pub(super) prompt: Prompt,
    /// Keys and values of the untreated pass, if passes share them.
    pub(super) prefix: Option<Prefix>,
}

/// Runs an untreated pass over the prompt, if conditions take outputs from it, and one over the corrupted prompt. None if
/// no condition patches.
pub(super) fn paired(setup: &Setup, model: &Model, prompt: &Prompt, seed: u64) -> Result<PairedPasses> {
    let wanted = setup.patched_rows();
    if wanted.is_empty() {
        return Ok(PairedPasses::default());
    }
    let mut outputs = PairedOutputs::new();
    let mut pass = |prompt: &Prompt, kind: PairedPrompt| -> Result<Option<Prefix>> {
        let rows: Vec<RowSelection> = wanted.iter().filter(|(from, _)| *from == kind).map(|(_, rows)| *rows).collect();
        if rows.is_empty() && !setup.shares_prefixes() {
            return Ok(None);
        }
        let (layers, prefix) = recorded(model, prompt, &rows, setup.shares_prefixes())?;
        outputs.extend(rows.iter().map(|&rows| (kind, rows)).zip(layers));
        Ok(prefix)
    };
    let corrupted = prompt.corrupted(seed, model.tokenizer()?)?;
    let clean = pass(prompt, PairedPrompt::Clean)?;
    let prefix = pass(&corrupted, PairedPrompt::Corrupted)?;
    Ok(PairedPasses { outputs, corrupted: Some(Corrupted { prompt: corrupted, prefix }), clean })
}

/// Outputs of all heads in some rows, by layer (rows, H, value width).
type LayerOutputs = Vec<Vec<f32>>;

/// Outputs in the rows of each selection, and the keys and values of the pass if they are to be kept.
fn recorded(
    model: &Model,
    prompt: &Prompt,
    selections: &[RowSelection],
    keeping: bool,
) -> Result<(Vec<LayerOutputs>, Option<Prefix>)> {
    let rows: Vec<Vec<usize>> =
        selections.iter().map(|rows| rows_of(*rows, prompt).into_iter().flatten().collect()).collect();
    // The sum over a set of one row is the row itself.
    let sets: Vec<Vec<Range<usize>>> = rows.iter().flatten().map(|&row| vec![row..row + 1]).collect();
    let stream = Stream::new(&[]);
    let mut attend = HeadOutputSums::new(if keeping { stream.keeping() } else { stream }, sets);
    model.transformer.hidden(std::slice::from_ref(&prompt.ids), &mut attend)?;
    let prefix = attend.take_prefix(&prompt.ids);
    let mut sums = attend.sums.into_iter();
    let layers = rows.iter().map(|rows| {
        let mut layers = vec![Vec::new(); model.transformer.config.layers.len()];
        for of_row in sums.by_ref().take(rows.len()) {
            for (layer, of_row) in layers.iter_mut().zip(of_row) {
                layer.extend(of_row.into_iter().map(|x| x as f32));
            }
        }
        layers
    });
    Ok((layers.collect(), prefix))
}
