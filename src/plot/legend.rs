//! Legends: names beside their colours, in rows above the panels.

use super::colour;
use super::figure::{Area, Figure};
use super::text::{Anchor, Type, TICK};
use crate::names::shared_folder;
use plotters::style::RGBColor;

/// Draws the `i`-th curve, thickest first and dashed from the second on: where curves coincide, all are seen.
pub(super) fn draw_curve(figure: &mut Figure, points: &[(f64, f64)], i: usize) {
    let (thickness, dashes) = stroke(i);
    figure.dashed_line(points, colour::curve(i), thickness, dashes);
}

/// Thickness and dashes of the `i`-th curve: where its colour comes again, the dashes are others.
fn stroke(i: usize) -> (f64, &'static [f64]) {
    let (_, dashes) = STROKES[(i + i / colour::CURVES.len()) % STROKES.len()];
    let (thickness, _) = STROKES[i.min(STROKES.len() - 1)];
    (thickness, dashes)
}

/// Thickness and dashes of curves, in order.
const STROKES: [(f64, &[f64]); 5] =
    [(5.5, &[]), (4.0, &[15.0, 6.0]), (3.5, &[7.0, 5.0]), (3.0, &[15.0, 4.0, 3.0, 4.0]), (3.0, &[3.0, 4.0])];

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark {
    Line,
    /// A line with the marker of its place in the legend.
    MarkedLine,
    Square,
}

/// Height of a row.
const ROW: f64 = 40.0;
const BETWEEN: f64 = 46.0;
const NAME: Type = Type { anchor: Anchor::Left, ..TICK };

/// Names and their colours, ready to draw.
pub(super) struct Legend {
    mark: Mark,
    /// Name, colour, distance from the left and row of each.
    entries: Vec<(String, RGBColor, f64, usize)>,
}

impl Legend {
    /// Rows of names that are no longer than `room`.
    pub(super) fn new(names: impl Iterator<Item = (String, RGBColor)>, mark: Mark, room: f64) -> Self {
        let mut entries = Vec::new();
        let (mut x, mut row) = (0.0, 0);
        for (name, colour) in names {
            let name = NAME.fit(&name, room - mark.width());
            let width = mark.width() + NAME.width(&name);
            if x > 0.0 && x + width > room {
                (x, row) = (0.0, row + 1);
            }
            entries.push((name, colour, x, row));
            x += width + BETWEEN;
        }
        Self { mark, entries }
    }

    /// The curves of these names, in their colours, without the folders that all of them lie in.
    pub(super) fn of_curves(names: &[String], mark: Mark, room: f64) -> Self {
        let folder = shared_folder(names).len();
        let curve = |(i, name): (usize, &String)| (name[folder..].to_owned(), colour::curve(i));
        Self::new(names.iter().enumerate().map(curve), mark, room)
    }

    /// The regions of these names, in their colours.
    pub(super) fn of_regions(names: &[String], room: f64) -> Self {
        let shown = |name: &String| if name == "bos" { "BOS".into() } else { name.clone() };
        Self::new(names.iter().map(|name| (shown(name), colour::region(name))), Mark::Square, room)
    }

    /// Nothing, if there are no names.
    pub(super) fn height(&self) -> f64 {
        self.entries.last().map_or(0.0, |(_, _, _, row)| ROW * (row + 1) as f64)
    }

    pub(super) fn draw(&self, figure: &mut Figure, (left, top): (f64, f64)) {
        for (i, (name, colour, x, row)) in self.entries.iter().enumerate() {
            let (x, y) = (left + x, top + 12.0 + ROW * *row as f64);
            match self.mark {
                Mark::Square => figure.fill(Area { x, y: y - 12.0, width: 24.0, height: 24.0 }, *colour),
                Mark::Line => draw_curve(figure, &[(x, y), (x + 43.0, y)], i),
                Mark::MarkedLine => figure.line(&[(x, y), (x + 38.0, y)], *colour, 6.0),
            }
            if self.mark == Mark::MarkedLine {
                figure.marker((x + 19.0, y), i, 11.0, *colour);
            }
            figure.text((x + self.mark.width(), y), name, NAME);
        }
    }
}

impl Mark {
    /// From its left end to the name.
    fn width(self) -> f64 {
        match self {
            Self::Line | Self::MarkedLine => 56.0,
            Self::Square => 36.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_thirty_curves_look_alike() {
        let looks: Vec<_> = (0..30).map(|i| (colour::curve(i), stroke(i).1)).collect();
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "curve {i}");
        }
    }

    #[test]
    fn names_that_do_not_fit_into_a_row_begin_another() {
        let names = ["transformer", "diff", "diff-v2"].map(String::from);
        let rows = |room: f64| Legend::of_curves(&names, Mark::Line, room).height() / ROW;
        assert_eq!((rows(2000.0), rows(250.0)), (1.0, 3.0));
        assert_eq!(Legend::of_curves(&[], Mark::Line, 100.0).height(), 0.0);
    }
}
