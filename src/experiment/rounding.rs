//! Rounding: how far the last bit of the embeddings moves the log-probability of an answer.
//!
//! A quantised number that lies near the middle between two codes takes one or the other by a change of its last bit, so
//! with few bits a pass is not reproducible beyond that: another build, processor or number type gives other numbers.

use super::{Cell, Setup};
use crate::attention::{ResolvedTreatment, Stream};
use crate::metric::ANSWER_ROUNDING;
use crate::models::Model;
use crate::pass::{pass, QueryScore};
use crate::prompt::Prompt;
use crate::record::Measurement;
use anyhow::Result;

impl Setup {
    /// Repeats a pass with embeddings that differ in their last bit, and returns how far the log-probability of each answer
    /// moves: (question, rows, measurement). Nothing unless the experiment quantises something, and of the first prompt of
    /// each kind only.
    pub(super) fn rounding(
        &self,
        model: &Model,
        (cell, prompt): (&Cell, &Prompt),
        treated: Option<&ResolvedTreatment>,
        queries: &[QueryScore],
    ) -> Result<Vec<(Option<usize>, &'static str, Measurement)>> {
        let quantises = self.conditions.iter().any(|condition| condition.bits().is_some());
        let targets = prompt.answerable_targets();
        if !quantises || cell.sample != 0 || targets.iter().all(|target| target.query.is_none()) {
            return Ok(Vec::new());
        }
        let nudged = model.transformer.with_nudged_embeddings();
        let again = pass(&nudged, prompt, Stream::new(&[]).treated(treated), false)?.queries;
        let moved = |query: usize| {
            let value = (again[query].log_prob_nats - queries[query].log_prob_nats).abs();
            let measure = Measurement {
                metric: ANSWER_ROUNDING.name.into(),
                value: Some(value),
                unit: ANSWER_ROUNDING.unit.map(Into::into),
                n: Some(1),
                ..Measurement::default()
            };
            (Some(query), prompt.rows_name(), measure)
        };
        Ok(targets.iter().filter_map(|target| target.query).map(moved).collect())
    }
}
