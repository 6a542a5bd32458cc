//! A curve over the keys of an attention map, drawn below it.

use super::axis::{draw_y_axis, Axis};
use super::colour::{self, AXIS, INK, MASKED};
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use super::token_axis::TokenAxis;
use plotters::style::RGBColor;

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

/// Distance of a profile from its map, in pixels.
pub(super) const PROFILE_GAP: f64 = 20.0;
/// Least width of a bin with an outline; one of narrower bins would hide their colours.
const OUTLINED_WIDTH: f64 = 5.0;
const LABEL: TextFormat = TextFormat { em: 20.0, ..AXIS_LABEL }.at(Anchor::Upward);
const CUT: TextFormat = TextFormat { em: 18.0, ..TICK }.at(Anchor::Left);

/// The range of the axis of a profile: zero and the values of all profiles with the same label.
pub(super) fn profile_range<'a>(profiles: impl Iterator<Item = &'a Profile>, own: Option<&Profile>) -> (f64, f64) {
    let mut lo = 0.0_f64;
    let mut hi = 0.0_f64;
    for profile in profiles.filter(|other| own.is_some_and(|own| other.label == own.label)) {
        let top = f64::from(profile.top.filter(|top| *top > 0.0).unwrap_or(f32::MAX));
        for value in profile.values.iter().map(|&value| f64::from(value)).filter(|value| value.is_finite()) {
            (lo, hi) = (lo.min(value), hi.max(value.min(top)));
        }
    }
    (lo, hi)
}

/// Draws a profile as steps, filled with the colours of the regions.
pub(super) fn draw_profile(figure: &mut Figure, profile: &Profile, keys: &TokenAxis, area: Area, range: (f64, f64)) {
    let axis = axis(range);
    let bins = profile.values.len();
    let width = area.width / bins as f64;
    let zero = area.bottom() - area.height * axis.place(0.0);
    // (Left edge, top, colour) of each bin.
    let mut steps: Vec<(usize, f64, RGBColor)> = Vec::new();
    for (i, value) in profile.values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
        let top = area.bottom() - area.height * axis.place(f64::from(*value).min(axis.hi));
        steps.push((i, top, region_of_bin(keys, i, bins)));
    }
    // One shape for each run of a colour, because single bars would have seams.
    for run in steps.chunk_by(|a, b| a.0 + 1 == b.0 && a.2 == b.2) {
        let outline = outline(run, area.x, width);
        let first = outline[0].0;
        let last = outline[outline.len() - 1].0;
        figure.polygon(&[vec![(first, zero)], outline, vec![(last, zero)]].concat(), run[0].2);
    }
    if width >= OUTLINED_WIDTH {
        for run in steps.chunk_by(|a, b| a.0 + 1 == b.0) {
            figure.line(&outline(run, area.x, width), INK, 1.5);
        }
    }
    figure.fill(Area { y: zero - 0.75, height: 1.5, ..area }, AXIS);
    note_cut(figure, profile, area, axis.hi);
}

/// Draws the numbers and the label of the axis of a profile.
pub(super) fn draw_profile_axis(figure: &mut Figure, profile: &Profile, area: Area, range: (f64, f64)) {
    let axis = axis(range);
    draw_y_axis(figure, area, &axis);
    let x = area.x - 34.0 - axis.ticks.iter().map(|&tick| TICK.width(&axis.number(tick))).fold(0.0, f64::max);
    let lines = LABEL.wrap(&profile.label, area.height + PROFILE_GAP);
    for (i, line) in lines.iter().rev().enumerate() {
        figure.text((x - 24.0 * i as f64, area.centre().1), line, LABEL);
    }
}

fn axis(range: (f64, f64)) -> Axis {
    Axis::stepped(range.0, range.1, false, 3.0)
}

/// The upper edge of neighbouring bins.
fn outline(run: &[(usize, f64, RGBColor)], left: f64, width: f64) -> Vec<(f64, f64)> {
    run.iter().flat_map(|&(i, top, _)| [i, i + 1].map(|edge| (left + width * edge as f64, top))).collect()
}

/// The colour of the region in a bin with the fewest tokens in total, so that an answer is visible among filler
/// and beside the rest of its needle.
fn region_of_bin(keys: &TokenAxis, bin: usize, bins: usize) -> RGBColor {
    let [start, end] = [bin, bin + 1].map(|bin| keys.range.start + bin * keys.range.len() / bins);
    let end = end.max(start + 1);
    let here = keys.regions.iter().filter(|(_, run)| run.start < end && run.end > start);
    let smallest = here.min_by_key(|(name, _)| {
        keys.regions.iter().filter(|(other, _)| other == name).map(|(_, run)| run.len()).sum::<usize>()
    });
    smallest.map_or(MASKED, |(name, _)| colour::region(name))
}

/// Labels the largest value where the axis cuts it off.
fn note_cut(figure: &mut Figure, profile: &Profile, area: Area, top: f64) {
    let finite = profile.values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let Some((i, &largest)) = finite.max_by(|a, b| a.1.total_cmp(b.1)) else { return };
    let largest = f64::from(largest);
    if largest <= top * (1.0 + 1e-6) {
        return;
    }
    let rounded: f64 = format!("{largest:.2e}").parse().expect("a printed number can be read");
    let text = format!("↑ {}", Axis::linear(0.0, largest, false).number(rounded));
    let width = area.width / profile.values.len() as f64;
    let right = area.x + width * (i as f64 + 1.0) + 6.0;
    let fits = right + CUT.width(&text) <= area.right();
    let x = if fits { right } else { right - 12.0 - width - CUT.width(&text) };
    figure.text((x, area.y + 4.0), &text, CUT);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(more: &[(&str, std::ops::Range<usize>)]) -> TokenAxis {
        let regions = [("answer", 1000..1005), ("filler", 0..4096)];
        let regions = regions.iter().chain(more).map(|(name, run)| (name.to_string(), run.clone()));
        TokenAxis::new(0..4096, regions, Vec::new())
    }

    #[test]
    fn a_bin_has_the_colour_of_its_smallest_region() {
        assert_eq!(region_of_bin(&tokens(&[]), 62, 256), colour::region("answer"));
        assert_eq!(region_of_bin(&tokens(&[]), 64, 256), colour::region("filler"));
    }

    #[test]
    fn an_answer_is_seen_beside_the_rest_of_its_needle() {
        let tokens = tokens(&[("needle", 991..1000), ("needle", 1005..1006)]);
        assert_eq!(region_of_bin(&tokens, 62, 256), colour::region("answer"));
        assert_eq!(region_of_bin(&tokens, 61, 256), colour::region("needle"));
    }
}
