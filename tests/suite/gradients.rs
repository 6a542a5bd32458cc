//! Every op that has a kernel against the same op in candle's, in double precision, or another formula: values and gradients.

use crate::common::{assert_close, attention_variants, normal, preset, AttentionCase};
use crate::dense::Dense;
use candle_core::{DType, Device, Result, Tensor, Var};
use engine::attention::{Attend, Fused, Heads, LogitRule, Stream};
use engine::kernels::{self, RopeStyle, RopeTable};
use std::sync::Arc;

/// Checks values and the gradient of every argument of `fused` against `composed`, under a random weighting of outputs.
fn check(
    label: &str,
    shapes: &[&[usize]],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    composed: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let vars: Vec<Var> =
        shapes.iter().enumerate().map(|(i, shape)| Var::from_tensor(&normal(shape, i as u64)).unwrap()).collect();
    let args: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let (got, want) = (fused(&args).unwrap(), composed(&args).unwrap());
    assert_close(label, &got, &want, 2e-5);
    let weight = normal(want.dims(), 99);
    let gradients = |y: &Tensor| (y * &weight).unwrap().sum_all().unwrap().backward().unwrap();
    let (got, want) = (gradients(&got), gradients(&want));
    for (i, var) in vars.iter().enumerate() {
        let (got, want) = (got.get(var).expect("a fused gradient"), want.get(var).expect("a composed gradient"));
        let size = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert_close(&format!("{label}: gradient of argument {i}"), got, want, 2e-5 * f64::from(size.max(1.0)));
    }
}

/// The op on the same numbers as `f64`, for which there is no kernel.
fn in_f64(op: impl Fn(&[Tensor]) -> Result<Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |args| {
        let wide = args.iter().map(|arg| arg.to_dtype(DType::F64)).collect::<Result<Vec<_>>>()?;
        let y = op(&wide)?;
        assert_eq!(y.dtype(), DType::F64);
        y.to_dtype(DType::F32)
    }
}

/// An op of some tensors.
type Op<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// Ops that have gradients, with the shapes of their arguments.
fn differentiable() -> Vec<(&'static str, Vec<Vec<usize>>, Op<'static>)> {
    vec![
        ("linear", vec![vec![3, 5, 16], vec![7, 16]], &|a| kernels::linear(&a[0], &a[1])),
        ("rms_norm", vec![vec![300, 24], vec![24]], &|a| kernels::rms_norm(&a[0], &a[1], 1e-5)),
        ("sigmoid", vec![vec![5, 33]], &|a| kernels::sigmoid(&a[0])),
        ("swiglu", vec![vec![5, 33], vec![5, 33]], &|a| kernels::swiglu(&a[0], &a[1])),
        ("rope, halves", vec![vec![2, 9, 3, 10]], &|a| kernels::rope(&a[0], &turns(), RopeStyle::Half, 2)),
        ("rope, interleaved", vec![vec![2, 9, 3, 8]], &|a| kernels::rope(&a[0], &turns(), RopeStyle::Interleaved, 0)),
        ("cross_entropy", vec![vec![4, 37]], &|a| {
            Ok(kernels::cross_entropy(&a[0], vec![3, 0, 36, 7], vec![1.0, 4.0, 0.0, 2.0])?.0)
        }),
    ]
}

/// Those that are for measuring only.
fn others() -> Vec<(&'static str, Vec<Vec<usize>>, Op<'static>)> {
    vec![
        ("layer_norm", vec![vec![300, 24], vec![24], vec![24]], &|a| kernels::layer_norm(&a[0], &a[1], &a[2], 1e-5)),
        ("silu", vec![vec![5, 33]], &|a| kernels::silu(&a[0])),
        ("gelu", vec![vec![5, 33]], &|a| kernels::gelu(&a[0])),
        ("gelu_tanh", vec![vec![5, 33]], &|a| kernels::gelu_tanh(&a[0])),
        ("relu", vec![vec![5, 33]], &|a| kernels::relu(&a[0])),
    ]
}

fn turns() -> Arc<RopeTable> {
    Arc::new(RopeTable::new(11, &[1.0, 0.3, 0.1, 0.02], 1.1))
}

#[test]
fn ops_agree_with_themselves_in_double_precision_and_so_do_their_gradients() {
    for (name, shapes, op) in differentiable() {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        check(name, &shapes, op, in_f64(op));
    }
}

#[test]
fn ops_without_a_gradient_agree_with_themselves_in_double_precision() {
    for (name, shapes, op) in others() {
        let args: Vec<Tensor> = shapes.iter().enumerate().map(|(i, shape)| normal(shape, i as u64)).collect();
        assert_close(name, &op(&args).unwrap(), &in_f64(op)(&args).unwrap(), 5e-6);
    }
}

#[test]
fn ops_on_bf16_differ_by_the_rounding_of_what_goes_in_and_comes_out() {
    for (name, shapes, op) in differentiable().into_iter().chain(others()) {
        let args: Vec<Tensor> = shapes.iter().enumerate().map(|(i, shape)| normal(shape, i as u64)).collect();
        let cast = |args: &[Tensor], to| args.iter().map(|arg| arg.to_dtype(to).unwrap()).collect::<Vec<_>>();
        let narrow = cast(&args, DType::BF16);
        let (got, want) = (op(&narrow).unwrap(), op(&cast(&narrow, DType::F32)).unwrap());
        let largest = want.abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
        assert_close(name, &got, &want, f64::from(largest) / 128.0);
    }
}

#[test]
fn rope_starts_at_any_position_and_leaves_other_channels_alone() {
    let table = Arc::new(RopeTable::new(9, &[1.0, 0.1], 1.0));
    let x = normal(&[1, 9, 2, 6], 1);
    for style in [RopeStyle::Half, RopeStyle::Interleaved] {
        let whole = kernels::rope(&x, &table, style, 0).unwrap();
        let tail = kernels::rope(&x.narrow(1, 4, 5).unwrap().contiguous().unwrap(), &table, style, 4).unwrap();
        assert_close("from position 4", &tail, &whole.narrow(1, 4, 5).unwrap(), 0.0);
        assert_close("channels 4 and 5", &whole.narrow(3, 4, 2).unwrap(), &x.narrow(3, 4, 2).unwrap(), 0.0);
        let narrow = kernels::rope(&x.narrow(3, 0, 4).unwrap().contiguous().unwrap(), &table, style, 0).unwrap();
        assert_close("channels 0 to 3", &whole.narrow(3, 0, 4).unwrap(), &narrow, 0.0);
    }
}

#[test]
fn rope_agrees_with_rotating_pairs_of_either_style() {
    let (t, d) = (9, 8);
    let frequencies: Vec<f64> = (0..d / 2).map(|i| 100f64.powf(-2.0 * i as f64 / d as f64)).collect();
    let table = Arc::new(RopeTable::new(t, &frequencies, 1.0));
    let angle = |i: usize, p: usize| p as f32 * 100f32.powf(-2.0 * i as f32 / d as f32);
    for style in [RopeStyle::Half, RopeStyle::Interleaved] {
        let composed = |a: &[Tensor]| {
            // y = cos * x + sin * x @ R, with R the matrix that swaps the channels of a pair and flips one sign
            let mut rotation = vec![0f32; d * d];
            let mut frequency = vec![0; d];
            for i in 0..d / 2 {
                let (first, second) = if style == RopeStyle::Half { (i, i + d / 2) } else { (2 * i, 2 * i + 1) };
                rotation[second * d + first] = -1.0;
                rotation[first * d + second] = 1.0;
                (frequency[first], frequency[second]) = (i, i);
            }
            let rotated = a[0].broadcast_matmul(&Tensor::from_vec(rotation, (d, d), &Device::Cpu)?)?;
            let per = |f: fn(f32) -> f32| {
                let values: Vec<f32> = (0..t).flat_map(|p| frequency.iter().map(move |&i| f(angle(i, p)))).collect();
                Tensor::from_vec(values, (1, t, 1, d), &Device::Cpu)
            };
            a[0].broadcast_mul(&per(f32::cos)?)? + rotated.broadcast_mul(&per(f32::sin)?)?
        };
        check("rope", &[&[2, t, 3, d]], |a| kernels::rope(&a[0], &table, style, 0), composed);
    }
}

#[test]
fn cross_entropy_says_which_targets_were_hit_and_how_likely_they_were() {
    let logits = Tensor::new(&[[1f32, 3.0, 2.0], [5.0, 5.0, 1.0]], &Device::Cpu).unwrap();
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let logits = logits.to_dtype(dtype).unwrap();
        let (loss, scores) = kernels::cross_entropy(&logits, vec![1, 0], vec![1.0; 2]).unwrap();
        assert!(scores[0].hit);
        assert!(!scores[1].hit, "a tie is a miss");
        let nll = [(1.0 + (-1f64).exp() + (-2f64).exp()).ln(), (2.0 + (-4f64).exp()).ln()];
        assert!(scores.iter().zip(nll).all(|(score, nll)| (f64::from(score.nll_nats) - nll).abs() < 1e-6));
        assert_close("mean", &loss, &Tensor::new(nll.iter().sum::<f64>() / 2.0, &Device::Cpu).unwrap(), 1e-6);
        let (loss, _) = kernels::cross_entropy(&logits, vec![1, 0], vec![0.0; 2]).unwrap();
        assert_close("nothing to lose", &loss, &loss.zeros_like().unwrap(), 0.0);
    }
}

/// Lambda and sinks among arguments that begin with q, k and v.
fn small<'a>(case: &AttentionCase, args: &'a [Tensor]) -> (Option<&'a Tensor>, Option<&'a Tensor>) {
    let mut rest = args[3..].iter();
    (case.lambda.as_ref().and_then(|_| rest.next()), case.sink.then(|| rest.next()).flatten())
}

/// Attention with whole maps, in candle ops: q (B,T,QH,d), k and v (B,T,KH,d), lambda and sinks.
fn composed_attention(case: &AttentionCase, args: &[Tensor]) -> Result<Tensor> {
    let (wiring, [q, k, v, ..]) = (&case.wiring, args) else { panic!("q, k and v") };
    let (lambda, sink) = small(case, args);
    let (b, t, _, d) = q.dims4()?;
    let mask: Vec<f32> = (0..t * t).map(|i| if i % t > i / t { -1e30 } else { 0.0 }).collect();
    let mask = Tensor::from_vec(mask, (1, t, t), &Device::Cpu)?;
    let head = |x: &Tensor, h: usize| x.narrow(2, h, 1)?.squeeze(2)?.contiguous(); // B,T,d
    let mut heads = Vec::new();
    for h in 0..wiring.heads() {
        let slices: Vec<Tensor> = wiring.value[h].iter().map(|&s| head(v, s)).collect::<Result<_>>()?;
        let value = Tensor::cat(&slices, 2)?;
        let mut maps = Vec::new();
        for j in 0..wiring.maps() {
            let logits = head(q, wiring.query[j][h])?.matmul(&head(k, wiring.key[j][h])?.t()?)?; // B,T,T
            let logits = (logits / (d as f64).sqrt())?.broadcast_add(&mask)?;
            // The sink is one more column of the softmax, which then is dropped.
            let logits = match sink {
                None => logits,
                Some(sink) => {
                    let column = sink.narrow(0, wiring.query[j][h], 1)?.reshape((1, 1, 1))?.broadcast_as((b, t, 1))?;
                    Tensor::cat(&[&logits, &column], 2)?
                }
            };
            let map = candle_nn::ops::softmax(&logits, 2)?.narrow(2, 0, t)?.contiguous()?;
            maps.push(map.matmul(&value)?);
        }
        heads.push(match lambda {
            None => maps.remove(0),
            Some(l) if l.rank() == 1 => {
                let l = l.narrow(0, h.min(l.elem_count() - 1), 1)?.reshape((1, 1, 1))?;
                (&maps[0] - maps[1].broadcast_mul(&l)?)?
            }
            Some(l) => (&maps[0] - maps[1].broadcast_mul(&l.narrow(2, h, 1)?)?)?,
        });
    }
    Tensor::stack(&heads, 2)
}

#[test]
fn fused_attention_agrees_with_whole_maps_for_every_variant_and_odd_lengths() {
    for t in [1, 63, 65, 289] {
        for case in attention_variants(2, t).into_iter().step_by(if t > 100 { 3 } else { 1 }) {
            let (q, kv) = (vec![2, t, case.query_heads, 8], vec![2, t, case.kv_heads, 8]);
            let mut shapes: Vec<&[usize]> = vec![&q, &kv, &kv];
            let sinks = [case.query_heads];
            shapes.extend(case.lambda.as_deref());
            shapes.extend(case.sink.then_some(sinks.as_slice()));
            let fused = |a: &[Tensor]| {
                let heads = Heads {
                    q: a[0].clone(),
                    k: a[1].clone(),
                    v: a[2].clone(),
                    lambda: small(&case, a).0.cloned(),
                    sink: small(&case, a).1.cloned(),
                    gate: None,
                    wiring: &case.wiring,
                    rule: LogitRule::plain(8),
                };
                Fused.attend(0, &heads)
            };
            let composed = |a: &[Tensor]| composed_attention(&case, a);
            check(&format!("{}, {t} tokens", case.label), &shapes, fused, composed);
            check(&format!("{}, {t} tokens, in f64", case.label), &shapes, fused, in_f64(fused));
        }
    }
}

#[test]
fn streaming_and_dense_attention_agree_with_fused() {
    for t in [1, 31, 33, 256, 289] {
        for AttentionCase { label, wiring, query_heads, kv_heads, lambda, sink } in attention_variants(1, t) {
            let heads = Heads {
                q: normal(&[1, t, query_heads, 8], 1),
                k: normal(&[1, t, kv_heads, 8], 2),
                v: normal(&[1, t, kv_heads, 8], 3),
                lambda: lambda.map(|shape| normal(&shape, 7)),
                sink: sink.then(|| normal(&[query_heads], 8)),
                gate: None,
                wiring: &wiring,
                rule: LogitRule::plain(8),
            };
            let want = Fused.attend(0, &heads).unwrap();
            assert_close(&format!("stream, {label}, {t}"), &Stream::new(&[]).attend(0, &heads).unwrap(), &want, 2e-5);
            assert_close(&format!("dense, {label}, {t}"), &Dense::default().attend(0, &heads).unwrap(), &want, 2e-5);
        }
    }
}

#[test]
fn training_attention_is_bit_identical_for_any_number_of_threads() {
    let wiring = preset("diff-microsoft").wiring(4, 4);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let vars: Vec<Var> = [[2, 300, 8, 8], [2, 300, 4, 8], [2, 300, 4, 8]]
                .iter()
                .enumerate()
                .map(|(i, shape)| Var::from_tensor(&normal(shape, i as u64)).unwrap())
                .collect();
            let lambda = Tensor::new(&[0.6f32], &Device::Cpu).unwrap();
            let [q, k, v] = [0, 1, 2].map(|i| vars[i].as_tensor().clone());
            let sink = Some(normal(&[8], 8));
            let heads =
                Heads { q, k, v, lambda: Some(lambda), sink, gate: None, wiring: &wiring, rule: LogitRule::plain(8) };
            let out = Fused.attend(0, &heads).unwrap();
            let grads = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let bits = |x: &Tensor| {
                x.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            };
            let mut all = bits(&out);
            vars.iter().for_each(|v| all.extend(bits(grads.get(v).unwrap())));
            all
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
}

#[test]
fn dtype_mistakes_are_errors_not_panics() {
    let x = normal(&[2, 4], 0);
    let other = x.to_dtype(DType::F64).unwrap();
    assert!(kernels::linear(&x, &other).is_err() && kernels::linear(&other, &x).is_err());
    assert!(kernels::swiglu(&x, &other).is_err() && kernels::swiglu(&other, &x).is_err());
}
