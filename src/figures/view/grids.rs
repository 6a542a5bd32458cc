//! Tables as grids of coloured cells: a number by two keys, columns by a key, and scores by layer and head.

use super::{joined, point_of, DrawnRows, Part};
use crate::results::table::{short, Cell, ColumnRole, Holds};
use anyhow::Result;
use names::{distinct, Column, HeadPlace};
use plot::{cells, CellGrid, CellRow, CellScale, Figure, FigureHeading, GridCell};

impl DrawnRows<'_> {
    pub(super) fn grid(&self, down: &str, value: &str, heading: &FigureHeading<'_>) -> Result<Option<Figure>> {
        let Some((down, value)) = self.place(down).zip(self.place(value)) else { return Ok(None) };
        let others = self.other_keys(&[down]);
        // From left to right the lengths, if there are several, or all that differs.
        let is_length = |key: &usize| self.table.columns[*key].holds == Holds::Column(Column::CtxTok);
        let has_lengths = others.iter().any(is_length);
        let (across, apart): (Vec<usize>, Vec<usize>) = others.iter().partition(|key| !has_lengths || is_length(key));
        let models = self.models();
        let mut rows = Vec::new();
        for part in self.parts(&apart) {
            let grids = models.iter().map(|model| self.grid_of(&part, model, down, &across, value)).collect();
            rows.push(CellRow { heading: part.title, grids });
        }
        let numbers = self.numbers(value);
        let scale = CellScale {
            label: &self.table.columns[value].heading,
            end: numbers.range().map(|(_, end)| end),
            decimals: if numbers.range().is_some() { 0 } else { 1 },
            x_label: "",
            y_label: &self.table.columns[down].heading,
        };
        Ok(Some(cells(&rows, heading, &scale)?))
    }

    fn grid_of(&self, part: &Part<'_>, model: &str, down: usize, across: &[usize], value: usize) -> CellGrid {
        let mut depths: Vec<&Cell> = part.rows.iter().map(|row| &row[down]).filter(|cell| !cell.is_none()).collect();
        depths.sort_by(|a, b| a.exact.partial_cmp(&b.exact).unwrap_or(std::cmp::Ordering::Equal));
        let depths = distinct(depths.into_iter().map(|cell| cell.text.clone()));
        let columns = distinct(part.rows.iter().map(|row| self.title(across, row)));
        let mut grid = vec![vec![None; columns.len()]; depths.len()];
        for row in self.of_model(part, model) {
            let place = depths.iter().position(|depth| *depth == row[down].text);
            let column = columns.iter().position(|column| *column == self.title(across, row));
            if let (Some(place), Some(column), Some(point)) = (place, column, point_of(&row[value])) {
                let interval = point.interval.filter(|_| self.numbers(value).range().is_some());
                let detail = interval.map_or_else(String::new, |(lo, hi)| format!("{lo:.0}–{hi:.0}"));
                grid[place][column] = Some(GridCell { value: point.value, detail });
            }
        }
        CellGrid { title: self.frame.short_name(model), rows: depths, columns, cells: grid, end: None }
    }

    pub(super) fn columns_grid(
        &self,
        down: &str,
        across: &str,
        scale: &str,
        heading: &FigureHeading<'_>,
    ) -> Result<Option<Figure>> {
        let Some(down) = self.place(down) else { return Ok(None) };
        let models = self.models();
        let mut rows = Vec::new();
        for part in self.parts(&self.other_keys(&[down])) {
            let grids = models.iter().map(|model| self.columns_of(&part, model, down)).collect();
            rows.push(CellRow { heading: part.title, grids });
        }
        let y_label = &self.table.columns[down].heading;
        let scale = CellScale { label: scale, end: None, decimals: 1, x_label: across, y_label };
        (!rows.is_empty()).then(|| cells(&rows, heading, &scale)).transpose()
    }

    /// The numbers of a model in all columns that are no keys.
    fn columns_of(&self, part: &Part<'_>, model: &str, down: usize) -> CellGrid {
        let columns = self.table.columns.iter().enumerate();
        let columns: Vec<_> = columns.filter(|(_, column)| column.role == ColumnRole::Result).collect();
        let mut grid = CellGrid {
            title: self.frame.short_name(model),
            rows: Vec::new(),
            columns: columns.iter().map(|(_, column)| column.heading.clone()).collect(),
            cells: Vec::new(),
            end: None,
        };
        for row in self.of_model(part, model) {
            grid.rows.push(row[down].text.clone());
            grid.cells.push(columns.iter().map(|(place, _)| grid_cell(&row[*place])).collect());
        }
        grid
    }

    /// All scores of heads. Several of them have colours of their own, as they have different units.
    pub(super) fn heads(&self, heading: &FigureHeading<'_>) -> Result<Option<Figure>> {
        let layer_and_head = self.place(Column::Layer.name()).zip(self.place(Column::Head.name()));
        let Some((layer, head)) = layer_and_head else { return Ok(None) };
        let columns = self.table.columns.iter().enumerate();
        let scores: Vec<_> = columns.filter(|(_, column)| column.role == ColumnRole::Result).collect();
        let mut rows = Vec::new();
        for &(place, column) in &scores {
            for mut row in self.grids_of_heads(layer, head, place) {
                if scores.len() > 1 {
                    let largest = row.grids.iter().map(CellGrid::largest).fold(0.0, f64::max);
                    let score = format!("{}, largest {}", column.heading, short(Some(largest)));
                    row.heading = joined(&score, &row.heading);
                    row.grids.iter_mut().for_each(|grid| grid.end = Some(largest).filter(|largest| *largest > 0.0));
                }
                rows.push(row);
            }
        }
        let label = match scores.as_slice() {
            [(_, column)] => &column.heading,
            _ => "number, of the largest of its score",
        };
        (!rows.is_empty()).then(|| cells(&side_by_side(rows), heading, &CellScale::of_heads(label))).transpose()
    }

    /// A row of grids for each part: a score of the heads of each model that has it.
    fn grids_of_heads(&self, layer: usize, head: usize, score: usize) -> Vec<CellRow> {
        let mut rows = Vec::new();
        for part in self.parts(&self.other_keys(&[layer, head])) {
            let mut grids = Vec::new();
            for model in &self.models() {
                let numbers = self.of_model(&part, model).filter_map(|row| {
                    let at = HeadPlace { layer: row[layer].exact? as usize, head: row[head].exact? as usize };
                    Some((at, point_of(&row[score]).map(|point| point.value)))
                });
                let numbers: Vec<_> = numbers.collect();
                if numbers.iter().any(|(_, number)| number.is_some()) {
                    grids.push(CellGrid::of_heads(self.frame.short_name(model), numbers));
                }
            }
            if !grids.is_empty() {
                rows.push(CellRow { heading: part.title, grids });
            }
        }
        rows
    }
}

/// The number of a cell of a table, if it has one.
fn grid_cell(cell: &Cell) -> Option<GridCell> {
    point_of(cell).map(|point| GridCell { value: point.value, detail: String::new() })
}

/// Rows of one model, beside each other with their headings as titles; those of several as they are.
fn side_by_side(rows: Vec<CellRow>) -> Vec<CellRow> {
    let first = &rows[0].grids[0].title;
    if rows.len() == 1 || rows.iter().flat_map(|row| &row.grids).any(|grid| grid.title != *first) {
        return rows;
    }
    let model = first.clone();
    let mut grids = Vec::new();
    for CellRow { heading, grids: of_score } in rows {
        grids.extend(of_score.into_iter().map(|grid| CellGrid { title: heading.clone(), ..grid }));
    }
    vec![CellRow { heading: model, grids }]
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;
    use crate::results::table::{key_column, numbers, numbers_in, Table};
    use crate::results::Frame;
    use names::metric::Kind;

    #[test]
    fn a_grid_has_a_cell_where_there_is_a_number() {
        let table = table(|_, tokens, needles| (tokens / 512 + needles) as f64 / 4.0);
        let frame = Frame::default();
        let rows = DrawnRows::of(&frame, &table);
        let part = &rows.parts(&[])[0];
        let grid = rows.grid_of(part, "b", 2, &[1], 4);
        assert_eq!(
            (grid.rows, grid.columns),
            (vec!["1".into(), "2".into()], vec!["512 tokens".into(), "256 tokens".into()])
        );
        let values: Vec<Vec<f64>> =
            grid.cells.iter().map(|row| row.iter().flatten().map(|cell| cell.value).collect()).collect();
        assert_eq!(values, [[25.0, 12.5], [37.5, 25.0]]);
        assert_eq!(grid.cells[0][0].as_ref().unwrap().detail, "0–100");
    }

    #[test]
    fn a_grid_of_columns_has_the_numbers_of_each_row() {
        let columns = vec![key_column(Column::Model), key_column(Column::Rows), numbers("prose"), numbers("needle")];
        let row = |model: &str, rows: &str, numbers: [Option<f64>; 2]| {
            let [prose, needle] = numbers.map(|n| n.map_or_else(Cell::none, |n| Cell::value(Kind::Number, n, None)));
            vec![Cell::words(model), Cell::words(rows), prose, needle]
        };
        let rows = vec![
            row("a", "value", [Some(0.5), Some(-15.0)]),
            row("a", "answer", [None, Some(2.0)]),
            row("b", "value", [Some(1.0), None]),
        ];
        let table = Table::plain(columns, rows);
        let frame = Frame::default();
        let rows = DrawnRows::of(&frame, &table);
        let grid = rows.columns_of(&rows.parts(&[])[0], "a", 1);
        assert_eq!(
            (grid.rows, grid.columns),
            (vec!["value".into(), "answer".into()], vec!["prose".into(), "needle".into()])
        );
        let values: Vec<Vec<Option<f64>>> = grid
            .cells
            .iter()
            .map(|row| row.iter().map(|cell| cell.as_ref().map(|cell| cell.value)).collect())
            .collect();
        assert_eq!(values, [[Some(0.5), Some(-15.0)], [None, Some(2.0)]]);
    }

    #[test]
    fn every_score_of_heads_is_a_row_of_grids_without_the_models_that_lack_it() {
        let columns = vec![
            key_column(Column::Model),
            key_column(Column::Layer),
            key_column(Column::Head),
            numbers_in("retrieval", "%").named("of needles"),
            numbers_in("sink", "%"),
        ];
        let row = |model: &str, sink: Cell| {
            let score = Cell::value(Kind::Share, 0.5, None);
            vec![Cell::words(model), Cell::count(0), Cell::count(1), score, sink]
        };
        let table = Table::plain(columns, vec![row("a", Cell::none()), row("b", Cell::count(1))]);
        let frame = Frame::default();
        let rows = DrawnRows::of(&frame, &table);
        let heading = FigureHeading { title: "Heads", ..FigureHeading::default() };
        assert!(rows.heads(&heading).unwrap().is_some());
        let models =
            |score| rows.grids_of_heads(1, 2, score)[0].grids.iter().map(|grid| grid.title.clone()).collect::<Vec<_>>();
        assert_eq!([models(3), models(4)], [vec!["a".to_owned(), "b".into()], vec!["b".into()]]);
    }

    #[test]
    fn the_scores_of_one_model_are_beside_each_other() {
        let grid = |title: &str| CellGrid::of_heads(title.into(), []);
        let rows = |models: [&str; 2]| {
            let row = |model| CellRow { heading: format!("of {model}"), grids: vec![grid(model)] };
            side_by_side(models.map(row).into()).iter().map(|row| row.grids.len()).collect::<Vec<_>>()
        };
        assert_eq!((rows(["a", "a"]), rows(["a", "b"])), (vec![2], vec![1, 1]));
    }
}
