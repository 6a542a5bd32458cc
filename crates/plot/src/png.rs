//! PNG files that carry the recipe of their figure.

use anyhow::{Context, Result};
use base::files;
use std::io::Cursor;
use std::path::Path;

/// A PNG of 8-bit RGB `pixels`, with each `(keyword, text)` of the recipe as an iTXt chunk (UTF-8), and how wide it is
/// meant to be.
pub(super) fn encode_png(
    size: (u32, u32),
    pixels: &[u8],
    width_mm: Option<f64>,
    recipe: &[(String, String)],
) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let per_metre = width_mm.map(|mm| (f64::from(size.0) / (mm / 1000.0)).round() as u32);
    let dims = per_metre.map(|n| png::PixelDimensions { xppu: n, yppu: n, unit: png::Unit::Meter });
    encoder.set_pixel_dims(dims);
    for (keyword, text) in recipe {
        encoder.add_itxt_chunk(keyword.clone(), text.clone())?;
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

/// A figure of ours that was saved as PNG.
#[derive(Debug)]
pub struct SavedFigure {
    /// Pixels across and down.
    pub size: (u32, u32),
    /// In the order it was written.
    pub recipe: Vec<(String, String)>,
    /// The file.
    pub bytes: Vec<u8>,
}

impl SavedFigure {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a PNG.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::bytes(path, files::TEXT_MAX)?;
        Self::parse(bytes).with_context(|| format!("{} is not a PNG that can be read", path.display()))
    }

    /// Parses the bytes of a PNG.
    ///
    /// # Errors
    /// If they are no PNG.
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        let reader = png::Decoder::new(Cursor::new(&bytes)).read_info()?;
        let info = reader.info();
        let mut recipe = Vec::new();
        for chunk in &info.utf8_text {
            recipe.push((chunk.keyword.clone(), chunk.get_text()?));
        }
        Ok(Self { size: (info.width, info.height), recipe, bytes })
    }
}

/// The recipe that a figure of ours carries, in the order it was written.
///
/// # Errors
/// If the file cannot be read, or is not a PNG.
pub fn read_recipe(path: &Path) -> Result<Vec<(String, String)>> {
    Ok(SavedFigure::read(path)?.recipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(keyword, text)| (keyword.to_string(), text.to_string())).collect()
    }

    #[test]
    fn the_recipe_reads_back_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.png");
        let recipe = recipe(&[("command", "difftool needle --ctx 4k"), ("pooling", "mean over heads; λ = 0.2 ± 0.1")]);
        std::fs::write(&path, encode_png((2, 1), &[255, 0, 0, 0, 0, 255], None, &recipe).unwrap()).unwrap();
        assert_eq!(read_recipe(&path).unwrap(), recipe);
    }

    #[test]
    fn a_keyword_that_png_does_not_allow_is_refused() {
        for keyword in ["", "λ"] {
            assert!(encode_png((1, 1), &[0; 3], None, &recipe(&[(keyword, "x")])).is_err());
        }
    }

    #[test]
    fn other_files_have_no_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "hello").unwrap();
        assert!(format!("{:#}", read_recipe(&path).unwrap_err()).contains("is not a PNG"));
    }
}
