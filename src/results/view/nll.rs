//! Tables of scored tokens: prediction of a text, by kind of token and by position in the window.

use crate::results::metric::{AR_HIT_SHARE, AR_MAX_COUNT};
use crate::results::table::fixed;
use crate::results::table::{numbers, words, Cell, Table};
use crate::results::CommandName;
use crate::results::{bins, Estimate, Frame, Scored, TokenKind, Verdict};

/// The tables beside the main one, if tokens were scored one by one.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    if frame.tokens.0.is_empty() {
        return Vec::new();
    }
    let models = if frame.command() == Some(CommandName::Nll) { None } else { models(frame) };
    [models, differences(frame), Some(positions(frame))].into_iter().flatten().collect()
}

pub(super) fn models(frame: &Frame) -> Option<Table> {
    if frame.tokens.0.is_empty() {
        return None;
    }
    let columns = vec![
        words("model").key(),
        numbers("windows").key(),
        numbers("tokens").key(),
        numbers("NLL").named("nll_nats"),
        numbers("perplexity"),
        numbers("bits/byte").named("bits_per_byte"),
        numbers("AR hits %").named(AR_HIT_SHARE.name),
        numbers("NLL of AR hits").named("nll_ar_hit_nats"),
        numbers("NLL of others").named("nll_other_nats"),
    ];
    let skip = skip(frame);
    let mut note = format!(
        "Negative log-likelihood of the next token in nats [95 % interval over {}]. {}.",
        frame.tokens.drawn_from(),
        rule(frame)
    );
    if skip > 0 {
        note += &format!(" Without the first {skip} tokens of every window (--skip).");
    }
    let rows = frame.tokens.0.iter().map(|scored| model_row(scored, skip)).collect();
    Some(Table::new("nll", "Prediction of text", note, columns, rows))
}

fn model_row(scored: &Scored, skip: u32) -> Vec<Cell> {
    let [all, hits, others] =
        TokenKind::EACH.map(|kind| scored.estimate(|token| token.position >= skip && kind.holds(token)));
    let bytes: u64 = scored.tokens().filter(|token| token.position >= skip).map(|token| token.bytes).sum();
    let tokens = all.map_or(0, |all| all.trials);
    let bits = all.map(|all| all.value * tokens as f64 / std::f64::consts::LN_2);
    let share = all.map(|_| hits.map_or(0, |hits| hits.trials) as f64 / tokens as f64);
    vec![
        Cell::words(scored.label()),
        Cell::count(scored.windows.len()),
        Cell::count(tokens),
        nats(all),
        Cell::number(all.map(|all| all.value.exp()), |x| format!("{x:.3}")),
        Cell::number(bits.filter(|_| bytes > 0).map(|bits| bits / bytes as f64), |x| format!("{x:.3}")),
        Cell::number(share, |x| fixed(100.0 * x, 1)),
        nats(hits),
        nats(others),
    ]
}

/// Tokens at the beginning of windows that count by position only.
fn skip(frame: &Frame) -> u32 {
    frame.config("skip").and_then(serde_json::Value::as_u64).map_or(0, |skip| u32::try_from(skip).unwrap_or(u32::MAX))
}

/// Definition of an AR hit.
fn rule(frame: &Frame) -> String {
    let rule = "AR hits complete a bigram seen earlier in their window";
    let without = frame.about.models.iter().filter(|model| model.tokenizer_sha256.is_empty());
    let without: Vec<&str> = without.map(|model| model.name.as_str()).collect();
    let but = match without.as_slice() {
        [] => String::new(),
        names => format!(" (not left out for {}, without tokenizer)", names.join(", ")),
    };
    format!("{rule} that occurs at most {AR_MAX_COUNT} times in 200k tokens of reference prose{but}")
}

pub(super) fn differences(frame: &Frame) -> Option<Table> {
    if frame.tokens.0.is_empty() {
        return None;
    }
    let columns =
        vec![words("difference"), words("of"), numbers("tokens"), numbers("NLL").named("nll_nats"), words("verdict")];
    let mut rows = Vec::new();
    let skip = skip(frame);
    for (first, other) in frame.tokens.others() {
        for kind in TokenKind::EACH {
            let difference = frame.tokens.to_first(other, |token| token.position >= skip && kind.holds(token));
            let Some(difference) = difference else { continue };
            rows.push(vec![
                Cell::words(format!("{} - {}", other.label(), first.label())),
                Cell::words(kind.name()),
                Cell::count(difference.trials),
                difference_nats(Some(difference)),
                Cell::words(Verdict::of(difference.interval).name()),
            ]);
        }
    }
    let mut note = "Paired differences on the same tokens in nats.".to_owned();
    if frame.tokens.others().count() + 1 < frame.tokens.0.len() {
        note +=
            " Models with other tokens than the first have none; compare bits per byte, and only where their windows \
                 are of the same text.";
    }
    Table::new("nll-differences", "Differences of prediction", note, columns, rows).trimmed()
}

fn positions(frame: &Frame) -> Table {
    let columns = vec![
        words("model").key(),
        words("positions").key(),
        numbers("tokens"),
        numbers("NLL").named("nll_nats"),
        numbers("minus the first model").named("difference_nats"),
    ];
    let mut rows = Vec::new();
    for scored in &frame.tokens.0 {
        for bin in bins(scored.tokens().map(|token| token.position)) {
            let mean = scored.estimate(|token| bin.holds(token.position));
            rows.push(vec![
                Cell::words(scored.label()),
                Cell::words(format!("{}-{}", bin.first, bin.last)),
                Cell::optional(mean.map(|mean| mean.trials)),
                nats(mean),
                difference_nats(frame.tokens.to_first(scored, |token| bin.holds(token.position))),
            ]);
        }
    }
    let note = "In nats, by the number of tokens that one is predicted from.".to_owned();
    Table::new("nll-positions", "By position in the window", note, columns, rows).details()
}

/// `0.838 [0.835, 0.841]`.
fn nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:.3}")))
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(mean: Option<Estimate>) -> Cell {
    mean.map_or_else(Cell::none, |mean| Cell::number_in(mean.value, mean.interval, |x| format!("{x:+.4}")))
}
