//! Progress of training on stderr: one bar for all runs on a terminal; elsewhere occasional lines, and one for every
//! finished run.

use crate::commands::progress::{draw_target, is_live, write_left, LINE_INTERVAL};
use crate::train::{Progress, TrainRun, TrainSpec};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
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
}

impl<'a> TrainReporter<'a> {
    pub(super) fn new(spec: &TrainSpec, runs: &'a [TrainRun], quiet: bool) -> Self {
        let tokens_each = spec.total_tokens() as u64;
        let style = ProgressStyle::with_template("{bar:20} {human_pos}/{human_len} tokens{left}  {wide_msg}");
        let style = style.expect("a valid template").with_key("left", write_left);
        Self {
            runs,
            tokens_each,
            bar: ProgressBar::with_draw_target(Some(tokens_each * runs.len() as u64), draw_target(quiet))
                .with_style(style),
            lines: !quiet && !is_live(),
            quiet,
            state: Mutex::new(State { tokens: vec![0; runs.len()], said: Instant::now() }),
        }
    }

    pub(super) fn finish(&self) {
        self.bar.abandon();
    }

    /// Records the progress of a run.
    fn advance(&self, run: usize, tokens: usize) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("no panic holds this lock");
        state.tokens[run] = tokens as u64;
        self.bar.set_position(state.tokens.iter().sum());
        state
    }
}

impl Progress for TrainReporter<'_> {
    fn begin(&self, run: usize, tokens: usize) {
        drop(self.advance(run, tokens));
        self.bar.reset_eta();
    }

    fn say(&self, run: usize, message: &str) {
        if !self.quiet {
            self.bar.suspend(|| base::say!("{}: {message}", self.runs[run].name));
        }
    }

    fn step(&self, run: usize, tokens: usize, message: &str) {
        let mut state = self.advance(run, tokens);
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
            let left = self.bar.eta();
            let left = if left.is_zero() { String::new() } else { format!(", about {} left", HumanDuration(left)) };
            base::say!("{name}: {trained}{message}; {finished} of {runs} runs{left}");
        }
    }
}
