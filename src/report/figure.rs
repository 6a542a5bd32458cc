//! Figures of a report, ready to be embedded, with alternative texts.

use crate::figures::panels_of_rows;
use crate::results::Row;
use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use names::Column;
use plot::{forest, FigureHeading, SavedFigure};
use std::path::Path;

/// A PNG file.
#[derive(Debug)]
pub(super) struct ReportFigure {
    /// Its name in the run folder.
    pub(super) file: String,
    pub(super) saved: SavedFigure,
}

impl ReportFigure {
    /// Reads a PNG and the recipe that it carries.
    pub(super) fn read(path: &Path, file: &str) -> Result<Self> {
        Ok(Self { file: file.to_owned(), saved: SavedFigure::read(path)? })
    }

    /// Draws the forest plot of rows; `None` where there is nothing to draw, as of a single prompt, which gives no interval.
    pub(super) fn forest(rows: &[Row], groups: &[Column]) -> Option<Self> {
        rows.iter().find(|row| row.difference.interval().is_some())?;
        let title = "Differences on the same prompts, with 95 % intervals";
        let heading = FigureHeading { title, subtitle: "other less baseline", ..FigureHeading::default() };
        let figure = forest(&panels_of_rows(rows, groups), &heading, "difference").ok()?;
        let bytes = figure.png(&[("Title".to_owned(), title.to_owned())]).ok()?;
        Some(Self { file: "differences".to_owned(), saved: SavedFigure::parse(bytes).ok()? })
    }

    /// A text of its recipe.
    pub(super) fn recipe(&self, wanted: &str) -> Option<&str> {
        self.saved.recipe.iter().find(|(keyword, _)| keyword == wanted).map(|(_, text)| text.as_str())
    }

    /// `data:image/png;base64,…`.
    pub(super) fn uri(&self) -> String {
        format!("data:image/png;base64,{}", STANDARD.encode(&self.saved.bytes))
    }

    /// Describes the figure: its title, its models, and how its numbers were pooled.
    pub(super) fn alt_text(&self, models: &[String]) -> String {
        let title = self.recipe("Title").unwrap_or("Figure").trim_end_matches('.');
        let models = if models.is_empty() { String::new() } else { format!(", for {}", models.join(" and ")) };
        let pooled = self.recipe("pooling").map(|pooling| format!(" ({pooling})")).unwrap_or_default();
        format!("{title}{models}{pooled}.")
    }
}
