//! Which layer and heads are drawn.

use crate::attention::Selection;
use crate::bail_usage;
use crate::cli::{HeatmapArgs, MapKind};
use crate::experiment::Setup;
use crate::measure::AnswerMeasure;
use crate::record::Record;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// What is drawn of each model.
pub(super) struct Heads {
    /// Of each model.
    pub(super) selections: Vec<Selection>,
    /// Mean lambda of the target's rows by model, layer and head; nothing for standard attention.
    lambda: BTreeMap<(String, usize, usize), f64>,
}

impl Heads {
    /// The layer and head asked for, or every one, or the layer with the most attention to the answer.
    pub(super) fn find(setup: &Setup, args: &HeatmapArgs) -> Result<Self> {
        check(setup, args)?;
        let mut answer: BTreeMap<(String, usize), f64> = BTreeMap::new();
        let mut lambda = BTreeMap::new();
        let mut see = |record: &Record| {
            let (model, m) = (&record.identity.model, &record.measure);
            let (Some(layer), Some(head), Some(value)) = (m.layer, m.head, m.value) else { return };
            if m.metric == "share_abs" && m.region.as_deref() == Some("answer") {
                *answer.entry((model.clone(), layer)).or_default() += value;
            }
            if m.metric == "lambda" {
                lambda.insert((model.clone(), layer, head), value);
            }
        };
        let cells = setup.grid.cells();
        let mut measure = AnswerMeasure { by_head: true };
        setup.check(&cells, &[&mut measure])?;
        setup.run(&cells, &mut [&mut measure], &AtomicBool::new(false), &mut |_, finding| {
            finding.records.iter().for_each(&mut see);
            Ok(())
        })?;
        let (mut selections, asked) = (Vec::new(), args.run.select());
        for model in &setup.models {
            let config = &model.transformer.config;
            let of_layer = |layer: &usize| answer.get(&(model.name.clone(), *layer)).copied().unwrap_or(0.0);
            let allowed = |layer: &usize| asked.layers.as_ref().is_none_or(|layers| layers.contains(layer));
            // Of a text, where nothing is the answer, the last layer.
            let most = (0..config.layers.len()).filter(allowed).max_by(|a, b| of_layer(a).total_cmp(&of_layer(b)));
            selections.push(if args.grid {
                asked.clone()
            } else {
                let heads = args.head.map(|head| vec![head]).or(asked.heads.clone());
                Selection { layers: args.layer.or(most).map(|layer| vec![layer]), heads }
            });
        }
        Ok(Self { selections, lambda })
    }

    /// Mean lambda over the drawn heads of a layer.
    pub(super) fn lambda(&self, model: &str, layer: usize, selection: &Selection) -> Option<f64> {
        let drawn = |(name, of_layer, head): &(String, usize, usize)| {
            name == model && *of_layer == layer && selection.has(layer, *head)
        };
        let values: Vec<f64> = self.lambda.iter().filter(|(at, _)| drawn(at)).map(|(_, &value)| value).collect();
        crate::stats::mean(&values)
    }
}

/// Whether the models have what is asked for, before anything is run.
fn check(setup: &Setup, args: &HeatmapArgs) -> Result<()> {
    for model in &setup.models {
        let config = &model.transformer.config;
        let heads = config.wiring().heads();
        for (flag, asked, have) in [("--layer", args.layer, config.layers.len()), ("--head", args.head, heads)] {
            if let Some(index) = asked.filter(|&index| index >= have) {
                bail_usage!("{flag} {index}: {} has {}s 0 to {}", model.name, &flag[2..], have - 1);
            }
        }
    }
    if matches!(args.map, MapKind::A2 | MapKind::Logits2) && !setup.has_second_map() {
        bail_usage!("none of these models has a second map: give another --map");
    }
    Ok(())
}
