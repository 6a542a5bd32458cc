//! Axes: positions of numbers, and tick labels.
//!
//! The mesh of plotters would draw them, but it centres labels by the height of an x that a viewer's font has
//! (`dy="0.5ex"`), measures them with another font than ours, and knows no labels of several lines.

use super::colour::{AXIS, GRID};
use super::figure::{Area, Figure};
use super::text::{Anchor, AXIS_LABEL, TICK};
use anyhow::{Context as _, Result};
use names::values::tokens_name;

/// A linear or logarithmic axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) lo: f64,
    pub(super) hi: f64,
    log: bool,
    labels: TickLabels,
    /// The numbers with tick labels.
    pub(super) ticks: Vec<f64>,
}

/// How the numbers at ticks are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TickLabels {
    /// 0.25, 5k.
    Decimal,
    /// 10⁻⁵.
    PowersOfTen,
    /// Numbers of tokens: 512, 1k for 1024.
    Tokens,
}

/// Largest number of labelled decades on an axis.
const MOST_DECADES: i32 = 7;
/// Largest number of labelled powers of two on an axis.
const MOST_DOUBLINGS: i32 = 8;
/// Room beyond the ends of an axis, as a fraction of it.
const MARGIN: f64 = 0.05;
const TICK_LENGTH: f64 = 7.0;
/// Least distance between numbers along an x axis.
const NUMBER_GAP: f64 = 8.0;

/// The smallest and the largest of some numbers.
///
/// # Errors
/// If there are no numbers.
pub(super) fn extent(numbers: impl IntoIterator<Item = f64>) -> Result<(f64, f64)> {
    let ends = numbers.into_iter().map(|x| (x, x)).reduce(|(lo, hi), (x, _)| (lo.min(x), hi.max(x)));
    ends.context("no points to draw")
}

/// Draws the frame of a panel, with grid lines along both axes, and the numbers at them that do not meet another.
pub(super) fn draw_axes(figure: &mut Figure, area: Area, x_axis: &Axis, y_axis: &Axis) {
    draw_y_axis(figure, area, y_axis);
    let mut free = f64::NEG_INFINITY;
    for tick in x_axis.sorted_ticks() {
        let x = area.x + area.width * x_axis.place(tick);
        figure.fill(Area { x: x - 0.75, width: 1.5, ..area }, GRID);
        draw_tick_below(figure, area, x);
        let number = x_axis.number(tick);
        let half = TICK.width(&number) / 2.0;
        if x - half >= free {
            figure.text((x, area.bottom() + BELOW_TICK.0), &number, TICK);
            free = x + half + NUMBER_GAP;
        }
    }
    figure.frame(area, AXIS, 1.5);
}

/// Draws a tick below the frame of a panel.
pub(super) fn draw_tick_below(figure: &mut Figure, area: Area, x: f64) {
    figure.fill(Area { x: x - 0.75, width: 1.5, y: area.bottom(), height: TICK_LENGTH }, AXIS);
}

/// Room below tick labels of one line for the label of an x axis of one line.
pub(super) const BELOW: f64 = 86.0;
/// How far the label of an x axis may be wider than its panel.
const LABEL_OVERHANG: f64 = 50.0;

fn x_label_lines(label: &str, width: f64) -> Vec<String> {
    AXIS_LABEL.wrap(label, width + LABEL_OVERHANG)
}

/// The room that the label of an x axis needs below a panel, beyond that of one line; negative without a label.
pub(super) fn x_label_room(label: &str, width: f64) -> f64 {
    let lines = x_label_lines(label, width).iter().filter(|line| !line.is_empty()).count();
    LABEL_LINE * (lines as f64 - 1.0)
}

/// Draws the label of an x axis, below tick labels that need `room` beyond that of one line.
pub(super) fn draw_x_label(figure: &mut Figure, area: Area, label: &str, room: f64) {
    for (i, line) in x_label_lines(label, area.width).iter().enumerate() {
        figure.text((area.centre().0, area.bottom() + 60.0 + room + LABEL_LINE * i as f64), line, AXIS_LABEL);
    }
}

/// Draws the horizontal grid lines of a panel, and left of it the numbers that do not meet another.
pub(super) fn draw_y_axis(figure: &mut Figure, area: Area, axis: &Axis) {
    let mut free = f64::INFINITY;
    for tick in axis.sorted_ticks() {
        let y = area.bottom() - area.height * axis.place(tick);
        figure.fill(Area { y: y - 0.75, height: 1.5, ..area }, GRID);
        figure.fill(Area { x: area.x - TICK_LENGTH, width: TICK_LENGTH, y: y - 0.75, height: 1.5 }, AXIS);
        if y <= free {
            figure.text((area.x - 14.0, y), &axis.number(tick), TICK.at(Anchor::Right));
            free = y - TICK.em;
        }
    }
}

/// Labels of an axis of categories: each word in a line of its own, or slanted where that has no room. Of numbers, which
/// follow each other, some have none instead.
pub(super) struct CategoryLabels<'a> {
    labels: &'a [String],
    are_numbers: bool,
    /// Least distance of the middles of labels that are not slanted, so that no two of them meet.
    pub(super) pitch: f64,
}

/// Least distance between labels of categories.
const LABEL_GAP: f64 = 8.0;
/// Distance of the lines of such a label.
pub(super) const LABEL_LINE: f64 = 26.0;
/// Distance of the first line from the panel, and of the end of a slanted label.
const BELOW_TICK: (f64, f64) = (24.0, 16.0);
/// Slant of labels in degrees, and of those that would stand out too far on the left.
const SLANTS: [f64; 2] = [45.0, 90.0];
/// How far a slanted label may stand out on the left.
const OVERHANG: f64 = 80.0;

impl<'a> CategoryLabels<'a> {
    pub(super) fn new(labels: &'a [String]) -> Self {
        let widths: Vec<f64> = labels.iter().map(|label| TICK.widest_word(label)).collect();
        let pitches = widths.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0 + LABEL_GAP);
        let are_numbers = labels.iter().all(|label| label.parse::<f64>().is_ok());
        Self { labels, are_numbers, pitch: pitches.fold(0.0, f64::max) }
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The slant of the labels below a panel of this width, in degrees; `None` for labels that are not slanted.
    fn slant(&self, width: f64) -> Option<f64> {
        // The tolerance is for a panel that is made for its labels.
        let is_slanted = !self.are_numbers && self.pitch > width / self.len() as f64 + 1e-6;
        let widest = self.widest();
        let mut slants = SLANTS.into_iter();
        is_slanted.then(|| slants.find(|degrees| widest * degrees.to_radians().cos() <= OVERHANG).unwrap_or(SLANTS[1]))
    }

    fn widest(&self) -> f64 {
        self.labels.iter().map(|label| TICK.width(label)).fold(0.0, f64::max)
    }

    /// The room that the labels need below a panel of this width, beyond that of one line.
    pub(super) fn room(&self, width: f64) -> f64 {
        let lines = self.labels.iter().map(|label| label.split(' ').count()).max().unwrap_or(1);
        match self.slant(width) {
            Some(slant) => (self.widest() * slant.to_radians().sin() - BELOW_TICK.1).max(0.0),
            None => LABEL_LINE * (lines - 1) as f64,
        }
    }

    /// Draws the labels below an area.
    pub(super) fn draw(&self, figure: &mut Figure, area: Area) {
        let slot = area.width / self.len() as f64;
        let slant = self.slant(area.width);
        let step = if self.are_numbers { (self.pitch / slot - 1e-6).ceil().max(1.0) as usize } else { 1 };
        for (i, label) in self.labels.iter().enumerate().step_by(step.next_power_of_two()) {
            let x = area.x + slot * (i as f64 + 0.5);
            if let Some(slant) = slant {
                figure.turned_text((x, area.bottom() + BELOW_TICK.1), label, TICK.at(Anchor::Right), slant);
                continue;
            }
            for (line, word) in label.split(' ').enumerate() {
                figure.text((x, area.bottom() + BELOW_TICK.0 + LABEL_LINE * line as f64), word, TICK);
            }
        }
    }
}

impl Axis {
    /// A linear axis with about five steps of 1, 2 or 5 × 10ⁿ; `wide` extends the ends to whole steps.
    pub(super) fn linear(lo: f64, hi: f64, wide: bool) -> Self {
        Self::stepped(lo, hi, wide, 5.0)
    }

    /// As [`Axis::linear`], with about `steps` steps.
    pub(super) fn stepped(lo: f64, hi: f64, wide: bool, steps: f64) -> Self {
        let hi = if hi > lo { hi } else { lo + lo.abs().max(1.0) };
        let rough = (hi - lo) / steps;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = decade * [1.0, 2.0, 5.0].into_iter().find(|step| step * decade >= rough).unwrap_or(10.0);
        // An end that lies beyond a tick by less than a twentieth of a step adds none.
        let whole = (((lo / step + 0.05).floor() * step), ((hi / step - 0.05).ceil() * step));
        let (lo, hi) = if wide { whole } else { (lo, hi) };
        let whole = (lo / step - 1e-9).ceil() as i64..=(hi / step + 1e-9).floor() as i64;
        let labels = if lo.abs().max(hi.abs()) < 1e-3 { TickLabels::PowersOfTen } else { TickLabels::Decimal };
        Self { lo, hi, log: false, labels, ticks: whole.map(|i| i as f64 * step).collect() }
    }

    /// A logarithmic axis with ticks at powers of ten, some of them on a long axis, and at 2 and 5 times them on
    /// a short one. Both ends must be positive.
    pub(super) fn log(lo: f64, hi: f64) -> Self {
        let hi = if hi > lo { hi } else { 10.0 * lo };
        let between: &[f64] = if hi / lo < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        // The tolerance keeps ends that are powers of ten.
        let first = (lo.log10() + 1e-9).floor() as i32;
        let last = (hi.log10() - 1e-9).ceil() as i32;
        let step = (last - first + MOST_DECADES - 1) / MOST_DECADES;
        let decades = (first..=last).filter(|decade| decade % step == 0);
        let all = decades.flat_map(|decade| between.iter().map(move |step| step * 10_f64.powi(decade)));
        // Large numbers have suffixes instead.
        let labels = if lo < 1e-3 && hi < 1e4 { TickLabels::PowersOfTen } else { TickLabels::Decimal };
        Self { lo, hi, log: true, labels, ticks: all.filter(|tick| (lo * 0.999..=hi * 1.001).contains(tick)).collect() }
    }

    /// A logarithmic axis of numbers of tokens with ticks at powers of two, some of them on a long axis; as
    /// [`Axis::log`] if it has fewer than two of them. Both ends must be positive.
    pub(super) fn log_tokens(lo: f64, hi: f64) -> Self {
        // The last of 1024 positions is 1023.
        let first = lo.log2().ceil() as i32;
        let last = (1.005 * hi).log2().floor() as i32;
        if last <= first {
            return Self::log(lo, hi);
        }
        let step = (last - first) / MOST_DOUBLINGS + 1;
        let ticks = (first..=last).rev().step_by(step as usize).map(|power| 2_f64.powi(power)).collect();
        Self { lo, hi, log: true, labels: TickLabels::Tokens, ticks }
    }

    /// An axis of `n` categories in equal steps, which are the numbers 0, 1, 2 … and have no ticks.
    pub(super) fn categories(n: usize) -> Self {
        Self { lo: -0.5, hi: n as f64 - 0.5, log: false, labels: TickLabels::Decimal, ticks: Vec::new() }
    }

    /// The axis with room beyond both ends, so that no marker lies on the frame.
    pub(super) fn with_margin(self) -> Self {
        let (lo, hi) = if self.log {
            let room = (self.hi / self.lo).powf(MARGIN);
            (self.lo / room, self.hi * room)
        } else {
            let room = MARGIN * (self.hi - self.lo);
            (self.lo - room, self.hi + room)
        };
        Self { lo, hi, ..self }
    }

    /// The ticks in ascending order.
    fn sorted_ticks(&self) -> Vec<f64> {
        let mut ticks = self.ticks.clone();
        ticks.sort_by(f64::total_cmp);
        ticks
    }

    /// The position of `x`, from 0 at the beginning of the axis to 1 at its end.
    pub(super) fn place(&self, x: f64) -> f64 {
        let [x, lo, hi] = [x, self.lo, self.hi].map(|x| if self.log { x.ln() } else { x });
        (x - lo) / (hi - lo)
    }

    /// Formats a tick label: 0.25, 20, 5k, 1.5M, 10⁻⁵.
    pub(super) fn number(&self, tick: f64) -> String {
        match self.labels {
            _ if tick == 0.0 => return "0".into(),
            TickLabels::PowersOfTen => return power_of_ten(tick),
            TickLabels::Tokens => return tokens_name(tick as usize),
            TickLabels::Decimal => {}
        }
        let largest = if self.log { tick } else { self.lo.abs().max(self.hi.abs()) };
        let (unit, suffix) = match largest {
            1e9.. => (1e9, "G"),
            1e6.. => (1e6, "M"),
            1e4.. => (1e3, "k"),
            _ => (1.0, ""),
        };
        format!("{}{suffix}", decimal(tick / unit))
    }
}

/// Formats a number with at most seven significant digits, which hides binary rounding.
fn decimal(x: f64) -> String {
    let rounded: f64 = format!("{x:.6e}").parse().expect("a printed number can be read");
    rounded.to_string().replace('-', "−")
}

/// Formats a number other than zero as 10⁻⁵ or 2·10⁻⁵.
fn power_of_ten(x: f64) -> String {
    let printed = format!("{:.6e}", x.abs());
    let (digits, exponent) = printed.split_once('e').expect("printed with an exponent");
    let raised: String = exponent.chars().map(superscript).collect();
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let sign = if x < 0.0 { "−" } else { "" };
    if digits == "1" {
        format!("{sign}10{raised}")
    } else {
        format!("{sign}{digits}·10{raised}")
    }
}

fn superscript(sign: char) -> char {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    sign.to_digit(10).map_or('⁻', |digit| RAISED[digit as usize])
}

#[cfg(test)]
mod tests {
    use super::super::figure::Page;
    use super::*;

    fn numbers(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|&tick| axis.number(tick)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(numbers(&Axis::linear(0.0, 1.0, false)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(numbers(&Axis::linear(0.31, 6.2, true)), ["0", "2", "4", "6", "8"]);
        assert_eq!(numbers(&Axis::linear(0.0, 98e6, false)), ["0", "20M", "40M", "60M", "80M"]);
        assert_eq!(numbers(&Axis::linear(-0.3, 0.1, true)), ["−0.3", "−0.2", "−0.1", "0", "0.1"]);
        assert_eq!(numbers(&Axis::linear(-4e-5, 4e-5, true)), ["−4·10⁻⁵", "−2·10⁻⁵", "0", "2·10⁻⁵", "4·10⁻⁵"]);
        assert_eq!(numbers(&Axis::log(8e4, 5e7)), ["100k", "200k", "500k", "1M", "2M", "5M", "10M", "20M", "50M"]);
        assert_eq!(numbers(&Axis::log(1.0, 1e4)), ["1", "10", "100", "1000", "10k"]);
        assert_eq!(numbers(&Axis::log(1e-4, 1.0)), ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰"]);
    }

    #[test]
    fn numbers_of_tokens_have_ticks_at_powers_of_two() {
        let tokens = |lo: f64, hi: f64| numbers(&Axis::log_tokens(lo, hi));
        assert_eq!(tokens(256.0, 1024.0), ["1k", "512", "256"]);
        assert_eq!(tokens(1.0, 32768.0), ["32k", "8k", "2k", "512", "128", "32", "8", "2"]);
        assert_eq!(tokens(300.0, 900.0), ["500"], "too few of them");
    }

    #[test]
    fn many_decades_have_few_numbers() {
        let axis = Axis::log(1e-12, 1.0);
        assert_eq!(numbers(&axis), ["10⁻¹²", "10⁻¹⁰", "10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]);
    }

    #[test]
    fn labels_have_a_line_for_each_word_and_are_slanted_where_they_meet() {
        let labels = ["none", "4 smooth rotate"].map(String::from);
        let labels = CategoryLabels::new(&labels);
        assert_eq!((labels.len(), labels.room(400.0)), (2, 2.0 * LABEL_LINE));
        assert_eq!(labels.pitch, (TICK.width("none") + TICK.width("smooth")) / 2.0 + LABEL_GAP);
        assert_eq!((labels.slant(2.0 * labels.pitch), labels.slant(100.0)), (None, Some(90.0)), "it is long");
        let names = ["BOS", "filler", "question"].map(String::from);
        assert_eq!(CategoryLabels::new(&names).slant(100.0), Some(45.0));
    }

    #[test]
    fn every_category_has_its_label_and_some_numbers_do() {
        let drawn = |labels: Vec<String>, width: f64| {
            let mut figure = Figure::new(800.0, 400.0, &Page::default());
            let area = Area { x: 200.0, y: 0.0, width, height: 100.0 };
            CategoryLabels::new(&labels).draw(&mut figure, area);
            labels.iter().filter(|label| figure.elements.contains(&format!("\n{label}\n"))).count()
        };
        let regions = ["BOS", "template", "filler", "distractor", "needle", "answer", "question"].map(String::from);
        assert_eq!([500.0, 200.0, 20.0].map(|width| drawn(regions.to_vec(), width)), [7; 3]);
        let layers = || (0..32).map(|layer| layer.to_string()).collect();
        assert_eq!([1500.0, 700.0, 350.0].map(|width| drawn(layers(), width)), [32, 16, 8]);
    }

    #[test]
    fn a_logarithmic_axis_is_spaced_by_ratios() {
        let axis = Axis::log(10.0, 1000.0);
        assert!((axis.place(100.0) - 0.5).abs() < 1e-12);
        assert_eq!((axis.place(10.0), axis.place(1000.0)), (0.0, 1.0));
    }
}
