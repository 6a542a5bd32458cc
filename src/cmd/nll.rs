//! `difftool nll`: how well text is predicted, by position in the window (the paper's Figure 4), and with or without the
//! help of what was read before (its Table 6).

use super::execute::{self, Found};
use super::flags;
use super::session::Session;
use crate::bail_usage;
use crate::cli::NllArgs;
use crate::experiment::{Experiment, Grid, Show, TextGrid};
use crate::measure::{
    bins, comparable, cumulative, difference, estimate, groups, Bin, Estimate, Place, ScoredToken, ScoredWindow,
    BLOCK_TOK,
};
use crate::models;
use crate::plot::{curves, Curve, CurvePanel};
use crate::table::{left, percent, right, Table};
use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::io::Write;

/// Windows of prose if nobody says how many: 100k tokens of 4k windows.
const WINDOWS: usize = 25;

/// More windows than any text has: all of them.
const ALL_WINDOWS: usize = 1_000_000;

/// Runs the preset.
///
/// # Errors
/// As every experiment; see [`execute::execute`].
pub fn run(args: &NllArgs) -> Result<()> {
    execute::preset(experiment(args)?, &args.output, &args.part)
}

fn experiment(args: &NllArgs) -> Result<Experiment> {
    let models = models::resolve(&args.model)?;
    let what = "nll pools windows of one length";
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &args.model, &args.reading, what)?;
    let own = args.text.is_some() || args.ids.is_some();
    let stride = match args.stride.as_ref().map(|range| range.0.as_slice()) {
        Some([stride]) => Some(*stride),
        Some(_) => bail_usage!("{what}: give --stride one number"),
        None => own.then_some((ctx_tok / 2).max(1)),
    };
    let samples = args.samples.unwrap_or(if own { ALL_WINDOWS } else { WINDOWS });
    let grid = Grid::Text(TextGrid { ctx_tok: vec![ctx_tok], samples, stride, seed: args.seed });
    Ok(Experiment {
        text: args.text.clone(),
        ids: args.ids.clone(),
        ar_max_count: Some(args.ar_max_count),
        reading: flags::reading(&args.reading),
        ..Experiment::new(Show::Nll, models, grid)
    })
}

/// What was scored of one model under one condition.
struct Scored<'a> {
    name: String,
    place: Place,
    bits: Option<u32>,
    windows: &'a [ScoredWindow],
}

fn scored<'a>(session: &Session, found: &'a Found) -> Vec<Scored<'a>> {
    let Some(measure) = &found.measures.nll else { return Vec::new() };
    let of = |(&place, windows): (&Place, &'a Vec<ScoredWindow>)| Scored {
        name: session.models[place.model].name.clone(),
        place,
        bits: session.conditions[place.condition].quantiser.map(|quantiser| quantiser.bits),
        windows,
    };
    measure.pooled.iter().map(of).collect()
}

impl Scored<'_> {
    /// `diff`, or `diff 4 bits`.
    fn label(&self) -> String {
        self.bits.map_or(self.name.clone(), |bits| format!("{} {bits} bits", self.name))
    }

    fn tokens(&self) -> impl Iterator<Item = &ScoredToken> {
        self.windows.iter().flat_map(|window| &window.tokens)
    }

    fn bins(&self) -> Vec<Bin> {
        bins(self.tokens().map(|token| token.position))
    }
}

/// A mean over tokens with its interval, as JSON: `{"mean": …, "n": …, "lo": …, "hi": …}`.
fn as_json<S: Serializer>(found: &Option<Estimate>, serializer: S) -> Result<S::Ok, S::Error> {
    let end = |end: fn(crate::stats::Interval) -> f64| found.and_then(|found| found.interval).map(end);
    let shown = |found: &Estimate| json!({ "mean": found.mean, "n": found.n, "lo": end(|interval| interval.lo), "hi": end(|interval| interval.hi) });
    found.as_ref().map(shown).serialize(serializer)
}

/// Which tokens a number is about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Of {
    All,
    ArHit,
    Other,
}

impl Of {
    const EACH: [Self; 3] = [Self::All, Self::ArHit, Self::Other];

    fn holds(self, token: &ScoredToken) -> bool {
        match self {
            Self::All => true,
            Self::ArHit => token.ar_hit,
            Self::Other => !token.ar_hit,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::All => "all tokens",
            Self::ArHit => "AR hits",
            Self::Other => "others",
        }
    }
}

/// One row of the first table.
#[derive(Serialize)]
struct Row {
    model: String,
    bits: Option<u32>,
    windows: usize,
    tokens: usize,
    #[serde(serialize_with = "as_json")]
    nll_nats: Option<Estimate>,
    perplexity: Option<f64>,
    /// Nothing where nobody knows the text.
    bits_per_byte: Option<f64>,
    ar_hit_share: Option<f64>,
    #[serde(serialize_with = "as_json")]
    ar_hit_nll_nats: Option<Estimate>,
    #[serde(serialize_with = "as_json")]
    other_nll_nats: Option<Estimate>,
    #[serde(skip)]
    label: String,
}

/// A paired difference to the first model, over the same tokens.
#[derive(Serialize)]
struct Difference {
    of: String,
    baseline: String,
    tokens: Of,
    #[serde(serialize_with = "as_json")]
    nll_nats: Option<Estimate>,
}

/// The tokens at some positions.
#[derive(Serialize)]
struct Position {
    model: String,
    first: u32,
    last: u32,
    #[serde(serialize_with = "as_json")]
    nll_nats: Option<Estimate>,
    /// To the first model; nothing for itself, and for models that have other tokens.
    #[serde(serialize_with = "as_json")]
    difference_nats: Option<Estimate>,
}

/// All that is printed and drawn.
struct Report<'a> {
    scored: Vec<Scored<'a>>,
    seed: u64,
}

impl<'a> Report<'a> {
    fn new(session: &Session, found: &'a Found) -> Self {
        Self { scored: scored(session, found), seed: session.grid.seed() }
    }

    fn estimate(&self, scored: &Scored<'_>, keep: &dyn Fn(&ScoredToken) -> bool) -> Option<Estimate> {
        estimate(&groups(scored.windows), keep, self.seed)
    }

    /// The first model or condition, and the others if they were scored on the same tokens.
    fn others(&self) -> impl Iterator<Item = (&Scored<'a>, &Scored<'a>)> {
        let first = self.scored.first();
        let others = self.scored.iter().skip(1);
        others.filter_map(move |other| Some((first?, other))).filter(|(a, b)| comparable(a.windows, b.windows))
    }

    /// What a model differs from the first by.
    fn to_first(&self, other: &Scored<'_>, keep: &dyn Fn(&ScoredToken) -> bool) -> Option<Estimate> {
        let (first, other) = self.others().find(|(_, b)| b.place == other.place)?;
        difference(&groups(first.windows), &groups(other.windows), keep, self.seed)
    }

    fn rows(&self) -> Vec<Row> {
        let row = |scored: &Scored<'_>| {
            let nll_nats = self.estimate(scored, &|_| true);
            let bytes: u64 = scored.windows.iter().map(|window| window.bytes).sum();
            let bits = |all: Estimate| all.mean * all.n as f64 / std::f64::consts::LN_2;
            let ar_hit_nll_nats = self.estimate(scored, &|token| Of::ArHit.holds(token));
            let hits = ar_hit_nll_nats.map_or(0, |hits| hits.n) as f64;
            Row {
                model: scored.name.clone(),
                bits: scored.bits,
                windows: scored.windows.len(),
                tokens: nll_nats.map_or(0, |all| all.n),
                nll_nats,
                perplexity: nll_nats.map(|all| all.mean.exp()),
                bits_per_byte: nll_nats.filter(|_| bytes > 0).map(|all| bits(all) / bytes as f64),
                ar_hit_share: nll_nats.map(|all| hits / all.n as f64),
                ar_hit_nll_nats,
                other_nll_nats: self.estimate(scored, &|token| Of::Other.holds(token)),
                label: scored.label(),
            }
        };
        self.scored.iter().map(row).collect()
    }

    fn differences(&self) -> Vec<Difference> {
        let of = |(first, other): (&Scored<'_>, &Scored<'_>)| {
            Of::EACH.map(|tokens| Difference {
                of: other.label(),
                baseline: first.label(),
                tokens,
                nll_nats: self.to_first(other, &|token| tokens.holds(token)),
            })
        };
        self.others().flat_map(of).filter(|found| found.nll_nats.is_some()).collect()
    }

    fn positions(&self) -> Vec<Position> {
        let of = |scored: &Scored<'_>| {
            let position = |bin: Bin| Position {
                model: scored.label(),
                first: bin.first,
                last: bin.last,
                nll_nats: self.estimate(scored, &|token| bin.holds(token.position)),
                difference_nats: self.to_first(scored, &|token| bin.holds(token.position)),
            };
            scored.bins().into_iter().map(position).collect::<Vec<_>>()
        };
        self.scored.iter().flat_map(of).collect()
    }
}

/// A line of `tokens.csv`.
#[derive(Serialize)]
struct TokenRow<'a> {
    model: &'a str,
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
pub(super) fn draw(session: &mut Session, found: &Found) -> Result<()> {
    let report = Report::new(session, found);
    let mut rows = Vec::new();
    for scored in &report.scored {
        for window in scored.windows {
            rows.extend(window.tokens.iter().map(|token| TokenRow {
                model: &scored.name,
                bits: scored.bits,
                sample: window.sample,
                text_position: token.text_position,
                position: token.position,
                token_id: token.id,
                nll_nats: token.nll_nats,
                ar_hit: token.ar_hit.into(),
            }));
        }
    }
    session.save_table("tokens.csv", &rows)?;
    let panels = report.panels();
    if panels.iter().all(|panel| panel.curves.iter().all(|curve| curve.points.is_empty())) {
        return Ok(()); // nothing but failures
    }
    let drawn = |panel: &CurvePanel| panel.curves.iter().any(|curve| !curve.points.is_empty());
    let panels: Vec<CurvePanel> = panels.into_iter().filter(drawn).collect();
    let subtitle = format!("{} · bands: 95 % bootstrap over {}", session.caption(), report.drawn_from());
    let title = "Does more context predict the next token better?";
    let figure = curves(&panels, title, &subtitle, "position in the window (tokens of context)", true)?;
    let pooling =
        "cumulative: mean over positions of the mean over windows; by position: mean over tokens in powers of two";
    session.save(&figure, "nll.png", pooling)
}

/// Points of a cumulative curve for each doubling of the position.
const PER_DOUBLING: f64 = 16.0;

impl Report<'_> {
    /// What intervals are drawn from.
    fn drawn_from(&self) -> String {
        let blocks = self.scored.iter().any(|scored| groups(scored.windows).len() != scored.windows.len());
        if blocks {
            format!("blocks of {BLOCK_TOK} tokens")
        } else {
            "windows".to_owned()
        }
    }

    fn panels(&self) -> Vec<CurvePanel> {
        let panel = |title: &str, y_label: &str, curve: &dyn Fn(&Scored<'_>) -> Curve| CurvePanel {
            title: title.to_owned(),
            y_label: y_label.to_owned(),
            y_range: None,
            curves: self.scored.iter().map(curve).collect(),
        };
        let first = self.scored.first().map(Scored::label).unwrap_or_default();
        let mut panels = vec![
            panel("cumulative mean", "NLL (nats per token)", &cumulative_curve),
            panel("by position", "NLL (nats per token)", &|scored| {
                binned(scored, &|bin| self.estimate(scored, &|token| bin.holds(token.position)))
            }),
        ];
        if self.others().next().is_some() {
            let title = format!("difference to {first}");
            panels.extend([Of::All, Of::ArHit].map(|of| {
                panel(&format!("{title}: {}", of.name()), "difference (nats)", &|scored| {
                    let keep = |bin: Bin| move |token: &ScoredToken| bin.holds(token.position) && of.holds(token);
                    binned(scored, &|bin| self.to_first(scored, &keep(bin)))
                })
            }));
        }
        panels
    }
}

/// The cumulative mean at positions spaced by ratios.
fn cumulative_curve(scored: &Scored<'_>) -> Curve {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let all = cumulative(scored.windows);
    for (i, &(position, mean)) in all.iter().enumerate() {
        let x = f64::from(position);
        let far = points.last().is_none_or(|&(last, _)| x >= last * 2f64.powf(1.0 / PER_DOUBLING));
        if far || i + 1 == all.len() {
            points.push((x, mean));
        }
    }
    Curve { name: scored.label(), points, band: Vec::new() }
}

/// Means at the middles of bins, with their intervals.
fn binned(scored: &Scored<'_>, estimate: &dyn Fn(Bin) -> Option<Estimate>) -> Curve {
    let mut curve = Curve { name: scored.label(), points: Vec::new(), band: Vec::new() };
    for bin in scored.bins() {
        let Some(found) = estimate(bin) else { continue };
        curve.points.push((bin.centre(), found.mean));
        curve.band.extend(found.interval.map(|interval| (bin.centre(), interval.lo, interval.hi)));
    }
    curve
}

/// Prints the tables.
pub(super) fn print(session: &Session, found: &Found) -> Result<()> {
    let report = Report::new(session, found);
    let (rows, differences, positions) = (report.rows(), report.differences(), report.positions());
    let mut out = std::io::stdout().lock();
    if session.how.output.json {
        let ar_max_count = session.ar_max_count();
        let all =
            json!({ "models": rows, "differences": differences, "positions": positions, "ar_max_count": ar_max_count });
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "Negative log-likelihood of the next token in nats [95 % bootstrap interval over {}]\n",
        report.drawn_from()
    )?;
    writeln!(out, "{}\n\n{}", table(&rows), ar_hit_rule(session))?;
    if !differences.is_empty() {
        writeln!(out, "\nPaired differences on the same tokens\n\n{}", difference_table(&differences))?;
    }
    if report.others().count() + 1 < report.scored.len() {
        writeln!(out, "\nModels with other tokens than the first have no paired differences; compare bits per byte")?;
    }
    writeln!(out, "\nBy position in the window\n\n{}", position_table(&positions))?;
    Ok(())
}

/// What counts as an AR hit.
fn ar_hit_rule(session: &Session) -> String {
    let rule = "AR hits complete a bigram seen earlier in their window";
    let count = session.ar_max_count();
    if count == 0 {
        return format!("{rule}, however frequent it is");
    }
    let without = session.models.iter().filter(|model| model.tokenizer().is_err());
    let without: Vec<&str> = without.map(|model| model.name.as_str()).collect();
    let but = match without.as_slice() {
        [] => String::new(),
        names => format!(" (not left out for {}, without tokenizer)", names.join(", ")),
    };
    format!("{rule} that occurs at most {count} times in 200k tokens of reference prose{but}")
}

/// `0.838 [0.835, 0.841]`.
fn nats(found: Option<Estimate>) -> String {
    let Some(Estimate { mean, interval, .. }) = found else { return "-".to_owned() };
    let interval = interval.map_or(String::new(), |i| format!(" [{:.3}, {:.3}]", i.lo, i.hi));
    format!("{mean:.3}{interval}")
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(found: Option<Estimate>) -> String {
    let Some(Estimate { mean, interval, .. }) = found else { return "-".to_owned() };
    let interval = interval.map_or(String::new(), |i| format!(" [{:+.4}, {:+.4}]", i.lo, i.hi));
    format!("{mean:+.4}{interval}")
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("windows"),
        right("tokens"),
        right("NLL"),
        right("perplexity"),
        right("bits/byte"),
        right("AR hits %"),
        right("NLL of AR hits"),
        right("NLL of others"),
    ]);
    for row in rows {
        table.row([
            row.label.clone(),
            row.windows.to_string(),
            row.tokens.to_string(),
            nats(row.nll_nats),
            row.perplexity.map_or("-".to_owned(), |x| format!("{x:.3}")),
            row.bits_per_byte.map_or("-".to_owned(), |x| format!("{x:.3}")),
            row.ar_hit_share.map_or("-".to_owned(), percent),
            nats(row.ar_hit_nll_nats),
            nats(row.other_nll_nats),
        ]);
    }
    table
}

fn difference_table(differences: &[Difference]) -> Table {
    let mut table = Table::new(&[left("difference"), left("of"), right("tokens"), right("NLL")]);
    for found in differences {
        table.row([
            format!("{} - {}", found.of, found.baseline),
            found.tokens.name().to_owned(),
            found.nll_nats.map_or("-".to_owned(), |nll| nll.n.to_string()),
            difference_nats(found.nll_nats),
        ]);
    }
    table
}

fn position_table(positions: &[Position]) -> Table {
    let headings = [left("model"), right("positions"), right("tokens"), right("NLL"), right("minus the first model")];
    let mut table = Table::new(&headings);
    for at in positions {
        table.row([
            at.model.clone(),
            format!("{}-{}", at.first, at.last),
            at.nll_nats.map_or("-".to_owned(), |nll| nll.n.to_string()),
            nats(at.nll_nats),
            difference_nats(at.difference_nats),
        ]);
    }
    table
}
