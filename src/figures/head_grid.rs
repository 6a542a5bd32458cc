//! One number for each head as a grid of layer × head, models side by side on one colour scale.

use super::colour::{self, MISSING};
use super::colourbar::{draw_scale, scale_width};
use super::colourscale::FittedScale;
use super::figure::{Area, Figure, FigureHeading};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use crate::base::names::ShortNames;
use anyhow::Result;
use std::collections::BTreeMap;

/// The heads of one model.
#[derive(Clone, Debug)]
pub struct HeadGrid {
    /// The model.
    pub model: String,
    /// `values[layer][head]` in the displayed unit, for example percent; `None` where nothing was measured. Layers may
    /// differ in their number of heads.
    pub values: Vec<Vec<Option<f64>>>,
}

/// Label and colour scale of the numbers.
#[derive(Clone, Copy, Debug)]
pub struct HeadScale<'a> {
    /// Name and unit of the numbers, for example `share of |attention| (%)`.
    pub label: &'a str,
    /// The number with the last colour; `None` to take it from the numbers.
    pub end: Option<f64>,
}

impl HeadGrid {
    /// Creates a grid from numbers by (layer, head), with gaps where there is none.
    pub fn of(model: &str, numbers: impl IntoIterator<Item = ((usize, usize), Option<f64>)>) -> Self {
        let numbers: BTreeMap<_, _> = numbers.into_iter().collect();
        let layers = numbers.keys().map(|at| at.0 + 1).max().unwrap_or(0);
        let heads = numbers.keys().map(|at| at.1 + 1).max().unwrap_or(0);
        let value = |layer: usize, head: usize| numbers.get(&(layer, head)).copied().flatten();
        let values = (0..layers).map(|layer| (0..heads).map(|head| value(layer, head)).collect()).collect();
        Self { model: model.to_owned(), values }
    }
}

const MARGIN: f64 = 44.0;
/// Room for the colour bar right of the models.
const BAR_ROOM: f64 = 150.0;
const CELL_WIDTH: (f64, f64) = (12.0, 76.0);
const CELL_HEIGHT: (f64, f64) = (12.0, 50.0);
/// Height of a cell over its width.
const CELL_SHAPE: f64 = 0.7;
/// Least width of a grid, so that its title fits.
const MIN_WIDTH: f64 = 240.0;
const TITLE_HEIGHT: f64 = 46.0;
const BELOW: f64 = 84.0;
/// Room left of a grid for the axis label and numbers.
const LEFT: f64 = 84.0;
const BETWEEN: f64 = 28.0;
const BEFORE_BAR: f64 = 44.0;
const BAR_HEIGHT: (f64, f64) = (260.0, 440.0);
const NUMBER: TextFormat = TextFormat::new(19.0, Anchor::Middle);

/// Draws the models side by side. The scale is symmetric about zero if any number is negative.
///
/// # Errors
/// If the figure would be too large.
pub fn head_grid(grids: &[HeadGrid], heading: &FigureHeading, scale: &HeadScale) -> Result<Figure> {
    let numbers = || grids.iter().flat_map(|grid| &grid.values).flatten().flatten().copied();
    let signed = numbers().any(|number| number < 0.0);
    let mut fitted = FittedScale::fit(signed, false, numbers());
    if let Some(end) = scale.end {
        fitted = fitted.ending_at(end, numbers());
    }
    let cell = cell_size(grids, heading.page.room());
    let style = CellStyle { cell, fitted: &fitted, decimals: decimals(numbers(), cell.0) };

    let height = grids.iter().map(|grid| cell.1 * grid.values.len() as f64).fold(0.0, f64::max);
    let width = |grid: &HeadGrid| (cell.0 * columns(grid) as f64).max(MIN_WIDTH);
    let bar_x = MARGIN - BETWEEN + grids.iter().map(|grid| LEFT + width(grid) + BETWEEN).sum::<f64>() + BEFORE_BAR;
    let bar_height = height.clamp(BAR_HEIGHT.0, BAR_HEIGHT.1).round();
    let body_height = TITLE_HEIGHT + (height + BELOW).max(bar_height + MARGIN);
    let full_width = bar_x + scale_width(&fitted, scale.label, bar_height) + MARGIN / 2.0;
    let (mut figure, top) = Figure::headed(heading, full_width, body_height)?;

    let short = ShortNames::of(grids.iter().map(|grid| &grid.model));
    let mut x = MARGIN - BETWEEN;
    for grid in grids {
        x += LEFT;
        figure.panel_title((x, top + 14.0), short.name(&grid.model), "", width(grid));
        style.draw(&mut figure, grid, (x, top + TITLE_HEIGHT));
        x += width(grid) + BETWEEN;
    }
    draw_scale(&mut figure, (bar_x, top + TITLE_HEIGHT), bar_height, &fitted, scale.label);
    Ok(figure)
}

fn columns(grid: &HeadGrid) -> usize {
    grid.values.iter().map(Vec::len).max().unwrap_or(0)
}

/// Returns the size of a cell in whole pixels, the same for all models.
fn cell_size(grids: &[HeadGrid], room: f64) -> (f64, f64) {
    let room = room - BAR_ROOM - (LEFT + BETWEEN) * grids.len() as f64;
    let width = room / grids.iter().map(columns).sum::<usize>() as f64;
    let width = width.clamp(CELL_WIDTH.0, CELL_WIDTH.1).floor();
    (width, (CELL_SHAPE * width).clamp(CELL_HEIGHT.0, CELL_HEIGHT.1).floor())
}

/// Returns the number of decimals, at most two, with which all numbers fit into their cells; `None` if they do not fit
/// at all.
fn decimals(numbers: impl Iterator<Item = f64>, cell_width: f64) -> Option<usize> {
    let numbers: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
    let largest = numbers.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
    let wanted = match largest {
        10.0.. => 1,
        _ => 2,
    };
    let fewest = if largest < 1.0 { 2 } else { 0 };
    let fits = |decimals: &usize| numbers.iter().all(|x| NUMBER.width(&printed(*x, *decimals)) <= cell_width - 12.0);
    (fewest..=wanted).rev().find(fits)
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

/// Size and colours of the cells of all models.
struct CellStyle<'a> {
    cell: (f64, f64),
    fitted: &'a FittedScale,
    /// Decimals of the numbers in the cells; `None` for cells without numbers.
    decimals: Option<usize>,
}

impl CellStyle<'_> {
    fn draw(&self, figure: &mut Figure, grid: &HeadGrid, (left, top): (f64, f64)) {
        let (width, height) = self.cell;
        let seam = if width < 24.0 { 1.0 } else { 2.0 };
        for (layer, heads) in grid.values.iter().enumerate() {
            for (head, &value) in heads.iter().enumerate() {
                let (x, y) = (left + width * head as f64, top + height * layer as f64);
                self.draw_cell(figure, Area { x, y, width: width - seam, height: height - seam }, value);
            }
        }
        let (layers, heads) = (grid.values.len(), columns(grid));
        for layer in (0..layers).step_by(label_step(TICK.em + 4.0, height)) {
            let y = top + height * (layer as f64 + 0.5);
            figure.text((left - 12.0, y), &layer.to_string(), TICK.at(Anchor::Right));
        }
        let bottom = top + height * layers as f64;
        for head in (0..heads).step_by(label_step(TICK.width("00") + 12.0, width)) {
            figure.text((left + width * (head as f64 + 0.5), bottom + 20.0), &head.to_string(), TICK);
        }
        figure.text((left + width * heads as f64 / 2.0, bottom + 54.0), "head", AXIS_LABEL);
        let upward = AXIS_LABEL.at(Anchor::Upward);
        figure.text((left - 60.0, (top + bottom) / 2.0), "layer", upward);
    }

    fn draw_cell(&self, figure: &mut Figure, area: Area, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return figure.fill(area, MISSING) };
        let ground = self.fitted.colour(value);
        figure.fill(area, ground);
        if let Some(decimals) = self.decimals {
            figure.text(area.centre(), &printed(value, decimals), NUMBER.in_colour(colour::text_on(ground)));
        }
    }
}

/// Returns the number of cells from one label to the next: 1, 2, 4, 8 …
fn label_step(room: f64, cell: f64) -> usize {
    ((room / cell).ceil().max(1.0) as usize).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: HeadScale = HeadScale { label: "share (%)", end: Some(100.0) };

    fn grid(values: Vec<Vec<Option<f64>>>) -> HeadGrid {
        HeadGrid { model: "diff".into(), values }
    }

    #[test]
    fn numbers_are_printed_where_they_fit() {
        assert_eq!(decimals([12.34, 1.0].into_iter(), 76.0), Some(1));
        assert_eq!(decimals([12.34, 1.0].into_iter(), 40.0), Some(0));
        assert_eq!(decimals([0.123].into_iter(), 76.0), Some(2));
        assert_eq!(decimals([12.34].into_iter(), 20.0), None);
        assert_eq!([-0.04, -0.06, 0.0].map(|x| printed(x, 1)), ["0.0", "−0.1", "0.0"]);
    }

    #[test]
    fn models_with_different_heads_and_gaps_can_be_drawn() {
        let small = grid(vec![vec![Some(1.0), None, Some(f64::NAN)], vec![Some(-2.0)]]);
        assert!(head_grid(&[small, grid(vec![vec![Some(3.0); 32]; 32])], &FigureHeading::default(), &SCALE).is_ok());
    }
}
