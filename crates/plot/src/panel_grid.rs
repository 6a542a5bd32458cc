//! Panels of equal size in rows, under one legend.

use super::axis::BELOW;
use super::figure::{Area, Figure, FigureHeading, MARGIN};
use super::legend::Legend;
use super::panel_title::PanelTitle;
use anyhow::Result;

/// Room left of a panel for the numbers of its axis.
const LEFT: f64 = 100.0;
const RIGHT: f64 = 30.0;
const BETWEEN: (f64, f64) = (104.0, 30.0);
/// Least height of a panel on a page that is full.
const LOWEST: f64 = 110.0;

/// The panels that there may be side by side, and their size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PanelShape {
    pub(super) most_across: usize,
    /// Least width on a narrow page.
    pub(super) narrowest: f64,
    pub(super) largest: (f64, f64),
}

/// Positions of panels.
pub(super) struct PanelGrid {
    across: usize,
    down: usize,
    /// Width and height of a panel.
    pub(super) panel: (f64, f64),
    /// Room above and below a panel.
    beside: (f64, f64),
}

impl PanelGrid {
    /// Arranges at least one panel in a width of `room`.
    pub(super) fn new(panels: usize, shape: PanelShape, room: f64) -> Self {
        let PanelShape { most_across, narrowest, largest } = shape;
        let room = room - LEFT - RIGHT + BETWEEN.0;
        let fit = ((room / (narrowest.min(largest.0) + BETWEEN.0)) as usize).clamp(1, most_across);
        let down = panels.div_ceil(fit);
        // Rows of equal length if possible: four as two and two, not as three and one.
        let across = panels.div_ceil(down);
        let width = largest.0.min(room / across as f64 - BETWEEN.0).max(narrowest / 2.0).floor();
        Self { across, down, panel: (width, (largest.1 * width / largest.0).round()), beside: (0.0, BELOW) }
    }

    /// Widens the panels to a room of this width, at their height.
    pub(super) fn filling(self, room: f64) -> Self {
        let width = (room - LEFT - RIGHT + BETWEEN.0) / self.across as f64 - BETWEEN.0;
        Self { panel: (width.floor().max(self.panel.0), self.panel.1), ..self }
    }

    /// Makes room above panels for their titles, and below them for `labels` beyond one line. Panels are lower where the
    /// rest of a page of this height is full.
    pub(super) fn between(self, titles: &[PanelTitle], labels: f64, height: f64) -> Self {
        let beside = (PanelTitle::highest(titles), BELOW + labels);
        let left = height / self.down as f64 - beside.0 - beside.1 - BETWEEN.1;
        Self { panel: (self.panel.0, self.panel.1.min(left.floor()).max(LOWEST)), beside, ..self }
    }

    /// The width of a figure of the panels.
    pub(super) fn width(&self) -> f64 {
        LEFT + self.panel.0 * self.across as f64 + BETWEEN.0 * (self.across - 1) as f64 + RIGHT
    }

    /// Creates a figure with heading, legend and room for the panels. Also returns the y coordinate at which the panels
    /// begin.
    pub(super) fn figure(&self, heading: &FigureHeading, legend: &Legend) -> Result<(Figure, f64)> {
        let body_height = legend.height() + self.row_height() * self.down as f64;
        let (mut figure, top) = Figure::headed(heading, self.width(), body_height)?;
        legend.draw(&mut figure, (MARGIN, top));
        Ok((figure, top + legend.height()))
    }

    /// The area of the `i`-th panel, without title and axes.
    pub(super) fn area(&self, i: usize, top: f64) -> Area {
        Area {
            x: LEFT + (self.panel.0 + BETWEEN.0) * (i % self.across) as f64,
            y: top + self.beside.0 + self.row_height() * (i / self.across) as f64,
            width: self.panel.0,
            height: self.panel.1,
        }
    }

    fn row_height(&self) -> f64 {
        self.beside.0 + self.panel.1 + self.beside.1 + BETWEEN.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(panels: usize, most_across: usize, largest: (f64, f64), room: f64) -> PanelGrid {
        PanelGrid::new(panels, PanelShape { most_across, narrowest: 220.0, largest }, room)
    }

    #[test]
    fn rows_are_as_even_as_may_be() {
        let shape = |panels: usize| {
            let grid = grid(panels, 3, (1.0, 1.0), 1600.0);
            (grid.down, grid.across)
        };
        assert_eq!([1, 3, 4, 5, 7].map(shape), [(1, 1), (1, 3), (2, 2), (2, 3), (3, 3)]);
    }

    #[test]
    fn a_narrow_page_has_fewer_and_smaller_panels_side_by_side() {
        let shape = |room: f64| {
            let grid = grid(4, 2, (616.0, 400.0), room);
            (grid.across, grid.panel)
        };
        assert_eq!(shape(1600.0), (2, (616.0, 400.0)));
        assert_eq!(shape(714.0), (2, (240.0, 156.0)));
        assert_eq!(shape(600.0), (1, (470.0, 305.0)));
    }

    #[test]
    fn panels_of_a_page_of_given_width_fill_it() {
        for (panels, room) in [(1, 1377.0), (2, 1377.0), (6, 700.0)] {
            let filled = grid(panels, 3, (420.0, 330.0), room).filling(room);
            assert!((room - filled.width()).abs() < 3.0, "{panels}: {}", filled.width());
        }
    }

    #[test]
    fn panels_are_lower_where_a_page_is_full() {
        let titles = [PanelTitle::new("share", "%", 400.0)];
        let height = |page: f64| {
            let grid = grid(6, 2, (616.0, 400.0), 1600.0).between(&titles, 0.0, page);
            (grid.panel.1, (grid.row_height() * grid.down as f64).round())
        };
        assert_eq!(height(f64::INFINITY), (400.0, 1698.0));
        assert_eq!((height(1500.0), height(100.0).0), ((334.0, 1500.0), LOWEST));
    }
}
