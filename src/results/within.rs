//! Differences within a run: models and conditions on the same prompts.

use super::column::Column;
use super::difference::{correct, Row};
use super::frame::Frame;
use super::metric::{self, Headline, Metric};
use super::pick::{Case, ConditionKey, Setting};
use rayon::prelude::*;

/// The columns that rows within a run have values of.
pub(crate) const GROUPS: [Column; 3] = [Column::CtxTok, Column::Needles, Column::Retrieve];

/// Baseline and other, of one setting.
type CasePair = (Case, Case);

impl Frame {
    /// Returns a row for each pair of cases and metric that both have, by metric, in the order of the catalogue. Metrics are
    /// given with their regions; `None` stands for the headline ones.
    pub(crate) fn rows(&self, metrics: Option<&[(&'static Metric, Option<&'static str>)]>) -> Vec<Row> {
        let (wanted, pairs) = (metrics.map_or_else(headline_metrics, <[_]>::to_vec), self.case_pairs());
        let all: Vec<_> = wanted.iter().flat_map(|metric| pairs.iter().map(move |pair| (metric, pair))).collect();
        let mut rows: Vec<Row> =
            all.par_iter().filter_map(|&(&(metric, region), pair)| self.row(pair, metric, region)).collect();
        correct(rows.iter_mut().map(|row| &mut row.difference));
        rows
    }

    fn row(&self, pair: &CasePair, metric: &'static Metric, region: Option<&'static str>) -> Option<Row> {
        let (baseline, other) = pair;
        let difference = self.difference(baseline.pick(metric, region), other.pick(metric, region))?;
        let Setting { ctx_tok, needles, asked } = baseline.setting;
        let group = [(GROUPS[0], ctx_tok), (GROUPS[1], needles), (GROUPS[2], asked)];
        Some(Row {
            baseline: self.case_name(baseline),
            other: self.case_name(other),
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
        if self.treated.len() < 2 {
            return case.model.clone();
        }
        format!("{} {}", case.model, case.treated.name())
    }

    /// Returns the pairs of cases that are compared: every condition with none, every model with the first under the same
    /// condition, and every model at 4 bits with the first at 6, as the paper claims they are equal.
    fn case_pairs(&self) -> Vec<CasePair> {
        let (untreated, conditions) = (ConditionKey::default(), &self.treated);
        let mut pairs = Vec::new();
        for &setting in &self.settings {
            for model in &self.models {
                for condition in conditions.iter().filter(|condition| condition.condition.is_some()) {
                    pairs.push((case(setting, model, &untreated), case(setting, model, condition)));
                }
            }
            let Some((first, others)) = self.models.split_first() else { continue };
            for model in others {
                for condition in conditions {
                    pairs.push((case(setting, first, condition), case(setting, model, condition)));
                }
                for four in conditions.iter().filter(|condition| condition.bits == Some(4)) {
                    for six in conditions.iter().filter(|six| six.bits == Some(6) && six.scope == four.scope) {
                        pairs.push((case(setting, first, six), case(setting, model, four)));
                    }
                }
            }
        }
        let known = self.cases();
        pairs.retain(|(baseline, other)| known.contains(baseline) && known.contains(other));
        pairs
    }
}

fn case(setting: Setting, model: &str, treated: &ConditionKey) -> Case {
    Case { setting, model: model.to_owned(), treated: treated.clone() }
}

/// The headline metrics, with the regions that they are headline for.
fn headline_metrics() -> Vec<(&'static Metric, Option<&'static str>)> {
    let mut metrics = Vec::new();
    for metric in metric::ALL {
        match metric.headline {
            Headline::No => {}
            Headline::Yes => metrics.push((metric, None)),
            Headline::Of(region) => metrics.push((metric, Some(region))),
        }
    }
    metrics
}
