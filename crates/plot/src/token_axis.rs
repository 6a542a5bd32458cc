//! The tokens along one side of an attention map: positions or texts, and bands of regions.

use super::axis::Axis;
use super::colour::{self, AXIS};
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use plotters::style::RGBColor;
use std::cmp::Reverse;
use std::ops::Range;

/// The tokens along one side of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenAxis {
    /// Positions in the prompt.
    pub(super) range: Range<usize>,
    /// Runs of tokens of one region, within the range.
    pub(super) regions: Vec<(String, Range<usize>)>,
    texts: Vec<String>,
}

/// Largest number of tokens with texts instead of numbers.
const MOST_TEXTS: usize = 80;
/// Least distance between token texts along an axis, in pixels.
const TEXT_PITCH: f64 = 17.0;
/// Least distance between them where a page has no more room.
const LEAST_PITCH: f64 = 11.0;
const TEXT_MAX_WIDTH: f64 = 130.0;
/// Thickness of a band of regions, and its distance from the map.
const BAND: (f64, f64) = (10.0, 4.0);
/// Least width of a run in pixels, so that an answer of five tokens among thousands is visible.
const RUN_MIN_WIDTH: f64 = 3.0;
const NUMBERS_HEIGHT: f64 = 24.0;
const LABEL_HEIGHT: f64 = 40.0;

impl TokenAxis {
    /// The tokens at the positions `range` of a prompt. `regions` are runs of tokens of one region, (name, positions),
    /// in any order, drawn as a band along the side as far as they lie in the range. `texts` are those of the tokens,
    /// drawn if there are at most 80; empty for numbers only.
    pub fn new(
        range: Range<usize>,
        regions: impl IntoIterator<Item = (String, Range<usize>)>,
        texts: Vec<String>,
    ) -> Self {
        let regions = regions.into_iter().map(|(name, run)| (name, run.start.max(range.start)..run.end.min(range.end)));
        Self { regions: regions.filter(|(_, run)| !run.is_empty()).collect(), range, texts }
    }

    /// The room that tokens left of a side need, if numbers of `numbers` width stand there too.
    pub(super) fn room_left(&self, side: f64, numbers: f64) -> f64 {
        LABEL_HEIGHT + self.label_width(side).max(numbers) + 14.0 + self.band_thickness()
    }

    /// The room that tokens below a side need.
    pub(super) fn room_below(&self, side: f64) -> f64 {
        self.band_thickness() + 12.0 + self.labels_height(side) + LABEL_HEIGHT
    }

    pub(super) fn band_thickness(&self) -> f64 {
        if self.regions.is_empty() {
            0.0
        } else {
            BAND.0 + BAND.1
        }
    }

    /// The pixels that the texts of all tokens need along an axis; 0 without texts.
    pub(super) fn texts_length(&self) -> f64 {
        TEXT_PITCH * self.texts_drawn() as f64
    }

    /// The pixels that they need at least, where a page has no more room.
    pub(super) fn least_texts_length(&self) -> f64 {
        LEAST_PITCH * self.texts_drawn() as f64
    }

    /// The number of texts, if they are few enough to be drawn.
    fn texts_drawn(&self) -> usize {
        Some(self.texts.len()).filter(|n| *n <= MOST_TEXTS).unwrap_or(0)
    }

    /// Draws the tokens and their regions left of a map.
    pub(super) fn draw_left(&self, figure: &mut Figure, map: Area) {
        let x = map.x - self.draw_band_left(figure, map);
        let format = self.label_format(map.height).at(Anchor::Right);
        for (place, text) in self.labels(map.height) {
            let y = map.y + map.height * place;
            if !self.has_texts(map.height) {
                figure.fill(Area { x: x - 7.0, y: y - 0.75, width: 7.0, height: 1.5 }, AXIS);
            }
            figure.text((x - 12.0, y), &text, format);
        }
        let x = x - 14.0 - self.label_width(map.height) - 18.0;
        figure.text((x, map.centre().1), name("query", map.height), AXIS_LABEL.at(Anchor::Upward));
    }

    /// Draws the regions along the left edge of a map. Returns the thickness of the band with its distance.
    pub(super) fn draw_band_left(&self, figure: &mut Figure, map: Area) -> f64 {
        for ((y, height), colour) in self.runs(map.height) {
            figure.fill(Area { x: map.x - BAND.0 - BAND.1, width: BAND.0, y: map.y + y, height }, colour);
        }
        self.band_thickness()
    }

    /// Draws the regions along the upper edge of an area. Returns the thickness of the band with its distance.
    pub(super) fn draw_band_below(&self, figure: &mut Figure, below: Area) -> f64 {
        for ((x, width), colour) in self.runs(below.width) {
            figure.fill(Area { x: below.x + x, width, y: below.y + BAND.1, height: BAND.0 }, colour);
        }
        self.band_thickness()
    }

    /// Draws the tokens along the upper edge of an area.
    pub(super) fn draw_below(&self, figure: &mut Figure, below: Area) {
        let format = self.label_format(below.width);
        for (place, text) in self.labels(below.width) {
            let x = below.x + below.width * place;
            if self.has_texts(below.width) {
                figure.text((x, below.y + 8.0), &text, format.at(Anchor::Hanging));
            } else {
                figure.fill(Area { x: x - 0.75, y: below.y, width: 1.5, height: 7.0 }, AXIS);
                figure.text((x, below.y + NUMBERS_HEIGHT), &text, format);
            }
        }
        let y = below.y + 32.0 + self.labels_height(below.width);
        figure.text((below.centre().0, y), name("key", below.width), AXIS_LABEL);
    }

    /// ((start, length), colour) of each run along a side, the longest first so that short ones are not hidden.
    fn runs(&self, side: f64) -> Vec<((f64, f64), RGBColor)> {
        let mut regions: Vec<_> = self.regions.iter().collect();
        regions.sort_by_key(|(_, run)| Reverse(run.len()));
        let pitch = side / self.range.len() as f64;
        let runs = regions.into_iter().map(|(name, run)| {
            let length = (pitch * run.len() as f64).max(RUN_MIN_WIDTH.min(side));
            let begin = pitch * (run.start - self.range.start) as f64;
            ((begin.min(side - length), length), colour::region(name))
        });
        runs.collect()
    }

    /// Returns `true` if the tokens have texts along a side of this length.
    fn has_texts(&self, side: f64) -> bool {
        self.texts_drawn() > 0 && side >= self.least_texts_length()
    }

    /// The labels of the axis as (position from 0 to 1, text).
    fn labels(&self, side: f64) -> Vec<(f64, String)> {
        let tokens = self.range.len() as f64;
        if self.has_texts(side) {
            let format = self.label_format(side);
            let texts = self.texts.iter().map(|text| format.fit(&visible(text), TEXT_MAX_WIDTH));
            return texts.enumerate().map(|(i, text)| ((i as f64 + 0.5) / tokens, text)).collect();
        }
        let first = self.range.start as f64;
        let last = self.range.end as f64 - 1.0;
        let axis = Axis::stepped(first, last, false, (side / 90.0).clamp(2.0, 5.0));
        // 32764 instead of 32.764k, but 30k.
        let is_short = axis.ticks.iter().all(|tick| tick % 1000.0 == 0.0);
        let mut labels = Vec::new();
        for tick in axis.ticks.iter().copied().filter(|tick| tick.fract() == 0.0 && *tick <= last) {
            let text = if is_short { axis.number(tick) } else { tick.to_string() };
            labels.push(((tick - first + 0.5) / tokens, text));
        }
        labels
    }

    fn label_width(&self, side: f64) -> f64 {
        let format = self.label_format(side);
        self.labels(side).iter().map(|(_, text)| format.width(text)).fold(0.0, f64::max)
    }

    /// The height of labels below a side.
    fn labels_height(&self, side: f64) -> f64 {
        if self.has_texts(side) {
            self.label_width(side)
        } else {
            NUMBERS_HEIGHT
        }
    }

    fn label_format(&self, side: f64) -> TextFormat {
        if self.has_texts(side) {
            TextFormat { em: (0.9 * side / self.texts.len() as f64).min(19.0), ..TICK }
        } else {
            TICK
        }
    }
}

/// The name of a side: `query token`, or a short side's first word.
fn name(which: &'static str, side: f64) -> &'static str {
    let long = if which == "query" { "query token" } else { "key token" };
    if AXIS_LABEL.width(long) <= side {
        long
    } else {
        which
    }
}

/// A token's text on one line, with symbols for spaces and line breaks.
fn visible(text: &str) -> String {
    let symbols = text.chars().map(|character| match character {
        ' ' => '·',
        '\n' => '¶',
        other if other.is_control() => '?',
        other => other,
    });
    symbols.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(range: Range<usize>, texts: &[&str]) -> TokenAxis {
        let regions = [("answer".to_string(), 1000..1005), ("filler".to_string(), 0..4096)];
        TokenAxis::new(range, regions, texts.iter().map(|text| text.to_string()).collect())
    }

    #[test]
    fn few_tokens_have_texts_and_many_have_round_positions() {
        let few = tokens(0..3, &["The", " magic", "\n"]);
        assert_eq!(few.labels(300.0)[1..], [(0.5, "·magic".to_string()), (2.5 / 3.0, "¶".to_string())]);
        let many = tokens(0..4096, &[]).labels(560.0);
        let texts: Vec<&str> = many.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["0", "1000", "2000", "3000", "4000"]);
        let texts: Vec<String> = tokens(4090..4093, &[]).labels(560.0).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["4090", "4091", "4092"]);
        assert_eq!(tokens(32763..32768, &[]).labels(140.0)[0].1, "32764");
        assert_eq!(tokens(0..32768, &[]).labels(560.0)[1].1, "10k");
    }

    #[test]
    fn a_short_run_is_drawn_over_longer_ones_and_wide_enough_to_be_seen() {
        let runs = tokens(0..4096, &[]).runs(512.0);
        assert_eq!(runs[0].0, (0.0, 512.0));
        assert_eq!(runs[1], ((125.0, RUN_MIN_WIDTH), colour::region("answer")));
        assert_eq!(tokens(0..1000, &[]).regions, [("filler".to_string(), 0..1000)]);
    }
}
