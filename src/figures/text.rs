//! Text in figures: formats, widths, and line breaks.

use super::colour::{FAINT_INK, INK};
use super::font::{FontWeight, CAPITAL_EM};
use plotters::style::RGBColor;

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
/// The detail after the title of a panel.
pub(super) const PANEL_DETAIL: TextFormat = TextFormat::new(23.0, Anchor::Left).in_colour(FAINT_INK);
/// Labels of axes.
pub(super) const AXIS_LABEL: TextFormat = TextFormat::new(22.0, Anchor::Middle);
/// Tick labels.
pub(super) const TICK: TextFormat = TextFormat::new(21.0, Anchor::Middle);

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

    /// Returns the width of a text in this format.
    pub(super) fn width(&self, text: &str) -> f64 {
        self.em * FontWeight::of(self.bold).width_em(text)
    }

    /// Returns the height of the middle of the capitals above the baseline.
    pub(super) fn half_capital(&self) -> f64 {
        self.em * CAPITAL_EM / 2.0
    }

    /// Breaks a text into lines that fit into `width`: after a `·` if that is enough, otherwise at any space. Returns
    /// at least one line. A word that is too long loses its beginning.
    pub(super) fn wrap(&self, text: &str, width: f64) -> Vec<String> {
        let parts = text.split_inclusive(" · ").map(|part| part.trim_end_matches(' '));
        let words = parts.flat_map(|part| {
            let whole = self.width(part) <= width;
            part.split(move |character| character == ' ' && !whole)
        });
        let mut lines = vec![String::new()];
        for word in words {
            let last = lines.last_mut().expect("there is a first line");
            let longer = if last.is_empty() { word.to_string() } else { format!("{last} {word}") };
            if last.is_empty() || self.width(&longer) <= width {
                *last = longer;
            } else {
                lines.push(word.to_string());
            }
        }
        lines.iter().map(|line| self.fit(line, width)).collect()
    }

    /// Returns the text, or an ellipsis and as much of its end as fits into `width`, because the end of a path is more
    /// specific.
    pub(super) fn fit(&self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_string();
        }
        let tails = text.char_indices().skip(1).map(|(start, _)| format!("…{}", &text[start..]));
        tails.into_iter().find(|tail| self.width(tail) <= width).unwrap_or_else(|| "…".into())
    }
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
}
