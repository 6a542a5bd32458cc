//! Forest plots: differences with their intervals, one below the other, about a line at zero.

use super::axis::{draw_axes, draw_x_label, extent, x_label_room, Axis, BELOW, LABEL_LINE};
use super::colour::{FAINT_INK, INK, PAPER};
use super::figure::{Area, Figure, FigureHeading, Page, MARGIN};
use super::legend::{Legend, LegendSymbol, LineStyle, LineStyles};
use super::lines::PointEstimate;
use super::panel_title::PanelTitle;
use super::text::{Anchor, TextFormat, TICK};
use anyhow::{ensure, Result};
use names::distinct;
use plotters::style::RGBColor;

/// Differences of one quantity, on one axis.
#[derive(Clone, Debug)]
pub struct ForestPanel {
    /// The quantity, for example `share_abs[answer]`.
    pub title: String,
    /// Its unit; empty for pure numbers.
    pub unit: String,
    /// The differences, from the top.
    pub rows: Vec<ForestRow>,
}

/// One difference.
#[derive(Clone, Debug)]
pub struct ForestRow {
    /// Label left of it, for example `ctx_tok=4096`. It is drawn once for rows below each other that share it.
    pub label: String,
    /// Name of its series, for example `diff`, which has the same colour and marker in all panels.
    pub series: String,
    /// The difference and its interval.
    pub difference: PointEstimate,
    /// Text right of it, for example the numbers.
    pub text: String,
}

/// Least and largest width of a plot, and the least one with numbers beside it.
const PLOT_WIDTH: (f64, f64) = (150.0, 620.0);
const WITH_NUMBERS: f64 = 240.0;
/// Distance between the plot and the texts beside it, and between plots side by side.
const GAP: f64 = 22.0;
const BETWEEN: f64 = 40.0;
/// Largest width of a label, and its part of a page of given width.
const LABEL_WIDTH: (f64, f64) = (640.0, 0.36);
/// Height of a row, and on a page that is full.
const ROW: (f64, f64) = (38.0, 20.0);
/// Space above the first row and below the last one.
const PADDING: f64 = 8.0;
/// Distance of a panel from the next below it.
const BELOW_PANEL: f64 = 18.0;
const WHISKER: f64 = 3.0;
/// Half the height of a cap.
const CAP: f64 = 6.0;
const MARKER: f64 = 13.0;
/// Distance of an arrow from the frame, and its length.
const ARROW: (f64, f64) = (8.0, 14.0);
/// How much farther than the others the first row reaches that is drawn as an arrow, and the farthest of these at least.
const GAP_IN_REACH: f64 = 2.0;
const FAR: f64 = 4.0;

const LABEL: TextFormat = TICK.at(Anchor::Right);
const TEXT: TextFormat = TICK.at(Anchor::Left).in_colour(FAINT_INK);

/// Draws the panels: side by side if their rows have the same names and there is room, otherwise one below the other.
/// `x_label` is, for example, `difference from transformer`.
///
/// # Errors
/// If there is nothing to draw, a number is not finite, or the sheet is too large.
pub fn forest(panels: &[ForestPanel], heading: &FigureHeading, x_label: &str) -> Result<Figure> {
    let rows: Vec<&ForestRow> = panels.iter().flat_map(|panel| &panel.rows).collect();
    ensure!(!rows.is_empty(), "no differences to draw");
    // Where their names tell rows apart, colours would tell nothing.
    let are_named = rows.iter().all(|row| row.label == row.series);
    let names = if are_named { vec![String::new()] } else { distinct(rows.iter().map(|row| &row.series)) };
    let series = LineStyles::new(names.clone(), &names, heading.models);
    let mut layout = ForestLayout::new(panels, &heading.page);
    let width = layout.width();
    let in_legend = if series.names.len() == 1 { &LineStyles::none() } else { &series };
    let legend = Legend::of_lines(in_legend, LegendSymbol::Marker, width.max(heading.page.room()) - 2.0 * MARGIN);
    let titles: Vec<PanelTitle> =
        panels.iter().map(|panel| PanelTitle::new(&panel.title, &panel.unit, layout.pitch() - BETWEEN)).collect();
    let plots = layout.pitch() * layout.across as f64 - BETWEEN;
    let below = BELOW + x_label_room(x_label, plots) + BELOW_PANEL;
    let lines: Vec<&[ForestPanel]> = panels.chunks(layout.across).collect();
    let beside_rows = lines.len() as f64 * (PanelTitle::highest(&titles) + 2.0 * PADDING + below);
    let rows_down: usize = lines.iter().map(|line| line[0].rows.len()).sum();
    let room = heading.room_below(width) - legend.height() - beside_rows;
    layout.row = layout.row.min(room / rows_down as f64).max(ROW.1);
    let body = legend.height() + beside_rows + layout.row * rows_down as f64;
    let (mut figure, mut y) = Figure::headed(heading, width, body)?;
    legend.draw(&mut figure, (MARGIN, y));
    y += legend.height();
    for (line, titles) in lines.iter().zip(titles.chunks(layout.across)) {
        y += PanelTitle::highest(titles);
        let height = layout.row * line[0].rows.len() as f64 + 2.0 * PADDING;
        layout.draw_labels(&mut figure, &line[0], y);
        for (i, (panel, title)) in line.iter().zip(titles).enumerate() {
            let area = Area { x: layout.left + layout.pitch() * i as f64, y, width: layout.plot, height };
            title.draw(&mut figure, (area.x, y));
            layout.draw_panel(&mut figure, panel, area, &series)?;
        }
        draw_x_label(&mut figure, Area { x: layout.left, y, width: plots, height }, x_label, 0.0);
        y += height + below;
    }
    Ok(figure)
}

/// Sizes of panels.
struct ForestLayout {
    /// Panels side by side.
    across: usize,
    /// Left edge of the first plot.
    left: f64,
    /// Largest width of a label.
    labels: f64,
    /// Width of a plot.
    plot: f64,
    /// Room for the numbers right of a plot; none on a narrow page, where the whiskers say them.
    numbers: f64,
    /// Height of a row.
    row: f64,
}

impl ForestLayout {
    fn new(panels: &[ForestPanel], page: &Page) -> Self {
        let rows = || panels.iter().flat_map(|panel| &panel.rows);
        let labels = page.width_mm.map_or(LABEL_WIDTH.0, |_| LABEL_WIDTH.1 * page.room());
        let lines = rows().flat_map(|row| LABEL.wrap(&row.label, labels));
        let left = MARGIN + lines.map(|line| LABEL.width(&line)).fold(0.0, f64::max) + GAP;
        let room = |across: usize| (page.room() - left - MARGIN + BETWEEN) / across as f64 - BETWEEN;
        let names =
            |panel: &ForestPanel| panel.rows.iter().map(|row| (row.label.clone(), row.series.clone())).collect();
        let all_names: Vec<Vec<(String, String)>> = panels.iter().map(names).collect();
        let is_beside = all_names.iter().all(|names| *names == all_names[0]) && room(panels.len()) >= PLOT_WIDTH.0;
        let across = if is_beside { panels.len() } else { 1 };
        let numbers = GAP + rows().map(|row| TEXT.width(&row.text)).fold(0.0, f64::max);
        let numbers = if room(across) - numbers >= WITH_NUMBERS { numbers } else { 0.0 };
        let plot = (room(across) - numbers).clamp(PLOT_WIDTH.0, PLOT_WIDTH.1);
        let mut row = ROW.0;
        for rows in panels.iter().flat_map(|panel| panel.rows.chunk_by(|a, b| a.label == b.label)) {
            let lines = LABEL.wrap(&rows[0].label, labels).len();
            row = row.max((LABEL_LINE * lines as f64 + PADDING) / rows.len() as f64);
        }
        Self { across, left, labels, plot, numbers, row }
    }

    /// The distance from one plot to the next.
    fn pitch(&self) -> f64 {
        self.plot + self.numbers + BETWEEN
    }

    fn width(&self) -> f64 {
        self.left + self.pitch() * self.across as f64 - BETWEEN + MARGIN
    }

    /// The middle of the `i`-th row of a panel that begins at `top`.
    fn middle(&self, top: f64, i: usize) -> f64 {
        top + PADDING + self.row * (i as f64 + 0.5)
    }

    /// Draws the labels of rows, once for rows below each other that share it.
    fn draw_labels(&self, figure: &mut Figure, panel: &ForestPanel, top: f64) {
        let mut first = 0;
        for rows in panel.rows.chunk_by(|a, b| a.label == b.label) {
            let lines = LABEL.wrap(&rows[0].label, self.labels);
            let middle = (self.middle(top, first) + self.middle(top, first + rows.len() - 1)) / 2.0;
            for (i, line) in lines.iter().enumerate() {
                let y = middle + LABEL_LINE * (i as f64 - (lines.len() - 1) as f64 / 2.0);
                figure.text((self.left - GAP, y), line, LABEL);
            }
            first += rows.len();
        }
    }

    /// Draws the differences of a panel about zero.
    fn draw_panel(&self, figure: &mut Figure, panel: &ForestPanel, area: Area, series: &LineStyles) -> Result<()> {
        let axis = x_axis(panel)?;
        draw_axes(figure, area, &axis, &Axis::categories(panel.rows.len()));
        figure.fill(Area { x: area.x + area.width * axis.place(0.0) - 1.25, width: 2.5, ..area }, INK);
        for (i, row) in panel.rows.iter().enumerate() {
            let y = self.middle(area.y, i);
            let (_, LineStyle { colour, marker, .. }) = series.style(&row.series);
            if self.numbers > 0.0 {
                figure.text((area.right() + GAP, y), &row.text, TEXT);
            }
            let [x, low, high] = row.difference.extent().map(|number| area.x + area.width * axis.place(number));
            let [left, right] = [low, high].map(|end| end.clamp(area.x, area.right()));
            if row.difference.interval.is_some() && left < right {
                figure.line(&[(left, y), (right, y)], colour, WHISKER);
                for x in [low, high].into_iter().filter(|end| (area.x..=area.right()).contains(end)) {
                    figure.line(&[(x, y - CAP), (x, y + CAP)], colour, WHISKER);
                }
            }
            if (area.x..=area.right()).contains(&x) {
                figure.marker((x, y), marker, MARKER, colour);
            } else {
                self.draw_beyond(figure, row, area, (x, y), colour);
            }
        }
        Ok(())
    }

    /// Draws an arrow at the end of the axis for a difference that lies beyond it, with its number if none stands beside the plot.
    fn draw_beyond(&self, figure: &mut Figure, row: &ForestRow, area: Area, (x, y): (f64, f64), colour: RGBColor) {
        let (tip, sign, anchor) = if x < area.x {
            (area.x + ARROW.0, 1.0, Anchor::Left)
        } else {
            (area.right() - ARROW.0, -1.0, Anchor::Right)
        };
        let base = tip + sign * ARROW.1;
        figure.polygon(&[(tip, y), (base, y - CAP), (base, y + CAP)], colour);
        if self.numbers == 0.0 {
            // The line at zero does not go through it.
            let start = base + sign * ARROW.0;
            let width = TEXT.width(&row.text);
            let left = if sign > 0.0 { start } else { start - width };
            figure.fill(Area { x: left, y: y - TEXT.em / 2.0, width, height: TEXT.em }, PAPER);
            figure.text((start, y), &row.text, TEXT.at(anchor));
        }
    }
}

/// The largest magnitude on the axis: that of all rows, or, where a third of them at most lies far beyond the others, that of these.
fn reach(panel: &ForestPanel) -> f64 {
    let of_row = |row: &ForestRow| row.difference.extent().into_iter().map(f64::abs).fold(0.0, f64::max);
    let mut reaches: Vec<f64> = panel.rows.iter().map(of_row).collect();
    reaches.sort_by(f64::total_cmp);
    let largest = reaches.last().copied().unwrap_or(0.0);
    let most = (2 * reaches.len()).div_ceil(3).max(1);
    let is_gap = |pair: &&[f64]| pair[1] >= GAP_IN_REACH * pair[0] && pair[0] > 0.0 && largest >= FAR * pair[0];
    reaches.windows(2).skip(most - 1).find(is_gap).map_or(largest, |pair| pair[0])
}

/// An axis that contains zero and all intervals, but for those far beyond the others.
fn x_axis(panel: &ForestPanel) -> Result<Axis> {
    let mut numbers: Vec<f64> = panel.rows.iter().flat_map(|row| row.difference.extent()).collect();
    numbers.push(0.0);
    ensure!(numbers.iter().all(|number| number.is_finite()), "{}: a difference is not finite", panel.title);
    let reach = reach(panel);
    numbers.retain(|number| number.abs() <= reach);
    let (lo, hi) = extent(numbers)?;
    // Only zeros: an axis about them.
    let (lo, hi) = if lo == hi { (-1.0, 1.0) } else { (lo, hi) };
    Ok(Axis::linear(lo, hi, true).with_margin())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(differences: &[(f64, Option<(f64, f64)>)]) -> ForestPanel {
        let row = |&(value, interval): &(f64, Option<(f64, f64)>)| ForestRow {
            label: "ctx_tok=4096".into(),
            series: "diff".into(),
            difference: PointEstimate { value, interval },
            text: "+0.1".into(),
        };
        ForestPanel { title: "accuracy".into(), unit: "fraction".into(), rows: differences.iter().map(row).collect() }
    }

    #[test]
    fn the_axis_holds_zero_and_the_whiskers() {
        // Between margins of the same size: from 0 to 0.5, and to 0.
        let axis = x_axis(&panel(&[(0.3, Some((0.12, 0.48)))])).unwrap();
        let margin = axis.place(0.0);
        assert!(margin > 0.0 && (axis.place(0.5) - (1.0 - margin)).abs() < 1e-12, "{axis:?}");
        let axis = x_axis(&panel(&[(-0.3, None)])).unwrap();
        assert!(axis.place(-0.3) >= margin && (axis.place(0.0) - (1.0 - margin)).abs() < 1e-12, "{axis:?}");
    }

    #[test]
    fn few_rows_far_beyond_the_others_do_not_stretch_the_axis() {
        let far = x_axis(&panel(&[(0.2, None), (-0.1, None), (0.3, Some((0.1, 0.5))), (-28.0, None)])).unwrap();
        assert!(far.place(0.5) < 1.0 && far.place(-0.1) > 0.0 && far.place(-28.0) < 0.0, "{far:?}");
        for near in [&[(0.2, None), (0.3, None), (-0.9, None)][..], &[(0.2, None), (-9.0, None), (-8.0, None)]] {
            let axis = x_axis(&panel(near)).unwrap();
            assert!(near.iter().all(|&(value, _)| (0.0..=1.0).contains(&axis.place(value))), "{axis:?}");
        }
    }

    #[test]
    fn zeros_are_drawn_in_the_middle() {
        assert_eq!(x_axis(&panel(&[(0.0, Some((0.0, 0.0)))])).unwrap().place(0.0), 0.5);
    }

    #[test]
    fn panels_of_the_same_rows_are_side_by_side_where_there_is_room() {
        let two = [panel(&[(0.3, Some((0.1, 0.5)))]), panel(&[(-2.0, None)])];
        let other = [panel(&[(0.3, Some((0.1, 0.5)))]), panel(&[(-2.0, None), (1.0, Some((0.0, 2.0)))])];
        let layout = |panels: &[ForestPanel], width_mm| {
            let layout = ForestLayout::new(panels, &Page { width_mm, ..Page::default() });
            (layout.across, layout.numbers > 0.0)
        };
        assert_eq!([None, Some(84.0), Some(60.0)].map(|mm| layout(&two, mm)), [(2, true), (2, false), (1, false)]);
        assert_eq!(layout(&other, None), (1, true));
        for panels in [two, other] {
            assert!(forest(&panels, &FigureHeading::default(), "difference").is_ok());
        }
    }

    #[test]
    fn differences_that_cannot_be_drawn_are_errors() {
        let refusal = |panels: &[ForestPanel]| forest(panels, &FigureHeading::default(), "").err().unwrap().to_string();
        assert!(refusal(&[]).contains("no differences") && refusal(&[panel(&[])]).contains("no differences"));
        assert!(refusal(&[panel(&[(f64::NAN, None)])]).contains("not finite"));
        assert!(refusal(&[panel(&[(0.3, None); 200_000])]).contains("larger than"));
    }
}
