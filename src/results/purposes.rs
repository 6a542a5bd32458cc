//! What the conditions of a run are for, as their treatments say.

use super::frame::HeadPlace;

/// The conditions of a run by their purpose.
#[derive(Clone, Debug, Default)]
pub struct Purposes {
    /// Conditions with a change of their own.
    pub plain: Vec<PlainCondition>,
    /// Conditions without the best heads of a ranking, with their draws of random heads.
    pub heads: Vec<HeadsCondition>,
    /// Conditions that replace the output of one head each, if every head of every layer has one.
    pub each: Vec<(HeadPlace, String)>,
    /// `true` if those put outputs on the clean prompt into passes over the corrupted one.
    pub restores: bool,
    /// The untreated pass over the corrupted prompt.
    pub corrupted: Option<String>,
}

/// A condition that is compared with the untreated pass over the same prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainCondition {
    /// Its name.
    pub name: String,
    /// The name of that pass; `None` if it is over the prompt itself.
    pub from: Option<String>,
}

/// A condition without the best heads of a ranking, and the draws of others of the same layers.
#[derive(Clone, Debug)]
pub struct HeadsCondition {
    /// Number of heads.
    pub n: usize,
    /// Name of the ranking.
    pub by: &'static str,
    /// Name of the condition.
    pub best: String,
    /// Names of the draws.
    pub random: Vec<String>,
}

impl Purposes {
    /// The condition from which changes by single heads count; `None` for the untreated pass over the prompt itself.
    pub(crate) fn baseline_of_each(&self) -> Option<&str> {
        self.corrupted.as_deref().filter(|_| self.restores)
    }
}
