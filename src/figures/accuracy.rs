//! Heat maps of exact-match accuracy by depth and context length or setting.

use super::colour::{self, FAINT_INK, MISSING};
use super::colourbar::ColourBar;
use super::figure::{Area, Figure, FigureHeading};
use super::text::{Anchor, TextFormat, AXIS_LABEL, PANEL_TITLE, TICK};
use crate::base::names::distinct;
use anyhow::Result;

/// Accuracy of one model in one setting.
#[derive(Clone, Debug)]
pub struct AccuracyPanel {
    /// The model.
    pub model: String,
    /// Needles in the text and needles asked for, for example `N=4 R=2`.
    pub setting: String,
    /// Share of the context that distractors fill, in percent, if several shares are compared.
    pub distractors_pct: Option<f64>,
    /// Context lengths in tokens: the columns.
    pub ctx_tok: Vec<usize>,
    /// Depths of the needle in percent: the rows, from the top.
    pub depths_pct: Vec<f64>,
    /// `accuracy[depth][context]`; `None` where nothing was measured.
    pub accuracy: Vec<Vec<Option<Hits>>>,
}

impl AccuracyPanel {
    /// The setting with the share of distractors.
    fn full_setting(&self) -> String {
        let share = self.distractors_pct.map_or_else(String::new, |share| format!(" {share}%"));
        self.setting.clone() + &share
    }
}

/// Accuracy on some prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hits {
    /// Share of prompts that are answered exactly.
    pub accuracy: f64,
    /// 95 % interval of the accuracy.
    pub interval: (f64, f64),
    /// Number of prompts.
    pub n: usize,
}

const LEFT: f64 = 136.0;
/// Room for the colour bar.
const RIGHT: f64 = 196.0;
const BETWEEN: (f64, f64) = (56.0, 28.0);
const PANEL_TITLE_HEIGHT: f64 = 46.0;
/// Least room for ticks and label below a grid.
const BELOW: f64 = 100.0;
const TICK_LINE: f64 = 28.0;
const CELL_MAX_WIDTH: f64 = 168.0;
const CELL_MIN_WIDTH: f64 = 40.0;
/// Least width of a grid, and the least of one with a long title.
const GRID_MIN_WIDTH: (f64, f64) = (340.0, 620.0);
const CELL_MIN_HEIGHT: f64 = 70.0;
/// Least height of a grid, so that the colour bar and its label fit.
const GRID_MIN_HEIGHT: f64 = 250.0;
/// Gap between cells.
const SEAM: f64 = 3.0;
const CELL: TextFormat = TextFormat::new(23.0, Anchor::Middle).bold();
/// The interval and the number of prompts below the accuracy.
const DETAIL: TextFormat = TextFormat::new(16.0, Anchor::Middle);

/// One heat map, ready to draw.
#[derive(Clone, Debug, PartialEq)]
struct AccuracyGrid {
    title: String,
    detail: String,
    columns: Vec<String>,
    column_label: &'static str,
    /// `cells[row][column]`.
    cells: Vec<Vec<Option<Hits>>>,
}

impl AccuracyGrid {
    /// Lines of the names of its columns: one, or one for each word where they are too wide.
    fn tick_lines(&self, cell_width: f64) -> usize {
        let is_wide = self.columns.iter().any(|column| TICK.width(column) > cell_width - 12.0);
        let words = self.columns.iter().map(|column| column.split(' ').count()).max();
        if is_wide {
            words.unwrap_or(1)
        } else {
            1
        }
    }
}

/// Draws at least one panel, all with the same depths: models side by side, and settings one below the other, or as columns if there is only one context
/// length.
///
/// # Errors
/// If the figure would be too large.
pub fn accuracy(panels: &[AccuracyPanel], heading: &FigureHeading) -> Result<Figure> {
    let depths = &panels[0].depths_pct;
    let layout = if one_context(panels) { by_setting(panels) } else { by_context(panels) };

    let across: Vec<usize> = widest(&layout);
    let gaps = BETWEEN.0 * (across.len() - 1) as f64;
    let columns = across.iter().sum::<usize>() as f64;
    let least = title_width(&layout).clamp(GRID_MIN_WIDTH.0, GRID_MIN_WIDTH.1);
    let most = CELL_MAX_WIDTH.max(least * across.len() as f64 / columns);
    let room = heading.page.room() - LEFT - RIGHT - gaps;
    let cell_width = (room / columns).clamp(CELL_MIN_WIDTH, most).floor();
    let cell_height = CELL_MIN_HEIGHT.max(GRID_MIN_HEIGHT / depths.len() as f64).floor();
    let grid_height = cell_height * depths.len() as f64;
    let ticks = layout.iter().flatten().map(|grid| grid.tick_lines(cell_width)).max().unwrap_or(1);
    let below = BELOW.max(2.0 * AXIS_LABEL.em + TICK_LINE * ticks as f64);
    let row_height = PANEL_TITLE_HEIGHT + grid_height + below + BETWEEN.1;
    let content = cell_width * columns + gaps;
    let body_height = row_height * layout.len() as f64;
    let (mut figure, top) = Figure::headed(heading, LEFT + content + RIGHT, body_height)?;

    for (i, row) in layout.iter().enumerate() {
        let y = top + PANEL_TITLE_HEIGHT + row_height * i as f64;
        draw_depths(&mut figure, y, depths, cell_height);
        let mut x = LEFT;
        for (grid, &columns) in row.iter().zip(&across) {
            draw_grid(&mut figure, grid, (x, y), (cell_width, cell_height));
            x += cell_width * columns as f64 + BETWEEN.0;
        }
    }
    let area = Area { x: LEFT + content + 48.0, y: top + PANEL_TITLE_HEIGHT, width: 26.0, height: grid_height };
    let ticks = [0, 25, 50, 75, 100].map(|percent| (f64::from(percent) / 100.0, percent.to_string()));
    ColourBar { area, ticks: &ticks, label: "exact match (%)", note: "" }.draw(&mut figure, colour::sequential);
    Ok(figure)
}

/// Returns `true` if all panels have the same single context length, so that settings become the columns.
fn one_context(panels: &[AccuracyPanel]) -> bool {
    panels.iter().all(|panel| panel.ctx_tok == panels[0].ctx_tok[..1])
}

/// Arranges models side by side, each as a heat map of depth × setting.
fn by_setting(panels: &[AccuracyPanel]) -> Vec<Vec<AccuracyGrid>> {
    let column_label = match panels.iter().any(|panel| panel.distractors_pct.is_some()) {
        true => "needles N, asked for R, distractors",
        false => "needles N, asked for R",
    };
    let grid = |model: &String| {
        let own: Vec<&AccuracyPanel> = panels.iter().filter(|panel| panel.model == *model).collect();
        AccuracyGrid {
            title: model.clone(),
            detail: format!("{} tokens", tokens(panels[0].ctx_tok[0])),
            columns: own.iter().map(|panel| panel.full_setting()).collect(),
            column_label,
            cells: (0..panels[0].depths_pct.len())
                .map(|i| own.iter().map(|panel| panel.accuracy[i][0]).collect())
                .collect(),
        }
    };
    vec![distinct(panels.iter().map(|panel| &panel.model)).iter().map(grid).collect()]
}

/// Arranges models side by side and settings one below the other, each as a heat map of depth × context length.
fn by_context(panels: &[AccuracyPanel]) -> Vec<Vec<AccuracyGrid>> {
    let grid = |panel: &AccuracyPanel| AccuracyGrid {
        title: panel.model.clone(),
        detail: panel.full_setting(),
        columns: panel.ctx_tok.iter().map(|&length| tokens(length)).collect(),
        column_label: "context length (tokens)",
        cells: panel.accuracy.clone(),
    };
    let settings = distinct(panels.iter().map(AccuracyPanel::full_setting));
    let row = |setting: &String| panels.iter().filter(|panel| panel.full_setting() == *setting).map(grid).collect();
    settings.iter().map(row).collect()
}

/// Returns the largest number of columns of any grid, for each position across.
fn widest(layout: &[Vec<AccuracyGrid>]) -> Vec<usize> {
    let columns = |place: usize| layout.iter().map(move |row| row[place].columns.len());
    (0..layout[0].len()).map(|place| columns(place).max().unwrap_or(1)).collect()
}

/// Returns the width of the widest title.
fn title_width(layout: &[Vec<AccuracyGrid>]) -> f64 {
    layout.iter().flatten().map(|grid| PANEL_TITLE.width(&grid.title)).fold(0.0, f64::max)
}

fn draw_grid(figure: &mut Figure, grid: &AccuracyGrid, (left, top): (f64, f64), cell: (f64, f64)) {
    let (cell_width, cell_height) = cell;
    let width = cell_width * grid.columns.len() as f64;
    figure.panel_title((left, top - 28.0), &grid.title, &grid.detail, width);
    for (i, row) in grid.cells.iter().enumerate() {
        for (j, &accuracy) in row.iter().enumerate() {
            let (x, y) = (left + cell_width * j as f64, top + cell_height * i as f64);
            draw_cell(figure, Area { x, y, width: cell_width - SEAM, height: cell_height - SEAM }, accuracy);
        }
    }
    draw_columns(figure, grid, (left, top + cell_height * grid.cells.len() as f64), cell_width);
}

/// Draws the axis below a grid. Where column names are too wide, each of their words has a line.
fn draw_columns(figure: &mut Figure, grid: &AccuracyGrid, (left, y): (f64, f64), cell_width: f64) {
    let lines = grid.tick_lines(cell_width);
    for (j, column) in grid.columns.iter().enumerate() {
        let middle = left + cell_width * (j as f64 + 0.5) - SEAM / 2.0;
        let words = if lines > 1 { column.split(' ').collect() } else { vec![column.as_str()] };
        for (i, word) in words.into_iter().enumerate() {
            figure.text((middle, y + 20.0 + TICK_LINE * i as f64), &TICK.fit(word, cell_width), TICK);
        }
    }
    let width = cell_width * grid.columns.len() as f64 - SEAM;
    let label = AXIS_LABEL.fit(grid.column_label, width + BETWEEN.0 - 12.0);
    figure.text((left + width / 2.0, y + 28.0 + TICK_LINE * lines as f64), &label, AXIS_LABEL);
}

/// Draws a cell: the accuracy, and below it the interval and the number of prompts if they fit.
fn draw_cell(figure: &mut Figure, area: Area, hits: Option<Hits>) {
    let Some(Hits { accuracy, interval: (low, high), n }) = hits.filter(|hits| hits.accuracy.is_finite()) else {
        figure.fill(area, MISSING);
        return figure.text(area.centre(), "–", CELL.in_colour(FAINT_INK));
    };
    let ground = colour::sequential(accuracy);
    let ink = colour::text_on(ground);
    figure.fill(area, ground);
    let (x, y) = area.centre();
    let (interval, n) = (format!("{:.0}–{:.0}", 100.0 * low, 100.0 * high), format!("n={n}"));
    let fits = |text: &str| DETAIL.width(text) <= area.width - 8.0;
    let both = format!("{interval} · {n}");
    let details = [vec![both], vec![interval, n]].into_iter().find(|lines| lines.iter().all(|line| fits(line)));
    let details = details.unwrap_or_default();
    let top = y - 10.0 * details.len() as f64;
    figure.text((x, top), &format!("{:.0}", 100.0 * accuracy), CELL.in_colour(ink));
    for (i, line) in details.iter().enumerate() {
        figure.text((x, top + 25.0 + 19.0 * i as f64), line, DETAIL.in_colour(ink));
    }
}

/// Draws the depth axis, left of a row of grids.
fn draw_depths(figure: &mut Figure, top: f64, depths_pct: &[f64], cell_height: f64) {
    for (i, depth) in depths_pct.iter().enumerate() {
        let middle = top + cell_height * (i as f64 + 0.5) - SEAM / 2.0;
        let depth = format!("{}", (depth * 10.0).round() / 10.0);
        figure.text((LEFT - 14.0, middle), &depth, TICK.at(Anchor::Right));
    }
    let middle = top + cell_height * depths_pct.len() as f64 / 2.0;
    figure.text((50.0, middle), "depth of the needle (%)", AXIS_LABEL.at(Anchor::Upward));
}

/// Formats a number of tokens as on the command line: 512, 4k.
fn tokens(n: usize) -> String {
    if n > 0 && n.is_multiple_of(1024) {
        format!("{}k", n / 1024)
    } else {
        n.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: Hits = Hits { accuracy: 0.25, interval: (0.09, 0.53), n: 12 };

    fn panel(model: &str, setting: &str, ctx_tok: &[usize]) -> AccuracyPanel {
        AccuracyPanel {
            model: model.into(),
            setting: setting.into(),
            distractors_pct: None,
            ctx_tok: ctx_tok.into(),
            depths_pct: vec![0.0, 50.0],
            accuracy: vec![vec![Some(QUARTER); ctx_tok.len()], vec![None; ctx_tok.len()]],
        }
    }

    #[test]
    fn with_one_context_length_the_settings_are_the_columns() {
        let panels = ["a", "b"].map(|model| ["N=1", "N=2"].map(|setting| panel(model, setting, &[4096]))).concat();
        assert!(one_context(&panels));
        let layout = by_setting(&panels);
        let [_, b] = &layout[0][..] else { panic!("{layout:?}") };
        assert_eq!(b.cells, [[Some(QUARTER), Some(QUARTER)], [None, None]]);
        assert_eq!(b.columns, ["N=1", "N=2"]);
    }

    #[test]
    fn shares_of_distractors_are_columns_with_a_line_of_their_own() {
        let shares =
            [0.0, 2.5].map(|share| AccuracyPanel { distractors_pct: Some(share), ..panel("a", "N=1 R=1", &[4096]) });
        let grid = &by_setting(&shares)[0][0];
        assert_eq!(grid.columns, ["N=1 R=1 0%", "N=1 R=1 2.5%"]);
        assert_eq!((grid.tick_lines(CELL_MIN_WIDTH), grid.tick_lines(2.0 * CELL_MAX_WIDTH)), (3, 1));
    }

    #[test]
    fn with_several_context_lengths_the_settings_are_rows_of_panels() {
        let panels = ["a", "b"].map(|model| ["N=1", "N=2"].map(|setting| panel(model, setting, &[512, 1024]))).concat();
        assert!(!one_context(&panels));
        let layout = by_context(&panels);
        assert_eq!((layout.len(), layout[0].len()), (2, 2));
        assert_eq!(layout[0][0].columns, ["512", "1k"]);
        assert_eq!((layout[1][1].title.as_str(), layout[1][1].detail.as_str()), ("b", "N=2"));
    }
}
