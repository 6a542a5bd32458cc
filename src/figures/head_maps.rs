//! Attention maps of every head as small multiples, layers down and heads across, on one colour scale.

use super::colourbar::{draw_scale, scale_width};
use super::colourscale::{ColourScale, FittedScale};
use super::figure::{Area, Figure, FigureHeading};
use super::map_panel::{draw_bins, Bins};
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use anyhow::Result;

/// The maps of all heads of one model.
#[derive(Clone, Debug)]
pub struct HeadMaps {
    /// The colour scale of all maps.
    pub scale: ColourScale,
    /// Names of the layers, which are the rows from the top.
    pub layers: Vec<String>,
    /// Names of the heads, which are the columns.
    pub heads: Vec<String>,
    /// `maps[layer][head]`, all of the same shape, with queries as rows and keys as columns.
    pub maps: Vec<Vec<Bins>>,
    /// `sinks[layer][head]`: share of the sink in each row of the map, drawn left of it; empty without a sink.
    pub sinks: Vec<Vec<Vec<f32>>>,
    /// Largest side of a map in pixels; smaller if there are many heads.
    pub size_px: u32,
}

const MARGIN: f64 = 44.0;
/// Approximate room left and right of the maps. Many maps shrink to make room for it, but not below [`SMALLEST`].
const BESIDE: f64 = 300.0;
const SMALLEST: f64 = 24.0;
/// Gap between maps, at least in pixels, and as a fraction of their side.
const GAP: (f64, f64) = (3.0, 0.06);
/// Width of the sink column, as a fraction of the map's side and at least in pixels, and its distance from the map.
const SINK: (f64, f64, f64) = (0.08, 4.0, 2.0);
const LABEL: f64 = 36.0;
const BEFORE_BAR: f64 = 44.0;
const BAR_HEIGHT: (f64, f64) = (260.0, 440.0);
const NAME: TextFormat = TextFormat { em: 19.0, ..TICK };

/// Draws the maps of all heads, of which there is at least one.
///
/// # Errors
/// If the figure would be too large.
pub fn heatmap_grid(heads: &HeadMaps, heading: &FigureHeading) -> Result<Figure> {
    let HeadMaps { scale, layers, maps, sinks, .. } = heads;
    let numbers = maps.iter().flatten().flat_map(|bins| &bins.values).chain(sinks.iter().flatten().flatten());
    let fitted = FittedScale::fit(scale.signed, scale.log, numbers.map(|&x| f64::from(x)));

    let map = map_size(heads, heading.page.room() - BESIDE);
    let pitch = pitch(heads, map);
    let content = (pitch.0 * heads.heads.len() as f64, pitch.1 * layers.len() as f64);
    let left = MARGIN + LABEL + widest(layers) + 12.0;
    let above = LABEL + NAME.em + 12.0;
    let bar_height = content.1.clamp(BAR_HEIGHT.0, BAR_HEIGHT.1).round();
    let bar_x = left + content.0 + BEFORE_BAR;
    let width = bar_x + scale_width(&fitted, &scale.label, bar_height) + MARGIN / 2.0;
    let body_height = above + content.1.max(bar_height) + MARGIN;
    let (mut figure, top) = Figure::headed(heading, width, body_height)?;

    let corner = (left + sink_room(heads, map), top + above);
    for (layer, row) in maps.iter().enumerate() {
        for (head, bins) in row.iter().enumerate() {
            let (x, y) = (corner.0 + pitch.0 * head as f64, corner.1 + pitch.1 * layer as f64);
            let area = Area { x, y, width: map.0, height: map.1 };
            draw_bins(&mut figure, bins, area, &fitted);
            if let Some(sink) = sink(heads, layer, head) {
                let room = sink_room(heads, map);
                draw_bins(&mut figure, &sink, Area { x: x - room, width: room - SINK.2, ..area }, &fitted);
            }
        }
    }
    draw_names(&mut figure, heads, corner, map);
    draw_scale(&mut figure, (bar_x, corner.1), bar_height, &fitted, &scale.label);
    Ok(figure)
}

/// Returns width and height of a map, with bins of whole pixels.
fn map_size(heads: &HeadMaps, width: f64) -> (f64, f64) {
    let beside = if has_sinks(heads) { GAP.0 + SINK.1 + SINK.2 } else { GAP.0 };
    let room = (width / heads.heads.len() as f64 - beside).min(heads.size_px.into()).max(SMALLEST);
    let side = |bins: usize| bins as f64 * (room / bins as f64).floor().max(1.0);
    let Bins { rows, columns, .. } = heads.maps[0][0];
    (side(columns), side(rows))
}

/// Returns the sink of a head as one column; `None` without a sink.
fn sink(heads: &HeadMaps, layer: usize, head: usize) -> Option<Bins> {
    let values = heads.sinks.get(layer)?.get(head).filter(|values| !values.is_empty())?;
    Some(Bins { rows: values.len(), columns: 1, values: values.clone() })
}

fn has_sinks(heads: &HeadMaps) -> bool {
    heads.sinks.iter().flatten().any(|sink| !sink.is_empty())
}

/// Returns the room left of a map for its sink.
fn sink_room(heads: &HeadMaps, map: (f64, f64)) -> f64 {
    if has_sinks(heads) {
        (SINK.0 * map.0).round().max(SINK.1) + SINK.2
    } else {
        0.0
    }
}

/// Returns the distance from one map to the next, across and down.
fn pitch(heads: &HeadMaps, map: (f64, f64)) -> (f64, f64) {
    (map.0 + sink_room(heads, map) + gap(map.0), map.1 + gap(map.1))
}

fn gap(side: f64) -> f64 {
    (GAP.1 * side).round().max(GAP.0)
}

fn widest(names: &[String]) -> f64 {
    names.iter().map(|name| NAME.width(name)).fold(0.0, f64::max)
}

/// Draws the names of layers and heads; only some of the heads if all names do not fit.
fn draw_names(figure: &mut Figure, heads: &HeadMaps, (left, top): (f64, f64), map: (f64, f64)) {
    let (pitch, room) = (pitch(heads, map), sink_room(heads, map));
    for (i, name) in heads.layers.iter().enumerate() {
        let y = top + pitch.1 * i as f64 + map.1 / 2.0;
        figure.text((left - room - 12.0, y), name, TextFormat { anchor: Anchor::Right, ..NAME });
    }
    let step = ((widest(&heads.heads) + 6.0) / pitch.0).ceil() as usize;
    for (i, name) in heads.heads.iter().enumerate().step_by(step.max(1)) {
        figure.text((left + pitch.0 * i as f64 + map.0 / 2.0, top - 8.0 - NAME.em / 2.0), name, NAME);
    }
    let content = (pitch.0 * heads.heads.len() as f64, pitch.1 * heads.layers.len() as f64);
    let label = if room > 0.0 { "head (before each map: what its sink takes)" } else { "head" };
    figure.text((left - room + content.0 / 2.0, top - NAME.em - LABEL + 8.0), label, AXIS_LABEL);
    let upward = TextFormat { anchor: Anchor::Upward, ..AXIS_LABEL };
    let x = left - room - 12.0 - widest(&heads.layers) - LABEL / 2.0;
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
            sinks: Vec::new(),
            size_px: 128,
        }
    }

    #[test]
    fn many_heads_make_small_maps() {
        assert_eq!(map_size(&heads(4, 4, 32), 1500.0), (128.0, 128.0));
        assert_eq!(map_size(&heads(32, 32, 16), 1500.0), (32.0, 32.0));
        assert_eq!(map_size(&heads(2, 64, 8), 1500.0), (24.0, 24.0));
        assert!(heatmap_grid(&heads(8, 32, 16), &FigureHeading::default()).is_ok());
    }

    #[test]
    fn what_sinks_take_has_room_before_each_map_and_a_place_on_the_scale() {
        let plain = heads(2, 3, 32);
        let mut with = plain.clone();
        with.sinks = vec![vec![vec![0.9; 32]; 3]; 2];
        assert_eq!((sink_room(&plain, (128.0, 128.0)), sink_room(&with, (128.0, 128.0))), (0.0, 12.0));
        let drawn = |heads: &HeadMaps| heatmap_grid(heads, &FigureHeading::default()).unwrap();
        let (plain, with) = (drawn(&plain), drawn(&with));
        let images = |figure: &Figure| figure.elements.matches("<image").count();
        assert_eq!(images(&with), images(&plain) + 6);
        assert!(with.elements.contains("what its sink takes") && !plain.elements.contains("what its sink takes"));
        assert_eq!(with.width - plain.width, 3.0 * 12.0);
    }
}
