//! The series of `difftool claims`: each is a command that measures what some claims are about.

use super::super::command::{Command, Typed};
use super::super::models::OpenedModels;
use super::super::shared::RunFlags;
use super::super::{heads, needle, nll, outliers, quantize, shots};
use super::list::Claim;
use super::ClaimsFlags;
use crate::base::terminal::quoted;
use crate::run::Plan;
use anyhow::{ensure, Result};

/// A command that measures claims by itself.
#[derive(Debug)]
pub(super) struct ClaimSeries {
    /// Its name among the series of a run.
    id: &'static str,
    command: &'static Command,
    /// Its flags, besides those of all.
    flags: &'static [&'static str],
    /// Its `--samples`, as a multiple of those of the claims.
    samples: usize,
    /// Tokens for each of the examples of its longest prompt, if its prompts have examples.
    example_tok: Option<usize>,
}

/// Fewest examples of many-shot prompts.
const FEW_EXAMPLES: usize = 8;

/// All series, in the order in which they run.
static SERIES: [ClaimSeries; 8] = [
    ClaimSeries::new("answers", &needle::NEEDLE, &["--needles", "6", "--retrieve", "2"], 1),
    ClaimSeries::new("depths", &needle::NEEDLE, &["--needles", "8", "--retrieve", "1"], 2),
    ClaimSeries::new("attention", &heads::HEADS, &["--needles", "1", "--retrieve", "1"], 1),
    ClaimSeries::new("bits", &quantize::QUANTIZE, &["--bits", "6,4", "--needles", "2", "--retrieve", "2"], 1),
    ClaimSeries::new("outliers", &outliers::OUTLIERS, &[], 5),
    ClaimSeries { example_tok: Some(32), ..ClaimSeries::new("examples", &shots::SHOTS, &["--order", "random"], 2) },
    ClaimSeries::new("invented", &needle::NEEDLE, &["--unanswerable", "--needles", "4", "--retrieve", "1"], 1),
    ClaimSeries::new("text", &nll::NLL, &[], 5),
];

impl ClaimSeries {
    const fn new(id: &'static str, command: &'static Command, flags: &'static [&'static str], samples: usize) -> Self {
        Self { id, command, flags, samples, example_tok: None }
    }

    /// The words of its command, but for the models: `needle --needles 6 --retrieve 2 --ctx 1024 --samples 8`.
    fn words(&self, flags: &ClaimsFlags) -> Vec<String> {
        let mut words = vec![self.command.name.to_owned()];
        words.extend(self.flags.iter().map(|word| (*word).to_owned()));
        let ctx_tok = flags.ctx_tok();
        if let Some(example_tok) = self.example_tok {
            let most = (ctx_tok / example_tok).max(FEW_EXAMPLES);
            let counts = if most > FEW_EXAMPLES { format!("{FEW_EXAMPLES},{most}") } else { most.to_string() };
            words.extend(["--shots".to_owned(), counts]);
        }
        words.extend(["--ctx".to_owned(), ctx_tok.to_string()]);
        words.extend(["--samples".to_owned(), (self.samples * flags.samples).to_string()]);
        if flags.seed != 0 {
            words.extend(["--seed".to_owned(), flags.seed.to_string()]);
        }
        words
    }

    /// Its plan: that of its command with these flags.
    fn plan(&self, flags: &ClaimsFlags, run: &RunFlags, models: &OpenedModels) -> Result<Plan> {
        let Typed { flags: mut own, .. } = self.command.typed(&self.words(flags))?;
        own.fill(models)?;
        let mut plans = own.plans(run, models)?;
        ensure!(plans.len() == 1, "{} has {} series", self.command.name, plans.len());
        Ok(Plan { series: self.id, ..plans.remove(0) })
    }
}

/// The plans of the series that measure claims.
///
/// # Errors
/// Usage errors for flags that do not go together; models that cannot be read.
pub(super) fn plans(
    claims: &[&'static Claim],
    flags: &ClaimsFlags,
    run: &RunFlags,
    models: &OpenedModels,
) -> Result<Vec<Plan>> {
    let wanted = SERIES.iter().filter(|series| claims.iter().any(|claim| claim.series == series.id));
    wanted.map(|series| series.plan(flags, run, models)).collect()
}

/// The command line that measures a claim by itself.
pub(super) fn alone(claim: &Claim, flags: &ClaimsFlags, models: &[String]) -> String {
    let Some(series) = SERIES.iter().find(|series| series.id == claim.series) else { return String::new() };
    let mut words = series.words(flags);
    for model in models {
        words.extend(["--model".to_owned(), model.clone()]);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("difftool {}", words.join(" "))
}
