//! One of each figure, of made-up data that has what real data have: ties, gaps, sinks, long names.

use difftool::figures::*;
use std::f64::consts::TAU;

/// Names and figures.
pub(super) fn all(page: Page) -> Vec<(&'static str, Figure)> {
    vec![
        ("accuracy", accuracies(page)),
        ("allocation", allocations(page)),
        ("bits", bits(page)),
        ("ccdf", outliers(page)),
        ("curves", training(page)),
        ("forest", forest(page, ["ctx_tok=1024", "ctx_tok=4096"])),
        ("heads", heads(page)),
        ("heatmap", maps(page)),
        ("heatmap-grid", map_grid(page)),
    ]
}

fn heading<'a>(title: &'a str, page: Page) -> FigureHeading<'a> {
    FigureHeading { title, subtitle: "made-up numbers · 4096 tokens · 12 prompts per depth · seed 0", page }
}

const MODELS: [&str; 2] = ["transformer", "diff"];

fn estimate(value: f64, half: f64) -> PointEstimate {
    PointEstimate { value, interval: Some((value - half, value + half)) }
}

fn accuracies(page: Page) -> Figure {
    let hits = |k: usize| {
        let accuracy = [1.0, 0.75, 0.5, 0.25, 0.0][k % 5];
        Some(Hits { accuracy, interval: ((accuracy - 0.2_f64).max(0.0), (accuracy + 0.2_f64).min(1.0)), n: 12 })
    };
    let panel = |model: usize, setting: &str, shift: usize| AccuracyPanel {
        model: MODELS[model].into(),
        setting: setting.into(),
        distractors_pct: None,
        ctx_tok: vec![4096],
        depths_pct: vec![0.0, 50.0, 100.0],
        accuracy: (0..3).map(|depth| vec![if depth + shift == 4 { None } else { hits(depth + shift) }]).collect(),
    };
    let panels = [panel(0, "N=1 R=1", 0), panel(0, "N=4 R=2", 1), panel(1, "N=1 R=1", 0), panel(1, "N=4 R=2", 2)];
    accuracy(&panels, &heading("Needle retrieval: exact-match accuracy", page)).unwrap()
}

fn allocations(page: Page) -> Figure {
    let bar = |depth: usize, model: usize| {
        let answer = 0.19 - 0.05 * model as f64 + 0.01 * depth as f64;
        let shares = [("bos", 0.04), ("template", 0.01), ("filler", 0.52), ("distractor", 0.04), ("needle", 0.01)];
        let part = |region: &str, value: f64, half: Option<f64>| BarPart {
            region: region.into(),
            share: PointEstimate { value, interval: half.map(|half| (value - half, value + half)) },
            is_noise: ["template", "filler", "distractor"].contains(&region),
        };
        let mut parts: Vec<BarPart> = shares.iter().map(|&(region, share)| part(region, share, None)).collect();
        parts.push(part("answer", answer, Some(0.03)));
        parts.push(part("question", 0.38 - answer, None));
        let noise = Some(estimate(0.57, 0.02));
        Bar { group: (50 * depth).to_string(), model: MODELS[model].into(), parts, noise }
    };
    let bars = (0..3).flat_map(|depth| [bar(depth, 0), bar(depth, 1)]).collect();
    let panel = AllocationPanel { setting: "N=4 R=2".into(), bars };
    allocation(&[panel], &heading("Where the attention goes", page), "share of |attention| (%)").unwrap()
}

fn bits(page: Page) -> Figure {
    let line = |model: usize, first: f64, fall: f64, half: f64| QualityLine {
        model: MODELS[model].into(),
        estimates: (0..4)
            .map(|i| (i != 1 || model == 0).then(|| estimate(first - fall * f64::from(i * i), half)))
            .collect(),
    };
    let panel = |title: &str, y_label: &str, y_range, lines: [QualityLine; 2]| QualityPanel {
        title: title.into(),
        y_label: y_label.into(),
        y_range,
        lines: lines.into(),
    };
    let range = Some((0.0, 100.0));
    let panels = [
        panel("needle accuracy", "exact match (%)", range, [line(0, 88.0, 9.0, 8.0), line(1, 82.0, 5.0, 9.0)]),
        panel("NLL of prose", "NLL (nats per token)", None, [line(0, 0.84, -0.08, 0.02), line(1, 0.85, -0.07, 0.02)]),
    ];
    let categories = ["none", "8", "6", "4"].map(String::from);
    quality(&panels, &categories, &heading("What is left with few bits", page), "bits per attention logit").unwrap()
}

fn outliers(page: Page) -> Figure {
    let line = |model: usize, scale: f64| CcdfLine {
        model: MODELS[model].into(),
        points: (-60..40)
            .map(|i| 10_f64.powf(f64::from(i) / 20.0))
            .map(|x| (x, (-x / scale).exp().max(1e-9)))
            .collect(),
        median: Some(scale * 0.69),
    };
    let panel = |title: &str, x_label: &str, scales: [f64; 2]| CcdfPanel {
        title: title.into(),
        x_label: x_label.into(),
        lines: vec![line(0, scales[0]), line(1, scales[1])],
    };
    let panels = [panel("attention logits", "|logit|", [4.0, 2.5]), panel("hidden states", "|activation|", [1.5, 1.5])];
    ccdf(&panels, &heading("How large logits and hidden states get", page)).unwrap()
}

fn training(page: Page) -> Figure {
    let curve = |name: &str, points: Vec<(f64, f64)>, half: f64| Curve {
        name: name.into(),
        band: points.iter().filter(|_| half > 0.0).map(|&(x, y)| (x, y - half, y + half)).collect(),
        points,
    };
    let tokens = || (1..60).map(|i| f64::from(i) * 2.5e5);
    let falling = |end: f64| tokens().map(|x| (x, end + 5.0 * (-x / 1e6).exp())).collect::<Vec<_>>();
    let panel = |title: &str, y_label: &str, y_range, curves| CurvePanel {
        title: title.into(),
        y_label: y_label.into(),
        y_range,
        curves,
    };
    let all_alike = ["transformer", "diff", "diff-v2"].map(|name| curve(name, falling(0.8), 0.0)).into();
    let apart = vec![
        curve("transformer", tokens().map(|x| (x, 0.9 + 0.05 * (TAU * x / 5e6).sin())).collect(), 0.02),
        curve("diff", tokens().map(|x| (x, 0.7)).collect(), 0.03),
        curve("diff-v2", vec![(4e6, 0.8), (9e6, 0.85)], 0.05),
    ];
    let panels = [
        panel("prose and templates", "NLL (nats per token)", None, all_alike),
        panel("unseen prompts", "exact match (fraction)", None, apart),
    ];
    curves(&panels, &heading("Training", page), "tokens", false).unwrap()
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
        ForestPanel { title: "exact".into(), unit: "fraction".into(), rows: rows(0.11) },
        ForestPanel { title: "share_abs[answer]".into(), unit: String::new(), rows: rows(-0.03) },
    ];
    difftool::figures::forest(&panels, &heading("Differences from transformer", page), "difference from transformer")
        .unwrap()
}

fn heads(page: Page) -> Figure {
    let grid = |model: usize, heads: usize| HeadGrid {
        model: MODELS[model].into(),
        values: (0..3)
            .map(|layer| {
                (0..heads)
                    .map(|head| (layer + head != 3).then_some(if layer == 1 { 12.5 * head as f64 } else { 0.4 }))
                    .collect()
            })
            .collect(),
    };
    let scale = HeadScale { label: "share of |attention| (%)", end: Some(100.0) };
    head_grid(&[grid(0, 8), grid(1, 4)], &heading("Share of |attention| on the answer", page), &scale).unwrap()
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
    Bins { rows: bins, columns: bins, values: (0..bins * bins).map(value).collect() }
}

fn maps(page: Page) -> Figure {
    let regions =
        [("bos", 0..1), ("filler", 1..4080), ("needle", 2040..2060), ("answer", 2052..2057), ("question", 4080..4096)];
    let tokens = || TokenAxis {
        range: 0..4096,
        regions: regions.iter().map(|(name, run)| (name.to_string(), run.clone())).collect(),
        texts: vec![],
    };
    let panel = |model: usize, sign: f32| MapPanel {
        title: MODELS[model].into(),
        detail: format!("A · layer 1 · mean of {} heads", 8 / (model + 1)),
        scale: 0,
        bins: causal(64, sign),
        sink: vec![],
        queries: tokens(),
        keys: tokens(),
        profile: Some(Profile {
            label: "rows that predict the answer".into(),
            values: (0..128).map(|i| if i == 64 { 0.7 } else { sign * (i % 5) as f32 / 50.0 }).collect(),
            top: None,
        }),
    };
    let scale = ColourScale { label: "attention weight".into(), signed: true, log: false };
    let maps = Heatmaps { scales: vec![scale], rows: vec![vec![panel(0, 1.0), panel(1, -1.0)]], size_px: 320 };
    heatmap(&maps, &heading("Effective attention", page)).unwrap()
}

fn map_grid(page: Page) -> Figure {
    let names = |n: usize| (0..n).map(|i| i.to_string()).collect();
    let maps = HeadMaps {
        scale: ColourScale { label: "attention weight".into(), signed: false, log: true },
        layers: names(2),
        heads: names(4),
        maps: [1.0, 4.0].map(|scale| vec![causal(24, scale); 4]).into(),
        sinks: Vec::new(),
        size_px: 120,
    };
    heatmap_grid(&maps, &heading("Every head", page)).unwrap()
}
