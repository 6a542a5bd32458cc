//! How far training is, on stderr: bars on a terminal, a line for every finished run elsewhere.

use crate::train::{Progress, TrainRun, TrainSpec};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// With more runs than this, those that wait or are done have no bar.
const MOST_BARS: usize = 8;

/// The names of runs, or how many there are.
pub(super) fn named(runs: &[TrainRun]) -> String {
    match runs.len() {
        ..=MOST_BARS => runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{many} runs"),
    }
}

/// One bar per run, and one for all of them if they are many.
pub(super) struct Bars {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    whole: Option<ProgressBar>,
    names: Vec<String>,
    /// Whether lines are printed instead.
    lines: bool,
    tokens_each: usize,
    begun: Instant,
    /// Of every run that has begun: tokens it began with, and has now.
    tokens: Mutex<Vec<Option<(usize, usize)>>>,
}

impl Bars {
    pub(super) fn new(spec: &TrainSpec, runs: &[TrainRun], quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let widest = runs.iter().map(|run| run.name.len()).max().unwrap_or(0);
        let template =
            format!("{{prefix:{widest}}} {{bar:24}} {{human_pos}}/{{human_len}} tokens, {{eta}} left  {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("a valid template");
        let bar = |name: &str, length: usize| {
            let bar = ProgressBar::hidden().with_style(style.clone()).with_prefix(name.to_owned());
            bar.set_length(length as u64);
            bar
        };
        let tokens_each = spec.total_tokens();
        let bars: Vec<ProgressBar> = runs.iter().map(|run| bar(&run.name, tokens_each)).collect();
        let whole = (runs.len() > MOST_BARS).then(|| all.add(bar("all", tokens_each * runs.len())));
        if whole.is_none() {
            bars.iter().for_each(|bar| _ = all.add(bar.clone()));
        }
        Self {
            all,
            bars,
            whole,
            names: runs.iter().map(|run| run.name.clone()).collect(),
            lines: !quiet && !std::io::stderr().is_terminal(),
            tokens_each,
            begun: Instant::now(),
            tokens: Mutex::new(vec![None; runs.len()]),
        }
    }

    pub(super) fn finish(&self) {
        self.bars.iter().chain(&self.whole).for_each(ProgressBar::abandon);
    }

    /// Notes how far a run is, and gives how many are done and how long the others will take at the speed so far.
    fn note(&self, run: usize, tokens: usize) -> (usize, Option<Duration>) {
        let mut all = self.tokens.lock().expect("nobody panics with the list of tokens");
        let began = all[run].map_or(tokens, |(began, _)| began);
        all[run] = Some((began, tokens));
        let trained: usize = all.iter().flatten().map(|(began, now)| now - began).sum();
        let now: usize = all.iter().flatten().map(|(_, now)| now).sum();
        let left = self.tokens_each * all.len() - now;
        let finished = all.iter().flatten().filter(|(_, now)| *now >= self.tokens_each).count();
        let seconds = self.begun.elapsed().as_secs_f64() * left as f64 / trained as f64;
        let estimate = (trained > 0).then(|| Duration::from_secs_f64(seconds));
        if let Some(whole) = &self.whole {
            whole.set_position(now as u64);
            whole.set_message(format!("{finished} of {} runs", all.len()));
        }
        (finished, estimate)
    }
}

impl Progress for Bars {
    fn begin(&self, run: usize, tokens: usize) {
        self.note(run, tokens);
        self.bars[run].set_position(tokens as u64);
    }

    fn step(&self, run: usize, tokens: usize, message: &str) {
        let (finished, estimate) = self.note(run, tokens);
        let bar = &self.bars[run];
        if self.whole.is_some() && bar.is_hidden() && tokens < self.tokens_each {
            self.all.add(bar.clone());
        }
        bar.set_position(tokens as u64);
        bar.set_message(message.to_owned());
        if tokens < self.tokens_each {
            return;
        }
        if self.whole.is_some() {
            bar.finish_and_clear();
            self.all.remove(bar);
        }
        if self.lines {
            let left = match estimate {
                Some(left) if finished < self.names.len() => format!(", about {} left", HumanDuration(left)),
                _ => String::new(),
            };
            crate::say!("{}: {message}; {finished} of {} runs{left}", self.names[run], self.names.len());
        }
    }
}
