//! Shards: parts of one experiment that run separately, on any machine.

use std::fmt;
use std::str::FromStr;
use text::PlannedPrompt;

/// What to do where variables do not tell.
const NAME_IT: &str = "name the shard as I/N";

/// The variables that SLURM sets in the tasks of an array job: the number of the task, of the first and of the last, the step from
/// one to the next, and how many there are.
const SLURM: [&str; 5] = [
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_ARRAY_TASK_COUNT",
];

/// Part `index` of `count`: the prompts whose number modulo `count` is `index - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunShard {
    /// From 1 to `count`.
    pub index: u64,
    /// Number of parts.
    pub count: u64,
}

impl RunShard {
    /// Returns `true` if a prompt belongs to this shard.
    pub fn has(self, prompt: &PlannedPrompt) -> bool {
        prompt.index % self.count == self.index - 1
    }

    /// Reads the shard from the variables of an array job.
    ///
    /// # Errors
    /// With the variables, if one is missing, or they do not say which shard this is, as when a part of an array runs again.
    fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut numbers = [0; SLURM.len()];
        for (number, name) in numbers.iter_mut().zip(SLURM) {
            let text = variable(name).ok_or_else(|| format!("auto: {name} is not set; {NAME_IT}"))?;
            *number = text.trim().parse::<u64>().map_err(|_| format!("{name} is `{text}`, not a number; {NAME_IT}"))?;
        }
        let [at, first, last, stride, all] = numbers;
        let steps = |to: u64| to.checked_sub(first)?.checked_div(stride);
        let is_whole = steps(last).is_some_and(|steps| steps + 1 == all);
        match steps(at).filter(|&steps| is_whole && steps < all && first + steps * stride == at) {
            Some(steps) => Self::new(steps + 1, all),
            None => {
                let set: Vec<String> =
                    SLURM.iter().zip(numbers).map(|(name, number)| format!("{name}={number}")).collect();
                let set = set.join(" ");
                Err(format!("{set} do not say which shard this is, as when a part of an array runs again; {NAME_IT}"))
            }
        }
    }

    fn new(index: u64, count: u64) -> Result<Self, String> {
        if index == 0 || index > count {
            return Err(format!("{index}/{count}: shards are counted from 1 to their number"));
        }
        Ok(Self { index, count })
    }
}

impl FromStr for RunShard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Self::of_environment(|name| std::env::var(name).ok());
        }
        let bad = || format!("`{text}` is not a shard such as 2/8, or auto");
        let (index, count) = text.split_once('/').ok_or_else(bad)?;
        Self::new(index.parse().map_err(|_| bad())?, count.parse().map_err(|_| bad())?)
    }
}

impl fmt::Display for RunShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// The prompts of a shard in the order in which they run; all prompts for `None`. The first sample of every kind
/// comes before the second of any, so that the beginning of a run says something about all of them.
pub fn prompts_of(mut prompts: Vec<PlannedPrompt>, shard: Option<RunShard>) -> Vec<PlannedPrompt> {
    prompts.retain(|prompt| shard.is_none_or(|shard| shard.has(prompt)));
    prompts.sort_by_key(|prompt| (prompt.sample, prompt.twin.unwrap_or(prompt.index), prompt.index));
    prompts
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::{PromptSpec, Windows};

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("2/8".parse(), Ok(RunShard { index: 2, count: 8 }));
        for bad in ["0/8", "9/8", "2", "2/", "/8", "-1/8", "a/b", ""] {
            assert!(bad.parse::<RunShard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_prompt_runs_after_its_twin() {
        let prompt = |(index, twin, sample): (u64, Option<u64>, u64)| {
            let spec = PromptSpec::Text(Windows { ctx_tok: 16, stride: None });
            PlannedPrompt { index, seed_index: twin.unwrap_or(index), twin, sample, spec }
        };
        let prompts = [(0, None, 0), (1, None, 1), (2, None, 0), (3, Some(0), 0), (4, Some(1), 1)].map(prompt);
        let order: Vec<u64> = prompts_of(prompts.to_vec(), None).iter().map(|prompt| prompt.index).collect();
        assert_eq!(order, [0, 3, 2, 1, 4]);
    }

    #[test]
    fn array_jobs_know_their_shard_or_say_why_not() {
        let of = |values: &str| {
            let set: Vec<(&str, &str)> = SLURM.into_iter().zip(values.split_whitespace()).collect();
            let get = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            RunShard::of_environment(get).map(|shard| shard.to_string())
        };
        for (values, shard) in [
            ("7 5 8 1 4", "3/4"),
            ("0 0 3 1 4", "1/4"),
            ("6 0 6 2 4", "4/4"),
            ("6 0 7 2 4", "4/4"),
            ("1 1 1 1 1", "1/1"),
        ] {
            assert_eq!(of(values), Ok(shard.to_owned()), "{values}");
        }
        for (values, words) in [
            ("1 1 3 1 2", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3"),
            ("3 1 3 1 2", "a part of an array runs again"),
            ("4 1 3 2 2", "SLURM_ARRAY_TASK_ID=4"),
            ("2 1 3 2 2", "SLURM_ARRAY_TASK_ID=2"),
            ("0 1 4 1 4", "SLURM_ARRAY_TASK_ID=0"),
            ("1 1 4 0 4", "SLURM_ARRAY_TASK_STEP=0"),
            ("1 4 1 1 4", "SLURM_ARRAY_TASK_MIN=4"),
            ("1", "SLURM_ARRAY_TASK_MIN is not set"),
            ("x 1 4 1 4", "SLURM_ARRAY_TASK_ID is `x`, not a number"),
            ("", "SLURM_ARRAY_TASK_ID is not set"),
        ] {
            let refused = of(values).unwrap_err();
            assert!(refused.contains(words) && refused.contains("I/N"), "{refused}");
        }
    }
}
