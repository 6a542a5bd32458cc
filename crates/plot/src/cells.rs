//! Grids of coloured cells with numbers, on one colour scale: heads by layer, accuracy by depth and length.

use super::axis::{draw_x_label, CategoryLabels, BELOW};
use super::colour::{self, AXIS, FAINT_INK, MISSING};
use super::colour_scale::{draw_colour_bar, FittedScale, BAR_ROOM};
use super::figure::{Area, Figure, FigureHeading, MARGIN};
use super::panel_title::PanelTitle;
use super::text::{Anchor, TextFormat, AXIS_LABEL, PANEL_DETAIL, PANEL_TITLE, TICK};
use anyhow::Result;
use names::HeadPlace;
use std::collections::BTreeMap;

/// Grids side by side.
#[derive(Clone, Debug)]
pub struct CellRow {
    /// The common heading, drawn above them; may be empty.
    pub heading: String,
    pub grids: Vec<CellGrid>,
}

/// One grid.
#[derive(Clone, Debug)]
pub struct CellGrid {
    /// The title, for example the model.
    pub title: String,
    /// Labels of the rows, from the top.
    pub rows: Vec<String>,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// `cells[row][column]`; `None` where nothing was measured.
    pub cells: Vec<Vec<Option<GridCell>>>,
    /// The magnitude with the last colour; `None` for that of the figure's scale.
    pub end: Option<f64>,
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
        Self { title: model, rows, columns, cells, end: None }
    }

    /// The largest magnitude.
    pub fn largest(&self) -> f64 {
        self.numbers().map(|cell| cell.value.abs()).fold(0.0, f64::max)
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

const BETWEEN: (f64, f64) = (40.0, 14.0);
/// Least width of a grid, and of one with a long word in its title.
const LEAST_WIDTH: (f64, f64) = (120.0, 340.0);
/// Height of the heading of a row.
const HEADING: f64 = 34.0;
/// Room left of row labels for the label of the rows.
const LEFT: f64 = 40.0;
/// Least and largest width of a cell, and its largest height.
const CELL: ((f64, f64), f64) = ((10.0, 76.0), 50.0);
/// Least and largest width of a cell with details, and its largest height.
const DETAILED_CELL: ((f64, f64), f64) = ((62.0, 168.0), 62.0);
/// How much wider cells may be on a page of given width.
const STRETCH: f64 = 2.5;
/// Height of a cell over its width, and its least height, of one with a number, and of one with a number and a detail.
const CELL_SHAPE: f64 = 0.7;
const LEAST_HEIGHT: (f64, f64, f64) = (3.0, 22.0, 46.0);
/// Distance of the labels of rows, at least.
const LABEL_LINE: f64 = TICK.em + 4.0;
/// Narrower cells have a smaller gap.
const NARROW: f64 = 24.0;
const NUMBER: TextFormat = TextFormat::new(19.0, Anchor::Middle);
const DETAIL: TextFormat = TextFormat::new(16.0, Anchor::Middle);
/// Distance of a detail from the number above it.
const DETAIL_LINE: f64 = 24.0;

/// Draws rows of grids: at least one grid. On a page of given width, grids that do not fit begin another row. Rows of a grid
/// are labelled left of the first one and of those with other rows than the grid before, titles and columns where they are
/// others than those of the grids above or below. The colours are symmetric about zero if any number is negative.
///
/// # Errors
/// If the figure would be too large.
pub fn cells(rows: &[CellRow], heading: &FigureHeading, scale: &CellScale) -> Result<Figure> {
    let style = CellStyle::new(rows, heading, scale);
    let width = style.layout.width;
    let note = if style.has_own_ends() { "" } else { style.fitted.note() };
    let subtitle = heading.subtitle_with(&[note]);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let heights = style.layout.rows.iter().map(|row| row.above + style.height(row.grids) + row.below);
    let (mut figure, top) = Figure::headed(&heading, width, BAR_ROOM + heights.sum::<f64>())?;
    let bar = if style.has_own_ends() { style.fitted.clone().ending_at(1.0) } else { style.fitted.clone() };
    draw_colour_bar(&mut figure, &bar, scale.label, (MARGIN, top), width - 2.0 * MARGIN);
    let mut y = top + BAR_ROOM;
    for row in &style.layout.rows {
        y += row.above;
        style.draw_row(&mut figure, row, y, scale);
        y += style.height(row.grids) + row.below;
    }
    Ok(figure)
}

/// Grids that are drawn side by side.
struct GridRow<'a> {
    heading: &'a str,
    grids: &'a [CellGrid],
    /// The titles, unless they are those of the row above.
    titles: Vec<PanelTitle>,
    /// `true` if the columns are labelled here, and not in the row below.
    has_columns: bool,
    /// Room above and below the cells.
    above: f64,
    below: f64,
}

/// Places of the grids.
struct CellLayout<'a> {
    rows: Vec<GridRow<'a>>,
    /// Left edges of the grids.
    lefts: Vec<f64>,
    width: f64,
}

impl<'a> CellLayout<'a> {
    /// Arranges rows of grids with cells of this width.
    fn new(rows: &[(&'a str, &'a [CellGrid])], cell: f64) -> Self {
        let across = rows.iter().map(|(_, grids)| grids.len()).max().unwrap_or(0);
        let mut lefts = Vec::new();
        let mut width = MARGIN;
        for place in 0..across {
            let labels = rows.iter().filter(|(_, row)| has_labels(row, place)).map(|(_, row)| label_width(&row[place]));
            let widths = rows.iter().filter_map(|(_, row)| row.get(place)).map(|grid| grid_width(grid, cell));
            width += labels.fold(0.0, f64::max);
            lefts.push(width);
            width += widths.fold(0.0, f64::max) + BETWEEN.0;
        }
        width += MARGIN - BETWEEN.0;
        let mut arranged: Vec<GridRow<'a>> = Vec::new();
        for (i, &(heading, grids)) in rows.iter().enumerate() {
            let before = i.checked_sub(1).map(|before| rows[before].1);
            let is_titled = before.is_none_or(|before| !have_same(before, grids, |grid| &grid.title));
            let title = |grid: &CellGrid| PanelTitle::new(&grid.title, "", grid_width(grid, cell) + BETWEEN.0 / 2.0);
            let titles: Vec<PanelTitle> = grids.iter().filter(|_| is_titled).map(title).collect();
            let has_columns = rows.get(i + 1).is_none_or(|(_, after)| {
                !have_same(after, grids, |grid| &grid.columns) || !have_same(after, grids, |grid| &grid.title)
            });
            let above = PanelTitle::highest(&titles) + if heading.is_empty() { 0.0 } else { HEADING };
            let labels =
                grids.iter().map(|grid| CategoryLabels::new(&grid.columns).room(cell * grid.columns.len() as f64));
            let below = if has_columns { BELOW + labels.fold(0.0, f64::max) } else { 0.0 } + BETWEEN.1;
            arranged.push(GridRow { heading, grids, titles, has_columns, above, below });
        }
        Self { rows: arranged, lefts, width }
    }
}

/// Breaks rows so that grids with the narrowest cells fit into `room`.
fn broken(rows: &[CellRow], cell: f64, room: f64) -> Vec<(&str, &[CellGrid])> {
    let mut all: Vec<(&str, &[CellGrid])> = Vec::new();
    for CellRow { heading, grids } in rows {
        let mut from = 0;
        for to in 2..=grids.len() {
            if to - from > 1 && CellLayout::new(&[(heading, &grids[from..to])], cell).width > room {
                all.push((heading, &grids[from..to - 1]));
                from = to - 1;
            }
        }
        all.push((heading, &grids[from..]));
    }
    all
}

fn have_same<T: PartialEq>(a: &[CellGrid], b: &[CellGrid], of: fn(&CellGrid) -> &T) -> bool {
    a.iter().map(of).eq(b.iter().map(of))
}

/// Returns `true` if the rows of a grid have labels.
fn has_labels(row: &[CellGrid], place: usize) -> bool {
    place < row.len() && (place == 0 || row[place].rows != row[place - 1].rows)
}

/// The width of the labels of rows.
fn label_width(grid: &CellGrid) -> f64 {
    LEFT + grid.rows.iter().map(|row| TICK.width(row)).fold(0.0, f64::max) + 12.0
}

/// The width of a grid, or of its title if that is wider.
fn grid_width(grid: &CellGrid, cell: f64) -> f64 {
    let title = PANEL_TITLE.widest_word(&grid.title).clamp(LEAST_WIDTH.0, LEAST_WIDTH.1);
    (cell * grid.columns.len() as f64).max(title)
}

/// Size and colours of the cells of all grids.
struct CellStyle<'a> {
    layout: CellLayout<'a>,
    /// Width and height of a cell, in whole pixels.
    cell: (f64, f64),
    fitted: FittedScale,
    /// Most decimals of a number.
    decimals: usize,
}

impl<'a> CellStyle<'a> {
    fn new(rows: &'a [CellRow], heading: &FigureHeading, scale: &CellScale) -> Self {
        let grids = || rows.iter().flat_map(|row| &row.grids);
        let numbers = || grids().flat_map(CellGrid::numbers).map(|cell| cell.value);
        let mut fitted = FittedScale::linear(numbers().any(|number| number < 0.0), numbers());
        if let Some(end) = scale.end {
            fitted = fitted.ending_at(end);
        }
        let has_details = grids().flat_map(CellGrid::numbers).any(|cell| !cell.detail.is_empty());
        let ((least, most), highest) = if has_details { DETAILED_CELL } else { CELL };
        let room = heading.page.room();
        let rows = broken(rows, least, heading.page.width_mm.map_or(f64::INFINITY, |_| room));
        // A page of given width is filled.
        let mut width = heading.page.width_mm.map_or(most, |_| STRETCH * most);
        while width > least && CellLayout::new(&rows, width).width > room {
            width -= 1.0;
        }
        let layout = CellLayout::new(&rows, width);
        let beside: f64 = layout.rows.iter().map(|row| row.above + row.below).sum();
        let down: usize = layout.rows.iter().map(|row| most_rows(row.grids)).sum();
        let height = (heading.room_below(layout.width) - BAR_ROOM - beside) / down as f64;
        // Numbers can be left out of labels, but names cannot.
        let has_names = grids().flat_map(|grid| &grid.rows).any(|label| label.parse::<f64>().is_err());
        let lowest = if has_names { LABEL_LINE } else { LEAST_HEIGHT.0 };
        let height = height.min(CELL_SHAPE * width).clamp(lowest, highest).floor();
        let height = if has_details { height.max(highest.min(LEAST_HEIGHT.2)) } else { height };
        Self { layout, cell: (width, height), fitted, decimals: scale.decimals }
    }

    /// Returns `true` if grids have colours of their own, as fractions of their largest number.
    fn has_own_ends(&self) -> bool {
        self.layout.rows.iter().flat_map(|row| row.grids).any(|grid| grid.end.is_some())
    }

    /// The height of grids side by side.
    fn height(&self, grids: &[CellGrid]) -> f64 {
        self.cell.1 * most_rows(grids) as f64
    }

    /// Draws grids side by side whose cells begin at `top`.
    fn draw_row(&self, figure: &mut Figure, row: &GridRow<'_>, top: f64, scale: &CellScale) {
        let numbers = row.grids.iter().flat_map(CellGrid::numbers).map(|cell| cell.value);
        let decimals = decimals(numbers, self.cell.0, self.decimals).filter(|_| self.cell.1 >= LEAST_HEIGHT.1);
        figure.text((self.layout.lefts[0], top - HEADING / 2.0), row.heading, PANEL_DETAIL);
        let above = top - if row.heading.is_empty() { 0.0 } else { HEADING };
        for (place, (grid, &left)) in row.grids.iter().zip(&self.layout.lefts).enumerate() {
            if let Some(title) = row.titles.get(place) {
                title.draw(figure, (left, above));
            }
            self.draw_cells(figure, grid, (left, top), decimals);
            let height = self.cell.1 * grid.rows.len() as f64;
            let area = Area { x: left, y: top, width: self.cell.0 * grid.columns.len() as f64, height };
            figure.frame(area, AXIS, 1.0);
            if row.has_columns {
                let labels = CategoryLabels::new(&grid.columns);
                labels.draw(figure, area);
                draw_x_label(figure, area, scale.x_label, labels.room(area.width));
            }
            if has_labels(row.grids, place) {
                self.draw_row_labels(figure, grid, (left, top), scale.y_label);
            }
        }
    }

    fn draw_cells(&self, figure: &mut Figure, grid: &CellGrid, (left, top): (f64, f64), decimals: Option<usize>) {
        let (width, height) = self.cell;
        let fitted = grid.end.map_or(self.fitted.clone(), |end| self.fitted.clone().ending_at(end));
        let seam = if width.min(height) < NARROW { 1.0 } else { 2.0 };
        for (i, row) in grid.cells.iter().enumerate() {
            for (j, cell) in row.iter().enumerate() {
                let x = left + width * j as f64;
                let y = top + height * i as f64;
                let area = Area { x, y, width: width - seam, height: height - seam };
                draw_cell(figure, cell.as_ref(), area, &fitted, decimals);
            }
        }
    }

    /// Draws the labels of rows, as many as fit.
    fn draw_row_labels(&self, figure: &mut Figure, grid: &CellGrid, (left, top): (f64, f64), y_label: &str) {
        let height = self.cell.1;
        let step = (LABEL_LINE / height).ceil().max(1.0) as usize;
        for (i, row) in grid.rows.iter().enumerate().step_by(step.next_power_of_two()) {
            figure.text((left - 12.0, top + height * (i as f64 + 0.5)), row, TICK.at(Anchor::Right));
        }
        let x = left - label_width(grid) + TICK.em;
        let middle = top + height * grid.rows.len() as f64 / 2.0;
        figure.text((x, middle), y_label, AXIS_LABEL.at(Anchor::Upward));
    }
}

/// The rows of the highest of some grids.
fn most_rows(grids: &[CellGrid]) -> usize {
    grids.iter().map(|grid| grid.rows.len()).max().unwrap_or(0)
}

/// Draws a cell: the number with these decimals, and below it the detail if that fits.
fn draw_cell(figure: &mut Figure, cell: Option<&GridCell>, area: Area, fitted: &FittedScale, decimals: Option<usize>) {
    let Some(GridCell { value, detail }) = cell.filter(|cell| cell.value.is_finite()) else {
        figure.fill(area, MISSING);
        if decimals.is_some() {
            figure.text(area.centre(), "–", NUMBER.in_colour(FAINT_INK));
        }
        return;
    };
    let ground = fitted.colour(*value);
    let ink = colour::text_on(ground);
    figure.fill(area, ground);
    let Some(decimals) = decimals else { return };
    let (x, y) = area.centre();
    let fits = DETAIL.width(detail) <= area.width - 2.0 && area.height >= LEAST_HEIGHT.2 - 2.0;
    let has_detail = !detail.is_empty() && fits;
    let top = if has_detail { y - DETAIL_LINE / 2.0 } else { y };
    figure.text((x, top), &printed(*value, decimals), NUMBER.in_colour(ink));
    if has_detail {
        figure.text((x, top + DETAIL_LINE), detail, DETAIL.in_colour(ink));
    }
}

/// The number of decimals, at most `most`, with which all numbers fit into their cells; `None` if they do not
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
    use super::super::figure::Page;
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
        let grids = vec![CellGrid::of_heads("diff".into(), small), CellGrid::of_heads("big".into(), large)];
        assert_eq!((grids[0].rows.len(), grids[0].columns.len(), &grids[0].cells[0][1]), (2, 3, &None));
        assert_eq!(grids[0].largest(), 2.0);
        let shorter = CellRow { heading: "less".into(), grids: grids[..1].to_vec() };
        let row = CellRow { heading: String::new(), grids };
        assert!(cells(&[row, shorter], &FigureHeading::default(), &CellScale::of_heads("%")).is_ok());
    }

    /// Scores of the heads of three models: rows of grids.
    fn scores(count: usize, layers: usize, heads: usize) -> Vec<CellRow> {
        let numbers = || HeadPlace::all(layers, heads).map(|at| (at, Some(0.5)));
        let grids = ["transformer", "diff", "diff-v2"].map(|model| CellGrid::of_heads(model.into(), numbers()));
        (0..count).map(|i| CellRow { heading: format!("score {i}"), grids: grids.to_vec() }).collect()
    }

    #[test]
    fn few_columns_are_wider_on_a_page_of_given_width() {
        let width = |width_mm| {
            let page = Page { width_mm, ..Page::default() };
            let heading = FigureHeading { page, ..FigureHeading::default() };
            CellStyle::new(&scores(1, 5, 1), &heading, &CellScale::of_heads("%")).layout.width / page.room()
        };
        assert!(width(Some(84.0)) > 0.95 && width(None) < 0.5, "{} {}", width(Some(84.0)), width(None));
    }

    #[test]
    fn grids_fill_a_page_and_say_once_what_they_share() {
        let shape = |rows: &[CellRow], width_mm: f64| {
            let page = Page { width_mm: Some(width_mm), ..Page::default() };
            let style =
                CellStyle::new(rows, &FigureHeading { page, ..FigureHeading::default() }, &CellScale::of_heads("%"));
            let rows = &style.layout.rows;
            assert!(style.layout.width <= page.room(), "{} of {}", style.layout.width, page.room());
            let titled = rows.iter().filter(|row| !row.titles.is_empty()).count();
            (rows.len(), titled, rows.iter().filter(|row| row.has_columns).count())
        };
        assert_eq!(shape(&scores(9, 4, 8), 84.0), (9, 1, 1));
        assert_eq!(shape(&scores(9, 30, 9), 84.0), (9, 1, 1));
        assert_eq!(shape(&scores(2, 32, 32), 84.0), (6, 6, 6), "one model beside the other has no room");
        for rows in [scores(9, 4, 8), scores(9, 30, 9), scores(2, 32, 32)] {
            for width_mm in [84.0, 170.0] {
                let page = Page { width_mm: Some(width_mm), ..Page::default() };
                let heading = FigureHeading { title: "Heads", page, ..FigureHeading::default() };
                let figure = cells(&rows, &heading, &CellScale::of_heads("%")).unwrap();
                assert_eq!(figure.page.mm(figure.width, figure.height), width_mm, "as high as a page at most");
            }
        }
    }
}
