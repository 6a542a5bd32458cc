//! Numbers of runs beside published ones.

use super::sheet::{numbers, words, Sheet, SheetCell, SheetColumn};
use crate::names::{distinct, ShortNames};
use crate::results::{by_place, Beside, Estimate, Frame, Published};

/// A run with its frame, and the name of each model among all runs.
pub(crate) struct NamedModel<'a> {
    /// Heading of its column.
    pub(crate) name: String,
    frame: &'a Frame,
    model: &'a str,
}

impl NamedModel<'_> {
    /// What was measured of the model at a place.
    pub(crate) fn at(&self, beside: &Beside) -> Option<Estimate> {
        beside.of_run(self.frame, self.model)
    }
}

/// The models of runs, with the name of the run where several have a model of that name.
pub(crate) fn models_of<'a>(runs: &'a [(String, Frame)]) -> Vec<NamedModel<'a>> {
    let all: Vec<&String> = runs.iter().flat_map(|(_, frame)| frame.models()).collect();
    let short = ShortNames::of(&all.iter().map(|name| (*name).clone()).collect::<Vec<String>>());
    let of_run = |(run, frame): &'a (String, Frame)| {
        let (all, short) = (&all, &short);
        frame.models().iter().map(move |model| {
            let several = all.iter().filter(|other| **other == model).count() > 1;
            let name = short.name(model);
            NamedModel { name: if several { format!("{name}, {run}") } else { name.to_owned() }, frame, model }
        })
    };
    runs.iter().flat_map(of_run).collect()
}

/// Name of a published model in tables and figures.
pub(crate) fn published_name(model: &str) -> String {
    format!("{model} (published)")
}

/// The places that some model of the runs has a number for.
pub(crate) fn shared_places(models: &[NamedModel<'_>], published: &[Published]) -> Vec<Beside> {
    let has = |beside: &Beside| models.iter().any(|of| of.at(beside).is_some());
    by_place(published).into_iter().filter(has).collect()
}

/// The table: a row for each place, a column for each model. `None` if no run has a number for any place.
pub(crate) fn beside(models: &[NamedModel<'_>], published: &[Published]) -> Option<Sheet> {
    let places = shared_places(models, published);
    let others = distinct(published.iter().map(|number| &number.model));
    let keys = [words("figure"), numbers("bits"), numbers("tokens"), numbers("depth %").named("depth_pct")];
    let mut columns: Vec<SheetColumn> = keys.into_iter().map(SheetColumn::key).collect();
    columns.push(words("metric").key());
    columns.extend(others.iter().map(|model| numbers(published_name(model)).named(published_name(model))));
    columns.extend(models.iter().map(|of| numbers(of.name.clone())));
    let row = |beside: &Beside| {
        let place = &beside.place;
        let kind = beside.metric.kind;
        let mut cells = vec![
            SheetCell::words(&place.figure),
            SheetCell::count(place.bits),
            SheetCell::count(place.ctx_tok),
            SheetCell::count(place.depth_pct),
            SheetCell::words(beside.metric.heading(None)),
        ];
        cells.extend(others.iter().map(|model| {
            let found = beside.published.iter().find(|(of, _)| of == model);
            found.map_or_else(SheetCell::none, |(_, value)| SheetCell::value(kind, *value, None))
        }));
        cells.extend(models.iter().map(|of| {
            let found = of.at(beside);
            found.map_or_else(SheetCell::none, |found| SheetCell::estimate(kind, found))
        }));
        cells
    };
    let figures = distinct(places.iter().map(|beside| format!("{}: {}", beside.place.figure, beside.place.measured)));
    let sources = distinct(published.iter().map(|number| &number.source));
    let note = format!(
        "Other models and other prompts ({}; {}): a line to look at, not to test against. No length: mean over all.",
        figures.join("; "),
        sources.join("; ")
    );
    Sheet::new("published", "Beside published numbers", note, columns, places.iter().map(row).collect()).trimmed()
}
