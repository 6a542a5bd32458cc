//! Figures: plain data in, PNG or SVG out. Nothing else draws.
//!
//! * [`accuracy`]: how often the needle was found, by depth and length, in the familiar needle colours;
//! * [`allocation`]: where the attention went, stacked by region (the paper's Figure 1);
//! * [`heatmap`], [`heatmap_grid`]: attention maps, a few in detail or those of every head;
//! * [`head_grid`]: one number for each layer and head;
//! * [`quality`]: metrics by the precision of attention logits (the paper's Figure 8);
//! * [`ccdf`]: how large and how rare outliers are;
//! * [`curves`]: training curves, and NLL by position (the paper's Figure 4).
//!
//! Each makes a [`Figure`], to be saved with its recipe: what was run to get it, in text chunks of the PNG
//! ([`read_recipe`]) or the metadata of the SVG. A figure depends on its data alone: the same data give the same bytes.

mod accuracy;
mod allocation;
mod axis;
mod ccdf;
mod colour;
mod colourbar;
mod colourscale;
mod curves;
mod figure;
mod font;
mod forest;
mod head_grid;
mod head_maps;
mod heatmap;
mod legend;
mod map_panel;
mod panelgrid;
mod png;
mod quality;
mod svg;

pub use self::accuracy::{accuracy, AccuracyPanel};
pub use self::allocation::{allocation, AllocationPanel, Bar};
pub use self::ccdf::{ccdf, CcdfLine, CcdfPanel};
pub use self::colourscale::ColourScale;
pub use self::curves::{curves, Curve, CurvePanel};
pub use self::figure::Figure;
pub use self::forest::{forest, ForestPanel, ForestRow};
pub use self::head_grid::{head_grid, HeadGrid};
pub use self::head_maps::{heatmap_grid, HeadMaps};
pub use self::heatmap::{heatmap, Bins, Heatmaps, MapPanel, Profile, Tokens};
pub use self::png::read_recipe;
pub use self::quality::{quality, Estimate, QualityLine, QualityPanel};

/// The distinct strings in the order of their first appearance.
fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}
