//! When long work that nobody watches on a terminal says how far it is.

use indicatif::HumanDuration;
use std::time::{Duration, Instant};

/// Lines that follow each other faster are no news.
const SHORTEST: Duration = Duration::from_secs(2);

/// Half a minute without a word looks like a hang.
const SILENCE: Duration = Duration::from_secs(30);

/// When a log is due for another line: after every tenth of the work, if it took some seconds, and after half a minute with a
/// hundredth of it.
pub(super) struct Beat {
    all: usize,
    /// When the last line was, and what was done then.
    last: (Instant, usize),
}

impl Beat {
    /// For so many pieces of work, of which some are done.
    pub(super) fn new(all: usize, done: usize, now: Instant) -> Self {
        Self { all, last: (now, done) }
    }

    /// Whether a line is due now that so many pieces are done. None is when all are: the results say so.
    pub(super) fn is_due(&mut self, now: Instant, done: usize) -> bool {
        let since = done.saturating_sub(self.last.1);
        let waited = now.duration_since(self.last.0);
        let silent = waited >= SILENCE;
        let due = (10 * since >= self.all && waited >= SHORTEST) || (silent && 100 * since >= self.all);
        // Work of a few pieces is over before anybody wonders.
        if done >= self.all || !due || (self.all < 10 && !silent) {
            return false;
        }
        self.last = (now, done);
        true
    }
}

/// How long what is `left` takes if what is `done` took so long; nothing where nothing is left, or nothing done to go by.
pub(super) fn time_left(elapsed: Duration, done: f64, left: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * left / done).ok().filter(|left| !left.is_zero())
}

/// `, about 2 hours left`, or nothing.
pub(super) fn left_in_words(left: Option<Duration>) -> String {
    left.map_or(String::new(), |left| format!(", about {} left", HumanDuration(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of pieces after which a line is due, if each takes so many seconds.
    fn due(all: usize, seconds: u64) -> Vec<usize> {
        let begun = Instant::now();
        let mut beat = Beat::new(all, 0, begun);
        let at = |i: usize| begun + Duration::from_secs(seconds * i as u64);
        (1..=all).filter(|&i| beat.is_due(at(i), i)).collect()
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
    fn time_left_is_in_proportion_to_what_is_left() {
        assert_eq!(time_left(Duration::from_secs(90), 1.0, 2.0), Some(Duration::from_secs(180)));
        assert_eq!(time_left(Duration::from_secs(90), 0.0, 2.0), None);
    }
}
