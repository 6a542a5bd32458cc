//! Figures, drawn from plain data and saved as PNG, SVG or PDF.
//!
//! * [`lines()`]: numbers with intervals against numbers or categories (the paper's Figures 4 and 8), and distributions;
//! * [`cells()`]: grids of coloured cells with numbers: heads by layer, accuracy by depth and length;
//! * [`forest()`]: paired differences with their intervals;
//! * [`document()`]: a text whose parts are coloured by what they give;
//! * [`maps()`], [`small_maps()`]: attention maps, a few in detail or those of every head.
//!
//! Each of them returns a [`Figure`], drawn as SVG for a [`Page`]. It is saved with its recipe, the command and
//! settings that made it, in text chunks of the PNG ([`read_recipe`]), the metadata of the SVG or the subject of the
//! PDF. Figures depend only on their data: the same data give the same bytes as PNG and SVG.
//!
//! It knows names of models and heads, files and the terminal, and nothing of runs and their results.
//!
//! ```
//! use plot::{lines, FigureHeading, Line, LineAxes, LinePanel};
//!
//! let losses = [(1.0, 3.2), (2.0, 2.1), (3.0, 1.7)];
//! let panel = LinePanel {
//!     title: "loss".to_owned(),
//!     x_label: "tokens seen (M)".to_owned(),
//!     y_label: "nats".to_owned(),
//!     y_range: None,
//!     marks: Vec::new(),
//!     lines: vec![Line::new("diff".to_owned(), losses)],
//! };
//! let heading = FigureHeading { title: "Training", ..FigureHeading::default() };
//! let figure = lines(&[panel], LineAxes::Linear, &heading).unwrap();
//! let png = figure.png(&[("command".to_owned(), "difftool train".to_owned())]).unwrap();
//! assert!(png.starts_with(b"\x89PNG"));
//! ```

mod axis;
mod cells;
mod colour;
mod colour_scale;
mod document;
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

pub use self::cells::{cells, CellGrid, CellRow, CellScale, GridCell};
pub use self::colour::{region_colours, region_name, RegionColours};
pub use self::colour_scale::ColourScale;
pub use self::document::{document, DocumentPart};
pub use self::export::recipe;
pub use self::figure::{Figure, FigureHeading, Page};
pub use self::forest::{forest, ForestPanel, ForestRow};
pub use self::lines::{lines, Line, LineAxes, LinePanel, PointEstimate};
pub use self::map_panel::{Bins, MapPanel};
pub use self::maps::{maps, MapPanels};
pub use self::png::read_recipe;
pub use self::png::SavedFigure;
pub use self::profile::Profile;
pub use self::small_maps::{small_maps, SmallMaps};
pub use self::token_axis::TokenAxis;
