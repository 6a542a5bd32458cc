//! What `difftool claims` prints: the claims with a column for each model, all numbers of each, and a chapter of a page for each.

use super::super::hidden::nats;
use super::judge::{asked, findings, flags, ClaimVerdict, Finding};
use super::list::{needles, Against, Claim, Over, TASK};
use super::series::alone;
use crate::base::names::distinct;
use crate::results::manifest::ModelInfo;
use crate::results::metric::{Kind, HIDDEN_LOG_PROB, NOISE_REGION};
use crate::results::run_table::RunTable;
use crate::results::screen::{Chapter, Screen, ScreenTable};
use crate::results::table::{basis, fixed, numbers, plural, words, Cell, Table, TableRows};
use crate::results::{of_model, under, Frame};
use std::collections::BTreeSet;

/// What `difftool claims` prints.
pub(super) fn screen(frame: &Frame) -> Screen {
    let Some((standard, others)) = frame.models.split_first() else { return Screen::default() };
    let names: Vec<String> = others.iter().map(|model| frame.short_name(model)).collect();
    let title = format!("The paper's claims, {} against {}", names.join(", "), frame.short_name(standard));
    let of_models: Vec<Vec<Finding>> = others.iter().map(|model| findings(frame, model)).collect();
    let table = side_by_side(standard, others, &of_models);
    let mut notes = in_short(&names, &of_models);
    notes.extend(note_on_noise(frame));
    notes.extend(note_on_pair(frame));
    Screen {
        tables: vec![ScreenTable { title, shared: shared(frame), table }],
        notes,
        chapters: chapters(frame),
        ..Screen::default()
    }
}

/// What all claims share: lengths, and training seeds.
fn shared(frame: &Frame) -> Vec<String> {
    let lengths: BTreeSet<usize> = frame.settings.iter().map(|setting| setting.ctx_tok).collect();
    let seeds: BTreeSet<u64> = frame.records.identities().filter_map(|identity| identity.replicate).collect();
    let lengths = lengths.into_iter().map(|length| plural(length, "token"));
    lengths.chain((!seeds.is_empty()).then(|| plural(seeds.len(), "seed"))).collect()
}

/// `T2  more answers of 6 needles`; the second of two numbers of a claim has no name of its own.
fn label(claim: &Claim) -> String {
    let id = if claim.label.starts_with(' ') { "" } else { claim.id };
    format!("{id:<2} {}", claim.label)
}

/// The level of the standard model, without its interval; none where the model is compared with itself.
fn level(finding: &Finding) -> Cell {
    if finding.claim.against != Against::Standard {
        return Cell::none();
    }
    Cell { aside: String::new(), ..Cell::estimate(finding.kind(), finding.baseline) }
}

/// The same where several models stand side by side: the depth with the least gain is another in each.
fn shared_level(finding: &Finding) -> Cell {
    match finding.claim.over {
        Over::EachDepth => Cell::none(),
        _ => level(finding),
    }
}

/// The change with its interval.
fn change(finding: &Finding) -> Cell {
    Cell::difference(finding.kind(), &finding.change)
}

/// Most models beside which there is room for the paper's numbers.
const WITH_PAPER: usize = 2;

/// The claims with a column for each model: levels of the standard one, and the change of each with its verdict.
fn side_by_side(standard: &str, models: &[String], of_models: &[Vec<Finding>]) -> Table {
    let places: Vec<usize> = (0..of_models.first().map_or(0, Vec::len)).collect();
    let level = if models.len() > 1 { shared_level } else { level };
    let mut table = TableRows::of(&places)
        .column(words("claim").key(), |&at| Cell::words(label(of_models[0][at].claim)))
        .column_if(models.len() <= WITH_PAPER, words("paper"), |&at| Cell::words(of_models[0][at].claim.paper_words))
        .column(numbers(standard), |&at| level(&of_models[0][at]));
    for (model, findings) in models.iter().zip(of_models) {
        table = table
            .column(numbers(model), |&at| change(&findings[at]))
            .column(words(""), |&at| Cell::words(findings[at].verdict().short()));
    }
    table.table("claims", "", "")
}

/// The numbers of verdicts on each model, and why claims are not measurable.
fn in_short(names: &[String], of_models: &[Vec<Finding>]) -> Vec<String> {
    let mut counts = Vec::new();
    let mut reasons = Vec::new();
    for (name, findings) in names.iter().zip(of_models) {
        let count = |verdict| findings.iter().filter(|finding| finding.verdict() == verdict).count();
        let of_model = ClaimVerdict::DECIDED_OR_OPEN.map(|verdict| count(verdict).to_string());
        counts.push(format!("{name} {}", of_model.join(", ")));
        for finding in findings.iter().filter(|finding| finding.change.is_none()) {
            reasons.push(format!("{name}, {}: not measurable, {}.", finding.claim.id, finding.why));
        }
    }
    let mut notes = vec![format!("Yes (supported), no (contradicted), open: {}.", counts.join("; "))];
    notes.extend(distinct(reasons.into_iter()));
    notes
}

/// What noise costs each model, where answers of six needles are measured.
fn note_on_noise(frame: &Frame) -> Option<String> {
    let mut costs = Vec::new();
    for model in &frame.models {
        let only = [TASK, needles(6), of_model(model), under(None)];
        let cost = frame.estimate(HIDDEN_LOG_PROB.of(NOISE_REGION), &only)?;
        costs.push(format!("{} {}", frame.short_name(model), nats(cost.value)));
    }
    (!costs.is_empty()).then(|| format!("Noise hidden, nats of an answer: {}.", costs.join(", ")))
}

/// Largest difference of sizes of a pair, as a fraction of the standard model's.
const SIZES: f64 = 0.1;

/// What makes models no pair, as far as it can be seen, and what cannot.
fn note_on_pair(frame: &Frame) -> Option<String> {
    let (standard, others) = frame.about.models.split_first()?;
    let name = |model: &ModelInfo| frame.short_name(&model.name);
    let mut notes = Vec::new();
    for other in others {
        let ratio = other.parameters as f64 / standard.parameters as f64;
        if (ratio - 1.0).abs() > SIZES {
            notes.push(format!("{} has {} times the parameters of {}.", name(other), fixed(ratio, 2), name(standard)));
        }
        if other.tokenizer_sha256 != standard.tokenizer_sha256 {
            notes.push(format!("{} and {} have different tokenizers.", name(other), name(standard)));
        }
    }
    if !notes.is_empty() {
        notes.insert(0, "No pair:".to_owned());
    }
    if frame.about.models.iter().any(|model| model.path.is_some()) {
        notes.push("What they were trained on is not known here.".to_owned());
    }
    (!notes.is_empty()).then(|| notes.join(" "))
}

pub(super) const CLAIMS_TABLE: RunTable = RunTable::made("claims", "Claims", all_numbers);

/// Returns `true` if the run is one of `difftool claims`; others have some of its numbers.
fn is_of_claims(frame: &Frame) -> bool {
    frame.own("flags").is_some()
}

/// A finding and the model that it is about.
struct OfModel<'a> {
    model: &'a str,
    finding: Finding,
}

fn of_all_models(frame: &Frame) -> Vec<OfModel<'_>> {
    let mut all = Vec::new();
    for model in frame.models.iter().skip(1) {
        all.extend(findings(frame, model).into_iter().map(|finding| OfModel { model, finding }));
    }
    all
}

/// All numbers of all claims.
fn all_numbers(frame: &Frame) -> Option<Table> {
    if !is_of_claims(frame) {
        return None;
    }
    let all = of_all_models(frame);
    let paper_number = |of: &OfModel<'_>, at: usize| {
        let x = of.finding.claim.paper.map(|numbers| numbers[at]);
        Cell::value(if of.finding.claim.paper_words.contains('%') { Kind::Share } else { Kind::Number }, x, None)
    };
    TableRows::of(&all)
        .column(words("id").key(), |of| Cell::words(of.finding.claim.id))
        .column(words("claim").key(), |of| Cell::words(of.finding.claim.label.trim_start()))
        .column(words("model").key(), |of| Cell::words(of.model))
        .column(numbers("paper, standard").named("paper_standard"), |of| paper_number(of, 0))
        .column(numbers("paper, diff").named("paper_differential"), |of| paper_number(of, 1))
        .column(words("metric"), |of| {
            let number = of.finding.claim.number;
            Cell::words(number.metric.name_of(number.region))
        })
        .column(basis("prompts").named("n"), |of| Cell::optional(of.finding.change.as_ref().map(|change| change.n)))
        .column(numbers("baseline").with_interval(), |of| Cell::estimate(of.finding.kind(), of.finding.baseline))
        .column(numbers("other").with_interval(), |of| Cell::estimate(of.finding.kind(), of.finding.other))
        .column(numbers("change").with_interval(), |of| change(&of.finding))
        .column(numbers("p"), |of| p_value(of.finding.change.as_ref().and_then(|change| change.p)))
        .column(numbers("p (holm)").named("p_adjusted"), |of| {
            p_value(of.finding.change.as_ref().and_then(|change| change.p_adjusted))
        })
        .column(words("verdict"), |of| Cell::words(of.finding.verdict().words()))
        .column(words("why not"), |of| Cell::optional_words(Some(&of.finding.why).filter(|why| !why.is_empty())))
        .noted("Changes from the first model on the same prompts [95 %]. Verdict: p < 0.05, corrected for all claims of a model (Holm).")
        .with_rows()
}

fn p_value(p: Option<f64>) -> Cell {
    Cell::number(p, |p| format!("{p:.3}"))
}

pub(super) const READINGS: RunTable =
    RunTable::made("readings", "What the claims say, and how they are read", readings);

/// The words of all claims, and the command that measures each by itself.
fn readings(frame: &Frame) -> Option<Table> {
    let claims: Vec<&Claim> = asked(frame).filter(|_| is_of_claims(frame)).collect();
    TableRows::of(&claims)
        .column(words("claim").key(), |claim| Cell::words(label(claim)))
        .column(words("says"), |claim| Cell::words(claim.says))
        .column(words("reading"), |claim| Cell::words(claim.reading))
        .column(words("not said").named("unsaid"), |claim| Cell::words(claim.unsaid))
        .column(words("by itself").named("command"), |claim| Cell::words(command(frame, claim)))
        .noted("")
        .with_rows()
}

/// The command line that measures a claim by itself.
fn command(frame: &Frame, claim: &Claim) -> String {
    let models: Vec<String> = frame.about.models.iter().map(|model| model.name.clone()).collect();
    alone(claim, &flags(frame), &models)
}

/// A chapter of a page for each claim, with each figure once.
fn chapters(frame: &Frame) -> Vec<Chapter> {
    let all = of_all_models(frame);
    let mut chapters: Vec<Chapter> = Vec::new();
    let mut label = "";
    for claim in asked(frame) {
        let title = match claim.label.strip_prefix("  ") {
            Some(reading) => format!("{}: {label}, {reading}", claim.id),
            None => format!("{}: {}", claim.id, claim.label),
        };
        label = if claim.label.starts_with(' ') { label } else { claim.label };
        let mut paragraphs = vec![claim.says.to_owned(), format!("Here: {}", claim.reading)];
        let of_claim = all.iter().filter(|of| std::ptr::eq(of.finding.claim, claim));
        paragraphs.extend(of_claim.map(|of| sentence(frame, of)));
        paragraphs.push(format!("The verdict does not say: {}", claim.unsaid));
        let figure = if claim.figure.is_empty() { claim.series } else { claim.figure };
        let is_drawn = chapters.iter().any(|chapter| chapter.figure == Some(figure));
        let figure = Some(figure).filter(|_| !is_drawn);
        chapters.push(Chapter { title, paragraphs, command: command(frame, claim), figure });
    }
    chapters
}

/// What was found of a claim in a model: `diff: supported; accuracy % from 34 to 59, change +25 [+10, +38].`
fn sentence(frame: &Frame, of: &OfModel<'_>) -> String {
    let OfModel { model, finding } = of;
    let name = frame.short_name(model);
    let verdict = finding.verdict().words();
    if finding.change.is_none() {
        return format!("{name}: {verdict}, {}.", finding.why);
    }
    let levels = [finding.baseline, finding.other].map(|level| Cell::estimate(finding.kind(), level).text);
    let what = finding.claim.number.heading();
    format!("{name}: {verdict}; {what} from {} to {}, change {}.", levels[0], levels[1], change(finding).line())
}
