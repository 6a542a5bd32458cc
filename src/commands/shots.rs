//! `difftool shots`: how many examples of a new classification does a model need, and does their order matter?

use super::command::{read, typed, Action, Command, Measuring};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{Measured, RunFlags};
use crate::figures::{lines, Line, LineAxes, LinePanel, PointEstimate};
use crate::measures::MeasureName;
use crate::prompts::{Grid, ShotsPrompts};
use crate::results::metric::ACCURACY;
use crate::results::screen::{Screen, SideBySide};
use crate::results::view;
use crate::results::view::robustness;
use crate::results::{Case, Column, Frame, Pick};
use crate::run::{Plan, Run};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

pub(super) static SHOTS: Command = Command {
    name: "shots",
    about: "Many-shot classification: accuracy by number and order of the examples",
    examples: &[
        ("Accuracy of the built-in models by number of examples", "difftool shots"),
        (
            "Effect of the order of the examples on another model",
            "difftool shots --model ./llama --order random,by-class --arrangements 8",
        ),
    ],
    defaults: None,
    flags: Measured::<ShotsFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<ShotsFlags>,
        read: read::<ShotsFlags>,
        screen,
        tables: &[&view::SHOTS],
        next: "difftool compare RUN --by ctx_tok, or another model",
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct ShotsFlags {
    #[command(flatten)]
    pub prompts: ShotsPrompts,
}

impl MeasuringFlags for ShotsFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompts.ctx = Some(models.one_ctx_tok(self.prompts.ctx, "examples share one budget")?);
        Ok(())
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        let grid = Grid::Shots(self.prompts.clone());
        Ok(Plan { grid, measures: vec![MeasureName::Answer], ..Plan::default() })
    }

    /// Draws accuracy, and the best arrangement less the worst, by number of examples.
    fn draw(&self, run: &Run) -> Result<()> {
        let frame = &run.frame;
        let panels = panels(frame);
        if panels.is_empty() {
            return Ok(()); // nothing but failures
        }
        let subtitle = format!(
            "bands: 95 % intervals over prompts; of the best arrangement less the worst, what chance alone gives · {}",
            run.setup.caption()
        );
        let heading = run.heading("Many-shot learning of a new classification", &subtitle);
        let figure = lines(&panels, LineAxes::LogX, &heading)?;
        run.save_figure(&figure, "shots", "mean over prompts and arrangements; 95 % Wilson intervals over prompts")
    }
}

/// What `difftool shots` prints: accuracy by number and order of the examples, and whether their arrangement matters.
fn screen(frame: &Frame) -> Screen {
    let numbers = [ACCURACY.overall()];
    let table = SideBySide { by: &[Column::Task], levels: true, ..SideBySide::of("shots", "Many shots", &numbers) };
    Screen {
        tables: table.table(frame).into_iter().collect(),
        notes: arrangements(frame).into_iter().collect(),
        ..Screen::default()
    }
}

/// Says what the best arrangement of the same examples has more than the worst, beside what chance alone gives.
fn arrangements(frame: &Frame) -> Option<String> {
    let mut effects = Vec::new();
    for case in frame.cases() {
        effects.extend(frame.cities.iter().filter_map(|order| robustness(frame, &case, order)));
    }
    let points = |x: f64| format!("{:.0}", 100.0 * x);
    let least = effects.iter().map(|effect| effect.best_less_worst).reduce(f64::min)?;
    let most = effects.iter().map(|effect| effect.best_less_worst).reduce(f64::max)?;
    let chance = effects.iter().map(|effect| effect.chance.hi).reduce(f64::max)?;
    let beyond = effects.iter().filter(|effect| effect.best_less_worst > effect.chance.hi).count();
    let verdict = match beyond {
        0 => format!("no more than chance gives (up to {})", points(chance)),
        beyond => format!("more than chance gives in {beyond} of {} rows and models", effects.len()),
    };
    Some(format!("Best less worst arrangement: {} to {} points, {verdict}.", points(least), points(most)))
}

/// Returns a number of a case with examples in some order, in percent.
type NumberOf = fn(&Frame, &Case, &str) -> Option<PointEstimate>;

/// For each order a panel of accuracy and one of best less worst, with a line for each model.
fn panels(frame: &Frame) -> Vec<LinePanel> {
    let cases: Vec<Case> = frame.cases().into_iter().filter(|case| case.treated.condition.is_none()).collect();
    let mut panels = Vec::new();
    for order in &frame.cities {
        let kinds: [(&str, NumberOf); 2] = [("accuracy (%)", accuracy), ("best − worst (points)", spread)];
        for (y_label, number) in kinds {
            let mut lines = Vec::new();
            for model in &frame.models {
                let of_model = cases.iter().filter(|case| case.model == *model);
                let mut points: Vec<(f64, PointEstimate)> = of_model
                    .filter_map(|case| Some((case.setting.needles as f64, number(frame, case, order)?)))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                if !points.is_empty() {
                    lines.push(Line::new(frame.short_name(model), points));
                }
            }
            if !lines.is_empty() {
                panels.push(LinePanel {
                    title: format!("order: {order}"),
                    x_label: "examples in the prompt".to_owned(),
                    y_label: y_label.to_owned(),
                    y_range: Some((0.0, 100.0)),
                    lines,
                });
            }
        }
    }
    panels
}

/// Returns the accuracy of a case in percent.
fn accuracy(frame: &Frame, case: &Case, order: &str) -> Option<PointEstimate> {
    let pick = Pick { cities: Some(order), ..case.pick(&ACCURACY, None) };
    Some(PointEstimate::scaled(&frame.estimate(pick)?, 100.0))
}

/// Returns the accuracy of the best arrangement less that of the worst, in points, with what chance alone gives.
fn spread(frame: &Frame, case: &Case, order: &str) -> Option<PointEstimate> {
    let estimate = robustness(frame, case, order)?;
    let interval = Some((100.0 * estimate.chance.lo, 100.0 * estimate.chance.hi));
    Some(PointEstimate { value: 100.0 * estimate.best_less_worst, interval })
}
