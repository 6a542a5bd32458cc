//! `maps.png`: the effective maps of the heads that the page shows first.

use crate::commands::heatmap::bins;
use crate::explore::{ExploreMeasure, ModelMaps};
use crate::measures::PassKey;
use crate::run::Run;
use anyhow::Result;
use names::metric::SHARE_OUT;
use names::Region;
use plot::{maps, ColourScale, MapPanel, MapPanels, TokenAxis};

/// Maps of a single model; several models have one each.
const OF_ONE_MODEL: usize = 2;
/// Maps side by side.
const ACROSS: usize = 3;
const SIZE_PX: u32 = 560;
const POOLING: &str = "largest magnitude of each bin";

/// Draws the first heads of each model as they are, without treatment.
pub(super) fn draw(run: &Run, measure: &ExploreMeasure) -> Result<()> {
    let untreated: Vec<(&PassKey, &ModelMaps)> =
        measure.of_passes.iter().filter(|(key, _)| key.condition == 0).collect();
    let each = if untreated.len() == 1 { OF_ONE_MODEL } else { 1 };
    let panels: Vec<MapPanel> =
        untreated.iter().flat_map(|(key, maps)| model_panels(run, measure, key, maps, each)).collect();
    if panels.is_empty() {
        return Ok(()); // no head is kept
    }
    let asks = untreated.iter().any(|(_, maps)| !maps.prompt.questions.is_empty());
    let title = match untreated.iter().all(|(key, _)| measure.is_by_score(key.model)) {
        true => "Heads that bring the answer",
        false if asks => "Heads with the most output from the answer",
        false => "Heads of the last layer",
    };
    let signed = run.setup().has_second_map();
    let subtitle =
        format!("{}{POOLING} · {}", if signed { "effective attention, " } else { "" }, run.setup().caption());
    let scale = ColourScale { label: "attention weight".to_owned(), signed };
    let rows = panels.chunks(ACROSS).map(<[MapPanel]>::to_vec).collect();
    let figure = maps(&MapPanels { scale, rows, size_px: SIZE_PX }, &run.heading(title, &subtitle))?;
    run.save_figure(&figure, "maps", POOLING)
}

fn model_panels(run: &Run, measure: &ExploreMeasure, key: &PassKey, maps: &ModelMaps, most: usize) -> Vec<MapPanel> {
    let model = &run.setup().models[key.model].name;
    let frame = &run.frame;
    let numbers = frame.numbers_of_heads(model, None);
    let answer = format!("{} {}", SHARE_OUT.name, Region::Answer.name());
    let asks = !maps.prompt.questions.is_empty();
    let regions = maps.prompt.regions.iter().filter(|_| asks);
    let regions: Vec<_> = regions.map(|&(region, from, to)| (region.to_owned(), from..to)).collect();
    let mut panels = Vec::new();
    for head in maps.details.iter().take(most) {
        let Some(bins) = head.kept.effective.as_ref().map(bins) else { continue };
        let tokens = 0..bins.rows * measure.resolutions[key.model].bin_tok;
        let share = numbers.get(&head.at).filter(|_| asks).and_then(|numbers| numbers.get(&answer));
        let share = share.map_or(String::new(), |share| format!(" · answer {:.0} % of its output", 100.0 * share));
        let axis = TokenAxis::new(tokens, regions.clone(), Vec::new());
        panels.push(MapPanel {
            title: frame.short_name(model),
            detail: format!("layer {} · head {}{share}", head.at.layer, head.at.head),
            bins,
            queries: axis.clone(),
            keys: axis,
            profile: None,
        });
    }
    panels
}
