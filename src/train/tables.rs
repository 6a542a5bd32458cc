//! Tables of a training study: means and differences over training seeds.

use super::metrics::{
    CONTEXT_RMS, CONTEXT_RMS_LEAST, FIRST_DIGITS, GRAD_NORM_QK, HELDOUT_NLL, LAMBDA, ONE_NEEDLE, TEXT_NLL,
};
use super::spec::Contrast;
use super::study::{Study, END};
use crate::results::screen::{Screen, ScreenTable};
use crate::results::table::{basis, numbers, plural, words, Cell, ColumnRole, Table, TableRows};
use crate::results::{Estimate, Verdict};
use names::metric::{Label, Metric};
use stats::LEAST_SEEDS;

/// The next step after a summary.
const NEXT: &str = "difftool needle --model FOLDER, a trained model";

/// Longest name of a difference, in characters: one that a page of 80 has room for.
const LONGEST_NAME: usize = 44;

/// Columns of the summary that are shown by default.
const MAIN_COLUMNS: [&str; 7] = ["variant", "seeds", "learned", "learned_tok", "first_digit", "one_needle", "held_out"];

/// Times at which runs are compared, as fractions of their tokens.
const TIMES: [f64; 3] = [0.15, 0.5, END];

/// A table of studies.
pub(crate) struct StudyTable {
    /// Its name, for `--tables` and JSON.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Fills it; `None` if the study has nothing of it.
    fill: fn(&Study) -> Option<Table>,
}

/// A row for each variant that has finished runs: the columns of `summary.csv`.
pub(crate) const SUMMARY: StudyTable =
    StudyTable { id: "summary", title: "Training", fill: |study| Some(summary(study)) };
const DIFFERENCES: StudyTable = StudyTable { id: "differences", title: "Differences", fill: differences };
const INSIDE: StudyTable = StudyTable { id: "inside", title: "Inside the layers", fill: inside };

/// The tables of studies.
pub(crate) const TABLES: [StudyTable; 3] = [SUMMARY, DIFFERENCES, INSIDE];

impl StudyTable {
    pub(crate) fn filled(&self, study: &Study) -> Option<Table> {
        Some(Table { id: self.id, title: self.title, ..(self.fill)(study)? })
    }
}

/// What `difftool train` prints: the summary, and the differences that are decided.
pub(crate) fn screen(study: &Study) -> Screen {
    let mut screen = Screen { next: NEXT.to_owned(), ..Screen::default() };
    if let Some(mut main) = SUMMARY.filled(study) {
        let is_main: Vec<bool> = main.columns.iter().map(|column| MAIN_COLUMNS.contains(&&*column.name)).collect();
        main.keep_columns(|at| is_main[at]);
        screen.notes.push(main.note.clone());
        screen.tables.push(ScreenTable { title: SUMMARY.title.to_owned(), shared: Vec::new(), table: main });
    }
    if let Some(mut differences) = DIFFERENCES.filled(study) {
        let all = differences.rows.len();
        differences.rows.retain(|row| row.last().is_some_and(|verdict| verdict.text != Verdict::Undecided.name()));
        let undecided = all - differences.rows.len();
        if undecided > 0 {
            let all = plural(all, "difference");
            screen.notes.push(format!("Undecided: {undecided} of {all} (--tables differences)."));
        }
        screen.tables.extend(differences.with_rows().map(ScreenTable::below));
    }
    screen
}

/// Every table of a study.
pub(crate) fn tables(study: &Study) -> Vec<Table> {
    TABLES.iter().filter_map(|table| table.filled(study)).collect()
}

/// A variant that has finished runs.
struct SummaryRow {
    /// Its place in the spec.
    variant: usize,
    /// Its finished runs.
    seeds: usize,
    learning: Learning,
}

/// A row for each variant that has finished runs; columns of what was measured at their end.
fn summary(study: &Study) -> Table {
    let mut rows = Vec::new();
    for variant in 0..study.spec.variants.len() {
        let seeds = study.points_at(variant, END, &TEXT_NLL).len();
        if seeds > 0 {
            rows.push(SummaryRow { variant, seeds, learning: Learning::of(study, variant) });
        }
    }
    let has = |metric: &Metric| rows.iter().any(|row| study.mean_at(row.variant, END, metric).is_some());
    let [recall, one_needle, held_out] = [&FIRST_DIGITS, &ONE_NEEDLE, &HELDOUT_NLL].map(has);
    let less = format!("less {}", study.spec.variants[0].name);
    let finished: usize = rows.iter().map(|row| row.seeds).sum();
    let mut note = format!("{finished} of {} runs are finished.", study.spec.runs().len());
    if recall {
        note += " Learned: seeds that reach 0.9 of first digits at the last context, after so many tokens (median).";
    }
    if rows.iter().any(|row| row.seeds < LEAST_SEEDS) {
        note += " Fewer than three seeds have no interval.";
    }
    TableRows::of(&rows)
        .column(words("variant").key(), |row| Cell::words(&study.spec.variants[row.variant].name))
        .column(basis("seed"), |row| Cell::count(row.seeds))
        .column_if(recall, numbers("learned"), |row| Cell::count(row.learning.seeds))
        .column_if(recall, numbers("tokens").named("learned_tok"), |row| Cell::optional(row.learning.median_tok))
        .column_if(recall, numbers("earlier"), |row| Cell::count(row.learning.earlier))
        .column_if(recall, numbers("later"), |row| Cell::count(row.learning.later))
        .column_if(recall, numbers(FIRST_DIGITS.heading(None)).named("first_digit").with_interval(), |row| {
            at_end(study, row.variant, &FIRST_DIGITS)
        })
        .column_if(recall, numbers(&less).named("difference").with_interval(), |row| {
            less_first(study, row.variant, &FIRST_DIGITS)
        })
        .column_if(one_needle, numbers(ONE_NEEDLE.heading(None)).named("one_needle"), |row| Cell {
            aside: String::new(),
            ..at_end(study, row.variant, &ONE_NEEDLE)
        })
        .column_if(held_out, numbers(HELDOUT_NLL.heading(None)).named("held_out").with_interval(), |row| {
            at_end(study, row.variant, &HELDOUT_NLL)
        })
        .column_if(held_out, numbers(&less).named("held_out_difference").with_interval(), |row| {
            less_first(study, row.variant, &HELDOUT_NLL)
        })
        .noted(note)
}

/// The mean of a metric over the finished runs of a variant.
fn at_end(study: &Study, variant: usize, metric: &Metric) -> Cell {
    Cell::estimate(metric.kind, study.mean_at(variant, END, metric))
}

/// Its difference from the first variant.
fn less_first(study: &Study, variant: usize, metric: &Metric) -> Cell {
    let change = to_first(study, variant).and_then(|to_first| study.change(&to_first, metric));
    Cell::change(metric.kind, change)
}

/// When the seeds of a variant learned to recall.
struct Learning {
    /// Those that did.
    seeds: usize,
    /// After so many tokens; `None` if half of them never did.
    median_tok: Option<usize>,
    /// Seeds that did before those of the first variant, and after them.
    earlier: usize,
    later: usize,
}

impl Learning {
    fn of(study: &Study, variant: usize) -> Self {
        let mut times: Vec<f64> = study.learned_after(variant).into_values().collect();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).filter(|time| time.is_finite());
        let to_first = to_first(study, variant);
        let delays =
            to_first.iter().flat_map(|to_first| study.contrast(to_first, |variant| study.learned_after(variant)));
        let delays: Vec<f64> = delays.map(|(_, delay)| delay).collect();
        Self {
            seeds: times.iter().filter(|time| time.is_finite()).count(),
            median_tok: median.map(|&tokens| tokens as usize),
            // Never is later than any time. The difference of two seeds that never learn is NaN: neither.
            earlier: delays.iter().filter(|&&delay| delay < 0.0).count(),
            later: delays.iter().filter(|&&delay| delay > 0.0).count(),
        }
    }
}

/// The contrast of a variant with the first; `None` of the first itself.
fn to_first(study: &Study, variant: usize) -> Option<Contrast> {
    let [less, of] = [0, variant].map(|variant| study.spec.variants[variant].name.clone());
    (variant > 0).then(|| Contrast { name: format!("{of} - {less}"), of: vec![of], less: vec![less] })
}

/// The differences at the end: the contrasts of the spec, and every variant less the first. Those that are
/// decided come first.
fn differences(study: &Study) -> Option<Table> {
    let mut contrasts = study.spec.contrasts.clone();
    let is_new = |contrast: &Contrast| !study.spec.contrasts.iter().any(|known| known.is_same(contrast));
    contrasts.extend((0..study.spec.variants.len()).filter_map(|variant| to_first(study, variant)).filter(is_new));
    let mut changes = Vec::new();
    for metric in [&FIRST_DIGITS, &ONE_NEEDLE, &HELDOUT_NLL] {
        for contrast in &contrasts {
            changes.extend(study.change(contrast, metric).map(|change| (shortened(&contrast.name), metric, change)));
        }
    }
    let estimates: Vec<Estimate> = changes.iter().map(|(.., change)| *change).collect();
    let mut rows: Vec<_> = changes.into_iter().zip(Verdict::of_table(&estimates)).collect();
    rows.sort_by_key(|(_, verdict)| *verdict == Verdict::Undecided);
    let note = format!("At the end of training, seed by seed [95 %]. Decided ones first. {}", Verdict::RULE);
    TableRows::of(&rows)
        .column(words("difference").key(), |((name, ..), _)| Cell::words(name))
        .column(words("metric").with(ColumnRole::Part), |((_, metric, _), _)| {
            Cell::words(Label::of(metric, None).difference_heading())
        })
        .column(basis("seed"), |((.., change), _)| Cell::count(change.prompts))
        .column(numbers("change [95 %]").named("diff"), |((_, metric, change), _)| Cell::change(metric.kind, *change))
        .column(words("verdict"), |(_, verdict)| Cell::words(verdict.name()))
        .noted(note)
        .trimmed()
}

/// First digits and the measurements inside the layers at several times.
fn inside(study: &Study) -> Option<Table> {
    let metrics = [&FIRST_DIGITS, &CONTEXT_RMS, &CONTEXT_RMS_LEAST, &LAMBDA, &GRAD_NORM_QK];
    let mut columns = vec![words("variant").key(), numbers("tokens").key(), basis("seed")];
    columns.extend(metrics.map(|metric| numbers(metric.heading(None))));
    let mut rows = Vec::new();
    for (index, variant) in study.spec.variants.iter().enumerate() {
        for time in TIMES {
            let points = study.points_at(index, time, &TEXT_NLL);
            let Some(first) = points.values().next() else { continue };
            let mut row = vec![Cell::words(&variant.name), Cell::count(first.tokens), Cell::count(points.len())];
            row.extend(metrics.map(|metric| Cell::estimate(metric.kind, study.mean_at(index, time, metric))));
            rows.push(row);
        }
    }
    let note = "Means over the seeds that have got there [95 %].".to_owned();
    Some(Table { note, ..Table::plain(columns, rows) }.trimmed()?.details())
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
    use crate::results::Records;
    use crate::train::course::{identity, record};
    use crate::train::TrainSpec;

    /// A study of two variants and three seeds. Each run has a line at a tenth of its tokens and one at the end,
    /// with these first digits; those of the second variant are `gain` higher.
    fn study(file: &str, gain: f64) -> Study {
        let mut spec = TrainSpec::parse(file, "study").unwrap();
        spec.variants.truncate(2);
        let names: Vec<String> = spec.variants.iter().map(|variant| variant.name.clone()).collect();
        let [less, of] = [names[..1].to_vec(), names];
        spec.contrasts = vec![Contrast { name: "a question of the spec with a name that is long".into(), of, less }];
        let end = spec.total_tokens();
        let mut records = Records::default();
        for (variant, seed) in [0, 1].into_iter().flat_map(|variant| (1..=3).map(move |seed| (variant, seed))) {
            // The differences of seeds are 0.01 apart.
            let digits = 0.4 + 0.1 * seed as f64 + variant as f64 * (gain + 0.01 * seed as f64);
            let name = &spec.variants[variant].name;
            for (tokens, digits) in [(end / 10, 0.1), (end, digits)] {
                let line = identity(name, seed, tokens, 256);
                records.add(&record(&line, &FIRST_DIGITS, digits));
                records.add(&record(&line, &CONTEXT_RMS, 0.5));
                records.add(&record(&line, &TEXT_NLL, 1.0));
            }
        }
        Study { spec, records }
    }

    fn lines(table: &Table) -> Vec<Vec<String>> {
        table.rows.iter().map(|row| row.iter().map(Cell::line).collect()).collect()
    }

    const FILE: &str = include_str!("../../experiments/study-f-0.3m.toml");

    #[test]
    fn the_summary_has_a_row_for_each_variant_and_its_difference_from_the_first_seed_by_seed() {
        let study = study(FILE, 0.2);
        let found = lines(&summary(&study));
        assert_eq!(found[0], ["transformer", "3", "0", "-", "0", "0", "60 [35, 85]", "-"]);
        // Seed 3 is above 0.9 of first digits. Seeds differ by much, their differences hardly.
        assert_eq!(found[1], ["diff", "3", "1", "-", "1", "0", "82 [55, 100]", "+22 [+20, +24]"]);
        let main = &screen(&study).tables[0].table.columns;
        let main: Vec<&str> = main.iter().map(|column| column.heading.as_str()).collect();
        assert_eq!(main, ["variant", "seeds", "learned", "tokens", "first digits %"]);
    }

    #[test]
    fn contrasts_and_differences_from_the_first_variant_have_a_verdict() {
        let found = lines(&differences(&study(FILE, 0.2)).unwrap());
        let row = |name: &str, change: &str| [name, "first digits points", "3", change, "higher"].map(str::to_owned);
        let contrast = row("a question of the spec with a name that is …", "+11 [+10, +12]");
        assert_eq!(found, [contrast, row("diff - transformer", "+22 [+20, +24]")]);
        assert_eq!(lines(&differences(&study(FILE, -0.02)).unwrap())[0][4], "undecided");
    }

    #[test]
    fn a_study_of_texts_alone_is_summed_up_by_what_is_held_out() {
        let mut study = study(FILE, 0.0);
        let [less, of] = [0, 1].map(|variant| vec![study.spec.variants[variant].name.clone()]);
        study.spec.contrasts = vec![Contrast { name: "what a user gets".into(), of, less }];
        study.records = Records::default();
        for (variant, seed) in [0, 1].into_iter().flat_map(|variant| (1..=3).map(move |seed| (variant, seed))) {
            let line = identity(&study.spec.variants[variant].name, seed, study.spec.total_tokens(), 256);
            let nats = 3.0 + 0.1 * seed as f64 - variant as f64 * (0.02 + 0.001 * seed as f64);
            study.records.add(&record(&line, &TEXT_NLL, 3.0));
            study.records.add(&record(&line, &HELDOUT_NLL, nats));
        }
        let summary = summary(&study);
        let headings: Vec<&str> = summary.columns.iter().map(|column| column.heading.as_str()).collect();
        assert_eq!(headings, ["variant", "seeds", "NLL of held-out texts (nats)", "less transformer"]);
        assert!(!summary.note.contains("Learned"), "{}", summary.note);
        assert_eq!(lines(&summary)[1][3], "-0.022 [-0.024, -0.020]");
        // The contrast is the difference from the first variant, which counts once.
        let found = lines(&differences(&study).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0][0].as_str(), found[0][4].as_str()), ("what a user gets", "lower"));
    }

    #[test]
    fn the_inside_is_shown_once_for_each_time_that_runs_got_to() {
        let found = inside(&study(FILE, 0.2)).unwrap();
        // The end is the first line from 15 % of the tokens on; what was not measured has no column.
        assert_eq!((found.rows.len(), found.columns.len()), (6, 5));
        assert_eq!(found.columns[4].heading, "context RMS");
    }
}
