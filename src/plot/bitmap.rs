//! Matrices of colours in a figure. They lie on the paper, below every stroke.

use super::figure::{Area, FINE};
use super::png;
use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use plotters::style::RGBColor;
use resvg::tiny_skia::{FilterQuality, Paint, Pattern, Pixmap, Rect, SpreadMode, Transform};

/// Colours, row by row, that fill an area without being smoothed.
#[derive(Clone)]
pub(super) struct Bitmap {
    area: Area,
    /// Rows and columns.
    shape: (usize, usize),
    colours: Vec<RGBColor>,
}

impl Bitmap {
    pub(super) fn new(area: Area, shape: (usize, usize), colours: Vec<RGBColor>) -> Self {
        assert_eq!(colours.len(), shape.0 * shape.1, "a colour for each place");
        Self { area, shape, colours }
    }

    /// Left, top, width and height in the whole numbers of an SVG.
    pub(super) fn place(&self) -> [f64; 4] {
        let Area { x, y, width, height } = self.area;
        [x, y, width, height].map(|length| (length * FINE).round())
    }

    /// Pixels across and down, and 8-bit RGB row by row. Several whole pixels for each colour, for viewers that smooth them
    /// nevertheless.
    pub(super) fn enlarged(&self) -> ((u32, u32), Vec<u8>) {
        let times = |length: f64, n: usize| (length / n as f64).floor().max(1.0) as usize;
        let (rows, columns) = self.shape;
        let (across, down) = (times(self.area.width, columns), times(self.area.height, rows));
        let mut pixels = Vec::with_capacity(3 * rows * down * columns * across);
        for row in self.colours.chunks_exact(columns) {
            let line: Vec<u8> =
                row.iter().flat_map(|&RGBColor(r, g, b)| std::iter::repeat_n([r, g, b], across)).flatten().collect();
            (0..down).for_each(|_| pixels.extend_from_slice(&line));
        }
        (((columns * across) as u32, (rows * down) as u32), pixels)
    }

    /// The element of an SVG.
    pub(super) fn element(&self) -> String {
        let (size, pixels) = self.enlarged();
        let file = STANDARD.encode(png::encode(size, &pixels, None, &[]).expect("memory does not fail"));
        let [x, y, width, height] = self.place();
        format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" xlink:href=\"data:image/png;base64,{file}\"/>\n"
        )
    }

    /// Draws it on `sheet`, which has `scale` pixels across and down for a unit of an SVG.
    pub(super) fn draw(&self, sheet: &mut Pixmap, scale: (f32, f32)) -> Result<()> {
        let (rows, columns) = self.shape;
        let mut own = Pixmap::new(columns as u32, rows as u32).context("a map without colours")?;
        for (rgba, &RGBColor(r, g, b)) in own.data_mut().chunks_exact_mut(4).zip(&self.colours) {
            rgba.copy_from_slice(&[r, g, b, u8::MAX]);
        }
        let [x, y, width, height] = self.place().map(|length| length as f32);
        let place = Transform::from_scale(width / columns as f32, height / rows as f32).post_translate(x, y);
        let area = Rect::from_xywh(0.0, 0.0, columns as f32, rows as f32).context("a map without colours")?;
        let shader = Pattern::new(own.as_ref(), SpreadMode::Pad, FilterQuality::Nearest, 1.0, Transform::identity());
        let paint = Paint { shader, ..Paint::default() };
        sheet.fill_rect(area, &paint, place.post_scale(scale.0, scale.1), None);
        Ok(())
    }
}
