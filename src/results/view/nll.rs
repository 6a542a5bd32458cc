//! Tables of scored tokens: prediction of a text, by kind of token and by position in the window.

use crate::results::metric::{AR_HIT_SHARE, AR_MAX_COUNT};
use crate::results::run_table::{Content, RunTable};
use crate::results::table::{fixed, numbers, words, Cell, Table, TableRows};
use crate::results::{bins, Estimate, Frame, Scored, TokenKind, Verdict};

pub(crate) const NLL: RunTable =
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
    note: "In nats, by the number of tokens that one is predicted from.",
    content: Content::Made(positions),
};

/// The means with a column for each model: of the first its own, of the others their changes on the same tokens, if they cut the
/// text into the same.
pub(crate) fn side_by_side(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let scored = &frame.tokens.0;
    let changed: Vec<&Scored> = frame.tokens.others().map(|(_, other)| other).collect();
    let change = |of: &Scored, kind: TokenKind| {
        let is_other = changed.iter().any(|other| std::ptr::eq(*other, of));
        is_other.then(|| frame.tokens.to_first(of, |token| token.position >= skip && kind.holds(token))).flatten()
    };
    let changes: Vec<Option<Estimate>> =
        TokenKind::EACH.iter().flat_map(|&kind| scored.iter().map(move |of| change(of, kind))).collect();
    let decided = Verdict::of_table(&changes.iter().flatten().copied().collect::<Vec<_>>());
    let mut decided = decided.into_iter();
    let mut changes = changes.into_iter();
    let mut columns = vec![words("nats a token").key()];
    columns.extend(scored.iter().map(|of| numbers(of.label())));
    let mut rows = Vec::new();
    for (kind, label) in TokenKind::EACH.into_iter().zip(["NLL", "NLL of AR hits", "NLL of others"]) {
        let mut row = vec![Cell::words(label)];
        for of in scored {
            let level = of.estimate(|token| token.position >= skip && kind.holds(token));
            row.push(match changes.next().flatten() {
                Some(change) => {
                    let verdict = decided.next().unwrap_or(Verdict::Undecided);
                    let cell = Cell::number_in(change.value, change.interval, |x| format!("{x:+.3}"));
                    Cell { decided: verdict != Verdict::Undecided, ..cell }
                }
                // The interval over windows is beside those of the changes, which are what tells models apart.
                None if !changed.is_empty() => Cell { aside: String::new(), ..nats(level) },
                None => nats(level),
            });
        }
        rows.push(row);
    }
    for (label, number) in [("perplexity", perplexity as fn(&Scored, u32) -> Option<f64>), ("bits/byte", bits_per_byte)]
    {
        let cells = scored.iter().map(|of| Cell::number(number(of, skip), |x| format!("{x:.3}")));
        rows.push([Cell::words(label)].into_iter().chain(cells).collect());
    }
    Table::new("nll", "Prediction of text", String::new(), columns, rows).with_rows().filter(|_| !scored.is_empty())
}

fn perplexity(scored: &Scored, skip: u32) -> Option<f64> {
    scored.estimate(|token| token.position >= skip).map(|mean| mean.value.exp())
}

fn bits_per_byte(scored: &Scored, skip: u32) -> Option<f64> {
    let bytes: u64 = scored.tokens().filter(|token| token.position >= skip).map(|token| token.bytes).sum();
    let nats = scored.estimate(|token| token.position >= skip).filter(|_| bytes > 0)?;
    Some(nats.value * nats.trials as f64 / std::f64::consts::LN_2 / bytes as f64)
}

fn models(frame: &Frame) -> Option<Table> {
    let skip = skip(frame);
    let mean = |scored: &Scored, kind: TokenKind| scored.estimate(|token| token.position >= skip && kind.holds(token));
    let count = |scored: &Scored, kind: TokenKind| mean(scored, kind).map_or(0, |mean| mean.trials);
    let mut note = format!(
        "Negative log-likelihood of the next token in nats [95 % interval over {}]. {}.",
        frame.tokens.drawn_from(),
        ar_hits(frame)
    );
    if skip > 0 {
        note += &format!(" Without the first {skip} tokens of every window (--skip).");
    }
    TableRows::of(&frame.tokens.0)
        .column(words("model").key(), |scored| Cell::words(scored.label()))
        .column(numbers("windows").key(), |scored| Cell::count(scored.windows.len()))
        .column(numbers("tokens").key(), |scored| Cell::count(count(scored, TokenKind::All)))
        .column(numbers("NLL").named("nll_nats"), |scored| nats(mean(scored, TokenKind::All)))
        .column(numbers("perplexity"), |scored| Cell::number(perplexity(scored, skip), |x| format!("{x:.3}")))
        .column(numbers("bits/byte").named("bits_per_byte"), |scored| {
            Cell::number(bits_per_byte(scored, skip), |x| format!("{x:.3}"))
        })
        .column(numbers("AR hits %").named(AR_HIT_SHARE.name), |scored| {
            let (hits, all) = (count(scored, TokenKind::ArHit), count(scored, TokenKind::All));
            Cell::number((all > 0).then(|| hits as f64 / all as f64), |x| fixed(100.0 * x, 1))
        })
        .column(numbers("NLL of AR hits").named("nll_ar_hit_nats"), |scored| nats(mean(scored, TokenKind::ArHit)))
        .column(numbers("NLL of others").named("nll_other_nats"), |scored| nats(mean(scored, TokenKind::Other)))
        .noted(note)
        .with_rows()
}

/// Tokens at the beginning of windows that count by position only.
pub(crate) fn skip(frame: &Frame) -> u32 {
    frame.config("skip").and_then(serde_json::Value::as_u64).map_or(0, |skip| u32::try_from(skip).unwrap_or(u32::MAX))
}

/// Definition of an AR hit.
pub(crate) fn ar_hits(frame: &Frame) -> String {
    let counted = match frame.config("own_text") {
        Some(_) => "in this text, or in 200k tokens of it",
        None => "in 200k tokens of reference prose",
    };
    format!("AR hits complete a bigram seen earlier in their window that occurs at most {AR_MAX_COUNT} times {counted}")
}

fn differences(frame: &Frame) -> Option<Table> {
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
        .noted(note)
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
