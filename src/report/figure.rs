//! Figures of a report, ready to be embedded.

use crate::plot::{forest, panels_of, FigureHeading, Page, SavedFigure};
use crate::results::{Field, Row};
use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::path::Path;

/// A PNG file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReportFigure {
    /// Its name in the run folder.
    pub(super) file: String,
    /// Pixels across and down.
    pub(super) width: u32,
    pub(super) height: u32,
    /// Its title, if its recipe has one.
    pub(super) title: Option<String>,
    /// How its numbers were pooled, if its recipe says so.
    pub(super) pooling: Option<String>,
    /// `data:image/png;base64,…`.
    pub(super) uri: String,
}

impl ReportFigure {
    /// Reads a PNG and the recipe that it carries.
    pub(super) fn read(path: &Path, file: &str) -> Result<Self> {
        Ok(Self::new(SavedFigure::read(path)?, file))
    }

    /// Draws the forest plot of rows; `None` where there is nothing to draw, as of a single prompt, which gives no interval.
    pub(super) fn forest(rows: &[Row], groups: &[Field]) -> Option<Self> {
        rows.iter().find(|row| row.difference.interval().is_some())?;
        let title = "Differences on the same prompts, with 95 % intervals";
        let heading = FigureHeading { title, subtitle: "other less baseline", page: Page::default() };
        let figure = forest(&panels_of(rows, groups), &heading, "difference").ok()?;
        let bytes = figure.png(&[("Title".to_owned(), title.to_owned())]).ok()?;
        Some(Self::new(SavedFigure::parse(bytes).ok()?, "differences"))
    }

    fn new(figure: SavedFigure, file: &str) -> Self {
        let SavedFigure { size: (width, height), recipe, bytes } = figure;
        let text_of = |wanted: &str| {
            let found = recipe.iter().find(|(keyword, _)| keyword == wanted);
            found.map(|(_, text)| text.clone())
        };
        let uri = format!("data:image/png;base64,{}", STANDARD.encode(&bytes));
        let (title, pooling) = (text_of("Title"), text_of("pooling"));
        Self { file: file.to_owned(), width, height, title, pooling, uri }
    }
}
