//! Paired differences as a table: the same for runs, comparisons and reports.

use super::difference::{correct, Difference, Test, Verdict};
use super::frame::Frame;
use super::query::Query;
use super::rows::{Compared, Row};
use super::run_table::{setting, sorted_rows, RunTable};
use super::table::{basis, key_column, numbers, words, Cell, ColumnRole, Table, TableRows};
use names::column::{shown, Column, Value};
use names::condition::UNTREATED;
use names::metric::{self, Headline, Number};

/// The columns of a table of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The difference with its interval, and the verdict.
    Verdict,
    /// Also the means, the power and the test.
    Full,
}

pub(crate) const DIFFERENCES: RunTable = RunTable::made("differences", "Differences", of_run);

/// The columns that differences within a run have values of.
pub(crate) const SETTING: [Column; 3] = [Column::CtxTok, Column::Needles, Column::Retrieve];

/// Largest number of conditions whose differences are listed and drawn; the costs of more are in other tables and figures.
pub(crate) const MOST_CONDITIONS: usize = 12;

/// All differences of models and conditions of a run.
fn of_run(frame: &Frame) -> Option<Table> {
    if frame.treated.len() > MOST_CONDITIONS {
        return None;
    }
    let rows = differences_of_run(frame, &headline_numbers(), |model, condition| {
        if frame.has_conditions() {
            format!("{model} {condition}")
        } else {
            model.to_owned()
        }
    });
    differences(&rows, &SETTING, Detail::Full)
}

/// The headline metrics, with the regions that they are headline for.
fn headline_numbers() -> Vec<Number<'static>> {
    let mut numbers = Vec::new();
    for metric in metric::ALL {
        match metric.headline {
            Headline::No => {}
            Headline::Yes => numbers.push(metric.overall()),
            Headline::Of(region) => numbers.push(metric.of(region)),
        }
    }
    numbers
}

/// The differences of numbers within a run, number by number and setting by setting: of every condition from the
/// untreated passes, and of every model from the first under the same condition. `name` names a model under a condition.
pub(crate) fn differences_of_run(
    frame: &Frame,
    numbers: &[Number<'_>],
    name: impl Fn(&str, &str) -> String,
) -> Vec<Row> {
    const KEYS: [Column; 5] = [Column::CtxTok, Column::Needles, Column::Retrieve, Column::Model, Column::Condition];
    let Some(first) = frame.models.first() else { return Vec::new() };
    let mut placed = Vec::new();
    for against in [(Column::Condition, None), (Column::Model, Some(Value::Text(first)))] {
        for row in sorted_rows(frame, &Query { only: &[], rows: &KEYS, numbers, against: Some(against) }) {
            let setting = setting(&KEYS, &row);
            let setting = frame.settings.iter().position(|known| *known == setting);
            let model = shown(row.keys[3]);
            let condition = shown(row.keys[4]);
            let baseline = match against.0 {
                Column::Model => name(first, &condition),
                _ => name(&model, UNTREATED),
            };
            for (place, change) in row.changes.iter().enumerate() {
                let names = [baseline.clone(), name(&model, &condition)];
                let change = change.as_ref().map(|change| row_of(numbers[place], names, &row.keys, change));
                placed.extend(change.map(|row| ((place, setting), row)));
            }
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    let mut rows: Vec<Row> = placed.into_iter().map(|(_, row)| row).collect();
    correct(rows.iter_mut().map(|row| &mut row.difference));
    rows
}

/// The row of a difference, whose keys begin with the setting.
fn row_of(number: Number<'_>, names: [String; 2], keys: &[Option<Value<'_>>], change: &Difference) -> Row {
    let [baseline, other] = names.map(Compared::Named);
    Row {
        baseline,
        other,
        group: SETTING.iter().zip(keys).map(|(column, key)| (column.to_string(), count(*key))).collect(),
        metric: number.metric.name.to_owned(),
        region: number.region.map(str::to_owned),
        unit: number.metric.unit.map(str::to_owned),
        difference: change.clone(),
        ..Row::default()
    }
}

/// A count; 0 of what a text does not have.
fn count(key: Option<Value<'_>>) -> String {
    key.map_or_else(|| "0".to_owned(), |count| count.to_string())
}

/// Builds the table of rows, which have a column for each group.
pub(crate) fn differences(rows: &[Row], groups: &[Column], detail: Detail) -> Option<Table> {
    let is_full = detail == Detail::Full;
    let mut table = TableRows::of(rows)
        .column(words("metric").key(), |row| Cell::words(row.label().comparison_heading()))
        .column(words("difference").with(ColumnRole::Part), |row| {
            Cell::words(format!("{} - {}", row.other, row.baseline))
        });
    for &group in groups {
        table = table.column(key_column(group).named(group.name()), |row| group_cell(row, group));
    }
    let several_levels = rows.iter().any(|row| row.level != rows[0].level);
    // Several questions of a prompt.
    let has_more_cases = rows.iter().any(|row| row.difference.cases != row.difference.n);
    let has_seeds = rows.iter().any(|row| row.difference.seeds.is_some());
    table
        .column_if(several_levels, words("of").key(), |row| Cell::words(row.level.name()))
        .column_if(has_seeds, basis("seed"), |row| Cell::optional(row.difference.seeds))
        .column(basis("prompt").named("n"), |row| Cell::count(row.difference.n))
        .column_if(is_full && has_more_cases, basis("case"), |row| Cell::count(row.difference.cases))
        .column_if(is_full, numbers("baseline"), |row| mean(row, Some(row.difference.mean_baseline)))
        .column_if(is_full, numbers("other"), |row| mean(row, Some(row.difference.mean_other)))
        .column(numbers("change [95 %]").named("diff"), difference_cell)
        .column(words("verdict"), |row| Cell::words(row.difference.verdict().name()))
        .column_if(is_full, numbers("detectable"), |row| mean(row, row.difference.detectable))
        .column_if(is_full, numbers("wins/ties/losses"), |row| {
            let Difference { wins, ties, losses, .. } = row.difference;
            Cell::words(format!("{wins}/{ties}/{losses}"))
        })
        .column_if(is_full, words("test").with(ColumnRole::Basis), |row| {
            Cell::optional_words(row.difference.test.map(Test::name))
        })
        .column_if(is_full, numbers("p (holm)").named("p_adjusted"), |row| {
            Cell::number(row.difference.p_adjusted, p_value)
        })
        .table(
            "differences",
            "Differences",
            format!(
                "The same prompts, other less baseline [95 % interval]; fractions in percentage points. {}",
                Verdict::RULE
            ),
        )
        .trimmed()
}

fn group_cell(row: &Row, group: Column) -> Cell {
    let text = row.group.get(group.name()).cloned().unwrap_or_default();
    let exact = text.parse().ok().filter(|_| !group.is_text());
    Cell { exact, ..Cell::words(text) }
}

/// A mean in the unit of its difference: fractions in percent.
fn mean(row: &Row, x: Option<f64>) -> Cell {
    Cell::value(row.label().kind, x, None)
}

/// The difference of a row with its interval: `+12 [+2, +22]`.
pub(crate) fn difference_cell(row: &Row) -> Cell {
    Cell::difference(row.label().kind, &row.difference)
}

/// The value of a row in a group: `diff`, or `ctx_tok=4096`.
pub(crate) fn group_value(row: &Row, column: Column) -> Option<Compared> {
    let value = row.group.get(column.name())?.clone();
    let is_name = column.is_text() && value != "none";
    Some(if is_name { Compared::Named(value) } else { Compared::Value(column, value) })
}

/// Formats a p-value with three decimals.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 {
        "<0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_p_value_is_not_zero() {
        assert_eq!((p_value(0.0), p_value(0.0314)), ("<0.001".to_owned(), "0.031".to_owned()));
    }

    #[test]
    fn a_row_has_its_difference_in_points_and_a_verdict() {
        let difference = Difference {
            n: 30,
            diff: 0.117,
            lo: Some(0.017),
            hi: Some(0.217),
            p_adjusted: Some(0.04),
            ..Difference::default()
        };
        let row = Row {
            metric: names::metric::ACCURACY.name.into(),
            baseline: "transformer".into(),
            other: "diff".into(),
            group: [("needles".to_owned(), "4".to_owned())].into(),
            difference,
            ..Row::default()
        };
        let table = differences(&[row], &[Column::Needles], Detail::Verdict).unwrap();
        let line: Vec<String> = table.rows[0].iter().map(Cell::line).collect();
        assert_eq!(line, ["accuracy", "diff - transformer", "4", "30", "+12 [+2, +22]", "higher"]);
    }
}
