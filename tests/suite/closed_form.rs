//! A ruler: models whose weights are set by hand so that every weight of their attention is known in closed form, carried from
//! `config.json` through the binary to `results.csv`.
//!
//! Embeddings say which of three classes a token is of: a digit, the begin-of-sequence token, or another one. Queries are the same
//! everywhere and a key's logit in map j is its class's number in that map, so that with D digits and N others visible
//! A_j(digit) = e^d / (D e^d + e^b + N). RoPE turns slowly enough to do nothing. Values are the same everywhere too, so what
//! a region gives the output is its share of the signed row. The last norm is 0, so all tokens are equally likely.

use crate::common::{printed, tiny_model, Scratch, WIDTH};
use candle_core::{DType, Device, Tensor};
use difftool::results::record::Record;
use engine::model::Weights;
use serde_json::Value;
use std::fs;
use std::path::Path;
use text::Tokenizer;

const HEAD_DIM: usize = 8;

/// The logits of one map: of digits and of the begin-of-sequence token; 0 of others.
#[derive(Clone, Copy)]
struct Logits {
    digit: f64,
    bos: f64,
}

/// Whether each token is a digit.
fn digits() -> Vec<bool> {
    let tokenizer = Tokenizer::embedded();
    let is_digit =
        |id| tokenizer.decode(&[id]).is_ok_and(|text| text.len() == 1 && text.as_bytes()[0].is_ascii_digit());
    (0..tokenizer.vocab_size() as u32).map(is_digit).collect()
}

/// Writes the model: of one map, or DIFF V1 of two, `heads` heads each.
fn write(dir: &Path, maps: &[Logits]) {
    tiny_model(dir, if maps.len() == 1 { "transformer" } else { "diff" });
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["rope_theta"] = 1e12.into();
    let eps = config["rms_norm_eps"].as_f64().unwrap();
    fs::write(&path, config.to_string()).unwrap();
    // An embedding of length 1 comes out of the norm with this.
    let normed = 1.0 / (1.0 / WIDTH as f64 + eps).sqrt();
    let digits = digits();
    let class = |id: usize| if id == 0 { 2 } else { usize::from(!digits[id]) };
    let path = dir.join("model.safetensors");
    let set = |(name, tensor): (&String, &Tensor)| {
        let shape = tensor.dims().to_vec();
        let columns = *shape.last().unwrap();
        let rows = shape.iter().product::<usize>() / columns;
        let value = |row: usize, column: usize| -> f64 {
            // The channel that RoPE turns the least, of a pair at its ends.
            let turns_least = row % HEAD_DIM == HEAD_DIM / 2 - 1;
            let of_class = [column == 0, column == 1, column == 2];
            match name.rsplit("self_attn.").next().unwrap() {
                "q_proj.weight" if turns_least => f64::from(u8::from(column < 3)) / normed,
                "k_proj.weight" if turns_least => {
                    let map = maps[row / HEAD_DIM * maps.len() / (rows / HEAD_DIM)];
                    let logit = if of_class[0] { map.digit } else { map.bos * f64::from(u8::from(of_class[2])) };
                    logit * (HEAD_DIM as f64).sqrt() / normed
                }
                "v_proj.weight" => f64::from(u8::from(column < 3)),
                "o_proj.weight" => 0.01,
                "model.embed_tokens.weight" => f64::from(u8::from(column == class(row))),
                name if name.ends_with("input_layernorm.weight") => 1.0,
                _ => 0.0,
            }
        };
        let values: Vec<f32> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(r, c)| value(r, c) as f32)
            .collect();
        (name.clone(), Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
    };
    let tensors: Vec<(String, Tensor)> = Weights::read(&path).unwrap().iter().map(set).collect();
    Weights::new(tensors, "ruler").write(&path, DType::F32, &[]).unwrap();
}

/// Sums over the rows that predict an answer of what a prompt's keys weigh, by region.
struct Expected {
    regions: Vec<String>,
    magnitude: Vec<f64>,
    signed: Vec<f64>,
}

impl Expected {
    /// Of the first question of a line of `difftool prompt --jsonl`.
    fn new(prompt: &Value, maps: &[Logits], lambda: f64) -> Self {
        let digits = digits();
        let ids: Vec<usize> =
            prompt["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as usize).collect();
        let query = &prompt["queries"][0];
        let region =
            |region: &Value| (region[0].as_str().unwrap().to_owned(), [1, 2].map(|i| region[i].as_u64().unwrap()));
        let regions: Vec<(String, [u64; 2])> = query["regions"].as_array().unwrap().iter().map(region).collect();
        let mut found = Self { regions: Vec::new(), magnitude: Vec::new(), signed: Vec::new() };
        let predicted = [0, 1].map(|end| query["predicted_tokens"][end].as_u64().unwrap() as usize);
        for row in predicted[0] - 1..predicted[1] - 1 {
            let logit = |map: Logits, key: usize| match ids[key] {
                0 => map.bos,
                id if digits[id] => map.digit,
                _ => 0.0,
            };
            let of_map = |map: Logits| -> Vec<f64> {
                let weights: Vec<f64> = (0..=row).map(|key| logit(map, key).exp()).collect();
                let total: f64 = weights.iter().sum();
                weights.into_iter().map(|weight| weight / total).collect()
            };
            let subtracted = maps.get(1).map_or(vec![0.0; row + 1], |&map| of_map(map));
            for (key, (a, b)) in of_map(maps[0]).into_iter().zip(subtracted).enumerate() {
                let at = |[start, end]: [u64; 2]| (start..end).contains(&(key as u64));
                let name = &regions.iter().find(|(_, range)| at(*range)).unwrap().0;
                found.add(name, a - lambda * b);
            }
        }
        found
    }

    fn add(&mut self, region: &str, weight: f64) {
        let known = self.regions.iter().position(|name| name == region);
        let place = known.unwrap_or_else(|| {
            self.regions.push(region.to_owned());
            self.magnitude.push(0.0);
            self.signed.push(0.0);
            self.regions.len() - 1
        });
        self.magnitude[place] += weight.abs();
        self.signed[place] += weight;
    }

    fn of(&self, sums: &[f64], regions: &[&str]) -> f64 {
        self.regions.iter().zip(sums).filter(|(name, _)| regions.contains(&name.as_str())).map(|(_, sum)| sum).sum()
    }

    /// What the records of the question must say: metric, region, value.
    fn metrics(&self) -> Vec<(&'static str, Option<&'static str>, f64)> {
        let (all_abs, all): (f64, f64) = (self.magnitude.iter().sum(), self.signed.iter().sum());
        let noise = ["template", "filler", "distractor"];
        let abs = self.of(&self.magnitude, &["answer"]) / all_abs;
        let signed = self.of(&self.signed, &["answer"]) / all;
        vec![
            ("share_abs", Some("answer"), abs),
            ("share_signed", Some("answer"), signed),
            ("share_out", Some("answer"), signed),
            ("share_signed", Some("bos"), self.of(&self.signed, &["bos"]) / all),
            ("noise_abs", None, self.of(&self.magnitude, &noise) / all_abs),
            ("noise_signed", None, self.of(&self.signed, &noise) / all),
        ]
    }
}

/// A scratch folder with a ruler in `ruler`, its prompts, and the records of a command on it.
struct Ruler {
    prompts: Vec<Value>,
    records: Vec<Record>,
}

impl Ruler {
    fn new(maps: &[Logits], command: &[&str]) -> Self {
        let dir = Scratch::new();
        write(&dir.path("ruler"), maps);
        let asked = ["--ctx", "128", "--needles", "1", "--depths", "0,70", "--samples", "2", "--model", "./ruler"];
        let run = |args: &[&str]| printed(dir.command(args).args(asked));
        run(&[command, &["--layers", "0", "--out", "run"]].concat());
        let lines = run(&["prompt", "--jsonl", "-"]);
        Self {
            prompts: lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            records: dir.records("run"),
        }
    }

    /// The number of a whole model about a prompt, under a condition of so many bits.
    fn value(&self, prompt: &Value, metric: &str, region: Option<&str>, bits: Option<u32>) -> f64 {
        let is = |record: &&Record| {
            let (id, measure) = (&record.identity, &record.measure);
            id.seed == prompt["seed"].as_u64()
                && id.bits == bits
                && measure.layer.is_none()
                && measure.metric == metric
                && measure.region.as_deref() == region
        };
        let found: Vec<f64> = self.records.iter().filter(is).filter_map(|record| record.measure.value).collect();
        assert_eq!(found.len(), 1, "{metric} {region:?} {bits:?}");
        found[0]
    }

    #[track_caller]
    fn agrees(&self, maps: &[Logits], lambda: f64, bits: Option<u32>) {
        assert_eq!(self.prompts.len(), 4);
        for prompt in &self.prompts {
            for (metric, region, expected) in Expected::new(prompt, maps, lambda).metrics() {
                let found = self.value(prompt, metric, region, bits);
                assert!((found - expected).abs() < 2e-5, "{metric} {region:?} {bits:?}: {found}, {expected} expected");
            }
        }
    }
}

#[test]
fn one_map_is_measured_as_its_weights_say() {
    let maps = [Logits { digit: 3.0, bos: 2.0 }];
    let ruler = Ruler::new(&maps, &["needle"]);
    ruler.agrees(&maps, 0.0, None);
    // The answer is five digits, each as likely as every other token.
    let log_prob = -5.0 * (Tokenizer::embedded().vocab_size() as f64).ln();
    for prompt in &ruler.prompts {
        assert!((ruler.value(prompt, "answer_log_prob", None, None) - log_prob).abs() < 1e-4);
        assert_eq!(ruler.value(prompt, "accuracy", None, None), 0.0, "a tie is a miss");
    }
}

#[test]
fn two_maps_are_measured_as_their_weights_say() {
    // Other tokens weigh more in the second map than in the first: the row has negative entries.
    let maps = [Logits { digit: 5.0, bos: 1.0 }, Logits { digit: -1.0, bos: 2.0 }];
    let ruler = Ruler::new(&maps, &["needle"]);
    // Of layer 0: 0.8 - 0.6 exp(0), and all vectors of lambda are 0.
    ruler.agrees(&maps, 0.2, None);
    for prompt in &ruler.prompts {
        assert!((ruler.value(prompt, "lambda", None, None) - 0.2).abs() < 1e-6);
        let expected = Expected::new(prompt, &maps, 0.2);
        assert!(
            expected.signed.iter().sum::<f64>() < expected.magnitude.iter().sum::<f64>() - 0.1,
            "no negative entries"
        );
    }
}

#[test]
fn sinks_that_are_exempt_leave_the_scale_to_the_others() {
    // With 2 bits a logit is 0 or the largest, up to its sign. The sink's 8 makes 0 of the digits' 1, unless it is exempt.
    let maps = [Logits { digit: 1.0, bos: 8.0 }];
    let rounded = [Logits { digit: 0.0, bos: 8.0 }];
    let common = Ruler::new(&maps, &["quantize", "--bits", "2", "--scope", "tensor"]);
    common.agrees(&maps, 0.0, None);
    common.agrees(&rounded, 0.0, Some(2));
    let exempt = Ruler::new(&maps, &["quantize", "--bits", "2", "--scope", "tensor", "--exempt-sinks"]);
    exempt.agrees(&maps, 0.0, None);
    exempt.agrees(&maps, 0.0, Some(2));
    let scopes = |ruler: &Ruler| {
        let scopes = ruler.records.iter().filter_map(|record| record.identity.scope.as_deref().map(str::to_owned));
        scopes.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!((scopes(&common), scopes(&exempt)), (vec!["tensor".to_owned()], vec!["tensor-exempt-sinks".to_owned()]));
}
