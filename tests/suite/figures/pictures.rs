//! Pictures in memory, and how different two of them look.

/// 8-bit RGB.
pub(super) struct Picture {
    pub width: usize,
    pub height: usize,
    pixels: Vec<u8>,
}

/// Side of the squares whose means are compared, in pixels: about a digit.
const SQUARE: usize = 6;

impl Picture {
    /// Of a PNG file.
    pub(super) fn of(file: &[u8]) -> Self {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        Self { width: info.width as usize, height: info.height as usize, pixels }
    }

    pub(super) fn png(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        encoder.write_header().unwrap().write_image_data(&self.pixels).unwrap();
        file
    }

    /// Half as wide and high: means of squares of 2 × 2.
    pub(super) fn halved(&self) -> Self {
        let (width, height) = (self.width / 2, self.height / 2);
        let mean = |i: usize| {
            let (y, x, channel) = (i / (3 * width), i / 3 % width, i % 3);
            let sum: u32 = [(0, 0), (0, 1), (1, 0), (1, 1)]
                .map(|(down, right)| {
                    u32::from(self.pixels[3 * ((2 * y + down) * self.width + 2 * x + right) + channel])
                })
                .iter()
                .sum();
            ((sum + 2) / 4) as u8
        };
        Self { width, height, pixels: (0..3 * width * height).map(mean).collect() }
    }

    /// Every pixel a little lighter or darker, in turn.
    pub(super) fn shaded(&self, by: u8) -> Self {
        let shade =
            |(i, &value): (usize, &u8)| if i % 2 == 0 { value.saturating_add(by) } else { value.saturating_sub(by) };
        Self { pixels: self.pixels.iter().enumerate().map(shade).collect(), ..*self }
    }

    /// The mean difference of the channels (0 to 255) in the square where it is largest; pictures of different sizes
    /// have nothing in common.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        if (self.width, self.height) != (other.width, other.height) {
            return 255.0;
        }
        let mut largest = 0;
        for top in (0..self.height.saturating_sub(SQUARE - 1)).step_by(SQUARE / 2) {
            for left in (0..self.width.saturating_sub(SQUARE - 1)).step_by(SQUARE / 2) {
                let row = |y: usize| 3 * (y * self.width + left)..3 * (y * self.width + left + SQUARE);
                let sum = |y: usize| -> u32 {
                    let both = self.pixels[row(y)].iter().zip(&other.pixels[row(y)]);
                    both.map(|(a, b)| u32::from(a.abs_diff(*b))).sum()
                };
                largest = largest.max((top..top + SQUARE).map(sum).sum::<u32>());
            }
        }
        f64::from(largest) / (3 * SQUARE * SQUARE) as f64
    }
}
