//! `difftool outliers`: the largest attention logits and hidden states (the paper's Table 5), and massive activations.

use super::flags;
use super::session::{RunResults, Session};
use crate::cli::OutliersArgs;
use crate::figures::{lines, Line, LineAxes, LinePanel};
use crate::measures::{Outliers, PassKey};
use crate::run::{Experiment, Grid, Show, TextGrid};
use crate::stats::Tally;
use anyhow::Result;

/// Least number of tokens that are pooled by default.
const POOLED_TOK: usize = 100_000;

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &OutliersArgs) -> Result<Experiment> {
    let run = &args.run;
    let what = "outliers pools windows of one length";
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &run.model, &run.reading, what)?;
    let samples = args.samples.unwrap_or(POOLED_TOK.div_ceil(ctx_tok.max(1)));
    let grid = Grid::Text(TextGrid { ctx_tok: vec![ctx_tok], samples, stride: None, seed: args.seed });
    flags::experiment(Show::Outliers, &args.run, grid, None, args.text.as_deref())
}

/// The pooled numbers of each model.
fn by_model(session: &Session, found: &RunResults) -> Vec<(String, Outliers)> {
    let Some(measure) = &found.measures.outliers else { return Vec::new() };
    let names = session.setup.models.iter().map(|model| found.frame.short_name(&model.name));
    names
        .enumerate()
        .filter_map(|(model, name)| Some((name, measure.pooled.get(&PassKey { model, condition: 0 })?.clone())))
        .collect()
}

/// Draws the figure.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let found = by_model(session, found);
    if found.iter().all(|(_, outliers)| outliers.tokens == 0) {
        return Ok(()); // nothing but failures
    }
    let logits = found.iter().map(|(model, outliers)| line(model, &outliers.all_logits()));
    let hidden = found.iter().map(|(model, outliers)| line(model, &outliers.all_hidden()));
    let panels = [
        ("attention logits", "|logit|", logits.collect()),
        ("hidden states", "|activation|", hidden.collect::<Vec<Line>>()),
    ];
    let panels = panels.map(|(title, x_label, lines)| LinePanel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "fraction above".to_owned(),
        y_range: None,
        lines,
    });
    let caption = session.setup.caption();
    let subtitle =
        format!("all maps over visible keys; the output of every layer · {caption} · thin verticals: medians");
    let heading = session.heading("How large logits and hidden states get", &subtitle);
    let figure = lines(&panels, LineAxes::LogLog, &heading)?;
    session.save(&figure, "ccdf", "all layers, heads and maps; log-binned histogram, 128 bins per doubling")
}

/// The complementary cumulative distribution of a model's magnitudes, and their median.
fn line(model: &str, tally: &Tally) -> Line {
    // The smallest thousandth stretches over decades that nobody asks about.
    let points = tally.histogram.ccdf().into_iter().filter(|&(_, share)| share > 0.0 && share < 0.999);
    Line { vertical: tally.median(), ..Line::new(model.to_owned(), points) }
}
