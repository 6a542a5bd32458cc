//! Collection of the explorer's data, in one pass over the prompt per model and condition.

use super::detail::{Candidate, HeadSketch};
use super::probe::{ExploreCollector, ExploreProbe, KnownHeads, Resolution};
use super::stored_pairs::StoredPairs;
use crate::measures::{region_ranges, token_text, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey};
use anyhow::Result;
use engine::attention::RowProbe;
use names::{HeadPlace, Region};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use text::{Prompt, Query};

/// Collects the data of one prompt.
pub(crate) struct ExploreMeasure {
    /// Resolution of each model.
    pub(crate) resolutions: Vec<Resolution>,
    /// Data by model and condition.
    pub(crate) of_passes: BTreeMap<PassKey, ModelMaps>,
    /// Agreements and attributions of the heads of each model.
    known: Vec<Arc<KnownHeads>>,
    /// Detailed heads of the untreated pass of each model. Treated passes use the same.
    chosen: Mutex<BTreeMap<usize, Vec<HeadPlace>>>,
}

impl ExploreMeasure {
    /// The measure for models with these resolutions, with these agreements and attributions of heads.
    pub(crate) fn new(resolutions: Vec<Resolution>, known: Vec<KnownHeads>) -> Self {
        let known = known.into_iter().map(Arc::new).collect();
        Self { resolutions, of_passes: BTreeMap::new(), known, chosen: Mutex::default() }
    }

    /// Returns `true` if the heads of a model are ranked by how much they bring the answer.
    pub(crate) fn is_by_score(&self, model: usize) -> bool {
        !self.known[model].scores.is_empty()
    }

    fn chosen(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<HeadPlace>>> {
        self.chosen.lock().expect("no panic holds this lock")
    }
}

/// The data of one pass.
pub(crate) struct ModelMaps {
    /// The prompt as encoded by this model's tokenizer.
    pub(crate) prompt: PromptFacts,
    /// Selection of the stored pairs.
    pub(crate) keep: StoredPairs,
    /// Data of every head.
    pub(crate) sketches: BTreeMap<HeadPlace, HeadSketch>,
    /// The detailed heads, best first.
    pub(crate) details: Vec<Candidate>,
}

/// The prompt as displayed.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(crate) struct PromptFacts {
    /// Text of each token. Serialised separately, because there are many.
    #[serde(skip)]
    pub(crate) texts: Vec<String>,
    /// Regions with respect to the first question: name, first token, end.
    pub(crate) regions: Vec<(&'static str, usize, usize)>,
    pub(crate) questions: Vec<QuestionFacts>,
    /// The measured rows: those that predict an answer, or the last ones of plain text.
    pub(crate) rows: Vec<Range<usize>>,
}

/// A question of the prompt.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(crate) struct QuestionFacts {
    /// The name asked about.
    pub(crate) name: String,
    pub(crate) value: String,
    /// Its tokens in the needle.
    pub(crate) answer: Range<usize>,
}

impl PromptFacts {
    fn new(pass: &ObservedPass<'_>) -> Result<Self> {
        let prompt = pass.prompt;
        let targets = prompt.targets();
        let regions = targets.first().map(|target| region_ranges(&target.regions)).unwrap_or_default();
        let texts = texts(prompt, |id| token_text(pass.tokenizer, id))?;
        let mut questions = Vec::new();
        for Query { name, value, answer, .. } in &prompt.queries {
            questions.push(QuestionFacts { name: name.clone(), value: value.clone(), answer: answer.clone() });
        }
        Ok(Self {
            texts,
            regions: regions.into_iter().map(|(r, keys): (Region, _)| (r.name(), keys.start, keys.end)).collect(),
            questions,
            rows: targets.into_iter().map(|target| target.rows).collect(),
        })
    }
}

/// Text that each token adds. Tokenizers may trim spaces between tokens, and a character may be split into several
/// tokens; a token that adds nothing is displayed by its own text.
fn texts(prompt: &Prompt, alone: impl Fn(u32) -> Result<String>) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut end = 0;
    for (&id, &(_, stop)) in prompt.ids.iter().zip(&prompt.offsets) {
        let start = end;
        end = stop.max(end);
        texts.push(match prompt.text.get(start..end).unwrap_or_default() {
            "" => alone(id)?,
            text => text.to_owned(),
        });
    }
    Ok(texts)
}

impl Measure for ExploreMeasure {
    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let known = Arc::clone(&self.known[model]);
        let chosen = self.chosen().get(&model).cloned();
        vec![Box::new(ExploreProbe::new(prompt, self.resolutions[model], known, chosen))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let prompt = PromptFacts::new(&pass)?;
        let mut sketches = BTreeMap::new();
        let mut details = Vec::new();
        for result in pass.probe_results {
            let (sketch, top) = result.collector.into_collector::<ExploreCollector>().into_parts();
            sketches.insert(result.at, sketch);
            details.extend(top.finish());
        }
        if pass.key.condition == 0 {
            let heads = details.iter().map(|candidate: &Candidate| candidate.at).collect();
            self.chosen().insert(pass.key.model, heads);
        }
        let keep = StoredPairs::new(pass.prompt);
        output.pooled = Some(Box::new(ModelMaps { prompt, keep, sketches, details }) as MeasureData);
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let maps = pooled.downcast::<ModelMaps>().expect("this measure pools maps");
        self.of_passes.entry(key).or_insert(*maps);
    }
}
