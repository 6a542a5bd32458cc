//! Text: DejaVu Sans, embedded, so that a figure looks the same on every machine.
//!
//! Plotters can draw text through `ab_glyph` too, but puts every glyph at a whole pixel and leaves out its side
//! bearing, so letters stand unevenly; we ask `ab_glyph` itself.

use ab_glyph::{Font, FontRef, PxScale, ScaleFont};
use std::sync::LazyLock;

static REGULAR: LazyLock<FontRef<'static>> =
    LazyLock::new(|| load(include_bytes!("../../assets/fonts/DejaVuSans.ttf")));
static BOLD: LazyLock<FontRef<'static>> =
    LazyLock::new(|| load(include_bytes!("../../assets/fonts/DejaVuSans-Bold.ttf")));

/// Height of a capital letter in em, for centring.
pub(super) const CAPITAL_EM: f64 = 0.729;

fn load(bytes: &'static [u8]) -> FontRef<'static> {
    FontRef::try_from_slice(bytes).expect("the embedded font is whole")
}

/// A line of text at a size, in pixels of one em.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) em: f64,
    pub(super) bold: bool,
}

impl Line<'_> {
    /// Width in pixels.
    pub(super) fn width(&self) -> f64 {
        let mut right = 0.0;
        self.glyphs(|_, _, end| right = end);
        right
    }

    /// Calls `dot(x, y, cover)` for each pixel that the text covers, with the middle of its capitals at y = 0 and its
    /// left end at x = `left`; only the fraction of `left` matters for the shapes.
    pub(super) fn draw(&self, left: f64, mut dot: impl FnMut(i32, i32, f64)) {
        let font = self.font();
        let baseline = (self.em * CAPITAL_EM / 2.0).round() as f32;
        self.glyphs(|id, start, _| {
            let at = ab_glyph::point((left + start) as f32, baseline);
            let Some(outline) = font.outline_glyph(id.with_scale_and_position(self.scale(), at)) else { return };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, cover| dot(corner.x as i32 + x as i32, corner.y as i32 + y as i32, f64::from(cover)));
        });
    }

    /// Calls `visit(glyph, start, end)` with the horizontal extent of each glyph.
    fn glyphs(&self, mut visit: impl FnMut(ab_glyph::GlyphId, f64, f64)) {
        let font = self.font().as_scaled(self.scale());
        let mut pen = 0.0;
        let mut previous = None;
        for character in self.text.chars() {
            let id = Some(font.glyph_id(character)).filter(|id| id.0 != 0).unwrap_or(font.glyph_id('?'));
            pen += previous.map_or(0.0, |previous| f64::from(font.kern(previous, id)));
            let end = pen + f64::from(font.h_advance(id));
            visit(id, pen, end);
            (pen, previous) = (end, Some(id));
        }
    }

    fn font(&self) -> &'static FontRef<'static> {
        if self.bold {
            &BOLD
        } else {
            &REGULAR
        }
    }

    /// `ab_glyph` scales the font's ascent − descent to a number of pixels; we mean its em.
    fn scale(&self) -> PxScale {
        let font = self.font();
        let em_units = font.units_per_em().expect("the embedded font says its em");
        PxScale::from((self.em * f64::from(font.height_unscaled()) / f64::from(em_units)) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_a_figure_may_need_is_in_both_fonts() {
        let signs =
            "0123456789 AaZz äöüßéñ λσΣαβ + − × · – — ¶ ↑ … ≥ ≤ ≈ ≠ ± % | → ↓ ∞ √ ⁰ ¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹ ⁻ ₀ ₁ ½ °";
        for font in [&*REGULAR, &*BOLD] {
            for sign in signs.chars() {
                assert_ne!(font.glyph_id(sign).0, 0, "{sign} is missing");
            }
        }
    }

    #[test]
    fn a_sign_that_the_fonts_lack_becomes_a_question_mark() {
        let width = |text| Line { text, em: 20.0, bold: false }.width();
        assert_eq!(width("中"), width("?"));
    }

    #[test]
    fn text_is_as_wide_as_the_font_says() {
        // DejaVu Sans: a digit is 1303 of 2048 units wide.
        let line = Line { text: "0000", em: 100.0, bold: false };
        assert!((line.width() - 4.0 * 100.0 * 1303.0 / 2048.0).abs() < 0.01, "{}", line.width());
    }

    #[test]
    fn capitals_are_centred_on_the_line() {
        let (mut top, mut bottom) = (i32::MAX, i32::MIN);
        Line { text: "H", em: 200.0, bold: false }.draw(0.0, |_, y, _| (top, bottom) = (top.min(y), bottom.max(y)));
        assert!((top + bottom).abs() <= 2, "{top}..{bottom}");
    }
}
