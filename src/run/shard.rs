//! Shards: parts of one experiment that run separately, on any machine.

use std::fmt;
use std::str::FromStr;
use text::PlannedPrompt;

/// What to do where variables do not tell.
const NAME_IT: &str = "name the shard as I/N";

/// The variables that a scheduler sets in the tasks of an array job; empty names are of variables that it does not have.
struct Scheduler {
    /// The number of the task.
    task: &'static str,
    /// The number of the first task, or what is counted from without it.
    first: &'static str,
    from: u64,
    /// The number of the last task.
    last: &'static str,
    /// The step from one task to the next.
    step: &'static str,
    /// The number of tasks.
    count: &'static str,
}

const NONE: Scheduler = Scheduler { task: "", first: "", from: 0, last: "", step: "", count: "" };

/// SLURM, Grid Engine, LSF, PBS, Torque, and Kubernetes, whose jobs have to set `JOB_COMPLETIONS` themselves.
const SCHEDULERS: [Scheduler; 6] = [
    Scheduler {
        task: "SLURM_ARRAY_TASK_ID",
        first: "SLURM_ARRAY_TASK_MIN",
        last: "SLURM_ARRAY_TASK_MAX",
        step: "SLURM_ARRAY_TASK_STEP",
        count: "SLURM_ARRAY_TASK_COUNT",
        ..NONE
    },
    Scheduler {
        task: "SGE_TASK_ID",
        first: "SGE_TASK_FIRST",
        last: "SGE_TASK_LAST",
        step: "SGE_TASK_STEPSIZE",
        ..NONE
    },
    Scheduler { task: "LSB_JOBINDEX", from: 1, last: "LSB_JOBINDEX_END", step: "LSB_JOBINDEX_STEP", ..NONE },
    Scheduler { task: "PBS_ARRAY_INDEX", ..NONE },
    Scheduler { task: "PBS_ARRAYID", ..NONE },
    Scheduler { task: "JOB_COMPLETION_INDEX", count: "JOB_COMPLETIONS", ..NONE },
];

impl Scheduler {
    /// The shard of this task; `None` if it is no task of an array of this scheduler.
    fn shard(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<RunShard>, String> {
        let Self { task, first, from, last, step, count } = *self;
        // Grid Engine and LSF say so of a job that is no array.
        if variable(task).is_none_or(|text| text == "undefined" || task == "LSB_JOBINDEX" && text == "0") {
            return Ok(None);
        }
        let number = |name: &str| -> Result<Option<u64>, String> {
            if name.is_empty() {
                return Ok(None);
            }
            let text = variable(name).ok_or_else(|| format!("{task} is set, but not {name}; {NAME_IT}"))?;
            text.trim().parse().map(Some).map_err(|_| format!("{name} is `{text}`, not a number"))
        };
        let at = number(task)?.unwrap_or_default();
        let first_at = number(first)?.unwrap_or(from);
        let stride = number(step)?.unwrap_or(1);
        let last_at = number(last)?;
        let tasks = number(count)?;
        let steps = |to: u64| to.checked_sub(first_at)?.checked_div(stride);
        let by_last = last_at.map(|last| steps(last).unwrap_or(0) + 1);
        let Some(all) = tasks.or(by_last) else {
            return Err(format!("{task} is set, and no variable says how many tasks there are; {NAME_IT}"));
        };
        let agree = by_last.is_none_or(|by_last| by_last == all) && stride > 0 && at >= first_at;
        match steps(at).filter(|&steps| agree && steps < all && first_at + steps * stride == at) {
            Some(steps) => RunShard::new(steps + 1, all).map(Some),
            None => {
                let names = [task, first, last, step, count].into_iter().filter(|name| !name.is_empty());
                let set: Vec<String> =
                    names.map(|name| format!("{name}={}", variable(name).unwrap_or_default())).collect();
                Err(format!(
                    "{} do not say which shard this is, as when a part of an array runs again; {NAME_IT}",
                    set.join(" ")
                ))
            }
        }
    }
}

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

    /// Reads the shard from the variables that schedulers set in the tasks of an array job.
    ///
    /// # Errors
    /// With the variables, if there are none, or they do not say which shard this is: some that are missing, as PBS has no number of
    /// tasks, or such as contradict each other, as those of SLURM do when a part of an array runs again.
    fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut found: Option<(&str, Self)> = None;
        for scheduler in &SCHEDULERS {
            let Some(shard) = scheduler.shard(&variable)? else { continue };
            match found {
                Some((task, other)) if other != shard => {
                    return Err(format!("{task} says shard {other}, {} {shard}; {NAME_IT}", scheduler.task));
                }
                _ => found = Some((scheduler.task, shard)),
            }
        }
        let tasks = SCHEDULERS.each_ref().map(|scheduler| scheduler.task).join(", ");
        found.map(|(_, shard)| shard).ok_or_else(|| format!("auto: none of {tasks} is set; {NAME_IT}"))
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
        let slurm = ["SLURM_ARRAY_TASK_ID", "_COUNT", "_MIN", "_MAX", "_STEP"];
        let sge = ["SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"];
        let lsf = ["LSB_JOBINDEX", "LSB_JOBINDEX_END", "LSB_JOBINDEX_STEP"];
        let kubernetes = ["JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"];
        let set = |names: &[&str], values: &str| {
            let full = |name: &str| match name.strip_prefix('_') {
                Some(end) => format!("SLURM_ARRAY_TASK_{end}"),
                None => name.to_owned(),
            };
            names.iter().map(|name| full(name)).zip(values.split(' ').map(str::to_owned)).collect::<Vec<_>>()
        };
        let of = |variables: &[(String, String)]| {
            let get = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
            RunShard::of_environment(get).map(|shard| shard.to_string())
        };
        for (names, values, shard) in [
            (&slurm[..], "7 4 5 8 1", "3/4"),
            (&slurm, "0 4 0 3 1", "1/4"),
            (&slurm, "6 4 0 6 2", "4/4"),
            (&slurm, "6 4 0 7 2", "4/4"),
            (&slurm, "1 1 1 1 1", "1/1"),
            (&sge, "3 1 8 1", "3/8"),
            (&sge, "5 1 7 2", "3/4"),
            (&lsf, "3 8 1", "3/8"),
            (&lsf, "5 9 4", "2/3"),
            (&kubernetes, "0 4", "1/4"),
        ] {
            assert_eq!(of(&set(names, values)), Ok(shard.to_owned()), "{values}");
        }
        for (names, values, words) in [
            (&slurm[..], "1 2 1 3 1", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3"),
            (&slurm, "3 2 1 3 1", "a part of an array runs again"),
            (&slurm, "4 2 1 3 2", "SLURM_ARRAY_TASK_ID=4"),
            (&slurm, "2 2 1 3 2", "SLURM_ARRAY_TASK_ID=2"),
            (&slurm, "0 4 1 4 1", "SLURM_ARRAY_TASK_ID=0"),
            (&slurm, "1 4 1 4 0", "SLURM_ARRAY_TASK_STEP=0"),
            (&slurm, "1 4 4 1 1", "SLURM_ARRAY_TASK_MIN=4"),
            (&slurm[..2], "1 4", "not SLURM_ARRAY_TASK_MIN"),
            (&slurm, "x 4 1 4 1", "SLURM_ARRAY_TASK_ID is `x`, not a number"),
            (&sge, "9 1 8 1", "SGE_TASK_ID=9"),
            (&sge, "undefined undefined undefined undefined", "none of SLURM_ARRAY_TASK_ID"),
            (&lsf, "9 8 1", "LSB_JOBINDEX=9"),
            (&lsf, "0 0 0", "none of SLURM_ARRAY_TASK_ID"),
            (&["PBS_ARRAY_INDEX"], "3", "PBS_ARRAY_INDEX is set, and no variable says how many"),
            (&["PBS_ARRAYID"], "3", "PBS_ARRAYID is set"),
            (&kubernetes, "4 4", "JOB_COMPLETION_INDEX=4"),
            (&kubernetes[..1], "1", "not JOB_COMPLETIONS"),
            (&[], "", "none of SLURM_ARRAY_TASK_ID"),
        ] {
            let refused = of(&set(names, values)).unwrap_err();
            assert!(
                refused.contains(words) && (refused.contains("I/N") || words.contains("not a number")),
                "{refused}"
            );
        }
        let both = [set(&slurm, "1 4 1 4 1"), set(&kubernetes, "2 4")].concat();
        assert!(of(&both).unwrap_err().contains("SLURM_ARRAY_TASK_ID says shard 1/4, JOB_COMPLETION_INDEX 3/4"));
        assert_eq!(of(&[set(&slurm, "1 4 1 4 1"), set(&kubernetes, "0 4")].concat()), Ok("1/4".to_owned()));
    }
}
