//! `difftool nll`: how well text is predicted, by position in the window (the paper's Figure 4), and with or without the
//! help of what was read before (its Table 6).

mod draw;
mod print;

pub(super) use draw::draw;
pub(super) use print::print;

use super::execute::{self, Found};
use super::flags;
use super::session::Session;
use crate::bail_usage;
use crate::cli::NllArgs;
use crate::experiment::{Experiment, Grid, Show, TextGrid};
use crate::measure::{
    bins, comparable, difference, estimate, groups, Bin, Estimate, Place, ScoredToken, ScoredWindow, BLOCK_TOK,
};
use crate::models;
use crate::prompt::BosChoice;
use crate::treatment::Condition;
use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::json;

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
    if args.ids.is_some() && args.reading.bos != BosChoice::Auto {
        bail_usage!("--bos: token ids are taken as they are; leave out --bos or --ids");
    }
    let what = "nll pools windows of one length";
    let ctx_tok = flags::one_ctx_tok(args.ctx.as_ref(), &args.model, &args.reading, what)?;
    let own = args.text.is_some() || args.ids.is_some();
    let stride = match args.stride.as_ref().map(|range| range.0.as_slice()) {
        Some([stride]) => Some(*stride),
        Some(_) => bail_usage!("--stride: {what}; give it one number"),
        None => own.then_some((ctx_tok / 2).max(1)),
    };
    let samples = args.samples.unwrap_or(if own { ALL_WINDOWS } else { WINDOWS });
    let grid = Grid::Text(TextGrid { ctx_tok: vec![ctx_tok], samples, stride, seed: args.seed });
    if let Some(skip) = args.skip.filter(|&skip| skip >= ctx_tok) {
        bail_usage!("--skip {skip} leaves nothing of windows of {ctx_tok} tokens");
    }
    Ok(Experiment {
        skip: args.skip,
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
    condition: Condition,
    windows: &'a [ScoredWindow],
}

fn scored<'a>(session: &Session, found: &'a Found) -> Vec<Scored<'a>> {
    let Some(measure) = &found.measures.nll else { return Vec::new() };
    let of = |(&place, windows): (&Place, &'a Vec<ScoredWindow>)| Scored {
        name: session.setup.models[place.model].name.clone(),
        place,
        condition: session.setup.conditions[place.condition].clone(),
        windows,
    };
    measure.pooled.iter().map(of).collect()
}

impl Scored<'_> {
    /// `diff`, or `diff quantise(4, tensor)`.
    fn label(&self) -> String {
        if self.condition.is_untreated() {
            return self.name.clone();
        }
        format!("{} {}", self.name, self.condition)
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
    condition: Option<String>,
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
    /// Tokens at the beginning of windows that count by position only.
    skip: u32,
    seed: u64,
}

impl<'a> Report<'a> {
    fn new(session: &Session, found: &'a Found) -> Self {
        let skip = found.measures.nll.as_ref().map_or(0, |nll| nll.skip);
        Self { scored: scored(session, found), skip, seed: session.setup.grid.seed() }
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

    fn is_first(&self, scored: &Scored<'_>) -> bool {
        self.scored.first().is_some_and(|first| first.place == scored.place)
    }

    /// What a model differs from the first by.
    fn to_first(&self, other: &Scored<'_>, keep: &dyn Fn(&ScoredToken) -> bool) -> Option<Estimate> {
        let (first, other) = self.others().find(|(_, b)| b.place == other.place)?;
        difference(&groups(first.windows), &groups(other.windows), keep, self.seed)
    }

    /// What intervals are drawn from.
    fn drawn_from(&self) -> String {
        let blocks = self.scored.iter().any(|scored| groups(scored.windows).len() != scored.windows.len());
        if blocks {
            format!("blocks of {BLOCK_TOK} tokens")
        } else {
            "windows".to_owned()
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |scored: &Scored<'_>| {
            let counts = |of: Of| move |token: &ScoredToken| token.position >= self.skip && of.holds(token);
            let nll_nats = self.estimate(scored, &counts(Of::All));
            let bytes: u64 = scored.windows.iter().map(|window| window.bytes).sum();
            let bits = |all: Estimate| all.mean * all.n as f64 / std::f64::consts::LN_2;
            let ar_hit_nll_nats = self.estimate(scored, &counts(Of::ArHit));
            let hits = ar_hit_nll_nats.map_or(0, |hits| hits.n) as f64;
            Row {
                model: scored.name.clone(),
                condition: scored.condition.column(),
                bits: scored.condition.bits(),
                windows: scored.windows.len(),
                tokens: nll_nats.map_or(0, |all| all.n),
                nll_nats,
                perplexity: nll_nats.map(|all| all.mean.exp()),
                bits_per_byte: nll_nats.filter(|_| bytes > 0).map(|all| bits(all) / bytes as f64),
                ar_hit_share: nll_nats.map(|all| hits / all.n as f64),
                ar_hit_nll_nats,
                other_nll_nats: self.estimate(scored, &counts(Of::Other)),
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
                nll_nats: self.to_first(other, &|token| token.position >= self.skip && tokens.holds(token)),
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
