//! Tables of `difftool claims`: its screen, all numbers of each claim, their readings, and chapters of pages.

use super::judge::{findings, flags, ClaimVerdict, Finding};
use super::list::{Against, Claim, Over};
use super::series::alone;
use super::CLAIMS_COMMAND;
use crate::results::differences::p_value;
use crate::results::run_table::RunTable;
use crate::results::screen::{Chapter, Screen, ScreenTable};
use crate::results::table::{basis, fixed, numbers, plural, words, Cell, Table, TableRows};
use crate::results::Frame;
use names::metric::Kind;
use names::{distinct, joined};
use std::collections::BTreeSet;

/// What `difftool claims` prints.
pub(super) fn screen(frame: &Frame) -> Screen {
    let Some((standard, others)) = frame.models.split_first() else { return Screen::default() };
    let names: Vec<String> = others.iter().map(|model| frame.short_name(model)).collect();
    let of_models = findings(frame);
    let table = side_by_side(standard, others, &of_models);
    let mut notes = in_short(frame, &names, &of_models);
    notes.extend(note_on_seeds(frame));
    let on_models: Vec<String> = about_what(frame).into_iter().chain(note_on_pair(frame)).collect();
    notes.extend((!on_models.is_empty()).then(|| on_models.join(" ")));
    Screen {
        tables: vec![ScreenTable { title: "The paper's claims".to_owned(), shared: shared(frame, &of_models), table }],
        notes,
        chapters: chapters(frame, &of_models),
        ..Screen::default()
    }
}

/// Facts of all claims for the first line: tokens, needles, the accuracy of the standard model, training seeds.
fn shared(frame: &Frame, of_models: &[Vec<Finding<'_>>]) -> Vec<String> {
    let flags = flags(frame);
    let mut shared = vec![plural(flags.ctx_tok(), "token")];
    let answered = of_models.iter().flatten().find(|finding| finding.is_of_difficulty());
    if let Some(level) = answered.and_then(|finding| finding.baseline) {
        let haystack = if flags.difficulty().in_needles { " in needles" } else { "" };
        let needles = plural(flags.difficulty().needles, "needle");
        let standard = frame.models.first().map_or_else(String::new, |model| frame.short_name(model));
        shared.push(format!("{needles}{haystack}; {standard} answers {} %", fixed(100.0 * level.value, 0)));
    }
    let seeds = training_seeds(frame);
    shared.extend((!seeds.is_empty()).then(|| plural(seeds.len(), "seed")));
    shared
}

/// `T2 more answers`, and below it `     by |a|` for a second reading.
fn label(claim: &Claim) -> String {
    if claim.is_second {
        format!("     {}", claim.label)
    } else {
        format!("{:<2} {}", claim.id, claim.label)
    }
}

/// The level of the standard model, without its interval; none where the model is compared with itself.
fn level(finding: &Finding<'_>) -> Cell {
    if finding.claim.against != Against::Standard {
        return Cell::none();
    }
    Cell { aside: String::new(), ..Cell::estimate(finding.kind(), finding.baseline) }
}

/// The level beside several models, which do not share the depth with the least gain.
fn shared_level(finding: &Finding<'_>) -> Cell {
    match finding.claim.over {
        Over::EachDepth => Cell::none(),
        _ => level(finding),
    }
}

/// The change with its interval.
fn change(finding: &Finding<'_>) -> Cell {
    Cell::difference(finding.kind(), &finding.change)
}

/// Most models beside which there is room for the paper's numbers.
const WITH_PAPER: usize = 2;

/// The verdict in a short word, in capitals where the claim is primary.
pub(super) fn short_verdict(finding: &Finding<'_>) -> String {
    let verdict = finding.verdict().short();
    if finding.is_primary {
        verdict.to_uppercase()
    } else {
        verdict.to_owned()
    }
}

/// The claims with a column for each model: levels of the standard one, and the change of each with its verdict.
fn side_by_side(standard: &str, models: &[String], of_models: &[Vec<Finding<'_>>]) -> Table {
    let Some(first) = of_models.first() else { return Table::plain(Vec::new(), Vec::new()) };
    let places: Vec<usize> = (0..first.len()).filter(|&at| !first[at].claim.is_detail).collect();
    let level = if models.len() > 1 { shared_level } else { level };
    let mut table = TableRows::of(&places)
        .column(words("claim").key(), |&at| Cell::words(label(of_models[0][at].claim)))
        .column_if(models.len() <= WITH_PAPER, words("paper"), |&at| Cell::words(of_models[0][at].claim.paper_words))
        .column(numbers(standard), |&at| level(&of_models[0][at]));
    for (model, findings) in models.iter().zip(of_models) {
        table = table
            .column(numbers(model), |&at| change(&findings[at]))
            .column(words("").named("verdict"), |&at| Cell::words(short_verdict(&findings[at])));
    }
    table.table("claims", "", "")
}

/// The numbers of verdicts on the primary claims of each model, what they are of, and why claims are not measurable.
fn in_short(frame: &Frame, names: &[String], of_models: &[Vec<Finding<'_>>]) -> Vec<String> {
    let mut counts = Vec::new();
    let mut reasons = Vec::new();
    for (name, findings) in names.iter().zip(of_models) {
        counts.push(format!("{name} {}", counted(findings)));
        for finding in findings.iter().filter(|finding| finding.change.is_none()) {
            reasons.push(format!("{name}, {}: not measurable, {}.", finding.claim.id, finding.why));
        }
    }
    let primary = flags(frame).primary.join(", ");
    let counts = counts.join("; ");
    let mut notes = vec![format!("Yes, no, neither of {primary} (capitals): {counts}.")];
    let verdicts: Vec<ClaimVerdict> = of_models.iter().flatten().map(Finding::verdict).collect();
    if verdicts.contains(&ClaimVerdict::ByConstruction) {
        notes.push("given: it follows from how the model was made, from the function of another.".to_owned());
    }
    notes.extend(distinct(reasons.into_iter()));
    notes
}

/// How many primary claims are supported, how many contradicted, and how many neither: `1, 0, 2`.
fn counted(findings: &[Finding<'_>]) -> String {
    let primary: Vec<&Finding<'_>> = findings.iter().filter(|finding| finding.is_primary).collect();
    let count = |wanted| primary.iter().filter(|finding| finding.verdict() == wanted).count();
    let supported = count(ClaimVerdict::Supported);
    let contradicted = count(ClaimVerdict::Contradicted);
    format!("{supported}, {contradicted}, {}", primary.len() - supported - contradicted)
}

/// Fewest training seeds from which a verdict is on an architecture.
const SEEDS_OF_ARCHITECTURE: usize = 5;

/// A note on the scope of the verdicts, which is these weights below five training seeds.
fn about_what(frame: &Frame) -> Option<String> {
    match training_seeds(frame).len() {
        0 => Some("One training each.".to_owned()),
        n if n < SEEDS_OF_ARCHITECTURE => {
            Some(format!("{n} seeds: verdicts on these weights, on an architecture from {SEEDS_OF_ARCHITECTURE} on."))
        }
        _ => None,
    }
}

/// The training seeds of replicates.
fn training_seeds(frame: &Frame) -> BTreeSet<u64> {
    frame.records.identities().filter_map(|identity| identity.replicate).collect()
}

/// Training seeds without a partner, and with the same weights.
fn note_on_seeds(frame: &Frame) -> Option<String> {
    flags(frame).replicates?;
    let seeds = |model: &String| -> BTreeSet<u64> {
        let of_model = frame.records.identities().filter(|identity| identity.model == *model);
        of_model.filter_map(|identity| identity.replicate).collect()
    };
    let all: Vec<BTreeSet<u64>> = frame.models.iter().map(seeds).collect();
    let mut notes = Vec::new();
    for (model, seeds) in frame.models.iter().zip(&all) {
        let alone: Vec<usize> = seeds.difference(&all[0]).map(|seed| *seed as usize).collect();
        let missing: Vec<usize> = all[0].difference(seeds).map(|seed| *seed as usize).collect();
        let name = frame.short_name(model);
        for (list, words) in [(alone, "has seeds without a partner"), (missing, "lacks seeds")] {
            notes.extend((!list.is_empty()).then(|| format!("{name} {words}: {}.", joined(&list))));
        }
    }
    let mut weights = BTreeSet::new();
    let repeated = frame.about.models.iter().find(|model| !weights.insert(&model.weights_sha256));
    notes.extend(repeated.map(|model| format!("{} has the weights of another: they count twice.", model.name)));
    (!notes.is_empty()).then(|| notes.join(" "))
}

/// Largest difference of sizes of a pair, as a fraction of the standard model's.
const SIZES: f64 = 0.1;

/// Notes on models that are no pair (other sizes, other tokenizers) and on unknown training data. Of replicates, one stands for
/// its recipe.
fn note_on_pair(frame: &Frame) -> Option<String> {
    let (standard, others) = frame.models.split_first()?;
    let of_standard = frame.infos_of(standard).next()?;
    let standard = frame.short_name(standard);
    let mut notes = Vec::new();
    for other in others {
        let Some(info) = frame.infos_of(other).next() else { continue };
        let other = frame.short_name(other);
        let ratio = info.parameters as f64 / of_standard.parameters as f64;
        if (ratio - 1.0).abs() > SIZES {
            notes.push(format!("{other} has {} times the parameters of {standard}.", fixed(ratio, 2)));
        }
        if info.tokenizer_sha256 != of_standard.tokenizer_sha256 {
            notes.push(format!("{other} and {standard} have different tokenizers."));
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
    frame.about.config.command == CLAIMS_COMMAND.name
}

/// All numbers of all claims.
fn all_numbers(frame: &Frame) -> Option<Table> {
    if !is_of_claims(frame) {
        return None;
    }
    let all: Vec<Finding<'_>> = findings(frame).into_iter().flatten().collect();
    TableRows::of(&all)
        .column(words("id").key(), |finding| Cell::words(finding.claim.id))
        .column(words("claim").key(), |finding| Cell::words(finding.claim.label))
        .column(words("model").key(), |finding| Cell::words(finding.model))
        .column(numbers("paper, standard").named("paper_standard"), |finding| paper_number(finding, 0))
        .column(numbers("paper, diff").named("paper_differential"), |finding| paper_number(finding, 1))
        .column(words("metric"), |finding| {
            let number = finding.claim.number;
            Cell::words(number.metric.name_of(number.region))
        })
        .column(basis("prompt").named("n"), |finding| Cell::optional(finding.change.as_ref().map(|change| change.n)))
        .column(numbers("baseline").with_interval(), |finding| Cell::estimate(finding.kind(), finding.baseline))
        .column(numbers("other").with_interval(), |finding| Cell::estimate(finding.kind(), finding.other))
        .column(numbers("change").with_interval(), |finding| change(finding))
        .column(numbers("p"), |finding| Cell::number(finding.change.as_ref().and_then(|change| change.p), p_value))
        .column(numbers("p (holm)").named("p_adjusted"), |finding| {
            Cell::number(finding.change.as_ref().and_then(|change| change.p_adjusted), p_value)
        })
        .column(numbers("of interest"), |finding| Cell::value(finding.kind(), finding.interest(), None))
        .column(words("primary"), |finding| Cell::words(if finding.is_primary { "primary" } else { "exploratory" }))
        .column(words("verdict"), |finding| Cell::words(finding.verdict().words()))
        .column(words("would decide"), |finding| Cell::optional_words(finding.would_decide()))
        .column(words("why not"), |finding| Cell::optional_words(Some(&finding.why).filter(|why| !why.is_empty())))
        .noted("Changes from the first model on the same prompts [95 %]. Verdict: p < 0.05, corrected (Holm) for the primary claims, or for all there are, and a change that is of interest.")
        .with_rows()
}

/// A number of the paper, in percent where it is one.
fn paper_number(finding: &Finding<'_>, at: usize) -> Cell {
    let claim = finding.claim;
    let kind = if claim.number.metric.kind == Kind::Number { Kind::Number } else { Kind::Share };
    Cell::value(kind, claim.paper.map(|numbers| numbers[at]), None)
}

pub(super) const READINGS: RunTable = RunTable {
    note: "The paper's words, the number that stands for them here, what a verdict leaves open, and the command for it alone.",
    ..RunTable::made("readings", "How the claims are read", readings)
};

/// The words of all claims, and the command that measures each by itself.
fn readings(frame: &Frame) -> Option<Table> {
    let claims = if is_of_claims(frame) { flags(frame).claims() } else { Vec::new() };
    TableRows::of(&claims)
        .column(words("claim").key(), |claim| Cell::words(label(claim)))
        .column(words("says"), |claim| Cell::words(claim.says))
        .column(words("reading"), |claim| Cell::words(claim.reading))
        .column(words("not said").named("unsaid"), |claim| Cell::words(claim.unsaid))
        .column(words("by itself").named("command"), |claim| Cell::words(command(frame, claim)))
        .noted("")
        .with_rows()
}

/// The command line that measures a claim by itself, on the models that were measured.
fn command(frame: &Frame, claim: &Claim) -> String {
    let flags = flags(frame);
    let mut models = Vec::new();
    for model in &frame.about.models {
        let path = model.path.as_ref().unwrap_or(&model.name);
        models.push(flags.replicates.as_ref().map_or_else(|| path.clone(), |pattern| pattern.recipe(path)));
    }
    let line = alone(claim, &flags, &distinct(models.into_iter()));
    match &flags.replicates {
        Some(pattern) => format!("{line} --out RUN && difftool compare RUN --by model --replicates={pattern}"),
        None => line,
    }
}

/// A chapter of a page for each claim, with each figure once.
fn chapters(frame: &Frame, of_models: &[Vec<Finding<'_>>]) -> Vec<Chapter> {
    let mut chapters: Vec<Chapter> = Vec::new();
    for (at, claim) in flags(frame).claims().into_iter().enumerate() {
        let mut paragraphs = vec![claim.says.to_owned(), format!("Here: {}", claim.reading)];
        paragraphs.extend(of_models.iter().map(|findings| sentence(frame, &findings[at])));
        paragraphs.push(format!("The verdict does not say: {}", claim.unsaid));
        let figure = if claim.figure.is_empty() { claim.series } else { claim.figure };
        let is_drawn = chapters.iter().any(|chapter| chapter.figure == Some(figure));
        chapters.push(Chapter {
            title: claim.title(),
            paragraphs,
            command: command(frame, claim),
            figure: Some(figure).filter(|_| !is_drawn),
        });
    }
    chapters
}

/// A finding in a sentence: `diff: supported; accuracy % from 34 to 59, change +25 [+10, +38].`
fn sentence(frame: &Frame, finding: &Finding<'_>) -> String {
    let name = frame.short_name(finding.model);
    let verdict = finding.verdict().words();
    if finding.change.is_none() {
        return format!("{name}: {verdict}, {}.", finding.why);
    }
    let levels = [finding.baseline, finding.other].map(|level| Cell::estimate(finding.kind(), level).text);
    let what = finding.claim.number.heading();
    format!("{name}: {verdict}; {what} from {} to {}, change {}.", levels[0], levels[1], change(finding).line())
}
