//! Gathers what the explorer shows, in one pass over the prompt for each model.

use super::contribution::Agreements;
use super::detail::{Detail, HeadSketch};
use super::keep::Keep;
use super::probe::{ExploreProbe, ExploreSink, Resolution};
use super::race::Entrant;
use crate::attention::RowProbe;
use crate::measure::{token_text, Extent, Findings, Kept, Measure, Place, Seen};
use crate::probe::runs;
use crate::prompt::{Prompt, Region};
use anyhow::Result;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Watches one prompt.
pub struct ExploreMeasure {
    /// How much is kept of each model.
    pub resolutions: Vec<Resolution>,
    /// What was kept, by model and condition.
    pub found: BTreeMap<Place, ModelMaps>,
    agreements: Vec<Arc<Agreements>>,
    /// Passes over the prompt: models times conditions.
    passes: usize,
    /// The heads that were kept of the untreated pass of each model: those of the treated ones are the same.
    chosen: Mutex<BTreeMap<usize, Vec<(usize, usize)>>>,
}

impl ExploreMeasure {
    /// A measure of models of these resolutions and agreements, each under so many conditions.
    pub fn new(resolutions: Vec<Resolution>, agreements: Vec<Agreements>, conditions: usize) -> Self {
        let passes = resolutions.len() * conditions;
        let agreements = agreements.into_iter().map(Arc::new).collect();
        Self { resolutions, found: BTreeMap::new(), agreements, passes, chosen: Mutex::default() }
    }

    fn chosen(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<(usize, usize)>>> {
        self.chosen.lock().expect("nobody panicked with the list of heads")
    }
}

/// What was kept of one model.
pub struct ModelMaps {
    /// The prompt as this model has it.
    pub prompt: PromptFacts,
    /// Which token pairs are kept.
    pub keep: Keep,
    /// Every head, by layer and head.
    pub sketches: BTreeMap<(usize, usize), HeadSketch>,
    /// The heads that are kept token by token, the best first.
    pub details: Vec<Entrant<Detail>>,
}

/// A prompt as the page shows it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PromptFacts {
    /// What each token adds to the text. They are many, and stand in the page by themselves.
    #[serde(skip)]
    pub texts: Vec<String>,
    /// The regions as seen from the first question: name, first token, one past the last.
    pub regions: Vec<(&'static str, usize, usize)>,
    /// The questions.
    pub questions: Vec<QuestionFacts>,
    /// Rows that predict an answer, or are measured as if they did.
    pub rows: Vec<Range<usize>>,
}

/// A question of the prompt.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct QuestionFacts {
    /// The city asked about.
    pub city: String,
    /// The value.
    pub value: String,
    /// Its tokens in the needle.
    pub answer: Range<usize>,
}

impl PromptFacts {
    fn of(seen: &Seen<'_>) -> Result<Self> {
        let prompt = seen.prompt;
        let targets = prompt.targets();
        let regions = targets.first().map(|target| runs(&target.regions)).unwrap_or_default();
        let texts = texts(prompt, |id| token_text(seen.tokenizer, id))?;
        let question = |query: &crate::prompt::Query| QuestionFacts {
            city: query.city.clone(),
            value: query.value.clone(),
            answer: query.answer.clone(),
        };
        Ok(Self {
            texts,
            regions: regions.into_iter().map(|(r, keys): (Region, _)| (r.name(), keys.start, keys.end)).collect(),
            questions: prompt.queries.iter().map(question).collect(),
            rows: targets.into_iter().map(|target| target.rows).collect(),
        })
    }
}

/// What each token adds to the text: tokenizers may trim the space between tokens, and a letter may be cut into several. A
/// token that adds nothing is shown by what it says alone.
fn texts(prompt: &Prompt, alone: impl Fn(u32) -> Result<String>) -> Result<Vec<String>> {
    let mut end = 0;
    let text = |(&id, &(_, stop)): (&u32, &(usize, usize))| {
        let start = end;
        end = stop.max(end);
        match prompt.text.get(start..end).unwrap_or_default() {
            "" => alone(id),
            text => Ok(text.to_owned()),
        }
    };
    prompt.ids.iter().zip(&prompt.offsets).map(text).collect()
}

impl Measure for ExploreMeasure {
    fn memory_bytes(&self, pass: &Extent) -> u64 {
        // The heads of a layer pass beside each other; the best of every pass are kept.
        let passing = self.resolutions[pass.model].head_bytes(pass.ctx_tok) * pass.heads as u64;
        let conditions = (self.passes / self.resolutions.len()) as u64;
        passing + conditions * self.resolutions.iter().map(|kept| kept.kept_bytes(pass.ctx_tok)).sum::<u64>()
    }

    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let probe = ExploreProbe::new(prompt, self.resolutions[model], Arc::clone(&self.agreements[model]));
        let chosen = self.chosen().get(&model).cloned();
        vec![Box::new(match chosen {
            Some(heads) => probe.only(heads),
            None => probe,
        })]
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let prompt = PromptFacts::of(&seen)?;
        let mut sketches = BTreeMap::new();
        let mut details = Vec::new();
        for sighting in seen.sightings {
            let sink = sighting.sink.into_sink::<ExploreSink>();
            let (sketch, race) = sink.into_parts();
            sketches.insert((sighting.layer, sighting.head), sketch);
            details.extend(race.finish());
        }
        if seen.place.condition == 0 {
            let heads = details.iter().map(|entrant: &Entrant<Detail>| entrant.at).collect();
            self.chosen().insert(seen.place.model, heads);
        }
        let keep = Keep::of(seen.prompt);
        findings.pooled = Some(Box::new(ModelMaps { prompt, keep, sketches, details }) as Kept);
        Ok(())
    }

    fn absorb(&mut self, place: Place, pooled: Kept) {
        let maps = pooled.downcast::<ModelMaps>().expect("this measure pools maps");
        self.found.entry(place).or_insert(*maps);
    }
}
