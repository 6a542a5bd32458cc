//! Agreement of the two maps of the embedded models, against plain Python in float64 (tests/fixtures/export_premise.py), and in
//! the records of a run.

use crate::common::{fixture, Scratch};
use base::hash::sha256;
use candle_core::{DType, Device};
use difftool::measures::{of_strangers, Agreement, NoiseRows, TargetCollector, TargetProbe};
use difftool::results::record::Record;
use engine::attention::{RowProbe, Stream};
use engine::model::{Checkpoint, ModelConfig, Placement, Transformer};
use names::metric::{Metric, CANCELLED, CANCELLED_CHANCE, MAP_COSINE, MAP_COSINE_CHANCE};
use names::{HeadPlace, Region};
use serde::Deserialize;
use std::path::PathBuf;
use text::TargetRows;

/// Cosine, cosine by chance, cancelled, cancelled by chance.
type Numbers = [Option<f64>; 4];

#[derive(Deserialize)]
struct Expected {
    model_sha256: String,
    input_ids: Vec<u32>,
    regions: Vec<usize>,
    rows: [usize; 2],
    /// By layer, head and set of keys: the regions, and noise.
    agreement: Vec<Vec<Vec<Numbers>>>,
    /// Cosine of the first map and the second ones of other heads on noise, by layer and head.
    strangers: Vec<Vec<f64>>,
}

/// Compares the numbers of a model that computes in `dtype`. Logits reach about 60, so that single precision moves weights.
fn compare(name: &str, dtype: DType, tolerance: f64) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crates/engine/assets/models").join(name);
    let text = std::fs::read_to_string(fixture(&format!("premise/{name}.json"))).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let weights = std::fs::read(folder.join("model.safetensors")).unwrap();
    let is_same = expected.model_sha256 == sha256(&weights);
    assert!(is_same, "crates/engine/assets/models/{name} has new weights: run tests/fixtures/export_premise.py");
    let config = ModelConfig::read(&folder.join("config.json")).unwrap();
    let placement = Placement { device: Device::Cpu, dtype };
    let model = Transformer::expanded(&config, Checkpoint::open(&folder).unwrap(), &placement).unwrap();

    let [first, last] = expected.rows;
    let regions = expected.regions.iter().map(|&region| Region::ALL[region]).collect();
    let target = TargetRows { query: None, rows: first..last, regions };
    let noise = TargetProbe::new(std::slice::from_ref(&target), NoiseRows::default());
    let probe = TargetProbe::new(&[target], Agreement::default());
    let probes: [&dyn RowProbe; 2] = [&probe, &noise];
    let mut stream = Stream::new(&probes);
    model.hidden(&[expected.input_ids], &mut stream).unwrap();

    let heads = config.wiring().heads();
    assert_eq!(stream.probe_results.len(), 2 * heads * config.layers.len());
    let mut compared = 0;
    let mut worst = 0.0_f64;
    let (agreements, noise): (Vec<_>, Vec<_>) = stream.probe_results.into_iter().partition(|result| result.probe == 0);
    let noise: Vec<(HeadPlace, NoiseRows)> = noise
        .into_iter()
        .map(|result| (result.at, result.collector.into_collector::<TargetCollector<NoiseRows>>().summaries.remove(0)))
        .collect();
    for (at, cosine) in of_strangers(&noise.iter().map(|(at, rows)| (*at, rows)).collect::<Vec<_>>()) {
        worst = worst.max((cosine - expected.strangers[at.layer][at.head]).abs());
        compared += 1;
    }
    for result in agreements {
        let of_head = result.collector.into_collector::<TargetCollector<Agreement>>();
        let want = &expected.agreement[result.at.layer][result.at.head];
        for (set, region) in Region::ALL.map(Some).into_iter().chain([None]).enumerate() {
            for (got, want) in of_head.summaries[0].on(region).into_iter().zip(want[set]) {
                assert_eq!(got.is_some(), want.is_some(), "{name}, head {}, {region:?}: {got:?}, {want:?}", result.at);
                if let (Some(got), Some(want)) = (got, want) {
                    worst = worst.max((got - want).abs());
                    compared += 1;
                }
            }
        }
    }
    println!("{name}, {dtype:?}: {compared} numbers differ by at most {worst:.1e}");
    assert!(compared > 25 * heads * config.layers.len() && worst < tolerance, "{compared}, {worst:.1e}");
}

#[test]
fn agreement_is_that_of_plain_python() {
    for name in ["diff", "diff-v2"] {
        compare(name, DType::F64, 1e-6);
        compare(name, DType::F32, 1e-5);
    }
}

/// The values of a metric of noise in a model: of the whole model, and of its heads.
fn values(records: &[Record], model: &str, metric: &Metric) -> [Vec<f64>; 2] {
    let mut values = [Vec::new(), Vec::new()];
    for Record { identity, measure } in records {
        if identity.model == model && measure.metric == metric.name && measure.region.as_deref() == Some("noise") {
            values[usize::from(measure.head.is_some())].extend(measure.value);
        }
    }
    values
}

#[test]
fn heads_has_the_agreement_of_differential_models_and_says_it() {
    let scratch = Scratch::new();
    let screen = scratch.stdout([
        "heads",
        "--needles",
        "1",
        "--retrieve",
        "1",
        "--ctx",
        "256",
        "--depths",
        "50",
        "--samples",
        "2",
        "-q",
        "--out",
        "run",
    ]);
    assert!(screen.contains("Cosine of both maps of diff, diff-v2: noise 0."), "{screen}");
    let records = scratch.records("run");
    for metric in [&MAP_COSINE, &MAP_COSINE_CHANCE, &CANCELLED, &CANCELLED_CHANCE] {
        assert!(values(&records, "transformer", metric).concat().is_empty(), "{}", metric.name);
        for model in ["diff", "diff-v2"] {
            let [whole, heads] = values(&records, model, metric);
            assert_eq!(whole.len(), 2, "{model}, {}: one for each prompt", metric.name);
            let [of_whole, of_heads] = [whole, heads].map(|values| values.iter().sum::<f64>() / values.len() as f64);
            assert!((of_whole - of_heads).abs() < 1e-6, "{model}, {}: the mean over heads", metric.name);
        }
    }
    let table = scratch.stdout(["show", "run", "--tables", "premise"]);
    assert!(table.starts_with("Agreement of the two maps") && table.contains("noise"), "{table}");
    assert!(!table.contains("transformer") && !table.contains("bos"), "{table}");
}
