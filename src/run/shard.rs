//! Shards: parts of one experiment that run separately, on any machine.

use crate::prompts::PlannedPrompt;
use std::fmt;
use std::str::FromStr;

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

    /// Reads the shard from the environment of an array job: `SLURM_ARRAY_TASK_ID` of `SLURM_ARRAY_TASK_COUNT`, counted
    /// from `SLURM_ARRAY_TASK_MIN`; or Kubernetes' `JOB_COMPLETION_INDEX` of `JOB_COMPLETIONS`, which the job has to
    /// set.
    fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| -> Result<Option<u64>, String> {
            let Some(text) = variable(name) else { return Ok(None) };
            text.trim().parse().map(Some).map_err(|_| format!("{name} is `{text}`, not a number"))
        };
        for [id, count, first] in [
            ["SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"],
            ["JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", ""],
        ] {
            let Some(index) = number(id)? else { continue };
            let count = number(count)?.ok_or_else(|| format!("{id} is set, but not {count}; name the shard as I/N"))?;
            let first_index = number(first)?.unwrap_or(0);
            let index = index.checked_sub(first_index).ok_or_else(|| format!("{id} is below {first}"))?;
            return Self::new(index.saturating_add(1), count);
        }
        Err("auto: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; name the shard as I/N".into())
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

/// Returns the prompts of a shard in the order in which they run; all prompts for `None`. The first sample of every kind
/// comes before the second of any, so that the beginning of a run says something about all of them.
pub fn prompts_of(mut prompts: Vec<PlannedPrompt>, shard: Option<RunShard>) -> Vec<PlannedPrompt> {
    prompts.retain(|prompt| shard.is_none_or(|shard| shard.has(prompt)));
    prompts.sort_by_key(|prompt| (prompt.sample, prompt.twin.unwrap_or(prompt.index), prompt.index));
    prompts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompts::{PromptSpec, Windows};

    fn of(variables: &[(&str, &str)]) -> Result<String, String> {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        RunShard::of_environment(get).map(|shard| shard.to_string())
    }

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
    fn array_jobs_know_their_shard() {
        let slurm = [("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_ARRAY_TASK_COUNT", "4"), ("SLURM_ARRAY_TASK_MIN", "5")];
        assert_eq!(of(&slurm), Ok("3/4".into()));
        assert_eq!(of(&[("JOB_COMPLETION_INDEX", "0"), ("JOB_COMPLETIONS", "4")]), Ok("1/4".into()));
        assert!(of(&slurm[..1]).unwrap_err().contains("SLURM_ARRAY_TASK_COUNT"));
        assert!(of(&[("JOB_COMPLETION_INDEX", "4"), ("JOB_COMPLETIONS", "4")]).is_err());
        assert!(of(&[("JOB_COMPLETION_INDEX", "x")]).unwrap_err().contains("not a number"));
        assert!(of(&[]).unwrap_err().contains("neither"));
    }
}
