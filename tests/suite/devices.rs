//! Candle's own ops, which compute on other devices, on the CPU in other number types: whole models against the kernels, and
//! the binary from outside.

use crate::common::{assert_close, fixture, Scratch};
use crate::generate::{cases, load};
use crate::treatments::{quantises, treatments, value_width};
use candle_core::{DType, Device, Tensor};
use difftool::results::record::Record;
use engine::attention::{ResolvedTreatment, Stream};
use engine::model::generate::Decoder;
use engine::model::{Checkpoint, ModelConfig, Placement, Transformer};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn placement(dtype: DType) -> Placement {
    Placement { device: Device::Cpu, dtype }
}

/// The model of a folder in another number type.
fn placed(dir: &Path, dtype: DType) -> Transformer {
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    Transformer::expanded(&config, Checkpoint::open(dir).unwrap(), &placement(dtype)).unwrap()
}

/// Logits of a whole pass: (T, W).
fn whole(model: &Transformer, ids: &[u32], treated: Option<&ResolvedTreatment>) -> Tensor {
    let hidden = model.hidden(&[ids.to_vec()], &mut Stream::new(&[]).treated(treated)).unwrap();
    model.logits(&hidden).unwrap().get(0).unwrap()
}

fn largest(x: &Tensor) -> f64 {
    f64::from(x.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap()).max(1.0)
}

/// Folders of every family that fixtures were made of, and texts for them.
fn folders() -> Vec<(PathBuf, Vec<u32>)> {
    let of = |(name, _, texts): crate::generate::Case| {
        let dir = fixture("transformers").join(name);
        dir.exists().then(|| (dir, texts[0].clone()))
    };
    cases().into_iter().filter_map(of).collect()
}

#[test]
fn every_family_has_the_logits_of_the_kernels_in_double_precision_treated_or_not() {
    let folders = folders();
    assert!(folders.len() >= 27, "{}", folders.len());
    folders.par_iter().for_each(|(dir, ids)| {
        let (kernels, double) = (load(dir), placed(dir, DType::F64));
        let mut all = treatments(ids.len(), value_width(&kernels));
        all.push(("untreated", ResolvedTreatment::default()));
        for (what, treated) in all {
            let want = whole(&kernels, ids, Some(&treated));
            let got = whole(&double, ids, Some(&treated));
            assert_eq!(got.dtype(), DType::F64);
            let tolerance = if quantises(&treated) { 2e-2 } else { 2e-5 };
            assert_close(&format!("{}, {what}", dir.display()), &got, &want, tolerance * largest(&want));
        }
    });
}

#[test]
fn every_family_has_about_the_logits_of_the_kernels_in_bf16() {
    let rms = |x: &Tensor| x.sqr().unwrap().mean_all().unwrap().to_scalar::<f32>().unwrap().sqrt();
    folders().par_iter().for_each(|(dir, ids)| {
        let model = placed(dir, DType::BF16);
        let (want, got) = (whole(&load(dir), ids, None), whole(&model, ids, None));
        assert_eq!(got.dtype(), DType::F32, "logits are not rounded");
        let (off, size) = (rms(&(got - &want).unwrap()), rms(&want));
        // Of DeepSeek V3, rounding gives one token other experts, in transformers too.
        let groups = model.config.experts.map_or(1, |experts| experts.choice.groups);
        let most = if groups > 1 { 0.1 } else { 0.05 };
        assert!(off > 0.0 && off < most * size, "{}: off by {off} of {size}", dir.display());
    });
}

#[test]
fn decoding_and_streamed_weights_give_the_logits_of_a_whole_pass_in_any_number_type() {
    for name in ["llama_gqa_tied", "diffllama_gqa", "gemma2", "gpt2"] {
        let dir = fixture("transformers").join(name);
        if !dir.exists() {
            continue;
        }
        let ids: Vec<u32> = (0..24).map(|i| i * 7 % 50 + 3).collect();
        for dtype in [DType::F64, DType::BF16] {
            let model = placed(&dir, dtype);
            let want = whole(&model, &ids, None).to_dtype(DType::F32).unwrap();
            let checkpoint = Checkpoint::open(&dir).unwrap();
            let streamed = Transformer::streamed(&model.config, checkpoint, &placement(dtype)).unwrap();
            assert_close(name, &whole(&streamed, &ids, None), &want, 1e-6 * largest(&want));
            let mut decoder = Decoder::new(&model);
            let mut next = decoder.read(&ids[..20]).unwrap();
            for at in 20..=ids.len() {
                let got = Tensor::from_vec(next, model.config.vocab, &Device::Cpu).unwrap();
                // A sum in another order is rounded to other bf16.
                let tolerance = if dtype == DType::F64 { 1e-5 } else { 3e-2 };
                let want = want.get(at - 1).unwrap();
                assert_close(&format!("{name}, {dtype:?}, {at}"), &got, &want, tolerance * largest(&want));
                let Some(id) = ids.get(at) else { break };
                next = decoder.read(&[*id]).unwrap();
            }
        }
    }
}

const MODELS: [&str; 6] = ["--model", "./transformer", "--model", "./diff", "--model", "./diff-v2"];

/// The values of a run by what they are of. Those that a rounding may turn into another number altogether are left out: ranks,
/// hits, and the place of something that is largest. Attribution is measured with the kernels alone.
fn values(records: &[Record]) -> BTreeMap<String, f64> {
    let steady = |record: &&Record| {
        let metric = &*record.measure.metric;
        !["accuracy", "rank", "score", "token", "query", "induction", "position", "attribution"]
            .iter()
            .any(|word| metric.contains(word))
    };
    let place = |record: &Record| {
        let (id, m) = (&record.identity, &record.measure);
        let identity = (&id.model, &id.condition, id.sample, id.query, &id.depth_req_pct, &id.cities, &id.rows);
        let measure = (&m.metric, &m.region, m.layer, m.head);
        format!("{identity:?} {measure:?}")
    };
    records.iter().filter(steady).filter_map(|r| Some((place(r), r.measure.value?))).collect()
}

/// How many of the values that two runs share are further apart than `tolerance`, and of how many.
fn apart(scratch: &Scratch, [first, other]: [&str; 2], tolerance: f64) -> (usize, usize) {
    let [first, other] = [first, other].map(|run| values(&scratch.records(run)));
    assert_eq!(first.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > tolerance * a.abs().max(1.0) || a.is_finite() != b.is_finite();
    (first.values().zip(other.values()).filter(|pair| far(*pair)).count(), first.len())
}

#[test]
fn ratio_in_double_precision_finds_what_the_kernels_find() {
    let scratch = Scratch::with_models();
    let args = ["--ctx", "300", "--samples", "1", "--depths", "25,50", "-q"];
    let ratio = |flags: &[&str]| scratch.stdout([&["ratio"], &MODELS[..], &args, flags].concat());
    ratio(&["--out", "f32"]);
    ratio(&["--out", "f64", "--dtype", "f64"]);
    let (apart, of) = apart(&scratch, ["f32", "f64"], 1e-3);
    assert!(of > 300 && apart == 0, "{apart} of {of} values differ");
    let manifest = scratch.read("f64/manifest.json");
    assert!(manifest.contains("\"dtype\": \"f64\"") && manifest.contains("\"device\": \"cpu\""), "{manifest}");
    let report = scratch.stdout(["report", "f64"]);
    assert!(report.contains("<dt>number format</dt><dd>f64</dd>"), "the page says what it was computed with");
    let told = scratch.run("compare f32 f64").stderr;
    assert!(told.contains("dtype: f32 and f64"), "{told}");
}

#[test]
fn every_measure_and_treatment_of_the_built_in_models_agrees_in_double_precision() {
    let scratch = Scratch::with_models();
    let needle =
        ["--ctx", "256", "--needles", "2", "--retrieve", "1", "--depths", "50", "--samples", "1", "--seed", "4"];
    let windows = ["--ctx", "256", "--samples", "1"];
    let conditions =
        ["mask(noise)", "silence(filler)", "ablate(0.1+1.0)", "quantise(8, row)", "quantise(8, tensor, exempt-sinks)"];
    let mut all = 0;
    for (command, flags) in [
        ("heads", &needle[..]),
        ("quantize", &[&needle[..], &["--bits", "6"]].concat()),
        ("outliers", &windows),
        ("nll", &windows),
    ] {
        let mut flags = [&[command, "-q", "--model", "all"], flags].concat();
        conditions.iter().for_each(|condition| flags.extend(["--condition", condition]));
        let runs = ["f32", "f64"].map(|dtype| format!("{command}-{dtype}"));
        for (dtype, run) in ["f32", "f64"].iter().zip(&runs) {
            scratch.stdout([&flags[..], &["--dtype", dtype, "--out", run]].concat());
        }
        let (far, of) = apart(&scratch, [&runs[0], &runs[1]], 2e-3);
        assert!(far * 100 <= of, "{command}: {far} of {of} values differ");
        all += of;
    }
    assert!(all > 5000, "{all} values");
}

#[test]
fn parts_of_ablate_agree_in_double_precision_and_heads_are_not_ranked_by_what_it_has_not() {
    let scratch = Scratch::with_models();
    let ablate = ["ablate", "-q", "--model", "./diff", "--ctx", "256", "--depths", "50", "--samples", "1"];
    for (i, parts) in ["each-head", "each-layer,patch", "heads", "flow"].into_iter().enumerate() {
        let runs = ["f32", "f64"].map(|dtype| format!("{i}-{dtype}"));
        for (dtype, run) in ["f32", "f64"].iter().zip(&runs) {
            let flags = ["--parts", parts, "--rank", "share_out", "--dtype", dtype, "--out", run];
            scratch.stdout([&ablate[..], &flags].concat());
        }
        let (far, of) = apart(&scratch, [&runs[0], &runs[1]], 2e-3);
        assert!(of > 10 && far == 0, "{parts}: {far} of {of} values differ");
    }
    let ranked = ["--parts", "heads", "--rank", "attribution", "--dtype", "f64", "--out", "ranked"];
    scratch.refuses([&ablate[..], &ranked].concat(), &["ranked by attribution", "leave --device and --dtype out"]);
}

#[test]
fn runs_go_on_in_the_number_type_that_they_began_with() {
    let scratch = Scratch::with_models();
    let args = ["ratio", "--model", "./diff", "--ctx", "300", "--samples", "1", "--depths", "50", "-q"];
    scratch.stdout([&args[..], &["--dtype", "f64", "--out", "run"]].concat());
    scratch.refuses([&args[..], &["--resume", "run"]].concat(), &["run"]);
    let file = scratch.stdout([&args[..], &["--dtype", "f64", "--print-experiment"]].concat());
    assert!(file.contains("dtype = \"f64\"") && !file.contains("device"), "{file}");
}
