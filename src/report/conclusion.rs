//! What a run found, in two sentences on top of its section.

use crate::results::difference::correct;
use crate::results::run_table::sorted_rows;
use crate::results::table::Cell;
use crate::results::{of_model, under, Frame, Query};
use names::metric::{ACCURACY, HIDDEN_ACCURACY, NOISE_REGION};
use names::{Column, Value};

/// How much the first model answers, how the others differ from it, and what hiding noise gives back; `None` of a run that asks for
/// nothing.
pub(super) fn of_run(frame: &Frame) -> Option<String> {
    let first = frame.models.first()?;
    let query = Query {
        only: &[under(None)],
        rows: &[Column::Model],
        numbers: &[ACCURACY.overall()],
        against: Some((Column::Model, Some(Value::Text(first)))),
    };
    let mut rows = sorted_rows(frame, &query);
    correct(rows.iter_mut().flat_map(|row| row.changes.iter_mut().flatten()));
    let level = Cell::estimate(ACCURACY.kind, rows.first()?.numbers[0]);
    let mut text = format!("{} answers {} % of the questions", frame.short_name(first), level.line());
    let mut changes = Vec::new();
    for row in &rows {
        if let (Some(Value::Text(model)), Some(change)) = (row.keys[0], &row.changes[0]) {
            let cell = Cell { decided: change.is_decided(), ..Cell::difference(ACCURACY.kind, change) };
            changes.push(format!("{} {}", frame.short_name(model), cell.line()));
        }
    }
    if !changes.is_empty() {
        text += &format!("; less {}, in points: {}", frame.short_name(first), changes.join(", "));
    }
    let gives_back = given_back(frame);
    if !gives_back.is_empty() {
        text += &format!(". Noise hidden from the rows of the answer gives back, in points: {}", gives_back.join(", "));
    }
    Some(text + ".")
}

/// What hiding noise changes in the accuracy of each model.
fn given_back(frame: &Frame) -> Vec<String> {
    let mut changes = Vec::new();
    for model in &frame.models {
        let change = frame.estimate(HIDDEN_ACCURACY.of(NOISE_REGION), &[of_model(model), under(None)]);
        changes.extend(change.map(|change| {
            let cell = Cell::value(HIDDEN_ACCURACY.kind, change.value, change.interval);
            format!("{} {}", frame.short_name(model), cell.line())
        }));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::About;
    use std::sync::Arc;

    #[test]
    fn a_section_begins_with_how_much_is_answered_and_what_noise_costs() {
        let record = |model: &str, seed: u64, value: f64, region: Option<&'static str>| {
            let metric = if region.is_some() { HIDDEN_ACCURACY.name } else { ACCURACY.name };
            let identity = Identity { model: model.into(), ctx_tok: 64, seed: Some(seed), ..Identity::default() };
            let measure = Measurement {
                metric: metric.into(),
                region: region.map(Into::into),
                value: Some(value),
                ..Measurement::default()
            };
            Record { identity: Arc::new(identity), measure }
        };
        let mut records = Vec::new();
        for seed in 0..20 {
            records.push(record("a", seed, f64::from(u8::from(seed < 5)), None));
            records.push(record("b", seed, f64::from(u8::from(seed < 18)), None));
            records.push(record("a", seed, f64::from(u8::from(seed >= 10)), Some(NOISE_REGION)));
        }
        assert_eq!(
            of_run(&Frame::new(About::default(), &records)).unwrap(),
            "a answers 25 [11, 47] % of the questions; less a, in points: b +65 [+38, +82]*. Noise hidden from the rows of \
             the answer gives back, in points: a +50 [+26, +70]."
        );
        assert_eq!(of_run(&Frame::default()), None);
    }
}
