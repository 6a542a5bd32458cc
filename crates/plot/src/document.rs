//! A text whose parts are coloured by a signed number: what each gives, in the diverging colours of the figures, with its sign and a bar
//! in the margin, so that no part is known by its colour alone.

use super::colour::{self, AXIS, FAINT_INK, GRID, INK};
use super::figure::{Area, Figure, FigureHeading, MARGIN};
use super::text::{drawable, Anchor, TextFormat, TICK};
use anyhow::{ensure, Result};
use plotters::style::RGBColor;

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentPart {
    /// Its text; white space is one space.
    pub text: String,
    /// `true` if it begins a line.
    pub breaks: bool,
    /// Its number, positive where it helps; `None` where there is none, or too little to be read.
    pub number: Option<f64>,
    /// The number as it is written before the part; empty for none.
    pub label: String,
}

const TEXT: TextFormat = TICK.at(Anchor::Left);
const LABEL: TextFormat = TextFormat::new(17.0, Anchor::Left).bold();
const LINE: f64 = 36.0;
/// Widths of the bars in the margin, to either side of zero.
const BARS: (f64, f64) = (36.0, 72.0);
/// Colour is at most this part of the diverging scale, so that text can be read on it.
const MOST_COLOUR: f64 = 0.55;
/// Width of a figure whose page has none.
const WIDTH: f64 = 1100.0;

/// A word as it is placed.
struct Word<'a> {
    text: &'a str,
    part: usize,
    x: f64,
    line: usize,
}

/// Draws a text. Colours end at `scale` to either side.
///
/// # Errors
/// If there is no part, or the figure would be too large.
pub fn document(parts: &[DocumentPart], scale: f64, heading: &FigureHeading<'_>) -> Result<Figure> {
    ensure!(parts.iter().any(|part| !part.text.trim().is_empty()), "there is no text to draw");
    let width = heading.page.room().min(heading.page.width_mm.map_or(WIDTH, |_| f64::INFINITY));
    let left = MARGIN + BARS.0 + BARS.1 + 24.0;
    let words = placed(parts, left, width - MARGIN);
    let lines = words.last().map_or(0, |word| word.line + 1);
    let (mut figure, top) = Figure::headed(heading, width, LINE * lines as f64 + 2.0 * MARGIN)?;
    let zero = MARGIN + BARS.0;
    figure.fill(Area { x: zero - 0.75, y: top, width: 1.5, height: LINE * lines as f64 }, AXIS);
    let y = |line: usize| top + LINE * (line as f64 + 0.5);
    draw_grounds(&mut figure, parts, &words, scale, y);
    for (index, part) in parts.iter().enumerate() {
        let Some(first) = words.iter().find(|word| word.part == index) else { continue };
        draw_bar(&mut figure, part, scale, (zero, y(first.line)));
        figure.text((first.x - label_width(part), y(first.line)), &part.label, LABEL);
    }
    for word in &words {
        let colour = if parts[word.part].number.is_some() { INK } else { FAINT_INK };
        figure.text((word.x, y(word.line)), &drawable(word.text), TEXT.in_colour(colour));
    }
    Ok(figure)
}

/// The room of a label before its part.
fn label_width(part: &DocumentPart) -> f64 {
    if part.label.is_empty() {
        0.0
    } else {
        LABEL.width(&part.label) + 6.0
    }
}

/// Puts the words of all parts into lines between two edges.
fn placed(parts: &[DocumentPart], left: f64, right: f64) -> Vec<Word<'_>> {
    let space = TEXT.width(" ");
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut x = left;
    let mut line = 0;
    for (index, part) in parts.iter().enumerate() {
        if part.breaks && x > left {
            line += 1;
            x = left;
        }
        for (place, text) in part.text.split_whitespace().enumerate() {
            let before = if place == 0 { label_width(part) } else { 0.0 };
            if x > left && x + before + TEXT.width(text) > right {
                line += 1;
                x = left;
            }
            // A word without spaces, as in Chinese, is broken at the edge.
            for piece in TEXT.wrap_anywhere(text, right - left - before) {
                if x > left && x + before + TEXT.width(piece) > right {
                    line += 1;
                    x = left;
                }
                words.push(Word { text: piece, part: index, x: x + before, line });
                x += before + TEXT.width(piece);
            }
            x += space;
        }
    }
    words
}

/// Colours the ground of every part, line by line, with dots below those that cost.
fn draw_grounds(figure: &mut Figure, parts: &[DocumentPart], words: &[Word<'_>], scale: f64, y: impl Fn(usize) -> f64) {
    for run in words.chunk_by(|a, b| (a.part, a.line) == (b.part, b.line)) {
        let Some(number) = parts[run[0].part].number else { continue };
        let last = &run[run.len() - 1];
        let is_first =
            words.iter().find(|word| word.part == run[0].part).is_some_and(|first| std::ptr::eq(first, &run[0]));
        let start = run[0].x - if is_first { label_width(&parts[run[0].part]) } else { 0.0 };
        let end = last.x + TEXT.width(last.text);
        let middle = y(run[0].line);
        let area = Area { x: start - 2.0, y: middle - 0.44 * LINE, width: end - start + 4.0, height: 0.88 * LINE };
        figure.fill(area, ground(number, scale));
        if number < 0.0 {
            let below = middle + 0.38 * LINE;
            figure.dashed_line(&[(start, below), (end, below)], colour::diverging(1.0), 2.0, &[2.0, 4.0]);
        }
    }
}

/// Blue for what helps and red for what costs, as far as the scale goes.
fn ground(number: f64, scale: f64) -> RGBColor {
    let part = (number / scale).clamp(-1.0, 1.0) * MOST_COLOUR;
    if part.abs() < 0.01 {
        return GRID;
    }
    colour::diverging(0.5 - part / 2.0)
}

fn draw_bar(figure: &mut Figure, part: &DocumentPart, scale: f64, (zero, y): (f64, f64)) {
    let Some(number) = part.number else { return };
    let room = if number < 0.0 { BARS.0 } else { BARS.1 };
    let width = (number.abs() / scale).min(1.0) * room;
    let x = if number < 0.0 { zero - width } else { zero };
    let end = if number < 0.0 { colour::diverging(0.9) } else { colour::diverging(0.1) };
    figure.fill(Area { x, y: y - 6.0, width: width.max(1.0), height: 12.0 }, end);
}

#[cfg(test)]
mod tests {
    use super::super::Page;
    use super::*;

    fn part(text: &str, number: Option<f64>) -> DocumentPart {
        let label = number.map_or_else(String::new, |number| format!("{number:+.1}"));
        DocumentPart { text: text.into(), breaks: false, number, label }
    }

    #[test]
    fn words_go_into_the_next_line_where_they_do_not_fit() {
        let parts = [part("one two three", Some(1.0)), part(&"河".repeat(80), None)];
        let words = placed(&parts, 10.0, 400.0);
        assert!(words.iter().all(|word| word.x >= 10.0 && word.x + TEXT.width(word.text) <= 400.5));
        assert_eq!(words.iter().map(|word| word.text).collect::<String>(), format!("onetwothree{}", "河".repeat(80)));
        assert!(words.last().unwrap().line > 2);
    }

    #[test]
    fn a_text_is_drawn_at_any_width() {
        let parts =
            [part("What helps.", Some(3.0)), part("What costs the answer.", Some(-2.0)), part("Nothing.", None)];
        for width_mm in [None, Some(84.0), Some(170.0)] {
            let heading = FigureHeading {
                title: "A text",
                page: Page { width_mm, ..Page::default() },
                ..FigureHeading::default()
            };
            assert!(document(&parts, 3.0, &heading).is_ok());
        }
        assert!(document(&[part(" ", None)], 1.0, &FigureHeading::default()).is_err());
    }
}
