//! Tables of scored tokens: prediction of a text, by kind of token and by position in the window.

use crate::results::run_table::{Content, RunTable};
use crate::results::screen::ModelRows;
use crate::results::table::{
    basis, counts, fixed, key_column, numbers, numbers_in, unsigned_zero, words, Cell, ColumnRole, Table, TableRows,
};
use crate::results::{bins, cumulative, Bin, Estimate, Frame, Scored, TokenKind, Verdict};
use names::metric::{AR_HIT_SHARE, AR_MAX_COUNT};
use names::Column;

pub(crate) const PREDICTION: RunTable =
    RunTable { id: "nll", title: "Prediction of text", note: "", content: Content::Made(models) };

pub(crate) const NLL_DIFFERENCES: RunTable = RunTable {
    id: "nll-differences",
    title: "Differences of prediction",
    note: "",
    content: Content::Made(differences),
};

pub(crate) const NLL_POSITIONS: RunTable = RunTable {
    id: "nll-positions",
    title: "By position in the window",
    note: "By the number of tokens that one is predicted from; cumulative: from the beginning of the window on.",
    content: Content::Made(positions),
};

/// The means with a column for each model: of the first its own, of the others their changes on the same tokens, if they cut the
/// text into the same.
pub(crate) fn side_by_side(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let scored = &frame.found.tokens.0;
    let changes = changes(frame);
    let labels: Vec<String> = scored.iter().map(Scored::label).collect();
    let of = |model: &String| &scored[labels.iter().position(|label| label == model).unwrap_or(0)];
    let mut table = ModelRows::new("nats a token", &labels);
    for (kind, label) in TokenKind::EACH.into_iter().zip(["NLL", "NLL of AR hits", "NLL of others"]) {
        table.row(label, |model| kind_cell(of(model), kind, skip, &changes));
    }
    for (label, number) in [("perplexity", perplexity as fn(&Scored, u32) -> Option<f64>), ("bits/byte", bits_per_byte)]
    {
        table.row(label, |model| level_or_change(of(model), &changes, |scored| number(scored, skip)));
    }
    table.table("nll")
}

/// A number of a model, or its change from that of the first model, where the rows above it are changes.
fn level_or_change(of: &Scored, changes: &[NllChange<'_>], number: impl Fn(&Scored) -> Option<f64>) -> Cell {
    let level = number(of);
    match changes.iter().find(|change| std::ptr::eq(change.other, of)) {
        Some(NllChange { first, .. }) => {
            let change = level.zip(number(first)).map(|(level, first)| level - first);
            Cell::number(change, |x| format!("{:+.3}", unsigned_zero(x, 3)))
        }
        None => Cell::number(level, |x| format!("{x:.3}")),
    }
}

/// A mean, or its change from the first model, marked where it is decided.
fn kind_cell(of: &Scored, kind: TokenKind, skip: u32, changes: &[NllChange<'_>]) -> Cell {
    let level = nats(mean(of, kind, skip));
    match changes.iter().find(|change| std::ptr::eq(change.other, of) && change.kind == kind) {
        Some(NllChange { change, verdict, .. }) => Cell {
            decided: *verdict != Verdict::Undecided,
            ..Cell::number_in(change.value, change.interval, |x| format!("{x:+.3}"))
        },
        // The interval over windows is beside those of the changes, which are what tells models apart.
        None if !changes.is_empty() => Cell { aside: String::new(), ..level },
        None => level,
    }
}

/// The difference of a model from the first over the tokens of a kind, and its verdict among all of them.
struct NllChange<'a> {
    first: &'a Scored,
    other: &'a Scored,
    kind: TokenKind,
    change: Estimate,
    verdict: Verdict,
}

fn changes(frame: &Frame) -> Vec<NllChange<'_>> {
    let skip = skip(frame);
    let mut changes = Vec::new();
    for (first, other) in frame.found.tokens.others() {
        for kind in TokenKind::EACH {
            let change = frame.found.tokens.to_first(other, |token| token.position >= skip && kind.holds(token));
            let verdict = Verdict::Undecided;
            changes.extend(change.map(|change| NllChange { first, other, kind, change, verdict }));
        }
    }
    let verdicts = Verdict::of_table(&changes.iter().map(|change| change.change).collect::<Vec<_>>());
    for (change, verdict) in changes.iter_mut().zip(verdicts) {
        change.verdict = verdict;
    }
    changes
}

/// The mean over the tokens of a kind, without the first of every window.
fn mean(scored: &Scored, kind: TokenKind, skip: u32) -> Option<Estimate> {
    scored.estimate(|token| token.position >= skip && kind.holds(token))
}

fn perplexity(scored: &Scored, skip: u32) -> Option<f64> {
    mean(scored, TokenKind::All, skip).map(|mean| mean.value.exp())
}

fn bits_per_byte(scored: &Scored, skip: u32) -> Option<f64> {
    let bytes: u64 = scored.tokens().filter(|token| token.position >= skip).map(|token| token.bytes).sum();
    let nats = mean(scored, TokenKind::All, skip).filter(|_| bytes > 0)?;
    Some(nats.value * nats.trials as f64 / std::f64::consts::LN_2 / bytes as f64)
}

fn models(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let count = |scored: &Scored, kind: TokenKind| mean(scored, kind, skip).map_or(0, |mean| mean.trials);
    let mut note = format!(
        "Negative log-likelihood of the next token in nats [95 % interval over {}]. {}.",
        frame.found.tokens.drawn_from(),
        ar_hit_definition(frame)
    );
    if skip > 0 {
        note += &format!(" Without the first {skip} tokens of every window (--skip).");
    }
    TableRows::of(&frame.found.tokens.0)
        .column(key_column(Column::Model), |scored| Cell::words(scored.label()))
        .column(counts("window").key(), |scored| Cell::count(scored.windows.len()))
        .column(counts("token").key(), |scored| Cell::count(count(scored, TokenKind::All)))
        .column(numbers("NLL").named("nll_nats"), |scored| nats(mean(scored, TokenKind::All, skip)))
        .column(numbers("perplexity"), |scored| Cell::number(perplexity(scored, skip), |x| format!("{x:.3}")))
        .column(numbers("bits/byte").named("bits_per_byte"), |scored| {
            Cell::number(bits_per_byte(scored, skip), |x| format!("{x:.3}"))
        })
        .column(numbers_in("AR hits", "%").named(AR_HIT_SHARE.name), |scored| {
            let hits = count(scored, TokenKind::ArHit);
            let all = count(scored, TokenKind::All);
            Cell::number((all > 0).then(|| hits as f64 / all as f64), |x| fixed(100.0 * x, 1))
        })
        .column(numbers("NLL of AR hits").named("nll_ar_hit_nats"), |scored| nats(mean(scored, TokenKind::ArHit, skip)))
        .column(numbers("NLL of others").named("nll_other_nats"), |scored| nats(mean(scored, TokenKind::Other, skip)))
        .noted(note)
        .with_rows()
}

/// Tokens at the beginning of windows that count by position only.
pub(crate) fn skip(frame: &Frame) -> u32 {
    frame.about.config.skip
}

/// Definition of an AR hit.
pub(crate) fn ar_hit_definition(frame: &Frame) -> String {
    let counted = if frame.about.config.own_text {
        "in this text, or in 200k tokens of it"
    } else {
        "in 200k tokens of reference prose"
    };
    format!("AR hits complete a bigram seen earlier in their window that occurs at most {AR_MAX_COUNT} times {counted}")
}

fn differences(frame: &Frame) -> Option<Table> {
    let rows = changes(frame);
    let mut note = format!("Paired differences on the same tokens in nats. {}", Verdict::RULE);
    if frame.found.tokens.others().count() + 1 < frame.found.tokens.0.len() {
        note +=
            " Models with other tokens than the first have none; compare bits per byte, and only where their windows \
                 are of the same text.";
    }
    TableRows::of(&rows)
        .column(words("difference"), |row| Cell::words(format!("{} - {}", row.other.label(), row.first.label())))
        .column(words("of"), |row| Cell::words(row.kind.name()))
        .column(numbers("tokens"), |row| Cell::count(row.change.trials))
        .column(numbers("NLL").named("nll_nats"), |row| difference_nats(Some(row.change)))
        .column(words("verdict"), |row| Cell::words(row.verdict.name()))
        .noted(note)
        .trimmed()
}

fn positions(frame: &Frame) -> Option<Table> {
    positions_from(frame, 0)
}

/// The positions that a figure has room for: the first tokens of a text are beyond all others.
pub(crate) fn positions_drawn(frame: &Frame) -> Option<Table> {
    let longest = frame.found.tokens.0.iter().flat_map(Scored::tokens).map(|token| token.position).max()?;
    positions_from(frame, (longest / DRAWN_RATIO).max(1))
}

/// The longest position over the first that is drawn.
const DRAWN_RATIO: u32 = 64;

/// A range of positions in the windows of a model.
struct PositionsOf<'a> {
    scored: &'a Scored,
    bin: Bin,
    /// Mean over its tokens.
    mean: Option<Estimate>,
    /// Mean over the positions up to its end of the means over windows, in nats.
    cumulative: Option<f64>,
}

/// A row for each model and range of positions that begins at a position or behind it.
fn positions_from(frame: &Frame, first: u32) -> Option<Table> {
    let mut places = Vec::new();
    for scored in &frame.found.tokens.0 {
        let means = cumulative(&scored.windows, skip(frame));
        for bin in bins(scored.tokens().map(|token| token.position)).into_iter().filter(|bin| bin.first >= first) {
            let mean = scored.estimate(|token| bin.holds(token.position));
            let cumulative = means.iter().rev().find(|(position, _)| *position <= bin.last).map(|(_, mean)| *mean);
            places.push(PositionsOf { scored, bin, mean, cumulative });
        }
    }
    TableRows::of(&places)
        .column(key_column(Column::Model), |of| Cell::words(of.scored.label()))
        .column(numbers("from").key(), |of| Cell::count(of.bin.first))
        .column(numbers("to").with(ColumnRole::Basis), |of| Cell::count(of.bin.last))
        .column(basis("token"), |of| Cell::optional(of.mean.map(|mean| mean.trials)))
        .column(numbers_in("NLL", "nats").named("nll_nats"), |of| nats(of.mean))
        .column(numbers_in("cumulative NLL", "nats").named("cumulative_nats"), |of| {
            Cell::number(of.cumulative, |x| format!("{x:.3}"))
        })
        .column(numbers_in("minus the first model", "nats").named("difference_nats"), |of| {
            difference_nats(frame.found.tokens.to_first(of.scored, |token| of.bin.holds(token.position)))
        })
        .noted("")
        .with_rows()
}

/// `0.838 [0.835, 0.841]`.
fn nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:.3}")))
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:+.4}")))
}
