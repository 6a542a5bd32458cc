//! A figure: a sheet of pixels and the few strokes that ours are made of.
//!
//! Coordinates are pixels of the saved picture, with fractions, x to the right and y down. Everything is drawn
//! [`FINE`] times as large and averaged when saved, which smooths the edges that plotters leaves jagged.

use super::colour::{FAINT_INK, INK, PAPER};
use super::font::{Line, CAPITAL_EM};
use super::{png, svg};
use anyhow::{ensure, Result};
use plotters::backend::{BitMapBackend, DrawingBackend};
use plotters::style::{Color, RGBColor, ShapeStyle};
use std::path::Path;

/// Drawn pixels per saved pixel, in each direction.
const FINE: u32 = 2;
/// The largest picture in saved pixels; a larger one would take more than 400 MB while it is drawn.
const MOST_PIXELS: f64 = 36e6;

/// A picture in memory.
#[derive(Clone)]
pub struct Figure {
    width: u32,
    height: u32,
    /// RGB, `FINE` times the size: everything but the texts.
    pixels: Vec<u8>,
    /// On top of the pixels, so that they can be saved as what they are.
    texts: Vec<Text>,
}

/// One line of text at a place.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) place: (f64, f64),
    pub(super) text: String,
    pub(super) kind: Type,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    pub(super) fn centre(&self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }
}

/// Which point of a text is at the given place; vertically it is always the middle of its capitals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
    /// The middle of a text that is read from the bottom to the top.
    Upward,
    /// The end of such a text, which hangs below the place.
    Hanging,
}

impl Anchor {
    /// Whether the text is read from the bottom to the top.
    pub(super) fn is_upward(self) -> bool {
        matches!(self, Self::Upward | Self::Hanging)
    }
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) em: f64,
    pub(super) bold: bool,
    pub(super) colour: RGBColor,
    pub(super) anchor: Anchor,
}

impl Type {
    pub(super) const fn new(em: f64, anchor: Anchor) -> Self {
        Self { em, bold: false, colour: INK, anchor }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) const fn in_colour(self, colour: RGBColor) -> Self {
        Self { colour, ..self }
    }

    /// Width of a text in this type.
    pub(super) fn width(&self, text: &str) -> f64 {
        Line { text, em: self.em, bold: self.bold }.width()
    }

    /// The text broken into lines that fit into `width`: behind a `·` if that is enough, otherwise at any space.
    /// At least one line; a word that is too long loses its beginning.
    pub(super) fn wrap(&self, text: &str, width: f64) -> Vec<String> {
        let parts = text.split_inclusive(" · ").map(|part| part.trim_end_matches(' '));
        let words = parts.flat_map(|part| {
            let whole = self.width(part) <= width;
            part.split(move |character| character == ' ' && !whole)
        });
        let mut lines = vec![String::new()];
        for word in words {
            let last = lines.last_mut().expect("there is a first line");
            let longer = if last.is_empty() { word.to_string() } else { format!("{last} {word}") };
            if last.is_empty() || self.width(&longer) <= width {
                *last = longer;
            } else {
                lines.push(word.to_string());
            }
        }
        lines.iter().map(|line| self.fit(line, width)).collect()
    }

    /// From the baseline up to the middle of the capitals.
    pub(super) fn half_capital(&self) -> f64 {
        self.em * CAPITAL_EM / 2.0
    }

    /// The text, or as much of its end as fits into `width` behind an ellipsis: the end of a path says more.
    pub(super) fn fit(&self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_string();
        }
        let tails = text.char_indices().skip(1).map(|(start, _)| format!("…{}", &text[start..]));
        tails.into_iter().find(|tail| self.width(tail) <= width).unwrap_or_else(|| "…".into())
    }
}

/// Left edge of the heading.
const HEADING_X: f64 = 44.0;
/// Height of a heading whose subtitle has one line.
const HEADING_HEIGHT: f64 = 118.0;
/// Between the lines of a subtitle.
const SUBTITLE_STEP: f64 = 30.0;
/// A sheet is widened up to this for the sake of its title.
const TITLE_MAX_WIDTH: f64 = 1600.0;
const TITLE: Type = Type::new(32.0, Anchor::Left).bold();
const SUBTITLE: Type = Type::new(22.0, Anchor::Left).in_colour(FAINT_INK);
/// Titles of panels.
pub(super) const PANEL_TITLE: Type = Type::new(25.0, Anchor::Left).bold();
/// What follows the title of a panel.
pub(super) const PANEL_DETAIL: Type = Type::new(23.0, Anchor::Left).in_colour(FAINT_INK);
/// Names of axes.
pub(super) const AXIS_LABEL: Type = Type::new(22.0, Anchor::Middle);
/// Numbers along axes.
pub(super) const TICK: Type = Type::new(21.0, Anchor::Middle);

impl Figure {
    /// A white sheet.
    pub(super) fn new(width: f64, height: f64) -> Self {
        let (width, height) = (width.round() as u32, height.round() as u32);
        let samples = 3 * (FINE * width) as usize * (FINE * height) as usize;
        let mut figure = Self { width, height, pixels: vec![0; samples], texts: Vec::new() };
        figure.fill(Area { x: 0.0, y: 0.0, width: width.into(), height: height.into() }, PAPER);
        figure
    }

    /// A white sheet with the title of the figure and lines in grey that say on what it was measured. Also where the
    /// body begins, for which there are at least `width` × `body_height` pixels.
    pub(super) fn headed(title: &str, subtitle: &str, width: f64, body_height: f64) -> Result<(Self, f64)> {
        let width = width.max((TITLE.width(title) + 2.0 * HEADING_X).ceil().min(TITLE_MAX_WIDTH));
        let room = width - 2.0 * HEADING_X;
        let lines = SUBTITLE.wrap(subtitle, room);
        let top = HEADING_HEIGHT + SUBTITLE_STEP * (lines.len() - 1) as f64;
        let height = top + body_height;
        ensure!(
            width * height <= MOST_PIXELS,
            "a figure of {width:.0} × {height:.0} pixels is larger than {} million: draw less, or smaller panels",
            MOST_PIXELS / 1e6
        );
        let mut figure = Self::new(width, height);
        figure.text((HEADING_X, 44.0), &TITLE.fit(title, room), TITLE);
        for (i, line) in lines.iter().enumerate() {
            figure.text((HEADING_X, 84.0 + SUBTITLE_STEP * i as f64), line, SUBTITLE);
        }
        Ok((figure, top))
    }

    /// Saves the picture to a new PNG file that carries `recipe`: pairs of a keyword (`command`, `seed`, …) and a text.
    pub fn save(&self, path: &Path, recipe: &[(String, String)]) -> Result<()> {
        png::write(path, (self.width, self.height), &self.with_texts().averaged(), recipe)
    }

    /// Saves the picture to a new SVG file: its texts as text, everything else as an embedded bitmap.
    /// `recipe` is in its `<metadata>`, one `keyword: text` a line.
    pub fn save_svg(&self, path: &Path, recipe: &[(String, String)]) -> Result<()> {
        svg::write(path, (self.width, self.height), &self.averaged(), &self.texts, recipe)
    }

    pub(super) fn fill(&mut self, area: Area, colour: RGBColor) {
        let (corner, end) = ((fine(area.x), fine(area.y)), (fine(area.right()), fine(area.bottom())));
        // The bitmap backend leaves the last row and column out, so neighbours that share an edge do not overlap.
        self.sheet().draw_rect(corner, end, &colour, true).expect("memory does not fail");
    }

    /// The outline of a rectangle, inside it.
    pub(super) fn frame(&mut self, area: Area, colour: RGBColor, thickness: f64) {
        let Area { x, y, width, height } = area;
        self.fill(Area { height: thickness, ..area }, colour);
        self.fill(Area { y: y + height - thickness, height: thickness, ..area }, colour);
        self.fill(Area { width: thickness, ..area }, colour);
        self.fill(Area { x: x + width - thickness, width: thickness, ..area }, colour);
    }

    /// A line through points, with round corners.
    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: RGBColor, thickness: f64) {
        let points: Vec<(i32, i32)> = points.iter().map(|&(x, y)| (fine(x), fine(y))).collect();
        let style = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: fine(thickness).max(1) as u32 };
        let mut sheet = self.sheet();
        for pair in points.windows(2) {
            sheet.draw_line(pair[0], pair[1], &style).expect("memory does not fail");
        }
        for &point in points.iter().filter(|_| style.stroke_width > 2) {
            sheet.draw_circle(point, style.stroke_width / 2, &colour, true).expect("memory does not fail");
        }
    }

    /// A filled polygon.
    pub(super) fn polygon(&mut self, corners: &[(f64, f64)], colour: RGBColor) {
        self.tint(corners, colour, 1.0);
    }

    /// A polygon filled with a colour that lets through what is below it, but for the part `opacity`.
    pub(super) fn tint(&mut self, corners: &[(f64, f64)], colour: RGBColor, opacity: f64) {
        let corners: Vec<(i32, i32)> = corners.iter().map(|&(x, y)| (fine(x), fine(y))).collect();
        if corners.len() > 2 {
            self.sheet().fill_polygon(corners, &colour.mix(opacity)).expect("memory does not fail");
        }
    }

    /// The marker of the `i`-th curve, `size` wide, with a rim of paper: shapes tell curves apart where colours do not.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), i: usize, size: f64, colour: RGBColor) {
        for (half, colour) in [(size / 2.0 + 1.5, PAPER), (size / 2.0, colour)] {
            // Angles from the top in parts of a turn; radii that give the shapes the same area, more or less.
            let (corners, turn, radius) = match i % 4 {
                0 => (24, 0.0, 1.1),
                1 => (4, 0.125, 1.35),
                2 => (3, 0.0, 1.6),
                _ => (4, 0.0, 1.45),
            };
            let corner = |k: usize| {
                let angle = (k as f64 / corners as f64 + turn) * std::f64::consts::TAU;
                (x + half * radius * angle.sin(), y - half * radius * angle.cos())
            };
            let corners: Vec<_> = (0..corners).map(corner).collect();
            self.polygon(&corners, colour);
        }
    }

    /// One line of text at a place.
    pub(super) fn text(&mut self, place: (f64, f64), text: &str, kind: Type) {
        self.texts.push(Text { place, text: text.to_string(), kind });
    }

    /// The figure with its texts among its pixels.
    fn with_texts(&self) -> Self {
        let mut drawn = Self { texts: Vec::new(), ..self.clone() };
        for text in &self.texts {
            drawn.draw_text(text);
        }
        drawn
    }

    fn draw_text(&mut self, Text { place, text, kind }: &Text) {
        let scale = f64::from(FINE);
        let line = Line { text, em: kind.em * scale, bold: kind.bold };
        let left = match kind.anchor {
            Anchor::Left => 0.0,
            Anchor::Middle | Anchor::Upward => -line.width() / 2.0,
            Anchor::Right | Anchor::Hanging => -line.width(),
        };
        let (x, y) = (place.0 * scale, place.1 * scale);
        let mut sheet = self.sheet();
        let mut dot = |x: i32, y: i32, cover: f64| {
            sheet.draw_pixel((x, y), kind.colour.mix(cover.min(1.0)).to_backend_color()).expect("memory does not fail");
        };
        if kind.anchor.is_upward() {
            line.draw(left - y, |along, across, cover| dot(x.round() as i32 + across, -along, cover));
        } else {
            line.draw(left + x, |along, across, cover| dot(along, y.round() as i32 + across, cover));
        }
    }

    /// A panel's title in bold and its detail in grey behind it, together no wider than `room`.
    pub(super) fn panel_title(&mut self, place: (f64, f64), title: &str, detail: &str, room: f64) {
        let detail_width = if detail.is_empty() { 0.0 } else { 14.0 + PANEL_DETAIL.width(detail) };
        let title = PANEL_TITLE.fit(title, room - detail_width);
        self.text(place, &title, PANEL_TITLE);
        self.text((place.0 + PANEL_TITLE.width(&title) + 14.0, place.1), detail, PANEL_DETAIL);
    }

    fn sheet(&mut self) -> BitMapBackend<'_> {
        BitMapBackend::with_buffer(&mut self.pixels, (FINE * self.width, FINE * self.height))
    }

    /// The pixels of the saved picture: means over squares of `FINE` × `FINE`.
    fn averaged(&self) -> Vec<u8> {
        let (width, fine) = (self.width as usize, FINE as usize);
        let mut saved = Vec::with_capacity(3 * width * self.height as usize);
        for rows in self.pixels.chunks_exact(3 * fine * fine * width) {
            for x in 0..width {
                for channel in 0..3 {
                    let sample =
                        |i: usize| u32::from(rows[3 * ((i / fine) * fine * width + x * fine + i % fine) + channel]);
                    let sum: u32 = (0..fine * fine).map(sample).sum();
                    saved.push(((sum + FINE * FINE / 2) / (FINE * FINE)) as u8);
                }
            }
        }
        saved
    }
}

/// A length or place in drawn pixels.
fn fine(x: f64) -> i32 {
    (x * f64::from(FINE)).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::style::colors::{BLACK, RED};

    fn pixel(figure: &Figure, x: u32, y: u32) -> [u8; 3] {
        let at = 3 * (y * figure.width + x) as usize;
        figure.with_texts().averaged()[at..at + 3].try_into().unwrap()
    }

    #[test]
    fn a_filled_area_ends_where_its_neighbour_begins() {
        let mut figure = Figure::new(4.0, 1.0);
        figure.fill(Area { x: 0.0, y: 0.0, width: 2.0, height: 1.0 }, RED);
        assert_eq!([0, 1, 2].map(|x| pixel(&figure, x, 0)), [[255, 0, 0], [255, 0, 0], [255, 255, 255]]);
    }

    #[test]
    fn half_a_pixel_is_drawn_half_as_strong() {
        let mut figure = Figure::new(2.0, 1.0);
        figure.fill(Area { x: 0.0, y: 0.0, width: 0.5, height: 1.0 }, BLACK);
        assert_eq!(pixel(&figure, 0, 0), [128, 128, 128]);
    }

    #[test]
    fn text_that_is_too_long_keeps_its_end() {
        assert_eq!(TICK.fit("diff", 200.0), "diff");
        let fitted = TICK.fit("/home/somebody/checkpoints/diff-4k", 140.0);
        assert!(fitted.starts_with('…') && fitted.ends_with("diff-4k") && TICK.width(&fitted) <= 140.0, "{fitted}");
    }

    #[test]
    fn text_leaves_ink_on_its_side_of_the_anchor_only() {
        // Whether there is ink left, right, above and below of the anchor.
        let ink = |anchor: Anchor| {
            let mut figure = Figure::new(200.0, 200.0);
            figure.text((100.0, 100.0), "needle", Type::new(20.0, anchor));
            let saved = figure.with_texts().averaged();
            let dark = |i: usize| saved[3 * i] < 128;
            let any = |test: fn(usize, usize) -> bool| (0..200 * 200).any(|i| test(i % 200, i / 200) && dark(i));
            [any(|x, _| x < 100), any(|x, _| x >= 100), any(|_, y| y < 80), any(|_, y| y >= 120)]
        };
        assert_eq!(ink(Anchor::Left), [false, true, false, false]);
        assert_eq!(ink(Anchor::Right), [true, false, false, false]);
        assert_eq!(ink(Anchor::Middle), [true, true, false, false]);
        assert_eq!(ink(Anchor::Upward), [true, true, true, true]);
        assert_eq!(ink(Anchor::Hanging), [true, true, false, true]);
    }

    #[test]
    fn a_long_subtitle_is_broken_into_lines_and_moves_the_body_down() {
        let (short, short_top) = Figure::headed("t", "one line", 400.0, 100.0).unwrap();
        let (long, long_top) = Figure::headed("t", "one line ".repeat(8).trim(), 400.0, 100.0).unwrap();
        assert!(long_top > short_top && long.height > short.height);
        let lines = SUBTITLE.wrap("layer 2 · mean of 8 heads", 150.0);
        assert_eq!(lines.join(" "), "layer 2 · mean of 8 heads");
        assert!(lines.len() > 1 && lines.iter().all(|line| SUBTITLE.width(line) <= 150.0), "{lines:?}");
        assert_eq!(SUBTITLE.wrap("layer 2 · A1 − A2", 140.0), ["layer 2 ·", "A1 − A2"]);
        assert_eq!(SUBTITLE.wrap("", 150.0), [""]);
    }

    #[test]
    fn a_picture_that_would_fill_the_memory_is_refused() {
        let error = Figure::headed("t", "s", 1e5, 1e5).err().unwrap();
        assert!(error.to_string().contains("smaller panels"), "{error}");
    }
}
