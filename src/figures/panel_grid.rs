//! Panels of equal size in rows, under one legend.

use super::axis::LABEL_LINE;
use super::figure::{Area, Figure, FigureHeading};
use super::legend::Legend;
use anyhow::Result;

const LEFT: f64 = 142.0;
const RIGHT: f64 = 52.0;
const BETWEEN: (f64, f64) = (154.0, 34.0);
const TITLE_HEIGHT: f64 = 50.0;
/// Ticks of one line and label below a panel.
const BELOW: f64 = 86.0;
/// Least width of panels side by side on a narrow page.
const SMALLEST: f64 = 300.0;

/// Positions of panels.
pub(super) struct PanelGrid {
    across: usize,
    down: usize,
    /// Width and height of a panel.
    panel: (f64, f64),
    below: f64,
}

impl PanelGrid {
    /// Arranges at least one panel, with at most `most_across` side by side, in a width of `room`. A panel is at most
    /// as large as `largest`.
    pub(super) fn new(panels: usize, most_across: usize, largest: (f64, f64), room: f64) -> Self {
        let room = room - LEFT - RIGHT + BETWEEN.0;
        let fit = ((room / (SMALLEST.min(largest.0) + BETWEEN.0)) as usize).clamp(1, most_across);
        let down = panels.div_ceil(fit);
        // Rows of equal length if possible: four as two and two, not as three and one.
        let across = panels.div_ceil(down);
        let width = largest.0.min(room / across as f64 - BETWEEN.0).max(SMALLEST / 2.0).floor();
        Self { across, down, panel: (width, (largest.1 * width / largest.0).round()), below: BELOW }
    }

    /// Makes room for labels of so many lines.
    pub(super) fn label_lines(self, lines: usize) -> Self {
        Self { below: BELOW + LABEL_LINE * lines.saturating_sub(1) as f64, ..self }
    }

    /// Returns the width of the panels together.
    pub(super) fn width(&self) -> f64 {
        self.panel.0 * self.across as f64 + BETWEEN.0 * (self.across - 1) as f64
    }

    /// Creates a figure with heading, legend and room for the panels. Also returns the y coordinate at which the panels
    /// begin.
    pub(super) fn figure(&self, heading: &FigureHeading, legend: &Legend) -> Result<(Figure, f64)> {
        let body_height = legend.height() + self.row_height() * self.down as f64;
        let (mut figure, top) = Figure::headed(heading, LEFT + self.width() + RIGHT, body_height)?;
        legend.draw(&mut figure, (LEFT, top));
        Ok((figure, top + legend.height()))
    }

    /// Returns the area of the `i`-th panel, without title and axes.
    pub(super) fn area(&self, i: usize, top: f64) -> Area {
        Area {
            x: LEFT + (self.panel.0 + BETWEEN.0) * (i % self.across) as f64,
            y: top + TITLE_HEIGHT + self.row_height() * (i / self.across) as f64,
            width: self.panel.0,
            height: self.panel.1,
        }
    }

    fn row_height(&self) -> f64 {
        TITLE_HEIGHT + self.panel.1 + self.below + BETWEEN.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_even_as_may_be() {
        let shape = |panels: usize| {
            let grid = PanelGrid::new(panels, 3, (1.0, 1.0), 1600.0);
            (grid.down, grid.across)
        };
        assert_eq!([1, 3, 4, 5, 7].map(shape), [(1, 1), (1, 3), (2, 2), (2, 3), (3, 3)]);
    }

    #[test]
    fn a_narrow_page_has_fewer_and_smaller_panels_side_by_side() {
        let shape = |room: f64| {
            let grid = PanelGrid::new(4, 2, (616.0, 400.0), room);
            (grid.across, grid.panel)
        };
        assert_eq!(shape(1600.0), (2, (616.0, 400.0)));
        assert_eq!(shape(1000.0), (2, (326.0, 212.0)));
        assert_eq!(shape(700.0), (1, (506.0, 329.0)));
    }
}
