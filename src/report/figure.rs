//! A figure of a run, ready to be embedded.

use crate::plot::SavedFigure;
use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::path::Path;

/// A PNG file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Its name in the run folder.
    pub(super) file: String,
    /// Pixels across and down.
    pub(super) width: u32,
    pub(super) height: u32,
    /// How its numbers were pooled, if its recipe says so.
    pub(super) pooling: Option<String>,
    /// `data:image/png;base64,…`.
    pub(super) uri: String,
}

impl Figure {
    /// Reads a PNG and the recipe that it carries.
    pub(super) fn read(path: &Path, file: &str) -> Result<Self> {
        let SavedFigure { size: (width, height), recipe, bytes } = SavedFigure::read(path)?;
        let pooling = recipe.into_iter().find(|(keyword, _)| keyword == "pooling").map(|(_, text)| text);
        let uri = format!("data:image/png;base64,{}", STANDARD.encode(&bytes));
        Ok(Self { file: file.to_owned(), width, height, pooling, uri })
    }
}
