//! The embedded font of the figures, DejaVu Sans, so that figures look the same on all machines and in all formats.

use resvg::usvg::fontdb::Database;
use std::sync::{Arc, LazyLock};
use ttf_parser::{Face, GlyphId};

/// Font family of the figures, followed by families of similar width for editors that ignore embedded fonts.
pub(super) const FAMILY: &str = "DejaVu Sans, Bitstream Vera Sans, Verdana, sans-serif";
/// Height of a capital letter in em, for centring.
pub(super) const CAPITAL_EM: f64 = 0.729;

/// One weight of the font.
pub(super) struct FontWeight {
    /// The TrueType file.
    pub(super) file: &'static [u8],
    face: Face<'static>,
}

static REGULAR: LazyLock<FontWeight> = LazyLock::new(|| load(include_bytes!("../../assets/fonts/DejaVuSans.ttf")));
static BOLD: LazyLock<FontWeight> = LazyLock::new(|| load(include_bytes!("../../assets/fonts/DejaVuSans-Bold.ttf")));

/// Font database with both weights and no system fonts.
pub(super) static DATABASE: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut database = Database::new();
    [&REGULAR, &BOLD].into_iter().for_each(|weight| database.load_font_data(weight.file.to_vec()));
    Arc::new(database)
});

fn load(file: &'static [u8]) -> FontWeight {
    FontWeight { file, face: Face::parse(file, 0).expect("the embedded font is whole") }
}

impl FontWeight {
    pub(super) fn of(bold: bool) -> &'static Self {
        if bold {
            &BOLD
        } else {
            &REGULAR
        }
    }

    /// Returns the width of a line of text, in em.
    pub(super) fn width_em(&self, text: &str) -> f64 {
        let mut units = 0;
        let mut previous = None;
        for character in text.chars() {
            let glyph = self.face.glyph_index(character).or(self.face.glyph_index('?')).unwrap_or(GlyphId(0));
            let kerned = previous.map_or(0, |previous| self.kerning(previous, glyph));
            units += i64::from(kerned) + i64::from(self.face.glyph_hor_advance(glyph).unwrap_or(0));
            previous = Some(glyph);
        }
        units as f64 / f64::from(self.face.units_per_em())
    }

    fn kerning(&self, left: GlyphId, right: GlyphId) -> i16 {
        let tables = self.face.tables().kern.into_iter().flat_map(|kern| kern.subtables);
        tables.filter(|table| table.horizontal).find_map(|table| table.glyphs_kerning(left, right)).unwrap_or(0)
    }

    /// Replaces characters that the font lacks by question marks, so that no other font is used.
    pub(super) fn supported_text(&self, text: &str) -> String {
        text.chars().map(|sign| if self.face.glyph_index(sign).is_some() { sign } else { '?' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_the_figures_is_in_both_fonts() {
        let signs =
            "0123456789 AaZz äöüßéñ λσΣαβ + − × · – — ¶ ↑ … ≥ ≤ ≈ ≠ ± % | → ↓ ∞ √ ⁰ ¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹ ⁻ ₀ ₁ ½ °";
        for bold in [false, true] {
            assert_eq!(FontWeight::of(bold).supported_text(signs), signs);
        }
    }

    #[test]
    fn a_character_that_the_fonts_lack_becomes_a_question_mark() {
        let font = FontWeight::of(false);
        assert_eq!(font.supported_text("a中\u{7}"), "a??");
        assert_eq!(font.width_em("中"), font.width_em("?"));
    }

    #[test]
    fn text_is_as_wide_as_the_font_says() {
        // DejaVu Sans: a digit is 1303 of 2048 units wide.
        let font = FontWeight::of(false);
        assert!((font.width_em("0000") - 4.0 * 1303.0 / 2048.0).abs() < 1e-9);
        assert!(font.width_em("AV") < font.width_em("A") + font.width_em("V"), "a pair that is kerned");
    }
}
