//! The numbers of heads that the page offers first, in the order of its list; names and meanings are those of the catalogue.

use names::metric::{
    Number, ANSWER_REGION, CANCELLED, DUPLICATE_TOKEN, ENTROPY, HEAD_ATTRIBUTION, INDUCTION, LAMBDA, NOISE_OUT,
    PREVIOUS_TOKEN, QUERY_SCORE, RETRIEVAL_SCORE, SHARE_ABS, SHARE_OUT, SHARE_SIGNED, SINK_SHARE_DETECTED,
};
use serde_json::{json, Value};

const NUMBERS: [Number<'static>; 15] = [
    HEAD_ATTRIBUTION.overall(),
    SHARE_OUT.of(ANSWER_REGION),
    NOISE_OUT.overall(),
    SHARE_ABS.of("sink"),
    SHARE_SIGNED.of(ANSWER_REGION),
    SHARE_ABS.of(ANSWER_REGION),
    RETRIEVAL_SCORE.overall(),
    QUERY_SCORE.overall(),
    PREVIOUS_TOKEN.overall(),
    DUPLICATE_TOKEN.overall(),
    INDUCTION.overall(),
    LAMBDA.overall(),
    CANCELLED.overall(),
    ENTROPY.overall(),
    SINK_SHARE_DETECTED.overall(),
];

/// What the page says of them: id, name, meaning, and whether they are shares, which it shows in percent.
pub(super) fn numbers() -> Vec<Value> {
    let mut numbers = Vec::new();
    for number in NUMBERS {
        let region = number.region.map_or_else(String::new, |region| format!(" {region}"));
        let is_share = number.metric.kind.factor() > 1.0;
        let name = if is_share { number.label().text } else { number.heading() };
        let id = format!("{}{region}", number.metric.name);
        numbers.push(json!({ "id": id, "name": name, "what": number.metric.meaning, "is_share": is_share }));
    }
    numbers
}
