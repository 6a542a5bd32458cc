//! Progress of training on stderr: bars on a terminal; occasional lines and one for every finished run elsewhere.

use crate::commands::progress::{write_left, LINE_INTERVAL};
use crate::train::{Progress, TrainRun, TrainSpec};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Instant;

/// Largest number of runs that all have a bar; with more, waiting and finished runs have none.
const MOST_BARS: usize = 8;

/// Returns the names of runs, or their number if they are many.
pub(super) fn named(runs: &[TrainRun]) -> String {
    match runs.len() {
        ..=MOST_BARS => runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{many} runs"),
    }
}

/// One progress bar per run, and one for all of them, which is shown if they are many.
pub(super) struct Bars {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    whole: ProgressBar,
    /// Print lines instead of bars.
    lines: bool,
    tokens_each: u64,
    /// Time of the last line.
    said: Mutex<Instant>,
}

impl Bars {
    pub(super) fn new(spec: &TrainSpec, runs: &[TrainRun], quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let widest = runs.iter().map(|run| run.name.len()).max().unwrap_or(0);
        let template = format!("{{prefix:{widest}}} {{bar:24}} {{human_pos}}/{{human_len}} tokens{{left}}  {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("a valid template").with_key("left", write_left);
        let bar = |name: &str, length: u64| {
            let bar = ProgressBar::hidden().with_style(style.clone()).with_prefix(name.to_owned());
            bar.set_length(length);
            bar
        };
        let tokens_each = spec.total_tokens() as u64;
        let bars: Vec<ProgressBar> = runs.iter().map(|run| bar(&run.name, tokens_each)).collect();
        let whole = bar("all", tokens_each * runs.len() as u64);
        let shown = if runs.len() > MOST_BARS { std::slice::from_ref(&whole) } else { &bars };
        shown.iter().for_each(|bar| _ = all.add(bar.clone()));
        Self {
            all,
            bars,
            whole,
            lines: !quiet && !std::io::stderr().is_terminal(),
            tokens_each,
            said: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn finish(&self) {
        self.bars.iter().chain([&self.whole]).for_each(ProgressBar::abandon);
    }

    /// Records the progress of a run.
    fn advance(&self, run: usize, tokens: usize) {
        self.bars[run].set_position(tokens as u64);
        self.whole.set_position(self.bars.iter().map(ProgressBar::position).sum());
        self.whole.set_message(format!("{} of {} runs", self.finished(), self.bars.len()));
    }

    fn finished(&self) -> usize {
        self.bars.iter().filter(|bar| bar.position() >= self.tokens_each).count()
    }

    /// Formats a progress line.
    fn line(&self, run: usize, message: &str) -> String {
        let percent = 100 * self.bars[run].position() / self.tokens_each;
        let trained = if percent < 100 { format!("{percent} % of its tokens, ") } else { String::new() };
        let (finished, runs, left) = (self.finished(), self.bars.len(), self.whole.eta());
        let left = if left.is_zero() { String::new() } else { format!(", about {} left", HumanDuration(left)) };
        format!("{}: {trained}{message}; {finished} of {runs} runs{left}", self.bars[run].prefix())
    }
}

impl Progress for Bars {
    fn begin(&self, run: usize, tokens: usize) {
        self.advance(run, tokens);
        if tokens > 0 {
            self.bars[run].reset_eta();
            self.whole.reset_eta();
        }
    }

    fn step(&self, run: usize, tokens: usize, message: &str) {
        let (bar, many) = (&self.bars[run], self.bars.len() > MOST_BARS);
        let finished = tokens as u64 >= self.tokens_each;
        if many && bar.is_hidden() && !finished {
            self.all.add(bar.clone());
        }
        self.advance(run, tokens);
        bar.set_message(message.to_owned());
        if finished && many {
            bar.finish_and_clear();
            self.all.remove(bar);
        }
        let mut said = self.said.lock().expect("the lock is not poisoned");
        // A run has no message before its first log line.
        if self.lines && (finished || (!message.is_empty() && said.elapsed() >= LINE_INTERVAL)) {
            *said = Instant::now();
            crate::say!("{}", self.line(run, message));
        }
    }
}
