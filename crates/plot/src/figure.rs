//! A figure in memory, its drawing operations, and its size on paper.
//!
//! Coordinates are in units with fractions, x to the right and y down. Vectors are drawn by plotters' SVG backend,
//! whose integer coordinates are tenths of a unit. Later elements are above earlier ones.

use super::colour::PAPER;
use super::png::encode_png;
use super::text::{Anchor, TextFormat, FAMILY, SUBTITLE, TICK, TITLE};
use anyhow::{ensure, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle};

/// SVG units per unit.
pub(super) const FINE: f64 = 10.0;
/// Largest area of a figure in square units, which are the pixels of a PNG.
const MOST_PIXELS: u64 = 36_000_000;
/// Factor by which the backend divides the font size, and distance from the top anchor to the baseline, in em.
const BACKEND_FONT: (f64, f64) = (1.24, 0.76);

/// A figure in memory, to be saved as PNG, SVG or PDF.
#[derive(Clone)]
pub struct Figure {
    pub(super) title: String,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) page: Page,
    /// SVG elements, in the order they were drawn.
    pub(super) elements: String,
}

/// Title, subtitle and page of a figure.
#[derive(Clone, Copy, Debug, Default)]
pub struct FigureHeading<'a> {
    pub title: &'a str,
    /// Prompts, pooling, seed.
    pub subtitle: &'a str,
    pub page: Page,
    /// All models of a run, which have their colours in this order in each of its figures.
    pub models: &'a [String],
}

/// The page that a figure is drawn for. Figures are laid out in units; the font size of tick labels is 21 units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Page {
    /// Width of the figure in millimetres; `None` for the width that it needs. A figure that needs more than the given
    /// width, or than the height of a page, is scaled down with its text.
    pub width_mm: Option<f64>,
    /// `true` for a figure without title and subtitle, whose caption says what they would.
    pub no_title: bool,
}

const MM_PER_INCH: f64 = 25.4;
/// Millimetres of a unit: axis numbers have 7 points.
const UNIT_MM: f64 = 7.0 / 72.0 * MM_PER_INCH / TICK.em;
/// Largest height in millimetres of a figure with a given width: A4 without margins and caption.
const PAGE_MM: f64 = 240.0;
/// Width in units if no width is given.
const WIDTH: f64 = 1600.0;
/// Resolution of a PNG with a given width; without one, a pixel is a unit.
const PRINT_DPI: f64 = 300.0;

impl Page {
    /// The available width in units.
    pub(super) fn room(&self) -> f64 {
        self.width_mm.map_or(WIDTH, |mm| mm / UNIT_MM)
    }

    /// The available height in units.
    fn height(&self) -> f64 {
        self.width_mm.map_or(f64::INFINITY, |_| PAGE_MM / UNIT_MM)
    }

    /// The width in millimetres of a figure of `width` × `height` units.
    pub(super) fn mm(&self, width: f64, height: f64) -> f64 {
        self.width_mm.map_or(width * UNIT_MM, |mm| mm.min(PAGE_MM * width / height))
    }

    /// The width in pixels of a figure of `width` × `height` units.
    pub(super) fn pixels(&self, width: f64, height: f64) -> u32 {
        self.width_mm.map_or(width, |_| self.mm(width, height) / MM_PER_INCH * PRINT_DPI).round() as u32
    }
}

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

impl FigureHeading<'_> {
    /// The subtitle with notes, of which some may be empty.
    pub(super) fn subtitle_with(&self, notes: &[&str]) -> String {
        let parts = [self.subtitle].into_iter().chain(notes.iter().copied());
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
    }

    /// The width of a figure whose body needs `body`: enough for the title, up to the page width; as wide as a page
    /// of given width.
    fn width(&self, body: f64) -> f64 {
        let title = if self.page.no_title { 0.0 } else { TITLE.width(self.title) + 2.0 * MARGIN };
        let width = body.max(title.ceil().min(self.page.room()));
        self.page.width_mm.map_or(width, |_| width.max(self.page.room()))
    }

    /// Breaks title and subtitle into lines for a figure of this width.
    fn lines(&self, width: f64) -> HeadingLines {
        let room = width - 2.0 * MARGIN;
        let title = TITLE.wrap(self.title, room);
        let subtitle = SUBTITLE.wrap(self.subtitle, room);
        let below_title = TITLE_STEP * (title.len() - 1) as f64;
        let height = HEADING_HEIGHT + below_title + SUBTITLE_STEP * (subtitle.len() - 1) as f64;
        HeadingLines { title, subtitle, below_title, height: if self.page.no_title { TOP } else { height } }
    }

    /// The largest height on the page of a body that needs this width.
    pub(super) fn room_below(&self, body_width: f64) -> f64 {
        self.page.height() - self.lines(self.width(body_width)).height
    }
}

/// The lines of a heading.
struct HeadingLines {
    title: Vec<String>,
    subtitle: Vec<String>,
    /// Height of the lines of the title but the first.
    below_title: f64,
    /// Height of the heading.
    height: f64,
}

/// Room left and right of what is drawn.
pub(super) const MARGIN: f64 = 28.0;
/// Height of a heading whose title and subtitle have one line each.
const HEADING_HEIGHT: f64 = 118.0;
/// Room above a figure without heading.
const TOP: f64 = 24.0;
/// Distance between lines of the title.
const TITLE_STEP: f64 = 42.0;
/// Distance between lines of the subtitle.
const SUBTITLE_STEP: f64 = 30.0;

impl Figure {
    /// Creates an empty figure.
    pub(super) fn new(width: f64, height: f64, page: &Page) -> Self {
        let width = width.round();
        let height = height.round();
        Self { title: String::new(), width, height, page: *page, elements: String::new() }
    }

    /// Creates a figure with its heading and room for a body of at least `width` × `body_height` units. Also returns
    /// the y coordinate at which the body begins.
    pub(super) fn headed(heading: &FigureHeading, width: f64, body_height: f64) -> Result<(Self, f64)> {
        let width = heading.width(width);
        let HeadingLines { title, subtitle, below_title, height: top } = heading.lines(width);
        let height = top + body_height;
        ensure!(
            width * height <= MOST_PIXELS as f64,
            "a figure of {width:.0} × {height:.0} pixels is larger than {} million: draw less, or smaller panels",
            MOST_PIXELS / 1_000_000
        );
        let mut figure = Self::new(width, height, &heading.page);
        figure.title = heading.title.to_owned();
        if heading.page.no_title {
            return Ok((figure, top));
        }
        for (i, line) in title.iter().enumerate() {
            figure.text((MARGIN, 44.0 + TITLE_STEP * i as f64), line, TITLE);
        }
        for (i, line) in subtitle.iter().enumerate() {
            figure.text((MARGIN, 84.0 + below_title + SUBTITLE_STEP * i as f64), line, SUBTITLE);
        }
        Ok((figure, top))
    }

    pub(super) fn fill(&mut self, area: Area, colour: RGBColor) {
        self.draw(|sheet| {
            sheet.draw_rect(to_svg_units((area.x, area.y)), to_svg_units((area.right(), area.bottom())), &colour, true)
        });
    }

    /// Draws the outline of a rectangle, inside its area.
    pub(super) fn frame(&mut self, area: Area, colour: RGBColor, thickness: f64) {
        let half = thickness / 2.0;
        let left = area.x + half;
        let top = area.y + half;
        let right = area.right() - half;
        let bottom = area.bottom() - half;
        self.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], colour, thickness);
    }

    /// Draws a line through points, with round corners.
    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: RGBColor, thickness: f64) {
        if points.len() > 1 {
            let stroke_width = (thickness * FINE).round() as u32;
            let style = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width };
            self.draw(|sheet| sheet.draw_path(points.iter().copied().map(to_svg_units), &style));
        }
    }

    /// Draws a dashed line. `dashes` are the lengths of a dash, of the gap after it, and so on.
    pub(super) fn dashed_line(&mut self, points: &[(f64, f64)], colour: RGBColor, thickness: f64, dashes: &[f64]) {
        if dashes.is_empty() {
            return self.line(points, colour, thickness);
        }
        let lengths: Vec<String> = dashes.iter().map(|length| format!("{}", (length * FINE).round())).collect();
        self.elements += &format!("<g stroke-linecap=\"butt\" stroke-dasharray=\"{}\">\n", lengths.join(" "));
        self.line(points, colour, thickness);
        self.elements += "</g>\n";
    }

    /// Draws a filled polygon.
    pub(super) fn polygon(&mut self, corners: &[(f64, f64)], colour: RGBColor) {
        self.tint(corners, colour, 1.0);
    }

    /// Draws a filled polygon with an opacity.
    pub(super) fn tint(&mut self, corners: &[(f64, f64)], colour: RGBColor, opacity: f64) {
        if corners.len() > 2 {
            self.draw(|sheet| sheet.fill_polygon(corners.iter().copied().map(to_svg_units), &colour.mix(opacity)));
        }
    }

    /// Draws the marker of the `i`-th curve, `size` wide, with a white rim. Markers differ in shape.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), i: usize, size: f64, colour: RGBColor) {
        for (half, colour) in [(size / 2.0 + 1.5, PAPER), (size / 2.0, colour)] {
            // Angles from the top in fractions of a turn; radii that give the shapes about the same area.
            let (corners, turn, radius) = match i % 4 {
                0 => (24, 0.0, 1.1),
                1 => (4, 0.125, 1.35),
                2 => (3, 0.0, 1.6),
                _ => (4, 0.0, 1.45),
            };
            let mut points = Vec::new();
            for k in 0..corners {
                let angle = (f64::from(k) / f64::from(corners) + turn) * std::f64::consts::TAU;
                points.push((x + half * radius * angle.sin(), y - half * radius * angle.cos()));
            }
            self.polygon(&points, colour);
        }
    }

    /// Draws a vertical whisker with caps at `x`, from `low` to `high`.
    pub(super) fn whisker(&mut self, x: f64, (low, high): (f64, f64), colour: RGBColor, thickness: f64) {
        self.line(&[(x, low), (x, high)], colour, thickness);
        for y in [low, high] {
            self.line(&[(x - 2.5 * thickness, y), (x + 2.5 * thickness, y)], colour, thickness);
        }
    }

    /// Draws a matrix of colours, row by row, over an area and without smoothing.
    pub(super) fn bitmap(&mut self, area: Area, shape: (usize, usize), colours: &[RGBColor]) {
        let file = STANDARD.encode(bitmap_png((area.width, area.height), shape, colours));
        // Whole pixels of a PNG, so that colours have sharp borders.
        let [x, y, width, height] = [area.x, area.y, area.width, area.height].map(|length| length.round() * FINE);
        self.elements += &format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" xlink:href=\"data:image/png;base64,{file}\"/>\n"
        );
    }

    /// Draws one line of text at a point.
    pub(super) fn text(&mut self, (x, y): (f64, f64), text: &str, format: TextFormat) {
        if text.is_empty() {
            return;
        }
        let h_pos = match format.anchor {
            Anchor::Left => HPos::Left,
            Anchor::Middle | Anchor::Upward => HPos::Center,
            Anchor::Right | Anchor::Hanging => HPos::Right,
        };
        // Of the backend's vertical anchors, only the top does not depend on the viewer's font metrics.
        let above = BACKEND_FONT.1 * format.em - format.half_capital();
        let (place, turn) = if format.anchor.is_upward() {
            ((x - above, y), FontTransform::Rotate270)
        } else {
            ((x, y - above), FontTransform::None)
        };
        let style = if format.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::Name(FAMILY), BACKEND_FONT.0 * format.em * FINE, style).transform(turn);
        let pos = Pos::new(h_pos, VPos::Top);
        let style = TextStyle { font, color: format.colour.to_backend_color(), pos };
        // XML cannot hold them.
        let text = text.replace(|sign: char| sign.is_control() || matches!(sign, '\u{fffe}' | '\u{ffff}'), "?");
        self.draw(|sheet| sheet.draw_text(&text, &style, to_svg_units(place)));
    }

    /// Draws one line of text, turned about its point by so many degrees against the clock.
    pub(super) fn turned_text(&mut self, (x, y): (f64, f64), text: &str, format: TextFormat, degrees: f64) {
        let (column, row) = to_svg_units((x, y));
        self.elements += &format!("<g transform=\"rotate({} {column} {row})\">\n", -degrees);
        self.text((x, y), text, format);
        self.elements += "</g>\n";
    }

    /// Draws with a plotters backend, and keeps the elements between `<svg …>` and `</svg>`.
    fn draw<E: std::fmt::Debug>(&mut self, strokes: impl FnOnce(&mut SVGBackend<'_>) -> Result<(), E>) {
        let mut document = String::new();
        strokes(&mut SVGBackend::with_string(&mut document, (0, 0))).expect("memory does not fail");
        let (_, elements) = document.split_once(">\n").expect("plotters begins with <svg …>");
        self.elements += elements.strip_suffix("</svg>\n").expect("plotters closes what it opened");
    }
}

/// A PNG of `colours`, row by row in a matrix of `shape` (rows, columns), to be drawn `size` wide and high. Every
/// colour takes whole pixels, as many as fit, for viewers that smooth images when they enlarge them.
fn bitmap_png(size: (f64, f64), shape: (usize, usize), colours: &[RGBColor]) -> Vec<u8> {
    let (rows, columns) = shape;
    assert_eq!(colours.len(), rows * columns, "a colour for each place");
    let [across, down] =
        [(size.0, columns), (size.1, rows)].map(|(length, n)| (length / n as f64).floor().max(1.0) as usize);
    let mut pixels = Vec::with_capacity(3 * colours.len() * down * across);
    for row in colours.chunks_exact(columns) {
        let line: Vec<u8> =
            row.iter().flat_map(|&RGBColor(r, g, b)| std::iter::repeat_n([r, g, b], across)).flatten().collect();
        (0..down).for_each(|_| pixels.extend_from_slice(&line));
    }
    let size = ((columns * across) as u32, (rows * down) as u32);
    encode_png(size, &pixels, None, &[]).expect("writing to memory does not fail")
}

/// Converts a point to SVG units.
fn to_svg_units((x, y): (f64, f64)) -> (i32, i32) {
    ((x * FINE).round() as i32, (y * FINE).round() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::style::colors::{BLACK, RED};

    /// The RGB pixels of a figure.
    fn pixels(figure: &Figure) -> Vec<[u8; 3]> {
        let (pixels, _) = super::super::export::rasterised(figure).unwrap();
        pixels.chunks_exact(3).map(|rgb| rgb.try_into().unwrap()).collect()
    }

    fn sheet(width: f64, height: f64) -> Figure {
        Figure::new(width, height, &Page::default())
    }

    #[test]
    fn a_filled_area_ends_where_its_neighbour_begins() {
        let mut figure = sheet(4.0, 1.0);
        figure.fill(Area { x: 0.0, y: 0.0, width: 2.0, height: 1.0 }, RED);
        assert_eq!(pixels(&figure)[..3], [[255, 0, 0], [255, 0, 0], [255, 255, 255]]);
    }

    #[test]
    fn half_a_pixel_is_drawn_half_as_strong() {
        let mut figure = sheet(2.0, 1.0);
        figure.fill(Area { x: 0.0, y: 0.0, width: 0.5, height: 1.0 }, BLACK);
        assert!((126..=129).contains(&pixels(&figure)[0][0]), "{:?}", pixels(&figure));
    }

    #[test]
    fn a_bitmap_keeps_its_colours_and_their_borders() {
        let mut figure = sheet(6.0, 4.0);
        figure.bitmap(Area { x: 1.0, y: 1.0, width: 4.0, height: 2.0 }, (1, 2), &[RED, BLACK]);
        let white = [255; 3];
        let red = [255, 0, 0];
        let black = [0; 3];
        assert_eq!(pixels(&figure)[6..12], [white, red, red, black, black, white]);
        assert_eq!(pixels(&figure)[18..24], [white; 6]);
    }

    #[test]
    fn text_leaves_ink_on_its_side_of_the_anchor_only() {
        // Is there ink left of, right of, above and below the anchor?
        let ink = |anchor: Anchor| {
            let mut figure = sheet(200.0, 200.0);
            figure.text((100.0, 100.0), "needle", TextFormat::new(20.0, anchor));
            let saved = pixels(&figure);
            let any =
                |test: fn(usize, usize) -> bool| (0..200 * 200).any(|i| test(i % 200, i / 200) && saved[i][0] < 128);
            [any(|x, _| x < 100), any(|x, _| x >= 100), any(|_, y| y < 80), any(|_, y| y >= 120)]
        };
        assert_eq!(ink(Anchor::Left), [false, true, false, false]);
        assert_eq!(ink(Anchor::Right), [true, false, false, false]);
        assert_eq!(ink(Anchor::Middle), [true, true, false, false]);
        assert_eq!(ink(Anchor::Upward), [true, true, true, true]);
        assert_eq!(ink(Anchor::Hanging), [true, true, false, true]);
    }

    #[test]
    fn capitals_are_centred_on_the_line_and_as_wide_as_measured() {
        for anchor in [Anchor::Middle, Anchor::Upward] {
            let mut figure = sheet(500.0, 500.0);
            let format = TextFormat { em: 100.0, ..TICK }.at(anchor);
            figure.text((250.0, 250.0), "HHHH", format);
            let pixels = pixels(&figure);
            let dark: Vec<usize> = (0..250_000).filter(|&i| pixels[i][0] < 128).collect();
            let ends = |place: fn(&usize) -> usize| {
                (dark.iter().map(place).min().unwrap(), dark.iter().map(place).max().unwrap())
            };
            let across = ends(|i| i % 500);
            let down = ends(|i| i / 500);
            let (along, over) = if anchor == Anchor::Middle { (across, down) } else { (down, across) };
            for (first, last) in [along, over] {
                assert!((first + last).abs_diff(499) <= 3, "{anchor:?}: {first}..{last}");
            }
            // The advance width includes the space on either side of an H.
            assert!((format.width("HHHH") - (along.1 - along.0) as f64).abs() < 30.0, "{anchor:?}: {along:?}");
        }
    }

    #[test]
    fn a_long_subtitle_is_broken_into_lines_and_moves_the_body_down() {
        let headed = |subtitle: &str| {
            Figure::headed(&FigureHeading { subtitle, ..FigureHeading::default() }, 400.0, 100.0).unwrap()
        };
        let ((short, short_top), (long, long_top)) = (headed("one line"), headed("one line ".repeat(8).trim()));
        assert!(long_top > short_top && long.height > short.height);
    }

    #[test]
    fn a_figure_that_would_fill_the_memory_is_refused() {
        let error = Figure::headed(&FigureHeading::default(), 1e5, 1e5).err().unwrap();
        assert!(error.to_string().contains("smaller panels"), "{error}");
    }

    #[test]
    fn a_page_has_its_width_whatever_a_figure_needs() {
        let column = Page { width_mm: Some(85.0), ..Page::default() };
        assert!((column.room() - 85.0 / (7.0 * 25.4 / 72.0) * 21.0).abs() < 1e-9);
        assert_eq!((column.pixels(column.room(), 700.0), column.mm(5000.0, 700.0)), (1004, 85.0));
        assert_eq!((column.mm(500.0, 2000.0), column.mm(400.0, 2000.0)), (60.0, 48.0), "no taller than a page");
        assert_eq!((Page::default().room(), Page::default().pixels(700.0, 9000.0)), (1600.0, 700));
    }
}
