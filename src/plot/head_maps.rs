//! Attention maps of every head: small multiples, layers down and heads across, on one colour scale.

use super::colourbar::{draw_scale, scale_width};
use super::colourscale::{ColourScale, Shades};
use super::figure::{Area, Figure, Heading};
use super::heatmap::check_bins;
use super::map_panel::draw_bins;
use super::map_panel::Bins;
use super::text::{Anchor, Type, AXIS_LABEL, TICK};
use anyhow::{ensure, Result};

/// The maps of all heads of one model.
#[derive(Clone, Debug)]
pub struct HeadMaps {
    /// The colour scale of all maps.
    pub scale: ColourScale,
    /// Names of the layers: of the rows, from the top.
    pub layers: Vec<String>,
    /// Names of the heads: of the columns.
    pub heads: Vec<String>,
    /// `maps[layer][head]`, all of the same shape, query rows and key columns.
    pub maps: Vec<Vec<Bins>>,
    /// Pixels of a map's side at most; many heads make it smaller.
    pub size_px: u32,
}

const MARGIN: f64 = 44.0;
/// Left and right of the maps, roughly. Many maps shrink until there is room for it, but not below [`SMALLEST`].
const BESIDE: f64 = 300.0;
const SMALLEST: f64 = 24.0;
/// Between maps, in pixels and as a fraction of their side.
const GAP: (f64, f64) = (3.0, 0.06);
const LABEL: f64 = 36.0;
const BEFORE_BAR: f64 = 44.0;
const BAR_HEIGHT: (f64, f64) = (260.0, 440.0);
const NAME: Type = Type { em: 19.0, ..TICK };

/// Draws the maps of all heads.
///
/// # Errors
///
/// If maps are missing or differ in shape, have more bins than pixels or negative numbers on a scale that begins at
/// zero, or make a figure that is too large.
pub fn heatmap_grid(heads: &HeadMaps, heading: &Heading) -> Result<Figure> {
    check(heads)?;
    let HeadMaps { scale, layers, maps, .. } = heads;
    let numbers = maps.iter().flatten().flat_map(|bins| &bins.values).map(|&x| f64::from(x));
    let shades = Shades::fit(scale.signed, scale.log, numbers);

    let map = map_size(heads, heading.page.room() - BESIDE);
    let pitch = (map.0 + gap(map.0), map.1 + gap(map.1));
    let content = (pitch.0 * heads.heads.len() as f64, pitch.1 * layers.len() as f64);
    let left = MARGIN + LABEL + widest(layers) + 12.0;
    let above = LABEL + NAME.em + 12.0;
    let bar_height = content.1.clamp(BAR_HEIGHT.0, BAR_HEIGHT.1).round();
    let bar_x = left + content.0 + BEFORE_BAR;
    let width = bar_x + scale_width(&shades, &scale.label, bar_height) + MARGIN / 2.0;
    let body_height = above + content.1.max(bar_height) + MARGIN;
    let (mut figure, top) = Figure::headed(heading, width, body_height)?;

    let corner = (left, top + above);
    for (layer, row) in maps.iter().enumerate() {
        for (head, bins) in row.iter().enumerate() {
            let (x, y) = (corner.0 + pitch.0 * head as f64, corner.1 + pitch.1 * layer as f64);
            draw_bins(&mut figure, bins, Area { x, y, width: map.0, height: map.1 }, &shades);
        }
    }
    draw_names(&mut figure, heads, corner, map);
    draw_scale(&mut figure, (bar_x, corner.1), bar_height, &shades, &scale.label);
    Ok(figure)
}

fn check(heads: &HeadMaps) -> Result<()> {
    let HeadMaps { layers, heads: names, maps, size_px, scale, .. } = heads;
    ensure!(!layers.is_empty() && !names.is_empty(), "no heads to draw");
    let complete = maps.len() == layers.len() && maps.iter().all(|row| row.len() == names.len());
    ensure!(complete, "the maps are not {} layers of {} heads", layers.len(), names.len());
    let Bins { rows, columns, .. } = maps[0][0];
    ensure!(
        rows.max(columns) <= *size_px as usize,
        "{rows} × {columns} bins do not fit into {size_px} pixels: pool more, or draw larger"
    );
    for (layer, row) in layers.iter().zip(maps) {
        for (head, bins) in names.iter().zip(row) {
            let name = format!("layer {layer}, head {head}");
            check_bins(bins, scale.signed, &name)?;
            ensure!((bins.rows, bins.columns) == (rows, columns), "{name}: not {rows} × {columns} bins");
        }
    }
    Ok(())
}

/// Width and height of a map: bins of whole pixels, not wider together than the figure if they need not be.
fn map_size(heads: &HeadMaps, width: f64) -> (f64, f64) {
    let room = (width / heads.heads.len() as f64 - GAP.0).min(heads.size_px.into()).max(SMALLEST);
    let side = |bins: usize| bins as f64 * (room / bins as f64).floor().max(1.0);
    let Bins { rows, columns, .. } = heads.maps[0][0];
    (side(columns), side(rows))
}

fn gap(side: f64) -> f64 {
    (GAP.1 * side).round().max(GAP.0)
}

fn widest(names: &[String]) -> f64 {
    names.iter().map(|name| NAME.width(name)).fold(0.0, f64::max)
}

/// Names of layers and heads; of many heads, or long names, only some.
fn draw_names(figure: &mut Figure, heads: &HeadMaps, (left, top): (f64, f64), map: (f64, f64)) {
    let pitch = (map.0 + gap(map.0), map.1 + gap(map.1));
    for (i, name) in heads.layers.iter().enumerate() {
        let y = top + pitch.1 * i as f64 + map.1 / 2.0;
        figure.text((left - 12.0, y), name, Type { anchor: Anchor::Right, ..NAME });
    }
    let step = ((widest(&heads.heads) + 6.0) / pitch.0).ceil() as usize;
    for (i, name) in heads.heads.iter().enumerate().step_by(step.max(1)) {
        figure.text((left + pitch.0 * i as f64 + map.0 / 2.0, top - 8.0 - NAME.em / 2.0), name, NAME);
    }
    let content = (pitch.0 * heads.heads.len() as f64, pitch.1 * heads.layers.len() as f64);
    figure.text((left + content.0 / 2.0, top - NAME.em - LABEL + 8.0), "head", AXIS_LABEL);
    let upward = Type { anchor: Anchor::Upward, ..AXIS_LABEL };
    let x = left - 12.0 - widest(&heads.layers) - LABEL / 2.0;
    figure.text((x, top + content.1 / 2.0), "layer", upward);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(layers: usize, heads: usize, bins: usize) -> HeadMaps {
        let map = Bins { rows: bins, columns: bins, values: vec![0.5; bins * bins] };
        let names = |n: usize| (0..n).map(|i| i.to_string()).collect();
        HeadMaps {
            scale: ColourScale { label: "weight".into(), signed: false, log: false },
            layers: names(layers),
            heads: names(heads),
            maps: vec![vec![map; heads]; layers],
            size_px: 128,
        }
    }

    #[test]
    fn many_heads_make_small_maps() {
        assert_eq!(map_size(&heads(4, 4, 32), 1500.0), (128.0, 128.0));
        assert_eq!(map_size(&heads(32, 32, 16), 1500.0), (32.0, 32.0));
        assert_eq!(map_size(&heads(2, 64, 8), 1500.0), (24.0, 24.0));
        assert!(heatmap_grid(&heads(8, 32, 16), &Heading::default()).is_ok());
    }

    #[test]
    fn maps_that_are_missing_or_do_not_fit_are_errors() {
        let error = |heads: &HeadMaps| {
            format!("{:#}", heatmap_grid(heads, &Heading::default()).err().expect("this cannot be drawn"))
        };
        let mut missing = heads(2, 2, 4);
        missing.maps[1].pop();
        assert!(error(&missing).contains("2 layers of 2 heads"));
        let mut other = heads(2, 2, 4);
        other.maps[1][1] = Bins { rows: 1, columns: 4, values: vec![0.0; 4] };
        assert!(error(&other).contains("layer 1, head 1: not 4 × 4 bins"));
        assert!(error(&heads(1, 1, 129)).contains("do not fit into 128 pixels"));
        assert!(error(&heads(0, 0, 4)).contains("no heads"));
    }
}
