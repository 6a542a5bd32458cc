//! One attention map with its axes, bands of regions, and profile.

use super::colour::MASKED;
use super::colour_scale::FittedScale;
use super::figure::{Area, Figure};
use super::panel_title::PanelTitle;
use super::profile::{draw_profile, draw_profile_axis, Profile, PROFILE_GAP};
use super::text::{TextFormat, TICK};
use super::token_axis::TokenAxis;

/// One attention map.
#[derive(Clone, Debug)]
pub struct MapPanel {
    /// The title, for example the model.
    pub title: String,
    /// Detail below the title, for example `layer 2 · mean of 8 heads · λ 0.41 · A1 − λA2`.
    pub detail: String,
    /// The map, rows along `queries` and columns along `keys`.
    pub bins: Bins,
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
    pub rows: usize,
    pub columns: usize,
    /// Values, row by row; those that are not finite are drawn as masked, so NaN above the causal diagonal.
    pub values: Vec<f32>,
    /// Weight of the sink in each row, drawn left of the map; empty without a sink.
    pub sink: Vec<f32>,
}

impl Bins {
    /// The numbers of the map and of its sink.
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().chain(&self.sink).map(|&number| number.into())
    }

    /// Draws the map over an area, and left of it its sink, as wide and as far as `sink` says.
    pub(super) fn draw(&self, figure: &mut Figure, area: Area, fitted: &FittedScale, sink: (f64, f64)) {
        let left = Area { x: area.x - sink.0 - sink.1, width: sink.0, ..area };
        let shape = (self.rows, self.columns);
        let sink_shape = (self.sink.len(), 1);
        for (area, shape, values) in [(area, shape, &self.values), (left, sink_shape, &self.sink)] {
            let colours = values.iter().map(|&x| if x.is_finite() { fitted.colour(x.into()) } else { MASKED });
            let colours: Vec<_> = colours.collect();
            if !colours.is_empty() {
                figure.bitmap(area, shape, &colours);
            }
        }
    }
}

/// Least ratio of the shorter to the longer side of a map.
const FLATTEST: f64 = 0.25;
/// Least width of the title if the page has no width.
const TITLE_MIN_WIDTH: f64 = 300.0;
/// How far the title may be wider than a map on a page with a width.
const TITLE_OVERHANG: f64 = 36.0;
/// Width of the sink column, and its distance from the map.
const SINK: (f64, f64) = (14.0, 8.0);
const SINK_NAME: TextFormat = TextFormat { em: 17.0, ..TICK };
const PROFILE_HEIGHT: f64 = 140.0;

/// The size of a panel, in pixels.
pub(super) struct PanelSize {
    /// Width and height of the map.
    pub(super) map: (f64, f64),
    /// Width of the map, or of the title if that is wider.
    pub(super) width: f64,
    /// Room left of the map.
    pub(super) left: f64,
    /// Room below the map.
    pub(super) below: f64,
    pub(super) title: PanelTitle,
    /// `true` if the queries and the numbers of the profile are labelled, and not left of a map before it.
    labelled: bool,
}

impl PanelSize {
    /// The size of a panel whose map has about `size` units along its longer side; exactly as many if it is to
    /// `fill` a page. `before` is the panel left of it.
    pub(super) fn new(panel: &MapPanel, before: Option<&MapPanel>, size: f64, fill: bool) -> Self {
        let MapPanel { bins, queries, keys, profile, .. } = panel;
        let ratio = keys.range.len() as f64 / queries.range.len() as f64;
        let wanted = (size * ratio.clamp(FLATTEST, 1.0), size * (1.0 / ratio).clamp(FLATTEST, 1.0));
        let (across, down, width) = if fill {
            (wanted.0, wanted.1, wanted.0)
        } else {
            let across = side(bins.columns, wanted.0.max(keys.texts_length()));
            (across, side(bins.rows, wanted.1.max(queries.texts_length())), across.max(TITLE_MIN_WIDTH))
        };
        let labelled =
            before.is_none_or(|before| before.queries != *queries || before.profile_label() != panel.profile_label());
        let mut below = keys.room_below(across);
        let mut left = queries.band_thickness();
        if labelled {
            left = queries.room_left(down, if profile.is_some() { TICK.width("0.0000") } else { 0.0 });
        }
        if profile.is_some() {
            below += PROFILE_GAP + PROFILE_HEIGHT + keys.band_thickness();
        }
        let title = PanelTitle::new(&panel.title, &panel.detail, width + TITLE_OVERHANG);
        Self { map: (across, down), width, left: left + sink_room(bins), below, title, labelled }
    }
}

/// The length of a side near `wanted` with bins of whole units, or `wanted` if there are more bins than that.
fn side(bins: usize, wanted: f64) -> f64 {
    if bins as f64 > wanted {
        return wanted;
    }
    bins as f64 * (wanted / bins as f64).round()
}

fn sink_room(bins: &Bins) -> f64 {
    if bins.sink.is_empty() {
        0.0
    } else {
        SINK.0 + SINK.1
    }
}

impl MapPanel {
    fn profile_label(&self) -> Option<&str> {
        self.profile.as_ref().map(|profile| profile.label.as_str())
    }

    /// Draws a panel whose map has its upper left corner at `corner`. `profile_range` is the range of the profile's
    /// axis.
    pub(super) fn draw(
        &self,
        figure: &mut Figure,
        size: &PanelSize,
        corner: (f64, f64),
        fitted: &FittedScale,
        profile_range: (f64, f64),
    ) {
        let map = Area { x: corner.0, y: corner.1, width: size.map.0, height: size.map.1 };
        size.title.draw(figure, corner);
        self.bins.draw(figure, map, fitted, SINK);
        let before = map.x - sink_room(&self.bins);
        if !self.bins.sink.is_empty() {
            figure.text((before + SINK.0 / 2.0, map.bottom() + 14.0), "sink", SINK_NAME);
        }
        let edge = Area { x: before, ..map };
        if size.labelled {
            self.queries.draw_left(figure, edge);
        } else {
            self.queries.draw_band_left(figure, edge);
        }

        let mut below = Area { y: map.bottom(), ..map };
        below.y += self.keys.draw_band_below(figure, below);
        if let Some(profile) = &self.profile {
            let area = Area { y: below.y + PROFILE_GAP, height: PROFILE_HEIGHT, ..map };
            if size.labelled {
                draw_profile_axis(figure, profile, area, profile_range);
            }
            draw_profile(figure, profile, &self.keys, area, profile_range);
            below.y = area.bottom();
            below.y += self.keys.draw_band_below(figure, below);
        }
        self.keys.draw_below(figure, below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_whole_units_where_there_is_room() {
        assert_eq!(
            [(512, 560.0), (300, 560.0), (7, 100.0), (101, 100.0)].map(|(bins, wanted)| side(bins, wanted)),
            [512.0, 600.0, 98.0, 100.0]
        );
    }
}
