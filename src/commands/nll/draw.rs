//! The figure: the NLL by position, and what models differ by.

use crate::commands::session::{RunResults, Session};
use crate::figures::{curves, Curve, CurvePanel, PointEstimate};
use crate::measures::{bin_of, bins, cumulative, Bin, NllEstimate, ScoredToken};
use crate::results::{Frame, Scored, TokenKind};
use anyhow::Result;

/// Draws the figure.
pub(in crate::commands) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let frame = &found.frame;
    let from = first_drawn(frame);
    let panels = panels(frame, from);
    if panels.is_empty() {
        return Ok(()); // nothing but failures
    }
    let drawn_from = frame.tokens.drawn_from();
    let caption = session.setup.caption();
    let subtitle = format!("{caption} · from position {from} on · 95 % intervals over {drawn_from}");
    let title = "Does more context predict the next token better?";
    let figure =
        curves(&panels, &session.heading(title, &subtitle), "position in the window (tokens of context)", true)?;
    let pooling =
        "cumulative: mean over positions of the mean over windows; by position: mean over tokens in powers of two";
    session.save(&figure, "nll", pooling)
}

/// The figure begins at the longest position over this: the first tokens of a text are beyond all others.
const DRAWN_RATIO: u32 = 64;

/// Points of a cumulative curve for each doubling of the position.
const PER_DOUBLING: f64 = 16.0;

/// Where the figure begins: the beginning of a bin.
fn first_drawn(frame: &Frame) -> u32 {
    let longest = frame.tokens.0.iter().flat_map(Scored::tokens).map(|token| token.position).max();
    bin_of((longest.unwrap_or(0) + 1) / DRAWN_RATIO).first.max(1)
}

/// The panels that have something to show from a position on.
fn panels(frame: &Frame, from: u32) -> Vec<CurvePanel> {
    let scored = &frame.tokens.0;
    let panel = |title: &str, y_label: &str, curve: &dyn Fn(&Scored) -> Curve| CurvePanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range: None,
        curves: scored.iter().map(curve).collect(),
    };
    let first = scored.first().map(Scored::label).unwrap_or_default();
    let mut panels = vec![
        panel("cumulative mean", "NLL (nats per token)", &|scored| cumulative_curve(scored, from)),
        panel("by position", "NLL (nats per token)", &|scored| {
            binned(scored, from, &|bin| scored.estimate(&|token| bin.holds(token.position)))
        }),
    ];
    if frame.tokens.others().next().is_some() {
        panels.extend([TokenKind::All, TokenKind::ArHit].map(|kind| {
            let title = format!("difference to {first}: {}", kind.name());
            panel(&title, "difference (nats), below 0: better", &|of| {
                let keep = |bin: Bin| move |token: &ScoredToken| bin.holds(token.position) && kind.holds(token);
                binned(of, from, &|bin| match std::ptr::eq(of, &scored[0]) {
                    // Its own curve is the line at 0.
                    true => Some(NllEstimate { mean: 0.0, n: 0, interval: None }),
                    false => frame.tokens.to_first(of, &keep(bin)),
                })
            })
        }));
    }
    panels.retain(|panel| panel.curves.iter().any(|curve| !curve.points.is_empty()));
    let names = panels.iter_mut().flat_map(|panel| {
        let curves = panel.curves.iter_mut().map(|curve| &mut curve.name);
        curves.chain([&mut panel.title])
    });
    names.for_each(|name| *name = frame.short_names().shortened(name));
    panels
}

/// The cumulative mean at positions spaced by ratios.
fn cumulative_curve(scored: &Scored, from: u32) -> Curve {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let all = cumulative(&scored.windows);
    for (i, &(position, mean)) in all.iter().enumerate().filter(|(_, (position, _))| *position >= from) {
        let x = f64::from(position);
        let far = points.last().is_none_or(|&(last, _)| x >= last * 2f64.powf(1.0 / PER_DOUBLING));
        if far || i + 1 == all.len() {
            points.push((x, mean));
        }
    }
    Curve { name: scored.label(), points, band: Vec::new() }
}

/// Means at the middles of bins, with their intervals.
fn binned(scored: &Scored, from: u32, estimate: &dyn Fn(Bin) -> Option<NllEstimate>) -> Curve {
    let bins = bins(scored.tokens().map(|token| token.position)).into_iter().filter(|bin| bin.first >= from);
    let points = bins.filter_map(|bin| {
        let found = estimate(bin)?;
        let interval = found.interval.map(|interval| (interval.lo, interval.hi));
        Some((bin.centre(), PointEstimate { value: found.mean, interval }))
    });
    let mut curve = Curve::of(scored.label(), points);
    // The mean of a few tokens beside means that are known well would only stretch the axis.
    if curve.band.len() > 2 {
        curve.points.retain(|(x, _)| curve.band.iter().any(|(known, ..)| known == x));
    }
    curve
}
