//! A figure of a run, ready to be embedded.

use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::io::Cursor;
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
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let broken = || format!("{} is not a PNG that can be read", path.display());
        let reader = png::Decoder::new(Cursor::new(&bytes)).read_info().with_context(broken)?;
        let info = reader.info();
        let pooling = info.utf8_text.iter().find(|chunk| chunk.keyword == "pooling");
        Ok(Self {
            file: file.to_owned(),
            width: info.width,
            height: info.height,
            pooling: pooling.map(|chunk| chunk.get_text()).transpose().with_context(broken)?,
            uri: format!("data:image/png;base64,{}", STANDARD.encode(&bytes)),
        })
    }
}
