//! How often a table of claims has a verdict where there is nothing to find: two models that are drawn alike.

use super::judge::{findings, ClaimVerdict};
use super::list::{Better, Claim, CLAIMS};
use super::ClaimsFlags;
use crate::results::record::{Identity, Measurement, Record};
use crate::results::{About, Frame, RunConfig};
use names::metric::Kind;
use names::{Column, Number, Value};
use stats::Rng;
use std::sync::Arc;

const TABLES: u64 = 200;
const PROMPTS: u64 = 40;

/// The prompts of a series, of one sample.
fn prompts(series: &str) -> Vec<Identity> {
    let asks = |needles, retrieve| Identity {
        task: "needle".into(),
        needles: Some(needles),
        retrieve: Some(retrieve),
        cities: Some("train".into()),
        depth_req_pct: Some(50.0),
        placed: Some(true),
        query: Some(0),
        ..Identity::default()
    };
    let of_shots = Identity { task: "shots random".into(), ..asks(8, 1) };
    match series {
        "answers" => vec![asks(6, 2)],
        "depths" => [6, 12].into_iter().map(|needles| asks(needles, 1)).collect(),
        "maps" => vec![asks(3, 3)],
        "bits" => vec![asks(6, 4)],
        "invented" => vec![asks(5, 1), Identity { cities: Some("absent".into()), ..asks(5, 1) }],
        "examples" => vec![of_shots],
        _ => vec![Identity { task: "text".into(), ..Identity::default() }],
    }
}

/// The records of a claim's numbers in two models: each prompt has a level, about which both are drawn alike.
fn drawn(claim: &Claim, rng: &mut Rng, records: &mut Vec<Record>) {
    let numbers = [(claim.number, claim.under[0]), (claim.number, claim.under[1])];
    for identity in prompts(claim.series) {
        for prompt in 0..PROMPTS {
            let level = rng.normal();
            for model in ["standard", "diff"] {
                for &(number, (column, under)) in &numbers[..if numbers[0].1 == numbers[1].1 { 1 } else { 2 }] {
                    let value = value(number, level, rng);
                    let bits = match (column, under) {
                        (Column::Bits, Some(Value::Int(bits))) => u32::try_from(bits).ok(),
                        _ => None,
                    };
                    let identity = Identity {
                        model: model.to_owned(),
                        seed: Some(prompt),
                        sample: Some(prompt),
                        condition: bits.map(|bits| format!("quantise({bits}, tensor)").into()),
                        scope: bits.map(|_| "tensor".into()),
                        bits,
                        ..identity.clone()
                    };
                    let measure = Measurement {
                        metric: number.metric.name.into(),
                        region: number.region.map(|region| region.to_owned().into()),
                        value: Some(value),
                        ..Measurement::default()
                    };
                    records.push(Record { identity: Arc::new(identity), measure });
                }
            }
        }
    }
}

/// A hit with a probability of about 55 %, or a share of about 30 %.
fn value(number: Number<'_>, level: f64, rng: &mut Rng) -> f64 {
    if number.metric.kind == Kind::Hit {
        f64::from(u8::from(0.2 + level + rng.normal() > 0.0))
    } else {
        0.3 + 0.02 * level + 0.02 * rng.normal()
    }
}

/// Claims about a difference of two models, which has none here. "No depth loses" and "as good" hold where nothing differs, and those
/// about one model's two maps are about one model.
fn is_of_a_difference(claim: &Claim) -> bool {
    !matches!(claim.better, Better::NoLowerThan(_)) && claim.id != "P"
}

#[test]
fn a_table_of_two_models_that_are_alike_has_a_verdict_in_one_of_twenty() {
    let flags = ClaimsFlags { needles: Some(6), ctx: Some(512.into()), ..ClaimsFlags::default() };
    let config = RunConfig::of(&serde_json::json!({ "own": flags })).unwrap();
    let mut with_verdict = 0;
    let mut measured = 0;
    for table in 0..TABLES {
        let mut rng = Rng::new(table, "tables without a difference");
        let mut records = Vec::new();
        let mut seen: Vec<(&str, Number<'_>)> = Vec::new();
        for claim in CLAIMS.iter().filter(|claim| is_of_a_difference(claim)) {
            let already = seen.contains(&(claim.series, claim.number)) && claim.under[0].1.is_none();
            seen.push((claim.series, claim.number));
            if !already {
                drawn(claim, &mut rng, &mut records);
            }
        }
        let frame = Frame::new(About { config: config.clone(), ..About::default() }, &records);
        let of_differences = findings(&frame).remove(0).into_iter().filter(|finding| is_of_a_difference(finding.claim));
        let verdicts: Vec<ClaimVerdict> = of_differences.map(|finding| finding.verdict()).collect();
        let is = |wanted: &[ClaimVerdict]| verdicts.iter().filter(|verdict| wanted.contains(verdict)).count();
        measured += verdicts.len() - is(&[ClaimVerdict::NotMeasurable]);
        let decided = is(&[ClaimVerdict::Supported, ClaimVerdict::Contradicted, ClaimVerdict::Small]);
        with_verdict += usize::from(decided > 0);
    }
    println!("{with_verdict} of {TABLES} tables of {} claims have a verdict", measured as f64 / TABLES as f64);
    assert!(measured as u64 >= 15 * TABLES, "{measured}");
    assert!(with_verdict as u64 <= TABLES / 20, "{with_verdict} of {TABLES}");
}
