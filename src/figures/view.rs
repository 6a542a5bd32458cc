//! Figures of runs as values: each is a view of a table, whose numbers it draws as lines, cells or a forest.

mod grids;

use crate::results::run_table::RunTable;
use crate::results::table::{Cell, Holds, Table, MODEL};
use crate::results::Frame;
use anyhow::Result;
use names::metric::{Kind, Label};
use names::{distinct, Column};
use plot::{
    forest, lines, Figure, FigureHeading, ForestPanel, ForestRow, Line, LineAxes, LinePanel, Page, PointEstimate,
};

/// A figure of a run. Models are its series; keys of the table that differ between rows, and are not on an axis, make panels.
pub(crate) struct RunFigure {
    /// Name of its file, without an extension.
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    /// The part of the subtitle before the caption of the run; may be empty.
    pub(crate) subtitle: &'static str,
    /// The way in which its numbers are made, for its recipe.
    pub(crate) pooling: &'static str,
    pub(crate) table: &'static RunTable,
    pub(crate) view: View,
}

/// How the numbers of a table are drawn. Columns are named as for programs, those of a metric without its region.
#[derive(Clone, Copy)]
pub(crate) enum View {
    /// Points or lines over a key, a line for each model and column.
    Lines { over: Over, panels: &'static [Panel] },
    /// A grid for each model: a key from top to bottom, and the length of the prompts, or what else differs, from left to right.
    Grid { down: &'static str, value: &'static str },
    /// A grid for each model: a key from top to bottom, and all columns of numbers, which have one unit, from left to right.
    Columns { down: &'static str, across: &'static str, scale: &'static str },
    /// A grid for each model of its layers and heads, and for each score of heads.
    Heads,
    /// Changes with their intervals, a row for each value of a key and each model.
    Forest { down: &'static str, panels: &'static [Panel], x_label: &'static str },
}

/// The key on the x axis, and its label.
#[derive(Clone, Copy)]
pub(crate) enum Over {
    /// Numbers, on a logarithmic axis. A figure needs two.
    Numbers { key: &'static str, label: &'static str },
    /// Names, side by side.
    Names { key: &'static str, label: &'static str },
}

/// Columns that are drawn together.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    /// Empty for the heading of the column.
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [&'static str],
}

impl Panel {
    /// The panel of one column.
    pub(crate) const fn of(columns: &'static [&'static str]) -> Self {
        Self { title: "", columns }
    }

    /// The panel of columns, which have a title together.
    pub(crate) const fn titled(title: &'static str, columns: &'static [&'static str]) -> Self {
        Self { title, columns }
    }
}

impl RunFigure {
    /// Draws the figure, with the caption of the run in its subtitle; nothing if the run has nothing of it.
    ///
    /// # Errors
    /// If it would be too large.
    pub(crate) fn draw(&self, frame: &Frame, caption: &str, page: Page) -> Result<Option<Figure>> {
        let Some(table) = self.table.filled(frame) else { return Ok(None) };
        let subtitle = &joined(self.subtitle, caption);
        let rows = DrawnRows::of(frame, &table);
        let models: Vec<String> = frame.models.iter().map(|model| frame.short_name(model)).collect();
        let heading = FigureHeading { title: self.title, subtitle, page, models: &models };
        let figure = match self.view {
            View::Lines { over, panels } => rows.lines(over, panels, &heading)?,
            View::Grid { down, value } => rows.grid(down, value, &heading)?,
            View::Columns { down, across, scale } => rows.columns_grid(down, across, scale, &heading)?,
            View::Forest { down, panels, x_label } => rows.forest(down, panels, x_label, &heading)?,
            View::Heads => rows.heads(&heading)?,
        };
        Ok(figure)
    }
}

/// The rows of a table, which are drawn.
struct DrawnRows<'a> {
    frame: &'a Frame,
    table: &'a Table,
    /// The place of the column of models.
    model: usize,
}

/// Rows that share the keys which make panels.
struct Part<'a> {
    /// The keys in words, as far as parts differ in them.
    title: String,
    rows: Vec<&'a [Cell]>,
}

/// A column of numbers.
struct Numbers {
    place: usize,
    label: Label,
}

impl Numbers {
    /// Ends of an axis of hits in percent, which are between two.
    fn range(&self) -> Option<(f64, f64)> {
        (self.label.kind == Kind::Hit).then_some((0.0, 100.0))
    }
}

impl<'a> DrawnRows<'a> {
    fn of(frame: &'a Frame, table: &'a Table) -> Self {
        Self { frame, table, model: table.place(MODEL).unwrap_or(0) }
    }

    fn place(&self, name: &str) -> Option<usize> {
        let of_region = format!("{name}[");
        self.table
            .place(name)
            .or_else(|| self.table.columns.iter().position(|column| column.name.starts_with(&of_region)))
    }

    /// The columns of a panel that the table has.
    fn columns(&self, panel: Panel) -> Vec<Numbers> {
        panel.columns.iter().filter_map(|name| self.place(name)).map(|place| self.numbers(place)).collect()
    }

    fn numbers(&self, place: usize) -> Numbers {
        let column = &self.table.columns[place];
        let label = match &column.holds {
            Holds::Numbers(label) => label.clone(),
            _ => Label { text: column.heading.clone(), kind: Kind::Number, unit: String::new() },
        };
        Numbers { place, label }
    }

    fn models(&self) -> Vec<String> {
        distinct(self.table.rows.iter().map(|row| &row[self.model].text))
    }

    /// The rows of a model in a part.
    fn of_model<'r>(&'r self, part: &'r Part<'a>, model: &'r str) -> impl Iterator<Item = &'a [Cell]> + 'r {
        part.rows.iter().copied().filter(move |row| row[self.model].text == model)
    }

    /// A key of a row as the name of a place on an axis, whose label says what it is.
    fn name(&self, place: usize, row: &[Cell]) -> String {
        match self.table.columns[place].holds {
            Holds::Column(Column::Condition) => self.frame.condition_words(&row[place].text),
            _ => row[place].text.clone(),
        }
    }

    /// The keys that differ between rows, besides the model and those at some places.
    fn other_keys(&self, besides: &[usize]) -> Vec<usize> {
        let mut keys = Vec::new();
        for (place, column) in self.table.columns.iter().enumerate() {
            let is_other = column.role.is_key() && place != self.model && !besides.contains(&place);
            if is_other && self.table.rows.iter().any(|row| row[place].text != self.table.rows[0][place].text) {
                keys.push(place);
            }
        }
        keys
    }

    /// Keys of a row in words: `4096 tokens, N=4`.
    fn title(&self, keys: &[usize], row: &[Cell]) -> String {
        let words: Vec<String> = keys.iter().map(|&key| self.table.words(key, row)).collect();
        words.join(", ")
    }

    /// The rows by some of their keys, in the order of the table.
    fn parts(&self, keys: &[usize]) -> Vec<Part<'a>> {
        let mut parts: Vec<Part<'a>> = Vec::new();
        for row in &self.table.rows {
            let title = self.title(keys, row);
            match parts.iter_mut().find(|part| part.title == title) {
                Some(part) => part.rows.push(row),
                None => parts.push(Part { title, rows: vec![row] }),
            }
        }
        parts
    }

    fn lines(&self, over: Over, panels: &[Panel], heading: &FigureHeading<'_>) -> Result<Option<Figure>> {
        let (Over::Numbers { key, label } | Over::Names { key, label }) = over;
        let Some(x) = self.place(key) else { return Ok(None) };
        let names = distinct(self.table.rows.iter().map(|row| self.name(x, row)));
        let is_numbers = matches!(over, Over::Numbers { .. });
        if is_numbers && names.len() < 2 {
            return Ok(None);
        }
        let place_of = |row: &[Cell]| {
            if is_numbers {
                row[x].exact
            } else {
                names.iter().position(|name| *name == self.name(x, row)).map(|place| place as f64)
            }
        };
        let mut drawn = Vec::new();
        for part in self.parts(&self.other_keys(&[x])) {
            for panel in panels {
                let columns = self.columns(*panel);
                let lines = self.panel_lines(&part, &columns, place_of);
                if let (Some(first), false) = (columns.first(), lines.is_empty()) {
                    let title = if panel.title.is_empty() { &first.label.text } else { panel.title };
                    drawn.push(LinePanel {
                        title: joined(title, &part.title),
                        x_label: label.to_owned(),
                        y_label: first.label.unit.clone(),
                        y_range: first.range(),
                        marks: Vec::new(),
                        lines,
                    });
                }
            }
        }
        let axes = if is_numbers { LineAxes::LogX } else { LineAxes::Categories(&names) };
        (!drawn.is_empty()).then(|| lines(&drawn, axes, heading)).transpose()
    }

    /// A line for each model and column.
    fn panel_lines(
        &self,
        part: &Part<'_>,
        columns: &[Numbers],
        place_of: impl Fn(&[Cell]) -> Option<f64>,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        for model in &self.models() {
            for column in columns {
                let mut points: Vec<(f64, PointEstimate)> = self
                    .of_model(part, model)
                    .filter_map(|row| Some((place_of(row)?, point_of(&row[column.place])?)))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                let series = self.frame.short_name(model);
                let name = if columns.len() > 1 { format!("{series}, {}", column.label) } else { series.clone() };
                lines.extend((!points.is_empty()).then(|| Line::new(name, points).of(&series)));
            }
        }
        lines
    }

    fn forest(
        &self,
        down: &str,
        panels: &[Panel],
        x_label: &str,
        heading: &FigureHeading<'_>,
    ) -> Result<Option<Figure>> {
        let Some(down) = self.place(down) else { return Ok(None) };
        let mut drawn = Vec::new();
        for part in self.parts(&self.other_keys(&[down])) {
            for panel in panels {
                for column in self.columns(*panel) {
                    let rows = self.forest_rows(&part, down, column.place);
                    let unit = column.label.unit;
                    let title = joined(panel.title, &part.title);
                    drawn.extend((!rows.is_empty()).then_some(ForestPanel { title, unit, rows }));
                }
            }
        }
        (!drawn.is_empty()).then(|| forest(&drawn, heading, x_label)).transpose()
    }

    /// A row for each value of a key and each model that has a change; the models of one value next to each other.
    fn forest_rows(&self, part: &Part<'_>, down: usize, value: usize) -> Vec<ForestRow> {
        let mut rows = Vec::new();
        for label in distinct(part.rows.iter().map(|row| self.name(down, row))) {
            for row in part.rows.iter().filter(|row| self.name(down, row) == label) {
                let Some(difference) = point_of(&row[value]) else { continue };
                rows.push(ForestRow {
                    label: label.clone(),
                    series: self.frame.short_name(&row[self.model].text),
                    difference,
                    text: row[value].text.replace('-', "−"),
                });
            }
        }
        rows
    }
}

/// A title with what tells it from others: `accuracy · 4096 tokens`.
fn joined(title: &str, part: &str) -> String {
    let mut words = vec![title, part];
    words.retain(|word| !word.is_empty());
    words.join(" · ")
}

/// The number of a cell with its interval, in the unit in which they are shown; `None` if it has none.
fn point_of(cell: &Cell) -> Option<PointEstimate> {
    let factor = if cell.percent { 100.0 } else { 1.0 };
    let interval = cell.interval.map(|interval| (factor * interval.lo, factor * interval.hi));
    Some(PointEstimate { value: factor * cell.exact?, interval })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::table::{key_column, numbers, numbers_of};
    use names::metric::ACCURACY;
    use stats::Interval;

    /// Two models at two lengths with one and two needles, whose accuracy is half of what is given.
    pub(super) fn table(accuracy: impl Fn(&str, usize, usize) -> f64) -> Table {
        let columns = vec![
            key_column(Column::Model),
            key_column(Column::CtxTok),
            key_column(Column::Needles),
            numbers("prompts"),
            numbers_of(Label::of(&ACCURACY, None)).named(ACCURACY.name),
        ];
        let mut rows = Vec::new();
        for (tokens, needles) in [(512, 1), (512, 2), (256, 1), (256, 2)] {
            for model in ["a", "b"] {
                let interval = Some(Interval { lo: 0.0, hi: 1.0 });
                rows.push(vec![
                    Cell::words(model),
                    Cell::count(tokens),
                    Cell::count(needles),
                    Cell::count(7),
                    Cell::value(Kind::Hit, 0.5 * accuracy(model, tokens, needles), interval),
                ]);
            }
        }
        Table::plain(columns, rows)
    }

    #[test]
    fn keys_that_differ_and_are_on_no_axis_make_panels_and_models_are_lines() {
        let table = table(|model, tokens, _| if model == "a" { tokens as f64 / 512.0 } else { 0.0 });
        let frame = Frame::default();
        let rows = DrawnRows::of(&frame, &table);
        let parts = rows.parts(&rows.other_keys(&[1]));
        assert_eq!(parts.iter().map(|part| part.title.as_str()).collect::<Vec<_>>(), ["N=1", "N=2"]);
        let columns = rows.columns(Panel::of(&[ACCURACY.name]));
        assert_eq!((columns[0].label.text.as_str(), columns[0].range()), (ACCURACY.label, Some((0.0, 100.0))));
        let lines = rows.panel_lines(&parts[0], &columns, |row| row[1].exact);
        let point = |value| PointEstimate { value, interval: Some((0.0, 100.0)) };
        assert_eq!((lines.len(), lines[0].name.as_str()), (2, "a"));
        assert_eq!(lines[0].points, [(256.0, point(25.0)), (512.0, point(50.0))], "from left to right, in percent");
    }
}
