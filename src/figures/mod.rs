//! Figures, drawn from plain data and saved as PNG, SVG or PDF.
//!
//! * [`accuracy`]: accuracy on needle prompts by depth and length;
//! * [`allocation`]: shares by region, as stacked bars (the paper's Figure 1);
//! * [`heatmap`], [`heatmap_grid`]: attention maps, a few in detail or those of every head;
//! * [`head_grid`]: one number for each layer and head;
//! * [`quality`]: metrics by the precision of attention logits (the paper's Figure 8);
//! * [`ccdf`]: complementary cumulative distributions of magnitudes;
//! * [`curves`]: training curves, and NLL by position (the paper's Figure 4);
//! * [`forest`]: paired differences with their intervals.
//!
//! Each of them returns a [`Figure`], drawn as SVG for a [`Page`]. It is saved with its recipe, the command and
//! settings that made it, in text chunks of the PNG ([`read_recipe`]), the metadata of the SVG or the subject of the
//! PDF. Figures depend only on their data: the same data give the same bytes as PNG and SVG.

mod accuracy;
mod allocation;
mod axis;
mod ccdf;
mod colour;
mod colourbar;
mod colourscale;
mod curve_style;
mod curves;
mod export;
mod figure;
mod font;
mod forest;
mod head_grid;
mod head_maps;
mod heatmap;
mod legend;
mod map_panel;
mod page;
mod panelgrid;
mod png;
mod quality;
mod text;

pub use self::accuracy::{accuracy, AccuracyPanel, Hits};
pub use self::allocation::{allocation, AllocationPanel, Bar, BarPart};
pub use self::ccdf::{ccdf, CcdfLine, CcdfPanel};
pub use self::colourscale::ColourScale;
pub use self::curves::{curves, Curve, CurvePanel};
pub use self::figure::{Figure, FigureHeading};
pub(crate) use self::forest::panels_of;
pub use self::forest::{forest, ForestPanel, ForestRow};
pub use self::head_grid::{head_grid, HeadGrid, HeadScale};
pub use self::head_maps::{heatmap_grid, HeadMaps};
pub use self::heatmap::{heatmap, Heatmaps};
pub use self::map_panel::{Bins, MapPanel, Profile, TokenAxis};
pub use self::page::Page;
pub use self::png::read_recipe;
pub(crate) use self::png::SavedFigure;
pub use self::quality::{quality, PointEstimate, QualityLine, QualityPanel};
