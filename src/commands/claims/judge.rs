//! Verdicts on claims, from the numbers of both models and their difference.

use super::list::{Against, Better, Claim, Over};
use super::ClaimsFlags;
use crate::results::difference::correct;
use crate::results::metric::Kind;
use crate::results::pair::by_prompt;
use crate::results::{of_model, Column, Cut, Difference, Estimate, Frame, Number, RecordRef, SIDES};
use crate::stats::p_of_interval;
use serde::Deserialize as _;
use std::collections::BTreeSet;

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimVerdict {
    Supported,
    Contradicted,
    Undecided,
    NotMeasurable,
}

impl ClaimVerdict {
    /// Those of what can be measured.
    pub(super) const DECIDED_OR_OPEN: [Self; 3] = [Self::Supported, Self::Contradicted, Self::Undecided];

    /// As columns of tables say it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::Contradicted => "contradicted",
            Self::Undecided => "undecided",
            Self::NotMeasurable => "not measurable",
        }
    }

    /// A word of few letters, beside a change.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Supported => "yes",
            Self::Contradicted => "no",
            Self::Undecided => "open",
            Self::NotMeasurable => "-",
        }
    }
}

/// The numbers of a claim in a model.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) claim: &'static Claim,
    pub(super) model: &'a str,
    /// The number of what the model is compared with.
    pub(super) baseline: Option<Estimate>,
    pub(super) other: Option<Estimate>,
    pub(super) change: Option<Difference>,
    /// Why it is not measurable.
    pub(super) why: String,
}

impl Finding<'_> {
    pub(super) fn kind(&self) -> Kind {
        self.claim.number.metric.kind
    }

    pub(super) fn verdict(&self) -> ClaimVerdict {
        let Some(change) = &self.change else { return ClaimVerdict::NotMeasurable };
        let holds = match self.claim.better {
            Better::Higher => change.diff > 0.0,
            Better::Lower => change.diff < 0.0,
            Better::NoLowerThan(margin) => change.diff > -margin,
        };
        match (change.is_decided(), holds) {
            (false, _) => ClaimVerdict::Undecided,
            (true, true) => ClaimVerdict::Supported,
            (true, false) => ClaimVerdict::Contradicted,
        }
    }
}

/// The flags of the run, with what was filled in.
pub(super) fn flags(frame: &Frame) -> ClaimsFlags {
    frame.about.own().and_then(|flags| ClaimsFlags::deserialize(flags).ok()).unwrap_or_default()
}

/// The findings of each model but the first, model by model; the p-values of a model are corrected for all of its claims.
pub(super) fn findings(frame: &Frame) -> Vec<Vec<Finding<'_>>> {
    let claims = flags(frame).claims();
    let mut of_models = Vec::new();
    for model in frame.models.iter().skip(1) {
        let mut findings: Vec<Finding<'_>> = claims.iter().map(|claim| finding(frame, claim, model)).collect();
        correct(findings.iter_mut().filter_map(|finding| finding.change.as_mut()));
        of_models.push(findings);
    }
    of_models
}

fn finding<'a>(frame: &Frame, claim: &'static Claim, model: &'a str) -> Finding<'a> {
    let standard = frame.models.first().map_or("", String::as_str);
    let baseline = match claim.against {
        Against::Standard => Side { number: claim.number, model: standard, under: claim.under[1] },
        Against::Own(number) => Side { number, model, under: claim.under[1] },
    };
    let other = Side { number: claim.number, model, under: claim.under[0] };
    let [baseline, other] = [baseline, other].map(|side| side.records(frame, claim));
    let why = reason(frame, claim, &baseline, &other);
    let (sides, change) = match claim.over {
        Over::EachDepth => least_gain(claim, baseline, other),
        _ => {
            let change = difference(claim, &baseline, &other);
            ([baseline, other], change)
        }
    };
    let [baseline, other] = sides.map(|records| Estimate::of(&records, claim.number.metric.kind));
    let change = change.map(|change| against_margin(claim, change));
    Finding { claim, model, baseline, other, change, why }
}

/// Why a claim is not measurable, if it is not.
fn reason(frame: &Frame, claim: &Claim, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> String {
    if let Some(why) = frame.left_out(claim.series) {
        return why;
    }
    match (baseline.is_empty(), other.is_empty(), claim.against) {
        (false, false, _) => String::new(),
        (_, true, Against::Own(_)) => "the model has one attention map".to_owned(),
        _ => "it was not measured".to_owned(),
    }
}

/// One side of a claim.
struct Side<'a> {
    number: Number<'static>,
    model: &'a str,
    under: Cut<'static>,
}

impl Side<'_> {
    fn records<'a>(&self, frame: &'a Frame, claim: &Claim) -> Vec<RecordRef<'a>> {
        let only: Vec<Cut<'_>> = claim.only.iter().copied().chain([of_model(self.model), self.under]).collect();
        let mentioned = if claim.over == Over::EachDepth { &[Column::DepthReqPct][..] } else { &[] };
        let records = frame.records.of_number(self.number, &only, mentioned);
        match claim.over {
            Over::Prompts | Over::EachDepth => records,
            Over::MostExamples => of_most_examples(records),
            Over::OrderOfExamples => changed_by_order(of_most_examples(records)),
        }
    }
}

/// The records of the many-shot prompts with the most examples.
fn of_most_examples(mut records: Vec<RecordRef<'_>>) -> Vec<RecordRef<'_>> {
    let most = records.iter().map(|record| record.identity.needles).max();
    records.retain(|record| Some(record.identity.needles) == most);
    records
}

/// A number for each many-shot prompt instead of one for each of its arrangements: 1 if some are right and others wrong, otherwise 0.
fn changed_by_order(records: Vec<RecordRef<'_>>) -> Vec<RecordRef<'_>> {
    let mut changed = Vec::new();
    for (_, arrangements) in by_prompt(records.into_iter().map(|record| (record, record)), &[]) {
        let is_same = arrangements.iter().all(|record| record.value == arrangements[0].value);
        let value = if is_same { 0.0 } else { 1.0 };
        changed.extend(arrangements.first().map(|record| RecordRef { value, ..*record }));
    }
    changed
}

fn difference(claim: &Claim, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> Option<Difference> {
    let mut free = SIDES.to_vec();
    if claim.against != Against::Standard {
        free.push(Column::Metric);
    }
    Difference::of_sides([baseline.to_vec(), other.to_vec()], &free, claim.number.metric.kind)
}

/// The depth with the least gain: the records of both sides there, and their difference. Its p-value is that of a gain at every
/// depth, the largest of all depths; or, if one loses, that of a loss at some depth, corrected for the number of depths (Bonferroni).
fn least_gain<'a>(
    claim: &Claim,
    baseline: Vec<RecordRef<'a>>,
    other: Vec<RecordRef<'a>>,
) -> ([Vec<RecordRef<'a>>; 2], Option<Difference>) {
    let depths: BTreeSet<_> = other.iter().filter_map(|record| Column::DepthReqPct.get(record)).collect();
    let mut of_depths = Vec::new();
    for &depth in &depths {
        let at_depth = |records: &[RecordRef<'a>]| -> Vec<RecordRef<'a>> {
            records.iter().copied().filter(|record| Column::DepthReqPct.get(record) == Some(depth)).collect()
        };
        let sides = [at_depth(&baseline), at_depth(&other)];
        let change = difference(claim, &sides[0], &sides[1]);
        of_depths.extend(change.map(|change| (sides, change)));
    }
    let largest_p = of_depths.iter().map(|(_, change)| change.p.unwrap_or(1.0)).fold(0.0, f64::max);
    let Some((sides, change)) = of_depths.into_iter().min_by(|a, b| a.1.diff.total_cmp(&b.1.diff)) else {
        return ([baseline, other], None);
    };
    let p = match change.diff >= 0.0 {
        true => Some(largest_p),
        false => change.p.map(|p| (p * depths.len() as f64).min(1.0)),
    };
    (sides, Some(Difference { p, ..change }))
}

/// Tests a change against the margin of its claim instead of 0, where the claim has one.
fn against_margin(claim: &Claim, change: Difference) -> Difference {
    match claim.better {
        Better::NoLowerThan(margin) => {
            let p = change.interval().map(|interval| p_of_interval(change.diff, interval, -margin));
            Difference { p, ..change }
        }
        Better::Higher | Better::Lower => change,
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::CLAIMS;
    use super::*;
    use crate::results::metric::ACCURACY;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::About;
    use std::sync::Arc;

    /// Sixteen prompts at each depth, all of which one of the models answers: the differential one where it gains.
    fn verdict(gains: &[bool]) -> ClaimVerdict {
        let mut records = Vec::new();
        for (depth, gains) in gains.iter().enumerate() {
            for (model, hits) in [("standard", !gains), ("diff", *gains)] {
                for seed in 0..16 {
                    let identity = Identity {
                        model: model.into(),
                        task: "needle".into(),
                        needles: Some(8),
                        depth_req_pct: Some(25.0 * depth as f64),
                        seed: Some(100 * depth as u64 + seed),
                        placed: Some(true),
                        query: Some(0),
                        ..Identity::default()
                    };
                    let value = Some(f64::from(u8::from(hits)));
                    let measure = Measurement { metric: ACCURACY.name.into(), value, ..Measurement::default() };
                    records.push(Record { identity: Arc::new(identity), measure });
                }
            }
        }
        let claim = CLAIMS.iter().find(|claim| claim.id == "F5").unwrap();
        let frame = Frame::of(About::default(), &records);
        let mut finding = finding(&frame, claim, "diff");
        correct(finding.change.as_mut());
        finding.verdict()
    }

    #[test]
    fn more_at_every_depth_needs_all_of_them_and_one_that_loses_contradicts_it() {
        assert_eq!(verdict(&[true; 5]), ClaimVerdict::Supported);
        assert_eq!(verdict(&[true, true, false, true, true]), ClaimVerdict::Contradicted);
        assert_eq!(verdict(&[]), ClaimVerdict::NotMeasurable);
    }

    #[test]
    fn a_margin_is_tested_instead_of_zero() {
        let claim = CLAIMS.iter().find(|claim| matches!(claim.better, Better::NoLowerThan(_))).unwrap();
        for (diff, verdict) in
            [(-0.01, ClaimVerdict::Supported), (-0.04, ClaimVerdict::Undecided), (-0.2, ClaimVerdict::Contradicted)]
        {
            let [lo, hi] = [diff - 0.03, diff + 0.03].map(Some);
            let mut change = against_margin(claim, Difference { diff, lo, hi, p: Some(1.0), ..Difference::default() });
            correct([&mut change]);
            let found =
                Finding { claim, model: "", baseline: None, other: None, change: Some(change), why: String::new() };
            assert_eq!(found.verdict(), verdict, "{diff}");
        }
    }
}
