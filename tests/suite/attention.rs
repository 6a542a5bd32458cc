//! Quantised and probed attention: the streaming kernel, and the same in candle's ops, against the dense reference, for every
//! variant.

use crate::common::{assert_close, attention_variants, normal, AttentionCase};
use crate::dense::Dense;
use candle_core::{DType, Tensor};
use engine::attention::{
    Alibi, Attend, AttentionRow, Heads, KeyRemoval, LogitRule, ResolvedTreatment, RowCollector, RowProbe, Stream,
};
use names::condition::{Format, Quantised, Quantiser, Removal, Scope};
use names::{HeadPlace, LayersAndHeads};

pub(crate) const D: usize = 8;

/// Plain, windowed, soft-capped, biased, and all of it with a scale of its own.
fn rules() -> [LogitRule; 6] {
    let plain = LogitRule::plain(D);
    let (windowed, capped) = (LogitRule { window: Some(11), ..plain }, LogitRule { softcap: Some(3.0), ..plain });
    let all = LogitRule { scale: 0.5, softcap: Some(2.0), window: Some(40), alibi: Some(Alibi::Exact) };
    [
        plain,
        windowed,
        capped,
        LogitRule { alibi: Some(Alibi::Exact), ..plain },
        LogitRule { alibi: Some(Alibi::Rounded), ..plain },
        all,
    ]
}

/// Runs `check` on random heads of every variant and rule; over more than a few hundred tokens, of the first rule and the last.
/// Queries are scaled up so that rows are far from uniform, and values have a head that nobody reads, so that they are not as
/// many as keys.
pub(crate) fn for_each_variant(t: usize, check: impl Fn(&str, &Heads<'_>)) {
    for AttentionCase { label, mut wiring, query_heads, kv_heads, lambda, sink } in attention_variants(1, t) {
        wiring.value.iter_mut().flatten().for_each(|head| *head += 1);
        for rule in rules().into_iter().step_by(if t > 300 { 5 } else { 1 }) {
            let heads = Heads {
                q: (normal(&[1, t, query_heads, D], 1) * 3.0).unwrap(),
                k: normal(&[1, t, kv_heads, D], 2),
                v: normal(&[1, t, kv_heads + 1, D], 3),
                lambda: lambda.as_ref().map(|shape| normal(shape, 7)),
                sink: sink.then(|| normal(&[query_heads], 8)),
                gate: None,
                wiring: &wiring,
                rule,
            };
            check(&format!("{label}, {t} tokens, {rule:?}"), &heads);
        }
    }
}

/// A row as it was shown.
#[derive(Clone)]
struct Kept {
    query: usize,
    first_visible: usize,
    logits: Vec<Vec<f32>>,
    maps: Vec<Vec<f32>>,
    mix: Vec<f32>,
    effective: Vec<f32>,
}

struct KeepAll;

struct KeptRows(Vec<Kept>);

impl RowProbe for KeepAll {
    fn wants(&self, _: usize, _: usize, _: usize) -> bool {
        true
    }
    fn wants_logits(&self) -> bool {
        true
    }
    fn start(&self, _: usize, _: usize) -> Box<dyn RowCollector> {
        Box::new(KeptRows(Vec::new()))
    }
}

impl RowCollector for KeptRows {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let owned = |rows: &[&[f32]]| rows.iter().map(|row| row.to_vec()).collect();
        let (mix, effective) = (row.mix.to_vec(), row.effective.to_vec());
        let (logits, maps) = (owned(row.logits), owned(row.maps));
        self.0.push(Kept { query: row.query, first_visible: row.first_visible, logits, maps, mix, effective });
    }
    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.0.extend(later.into_collector::<Self>().0);
    }
}

fn quantising(bits: u32, scope: Scope, exempt: &[(HeadPlace, Vec<usize>)]) -> ResolvedTreatment {
    let (of, format, exempt_sinks) = (Quantised::Logits, Format::Int(bits), !exempt.is_empty());
    let quantiser = Quantiser { of, format, scope, smooth: false, rotate: false, exempt_sinks, layers: None };
    let sinks = exempt.iter().cloned().collect();
    ResolvedTreatment { quantisers: vec![quantiser], sinks, ..ResolvedTreatment::default() }
}

/// The output and all rows of each head.
fn stream(heads: &Heads<'_>, treated: Option<&ResolvedTreatment>) -> (Tensor, Vec<Vec<Kept>>) {
    let mut stream = Stream::new(&[&KeepAll]).treated(treated);
    let out = stream.attend(0, heads).unwrap();
    let rows = stream.probe_results.into_iter().map(|s| s.collector.into_collector::<KeptRows>().0).collect();
    (out, rows)
}

/// How many numbers differ; a NaN does.
fn differ(got: &[f32], want: &[f64], tolerance: f64) -> usize {
    assert_eq!(got.len(), want.len());
    // Masked logits are -inf.
    let close = |got: f32, want: f64| f64::from(got) == want || (f64::from(got) - want).abs() <= tolerance;
    got.iter().zip(want).filter(|&(&got, &want)| !close(got, want)).count()
}

/// The output and all rows of each head against the dense reference. A logit half-way between two codes may become either:
/// of quantised rows, one in a hundred may have such a logit, and is left out then.
fn compare(label: &str, heads: &Heads<'_>, treated: Option<&ResolvedTreatment>, tolerance: f64) {
    let mut dense = Dense { treated: treated.cloned().unwrap_or_default(), ..Dense::default() };
    let want = dense.attend(0, heads).unwrap();
    compare_with(label, heads, treated, tolerance, (&dense, &want));
    // There is no kernel for f64, and no block of keys.
    if heads.q.dims()[1] < 300 {
        let wide = cast(heads, DType::F64);
        compare_with(&format!("{label}, in f64"), &wide, treated, tolerance, (&dense, &want));
    }
}

/// The heads as other numbers.
pub(crate) fn cast<'a>(heads: &Heads<'a>, dtype: DType) -> Heads<'a> {
    let [q, k, v] = [&heads.q, &heads.k, &heads.v].map(|x| x.to_dtype(dtype).unwrap());
    Heads { q, k, v, lambda: heads.lambda.clone(), sink: heads.sink.clone(), gate: None, ..*heads }
}

/// [`compare`] with what the dense reference gave.
pub(crate) fn compare_with(
    label: &str,
    heads: &Heads<'_>,
    treated: Option<&ResolvedTreatment>,
    tolerance: f64,
    (dense, want): (&Dense, &Tensor),
) {
    let (out, rows) = stream(heads, treated);
    let quantised = treated.is_some_and(|treated| !treated.quantisers.is_empty());
    let t = heads.q.dim(1).unwrap();
    let mut half_way = 0;
    let outputs = |out: &Tensor, head: usize| -> Vec<Vec<f64>> {
        let of_head = out.narrow(2, head, 1).unwrap().flatten_from(2).unwrap().get(0).unwrap();
        of_head.to_dtype(DType::F64).unwrap().to_vec2().unwrap() // T, width
    };
    for (h, (rows, dense)) in rows.iter().zip(&dense.kept[0][0]).enumerate() {
        assert_eq!(rows.iter().map(|row| row.query).collect::<Vec<_>>(), (0..t).collect::<Vec<_>>(), "{label}");
        let (out, want) = (outputs(&out, h), outputs(want, h));
        for row in rows {
            let query = row.query;
            assert_eq!(row.first_visible, heads.rule.first_visible(query), "{label}, head {h}, query {query}");
            let visible = query * t..query * t + query + 1;
            let logits = (0..row.maps.len()).map(|j| {
                let (logits, want) = (&row.logits[j], &dense.logits[j][visible.clone()]);
                assert_eq!(logits.len(), want.len(), "{label}, head {h}, query {query}");
                differ(&logits[row.first_visible..], &want[row.first_visible..], 10.0 * tolerance)
            });
            let other_logits: usize = logits.sum();
            if quantised && other_logits == 1 {
                half_way += 1;
                continue;
            }
            assert_eq!(other_logits, 0, "{label}, head {h}, query {query}: logits differ");
            for (j, map) in row.maps.iter().enumerate() {
                let others = differ(map, &dense.maps[j][visible.clone()], tolerance);
                assert_eq!(others, 0, "{label}, head {h}, query {query}, map {j}");
            }
            let others = differ(&row.effective, &dense.effective[visible], tolerance);
            assert_eq!(others, 0, "{label}, head {h}, query {query}");
            let close = out[query].iter().zip(&want[query]).all(|(got, want)| (got - want).abs() <= 10.0 * tolerance);
            assert!(close, "{label}, head {h}, query {query}: {:?} instead of {:?}", out[query], want[query]);
        }
    }
    assert!(half_way * 100 <= t * rows.len(), "{label}: {half_way} rows have other logits");
}

#[test]
fn every_row_that_a_probe_sees_is_that_of_the_dense_reference() {
    for t in [1, 33, 289, 577] {
        for_each_variant(t, |label, heads| compare(label, heads, None, 1e-5));
    }
}

#[test]
fn quantised_rows_agree_with_the_dense_reference_for_every_variant_bits_and_scope() {
    for scope in [Scope::Tensor, Scope::Head, Scope::Row] {
        for bits in [2, 4, 8, 16] {
            let quantise = quantising(bits, scope, &[]);
            for_each_variant(37, |label, heads| {
                compare(&format!("{label}, {bits} bits per {scope:?}"), heads, Some(&quantise), 2e-4);
            });
        }
    }
}

/// Masked and silenced keys of some rows of some heads, over blocks of keys and up to the query itself.
fn removals(t: usize) -> Vec<KeyRemoval> {
    let removal = |how, of: &LayersAndHeads, rows, keys: &[std::ops::Range<usize>]| KeyRemoval {
        how,
        of: of.clone(),
        rows,
        keys: keys.to_vec(),
    };
    let all = LayersAndHeads::default();
    let some_heads = LayersAndHeads { layers: Some(vec![0]), heads: Some(vec![1]) };
    let other_layer = LayersAndHeads { layers: Some(vec![7]), heads: None };
    vec![
        removal(Removal::Mask, &all, t / 3..t / 2, &[0..2, 5..9]),
        removal(Removal::Mask, &all, t / 2..t, &[3..t / 4, t / 3..usize::MAX]),
        removal(Removal::Silence, &some_heads, 0..t, &[1..4, t / 5..t / 2]),
        removal(Removal::SilenceSecond, &all, t / 4..t, &[4..8, t / 2..t.saturating_sub(2)]),
        removal(Removal::Mask, &other_layer, 0..t, &[0..usize::MAX]),
    ]
}

#[test]
fn rows_that_lose_keys_agree_with_the_dense_reference_for_every_variant() {
    let check = |t, removed| {
        let treated = ResolvedTreatment { removed, ..ResolvedTreatment::default() };
        for_each_variant(t, |label, heads| compare(label, heads, Some(&treated), 1e-5));
    };
    for t in [1, 33, 131] {
        let (masks, silences): (Vec<_>, Vec<_>) = removals(t).into_iter().partition(|r| r.how == Removal::Mask);
        check(t, masks);
        check(t, silences);
    }
    check(577, removals(577)); // more than one block of keys
}

#[test]
fn masked_keys_do_not_count_for_the_scale_of_quantised_logits() {
    for scope in [Scope::Tensor, Scope::Head, Scope::Row] {
        let mut treated = quantising(4, scope, &[(HeadPlace { layer: 0, head: 0 }, vec![0, 5])]);
        treated.removed = removals(37);
        for_each_variant(37, |label, heads| compare(&format!("{label}, {scope:?}"), heads, Some(&treated), 2e-4));
    }
}

#[test]
fn a_masked_row_is_a_silenced_row_made_whole_again() {
    let t = 65;
    let of = |how| {
        let (rows, keys) = (10..t, vec![0..7, 20..30]);
        ResolvedTreatment {
            removed: vec![KeyRemoval { how, of: LayersAndHeads::default(), rows, keys }],
            ..ResolvedTreatment::default()
        }
    };
    for_each_variant(t, |label, heads| {
        let (_, masked) = stream(heads, Some(&of(Removal::Mask)));
        let (_, silenced) = stream(heads, Some(&of(Removal::Silence)));
        let (_, left_alone) = stream(heads, None);
        for ((masked, silenced), before) in masked.iter().zip(&silenced).zip(&left_alone) {
            for ((masked, silenced), before) in masked.iter().zip(silenced).zip(before).skip(30) {
                for ((masked, silenced), before) in masked.maps.iter().zip(&silenced.maps).zip(&before.maps) {
                    // What a sink takes of the row is not lost with the keys. It is known to the rounding of the row's sum
                    // alone: where next to nothing is left, that tells nothing.
                    let sum = |row: &[f32]| row.iter().map(|&x| f64::from(x)).sum::<f64>();
                    let sink = if heads.sink.is_some() { 1.0 - sum(before) } else { 0.0 };
                    let left = sum(silenced) + sink;
                    if heads.sink.is_some() && left < 0.05 {
                        continue;
                    }
                    assert!(silenced.iter().zip(before).all(|(after, before)| *after == 0.0 || after == before));
                    let whole: Vec<f64> = silenced.iter().map(|&x| f64::from(x) / left).collect();
                    assert_eq!(differ(masked, &whole, 1e-5), 0, "{label}");
                }
            }
        }
    });
}

#[test]
fn losing_nothing_changes_no_bit() {
    let nothing = |how| KeyRemoval { how, of: LayersAndHeads::default(), rows: 0..700, keys: Vec::new() };
    let removed = vec![nothing(Removal::Mask), nothing(Removal::Silence)];
    let treated = ResolvedTreatment { removed, ..ResolvedTreatment::default() };
    for_each_variant(700, |label, heads| {
        let ((want, rows), (got, treated_rows)) = (stream(heads, None), stream(heads, Some(&treated)));
        assert_close(label, &got, &want, 0.0);
        for (row, treated) in rows.iter().flatten().zip(treated_rows.iter().flatten()) {
            // Logits before the window mean nothing.
            let seen =
                |kept: &Kept| kept.logits.iter().map(|row| row[kept.first_visible..].to_vec()).collect::<Vec<_>>();
            assert!(row.effective == treated.effective && seen(row) == seen(treated), "{label}");
        }
    });
}

#[test]
fn exempt_keys_keep_their_logits_and_do_not_count_for_the_scale() {
    for scope in [Scope::Tensor, Scope::Head, Scope::Row] {
        let exempt = [(0, vec![0, 5]), (1, vec![2])].map(|(head, keys)| (HeadPlace { layer: 0, head }, keys));
        let quantise = quantising(4, scope, &exempt);
        for_each_variant(37, |label, heads| {
            compare(&format!("{label}, {scope:?}"), heads, Some(&quantise), 2e-4);
            let (exact, quantised) = (stream(heads, None).1, stream(heads, Some(&quantise)).1);
            for (before, after) in exact[0].iter().zip(&quantised[0]).filter(|(row, _)| row.first_visible == 0) {
                assert_eq!(before.logits[0][0], after.logits[0][0], "{label}: an exempt logit changed");
            }
        });
    }
}

#[test]
fn keys_before_the_window_weigh_nothing_and_change_nothing() {
    let t = 300;
    let quantise = quantising(8, Scope::Row, &[]);
    for_each_variant(t, |label, heads| {
        let Some(window) = heads.rule.window else { return };
        // Other keys and values for the first 200 tokens: rows from 199 + window on see none of them.
        let other = |x: &Tensor| {
            let (early, late) = (x.narrow(1, 0, 200).unwrap(), x.narrow(1, 200, t - 200).unwrap());
            Tensor::cat(&[(early * 7.0).unwrap(), late], 1).unwrap()
        };
        let changed = Heads {
            k: other(&heads.k),
            v: other(&heads.v),
            q: heads.q.clone(),
            lambda: heads.lambda.clone(),
            sink: heads.sink.clone(),
            gate: None,
            ..*heads
        };
        for quantise in [None, Some(&quantise)] {
            let ((out, rows), (changed_out, changed_rows)) = (stream(heads, quantise), stream(&changed, quantise));
            let first = 199 + window;
            let late = |out: &Tensor| out.narrow(1, first, t - first).unwrap();
            assert_close(label, &late(&out), &late(&changed_out), 0.0);
            for (row, changed) in rows.iter().flatten().zip(changed_rows.iter().flatten()) {
                assert!(row
                    .maps
                    .iter()
                    .chain([&row.effective])
                    .all(|row_of| row_of[..row.first_visible].iter().all(|&x| x == 0.0)));
                assert!(row.query < first || row.effective == changed.effective, "{label}");
            }
        }
    });
}

#[test]
fn rows_without_a_sink_sum_to_one_minus_lambda() {
    for_each_variant(65, |label, heads| {
        if heads.sink.is_some() {
            return;
        }
        for rows in stream(heads, None).1 {
            for row in rows {
                let want: f32 = row.mix.iter().sum();
                let total: f32 = row.effective.iter().sum();
                assert!((total - want).abs() < 1e-4, "{label}, query {}: {total} instead of {want}", row.query);
            }
        }
    });
}

#[test]
fn output_and_rows_are_bit_identical_for_any_number_of_threads() {
    let mut quantise = quantising(6, Scope::Tensor, &[(HeadPlace { layer: 0, head: 0 }, vec![0])]);
    quantise.removed = removals(700);
    for_each_variant(700, |label, heads| {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (out, rows) = pool.install(|| stream(heads, Some(&quantise)));
            let out = out.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let rows: Vec<f32> = rows.into_iter().flatten().flat_map(|row| row.effective).collect();
            out.into_iter().chain(rows).map(f32::to_bits).collect::<Vec<_>>()
        };
        assert!(run(1) == run(3), "{label}");
    });
}

#[test]
fn rows_that_are_needed_do_not_change_when_the_others_are_left_out() {
    for_each_variant(300, |label, heads| {
        let needed: Vec<bool> = (0..300).map(|query| query == 7 || query > 290).collect();
        let whole = Stream::new(&[]).attend(3, heads).unwrap();
        let partial = Stream::new(&[]).with_needed_rows(3, needed.clone()).attend(3, heads).unwrap();
        let other_layer = Stream::new(&[]).with_needed_rows(2, needed.clone()).attend(3, heads).unwrap();
        assert_close(label, &other_layer, &whole, 0.0);
        for query in (0..300).filter(|&query| needed[query]) {
            let row = |x: &Tensor| x.narrow(1, query, 1).unwrap();
            assert_close(&format!("{label}, query {query}"), &row(&partial), &row(&whole), 0.0);
        }
        assert!(
            partial.narrow(1, 64, 32).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap() == 0.0
        );
    });
}

/// Wants a few rows, and no logits.
struct KeepSome;

impl RowProbe for KeepSome {
    fn wants(&self, _: usize, _: usize, query: usize) -> bool {
        query == 5 || query > 690
    }
    fn start(&self, _: usize, _: usize) -> Box<dyn RowCollector> {
        Box::new(KeptRows(Vec::new()))
    }
}

#[test]
fn watching_changes_neither_the_output_nor_what_others_see() {
    let t = 700; // more than one block of keys
    let exempt = [(HeadPlace { layer: 0, head: 1 }, vec![0, 600])];
    let mut quantise = quantising(8, Scope::Row, &exempt);
    quantise.removed = removals(t);
    for_each_variant(t, |label, heads| {
        for quantise in [None, Some(&quantise)] {
            let unwatched = Stream::new(&[]).treated(quantise).attend(0, heads).unwrap();
            let (watched, all_rows) = stream(heads, quantise);
            assert_close(label, &watched, &unwatched, 0.0);
            let needed = (0..t).map(|query| query == 300).collect();
            let mut some = Stream::new(&[&KeepSome]).treated(quantise).with_needed_rows(0, needed);
            let partial = some.attend(0, heads).unwrap();
            for query in [5, 300, 691, 699] {
                let of_query = |out: &Tensor| out.narrow(1, query, 1).unwrap();
                assert_close(label, &of_query(&partial), &of_query(&unwatched), 0.0);
            }
            for (result, all) in some.probe_results.into_iter().zip(&all_rows) {
                for row in result.collector.into_collector::<KeptRows>().0 {
                    assert!(row.maps == all[row.query].maps && row.effective == all[row.query].effective, "{label}");
                }
            }
        }
    });
}

#[test]
fn only_the_selected_layers_and_heads_are_shown() {
    for_each_variant(40, |label, heads| {
        let selection = LayersAndHeads { layers: Some(vec![1]), heads: Some(vec![1]) };
        let shown = |layer: usize| {
            let mut stream = Stream::new(&[&KeepAll]).only(&selection);
            stream.attend(layer, heads).unwrap();
            stream.probe_results.iter().map(|s| s.at).collect::<Vec<_>>()
        };
        assert_eq!(shown(0), [], "{label}");
        assert_eq!(shown(1), [HeadPlace { layer: 1, head: 1 }], "{label}");
    });
}
