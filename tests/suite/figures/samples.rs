//! One of each figure, of made-up data that has what real data have: ties, gaps, sinks, long names.

use names::HeadPlace;
use plot::*;
use std::f64::consts::TAU;

/// Names and figures.
pub(super) fn all(page: Page) -> Vec<(&'static str, Figure)> {
    vec![
        ("accuracy", accuracies(page)),
        ("bits", bits(page)),
        ("ccdf", outliers(page)),
        ("curves", training(page)),
        ("forest", forest(page, ["ctx_tok=1024", "ctx_tok=4096"])),
        ("heads", heads(page)),
        ("heatmap", detailed_maps(page)),
        ("heatmap-grid", map_grid(page)),
    ]
}

fn heading<'a>(title: &'a str, page: Page) -> FigureHeading<'a> {
    let subtitle = "made-up numbers · 4096 tokens · 12 prompts per depth · seed 0";
    FigureHeading { title, subtitle, page, models: &[] }
}

const MODELS: [&str; 2] = ["transformer", "diff"];

fn estimate(value: f64, half: f64) -> PointEstimate {
    PointEstimate { value, interval: Some((value - half, value + half)) }
}

fn accuracies(page: Page) -> Figure {
    let cell = |k: usize| {
        let accuracy = [100.0, 75.0, 50.0, 25.0, 0.0_f64][k % 5];
        let interval = format!("{:.0}–{:.0}", (accuracy - 20.0).max(0.0), (accuracy + 20.0).min(100.0));
        GridCell { value: accuracy, detail: interval }
    };
    let grid = |model: usize, shifts: [usize; 2]| CellGrid {
        title: MODELS[model].into(),
        rows: ["0", "50", "100"].map(String::from).into(),
        columns: ["N=1 R=1", "N=4 R=2"].map(String::from).into(),
        cells: (0..3)
            .map(|depth| shifts.map(|shift| (depth + shift != 4).then(|| cell(depth + shift))).into())
            .collect(),
        end: None,
    };
    let scale = CellScale {
        label: "accuracy (%)",
        end: Some(100.0),
        decimals: 0,
        x_label: "needles N, asked for R",
        y_label: "depth of the needle (%)",
    };
    let heading = heading("Needle retrieval: accuracy", page);
    let grids = vec![grid(0, [0, 1]), grid(1, [0, 2])];
    cells(&[CellRow { heading: "4k tokens".into(), grids }], &heading, &scale).unwrap()
}

fn panel(title: &str, x_label: &str, y_label: &str, lines: Vec<Line>) -> LinePanel {
    let marks = Vec::new();
    LinePanel { title: title.into(), x_label: x_label.into(), y_label: y_label.into(), y_range: None, marks, lines }
}

fn bits(page: Page) -> Figure {
    let line = |model: usize, first: f64, fall: f64, half: f64| {
        let measured = (0..4).filter(|&i| i != 1 || model == 0).map(f64::from);
        Line::new(MODELS[model].into(), measured.map(|i| (i, estimate(first - fall * i * i, half))))
    };
    let x_label = "bits per attention logit";
    let accuracy = vec![line(0, 88.0, 9.0, 8.0), line(1, 82.0, 5.0, 9.0)];
    let nll = vec![line(0, 0.84, -0.08, 0.02), line(1, 0.85, -0.07, 0.02)];
    let panels = [
        LinePanel { y_range: Some((0.0, 100.0)), ..panel("needle accuracy", x_label, "accuracy (%)", accuracy) },
        panel("NLL of prose", x_label, "NLL (nats per token)", nll),
    ];
    let categories = ["none", "8", "6", "4"].map(String::from);
    lines(&panels, LineAxes::Categories(&categories), &heading("What is left with few bits", page)).unwrap()
}

fn outliers(page: Page) -> Figure {
    let line = |model: usize, scale: f64| {
        let magnitudes = (-60..40).map(|i| 10_f64.powf(f64::from(i) / 20.0));
        Line::new(MODELS[model].into(), magnitudes.map(|x| (x, (-x / scale).exp().max(1e-9))))
    };
    let panels = [
        panel("attention logits", "|logit|", "fraction above", vec![line(0, 4.0), line(1, 2.5)]),
        panel("hidden states", "|activation|", "fraction above", vec![line(0, 1.5), line(1, 1.5)]),
    ];
    lines(&panels, LineAxes::LogLog, &heading("How large logits and hidden states get", page)).unwrap()
}

fn training(page: Page) -> Figure {
    let tokens = || (1..60).map(|i| f64::from(i) * 2.5e5);
    let falling = |name: &str| Line::new(name.into(), tokens().map(|x| (x, 0.8 + 5.0 * (-x / 1e6).exp())));
    let apart = vec![
        Line::new("transformer".into(), tokens().map(|x| (x, estimate(0.9 + 0.05 * (TAU * x / 5e6).sin(), 0.02)))),
        Line::new("diff".into(), tokens().map(|x| (x, estimate(0.7, 0.03)))),
        Line::new("diff-v2".into(), [(4e6, estimate(0.8, 0.05)), (9e6, estimate(0.85, 0.05))]),
    ];
    let all_alike = ["transformer", "diff", "diff-v2"].map(falling).into();
    let marks = vec![(0.0, "ctx 512".into()), (1e7, "ctx 4k".into())];
    let panels = [
        LinePanel { marks, ..panel("prose and templates", "tokens", "NLL (nats per token)", all_alike) },
        panel("unseen prompts", "tokens", "accuracy (fraction)", apart),
    ];
    lines(&panels, LineAxes::Linear, &heading("Training", page)).unwrap()
}

/// A forest plot with rows of these names.
pub(super) fn forest(page: Page, labels: [&str; 2]) -> Figure {
    let row = |(i, label): (usize, &&str), series: &str, value: f64| ForestRow {
        label: label.to_string(),
        series: series.into(),
        difference: estimate(value, 0.04 + 0.02 * i as f64),
        text: format!("{value:+.2} [{:+.2}, {:+.2}]", value - 0.04, value + 0.04).replace('-', "−"),
    };
    let rows = |value: f64| {
        let named = || labels.iter().enumerate();
        named().map(|at| row(at, "diff", value)).chain(named().map(|at| row(at, "diff-v2", -value))).collect()
    };
    let panels = [
        ForestPanel { title: "accuracy".into(), unit: "fraction".into(), rows: rows(0.11) },
        ForestPanel { title: "share_abs[answer]".into(), unit: String::new(), rows: rows(-0.03) },
    ];
    plot::forest(&panels, &heading("Differences from transformer", page), "difference from transformer").unwrap()
}

fn heads(page: Page) -> Figure {
    let grid = |model: usize, heads: usize| {
        let numbers = (0..3 * heads).map(|i| {
            let (layer, head) = (i / heads, i % heads);
            let number = if layer == 1 { 12.5 * head as f64 } else { 0.4 };
            (HeadPlace { layer, head }, (layer + head != 3).then_some(number))
        });
        CellGrid::of_heads(MODELS[model].into(), numbers)
    };
    let scale = CellScale::of_heads("share of |attention| (%)");
    let row = CellRow { heading: String::new(), grids: vec![grid(0, 8), grid(1, 4)] };
    cells(&[row], &heading("Share of |attention| on the answer", page), &scale).unwrap()
}

/// A causal map with a sink, a diagonal and a needle; `sign` of the rest.
fn causal(bins: usize, sign: f32) -> Bins {
    let value = |i: usize| {
        let (query, key) = (i / bins, i % bins);
        match () {
            () if key > query => f32::NAN,
            () if key == 0 => 0.6,
            () if key == query => 0.3,
            () if key == bins / 2 => 0.2,
            () => sign * 0.02 * ((query * 7 + key * 3) % 10) as f32 / 10.0,
        }
    };
    Bins { rows: bins, columns: bins, values: (0..bins * bins).map(value).collect(), sink: Vec::new() }
}

fn tokens() -> TokenAxis {
    let regions =
        [("bos", 0..1), ("filler", 1..4080), ("needle", 2040..2060), ("answer", 2052..2057), ("question", 4080..4096)];
    TokenAxis::new(0..4096, regions.map(|(name, run)| (name.to_string(), run)), vec![])
}

fn detailed_maps(page: Page) -> Figure {
    let panel = |model: usize, sign: f32| MapPanel {
        title: MODELS[model].into(),
        detail: format!("A · layer 1 · mean of {} heads", 8 / (model + 1)),
        bins: causal(64, sign),
        queries: tokens(),
        keys: tokens(),
        profile: Some(Profile {
            label: "rows that predict the answer".into(),
            values: (0..128).map(|i| if i == 64 { 0.7 } else { sign * (i % 5) as f32 / 50.0 }).collect(),
            top: None,
        }),
    };
    let scale = ColourScale { label: "attention weight".into(), signed: true };
    let drawn = MapPanels { scale, rows: vec![vec![panel(0, 1.0), panel(1, -1.0)]], size_px: 320 };
    maps(&drawn, &heading("Effective attention", page)).unwrap()
}

fn map_grid(page: Page) -> Figure {
    let names = |n: usize| (0..n).map(|i| i.to_string()).collect();
    let drawn = SmallMaps {
        scale: ColourScale { label: "attention weight".into(), signed: false },
        layers: names(2),
        heads: names(4),
        maps: [1.0, 4.0].map(|scale| vec![causal(48, scale); 4]).into(),
        queries: tokens(),
        keys: tokens(),
        size_px: 120,
    };
    small_maps(&drawn, &heading("Every head", page)).unwrap()
}
