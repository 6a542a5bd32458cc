//! `difftool explore`: an interactive HTML page of attention maps.

mod figure;

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::heatmap::drawn_screen;
use super::heatmap::DRAWN_HEADS;
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, PROMPTS};
use super::shared::{without_parts, Measured, OnePrompt, RunFlags};
use crate::explore::{ExploreMeasure, ExplorerModel, ExplorerPage};
use crate::measures::MeasureName;
use crate::results::folder::EXPLORER;
use crate::results::screen::Screen;
use crate::results::{of_model, under, Frame};
use crate::run::{page_budget, MapsOfOnePrompt, Plan, Run};
use anyhow::{Context, Result};
use base::files;
use base::say;
use base::terminal::escaped;
use clap::Args;
use names::metric::{Metric, ACCURACY, ANSWER_LOG_PROB, NOISE_OUT, SHARE_OUT};
use names::{HeadPlace, Region};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers of every head by name.
type NumbersOfHeads = BTreeMap<HeadPlace, BTreeMap<String, f64>>;

/// Metrics of the whole model that the page shows for each condition.
const ANSWERS: [&Metric; 2] = [&ACCURACY, &ANSWER_LOG_PROB];

pub(super) static EXPLORE: Command = Command {
    name: "explore",
    about: "Write an interactive HTML page of attention maps, from all heads to single pairs of tokens",
    examples: &[
        ("The built-in models at 4k tokens", "difftool explore --ctx 4k"),
        (
            "A model of yours, with its report in one page",
            "difftool explore --model model.gguf --ctx 512 --report page.html",
        ),
    ],
    defaults: None,
    flags: |command| without_parts(Measured::<ExploreFlags>::augment_args(command)),
    action: Action::Measure(Measuring {
        typed: typed::<ExploreFlags>,
        read: read::<ExploreFlags>,
        screen,
        tables: &[&DRAWN_HEADS],
        figures: &[],
        next: Next::measuring("heads", "the role of each head"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct ExploreFlags {
    #[command(flatten)]
    pub prompt: OnePrompt,
}

/// What `difftool explore` prints.
fn screen(frame: &Frame) -> Screen {
    drawn_screen("Heads that explore.html has token by token", frame, &DRAWN_HEADS)
}

impl MeasuringFlags for ExploreFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompt.fill(models, Some(&PROMPTS), "explore measures one prompt")
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let measures = vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles];
        let maps = Some(MapsOfOnePrompt::Explorer);
        Ok(vec![Plan { maps, ..Plan::new(self.prompt.grid(), measures) }])
    }

    /// Writes the page and draws the figure.
    fn draw(&self, run: &Run) -> Result<()> {
        let Some(maps) =
            run.series[0].measures.of_type::<ExploreMeasure>().find(|measure| !measure.of_passes.is_empty())
        else {
            return Ok(()); // all passes failed
        };
        let setup = run.setup();
        let budget = page_budget(setup.grid.ctx_tok()[0]);
        let page = explorer(run, maps, &run.frame, budget).html()?;
        write_page(run, &page, budget)?;
        figure::draw(run, maps)
    }
}

/// The numbers of every head by name, with the sum over noise regions as `noise_out`.
fn numbers_of_heads(frame: &Frame, model: &str, condition: Option<&str>) -> NumbersOfHeads {
    let mut heads = frame.numbers_of_heads(model, condition);
    for numbers in heads.values_mut() {
        let parts =
            Region::NOISE.iter().filter_map(|noise| numbers.get(&format!("{} {}", SHARE_OUT.name, noise.name())));
        let noise = parts.copied().reduce(|sum, part| sum + part);
        if let Some(noise) = noise {
            numbers.insert(NOISE_OUT.name.to_owned(), noise);
        }
    }
    heads
}

fn explorer<'a>(run: &'a Run, explorer: &'a ExploreMeasure, frame: &'a Frame, budget: usize) -> ExplorerPage<'a> {
    let setup = run.setup();
    let mut models = Vec::new();
    for (key, maps) in &explorer.of_passes {
        let model = &setup.models[key.model];
        let condition = setup.conditions[key.condition].column();
        let mut answers = Vec::new();
        for metric in ANSWERS {
            let only = [of_model(&model.name), under(condition.as_deref())];
            let mean = frame.by_prompt(metric.overall(), &only).mean();
            answers.extend(mean.map(|value| (metric.name.to_owned(), value)));
        }
        models.push(ExplorerModel {
            name: frame.short_names.name(&model.name),
            numbers: numbers_of_heads(frame, &model.name, condition.as_deref()),
            answers: answers.into_iter().collect(),
            condition,
            layout: &model.info.layout,
            maps_per_head: model.transformer.config.wiring().maps(),
            resolution: explorer.resolutions[key.model],
            maps,
        });
    }
    let names: Vec<&str> = setup.models.iter().map(|model| frame.short_names.name(&model.name)).collect();
    ExplorerPage {
        // A mark of the writing direction in a name would reverse the heading.
        title: escaped(&format!("Attention of {}", names.join(", "))).into_owned(),
        caption: setup.caption(),
        recipe: run.recipe("as chosen in the page"),
        models,
        budget,
    }
}

fn write_page(run: &Run, page: &str, budget: usize) -> Result<()> {
    let path = run.add_file(EXPLORER, None);
    files::create(&path, page.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    if !run.style.quiet {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        say!("{} ({:.1} MB): open it in a browser", path.display(), mb(page.len()));
        if page.len() > budget {
            say!("that is more than {:.0} MB: choose fewer heads with --layers and --heads", mb(budget));
        }
    }
    Ok(())
}
