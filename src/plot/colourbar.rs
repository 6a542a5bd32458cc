//! Colour bars: which number has which colour.

use super::colour::{AXIS, FAINT_INK};
use super::colourscale::Shades;
use super::figure::{Area, Figure};
use super::text::{Anchor, Type, AXIS_LABEL, TICK};
use plotters::style::RGBColor;

/// A bar of colours, the largest number on top.
pub(super) struct ColourBar<'a> {
    pub(super) area: Area,
    /// Places from 0 at the bottom to 1 at the top, and what is written there.
    pub(super) ticks: &'a [(f64, String)],
    /// What the numbers are.
    pub(super) label: &'a str,
    /// More about the scale, in grey behind the label.
    pub(super) note: &'a str,
}

/// Colours of a bar.
const STEPS: usize = 256;
/// Width of the colours of a bar.
const BAR_WIDTH: f64 = 26.0;
/// Between the numbers beside a bar, at least.
const TICK_GAP: f64 = 26.0;
const LABEL: Type = Type { anchor: Anchor::Upward, ..AXIS_LABEL };
const NOTE: Type = Type { em: 19.0, ..LABEL }.in_colour(FAINT_INK);
/// The label may be this much longer than the bar.
const LABEL_EXCESS: f64 = 24.0;
/// Between lines of the label.
const LINE_STEP: f64 = 28.0;

impl ColourBar<'_> {
    /// Draws the bar; `colour` gives the colour of a place.
    pub(super) fn draw(&self, figure: &mut Figure, colour: impl Fn(f64) -> RGBColor) {
        let area = self.area;
        let shades: Vec<RGBColor> = (0..STEPS).rev().map(|i| colour(i as f64 / (STEPS - 1) as f64)).collect();
        figure.bitmap(area, (STEPS, 1), shades);
        for (place, text) in self.ticks {
            let y = area.bottom() - area.height * place;
            figure.fill(Area { x: area.right(), y: y - 0.5, width: 7.0, height: 1.5 }, AXIS);
            figure.text((area.right() + 14.0, y), text, Type { anchor: Anchor::Left, ..TICK });
        }
        let first = area.right() + self.label_distance();
        for (i, (line, kind)) in self.lines().iter().enumerate() {
            figure.text((first + LINE_STEP * i as f64, area.centre().1), line, *kind);
        }
    }

    /// From the left of the colours to the right of the last line.
    pub(super) fn width(&self) -> f64 {
        self.area.width + self.label_distance() + LINE_STEP * (self.lines().len() as f64 - 0.5)
    }

    fn label_distance(&self) -> f64 {
        let widest = self.ticks.iter().map(|(_, text)| TICK.width(text)).fold(0.0, f64::max);
        (14.0 + widest + 32.0).round()
    }

    fn lines(&self) -> Vec<(String, Type)> {
        let wrapped = |text: &str, kind: Type| {
            let lines = if text.is_empty() { Vec::new() } else { even_lines(text, kind, self.area.height) };
            lines.into_iter().map(move |line| (line, kind))
        };
        wrapped(self.label, LABEL).chain(wrapped(self.note, NOTE)).collect()
    }
}

/// As many lines as a bar of that height needs, of about the same length: no single word stands alone.
fn even_lines(text: &str, kind: Type, height: f64) -> Vec<String> {
    let lines = kind.wrap(text, height + LABEL_EXCESS);
    let even = kind.wrap(text, 1.2 * kind.width(text) / lines.len() as f64);
    if even.len() == lines.len() {
        even
    } else {
        lines
    }
}

/// Draws the colour bar of a fitted scale with its upper left corner at a place.
pub(super) fn draw_scale(figure: &mut Figure, (x, y): (f64, f64), height: f64, shades: &Shades, label: &str) {
    let area = Area { x, y, width: BAR_WIDTH, height };
    let (ticks, note) = (shades.ticks(TICK_GAP / height), shades.note());
    ColourBar { area, ticks: &ticks, label, note: &note }.draw(figure, |place| shades.colour_at(place));
}

/// The width of such a colour bar with its numbers and label.
pub(super) fn scale_width(shades: &Shades, label: &str, height: f64) -> f64 {
    let area = Area { x: 0.0, y: 0.0, width: BAR_WIDTH, height };
    ColourBar { area, ticks: &shades.ticks(TICK_GAP / height), label, note: &shades.note() }.width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_two_lines_is_broken_in_the_middle() {
        assert_eq!(even_lines("exact match (%)", LABEL, 350.0), ["exact match (%)"]);
        assert_eq!(
            even_lines("attention weight (max of each bin)", LABEL, 340.0),
            ["attention weight", "(max of each bin)"]
        );
    }
}
