//! PNG files that carry their recipe.

use anyhow::{ensure, Context, Result};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

/// Writes 8-bit RGB `pixels` to a new file, with each `(keyword, text)` of the recipe as an iTXt chunk (UTF-8).
pub(super) fn write(path: &Path, size: (u32, u32), pixels: &[u8], recipe: &[(String, String)]) -> Result<()> {
    for (keyword, _) in recipe {
        ensure!(
            (1..=79).contains(&keyword.len()) && keyword.is_ascii(),
            "`{keyword}` cannot be a keyword of a PNG: 1 to 79 ASCII characters are"
        );
    }
    let cannot = || format!("cannot create {} (results are never overwritten)", path.display());
    let file = File::create_new(path).with_context(cannot)?;
    encode(BufWriter::new(file), size, pixels, recipe).with_context(cannot)
}

/// Writes 8-bit RGB `pixels` as a PNG.
pub(super) fn encode(out: impl Write, size: (u32, u32), pixels: &[u8], recipe: &[(String, String)]) -> Result<()> {
    let mut encoder = png::Encoder::new(out, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (keyword, text) in recipe {
        encoder.add_itxt_chunk(keyword.clone(), text.clone())?;
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}

/// The recipe that a figure of ours carries, in the order it was written.
pub fn read_recipe(path: &Path) -> Result<Vec<(String, String)>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let broken = || format!("{} is not a PNG that can be read", path.display());
    let reader = png::Decoder::new(BufReader::new(file)).read_info().with_context(broken)?;
    let chunks = &reader.info().utf8_text;
    chunks.iter().map(|chunk| Ok((chunk.keyword.clone(), chunk.get_text().with_context(broken)?))).collect()
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
        write(&path, (2, 1), &[255, 0, 0, 0, 0, 255], &recipe).unwrap();
        assert_eq!(read_recipe(&path).unwrap(), recipe);
    }

    #[test]
    fn a_figure_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.png");
        std::fs::write(&path, "precious").unwrap();
        let error = write(&path, (1, 1), &[0; 3], &[]).unwrap_err();
        assert!(format!("{error:#}").contains("never overwritten"), "{error:#}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_keyword_that_png_does_not_allow_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.png");
        assert!(write(&path, (1, 1), &[0; 3], &recipe(&[("", "x")])).is_err());
        assert!(write(&path, (1, 1), &[0; 3], &recipe(&[("λ", "x")])).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn other_files_have_no_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "hello").unwrap();
        assert!(format!("{:#}", read_recipe(&path).unwrap_err()).contains("is not a PNG"));
    }
}
