//! Colour bars.

use super::colour::{AXIS, FAINT_INK};
use super::colourscale::FittedScale;
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use plotters::style::RGBColor;

/// A bar of colours with the largest number on top.
pub(super) struct ColourBar<'a> {
    pub(super) area: Area,
    /// Positions from 0 at the bottom to 1 at the top, with their labels.
    pub(super) ticks: &'a [(f64, String)],
    /// Name and unit of the numbers.
    pub(super) label: &'a str,
    /// Note about the scale, in grey after the label.
    pub(super) note: &'a str,
}

/// Number of colours of a bar.
const STEPS: usize = 256;
/// Width of the colours of a bar.
const BAR_WIDTH: f64 = 26.0;
/// Least distance between tick labels.
const TICK_GAP: f64 = 26.0;
const LABEL: TextFormat = TextFormat { anchor: Anchor::Upward, ..AXIS_LABEL };
const NOTE: TextFormat = TextFormat { em: 19.0, ..LABEL }.in_colour(FAINT_INK);
/// By how much a label may be longer than the bar.
const LABEL_EXCESS: f64 = 24.0;
/// Distance between lines of the label.
const LINE_STEP: f64 = 28.0;

impl ColourBar<'_> {
    /// Draws the bar; `colour` returns the colour of a position.
    pub(super) fn draw(&self, figure: &mut Figure, colour: impl Fn(f64) -> RGBColor) {
        let area = self.area;
        let colours: Vec<RGBColor> = (0..STEPS).rev().map(|i| colour(i as f64 / (STEPS - 1) as f64)).collect();
        figure.bitmap(area, (STEPS, 1), &colours);
        for (place, text) in self.ticks {
            let y = area.bottom() - area.height * place;
            figure.fill(Area { x: area.right(), y: y - 0.5, width: 7.0, height: 1.5 }, AXIS);
            figure.text((area.right() + 14.0, y), text, TextFormat { anchor: Anchor::Left, ..TICK });
        }
        let first = area.right() + self.label_distance();
        for (i, (line, kind)) in self.lines().iter().enumerate() {
            figure.text((first + LINE_STEP * i as f64, area.centre().1), line, *kind);
        }
    }

    /// Returns the width from the left edge of the colours to the right edge of the last line.
    pub(super) fn width(&self) -> f64 {
        self.area.width + self.label_distance() + LINE_STEP * (self.lines().len() as f64 - 0.5)
    }

    fn label_distance(&self) -> f64 {
        let widest = self.ticks.iter().map(|(_, text)| TICK.width(text)).fold(0.0, f64::max);
        (14.0 + widest + 32.0).round()
    }

    fn lines(&self) -> Vec<(String, TextFormat)> {
        let wrapped = |text: &str, kind: TextFormat| {
            let lines = if text.is_empty() { Vec::new() } else { even_lines(text, kind, self.area.height) };
            lines.into_iter().map(move |line| (line, kind))
        };
        wrapped(self.label, LABEL).chain(wrapped(self.note, NOTE)).collect()
    }
}

/// Wraps a label to the height of a bar, into lines of about equal length.
fn even_lines(text: &str, kind: TextFormat, height: f64) -> Vec<String> {
    let lines = kind.wrap(text, height + LABEL_EXCESS);
    let even = kind.wrap(text, 1.2 * kind.width(text) / lines.len() as f64);
    if even.len() == lines.len() {
        even
    } else {
        lines
    }
}

/// Draws the colour bar of a fitted scale with its upper left corner at a point.
pub(super) fn draw_scale(figure: &mut Figure, (x, y): (f64, f64), height: f64, fitted: &FittedScale, label: &str) {
    let area = Area { x, y, width: BAR_WIDTH, height };
    let (ticks, note) = (fitted.ticks(TICK_GAP / height), fitted.note());
    ColourBar { area, ticks: &ticks, label, note: &note }.draw(figure, |place| fitted.colour_at(place));
}

/// Returns the width of the colour bar of a fitted scale, with tick labels and label.
pub(super) fn scale_width(fitted: &FittedScale, label: &str, height: f64) -> f64 {
    let area = Area { x: 0.0, y: 0.0, width: BAR_WIDTH, height };
    ColourBar { area, ticks: &fitted.ticks(TICK_GAP / height), label, note: &fitted.note() }.width()
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
