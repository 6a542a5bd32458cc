//! What tells the records of a run apart: the columns of prompts, models and conditions.

use super::Setup;
use crate::measures::PassKey;
use crate::results::record::{Identity, Measurement, Record};
use engine::model::open::Model;
use names::condition::Condition;
use std::sync::Arc;
use text::{CitySet, PlannedPrompt, PromptSpec};

/// The columns of a prompt's records that do not depend on the model, the condition or the question.
fn prompt_identity(setup: &Setup, prompt: &PlannedPrompt) -> Identity {
    let seed = prompt.seed(setup.grid.seed());
    let identity = Identity { sample: Some(prompt.sample), seed: Some(seed), ..Identity::default() };
    match &prompt.spec {
        PromptSpec::Context(spec) => {
            Identity { task: "context".into(), ctx_tok: spec.ctx_tok, retrieve: Some(1), ..identity }
        }
        PromptSpec::Text(windows) => Identity { task: "text".into(), ctx_tok: windows.ctx_tok, ..identity },
        PromptSpec::Shots(spec) => Identity {
            task: spec.task(),
            ctx_tok: spec.ctx_tok,
            needles: Some(spec.shots),
            retrieve: Some(1),
            cities: Some(CitySet::Train.name().into()),
            ..identity
        },
        PromptSpec::Needle(spec) => Identity {
            task: spec.task(),
            ctx_tok: spec.ctx_tok,
            needles: Some(spec.needles),
            retrieve: Some(spec.retrieve),
            depth_req_pct: Some(spec.depth_pct),
            cities: spec.names_cities().then(|| spec.cities.name().into()),
            ..identity
        },
    }
}

/// The columns of a pass's records that do not depend on the question.
pub(super) fn identity(setup: &Setup, prompt: &PlannedPrompt, model: &Model, condition: &Condition) -> Identity {
    Identity {
        model: model.name.clone(),
        variant: model.info.variant.clone(),
        condition: condition.column().map(Into::into),
        bits: condition.bits(),
        scope: condition.scope().map(Into::into),
        ..prompt_identity(setup, prompt)
    }
}

/// Makes the record of a measurement that was pooled over all prompts: the identity of the first one without the
/// fields in which prompts differ.
pub(super) fn pooled_record(setup: &Setup, first: &PlannedPrompt, key: PassKey, measure: Measurement) -> Record {
    let model = &setup.models[key.model];
    let condition = &setup.conditions[key.condition];
    let identity = Identity {
        sample: None,
        seed: None,
        depth_req_pct: None,
        cities: None,
        rows: Some("all".into()),
        ..identity(setup, first, model, condition)
    };
    Record { identity: Arc::new(identity), measure }
}
