//! Resolution of conditions to positions, layers and heads of one model and one prompt.

use super::positions::{positions_of, region_views};
use anyhow::Result;
use base::bail_usage;
use engine::attention::{KeyRemoval, OutputReplacement, ResolvedTreatment};
use engine::model::open::Model;
use names::condition::{
    Condition, HeadSelection, KeySelection, PairedPrompt, Ranking, Removal, Replacement, RowSelection, Treatment,
};
use names::{HeadPlace, LayersAndHeads, Region};
use stats::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use text::Prompt;

/// Measurements of a model's heads on reference prompts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    /// Mean outputs of heads over each selection of rows: by layer, (H, value width), row-major.
    pub written: BTreeMap<RowSelection, Vec<Vec<f32>>>,
    /// Heads from best to worst with their scores, by ranking.
    pub rankings: BTreeMap<Ranking, Vec<(HeadPlace, f64)>>,
    /// Pearson's correlation over heads between the scores on two halves of the prompts, by ranking; `None` where it has none.
    pub agreements: BTreeMap<Ranking, Option<f64>>,
}

/// Outputs of all heads in some rows of untreated passes over a prompt and the one with another answer: by layer, (rows, H,
/// value width), row-major.
pub type PairedOutputs = BTreeMap<(PairedPrompt, RowSelection), Vec<Vec<f32>>>;

/// Findings of earlier passes over a prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptFindings {
    /// The attention sinks of every head, for quantisers that exempt them.
    pub sinks: BTreeMap<HeadPlace, Vec<usize>>,
    /// Outputs of heads, for patches.
    pub outputs: PairedOutputs,
}

/// Resolver of the conditions of one model.
#[derive(Clone, Debug)]
pub struct Resolver<'a> {
    /// Name of the model, for messages.
    pub model: &'a str,
    /// Number of layers.
    pub layers: usize,
    /// Number of output heads in each layer.
    pub heads: usize,
    /// Number of maps of each head.
    pub maps: usize,
}

impl<'a> Resolver<'a> {
    /// That of a model.
    pub fn of(model: &'a Model) -> Self {
        let config = &model.transformer.config;
        let wiring = config.wiring();
        Self { model: &model.name, layers: config.layers.len(), heads: wiring.heads(), maps: wiring.maps() }
    }
}

impl Resolver<'_> {
    /// Checks that the model supports a condition. `plain_text` is set for prompts without questions.
    ///
    /// # Errors
    /// Usage errors that state what the model or prompt has.
    pub fn check(&self, condition: &Condition, plain_text: bool) -> Result<()> {
        for treatment in condition.treatments() {
            let (layers, heads, rows) = match treatment {
                Treatment::Quantise(quantiser) => (quantiser.layers.as_deref(), None, RowSelection::All),
                Treatment::Remove { how: Removal::SilenceSecond, .. } if self.maps < 2 => {
                    bail_usage!(
                        "the condition {condition}: heads of {} have one map, which subtracts nothing",
                        self.model
                    );
                }
                Treatment::Remove { of, rows, keys, .. } => {
                    let regions = match keys {
                        KeySelection::Regions(regions) | KeySelection::RandomLike(regions) => regions.as_slice(),
                        KeySelection::Random(_) => &[],
                    };
                    let of_text = [Region::Bos, Region::First, Region::Filler];
                    if plain_text && !regions.is_empty() && regions.iter().all(|region| !of_text.contains(region)) {
                        bail_usage!("the condition {condition}: plain text has only the regions bos, first and filler");
                    }
                    (of.layers.as_deref(), of.heads.as_deref(), *rows)
                }
                Treatment::Replace { heads, of, rows, .. } => {
                    self.check_heads(condition, heads, plain_text)?;
                    (of.layers.as_deref(), of.heads.as_deref(), *rows)
                }
            };
            if plain_text && !matches!(rows, RowSelection::Answer | RowSelection::All) {
                bail_usage!(
                    "the condition {condition}: plain text has no question; use rows answer (the last 32) or all"
                );
            }
            for (what, wanted, have) in [("layers", layers, self.layers), ("heads", heads, self.heads)] {
                if let Some(index) = wanted.unwrap_or_default().iter().find(|&&index| index >= have) {
                    bail_usage!(
                        "the condition {condition}: {what}={index}, but {} has {what} 0 to {}",
                        self.model,
                        have - 1
                    );
                }
            }
        }
        Ok(())
    }

    fn check_heads(&self, condition: &Condition, heads: &HeadSelection, plain_text: bool) -> Result<()> {
        let layers = self.layers;
        let of_each = self.heads;
        match heads {
            HeadSelection::All => {}
            HeadSelection::Named(list) => {
                if let Some(at) = list.iter().find(|at| at.layer >= layers || at.head >= of_each) {
                    bail_usage!(
                        "the condition {condition}: there is no head {at}; {} has heads 0.0 to {}",
                        self.model,
                        HeadPlace { layer: layers - 1, head: of_each - 1 }
                    );
                }
            }
            HeadSelection::Best { n, by } | HeadSelection::Random { n, by, .. } => {
                if *n > layers * of_each {
                    bail_usage!("the condition {condition}: {} has only {} heads", self.model, layers * of_each);
                }
                if matches!(heads, HeadSelection::Random { .. }) && 2 * n > layers * of_each {
                    bail_usage!(
                        "the condition {condition}: {} has {} heads, too few for {n} random ones besides the best {n}",
                        self.model,
                        layers * of_each
                    );
                }
                if plain_text {
                    bail_usage!(
                        "the condition {condition}: plain text has no answers, so heads cannot be ranked by {}",
                        by.name()
                    );
                }
            }
        }
        Ok(())
    }

    /// Resolves a condition for a pass over a prompt, of which `seed` is the seed. If `generating`, the prompt has no
    /// answers, and all rows from the one that predicts the first answer on count as answer rows.
    ///
    /// # Panics
    /// If `findings` lack the outputs that a patch takes.
    pub fn resolve(
        &self,
        condition: &Condition,
        reference: &Reference,
        findings: &PromptFindings,
        prompt: &Prompt,
        seed: u64,
        generating: bool,
    ) -> ResolvedTreatment {
        let mut treated = ResolvedTreatment::default();
        for treatment in condition.treatments() {
            match treatment {
                Treatment::Quantise(quantiser) => {
                    treated.quantisers.push(quantiser.clone());
                    treated.sinks.clone_from(&findings.sinks);
                }
                Treatment::Remove { how, keys, of, rows } => {
                    for (rows, regions) in region_views(prompt, *rows, generating) {
                        let keys = positions_of(keys, &regions, seed, generating);
                        treated.removed.push(KeyRemoval { how: *how, of: of.clone(), rows, keys });
                    }
                }
                Treatment::Replace { others, heads, of, rows, with } => {
                    let at: Vec<Range<usize>> =
                        region_views(prompt, *rows, generating).into_iter().map(|(rows, _)| rows).collect();
                    for HeadPlace { layer, head } in self.replaced_heads(*others, heads, of, reference) {
                        let output = match with {
                            Replacement::Zero => None,
                            Replacement::Mean => reference.written.get(rows).map(|layers| (&layers[layer], 1)),
                            Replacement::Patch(from) => {
                                let of_rows = at.iter().map(ExactSizeIterator::len).sum();
                                Some((&findings.outputs[&(*from, *rows)][layer], of_rows))
                            }
                        };
                        let output = output.map_or_else(Vec::new, |(written, rows)| self.of_head(written, rows, head));
                        treated.replaced.push(OutputReplacement { layer, head, rows: at.clone(), output });
                    }
                }
            }
        }
        treated
    }

    /// Outputs of one head: (rows, H, value width) -> (rows, value width).
    fn of_head(&self, written: &[f32], rows: usize, head: usize) -> Vec<f32> {
        let width = written.len() / (rows * self.heads);
        written.chunks_exact(width).skip(head).step_by(self.heads).flatten().copied().collect()
    }

    /// The heads whose output is replaced.
    fn replaced_heads(
        &self,
        others: bool,
        heads: &HeadSelection,
        of: &LayersAndHeads,
        reference: &Reference,
    ) -> Vec<HeadPlace> {
        let selected: BTreeSet<HeadPlace> = match heads {
            HeadSelection::All => self.every_head().collect(),
            HeadSelection::Named(list) => list.iter().copied().collect(),
            HeadSelection::Best { n, by } => reference.best(*n, *by).collect(),
            HeadSelection::Random { n, by, draw } => self.random(&reference.best(*n, *by).collect(), *draw),
        };
        self.every_head().filter(|at| of.has(*at) && selected.contains(at) != others).collect()
    }

    fn every_head(&self) -> impl Iterator<Item = HeadPlace> + use<> {
        HeadPlace::all(self.layers, self.heads)
    }

    /// Draws as many heads outside `best` as it has, from the same layers in the same numbers as far as these have others.
    /// `draw` is the seed.
    fn random(&self, best: &BTreeSet<HeadPlace>, draw: u64) -> BTreeSet<HeadPlace> {
        let mut rng = Rng::new(draw, "random heads");
        let mut others: Vec<HeadPlace> = self.every_head().filter(|head| !best.contains(head)).collect();
        rng.shuffle(&mut others);
        let mut drawn = BTreeSet::new();
        for layer in 0..self.layers {
            let wanted = best.iter().filter(|at| at.layer == layer).count();
            drawn.extend(others.iter().filter(|at| at.layer == layer).take(wanted));
        }
        for head in others {
            if drawn.len() < best.len() {
                drawn.insert(head);
            }
        }
        drawn
    }
}

impl Reference {
    /// Mean outputs of heads in the rows that predict an answer, by layer: (H, value width).
    pub fn answer_means(&self) -> Option<&[Vec<f32>]> {
        self.written.get(&RowSelection::Answer).map(Vec::as_slice)
    }

    fn best(&self, n: usize, by: Ranking) -> impl Iterator<Item = HeadPlace> + '_ {
        self.rankings.get(&by).into_iter().flatten().take(n).map(|(head, _)| *head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatments::rows_of;
    use text::{needle, CitySet, Haystack, NeedleSpec, Tokenizer};

    fn prompt(retrieve: usize) -> Prompt {
        let spec = NeedleSpec {
            ctx_tok: 400,
            needles: 3,
            retrieve,
            depth_pct: 50.0,
            cities: CitySet::Train,
            ..NeedleSpec::default()
        };
        needle::build(&spec, 5, Tokenizer::embedded(), &Haystack::Embedded).unwrap()
    }

    const RESOLVER: Resolver<'_> = Resolver { model: "m", layers: 2, heads: 4, maps: 2 };

    fn resolved(name: &str, prompt: &Prompt, generating: bool) -> ResolvedTreatment {
        let ranked = [(1, 2), (0, 0), (1, 3), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
            .map(|(layer, head)| (HeadPlace { layer, head }, 0.0))
            .to_vec();
        let reference = Reference {
            written: [(RowSelection::Answer, vec![(0..8).map(|i| i as f32).collect(), vec![9.0; 8]])].into(),
            rankings: [(Ranking::ShareAbs, ranked)].into(),
            agreements: BTreeMap::new(),
        };
        let rows = rows_of(RowSelection::Answer, prompt).into_iter().map(|rows| rows.len()).sum::<usize>();
        let layer = |first: usize| (0..rows * 4 * 2).map(|i| (first + i) as f32).collect();
        let outputs = [PairedPrompt::Clean, PairedPrompt::Corrupted]
            .map(|from| ((from, RowSelection::Answer), vec![layer(from as usize * 1000), layer(500)]));
        let findings = PromptFindings { outputs: outputs.into(), ..PromptFindings::default() };
        RESOLVER.resolve(&name.parse().unwrap(), &reference, &findings, prompt, 5, generating)
    }

    /// The keys removed from a row.
    fn lost(treated: &ResolvedTreatment, row: usize) -> Vec<usize> {
        let of_row = treated.removed.iter().filter(|removed| removed.rows.contains(&row));
        of_row.flat_map(|removed| removed.keys.iter().cloned().flatten()).collect()
    }

    #[test]
    fn keys_are_removed_by_the_question_that_a_row_answers() {
        let prompt = prompt(2);
        let treated = resolved("mask(needle+answer)", &prompt, false);
        assert_eq!(treated.removed[0].how, Removal::Mask);
        for (i, query) in prompt.queries.iter().enumerate() {
            assert!(query.rows().all(|row| lost(&treated, row) == query.needle.clone().collect::<Vec<_>>()), "{i}");
        }
        let before = prompt.queries[0].rows().start - 1;
        assert!(lost(&treated, before).is_empty(), "no row of an answer");
        // Rows that answer no question lose both needles that are asked for, but not the third.
        let treated = resolved("mask(needle+answer, rows=question)", &prompt, false);
        let both = prompt.queries.iter().map(|query| query.needle.len()).sum::<usize>();
        assert_eq!(lost(&treated, before).len(), both);
        assert_eq!(lost(&treated, prompt.queries[1].rows().start).len(), prompt.queries[1].needle.len());
        assert!(lost(&treated, prompt.haystack.end - 1).is_empty() && !lost(&treated, prompt.haystack.end).is_empty());
        let noise = resolved("silence(noise, rows=all)", &prompt, false);
        let regions = prompt.regions(Some(0));
        let wanted: Vec<usize> = (0..regions.len()).filter(|&i| Region::NOISE.contains(&regions[i])).collect();
        assert_eq!(lost(&noise, prompt.queries[0].rows().start), wanted);
    }

    #[test]
    fn random_keys_are_from_the_context_and_reproducible() {
        let prompt = prompt(1);
        let row = prompt.queries[0].rows().start;
        let few = lost(&resolved("mask(random:20)", &prompt, false), row);
        assert_eq!(few.len(), 20);
        assert!(few.iter().all(|&key| prompt.haystack.end > key && key > 0));
        assert_eq!(few, lost(&resolved("silence(random:20)", &prompt, false), row));
        let noise = lost(&resolved("mask(noise)", &prompt, false), row);
        let like = lost(&resolved("mask(random:noise)", &prompt, false), row);
        assert!(noise.len() == like.len() && noise != like);
        assert!(few.iter().all(|key| like.contains(key)), "more of the same");
    }

    #[test]
    fn heads_are_the_best_of_a_ranking_or_others_of_the_same_layers() {
        let prompt = prompt(1);
        let heads = |name: &str| -> Vec<String> {
            let replaced = resolved(name, &prompt, false).replaced;
            replaced.iter().map(|&OutputReplacement { layer, head, .. }| format!("{layer}.{head}")).collect()
        };
        assert_eq!(heads("ablate(best:3:share_abs)"), ["0.0", "1.2", "1.3"]);
        assert_eq!(heads("keep(best:3:share_abs, layers=1)"), ["1.0", "1.1"]);
        assert_eq!(heads("ablate(all, heads=2)"), ["0.2", "1.2"]);
        let draws: Vec<Vec<String>> =
            (0..10).map(|draw| heads(&format!("ablate(random:3:share_abs:{draw})"))).collect();
        let best: BTreeSet<String> = heads("ablate(best:3:share_abs)").into_iter().collect();
        assert!(draws.iter().all(|draw| draw.len() == 3 && draw.iter().all(|head| !best.contains(head))), "{draws:?}");
        // From the same layers: one of three heads, and the only two.
        assert!(draws.iter().all(|draw| draw[0].starts_with("0.") && draw[1..] == ["1.0", "1.1"]), "{draws:?}");
        assert!(draws.iter().collect::<BTreeSet<_>>().len() > 1, "{draws:?}");
    }

    #[test]
    fn replaced_heads_output_their_mean_or_zero() {
        let prompt = prompt(1);
        let output = |name: &str| resolved(name, &prompt, false).replaced[0].output.clone();
        assert_eq!(output("ablate(0.1)"), [2.0, 3.0]);
        assert!(output("ablate(0.1, zero)").is_empty());
    }

    #[test]
    fn patched_heads_output_in_each_row_what_they_do_on_the_other_prompt() {
        let prompt = prompt(1);
        let replaced = resolved("patch(0.1, from=corrupted)", &prompt, false).replaced;
        let want: Vec<f32> = (0..5).flat_map(|row| [2, 3].map(|channel| (1000 + row * 8 + channel) as f32)).collect();
        assert_eq!((replaced.len(), &replaced[0].output), (1, &want));
        assert_eq!(replaced[0].rows, [prompt.queries[0].rows()]);
        assert!(resolved("patch(none, from=clean)", &prompt, false).replaced.is_empty());
        assert_eq!(resolved("patch(all, layers=1, from=clean)", &prompt, false).replaced.len(), 4);
    }

    #[test]
    fn no_row_and_no_layer_before_the_first_of_a_condition_is_treated() {
        let prompt = prompt(2);
        let question = prompt.haystack.end;
        let answer = prompt.queries[0].rows().start;
        for (name, row, layer) in [
            ("mask(noise)", answer, 0),
            ("mask(noise, layers=1)", answer, 1),
            ("silence(random:9, rows=question)", question, 0),
            ("mask(noise, layers=1, heads=0, rows=all)", 1, 1), // behind the first token
            ("ablate(0.1)", answer, 0),
            ("ablate(1.1)", answer, 1),
            ("patch(0.1, from=clean)", answer, 0),
            ("patch(none, from=clean)", usize::MAX, usize::MAX),
            ("ablate(best:1:share_abs, rows=question, zero)", question, 1),
            ("keep(0.1, rows=all)", 0, 0),
            ("mask(noise, layers=1); keep(0.1, rows=question, layers=1)", question, 1),
            ("quantise(4, row)", 0, 0),
            ("quantise(4, tensor); mask(noise, layers=1)", 0, 0),
            ("quantise-qk(4, token, layers=1); mask(noise, layers=1)", 0, 1),
        ] {
            let condition: Condition = name.parse().unwrap();
            let treated = resolved(name, &prompt, false);
            assert_eq!((treated.first_row(), treated.first_layer()), (row, layer), "{name}");
            if condition.patched_rows().next().is_none() {
                assert!(resolved(name, &prompt, true).first_row() <= row, "{name}");
            }
        }
        assert_eq!(ResolvedTreatment::default().first_row(), usize::MAX);
    }

    #[test]
    fn every_row_is_of_the_needle_its_value_the_context_the_question_or_an_answer() {
        for retrieve in [1, 2, 3] {
            let prompt = prompt(retrieve);
            let mut rows: Vec<usize> = Vec::new();
            for selection in ["needle", "value", "context", "asking", "answer"] {
                let treated = resolved(&format!("ablate(0.1, rows={selection}, zero)"), &prompt, false);
                let of_selection: Vec<usize> = treated.replaced[0].rows.iter().cloned().flatten().collect();
                assert!(of_selection.is_sorted() && of_selection.len() >= retrieve, "{selection}");
                rows.extend(of_selection);
            }
            rows.sort_unstable();
            assert_eq!(rows, (0..prompt.ids.len()).collect::<Vec<_>>());
        }
        // The value is read where it stands, and only there.
        let prompt = prompt(1);
        let treated = resolved("silence(needle, rows=value)", &prompt, false);
        let value = prompt.queries[0].answer.clone();
        assert_eq!(treated.removed[0].rows, value);
        assert!(lost(&treated, value.start).iter().all(|key| prompt.queries[0].needle.contains(key)));
        assert_eq!(treated.first_row(), value.start);
    }

    #[test]
    fn generated_tokens_are_answer_rows_and_question_keys() {
        let prompt = prompt(1);
        let treated = resolved("mask(question)", &prompt, true);
        let first = prompt.tokens_before_answer().len() - 1;
        assert_eq!(treated.removed[0].rows, first..usize::MAX);
        assert_eq!(treated.removed[0].keys, [prompt.haystack.end..usize::MAX]);
    }

    #[test]
    fn missing_layers_and_heads_are_errors_that_state_the_available_ones() {
        let refusal = |name: &str, text| RESOLVER.check(&name.parse().unwrap(), text).unwrap_err().to_string();
        for (name, text, words) in [
            ("mask(noise, layers=2)", false, "m has layers 0 to 1"),
            ("quantise(4, row, layers=2)", true, "layers=2, but m has layers 0 to 1"),
            ("quantise-qk(nvfp4, block, layers=0+5)", false, "layers=5, but m has layers 0 to 1"),
            ("silence(noise, heads=1+4)", false, "heads=4, but m has heads 0 to 3"),
            ("ablate(0.3+1.4)", false, "there is no head 1.4; m has heads 0.0 to 1.3"),
            ("keep(best:9:share_abs)", false, "m has only 8 heads"),
            ("ablate(random:5:share_abs:0)", false, "m has 8 heads, too few for 5 random ones besides the best 5"),
            ("mask(needle)", true, "plain text has only the regions bos, first and filler"),
            ("mask(filler, rows=question)", true, "plain text has no question"),
            ("ablate(best:1:share_abs)", true, "heads cannot be ranked by share_abs"),
        ] {
            assert!(refusal(name, text).contains(words), "{name}: {}", refusal(name, text));
        }
        assert!(RESOLVER.check(&"mask(noise); ablate(1.3)".parse().unwrap(), true).is_ok());
    }
}
