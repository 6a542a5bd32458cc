//! Tables of scored tokens: prediction of a text, by kind of token and by position in the window.

use crate::results::metric::{AR_HIT_SHARE, AR_MAX_COUNT};
use crate::results::table::{fixed, numbers, words, Cell, Table, TableRows};
use crate::results::CommandName;
use crate::results::{bins, Estimate, Frame, Scored, TokenKind, Verdict};

/// The tables beside the main one, if tokens were scored one by one.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let models = if frame.command() == Some(CommandName::Nll) { None } else { models(frame) };
    [models, differences(frame), positions(frame)].into_iter().flatten().collect()
}

pub(super) fn models(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let mean = |scored: &Scored, kind: TokenKind| scored.estimate(|token| token.position >= skip && kind.holds(token));
    let count = |scored: &Scored, kind: TokenKind| mean(scored, kind).map_or(0, |mean| mean.trials);
    let mut note = format!(
        "Negative log-likelihood of the next token in nats [95 % interval over {}]. {}.",
        frame.tokens.drawn_from(),
        rule(frame)
    );
    if skip > 0 {
        note += &format!(" Without the first {skip} tokens of every window (--skip).");
    }
    TableRows::of(&frame.tokens.0)
        .column(words("model").key(), |scored| Cell::words(scored.label()))
        .column(numbers("windows").key(), |scored| Cell::count(scored.windows.len()))
        .column(numbers("tokens").key(), |scored| Cell::count(count(scored, TokenKind::All)))
        .column(numbers("NLL").named("nll_nats"), |scored| nats(mean(scored, TokenKind::All)))
        .column(numbers("perplexity"), |scored| {
            Cell::number(mean(scored, TokenKind::All).map(|mean| mean.value.exp()), |x| format!("{x:.3}"))
        })
        .column(numbers("bits/byte").named("bits_per_byte"), |scored| {
            let bytes: u64 = scored.tokens().filter(|token| token.position >= skip).map(|token| token.bytes).sum();
            let nats = mean(scored, TokenKind::All).filter(|_| bytes > 0);
            let bits = nats.map(|nats| nats.value * nats.trials as f64 / std::f64::consts::LN_2);
            Cell::number(bits.map(|bits| bits / bytes as f64), |x| format!("{x:.3}"))
        })
        .column(numbers("AR hits %").named(AR_HIT_SHARE.name), |scored| {
            let (hits, all) = (count(scored, TokenKind::ArHit), count(scored, TokenKind::All));
            Cell::number((all > 0).then(|| hits as f64 / all as f64), |x| fixed(100.0 * x, 1))
        })
        .column(numbers("NLL of AR hits").named("nll_ar_hit_nats"), |scored| nats(mean(scored, TokenKind::ArHit)))
        .column(numbers("NLL of others").named("nll_other_nats"), |scored| nats(mean(scored, TokenKind::Other)))
        .table("nll", "Prediction of text", note)
        .with_rows()
}

/// Tokens at the beginning of windows that count by position only.
pub(crate) fn skip(frame: &Frame) -> u32 {
    frame.config("skip").and_then(serde_json::Value::as_u64).map_or(0, |skip| u32::try_from(skip).unwrap_or(u32::MAX))
}

/// Definition of an AR hit.
fn rule(frame: &Frame) -> String {
    let counted = match frame.config("own_text") {
        Some(_) => "in this text, or in 200k tokens of it",
        None => "in 200k tokens of reference prose",
    };
    format!("AR hits complete a bigram seen earlier in their window that occurs at most {AR_MAX_COUNT} times {counted}")
}

pub(super) fn differences(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let mut differences = Vec::new();
    for (first, other) in frame.tokens.others() {
        for kind in TokenKind::EACH {
            let difference = frame.tokens.to_first(other, |token| token.position >= skip && kind.holds(token));
            differences.extend(difference.map(|difference| (first, other, kind, difference)));
        }
    }
    let changes: Vec<Estimate> = differences.iter().map(|(.., change)| *change).collect();
    let rows: Vec<_> = differences.into_iter().zip(Verdict::of_table(&changes)).collect();
    let mut note = format!("Paired differences on the same tokens in nats. {}", Verdict::RULE);
    if frame.tokens.others().count() + 1 < frame.tokens.0.len() {
        note +=
            " Models with other tokens than the first have none; compare bits per byte, and only where their windows \
                 are of the same text.";
    }
    TableRows::of(&rows)
        .column(words("difference"), |((first, other, ..), _)| {
            Cell::words(format!("{} - {}", other.label(), first.label()))
        })
        .column(words("of"), |((_, _, kind, _), _)| Cell::words(kind.name()))
        .column(numbers("tokens"), |((.., change), _)| Cell::count(change.trials))
        .column(numbers("NLL").named("nll_nats"), |((.., change), _)| difference_nats(Some(*change)))
        .column(words("verdict"), |(_, verdict)| Cell::words(verdict.name()))
        .table("nll-differences", "Differences of prediction", note)
        .trimmed()
}

fn positions(frame: &Frame) -> Option<Table> {
    let mut places = Vec::new();
    for scored in &frame.tokens.0 {
        for bin in bins(scored.tokens().map(|token| token.position)) {
            places.push((scored, bin, scored.estimate(|token| bin.holds(token.position))));
        }
    }
    TableRows::of(&places)
        .column(words("model").key(), |(scored, ..)| Cell::words(scored.label()))
        .column(words("positions").key(), |(_, bin, _)| Cell::words(format!("{}-{}", bin.first, bin.last)))
        .column(numbers("tokens"), |(.., mean)| Cell::optional(mean.map(|mean| mean.trials)))
        .column(numbers("NLL").named("nll_nats"), |(.., mean)| nats(*mean))
        .column(numbers("minus the first model").named("difference_nats"), |(scored, bin, _)| {
            difference_nats(frame.tokens.to_first(scored, |token| bin.holds(token.position)))
        })
        .table(
            "nll-positions",
            "By position in the window",
            "In nats, by the number of tokens that one is predicted from.",
        )
        .with_rows()
        .map(Table::details)
}

/// `0.838 [0.835, 0.841]`.
fn nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:.3}")))
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:+.4}")))
}
