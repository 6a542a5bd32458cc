//! Candle's ops against the kernels, in tiles that are smaller than the text.

use super::*;
use crate::attention::{
    Attend, AttentionRow, Fused, KeyRemoval, LogitRule, RowCollector, RowProbe, Stream, Variant, Wiring,
};
use candle_core::Var;
use names::condition::{Format, Removal};
use names::{HeadPlace, LayersAndHeads};
use stats::Rng;

const D: usize = 8;
const T: usize = 61;
/// Queries of a tile.
const ROWS: usize = 9;

/// Seeded standard normal numbers.
fn normal(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed, "portable");
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Wiring of the heads of a preset, and the shapes of their tensors.
struct Shapes {
    wiring: Wiring,
    qkv: [Vec<usize>; 3],
    lambda: Option<Vec<usize>>,
    sink: Option<usize>,
}

/// Of six heads in two groups.
fn shapes(variant: &Variant, batch: usize) -> Shapes {
    use crate::attention::{Lambda, Sink, ValueWidth};
    let heads = 6;
    let value_heads = if variant.values == ValueWidth::Doubled { 4 } else { 2 };
    let queries = variant.query_heads(heads);
    let keys = variant.key_heads(heads, value_heads);
    let lambda = match variant.lambda {
        Lambda::None => None,
        Lambda::Vectors | Lambda::VectorsAndInit | Lambda::Layer | Lambda::Fixed => Some(vec![1]),
        Lambda::Head => Some(vec![heads]),
        Lambda::Token | Lambda::TokenSigmoid => Some(vec![batch, T, heads]),
    };
    let sink = (variant.sink != Sink::None).then_some(queries);
    let of = |heads| vec![batch, T, heads, D];
    let wiring = variant.wiring(heads, value_heads);
    Shapes { wiring, qkv: [of(queries), of(keys), of(value_heads)], lambda, sink }
}

/// Runs `check` on random heads of every preset.
fn for_each_preset(rules: &[LogitRule], check: impl Fn(&str, &Heads<'_>)) {
    for (name, variant) in Variant::presets() {
        let Shapes { wiring, qkv: [q, k, v], lambda, sink } = shapes(variant, 1);
        for &rule in rules {
            let heads = Heads {
                q: (normal(&q, 1) * 3.0).unwrap(),
                k: normal(&k, 2),
                v: normal(&v, 3),
                lambda: lambda.as_ref().map(|shape| normal(shape, 4)),
                sink: sink.map(|n| normal(&[n], 5)),
                gate: None,
                wiring: &wiring,
                rule,
            };
            check(&format!("{name}, {rule:?}"), &heads);
        }
    }
}

/// Plain; windowed and capped; biased.
fn rules() -> [LogitRule; 4] {
    let plain = LogitRule::plain(D);
    let capped = LogitRule { scale: 0.5, softcap: Some(2.0), window: Some(20), alibi: None };
    [
        plain,
        capped,
        LogitRule { alibi: Some(Alibi::Exact), ..plain },
        LogitRule { alibi: Some(Alibi::Rounded), ..capped },
    ]
}

/// Nothing, keys that are lost, and logits that are quantised besides.
fn treatments() -> Vec<(&'static str, Option<ResolvedTreatment>)> {
    let removed = |how, heads, rows, keys: &[Range<usize>]| KeyRemoval {
        how,
        of: LayersAndHeads { layers: Some(vec![0]), heads },
        rows,
        keys: keys.to_vec(),
    };
    let removed = vec![
        removed(Removal::Mask, Some(vec![1]), 20..40, &[0..3, 15..30]),
        removed(Removal::Mask, None, 50..usize::MAX, &[3..7, 44..usize::MAX]),
        removed(Removal::Silence, None, 0..T, &[1..4, 12..33]),
        removed(Removal::SilenceSecond, None, 30..T, &[5..9]),
    ];
    let quantised = |scope, exempt: &[(HeadPlace, Vec<usize>)]| {
        let quantiser = Quantiser {
            of: Quantised::Logits,
            format: Format::Int(6),
            scope,
            smooth: false,
            rotate: false,
            exempt_sinks: !exempt.is_empty(),
            layers: None,
        };
        ResolvedTreatment {
            quantisers: vec![quantiser],
            sinks: exempt.iter().cloned().collect(),
            removed: removed.clone(),
            ..ResolvedTreatment::default()
        }
    };
    let at = |layer, head| HeadPlace { layer, head };
    let lost = ResolvedTreatment { removed: removed.clone(), ..ResolvedTreatment::default() };
    vec![
        ("untreated", None),
        ("lost", Some(lost)),
        ("quantised by row", Some(quantised(Scope::Row, &[(at(0, 1), vec![0, 40])]))),
        ("quantised by head", Some(quantised(Scope::Head, &[]))),
        ("quantised by tensor", Some(quantised(Scope::Tensor, &[(at(0, 0), vec![2]), (at(1, 1), vec![0])]))),
    ]
}

/// Wants two rows of three, with their logits.
struct Keep;

/// All numbers of the rows that passed, by query.
#[derive(Clone, Debug, Default)]
struct KeptRows(Vec<(usize, Vec<f32>)>);

impl RowProbe for Keep {
    fn wants(&self, _: usize, head: usize, query: usize) -> bool {
        !(head + query).is_multiple_of(3)
    }
    fn wants_logits(&self) -> bool {
        true
    }
    fn start(&self, _: usize, _: usize) -> Box<dyn RowCollector> {
        Box::new(KeptRows::default())
    }
}

impl RowCollector for KeptRows {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let seen = row.first_visible..;
        let logits = row.logits.iter().flat_map(|logits| &logits[seen.clone()]).map(|&x| x.max(-1e3));
        let maps = row.maps.iter().chain([&row.effective]).flat_map(|row| row.iter().copied());
        let mut weighed = vec![0.0; row.values.width()];
        row.values.weigh(0, row.effective, &mut weighed);
        let weighed = weighed.into_iter().map(|x| x as f32);
        let few = row.mix.iter().chain(row.sinks).copied();
        self.0.push((row.query, logits.chain(maps).chain(few).chain(weighed).collect()));
    }
    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.0.extend(later.into_collector::<Self>().0);
    }
}

fn kept(sink: Box<dyn RowCollector>) -> Vec<(usize, Vec<f32>)> {
    sink.into_collector::<KeptRows>().0
}

/// Rows of which a number differs by more than `tolerance`, of all that somebody wanted.
fn differing(got: &[(usize, Vec<f32>)], want: &[(usize, Vec<f32>)], tolerance: f32) -> usize {
    let queries = |rows: &[(usize, Vec<f32>)]| rows.iter().map(|(query, row)| (*query, row.len())).collect::<Vec<_>>();
    assert_eq!(queries(got), queries(want));
    let alike = |(got, want): (&f32, &f32)| (got - want).abs() <= tolerance * want.abs().max(1.0);
    got.iter().zip(want).filter(|((_, got), (_, want))| !got.iter().zip(want).all(alike)).count()
}

fn distance(a: &Tensor, b: &Tensor) -> f32 {
    let [a, b] = [a, b].map(|x| x.to_dtype(DType::F32).unwrap());
    let far = (a - b).unwrap().abs().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    far.into_iter().fold(0.0, |far, x| if x.is_nan() { f32::INFINITY } else { far.max(x) })
}

/// Output and rows in tiles against those of the kernel on `same`, which are the same heads in `f32`.
fn compare(label: &str, heads: &Heads<'_>, same: &Heads<'_>, treated: Option<&ResolvedTreatment>, of_output: f32) {
    let probes: [&dyn RowProbe; 1] = [&Keep];
    let mut stream = Stream::new(&probes).treated(treated);
    let want = stream.attend(0, same).unwrap();
    let watching = vec![vec![IndexedProbe { index: 0, probe: probes[0] }]; heads.wiring.heads()];
    let portable = Portable::with_rows(heads, None, treated, 0, ROWS).unwrap();
    let (got, watched) = portable.watched(None, &watching).unwrap();
    assert_eq!((got.dims(), got.dtype()), (want.dims(), heads.q.dtype()), "{label}");
    let mut other = 0;
    for (head, (watched, result)) in watched.into_iter().zip(stream.probe_results).enumerate() {
        assert_eq!(result.at.head, head);
        let own = watched.finish().next().unwrap().collector;
        other += differing(&kept(own), &kept(result.collector), 1e-4);
    }
    // A logit half-way between two codes may become either, and takes its row along.
    let quantised = treated.is_some_and(|treated| !treated.quantisers.is_empty());
    let rows = T * heads.wiring.heads();
    assert!(other * 50 <= if quantised { rows } else { 0 }, "{label}: {other} rows of {rows} differ");
    let far = distance(&got, &want);
    assert!(far <= if quantised { 0.5 } else { of_output }, "{label}: the output differs by {far}");
}

#[test]
fn tiles_give_the_rows_and_outputs_of_the_kernel_for_every_preset_rule_and_treatment() {
    for (what, treated) in treatments() {
        for_each_preset(&rules(), |label, heads| {
            compare(&format!("{label}, {what}"), heads, heads, treated.as_ref(), 1e-4);
        });
    }
}

/// The heads in another number type.
fn cast<'a>(heads: &Heads<'a>, dtype: DType) -> Heads<'a> {
    let cast = |x: &Tensor| x.to_dtype(dtype).unwrap();
    let Heads { q, k, v, .. } = heads;
    Heads {
        q: cast(q),
        k: cast(k),
        v: cast(v),
        lambda: heads.lambda.clone(),
        sink: heads.sink.clone(),
        gate: None,
        ..*heads
    }
}

#[test]
fn heads_in_bf16_give_the_rows_of_the_same_numbers_in_f32() {
    let (_, lost) = treatments().swap_remove(1);
    for treated in [None, lost] {
        for_each_preset(&rules(), |label, heads| {
            let narrow = cast(heads, DType::BF16);
            // The output alone is rounded: to eight bits.
            compare(label, &narrow, &cast(&narrow, DType::F32), treated.as_ref(), 4.0 / 256.0);
        });
    }
}

#[test]
fn rows_that_nobody_needs_are_zeros_and_the_others_the_same() {
    for_each_preset(&rules()[..1], |label, heads| {
        let portable = Portable::with_rows(heads, None, None, 0, ROWS).unwrap();
        let whole = portable.mixture().unwrap();
        let needed: Vec<bool> = (0..T).map(|query| [3, 30, 34, 60].contains(&query)).collect();
        let some = portable.watched(Some(&needed), &[]).unwrap().0;
        let row = |x: &Tensor, query| x.narrow(1, query, 1).unwrap();
        for query in (0..T).filter(|&query| needed[query]) {
            assert!(distance(&row(&some, query), &row(&whole, query)) < 1e-5, "{label}, query {query}");
        }
        for query in [0, 12, 29, 45, 59] {
            assert_eq!(distance(&row(&some, query), &row(&some, query).zeros_like().unwrap()), 0.0, "{label}");
        }
    });
}

#[test]
fn gradients_through_tiles_are_those_of_the_training_kernel_for_every_preset() {
    for (name, variant) in Variant::presets() {
        let Shapes { wiring, qkv: [q, k, v], lambda, sink } = shapes(variant, 2);
        let mut seed = 0;
        let mut var = |shape: &[usize]| {
            seed += 1;
            Var::from_tensor(&normal(shape, seed)).unwrap()
        };
        let vars = [Some(var(&q)), Some(var(&k)), Some(var(&v)), lambda.map(|l| var(&l)), sink.map(|n| var(&[n]))];
        let [q, k, v, lambda, sink] = vars.each_ref().map(|var| var.as_ref().map(|var| var.as_tensor().clone()));
        let [q, k, v] = [q, k, v].map(Option::unwrap);
        let heads = Heads { q, k, v, lambda, sink, gate: None, wiring: &wiring, rule: LogitRule::plain(D) };
        let got = Portable::with_rows(&heads, None, None, 0, ROWS).unwrap().mixture().unwrap();
        let want = Fused.attend(0, &heads).unwrap();
        assert!(distance(&got, &want) < 2e-5, "{name}");
        let weight = normal(want.dims(), 99);
        let [got, want] = [got, want].map(|y| (y * &weight).unwrap().sum_all().unwrap().backward().unwrap());
        for (i, var) in vars.iter().flatten().enumerate() {
            let [got, want] = [&got, &want].map(|grads| grads.get(var.as_tensor()).expect("a gradient"));
            let size = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap().max(1.0);
            let far = distance(got, want);
            assert!(far < 2e-5 * size, "{name}: gradient of argument {i} differs by {far}");
        }
    }
}

#[test]
fn a_tile_has_as_many_rows_as_have_room_and_at_least_one() {
    assert_eq!(rows_of_tile(4, 1000, 4), 1000, "all of a short text");
    let rows = rows_of_tile(32, 1 << 17, 4);
    assert!(rows >= 1 && rows * 32 * (1 << 17) * 4 <= TILE_BYTES);
    assert_eq!(rows_of_tile(1 << 12, 1 << 20, 8), 1, "more than a tile has room for");
}
