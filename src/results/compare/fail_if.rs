//! Conditions on results, for continuous integration: `accuracy < -0.05`.

use super::super::difference::Verdict;
use super::super::rows::Row;
use super::MetricName;
use crate::results::Frame;
use anyhow::Result;
use base::bail_usage;
use names::metric::{self, Metric};
use names::{distinct, hint, serde_as_str};
use stats::LEAST_PROMPTS;
use std::fmt;
use std::str::FromStr;
use strum::EnumString;

/// A condition on the results of a comparison or of a run.
///
/// Of a comparison: `METRIC[REGION] OP NUMBER` on the mean difference, with `METRIC.lo` and `METRIC.hi` on an end of its 95 % interval,
/// with `METRIC.baseline` and `METRIC.other` on one of the two means: `accuracy < -0.05` holds where accuracy fell by more
/// than five points, `accuracy.hi < 0` where it surely fell, `accuracy.other < 0.9` where it is below 90 %. That an interval
/// lies beyond 0 holds only where the verdict says so too, which is corrected for the rows of the table.
///
/// Of a run: `METRIC[REGION] [of MODEL] [under CONDITION] OP NUMBER` on the mean of a model, or of each, in untreated passes or
/// under one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    metric: MetricName,
    number: RowNumber,
    /// The model of a run; `None` for each.
    pub model: Option<String>,
    /// Name of the condition of a run; `None` for untreated passes.
    pub condition: Option<String>,
    operator: Operator,
    limit: f64,
    /// As it was given.
    text: String,
}

/// A number of a row, named behind a metric as in `accuracy.lo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
enum RowNumber {
    Diff,
    Lo,
    Hi,
    Baseline,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Longest first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator); 4] =
    [("<=", Operator::AtMost), (">=", Operator::AtLeast), ("<", Operator::Less), (">", Operator::More)];

impl FromStr for FailIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("`{text}` {why}; conditions are like `accuracy < -0.05` or `noise_abs.hi >= 0`");
        let parts = OPERATORS.iter().find_map(|(sign, operator)| Some((text.split_once(sign)?, *operator)));
        let ((left, limit), operator) = parts.ok_or_else(|| bad("has none of < <= > >="))?;
        let number = limit.trim().parse::<f64>().ok().filter(|limit| limit.is_finite());
        let limit = number.ok_or_else(|| bad(&format!("compares with `{}`, which is not a number", limit.trim())))?;
        let (left, condition) = split_off(left.trim(), " under ");
        let (left, model) = split_off(left, " of ");
        let named = left.rsplit_once('.').and_then(|(metric, name)| Some((metric, name.parse().ok()?)));
        let (metric, number) = named.unwrap_or((left, RowNumber::Diff));
        Ok(Self { metric: metric.parse()?, number, model, condition, operator, limit, text: text.trim().to_owned() })
    }
}

/// Splits a name off behind a word, if the word is there.
fn split_off<'a>(text: &'a str, word: &str) -> (&'a str, Option<String>) {
    text.split_once(word).map_or((text, None), |(before, name)| (before, Some(name.trim().to_owned())))
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_str!(FailIf);

impl FailIf {
    /// Checks that it is about a mean of a metric, as runs have them, and that the run measures it.
    ///
    /// # Errors
    /// A usage error if it is about a difference, no metric has its name, or it is none of those that are measured.
    pub fn check_of_run(&self, measured: &[&Metric]) -> Result<()> {
        if self.number != RowNumber::Diff {
            bail_usage!("--fail-if '{self}': a run has means only; .lo, .hi, .baseline and .other are for `compare`");
        }
        let metric = &self.metric.metric;
        let Some(found) = metric::find(metric) else {
            let hint = hint(metric, metric::ALL.iter().map(|metric| metric.name));
            bail_usage!("--fail-if '{self}': there is no metric {metric}{hint}; `difftool explain` lists them");
        };
        if !measured.contains(&found) {
            let names = distinct(measured.iter().map(|metric| metric.name.to_owned()));
            bail_usage!("--fail-if '{self}': {metric} is not measured here; there are {}", names.join(", "));
        }
        Ok(())
    }

    /// The mean of a model that it is about, if it was measured.
    pub(crate) fn mean(&self, frame: &Frame, model: &str) -> Option<f64> {
        let MetricName { metric, region } = &self.metric;
        frame.mean(model, self.condition.as_deref(), metric, region.as_deref())
    }

    /// The rows of a comparison for which it holds.
    ///
    /// # Errors
    /// A usage error if it is about a run, if no row has its metric, or one has no interval where an end of it is asked for.
    pub fn met<'a>(&self, rows: &'a [Row]) -> Result<Vec<&'a Row>> {
        if self.model.is_some() || self.condition.is_some() {
            bail_usage!("'{self}': `of` and `under` are for commands that measure; here, use --where or --by");
        }
        let concerned: Vec<&Row> =
            rows.iter().filter(|row| self.metric.covers(&row.metric, row.region.as_deref())).collect();
        if concerned.is_empty() {
            let mut names: Vec<String> = rows.iter().map(Row::name).collect();
            names.sort();
            names.dedup();
            bail_usage!("'{self}': not compared; there are {} (see --metric)", names.join(", "));
        }
        let mut met = Vec::new();
        for row in concerned {
            if self.holds(row)? {
                met.push(row);
            }
        }
        Ok(met)
    }

    fn holds(&self, row: &Row) -> Result<bool> {
        let number = match self.number {
            RowNumber::Diff => Some(row.difference.diff),
            RowNumber::Lo => row.difference.lo,
            RowNumber::Hi => row.difference.hi,
            RowNumber::Baseline => Some(row.difference.mean_baseline),
            RowNumber::Other => Some(row.difference.mean_other),
        };
        let Some(number) = number else {
            let why = match (row.difference.seeds, row.difference.n) {
                (Some(seeds), _) => format!("training seeds are {seeds}"),
                (None, n) if n < LEAST_PROMPTS => format!("n is {n}"),
                (None, _) => "all prompts differ alike".to_owned(),
            };
            bail_usage!("'{self}': {} has no interval, as {why}", row.name());
        };
        Ok(self.holds_for(number) && self.decided_by().is_none_or(|verdict| verdict == row.difference.verdict()))
    }

    /// The verdict without which it does not hold: of a condition that an interval lies beyond 0.
    fn decided_by(&self) -> Option<Verdict> {
        match (self.number, self.operator) {
            (RowNumber::Hi, Operator::Less | Operator::AtMost) if self.limit <= 0.0 => Some(Verdict::Lower),
            (RowNumber::Lo, Operator::More | Operator::AtLeast) if self.limit >= 0.0 => Some(Verdict::Higher),
            _ => None,
        }
    }

    /// Returns `true` if it holds for a number.
    pub fn holds_for(&self, number: f64) -> bool {
        match self.operator {
            Operator::Less => number < self.limit,
            Operator::AtMost => number <= self.limit,
            Operator::More => number > self.limit,
            Operator::AtLeast => number >= self.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::difference::Difference;
    use super::*;
    use names::metric::{ACCURACY, SHARE_ABS};

    fn row(diff: f64, interval: Option<(f64, f64)>) -> Row {
        let lo = interval.map(|i| i.0);
        let hi = interval.map(|i| i.1);
        let difference = Difference { diff, lo, hi, ..Difference::default() };
        Row { metric: SHARE_ABS.name.into(), region: Some("answer".into()), difference, ..Row::default() }
    }

    fn holds(condition: &str, row: &Row) -> bool {
        !condition.parse::<FailIf>().unwrap().met(std::slice::from_ref(row)).unwrap().is_empty()
    }

    #[test]
    fn a_condition_is_on_the_difference_or_an_end_of_its_interval_or_a_mean() {
        let mut row = row(-0.04, Some((-0.09, 0.01)));
        (row.difference.mean_baseline, row.difference.mean_other) = (0.94, 0.9);
        assert!(holds("share_abs.other <= 0.9", &row) && !holds("share_abs[answer].baseline < 0.94", &row));
        assert!(holds("share_abs < 0", &row) && holds("share_abs[answer]<=-0.04", &row));
        assert!(!holds("share_abs.hi < 0", &row) && holds("share_abs[answer].lo < -5e-2", &row));
        assert!(holds("share_abs.diff > -0.05", &row) && !holds("share_abs >= 0", &row));
    }

    #[test]
    fn an_interval_is_beyond_zero_only_where_the_verdict_says_so() {
        let of = |p_adjusted| {
            let row = row(-0.04, Some((-0.07, -0.01)));
            Row { difference: Difference { p_adjusted: Some(p_adjusted), ..row.difference }, ..row }
        };
        for condition in ["share_abs.hi < 0", "share_abs.hi <= -0.01"] {
            assert_eq!([0.02, 0.06].map(|p| holds(condition, &of(p))), [true, false], "{condition}");
        }
        assert!(holds("share_abs.lo < -0.05", &of(0.06)) && holds("share_abs.hi < 0.1", &of(0.06)));
    }

    #[test]
    fn a_condition_on_a_run_names_a_model_and_a_condition() {
        let fail_if: FailIf = "share_abs[answer] of diff under quantise(8, tensor) < 0.5".parse().unwrap();
        assert_eq!(
            (fail_if.model.as_deref(), fail_if.condition.as_deref()),
            (Some("diff"), Some("quantise(8, tensor)"))
        );
        assert!(fail_if.holds_for(0.4) && !fail_if.holds_for(0.5) && fail_if.check_of_run(&[&SHARE_ABS]).is_ok());
        assert!(fail_if.met(&[row(0.0, None)]).is_err(), "a comparison");
        assert!("accuracy.lo < 0.5".parse::<FailIf>().unwrap().check_of_run(&[&ACCURACY]).is_err());
    }

    #[test]
    fn what_cannot_be_judged_is_a_usage_error() {
        let refusal = |condition: &str| {
            let error = condition.parse::<FailIf>().unwrap().met(&[row(0.0, None)]).unwrap_err();
            assert_eq!(base::error::exit_code(&error), 2);
            error.to_string()
        };
        assert!(refusal("accuracy < 0").contains("share_abs[answer]"));
        assert!(refusal("share_abs[filler] < 0").contains("not compared"));
        assert!(refusal("share_abs.lo < 0").contains("no interval"));
    }

    #[test]
    fn conditions_that_cannot_be_read_say_what_they_are_like() {
        for bad in [ACCURACY.name, "accuracy < five", "accuracy = 1", "< 0", "accuracy < inf", "share_abs[answer < 0"] {
            assert!(bad.parse::<FailIf>().is_err(), "{bad}");
        }
    }
}
