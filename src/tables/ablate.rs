//! What noise and heads cost: conditions against the untreated passes, on the same prompts.

mod effects;
mod findings;

pub(crate) use effects::{Delta, Effect, Effects, Knockout};

use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use crate::frame::{Frame, Setting};
use crate::treatment::UNTREATED;
use effects::Contrast;

/// What was found in words, and the tables that it was found in.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let effects = Effects::new(frame);
    let tables = [conditions(&effects.conditions), knockouts(&effects.heads), contrasts(&effects.contrasts)];
    tables.into_iter().flatten().chain(findings(&effects)).collect()
}

/// Where the numbers of a row are from.
fn place(model: &str, (tokens, needles, retrieve): Setting) -> Vec<Cell> {
    let numbers = [tokens, needles, retrieve].map(|n| Cell::count(Some(n)));
    [vec![Cell::words(model)], numbers.into()].concat()
}

fn places(heading: &str) -> Vec<Column> {
    [words(heading), numbers("tokens"), numbers("N"), numbers("R")].map(Column::key).into()
}

impl Delta {
    /// -1 or 1 where the interval decides that there is a difference, 0 where it does not.
    fn sign(self) -> i32 {
        self.interval().side()
    }

    /// Whether nothing in the interval is larger than that, in either direction.
    fn is_within(self, bound: f64) -> bool {
        !self.interval().is_point() && self.lo > -bound && self.hi < bound
    }

    /// In percentage points, or in its own unit.
    fn cell(self, kind: Kind) -> Cell {
        Cell::difference(kind, self.difference, Some(self.interval()))
    }
}

/// `-3.10 [-3.50, -2.71]`.
fn nats(delta: Delta) -> String {
    delta.cell(Kind::Number).line()
}

fn conditions(effects: &[Effect]) -> Option<Sheet> {
    let changes = [
        numbers("accuracy %").named("exact"),
        numbers("change, points").named("exact_change"),
        numbers("change, nats").named("answer_log_prob_change"),
    ];
    let condition = [words("condition"), numbers("prompts")].map(Column::key);
    let columns = [places("model"), condition.into(), changes.into()].concat();
    let row = |effect: &Effect, name: &str, treated: bool| {
        let accuracy = if treated { &effect.accuracy } else { &effect.untreated_accuracy };
        // Its interval is left to programs: what counts is the change.
        let plain = |cell: Cell| Cell { aside: String::new(), ..cell };
        let hits = accuracy.fraction.map(|x| plain(Cell::estimate(Kind::Hits, x, Some(accuracy.interval()))));
        let change = |delta: Delta, kind| if treated { delta.cell(kind) } else { Cell::none() };
        let numbers = vec![
            Cell::words(name),
            Cell::count(Some(effect.prompts)),
            hits.unwrap_or_else(Cell::none),
            change(effect.exact, Kind::Hits),
            change(effect.log_prob_nats, Kind::Number),
        ];
        [place(&effect.model, effect.setting), numbers].concat()
    };
    let mut rows = Vec::new();
    for group in effects.chunk_by(|a, b| (&a.model, a.setting) == (&b.model, b.setting)) {
        rows.push(row(&group[0], UNTREATED, false));
        rows.extend(group.iter().map(|effect| row(effect, &effect.condition, true)));
    }
    let note =
        "The same prompts under each condition: accuracy, and its change from the untreated passes in points and that of \
         the answer's log-probability in nats, paired by prompt [95 % bootstrap interval].";
    Sheet::new("conditions", "What conditions cost", note.to_owned(), columns, rows).trimmed()
}

fn knockouts(heads: &[Knockout]) -> Option<Sheet> {
    let changes = [
        numbers("best, points").named("best_exact_change"),
        numbers("random, points").named("random_exact_change"),
        numbers("best, nats").named("best_log_prob_change"),
        numbers("random, nats").named("random_log_prob_change"),
        numbers("best - random, nats").named("best_less_random_log_prob"),
    ];
    let counts = [numbers("heads out").named("n"), words("by"), numbers("draws"), numbers("prompts")];
    let columns = [places("model"), counts.map(Column::key).into(), changes.into()].concat();
    let row = |knockout: &Knockout| {
        let (best, random) = (&knockout.best, knockout.random.as_ref());
        let of = |delta: Option<Delta>, kind| delta.map_or_else(Cell::none, |delta| delta.cell(kind));
        let numbers = vec![
            Cell::count(Some(knockout.n)),
            Cell::words(knockout.by),
            Cell::count(random.map(|random| random.draws)),
            Cell::count(Some(best.prompts)),
            best.exact.cell(Kind::Hits),
            of(random.map(|random| random.exact), Kind::Hits),
            best.log_prob_nats.cell(Kind::Number),
            of(random.map(|random| random.log_prob_nats), Kind::Number),
            of(knockout.best_less_random, Kind::Number),
        ];
        [place(&best.model, best.setting), numbers].concat()
    };
    let note = "The same prompts without the best heads of a ranking, which is made on prompts of its own, and without as \
                many others of the same layers (of others where a layer has no more), mean over draws: paired differences of accuracy and of the answer's \
                log-probability from the untreated passes [95 % bootstrap interval].";
    let rows = heads.iter().map(row).collect();
    Sheet::new("heads-out", "What heads are worth", note.to_owned(), columns, rows).trimmed()
}

fn contrasts(contrasts: &[Contrast]) -> Option<Sheet> {
    let changes = [numbers("points").named("exact_change"), numbers("nats").named("answer_log_prob_change")];
    let condition = [words("condition"), numbers("prompts")].map(Column::key);
    let columns = [places("difference"), condition.into(), changes.into()].concat();
    let row = |contrast: &Contrast| {
        let numbers = vec![
            Cell::words(&contrast.condition),
            Cell::count(Some(contrast.prompts)),
            contrast.exact.cell(Kind::Hits),
            contrast.log_prob_nats.cell(Kind::Number),
        ];
        let name = format!("{} - {}", contrast.model, contrast.baseline);
        [place(&name, contrast.setting), numbers].concat()
    };
    let note =
        "What a condition changes in one model, less what it changes in the other, prompt by prompt [95 % bootstrap \
                interval].";
    let rows = contrasts.iter().map(row).collect();
    Sheet::new("contrasts", "Do conditions cost one model more?", note.to_owned(), columns, rows).trimmed()
}

fn findings(effects: &Effects) -> Option<Sheet> {
    let rows: Vec<Vec<Cell>> = findings::words(effects).into_iter().map(|words| vec![Cell::words(words)]).collect();
    let sheet = Sheet::new("findings", "What was found", String::new(), vec![words("finding")], rows);
    (!sheet.rows.is_empty()).then_some(sheet)
}
