//! What answers lose without a head, to first order: against finite differences in double precision, and against PyTorch
//! (tests/fixtures/export_attribution.py).

use crate::common::fixture;
use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::ops::log_softmax;
use engine::attention::{Attend, Heads, Stream};
use engine::model::gradient::{HeadAttributions, LastPass};
use engine::model::{Checkpoint, ModelConfig, Placement, Transformer};
use names::HeadPlace;
use rayon::prelude::*;
use serde::Deserialize;
use stats::Rng;
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/engine/assets/models");
    let entries = [fixture("transformers"), root].map(|dir| std::fs::read_dir(dir).unwrap());
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    folders.filter(|dir| ModelConfig::read(&dir.join("config.json")).is_ok_and(|c| c.experts.is_none())).collect()
}

/// Attributions of answers by the kernels.
fn attributions(
    model: &Transformer,
    ids: &[u32],
    answers: &[Range<usize>],
    means: &[Vec<f32>],
) -> Vec<HeadAttributions> {
    let mut stream = Stream::new(&[]).keeping();
    model.hidden(&[ids.to_vec()], &mut stream).unwrap();
    let prefix = stream.take_prefix(ids).unwrap();
    LastPass::new(model, ids, &prefix, answers[0].start).unwrap().attributions(answers, means).unwrap()
}

/// Number of channels of the outputs of all heads of a layer.
fn output_width(config: &ModelConfig) -> usize {
    config.wiring().heads() * config.wiring().value_slices() * config.head_dim
}

/// Log-probability of the tokens that the rows `answer` predict, in nats.
fn log_prob(model: &Transformer, ids: &[u32], answer: &Range<usize>, attend: &mut dyn Attend) -> f64 {
    let hidden = model.hidden(&[ids.to_vec()], attend).unwrap().get(0).unwrap(); // T,E
    let logits = model.logits(&hidden.narrow(0, answer.start, answer.len()).unwrap()).unwrap(); // rows,W
    let targets = Tensor::new(&ids[answer.start + 1..=answer.end], &Device::Cpu).unwrap().unsqueeze(1).unwrap();
    let log_probs = log_softmax(&logits, D::Minus1).unwrap().gather(&targets, 1).unwrap();
    log_probs.sum_all().unwrap().to_scalar().unwrap()
}

/// Moves the output of one head in some rows towards another output.
struct Moved<'a> {
    stream: Stream<'a>,
    at: HeadPlace,
    rows: &'a [Range<usize>],
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
        for row in self.rows.iter().cloned().flatten().filter(|_| layer == self.at.layer) {
            let output = &mut values[row * row_width + self.at.head * width..][..width];
            output.iter_mut().zip(self.towards).for_each(|(x, &mean)| *x += self.by * (f64::from(mean) - *x));
        }
        Tensor::from_vec(values, shape, heads.device())
    }
}

#[test]
fn attributions_of_every_family_and_variant_are_what_moving_heads_towards_means_costs_in_double_precision() {
    let folders = folders();
    assert!(folders.len() >= 40, "{}", folders.len());
    folders.par_iter().for_each(|dir| {
        let kernels = load(dir, DType::F32);
        let double = load(dir, DType::F64);
        let config = &kernels.config;
        let ids: Vec<u32> = (0..60).map(|i: u32| (i * i * 7 + 3 * i) % config.vocab as u32).collect();
        let answers = [48..50, 53..57];
        let mut rng = Rng::new(1, "mean outputs");
        let means: Vec<Vec<f32>> =
            config.layers.iter().map(|_| (0..output_width(config)).map(|_| rng.normal() as f32).collect()).collect();
        let found = attributions(&kernels, &ids, &answers, &means);
        let heads = config.wiring().heads();
        for at in HeadPlace::all(config.layers.len(), heads).filter(|at| at.head % 3 == 0) {
            let towards = means[at.layer].chunks_exact(means[at.layer].len() / heads).nth(at.head).unwrap();
            let by = |by: f64| {
                let mut moved = Moved { stream: Stream::new(&[]), at, rows: &answers, towards, by };
                log_prob(&double, &ids, &answers[1], &mut moved)
            };
            const STEP: f64 = 1e-4;
            let want = (by(-STEP) - by(STEP)) / (2.0 * STEP);
            let got = found[1][at.layer][at.head];
            assert!((got - want).abs() <= 1e-3 * want.abs().max(0.1), "{}, {at:?}: {got}, {want}", dir.display());
        }
    });
}

/// tests/fixtures/attribution.json
#[derive(Deserialize)]
struct Reference {
    answers: [[usize; 2]; 2],
    folders: BTreeMap<String, ReferenceFolder>,
}

#[derive(Deserialize)]
struct ReferenceFolder {
    ids: Vec<u32>,
    answers: [ReferenceAnswer; 2],
}

#[derive(Deserialize)]
struct ReferenceAnswer {
    log_prob: f64,
    attributions: HeadAttributions,
}

#[test]
fn attributions_agree_with_pytorch() {
    let text = std::fs::read_to_string(fixture("attribution.json")).unwrap();
    let reference: Reference = serde_json::from_str(&text).unwrap();
    let answers = reference.answers.map(|[start, end]| start..end);
    for (name, ReferenceFolder { ids, answers: want }) in reference.folders {
        let dir = fixture("transformers").join(&name);
        let kernels = load(&dir, DType::F32);
        let double = load(&dir, DType::F64);
        let mean: Vec<f32> = (0..output_width(&kernels.config)).map(|channel| (channel as f32).cos()).collect();
        let found = attributions(&kernels, &ids, &answers, &vec![mean; kernels.config.layers.len()]);
        for ((answer, found), want) in answers.iter().zip(found).zip(want) {
            let got = log_prob(&double, &ids, answer, &mut Stream::new(&[]));
            assert!((got - want.log_prob).abs() < 1e-6, "{name}: {got}");
            let got: Vec<f64> = found.into_iter().flatten().collect();
            let want: Vec<f64> = want.attributions.into_iter().flatten().collect();
            assert_eq!(got.len(), want.len(), "{name}");
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-4 * want.abs().max(1.0), "{name}: {got}, {want}");
            }
        }
    }
}
