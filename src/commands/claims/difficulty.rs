//! The difficulty at which claims ask: as many needles as leave the standard model's answers nearest to where differences show.

use super::super::models::OpenedModels;
use super::series::{rung, Difficulty};
use super::ClaimsFlags;
use crate::run::{check, measure_prompts, Plan, Setup, Setups};
use anyhow::Result;
use base::error::{is_of_machine, is_usage};
use names::metric::ACCURACY;
use stats::mean;
use std::sync::atomic::AtomicBool;

/// A difficulty that is tried.
struct Rung {
    /// Its name among those that are loaded.
    name: &'static str,
    difficulty: Difficulty,
}

/// From easy to hard.
const RUNGS: [Rung; 8] = [
    Rung { name: "1", difficulty: Difficulty::of(1) },
    Rung { name: "2", difficulty: Difficulty::of(2) },
    Rung { name: "4", difficulty: Difficulty::of(4) },
    Rung { name: "6", difficulty: Difficulty::of(6) },
    Rung { name: "12", difficulty: Difficulty::of(12) },
    Rung { name: "24", difficulty: Difficulty::of(24) },
    Rung { name: "40", difficulty: Difficulty::of(40) },
    Rung { name: "haystack", difficulty: Difficulty { needles: 2, in_needles: true } },
];

/// The accuracy that is looked for: in the middle between what cannot rise and what cannot fall, and as the paper's 55 %.
const WANTED: f64 = 0.55;

/// Chooses the difficulty at which the accuracy of the standard models is nearest to [`WANTED`], on prompts of their own. The rungs
/// are halved, as accuracy falls from one to the next: at most four are measured.
///
/// # Errors
/// If the models cannot be read, or a prompt fails for another reason than its length.
pub(super) fn choose(flags: &ClaimsFlags, models: &OpenedModels) -> Result<Difficulty> {
    let standard = models.some(&flags.standard(&models.names));
    let mut plans = Vec::new();
    for Rung { name, difficulty } in &RUNGS {
        plans.push(Plan { series: name, ..rung(*difficulty, flags, &standard)? });
    }
    let mut measured: Vec<(f64, &str)> = Vec::new();
    // Those without room for so many needles are left out.
    let setups = Setups::load(plans, standard.into_opened()?)?.each;
    let mut low = 0;
    let mut high = setups.len();
    while low < high {
        let middle = (low + high) / 2;
        let accuracy = accuracy(&setups[middle])?;
        measured.extend(accuracy.map(|accuracy| ((accuracy - WANTED).abs(), setups[middle].plan.series)));
        if accuracy.is_some_and(|accuracy| accuracy >= WANTED) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let nearest = measured.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let rung = nearest.and_then(|(_, name)| RUNGS.iter().find(|rung| rung.name == name)).unwrap_or(&RUNGS[0]);
    Ok(rung.difficulty)
}

/// The accuracy on the prompts of a rung; `None` if its needles do not fit into a prompt.
fn accuracy(setup: &Setup) -> Result<Option<f64>> {
    let prompts = setup.grid.prompts();
    match check(setup, &prompts) {
        Err(error) if is_usage(&error) && !is_of_machine(&error) => return Ok(None),
        checked => checked?,
    };
    let mut hits = Vec::new();
    let mut measures = setup.measures()?;
    measure_prompts(setup, &prompts, &mut measures.list(), &AtomicBool::new(false), &mut |_, finished| {
        let of_answers = finished.records.iter().filter(|record| record.measure.metric == ACCURACY.name);
        hits.extend(of_answers.filter_map(|record| record.measure.value));
        Ok(())
    })?;
    Ok(mean(&hits))
}
