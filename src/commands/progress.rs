//! Progress of a run on stderr: a bar on a terminal, occasional lines elsewhere.

use crate::results::record::Record;
use crate::results::table::plural;
use crate::run::{MissedDepth, RunObserver, RunPlan, RunShard, Setup};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Time between two lines where stderr is not a terminal.
pub(super) const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Writes the time left, `, 2h left`; nothing before any work is done.
pub(super) fn write_left(state: &ProgressState, out: &mut dyn Write) {
    if !state.eta().is_zero() {
        let _ = write!(out, ", {:#} left", HumanDuration(state.eta()));
    }
}

/// Returns `true` if stderr is a terminal that can write over a line.
pub(super) fn is_live() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns where a bar is drawn: twice a second at most, as notebooks keep all that a terminal is sent.
pub(super) fn draw_target(quiet: bool) -> ProgressDrawTarget {
    if quiet || !is_live() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(2)
    }
}

/// Returns a progress bar with the time left.
fn progress_bar(plan: &RunPlan<'_>, quiet: bool) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} prompts{left}").expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(plan.prompts as u64), draw_target(quiet));
    bar.set_style(style.with_key("left", write_left));
    bar.set_position(plan.resumed as u64);
    bar.reset_eta();
    bar
}

/// Says which depths the needles have instead of those that are asked for, in a line for each length of prompts.
fn say_missed_depths(missed: &[MissedDepth]) {
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
        crate::say!("{ctx_tok} tokens: depths are {depths} % instead of {}", asked.join(", "));
    }
}

/// Prints the progress of a run to stderr.
pub(super) struct ProgressReporter<'a> {
    setup: &'a Setup,
    shard: Option<RunShard>,
    quiet: bool,
    bar: ProgressBar,
    /// Time of the last line.
    said: Instant,
    see: &'a mut dyn FnMut(&Record),
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(setup: &'a Setup, shard: Option<RunShard>, quiet: bool, see: &'a mut dyn FnMut(&Record)) -> Self {
        Self { setup, shard, quiet, bar: ProgressBar::hidden(), said: Instant::now(), see }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints a progress line if the last one is half a minute old.
    fn print_if_due(&mut self) {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        if self.said.elapsed() >= LINE_INTERVAL && done < all {
            self.said = Instant::now();
            let conditions = self.conditions_in_words();
            let left = HumanDuration(self.bar.eta());
            crate::say!("{done} of {all} prompts{conditions}, about {left} left");
        }
    }

    /// Returns ` under 41 conditions`; nothing if there are only untreated passes.
    fn conditions_in_words(&self) -> String {
        match self.setup.conditions.len() {
            1 => String::new(),
            conditions => format!(" under {conditions} conditions"),
        }
    }

    fn announce(&self, plan: &RunPlan<'_>) {
        let names: Vec<&str> = self.setup.models.iter().map(|m| m.name.as_str()).collect();
        let shard = self.shard.map_or(String::new(), |shard| format!(" (shard {shard})"));
        let resumed = if plan.resumed > 0 { format!(", {} of them done", plan.resumed) } else { String::new() };
        crate::say!(
            "{}{shard}{} on {}{resumed} -> {}",
            plural(plan.prompts, "prompt"),
            self.conditions_in_words(),
            names.join(", "),
            plan.folder.display()
        );
        say_missed_depths(plan.missed_depths);
        if let Some(copy) = plan.put_aside {
            crate::say!(
                "what follows {} is damaged and measured again; {} and results.csv beside it keep what was there",
                plural(plan.resumed, "finished prompt"),
                copy.display()
            );
        }
        for info in self.setup.models.iter().map(|model| &model.info).filter(|info| info.path.is_some()) {
            if let Some(bos) = &info.bos {
                let chat = if info.chat_template_sha256.is_some() { ", in its chat template" } else { "" };
                crate::say!("{}: {}; prompts begin with {bos}{chat}", info.name, info.layout);
            }
            if let Some(opening) = &info.answer_opening {
                let name = &info.name;
                crate::say!("{name}: its chat template leaves the answer open (a thinking block or a channel); answers follow {opening:?}");
            }
        }
    }
}

impl RunObserver for ProgressReporter<'_> {
    fn run_begins(&mut self, plan: &RunPlan<'_>) {
        if !self.quiet {
            self.announce(plan);
        }
        self.bar = progress_bar(plan, self.quiet);
        self.said = Instant::now();
    }

    fn record(&mut self, record: &Record) {
        (self.see)(record);
    }

    fn prompt_finished(&mut self) {
        self.bar.inc(1);
        if !self.quiet && !is_live() {
            self.print_if_due();
        }
    }
}
