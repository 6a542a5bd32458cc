//! The colours of the figures. As far as possible they can be told apart by colour-blind readers and in grey print.

use plotters::style::RGBColor;

pub(super) const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
pub(super) const FAINT_INK: RGBColor = RGBColor(0x66, 0x66, 0x66);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
pub(super) const AXIS: RGBColor = RGBColor(0x99, 0x99, 0x99);
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(super) const MISSING: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// Masked parts of a map; darker than [`MISSING`], to stand out from white and pale colours.
pub(super) const MASKED: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);

/// Colours of curves, in order: the strong colours of Okabe & Ito (2008).
pub(super) const CURVES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2), // blue
    RGBColor(0xd5, 0x5e, 0x00), // vermilion
    RGBColor(0x00, 0x9e, 0x73), // bluish green
    RGBColor(0xcc, 0x79, 0xa7), // reddish purple
    RGBColor(0xe6, 0x9f, 0x00), // orange
    RGBColor(0x56, 0xb4, 0xe9), // sky blue
];

/// Viridis (van der Walt & Smith, 2015) at tenths: equal steps of lightness, for all kinds of colour vision.
const SEQUENTIAL: [RGBColor; 11] = [
    RGBColor(0x44, 0x01, 0x54),
    RGBColor(0x48, 0x24, 0x75),
    RGBColor(0x41, 0x44, 0x87),
    RGBColor(0x35, 0x5f, 0x8d),
    RGBColor(0x2a, 0x78, 0x8e),
    RGBColor(0x21, 0x91, 0x8c),
    RGBColor(0x22, 0xa8, 0x84),
    RGBColor(0x44, 0xbf, 0x70),
    RGBColor(0x7a, 0xd1, 0x51),
    RGBColor(0xbd, 0xdf, 0x26),
    RGBColor(0xfd, 0xe7, 0x25),
];

/// Blue – white – red at sixths of either side, made in CIELAB with equal steps of lightness from 100 to 34 on both
/// sides.
const DIVERGING: [RGBColor; 13] = [
    RGBColor(0x02, 0x50, 0x97),
    RGBColor(0x18, 0x6c, 0xbd),
    RGBColor(0x49, 0x88, 0xd5),
    RGBColor(0x75, 0xa5, 0xe7),
    RGBColor(0xa2, 0xc3, 0xf3),
    RGBColor(0xd0, 0xe1, 0xfa),
    RGBColor(0xff, 0xff, 0xff),
    RGBColor(0xff, 0xd7, 0xd1),
    RGBColor(0xfe, 0xac, 0xa1),
    RGBColor(0xf6, 0x81, 0x73),
    RGBColor(0xe1, 0x5b, 0x4d),
    RGBColor(0xc4, 0x36, 0x2d),
    RGBColor(0xa1, 0x0f, 0x12),
];

/// The colour of a magnitude, from dark at 0 to light at 1.
pub(super) fn sequential(place: f64) -> RGBColor {
    between(&SEQUENTIAL, place)
}

/// The colour of a signed number, from blue at 0 over white at ½ to red at 1.
pub(super) fn diverging(place: f64) -> RGBColor {
    between(&DIVERGING, place)
}

/// Interpolates linearly between equally spaced stops over 0..=1; positions outside get the nearer end.
fn between(stops: &[RGBColor], place: f64) -> RGBColor {
    let place = place.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let below = (place as usize).min(stops.len() - 2);
    mix(stops[below], stops[below + 1], place - below as f64)
}

/// The colour of the `i`-th curve.
pub(super) fn curve(i: usize) -> RGBColor {
    CURVES[i % CURVES.len()]
}

/// The colour of a region: strong for the answer, a tint of it for its needle, greys and ochre for noise.
pub(super) fn region(name: &str) -> RGBColor {
    match name.to_ascii_lowercase().as_str() {
        // A prompt has one of the two.
        "bos" | "first" => RGBColor(0x4a, 0x4a, 0x55),
        "template" => RGBColor(0xd6, 0xd6, 0xd6),
        "filler" => RGBColor(0xae, 0xae, 0xae),
        "distractor" => RGBColor(0xbf, 0x8a, 0x2b),
        "needle" => RGBColor(0x9c, 0xc9, 0xe6),
        "answer" => RGBColor(0x00, 0x72, 0xb2),
        "question" => RGBColor(0xe3, 0xc3, 0xd6),
        // An unknown region gets a colour that depends on its name.
        other => curve(other.bytes().map(usize::from).sum()),
    }
}

/// The colours of a region on a page, as CSS writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionColours {
    pub ground: String,
    /// Black or white, for text on it.
    pub ink: String,
}

/// The colours of a region by its name, those of figures.
pub fn region_colours(name: &str) -> RegionColours {
    let css = |RGBColor(r, g, b): RGBColor| format!("#{r:02x}{g:02x}{b:02x}");
    let ground = region(name);
    RegionColours { ground: css(ground), ink: css(text_on(ground)) }
}

/// The name of a region in legends.
pub fn region_name(name: &str) -> &str {
    match name {
        "bos" => "BOS",
        "first" => "first token",
        other => other,
    }
}

/// Black or white, whichever has more contrast to `ground`.
pub(super) fn text_on(ground: RGBColor) -> RGBColor {
    if luminance(ground) > 0.22 {
        INK
    } else {
        PAPER
    }
}

/// The relative luminance, 0 for black to 1 for white (WCAG 2.1).
fn luminance(RGBColor(r, g, b): RGBColor) -> f64 {
    let linear = |channel: u8| {
        let c = f64::from(channel) / 255.0;
        if c <= 0.040_45 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

fn mix(a: RGBColor, b: RGBColor, share_of_b: f64) -> RGBColor {
    let channel = |a: u8, b: u8| (f64::from(a) + share_of_b * (f64::from(b) - f64::from(a))).round() as u8;
    RGBColor(channel(a.0, b.0), channel(a.1, b.1), channel(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGIONS: [&str; 7] = ["bos", "template", "filler", "distractor", "needle", "answer", "question"];

    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let a = luminance(a);
        let b = luminance(b);
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// CIE L*, 0 for black to 100 for white.
    fn lightness(colour: RGBColor) -> f64 {
        let y = luminance(colour);
        116.0 * y.cbrt() - 16.0
    }

    #[test]
    fn equal_steps_of_a_magnitude_are_equal_steps_of_lightness() {
        let lightness: Vec<f64> = (0..=20).map(|i| lightness(sequential(f64::from(i) / 20.0))).collect();
        for pair in lightness.windows(2) {
            assert!((2.5..5.0).contains(&(pair[1] - pair[0])), "{lightness:?}");
        }
    }

    #[test]
    fn a_number_and_its_negative_are_equally_light() {
        assert_eq!(diverging(0.5), PAPER);
        let mut before = 101.0;
        for i in 0..=24 {
            let x = f64::from(i) / 48.0;
            let blue = lightness(diverging(0.5 - x));
            let red = lightness(diverging(0.5 + x));
            assert!((blue - red).abs() < 1.5 && red < before, "at {x}: {blue} and {red}");
            before = red;
        }
    }

    #[test]
    fn text_reads_on_every_ground() {
        let tenths = || (0..=10).map(|i| f64::from(i) / 10.0);
        let grounds = tenths().map(sequential).chain(tenths().map(diverging));
        let grounds = grounds.chain(REGIONS.map(region));
        for ground in grounds {
            // WCAG AA asks 4.5 of body text and 3 of large text, which ours is.
            assert!(contrast(ground, text_on(ground)) >= 4.5, "{ground:?}");
        }
    }

    #[test]
    fn neighbours_in_a_stack_differ_in_lightness() {
        for pair in REGIONS.windows(2) {
            assert!(contrast(region(pair[0]), region(pair[1])) > 1.25, "{pair:?}");
        }
    }
}
