//! Converts the flags that measuring commands share to an experiment.

use crate::bail_usage;
use crate::cli::{Distractors, OnePromptArgs, PartArgs, PromptArgs, RunArgs, TokenRange};
use crate::model::open::{self, LoadOptions};
use crate::model::ModelConfig;
use crate::run::{Experiment, Grid, NeedleGrid, Show, TextGrid};
use crate::treatments::Condition;
use anyhow::Result;
use std::path::Path;

/// Default length of a prompt or window, in tokens.
pub(super) const CTX_TOK: usize = 4096;

/// The defaults of a command.
pub(super) struct Defaults {
    /// Tokens of a prompt, unless a model's context is shorter.
    pub(super) ctx_tok: usize,
    /// Pairs (needles in the text, needles asked for).
    pub(super) settings: &'static [(usize, usize)],
    /// Prompts per depth.
    pub(super) samples: usize,
}

/// Adds the defaults of a command to the help of its flags.
pub(super) fn with_defaults(command: clap::Command, defaults: &Defaults) -> clap::Command {
    let list = |of: fn(&(usize, usize)) -> usize| {
        defaults.settings.iter().map(|setting| of(setting).to_string()).collect::<Vec<_>>().join(",")
    };
    let ctx = match defaults.ctx_tok {
        n if n % 1024 == 0 => format!("{}k", n / 1024),
        n => n.to_string(),
    };
    let filled_in = [
        ("ctx", format!("{ctx}, or the shortest context of the models if that is less")),
        ("needles", list(|setting| setting.0)),
        ("retrieve", format!("{}; at most 2 with other --needles", list(|setting| setting.1))),
        ("samples", defaults.samples.to_string()),
    ];
    filled_in.into_iter().fold(command, |command, (flag, value)| {
        command.mut_arg(flag, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} [default: {value}]"))
        })
    })
}

/// Returns the experiment of the flags.
pub(super) fn experiment(
    show: Show,
    run: &RunArgs,
    grid: Grid,
    haystack: Option<&Path>,
    text: Option<&Path>,
) -> Result<Experiment> {
    Ok(Experiment {
        haystack: haystack.map(Path::to_owned),
        text: text.map(Path::to_owned),
        reading: run.reading.clone(),
        select: run.select(),
        ..Experiment::new(show, open::resolve(&run.model)?, grid)
    })
}

/// Returns the given lengths; without any, `usual` or the shortest context of the models.
pub(super) fn ctx_tok(ctx: &[TokenRange], usual: usize, models: &[String], read: &LoadOptions) -> Result<Vec<usize>> {
    if !ctx.is_empty() {
        return Ok(ctx.iter().flat_map(|range| range.0.clone()).collect());
    }
    let shortest = configs(models, read)?.iter().map(|config| config.max_ctx_tok).min();
    Ok(vec![shortest.map_or(usual, |shortest| shortest.min(usual))])
}

/// Returns the configurations of the models.
pub(super) fn configs(models: &[String], read: &LoadOptions) -> Result<Vec<ModelConfig>> {
    let config = |name: &String| Ok(open::open(name, read.clone())?.config);
    open::resolve(models)?.iter().map(config).collect()
}

/// Returns the single length of a command. A usage error that begins with `what` if there are several.
pub(super) fn one_ctx_tok(
    ctx: Option<&TokenRange>,
    models: &[String],
    read: &LoadOptions,
    what: &str,
) -> Result<usize> {
    match ctx_tok(ctx.map_or(&[], std::slice::from_ref), CTX_TOK, models, read)?.as_slice() {
        [ctx_tok] => Ok(*ctx_tok),
        _ => bail_usage!("--ctx: {what}; give one length"),
    }
}

/// Returns the experiment of a command on needle prompts, or on windows of a text.
pub(super) fn prompts_experiment(
    show: Show,
    run: &RunArgs,
    prompts: &PromptArgs,
    text: Option<&Path>,
    defaults: &Defaults,
) -> Result<Experiment> {
    let grid = grid(prompts, &run.model, &run.reading, text, defaults)?;
    experiment(show, run, grid, prompts.haystack.as_deref(), text)
}

/// Returns the experiment of a command on one prompt.
pub(super) fn one_prompt_experiment(
    show: Show,
    run: &RunArgs,
    prompt: &OnePromptArgs,
    text: Option<&Path>,
) -> Result<Experiment> {
    let why = format!("{} measures one prompt", show.name());
    let ctx_tok = one_ctx_tok(prompt.ctx.as_ref(), &run.model, &run.reading, &why)?;
    let experiment = experiment(show, run, prompt.grid(ctx_tok, text), prompt.haystack.as_deref(), text)?;
    Ok(Experiment { conditions: conditions(&prompt.condition)?, ..experiment })
}

/// Parses conditions.
pub(super) fn conditions(names: &[String]) -> Result<Vec<Condition>> {
    let condition = |name: &String| name.parse().or_else(|error: String| bail_usage!("--condition {name}: {error}"));
    names.iter().map(condition).collect()
}

impl OnePromptArgs {
    /// Returns the part of the run, which is always the whole run.
    pub(super) fn part(&self) -> PartArgs {
        PartArgs { print_experiment: self.print_experiment, ..PartArgs::default() }
    }

    /// Returns a grid of one needle prompt, or of the beginning of a text.
    fn grid(&self, ctx_tok: usize, text: Option<&Path>) -> Grid {
        let (ctx_tok, seed) = (vec![ctx_tok], self.seed);
        match text {
            Some(_) => Grid::Text(TextGrid { ctx_tok, samples: 1, stride: None, seed }),
            None => Grid::Needle(NeedleGrid {
                ctx_tok,
                settings: vec![(self.needles, 1)],
                depths_pct: vec![self.depth],
                samples: 1,
                seed,
                ..NeedleGrid::default()
            }),
        }
    }
}

/// Returns the grid of needle prompts of the flags, or of windows if there is a text.
pub(super) fn grid(
    args: &PromptArgs,
    models: &[String],
    read: &LoadOptions,
    text: Option<&Path>,
    defaults: &Defaults,
) -> Result<Grid> {
    let ctx_tok = ctx_tok(&args.ctx, defaults.ctx_tok, models, read)?;
    let samples = args.samples.unwrap_or(defaults.samples);
    if text.is_some() {
        return Ok(Grid::Text(TextGrid { ctx_tok, samples, stride: None, seed: args.seed }));
    }
    let (numbers, distractors_pct) = distractors(&args.distractors)?;
    Ok(Grid::Needle(NeedleGrid {
        ctx_tok,
        settings: settings(args, &numbers, defaults.settings)?,
        depths_pct: args.depths.clone(),
        samples,
        task: args.task,
        distractors_pct,
        needles_file: args.needles_file.clone(),
        seed: args.seed,
        ..NeedleGrid::default()
    }))
}

/// Returns the numbers of distractors, and the shares of the context that they fill, in percent.
fn distractors(given: &[Distractors]) -> Result<(Vec<usize>, Vec<f64>)> {
    let (mut numbers, mut shares) = (Vec::new(), Vec::new());
    for distractors in given {
        match *distractors {
            Distractors::Needles(n) => numbers.push(n),
            Distractors::Percent(share) => shares.push(share),
        }
    }
    if !numbers.is_empty() && !shares.is_empty() {
        bail_usage!("--distractors: give numbers or shares, not both");
    }
    Ok((numbers, shares))
}

/// Returns the pairs (needles in the text, needles asked for).
fn settings(args: &PromptArgs, distractors: &[usize], default: &[(usize, usize)]) -> Result<Vec<(usize, usize)>> {
    let default = match args {
        PromptArgs { task: Some(task), .. } => &[task.settings().setting],
        _ if args.needles_file.is_some() || !args.distractors.is_empty() => &[(1, 1)],
        _ => default,
    };
    Ok(match (&*args.needles, &*args.retrieve) {
        (needles, retrieve) if !distractors.is_empty() => {
            let [] = needles else {
                bail_usage!("--needles and a number of --distractors say the same: give one of them")
            };
            let ([] | [_]) = retrieve else { bail_usage!("--retrieve: give one value with a number of --distractors") };
            let retrieve = retrieve.first().copied().unwrap_or(1);
            distractors.iter().map(|n| (retrieve + n, retrieve)).collect()
        }
        ([], []) => default.to_vec(),
        (needles, []) if args.needles_file.is_some() => needles.iter().map(|&n| (n, 1)).collect(),
        (needles, []) => needles.iter().map(|&n| (n, n.min(2))).collect(),
        ([], _) => bail_usage!("--retrieve needs --needles"),
        (needles, [retrieve]) => needles.iter().map(|&n| (n, *retrieve)).collect(),
        (needles, retrieve) if needles.len() == retrieve.len() => {
            needles.iter().copied().zip(retrieve.iter().copied()).collect()
        }
        (needles, retrieve) => {
            bail_usage!("--needles has {} values and --retrieve {}; they go in pairs", needles.len(), retrieve.len())
        }
    })
}
