//! Verdicts on claims, from the numbers of both models and their difference.

use super::list::{Against, Better, Claim, Interest, Over, CLAIMS, LEAST_TO_LOSE};
use super::series::is_of_series;
use super::ClaimsFlags;
use crate::results::difference::correct_among;
use crate::results::pair::by_prompt;
use crate::results::{of_model, Difference, Estimate, Frame, RecordRef, SIDES};
use names::metric::Kind;
use names::{Column, Cut, Number};
use stats::{p_of_interval, LEAST_DISCORDANT};
use std::collections::{BTreeMap, BTreeSet};

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimVerdict {
    Supported,
    Contradicted,
    /// Decided, but less than what is of interest.
    Small,
    Undecided,
    /// Undecided, as the models are too good for any outcome to decide it.
    AtCeiling,
    /// The same, as they are too bad.
    AtFloor,
    /// No finding: it follows from how the pair was made.
    ByConstruction,
    NotMeasurable,
}

impl ClaimVerdict {
    /// As columns of tables say it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::Contradicted => "contradicted",
            Self::Small => "too small to matter",
            Self::Undecided => "undecided",
            Self::AtCeiling => "at the ceiling",
            Self::AtFloor => "at the floor",
            Self::ByConstruction => "by construction",
            Self::NotMeasurable => "not measurable",
        }
    }

    /// A word of few letters, beside a change.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Supported => "yes",
            Self::Contradicted => "no",
            Self::Small => "small",
            Self::Undecided => "open",
            Self::AtCeiling => "ceiling",
            Self::AtFloor => "floor",
            Self::ByConstruction => "given",
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
    /// `true` if it was named before the numbers were seen as one that decides; the others are exploratory.
    pub(super) is_primary: bool,
    /// `true` if it follows from how the pair was made.
    is_given: bool,
    /// Where it cannot be decided, as the models answer everything, or nothing.
    bound: Option<ClaimVerdict>,
    /// Why it is not measurable.
    pub(super) why: String,
}

impl Finding<'_> {
    pub(super) fn kind(&self) -> Kind {
        self.claim.kind()
    }

    /// The smallest change that is of interest, in the unit of the number.
    pub(super) fn interest(&self) -> f64 {
        match self.claim.interest {
            Interest::Of(change) => change,
            Interest::Part(part) => part * self.baseline.map_or(0.0, |baseline| baseline.value.abs()),
        }
    }

    /// Returns `true` if it is of the answers by which the difficulty was chosen.
    pub(super) fn is_of_difficulty(&self) -> bool {
        self.claim.series == CLAIMS[0].series && self.claim.number == CLAIMS[0].number
    }

    /// The setting to try, where nothing could be decided.
    pub(super) fn would_decide(&self) -> Option<&'static str> {
        matches!(self.verdict(), ClaimVerdict::AtCeiling | ClaimVerdict::AtFloor).then_some(self.claim.decide)
    }

    pub(super) fn verdict(&self) -> ClaimVerdict {
        let Some(change) = &self.change else { return ClaimVerdict::NotMeasurable };
        if self.is_given {
            return ClaimVerdict::ByConstruction;
        }
        let holds = match self.claim.better {
            Better::Higher => change.diff > 0.0,
            Better::Lower => change.diff < 0.0,
            Better::NoLowerThan(margin) => change.diff > -margin,
        };
        let has_margin = matches!(self.claim.better, Better::NoLowerThan(_));
        match self.bound {
            Some(bound) if has_margin || !change.is_decided() => bound,
            _ if !change.is_decided() => ClaimVerdict::Undecided,
            _ if !has_margin && change.diff.abs() < self.interest() => ClaimVerdict::Small,
            _ if holds => ClaimVerdict::Supported,
            _ => ClaimVerdict::Contradicted,
        }
    }
}

/// The flags of the run, with what was filled in.
pub(super) fn flags(frame: &Frame) -> ClaimsFlags {
    frame.about.config.own().unwrap_or_default()
}

/// The findings of each model but the first, model by model. The p-values of a model's primary claims are corrected for all of these,
/// those of the others for all claims there are, whether they were asked for or not.
pub(super) fn findings(frame: &Frame) -> Vec<Vec<Finding<'_>>> {
    let flags = flags(frame);
    let claims = flags.claims();
    let mut of_models = Vec::new();
    for model in frame.models.iter().skip(1) {
        let mut findings: Vec<Finding<'_>> = claims.iter().map(|claim| finding(frame, &flags, claim, model)).collect();
        for is_primary in [true, false] {
            let family = CLAIMS.iter().filter(|claim| !is_primary || flags.is_primary(claim)).count();
            let of_family = findings.iter_mut().filter(|finding| finding.is_primary == is_primary);
            correct_among(family, of_family.filter_map(|finding| finding.change.as_mut()));
        }
        of_models.push(findings);
    }
    of_models
}

fn finding<'a>(frame: &Frame, flags: &ClaimsFlags, claim: &'static Claim, model: &'a str) -> Finding<'a> {
    let standard = frame.models.first().map_or("", String::as_str);
    let baseline = match claim.against {
        Against::Standard => Side { number: claim.number, model: standard, under: claim.under[1] },
        Against::Own(number) => Side { number, model, under: claim.under[1] },
    };
    let other = Side { number: claim.number, model, under: claim.under[0] };
    let [baseline, other] = [baseline, other].map(|side| side.records(frame, flags, claim));
    let why = reason(frame, claim, &baseline, &other);
    let bound = bound(claim, &baseline, &other);
    let (sides, change) = match claim.over {
        Over::EachDepth => least_gain(claim, baseline, other),
        _ => {
            let change = difference(claim, &baseline, &other);
            ([baseline, other], change)
        }
    };
    let [baseline, other] = sides.map(|records| Estimate::of(&records, claim.kind()));
    let is_given = claim.follows_from_start && frame.infos_of(model).any(|info| info.start.is_some());
    Finding { claim, model, baseline, other, change, is_primary: flags.is_primary(claim), is_given, bound, why }
}

/// Why a claim is not measurable, if it is not.
fn reason(frame: &Frame, claim: &Claim, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> String {
    if let Some(why) = frame.about.config.left_out(claim.series) {
        return why.to_owned();
    }
    match (baseline.is_empty(), other.is_empty(), claim.against) {
        (false, false, _) => String::new(),
        (_, true, Against::Own(_)) => "the model has one attention map".to_owned(),
        _ if claim.over == Over::Doublings => "one number of needles has no slope".to_owned(),
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
    /// The records of the claim's series, or what the claim makes of them.
    fn records<'a>(&self, frame: &'a Frame, flags: &ClaimsFlags, claim: &Claim) -> Vec<RecordRef<'a>> {
        let mentioned = if claim.over == Over::EachDepth { &[Column::DepthReqPct][..] } else { &[] };
        let mut records = frame.records.of_number(self.number, &[of_model(self.model), self.under], mentioned);
        records.retain(|record| is_of_series(claim, flags, record.identity));
        match claim.over {
            Over::Prompts | Over::EachDepth => records,
            Over::Doublings => slopes(records),
            Over::AbsentLessPresent => absent_less_present(&records),
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

/// Parts of the slope of a number over the doublings of the needles, of which it is the mean: each number times the distance of its
/// needles from their mean, over their variance.
fn slopes(records: Vec<RecordRef<'_>>) -> Vec<RecordRef<'_>> {
    let doublings = |record: &RecordRef<'_>| record.identity.needles.map_or(0.0, |needles| (needles as f64).log2());
    let n = records.len() as f64;
    let middle = records.iter().map(doublings).sum::<f64>() / n;
    let variance = records.iter().map(|record| (doublings(record) - middle).powi(2)).sum::<f64>() / n;
    if variance == 0.0 {
        return Vec::new(); // one number of needles has no slope
    }
    let part = |record: RecordRef<'_>| (doublings(&record) - middle) / variance * record.value;
    records.into_iter().map(|record| RecordRef { value: part(record), ..record }).collect()
}

/// The numbers of questions about names that the text does not hold, each less that of its twin, whose name the text holds.
fn absent_less_present<'a>(records: &[RecordRef<'a>]) -> Vec<RecordRef<'a>> {
    let is_absent = |record: &&RecordRef<'_>| record.identity.cities.as_deref() == Some(ABSENT);
    let twin = |record: &RecordRef<'a>| (record.identity.replicate, record.identity.seed, record.identity.query);
    let present: BTreeMap<_, f64> =
        records.iter().filter(|record| !is_absent(record)).map(|record| (twin(record), record.value)).collect();
    let absent = records.iter().filter(is_absent);
    absent
        .filter_map(|record| Some(RecordRef { value: record.value - present.get(&twin(record))?, ..*record }))
        .collect()
}

/// The names that a text does not hold, as the column of them says it.
const ABSENT: &str = "absent";

/// Why no outcome could decide a claim about hits, where it is so: the standard model misses too few, or hits too few, for McNemar's
/// test; or both models always do the same.
fn bound(claim: &Claim, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> Option<ClaimVerdict> {
    let hits = |records: &[RecordRef<'_>]| records.iter().filter(|record| record.value == 1.0).count();
    let is_rare = |n: usize| n < LEAST_DISCORDANT;
    if baseline.is_empty() || other.is_empty() || claim.number.metric.kind != Kind::Hit {
        return None;
    }
    let of_baseline = hits(baseline);
    match (claim.over, claim.better) {
        (Over::AbsentLessPresent, _) => {
            let never_differs = baseline.iter().chain(other).all(|record| record.value == 0.0);
            never_differs.then_some(ClaimVerdict::AtCeiling)
        }
        (Over::EachDepth | Over::Doublings, _) => None,
        (_, Better::NoLowerThan(_)) => {
            let has_something = of_baseline as f64 >= LEAST_TO_LOSE * baseline.len() as f64;
            (!has_something).then_some(ClaimVerdict::AtFloor)
        }
        (_, Better::Higher) if is_rare(baseline.len() - of_baseline) => Some(ClaimVerdict::AtCeiling),
        (_, Better::Higher) if of_baseline + hits(other) == 0 => Some(ClaimVerdict::AtFloor),
        (_, Better::Lower) if is_rare(of_baseline) => Some(ClaimVerdict::AtFloor),
        _ => None,
    }
}

fn difference(claim: &Claim, baseline: &[RecordRef<'_>], other: &[RecordRef<'_>]) -> Option<Difference> {
    let mut free = SIDES.to_vec();
    if claim.against != Against::Standard {
        free.extend([Column::Metric, Column::Region]);
    }
    let change = Difference::of_sides([baseline.to_vec(), other.to_vec()], &free, claim.kind());
    change.map(|change| against_margin(claim, change))
}

/// The depth with the least gain: the records of both sides there, and their difference. Its p-value is that of no loss beyond the
/// margin at any depth, the largest of all depths; or, if one loses more, that of it, corrected for the number of depths (Bonferroni).
fn least_gain<'a>(
    claim: &Claim,
    baseline: Vec<RecordRef<'a>>,
    other: Vec<RecordRef<'a>>,
) -> ([Vec<RecordRef<'a>>; 2], Option<Difference>) {
    let depths: BTreeSet<_> = other.iter().filter_map(|record| record.value(Column::DepthReqPct)).collect();
    let mut of_depths = Vec::new();
    for &depth in &depths {
        let at_depth = |records: &[RecordRef<'a>]| -> Vec<RecordRef<'a>> {
            records.iter().copied().filter(|record| record.value(Column::DepthReqPct) == Some(depth)).collect()
        };
        let sides = [at_depth(&baseline), at_depth(&other)];
        let change = difference(claim, &sides[0], &sides[1]);
        of_depths.extend(change.map(|change| (sides, change)));
    }
    let largest_p = of_depths.iter().map(|(_, change)| change.p.unwrap_or(1.0)).fold(0.0, f64::max);
    let Some((sides, change)) = of_depths.into_iter().min_by(|a, b| a.1.diff.total_cmp(&b.1.diff)) else {
        return ([baseline, other], None);
    };
    let margin = if let Better::NoLowerThan(margin) = claim.better { margin } else { 0.0 };
    let p = if change.diff >= -margin { Some(largest_p) } else { change.p.map(|p| (p * depths.len() as f64).min(1.0)) };
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
    use super::*;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::{About, RunConfig};
    use names::metric::{Metric, ACCURACY, MAP_COSINE, MAP_COSINE_STRANGERS, NLL, NOISE_REGION, SAID_NUMBER};
    use names::ModelInfo;
    use std::sync::Arc;

    /// A record of a model on a prompt.
    fn record(model: &str, seed: u64, metric: &Metric, value: f64, identity: Identity) -> Record {
        let identity = Identity {
            model: model.to_owned(),
            task: "needle".into(),
            seed: Some(seed),
            placed: Some(true),
            query: Some(0),
            cities: identity.cities.clone().or(Some("train".into())),
            ..identity
        };
        let measure = Measurement { metric: metric.name.into(), value: Some(value), ..Measurement::default() };
        Record { identity: Arc::new(identity), measure }
    }

    fn counts(needles: usize, retrieve: usize) -> Identity {
        Identity { needles: Some(needles), retrieve: Some(retrieve), ..Identity::default() }
    }

    /// The verdict on the claim of a label, at six needles.
    fn verdict(label: &str, records: &[Record]) -> ClaimVerdict {
        let claim = CLAIMS.iter().find(|claim| claim.label == label).unwrap();
        let flags = ClaimsFlags { needles: Some(6), ctx: Some(512.into()), ..ClaimsFlags::default() };
        let frame = Frame::new(About::default(), records);
        let mut finding = finding(&frame, &flags, claim, "diff");
        correct_among(1, finding.change.as_mut());
        finding.verdict()
    }

    /// Sixteen prompts at each depth, of which the differential model loses all where it loses.
    fn of_depths(loses: &[bool]) -> Vec<Record> {
        let mut records = Vec::new();
        for (depth, &loses) in loses.iter().enumerate() {
            for (model, hits) in [("standard", true), ("diff", !loses)] {
                for seed in 0..200 {
                    let identity = Identity { depth_req_pct: Some(25.0 * depth as f64), ..counts(6, 1) };
                    records.push(record(
                        model,
                        1000 * depth as u64 + seed,
                        &ACCURACY,
                        f64::from(u8::from(hits)),
                        identity,
                    ));
                }
            }
        }
        records
    }

    #[test]
    fn no_depth_loses_only_if_none_does() {
        assert_eq!(verdict("no depth loses", &of_depths(&[false; 5])), ClaimVerdict::Supported);
        assert_eq!(
            verdict("no depth loses", &of_depths(&[false, false, true, false, false])),
            ClaimVerdict::Contradicted
        );
    }

    /// Answers of both models to forty prompts: the standard one answers the first `standard`, the other the first `diff`.
    fn of_answers(standard: u64, diff: u64) -> Vec<Record> {
        let answered = |model: &str, hits: u64| -> Vec<Record> {
            let value = |seed| f64::from(u8::from(seed < hits));
            (0..40).map(|seed| record(model, seed, &ACCURACY, value(seed), counts(6, 2))).collect()
        };
        [answered("standard", standard), answered("diff", diff)].concat()
    }

    #[test]
    fn what_no_outcome_could_decide_is_at_the_ceiling_or_at_the_floor() {
        for (answers, expected) in [
            ([20, 38], ClaimVerdict::Supported),
            ([38, 20], ClaimVerdict::Contradicted),
            ([20, 22], ClaimVerdict::Undecided),
            ([36, 40], ClaimVerdict::AtCeiling),
            ([0, 0], ClaimVerdict::AtFloor),
        ] {
            assert_eq!(verdict("more answers", &of_answers(answers[0], answers[1])), expected, "{answers:?}");
        }
    }

    #[test]
    fn claims_read_the_records_of_their_own_series() {
        // The loss of needle prompts, and of windows of text, of which only the second is meant.
        let mut records = Vec::new();
        for seed in 0..20 {
            let noise = 0.001 * (seed % 5) as f64;
            for (model, of_needles, of_text) in [("standard", 1.0, 1.0), ("diff", 0.1 + noise, 1.2 + noise)] {
                records.push(record(model, seed, &NLL, of_needles, counts(6, 4)));
                records.push(record(model, seed, &NLL, of_text, Identity::default()));
            }
        }
        assert_eq!(verdict("loss on text", &records), ClaimVerdict::Contradicted);
    }

    #[test]
    fn a_model_that_never_says_a_number_invents_no_fewer() {
        let said = |model: &str, present: f64, absent: f64| -> Vec<Record> {
            let of = |cities: &'static str, value: f64| {
                let identity = || Identity { cities: Some(cities.into()), ..counts(5, 1) };
                (0..30).map(move |seed| record(model, seed, &SAID_NUMBER, value, identity())).collect::<Vec<_>>()
            };
            [of("train", present), of("absent", absent)].concat()
        };
        let silent = [said("standard", 1.0, 1.0), said("diff", 0.0, 0.0)].concat();
        assert_eq!(verdict("invents fewer", &silent), ClaimVerdict::AtCeiling);
        let mut declines = said("standard", 1.0, 1.0);
        declines.extend(said("diff", 1.0, 0.0).into_iter().enumerate().map(|(at, record)| match at {
            30 => Record { measure: Measurement { value: Some(1.0), ..record.measure }, ..record },
            _ => record,
        }));
        assert_eq!(verdict("invents fewer", &declines), ClaimVerdict::Supported);
    }

    /// The flags of six needles, which name some claims as those to measure, and some as primary.
    fn six_needles(only: &[&str], primary: &[&str]) -> ClaimsFlags {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        ClaimsFlags { needles: Some(6), only: ids(only), primary: ids(primary), ..ClaimsFlags::default() }
    }

    fn frame_of(flags: &ClaimsFlags, models: Vec<ModelInfo>, records: &[Record]) -> Frame {
        let config = RunConfig::of(&serde_json::json!({ "own": flags })).unwrap();
        Frame::new(About { config, models, ..About::default() }, records)
    }

    #[test]
    fn verdicts_do_not_depend_on_which_claims_are_asked_for() {
        let records = of_answers(20, 30);
        for primary in [&["T2"][..], &["F3"]] {
            let of = |only: &[&str]| {
                let frame = frame_of(&six_needles(only, primary), Vec::new(), &records);
                findings(&frame)[0].iter().find(|finding| finding.claim.label == "more answers").unwrap().change.clone()
            };
            assert!(of(&[]).unwrap().p_adjusted.is_some());
            assert_eq!(of(&[]), of(&["T2"]), "{primary:?}");
        }
    }

    #[test]
    fn primary_claims_are_corrected_among_themselves_and_the_others_among_all() {
        let records = of_answers(20, 30);
        let of = |primary: &[&str]| {
            let frame = frame_of(&six_needles(&["T2"], primary), Vec::new(), &records);
            let found = findings(&frame).remove(0);
            let finding = found.iter().find(|finding| finding.claim.label == "more answers").unwrap();
            let change = finding.change.as_ref().unwrap();
            (finding.is_primary, (change.p_adjusted.unwrap() / change.p.unwrap()).round() as usize)
        };
        assert_eq!(of(&["T2"]), (true, 1));
        assert_eq!(of(&["T2", "T3", "F3"]), (true, 3));
        assert_eq!(of(&["T3", "F3"]), (false, CLAIMS.len()));
    }

    #[test]
    fn of_two_maps_that_began_as_one_function_their_agreement_is_no_finding() {
        let maps = |seed: u64| {
            let of = |metric: &Metric, value: f64| {
                let mut record = record("diff", seed, metric, value, counts(3, 3));
                record.measure.region = Some(NOISE_REGION.into());
                record
            };
            [of(&MAP_COSINE, 0.9 + 0.001 * seed as f64), of(&MAP_COSINE_STRANGERS, 0.2)]
        };
        let mut records: Vec<Record> = (0..20).flat_map(maps).collect();
        records.extend(of_answers(20, 30));
        let verdicts = |start: Option<&str>| {
            let info = |name: &str, start: Option<&str>| ModelInfo {
                name: name.into(),
                start: start.map(Into::into),
                ..ModelInfo::default()
            };
            let models = vec![info("standard", start), info("diff", start)];
            let frame = frame_of(&six_needles(&["T2", "P"], &["T2"]), models, &records);
            let found = findings(&frame).remove(0);
            let of = |label: &str| found.iter().find(|finding| finding.claim.label == label).unwrap().verdict();
            [of("more answers"), of("agree on noise")]
        };
        assert_eq!(verdicts(None), [ClaimVerdict::Supported; 2]);
        assert_eq!(verdicts(Some("transformer")), [ClaimVerdict::Supported, ClaimVerdict::ByConstruction]);
    }
}
