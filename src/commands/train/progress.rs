//! Progress of training on stderr: one bar for all runs on a terminal; elsewhere occasional lines, and one for every
//! finished run.

use crate::commands::progress::{draw_target, is_live, TimeLeft, LINE_INTERVAL};
use crate::train::{Progress, TrainRun, TrainSpec};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Prints the progress of training to stderr.
pub(super) struct TrainReporter<'a> {
    runs: &'a [TrainRun],
    tokens_each: u64,
    bar: ProgressBar,
    /// Print lines instead of the bar.
    lines: bool,
    quiet: bool,
    state: Mutex<State>,
}

struct State {
    /// Tokens of each run so far.
    tokens: Vec<u64>,
    /// Time of the last line.
    said: Instant,
    /// By tokens.
    time_left: TimeLeft,
}

impl<'a> TrainReporter<'a> {
    pub(super) fn new(spec: &TrainSpec, runs: &'a [TrainRun], quiet: bool) -> Self {
        let tokens_each = spec.total_tokens() as u64;
        let all = tokens_each * runs.len() as u64;
        let style = ProgressStyle::with_template("{bar:20} {human_pos}/{human_len} tokens{prefix}  {wide_msg}");
        let style = style.expect("a valid template");
        Self {
            runs,
            tokens_each,
            bar: ProgressBar::with_draw_target(Some(all), draw_target(quiet)).with_style(style),
            lines: !quiet && !is_live(),
            quiet,
            state: Mutex::new(State {
                tokens: vec![0; runs.len()],
                said: Instant::now(),
                time_left: TimeLeft::new(all),
            }),
        }
    }

    pub(super) fn finish(&self) {
        self.bar.abandon();
    }

    /// Sets the tokens of a run, and returns by how many they grew.
    fn advance(&self, state: &mut State, run: usize, tokens: usize) -> u64 {
        let before = std::mem::replace(&mut state.tokens[run], tokens as u64);
        self.bar.set_position(state.tokens.iter().sum());
        tokens as u64 - before
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic holds this lock")
    }
}

impl Progress for TrainReporter<'_> {
    fn begin(&self, run: usize, tokens: usize) {
        let mut state = self.state();
        let grown = self.advance(&mut state, run, tokens);
        state.time_left.skip(grown);
    }

    fn say(&self, run: usize, message: &str) {
        if !self.quiet {
            self.bar.suspend(|| base::say!("{}: {message}", self.runs[run].name));
        }
    }

    fn step(&self, run: usize, tokens: usize, message: &str) {
        let mut state = self.state();
        let grown = self.advance(&mut state, run, tokens);
        state.time_left.finished(grown);
        let left = state.time_left.words().unwrap_or_default();
        self.bar.set_prefix(format!(", {left} left"));
        let name = &self.runs[run].name;
        let runs = self.runs.len();
        let percent = 100 * tokens as u64 / self.tokens_each;
        let finished = state.tokens.iter().filter(|&&tokens| tokens >= self.tokens_each).count();
        self.bar.set_message(format!("{name}: {message}; {finished} of {runs} runs"));
        // A run has no message before its first log line.
        let is_due = !message.is_empty() && state.said.elapsed() >= LINE_INTERVAL;
        if self.lines && (percent >= 100 || is_due) {
            state.said = Instant::now();
            let trained = if percent < 100 { format!("{percent} % of its tokens, ") } else { String::new() };
            let left = if finished < runs { format!(", about {left} left") } else { String::new() };
            base::say!("{name}: {trained}{message}; {finished} of {runs} runs{left}");
        }
    }
}
