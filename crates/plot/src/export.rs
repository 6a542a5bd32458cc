//! One drawing in three formats, each with its recipe: an SVG, which resvg turns into pixels and svg2pdf into a page.
//!
//! Text stays text in SVG and PDF. All three take its glyphs from the embedded font: the PDF has a subset of it, the
//! SVG the letters of Latin and Greek for browsers, and those of other scripts where they are needed; an editor that does not
//! read embedded fonts takes the family by name.

use super::colour::PAPER;
use super::figure::{Figure, FINE};
use super::png::encode_png;
use super::text::{drawable, further_letters, FontWeight, FONTS};
use anyhow::{bail, Context, Result};
use base::files;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, TextStr};
use plotters::style::RGBColor;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::path::Path;

/// The resolution that an SVG has for lengths in millimetres (CSS).
const CSS_DPI: f64 = 96.0;
const POINTS_PER_INCH: f64 = 72.0;
const MM_PER_INCH: f64 = 25.4;

impl Figure {
    /// Saves the picture to a new file whose name ends in `.png`, `.svg` or `.pdf`, with its `recipe`: pairs of a
    /// keyword (`command`, `seed`, …) and a text.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, or the format or a keyword is none.
    pub fn save(&self, path: &Path, recipe: &[(String, String)]) -> Result<()> {
        let bytes = match path.extension().and_then(|extension| extension.to_str()) {
            Some("png") => self.png(recipe)?,
            Some("svg") => document(self, recipe).into_bytes(),
            Some("pdf") => pdf(self, &tree(self)?, recipe)?,
            _ => bail!("{}: figures are PNG, SVG or PDF files", path.display()),
        };
        files::create(path, &bytes)
            .with_context(|| format!("cannot create {} (results are never overwritten)", path.display()))
    }

    /// The picture as a PNG file with its `recipe`.
    ///
    /// # Errors
    /// If a keyword of the recipe is not one of PNG, or the picture is too large.
    pub fn png(&self, recipe: &[(String, String)]) -> Result<Vec<u8>> {
        let (pixels, size) = rasterised(self)?;
        encode_png(size, &pixels, Some(self.page.mm(self.width, self.height)), recipe)
    }

    pub fn title(&self) -> &str {
        &self.title
    }
}

/// The SVG.
fn document(figure: &Figure, recipe: &[(String, String)]) -> String {
    let Figure { width, height, page, elements, .. } = figure;
    let width_mm = page.mm(*width, *height);
    let across = width * FINE;
    let down = height * FINE;
    let height_mm = width_mm * height / width;
    let title = escaped(&figure.title);
    let recipe = recipe.iter().map(|(keyword, text)| format!("{}: {}\n", escaped(keyword), escaped(text)));
    let recipe: String = recipe.collect();
    let mut fonts = font_face("DejaVu Sans", "normal", FontWeight::new(false).file);
    fonts += &font_face("DejaVu Sans", "bold", FontWeight::new(true).file);
    if let Some(file) = further_letters(elements) {
        fonts += &font_face("DejaVu Sans More", "normal", file);
    }
    let RGBColor(r, g, b) = PAPER;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" \
         width=\"{width_mm:.3}mm\" height=\"{height_mm:.3}mm\" viewBox=\"0 0 {across} {down}\">\n\
         <title>{title}</title>\n<metadata>\n{recipe}</metadata>\n<style>\n{fonts}</style>\n\
         <rect width=\"{across}\" height=\"{down}\" fill=\"#{r:02X}{g:02X}{b:02X}\" stroke=\"none\"/>\n\
         <g stroke-linecap=\"round\" stroke-linejoin=\"round\">\n{elements}</g>\n</svg>\n"
    )
}

/// A rule that embeds a font.
fn font_face(family: &str, weight: &str, file: &[u8]) -> String {
    let file = STANDARD.encode(file);
    format!(
        "@font-face {{ font-family: \"{family}\"; font-weight: {weight}; src: url(data:font/ttf;base64,{file}) }}\n"
    )
}

/// Text for XML, without the characters that XML cannot hold.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '\n' | '\t' => safe.push(character),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// The SVG as resvg and svg2pdf read it.
fn tree(figure: &Figure) -> Result<Tree> {
    let options = Options { dpi: CSS_DPI as f32, fontdb: FONTS.clone(), ..Options::default() };
    Tree::from_str(&drawable(&document(figure, &[])), &options).context("the figure is no SVG: this is a bug")
}

/// A PDF with one page. `drawing` is the figure's SVG; the recipe is the subject of the document.
fn pdf(figure: &Figure, drawing: &Tree, recipe: &[(String, String)]) -> Result<Vec<u8>> {
    let width_mm = figure.page.mm(figure.width, figure.height);
    let [width, height] =
        [width_mm, width_mm * figure.height / figure.width].map(|mm| (mm / MM_PER_INCH * POINTS_PER_INCH) as f32);
    let (drawing, root) = svg2pdf::to_chunk(drawing, svg2pdf::ConversionOptions::default())
        .map_err(|e| anyhow::anyhow!("cannot make a PDF of the figure: {e}"))?;
    let mut next = Ref::new(drawing.refs().map(Ref::get).max().unwrap_or(0) + 1);
    let [catalog, pages, page, content, info] = [(); 5].map(|()| next.bump());

    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let mut sheet = pdf.page(page);
    sheet.media_box(Rect::new(0.0, 0.0, width, height)).parent(pages).contents(content);
    let mut resources = sheet.resources();
    resources.x_objects().pair(Name(b"Figure"), root);
    resources.finish();
    sheet.finish();
    let mut stream = Content::new();
    stream.transform([width, 0.0, 0.0, height, 0.0, 0.0]).x_object(Name(b"Figure"));
    pdf.stream(content, &stream.finish());
    pdf.extend(&drawing);
    let recipe: Vec<String> = recipe.iter().map(|(keyword, text)| format!("{keyword}: {text}")).collect();
    pdf.document_info(info).title(TextStr(&figure.title)).subject(TextStr(&recipe.join("; ")));
    Ok(pdf.finish())
}

/// 8-bit RGB pixels, row by row, and their number across and down.
pub(super) fn rasterised(figure: &Figure) -> Result<(Vec<u8>, (u32, u32))> {
    let tree = tree(figure)?;
    let across = figure.page.pixels(figure.width, figure.height);
    let down = (f64::from(across) * figure.height / figure.width).round() as u32;
    let mut pixels = Pixmap::new(across, down).context("a figure without pixels")?;
    let x = across as f32 / tree.size().width();
    let y = down as f32 / tree.size().height();
    resvg::render(&tree, Transform::from_scale(x, y), &mut pixels.as_mut());
    let rgb = pixels.data().chunks_exact(4).flat_map(|rgba| [rgba[0], rgba[1], rgba[2]]).collect();
    Ok((rgb, (across, down)))
}

/// The recipe of a figure: version, command, seeds and pooling.
pub fn recipe(command: &[String], seed: impl std::fmt::Display, pooling: &str) -> Vec<(String, String)> {
    vec![
        ("Software".to_owned(), format!("difftool {}", env!("CARGO_PKG_VERSION"))),
        ("command".to_owned(), command.join(" ")),
        ("seed".to_owned(), seed.to_string()),
        ("pooling".to_owned(), pooling.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Area, FigureHeading, Page};
    use super::super::text::{Anchor, TextFormat};
    use super::*;

    fn figure() -> Figure {
        let page = Page { width_mm: Some(50.8), ..Page::default() };
        let heading = FigureHeading { title: "a < b & λ\u{7}", page, ..FigureHeading::default() };
        let (mut figure, top) = Figure::headed(&heading, 100.0, 100.0).unwrap();
        figure.text((50.0, top), "a < b & λ\u{7}", TextFormat::new(20.0, Anchor::Hanging).bold());
        figure.bitmap(Area { x: 1.0, y: 1.0, width: 4.0, height: 2.0 }, (1, 2), &[RGBColor(9, 9, 9); 2]);
        figure
    }

    fn saved(name: &str, recipe: &[(&str, &str)]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let recipe: Vec<_> = recipe.iter().map(|(keyword, text)| (keyword.to_string(), text.to_string())).collect();
        figure().save(&path, &recipe).unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn texts_stay_text_and_the_recipe_is_inside() {
        let svg = String::from_utf8(saved("figure.svg", &[("command", "difftool <x> & y")])).unwrap();
        assert!(svg.contains("command: difftool &lt;x&gt; &amp; y"), "{svg}");
        assert!(svg.contains("text-anchor=\"end\"") && svg.contains(">\na &lt; b &amp; λ?\n</text>"), "{svg}");
        assert!(svg.contains("<title>a &lt; b &amp; λ\u{fffd}</title>"), "{svg}");
        assert!(svg.contains("href=\"data:image/png;base64,iVBORw0KGgo") && svg.contains("width=\"50.800mm\""));
    }

    #[test]
    fn letters_beyond_latin_stay_text_and_are_drawn() {
        let pixels = |text: &str, bold: bool| {
            let heading = FigureHeading::default();
            let (mut figure, top) = Figure::headed(&heading, 100.0, 100.0).unwrap();
            let format = TextFormat::new(20.0, Anchor::Left);
            figure.text((10.0, top + 20.0), text, if bold { format.bold() } else { format });
            assert!(document(&figure, &[]).contains(text));
            rasterised(&figure).unwrap().0
        };
        for bold in [false, true] {
            for letter in ["ż", "Ж", "ש", "ب", "ა"] {
                assert!(
                    pixels(letter, bold) != pixels("?", bold) && pixels(letter, bold) != pixels(" ", bold),
                    "{letter}"
                );
            }
            assert!(pixels("中", bold) == pixels("?", bold));
        }
    }

    #[test]
    fn a_page_is_as_large_as_was_asked_and_has_the_embedded_font() {
        let pdf = saved("figure.pdf", &[("command", "difftool needle")]);
        let text = String::from_utf8_lossy(&pdf);
        assert!(text.starts_with("%PDF") && text.contains("/MediaBox [0 0 144 "), "{text}");
        assert!(text.contains("DejaVuSans-Bold") && text.contains("/Subtype /Image"), "{text}");
        assert!(text.contains("(command: difftool needle)"), "{text}");
    }

    #[test]
    fn a_png_of_a_page_is_made_for_print() {
        let png = saved("figure.png", &[]);
        let reader = ::png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let info = reader.info();
        // 50.8 mm are 2 inches.
        assert_eq!((info.width, info.pixel_dims.map(|dims| dims.xppu)), (600, Some(11811)));
    }

    #[test]
    fn other_formats_and_files_that_exist_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |name: &str| format!("{:#}", figure().save(&folder.path().join(name), &[]).unwrap_err());
        assert!(refusal("figure.gif").contains("PNG, SVG or PDF"));
        std::fs::write(folder.path().join("figure.svg"), "precious").unwrap();
        assert!(refusal("figure.svg").contains("never overwritten"));
        assert_eq!(std::fs::read_to_string(folder.path().join("figure.svg")).unwrap(), "precious");
    }
}
