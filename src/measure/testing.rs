//! One observed pass of a built-in model, for tests of measures.

use super::{Measure, PassSize};
use crate::attention::{RowProbe, Stream};
use crate::models::{self, LoadOptions};
use crate::pass::{pass, PassResult};
use crate::prompt::{needle, CitySet, Haystack, NeedleForm, NeedleSpec, Tokenizer};

/// Runs a pass over a prompt of 256 tokens with two questions and the measure's probes. Returns it with its size.
pub(super) fn observed_by(measure: &dyn Measure, model: &str) -> (PassSize, PassResult) {
    let transformer = models::load(model, LoadOptions::default()).unwrap().transformer;
    let spec = NeedleSpec {
        ctx_tok: 256,
        needles: 2,
        retrieve: 2,
        depth_pct: 50.0,
        cities: CitySet::Train,
        form: NeedleForm::default(),
    };
    let prompt = needle::build(&spec, 1, Tokenizer::embedded(), &Haystack::embedded()).unwrap();
    let probes = measure.row_probes(0, &prompt);
    let probes: Vec<&dyn RowProbe> = probes.iter().map(|probe| &**probe).collect();
    let passed = pass(&transformer, &prompt, Stream::new(&probes), measure.wants_predictions()).unwrap();
    (PassSize::new(0, &transformer.config, spec.ctx_tok, prompt.target_rows().len()), passed)
}
