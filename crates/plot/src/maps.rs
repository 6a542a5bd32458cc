//! Attention maps, query × key: one panel for each model, layer or map, on one colour scale.

use super::colour_scale::{draw_colour_bar, ColourScale, FittedScale, BAR_ROOM};
use super::figure::{Figure, FigureHeading, MARGIN};
use super::legend::Legend;
use super::map_panel::{MapPanel, PanelSize};
use super::panel_title::PanelTitle;
use super::profile::profile_range;
use anyhow::Result;
use names::distinct;
use std::ops::Range;

/// A figure of attention maps.
#[derive(Clone, Debug)]
pub struct MapPanels {
    pub scale: ColourScale,
    /// Rows of panels, from the top; rows may differ in length.
    pub rows: Vec<Vec<MapPanel>>,
    /// Approximate pixels of the longer side of a map, because bins are whole pixels and token texts need room.
    pub size_px: u32,
}

impl MapPanels {
    fn panels(&self) -> impl Iterator<Item = &MapPanel> {
        self.rows.iter().flatten()
    }

    fn fitted(&self) -> FittedScale {
        FittedScale::of_maps(self.scale.signed, self.panels().flat_map(|panel| panel.bins.numbers()))
    }

    /// The regions that any panel shows, in the order of their first tokens.
    fn regions(&self) -> Vec<String> {
        let sides = self.panels().flat_map(|panel| [&panel.keys, &panel.queries]);
        let mut runs: Vec<&(String, Range<usize>)> = sides.flat_map(|side| &side.regions).collect();
        runs.sort_by_key(|(_, run)| run.start);
        distinct(runs.into_iter().map(|(name, _)| name))
    }

    fn legend(&self, width: f64) -> Legend {
        Legend::new(Legend::regions(&self.regions()), width - 2.0 * MARGIN)
    }
}

/// Smallest size of a map on a narrow page, and on one that is full.
const SMALLEST: (f64, f64) = (120.0, 60.0);
const BETWEEN: (f64, f64) = (30.0, 20.0);

/// Draws attention maps: at least one. What stands left of a map is drawn once for maps side by side that share it.
///
/// # Errors
/// If the figure would be too large.
pub fn maps(maps: &MapPanels, heading: &FigureHeading) -> Result<Figure> {
    let fitted = maps.fitted();
    let subtitle = heading.subtitle_with(&[fitted.note()]);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let rows: Vec<&[MapPanel]> = maps.rows.iter().map(Vec::as_slice).collect();
    let mut layout = PanelLayout::new(rows, maps.size_px.into(), false);
    let mut legend = maps.legend(layout.width);
    if heading.page.width_mm.is_some() {
        let room = heading.page.room();
        legend = maps.legend(room);
        let height = heading.room_below(room) - legend.height() - BAR_ROOM;
        // On a page that is too small, maps fill it.
        if layout.width > room || layout.height > height {
            layout = PanelLayout::filling(maps, room, height);
        }
    }
    let body = legend.height() + BAR_ROOM + layout.height;
    let (mut figure, top) = Figure::headed(&heading, layout.width, body)?;
    legend.draw(&mut figure, (MARGIN, top));
    let bar = (MARGIN, top + legend.height());
    let bar_room = figure.width - 2.0 * MARGIN;
    draw_colour_bar(&mut figure, &fitted, &maps.scale.label, bar, bar_room);
    let top = bar.1 + BAR_ROOM;
    for (row, (sizes, row_top)) in layout.rows.iter().zip(layout.sizes.iter().zip(&layout.tops)) {
        for (panel, (size, left)) in row.iter().zip(sizes.iter().zip(&layout.lefts)) {
            let range = profile_range(maps.panels().filter_map(|panel| panel.profile.as_ref()), panel.profile.as_ref());
            panel.draw(&mut figure, size, (*left, top + row_top), &fitted, range);
        }
    }
    Ok(figure)
}

/// Positions of panels: maps of a column have the same left edge; maps and titles of a row have the same top edge.
struct PanelLayout<'a> {
    rows: Vec<&'a [MapPanel]>,
    sizes: Vec<Vec<PanelSize>>,
    /// Left edge of the maps of each column.
    lefts: Vec<f64>,
    /// Top edge of the maps of each row, below the top of the body.
    tops: Vec<f64>,
    width: f64,
    height: f64,
}

impl<'a> PanelLayout<'a> {
    /// Arranges maps in a width of `room` and a height: as many side by side as are large enough to be seen with the texts of
    /// their tokens; if none are, as large as may be.
    fn filling(maps: &'a MapPanels, room: f64, height: f64) -> Self {
        let texts = maps.panels().map(|panel| panel.keys.least_texts_length()).fold(0.0, f64::max);
        let most = maps.rows.iter().map(Vec::len).max().unwrap_or(1);
        let arranged = |across: usize, size: f64| {
            Self::new(maps.rows.iter().flat_map(|row| row.chunks(across)).collect(), size, true)
        };
        let mut best = (0, 0.0);
        for across in (1..=most).rev() {
            let spare = room - arranged(across, SMALLEST.0).width;
            let mut size = (SMALLEST.0 + spare / across as f64).min(maps.size_px.into());
            while size > SMALLEST.1 && arranged(across, size).height > height {
                size -= 5.0;
            }
            if size > best.1 {
                best = (across, size);
            }
            if size >= SMALLEST.0.max(texts) {
                break;
            }
        }
        arranged(best.0, best.1.max(SMALLEST.1))
    }

    /// Arranges maps whose longer side has about `size` units; exactly as many if they are to `fill` a page.
    fn new(rows: Vec<&'a [MapPanel]>, size: f64, fill: bool) -> Self {
        let mut sizes: Vec<Vec<PanelSize>> = Vec::new();
        for row in &rows {
            let before = [None].into_iter().chain(row.iter().map(Some));
            let of_row = row.iter().zip(before);
            sizes.push(of_row.map(|(panel, before)| PanelSize::new(panel, before, size, fill)).collect());
        }
        let across = sizes.iter().map(Vec::len).max().unwrap_or(0);
        let mut lefts = Vec::new();
        let mut x = MARGIN;
        for place in 0..across {
            let column: Vec<&PanelSize> = sizes.iter().filter_map(|row| row.get(place)).collect();
            x += column.iter().map(|size| size.left).fold(0.0, f64::max);
            lefts.push(x);
            x += column.iter().map(|size| size.width).fold(0.0, f64::max) + BETWEEN.0;
        }
        let mut tops = Vec::new();
        let mut y = 0.0;
        for row in &sizes {
            let above = PanelTitle::highest(row.iter().map(|size| &size.title));
            tops.push(y + above);
            y += above + row.iter().map(|size| size.map.1 + size.below).fold(0.0, f64::max) + BETWEEN.1;
        }
        Self { rows, sizes, lefts, tops, width: x - BETWEEN.0 + MARGIN, height: y }
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
            bins: Bins { rows: 2, columns: 2, values, sink: Vec::new() },
            queries: tokens(4),
            keys: tokens(6),
            profile: Some(profile),
        }
    }

    fn rows_of(rows: Vec<Vec<MapPanel>>) -> MapPanels {
        MapPanels { scale: ColourScale { label: "weight".into(), signed: false }, rows, size_px: 100 }
    }

    #[test]
    fn panels_of_one_scale_have_the_same_colour_for_the_same_number() {
        let both = rows_of(vec![vec![panel(0.25)], vec![panel(0.5)]]);
        assert!(maps(&both, &FigureHeading::default()).is_ok());
        let together = both.fitted();
        assert_ne!(together, rows_of(vec![vec![panel(0.25)]]).fitted());
        assert_eq!(together, rows_of(vec![vec![panel(0.5)]]).fitted());
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
        let shape = |room: f64, height: f64| {
            let layout = PanelLayout::filling(&maps, room, height);
            assert!(layout.height <= height, "{}", layout.height);
            (layout.rows.iter().map(|row| row.len()).collect::<Vec<_>>(), layout.width.round())
        };
        assert_eq!(shape(1200.0, 9000.0), (vec![3], 1200.0));
        assert_eq!(shape(714.0, 9000.0), (vec![3], 714.0));
        assert_eq!(shape(500.0, 9000.0).0, [2, 1]);
        assert_eq!(shape(330.0, 9000.0), (vec![1, 1, 1], 330.0));
        assert!(shape(330.0, 1300.0).1 < 330.0, "a page is not exceeded");
    }

    #[test]
    fn the_legend_names_the_regions_that_are_shown() {
        assert_eq!(rows_of(vec![vec![panel(0.5)]]).regions(), ["filler", "answer"]);
    }
}
