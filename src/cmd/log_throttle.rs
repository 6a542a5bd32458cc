//! Limits the rate of progress lines in a log.

use indicatif::HumanDuration;
use std::time::{Duration, Instant};

/// Shortest time between two lines.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// Time after which a line is due although less than a tenth of the work was done since the last one.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Decides when a progress line is due: after every tenth of the work, if it took at least 2 seconds, and after half a
/// minute with at least a hundredth of the work.
pub(super) struct LogThrottle {
    total: usize,
    /// Time of the last line, and the work done by then.
    last: (Instant, usize),
}

impl LogThrottle {
    /// Creates a throttle for `total` units of work, of which `done` are already done.
    pub(super) fn new(total: usize, done: usize, now: Instant) -> Self {
        Self { total, last: (now, done) }
    }

    /// Returns `true` if a line is due after `done` units of work. None is due at the end, when the results are printed.
    pub(super) fn is_due(&mut self, now: Instant, done: usize) -> bool {
        let since = done.saturating_sub(self.last.1);
        let waited = now.duration_since(self.last.0);
        let silent = waited >= MAX_SILENCE;
        let due = (10 * since >= self.total && waited >= MIN_INTERVAL) || (silent && 100 * since >= self.total);
        // Work of a few units is over soon.
        if done >= self.total || !due || (self.total < 10 && !silent) {
            return false;
        }
        self.last = (now, done);
        true
    }
}

/// Estimates the time for the work that is `left` from the time that the work `done` took. `None` if nothing is left,
/// or nothing is done yet.
pub(super) fn time_left(elapsed: Duration, done: f64, left: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * left / done).ok().filter(|left| !left.is_zero())
}

/// Formats a time as `, about 2 hours left`; empty for `None`.
pub(super) fn left_in_words(left: Option<Duration>) -> String {
    left.map_or(String::new(), |left| format!(", about {} left", HumanDuration(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the units of work after which a line is due, if each takes `seconds`.
    fn due(all: usize, seconds: u64) -> Vec<usize> {
        let begun = Instant::now();
        let mut throttle = LogThrottle::new(all, 0, begun);
        let at = |i: usize| begun + Duration::from_secs(seconds * i as u64);
        (1..=all).filter(|&i| throttle.is_due(at(i), i)).collect()
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
