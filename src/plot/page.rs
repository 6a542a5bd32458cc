//! Size of figures on paper.

use super::text::TICK;

/// The page that a figure is drawn for. Figures are laid out in units; the font size of [`TICK`] is 21 units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Page {
    /// Width of the figure in millimetres; `None` for the width that it needs.
    pub width_mm: Option<f64>,
    /// Font size of axis numbers in points (1/72 inch), 9 by default. A figure that needs more than the given width is
    /// scaled down with its text.
    pub font_pt: Option<f64>,
}

const MM_PER_INCH: f64 = 25.4;
const FONT_PT: f64 = 9.0;
/// Width in units if no width is given.
const WIDTH: f64 = 1600.0;
/// Resolution of a PNG with a given width; without one, a pixel is a unit.
const PRINT_DPI: f64 = 300.0;

impl Page {
    /// Returns the available width in units.
    pub(super) fn room(&self) -> f64 {
        self.width_mm.map_or(WIDTH, |mm| mm / self.unit_mm())
    }

    /// Returns the width in millimetres of a figure that is `width` units wide.
    pub(super) fn mm(&self, width: f64) -> f64 {
        self.width_mm.unwrap_or(width * self.unit_mm())
    }

    /// Returns the width in pixels of a figure that is `width` units wide.
    pub(super) fn pixels(&self, width: f64) -> u32 {
        self.width_mm.map_or(width, |mm| mm / MM_PER_INCH * PRINT_DPI).round() as u32
    }

    fn unit_mm(&self) -> f64 {
        self.font_pt.unwrap_or(FONT_PT) / 72.0 * MM_PER_INCH / TICK.em
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_page_or_a_large_font_leaves_less_room() {
        let page = |width_mm, font_pt| Page { width_mm, font_pt };
        let column = page(Some(85.0), Some(7.0));
        assert!((column.room() - 85.0 / (7.0 * 25.4 / 72.0) * 21.0).abs() < 1e-9);
        assert!(page(Some(85.0), Some(9.0)).room() < column.room());
        assert_eq!((column.pixels(column.room()), column.mm(5000.0)), (1004, 85.0));
        assert_eq!((page(None, None).room(), page(None, None).pixels(700.0)), (1600.0, 700));
    }
}
