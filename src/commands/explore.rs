//! `difftool explore`: an interactive HTML page of attention maps.

mod figure;

use super::measuring::{Measuring, OpenedModels};
use super::session::{RunResults, Session};
use super::shared::{Examples, OnePrompt, RunFlags};
use crate::base::files;
use crate::base::terminal::escaped;
use crate::base::values::FileName;
use crate::explore::{ExploreMeasure, ExplorerModel, ExplorerPage};
use crate::measures::MeasureName;
use crate::prompts::Region;
use crate::report::SavedRun;
use crate::results::folder::EXPLORER;
use crate::results::metric::{Metric, ACCURACY, ANSWER_LOG_PROB, NOISE_OUT, SHARE_OUT};
use crate::results::view::each_head::costs;
use crate::results::{Frame, Pick};
use crate::run::{page_budget, MapsOfOnePrompt, Plan};
use crate::{bail_usage, say};
use anyhow::{ensure, Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Numbers of every head by name, by layer and head.
type NumbersOfHeads = BTreeMap<(usize, usize), BTreeMap<String, f64>>;

/// Metrics of the whole model that the page shows for each condition.
const ANSWERS: [&Metric; 2] = [&ACCURACY, &ANSWER_LOG_PROB];

pub(super) const EXAMPLES: Examples = &[
    ("The built-in models at 4k tokens", "difftool explore --ctx 4k"),
    (
        "A model of yours, with its report in one page",
        "difftool explore --model model.gguf --ctx 512 --report page.html",
    ),
];

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ExploreFlags {
    /// Run of `ablate --parts each-head`: also colour each head by what the answer loses without it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "RUN", value_parser = FileName)]
    pub costs: Option<PathBuf>,
    #[command(flatten)]
    pub prompt: OnePrompt,
}

impl Measuring for ExploreFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompt.fill(models, "explore measures one prompt")
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        if let Some(run) = &self.costs {
            costs_of(run)?; // before anything is measured
        }
        Ok(Plan {
            grid: self.prompt.grid(),
            measures: vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
            maps: Some(MapsOfOnePrompt::Explorer),
            ..Plan::default()
        })
    }

    /// Writes the page and draws the figure.
    fn draw(&self, session: &mut Session, results: &RunResults) -> Result<()> {
        let Some(maps) = results.measures.of_type::<ExploreMeasure>().find(|measure| !measure.of_passes.is_empty())
        else {
            return Ok(()); // all passes failed
        };
        let setup = &session.setup;
        let budget = page_budget(setup.grid.ctx_tok()[0]);
        let page = explorer(session, maps, &results.frame, &self.costs_of_session(session)?, budget).html()?;
        write_page(session, &page, budget)?;
        figure::draw(session, maps, &results.frame)
    }
}

impl ExploreFlags {
    /// Returns the costs of heads for the models of a session, by the hash of their weights; none without a run that has them.
    ///
    /// # Errors
    /// If the run has only other models.
    fn costs_of_session(&self, session: &Session) -> Result<Vec<CostsOfHeads>> {
        let Some(folder) = &self.costs else { return Ok(Vec::new()) };
        let costs = costs_of(folder)?;
        let here: Vec<&String> = session.setup.models.iter().map(|model| &model.info.weights_sha256).collect();
        ensure!(
            costs.iter().any(|costs| here.contains(&&costs.weights_sha256)),
            "--costs {}: none of its models has the weights of a model of this page",
            folder.display()
        );
        Ok(costs)
    }
}

/// Costs of the heads of a model in another run.
struct CostsOfHeads {
    weights_sha256: String,
    /// Name of the costs in the page: `cost`, or `carried` where a run restores heads.
    number: &'static str,
    /// Log-probability that the answer loses without the head, or gains with it, in nats, by layer and head.
    nats: BTreeMap<(usize, usize), f64>,
}

/// The costs of heads in a run of `ablate --parts each-head` or `patch-each-head`.
///
/// # Errors
/// A usage error if the run has none.
fn costs_of(folder: &Path) -> Result<Vec<CostsOfHeads>> {
    let run = SavedRun::read(folder)?;
    let frame = &run.frame;
    let (number, sign) = if frame.purposes.restores { ("carried", 1.0) } else { ("cost", -1.0) };
    let mut of_models = Vec::new();
    for model in &run.manifest.models {
        let nats: BTreeMap<_, _> =
            costs(frame, &model.name).iter().map(|cost| (cost.at, sign * cost.change())).collect();
        if !nats.is_empty() {
            of_models.push(CostsOfHeads { weights_sha256: model.weights_sha256.clone(), number, nats });
        }
    }
    if of_models.is_empty() {
        bail_usage!(
            "--costs {}: the run does not take out one head at a time, as `difftool ablate --parts each-head` does",
            folder.display()
        );
    }
    Ok(of_models)
}

/// Returns the numbers of every head by name, with the sum over noise regions as `noise_out`.
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

fn explorer<'a>(
    session: &'a Session,
    explorer: &'a ExploreMeasure,
    frame: &'a Frame,
    costs: &[CostsOfHeads],
    budget: usize,
) -> ExplorerPage<'a> {
    let setup = &session.setup;
    let mut models = Vec::new();
    for (key, maps) in &explorer.of_passes {
        let model = &setup.models[key.model];
        let condition = setup.conditions[key.condition].column();
        let mut answers = Vec::new();
        for metric in ANSWERS {
            let mean = frame.mean(Pick { condition: condition.as_deref(), ..Pick::of(&model.name, metric) });
            answers.extend(mean.map(|value| (metric.name.to_owned(), value)));
        }
        let mut numbers = numbers_of_heads(frame, &model.name, condition.as_deref());
        let own = costs.iter().find(|costs| costs.weights_sha256 == model.info.weights_sha256);
        if let Some(costs) = own.filter(|_| condition.is_none()) {
            for (at, nats) in &costs.nats {
                if let Some(numbers) = numbers.get_mut(at) {
                    numbers.insert(costs.number.to_owned(), *nats);
                }
            }
        }
        models.push(ExplorerModel {
            name: frame.short_names.name(&model.name),
            numbers,
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
        recipe: session.recipe("as chosen in the page"),
        models,
        budget,
    }
}

fn write_page(session: &mut Session, page: &str, budget: usize) -> Result<()> {
    let path = session.run.add_file(EXPLORER, None);
    files::create(&path, page.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    if !session.output.quiet {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        say!("{} ({:.1} MB): open it in a browser", path.display(), mb(page.len()));
        if page.len() > budget {
            say!("that is more than {:.0} MB: choose fewer heads with --layers and --heads", mb(budget));
        }
    }
    Ok(())
}
