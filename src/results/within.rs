//! Differences within a run: models and conditions on the same prompts.

use super::case::{Case, ConditionKey};
use super::field::Field;
use super::frame::Frame;
use super::rows::{correct, Row};
use super::setting::Setting;
use crate::results::metric::{self, Headline, Metric};
use rayon::prelude::*;

/// The columns that rows within a run have values of.
pub(crate) const GROUPS: [Field; 3] = [Field::CtxTok, Field::Needles, Field::Retrieve];

/// Two cases of one setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CasePair {
    pub(crate) baseline: Case,
    pub(crate) other: Case,
}

impl Frame {
    /// Returns a row for each pair of cases and metric that both have, by metric, in the order of the catalogue. Metrics are
    /// given with their regions; `None` stands for the headline ones.
    pub(crate) fn rows(&self, metrics: Option<&[(&'static Metric, Option<&'static str>)]>) -> Vec<Row> {
        let wanted = metrics.map_or_else(headline_metrics, <[_]>::to_vec);
        let pairs = self.case_pairs();
        let of_pair = |&(metric, region): &(&'static Metric, Option<&'static str>)| {
            pairs.iter().map(move |pair| (metric, region, pair)).collect::<Vec<_>>()
        };
        let all: Vec<_> = wanted.iter().flat_map(of_pair).collect();
        let mut rows: Vec<Row> =
            all.par_iter().filter_map(|&(metric, region, pair)| self.row(pair, metric, region)).collect();
        correct(&mut rows);
        rows
    }

    fn row(&self, pair: &CasePair, metric: &'static Metric, region: Option<&'static str>) -> Option<Row> {
        let difference = self.difference(pair.baseline.pick(metric, region), pair.other.pick(metric, region))?;
        let (ctx_tok, needles, retrieve) = pair.baseline.setting;
        let group = [(GROUPS[0], ctx_tok), (GROUPS[1], needles), (GROUPS[2], retrieve)];
        Some(Row {
            baseline: self.case_name(&pair.baseline),
            other: self.case_name(&pair.other),
            group: group.into_iter().map(|(column, value)| (column.to_string(), value.to_string())).collect(),
            metric: metric.name.to_owned(),
            region: region.map(ToOwned::to_owned),
            unit: metric.unit.map(ToOwned::to_owned),
            difference,
            ..Row::default()
        })
    }

    /// Returns the model, with its condition where conditions differ.
    pub(crate) fn case_name(&self, case: &Case) -> String {
        if self.treated().len() < 2 {
            return case.model.clone();
        }
        format!("{} {}", case.model, case.treated.name())
    }

    /// Returns the pairs of cases that are compared: every condition with none, every model with the first under the same
    /// condition, and every model at 4 bits with the first at 6, as the paper claims they are equal.
    pub(crate) fn case_pairs(&self) -> Vec<CasePair> {
        let (known, conditions) = (self.cases(), self.treated());
        let mut pairs = Vec::new();
        let mut push = |setting: Setting, a: (&String, &ConditionKey), b: (&String, &ConditionKey)| {
            let case = |(model, condition): (&String, &ConditionKey)| {
                let case = Case { setting, model: model.clone(), treated: condition.clone() };
                known.contains(&case).then_some(case)
            };
            pairs.extend(case(a).zip(case(b)).map(|(baseline, other)| CasePair { baseline, other }));
        };
        for &setting in self.settings() {
            for model in self.models() {
                for condition in conditions.iter().filter(|condition| condition.condition.is_some()) {
                    push(setting, (model, &ConditionKey::default()), (model, condition));
                }
            }
            let Some((first, others)) = self.models().split_first() else { continue };
            for model in others {
                for condition in conditions {
                    push(setting, (first, condition), (model, condition));
                }
                for four in conditions.iter().filter(|condition| condition.bits == Some(4)) {
                    let of_six = |c: &&ConditionKey| c.bits == Some(6) && c.scope == four.scope;
                    conditions.iter().filter(of_six).for_each(|six| push(setting, (first, six), (model, four)));
                }
            }
        }
        pairs
    }
}

/// The headline metrics, with the regions that they are headline for.
fn headline_metrics() -> Vec<(&'static Metric, Option<&'static str>)> {
    let of = |metric: &'static Metric| match metric.headline {
        Headline::No => None,
        Headline::Yes => Some((metric, None)),
        Headline::Of(region) => Some((metric, Some(region))),
    };
    metric::ALL.iter().filter_map(of).collect()
}
