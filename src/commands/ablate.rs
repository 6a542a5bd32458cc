//! `difftool ablate`: what do noise and heads cost? The same prompts without some keys, and without some heads.

mod draw;

pub(super) use draw::draw;

use super::flags::{self, Defaults};
use crate::bail_usage;
use crate::cli::{AblateArgs, AblatePart};
use crate::measures::MeasureName;
use crate::run::{Experiment, Show};
use crate::treatments::{Condition, PairedPrompt, Ranking};
use anyhow::Result;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use strum::VariantArray as _;

/// A prompt of 1k tokens has noise enough, and dozens of passes over it take seconds.
pub(super) const DEFAULTS: Defaults = Defaults { ctx_tok: 1024, settings: &[(1, 1)], samples: 8 };

/// Heads that are knocked out if nobody says how many, as far as models have so many.
const KNOCKED_OUT: [usize; 4] = [1, 2, 4, 8];

/// Draws of random heads that the best heads are compared with; an interval over draws needs three.
const DRAWS: u64 = 3;

/// The experiment that flags ask for.
///
/// # Errors
/// Usage errors; models that cannot be read.
pub(super) fn experiment(args: &AblateArgs) -> Result<Experiment> {
    let shape = Smallest::of(args)?;
    let experiment = flags::prompts_experiment(Show::Ablate, &args.run, &args.prompts, None, &DEFAULTS)?;
    let conditions = conditions(args, &shape)?;
    if ![AblatePart::EachHead, AblatePart::PatchEachHead].iter().any(|part| args.parts.contains(part)) {
        return Ok(Experiment { conditions, ..experiment });
    }
    // Of hundreds of passes only the answers count; attention is that of the untreated ones.
    let measures = vec![MeasureName::AnswerByHead, MeasureName::Roles, MeasureName::Shape];
    Ok(Experiment { conditions, measures, only_score_treated: true, ..experiment })
}

/// Sizes that all models share.
struct Smallest {
    layers: usize,
    heads: usize,
    /// `true` if a model caps its logits, so that heads have no direct effect on them.
    capped: bool,
    /// Heads of each layer; `None` if models differ in these or in their layers.
    heads_of_layer: Option<usize>,
}

impl Smallest {
    fn of(args: &AblateArgs) -> Result<Self> {
        let mut all = Self { layers: usize::MAX, heads: usize::MAX, capped: false, heads_of_layer: None };
        let mut shapes = BTreeSet::new();
        for config in flags::configs(&args.run.model, &args.run.reading)? {
            let layers = config.layers.len();
            all.layers = all.layers.min(layers);
            all.heads = all.heads.min(layers * config.wiring().heads());
            all.capped |= config.final_softcap.is_some();
            shapes.insert((layers, config.wiring().heads()));
        }
        if let [(_, heads)] = shapes.into_iter().collect::<Vec<_>>()[..] {
            all.heads_of_layer = Some(heads);
        }
        Ok(all)
    }

    /// Every layer and head of models that have the same.
    fn every_head(&self, part: &str) -> Result<impl Iterator<Item = (usize, usize)>> {
        let Some(heads) = self.heads_of_layer else {
            bail_usage!("--parts {part}: the models differ in their layers or heads; run it for one at a time");
        };
        Ok((0..self.layers).flat_map(move |layer| (0..heads).map(move |head| (layer, head))))
    }
}

/// The conditions of all parts that are asked for, and those that are named.
fn conditions(args: &AblateArgs, shape: &Smallest) -> Result<Vec<Condition>> {
    let mut names = Vec::new();
    for part in &args.parts {
        names.extend(names_of(*part, args, shape)?);
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
            "nothing to compare with the untreated passes: --condition names nothing, and no part is asked for"
        );
    }
    Ok(conditions)
}

/// The names of the conditions of a part.
fn names_of(part: AblatePart, args: &AblateArgs, shape: &Smallest) -> Result<Vec<String>> {
    let rows = format!(", rows={}", args.rows.name());
    let zero = if args.zero { ", zero" } else { "" };
    let mut names = Vec::new();
    match part {
        AblatePart::Noise => {
            // Without noise; a control of as many keys; without the first token, which is no noise; without the answer,
            // which must destroy; and its control.
            let first = ["mask(noise", "silence(noise", "mask(random:noise", "silence(bos+first"];
            for keys in first.into_iter().chain(["mask(needle+answer", "mask(random:needle+answer"]) {
                names.push(format!("{keys}{rows})"));
            }
        }
        AblatePart::Layers => names.extend((0..shape.layers).map(|layer| format!("mask(noise, layers={layer}{rows})"))),
        AblatePart::EachHead => {
            let all = shape.every_head("each-head")?;
            names.extend(all.map(|(layer, head)| format!("ablate({layer}.{head}{zero}{rows})")));
        }
        AblatePart::Patch => {
            names.push(format!("patch(none{rows}, from=clean)"));
            for from in PairedPrompt::VARIANTS.iter().map(|prompt| prompt.name()) {
                names.push(format!("patch(all{rows}, from={from})"));
                names.extend((0..shape.layers).map(|layer| format!("patch(all, layers={layer}{rows}, from={from})")));
            }
        }
        AblatePart::PatchEachHead => {
            names.push(format!("patch(none{rows}, from=clean)"));
            let all = shape.every_head("patch-each-head")?;
            names.extend(all.map(|(layer, head)| format!("patch({layer}.{head}{rows}, from=clean)")));
        }
        AblatePart::EachLayer => {
            names.extend((0..shape.layers).map(|layer| format!("ablate(all, layers={layer}{rows}{zero})")));
        }
        AblatePart::Heads => {
            for n in knocked_out(args, shape)? {
                let usual = if shape.capped { Ranking::ShareOut } else { Ranking::LogitOut };
                let by = args.rank.unwrap_or(usual).name();
                names.push(format!("ablate(best:{n}:{by}{zero}{rows})"));
                let draws = match (2 * n).cmp(&shape.heads) {
                    Ordering::Less => DRAWS,
                    Ordering::Equal => 1, // all other heads
                    Ordering::Greater => 0,
                };
                names.extend((0..draws).map(|draw| format!("ablate(random:{n}:{by}:{draw}{zero}{rows})")));
            }
        }
    }
    Ok(names)
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
