//! Grids of coloured cells with numbers, on one colour scale: heads by layer, accuracy by depth and length.

use super::axis::{draw_x_label, CategoryLabels, LABEL_LINE};
use super::colour::{self, FAINT_INK, MISSING};
use super::colour_scale::{draw_colour_bar, FittedScale, BAR_ROOM};
use super::figure::{Area, Figure, FigureHeading};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use crate::attention::HeadPlace;
use anyhow::Result;
use std::collections::BTreeMap;

/// One grid.
#[derive(Clone, Debug)]
pub struct CellGrid {
    /// The title, for example the model.
    pub title: String,
    /// Detail after the title; may be empty.
    pub detail: String,
    /// Labels of the rows, from the top.
    pub rows: Vec<String>,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// `cells[row][column]`; `None` where nothing was measured.
    pub cells: Vec<Vec<Option<GridCell>>>,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct GridCell {
    /// The number in the displayed unit, for example percent.
    pub value: f64,
    /// Text below the number if it fits, for example its interval; may be empty.
    pub detail: String,
}

impl CellGrid {
    /// A grid of layers × heads from numbers of heads, with gaps where there is none.
    pub fn of_heads(model: String, numbers: impl IntoIterator<Item = (HeadPlace, Option<f64>)>) -> Self {
        let numbers: BTreeMap<_, _> = numbers.into_iter().collect();
        let layers = numbers.keys().map(|at| at.layer + 1).max().unwrap_or(0);
        let heads = numbers.keys().map(|at| at.head + 1).max().unwrap_or(0);
        let mut cells = vec![vec![None; heads]; layers];
        for (at, number) in numbers {
            cells[at.layer][at.head] = number.map(|value| GridCell { value, detail: String::new() });
        }
        let [rows, columns] = [layers, heads].map(|n| (0..n).map(|i| i.to_string()).collect());
        Self { title: model, detail: String::new(), rows, columns, cells }
    }

    fn numbers(&self) -> impl Iterator<Item = &GridCell> {
        self.cells.iter().flatten().flatten().filter(|cell| cell.value.is_finite())
    }
}

/// Axes and colour scale of grids.
#[derive(Clone, Copy, Debug)]
pub struct CellScale<'a> {
    /// Name and unit of the numbers, for example `share of |attention| (%)`.
    pub label: &'a str,
    /// The number with the last colour, which no number exceeds; `None` to take it from the numbers.
    pub end: Option<f64>,
    /// Most decimals of a number; it has fewer where they do not fit.
    pub decimals: usize,
    /// Label of the columns, for example `head`.
    pub x_label: &'a str,
    /// Label of the rows, for example `layer`.
    pub y_label: &'a str,
}

impl<'a> CellScale<'a> {
    /// The scale of grids of layers × heads.
    pub fn of_heads(label: &'a str) -> Self {
        Self { label, end: None, decimals: 2, x_label: "head", y_label: "layer" }
    }
}

const MARGIN: f64 = 44.0;
const BETWEEN: (f64, f64) = (56.0, 28.0);
const TITLE_HEIGHT: f64 = 46.0;
/// Least room for the title of a grid.
const MIN_WIDTH: f64 = 340.0;
/// Labels of one line below a grid, and the label of the columns.
const BELOW: f64 = 84.0;
/// Room left of row labels for the label of the rows.
const LEFT: f64 = 64.0;
/// Least and largest width and height of a cell.
const CELL: ((f64, f64), (f64, f64)) = ((12.0, 76.0), (12.0, 50.0));
/// Least and largest width and height of a cell with details.
const DETAILED_CELL: ((f64, f64), (f64, f64)) = ((64.0, 168.0), (62.0, 62.0));
/// Height of a cell over its width.
const CELL_SHAPE: f64 = 0.7;
/// Narrower cells have a smaller gap.
const NARROW: f64 = 24.0;
const NUMBER: TextFormat = TextFormat::new(19.0, Anchor::Middle);
const DETAIL: TextFormat = TextFormat::new(16.0, Anchor::Middle);
/// Distance of a detail from the number above it.
const DETAIL_LINE: f64 = 24.0;

/// Draws rows of grids: at least one grid. Rows are labelled left of the first grid, and of those with other rows than
/// the grid before. The colours are symmetric about zero if any number is negative.
///
/// # Errors
/// If the figure would be too large.
pub fn cells(rows: &[Vec<CellGrid>], heading: &FigureHeading, scale: &CellScale) -> Result<Figure> {
    let room = heading.page.room();
    let fitting = ((room - 2.0 * MARGIN - LEFT) / (MIN_WIDTH + BETWEEN.0)).max(1.0) as usize;
    // On a page of given width, grids that do not fit begin another row.
    let most = heading.page.width_mm.map_or(usize::MAX, |_| fitting);
    let rows: Vec<&[CellGrid]> = rows.iter().flat_map(|row| row.chunks(most)).collect();
    let style = CellStyle::new(&rows, room, scale);
    let heights: Vec<f64> = rows.iter().map(|row| style.row_height(row)).collect();
    let across = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut lefts = Vec::new();
    let mut width = MARGIN;
    for place in 0..across {
        let labels = rows.iter().filter(|row| has_labels(row, place)).map(|row| label_width(&row[place]));
        let widths = rows.iter().filter_map(|row| row.get(place)).map(|grid| style.width(grid).max(MIN_WIDTH));
        width += labels.fold(0.0, f64::max);
        lefts.push(width);
        width += widths.fold(0.0, f64::max) + BETWEEN.0;
    }
    width += MARGIN - BETWEEN.0;
    let subtitle = heading.subtitle_with(&[style.fitted.note()]);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let (mut figure, top) = Figure::headed(&heading, width, BAR_ROOM + heights.iter().sum::<f64>())?;

    draw_colour_bar(&mut figure, &style.fitted, scale.label, (MARGIN, top), width - 2.0 * MARGIN);
    let mut y = top + BAR_ROOM + TITLE_HEIGHT;
    for (row, height) in rows.iter().zip(heights) {
        for (place, (grid, &left)) in row.iter().zip(&lefts).enumerate() {
            style.draw(&mut figure, grid, (left, y), scale.x_label);
            if has_labels(row, place) {
                style.draw_row_labels(&mut figure, grid, (left, y), scale.y_label);
            }
        }
        y += height;
    }
    Ok(figure)
}

/// Returns `true` if the rows of a grid have labels.
fn has_labels(row: &[CellGrid], place: usize) -> bool {
    place < row.len() && (place == 0 || row[place].rows != row[place - 1].rows)
}

/// Returns the width of the labels of rows.
fn label_width(grid: &CellGrid) -> f64 {
    LEFT + grid.rows.iter().map(|row| TICK.width(row)).fold(0.0, f64::max)
}

/// Size and colours of the cells of all grids.
struct CellStyle {
    /// Width and height of a cell, in whole pixels.
    cell: (f64, f64),
    fitted: FittedScale,
    /// Decimals of the numbers in the cells; `None` for cells without numbers.
    decimals: Option<usize>,
}

impl CellStyle {
    fn new(rows: &[&[CellGrid]], room: f64, scale: &CellScale) -> Self {
        let grids = || rows.iter().copied().flatten();
        let numbers = || grids().flat_map(CellGrid::numbers).map(|cell| cell.value);
        let mut fitted = FittedScale::linear(numbers().any(|number| number < 0.0), numbers());
        if let Some(end) = scale.end {
            fitted = fitted.ending_at(end);
        }
        let has_details = grids().flat_map(CellGrid::numbers).any(|cell| !cell.detail.is_empty());
        let mut room_of_cell = f64::INFINITY;
        for row in rows {
            let columns: usize = row.iter().map(|grid| grid.columns.len()).sum();
            let labels = (0..row.len()).filter(|&place| has_labels(row, place)).map(|place| label_width(&row[place]));
            let beside = 2.0 * MARGIN + labels.sum::<f64>() + BETWEEN.0 * (row.len() - 1) as f64;
            room_of_cell = room_of_cell.min((room - beside) / columns as f64);
        }
        let columns = grids().map(|grid| grid.columns.len()).max().unwrap_or(1) as f64;
        let (widths, heights) = if has_details { DETAILED_CELL } else { CELL };
        let width = room_of_cell.max(MIN_WIDTH / columns).clamp(widths.0, widths.1).floor();
        let height = (CELL_SHAPE * width).clamp(heights.0, heights.1).floor();
        let decimals = decimals(numbers(), width, scale.decimals);
        Self { cell: (width, height), fitted, decimals }
    }

    fn width(&self, grid: &CellGrid) -> f64 {
        self.cell.0 * grid.columns.len() as f64
    }

    fn height(&self, grid: &CellGrid) -> f64 {
        self.cell.1 * grid.rows.len() as f64
    }

    /// Returns the distance from one row of grids to the next.
    fn row_height(&self, row: &[CellGrid]) -> f64 {
        let heights = row.iter().map(|grid| {
            let lines = CategoryLabels::new(&grid.columns).lines;
            self.height(grid) + LABEL_LINE * (lines - 1) as f64
        });
        TITLE_HEIGHT + heights.fold(0.0, f64::max) + BELOW + BETWEEN.1
    }

    /// Draws a grid with its title and the labels of its columns.
    fn draw(&self, figure: &mut Figure, grid: &CellGrid, (left, top): (f64, f64), x_label: &str) {
        let (width, height) = self.cell;
        let room = self.width(grid).max(MIN_WIDTH);
        figure.panel_title((left, top - 28.0), &grid.title, &grid.detail, room);
        let seam = if width < NARROW { 1.0 } else { 2.0 };
        for (i, row) in grid.cells.iter().enumerate() {
            for (j, cell) in row.iter().enumerate() {
                let x = left + width * j as f64;
                let y = top + height * i as f64;
                self.draw_cell(figure, cell.as_ref(), Area { x, y, width: width - seam, height: height - seam });
            }
        }
        let below = Area { x: left, y: top, width: self.width(grid), height: self.height(grid) };
        let labels = CategoryLabels::new(&grid.columns);
        labels.draw(figure, below);
        draw_x_label(figure, below, &AXIS_LABEL.fit(x_label, room + BETWEEN.0), labels.lines);
    }

    /// Draws the labels of rows, as many as fit.
    fn draw_row_labels(&self, figure: &mut Figure, grid: &CellGrid, (left, top): (f64, f64), y_label: &str) {
        let height = self.cell.1;
        let step = ((TICK.em + 4.0) / height).ceil().max(1.0) as usize;
        for (i, row) in grid.rows.iter().enumerate().step_by(step.next_power_of_two()) {
            figure.text((left - 12.0, top + height * (i as f64 + 0.5)), row, TICK.at(Anchor::Right));
        }
        let x = left - label_width(grid) + TICK.em;
        figure.text((x, top + self.height(grid) / 2.0), y_label, AXIS_LABEL.at(Anchor::Upward));
    }

    /// Draws a cell: the number, and below it the detail if that fits.
    fn draw_cell(&self, figure: &mut Figure, cell: Option<&GridCell>, area: Area) {
        let Some(GridCell { value, detail }) = cell.filter(|cell| cell.value.is_finite()) else {
            figure.fill(area, MISSING);
            if self.decimals.is_some() {
                figure.text(area.centre(), "–", NUMBER.in_colour(FAINT_INK));
            }
            return;
        };
        let ground = self.fitted.colour(*value);
        let ink = colour::text_on(ground);
        figure.fill(area, ground);
        let Some(decimals) = self.decimals else { return };
        let (x, y) = area.centre();
        let has_detail = !detail.is_empty() && DETAIL.width(detail) <= area.width - 8.0;
        let top = if has_detail { y - DETAIL_LINE / 2.0 } else { y };
        figure.text((x, top), &printed(*value, decimals), NUMBER.in_colour(ink));
        if has_detail {
            figure.text((x, top + DETAIL_LINE), detail, DETAIL.in_colour(ink));
        }
    }
}

/// Returns the number of decimals, at most `most`, with which all numbers fit into their cells; `None` if they do not
/// fit at all.
fn decimals(numbers: impl Iterator<Item = f64>, cell_width: f64, most: usize) -> Option<usize> {
    let numbers: Vec<f64> = numbers.collect();
    let largest = numbers.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
    let fewest = if largest < 1.0 { most } else { 0 };
    let most = if largest < 10.0 { most } else { most.min(1) };
    (fewest..=most)
        .rev()
        .find(|decimals| numbers.iter().all(|number| NUMBER.width(&printed(*number, *decimals)) <= cell_width - 12.0))
}

/// Formats a number with a minus sign, except for zero.
fn printed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|byte| matches!(byte, b'0' | b'.')) => zero.to_owned(),
        Some(magnitude) => format!("−{magnitude}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_where_they_fit() {
        let decimals = |numbers: &[f64], width: f64| decimals(numbers.iter().copied(), width, 2);
        assert_eq!(decimals(&[12.34, 1.0], 76.0), Some(1));
        assert_eq!(decimals(&[12.34, 1.0], 40.0), Some(0));
        assert_eq!(decimals(&[0.123], 76.0), Some(2));
        assert_eq!(decimals(&[12.34], 20.0), None);
        assert_eq!([-0.04, -0.06, 0.0].map(|x| printed(x, 1)), ["0.0", "−0.1", "0.0"]);
    }

    #[test]
    fn grids_with_different_heads_and_gaps_can_be_drawn() {
        let small = [((0, 0), Some(1.0)), ((0, 2), Some(f64::NAN)), ((1, 0), Some(-2.0))]
            .map(|((layer, head), number)| (HeadPlace { layer, head }, number));
        let large = HeadPlace::all(32, 32).map(|at| (at, Some(3.0)));
        let row = vec![CellGrid::of_heads("diff".into(), small), CellGrid::of_heads("big".into(), large)];
        assert_eq!((row[0].rows.len(), row[0].columns.len(), &row[0].cells[0][1]), (2, 3, &None));
        let shorter = row[..1].to_vec();
        assert!(cells(&[row, shorter], &FigureHeading::default(), &CellScale::of_heads("%")).is_ok());
    }
}
