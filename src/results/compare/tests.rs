//! The whole way from files to rows.

use super::*;
use crate::results::differences::differences_of_run;
use names::column::{shown, Value};
use names::metric::{metric, Metric, ACCURACY, ANSWER_LOG_PROB, NOISE_ABS, SHARE_ABS};
use names::HeadPlace;
use stats::Rng;

use crate::results::record::{self, Identity, Measurement, Record};
use crate::results::{About, Difference, Frame, Query};
use names::Number;
use proptest::prelude::*;
use stats::mean;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A record of one question.
fn record(model: &str, seed: u64, query: usize, metric: &'static str, value: f64) -> Record {
    let identity = Identity {
        model: model.into(),
        variant: model.into(),
        task: "needle".into(),
        ctx_tok: 256,
        needles: Some(2),
        retrieve: Some(2),
        depth_req_pct: Some(25.0 * (seed % 5) as f64),
        depth_real_pct: Some(24.8),
        cities: Some("train".into()),
        sample: Some(seed / 5),
        seed: Some(seed),
        query: Some(query),
        rows: Some("answer".into()),
        ..Identity::default()
    };
    let unit = Some("fraction".into());
    let measure = Measurement { metric: metric.into(), value: Some(value), unit, n: Some(1), ..Measurement::default() };
    Record { identity: Arc::new(identity), measure }
}

fn write(folder: &Path, name: &str, records: &[Record]) -> PathBuf {
    let path = folder.join(name);
    record::write(&path, records).unwrap();
    path
}

fn request(inputs: &[PathBuf]) -> Request {
    Request { inputs: inputs.to_vec(), ..Request::default() }
}

/// Two questions of some prompts, with hits and shares that depend on the model.
fn run(model: &str, prompts: u64) -> Vec<Record> {
    let mut rng = Rng::new(3, model);
    let mut records = Vec::new();
    for (seed, query) in (0..prompts).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        records.push(record(model, seed, query, ACCURACY.name, f64::from(u8::from(rng.unit() < 0.7))));
        records.push(record(model, seed, query, NOISE_ABS.name, rng.unit()));
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn the_order_of_records_changes_nothing(seed: u64, left_out in 0_usize..40) {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(seed, "shuffle");
        let a = run("transformer", 10);
        let mut b = run("diff", 10);
        b.remove(left_out);
        let mut shuffled_a = a.clone();
        let mut shuffled_b = b.clone();
        rng.shuffle(&mut shuffled_a);
        rng.shuffle(&mut shuffled_b);
        let in_order = [write(folder.path(), "a", &a), write(folder.path(), "b", &b)];
        let shuffled = [write(folder.path(), "c", &shuffled_a), write(folder.path(), "d", &shuffled_b)];
        let by = |inputs: &[PathBuf]| {
            let by = Some(Column::Model);
            compare(&Request { by, baseline: Some("transformer".into()), ..request(inputs) }).unwrap()
        };
        for (expected, found) in [
            (compare(&request(&in_order)).unwrap(), compare(&request(&shuffled)).unwrap()),
            (by(&in_order), by(&shuffled)),
        ] {
            prop_assert_eq!(&expected.rows, &found.rows);
            prop_assert_eq!(&expected.pairings, &found.pairings);
            prop_assert_eq!(found.pairings[0].only_baseline.cases.len(), 1);
        }
    }
}

#[test]
fn the_rows_are_those_worked_out_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let shares = |model: &'static str, values: [f64; 4]| {
        let questions = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().zip(values);
        questions.map(|((seed, query), v)| record(model, seed, query, NOISE_ABS.name, v)).collect::<Vec<_>>()
    };
    let a = write(folder.path(), "a", &shares("transformer", [0.5, 0.7, 0.2, 0.2]));
    let b = write(folder.path(), "b", &shares("diff", [0.4, 0.4, 0.3, 0.3]));
    let rows = compare(&request(&[a, b])).unwrap().rows;
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (&row.baseline, &row.other, row.difference.n, row.difference.cases),
        (&"transformer".into(), &"diff".into(), 2, 4)
    );
    // Prompts: 0.6 and 0.2 against 0.4 and 0.3.
    for (found, expected) in
        [(row.difference.mean_baseline, 0.4), (row.difference.mean_other, 0.35), (row.difference.diff, -0.05)]
    {
        assert!((found - expected).abs() < 1e-12, "{row:?}");
    }
    assert_eq!((row.difference.wins, row.difference.ties, row.difference.losses), (1, 0, 1));
}

/// The measurements of two models at two lengths under eight conditions, which the documents quote.
const MEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/results/real/attribution.csv");

/// A metric of older versions, which those measurements have of untreated passes only.
const OLDER: Metric = metric("noise_attribution", "noise attribution", "");

const COMPARED: [Number<'static>; 3] = [ACCURACY.overall(), ANSWER_LOG_PROB.overall(), OLDER.overall()];

fn uncorrected(difference: &Difference) -> Difference {
    Difference { p_adjusted: None, ..difference.clone() }
}

/// The differences of a column's values from its first, as a comparison has them: by the other's value and the row.
fn compared(by: Column, groups: &[Column]) -> BTreeMap<String, Difference> {
    let metric = COMPARED.map(|number| number.metric.name_of(number.region).parse().unwrap()).to_vec();
    let request = Request { by: Some(by), group_by: groups.to_vec(), metric, ..request(&[MEASURED.into()]) };
    let rows = compare(&request).unwrap().rows;
    let named = |row: &Row| format!("{} {} {:?}", row.name(), row.other, row.group);
    rows.iter().map(|row| (named(row), uncorrected(&row.difference))).collect()
}

/// The same, as tables have them.
fn queried(by: Column, first: Option<Value<'_>>, groups: &[Column]) -> BTreeMap<String, Difference> {
    let frame = Frame::new(About::default(), &record::read(Path::new(MEASURED)).unwrap());
    let columns = [groups, &[by]].concat();
    let query = Query { only: &[], rows: &columns, numbers: &COMPARED, against: Some((by, first)) };
    let mut differences = BTreeMap::new();
    for row in frame.query(&query) {
        let keys: Vec<String> = row.keys.iter().map(|&value| shown(value)).collect();
        let group: BTreeMap<_, _> = groups.iter().map(ToString::to_string).zip(keys.iter().cloned()).collect();
        let other = &keys[groups.len()];
        let other = if by == Column::Model { other.clone() } else { format!("{by}={other}") };
        for (number, change) in COMPARED.iter().zip(row.changes) {
            let name = number.metric.name_of(number.region);
            differences.extend(change.map(|change| (format!("{name} {other} {group:?}"), change)));
        }
    }
    differences
}

#[test]
fn tables_and_comparisons_have_the_same_differences() {
    let conditions = compared(Column::Condition, &[Column::Model, Column::CtxTok]);
    assert_eq!(conditions, queried(Column::Condition, None, &[Column::Model, Column::CtxTok]));
    // Two models, two lengths and two metrics; the third is of untreated passes only.
    assert!(conditions.len() > 50 && conditions.len().is_multiple_of(8), "{}", conditions.len());
    let groups = [Column::Condition, Column::CtxTok];
    let models = compared(Column::Model, &groups);
    let first = Some(Value::Text("SmolLM2"));
    assert_eq!(models, queried(Column::Model, first, &groups));
    assert_eq!(models.len(), conditions.len() / 2 + 6);
}

#[test]
fn the_differences_within_a_run_are_those_of_comparisons() {
    let frame = Frame::new(About::default(), &record::read(Path::new(MEASURED)).unwrap());
    let rows = differences_of_run(&frame, &COMPARED, |model, condition| format!("{model} {condition}"));
    let mut compared: Vec<Difference> = Vec::new();
    compared.extend(self::compared(Column::Condition, &[Column::Model, Column::CtxTok]).into_values());
    compared.extend(self::compared(Column::Model, &[Column::Condition, Column::CtxTok]).into_values());
    assert_eq!(rows.len(), compared.len());
    for row in &rows {
        assert!(compared.contains(&uncorrected(&row.difference)), "{row:?}");
    }
}

#[test]
fn estimates_are_those_worked_out_record_by_record() {
    let records = record::read(Path::new(MEASURED)).unwrap();
    let frame = Frame::new(About::default(), &records);
    let columns = [Column::Model, Column::Condition];
    let rows = [ACCURACY.overall(), ANSWER_LOG_PROB.overall()];
    let rows = frame.query(&Query { only: &[], rows: &columns, numbers: &rows, against: None });
    assert!(rows.len() > 8 && rows[0].keys == [Some(Value::Text("SmolLM2")), None]);
    for row in rows {
        for (metric, estimate) in [&ACCURACY, &ANSWER_LOG_PROB].into_iter().zip(&row.numbers) {
            let mut prompts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for record in records.iter().filter(|record| record.measure.metric == metric.name) {
                let keys = columns.map(|column| record.identity.value(column));
                if keys == row.keys[..] {
                    prompts.entry(record.identity.seed.unwrap()).or_default().push(record.measure.value.unwrap());
                }
            }
            let means: Vec<f64> = prompts.values().map(|values| mean(values).unwrap()).collect();
            let estimate = estimate.unwrap();
            assert!((estimate.value - mean(&means).unwrap()).abs() < 1e-12, "{row:?}");
            assert_eq!((estimate.prompts, estimate.trials), (prompts.len(), prompts.values().map(Vec::len).sum()));
        }
    }
}

#[test]
fn by_depth_only_the_question_counts_whose_needle_was_put_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |seed, query, placed, value| {
        let found = record("m", seed, query, ACCURACY.name, value);
        let identity = Identity { placed: Some(placed), ..(*found.identity).clone() };
        Record { identity: Arc::new(identity), ..found }
    };
    // Seeds 0 and 1 have depths 0 and 25 %: missed where it was put at 0, found at 25; the other needle is anywhere.
    let records = [at(0, 0, true, 0.0), at(0, 1, false, 1.0), at(1, 0, false, 0.0), at(1, 1, true, 1.0)];
    let input = write(folder.path(), "a", &records);
    let by = Some(Column::DepthReqPct);
    let row = &compare(&Request { by, ..request(&[input]) }).unwrap().rows[0];
    assert_eq!((row.difference.cases, row.difference.mean_baseline, row.difference.mean_other), (1, 0.0, 1.0));
}

#[test]
fn whole_nights_are_compared_in_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let heads = |model: &'static str| {
        let mut records = Vec::new();
        for seed in 0..200_u64 {
            let shared = record(model, seed, 0, SHARE_ABS.name, 0.0).identity;
            for HeadPlace { layer, head } in HeadPlace::all(8, 8) {
                let value = Some((seed + (layer * head) as u64) as f64 / 1000.0);
                let layer = Some(layer);
                let head = Some(head);
                let region = Some("answer".into());
                let measure =
                    Measurement { layer, head, metric: SHARE_ABS.name.into(), region, value, ..Measurement::default() };
                records.push(Record { identity: shared.clone(), measure });
            }
        }
        write(folder.path(), model, &records)
    };
    let inputs = [heads("transformer"), heads("diff")];
    let started = std::time::Instant::now();
    let group_by = vec![Column::Layer, Column::Head];
    let comparison = compare(&Request { group_by, ..request(&inputs) }).unwrap();
    assert_eq!((comparison.rows.len(), comparison.pairings[0].pairs), (64, 200 * 64));
    assert_eq!(comparison.rows[9].group["head"], "1");
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_are_errors_and_never_panics(cut in 0.0..1.0, place in 0.0..1.0, byte: u8) {
        let folder = tempfile::tempdir().unwrap();
        let good = write(folder.path(), "good", &run("diff", 3));
        let mut bytes = std::fs::read(&good).unwrap();
        let place = (place * bytes.len() as f64) as usize;
        bytes[place] = byte;
        bytes.truncate((cut * bytes.len() as f64) as usize + 1);
        let bad = folder.path().join("bad");
        std::fs::write(&bad, bytes).unwrap();
        // Whether it can be read depends on what was hit.
        if let Ok(comparison) = compare(&request(&[good, bad])) {
            prop_assert!(!comparison.rows.is_empty());
        }
    }
}
