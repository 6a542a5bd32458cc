//! Differences within a run: models and conditions on the same prompts.

use super::column::Column;
use super::frame::{Frame, SIDES};
use super::metric::{self, Headline, Metric};
use super::pick::{Case, ConditionKey, Pick, Setting};
use super::records::Quantity;
use super::rows::{Pairing, Row, Rows};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The columns that rows within a run have values of.
pub(crate) const GROUPS: [Column; 3] = [Column::CtxTok, Column::Needles, Column::Retrieve];

/// Baseline and other, of one setting.
type CasePair = (Case, Case);

impl Frame {
    /// Returns a row for each metric and pair of sides that have it, in the order of the metrics. They are given with their
    /// regions; `None` stands for the headline ones.
    pub(crate) fn rows(&self, metrics: Option<&[(&'static Metric, Option<&'static str>)]>) -> Vec<Row> {
        let wanted = metrics.map_or_else(headline_metrics, <[_]>::to_vec);
        let rank = |quantity: &Quantity| {
            let is_it = |(metric, region): &(&Metric, Option<&str>)| {
                metric.name == quantity.metric && *region == quantity.region.as_deref()
            };
            wanted.iter().position(is_it).filter(|_| quantity.is_of_model())
        };
        let records = |case: &Case| {
            let condition = case.treated.condition.as_deref();
            let setting = Some(case.setting);
            let pick = Pick { model: &case.model, condition, setting, ..Pick::default() };
            self.records.select(|quantity| rank(quantity).is_some(), |id| pick.matches(id))
        };
        let pairs = self.case_pairs();
        let pairing = |(a, b): &CasePair| {
            Pairing::of([a, b].map(|case| self.case_name(case)), [a, b].map(records), SIDES.to_vec())
        };
        let pairings: Vec<Pairing<'_>> = pairs.par_iter().map(pairing).collect();
        let rows = Rows { pairings: &pairings, groups: &[], of_seeds: false };
        let rows = rows.make(|quantity| rank(quantity).unwrap_or(usize::MAX));
        rows.into_iter().flatten().map(|(place, row)| Row { group: group(pairs[place].0.setting), ..row }).collect()
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
        let untreated = ConditionKey::default();
        let conditions = &self.treated;
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

/// The columns and values that all pairs of a setting have.
fn group(Setting { ctx_tok, needles, asked }: Setting) -> BTreeMap<String, String> {
    let values = GROUPS.into_iter().zip([ctx_tok, needles, asked]);
    values.map(|(column, value)| (column.to_string(), value.to_string())).collect()
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
