//! `difftool ablate`: what do noise and heads cost? The same prompts without some keys, and without some heads.

mod changes;
mod each_head;
mod flow;
mod screen;

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::{OpenedModels, PROMPTS};
use super::shared::{Measured, RunFlags};
use crate::figures::{Over, Panel, RunFigure, View};
use crate::measures::MeasureName;
use crate::results::folder::HEADS;
use crate::results::run_table::RunTable;
use crate::run::{Plan, Run};
use anyhow::Result;
use base::bail_usage;
use base::spec_file::flag_defaults;
use changes::{CONDITIONS, CONTRASTS, HEADS_OUT};
use clap::{Args, ValueEnum};
use each_head::{head_rows, EACH_HEAD, EVERY_COST, PREDICTORS};
use flow::{conditions_beside_flow, silenced_cells, FLOW};
use names::condition::{
    Condition, HeadSelection, KeySelection, PairedPrompt, Ranking, Removal, Replacement, RowSelection, Treatment,
};
use names::metric::ACCURACY;
use names::{HeadPlace, Region};
use screen::screen;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use strum::VariantArray as _;
use text::{Grid, NeedlePrompts};

/// Other needles are what costs, and dozens of passes over a prompt of 1k tokens take seconds.
/// Heads that are knocked out if nobody says how many, as far as models have so many.
const KNOCKED_OUT: [usize; 4] = [1, 2, 4, 8];

/// Draws of random heads that the best heads are compared with; an interval over draws needs three.
const DRAWS: u64 = 3;

pub(super) static ABLATE: Command = Command {
    name: "ablate",
    about: "Hide noise or take out heads on the same prompts, and measure what that costs",
    examples: &[
        ("Effect of noise and of the best heads", "difftool ablate"),
        (
            "Only noise at 4k tokens, with another condition",
            "difftool ablate --ctx 4k --parts noise --condition 'silence(filler)'",
        ),
    ],
    defaults: Some(&PROMPTS),
    flags: Measured::<AblateFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<AblateFlags>,
        read: read::<AblateFlags>,
        screen,
        tables: &[],
        figures: &FIGURES,
        next: Next::measuring("heads", "the role of each head"),
    }),
};

/// The tables of runs under conditions, whatever their command.
pub(super) static OF_CONDITIONS: [&RunTable; 6] = [&FLOW, &CONDITIONS, &HEADS_OUT, &EACH_HEAD, &PREDICTORS, &CONTRASTS];

const FIGURES: [RunFigure; 5] = [
    RunFigure {
        file: "flow",
        title: "Where the answer travels",
        subtitle: "keys of a column silenced in rows of a kind",
        pooling: "mean over prompts, paired with the untreated passes",
        table: &FLOW,
        view: View::Columns {
            down: "rows",
            across: "keys silenced",
            scale: "change of the answer's log-probability, nats",
        },
    },
    RunFigure {
        file: "each-head",
        title: "Each head by itself: change of the answer's log-probability",
        subtitle: "",
        pooling: "mean over prompts, paired with the untreated passes",
        table: &EVERY_COST,
        view: View::Heads,
    },
    RunFigure {
        file: "conditions",
        title: "Cost of conditions",
        subtitle: "paired differences, whiskers: 95 % intervals",
        pooling: "mean over prompts, paired with the untreated passes, 95 % intervals",
        table: &RunTable::made("", "", conditions_beside_flow),
        view: View::Forest {
            down: "condition",
            panels: &[
                Panel::titled("log-probability of the answer", &["answer_log_prob_change"]),
                Panel::titled(ACCURACY.label, &["accuracy_change"]),
            ],
            x_label: "difference from the untreated passes",
        },
    },
    RunFigure {
        file: "recovery",
        title: "Share of the answer's log-probability that is recovered",
        subtitle: "0 as in the corrupted prompt, 1 as in the clean one",
        pooling:
            "ratio of means over prompts: (treated - corrupted) / (clean - corrupted), 95 % intervals of the ratio",
        table: &CONDITIONS,
        view: View::Forest {
            down: "condition",
            panels: &[Panel::titled("log-probability of the answer", &["recovered"])],
            x_label: "share recovered",
        },
    },
    RunFigure {
        file: "heads-out",
        title: "Without the best heads, and without others of the same layers",
        subtitle: "",
        pooling: "mean over prompts, paired with the untreated passes, 95 % intervals",
        table: &HEADS_OUT,
        view: View::Lines {
            over: Over::Names { key: "n", label: "heads out" },
            panels: &[
                Panel::titled("log-probability of the answer", &["best_log_prob_change", "random_log_prob_change"]),
                Panel::titled(ACCURACY.label, &["best_accuracy_change", "random_accuracy_change"]),
            ],
        },
    },
];

#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct AblateFlags {
    /// Parts to treat
    #[arg(
        long = "parts",
        value_enum,
        value_delimiter = ',',
        default_value = "noise,layers,heads",
        value_name = "PARTS"
    )]
    pub parts: Vec<AblatePart>,
    /// Which heads are best, on prompts of their own [default: cost; share_out where there is none]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, value_name = "RANKING", hide_short_help = true)]
    pub rank: Option<Ranking>,
    /// How many of the best heads to take out [default: 1,2,4,8, up to the number of heads]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_delimiter = ',', value_name = "N", hide_short_help = true)]
    pub knock_out: Vec<usize>,
    /// Replace the output of these heads by zero instead of by its mean over reference prompts
    #[arg(long, hide_short_help = true)]
    pub zero: bool,
    /// Rows of attention that are treated
    #[arg(long, value_enum, default_value_t = RowSelection::Answer, value_name = "ROWS", hide_short_help = true)]
    pub rows: RowSelection,
    #[command(flatten)]
    pub prompts: NeedlePrompts,
}

impl Default for AblateFlags {
    fn default() -> Self {
        flag_defaults()
    }
}

/// The parts of `difftool ablate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AblatePart {
    /// Mask noise, its other needles and its prose by themselves, the answer's needle, and as many random keys as a control;
    /// silence noise and the first token
    Noise,
    /// Mask noise in one layer at a time
    Layers,
    /// Take out the best heads, and random heads of the same layers as a control
    Heads,
    /// Take out one head at a time: the cost of each head, and how well other measurements of heads predict it
    EachHead,
    /// Take out all heads of one layer at a time
    EachLayer,
    /// Silence the keys of one region in the rows of one region: where the answer travels from the needle to the prediction
    Flow,
    /// Activation patching: on the prompt with another answer, all heads, or those of one layer at a time, output what
    /// they do on the prompt itself, and the reverse
    Patch,
    /// Activation patching of one head at a time: on the prompt with another answer, the head outputs what it does on
    /// the prompt itself
    PatchEachHead,
}

impl MeasuringFlags for AblateFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        models.fill(&mut self.prompts, &PROMPTS)
    }

    fn plans(&self, run: &RunFlags, models: &OpenedModels) -> Result<Vec<Plan>> {
        let longest = self.prompts.ctx_tok().into_iter().max().unwrap_or(0);
        let conditions = self.conditions(&Smallest::of(models, run, longest)?)?;
        if conditions.is_empty() && run.condition.is_empty() {
            bail_usage!("nothing to compare with the untreated passes: no part is asked for, and no --condition");
        }

        let mut plan = Plan::new(Grid::Needle(self.prompts.clone()), vec![MeasureName::Answer]);
        plan.passes.conditions = conditions;
        let has = |part| self.parts.contains(&part);
        let of_each_head = has(AblatePart::EachHead) || has(AblatePart::PatchEachHead);
        if of_each_head {
            plan.measures = vec![MeasureName::AnswerByHead, MeasureName::Roles, MeasureName::Shape];
        }
        // Of dozens of passes only the answers count; attention is that of the untreated ones.
        plan.passes.only_score_treated = of_each_head || has(AblatePart::Flow);
        Ok(vec![plan])
    }

    fn draw(&self, run: &Run) -> Result<()> {
        run.save_table(HEADS, &head_rows(&run.frame))
    }
}

/// Sizes that all models share.
struct Smallest {
    layers: usize,
    heads: usize,
    /// `true` if heads of all models are attributed.
    attributed: bool,
    /// Heads of each layer; `None` if models differ in these or in their layers.
    heads_of_layer: Option<usize>,
}

impl Smallest {
    fn of(models: &OpenedModels, run: &RunFlags, tokens: usize) -> Result<Self> {
        let attributed = run.reading.has_kernels();
        let mut all = Self { layers: usize::MAX, heads: usize::MAX, attributed, heads_of_layer: None };
        let mut shapes = BTreeSet::new();
        for model in models.get()? {
            let layers = model.config.layers.len();
            let heads = model.config.wiring().heads();
            all.layers = all.layers.min(layers);
            all.heads = all.heads.min(layers * heads);
            all.attributed &= model.config.differentiates(tokens);
            shapes.insert((layers, heads));
        }
        if let [(_, heads)] = shapes.into_iter().collect::<Vec<_>>()[..] {
            all.heads_of_layer = Some(heads);
        }
        Ok(all)
    }

    /// Every layer and head of models that have the same.
    fn every_head(&self, part: &str) -> Result<impl Iterator<Item = HeadPlace>> {
        let Some(heads) = self.heads_of_layer else {
            bail_usage!("--parts {part}: the models differ in their layers or heads; measure one at a time, as with --model diff");
        };
        Ok(HeadPlace::all(self.layers, heads))
    }
}

impl AblateFlags {
    /// The conditions of all parts that are asked for.
    fn conditions(&self, shape: &Smallest) -> Result<Vec<Condition>> {
        let mut conditions: Vec<Condition> = Vec::new();
        for &part in &self.parts {
            for condition in self.treatments(part, shape)?.into_iter().map(Condition::from) {
                if !conditions.contains(&condition) {
                    conditions.push(condition);
                }
            }
        }
        Ok(conditions)
    }

    /// The treatments of a part, each a condition by itself.
    fn treatments(&self, part: AblatePart, shape: &Smallest) -> Result<Vec<Treatment>> {
        let patch = |heads, from| Treatment::replace(heads, self.rows, Replacement::Patch(from));
        let corrupted = patch(HeadSelection::Named(Vec::new()), PairedPrompt::Clean);
        let mut treatments = Vec::new();
        match part {
            AblatePart::Noise => treatments.extend(self.removals()),
            AblatePart::Layers => {
                let noise = KeySelection::Regions(Region::NOISE.to_vec());
                let noise = Treatment::remove(Removal::Mask, noise, self.rows);
                treatments.extend((0..shape.layers).map(|layer| noise.clone().in_layer(layer)));
            }
            AblatePart::Heads => treatments.extend(self.best_and_random(shape)?),
            AblatePart::EachHead => {
                let all = shape.every_head("each-head")?;
                treatments.extend(all.map(|at| self.without(HeadSelection::Named(vec![at]))));
            }
            AblatePart::EachLayer => {
                treatments.extend((0..shape.layers).map(|layer| self.without(HeadSelection::All).in_layer(layer)));
            }
            AblatePart::Flow => treatments.extend(silenced_cells()),
            AblatePart::Patch => {
                treatments.push(corrupted);
                for &from in PairedPrompt::VARIANTS {
                    let all = patch(HeadSelection::All, from);
                    treatments.push(all.clone());
                    treatments.extend((0..shape.layers).map(|layer| all.clone().in_layer(layer)));
                }
            }
            AblatePart::PatchEachHead => {
                treatments.push(corrupted);
                let all = shape.every_head("patch-each-head")?;
                treatments.extend(all.map(|at| patch(HeadSelection::Named(vec![at]), PairedPrompt::Clean)));
            }
        }
        Ok(treatments)
    }

    /// Removals of noise, of its parts, and of as many random keys; of the answer's needle, which must destroy, and of as many random
    /// keys; of what noise writes, and of what the first token writes, which is no noise.
    fn removals(&self) -> [Treatment; 8] {
        let noise = Region::NOISE.to_vec();
        let needle = vec![Region::Needle, Region::Answer];
        [
            (Removal::Mask, KeySelection::Regions(noise.clone())),
            (Removal::Mask, KeySelection::Regions(vec![Region::Distractor])),
            (Removal::Mask, KeySelection::Regions(vec![Region::Filler])),
            (Removal::Mask, KeySelection::RandomLike(noise.clone())),
            (Removal::Mask, KeySelection::Regions(needle.clone())),
            (Removal::Mask, KeySelection::RandomLike(needle)),
            (Removal::Silence, KeySelection::Regions(noise)),
            (Removal::Silence, KeySelection::Regions(vec![Region::Bos, Region::First])),
        ]
        .map(|(how, keys)| Treatment::remove(how, keys, self.rows))
    }

    /// Takes out heads.
    fn without(&self, heads: HeadSelection) -> Treatment {
        Treatment::replace(heads, self.rows, if self.zero { Replacement::Zero } else { Replacement::Mean })
    }

    /// Takes out the best heads, in several numbers, and as many random ones each.
    fn best_and_random(&self, shape: &Smallest) -> Result<Vec<Treatment>> {
        let usual = if shape.attributed { Ranking::Cost } else { Ranking::ShareOut };
        let by = self.rank.unwrap_or(usual);
        let mut treatments = Vec::new();
        for n in self.knocked_out(shape)? {
            treatments.push(self.without(HeadSelection::Best { n, by }));
            let draws = match (2 * n).cmp(&shape.heads) {
                Ordering::Less => DRAWS,
                Ordering::Equal => 1, // all other heads
                Ordering::Greater => 0,
            };
            treatments.extend((0..draws).map(|draw| self.without(HeadSelection::Random { n, by, draw })));
        }
        Ok(treatments)
    }

    fn knocked_out(&self, shape: &Smallest) -> Result<Vec<usize>> {
        if self.knock_out.is_empty() {
            return Ok(KNOCKED_OUT.into_iter().filter(|&n| n <= shape.heads).collect());
        }
        if self.knock_out.contains(&0) {
            bail_usage!("--knock-out 0: that is the untreated pass, which is there anyway");
        }
        Ok(self.knock_out.clone())
    }
}
