//! Text in figures: formats, widths, line breaks, and the embedded font, DejaVu Sans, so that figures look the same on
//! all machines and in all formats.

use super::colour::{FAINT_INK, INK};
use plotters::style::RGBColor;
use resvg::usvg::fontdb::Database;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use ttf_parser::Face;
use unicode_width::UnicodeWidthChar as _;

/// The point of a text that is placed at given coordinates. Vertically it is always the middle of the capitals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
    /// The middle of a text that runs upwards.
    Upward,
    /// The end of a text that runs upwards, so that the text is below the point.
    Hanging,
}

impl Anchor {
    /// Returns `true` if the text runs upwards.
    pub(super) fn is_upward(self) -> bool {
        matches!(self, Self::Upward | Self::Hanging)
    }
}

/// Size, weight, colour and anchor of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextFormat {
    pub(super) em: f64,
    pub(super) bold: bool,
    pub(super) colour: RGBColor,
    pub(super) anchor: Anchor,
}

/// The title of a figure.
pub(super) const TITLE: TextFormat = TextFormat::new(32.0, Anchor::Left).bold();
pub(super) const SUBTITLE: TextFormat = TextFormat::new(22.0, Anchor::Left).in_colour(FAINT_INK);
/// Titles of panels.
pub(super) const PANEL_TITLE: TextFormat = TextFormat::new(25.0, Anchor::Left).bold();
/// The detail of a panel, after or below its title.
pub(super) const PANEL_DETAIL: TextFormat = TextFormat::new(21.0, Anchor::Left).in_colour(FAINT_INK);
/// Labels of axes.
pub(super) const AXIS_LABEL: TextFormat = TextFormat::new(22.0, Anchor::Middle);
/// Tick labels.
pub(super) const TICK: TextFormat = TextFormat::new(21.0, Anchor::Middle);

/// Marks after which a line may end, those that are tried first before the others.
const MARKS: [&[char]; 3] = [&['·'], &[' '], &['-', '_', '/']];

impl TextFormat {
    pub(super) const fn new(em: f64, anchor: Anchor) -> Self {
        Self { em, bold: false, colour: INK, anchor }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) const fn in_colour(self, colour: RGBColor) -> Self {
        Self { colour, ..self }
    }

    pub(super) const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// The width of a text in this format.
    pub(super) fn width(&self, text: &str) -> f64 {
        self.em * FontWeight::new(self.bold).width_em(text)
    }

    /// The height of the middle of the capitals above the baseline.
    pub(super) fn half_capital(&self) -> f64 {
        self.em * CAPITAL_EM / 2.0
    }

    /// Breaks a text into lines that fit into `width`: after a `·` if that is enough, otherwise at spaces, then at the marks
    /// within names, then anywhere. Returns at least one line.
    pub(super) fn wrap(&self, text: &str, width: f64) -> Vec<String> {
        let mut lines = vec![String::new()];
        for piece in self.pieces(text, width, &MARKS) {
            let last = lines.last_mut().expect("there is a first line");
            if last.is_empty() || self.width((last.to_owned() + piece).trim()) <= width {
                last.push_str(piece);
            } else {
                lines.push(piece.to_owned());
            }
        }
        lines.iter().map(|line| line.trim().to_owned()).collect()
    }

    /// The pieces of a text between which a line may end: as few as fit into `width`.
    fn pieces<'t>(&self, text: &'t str, width: f64, marks: &[&[char]]) -> Vec<&'t str> {
        if self.width(text.trim()) <= width {
            return vec![text];
        }
        match marks.split_first() {
            Some((&marks, finer)) => {
                text.split_inclusive(marks).flat_map(|piece| self.pieces(piece, width, finer)).collect()
            }
            None => text.char_indices().map(|(at, letter)| &text[at..at + letter.len_utf8()]).collect(),
        }
    }

    /// A word in as few pieces as fit into `width` each, at least a letter.
    pub(super) fn wrap_anywhere<'t>(&self, word: &'t str, width: f64) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (at, letter) in word.char_indices() {
            if at > start && self.width(&word[start..at + letter.len_utf8()]) > width {
                pieces.push(&word[start..at]);
                start = at;
            }
        }
        pieces.push(&word[start..]);
        pieces
    }

    /// The width of the widest word of a text.
    pub(super) fn widest_word(&self, text: &str) -> f64 {
        text.split(' ').map(|word| self.width(word)).fold(0.0, f64::max)
    }

    /// The text, or an ellipsis and as much of its end as fits into `width`, because the end of a path is more
    /// specific.
    pub(super) fn fit(&self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_string();
        }
        let tails = text.char_indices().skip(1).map(|(start, _)| format!("…{}", &text[start..]));
        tails.into_iter().find(|tail| self.width(tail) <= width).unwrap_or_else(|| "…".into())
    }
}

/// Font family of the figures, followed by families of similar width for editors that ignore embedded fonts.
pub(super) const FAMILY: &str = "DejaVu Sans, DejaVu Sans More, Bitstream Vera Sans, Verdana, sans-serif";
/// Height of a capital letter in em, for centring.
pub(super) const CAPITAL_EM: f64 = 0.729;

/// One weight of the font.
pub(super) struct FontWeight {
    /// The TrueType file.
    pub(super) file: &'static [u8],
    face: Face<'static>,
}

static REGULAR: LazyLock<FontWeight> = LazyLock::new(|| load(include_bytes!("../assets/fonts/DejaVuSans.ttf")));
static BOLD: LazyLock<FontWeight> = LazyLock::new(|| load(include_bytes!("../assets/fonts/DejaVuSans-Bold.ttf")));
/// Letters that the two lack, which are not bold.
static MORE: LazyLock<FontWeight> = LazyLock::new(|| load(include_bytes!("../assets/fonts/DejaVuSans-more.ttf")));

/// Font database with both weights and no system fonts. What they lack is looked for in the file behind them.
pub(super) static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut database = Database::new();
    [&REGULAR, &BOLD, &MORE].into_iter().for_each(|weight| database.load_font_data(weight.file.to_vec()));
    Arc::new(database)
});

fn load(file: &'static [u8]) -> FontWeight {
    FontWeight { file, face: Face::parse(file, 0).expect("the embedded font is whole") }
}

impl FontWeight {
    pub(super) fn new(bold: bool) -> &'static Self {
        if bold {
            &BOLD
        } else {
            &REGULAR
        }
    }

    /// The width of a line of text, in em.
    pub(super) fn width_em(&self, text: &str) -> f64 {
        let mut units = 0;
        let mut previous = None;
        for character in text.chars() {
            let glyph = self.face.glyph_index(character);
            units += i64::from(self.advance(character).unwrap_or_else(|| other_advance(character)));
            if let (Some(left), Some(right)) = (previous, glyph) {
                let tables = self.face.tables().kern.into_iter().flat_map(|kern| kern.subtables);
                let kerned =
                    tables.filter(|table| table.horizontal).find_map(|table| table.glyphs_kerning(left, right));
                units += i64::from(kerned.unwrap_or(0));
            }
            previous = glyph;
        }
        units as f64 / f64::from(self.face.units_per_em())
    }

    /// The width of a character in units of the font; `None` for one that it lacks.
    fn advance(&self, character: char) -> Option<u16> {
        self.face.glyph_hor_advance(self.face.glyph_index(character)?)
    }
}

/// The width of a character that both weights lack: that of the other letters, or about that of a viewer's font.
fn other_advance(character: char) -> u16 {
    let em = MORE.face.units_per_em();
    let of_other = if character.width() == Some(2) { em } else { REGULAR.advance('?').unwrap_or(em) };
    MORE.advance(character).unwrap_or(of_other)
}

/// The file with letters that both weights lack, if a text has one of them.
pub(super) fn further_letters(text: &str) -> Option<&'static [u8]> {
    text.contains(|sign| REGULAR.advance(sign).is_none() && MORE.advance(sign).is_some()).then_some(MORE.file)
}

/// The text with question marks for the characters that the font lacks, which are named once.
pub(super) fn drawable(text: &str) -> String {
    static NAMED: Mutex<BTreeSet<char>> = Mutex::new(BTreeSet::new());
    const SHOWN: usize = 20;
    let is_there = |sign: char| sign.is_ascii() || [&REGULAR, &MORE].iter().any(|font| font.advance(sign).is_some());
    let mut lacking: BTreeSet<char> = text.chars().filter(|&sign| !is_there(sign)).collect();
    let drawn = text.chars().map(|sign| if lacking.contains(&sign) { '?' } else { sign }).collect();
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    lacking.retain(|&sign| named.insert(sign));
    if !lacking.is_empty() {
        let shown: Vec<String> = lacking.iter().take(SHOWN).map(char::to_string).collect();
        let more = if lacking.len() > SHOWN { ", …" } else { "" };
        base::say!(
            "figures: the font lacks {} characters ({}{more}): they are ? in PNG and PDF; SVG files leave them to the viewer's fonts",
            lacking.len(),
            shown.join(", ")
        );
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_keeps_its_end() {
        assert_eq!(TICK.fit("diff", 200.0), "diff");
        let fitted = TICK.fit("/home/somebody/checkpoints/diff-4k", 140.0);
        assert!(fitted.starts_with('…') && fitted.ends_with("diff-4k") && TICK.width(&fitted) <= 140.0, "{fitted}");
    }

    #[test]
    fn a_long_text_is_broken_behind_a_dot_if_that_is_enough() {
        let lines = SUBTITLE.wrap("layer 2 · mean of 8 heads", 150.0);
        assert_eq!(lines.join(" "), "layer 2 · mean of 8 heads");
        assert!(lines.len() > 1 && lines.iter().all(|line| SUBTITLE.width(line) <= 150.0), "{lines:?}");
        assert_eq!(SUBTITLE.wrap("layer 2 · A1 − A2", 140.0), ["layer 2 ·", "A1 − A2"]);
        assert_eq!(SUBTITLE.wrap("", 150.0), [""]);
    }

    #[test]
    fn a_long_name_is_broken_at_its_marks_and_loses_nothing() {
        for name in ["runs/diff-300M/checkpoint-8000", "0123456789abcdef0123456789abcdef", "αβγδεζηθικλμνξοπρστυφχψω"]
        {
            let lines = SUBTITLE.wrap(name, 150.0);
            assert_eq!(lines.concat(), name);
            assert!(lines.len() > 1 && lines.iter().all(|line| SUBTITLE.width(line) <= 150.0), "{lines:?}");
        }
        assert_eq!(SUBTITLE.wrap("diff-300M/checkpoint-8000", 150.0), ["diff-300M/", "checkpoint-", "8000"]);
    }

    #[test]
    fn every_character_of_the_figures_is_in_both_fonts() {
        let signs =
            "0123456789 AaZz äöüßéñ λσΣαβ + − × · – — ¶ ↑ … ≥ ≤ ≈ ≠ ± % | → ↓ ∞ √ ⁰ ¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹ ⁻ ₀ ₁ ½ °";
        for bold in [false, true] {
            assert!(signs.chars().all(|sign| FontWeight::new(bold).advance(sign).is_some()), "{bold}");
        }
    }

    #[test]
    fn letters_of_many_languages_are_drawn_and_what_is_lacking_is_a_question_mark() {
        for word in [
            "żółty łabędź",
            "příliš žluťoučký",
            "őrült",
            "ţară",
            "İğdır ışık",
            "Москва",
            "Ελλάδα",
            "שלום",
            "مرحبا",
            "Հայ",
            "ქართული",
        ] {
            assert_eq!(drawable(word), word);
        }
        assert_eq!(drawable("a 中\n नदी"), "a ?\n ???");
        let font = FontWeight::new(false);
        assert_eq!(font.width_em("中"), 1.0);
        assert_eq!(font.width_em("ż"), font.width_em("z"));
    }

    #[test]
    fn text_is_as_wide_as_the_font_says() {
        // DejaVu Sans: a digit is 1303 of 2048 units wide.
        let font = FontWeight::new(false);
        assert!((font.width_em("0000") - 4.0 * 1303.0 / 2048.0).abs() < 1e-9);
        assert!(font.width_em("AV") < font.width_em("A") + font.width_em("V"), "a pair that is kerned");
    }
}
