//! The colours of the figures, chosen to be told apart by colour-blind readers and in grey print where they can be.

use plotters::style::RGBColor;

pub(super) const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
pub(super) const FAINT_INK: RGBColor = RGBColor(0x66, 0x66, 0x66);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
pub(super) const AXIS: RGBColor = RGBColor(0x99, 0x99, 0x99);
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(super) const MISSING: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// Red, amber, green: the needle-in-a-haystack colours that Kamradt (2023) made familiar, as three stops over 0..=1.
const NEEDLE: [RGBColor; 3] = [RGBColor(0xf0, 0x49, 0x6e), RGBColor(0xeb, 0xb8, 0x39), RGBColor(0x0c, 0xd7, 0x9f)];

/// Curves, in order: the strong colours of Okabe & Ito (2008).
const CURVES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2), // blue
    RGBColor(0xd5, 0x5e, 0x00), // vermilion
    RGBColor(0x00, 0x9e, 0x73), // bluish green
    RGBColor(0xcc, 0x79, 0xa7), // reddish purple
    RGBColor(0xe6, 0x9f, 0x00), // orange
    RGBColor(0x56, 0xb4, 0xe9), // sky blue
];

/// The colour of an accuracy, linear between the stops of [`NEEDLE`]; values outside 0..=1 take the nearer end.
pub(super) fn needle(accuracy: f64) -> RGBColor {
    let place = accuracy.clamp(0.0, 1.0) * (NEEDLE.len() - 1) as f64;
    let below = (place as usize).min(NEEDLE.len() - 2);
    mix(NEEDLE[below], NEEDLE[below + 1], place - below as f64)
}

/// The colour of the `i`-th curve.
pub(super) fn curve(i: usize) -> RGBColor {
    CURVES[i % CURVES.len()]
}

/// The colour of a region: the answer strong, its needle a tint of it, noise in greys and ochre.
pub(super) fn region(name: &str) -> RGBColor {
    match name.to_ascii_lowercase().as_str() {
        "bos" => RGBColor(0x4a, 0x4a, 0x55),
        "template" => RGBColor(0xd6, 0xd6, 0xd6),
        "filler" => RGBColor(0xae, 0xae, 0xae),
        "distractor" => RGBColor(0xbf, 0x8a, 0x2b),
        "needle" => RGBColor(0x9c, 0xc9, 0xe6),
        "answer" => RGBColor(0x00, 0x72, 0xb2),
        "question" => RGBColor(0xe3, 0xc3, 0xd6),
        // A region we do not know: a colour of its own, the same wherever it appears.
        other => curve(other.bytes().map(usize::from).sum()),
    }
}

/// Black or white, whichever reads better on `ground`.
pub(super) fn text_on(ground: RGBColor) -> RGBColor {
    if luminance(ground) > 0.22 {
        INK
    } else {
        PAPER
    }
}

/// Relative luminance, 0 for black to 1 for white (WCAG 2.1).
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
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn accuracy_goes_from_red_over_amber_to_green() {
        assert_eq!([needle(0.0), needle(0.5), needle(1.0)], NEEDLE);
        assert_eq!((needle(-3.0), needle(7.0)), (NEEDLE[0], NEEDLE[2]));
        assert_eq!(needle(0.25), RGBColor(0xee, 0x81, 0x54));
    }

    #[test]
    fn text_reads_on_every_ground() {
        let grounds = (0..=10).map(|i| needle(f64::from(i) / 10.0)).chain(REGIONS.map(region));
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
