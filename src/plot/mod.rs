//! Figures: plain data in; PNG, SVG or PDF out, which look alike. Nothing else draws.
//!
//! * [`accuracy`]: how often the needle was found, by depth and length;
//! * [`allocation`]: where the attention went, stacked by region (the paper's Figure 1);
//! * [`heatmap`], [`heatmap_grid`]: attention maps, a few in detail or those of every head;
//! * [`head_grid`]: one number for each layer and head;
//! * [`quality`]: metrics by the precision of attention logits (the paper's Figure 8);
//! * [`ccdf`]: how large and how rare outliers are;
//! * [`curves`]: training curves, and NLL by position (the paper's Figure 4);
//! * [`forest`]: paired differences with their intervals.
//!
//! Each makes a [`Figure`], drawn once as SVG for a [`Page`], to be saved with its recipe: what was run to get it, in text
//! chunks of the PNG ([`read_recipe`]), the metadata of the SVG or the subject of the PDF. A figure depends on its data
//! alone: the same data give the same bytes.

mod accuracy;
mod allocation;
mod axis;
mod bitmap;
mod ccdf;
mod colour;
mod colourbar;
mod colourscale;
mod curves;
mod export;
mod figure;
mod font;
mod forest;
mod head_grid;
mod head_maps;
mod heatmap;
mod legend;
mod look;
mod map_panel;
mod page;
mod panelgrid;
mod pdf;
mod png;
mod quality;
mod text;

pub use self::accuracy::{accuracy, AccuracyPanel, Hits};
pub use self::allocation::{allocation, AllocationPanel, Bar, Part};
pub use self::ccdf::{ccdf, CcdfLine, CcdfPanel};
pub use self::colourscale::ColourScale;
pub use self::curves::{curves, Curve, CurvePanel};
pub(crate) use self::figure::MOST_PIXELS;
pub use self::figure::{Figure, Heading};
pub use self::forest::{forest, ForestPanel, ForestRow};
pub use self::head_grid::{head_grid, HeadGrid, HeadScale};
pub use self::head_maps::{heatmap_grid, HeadMaps};
pub use self::heatmap::{heatmap, Heatmaps};
pub use self::map_panel::{Bins, MapPanel, Profile, Tokens};
pub use self::page::Page;
pub use self::png::read_recipe;
pub(crate) use self::png::SavedFigure;
pub use self::quality::{quality, Estimate, QualityLine, QualityPanel};

/// The distinct strings in the order of their first appearance.
pub(crate) fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}
