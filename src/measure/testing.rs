//! What a measure sees of one pass of a built-in model.

use super::{Extent, Measure};
use crate::attention::{RowProbe, Stream};
use crate::models::{self, LoadOptions};
use crate::pass::{pass, PassResult};
use crate::prompt::{needle, CitySet, Haystack, NeedleSpec, Tokenizer};

/// A pass over a prompt of 256 tokens with two questions, watched by the measure's probes, and how much of it there is.
pub(super) fn seen_by(measure: &dyn Measure, model: &str) -> (Extent, PassResult) {
    let transformer = models::load(model, LoadOptions::default()).unwrap().transformer;
    let spec = NeedleSpec { ctx_tok: 256, needles: 2, retrieve: 2, depth_pct: 50.0, cities: CitySet::Train };
    let prompt = needle::build(&spec, 1, Tokenizer::embedded(), &Haystack::embedded()).unwrap();
    let probes = measure.row_probes(0, &prompt);
    let probes: Vec<&dyn RowProbe> = probes.iter().map(|probe| &**probe).collect();
    let passed = pass(&transformer, &prompt, Stream::new(&probes), measure.wants_predictions()).unwrap();
    (Extent::new(0, &transformer.config, spec.ctx_tok, prompt.target_rows().len()), passed)
}
