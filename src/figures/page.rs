//! Size of figures on paper.

use super::text::TICK;

/// The page that a figure is drawn for. Figures are laid out in units; the font size of [`TICK`] is 21 units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Page {
    /// Width of the figure in millimetres; `None` for the width that it needs. A figure that needs more than the given
    /// width is scaled down with its text.
    pub width_mm: Option<f64>,
}

const MM_PER_INCH: f64 = 25.4;
/// Millimetres of a unit: axis numbers have 9 points.
const UNIT_MM: f64 = 9.0 / 72.0 * MM_PER_INCH / TICK.em;
/// Width in units if no width is given.
const WIDTH: f64 = 1600.0;
/// Resolution of a PNG with a given width; without one, a pixel is a unit.
const PRINT_DPI: f64 = 300.0;

impl Page {
    /// Returns the available width in units.
    pub(super) fn room(&self) -> f64 {
        self.width_mm.map_or(WIDTH, |mm| mm / UNIT_MM)
    }

    /// Returns the width in millimetres of a figure that is `width` units wide.
    pub(super) fn mm(&self, width: f64) -> f64 {
        self.width_mm.unwrap_or(width * UNIT_MM)
    }

    /// Returns the width in pixels of a figure that is `width` units wide.
    pub(super) fn pixels(&self, width: f64) -> u32 {
        self.width_mm.map_or(width, |mm| mm / MM_PER_INCH * PRINT_DPI).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_width_whatever_a_figure_needs() {
        let column = Page { width_mm: Some(85.0) };
        assert!((column.room() - 85.0 / (9.0 * 25.4 / 72.0) * 21.0).abs() < 1e-9);
        assert_eq!((column.pixels(column.room()), column.mm(5000.0)), (1004, 85.0));
        assert_eq!((Page::default().room(), Page::default().pixels(700.0)), (1600.0, 700));
    }
}
