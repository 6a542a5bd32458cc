//! Our forward pass over whole folders of every family against numbers from Python `transformers` (see
//! tests/fixtures/README.md).

use crate::common::{distance, fixture, Scratch};
use crate::dense::Dense;
use candle_core::{DType, Device, Tensor};
use difftool::measures::{PooledMapCollector, PooledMapProbe, PooledMapSpec, Pooling, RowQuantity};
use engine::attention::{Attend, AttentionRow, Fused, Pairing, RowCollector, RowProbe, Stream, Variant};
use engine::kernels::RopeStyle;
use engine::model::{Checkpoint, ModelConfig, Placement, Positions, Transformer, Weights};
use names::{HeadPlace, LayersAndHeads};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Of the largest magnitude of the expected tensor, where that exceeds 1: the hidden states of the tiny `diffllama`
/// folders reach 7, and one unit in the last place of an f32 there is 5e-7.
const TOLERANCE: f64 = 1e-5;

#[track_caller]
fn assert_close(label: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let largest =
        f64::from(want.abs().unwrap().max_all().unwrap().to_dtype(DType::F32).unwrap().to_scalar::<f32>().unwrap());
    crate::common::assert_close(label, got, want, tolerance * largest.max(1.0));
}

/// Layouts that can be trained, whose gradients are tested elsewhere: the fused kernel must agree too.
const TRAINABLE: [&str; 4] = ["llama_mha", "llama_gqa_tied", "diffllama_mha", "diffllama_gqa"];

struct Folder {
    config: ModelConfig,
    weights: Weights,
    ids: Vec<Vec<u32>>,
    expected: HashMap<String, Tensor>,
}

/// Every folder of tests/fixtures/transformers.
fn folders() -> Vec<String> {
    let entries = std::fs::read_dir(fixture("transformers")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() >= 52, "{names:?}");
    names
}

fn folder(name: &str) -> Folder {
    let dir = fixture(&format!("transformers/{name}"));
    let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
    let ids = expected["input_ids"].to_dtype(DType::U32).unwrap().to_vec2().unwrap();
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    let weights = Checkpoint::open(&dir).unwrap().load(&config).unwrap();
    Folder { config, weights, ids, expected }
}

impl Folder {
    fn logits(&self, config: &ModelConfig, attend: &mut dyn Attend) -> Tensor {
        let model = Transformer::load(config, self.weights.clone()).unwrap();
        model.logits(&model.hidden(&self.ids, attend).unwrap()).unwrap()
    }
}

#[test]
fn logits_and_hidden_states_agree_with_transformers() {
    for name in folders() {
        let folder = folder(&name);
        let mut dense = Dense::default();
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        let last = model.hidden(&folder.ids, &mut dense).unwrap();
        for (site, x) in dense.residuals.iter().enumerate() {
            // The last hidden state transformers returns is after the final norm.
            let x = if site == folder.config.layers.len() { &last } else { x };
            assert_close(&format!("{name}: hidden {site}"), x, &folder.expected[&format!("hidden.{site}")], TOLERANCE);
        }
        let logits = model.logits(&last).unwrap();
        assert_close(&format!("{name}: logits, dense"), &logits, &folder.expected["logits"], TOLERANCE);
        if TRAINABLE.contains(&name.as_str()) {
            let fused = folder.logits(&folder.config, &mut Fused);
            assert_close(&format!("{name}: logits, fused"), &fused, &folder.expected["logits"], TOLERANCE);
        }
    }
}

#[test]
fn streamed_weights_give_the_same_bits_in_every_family() {
    for name in folders() {
        let folder = folder(&name);
        let checkpoint = Checkpoint::open(&fixture(&format!("transformers/{name}"))).unwrap();
        let bits = |logits: Tensor| logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let expanded = bits(folder.logits(&folder.config, &mut Dense::default()));
        let streamed = Transformer::streamed(&folder.config, checkpoint, &Placement::default()).unwrap();
        let hidden = streamed.hidden(&folder.ids, &mut Dense::default()).unwrap();
        assert!(bits(streamed.logits(&hidden).unwrap()) == expanded, "{name}");
    }
}

#[test]
fn streaming_logits_agree_with_transformers() {
    for name in folders() {
        let folder = folder(&name);
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        for (i, ids) in folder.ids.iter().enumerate() {
            let hidden = model.hidden(std::slice::from_ref(ids), &mut Stream::new(&[])).unwrap();
            let want = folder.expected["logits"].narrow(0, i, 1).unwrap();
            assert_close(&format!("{name}: row {i}"), &model.logits(&hidden).unwrap(), &want, TOLERANCE);
        }
    }
}

#[test]
fn attention_maps_agree_with_transformers() {
    for name in folders() {
        let folder = folder(&name);
        let mut dense = Dense::default();
        folder.logits(&folder.config, &mut dense);
        let wiring = folder.config.wiring();
        for (layer, batch) in dense.kept.iter().enumerate() {
            let expected = &folder.expected[&format!("attention.{layer}")]; // B, raw heads, T, T
            let t = folder.ids[0].len();
            for (b, heads) in batch.iter().enumerate() {
                for (h, head) in heads.iter().enumerate() {
                    for (j, map) in head.maps.iter().enumerate() {
                        let want = expected.get(b).unwrap().get(wiring.query[j][h]).unwrap();
                        let got = Tensor::from_slice(map, (t, t), &Device::Cpu).unwrap();
                        assert_close(&format!("{name}: layer {layer} head {h} map {j}"), &got, &want, TOLERANCE);
                    }
                }
            }
        }
    }
}

/// A folder as transformers 5 saves it with `save_original_format=False`: the experts of a layer in one tensor, rows of gate
/// before those of up (its `conversion_mapping.py`).
fn with_experts_in_one_tensor(from: &str, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let from = fixture(&format!("transformers/{from}"));
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let tensors = candle_core::safetensors::load(from.join("model.safetensors"), &Device::Cpu).unwrap();
    let (mut all, mut experts) = (Vec::new(), BTreeMap::<(String, &str), BTreeMap<usize, Tensor>>::new());
    for (name, tensor) in tensors {
        let name = name.replace(".block_sparse_moe.", ".mlp.");
        let Some((layer, rest)) = name.split_once(".experts.") else {
            all.push((name, tensor));
            continue;
        };
        let (expert, kind) = rest.split_once('.').unwrap();
        let kind = match kind {
            "gate_proj.weight" | "w1.weight" => "gate",
            "up_proj.weight" | "w3.weight" => "up",
            _ => "down",
        };
        experts.entry((format!("{layer}.experts"), kind)).or_default().insert(expert.parse().unwrap(), tensor);
    }
    let stacked = |layer: &str, kind: &'static str| {
        let tensors: Vec<_> = experts[&(layer.to_owned(), kind)].values().cloned().collect();
        Tensor::stack(&tensors, 0).unwrap() // experts, output, input
    };
    let layers: BTreeSet<&String> = experts.keys().map(|(layer, _)| layer).collect();
    for layer in layers {
        let both = Tensor::cat(&[stacked(layer, "gate"), stacked(layer, "up")], 1).unwrap();
        all.extend([(format!("{layer}.gate_up_proj"), both), (format!("{layer}.down_proj"), stacked(layer, "down"))]);
    }
    Weights::new(all, "test").write(&to.join("model.safetensors"), DType::F32, &[]).unwrap();
}

#[test]
fn experts_in_one_tensor_are_the_same_model() {
    let dir = Scratch::new();
    for name in ["qwen3_moe", "mixtral", "olmoe", "qwen2_moe"] {
        let (apart, to) = (folder(name), dir.path(name));
        with_experts_in_one_tensor(name, &to);
        let weights = Checkpoint::open(&to).unwrap().load(&apart.config).unwrap();
        let together = Folder { weights, ..folder(name) };
        let [a, b] = [&apart, &together].map(|folder| folder.logits(&folder.config, &mut Stream::new(&[])));
        assert_eq!(distance(&a, &b), 0.0, "{name}");
        // One of too many experts is a tensor of another shape, and is named.
        let mut config = apart.config.clone();
        config.experts.as_mut().unwrap().count += 1;
        let error = format!("{:#}", Checkpoint::open(&to).unwrap().load(&config).err().unwrap());
        assert!(error.contains("missing") || error.contains("mlp."), "{error}");
    }
}

/// The exact picture of a map, one bin per token, as `heatmap --data FILE --full` writes it.
fn picture(model: &Transformer, ids: &[u32], quantity: RowQuantity) -> Vec<(HeadPlace, Tensor)> {
    let t = ids.len();
    let probe = PooledMapProbe::new(PooledMapSpec {
        heads: LayersAndHeads::default(),
        quantity,
        pooling: Pooling::Max,
        queries: 0..t,
        keys: 0..t,
        rows: t,
        columns: t,
    });
    let probes: [&dyn RowProbe; 1] = [&probe];
    let mut stream = Stream::new(&probes);
    model.hidden(&[ids.to_vec()], &mut stream).unwrap();
    let grid = |s: engine::attention::ProbeResult| {
        let grid = s.collector.into_collector::<PooledMapCollector>().map();
        let values: Vec<f32> = grid.values.iter().map(|&x| if x.is_nan() { 0.0 } else { x }).collect();
        (s.at, Tensor::from_vec(values, (t, t), &Device::Cpu).unwrap())
    };
    stream.probe_results.into_iter().map(grid).collect()
}

#[test]
fn pictured_maps_agree_with_transformers() {
    for name in folders() {
        let folder = folder(&name);
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        let (wiring, lambdas) = (folder.config.wiring(), model.lambdas().unwrap());
        for (b, ids) in folder.ids.iter().enumerate() {
            let raw = |layer: usize, head: usize| {
                folder.expected[&format!("attention.{layer}")].get(b).unwrap().get(head).unwrap()
            };
            for j in 0..wiring.maps() {
                for (HeadPlace { layer, head: h }, got) in picture(&model, ids, RowQuantity::Map(j)) {
                    let want = raw(layer, wiring.query[j][h]);
                    assert_close(&format!("{name}: layer {layer} head {h} map {j}"), &got, &want, TOLERANCE);
                }
            }
            for (HeadPlace { layer, head: h }, got) in picture(&model, ids, RowQuantity::Effective) {
                let mut want = raw(layer, wiring.query[0][h]);
                if let Some(lambda) = lambdas.get(layer) {
                    want = (want - (raw(layer, wiring.query[1][h]) * *lambda).unwrap()).unwrap();
                }
                assert_close(&format!("{name}: layer {layer} head {h} effective"), &got, &want, TOLERANCE);
            }
        }
    }
}

#[test]
fn a_wrong_layout_does_not_pass_for_the_right_one() {
    for name in ["diffllama_mha", "diffllama_gqa"] {
        let folder = folder(name);
        let wrong_by = |config: &ModelConfig| distance(&folder.logits(config, &mut Fused), &folder.expected["logits"]);
        let variant = Variant { pairing: Pairing::Adjacent, ..folder.config.variant };
        assert!(wrong_by(&ModelConfig { variant, ..folder.config.clone() }) > 1e-3, "{name}: pairing");
        let Positions::Rotary { embeddings, .. } = folder.config.positions.clone() else { panic!("rotary") };
        let positions = Positions::Rotary { style: RopeStyle::Interleaved, embeddings };
        assert!(wrong_by(&ModelConfig { positions, ..folder.config.clone() }) > 1e-3, "{name}: rotary style");
        let mut tensors: HashMap<String, Tensor> = folder.weights.iter().map(|(n, t)| (n.clone(), t.clone())).collect();
        let lambda = tensors.get_mut("model.layers.1.self_attn.lambda_q1").unwrap();
        *lambda = (&*lambda * 0.0).unwrap();
        let model = Transformer::load(&folder.config, Weights::new(tensors, "wrong lambda")).unwrap();
        let logits = model.logits(&model.hidden(&folder.ids, &mut Fused).unwrap()).unwrap();
        assert!(distance(&logits, &folder.expected["logits"]) > 1e-3, "{name}: lambda");
    }
}

/// Sees to it that maps and sinks sum to 1, and counts the rows.
struct Whole(usize);

impl RowProbe for Whole {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(Whole(0))
    }
}

impl RowCollector for Whole {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        assert_eq!(row.sinks.len(), row.maps.len());
        for (map, sink) in row.maps.iter().zip(row.sinks) {
            assert!((map.iter().sum::<f32>() + sink - 1.0).abs() < 1e-5 && *sink > 0.0, "query {}", row.query);
        }
        self.0 += 1;
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.0 += later.into_collector::<Self>().0;
    }
}

#[test]
fn what_a_map_leaves_out_is_what_its_sink_takes() {
    let folder = folder("gpt_oss");
    let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
    let probes: [&dyn RowProbe; 1] = [&Whole(0)];
    let mut stream = Stream::new(&probes);
    model.hidden(&folder.ids[..1], &mut stream).unwrap();
    let rows: usize = stream.probe_results.into_iter().map(|s| s.collector.into_collector::<Whole>().0).sum();
    assert_eq!(rows, folder.ids[0].len() * folder.config.layers.len() * folder.config.heads);
}
