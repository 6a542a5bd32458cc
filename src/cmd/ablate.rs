//! `difftool ablate`: what do noise and heads cost? The same prompts without some keys, and without some heads.

mod draw;

pub(super) use draw::draw;

use super::flags::{self, Defaults};
use crate::bail_usage;
use crate::cli::{AblateArgs, AblatePart};
use crate::experiment::{Experiment, Show};
use crate::models;
use crate::treatment::{random_draws, Condition, Ranking};
use anyhow::Result;

/// A prompt of 1k tokens has noise enough, and dozens of passes over it take seconds.
pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: 1024, settings: &[(1, 1)], samples: 8, heldout: |_| 0 };

/// Heads that are knocked out if nobody says how many, as far as models have so many.
const KNOCKED_OUT: [usize; 4] = [1, 2, 4, 8];

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors; models that cannot be read.
pub(super) fn experiment(args: &AblateArgs) -> Result<Experiment> {
    let shape = Smallest::of(args)?;
    let grid = flags::grid(&args.prompts, &args.run.model, &args.run.reading, None, &DEFAULTS)?;
    let experiment = flags::experiment(Show::Ablate, &args.run, grid, args.prompts.haystack.as_deref(), None)?;
    Ok(Experiment { conditions: conditions(args, &shape)?, ..experiment })
}

/// Sizes that all models share.
struct Smallest {
    layers: usize,
    heads: usize,
    /// Whether the logits of a model are soft-capped, so that heads have no direct effect on them.
    capped: bool,
}

impl Smallest {
    fn of(args: &AblateArgs) -> Result<Self> {
        let mut all = Self { layers: usize::MAX, heads: usize::MAX, capped: false };
        for name in models::resolve(&args.run.model)? {
            let config = models::open(&name, flags::reading(&args.run.reading))?.config;
            let layers = config.layers.len();
            all.layers = all.layers.min(layers);
            all.heads = all.heads.min(layers * config.wiring().heads());
            all.capped |= config.final_softcap.is_some();
        }
        Ok(all)
    }
}

/// The conditions of all parts that are asked for, and those that are named.
fn conditions(args: &AblateArgs, shape: &Smallest) -> Result<Vec<Condition>> {
    let rows = format!(", rows={}", args.rows.name());
    let mut names = Vec::new();
    for part in &args.parts {
        match part {
            AblatePart::Noise => {
                // Without noise; a control of as many keys; without the first token, which is no noise; without the answer,
                // which must destroy; and its control.
                let first = ["mask(noise", "silence(noise", "mask(random:noise", "silence(bos+first"];
                for keys in first.into_iter().chain(["mask(needle+answer", "mask(random:needle+answer"]) {
                    names.push(format!("{keys}{rows})"));
                }
            }
            AblatePart::Layers => {
                names.extend((0..shape.layers).map(|layer| format!("mask(noise, layers={layer}{rows})")))
            }
            AblatePart::Heads => {
                let zero = if args.zero { ", zero" } else { "" };
                for n in knocked_out(args, shape)? {
                    let usual = if shape.capped { Ranking::ShareOut } else { Ranking::LogitOut };
                    let by = args.rank.unwrap_or(usual).name();
                    names.push(format!("ablate(best:{n}:{by}{zero}{rows})"));
                    let draws = args.draws.min(random_draws(shape.heads, n));
                    names.extend((0..draws).map(|draw| format!("ablate(random:{n}:{by}:{draw}{zero}{rows})")));
                }
            }
        }
    }
    names.extend(args.condition.iter().cloned());
    let mut conditions: Vec<Condition> = Vec::new();
    for condition in flags::conditions(&names)? {
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    if conditions.is_empty() {
        bail_usage!(
            "nothing to compare with the untreated passes: `conditions` names nothing, and no part is asked for"
        );
    }
    Ok(conditions)
}

fn knocked_out(args: &AblateArgs, shape: &Smallest) -> Result<Vec<usize>> {
    if args.knock_out.is_empty() {
        return Ok(KNOCKED_OUT.into_iter().filter(|&n| n <= shape.heads).collect());
    }
    if args.knock_out.contains(&0) {
        bail_usage!("--knock-out 0: that is the untreated pass, which is there anyway");
    }
    Ok(args.knock_out.clone())
}
