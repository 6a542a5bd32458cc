//! Tables of outliers, which are pooled over prompts: over all layers, and channels with massive activations.

use crate::results::metric::{self, Kind, Label, MASSIVE, OUTLIER_FEATURE};
use crate::results::record::Record;
use crate::results::table::short;
use crate::results::table::{numbers, words, Cell, Table, TableColumn};
use crate::results::CommandName;
use crate::results::{ConditionKey, Frame, MassiveAt};
use std::collections::{BTreeMap, BTreeSet};

/// The tables beside the main one.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let all_layers = if frame.command() == Some(CommandName::Outliers) { None } else { all_layers(frame) };
    [all_layers, channels(frame)].into_iter().flatten().collect()
}

/// The table over all layers, if the run pooled anything.
pub(super) fn all_layers(frame: &Frame) -> Option<Table> {
    let mut note = "Magnitudes over all prompts: top-k exact, medians within 0.4 %.".to_owned();
    for model in &frame.about.models {
        note.extend(model.logit_tap.iter().map(|tap| format!(" Logits of {}: {tap}.", model.name)));
    }
    if frame.massive.is_empty() {
        note += " No massive activations (|x| > 100 and at least 1000 times the layer's median).";
    }
    filled(frame, note)
}

/// The table of channels that have massive activations, and whether these belong to single tokens.
pub(super) fn channels(frame: &Frame) -> Option<Table> {
    let mut of_channels: BTreeMap<(&str, usize), Vec<&MassiveAt>> = BTreeMap::new();
    for at in &frame.massive {
        of_channels.entry((&at.model, at.channel)).or_default().push(at);
    }
    let mut sorted: Vec<_> = of_channels.into_iter().collect();
    sorted.sort_by(|(a, one), (b, other)| a.0.cmp(b.0).then(largest(other).total_cmp(&largest(one))));
    let rows =
        sorted.iter().map(|&((model, channel), ref activations)| channel_row(model, channel, activations)).collect();
    let columns = vec![
        words("model").key(),
        numbers("channel").key(),
        words("kind"),
        numbers("first layer").named("first_layer"),
        numbers("last layer").named("last_layer"),
        numbers(MASSIVE.name),
        numbers("tokens").named("massive_tokens"),
        numbers("large on %").named("large_share"),
        numbers("largest"),
    ];
    let note = format!(
        "Large: at least 1000 times the median of the layer, in the layer where most tokens \
         are. An outlier feature is large on at least {:.0} % of all tokens.",
        100.0 * OUTLIER_FEATURE
    );
    Table::new("channels", "Channels with massive activations", note, columns, rows).trimmed()
}

fn largest(activations: &[&MassiveAt]) -> f32 {
    activations.iter().map(|at| at.value.abs()).fold(0.0, f32::max)
}

fn channel_row(model: &str, channel: usize, activations: &[&MassiveAt]) -> Vec<Cell> {
    let layers: BTreeSet<usize> = activations.iter().map(|at| at.layer).collect();
    let tokens: BTreeSet<(usize, usize)> = activations.iter().map(|at| (at.sample, at.position)).collect();
    let large_share = activations.iter().filter_map(|at| at.large_share).reduce(f64::max);
    let kind = large_share.map(|share| if share >= OUTLIER_FEATURE { "outlier feature" } else { "single tokens" });
    vec![
        Cell::words(model),
        Cell::count(channel),
        kind.map_or_else(Cell::none, Cell::words),
        Cell::optional(layers.first().copied()),
        Cell::optional(layers.last().copied()),
        Cell::count(activations.len()),
        Cell::count(tokens.len()),
        large_share.map_or_else(Cell::none, |share| Cell::value(Kind::Share, share, None)),
        Cell::number(Some(f64::from(largest(activations))), |x| short(Some(x))),
    ]
}

/// The keys of a row.
#[derive(Clone, PartialEq)]
struct OutlierKey<'a> {
    model: &'a str,
    ctx_tok: usize,
    treated: ConditionKey,
    region: Option<&'a str>,
}

impl<'a> OutlierKey<'a> {
    fn of(record: &'a Record) -> Self {
        let (id, measure) = (&record.identity, &record.measure);
        let region = measure.region.as_deref();
        Self { model: &id.model, ctx_tok: id.ctx_tok, treated: ConditionKey::of(id), region }
    }
}

/// Tabulates the records over all layers: a row for each place, a column for each metric, both in the order they first
/// appeared.
fn filled(frame: &Frame, note: String) -> Option<Table> {
    let (mut places, mut metrics): (Vec<(OutlierKey<'_>, Vec<&Record>)>, Vec<&str>) = (Vec::new(), Vec::new());
    for record in &frame.pooled {
        if record.measure.layer.is_some() || record.measure.head.is_some() {
            continue;
        }
        let place = OutlierKey::of(record);
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, records)) => records.push(record),
            None => places.push((place, vec![record])),
        }
        let metric = record.measure.metric.as_ref();
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let treated = places.iter().any(|(place, _)| place.treated.condition.is_some());
    let mut columns = vec![words("model"), numbers("tokens"), words("of"), numbers("numbers")];
    columns.extend(treated.then(|| words("condition")));
    let mut columns: Vec<TableColumn> = columns.into_iter().map(TableColumn::key).collect();
    columns.extend(metrics.iter().map(|metric| column(metric)));
    let mut rows = Vec::new();
    for (place, records) in &places {
        let mut row = vec![
            Cell::words(place.model),
            Cell::count(place.ctx_tok),
            place.region.map_or_else(Cell::none, Cell::words),
            Cell::optional(records.first().and_then(|record| record.measure.n)),
        ];
        row.extend(treated.then(|| Cell::words(place.treated.name())));
        row.extend(metrics.iter().map(|metric| cell(metric, records)));
        rows.push(row);
    }
    Table::new("outliers", "Outliers", note, columns, rows).trimmed()
}

fn column(name: &str) -> TableColumn {
    // The region has a column of its own.
    numbers(Label::named(name, None, None).heading()).named(name)
}

fn cell(name: &str, records: &[&Record]) -> Cell {
    let value = records.iter().find(|record| record.measure.metric == name).and_then(|record| record.measure.value);
    let kind = metric::find(name).map_or(Kind::Number, |metric| metric.kind);
    value.map_or_else(Cell::none, |value| Cell::value(kind, value, None))
}
