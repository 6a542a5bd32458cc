//! Every token's NLL as a table of its own, and the figure.

use super::{Of, Report, Scored};
use crate::cmd::execute::Found;
use crate::cmd::session::Session;
use crate::measure::{bin_of, cumulative, Bin, Estimate, ScoredToken};
use crate::plot::{curves, Curve, CurvePanel};
use anyhow::Result;
use serde::Serialize;

/// A line of `tokens.csv`.
#[derive(Serialize)]
struct TokenRow<'a> {
    model: &'a str,
    condition: Option<String>,
    bits: Option<u32>,
    /// Which window.
    sample: u64,
    text_position: u64,
    position: u32,
    token_id: u32,
    nll_nats: f32,
    ar_hit: u8,
}

/// Draws the figure, and writes every token's NLL.
pub(in crate::cmd) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let report = Report::new(session, found);
    let mut rows = Vec::new();
    for scored in &report.scored {
        let condition = scored.condition.column();
        for window in scored.windows {
            rows.extend(window.tokens.iter().map(|token| TokenRow {
                model: &scored.name,
                condition: condition.clone(),
                bits: scored.condition.bits(),
                sample: window.sample,
                text_position: token.text_position,
                position: token.position,
                token_id: token.id,
                nll_nats: token.nll_nats,
                ar_hit: token.ar_hit.into(),
            }));
        }
    }
    session.run.outputs.save_table("tokens.csv", &rows)?;
    let from = report.first_drawn();
    let panels = report.panels(from);
    if panels.is_empty() {
        return Ok(()); // nothing but failures
    }
    let drawn_from = report.drawn_from();
    let subtitle =
        format!("{} · from position {from} on · 95 % bootstrap intervals over {drawn_from}", session.setup.caption());
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

impl Report<'_> {
    /// Where the figure begins: the beginning of a bin.
    fn first_drawn(&self) -> u32 {
        let longest = self.scored.iter().flat_map(Scored::tokens).map(|token| token.position).max();
        bin_of((longest.unwrap_or(0) + 1) / DRAWN_RATIO).first.max(1)
    }

    /// The panels that have something to show from a position on.
    fn panels(&self, from: u32) -> Vec<CurvePanel> {
        let panel = |title: &str, y_label: &str, curve: &dyn Fn(&Scored<'_>) -> Curve| CurvePanel {
            title: title.to_owned(),
            y_label: y_label.to_owned(),
            y_range: None,
            curves: self.scored.iter().map(curve).collect(),
        };
        let first = self.scored.first().map(Scored::label).unwrap_or_default();
        let mut panels = vec![
            panel("cumulative mean", "NLL (nats per token)", &|scored| cumulative_curve(scored, from)),
            panel("by position", "NLL (nats per token)", &|scored| {
                binned(scored, from, &|bin| self.estimate(scored, &|token| bin.holds(token.position)))
            }),
        ];
        if self.others().next().is_some() {
            let title = format!("difference to {first}");
            panels.extend([Of::All, Of::ArHit].map(|of| {
                panel(&format!("{title}: {}", of.name()), "difference (nats), below 0: better", &|scored| {
                    let keep = |bin: Bin| move |token: &ScoredToken| bin.holds(token.position) && of.holds(token);
                    binned(scored, from, &|bin| match self.is_first(scored) {
                        // Its own curve is the line at 0.
                        true => Some(Estimate { mean: 0.0, n: 0, interval: None }),
                        false => self.to_first(scored, &keep(bin)),
                    })
                })
            }));
        }
        panels.retain(|panel| panel.curves.iter().any(|curve| !curve.points.is_empty()));
        panels
    }
}

/// The cumulative mean at positions spaced by ratios.
fn cumulative_curve(scored: &Scored<'_>, from: u32) -> Curve {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let all = cumulative(scored.windows);
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
fn binned(scored: &Scored<'_>, from: u32, estimate: &dyn Fn(Bin) -> Option<Estimate>) -> Curve {
    let mut curve = Curve { name: scored.label(), points: Vec::new(), band: Vec::new() };
    for bin in scored.bins().into_iter().filter(|bin| bin.first >= from) {
        let Some(found) = estimate(bin) else { continue };
        curve.points.push((bin.centre(), found.mean));
        curve.band.extend(found.interval.map(|interval| (bin.centre(), interval.lo, interval.hi)));
    }
    // The mean of a few tokens beside means that are known well would only stretch the axis.
    if curve.band.len() > 2 {
        curve.points.retain(|(x, _)| curve.band.iter().any(|(known, ..)| known == x));
    }
    curve
}
