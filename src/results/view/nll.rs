//! Tables of scored tokens: prediction of a text, by kind of token and by position in the window.

use super::sheet::{numbers, words, Sheet, SheetCell};
use crate::measures::{bins, Bin, NllEstimate, AR_MAX_COUNT};
use crate::results::metric::AR_HIT_SHARE;
use crate::results::table::fixed;
use crate::results::{Frame, Scored, TokenKind, Verdict};

/// The tables beside the main one, if tokens were scored one by one.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    if frame.tokens.0.is_empty() {
        return Vec::new();
    }
    let models = if frame.config_text("show") == "nll" { None } else { models(frame) };
    [models, differences(frame), Some(positions(frame))].into_iter().flatten().collect()
}

pub(super) fn models(frame: &Frame) -> Option<Sheet> {
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
    let row = |scored: &Scored| {
        let skip = skip(frame);
        let of = |kind: TokenKind| scored.estimate(&|token| token.position >= skip && kind.holds(token));
        let (all, hits) = (of(TokenKind::All), of(TokenKind::ArHit));
        let bytes: u64 = scored.tokens().filter(|token| token.position >= skip).map(|token| token.bytes).sum();
        let bits = |all: NllEstimate| all.mean * all.n as f64 / std::f64::consts::LN_2;
        let share = all.map(|all| hits.map_or(0, |hits| hits.n) as f64 / all.n as f64);
        let three = |x: Option<f64>| SheetCell::number(x, |x| format!("{x:.3}"));
        vec![
            SheetCell::words(scored.label()),
            SheetCell::count(Some(scored.windows.len())),
            SheetCell::count(Some(all.map_or(0, |all| all.n))),
            nats(all),
            three(all.map(|all| all.mean.exp())),
            three(all.filter(|_| bytes > 0).map(|all| bits(all) / bytes as f64)),
            SheetCell::number(share, |x| fixed(100.0 * x, 1)),
            nats(hits),
            nats(of(TokenKind::Other)),
        ]
    };
    let note = format!(
        "Negative log-likelihood of the next token in nats [95 % interval over {}]. {}.",
        frame.tokens.drawn_from(),
        rule(frame)
    );
    let note = match skip(frame) {
        0 => note,
        skip => {
            format!("{note} Without the first {skip} tokens of every window (--skip).")
        }
    };
    Some(Sheet::new("nll", "Prediction of text", note, columns, frame.tokens.0.iter().map(row).collect()))
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

pub(super) fn differences(frame: &Frame) -> Option<Sheet> {
    if frame.tokens.0.is_empty() {
        return None;
    }
    let columns =
        vec![words("difference"), words("of"), numbers("tokens"), numbers("NLL").named("nll_nats"), words("verdict")];
    let mut rows = Vec::new();
    for (first, other) in frame.tokens.others() {
        for kind in TokenKind::EACH {
            let counts = |token: &crate::measures::ScoredToken| token.position >= skip(frame) && kind.holds(token);
            let found = frame.tokens.to_first(other, &counts);
            rows.extend(found.map(|found| {
                let name = SheetCell::words(format!("{} - {}", other.label(), first.label()));
                let verdict = SheetCell::words(Verdict::of(found.interval).name());
                vec![
                    name,
                    SheetCell::words(kind.name()),
                    SheetCell::count(Some(found.n)),
                    difference_nats(Some(found)),
                    verdict,
                ]
            }));
        }
    }
    let mut note = "Paired differences on the same tokens in nats.".to_owned();
    if frame.tokens.others().count() + 1 < frame.tokens.0.len() {
        note +=
            " Models with other tokens than the first have none; compare bits per byte, and only where their windows \
                 are of the same text.";
    }
    Sheet::new("nll-differences", "Differences of prediction", note, columns, rows).trimmed()
}

fn positions(frame: &Frame) -> Sheet {
    let columns = vec![
        words("model").key(),
        words("positions").key(),
        numbers("tokens"),
        numbers("NLL").named("nll_nats"),
        numbers("minus the first model").named("difference_nats"),
    ];
    let row = |scored: &Scored, bin: Bin| {
        let of_bin = |token: &crate::measures::ScoredToken| bin.holds(token.position);
        let found = scored.estimate(&of_bin);
        vec![
            SheetCell::words(scored.label()),
            SheetCell::words(format!("{}-{}", bin.first, bin.last)),
            SheetCell::count(found.map(|found| found.n)),
            nats(found),
            difference_nats(frame.tokens.to_first(scored, &of_bin)),
        ]
    };
    let of = |scored: &Scored| {
        let bins = bins(scored.tokens().map(|token| token.position));
        bins.into_iter().map(|bin| row(scored, bin)).collect::<Vec<_>>()
    };
    let rows = frame.tokens.0.iter().flat_map(of).collect();
    let note = "In nats, by the number of tokens that one is predicted from.".to_owned();
    Sheet::new("nll-positions", "By position in the window", note, columns, rows).details()
}

/// `0.838 [0.835, 0.841]`.
fn nats(found: Option<NllEstimate>) -> SheetCell {
    let Some(found) = found else { return SheetCell::none() };
    SheetCell::number_in(found.mean, found.interval, |x| format!("{x:.3}"))
}

/// `+0.0021 [-0.0003, +0.0045]`.
fn difference_nats(found: Option<NllEstimate>) -> SheetCell {
    let Some(found) = found else { return SheetCell::none() };
    SheetCell::number_in(found.mean, found.interval, |x| format!("{x:+.4}"))
}
