//! The figure: the NLL by position, and what models differ by.

use crate::figures::{lines, Line, LineAxes, LinePanel, PointEstimate};
use crate::results::view::nll::skip;
use crate::results::{bin_of, bins, cumulative, Bin, Estimate, Frame, Scored, TokenKind};
use crate::run::Run;
use anyhow::Result;

/// Draws the figure.
pub(in crate::commands) fn draw(run: &Run) -> Result<()> {
    let frame = &run.frame;
    let from = first_drawn(frame);
    let panels = panels(frame, from);
    if panels.is_empty() {
        return Ok(()); // nothing but failures
    }
    let drawn_from = frame.tokens.drawn_from();
    let caption = run.setup.caption();
    let to_first = frame.tokens.others().next().map_or_else(String::new, |(first, _)| {
        format!(" · differences to {}, below 0: better", frame.short_names.shortened(&first.label()))
    });
    let subtitle = format!("{caption} · from position {from} on · 95 % intervals over {drawn_from}{to_first}");
    let title = "Does more context predict the next token better?";
    let figure = lines(&panels, LineAxes::LogX, &run.heading(title, &subtitle))?;
    let pooling =
        "cumulative: mean over positions of the mean over windows; by position: mean over tokens in powers of two";
    run.save_figure(&figure, "nll", pooling)
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
fn panels(frame: &Frame, from: u32) -> Vec<LinePanel> {
    let scored = &frame.tokens.0;
    let nll = "NLL (nats per token)";
    let cumulative_title = match skip(frame) {
        0 => "cumulative mean".to_owned(),
        skip => format!("cumulative mean from position {skip} on"),
    };
    let mut panels = vec![
        panel(cumulative_title, nll, scored.iter().map(|of| cumulative_line(of, from, skip(frame)))),
        panel("by position".to_owned(), nll, scored.iter().map(|of| binned(of, from, |bin| of_bin(of, bin)))),
    ];
    if frame.tokens.others().next().is_some() {
        for kind in [TokenKind::All, TokenKind::ArHit] {
            let lines = scored.iter().map(|of| binned(of, from, |bin| difference(frame, of, kind, bin)));
            panels.push(panel(format!("{}, differences", kind.name()), "difference (nats)", lines));
        }
    }
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points.is_empty()));
    for panel in &mut panels {
        for line in &mut panel.lines {
            line.name = frame.short_names.shortened(&line.name);
        }
    }
    panels
}

fn panel(title: String, y_label: &str, lines: impl Iterator<Item = Line>) -> LinePanel {
    LinePanel {
        title,
        x_label: "position (tokens of context)".to_owned(),
        y_label: y_label.to_owned(),
        y_range: None,
        lines: lines.collect(),
    }
}

/// The mean over the tokens in a bin.
fn of_bin(scored: &Scored, bin: Bin) -> Option<Estimate> {
    scored.estimate(|token| bin.holds(token.position))
}

/// The mean difference to the first model over the tokens of a kind in a bin.
fn difference(frame: &Frame, of: &Scored, kind: TokenKind, bin: Bin) -> Option<Estimate> {
    if std::ptr::eq(of, &frame.tokens.0[0]) {
        // Its own line is at 0.
        return Some(Estimate::of_test(0.0, None, 0, 0));
    }
    frame.tokens.to_first(of, |token| bin.holds(token.position) && kind.holds(token))
}

/// The cumulative mean at positions spaced by ratios.
fn cumulative_line(scored: &Scored, from: u32, skip: u32) -> Line {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let all = cumulative(&scored.windows, skip);
    for (i, &(position, mean)) in all.iter().enumerate().filter(|(_, (position, _))| *position >= from) {
        let x = f64::from(position);
        let far = points.last().is_none_or(|&(last, _)| x >= last * 2f64.powf(1.0 / PER_DOUBLING));
        if far || i + 1 == all.len() {
            points.push((x, mean));
        }
    }
    Line::new(scored.label(), points)
}

/// Means at the middles of bins, with their intervals.
fn binned(scored: &Scored, from: u32, estimate: impl Fn(Bin) -> Option<Estimate>) -> Line {
    let bins = bins(scored.tokens().map(|token| token.position)).into_iter().filter(|bin| bin.first >= from);
    let points = bins.filter_map(|bin| {
        let estimate = estimate(bin)?;
        let interval = estimate.interval.map(|interval| (interval.lo, interval.hi));
        Some((bin.centre(), PointEstimate { value: estimate.value, interval }))
    });
    let mut line = Line::new(scored.label(), points);
    // The mean of a few tokens beside means that are known well would only stretch the axis.
    if line.points.iter().filter(|(_, y)| y.interval.is_some()).count() > 2 {
        line.points.retain(|(_, y)| y.interval.is_some());
    }
    line
}
