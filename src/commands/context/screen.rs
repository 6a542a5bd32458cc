//! What `difftool context` prints: the segments of one text, or numbers over many questions.

use super::super::hidden::nats;
use crate::measures::{HALF_ODDS, NOTABLE_NATS, SUMMARY};
use crate::results::run_table::RunTable;
use crate::results::screen::{note_on_changes, ModelRows, Screen, ScreenTable, SideBySide};
use crate::results::table::{
    counts, key_column, numbers, numbers_in, plural, unsigned_zero, words, Cell, Table, TableRows,
};
use crate::results::{AskedContext, Frame};
use names::metric::{
    Metric, ALONE, ANSWER_LOG_PROB, CONTEXT_FLOOR, GIVES, GIVES_LOG_ODDS, GIVES_SPREAD, LOG_PROB_WITHOUT,
    SEGMENT_SHARE, THROUGH_OTHERS,
};
use names::{group_segments, segment_name, Column, SegmentKind};
use std::collections::BTreeMap;

pub(super) const SEGMENTS: RunTable = RunTable::made("segments", "Segments", segments);
pub(super) const TEXTS: RunTable = RunTable::made("texts", "Texts", texts);

/// Segments that are listed on a screen: those that give most, and those that cost most.
const MOST_GIVING: usize = 4;
const MOST_COSTING: usize = 3;

/// Columns of bars, to the left and to the right of nothing, and letters of a segment.
const BARS: [usize; 2] = [4, 8];
const LETTERS: usize = 26;

/// Least and largest end of the scale of colours and bars, in nats: factors of ten and of a hundred, so that neither noise is coloured
/// like an effect nor one large effect takes the colour of all others.
const SCALES: [f64; 2] = [std::f64::consts::LN_10, 2.0 * std::f64::consts::LN_10];

/// What `difftool context` prints.
pub(super) fn screen(frame: &Frame) -> Screen {
    match frame.found.contexts.as_slice() {
        [only] => of_text(frame, only),
        _ => of_questions(frame),
    }
}

/// What was measured of a segment by a model.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentNumbers {
    pub(super) index: usize,
    pub(super) gives_nats: Option<f64>,
    pub(super) gives_log_odds: Option<f64>,
    pub(super) alone_nats: Option<f64>,
    pub(super) through_nats: Option<f64>,
    pub(super) spread_nats: Option<f64>,
    /// Part of the output of all heads.
    pub(super) share: Option<f64>,
}

/// What was measured of a text by a model.
pub(super) struct TextNumbers<'a> {
    pub(super) model: &'a str,
    pub(super) asked: &'a AskedContext,
    pub(super) segments: Vec<SegmentNumbers>,
    /// Groups of segments that were taken out together: the first and the last, from 1, and what they give in nats.
    pub(super) groups: Vec<(usize, usize, f64)>,
    /// Numbers of the whole text by metric and region.
    whole: BTreeMap<(String, Option<String>), f64>,
}

impl<'a> TextNumbers<'a> {
    /// Those of a text; `None` if it was not measured.
    pub(super) fn of(frame: &'a Frame, model: &'a str, asked: &'a AskedContext) -> Option<Self> {
        let records = frame.records.select(
            |quantity| quantity.is_of_model(),
            |id| id.model == model && id.sample == Some(asked.sample) && id.condition.is_none(),
        );
        let mut whole = BTreeMap::new();
        for record in &records {
            let region = record.quantity.region.as_ref().map(ToString::to_string);
            whole.insert((record.quantity.metric.to_string(), region), record.value);
        }
        let of =
            |metric: &Metric, index: usize| whole.get(&(metric.name.to_owned(), Some(segment_name(index)))).copied();
        let mut segments = Vec::new();
        for index in 0..asked.segments.len() {
            segments.push(SegmentNumbers {
                index,
                gives_nats: of(&GIVES, index),
                gives_log_odds: of(&GIVES_LOG_ODDS, index),
                alone_nats: of(&ALONE, index),
                through_nats: of(&THROUGH_OTHERS, index),
                spread_nats: of(&GIVES_SPREAD, index),
                share: of(&SEGMENT_SHARE, index),
            });
        }
        let mut groups = Vec::new();
        for ((metric, region), &gives) in &whole {
            if let Some(group) = region.as_deref().filter(|_| metric == GIVES.name).and_then(group_segments) {
                groups.push((group.start + 1, group.end, gives));
            }
        }
        groups.sort_by_key(|group| group.0);
        whole.contains_key(&(ANSWER_LOG_PROB.name.to_owned(), None)).then_some(Self {
            model,
            asked,
            segments,
            groups,
            whole,
        })
    }

    /// A number of the whole text.
    pub(super) fn number(&self, metric: &Metric, region: Option<&str>) -> Option<f64> {
        self.whole.get(&(metric.name.to_owned(), region.map(str::to_owned))).copied()
    }

    /// What the model itself says.
    pub(super) fn said(&self) -> Option<&'a str> {
        self.asked.said.iter().find(|said| said.model == self.model).map(|said| said.text.as_str())
    }

    /// The change below which nothing should be read into one, in nats.
    pub(super) fn floor(&self) -> f64 {
        self.number(&CONTEXT_FLOOR, None).unwrap_or(0.0)
    }

    /// The end of its colours and bars, in nats.
    pub(super) fn scale(&self) -> f64 {
        let gives = self.segments.iter().filter_map(|segment| segment.gives_nats);
        gives.map(f64::abs).fold(SCALES[0], f64::max).min(SCALES[1])
    }

    /// The segment that costs most, if one costs anything.
    pub(super) fn worst(&self) -> Option<&SegmentNumbers> {
        let measured = self.segments.iter().filter(|segment| segment.gives_nats.is_some_and(|nats| nats < 0.0));
        measured.min_by(|a, b| a.gives_nats.unwrap_or(0.0).total_cmp(&b.gives_nats.unwrap_or(0.0)))
    }

    /// `“340” has 1.1 % with the text, 3.3 % without sentence 13, 0.006 % without any`.
    pub(super) fn conclusion(&self) -> String {
        let log_prob = |region| self.number(&LOG_PROB_WITHOUT, Some(region));
        let mut parts = Vec::new();
        parts.extend(self.number(&ANSWER_LOG_PROB, None).map(|nats| format!("{} with the text", percent(nats))));
        if let (Some(worst), Some(nats)) = (self.worst(), log_prob("worst")) {
            parts.push(format!("{} without part {}", percent(nats), worst.index + 1));
        }
        let costs = |segment: &&SegmentNumbers| segment.gives_nats.is_some_and(|nats| nats <= -NOTABLE_NATS);
        let harmful = self.segments.iter().filter(costs).count();
        if let Some(nats) = log_prob("harmful").filter(|_| harmful > 1) {
            parts.push(format!("{} without the {harmful} that cost it {NOTABLE_NATS} nats or more", percent(nats)));
        }
        parts.extend(log_prob("all").map(|nats| format!("{} without any", percent(nats))));
        format!("“{}” has {}", self.asked.scored(self.model), parts.join(", "))
    }
}

/// A log-probability in percent, with two digits.
pub(super) fn percent(nats: f64) -> String {
    let percent = 100.0 * nats.exp();
    if percent >= 99.95 {
        "100 %".to_owned()
    } else if percent >= 10.0 {
        format!("{percent:.0} %")
    } else if percent >= 1e-5 {
        let decimals = (1.0 - percent.log10().floor()).max(0.0) as usize;
        format!("{percent:.decimals$} %")
    } else {
        format!("{percent:.0e} %")
    }
}

fn of_text(frame: &Frame, asked: &AskedContext) -> Screen {
    let measured: Vec<TextNumbers<'_>> =
        frame.models.iter().filter_map(|model| TextNumbers::of(frame, model, asked)).collect();
    let mut screen = Screen::default();
    let scored =
        asked.answers.first().map_or("its own answer".to_owned(), |answer| format!("“{}”", shortened(answer, LETTERS)));
    let title = format!("What each part of the text gives {scored}, in nats");
    match measured.as_slice() {
        [] => {}
        [only] => {
            let model = frame.short_names.name(only.model).to_owned();
            screen.tables.push(ScreenTable { title, shared: vec![model], table: text_table(only) });
        }
        several => {
            let table = models_table(frame, several).map(|table| ScreenTable { title, shared: Vec::new(), table });
            screen.tables.extend(table);
        }
    }
    for numbers in &measured {
        let model = frame.short_names.name(numbers.model);
        let of = if measured.len() == 1 { String::new() } else { format!("{model}: ") };
        screen.notes.push(format!("{of}{}.", numbers.conclusion()));
    }
    let floor = measured.iter().map(TextNumbers::floor).fold(0.0, f64::max);
    let contrast = if asked.wrong.is_some() { " less that of the wrong answer" } else { "" };
    let mut note = format!(
        "nats: log-probability{contrast} with the text less without the part. through: what comes through other parts. "
    );
    if floor > 0.0 {
        note += &format!("Sentences that say nothing of it move it by up to {floor:.1}: read nothing into less (·).");
    }
    screen.notes.push(note.trim_end().to_owned());
    screen
}

/// The segments that give most and cost most, and how many are between them.
fn text_table(numbers: &TextNumbers<'_>) -> Table {
    let mut order: Vec<&SegmentNumbers> =
        numbers.segments.iter().filter(|segment| segment.gives_nats.is_some()).collect();
    order.sort_by(|a, b| b.gives_nats.unwrap_or(0.0).total_cmp(&a.gives_nats.unwrap_or(0.0)));
    let hidden = order.len().saturating_sub(MOST_GIVING + MOST_COSTING);
    let mut rows: Vec<Option<&SegmentNumbers>> = order.iter().copied().map(Some).collect();
    let mut between = String::new();
    if hidden > 1 {
        let middle = &order[MOST_GIVING..MOST_GIVING + hidden];
        let [most, least] = [middle[0], middle[hidden - 1]].map(|segment| nats(segment.gives_nats.unwrap_or(0.0)));
        between = format!("{hidden} others, {most} to {least}");
        rows.splice(MOST_GIVING..MOST_GIVING + hidden, [None]);
    }
    let floor = numbers.floor();
    let scale = numbers.scale();
    let number = |x: Option<f64>| Cell::number(x, nats);
    TableRows::of(&rows)
        .column(self::numbers("nats").named("gives"), |row| row.map_or_else(Cell::none, |row| number(row.gives_nats)))
        .column(self::numbers("alone"), |row| row.map_or_else(Cell::none, |row| number(row.alone_nats)))
        .column(self::numbers("through"), |row| row.map_or_else(Cell::none, |row| number(row.through_nats)))
        .column(numbers_in("output", "%").named("share"), |row| {
            row.map_or_else(Cell::none, |row| Cell::number(row.share, |share| format!("{:.1}", 100.0 * share)))
        })
        .column(words("-|+").named("bar"), |row| {
            Cell::words(row.map_or_else(String::new, |row| bar(row.gives_nats.unwrap_or(0.0), floor, scale)))
        })
        .column(words("part"), |row| {
            Cell::words(row.map_or_else(
                || between.clone(),
                |row| format!("{} {}", row.index + 1, shortened(&numbers.asked.segments[row.index].text, LETTERS)),
            ))
        })
        .table("segments", "Segments", "")
}

/// What the parts give in each of several models that matter most in any, in the order of the text.
fn models_table(frame: &Frame, measured: &[TextNumbers<'_>]) -> Option<Table> {
    let of = |numbers: &TextNumbers<'_>, index: usize| numbers.segments[index].gives_nats;
    let most =
        |index: usize| measured.iter().filter_map(|numbers| of(numbers, index)).map(f64::abs).fold(0.0, f64::max);
    let mut order: Vec<usize> = (0..measured[0].segments.len()).collect();
    order.sort_by(|&a, &b| most(b).total_cmp(&most(a)));
    let hidden = order.len().saturating_sub(MOST_GIVING + MOST_COSTING);
    order.truncate(MOST_GIVING + MOST_COSTING);
    order.sort_unstable();
    let mut table = ModelRows::new("part", &frame.models);
    for index in order {
        let text = &measured[0].asked.segments[index].text;
        table.row(format!("{} {}", index + 1, shortened(text, LETTERS)), |model| {
            let numbers = measured.iter().find(|numbers| numbers.model == *model);
            let gives = numbers.and_then(|numbers| Some((numbers, of(numbers, index)?)));
            gives.map_or_else(Cell::none, |(numbers, gives)| {
                let mark = if gives.abs() < numbers.floor() { "·" } else { "" };
                Cell::number(Some(gives), |gives| format!("{mark}{}", nats(gives)))
            })
        });
    }
    if hidden > 0 {
        table.row(format!("{hidden} others, less"), |_| Cell::words("·"));
    }
    table.table("segments")
}

/// A bar to the right for what helps and to the left for what costs; a dot below the floor.
fn bar(gives_nats: f64, floor: f64, scale: f64) -> String {
    let [left, right] = BARS;
    if gives_nats.abs() < floor {
        return format!("{}·", " ".repeat(left));
    }
    let eighths = |room: usize| (gives_nats.abs().min(scale) / scale * 8.0 * room as f64).round().max(1.0) as usize;
    if gives_nats < 0.0 {
        let halves = (eighths(left) / 4).clamp(1, 2 * left);
        let half = if halves % 2 == 1 { "▐" } else { "" };
        let bar = format!("{half}{}", "█".repeat(halves / 2));
        return format!("{}{bar}", " ".repeat(left - bar.chars().count()));
    }
    let eighths = eighths(right).min(8 * right);
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{}{rest}", " ".repeat(left), "█".repeat(eighths / 8))
}

/// The beginning of a text in one line.
fn shortened(text: &str, letters: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(letters) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

fn of_questions(frame: &Frame) -> Screen {
    let contexts = &frame.found.contexts;
    let passages: usize = contexts.iter().map(|context| context.segments.len()).sum();
    let table = SideBySide::of("contexts", "What passages give answers, in nats", &SUMMARY).table(frame);
    let tables: Vec<ScreenTable> = table
        .into_iter()
        .map(|table| ScreenTable {
            shared: vec![plural(contexts.len(), "question"), plural(passages, "passage")],
            ..table
        })
        .collect();
    let mut notes: Vec<String> = note_on_changes(frame).into_iter().collect();
    notes.push(format!(
        "Negative: costs the answer. Harms: takes half of its odds or more ({HALF_ODDS:.1} of log-odds). Together: all that are not right."
    ));
    notes.extend(most_harmed(frame));
    Screen { tables, notes, ..Screen::default() }
}

/// The passages of the first model that take most of the answer's odds.
fn most_harmed(frame: &Frame) -> Option<String> {
    let model = frame.models.first()?;
    let mut worst: Vec<(f64, &str, usize)> = Vec::new();
    for asked in &frame.found.contexts {
        let Some(numbers) = TextNumbers::of(frame, model, asked) else { continue };
        let others = numbers.segments.iter().filter(|of| asked.segments[of.index].kind != SegmentKind::Right);
        worst.extend(others.filter_map(|of| Some((of.gives_log_odds?, asked.id.as_str(), of.index + 1))));
    }
    worst.retain(|(odds, ..)| *odds <= -HALF_ODDS);
    worst.sort_by(|a, b| a.0.total_cmp(&b.0));
    let named: Vec<String> = worst.iter().take(3).map(|(_, id, place)| format!("{id} passage {place}")).collect();
    let model = frame.short_names.name(model);
    (!named.is_empty()).then(|| format!("Most to {model}: {}.", named.join(", ")))
}

/// Every segment of every text: what it gives, in which reading.
fn segments(frame: &Frame) -> Option<Table> {
    let mut rows: Vec<(&str, &AskedContext, SegmentNumbers)> = Vec::new();
    for asked in &frame.found.contexts {
        for model in &frame.models {
            let Some(numbers) = TextNumbers::of(frame, model, asked) else { continue };
            rows.extend(
                numbers.segments.into_iter().filter(|of| of.gives_nats.is_some()).map(|of| (model.as_str(), asked, of)),
            );
        }
    }
    let number = |x: Option<f64>| Cell::number(x, |x| format!("{:+.2}", unsigned_zero(x, 2)));
    TableRows::of(&rows)
        .column(key_column(Column::Model), |(model, ..)| Cell::words(*model))
        .column(words("question").named("id").key(), |(_, asked, _)| Cell::words(&asked.id))
        .column(numbers("segment").key(), |(.., of)| Cell::count(of.index + 1))
        .column(words("kind"), |(_, asked, of)| {
            let kind = asked.segments[of.index].kind;
            Cell::optional_words((kind != SegmentKind::Unknown).then(|| kind.name()))
        })
        .column(numbers_in("gives", "nats").named(GIVES.name), |(.., of)| number(of.gives_nats))
        .column(numbers_in("gives", "log-odds").named(GIVES_LOG_ODDS.name), |(.., of)| number(of.gives_log_odds))
        .column(numbers_in("spread", "nats").named(GIVES_SPREAD.name), |(.., of)| {
            Cell::number(of.spread_nats, |x| format!("{x:.2}"))
        })
        .column(numbers_in("alone", "nats").named(ALONE.name), |(.., of)| number(of.alone_nats))
        .column(numbers_in("through others", "nats").named(THROUGH_OTHERS.name), |(.., of)| number(of.through_nats))
        .column(numbers_in("in output", "%").named(SEGMENT_SHARE.name), |(.., of)| {
            Cell::number(of.share, |share| format!("{:.1}", 100.0 * share))
        })
        .column(words("text"), |(_, asked, of)| Cell::words(shortened(&asked.segments[of.index].text, 60)))
        .noted("What the answer's log-probability is with the segment less without it, and other readings of the same.")
        .trimmed()
}

/// Every text: its question, and what models say.
fn texts(frame: &Frame) -> Option<Table> {
    let mut rows: Vec<(&AskedContext, TextNumbers<'_>)> = Vec::new();
    for asked in &frame.found.contexts {
        rows.extend(frame.models.iter().filter_map(|model| Some((asked, TextNumbers::of(frame, model, asked)?))));
    }
    let log_prob = |x: Option<f64>| Cell::number(x, |x| format!("{x:.2}"));
    TableRows::of(&rows)
        .column(key_column(Column::Model), |(_, of)| Cell::words(of.model))
        .column(words("question").named("id").key(), |(asked, _)| Cell::words(&asked.id))
        .column(counts("segment"), |(asked, _)| Cell::count(asked.segments.len()))
        .column(words("asked"), |(asked, _)| Cell::words(shortened(&asked.question, 40)))
        .column(words("answer"), |(_, of)| Cell::words(shortened(of.asked.scored(of.model), 30)))
        .column(words("says"), |(_, of)| Cell::optional_words(of.said().map(|said| shortened(said, 40))))
        .column(numbers_in("answer", "nats").named(ANSWER_LOG_PROB.name), |(_, of)| {
            log_prob(of.number(&ANSWER_LOG_PROB, None))
        })
        .column(numbers("without worst"), |(_, of)| log_prob(of.number(&LOG_PROB_WITHOUT, Some("worst"))))
        .column(numbers("without harmful"), |(_, of)| log_prob(of.number(&LOG_PROB_WITHOUT, Some("harmful"))))
        .column(numbers("without any"), |(_, of)| log_prob(of.number(&LOG_PROB_WITHOUT, Some("all"))))
        .column(numbers("floor"), |(_, of)| log_prob(of.number(&CONTEXT_FLOOR, None)))
        .noted("Log-probability of the answer, in nats: with the text, and without parts of it.")
        .trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_go_to_the_side_of_their_sign_and_dots_say_nothing() {
        assert_eq!(bar(5.0, 0.5, 5.0), "    ████████");
        assert_eq!(bar(-5.0, 0.5, 5.0), "████");
        assert_eq!(bar(-0.7, 0.5, 5.0), "   ▐");
        assert_eq!(bar(0.6, 0.5, 5.0), "    █");
        assert_eq!(bar(-0.4, 0.5, 5.0), "    ·");
        assert_eq!(bar(12.0, 0.5, 4.6), bar(4.6, 0.5, 4.6), "what is beyond the scale ends with it");
    }

    #[test]
    fn probabilities_have_two_digits() {
        let words = [1.0, 0.5, 0.033, 0.00006, 7e-6, 1e-9].map(|p: f64| percent(p.ln()));
        assert_eq!(words, ["100 %", "50 %", "3.3 %", "0.0060 %", "0.00070 %", "1e-7 %"]);
    }

    #[test]
    fn long_texts_are_cut_at_letters() {
        assert_eq!(shortened("河很宽。你\n看见船了吗？", 4), "河很宽。…");
        assert_eq!(shortened(" a  b ", 4), "a b");
    }
}
