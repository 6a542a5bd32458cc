//! Attention maps, query × key: one panel for each model, layer or map, on shared colour scales.

use super::colour_scale::{draw_colour_bar, ColourScale, FittedScale, BAR_ROOM};
use super::figure::{Figure, FigureHeading};
use super::legend::Legend;
use super::map_panel::{MapPanel, PanelSize};
use super::profile::profile_range;
use crate::base::names::distinct;
use anyhow::Result;
use std::ops::Range;

/// A figure of attention maps.
#[derive(Clone, Debug)]
pub struct MapPanels {
    /// The colour scales, shared by the panels that refer to them.
    pub scales: Vec<ColourScale>,
    /// Rows of panels, from the top; rows may differ in length.
    pub rows: Vec<Vec<MapPanel>>,
    /// Approximate pixels of the longer side of a map, because bins are whole pixels and token texts need room.
    pub size_px: u32,
}

impl MapPanels {
    fn panels(&self) -> impl Iterator<Item = &MapPanel> {
        self.rows.iter().flatten()
    }

    fn fit_scales(&self) -> Vec<FittedScale> {
        let fitted = self.scales.iter().enumerate().map(|(i, scale)| {
            let panels = self.panels().filter(|panel| panel.scale == i);
            FittedScale::of_maps(scale.signed, panels.flat_map(|panel| panel.bins.numbers()))
        });
        fitted.collect()
    }

    /// Returns the regions that any panel shows, in the order of their first tokens.
    fn regions(&self) -> Vec<String> {
        let sides = self.panels().flat_map(|panel| [&panel.keys, &panel.queries]);
        let mut runs: Vec<&(String, Range<usize>)> = sides.flat_map(|side| &side.regions).collect();
        runs.sort_by_key(|(_, run)| run.start);
        distinct(runs.into_iter().map(|(name, _)| name))
    }
}

const MARGIN: f64 = 44.0;
/// Smallest size of a map on a narrow page.
const SMALLEST: f64 = 160.0;
const BETWEEN: (f64, f64) = (40.0, 36.0);

/// Draws attention maps: at least one.
///
/// # Errors
/// If the figure would be too large.
pub fn maps(maps: &MapPanels, heading: &FigureHeading) -> Result<Figure> {
    let fitted = maps.fit_scales();
    let rows: Vec<Vec<&MapPanel>> = maps.rows.iter().map(|row| row.iter().collect()).collect();
    let layout = PanelLayout::new(rows, f64::from(maps.size_px), false);
    let used: Vec<usize> = (0..fitted.len()).filter(|&i| maps.panels().any(|panel| panel.scale == i)).collect();
    // On a page that is too narrow, maps fill the width.
    let is_narrow = heading.page.width_mm.is_some() && layout.width + MARGIN > heading.page.room();
    let layout = if is_narrow { PanelLayout::filling(maps, heading.page.room() - MARGIN) } else { layout };
    let width = layout.width + MARGIN;
    let legend = Legend::new(Legend::regions(&maps.regions()), width - 2.0 * MARGIN);
    let mut notes: Vec<&str> = used.iter().map(|&i| fitted[i].note()).collect();
    notes.dedup();
    let subtitle = heading.subtitle_with(&notes);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let (mut figure, top) =
        Figure::headed(&heading, width, legend.height() + BAR_ROOM * used.len() as f64 + layout.height)?;

    legend.draw(&mut figure, (MARGIN, top));
    let mut top = top + legend.height();
    for &i in &used {
        draw_colour_bar(&mut figure, &fitted[i], &maps.scales[i].label, (MARGIN, top), width - 2.0 * MARGIN);
        top += BAR_ROOM;
    }
    for (row, (sizes, row_top)) in layout.rows.iter().zip(layout.sizes.iter().zip(&layout.tops)) {
        for (panel, (size, left)) in row.iter().zip(sizes.iter().zip(&layout.lefts)) {
            let range = profile_range(maps.panels().filter_map(|panel| panel.profile.as_ref()), panel.profile.as_ref());
            panel.draw(&mut figure, size, (*left, top + row_top), &fitted[panel.scale], range);
        }
    }
    Ok(figure)
}

/// Positions of panels: maps of a column have the same left edge; maps and titles of a row have the same top edge.
struct PanelLayout<'a> {
    rows: Vec<Vec<&'a MapPanel>>,
    sizes: Vec<Vec<PanelSize>>,
    /// Left edge of the maps of each column.
    lefts: Vec<f64>,
    /// Top edge of the maps of each row, below the top of the body.
    tops: Vec<f64>,
    width: f64,
    height: f64,
}

impl<'a> PanelLayout<'a> {
    /// Arranges maps in a width of `room`: as large as fit, and fewer side by side if they would be too small.
    fn filling(maps: &'a MapPanels, room: f64) -> Self {
        let panels: Vec<&MapPanel> = maps.panels().collect();
        let mut across = maps.rows.iter().map(Vec::len).max().unwrap_or(1);
        loop {
            let rows = || panels.chunks(across).map(<[_]>::to_vec).collect();
            let spare = room - Self::new(rows(), SMALLEST, true).width;
            if spare >= 0.0 || across == 1 {
                let size = SMALLEST + spare.max(0.0) / across as f64;
                return Self::new(rows(), size.min(maps.size_px.into()), true);
            }
            across -= 1;
        }
    }

    /// Arranges maps whose longer side has about `size` units; exactly as many if they are to `fill` a page.
    fn new(rows: Vec<Vec<&'a MapPanel>>, size: f64, fill: bool) -> Self {
        let mut sizes: Vec<Vec<PanelSize>> = Vec::new();
        for row in &rows {
            sizes.push(row.iter().map(|panel| PanelSize::new(panel, size, fill)).collect());
        }
        let across = sizes.iter().map(Vec::len).max().unwrap_or(0);
        let mut lefts = Vec::new();
        let mut x = MARGIN - BETWEEN.0 / 2.0;
        for place in 0..across {
            let column: Vec<&PanelSize> = sizes.iter().filter_map(|row| row.get(place)).collect();
            x += column.iter().map(|size| size.left).fold(0.0, f64::max);
            lefts.push(x);
            x += column.iter().map(|size| size.width).fold(0.0, f64::max) + BETWEEN.0;
        }
        let mut tops = Vec::new();
        let mut y = 0.0;
        for row in &mut sizes {
            let above = row.iter().map(|size| size.above).fold(0.0, f64::max);
            row.iter_mut().for_each(|size| size.above = above);
            tops.push(y + above);
            y += above + row.iter().map(|size| size.map.1 + size.below).fold(0.0, f64::max) + BETWEEN.1;
        }
        Self { rows, sizes, lefts, tops, width: x - BETWEEN.0, height: y }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map_panel::Bins;
    use super::super::profile::Profile;
    use super::super::token_axis::TokenAxis;
    use super::*;

    fn tokens(n: usize) -> TokenAxis {
        let regions = [("filler", 0..n), ("answer", 2..3), ("question", 50..60)];
        TokenAxis::new(0..n, regions.map(|(name, run)| (name.to_string(), run)), vec![" magic".into(); n])
    }

    fn panel(value: f32) -> MapPanel {
        let values = vec![value, f32::NAN, value / 2.0, value];
        let profile = Profile { label: "mean".into(), values: vec![value, f32::NAN, value], top: Some(value / 2.0) };
        MapPanel {
            title: "diff".into(),
            detail: "layer 2".into(),
            scale: 0,
            bins: Bins { rows: 2, columns: 2, values, sink: Vec::new() },
            queries: tokens(4),
            keys: tokens(6),
            profile: Some(profile),
        }
    }

    fn rows_of(rows: Vec<Vec<MapPanel>>) -> MapPanels {
        let scale = |signed: bool| ColourScale { label: "weight".into(), signed };
        MapPanels { scales: vec![scale(false), scale(true)], rows, size_px: 100 }
    }

    #[test]
    fn panels_of_one_scale_have_the_same_colour_for_the_same_number() {
        let both = rows_of(vec![vec![panel(0.25)], vec![panel(0.5)]]);
        assert!(maps(&both, &FigureHeading::default()).is_ok());
        let together = &both.fit_scales()[0];
        assert_ne!(*together, rows_of(vec![vec![panel(0.25)]]).fit_scales()[0]);
        assert_eq!(*together, rows_of(vec![vec![panel(0.5)]]).fit_scales()[0]);
    }

    #[test]
    fn panels_without_anything_to_see_can_be_drawn() {
        for value in [0.0, f32::NAN, f32::INFINITY] {
            assert!(maps(&rows_of(vec![vec![panel(value)]]), &FigureHeading::default()).is_ok());
        }
    }

    #[test]
    fn maps_fill_a_narrow_page_and_as_many_are_side_by_side_as_can_be_seen() {
        let maps = MapPanels { size_px: 560, ..rows_of(vec![vec![panel(0.5), panel(0.5), panel(0.5)]]) };
        let shape = |room: f64| {
            let layout = PanelLayout::filling(&maps, room);
            (layout.rows.iter().map(Vec::len).collect::<Vec<_>>(), layout.width.round())
        };
        assert_eq!(shape(1200.0), (vec![3], 1200.0));
        assert_eq!(shape(800.0), (vec![2, 1], 800.0));
        assert_eq!(shape(500.0), (vec![1, 1, 1], 500.0));
    }

    #[test]
    fn the_legend_names_the_regions_that_are_shown() {
        assert_eq!(rows_of(vec![vec![panel(0.5)]]).regions(), ["filler", "answer"]);
    }
}
