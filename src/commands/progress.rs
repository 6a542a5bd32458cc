//! Progress of a run on stderr: a bar on a terminal, occasional lines elsewhere.

use crate::results::table::plural;
use crate::run::{MissedDepth, Run, Series};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Time between two lines where stderr is not a terminal.
pub(super) const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Returns `true` if stderr is a terminal that can write over a line.
pub(super) fn is_live() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Where a bar is drawn: twice a second at most, as notebooks keep all that a terminal is sent.
pub(super) fn draw_target(quiet: bool) -> ProgressDrawTarget {
    if quiet || !is_live() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(2)
    }
}

/// A progress bar, whose message is the time left.
fn progress_bar(run: &Run) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} prompts{msg}").expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(run.prompts() as u64), draw_target(run.style.quiet));
    bar.set_style(style);
    bar.set_position(run.resumed as u64);
    bar
}

/// A spinner, until it is dropped, for a measurement before the run; a line where stderr is no terminal.
pub(super) struct Preparation(ProgressBar);

impl Preparation {
    /// Says what begins, if anything does: `measuring heads on prompts of their own`.
    pub(super) fn begin(quiet: bool, what: Option<&'static str>) -> Option<Self> {
        let what = what?;
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a valid template");
        let bar = ProgressBar::with_draw_target(None, draw_target(quiet)).with_style(style).with_message(what);
        bar.enable_steady_tick(Duration::from_millis(500));
        if !quiet && !is_live() {
            base::say!("{what}");
        }
        Some(Self(bar))
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// An estimate of the time left: what is left takes as long as what is done did, by a measure of work.
pub(super) struct TimeLeft {
    begun: Instant,
    left: u64,
    done: u64,
}

impl TimeLeft {
    /// Begins the clock on so much work.
    pub(super) fn new(work: u64) -> Self {
        Self { begun: Instant::now(), left: work, done: 0 }
    }

    /// Takes off what an earlier process did.
    pub(super) fn skip(&mut self, work: u64) {
        self.left -= work;
    }

    pub(super) fn finished(&mut self, work: u64) {
        self.skip(work);
        self.done += work;
    }

    /// The time left after so much time; `None` before any work is done.
    fn after(&self, elapsed: Duration) -> Option<Duration> {
        (self.done > 0).then(|| elapsed.mul_f64(self.left as f64 / self.done as f64))
    }

    /// The time left, in words.
    pub(super) fn words(&self) -> Option<String> {
        self.after(self.begun.elapsed()).map(|left| HumanDuration(left).to_string())
    }
}

/// Says which depths the needles have instead of those that are asked for, in a line for each length of prompts.
fn say_missed_depths<'a>(missed: impl Iterator<Item = &'a MissedDepth>) {
    let mut by_length: BTreeMap<usize, Vec<&MissedDepth>> = BTreeMap::new();
    for depth in missed {
        by_length.entry(depth.ctx_tok).or_default().push(depth);
    }
    for (ctx_tok, depths) in by_length {
        let asked: BTreeSet<u64> = depths.iter().map(|depth| depth.asked_pct.round() as u64).collect();
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        let real = || depths.iter().map(|depth| depth.real_pct);
        let ends =
            [real().fold(f64::MAX, f64::min), real().fold(f64::MIN, f64::max)].map(|depth| format!("{depth:.0}"));
        let depths = if ends[0] == ends[1] { &ends[0] } else { &ends.join(" to ") };
        base::say!("{ctx_tok} tokens: depths are {depths} % instead of {}", asked.join(", "));
    }
}

/// Says what is measured, and into which folder.
fn announce(run: &Run) {
    let setup = run.setup();
    let names: Vec<&str> = setup.models.iter().map(|m| m.name.as_str()).collect();
    let shard = run.part.shard.map_or(String::new(), |shard| format!(" (shard {shard})"));
    let resumed = if run.resumed > 0 { format!(", {} of them done", run.resumed) } else { String::new() };
    base::say!(
        "{}{shard}{} on {}{resumed} -> {}",
        plural(run.prompts(), "prompt"),
        conditions_in_words(run),
        names.join(", "),
        run.folder.path().display()
    );
    if let Some(kinds) = run.processors() {
        base::say!(
            "shards were measured on processors of several kinds, whose sums differ in their last bits: {}",
            kinds.join("; ")
        );
    }
    say_missed_depths(run.missed_depths());
    if let Some(copy) = run.put_aside() {
        base::say!(
            "what follows {} is damaged and measured again; {} and results.csv beside it keep what was there",
            plural(run.resumed, "finished prompt"),
            copy.display()
        );
    }
    for info in setup.models.iter().map(|model| &model.info).filter(|info| info.path.is_some()) {
        if let Some(bos) = &info.bos {
            let chat = if info.chat_template_sha256.is_some() { ", in its chat template" } else { "" };
            base::say!("{}: {}; prompts begin with {bos}{chat}", info.name, info.layout);
        }
        if let Some(opening) = &info.answer_opening {
            let name = &info.name;
            base::say!("{name}: its chat template leaves the answer open (a thinking block or a channel); answers follow {opening:?}");
        }
    }
}

/// ` under 41 conditions`; nothing if there are only untreated passes, or several series.
fn conditions_in_words(run: &Run) -> String {
    match run.series.as_slice() {
        [Series { setup, .. }] if setup.conditions.len() > 1 => format!(" under {} conditions", setup.conditions.len()),
        _ => String::new(),
    }
}

/// Prints the progress of a run to stderr.
pub(super) struct ProgressReporter {
    quiet: bool,
    bar: ProgressBar,
    /// ` under 41 conditions`.
    conditions: String,
    /// Time of the last line.
    said: Instant,
    /// The work of each prompt that is left: about as much as it has tokens and passes.
    prompts: VecDeque<u64>,
    time_left: TimeLeft,
}

impl ProgressReporter {
    /// Announces a run that is prepared.
    pub(super) fn begin(run: &Run) -> Self {
        if !run.style.quiet {
            announce(run);
        }
        let prompts: VecDeque<u64> = run.series.iter().flat_map(Series::work).skip(run.resumed).collect();
        Self {
            quiet: run.style.quiet,
            bar: progress_bar(run),
            conditions: conditions_in_words(run),
            said: Instant::now(),
            time_left: TimeLeft::new(prompts.iter().sum()),
            prompts,
        }
    }

    pub(super) fn prompt_finished(&mut self) {
        self.time_left.finished(self.prompts.pop_front().unwrap_or(0));
        if let Some(left) = self.time_left.words() {
            self.bar.set_message(format!(", {left} left"));
        }
        self.bar.inc(1);
        if !self.quiet && !is_live() {
            self.print_if_due();
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints a progress line if the last one is half a minute old.
    fn print_if_due(&mut self) {
        let done = self.bar.position();
        let all = self.bar.length().unwrap_or(0);
        if self.said.elapsed() >= LINE_INTERVAL && done < all {
            self.said = Instant::now();
            let left = self.time_left.words().unwrap_or_default();
            base::say!("{done} of {all} prompts{}, about {left} left", self.conditions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_goes_by_work_that_this_process_did() {
        let mut time = TimeLeft::new(20_000);
        time.skip(10_000);
        assert_eq!(time.after(Duration::from_secs(9)), None, "nothing is known before the first prompt");
        time.finished(2000);
        assert_eq!(time.after(Duration::from_secs(10)), Some(Duration::from_secs(40)));
        time.finished(4000);
        assert_eq!(time.after(Duration::from_secs(30)), Some(Duration::from_secs(20)));
    }
}
