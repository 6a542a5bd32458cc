//! What does not fit is refused before it is tried.

use super::Bench;
#[test]
#[cfg(target_os = "linux")]
fn training_that_does_not_fit_is_refused_before_it_is_tried() {
    let bench = Bench::new();
    let spec = crate::train::SPEC.replace("width = 32", "width = 8192").replace("layers = 2", "layers = 40");
    bench.write("t.toml", spec.replace("ffn = 48", "ffn = 24576"));
    bench.run("train t.toml --out out -q").refused(2, &["training takes about", "GiB are free", "width"]);
    assert!(!bench.path("out").exists());
}

#[test]
fn maps_that_make_too_large_a_figure_are_refused_before_they_are_measured() {
    let bench = Bench::new();
    bench.run("heatmap --ctx 256 --size 4096 --out out").refused(2, &["--size 4096", "2 maps", "at most"]);
    assert!(!bench.path("out").exists());
}
