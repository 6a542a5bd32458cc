//! Matrices of colours as PNG files.

use super::png;
use plotters::style::RGBColor;

/// A PNG of `colours`, row by row in a matrix of `shape` (rows, columns), to be drawn `size` wide and high. Every
/// colour takes whole pixels, as many as fit, for viewers that smooth images when they enlarge them.
pub(super) fn encode(size: (f64, f64), shape: (usize, usize), colours: &[RGBColor]) -> Vec<u8> {
    let (rows, columns) = shape;
    assert_eq!(colours.len(), rows * columns, "a colour for each place");
    let times = |length: f64, n: usize| (length / n as f64).floor().max(1.0) as usize;
    let (across, down) = (times(size.0, columns), times(size.1, rows));
    let mut pixels = Vec::with_capacity(3 * colours.len() * down * across);
    for row in colours.chunks_exact(columns) {
        let line: Vec<u8> =
            row.iter().flat_map(|&RGBColor(r, g, b)| std::iter::repeat_n([r, g, b], across)).flatten().collect();
        (0..down).for_each(|_| pixels.extend_from_slice(&line));
    }
    let size = ((columns * across) as u32, (rows * down) as u32);
    png::encode(size, &pixels, None, &[]).expect("writing to memory does not fail")
}
