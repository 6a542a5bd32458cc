//! `quantize`: what attention reads of rounded queries and keys against plain loops in `f64`, for every variant, and the
//! records of the command.

use crate::attention::{cast, compare_with, for_each_variant, D};
use crate::common::{assert_close, edit_tensor, Scratch};
use crate::dense::Dense;
use crate::measuring::{means, Models, SHORT as PROMPTS};
use candle_core::{DType, Device, Tensor};
use difftool::results::record::Record;
use engine::attention::{Attend, Heads, ResolvedTreatment, Stream};
use names::condition::{Format, Quantised, Quantiser, Scope};
use names::HeadPlace;
use std::collections::BTreeMap;

const PLAIN: Quantiser = Quantiser {
    of: Quantised::Qk,
    format: Format::Int(4),
    scope: Scope::Block,
    smooth: false,
    rotate: false,
    exempt_sinks: true,
    layers: None,
};

fn rounding(quantiser: &Quantiser, exempt: &[(HeadPlace, Vec<usize>)]) -> ResolvedTreatment {
    let sinks = exempt.iter().cloned().collect();
    ResolvedTreatment { quantisers: vec![quantiser.clone()], sinks, ..ResolvedTreatment::default() }
}

/// The heads that attention reads in layer 0.
fn read<'a>(heads: &Heads<'a>, treated: &ResolvedTreatment) -> Heads<'a> {
    Stream::new(&[]).treated(Some(treated)).head_inputs(0, cast(heads, heads.q.dtype())).unwrap()
}

/// All codes of a format.
fn codes(format: Format) -> Vec<f64> {
    let floats = |mantissa: i32, bias: i32, exponents: i32| -> Vec<f64> {
        let of = |e: i32, i: i32| match e {
            0 => f64::from(i) * 2f64.powi(1 - bias - mantissa),
            _ => (1.0 + f64::from(i) * 2f64.powi(-mantissa)) * 2f64.powi(e - bias),
        };
        (0..1 << exponents).flat_map(|e| (0..1 << mantissa).map(move |i| of(e, i))).collect()
    };
    let magnitudes = match format {
        Format::Int(bits) => (0..1 << (bits - 1)).map(f64::from).collect(),
        Format::Fp8 => floats(3, 7, 4).into_iter().filter(|&x| x <= 448.0).collect(), // the last is no number
        Format::Nvfp4 | Format::Mxfp4 => floats(1, 1, 2),
    };
    magnitudes.iter().flat_map(|&x| [-x, x]).collect()
}

/// The rows of one head, each less `mean`, rotated, rounded to the nearest code and put together again.
fn rounded_head(by: &Quantiser, block: usize, mean: &[f64], exempt: &[usize], rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let rotated = |row: &[f64]| -> Vec<f64> {
        let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let sum =
            |i: usize| row.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum::<f64>() / (row.len() as f64).sqrt();
        if by.rotate {
            (0..row.len()).map(sum).collect()
        } else {
            row.to_vec()
        }
    };
    let group = |row: usize| match by.scope {
        Scope::Block => row / block,
        Scope::Token => row,
        _ => 0,
    };
    let codes = codes(by.format);
    let largest_code = codes.iter().fold(0.0_f64, |a, x| a.max(x.abs()));
    let mean = rotated(mean);
    let less: Vec<Vec<f64>> =
        rows.iter().map(|row| rotated(row).iter().zip(&mean).map(|(x, mean)| x - mean).collect()).collect();
    let round = |row: usize| {
        let shared = (0..rows.len()).filter(|&other| group(other) == group(row) && !exempt.contains(&other));
        let scale = shared.flat_map(|other| &less[other]).fold(0.0_f64, |a, x| a.max(x.abs())) / largest_code;
        if exempt.contains(&row) {
            return less[row].iter().zip(&mean).map(|(x, mean)| x + mean).collect();
        }
        let channels = if by.format == Format::Mxfp4 { 32 } else { 16 };
        let mut rounded = Vec::new();
        for (block, mean) in less[row].chunks(channels).zip(mean.chunks(channels)) {
            let scale = block_scale(by.format, block.iter().fold(0.0, |a: f64, x| a.max(x.abs())), scale);
            rounded.extend(block.iter().zip(mean).map(|(x, mean)| next(&codes, x / scale) * scale + mean));
        }
        rounded
    };
    (0..rows.len()).map(round).collect()
}

/// The code next to a number.
fn next(codes: &[f64], x: f64) -> f64 {
    codes.iter().copied().min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs())).unwrap()
}

/// The scale of a block of channels, given its largest magnitude and the scale of its group.
fn block_scale(format: Format, largest: f64, of_group: f64) -> f64 {
    match format {
        Format::Nvfp4 => next(&codes(Format::Fp8), largest / 6.0 / (of_group / 448.0)) * (of_group / 448.0),
        Format::Mxfp4 => 2f64.powf(largest.log2().floor() - 2.0),
        _ => of_group,
    }
}

/// The heads with queries and keys rounded by plain loops, for one text, in `f64`.
fn naive<'a>(heads: &Heads<'a>, by: &Quantiser, exempt: &BTreeMap<HeadPlace, Vec<usize>>) -> Heads<'a> {
    let of = |x: &Tensor, is_key: bool| {
        let rows = x.get(0).unwrap().transpose(0, 1).unwrap().to_dtype(DType::F64).unwrap().to_vec3::<f64>().unwrap();
        let of_head = |(head, rows): (usize, &Vec<Vec<f64>>)| {
            let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
            let mean: Vec<f64> = (0..D).map(|i| if is_key && by.smooth { mean(i) } else { 0.0 }).collect();
            let reads = |h: usize| heads.wiring.key.iter().any(|of_map| of_map[h] == head);
            let exempt = exempt.iter().filter(|(at, _)| is_key && reads(at.head)).flat_map(|(_, keys)| keys.clone());
            rounded_head(by, if is_key { 64 } else { 128 }, &mean, &exempt.collect::<Vec<_>>(), rows)
        };
        let rounded: Vec<Vec<Vec<f64>>> = rows.iter().enumerate().map(of_head).collect();
        let rounded = Tensor::new(rounded, &Device::Cpu).unwrap().transpose(0, 1).unwrap().unsqueeze(0).unwrap();
        rounded.contiguous().unwrap() // 1,T,heads,d
    };
    Heads { q: of(&heads.q, false), k: of(&heads.k, true), ..cast(heads, DType::F64) }
}

/// A number half-way between two codes may become either.
fn assert_nearly_all_close(label: &str, want: &Heads<'_>, got: &Heads<'_>, tolerance: f64) {
    let values = |x: &Tensor| x.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
    for (want, got) in [(&want.q, &got.q), (&want.k, &got.k)] {
        let (want, got) = (values(want), values(got));
        let other = want.iter().zip(&got).filter(|(want, got)| (*want - *got).abs() > tolerance).count();
        assert!(other * 1000 <= want.len(), "{label}: {other} of {} numbers differ", want.len());
    }
}

#[test]
fn attention_reads_queries_and_keys_that_plain_loops_round_for_every_variant_format_and_scope() {
    let exempt: BTreeMap<HeadPlace, Vec<usize>> =
        [(0, vec![0, 5]), (1, vec![70])].map(|(head, keys)| (HeadPlace { layer: 0, head }, keys)).into();
    for scope in [Scope::Block, Scope::Token, Scope::Head] {
        for (format, smooth, rotate) in [
            (Format::Int(8), false, false),
            (Format::Int(4), true, false),
            (Format::Int(6), true, true),
            (Format::Fp8, false, true),
            (Format::Nvfp4, true, true),
            (Format::Mxfp4, false, true),
        ] {
            let by = Quantiser { format, scope, smooth, rotate, ..PLAIN };
            let treated = rounding(&by, &exempt.clone().into_iter().collect::<Vec<_>>());
            for_each_variant(150, |label, heads| {
                let label = format!("{label}, {by:?}");
                let (want, got) = (naive(heads, &by, &exempt), read(heads, &treated));
                assert_nearly_all_close(&label, &want, &got, 1e-4);
                if scope == Scope::Block && format == Format::Nvfp4 {
                    let mut dense = Dense::default();
                    let of_dense = dense.attend(0, &got).unwrap();
                    compare_with(&label, &got, None, 1e-5, (&dense, &of_dense));
                }
            });
        }
    }
}

#[test]
fn double_precision_is_rounded_in_double_precision() {
    let treated = rounding(&Quantiser { smooth: true, rotate: true, ..PLAIN }, &[]);
    for_each_variant(40, |label, heads| {
        let double = read(&cast(heads, DType::F64), &treated);
        assert_eq!((double.q.dtype(), double.k.dtype()), (DType::F64, DType::F64));
        assert_nearly_all_close(label, &naive(heads, &treated.quantisers[0], &BTreeMap::new()), &double, 1e-12);
        let of_bf16 = read(&cast(heads, DType::BF16), &treated);
        assert_eq!((of_bf16.q.dtype(), of_bf16.v.dtype()), (DType::F32, DType::BF16), "codes are not rounded again");
        let out = Stream::new(&[]).attend(0, &of_bf16).unwrap();
        assert_eq!(out.dtype(), DType::BF16);
    });
}

#[test]
fn smoothing_and_rotation_alone_change_nothing_even_beside_a_sink_or_behind_a_soft_cap() {
    let by = Quantiser { format: Format::Int(16), smooth: true, rotate: true, ..PLAIN };
    for_each_variant(70, |label, heads| {
        // Keys far from zero, as models have them.
        let heads = Heads { k: (&heads.k + 5.0).unwrap(), ..cast(heads, DType::F32) };
        let before = Stream::new(&[]).attend(0, &heads).unwrap();
        let after = Stream::new(&[]).attend(0, &read(&heads, &rounding(&by, &[]))).unwrap();
        assert_close(label, &after, &before, 2e-2);
        // With few bits, keys less their mean keep more of themselves than whole keys.
        let four = |smooth| {
            let by = Quantiser { format: Format::Int(4), smooth, ..PLAIN };
            let k = read(&heads, &rounding(&by, &[])).k;
            (k - &heads.k).unwrap().sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()
        };
        assert!(four(true) < four(false), "{label}");
    });
}

#[test]
fn other_layers_are_left_alone() {
    let mut treated = rounding(&PLAIN, &[]);
    treated.quantisers[0].layers = Some(vec![1]);
    for_each_variant(20, |label, heads| {
        assert_close(label, &read(heads, &treated).k, &heads.k, 0.0);
        let second = Stream::new(&[]).treated(Some(&treated)).head_inputs(1, cast(heads, DType::F32)).unwrap();
        let moved = (second.k - &heads.k).unwrap().abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(moved > 0.0, "{label}");
    });
}

/// One needle prompt at 256 tokens through `diff`.
const SHORT: &str = "--ctx 256 --samples 1 --depths 50 --needles 1 --model diff -q";

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn quantize_measures_queries_and_keys_layer_by_layer_whatever_the_threads() {
    let scratch = Scratch::new();
    let flags = "quantize --of qk --bits 8,nvfp4 --smooth --rotate --each-layer";
    scratch.stdout(words(&format!("{flags} {SHORT} --threads 1 --out one")));
    scratch.stdout(words(&format!("{flags} {SHORT} --threads 3 --out three")));
    let csv = |run: &str| scratch.read(format!("{run}/results.csv"));
    assert_eq!(csv("one"), csv("three"));
    for figure in ["bits.png", "layers.png"] {
        assert!(scratch.path("one").join(figure).is_file(), "{figure}");
    }
    let records = scratch.records("one");
    let of = |condition: &str, metric: &str| -> Vec<f64> {
        let is_of = |r: &&Record| {
            let (id, m) = (&r.identity, &r.measure);
            id.condition.as_deref() == Some(condition) && m.metric == metric && m.layer.is_none()
        };
        records.iter().filter(is_of).filter_map(|record| record.measure.value).collect()
    };
    let one = |condition: &str, metric: &str| -> f64 {
        let found = of(condition, metric);
        assert_eq!(found.len(), 1, "{condition}, {metric}");
        found[0]
    };
    let (eight, four) = ("quantise-qk(8, block, smooth, rotate)", "quantise-qk(nvfp4, block, smooth, rotate)");
    for metric in ["row_error", "total_variation", "kl"] {
        assert!(one(eight, metric) < one(four, metric), "{metric}");
    }
    assert!(one(eight, "output_cosine") > one(four, "output_cosine") && one(eight, "output_cosine") > 0.99);
    assert!((-1.0..=1.0).contains(&one(four, "error_cancelled")));
    assert!(matches!(one(four, "answer_flips"), 0.0 | 1.0));
    // Of a layer alone, the rows of those before it stay as they are.
    let third = "quantise-qk(nvfp4, block, smooth, rotate, layers=2)";
    let of_layer = |layer: usize| {
        let is_of = |r: &&Record| {
            let (id, m) = (&r.identity, &r.measure);
            id.condition.as_deref() == Some(third)
                && (&*m.metric, m.layer, m.head) == ("output_cosine", Some(layer), None)
        };
        records.iter().find(is_of).and_then(|record| record.measure.value).unwrap()
    };
    assert!(of_layer(0) == 1.0 && of_layer(1) == 1.0 && of_layer(2) < 1.0);
    let scopes: std::collections::BTreeSet<_> = records.iter().filter_map(|r| r.identity.scope.clone()).collect();
    assert!(scopes.contains("qk-block-smooth-rotate") && scopes.contains("qk-block-nvfp4-smooth-rotate-layers-3"));
}

#[test]
fn quantizing_to_16_bits_changes_next_to_nothing_and_to_2_bits_a_lot() {
    let scratch = Models::new();
    // Random models attend almost uniformly, which survives anything: larger queries make rows peaked.
    for variant in ["transformer", "diff", "diff-v2"] {
        for layer in 0..2 {
            let name = format!("model.layers.{layer}.self_attn.q_proj.weight");
            edit_tensor(&scratch.path(variant), &name, |values| values.iter_mut().for_each(|x| *x *= 300.0));
        }
    }
    scratch.stdout("quantize", &[&PROMPTS[..], &["--bits", "16,2", "--out", "run"]].concat());
    let records = scratch.records("run");
    let with_bits =
        |bits: Option<u32>| -> Vec<Record> { records.iter().filter(|r| r.identity.bits == bits).cloned().collect() };
    for (model, variation) in means(&with_bits(Some(16)), "total_variation", None) {
        assert!(variation < 0.01, "{model}: {variation} with 16 bits");
    }
    for (model, variation) in means(&with_bits(Some(2)), "total_variation", None) {
        assert!(variation > 0.1, "{model}: {variation} with 2 bits");
    }
    assert_eq!(means(&with_bits(None), "accuracy", None), means(&with_bits(Some(16)), "accuracy", None));
    let scopes: Vec<_> = with_bits(Some(16)).iter().map(|r| r.identity.scope.clone()).collect();
    assert!(scopes.iter().all(|scope| scope.as_deref() == Some("tensor")));
    assert!(with_bits(None).iter().all(|r| r.identity.scope.is_none()));
}

#[test]
fn scopes_and_exempt_sinks_are_columns() {
    let scratch = Models::new();
    for (args, scope) in
        [(&["--scope", "row"][..], "row"), (&["--scope", "head", "--exempt-sinks"][..], "head-exempt-sinks")]
    {
        let out = ["--bits", "4", "--out", scope, "--model", "./diff"];
        scratch.stdout("quantize", &[&PROMPTS[..], args, &out].concat());
        let records = scratch.records(scope);
        assert!(records
            .iter()
            .filter(|r| r.identity.bits.is_some())
            .all(|r| r.identity.scope.as_deref() == Some(scope)));
    }
}
