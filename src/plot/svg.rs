//! SVG files: a bitmap of the shapes with the texts above it as text, which stays sharp and can be searched and edited.

use super::figure::{Anchor, Text};
use super::png;
use anyhow::{Context, Result};
use plotters::style::RGBColor;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The first is what the layout was made for; the others are its near relations in width.
const FONTS: &str = "'DejaVu Sans', 'Bitstream Vera Sans', Verdana, sans-serif";

/// Writes a new file: 8-bit RGB `pixels` without texts, the texts, and the recipe as `<metadata>`.
pub(super) fn write(
    path: &Path,
    size: (u32, u32),
    pixels: &[u8],
    texts: &[Text],
    recipe: &[(String, String)],
) -> Result<()> {
    let document = document(size, pixels, texts, recipe)?;
    let cannot = || format!("cannot create {} (results are never overwritten)", path.display());
    let mut file = File::create_new(path).with_context(cannot)?;
    file.write_all(document.as_bytes()).with_context(cannot)
}

fn document(size: (u32, u32), pixels: &[u8], texts: &[Text], recipe: &[(String, String)]) -> Result<String> {
    let (width, height) = size;
    let mut bitmap = Vec::new();
    png::encode(&mut bitmap, size, pixels, &[])?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n"
    );
    svg += "<metadata>\n";
    for (keyword, text) in recipe {
        writeln!(svg, "{}: {}", escaped(keyword), escaped(text))?;
    }
    let bytes = base64(&bitmap);
    writeln!(
        svg,
        "</metadata>\n<image width=\"{width}\" height=\"{height}\" href=\"data:image/png;base64,{bytes}\"/>"
    )?;
    writeln!(svg, "<g font-family=\"{FONTS}\">")?;
    for text in texts.iter().filter(|text| !text.text.is_empty()) {
        svg += &element(text);
    }
    Ok(svg + "</g>\n</svg>\n")
}

/// A `<text>` whose capitals have their middle at the place, as in the bitmap.
fn element(Text { place, text, kind }: &Text) -> String {
    let anchor = match kind.anchor {
        Anchor::Left => "start",
        Anchor::Middle | Anchor::Upward => "middle",
        Anchor::Right | Anchor::Hanging => "end",
    };
    let (x, y) = (format!("{:.2}", place.0), format!("{:.2}", place.1));
    let turn = if kind.anchor.is_upward() { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
    let weight = if kind.bold { " font-weight=\"bold\"" } else { "" };
    let RGBColor(r, g, b) = kind.colour;
    let look = format!("font-size=\"{}\" fill=\"#{r:02x}{g:02x}{b:02x}\"{weight}", kind.em);
    let down = kind.half_capital();
    let text = escaped(text);
    format!("<text x=\"{x}\" y=\"{y}\" dy=\"{down:.2}\" {look} text-anchor=\"{anchor}\"{turn}>{text}</text>\n")
}

/// Text for XML, without the characters that XML cannot hold.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\n' | '\t' => safe.push(character),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= three.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Figure, Type};
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let examples =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in examples {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn texts_stay_text_and_the_recipe_is_inside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        let mut figure = Figure::new(20.0, 10.0);
        figure.text((5.0, 4.0), "a < b & λ\u{7}", Type::new(20.0, Anchor::Hanging).bold());
        figure.save_svg(&path, &[("command".into(), "difftool \"x\"".into())]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("command: difftool &quot;x&quot;"), "{svg}");
        assert!(
            svg.contains("text-anchor=\"end\"") && svg.contains("rotate(-90 5.00 4.00)\">a &lt; b &amp; λ\u{fffd}<")
        );
        assert!(svg.contains("href=\"data:image/png;base64,iVBORw0KGgo"), "{svg}");
        assert!(figure.save_svg(&path, &[]).is_err(), "a figure is never overwritten");
    }
}
