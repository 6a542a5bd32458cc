//! Colour scales, shared by all panels that are compared, and their colour bars.

use super::axis::Axis;
use super::colour::{self, AXIS};
use super::figure::{Area, Figure};
use super::text::{Anchor, AXIS_LABEL, TICK};
use plotters::style::RGBColor;

/// The kind of colour scale of some panels. Its ends are taken from the numbers.
#[derive(Clone, Debug)]
pub struct ColourScale {
    /// Name and unit of the numbers, for example `attention weight (max of each bin)`.
    pub label: String,
    /// `true` if the scale is from blue for negative numbers over white for zero to red for positive ones. Otherwise it
    /// begins at zero, and no number may be negative. Both are logarithmic if a linear one would leave the map black or
    /// white.
    pub signed: bool,
}

/// Quantile of the magnitudes at which a linear scale ends, so that a single sink does not take all colours.
const QUANTILE: f64 = 0.995;
/// Largest ratio of the ends of a logarithmic scale.
const LARGEST_RATIO: f64 = 1e3;
/// A linear scale leaves a map black, or white with signs, if this fraction of its numbers are in this first part of the
/// scale. Of few numbers, as in a map with the texts of its tokens, each is seen.
const BLACK: (f64, f64) = (0.75, 0.05);
const MANY: usize = 3200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spacing {
    Linear,
    /// Logarithmic from this magnitude, which has the first colour, or white with signs, as do all smaller ones.
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
}

impl FittedScale {
    /// Fits a linear scale to the finite numbers.
    pub(super) fn linear(signed: bool, numbers: impl Iterator<Item = f64>) -> Self {
        Self::linear_of(signed, &magnitudes(numbers))
    }

    fn linear_of(signed: bool, magnitudes: &[f64]) -> Self {
        let largest = largest(magnitudes);
        let top = robust_top(magnitudes, largest);
        Self { signed, spacing: Spacing::Linear, top, cut: top < largest }
    }

    /// Fits a scale of maps to the finite numbers.
    pub(super) fn of_maps(signed: bool, numbers: impl Iterator<Item = f64>) -> Self {
        let mut magnitudes = magnitudes(numbers);
        let linear = Self::linear_of(signed, &magnitudes);
        let most = magnitudes.get((BLACK.0 * magnitudes.len() as f64) as usize);
        if magnitudes.len() < MANY || most.is_some_and(|most| *most > BLACK.1 * linear.top) {
            return linear;
        }
        let largest = largest(&magnitudes);
        magnitudes.retain(|x| *x > 0.0);
        let rank = ((1.0 - QUANTILE) * magnitudes.len() as f64) as usize;
        let low = magnitudes.get(rank).copied().unwrap_or(largest).max(largest / LARGEST_RATIO);
        let lo = 10_f64.powf(low.log10().floor()).min(largest / 10.0);
        let cut = magnitudes.first().is_some_and(|smallest| *smallest < lo);
        Self { signed, spacing: Spacing::Log(lo), top: largest, cut }
    }

    /// Gives the last colour to `end`, which no number exceeds.
    pub(super) fn ending_at(self, end: f64) -> Self {
        Self { top: end, cut: false, ..self }
    }

    pub(super) fn colour(&self, number: f64) -> RGBColor {
        self.colour_at(self.place(number))
    }

    /// The colour at a position of the colour bar, from 0 at the bottom to 1 at the top.
    pub(super) fn colour_at(&self, place: f64) -> RGBColor {
        if self.signed {
            colour::diverging(place)
        } else {
            colour::sequential(place)
        }
    }

    /// The position of a number in the colour bar, from 0 at the bottom to 1 at the top.
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

    /// The ticks of a colour bar of this width whose labels do not meet, from the left.
    pub(super) fn ticks(&self, width: f64) -> Vec<BarTick> {
        let mut kept: Vec<BarTick> = Vec::new();
        for (place, text) in self.candidates() {
            let half = TICK.width(&text) / 2.0;
            // Labels of the ends stand within the bar.
            let middle = (width * place).min(width - half).max(half);
            let mut gaps =
                kept.iter().map(|other| (middle - other.middle).abs() - half - TICK.width(&other.text) / 2.0);
            if gaps.all(|gap| gap >= TICK_GAP) {
                kept.push(BarTick { x: width * place, middle, text });
            }
        }
        kept.sort_by(|a, b| a.x.total_cmp(&b.x));
        kept
    }

    /// Possible ticks as (position, label), more important ones first.
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
                let mut axis = Axis::log(lo, self.top);
                axis.ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
                let prefix = match (self.signed, self.cut) {
                    (true, _) => "±",
                    (false, true) => "≤ ",
                    (false, false) => "",
                };
                all.push((self.place(lo), format!("{prefix}{}", axis.number(lo))));
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

    /// A note on the kind of scale for the subtitle; empty for an ordinary linear one.
    pub(super) fn note(&self) -> &'static str {
        match self.spacing {
            Spacing::Linear if self.cut => "colours end at the 99.5 % quantile",
            Spacing::Linear => "",
            Spacing::Log(_) => "logarithmic colours",
        }
    }
}

/// A tick of a colour bar, and the middle of its label, from the left.
pub(super) struct BarTick {
    x: f64,
    middle: f64,
    pub(super) text: String,
}

/// The finite magnitudes, sorted.
fn magnitudes(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut magnitudes: Vec<f64> = numbers.filter(|x| x.is_finite()).map(f64::abs).collect();
    magnitudes.sort_by(f64::total_cmp);
    magnitudes
}

/// The largest of the sorted magnitudes; 1 if there are only zeros.
fn largest(magnitudes: &[f64]) -> f64 {
    magnitudes.last().copied().filter(|largest| *largest > 0.0).unwrap_or(1.0)
}

/// The quantile of the sorted magnitudes, rounded up to two digits; the largest magnitude if that is at most
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

/// Room that a colour bar needs above panels.
pub(super) const BAR_ROOM: f64 = 108.0;
/// Largest width of a bar, and its height.
const BAR: (f64, f64) = (480.0, 24.0);
/// Distance from the top of the room to the colours, below the label.
const BELOW_LABEL: f64 = 30.0;
/// Number of colours of a bar.
const STEPS: usize = 256;
/// Least distance between tick labels.
const TICK_GAP: f64 = 16.0;

/// Draws a bar with the colours of a scale, the largest number on the right, above its ticks and below its label. It begins
/// at a point and fills a width, if that is small.
pub(super) fn draw_colour_bar(figure: &mut Figure, fitted: &FittedScale, label: &str, (x, y): (f64, f64), width: f64) {
    let bar = Area { x, y: y + BELOW_LABEL, width: width.min(BAR.0), height: BAR.1 };
    let colours: Vec<RGBColor> = (0..STEPS).map(|i| fitted.colour_at(i as f64 / (STEPS - 1) as f64)).collect();
    figure.text((x, y + 10.0), label, AXIS_LABEL.at(Anchor::Left));
    figure.bitmap(bar, (1, STEPS), &colours);
    for BarTick { x, middle, text } in fitted.ticks(bar.width) {
        figure.fill(Area { x: bar.x + x - 0.5, y: bar.bottom(), width: 1.5, height: 7.0 }, AXIS);
        figure.text((bar.x + middle, bar.bottom() + 22.0), &text, TICK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(fitted: &FittedScale, width: f64) -> Vec<String> {
        let ticks = fitted.ticks(width);
        let half = |tick: &BarTick| TICK.width(&tick.text) / 2.0;
        assert!(ticks.iter().all(|tick| tick.middle >= half(tick) && tick.middle + half(tick) <= width + 1e-9));
        ticks.into_iter().map(|tick| tick.text).collect()
    }

    /// Numbers up to 0.01, and one of 0.9.
    fn with_sink() -> Vec<f64> {
        (1..=1000).map(|i| f64::from(i) / 1e5).chain([0.9]).collect()
    }

    #[test]
    fn one_sink_does_not_take_the_colours_of_all_others() {
        let fitted = FittedScale::of_maps(false, with_sink().into_iter());
        assert!((fitted.top - 0.01).abs() < 1e-9 && fitted.cut, "{fitted:?}");
        assert_eq!(fitted.colour(0.9), colour::sequential(1.0));
        assert_eq!(texts(&fitted, 900.0), ["0", "0.002", "0.004", "0.006", "0.008", "≥ 0.01"]);
        assert!(fitted.note().contains("99.5 %"), "{}", fitted.note());
        assert_eq!(FittedScale::linear(false, with_sink().into_iter()), fitted);
    }

    #[test]
    fn numbers_without_outliers_have_the_whole_scale() {
        let fitted = FittedScale::of_maps(false, (0..=10).map(|i| f64::from(i) / 10.0));
        assert_eq!((fitted.top, fitted.cut, fitted.note()), (1.0, false, ""));
        assert_eq!(texts(&fitted, 900.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn a_scale_may_end_at_a_given_number() {
        let fitted = FittedScale::linear(false, [3.0, 40.0].into_iter()).ending_at(100.0);
        assert_eq!(fitted.colour(50.0), colour::sequential(0.5));
        assert_eq!(texts(&fitted, 900.0), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn a_signed_scale_is_symmetric_about_white() {
        let fitted = FittedScale::of_maps(true, with_sink().into_iter().map(|x| -x));
        assert_eq!(fitted.colour(0.0), colour::PAPER);
        for x in [1e-5, 0.004, 0.5] {
            assert!((fitted.place(x) + fitted.place(-x) - 1.0).abs() < 1e-12);
        }
        let texts = texts(&fitted, 900.0);
        assert!(texts.contains(&"0".into()) && texts[0].contains('−'), "{texts:?}");
    }

    #[test]
    fn a_map_that_a_linear_scale_leaves_black_has_a_logarithmic_one() {
        // A sink in every row, and small weights.
        let map = |rest: f64| {
            (0..100).flat_map(move |i| [0.9].into_iter().chain((1..50).map(move |j| rest * f64::from(i + j))))
        };
        let fitted = FittedScale::of_maps(false, map(1e-5));
        assert!((fitted.place(0.9) - 1.0).abs() < 1e-12 && fitted.place(1e-3) > 0.2, "{fitted:?}");
        assert_eq!(
            (texts(&fitted, 900.0), fitted.note()),
            (["≤ 10⁻⁴", "10⁻³", "10⁻²", "10⁻¹"].map(String::from).to_vec(), "logarithmic colours")
        );
        assert_eq!(FittedScale::of_maps(false, map(1e-3)).spacing, Spacing::Linear, "much to see");
        assert_eq!(FittedScale::of_maps(false, map(1e-5).take(500)).spacing, Spacing::Linear, "few tokens");
    }

    #[test]
    fn a_logarithmic_scale_with_signs_is_white_up_to_its_smallest_number() {
        let map = (0..100).flat_map(|i| [0.9, -0.3].into_iter().chain((1..50).map(move |j| -1e-5 * f64::from(i + j))));
        let fitted = FittedScale::of_maps(true, map);
        assert_eq!(texts(&fitted, 900.0), ["−10⁻¹", "−10⁻²", "−10⁻³", "±10⁻⁴", "10⁻³", "10⁻²", "10⁻¹"]);
        assert_eq!((fitted.colour(1e-4), fitted.colour(-1e-5)), (colour::PAPER, colour::PAPER));
        assert!((fitted.place(0.9) - 1.0).abs() < 1e-12 && (fitted.place(-0.9)).abs() < 1e-12, "{fitted:?}");
    }

    #[test]
    fn nothing_to_show_and_zeros_have_a_scale_too() {
        for numbers in [vec![], vec![f64::NAN, f64::INFINITY], vec![0.0; MANY]] {
            for signed in [false, true] {
                let fitted = FittedScale::of_maps(signed, numbers.iter().copied());
                assert!(fitted.place(0.5).is_finite() && !fitted.ticks(480.0).is_empty(), "{fitted:?}");
            }
        }
    }
}
