//! How far a run is, on stderr: a bar on a terminal, a line now and then elsewhere.

use super::plural;
use crate::experiment::{Plan, Setup, Shard, Watch};
use crate::record::Record;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// A bar with the time left.
fn progress_bar(plan: &Plan<'_>, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let (resumed, estimate) = (plan.resumed as u64, plan.seconds);
    // Before the first prompt is done, nothing but the estimate is known.
    let left = move |state: &ProgressState, out: &mut dyn Write| {
        let _ = match estimate {
            _ if state.pos() > resumed => write!(out, ", {:#} left", HumanDuration(state.eta())),
            Some(seconds) => write!(out, ", {:#} left", HumanDuration(Duration::from_secs_f64(seconds))),
            None => Ok(()),
        };
    };
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} prompts{left}{msg}").expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(plan.cells as u64), target).with_style(style.with_key("left", left));
    bar.set_position(resumed);
    bar.reset_eta();
    bar
}

/// Lines that follow each other faster are no news.
const SHORTEST: Duration = Duration::from_secs(2);

/// When a log is due for another line: after every tenth of the work, if it took some seconds, and after half a minute with a
/// hundredth of it.
pub(super) struct Beat {
    all: usize,
    done: usize,
    begun: Instant,
    /// When the last line was, and what was done then.
    last: (Instant, usize),
}

/// Half a minute without a word looks like a hang.
const SILENCE: Duration = Duration::from_secs(30);

impl Beat {
    /// For so many pieces of work.
    pub(super) fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { all, done: 0, begun: now, last: (now, 0) }
    }

    /// One piece is done: the line that is due, if one is. Nothing when all is done: the results say so.
    pub(super) fn step(&mut self, now: Instant) -> Option<String> {
        self.done += 1;
        let since = self.done - self.last.1;
        let waited = now.duration_since(self.last.0);
        let silent = waited >= SILENCE;
        let due = (10 * since >= self.all && waited >= SHORTEST) || (silent && 100 * since >= self.all);
        // A run of a few prompts is over before anybody wonders.
        if self.done >= self.all || !due || (self.all < 10 && !silent) {
            return None;
        }
        self.last = (now, self.done);
        let each = now.duration_since(self.begun).as_secs_f64() / self.done as f64;
        let left = Duration::from_secs_f64(each * (self.all - self.done) as f64);
        Some(format!("{} of {} prompts, about {} left", self.done, self.all, HumanDuration(left)))
    }
}

/// Tells people how far a run is.
pub(super) struct Terminal<'a> {
    setup: &'a Setup,
    shard: Option<Shard>,
    quiet: bool,
    bar: ProgressBar,
    beat: Beat,
    see: &'a mut dyn FnMut(&Record),
    /// Numbers asked for, and of them those that were found, by model; untreated.
    found: Vec<(String, usize, usize)>,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(setup: &'a Setup, shard: Option<Shard>, quiet: bool, see: &'a mut dyn FnMut(&Record)) -> Self {
        Self { setup, shard, quiet, bar: ProgressBar::hidden(), beat: Beat::new(0), see, found: Vec::new() }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// What has been found so far, for the progress bar: `; found so far: transformer 92 %, diff 97 %`.
    fn so_far(&self) -> String {
        let share = |(model, asked, found): &(String, usize, usize)| format!("{model} {} %", 100 * found / asked);
        let shares: Vec<String> = self.found.iter().map(share).collect();
        if shares.is_empty() {
            return String::new();
        }
        format!("; found so far: {}", shares.join(", "))
    }

    fn announce(&self, plan: &Plan<'_>) {
        let names: Vec<&str> = self.setup.models.iter().map(|m| m.name.as_str()).collect();
        let shard = self.shard.map_or(String::new(), |shard| format!(" (shard {shard})"));
        let resumed = if plan.resumed > 0 { format!(", {} of them done", plan.resumed) } else { String::new() };
        crate::say!(
            "{}{shard} on {}{resumed}: {}about {} MiB of memory -> {}",
            plural(plan.cells, "prompt"),
            names.join(", "),
            plan.seconds.map_or(String::new(), |seconds| format!("about {seconds:.0} s, ")),
            plan.memory_bytes / (1 << 20),
            plan.folder.display()
        );
        for info in self.setup.models.iter().map(|model| &model.info).filter(|info| info.path.is_some()) {
            if let Some(bos) = &info.bos {
                let chat = if info.chat_template_sha256.is_some() { ", in its chat template" } else { "" };
                crate::say!("{}: {}; prompts begin with {bos}{chat}", info.name, info.layout);
            }
        }
    }
}

impl Watch for Terminal<'_> {
    fn wants_seconds(&self) -> bool {
        !self.quiet
    }

    fn paces(&mut self) {
        if !self.quiet && std::io::stderr().is_terminal() {
            self.bar = ProgressBar::new_spinner().with_message("measuring speed…");
            self.bar.tick();
        }
    }

    fn begins(&mut self, plan: &Plan<'_>) {
        self.bar.finish_and_clear();
        if !self.quiet {
            self.announce(plan);
        }
        self.bar = progress_bar(plan, self.quiet);
        self.beat = Beat::new(plan.cells.saturating_sub(plan.resumed));
    }

    fn record(&mut self, record: &Record) {
        if let (Some(value), "exact", None) =
            (record.measure.value, &*record.measure.metric, record.identity.condition.as_deref())
        {
            let model = &record.identity.model;
            let hit = usize::from(value == 1.0);
            match self.found.iter_mut().find(|(name, ..)| name == model) {
                Some((_, asked, found)) => (*asked, *found) = (*asked + 1, *found + hit),
                None => self.found.push((model.clone(), 1, hit)),
            }
        }
        (self.see)(record);
    }

    fn cell(&mut self) {
        self.bar.inc(1);
        self.bar.set_message(self.so_far());
        let line = self.beat.step(Instant::now());
        if let Some(line) = line.filter(|_| !self.quiet && !std::io::stderr().is_terminal()) {
            crate::say!("{line}{}", self.so_far());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of pieces after which a line is due, if each takes so many seconds.
    fn due(all: usize, seconds: u64) -> Vec<usize> {
        let mut beat = Beat::new(all);
        let begun = beat.begun;
        let at = |i: usize| begun + Duration::from_secs(seconds * i as u64);
        (1..=all).filter(|&i| beat.step(at(i)).is_some()).collect()
    }

    #[test]
    fn a_line_is_due_after_every_tenth_and_after_half_a_minute() {
        assert_eq!(due(40, 0), Vec::<usize>::new());
        assert_eq!(due(40, 1), [4, 8, 12, 16, 20, 24, 28, 32, 36]);
        assert_eq!(due(40, 10), [3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39]);
        assert_eq!(due(4, 1), Vec::<usize>::new());
        assert_eq!(due(3, 60), [1, 2]);
        assert_eq!(due(5000, 30).len(), 99, "a line for each hundredth at most");
    }

    #[test]
    fn a_line_says_how_long_the_rest_takes() {
        let mut beat = Beat::new(2);
        let now = beat.begun + Duration::from_secs(90);
        assert_eq!(beat.step(now).as_deref(), Some("1 of 2 prompts, about 2 minutes left"));
    }
}
