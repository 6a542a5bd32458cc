//! Attention maps, query × key: one panel for each model, layer or map, on shared colour scales.

use super::colourbar::{draw_scale, scale_width};
use super::colourscale::{ColourScale, FittedScale};
use super::figure::{Figure, FigureHeading};
use super::legend::Legend;
use super::map_panel::{self, Bins, MapPanel, PanelSize, TokenAxis};
use crate::base::names::distinct;
use anyhow::Result;
use std::ops::Range;

/// A figure of attention maps.
#[derive(Clone, Debug)]
pub struct Heatmaps {
    /// The colour scales, shared by the panels that refer to them.
    pub scales: Vec<ColourScale>,
    /// Rows of panels, from the top; rows may differ in length.
    pub rows: Vec<Vec<MapPanel>>,
    /// Approximate pixels of the longer side of a map, because bins are whole pixels and token texts need room. The
    /// default is 560.
    pub size_px: u32,
}

const MARGIN: f64 = 44.0;
/// Smallest size of a map on a narrow page.
const SMALLEST: f64 = 160.0;
const BETWEEN: (f64, f64) = (40.0, 36.0);
/// Distance between the last column and the colour bars.
const BEFORE_BARS: f64 = 40.0;
const BAR_HEIGHT: (f64, f64) = (260.0, 440.0);
const BETWEEN_BARS: f64 = 48.0;

/// Positions of panels: maps of a column have the same left edge; maps and titles of a row have the same top edge.
struct PanelLayout {
    extents: Vec<Vec<PanelSize>>,
    /// Left edge of the maps of each column.
    lefts: Vec<f64>,
    /// Top edge of the maps of each row, below the top of the body.
    tops: Vec<f64>,
    width: f64,
    height: f64,
}

/// Draws attention maps: at least one.
///
/// # Errors
/// If the figure would be too large.
pub fn heatmap(maps: &Heatmaps, heading: &FigureHeading) -> Result<Figure> {
    let fitted = fit_scales(maps);
    let mut layout = PanelLayout::new(maps, f64::from(maps.size_px));
    let used: Vec<usize> = (0..fitted.len()).filter(|&i| panels(maps).any(|panel| panel.scale == i)).collect();

    let bar_height = bar_height(&layout, used.len());
    let bars = || used.iter().map(|&i| (&maps.scales[i], &fitted[i]));
    let bars_width = bars().map(|(scale, fitted)| scale_width(fitted, &scale.label, bar_height)).fold(0.0, f64::max);
    let beside = BEFORE_BARS + bars_width + MARGIN / 2.0;
    let excess = layout.width + beside - heading.page.room();
    if heading.page.width_mm.is_some() && excess > 0.0 {
        let size = f64::from(maps.size_px) - excess / layout.lefts.len() as f64;
        layout = PanelLayout::new(maps, size.max(SMALLEST).min(maps.size_px.into()));
    }
    let width = layout.width + beside;
    let legend = Legend::of_regions(&regions(maps), width - 2.0 * MARGIN);
    let bars_height = layout.tops[0] + used.len() as f64 * (bar_height + BETWEEN_BARS);
    let body_height = legend.height() + layout.height.max(bars_height);
    let (mut figure, top) = Figure::headed(heading, width, body_height)?;

    legend.draw(&mut figure, (MARGIN, top));
    let top = top + legend.height();
    for (r, row) in maps.rows.iter().enumerate() {
        for (c, panel) in row.iter().enumerate() {
            let corner = (layout.lefts[c], top + layout.tops[r]);
            let profile_range = map_panel::profile_range(panels(maps), panel);
            map_panel::draw(&mut figure, panel, &layout.extents[r][c], corner, &fitted[panel.scale], profile_range);
        }
    }
    for (i, (scale, fitted)) in bars().enumerate() {
        let y = top + layout.tops[0] + i as f64 * (bar_height + BETWEEN_BARS);
        draw_scale(&mut figure, (layout.width + BEFORE_BARS, y), bar_height, fitted, &scale.label);
    }
    Ok(figure)
}

fn panels(maps: &Heatmaps) -> impl Iterator<Item = &MapPanel> {
    maps.rows.iter().flatten()
}

fn fit_scales(maps: &Heatmaps) -> Vec<FittedScale> {
    let fit = |(i, scale): (usize, &ColourScale)| {
        let panels = panels(maps).filter(|panel| panel.scale == i);
        let values = panels.flat_map(|panel| panel.bins.values.iter().chain(&panel.sink));
        FittedScale::fit(scale.signed, scale.log, values.map(|&x| f64::from(x)))
    };
    maps.scales.iter().enumerate().map(fit).collect()
}

/// Returns the regions that any panel shows, in the order of their first tokens.
fn regions(maps: &Heatmaps) -> Vec<String> {
    let sides = panels(maps).flat_map(|panel| [&panel.keys, &panel.queries]);
    let mut runs: Vec<&(String, Range<usize>)> =
        sides.flat_map(|side| side.regions.iter().filter(|(_, run)| side.shown(run).is_some())).collect();
    runs.sort_by_key(|(_, run)| run.start);
    distinct(runs.into_iter().map(|(name, _)| name))
}

/// Returns the height of a colour bar, so that all bars fit beside the panels.
fn bar_height(layout: &PanelLayout, bars: usize) -> f64 {
    let room = layout.height - layout.tops[0] - BETWEEN_BARS * bars as f64;
    (room / bars as f64).clamp(BAR_HEIGHT.0, BAR_HEIGHT.1).round()
}

impl PanelLayout {
    /// Arranges maps whose longer side has `size` units.
    fn new(maps: &Heatmaps, size: f64) -> Self {
        let extent = |panel: &MapPanel| PanelSize::new(panel, size);
        let mut extents: Vec<Vec<PanelSize>> = maps.rows.iter().map(|row| row.iter().map(extent).collect()).collect();
        let across = extents.iter().map(Vec::len).max().unwrap_or(0);
        let (mut lefts, mut x) = (Vec::new(), MARGIN - BETWEEN.0 / 2.0);
        for c in 0..across {
            let column = || extents.iter().filter_map(|row| row.get(c));
            let left = x + column().map(|extent| extent.left).fold(0.0, f64::max);
            lefts.push(left);
            x = left + column().map(|extent| extent.width).fold(0.0, f64::max) + BETWEEN.0;
        }
        let (mut tops, mut y) = (Vec::new(), 0.0);
        for row in &mut extents {
            let above = row.iter().map(|extent| extent.above).fold(0.0, f64::max);
            row.iter_mut().for_each(|extent| extent.above = above);
            let top = y + above;
            tops.push(top);
            y = top + row.iter().map(|extent| extent.map.1 + extent.below).fold(0.0, f64::max) + BETWEEN.1;
        }
        Self { extents, lefts, tops, width: x - BETWEEN.0, height: y }
    }
}

impl MapPanel {
    /// Returns the sink as one column; `None` without a sink.
    pub(super) fn sink(&self) -> Option<Bins> {
        let bins = || Bins { rows: self.sink.len(), columns: 1, values: self.sink.clone() };
        (!self.sink.is_empty()).then(bins)
    }
}

impl TokenAxis {
    /// Returns the part of a run in the range; `None` if it is empty.
    pub(super) fn shown(&self, run: &Range<usize>) -> Option<Range<usize>> {
        let part = run.start.max(self.range.start)..run.end.min(self.range.end);
        (!part.is_empty()).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::super::map_panel::Profile;
    use super::*;

    fn tokens(n: usize) -> TokenAxis {
        let regions = vec![("filler".to_string(), 0..n), ("answer".to_string(), 2..3)];
        TokenAxis { range: 0..n, regions, texts: vec![" magic".into(); n] }
    }

    fn panel(value: f32) -> MapPanel {
        let values = vec![value, f32::NAN, value / 2.0, value];
        let profile = Profile { label: "mean".into(), values: vec![value, f32::NAN, value], top: Some(value / 2.0) };
        MapPanel {
            title: "diff".into(),
            detail: "layer 2".into(),
            scale: 0,
            bins: Bins { rows: 2, columns: 2, values },
            sink: Vec::new(),
            queries: tokens(4),
            keys: tokens(6),
            profile: Some(profile),
        }
    }

    fn maps(rows: Vec<Vec<MapPanel>>) -> Heatmaps {
        let scale = |signed: bool| ColourScale { label: "weight".into(), signed, log: false };
        Heatmaps { scales: vec![scale(false), scale(true)], rows, size_px: 100 }
    }

    #[test]
    fn panels_of_one_scale_have_the_same_colour_for_the_same_number() {
        let both = maps(vec![vec![panel(0.25)], vec![panel(0.5)]]);
        assert!(heatmap(&both, &FigureHeading::default()).is_ok());
        let together = &fit_scales(&both)[0];
        assert_ne!(*together, fit_scales(&maps(vec![vec![panel(0.25)]]))[0]);
        assert_eq!(*together, fit_scales(&maps(vec![vec![panel(0.5)]]))[0]);
    }

    #[test]
    fn panels_without_anything_to_see_can_be_drawn() {
        for value in [0.0, f32::NAN, f32::INFINITY] {
            assert!(heatmap(&maps(vec![vec![panel(value)]]), &FigureHeading::default()).is_ok());
        }
    }

    #[test]
    fn the_legend_names_the_regions_that_are_shown() {
        let mut one = panel(0.5);
        one.keys.regions.push(("question".into(), 50..60));
        assert_eq!(regions(&maps(vec![vec![one]])), ["filler", "answer"]);
    }
}
