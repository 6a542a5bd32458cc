//! Schemas 1 and 2, which had the columns of schema 3 after [`schema_1`](super::schema_1), and other meanings:
//!
//! * `share_out` over all heads was the mean over heads, and `noise_out` its sum over noise;
//! * the first token of a prompt without a begin-of-sequence token was no region of its own. It was a part of the template,
//!   in plain text of the filler, and so of noise, of conditions too.
//!
//! Records get the names that these quantities have now.

use super::Record;
use crate::metric::{
    FIRST_ENDING, NOISE_ABS, NOISE_NORM_OUT, NOISE_OUT, NOISE_OUT_MEAN_HEAD, NOISE_POS, NOISE_SIGNED, NOISE_UNIFORM,
    SHARE_ABS, SHARE_ABS_NO_SINKS, SHARE_OUT, SHARE_OUT_MEAN_HEAD, SHARE_UNIFORM,
};
use crate::prompt::Region;
use crate::record::{Identity, Measurement};
use crate::treatment::Condition;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sums over noise that the first token was part of.
const WITH_FIRST: [&str; 6] = [
    NOISE_OUT_MEAN_HEAD.name,
    NOISE_ABS.name,
    NOISE_SIGNED.name,
    NOISE_POS.name,
    NOISE_NORM_OUT.name,
    NOISE_UNIFORM.name,
];

/// Gives records of schema 1 or 2 the names of schema 3.
pub(super) fn derive(records: &mut [Record]) {
    let without_bos = models_without_bos(records);
    for alike in records.chunk_by_mut(|a, b| Arc::ptr_eq(&a.identity, &b.identity)) {
        alike.iter_mut().for_each(|record| rename_means(&mut record.measure));
        let was = &alike[0].identity;
        if !without_bos.contains(&was.model) {
            continue;
        }
        let holder = holder(was);
        let now = with_first(was, holder);
        for record in alike {
            name_first(&mut record.measure, holder);
            record.identity = Arc::clone(&now);
        }
    }
}

/// Names what was a mean over heads.
fn rename_means(measure: &mut Measurement) {
    let renamed = [(SHARE_OUT, SHARE_OUT_MEAN_HEAD), (NOISE_OUT, NOISE_OUT_MEAN_HEAD)];
    let renamed = renamed.into_iter().find(|(was, _)| measure.head.is_none() && measure.metric == was.name);
    if let Some((_, now)) = renamed {
        measure.metric = now.name.into();
    }
}

/// Names the first token where it was a part of noise or of `holder`. [`SHARE_ABS_NO_SINKS`] never counted it.
fn name_first(measure: &mut Measurement, holder: Region) {
    if WITH_FIRST.contains(&&*measure.metric) {
        measure.metric = format!("{}{FIRST_ENDING}", measure.metric).into();
    }
    if measure.region.as_deref() == Some(holder.name()) && measure.metric != SHARE_ABS_NO_SINKS.name {
        measure.region = Some(format!("{}+{}", Region::First.name(), holder.name()).into());
    }
}

/// The models whose prompts have no begin-of-sequence token, by the shares of its region: all 0.
fn models_without_bos(records: &[Record]) -> BTreeSet<String> {
    let of_bos = |record: &&Record| {
        record.measure.region.as_deref() == Some(Region::Bos.name())
            && [SHARE_UNIFORM.name, SHARE_ABS.name].contains(&&*record.measure.metric)
    };
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    for record in records.iter().filter(of_bos) {
        let has_bos = record.measure.value.is_some_and(|share| share > 0.0);
        if has_bos { &mut with } else { &mut without }.insert(record.identity.model.clone());
    }
    &without - &with
}

/// The region that the first token was part of.
fn holder(identity: &Identity) -> Region {
    if identity.task == "text" {
        Region::Filler
    } else {
        Region::Template
    }
}

/// The identity with a condition that names the first token where it was meant.
fn with_first(identity: &Arc<Identity>, holder: Region) -> Arc<Identity> {
    let condition = identity.condition.as_deref().and_then(|name| name.parse::<Condition>().ok());
    let Some(condition) = condition.map(|condition| condition.with_first_token(holder)) else {
        return Arc::clone(identity);
    };
    Arc::new(Identity { condition: condition.column().map(Cow::from), ..(**identity).clone() })
}
