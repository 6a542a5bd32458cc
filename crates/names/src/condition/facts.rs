//! What tables and figures need to know of the conditions of a run: `treatments` reads it from their names.

use super::Removal;
use crate::{HeadPlace, Region};

/// A condition of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionFacts {
    /// Its name in records, `none` for the untreated passes.
    pub name: String,
    /// The same in words, short enough for the label of a row: `noise hidden`.
    pub words: String,
    pub purpose: Purpose,
    /// The name of the condition that it is compared with; `None` for the untreated passes over the same prompts.
    pub baseline: Option<String>,
}

/// What a condition is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing is treated.
    Untreated,
    /// The untreated passes over the prompts with another answer.
    Corrupted,
    /// Keys are removed from rows of all heads.
    Removed {
        how: Removal,
        /// The regions of the keys, in the order of [`Region::ALL`].
        regions: Vec<Region>,
        /// The layers; `None` for all.
        layers: Option<Vec<usize>>,
        /// The name of the selection of rows: `answer`, those that predict an answer.
        rows: &'static str,
    },
    /// The control of another condition, of the run or not: as many keys, or heads, drawn at random.
    Control {
        /// The name of that condition.
        of: String,
    },
    /// The outputs of the best heads of a ranking are replaced.
    HeadsOut { n: usize, by: &'static str },
    /// The output of one head is replaced, in a run that does so with every head of every layer.
    EachHead {
        at: HeadPlace,
        /// `true` if the output is that on the prompt itself, in a pass over the prompt with another answer.
        restores: bool,
    },
    /// Outputs of heads are those on the other of two prompts that differ in the answer alone.
    Patch,
    /// Numbers are quantised.
    Bits {
        bits: u32,
        /// The number format: `4`, `nvfp4`.
        format: String,
        /// The layers; `None` for all.
        layers: Option<Vec<usize>>,
        /// `true` if it is all logits of a layer together, and nothing else is done.
        is_usual: bool,
    },
    /// Anything else.
    Other,
}

impl ConditionFacts {
    /// Those of a name that this build does not know.
    pub fn unknown(name: &str) -> Self {
        Self { name: name.to_owned(), words: name.to_owned(), purpose: Purpose::Other, baseline: None }
    }
}

/// The conditions of a run, in its order, the untreated one among them.
#[derive(Clone, Debug, Default)]
pub struct Conditions(pub Vec<ConditionFacts>);

impl Conditions {
    /// The condition of a name, if the run has it.
    pub fn get(&self, name: &str) -> Option<&ConditionFacts> {
        self.0.iter().find(|condition| condition.name == name)
    }

    /// The name of the untreated passes over the prompts with another answer, if there are any.
    pub fn corrupted(&self) -> Option<&str> {
        let corrupted = self.0.iter().find(|condition| condition.purpose == Purpose::Corrupted);
        corrupted.map(|condition| condition.name.as_str())
    }

    /// The conditions that take the output of one head each, by head; empty if a head of a layer has none.
    pub fn each_head(&self) -> Vec<(HeadPlace, &ConditionFacts)> {
        let mut each = Vec::new();
        for condition in &self.0 {
            if let Purpose::EachHead { at, .. } = condition.purpose {
                each.push((at, condition));
            }
        }
        each
    }

    /// Returns `true` if those of [each head](Self::each_head) put outputs on the prompt itself into passes over the prompt with
    /// another answer.
    pub fn restores(&self) -> bool {
        self.0.iter().any(|condition| matches!(condition.purpose, Purpose::EachHead { restores: true, .. }))
    }

    /// The controls of a condition.
    pub fn controls_of(&self, name: &str) -> Vec<&ConditionFacts> {
        let is_control = |purpose: &Purpose| matches!(purpose, Purpose::Control { of } if of == name);
        self.0.iter().filter(|condition| is_control(&condition.purpose)).collect()
    }

    /// The conditions whose costs are listed one by one: all but the untreated passes, those of each head, and those without the
    /// best heads of a ranking, with their controls.
    pub fn plain(&self) -> Vec<&ConditionFacts> {
        let mut plain = Vec::new();
        for condition in &self.0 {
            let is_plain = match &condition.purpose {
                Purpose::Untreated | Purpose::EachHead { .. } | Purpose::HeadsOut { .. } => false,
                Purpose::Control { of } => !self.has_heads_out(of),
                _ => true,
            };
            if is_plain {
                plain.push(condition);
            }
        }
        plain
    }

    fn has_heads_out(&self, name: &str) -> bool {
        self.get(name).is_some_and(|known| matches!(known.purpose, Purpose::HeadsOut { .. }))
    }
}
