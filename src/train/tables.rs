//! Tables of a training study: means and differences over training seeds.

use super::study::{BySeed, RunQuantity, Study, FIRST_DIGITS, INSIDE, ONE_NEEDLE, TIMES, TOKENS, TOKENS_UNTIL_LEARNED};
use crate::base::names::ShortNames;
use crate::results::print::{chosen_text, screen_text, Tables};
use crate::results::screen::{Screen, ScreenTable};
use crate::results::table::{basis, numbers, plural, words, Cell, ColumnRole, Table, TableRows};
use crate::results::{Estimate, Verdict};
use crate::stats::LEAST_SEEDS;

/// The next step after a summary.
const NEXT: &str = "difftool needle --model FOLDER, a trained model";

/// Longest name of a difference, in characters: one that a page of 80 has room for.
const LONGEST_NAME: usize = 44;

/// Columns of the summary that are shown by default.
const MAIN_COLUMNS: [&str; 6] = ["variant", "seeds", "learned", "learned_tok", "first_digit", "one_needle"];

/// The tables of studies: names and titles.
pub(crate) const TABLES: [(&str, &str); 3] =
    [("summary", "Training"), ("differences", "Differences"), ("inside", "Inside the layers")];

/// Formats the tables of a study that are asked for; its screen if none are.
pub(crate) fn text(study: &Study, wanted: Option<&Tables>) -> String {
    let names = ShortNames::default();
    match wanted {
        Some(wanted) => chosen_text(&tables(study), wanted, &names),
        None => screen_text(screen(study), &names),
    }
}

/// What `difftool train` prints: the summary, and the differences that are decided.
fn screen(study: &Study) -> Screen {
    let main = main_table(study);
    let mut notes = vec![main.note.clone()];
    let mut tables = vec![ScreenTable { title: "Training".to_owned(), shared: Vec::new(), table: main }];
    if let Some(mut differences) = differences(study) {
        let all = differences.rows.len();
        differences.rows.retain(|row| row.last().is_some_and(|verdict| verdict.text != Verdict::Undecided.name()));
        let undecided = all - differences.rows.len();
        notes.extend(
            (undecided > 0)
                .then(|| format!("Undecided: {undecided} of {} (--tables differences).", plural(all, "difference"))),
        );
        tables.extend(differences.with_rows().map(ScreenTable::below));
    }
    Screen { tables, notes, next: NEXT }
}

/// Returns every table of a study.
pub(crate) fn tables(study: &Study) -> Vec<Table> {
    [Some(summary(study)), differences(study), inside(study)].into_iter().flatten().collect()
}

/// Returns the table that answers the question of a study.
fn main_table(study: &Study) -> Table {
    let whole = summary(study);
    let mut table = whole.clone();
    table.keep_columns(|at| MAIN_COLUMNS.contains(&whole.columns[at].name.as_str()));
    table
}

/// Returns a row for each variant that has finished runs: the columns of `summary.csv`.
pub(crate) fn summary(study: &Study) -> Table {
    let variants = &study.spec.variants;
    let columns = vec![
        words("variant").key(),
        basis("seeds"),
        numbers("learned"),
        numbers("tokens").named("learned_tok"),
        numbers("earlier"),
        numbers("later"),
        numbers(FIRST_DIGITS.label().heading()).named("first_digit").with_interval(),
        numbers(format!("less {}", variants[0].name)).named("difference").with_interval(),
        numbers(ONE_NEEDLE.label().heading()).named("one_needle"),
    ];
    let rows: Vec<_> = (0..variants.len()).filter_map(|variant| summary_row(study, variant)).collect();
    let finished: usize = (0..variants.len()).map(|variant| study.at_end(variant, &TOKENS).len()).sum();
    let mut note = format!("{finished} of {} runs are finished. ", study.spec.runs().len());
    note += "Learned: seeds that reach 0.9 of first digits at the last context, after so many tokens (median).";
    if rows.iter().any(|row| row[1].exact.is_some_and(|seeds| seeds < LEAST_SEEDS as f64)) {
        note += " Fewer than three seeds have no interval.";
    }
    Table::new("summary", "Training", note, columns, rows)
}

/// Returns the row of a variant; `None` without finished runs.
fn summary_row(study: &Study, variant: usize) -> Option<Vec<Cell>> {
    let first_digits = study.at_end(variant, &FIRST_DIGITS);
    let mut times: Vec<f64> = study.at_end(variant, &TOKENS_UNTIL_LEARNED).into_values().collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).filter(|time| time.is_finite());
    // Never is later than any time. The difference of two seeds that never learn is NaN: neither.
    let delays = less_first(study, variant, &TOKENS_UNTIL_LEARNED);
    let change = Estimate::of_changes(&less_first(study, variant, &FIRST_DIGITS), FIRST_DIGITS.kind);
    let one_needle = Estimate::of_seeds(&study.at_end(variant, &ONE_NEEDLE), ONE_NEEDLE.kind);
    Some(vec![
        Cell::words(study.spec.variants[variant].name.clone()),
        Cell::count(first_digits.len()),
        Cell::count(times.iter().filter(|time| time.is_finite()).count()),
        Cell::optional(median.map(|&tokens| tokens as usize)),
        Cell::count(delays.values().filter(|&&delay| delay < 0.0).count()),
        Cell::count(delays.values().filter(|&&delay| delay > 0.0).count()),
        Cell::estimate(FIRST_DIGITS.kind, Estimate::of_seeds(&first_digits, FIRST_DIGITS.kind)?),
        Cell::change(FIRST_DIGITS.kind, change),
        Cell::value(ONE_NEEDLE.kind, one_needle.map(|mean| mean.value), None),
    ])
}

/// Returns a variant's numbers less those of the first, of which there are none for the first itself.
fn less_first(study: &Study, variant: usize, quantity: &RunQuantity) -> BySeed {
    match variant {
        0 => BySeed::new(),
        _ => differences_by_seed(&study.at_end(0, quantity), &study.at_end(variant, quantity)),
    }
}

/// Returns other less baseline, of the seeds that both have.
fn differences_by_seed(baseline: &BySeed, other: &BySeed) -> BySeed {
    baseline.iter().filter_map(|(seed, a)| Some((*seed, other.get(seed)? - a))).collect()
}

/// Returns the differences at the end: the contrasts of the spec, and every variant less the first. Those that are
/// decided come first.
fn differences(study: &Study) -> Option<Table> {
    let variants = &study.spec.variants;
    let mut changes = Vec::new();
    for quantity in &[FIRST_DIGITS, ONE_NEEDLE] {
        let contrasts =
            study.spec.contrasts.iter().map(|contrast| (contrast.name.clone(), study.contrast(contrast, quantity)));
        let to_first = (1..variants.len()).map(|variant| {
            let name = format!("{} - {}", variants[variant].name, variants[0].name);
            (name, [0, variant].map(|variant| study.at_end(variant, quantity)))
        });
        for (name, [baseline, other]) in contrasts.chain(to_first) {
            let change = Estimate::of_changes(&differences_by_seed(&baseline, &other), quantity.kind);
            changes.extend(change.map(|change| (shortened(&name), quantity, change)));
        }
    }
    let estimates: Vec<Estimate> = changes.iter().map(|(.., change)| *change).collect();
    let mut rows: Vec<_> = changes.into_iter().zip(Verdict::of_table(&estimates)).collect();
    rows.sort_by_key(|(_, verdict)| *verdict == Verdict::Undecided);
    let note = format!("At the end of training, seed by seed [95 %]. Decided ones first. {}", Verdict::RULE);
    TableRows::of(&rows)
        .column(words("difference").key(), |((name, ..), _)| Cell::words(name))
        .column(words("metric").with(ColumnRole::Part), |((_, quantity, _), _)| {
            Cell::words(quantity.label().difference_heading())
        })
        .column(basis("seeds"), |((.., change), _)| Cell::count(change.prompts))
        .column(numbers("change [95 %]").named("diff"), |((_, quantity, change), _)| {
            Cell::change(quantity.kind, *change)
        })
        .column(words("verdict"), |(_, verdict)| Cell::words(verdict.name()))
        .table("differences", "Differences", note)
        .trimmed()
}

/// Returns the measurements inside the layers at several times.
fn inside(study: &Study) -> Option<Table> {
    let mut columns = vec![words("variant").key(), numbers("tokens").key(), basis("seeds")];
    columns.extend([FIRST_DIGITS].iter().chain(&INSIDE).map(|quantity| numbers(quantity.label().heading())));
    let mut rows = Vec::new();
    for (index, variant) in study.spec.variants.iter().enumerate() {
        for time in TIMES {
            let tokens = study.at(index, time, &TOKENS);
            let Some(&at) = tokens.values().next() else { continue };
            let mut row = vec![Cell::words(variant.name.clone()), Cell::count(at as usize)];
            row.push(Cell::count(tokens.len()));
            let quantities = [FIRST_DIGITS].into_iter().chain(INSIDE);
            row.extend(quantities.map(|quantity| mean_cell(&quantity, &study.at(index, time, &quantity))));
            rows.push(row);
        }
    }
    let note = "Means over the seeds that have got there [95 %].".to_owned();
    Some(Table::new("inside", "Inside the layers", note, columns, rows).trimmed()?.details())
}

/// The mean over seeds with its interval; a dash without seeds.
fn mean_cell(quantity: &RunQuantity, numbers: &BySeed) -> Cell {
    Cell::estimate(quantity.kind, Estimate::of_seeds(numbers, quantity.kind))
}

/// Cuts a name to [`LONGEST_NAME`].
fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Contrast, CurveRow, TrainRun, TrainSpec, TrainingCurves};

    /// A study of two variants and three seeds. Each run has a line at a tenth of its tokens and one at the end,
    /// with these first digits; those of the second variant are `gain` higher.
    fn study(file: &str, gain: f64) -> Study {
        let mut spec = TrainSpec::parse(file, "study").unwrap();
        spec.variants.truncate(2);
        let [less, of] = [0, 1].map(|variant| vec![spec.variants[variant].name.clone()]);
        spec.contrasts = vec![Contrast { name: "a question of the spec with a name that is long".into(), of, less }];
        let end = spec.total_tokens();
        let mut runs = Vec::new();
        for (variant, seed) in [0, 1].into_iter().flat_map(|variant| (1..=3).map(move |seed| (variant, seed))) {
            let line = |&(tokens, digit1_hit): &(usize, f64)| CurveRow {
                tokens,
                ctx_tok: 256,
                digit1_hit,
                context_rms: Some(0.5),
                ..CurveRow::default()
            };
            // The differences of seeds are 0.01 apart.
            let digits = 0.4 + 0.1 * seed as f64 + variant as f64 * (gain + 0.01 * seed as f64);
            let name = format!("{variant}/seed-{seed}");
            runs.push((TrainRun { name, variant, seed }, [(end / 10, 0.1), (end, digits)].iter().map(line).collect()));
        }
        Study { spec, curves: TrainingCurves::of_runs(runs) }
    }

    fn lines(table: &Table) -> Vec<Vec<String>> {
        table.rows.iter().map(|row| row.iter().map(Cell::line).collect()).collect()
    }

    const FILE: &str = include_str!("../../experiments/study-f-0.3m.toml");

    #[test]
    fn the_summary_has_a_row_for_each_variant_and_its_difference_from_the_first_seed_by_seed() {
        let study = study(FILE, 0.2);
        let found = lines(&summary(&study));
        assert_eq!(found[0], ["transformer", "3", "0", "-", "0", "0", "60 [35, 85]", "-", "-"]);
        // Seed 3 is above 0.9 of first digits. Seeds differ by much, their differences hardly.
        assert_eq!(found[1], ["diff", "3", "1", "-", "1", "0", "82 [55, 100]", "+22 [+20, +24]", "-"]);
        let main: Vec<String> = main_table(&study).columns.into_iter().map(|column| column.heading).collect();
        assert_eq!(main, ["variant", "seeds", "learned", "tokens", "first digits %", "one needle %"]);
    }

    #[test]
    fn contrasts_and_differences_from_the_first_variant_have_a_verdict() {
        let found = lines(&differences(&study(FILE, 0.2)).unwrap());
        let row =
            |name: &str| [name, "first digits points", "3", "+22 [+20, +24]", "higher"].map(str::to_owned).to_vec();
        assert_eq!(found, [row("a question of the spec with a name that is …"), row("diff - transformer")]);
        assert_eq!(lines(&differences(&study(FILE, -0.02)).unwrap())[0][4], "undecided");
    }

    #[test]
    fn the_inside_is_shown_once_for_each_time_that_runs_got_to() {
        let found = inside(&study(FILE, 0.2)).unwrap();
        // The end is the first line from 15 % of the tokens on; what was not measured has no column.
        assert_eq!((found.rows.len(), found.columns.len()), (6, 5));
        assert_eq!(found.columns[4].heading, "context RMS");
    }
}
