//! Tables of what was pooled over prompts: outliers, in all and by layer.

use super::data::{condition, Condition, Data};
use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use crate::record::Record;

/// Names of metrics for people, and how they are shown; others keep their own.
const NAMES: &[(&str, &str, Kind)] = &[
    ("top_1", "top-1", Kind::Number),
    ("top_2", "top-2", Kind::Number),
    ("top_3", "top-3", Kind::Number),
    ("top_10", "top-10", Kind::Number),
    ("top_100", "top-100", Kind::Number),
    ("top_1_over_median", "top-1/median", Kind::Number),
    ("share_beyond_6_sigma", "beyond 6 sigma %", Kind::Share),
    ("inf_norm_max", "inf-norm", Kind::Number),
];

/// The table over all layers and the one by layer, if the run pooled anything.
pub(super) fn sheets(data: &Data<'_>) -> Vec<Sheet> {
    let note = "Magnitudes pooled over all prompts: top-k exact, medians from a histogram.".to_owned();
    let all = Sheet { id: "outliers", title: "Outliers", note, columns: Vec::new(), rows: Vec::new(), detail: false };
    let by_layer =
        Sheet { id: "outliers-by-layer", title: "Outliers by layer", note: String::new(), detail: true, ..all.clone() };
    let of = |layers: bool| {
        let wanted = move |record: &&Record| record.measure.layer.is_some() == layers && record.measure.head.is_none();
        data.pooled.iter().copied().filter(wanted).collect::<Vec<&Record>>()
    };
    [filled(all, &of(false)), filled(by_layer, &of(true))].into_iter().flatten().collect()
}

/// What a row is about.
#[derive(Clone, PartialEq)]
struct Place<'a> {
    model: &'a str,
    ctx_tok: usize,
    condition: Condition,
    region: Option<&'a str>,
    layer: Option<usize>,
}

impl<'a> Place<'a> {
    fn of(record: &'a Record) -> Self {
        let (id, measure) = (&record.identity, &record.measure);
        let region = measure.region.as_deref();
        Self { model: &id.model, ctx_tok: id.ctx_tok, condition: condition(record), region, layer: measure.layer }
    }
}

/// The records as a table: a row for each place, a column for each metric, both in the order they first appeared.
fn filled(sheet: Sheet, records: &[&Record]) -> Option<Sheet> {
    let (mut places, mut metrics): (Vec<(Place<'_>, Vec<&Record>)>, Vec<&str>) = (Vec::new(), Vec::new());
    for &record in records {
        let place = Place::of(record);
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, of_place)) => of_place.push(record),
            None => places.push((place, vec![record])),
        }
        let metric = record.measure.metric.as_ref();
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let conditions: Vec<Condition> = places.iter().map(|(place, _)| place.condition.clone()).collect();
    let treated = conditions.iter().any(|condition| condition.name.is_some());
    let mut columns = vec![words("model"), numbers("tokens"), words("of"), numbers("layer")];
    columns.extend(treated.then(|| words("condition")));
    columns.extend(metrics.iter().map(|metric| column(metric)));
    let row = |(place, records): &(Place<'_>, Vec<&Record>)| {
        let of = place.region.map_or_else(Cell::none, Cell::words);
        let mut cells = vec![Cell::words(place.model), Cell::count(Some(place.ctx_tok)), of, Cell::count(place.layer)];
        cells.extend(treated.then(|| Cell::words(place.condition.name())));
        cells.extend(metrics.iter().map(|metric| cell(metric, records)));
        cells
    };
    let rows = places.iter().map(row).collect();
    Sheet { columns, rows, ..sheet }.trimmed()
}

fn known(metric: &str) -> Option<(&'static str, Kind)> {
    NAMES.iter().find(|(name, ..)| *name == metric).map(|&(_, heading, kind)| (heading, kind))
}

fn column(metric: &str) -> Column {
    numbers(known(metric).map_or(metric, |(heading, _)| heading))
}

fn cell(metric: &str, records: &[&Record]) -> Cell {
    let found = records.iter().find(|record| record.measure.metric == metric).and_then(|record| record.measure.value);
    let kind = known(metric).map_or(Kind::Number, |(_, kind)| kind);
    match found {
        None => Cell::none(),
        Some(x) if metric == "massive" => Cell::count(Some(x)),
        Some(x) => Cell::estimate(kind, x, None),
    }
}
