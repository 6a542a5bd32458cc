//! The series of `difftool claims`: each is a command that measures what some claims are about.

use super::super::command::{Command, Typed};
use super::super::models::OpenedModels;
use super::super::shared::RunFlags;
use super::super::{heads, needle, nll, outliers, quantize, shots};
use super::list::Claim;
use super::ClaimsFlags;
use crate::results::record::Identity;
use crate::run::Plan;
use anyhow::{ensure, Result};
use base::terminal::quoted;
use text::shots::order_of;
use text::PromptDefaults;

/// A number of needles, and whether the haystack is of needles too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difficulty {
    pub(super) needles: usize,
    pub(super) in_needles: bool,
}

impl Difficulty {
    pub(super) const fn of(needles: usize) -> Self {
        Self { needles, in_needles: false }
    }
}

/// A command that measures claims by itself.
#[derive(Debug)]
pub(super) struct ClaimSeries {
    /// Its name among the series of a run.
    id: &'static str,
    command: &'static Command,
    prompts: SeriesPrompts,
    /// Its flags, besides those of all.
    flags: &'static [&'static str],
    /// Its `--samples`, as a multiple of those of the claims over this number.
    samples: (usize, usize),
}

/// The prompts of a series. No two series have prompts of the same numbers of needles, so that records tell which they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesPrompts {
    /// As many needles as is hard enough for the standard model, at most two of them asked for.
    Hard,
    /// The same, but at least this number, which is asked for.
    HardAsking(usize),
    /// One of several numbers of needles, 6 and more.
    Ladder,
    /// So many needles, so many of them asked for.
    Fixed(usize, usize),
    /// Examples in random order.
    Examples,
    /// Windows of text.
    Text,
}

/// Fewest examples of many-shot prompts, and the tokens for each of the examples of the longest ones.
const FEW_EXAMPLES: usize = 8;
const EXAMPLE_TOK: usize = 32;

/// Numbers of needles of which one is asked for.
const LADDER: [usize; 4] = [6, 12, 24, 40];

/// All series, in the order in which they run.
static SERIES: [ClaimSeries; 8] = [
    ClaimSeries::new("answers", &needle::NEEDLE, SeriesPrompts::Hard, &[], (1, 1)),
    ClaimSeries::new("depths", &needle::NEEDLE, SeriesPrompts::Ladder, &[], (1, 2)),
    ClaimSeries::new("maps", &heads::HEADS, SeriesPrompts::Fixed(3, 3), &[], (1, 4)),
    ClaimSeries::new(
        "bits",
        &quantize::QUANTIZE,
        SeriesPrompts::HardAsking(4),
        &["--bits", "6,4", "--scope", "tensor"],
        (1, 2),
    ),
    ClaimSeries::new("outliers", &outliers::OUTLIERS, SeriesPrompts::Text, &[], (5, 1)),
    ClaimSeries::new("examples", &shots::SHOTS, SeriesPrompts::Examples, &["--order", "random"], (2, 1)),
    ClaimSeries::new("invented", &needle::NEEDLE, SeriesPrompts::Fixed(5, 1), &["--unanswerable"], (1, 1)),
    ClaimSeries::new("text", &nll::NLL, SeriesPrompts::Text, &[], (5, 1)),
];

impl SeriesPrompts {
    /// The numbers of needles and of those asked for.
    fn counts(self, flags: &ClaimsFlags) -> Vec<(usize, usize)> {
        let hard = flags.difficulty().needles;
        match self {
            Self::Hard => vec![(hard, hard.min(2))],
            Self::HardAsking(n) => vec![(hard.max(n), n)],
            Self::Ladder => ladder(flags.ctx_tok()).into_iter().map(|n| (n, 1)).collect(),
            Self::Fixed(n, asked) => vec![(n, asked)],
            Self::Examples | Self::Text => Vec::new(),
        }
    }

    /// The flags of its prompts.
    fn words(self, flags: &ClaimsFlags) -> Vec<String> {
        let mut words = Vec::new();
        if self == Self::Examples {
            let most = (flags.ctx_tok() / EXAMPLE_TOK).max(FEW_EXAMPLES);
            let counts = if most > FEW_EXAMPLES { format!("{FEW_EXAMPLES},{most}") } else { most.to_string() };
            words.extend(["--shots".to_owned(), counts]);
        }
        let counts = self.counts(flags);
        if let Some((_, asked)) = counts.first() {
            let needles: Vec<String> = counts.iter().map(|(needles, _)| needles.to_string()).collect();
            words.extend(["--needles".to_owned(), needles.join(","), "--retrieve".to_owned(), asked.to_string()]);
        }
        if flags.difficulty().in_needles && matches!(self, Self::Hard | Self::HardAsking(_)) {
            words.extend(["--haystack", "needles"].map(str::to_owned));
        }
        words
    }

    /// Returns `true` if a record is of its prompts.
    fn has(self, flags: &ClaimsFlags, identity: &Identity) -> bool {
        match self {
            Self::Examples => order_of(&identity.task).is_some(),
            Self::Text => identity.needles.is_none(),
            _ => {
                let counts = identity.needles.zip(identity.retrieve);
                order_of(&identity.task).is_none() && counts.is_some_and(|counts| self.counts(flags).contains(&counts))
            }
        }
    }
}

/// The numbers of needles that a prompt has room for.
fn ladder(ctx_tok: usize) -> Vec<usize> {
    PromptDefaults::with_room(&LADDER, ctx_tok)
}

impl ClaimSeries {
    const fn new(
        id: &'static str,
        command: &'static Command,
        prompts: SeriesPrompts,
        flags: &'static [&'static str],
        samples: (usize, usize),
    ) -> Self {
        Self { id, command, prompts, flags, samples }
    }

    /// The words of its command, but for the models: `needle --needles 6 --retrieve 2 --ctx 1024 --samples 8`.
    fn words(&self, flags: &ClaimsFlags) -> Vec<String> {
        let mut words = vec![self.command.name.to_owned()];
        words.extend(self.flags.iter().map(|word| (*word).to_owned()));
        words.extend(self.prompts.words(flags));
        words.extend(["--ctx".to_owned(), flags.ctx_tok().to_string()]);
        let (times, over) = self.samples;
        let samples = flags.samples.saturating_mul(times).div_ceil(over);
        words.extend(["--samples".to_owned(), samples.to_string()]);
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

/// The plan of the prompts on which the difficulty is chosen: those of the series of answers, from another base seed.
pub(super) fn rung(difficulty: Difficulty, flags: &ClaimsFlags, models: &OpenedModels) -> Result<Plan> {
    let flags = ClaimsFlags { samples: RUNG_SAMPLES, seed: flags.seed.wrapping_add(RUNG_SEED), ..flags.at(difficulty) };
    let mut plan = SERIES[0].plan(&flags, &RunFlags::default(), models)?;
    plan.passes.hides = false;
    plan.passes.reading = models.reading().clone();
    Ok(plan)
}

/// Prompts at each depth on which the difficulty is chosen, and what their base seed is more than that of the claims.
const RUNG_SAMPLES: usize = 4;
const RUNG_SEED: u64 = 1_000_003;

/// The series of a claim.
fn series_of(claim: &Claim) -> Option<&'static ClaimSeries> {
    SERIES.iter().find(|series| series.id == claim.series)
}

/// Returns `true` if the prompts of a claim are as hard as the standard model needs them.
pub(super) fn depends_on_difficulty(claim: &Claim) -> bool {
    series_of(claim).is_some_and(|series| matches!(series.prompts, SeriesPrompts::Hard | SeriesPrompts::HardAsking(_)))
}

/// Returns `true` if a record is of the series of a claim.
pub(super) fn is_of_series(claim: &Claim, flags: &ClaimsFlags, identity: &Identity) -> bool {
    series_of(claim).is_some_and(|series| series.prompts.has(flags, identity))
}

/// The command line that measures a claim by itself.
pub(super) fn alone(claim: &Claim, flags: &ClaimsFlags, models: &[String]) -> String {
    let Some(series) = series_of(claim) else { return String::new() };
    let mut words = series.words(flags);
    for model in models {
        words.extend(["--model".to_owned(), model.clone()]);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("difftool {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_series_have_the_same_prompts_at_any_difficulty() {
        for needles in 1..=64 {
            let flags = ClaimsFlags { needles: Some(needles), ..ClaimsFlags::default() };
            let mut all: Vec<(usize, usize)> = SERIES.iter().flat_map(|series| series.prompts.counts(&flags)).collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{needles} needles");
        }
    }

    #[test]
    fn short_prompts_have_fewer_needles() {
        assert_eq!(ladder(256), [6]);
        assert_eq!(ladder(512), [6, 12]);
        assert_eq!(ladder(1024), LADDER);
    }
}
