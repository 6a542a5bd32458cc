//! Progress of training on stderr: bars on a terminal; occasional lines and one for every finished run elsewhere.

use crate::cmd::log_throttle::{left_in_words, time_left, LogThrottle};
use crate::prompt::Tokenizer;
use crate::train::{Progress, TrainRun, TrainSpec, Work};
use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Largest number of runs that all have a bar; with more, waiting and finished runs have none.
const MOST_BARS: usize = 8;

/// Returns the names of runs, or their number if they are many.
pub(super) fn named(runs: &[TrainRun]) -> String {
    match runs.len() {
        ..=MOST_BARS => runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{many} runs"),
    }
}

/// One progress bar per run, and one for all of them if they are many.
pub(super) struct Bars {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    whole: Option<ProgressBar>,
    names: Vec<String>,
    /// Print lines instead of bars.
    lines: bool,
    tokens_each: usize,
    throttle: Mutex<LogThrottle>,
    begun: Instant,
    /// Total work of every run.
    work: Vec<Work>,
    /// Progress of every run that has begun.
    places: Mutex<Vec<Option<RunProgress>>>,
}

/// Progress of one run.
struct RunProgress {
    begun: Instant,
    tokens: usize,
    /// Work done when it began.
    first: f64,
    /// Work done now.
    done: f64,
}

impl Bars {
    pub(super) fn new(spec: &TrainSpec, runs: &[TrainRun], quiet: bool) -> Result<Self> {
        let configs = spec.configs(Tokenizer::embedded().vocab_size())?;
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let widest = runs.iter().map(|run| run.name.len()).max().unwrap_or(0);
        let template = format!("{{prefix:{widest}}} {{bar:24}} {{human_pos}}/{{human_len}} tokens{{msg}}");
        let style = ProgressStyle::with_template(&template).expect("a valid template");
        let bar = |name: &str, length: usize| {
            let bar = ProgressBar::hidden().with_style(style.clone()).with_prefix(name.to_owned());
            bar.set_length(length as u64);
            bar
        };
        let (tokens_each, begun) = (spec.total_tokens(), Instant::now());
        let bars: Vec<ProgressBar> = runs.iter().map(|run| bar(&run.name, tokens_each)).collect();
        let whole = (runs.len() > MOST_BARS).then(|| all.add(bar("all", tokens_each * runs.len())));
        if whole.is_none() {
            bars.iter().for_each(|bar| _ = all.add(bar.clone()));
        }
        Ok(Self {
            all,
            bars,
            whole,
            names: runs.iter().map(|run| run.name.clone()).collect(),
            lines: !quiet && !std::io::stderr().is_terminal(),
            tokens_each,
            throttle: Mutex::new(LogThrottle::new(tokens_each * runs.len(), 0, begun)),
            begun,
            work: runs.iter().map(|run| spec.work(&configs[run.variant])).collect(),
            places: Mutex::new(runs.iter().map(|_| None).collect()),
        })
    }

    pub(super) fn finish(&self) {
        self.bars.iter().chain(&self.whole).for_each(ProgressBar::abandon);
    }

    /// Records the progress of a run and returns that of all runs.
    fn record_progress(&self, run: usize, tokens: usize) -> OverallProgress {
        let mut places = self.places.lock().expect("the lock is not poisoned");
        let (all, done) = (self.work[run].until(self.tokens_each), self.work[run].until(tokens));
        let place = places[run].get_or_insert_with(|| RunProgress { begun: Instant::now(), tokens, first: done, done });
        (place.tokens, place.done) = (tokens, done);
        let left_of_run = time_left(place.begun.elapsed(), done - place.first, all - done);
        let all: f64 = self.work.iter().map(|work| work.until(self.tokens_each)).sum();
        let begun = || places.iter().flatten();
        let (first, done) = begun().fold((0.0, 0.0), |sum, place| (sum.0 + place.first, sum.1 + place.done));
        let overall = OverallProgress {
            tokens: begun().map(|place| place.tokens).sum(),
            runs: places.len(),
            finished: begun().filter(|place| place.tokens >= self.tokens_each).count(),
            left: time_left(self.begun.elapsed(), done - first, all - done),
            left_of_run,
        };
        if let Some(whole) = &self.whole {
            whole.set_position(overall.tokens as u64);
            let (finished, runs) = (overall.finished, overall.runs);
            whole.set_message(format!("{}  {finished} of {runs} runs", left_in_words(overall.left)));
        }
        overall
    }
}

/// Progress of all runs, and the time left of the current one.
struct OverallProgress {
    tokens: usize,
    runs: usize,
    finished: usize,
    left: Option<Duration>,
    left_of_run: Option<Duration>,
}

/// Formats a progress line.
fn line(name: &str, percent: usize, message: &str, overall: &OverallProgress) -> String {
    let trained = if percent < 100 { format!("{percent} % of its tokens, ") } else { String::new() };
    let left = left_in_words(overall.left.filter(|_| overall.finished < overall.runs));
    format!("{name}: {trained}{message}; {} of {} runs{left}", overall.finished, overall.runs)
}

impl Progress for Bars {
    fn begin(&self, run: usize, tokens: usize) {
        self.record_progress(run, tokens);
        self.bars[run].set_position(tokens as u64);
    }

    fn step(&self, run: usize, tokens: usize, message: &str) {
        let overall = self.record_progress(run, tokens);
        let bar = &self.bars[run];
        if self.whole.is_some() && bar.is_hidden() && tokens < self.tokens_each {
            self.all.add(bar.clone());
        }
        bar.set_position(tokens as u64);
        bar.set_message(format!("{}  {message}", left_in_words(overall.left_of_run)));
        let finished = tokens >= self.tokens_each;
        if finished && self.whole.is_some() {
            bar.finish_and_clear();
            self.all.remove(bar);
        }
        let mut throttle = self.throttle.lock().expect("the lock is not poisoned");
        // A run has no message before its first log line.
        if self.lines && (finished || (!message.is_empty() && throttle.is_due(Instant::now(), overall.tokens))) {
            crate::say!("{}", line(&self.names[run], 100 * tokens / self.tokens_each, message, &overall));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_progress_of_the_run_and_the_time_left_of_all_runs() {
        let printed = |percent, finished| {
            let left = Some(Duration::from_secs(7200));
            let overall = OverallProgress { tokens: 0, runs: 2, finished, left, left_of_run: None };
            line("diff/seed-2", percent, "loss 0.845", &overall)
        };
        assert_eq!(printed(45, 0), "diff/seed-2: 45 % of its tokens, loss 0.845; 0 of 2 runs, about 2 hours left");
        assert_eq!(printed(100, 1), "diff/seed-2: loss 0.845; 1 of 2 runs, about 2 hours left");
        assert_eq!(printed(100, 2), "diff/seed-2: loss 0.845; 2 of 2 runs");
    }
}
