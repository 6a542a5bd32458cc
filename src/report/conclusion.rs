//! The sentences that begin the section of a run: accuracy, how models differ in it, and what noise costs.

use crate::results::screen::accuracy_changes;
use crate::results::table::Cell;
use crate::results::{of_model, under, Frame};
use names::metric::{ACCURACY, HIDDEN_ACCURACY, NOISE_REGION};

/// Accuracy of the first model, differences of the others from it, and changes with noise hidden; `None` of a run that asks for
/// nothing.
pub(super) fn of_run(frame: &Frame) -> Option<String> {
    let first = frame.models.first()?;
    let level = frame.estimate(ACCURACY.overall(), &[of_model(first), under(None)])?;
    let level = Cell::estimate(ACCURACY.kind, level);
    let mut text = format!("{} answers {} % of the questions", frame.short_name(first), level.line());
    if let Some(changes) = accuracy_changes(frame, None) {
        text += &format!("; {changes}");
    }
    let gives_back = given_back(frame);
    if !gives_back.is_empty() {
        text += &format!(". Noise hidden from the rows of the answer gives back, in points: {}", gives_back.join(", "));
    }
    Some(text + ".")
}

/// The change of each model's accuracy with noise hidden, in words.
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
