//! Legends, in rows above the panels.

use super::colour;
use super::curve_style::{CurveStyle, CurveStyles};
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, TICK};
use crate::base::names::ShortNames;
use plotters::style::RGBColor;

/// The symbol before a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LegendSymbol {
    Line(CurveStyle),
    /// A line with a marker.
    MarkedLine(CurveStyle),
    Square(RGBColor),
}

/// Height of a row.
const ROW: f64 = 40.0;
const BETWEEN: f64 = 46.0;
const NAME: TextFormat = TextFormat { anchor: Anchor::Left, ..TICK };

/// Names and their symbols, ready to draw.
pub(super) struct Legend {
    /// (Name, symbol, distance from the left, row).
    entries: Vec<(String, LegendSymbol, f64, usize)>,
}

impl Legend {
    /// Arranges names in rows that are no wider than `room`.
    fn new(names: impl Iterator<Item = (String, LegendSymbol)>, room: f64) -> Self {
        let mut entries = Vec::new();
        let (mut x, mut row) = (0.0, 0);
        for (name, mark) in names {
            let name = NAME.fit(&name, room - mark.width());
            let width = mark.width() + NAME.width(&name);
            if x > 0.0 && x + width > room {
                (x, row) = (0.0, row + 1);
            }
            entries.push((name, mark, x, row));
            x += width + BETWEEN;
        }
        Self { entries }
    }

    /// The legend of curves, each with its `mark` and its short name.
    pub(super) fn of_curves(curves: &CurveStyles, mark: fn(CurveStyle) -> LegendSymbol, room: f64) -> Self {
        let short = ShortNames::of(curves.names());
        Self::new(curves.iter().map(|(name, look)| (short.name(name).to_owned(), mark(look))), room)
    }

    /// Creates the legend of regions.
    pub(super) fn of_regions(names: &[String], room: f64) -> Self {
        Self::new(
            names.iter().map(|name| (colour::region_name(name).to_owned(), LegendSymbol::Square(colour::region(name)))),
            room,
        )
    }

    /// Returns the height, which is 0 without names.
    pub(super) fn height(&self) -> f64 {
        self.entries.last().map_or(0.0, |(_, _, _, row)| ROW * (row + 1) as f64)
    }

    pub(super) fn draw(&self, figure: &mut Figure, (left, top): (f64, f64)) {
        for (name, mark, x, row) in &self.entries {
            let (x, y) = (left + x, top + 12.0 + ROW * *row as f64);
            match mark {
                LegendSymbol::Square(colour) => {
                    figure.fill(Area { x, y: y - 12.0, width: 24.0, height: 24.0 }, *colour)
                }
                LegendSymbol::Line(look) => look.draw(figure, &[(x, y), (x + 43.0, y)]),
                LegendSymbol::MarkedLine(look) => {
                    figure.line(&[(x, y), (x + 38.0, y)], look.colour, 6.0);
                    figure.marker((x + 19.0, y), look.marker, 11.0, look.colour);
                }
            }
            figure.text((x + mark.width(), y), name, NAME);
        }
    }
}

impl LegendSymbol {
    /// Returns the distance from its left end to the name.
    fn width(self) -> f64 {
        match self {
            Self::Line(_) | Self::MarkedLine(_) => 56.0,
            Self::Square(_) => 36.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_into_a_row_begin_another() {
        let curves = CurveStyles::new(["transformer", "diff", "diff-v2"].map(String::from).into());
        let rows = |room: f64| Legend::of_curves(&curves, LegendSymbol::Line, room).height() / ROW;
        assert_eq!((rows(2000.0), rows(250.0)), (1.0, 3.0));
        assert_eq!(Legend::of_curves(&CurveStyles::new(vec![]), LegendSymbol::Line, 100.0).height(), 0.0);
    }
}
