//! Colour scales, shared by all panels that are compared, and their colour bars.

use super::axis::{decimal, Axis};
use super::colour::{self, AXIS, FAINT_INK};
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use plotters::style::RGBColor;

/// The kind of colour scale of some panels. Its ends are taken from the numbers.
#[derive(Clone, Debug)]
pub struct ColourScale {
    /// Name and unit of the numbers, for example `attention weight (max of each bin)`.
    pub label: String,
    /// `true` if the scale is from blue for negative numbers over white for zero to red for positive ones. Otherwise it
    /// begins at zero, and no number may be negative.
    pub signed: bool,
    /// `true` if the scale is logarithmic, which only an unsigned one can be.
    pub log: bool,
}

/// Quantile of the magnitudes at which a linear scale ends, so that a single sink does not take all colours.
const QUANTILE: f64 = 0.995;
/// Largest ratio of the ends of a logarithmic scale.
const LARGEST_RATIO: f64 = 1e6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spacing {
    Linear,
    /// Logarithmic from this number, which has the first colour, as do all smaller numbers.
    Log(f64),
}

/// A colour scale fitted to its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FittedScale {
    signed: bool,
    spacing: Spacing,
    /// Magnitude of the last colour.
    top: f64,
    /// `true` if there are larger magnitudes, or, for a logarithmic scale, smaller ones.
    cut: bool,
    /// `true` if `top` was given instead of fitted.
    fixed: bool,
}

impl FittedScale {
    /// Fits a scale to the finite numbers.
    pub(super) fn fit(signed: bool, log: bool, numbers: impl Iterator<Item = f64>) -> Self {
        let mut magnitudes: Vec<f64> = numbers.filter(|x| x.is_finite()).map(f64::abs).collect();
        magnitudes.sort_by(f64::total_cmp);
        let largest = magnitudes.last().copied().filter(|largest| *largest > 0.0).unwrap_or(1.0);
        if signed || !log {
            let top = robust_top(&magnitudes, largest);
            return Self { signed, spacing: Spacing::Linear, top, cut: top < largest, fixed: false };
        }
        magnitudes.retain(|x| *x > 0.0);
        let rank = ((1.0 - QUANTILE) * magnitudes.len() as f64) as usize;
        let low = magnitudes.get(rank).copied().unwrap_or(largest).max(largest / LARGEST_RATIO);
        let lo = 10_f64.powf(low.log10().floor()).min(largest / 10.0);
        let cut = magnitudes.first().is_some_and(|smallest| *smallest < lo);
        Self { signed, spacing: Spacing::Log(lo), top: largest, cut, fixed: false }
    }

    /// A linear scale with the same signs whose last colour is that of `end`.
    pub(super) fn ending_at(self, end: f64, mut numbers: impl Iterator<Item = f64>) -> Self {
        Self { spacing: Spacing::Linear, top: end, fixed: true, cut: numbers.any(|number| number.abs() > end), ..self }
    }

    pub(super) fn colour(&self, number: f64) -> RGBColor {
        self.colour_at(self.place(number))
    }

    /// Returns the colour at a position of the colour bar, from 0 at the bottom to 1 at the top.
    pub(super) fn colour_at(&self, place: f64) -> RGBColor {
        if self.signed {
            colour::diverging(place)
        } else {
            colour::sequential(place)
        }
    }

    /// Returns the position of a number in the colour bar, from 0 at the bottom to 1 at the top.
    fn place(&self, number: f64) -> f64 {
        let magnitude = match self.spacing {
            Spacing::Linear => number.abs() / self.top,
            Spacing::Log(lo) => (number.abs().max(lo) / lo).ln() / (self.top / lo).ln(),
        };
        let magnitude = magnitude.min(1.0);
        if self.signed {
            0.5 + 0.5 * magnitude.copysign(number)
        } else {
            magnitude
        }
    }

    /// Returns the ticks of a colour bar as (position, label), at least the fraction `gap` of the bar apart.
    pub(super) fn ticks(&self, gap: f64) -> Vec<(f64, String)> {
        let mut kept: Vec<(f64, String)> = Vec::new();
        for (place, text) in self.candidates() {
            if kept.iter().all(|(other, _)| (place - other).abs() >= gap) {
                kept.push((place, text));
            }
        }
        kept
    }

    /// Returns possible ticks as (position, label), more important ones first.
    fn candidates(&self) -> Vec<(f64, String)> {
        let sides = if self.signed { [("", 1.0), ("−", -1.0)].as_slice() } else { &[("", 1.0)] };
        let mut all = Vec::new();
        let axis = match self.spacing {
            Spacing::Linear => {
                let axis = Axis::stepped(0.0, self.top, false, if self.signed { 3.0 } else { 5.0 });
                for (sign, side) in sides.iter().filter(|_| self.cut) {
                    let relation = if sign.is_empty() { "≥" } else { "≤" };
                    all.push((self.place(side * self.top), format!("{relation} {sign}{}", axis.number(self.top))));
                }
                all.push((self.place(0.0), "0".into()));
                axis
            }
            Spacing::Log(lo) => {
                let axis = Axis::log(lo, self.top);
                all.push((0.0, format!("{}{}", if self.cut { "≤ " } else { "" }, axis.number(lo))));
                axis
            }
        };
        for &tick in axis.ticks.iter().rev() {
            all.extend(
                sides.iter().map(|(sign, side)| (self.place(side * tick), format!("{sign}{}", axis.number(tick)))),
            );
        }
        all
    }

    /// Returns a note on the kind of scale; empty for an ordinary linear one.
    pub(super) fn note(&self) -> String {
        match self.spacing {
            Spacing::Linear if self.cut && !self.fixed => {
                format!("end: {} % quantile of magnitudes", decimal(100.0 * QUANTILE))
            }
            Spacing::Linear => String::new(),
            Spacing::Log(_) => "logarithmic".into(),
        }
    }
}

/// Returns the quantile of the sorted magnitudes, rounded up to two digits; the largest magnitude if that is at most
/// twice as large.
fn robust_top(magnitudes: &[f64], largest: f64) -> f64 {
    let rank = (QUANTILE * magnitudes.len() as f64).ceil() as usize;
    let quantile = magnitudes.get(rank.saturating_sub(1)).copied().unwrap_or(0.0);
    if quantile == 0.0 || largest <= 2.0 * quantile {
        return largest;
    }
    let unit = 10_f64.powf(quantile.log10().floor() - 1.0);
    ((quantile / unit - 1e-9).ceil() * unit).min(largest)
}

/// Heights that a colour bar has beside its panels.
pub(super) const BAR_HEIGHT: (f64, f64) = (260.0, 440.0);
/// Number of colours of a bar.
const STEPS: usize = 256;
/// Width of the colours of a bar.
const BAR_WIDTH: f64 = 26.0;
/// Least distance between tick labels.
const TICK_GAP: f64 = 26.0;
const LABEL: TextFormat = AXIS_LABEL.at(Anchor::Upward);
const NOTE: TextFormat = TextFormat { em: 19.0, ..LABEL }.in_colour(FAINT_INK);
/// By how much a label may be longer than the bar.
const LABEL_EXCESS: f64 = 24.0;
/// Distance between lines of the label.
const LINE_STEP: f64 = 28.0;

/// A bar with the colours of a scale, the largest number on top, and its label.
pub(super) struct ColourBar<'a> {
    fitted: &'a FittedScale,
    pub(super) height: f64,
    ticks: Vec<(f64, String)>,
    /// Lines of the label, and of a grey note on the kind of scale.
    lines: Vec<(String, TextFormat)>,
}

impl<'a> ColourBar<'a> {
    pub(super) fn new(fitted: &'a FittedScale, label: &str, height: f64) -> Self {
        let mut lines = Vec::new();
        for (text, format) in [(label, LABEL), (&fitted.note(), NOTE)] {
            lines.extend(even_lines(text, format, height).into_iter().map(|line| (line, format)));
        }
        Self { fitted, height, ticks: fitted.ticks(TICK_GAP / height), lines }
    }

    /// Returns the width from the left edge of the colours to the right edge of the last line.
    pub(super) fn width(&self) -> f64 {
        BAR_WIDTH + self.label_distance() + LINE_STEP * (self.lines.len() as f64 - 0.5)
    }

    /// Draws the bar with its upper left corner at a point.
    pub(super) fn draw(&self, figure: &mut Figure, (x, y): (f64, f64)) {
        let area = Area { x, y, width: BAR_WIDTH, height: self.height };
        let places = (0..STEPS).rev().map(|i| i as f64 / (STEPS - 1) as f64);
        let colours: Vec<RGBColor> = places.map(|place| self.fitted.colour_at(place)).collect();
        figure.bitmap(area, (STEPS, 1), &colours);
        for (place, text) in &self.ticks {
            let y = area.bottom() - area.height * place;
            figure.fill(Area { x: area.right(), y: y - 0.5, width: 7.0, height: 1.5 }, AXIS);
            figure.text((area.right() + 14.0, y), text, TICK.at(Anchor::Left));
        }
        let first = area.right() + self.label_distance();
        for (i, (line, format)) in self.lines.iter().enumerate() {
            figure.text((first + LINE_STEP * i as f64, area.centre().1), line, *format);
        }
    }

    fn label_distance(&self) -> f64 {
        let widest = self.ticks.iter().map(|(_, text)| TICK.width(text)).fold(0.0, f64::max);
        (14.0 + widest + 32.0).round()
    }
}

/// Wraps a label to the height of a bar, into lines of about equal length; none of an empty label.
fn even_lines(text: &str, format: TextFormat, height: f64) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let lines = format.wrap(text, height + LABEL_EXCESS);
    let even = format.wrap(text, 1.2 * format.width(text) / lines.len() as f64);
    if even.len() == lines.len() {
        even
    } else {
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(fitted: &FittedScale, gap: f64) -> Vec<String> {
        let mut ticks = fitted.ticks(gap);
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        ticks.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns numbers up to 0.01, and one of 0.9.
    fn with_sink() -> Vec<f64> {
        (1..=1000).map(|i| f64::from(i) / 1e5).chain([0.9]).collect()
    }

    #[test]
    fn one_sink_does_not_take_the_colours_of_all_others() {
        let fitted = FittedScale::fit(false, false, with_sink().into_iter());
        assert!((fitted.top - 0.01).abs() < 1e-9 && fitted.cut, "{fitted:?}");
        assert_eq!(fitted.colour(0.9), colour::sequential(1.0));
        assert_eq!(texts(&fitted, 0.08), ["0", "0.002", "0.004", "0.006", "0.008", "≥ 0.01"]);
        assert!(fitted.note().contains("99.5 %"), "{}", fitted.note());
    }

    #[test]
    fn numbers_without_outliers_have_the_whole_scale() {
        let fitted = FittedScale::fit(false, false, (0..=10).map(|i| f64::from(i) / 10.0));
        assert_eq!((fitted.top, fitted.cut, fitted.note()), (1.0, false, String::new()));
        assert_eq!(texts(&fitted, 0.08), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn a_scale_may_end_at_a_given_number() {
        let fitted = FittedScale::fit(false, false, [3.0, 40.0].into_iter()).ending_at(100.0, [3.0, 40.0].into_iter());
        assert_eq!(fitted.colour(50.0), colour::sequential(0.5));
        assert_eq!(texts(&fitted, 0.08), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn a_signed_scale_is_symmetric_about_white() {
        let fitted = FittedScale::fit(true, false, with_sink().into_iter().map(|x| -x));
        assert_eq!(fitted.colour(0.0), colour::PAPER);
        for x in [1e-5, 0.004, 0.5] {
            assert!((fitted.place(x) + fitted.place(-x) - 1.0).abs() < 1e-12);
        }
        let texts = texts(&fitted, 0.08);
        assert!(texts.contains(&"0".into()) && texts[0].contains('−'), "{texts:?}");
    }

    #[test]
    fn a_logarithmic_scale_shows_the_sink_and_the_rest() {
        let fitted = FittedScale::fit(false, true, with_sink().into_iter().chain([1e-9]));
        assert!((fitted.place(0.9) - 1.0).abs() < 1e-12 && fitted.place(0.01) > 0.4, "{fitted:?}");
        assert_eq!(texts(&fitted, 0.08), ["≤ 10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹"]);
    }

    #[test]
    fn nothing_to_show_and_zeros_have_a_scale_too() {
        for numbers in [vec![], vec![f64::NAN, f64::INFINITY], vec![0.0; 5]] {
            for (signed, log) in [(false, false), (true, false), (false, true)] {
                let fitted = FittedScale::fit(signed, log, numbers.iter().copied());
                assert!(fitted.place(0.5).is_finite() && !fitted.ticks(0.1).is_empty(), "{fitted:?}");
            }
        }
    }

    #[test]
    fn a_label_of_two_lines_is_broken_in_the_middle() {
        assert_eq!(even_lines("exact match (%)", LABEL, 350.0), ["exact match (%)"]);
        assert_eq!(
            even_lines("attention weight (max of each bin)", LABEL, 340.0),
            ["attention weight", "(max of each bin)"]
        );
    }
}
