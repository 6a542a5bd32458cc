//! Forest plots: differences with their intervals, one below the other, about a line at zero.

use super::axis::{extent, Axis};
use super::colour::{AXIS, FAINT_INK, GRID, INK};
use super::curve_style::{CurveStyle, CurveStyles};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::{Legend, LegendSymbol};
use super::quality::PointEstimate;
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use crate::base::names::distinct;
use crate::results::view::{difference_cell, group_value};
use crate::results::{Column, Row};
use anyhow::{ensure, Result};

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
    /// Label left of it, for example `ctx_tok=4096`.
    pub label: String,
    /// Name of its series, for example `diff`, which has the same colour and marker in all panels.
    pub series: String,
    /// The difference and its interval.
    pub difference: PointEstimate,
    /// Text right of it, for example the numbers.
    pub text: String,
}

/// Returns a panel for each metric and region of rows, labelled with the groups that tell its rows apart.
pub(crate) fn panels_of(rows: &[Row], groups: &[Column]) -> Vec<ForestPanel> {
    rows.chunk_by(|a, b| a.name() == b.name()).map(|rows| panel_of(rows, groups)).collect()
}

fn panel_of(rows: &[Row], groups: &[Column]) -> ForestPanel {
    let first = &rows[0];
    let value = |row: &Row, column: Column| row.group.get(column.name()).cloned();
    let differs = |column: &Column| rows.iter().any(|row| value(row, *column) != value(first, *column));
    let groups: Vec<Column> = groups.iter().copied().filter(differs).collect();
    let label = first.label();
    let factor = label.kind.factor();
    let row_of = |row: &Row| {
        let values: Vec<String> = groups.iter().filter_map(|&column| group_value(row, column)).collect();
        ForestRow {
            label: if values.is_empty() { row.other.clone() } else { values.join(" · ") },
            series: row.other.clone(),
            difference: PointEstimate::of_difference(&row.difference, factor),
            text: difference_cell(row).line().replace('-', "−"),
        }
    };
    ForestPanel {
        title: label.text.clone(),
        unit: label.difference_unit().to_owned(),
        rows: rows.iter().map(row_of).collect(),
    }
}

const LEFT: f64 = 44.0;
const RIGHT: f64 = 44.0;
const PLOT_WIDTH: (f64, f64) = (240.0, 620.0);
/// Distance between the plot and the texts beside it.
const GAP: f64 = 22.0;
const LABEL_MAX_WIDTH: f64 = 460.0;
const TEXT_MAX_WIDTH: f64 = 520.0;
const TITLE_HEIGHT: f64 = 50.0;
const ROW: f64 = 38.0;
/// Space above the first row and below the last one.
const PADDING: f64 = 8.0;
/// Numbers and label below a panel, and the gap to the next.
const BELOW: f64 = 104.0;
const WHISKER: f64 = 3.0;
const CAP_HEIGHT: f64 = 12.0;
const MARKER: f64 = 13.0;

const LABEL: TextFormat = TextFormat { anchor: Anchor::Right, ..TICK };
const TEXT: TextFormat = TextFormat { anchor: Anchor::Left, ..TICK }.in_colour(FAINT_INK);

/// Draws the panels one below the other. `x_label` is, for example, `difference from transformer`.
///
/// # Errors
/// If there is nothing to draw, a number is not finite, or the sheet is too large.
pub fn forest(panels: &[ForestPanel], heading: &FigureHeading, x_label: &str) -> Result<Figure> {
    ensure!(panels.iter().any(|panel| !panel.rows.is_empty()), "no differences to draw");
    let rows = || panels.iter().flat_map(|panel| &panel.rows);
    let widest = |kind: TextFormat, text: fn(&ForestRow) -> &str, most: f64| {
        rows().map(|row| kind.width(text(row))).fold(0.0, f64::max).min(most)
    };
    let label_width = widest(LABEL, |row| &row.label, LABEL_MAX_WIDTH);
    let text_width = widest(TEXT, |row| &row.text, TEXT_MAX_WIDTH);
    let x = LEFT + label_width + GAP;
    let beside = x + GAP + text_width + RIGHT;
    let plot_width = (heading.page.room() - beside).clamp(PLOT_WIDTH.0, PLOT_WIDTH.1);
    let width = beside + plot_width;
    let series = CurveStyles::new(distinct(rows().map(|row| &row.series)));
    let alone = series.names().len() == 1;
    let in_legend = if alone { &CurveStyles::new(Vec::new()) } else { &series };
    let legend = Legend::of_curves(in_legend, LegendSymbol::MarkedLine, width - LEFT - RIGHT);
    let body = |panel: &ForestPanel| ROW * panel.rows.len() as f64 + 2.0 * PADDING;
    let height = legend.height() + panels.iter().map(|panel| TITLE_HEIGHT + body(panel) + BELOW).sum::<f64>();
    let (mut figure, top) = Figure::headed(heading, width, height)?;
    legend.draw(&mut figure, (LEFT, top));
    let mut y = top + legend.height();
    for panel in panels {
        let area = Area { x, y: y + TITLE_HEIGHT, width: plot_width, height: body(panel) };
        draw_panel(&mut figure, panel, area, &series, x_label)?;
        y = area.bottom() + BELOW;
    }
    Ok(figure)
}

/// Returns an axis that contains zero and all intervals.
fn x_axis(panel: &ForestPanel) -> Result<Axis> {
    let ends = |row: &ForestRow| {
        let (low, high) = row.difference.interval.unwrap_or((row.difference.value, row.difference.value));
        [low, high]
    };
    let mut numbers: Vec<f64> = panel.rows.iter().flat_map(ends).collect();
    numbers.push(0.0);
    ensure!(numbers.iter().all(|number| number.is_finite()), "{}: a difference is not finite", panel.title);
    let (lo, hi) = extent(&numbers)?;
    // Only zeros: an axis about them.
    let (lo, hi) = if lo == hi { (-1.0, 1.0) } else { (lo, hi) };
    Ok(Axis::linear(lo, hi, true))
}

fn draw_panel(figure: &mut Figure, panel: &ForestPanel, area: Area, series: &CurveStyles, x_label: &str) -> Result<()> {
    let axis = x_axis(panel)?;
    let across = |number: f64| area.x + area.width * axis.place(number);
    figure.panel_title((area.x, area.y - 26.0), &panel.title, &panel.unit, area.width);
    for &tick in &axis.ticks {
        figure.fill(Area { x: across(tick) - 0.75, width: 1.5, ..area }, GRID);
        figure.text((across(tick), area.bottom() + 24.0), &axis.number(tick), TICK);
    }
    figure.frame(area, AXIS, 1.5);
    figure.fill(Area { x: across(0.0) - 1.25, width: 2.5, ..area }, INK);
    figure.text((area.centre().0, area.bottom() + 58.0), x_label, AXIS_LABEL);
    for (i, row) in panel.rows.iter().enumerate() {
        let y = area.y + PADDING + ROW * (i as f64 + 0.5);
        let (_, CurveStyle { colour, marker, .. }) = series.of(&row.series);
        figure.text((area.x - GAP, y), &LABEL.fit(&row.label, LABEL_MAX_WIDTH), LABEL);
        figure.text((area.right() + GAP, y), &TEXT.fit(&row.text, TEXT_MAX_WIDTH), TEXT);
        if let Some((low, high)) = row.difference.interval {
            let (low, high) = (across(low), across(high));
            figure.line(&[(low, y), (high, y)], colour, WHISKER);
            for x in [low, high] {
                figure.line(&[(x, y - CAP_HEIGHT / 2.0), (x, y + CAP_HEIGHT / 2.0)], colour, WHISKER);
            }
        }
        figure.marker((across(row.difference.value), y), marker, MARKER, colour);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::metric::EXACT;

    fn panel(differences: &[(f64, Option<(f64, f64)>)]) -> ForestPanel {
        let row = |&(value, interval): &(f64, Option<(f64, f64)>)| ForestRow {
            label: "ctx_tok=4096".into(),
            series: "diff".into(),
            difference: PointEstimate { value, interval },
            text: "+0.1".into(),
        };
        ForestPanel { title: EXACT.name.into(), unit: "fraction".into(), rows: differences.iter().map(row).collect() }
    }

    #[test]
    fn the_axis_holds_zero_and_the_whiskers() {
        let axis = x_axis(&panel(&[(0.3, Some((0.12, 0.48)))])).unwrap();
        assert_eq!((axis.lo, axis.hi), (0.0, 0.5));
        let axis = x_axis(&panel(&[(-0.3, None)])).unwrap();
        assert!(axis.lo <= -0.3 && axis.hi == 0.0, "{axis:?}");
    }

    #[test]
    fn zeros_are_drawn_in_the_middle() {
        assert_eq!(x_axis(&panel(&[(0.0, Some((0.0, 0.0)))])).unwrap().place(0.0), 0.5);
    }

    #[test]
    fn a_panel_for_each_quantity_is_drawn_below_the_other() {
        let panels = [panel(&[(0.3, Some((0.1, 0.5)))]), panel(&[(-2.0, None), (1.0, Some((0.0, 2.0)))])];
        assert!(forest(&panels, &FigureHeading::default(), "difference").is_ok());
    }

    #[test]
    fn differences_that_cannot_be_drawn_are_errors() {
        let refusal = |panels: &[ForestPanel]| forest(panels, &FigureHeading::default(), "").err().unwrap().to_string();
        assert!(refusal(&[]).contains("no differences") && refusal(&[panel(&[])]).contains("no differences"));
        assert!(refusal(&[panel(&[(f64::NAN, None)])]).contains("not finite"));
        assert!(refusal(&[panel(&[(0.3, None); 200_000])]).contains("larger than"));
    }
}
