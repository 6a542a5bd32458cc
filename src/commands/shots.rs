//! `difftool shots`: how many examples of a new classification does a model need, and does their order matter?

use super::flags;
use super::session::{RunResults, Session};
use crate::cli::ShotsArgs;
use crate::figures::{curves, Curve, CurvePanel, PointEstimate};
use crate::results::metric::EXACT;
use crate::results::view::robustness;
use crate::results::{Case, Frame};
use crate::run::{Experiment, Grid, ShotsGrid, Show};
use anyhow::Result;

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors.
pub(super) fn experiment(args: &ShotsArgs) -> Result<Experiment> {
    let ctx_tok =
        flags::one_ctx_tok(args.ctx.as_ref(), &args.run.model, &args.run.reading, "examples share one budget")?;
    let grid = ShotsGrid {
        ctx_tok,
        shots: args.shots.clone(),
        words: args.words,
        classes: args.classes,
        orders: args.order.clone(),
        arrangements: args.arrangements,
        samples: args.samples,
        seed: args.seed,
    };
    flags::experiment(Show::Shots, &args.run, Grid::Shots(grid), None, None)
}

/// Draws accuracy, and the best arrangement less the worst, by number of examples.
pub(super) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let frame = &found.frame;
    let panels = panels(frame);
    if panels.is_empty() {
        return Ok(()); // nothing but failures
    }
    let subtitle = format!(
        "bands: 95 % intervals over prompts; of best - worst, what chance alone gives · {}",
        session.setup.caption()
    );
    let heading = session.heading("Many-shot learning of a new classification", &subtitle);
    let figure = curves(&panels, &heading, "examples in the prompt", true)?;
    session.save(&figure, "shots", "mean over prompts and arrangements; 95 % Wilson intervals over prompts")
}

/// For each order a panel of accuracy and one of best less worst, with a curve for each model.
fn panels(frame: &Frame) -> Vec<CurvePanel> {
    let cases: Vec<Case> = frame.cases().into_iter().filter(|case| case.treated.condition.is_none()).collect();
    let mut panels = Vec::new();
    for order in frame.cities() {
        let accuracy = |case: &Case| {
            let found = frame.estimate(case.pick(&EXACT, None).cities(order))?;
            Some(PointEstimate::of(&found, 100.0))
        };
        let spread = |case: &Case| {
            let found = robustness(frame, case, order)?;
            let interval = Some((100.0 * found.chance.lo, 100.0 * found.chance.hi));
            Some(PointEstimate { value: 100.0 * found.best_less_worst, interval })
        };
        let what: [(&str, OfCase<'_>); 2] =
            [("accuracy (%)", &accuracy), ("best - worst arrangement (points)", &spread)];
        for (y_label, of) in what {
            let curves = frame.models().iter().map(|model| curve(frame, &cases, model, of));
            let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
            if !curves.is_empty() {
                let (title, y_label) = (format!("order: {order}"), y_label.to_owned());
                panels.push(CurvePanel { title, y_label, y_range: Some((0.0, 100.0)), curves });
            }
        }
    }
    panels
}

/// Returns the number to draw for a case in percent, if it has it.
type OfCase<'a> = &'a dyn Fn(&Case) -> Option<PointEstimate>;

/// The numbers of a model by number of examples.
fn curve(frame: &Frame, cases: &[Case], model: &str, of: OfCase<'_>) -> Curve {
    let own = cases.iter().filter(|case| case.model == model);
    let mut points: Vec<_> = own.filter_map(|case| Some((case.setting.1 as f64, of(case)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve::of(frame.short_name(model), points)
}
