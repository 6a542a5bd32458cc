//! `difftool shots`: how many examples of a new classification does a model need, and does their order matter?

use super::flags;
use super::session::{RunResults, Session};
use crate::cli::ShotsArgs;
use crate::experiment::{Experiment, Grid, ShotsGrid, Show};
use crate::metric::EXACT;
use crate::plot::{curves, Curve, CurvePanel};
use crate::results::view::robustness;
use crate::results::{Case, Frame};
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
            let x = found.value;
            Some((x, found.interval.map_or((x, x), |i| (i.lo, i.hi))))
        };
        let spread = |case: &Case| {
            let found = robustness(frame, case, order)?;
            Some((found.best_less_worst, (found.chance.lo, found.chance.hi)))
        };
        let what: [(&str, OfCase<'_>); 2] =
            [("accuracy (%)", &accuracy), ("best - worst arrangement (points)", &spread)];
        for (y_label, of) in what {
            let curves: Vec<Curve> =
                frame.models().iter().filter_map(|model| curve(frame, &cases, model, of)).collect();
            if !curves.is_empty() {
                let (title, y_label) = (format!("order: {order}"), y_label.to_owned());
                panels.push(CurvePanel { title, y_label, y_range: Some((0.0, 100.0)), curves });
            }
        }
    }
    panels
}

/// Returns the points to draw for a case, if it has them.
type OfCase<'a> = &'a dyn Fn(&Case) -> Option<Point>;

/// A fraction with the ends of its band.
type Point = (f64, (f64, f64));

/// The points of a model by number of examples, in percent.
fn curve(frame: &Frame, cases: &[Case], model: &str, of: &dyn Fn(&Case) -> Option<Point>) -> Option<Curve> {
    let own = cases.iter().filter(|case| case.model == model);
    let mut points: Vec<(f64, Point)> = own.filter_map(|case| Some((case.setting.1 as f64, of(case)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (!points.is_empty()).then(|| Curve {
        name: frame.short_name(model),
        points: points.iter().map(|(shots, (x, _))| (*shots, 100.0 * x)).collect(),
        band: points.iter().map(|(shots, (_, (lo, hi)))| (*shots, 100.0 * lo, 100.0 * hi)).collect(),
    })
}
