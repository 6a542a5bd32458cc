//! Tables of what was pooled over prompts: outliers, in all and by layer.

use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use crate::frame::{ConditionKey, Frame};
use crate::measure::MassiveAt;
use crate::record::Record;
use crate::table::short;

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

/// The table over all layers, the one by layer, and massive activations, if the run pooled anything.
pub(super) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let note = || "Magnitudes pooled over all prompts: top-k exact, medians within 0.4 %.".to_owned();
    let of = |layers: bool| {
        let wanted = move |record: &&Record| record.measure.layer.is_some() == layers && record.measure.head.is_none();
        frame.pooled.iter().filter(wanted).collect::<Vec<&Record>>()
    };
    let mut all = filled("outliers", "Outliers", note(), &of(false));
    if let Some(sheet) = &mut all {
        for model in &frame.about.models {
            let tap = model.logit_tap.iter().map(|tap| format!(" Logits of {}: {tap}.", model.name));
            sheet.note.extend(tap);
        }
        if frame.massive.is_empty() {
            sheet.note += " No massive activations (|x| > 100 and at least 1000 times the layer's median).";
        }
    }
    let by_layer = filled("outliers-by-layer", "Outliers by layer", String::new(), &of(true)).map(Sheet::details);
    [all, by_layer, massive(frame)].into_iter().flatten().collect()
}

/// Massive activations that are listed; the file has all.
const MASSIVE: usize = 10;

fn massive(frame: &Frame) -> Option<Sheet> {
    let mut largest: Vec<&MassiveAt> = frame.massive.iter().collect();
    largest.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()));
    let row = |at: &&MassiveAt| {
        vec![
            Cell::words(&at.model),
            Cell::count(Some(at.layer)),
            Cell::count(Some(at.sample)),
            Cell::count(Some(at.position)),
            Cell::words(format!("{:?}", at.token)),
            Cell::count(Some(at.channel)),
            Cell::number(Some(f64::from(at.value)), |x| short(Some(x))),
            Cell::words(if at.sink { "yes" } else { "no" }),
        ]
    };
    let columns = vec![
        words("model"),
        numbers("layer"),
        numbers("window").named("sample"),
        numbers("position"),
        words("token"),
        numbers("channel"),
        numbers("value"),
        words("sink"),
    ];
    let note = format!("The largest {MASSIVE} of {}; massive.csv has all.", frame.massive.len());
    let rows = largest.iter().take(MASSIVE).map(row).collect();
    Sheet::new("massive", "Massive activations", note, columns, rows).trimmed()
}

/// What a row is about.
#[derive(Clone, PartialEq)]
struct Place<'a> {
    model: &'a str,
    ctx_tok: usize,
    treated: ConditionKey,
    region: Option<&'a str>,
    layer: Option<usize>,
}

impl<'a> Place<'a> {
    fn of(record: &'a Record) -> Self {
        let (id, measure) = (&record.identity, &record.measure);
        let region = measure.region.as_deref();
        Self { model: &id.model, ctx_tok: id.ctx_tok, treated: ConditionKey::of(id), region, layer: measure.layer }
    }
}

/// The records as a table: a row for each place, a column for each metric, both in the order they first appeared.
fn filled(id: &'static str, title: &'static str, note: String, records: &[&Record]) -> Option<Sheet> {
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
    let treated = places.iter().any(|(place, _)| place.treated.condition.is_some());
    let mut columns = vec![words("model"), numbers("tokens"), words("of"), numbers("layer"), numbers("numbers")];
    columns.extend(treated.then(|| words("condition")));
    let mut columns: Vec<Column> = columns.into_iter().map(Column::key).collect();
    columns.extend(metrics.iter().map(|metric| column(metric)));
    let row = |(place, records): &(Place<'_>, Vec<&Record>)| {
        let of = place.region.map_or_else(Cell::none, Cell::words);
        let mut cells = vec![Cell::words(place.model), Cell::count(Some(place.ctx_tok)), of, Cell::count(place.layer)];
        cells.push(Cell::count(records.first().and_then(|record| record.measure.n)));
        cells.extend(treated.then(|| Cell::words(place.treated.name())));
        cells.extend(metrics.iter().map(|metric| cell(metric, records)));
        cells
    };
    let rows = places.iter().map(row).collect();
    Sheet::new(id, title, note, columns, rows).trimmed()
}

fn known(metric: &str) -> Option<(&'static str, Kind)> {
    NAMES.iter().find(|(name, ..)| *name == metric).map(|&(_, heading, kind)| (heading, kind))
}

fn column(metric: &str) -> Column {
    numbers(known(metric).map_or(metric, |(heading, _)| heading)).named(metric)
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
