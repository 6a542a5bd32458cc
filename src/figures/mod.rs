//! Figures, drawn from plain data and saved as PNG, SVG or PDF.
//!
//! * [`lines`]: numbers with intervals against numbers or categories (the paper's Figures 4 and 8), and distributions;
//! * [`cells`]: grids of coloured cells with numbers: heads by layer, accuracy by depth and length;
//! * [`forest`]: paired differences with their intervals;
//! * figures of runs are values: views of their tables (`view.rs`);
//! * [`maps`], [`small_maps`]: attention maps, a few in detail or those of every head.
//!
//! Each of them returns a [`Figure`], drawn as SVG for a [`Page`]. It is saved with its recipe, the command and
//! settings that made it, in text chunks of the PNG ([`read_recipe`]), the metadata of the SVG or the subject of the
//! PDF. Figures depend only on their data: the same data give the same bytes as PNG and SVG.

mod axis;
mod cells;
mod colour;
mod colour_scale;
mod export;
mod figure;
mod forest;
mod legend;
mod lines;
mod map_panel;
mod maps;
mod panel_grid;
mod panel_title;
mod png;
mod profile;
mod small_maps;
mod text;
mod token_axis;
mod view;

pub use self::cells::{cells, CellGrid, CellRow, CellScale, GridCell};
pub(crate) use self::colour::region_name;
pub use self::colour_scale::ColourScale;
pub(crate) use self::export::recipe;
pub use self::figure::{Figure, FigureHeading, Page};
pub(crate) use self::forest::compared_words;
pub use self::forest::{forest, ForestPanel, ForestRow};
pub use self::lines::{lines, Line, LineAxes, LinePanel, PointEstimate};
pub use self::map_panel::{Bins, MapPanel};
pub use self::maps::{maps, MapPanels};
pub use self::png::read_recipe;
pub(crate) use self::png::SavedFigure;
pub use self::profile::Profile;
pub use self::small_maps::{small_maps, SmallMaps};
pub use self::token_axis::TokenAxis;
pub(crate) use self::view::{Over, Panel, RunFigure, View};
