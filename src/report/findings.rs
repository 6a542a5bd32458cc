//! What was found, in words: the differences that are told from chance, and those that are not, by name.

use crate::compare::{Comparison, Field, Row};
use crate::frame::{setting_name, Frame, Setting};
use crate::stats::Interval;
use crate::table::plural;
use crate::tables::{headlines, Sheet, Spoken, Versus};

/// Findings that are told in words; the tables have all.
const MOST: usize = 12;

/// How one thing differs from another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// What is compared, on what.
    pub(super) subject: String,
    /// Differences whose interval excludes 0.
    pub(super) decided: Vec<String>,
    /// Those whose interval holds 0, or that have none.
    pub(super) undecided: Vec<String>,
}

/// What was found, and how much more there is in the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// In the order of the tables.
    pub(super) list: Vec<Finding>,
    /// Findings beyond those.
    pub(super) more: usize,
    /// What a reader should know: rows of tables that have a remark.
    pub(super) remarks: Vec<String>,
}

impl Findings {
    /// What a run found. Its models differ on the same prompts; a condition differs from the untreated pass.
    pub(super) fn of_run(frame: &Frame, sheets: &[Sheet]) -> Self {
        let all = headlines(frame);
        let remarks = sheets.iter().flat_map(remarks).collect();
        let list = all.iter().take(MOST).map(Finding::of_cases).collect();
        Self { list, more: all.len().saturating_sub(MOST), remarks }
    }

    /// What a comparison found: a finding for each pair and group.
    pub fn of_comparison(comparison: &Comparison) -> Self {
        let mut list: Vec<Finding> = Vec::new();
        for row in &comparison.rows {
            let group = group_words(row);
            let subject = format!("{} against {}{group}, {}", row.other, row.baseline, plural(row.n, "prompt"));
            let at = list.iter().position(|finding| finding.subject == subject).unwrap_or_else(|| {
                list.push(Finding { subject, decided: Vec::new(), undecided: Vec::new() });
                list.len() - 1
            });
            let quantity = Spoken::of(&row.metric, row.region.as_deref(), row.unit.as_deref());
            let interval = row.lo.zip(row.hi).map(|(lo, hi)| Interval { lo, hi });
            let words = quantity.difference(row.diff, interval);
            list[at].add(&quantity.name, row.diff, interval, &words);
        }
        let more = list.len().saturating_sub(MOST);
        list.truncate(MOST);
        Self { list, more, remarks: Vec::new() }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.remarks.is_empty()
    }
}

impl Finding {
    fn of_cases(versus: &Versus) -> Self {
        let (setting, prompts) = (setting_words(versus.of.setting), plural(versus.prompts, "prompt"));
        let subject = format!("{} against {}, {setting}, {prompts}", versus.name, versus.baseline);
        let mut finding = Self { subject, decided: Vec::new(), undecided: Vec::new() };
        for headline in &versus.headlines {
            let words = headline.quantity.difference(headline.difference, headline.interval);
            finding.add(&headline.quantity.name, headline.difference, headline.interval, &words);
        }
        finding
    }

    /// Takes in a difference, as decided or not.
    fn add(&mut self, quantity: &str, diff: f64, interval: Option<Interval>, words: &str) {
        if interval.is_some_and(|i| i.side() != 0) {
            let side = if diff > 0.0 { "higher" } else { "lower" };
            self.decided.push(format!("{side} {quantity}: {words}"));
        } else {
            self.undecided.push(format!("{quantity}: {words}"));
        }
    }

    /// `higher accuracy: +20.0 points [+5.0, +40.0]; undecided: …`.
    pub(super) fn words(&self) -> String {
        let mut parts = self.decided.clone();
        if !self.undecided.is_empty() {
            parts.push(format!("undecided: {}", self.undecided.join("; ")));
        }
        parts.join("; ")
    }
}

/// What a row of a comparison is of: `, diff, 4096 tokens, N=1 R=1`.
fn group_words(row: &Row) -> String {
    let of = |column: Field| row.group.get(column.name()).filter(|value| *value != "none");
    let number = |name: &str, column: Field| of(column).map(|value| format!("{name}={value}"));
    let asked: Vec<String> =
        [number("N", Field::Needles), number("R", Field::Retrieve)].into_iter().flatten().collect();
    let words = [
        of(Field::Model).cloned(),
        of(Field::CtxTok).map(|tokens| format!("{tokens} tokens")),
        (!asked.is_empty()).then(|| asked.join(" ")),
    ];
    words.into_iter().flatten().map(|words| format!(", {words}")).collect()
}

/// `4096 tokens, N=1 R=1`.
fn setting_words((tokens, needles, asked): Setting) -> String {
    let asked = if needles > 0 { format!(", {}", setting_name(needles, asked)) } else { String::new() };
    format!("{tokens} tokens{asked}")
}

/// The rows of a table that have something said about them: `diff 4096 6 2: accuracy at the floor`.
fn remarks(sheet: &Sheet) -> Vec<String> {
    let Some(at) = sheet.columns.iter().position(|column| column.name == "remark") else { return Vec::new() };
    let said = sheet.rows.iter().filter(|row| !row[at].is_none());
    said.map(|row| format!("{}: {}", sheet.about(row), row[at].text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_decided_if_its_interval_excludes_0_and_has_a_width() {
        let mut finding = Finding { subject: String::new(), decided: Vec::new(), undecided: Vec::new() };
        finding.add("accuracy", 0.2, Some(Interval { lo: 0.05, hi: 0.4 }), "+20 points");
        finding.add("noise", -0.1, Some(Interval { lo: -0.2, hi: 0.0 }), "-10 points");
        finding.add("entropy", -0.1, Some(Interval { lo: -0.1, hi: -0.1 }), "-0.1 nats");
        finding.add("NLL", -0.5, Some(Interval { lo: -0.6, hi: -0.4 }), "-0.5 nats");
        finding.add("loss", 0.5, None, "+0.5");
        assert_eq!(finding.decided, ["higher accuracy: +20 points", "lower NLL: -0.5 nats"]);
        assert_eq!(finding.undecided, ["noise: -10 points", "entropy: -0.1 nats", "loss: +0.5"]);
        assert!(finding.words().ends_with("; undecided: noise: -10 points; entropy: -0.1 nats; loss: +0.5"));
    }
}
