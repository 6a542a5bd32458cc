//! One attention map with its axes, bands of regions, and profile curve.

use super::axis::{draw_y_axis, Axis};
use super::colour::{self, AXIS, INK, MASKED};
use super::colourscale::FittedScale;
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, AXIS_LABEL, PANEL_DETAIL, PANEL_TITLE, TICK};
use plotters::style::RGBColor;
use std::cmp::Reverse;
use std::ops::Range;

/// One attention map.
#[derive(Clone, Debug)]
pub struct MapPanel {
    /// The model.
    pub title: String,
    /// Detail below the title, for example `layer 2 · mean of 8 heads · λ 0.41 · A1 − λA2`.
    pub detail: String,
    /// Index into [`Heatmaps::scales`](super::Heatmaps::scales).
    pub scale: usize,
    /// The map, rows along `queries` and columns along `keys`.
    pub bins: Bins,
    /// Share of the sink in each row, drawn left of the map; empty without a sink.
    pub sink: Vec<f32>,
    /// The tokens of the rows, from the top.
    pub queries: TokenAxis,
    /// The tokens of the columns.
    pub keys: TokenAxis,
    /// A profile over the same keys, drawn below the map.
    pub profile: Option<Profile>,
}

/// A matrix of pooled numbers: bin `i` of `n` holds the tokens from `i` / `n` of their range on.
#[derive(Clone, Debug)]
pub struct Bins {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Values, row by row; those that are not finite are drawn as masked, so NaN above the causal diagonal.
    pub values: Vec<f32>,
}

/// The tokens along one side of a map.
#[derive(Clone, Debug)]
pub struct TokenAxis {
    /// Positions in the prompt.
    pub range: Range<usize>,
    /// Runs of tokens of one region, (name, positions), in any order, drawn as a band along the side; may be empty.
    pub regions: Vec<(String, Range<usize>)>,
    /// Texts of the tokens, drawn if there are at most 80; empty for numbers only.
    pub texts: Vec<String>,
}

/// A curve over keys, for example the attention of the row that predicts the answer.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Label of its axis. Profiles with the same label share their axis range.
    pub label: String,
    /// Values of bins of equal width over the keys; those that are not finite are gaps.
    pub values: Vec<f32>,
    /// End of the axis, for a curve that a sink would flatten. Larger values are cut off, and the largest is labelled.
    pub top: Option<f32>,
}

/// Largest number of tokens with texts instead of numbers.
const MOST_TEXTS: usize = 80;
/// Least distance between token texts along an axis, in pixels.
const TEXT_PITCH: f64 = 17.0;
const TEXT_MAX_WIDTH: f64 = 130.0;
/// Least ratio of the shorter to the longer side of a map.
const FLATTEST: f64 = 0.25;
const TITLE_HEIGHT: f64 = 46.0;
const TITLE_MIN_WIDTH: f64 = 300.0;
const DETAIL: TextFormat = TextFormat { em: 20.0, ..PANEL_DETAIL };
const DETAIL_STEP: f64 = 27.0;
/// Thickness of a band of regions, and its distance from the map.
const BAND: (f64, f64) = (10.0, 4.0);
/// Least width of a run in pixels, so that an answer of five tokens among thousands is visible.
const RUN_MIN_WIDTH: f64 = 3.0;
/// Width of the sink column, and its distance from the map.
const SINK: (f64, f64) = (14.0, 8.0);
const PROFILE_HEIGHT: f64 = 140.0;
const PROFILE_GAP: f64 = 20.0;
/// Least width of a curve's bin with an outline.
const OUTLINED_WIDTH: f64 = 5.0;
const NUMBERS_HEIGHT: f64 = 24.0;
const LABEL_HEIGHT: f64 = 40.0;

/// The size of a panel, in pixels.
pub(super) struct PanelSize {
    /// Width and height of the map.
    pub(super) map: (f64, f64),
    /// Width of the map, or of the title if that is wider.
    pub(super) width: f64,
    /// Room left of the map.
    pub(super) left: f64,
    /// Room above the map.
    pub(super) above: f64,
    /// Room below the map.
    pub(super) below: f64,
    detail: Vec<String>,
}

impl PanelSize {
    /// Returns the size of a panel whose map has about `size` units along its longer side.
    pub(super) fn new(panel: &MapPanel, size: f64) -> Self {
        let MapPanel { bins, queries, keys, profile, .. } = panel;
        let ratio = keys.range.len() as f64 / queries.range.len() as f64;
        let wanted = (size * ratio.clamp(FLATTEST, 1.0), size * (1.0 / ratio).clamp(FLATTEST, 1.0));
        let across = side(bins.columns, wanted.0.max(keys.texts_length()));
        let down = side(bins.rows, wanted.1.max(queries.texts_length()));
        let map = (across, down);

        let detail = if panel.detail.is_empty() { Vec::new() } else { DETAIL.wrap(&panel.detail, title_room(map.0)) };
        let numbers = queries.label_width(map.1).max(profile.as_ref().map_or(0.0, |_| TICK.width("0.0000")));
        let profile_height = profile.as_ref().map_or(0.0, |_| PROFILE_GAP + PROFILE_HEIGHT + band_thickness(keys));
        let ticks = if keys.has_texts() { 12.0 + keys.label_width(map.0) } else { 12.0 + NUMBERS_HEIGHT };
        Self {
            map,
            width: title_room(map.0),
            left: LABEL_HEIGHT + numbers + 14.0 + band_thickness(queries) + sink_thickness(panel),
            above: TITLE_HEIGHT + DETAIL_STEP * detail.len() as f64,
            below: band_thickness(keys) + profile_height + ticks + LABEL_HEIGHT,
            detail,
        }
    }
}

/// Returns the width of the title, which may be wider than the map.
fn title_room(map_width: f64) -> f64 {
    map_width.max(TITLE_MIN_WIDTH)
}

/// Returns the length of a side near `wanted` with bins of whole units, or `wanted` if there are more bins than that.
fn side(bins: usize, wanted: f64) -> f64 {
    if bins as f64 > wanted {
        return wanted;
    }
    bins as f64 * (wanted / bins as f64).round()
}

fn band_thickness(tokens: &TokenAxis) -> f64 {
    if tokens.regions.is_empty() {
        0.0
    } else {
        BAND.0 + BAND.1
    }
}

fn sink_thickness(panel: &MapPanel) -> f64 {
    if panel.sink.is_empty() {
        0.0
    } else {
        SINK.0 + SINK.1
    }
}

/// Draws a panel whose map has its upper left corner at `corner`. `profile_range` is the range of the profile's axis.
pub(super) fn draw(
    figure: &mut Figure,
    panel: &MapPanel,
    extent: &PanelSize,
    corner: (f64, f64),
    fitted: &FittedScale,
    profile_range: (f64, f64),
) {
    let map = Area { x: corner.0, y: corner.1, width: extent.map.0, height: extent.map.1 };
    let title_y = map.y - extent.above + 18.0;
    figure.text((map.x, title_y), &PANEL_TITLE.fit(&panel.title, extent.width), PANEL_TITLE);
    for (i, line) in extent.detail.iter().enumerate() {
        figure.text((map.x, title_y + 30.0 + DETAIL_STEP * i as f64), line, DETAIL);
    }
    draw_bins(figure, &panel.bins, map, fitted);
    let before = Area { x: map.x - sink_thickness(panel), ..map };
    if let Some(sink) = panel.sink() {
        draw_bins(figure, &sink, Area { width: SINK.0, ..before }, fitted);
        figure.text((before.x + SINK.0 / 2.0, map.bottom() + 14.0), "sink", TextFormat { em: 17.0, ..TICK });
    }
    draw_queries(figure, &panel.queries, before);

    let mut bottom = map.bottom();
    bottom += draw_band_below(figure, &panel.keys, Area { y: bottom, ..map });
    if let Some(profile) = &panel.profile {
        let area = Area { y: bottom + PROFILE_GAP, height: PROFILE_HEIGHT, ..map };
        draw_profile(figure, profile, &panel.keys, area, profile_range);
        bottom = area.bottom() + draw_band_below(figure, &panel.keys, Area { y: area.bottom(), ..map });
    }
    draw_keys(figure, &panel.keys, Area { y: bottom, ..map });
}

/// Draws the bins of a map.
pub(super) fn draw_bins(figure: &mut Figure, bins: &Bins, area: Area, fitted: &FittedScale) {
    let colour = |&value: &f32| if value.is_finite() { fitted.colour(value.into()) } else { MASKED };
    let colours: Vec<_> = bins.values.iter().map(colour).collect();
    figure.bitmap(area, (bins.rows, bins.columns), &colours);
}

fn draw_queries(figure: &mut Figure, queries: &TokenAxis, map: Area) {
    for (run, colour) in runs(queries, map.height) {
        let band = Area { x: map.x - BAND.0 - BAND.1, width: BAND.0, y: map.y + run.0, height: run.1 };
        figure.fill(band, colour);
    }
    let x = map.x - band_thickness(queries);
    let kind = TextFormat { anchor: Anchor::Right, ..queries.label_type(map.height) };
    for (place, text) in queries.labels(map.height) {
        let y = map.y + map.height * place;
        if !queries.has_texts() {
            figure.fill(Area { x: x - 7.0, y: y - 0.75, width: 7.0, height: 1.5 }, AXIS);
        }
        figure.text((x - 12.0, y), &text, kind);
    }
    let x = x - 14.0 - queries.label_width(map.height) - 18.0;
    figure.text((x, map.centre().1), "query token", TextFormat { anchor: Anchor::Upward, ..AXIS_LABEL });
}

/// Draws the regions of the keys along the upper edge of an area. Returns the thickness of the band with its distance.
fn draw_band_below(figure: &mut Figure, keys: &TokenAxis, below: Area) -> f64 {
    for (run, colour) in runs(keys, below.width) {
        figure.fill(Area { x: below.x + run.0, width: run.1, y: below.y + BAND.1, height: BAND.0 }, colour);
    }
    band_thickness(keys)
}

/// Returns ((start, length), colour) of each run along a side, the longest first so that short ones are not hidden.
fn runs(tokens: &TokenAxis, side: f64) -> Vec<((f64, f64), RGBColor)> {
    let mut shown: Vec<_> =
        tokens.regions.iter().filter_map(|(name, run)| tokens.shown(run).map(|run| (name, run))).collect();
    shown.sort_by_key(|(_, run)| Reverse(run.len()));
    let pitch = side / tokens.range.len() as f64;
    let place = |run: Range<usize>| {
        let length = (pitch * run.len() as f64).max(RUN_MIN_WIDTH.min(side));
        let begin = pitch * (run.start - tokens.range.start) as f64;
        (begin.min(side - length), length)
    };
    shown.into_iter().map(|(name, run)| (place(run), colour::region(name))).collect()
}

fn draw_keys(figure: &mut Figure, keys: &TokenAxis, below: Area) {
    let kind = keys.label_type(below.width);
    for (place, text) in keys.labels(below.width) {
        let x = below.x + below.width * place;
        if keys.has_texts() {
            figure.text((x, below.y + 8.0), &text, TextFormat { anchor: Anchor::Hanging, ..kind });
        } else {
            figure.fill(Area { x: x - 0.75, y: below.y, width: 1.5, height: 7.0 }, AXIS);
            figure.text((x, below.y + NUMBERS_HEIGHT), &text, kind);
        }
    }
    let ticks = if keys.has_texts() { 10.0 + keys.label_width(below.width) } else { 12.0 + NUMBERS_HEIGHT };
    figure.text((below.centre().0, below.y + ticks + 20.0), "key token", AXIS_LABEL);
}

/// Returns the range of a profile's axis: zero and the values of all profiles with the same label.
pub(super) fn profile_range<'a>(panels: impl Iterator<Item = &'a MapPanel>, panel: &MapPanel) -> (f64, f64) {
    let label = |panel: &MapPanel| panel.profile.as_ref().map(|profile| profile.label.clone());
    let alike = panels.filter(|other| label(other) == label(panel)).filter_map(|other| other.profile.as_ref());
    let (mut lo, mut hi) = (0.0_f64, 0.0_f64);
    for profile in alike {
        let top = f64::from(profile.top.filter(|top| *top > 0.0).unwrap_or(f32::MAX));
        for value in profile.values.iter().map(|&value| f64::from(value)).filter(|value| value.is_finite()) {
            (lo, hi) = (lo.min(value), hi.max(value.min(top)));
        }
    }
    (lo, hi)
}

/// Draws a profile as steps, filled with the colours of the regions.
fn draw_profile(figure: &mut Figure, profile: &Profile, keys: &TokenAxis, area: Area, (lo, hi): (f64, f64)) {
    let axis = Axis::stepped(lo, hi, false, 3.0);
    draw_y_axis(figure, area, &axis);
    let width = area.width / profile.values.len() as f64;
    let zero = area.bottom() - area.height * axis.place(0.0);
    // An outline would hide the colours of narrow bins.
    let outlined = width >= OUTLINED_WIDTH;
    let bins = profile.values.len();
    let top = |i: usize| area.bottom() - area.height * axis.place(f64::from(profile.values[i]).min(axis.hi));
    let steps = |run: &[usize]| -> Vec<(f64, f64)> {
        let edges = |&i: &usize| [i, i + 1].map(|edge| (area.x + width * edge as f64, top(i)));
        run.iter().flat_map(edges).collect()
    };
    let seen: Vec<usize> = (0..bins).filter(|&i| profile.values[i].is_finite()).collect();
    let colour = |i: usize| region_of_bin(keys, i, bins);
    // One shape for each run of a colour, because single bars would have seams.
    for run in seen.chunk_by(|&a, &b| a + 1 == b && colour(a) == colour(b)) {
        let (first, last) = (area.x + width * run[0] as f64, area.x + width * (run[run.len() - 1] + 1) as f64);
        let shape = [vec![(first, zero)], steps(run), vec![(last, zero)]].concat();
        figure.polygon(&shape, colour(run[0]));
    }
    for run in seen.chunk_by(|&a, &b| outlined && a + 1 == b).filter(|_| outlined) {
        figure.line(&steps(run), INK, 1.5);
    }
    figure.fill(Area { y: zero - 0.75, height: 1.5, ..area }, AXIS);
    note_cut(figure, profile, area, axis.hi);

    let kind = TextFormat { em: 20.0, anchor: Anchor::Upward, ..AXIS_LABEL };
    let x = area.x - 26.0 - axis.ticks.iter().map(|&tick| TICK.width(&axis.number(tick))).fold(0.0, f64::max);
    let lines = kind.wrap(&profile.label, area.height + 2.0 * PROFILE_GAP);
    for (i, line) in lines.iter().rev().enumerate() {
        figure.text((x - 8.0 - 24.0 * i as f64, area.centre().1), line, kind);
    }
}

/// Returns the colour of the region in a bin with the fewest tokens in total, so that an answer is visible among filler
/// and beside the rest of its needle.
fn region_of_bin(keys: &TokenAxis, bin: usize, bins: usize) -> RGBColor {
    let token = |bin: usize| keys.range.start + bin * keys.range.len() / bins;
    let (start, end) = (token(bin), token(bin + 1).max(token(bin) + 1));
    let here = keys.regions.iter().filter(|(_, run)| run.start < end && run.end > start);
    let tokens =
        |name: &String| keys.regions.iter().filter(|(other, _)| other == name).map(|(_, run)| run.len()).sum::<usize>();
    here.min_by_key(|(name, _)| tokens(name)).map_or(MASKED, |(name, _)| colour::region(name))
}

/// Labels the largest value where the axis cuts it off.
fn note_cut(figure: &mut Figure, profile: &Profile, area: Area, top: f64) {
    let finite = profile.values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let Some((i, &largest)) = finite.max_by(|a, b| a.1.total_cmp(b.1)) else { return };
    if f64::from(largest) <= top * (1.0 + 1e-6) {
        return;
    }
    let kind = TextFormat { em: 18.0, anchor: Anchor::Left, ..TICK };
    let text = format!("↑ {}", Axis::linear(0.0, largest.into(), false).number(three_digits(largest.into())));
    let right = area.x + area.width * (i as f64 + 1.0) / profile.values.len() as f64 + 6.0;
    let left = right - 12.0 - area.width / profile.values.len() as f64 - kind.width(&text);
    let x = if right + kind.width(&text) <= area.right() { right } else { left };
    figure.text((x, area.y + 4.0), &text, kind);
}

fn three_digits(x: f64) -> f64 {
    format!("{x:.2e}").parse().expect("a printed number can be read")
}

impl TokenAxis {
    fn has_texts(&self) -> bool {
        !self.texts.is_empty() && self.texts.len() <= MOST_TEXTS
    }

    /// Returns the pixels that the texts of all tokens need along an axis.
    fn texts_length(&self) -> f64 {
        if self.has_texts() {
            TEXT_PITCH * self.texts.len() as f64
        } else {
            0.0
        }
    }

    /// Returns the labels of the axis as (position from 0 to 1, text).
    fn labels(&self, side: f64) -> Vec<(f64, String)> {
        let tokens = self.range.len() as f64;
        if self.has_texts() {
            let kind = self.label_type(side);
            let texts = self.texts.iter().map(|text| kind.fit(&visible(text), TEXT_MAX_WIDTH));
            return texts.enumerate().map(|(i, text)| ((i as f64 + 0.5) / tokens, text)).collect();
        }
        let (first, last) = (self.range.start as f64, self.range.end as f64 - 1.0);
        let axis = Axis::stepped(first, last, false, (side / 90.0).clamp(2.0, 5.0));
        let whole = axis.ticks.iter().filter(|tick| tick.fract() == 0.0 && **tick <= last);
        // 32764 instead of 32.764k, but 30k.
        let short = axis.ticks.iter().all(|tick| tick % 1000.0 == 0.0);
        let number = |tick: f64| if short { axis.number(tick) } else { tick.to_string() };
        whole.map(|&tick| ((tick - first + 0.5) / tokens, number(tick))).collect()
    }

    fn label_width(&self, side: f64) -> f64 {
        let kind = self.label_type(side);
        self.labels(side).iter().map(|(_, text)| kind.width(text)).fold(0.0, f64::max)
    }

    fn label_type(&self, side: f64) -> TextFormat {
        if self.has_texts() {
            TextFormat { em: (0.9 * side / self.texts.len() as f64).min(19.0), ..TICK }
        } else {
            TICK
        }
    }
}

/// Returns a token's text on one line, with symbols for spaces and line breaks.
fn visible(text: &str) -> String {
    let sign = |character: char| match character {
        ' ' => '·',
        '\n' => '¶',
        other if other.is_control() => '?',
        other => other,
    };
    text.chars().map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(range: Range<usize>, texts: &[&str]) -> TokenAxis {
        let regions = vec![("answer".to_string(), 1000..1005), ("filler".to_string(), 0..4096)];
        TokenAxis { range, regions, texts: texts.iter().map(|text| text.to_string()).collect() }
    }

    #[test]
    fn bins_are_whole_units_where_there_is_room() {
        assert_eq!(
            [(512, 560.0), (300, 560.0), (7, 100.0), (101, 100.0)].map(|(bins, wanted)| side(bins, wanted)),
            [512.0, 600.0, 98.0, 100.0]
        );
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
        let runs = runs(&tokens(0..4096, &[]), 512.0);
        assert_eq!(runs[0].0, (0.0, 512.0));
        assert_eq!(runs[1], ((125.0, RUN_MIN_WIDTH), colour::region("answer")));
    }

    #[test]
    fn a_bin_has_the_colour_of_its_smallest_region() {
        let tokens = tokens(0..4096, &[]);
        assert_eq!(region_of_bin(&tokens, 62, 256), colour::region("answer"));
        assert_eq!(region_of_bin(&tokens, 64, 256), colour::region("filler"));
    }

    #[test]
    fn an_answer_is_seen_beside_the_rest_of_its_needle() {
        let mut tokens = tokens(0..4096, &[]);
        tokens.regions.extend([("needle".to_string(), 991..1000), ("needle".to_string(), 1005..1006)]);
        assert_eq!(region_of_bin(&tokens, 62, 256), colour::region("answer"));
        assert_eq!(region_of_bin(&tokens, 61, 256), colour::region("needle"));
    }
}
