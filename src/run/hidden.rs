//! What a region costs: the scores of answers whose rows do not see it.

use super::starts::most_at_once;
use crate::measures::HiddenScores;
use crate::treatments::{PromptFindings, Reference, Resolver};
use anyhow::Result;
use engine::attention::{Prefix, Stream};
use engine::model::open::Model;
use engine::model::pass::{continued_passes, first_observed_row, pass, SharedStart};
use names::condition::{KeySelection, Removal, RowSelection, Treatment};
use names::Region;
use text::Prompt;

/// What is hidden: noise, its other needles, and its prose.
const HIDDEN: [&[Region]; 3] = [&Region::NOISE, &[Region::Distractor], &[Region::Filler]];

/// Scores the answers of a prompt under the condition `mask(region)` for each region that it has. `prefix` has the keys and values
/// of an untreated pass over it, of which passes share those before the first answer; without one, they are whole. Empty without a
/// question.
pub(super) fn hidden_scores(model: &Model, prompt: &Prompt, prefix: Option<&Prefix>) -> Result<Vec<HiddenScores>> {
    if prompt.queries.is_empty() {
        return Ok(Vec::new());
    }
    let resolver = Resolver::of(model);
    let reference = Reference::default();
    let findings = PromptFindings::default();
    let mut regions = Vec::new();
    let mut treated = Vec::new();
    for hidden in HIDDEN {
        let keys = KeySelection::Regions(hidden.to_vec());
        let region = keys.to_string();
        let condition = Treatment::remove(Removal::Mask, keys, RowSelection::Answer).into();
        let resolved = resolver.resolve(&condition, &reference, &findings, prompt, 0, false);
        if resolved.removed.iter().any(|removal| !removal.keys.is_empty()) {
            regions.push(region);
            treated.push(resolved);
        }
    }
    let transformer = &model.transformer;
    let mut passed = Vec::new();
    if let Some(prefix) = prefix {
        let start = first_observed_row(transformer, prompt, &Stream::new(&[]), false);
        for batch in treated.chunks(most_at_once(prompt.ids.len(), start)) {
            let streams = batch.iter().map(|treated| Stream::new(&[]).treated(Some(treated))).collect();
            passed.extend(continued_passes(transformer, prompt, streams, SharedStart::at(prefix, start))?);
        }
    } else {
        for treated in &treated {
            passed.push(pass(transformer, prompt, Stream::new(&[]).treated(Some(treated)), false)?);
        }
    }
    let scores = regions.into_iter().zip(passed);
    Ok(scores.map(|(region, passed)| HiddenScores { region, queries: passed.queries }).collect())
}
