//! Every figure against a small picture of what it looked like when somebody looked at it, in `tests/fixtures/figures`.
//! `DIFFTOOL_BLESS=1 cargo test --release figures` rewrites them: look at them, in colour and in grey.

mod pictures;
mod samples;

use crate::common::Scratch;
use pictures::Picture;
use plot::{Figure, Page};
use std::path::Path;

/// The mean difference of 0 to 255 in the square of pixels where pictures differ most that is still the same picture: other
/// machines round otherwise. A digit that changes makes 20 and more.
const TOLERANCE: f64 = 8.0;

fn recipe() -> Vec<(String, String)> {
    vec![("command".into(), "difftool needle --ctx 4k".into()), ("pooling".into(), "mean over prompts".into())]
}

fn saved(figure: &Figure, name: &str) -> Vec<u8> {
    let folder = Scratch::new();
    figure.save(&folder.path(name), &recipe()).unwrap();
    folder.bytes(name)
}

#[test]
fn every_figure_looks_as_it_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/figures");
    let mut changed = Vec::new();
    for (name, figure) in samples::all(Page::default()) {
        let path = folder.join(format!("{name}.png"));
        let picture = Picture::of(&saved(&figure, "figure.png")).halved();
        if std::env::var_os("DIFFTOOL_BLESS").is_some() {
            std::fs::write(&path, picture.png()).unwrap();
        }
        let golden = Picture::of(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        let difference = golden.difference(&picture);
        if difference > TOLERANCE {
            changed.push(format!("{name} ({difference:.1})"));
        }
    }
    assert!(changed.is_empty(), "these look different: {}; DIFFTOOL_BLESS=1 rewrites them", changed.join(", "));
}

#[test]
fn a_digit_that_changes_is_noticed_and_a_shade_is_not() {
    let picture = |rows| Picture::of(&saved(&samples::forest(Page::default(), rows), "figure.png")).halved();
    let before = picture(["ctx_tok=1024", "ctx_tok=4096"]);
    assert!(before.difference(&picture(["ctx_tok=1024", "ctx_tok=4095"])) > 2.0 * TOLERANCE);
    assert!(before.difference(&picture(["ctx_tok=1024", "ctx_tok=4096"])) == 0.0);
    assert!(before.difference(&before.shaded(4)) < TOLERANCE);
    assert!(
        before.difference(&Picture::of(&saved(
            &samples::forest(Page { width_mm: Some(120.0), ..Page::default() }, [""; 2]),
            "figure.png"
        ))) > TOLERANCE,
        "another size"
    );
}

#[test]
fn equal_data_give_equal_bytes() {
    let page = Page { width_mm: Some(120.0), ..Page::default() };
    for ((name, first), (_, second)) in samples::all(page).into_iter().zip(samples::all(page)) {
        for file in ["figure.png", "figure.svg"] {
            assert!(saved(&first, file) == saved(&second, file), "{name}, {file}");
        }
    }
}

#[test]
fn the_three_formats_say_the_same() {
    let figure = samples::forest(Page::default(), ["ctx_tok=1024", "ctx_tok=4096"]);
    let folder = Scratch::new();
    let png = folder.path("figure.png");
    figure.save(&png, &recipe()).unwrap();
    assert_eq!(plot::read_recipe(&png).unwrap(), recipe());
    let svg = String::from_utf8(saved(&figure, "figure.svg")).unwrap();
    let pdf = saved(&figure, "figure.pdf");
    let pdf = String::from_utf8_lossy(&pdf);
    for (keyword, text) in recipe() {
        assert!(
            svg.contains(&format!("{keyword}: {text}\n")) && pdf.contains(&format!("{keyword}: {text}")),
            "{keyword}"
        );
    }
    // Texts are texts, the font is inside, and the sizes agree: 7 points are 21 pixels.
    assert!(svg.contains("ctx_tok=4096\n</text>") && svg.contains("@font-face"));
    assert!(pdf.contains("DejaVuSans") && pdf.contains("/ToUnicode"));
    let pixels = f64::from(Picture::of(&std::fs::read(&png).unwrap()).width as u32);
    let mm: f64 = svg.split_once("width=\"").unwrap().1.split_once("mm\"").unwrap().0.parse().unwrap();
    assert!((mm / pixels - 7.0 / 72.0 * 25.4 / 21.0).abs() < 1e-3, "{mm} mm of {pixels} pixels");
}
