//! Tables of outliers, which are pooled over prompts: over all layers, and channels with massive activations.

use crate::results::record::Record;
use crate::results::run_table::{Content, RunTable};
use crate::results::screen::ModelRows;
use crate::results::table::{key_column, numbers, numbers_in, numbers_of, short, words, Cell, Table, TableRows};
use crate::results::{Frame, MassiveAt};
use names::condition::UNTREATED;
use names::metric::{
    self, kind_of, top_k, Kind, Label, Metric, KURTOSIS, MASSIVE, MEDIAN, OUTLIER_FEATURE, SHARE_BEYOND_6_SIGMA,
    TOP_1_OVER_MEDIAN,
};
use names::Column;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const OUTLIERS: RunTable =
    RunTable { id: "outliers", title: "Outliers", note: "", content: Content::Made(all_layers) };

pub(crate) const CHANNELS: RunTable =
    RunTable { id: "channels", title: "Channels with massive activations", note: "", content: Content::Made(channels) };

/// The table over all layers, if the run pooled anything.
fn all_layers(frame: &Frame) -> Option<Table> {
    let mut note = "Magnitudes over all prompts: top-k exact, medians within 0.4 %.".to_owned();
    for model in &frame.about.models {
        note.extend(model.logit_tap.iter().map(|tap| format!(" Logits of {}: {tap}.", model.name)));
    }
    if frame.found.massive.is_empty() {
        note += " No massive activations (|x| > 100 and at least 1000 times the layer's median).";
    }
    filled(frame, note)
}

/// The table of channels that have massive activations, and whether these belong to single tokens.
fn channels(frame: &Frame) -> Option<Table> {
    let mut of_channels: BTreeMap<(&str, usize), Vec<&MassiveAt>> = BTreeMap::new();
    for at in &frame.found.massive {
        of_channels.entry((&at.model, at.channel)).or_default().push(at);
    }
    let mut channels: Vec<_> = of_channels.into_iter().collect();
    channels.sort_by(|(a, one), (b, other)| a.0.cmp(b.0).then(largest(other).total_cmp(&largest(one))));
    let note = format!(
        "Large: at least 1000 times the median of the layer, in the layer where most tokens \
         are. An outlier feature is large on at least {:.0} % of all tokens.",
        100.0 * OUTLIER_FEATURE
    );
    TableRows::of(&channels)
        .column(key_column(Column::Model), |((model, _), _)| Cell::words(*model))
        .column(numbers("channel").key(), |((_, channel), _)| Cell::count(channel))
        .column(words("kind"), |(_, all)| {
            let is_feature = large_share(all).map(|share| share >= OUTLIER_FEATURE);
            Cell::optional_words(is_feature.map(|is| if is { "outlier feature" } else { "single tokens" }))
        })
        .column(numbers("first layer").named("first_layer"), |(_, all)| {
            Cell::optional(all.iter().map(|at| at.layer).min())
        })
        .column(numbers("last layer").named("last_layer"), |(_, all)| {
            Cell::optional(all.iter().map(|at| at.layer).max())
        })
        .column(numbers(MASSIVE.name), |(_, all)| Cell::count(all.len()))
        .column(numbers("tokens").named("massive_tokens"), |(_, all)| {
            Cell::count(all.iter().map(|at| (at.sample, at.position)).collect::<BTreeSet<_>>().len())
        })
        .column(numbers_in("large on", "%").named("large_share"), |(_, all)| {
            Cell::value(Kind::Share, large_share(all), None)
        })
        .column(numbers("largest"), |(_, all)| Cell::number(Some(largest(all).into()), |x| short(Some(x))))
        .noted(note)
        .trimmed()
}

fn largest(activations: &[&MassiveAt]) -> f32 {
    activations.iter().map(|at| at.value.abs()).fold(0.0, f32::max)
}

fn large_share(activations: &[&MassiveAt]) -> Option<f64> {
    activations.iter().filter_map(|at| at.large_share).reduce(f64::max)
}

/// Tabulates the records over all layers: a row for each place, a column for each metric, both in the order they first
/// appeared.
fn filled(frame: &Frame, note: String) -> Option<Table> {
    let mut places: Vec<Vec<&Record>> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for record in frame.pooled.iter().filter(|record| record.measure.layer.or(record.measure.head).is_none()) {
        match places.iter_mut().find(|records| place(records[0]) == place(record)) {
            Some(records) => records.push(record),
            None => places.push(vec![record]),
        }
        let metric = record.measure.metric.as_ref();
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let treated = places.iter().any(|records| records[0].identity.condition.is_some());
    let mut table = TableRows::of(&places)
        .column(key_column(Column::Model), |records| Cell::words(&records[0].identity.model))
        .column(key_column(Column::CtxTok), |records| Cell::count(records[0].identity.ctx_tok))
        .column(words("of").key(), |records| Cell::optional_words(records[0].measure.region.as_deref()))
        .column(numbers("numbers").key(), |records| Cell::optional(records[0].measure.n))
        .column_if(treated, key_column(Column::Condition), |records| {
            Cell::words(records[0].identity.condition.as_deref().unwrap_or(UNTREATED))
        });
    for metric in metrics {
        // The region has a column of its own.
        let column = numbers_of(Label::named(metric, None, None)).named(metric);
        let kind = metric::find(metric).map_or(Kind::Number, |metric| metric.kind);
        table = table.column(column, |records| {
            let record = records.iter().find(|record| record.measure.metric == metric);
            Cell::value(kind, record.and_then(|record| record.measure.value), None)
        });
    }
    table.noted(note).trimmed()
}

/// Metrics of a screen, besides the largest magnitude.
const ON_SCREEN: [&Metric; 4] = [&MEDIAN, &TOP_1_OVER_MEDIAN, &KURTOSIS, &SHARE_BEYOND_6_SIGMA];

/// The untreated numbers over all layers with a column for each model: a part for each place.
pub(crate) fn side_by_side(frame: &Frame) -> Option<Table> {
    let untreated: Vec<&Record> = frame.pooled.iter().filter(|record| is_untreated_whole(record)).collect();
    let largest = top_k(1);
    let mut table = ModelRows::new("", &frame.models);
    for (place, title) in [("logits", "attention logits, top 1"), ("hidden", "hidden states, top 1")] {
        let metrics = ON_SCREEN.map(|metric| (format!("  {}", metric.label), metric.name));
        for (label, metric) in [(title.to_owned(), largest.as_str())].into_iter().chain(metrics) {
            table.row(label, |model| {
                let is_it = |record: &&&Record| {
                    record.identity.model == *model
                        && record.measure.region.as_deref() == Some(place)
                        && record.measure.metric == metric
                };
                let record = untreated.iter().find(is_it);
                Cell::value(kind_of(metric), record.and_then(|record| record.measure.value), None)
            });
        }
    }
    table.table("outliers")
}

fn is_untreated_whole(record: &Record) -> bool {
    record.identity.condition.is_none() && record.measure.layer.is_none() && record.measure.head.is_none()
}

/// The columns that tell rows apart.
fn place(record: &Record) -> (&str, usize, Option<&str>, Option<&str>) {
    let Record { identity, measure } = record;
    (&identity.model, identity.ctx_tok, identity.condition.as_deref(), measure.region.as_deref())
}
