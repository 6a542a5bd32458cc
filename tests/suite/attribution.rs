//! Gradients with respect to what attention adds to the residual stream: against finite differences in double precision, and
//! against PyTorch (tests/fixtures/export_attribution.py).

use crate::common::fixture;
use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::ops::log_softmax;
use difftool::attention::{Attend, HeadPlace, Heads, RowProbe, Stream};
use difftool::base::rng::Rng;
use difftool::measures::{Attributed, Contributions, LayerSums, TargetCollector, TargetProbe};
use difftool::model::gradient::{LastPass, TermGradients};
use difftool::model::{Checkpoint, ModelConfig, Placement, Transformer};
use difftool::prompts::{Region, TargetRows};
use rayon::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

fn load(dir: &Path, dtype: DType) -> Transformer {
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    let placement = Placement { device: Device::Cpu, dtype };
    Transformer::expanded(&config, Checkpoint::open(dir).unwrap(), &placement).unwrap()
}

/// Every folder of the fixtures without a mixture of experts, and the built-in models.
fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/models");
    let entries = [fixture("transformers"), root].map(|dir| std::fs::read_dir(dir).unwrap());
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    folders.filter(|dir| ModelConfig::read(&dir.join("config.json")).is_ok_and(|c| c.experts.is_none())).collect()
}

/// Gradients of an answer by the kernels, from `start` on.
fn gradients(model: &Transformer, ids: &[u32], start: usize, answer: &Range<usize>) -> TermGradients {
    let mut stream = Stream::new(&[]).keeping();
    model.hidden(&[ids.to_vec()], &mut stream).unwrap();
    let prefix = stream.take_prefix(ids).unwrap();
    let pass = LastPass::new(model, ids, &prefix, start).unwrap();
    // Those of another answer beside it change nothing.
    pass.gradients(&[answer.start - 1..answer.start, answer.clone()]).unwrap().remove(1)
}

/// Adds a vector to what the attention of one layer adds to the residual stream in one row.
struct Changed<'a> {
    stream: Stream<'a>,
    layer: usize,
    row: usize,
    change: Vec<f64>,
}

impl Attend for Changed<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        self.stream.attend(layer, heads)
    }

    fn attention_term(&mut self, layer: usize, term: Tensor) -> Result<Tensor> {
        if layer != self.layer {
            return Ok(term);
        }
        let t = term.dim(1)?;
        let change = Tensor::from_slice(&self.change, (1, 1, self.change.len()), term.device())?;
        term + change.pad_with_zeros(1, self.row, t - self.row - 1)?
    }
}

/// Log-probability of the tokens that the rows `answer` predict, in nats.
fn log_prob(model: &Transformer, ids: &[u32], answer: &Range<usize>, attend: &mut dyn Attend) -> f64 {
    let hidden = model.hidden(&[ids.to_vec()], attend).unwrap().get(0).unwrap(); // T,E
    let logits = model.logits(&hidden.narrow(0, answer.start, answer.len()).unwrap()).unwrap(); // rows,W
    let targets = Tensor::new(&ids[answer.start + 1..=answer.end], &Device::Cpu).unwrap().unsqueeze(1).unwrap();
    let log_probs = log_softmax(&logits, D::Minus1).unwrap().gather(&targets, 1).unwrap();
    log_probs.sum_all().unwrap().to_scalar().unwrap()
}

#[test]
fn gradients_of_every_family_and_variant_agree_with_finite_differences_in_double_precision() {
    let folders = folders();
    assert!(folders.len() >= 40, "{}", folders.len());
    folders.par_iter().for_each(|dir| {
        let (kernels, double) = (load(dir, DType::F32), load(dir, DType::F64));
        let (vocab, width) = (kernels.config.vocab as u32, kernels.config.width);
        let ids: Vec<u32> = (0..60).map(|i: u32| (i * i * 7 + 3 * i) % vocab).collect();
        let answer = 53..57;
        let gradients = gradients(&kernels, &ids, 50, &answer);
        let mut rng = Rng::new(1, "directions");
        for layer in 0..kernels.config.layers.len() {
            for row in [50, 54, 56] {
                let direction: Vec<f64> = (0..width).map(|_| rng.normal()).collect();
                let by = |step: f64| {
                    let change = direction.iter().map(|x| step * x).collect();
                    let mut changed = Changed { stream: Stream::new(&[]), layer, row, change };
                    log_prob(&double, &ids, &answer, &mut changed)
                };
                const STEP: f64 = 1e-4;
                let want = (by(STEP) - by(-STEP)) / (2.0 * STEP);
                let gradient = gradients.of(layer, row);
                let got: f64 = gradient.iter().zip(&direction).map(|(&x, y)| f64::from(x) * y).sum();
                let size = gradient.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                assert!((got - want).abs() <= 1e-3 * size, "{}, {layer}, {row}: {got}, {want}, {size}", dir.display());
            }
        }
    });
}

/// Moves the output of one head in some rows towards another output.
struct Moved<'a> {
    stream: Stream<'a>,
    at: HeadPlace,
    rows: Range<usize>,
    towards: &'a [f32],
    by: f64,
}

impl Attend for Moved<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        self.stream.attend(layer, heads)
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let (shape, t, width) = (heads.shape().clone(), heads.dim(1)?, self.towards.len());
        let mut values = heads.flatten_all()?.to_vec1::<f64>()?; // T,H,width
        let row_width = values.len() / t;
        for row in self.rows.clone().filter(|_| layer == self.at.layer) {
            let output = &mut values[row * row_width + self.at.head * width..][..width];
            output.iter_mut().zip(self.towards).for_each(|(x, &mean)| *x += self.by * (f64::from(mean) - *x));
        }
        Tensor::from_vec(values, shape, heads.device())
    }
}

#[test]
fn the_attribution_of_a_head_is_what_moving_it_towards_its_mean_costs_in_double_precision() {
    // Families with a norm after attention count with its factor as it was, so they are not among these.
    let families =
        ["gpt2", "gpt_neox", "qwen3", "granite", "diffllama_gqa"].map(|name| fixture("transformers").join(name));
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/models");
    let built_in = ["transformer", "diff", "diff-v2"].map(|name| models.join(name));
    for dir in families.into_iter().chain(built_in) {
        let (kernels, double) = (load(&dir, DType::F32), load(&dir, DType::F64));
        let ids: Vec<u32> = (0..60).map(|i: u32| (i * i * 7 + 3 * i) % kernels.config.vocab as u32).collect();
        let answer = 53..57;
        let regions = (0..ids.len()).map(|key| Region::ALL[key * Region::ALL.len() / ids.len()]).collect();
        let target = TargetRows { query: Some(0), rows: answer.clone(), regions };
        let gradients = gradients(&kernels, &ids, 50, &answer);
        let probe = TargetProbe::new(&[target], Contributions::default());
        let probes: [&dyn RowProbe; 1] = [&probe];
        let mut stream = Stream::new(&probes).tracing(answer.clone().collect());
        kernels.hidden(std::slice::from_ref(&ids), &mut stream).unwrap();
        let (probe_results, trace) = (stream.probe_results, stream.trace.unwrap());
        for result in probe_results {
            let at = result.at;
            let rows = &result.collector.into_collector::<TargetCollector<Contributions>>().summaries[0].rows;
            let mut rng = Rng::new(at.head as u64, "mean output");
            let width = double.config.wiring().value_slices() * double.config.head_dim;
            let mean: Vec<f32> = (0..width).map(|_| rng.normal() as f32).collect();
            let written = LayerSums::new(&kernels, &trace, at.layer)
                .add_head(at.head, rows, Some(Attributed { gradients: &gradients, mean: &mean }))
                .unwrap();
            let by = |by: f64| {
                let mut moved = Moved { stream: Stream::new(&[]), at, rows: answer.clone(), towards: &mean, by };
                log_prob(&double, &ids, &answer, &mut moved)
            };
            const STEP: f64 = 1e-4;
            let (got, want) = (written.head_attribution.unwrap(), (by(-STEP) - by(STEP)) / (2.0 * STEP));
            assert!((got - want).abs() <= 1e-3 * want.abs().max(0.1), "{}, {at:?}: {got}, {want}", dir.display());
        }
    }
}

/// tests/fixtures/attribution.json
#[derive(Deserialize)]
struct Reference {
    answer: [usize; 2],
    folders: BTreeMap<String, ReferenceFolder>,
}

#[derive(Deserialize)]
struct ReferenceFolder {
    ids: Vec<u32>,
    log_prob: f64,
    /// By layer and row of the answer: (E).
    gradients: Vec<Vec<Vec<f64>>>,
}

#[test]
fn gradients_agree_with_pytorch() {
    let text = std::fs::read_to_string(fixture("attribution.json")).unwrap();
    let Reference { answer: [start, end], folders } = serde_json::from_str(&text).unwrap();
    let answer = start..end;
    for (name, reference) in folders {
        let dir = fixture("transformers").join(&name);
        let ids = &reference.ids;
        let got = log_prob(&load(&dir, DType::F64), ids, &answer, &mut Stream::new(&[]));
        assert!((got - reference.log_prob).abs() < 1e-6, "{name}: {got}");
        let gradients = gradients(&load(&dir, DType::F32), ids, start - 1, &answer);
        for (layer, rows) in reference.gradients.iter().enumerate() {
            for (row, want) in answer.clone().zip(rows) {
                let size = want.iter().map(|x| x * x).sum::<f64>().sqrt();
                for (got, want) in gradients.of(layer, row).iter().zip(want) {
                    assert!((f64::from(*got) - want).abs() < 1e-4 * size, "{name}, {layer}, {row}: {got}, {want}");
                }
            }
        }
    }
}
