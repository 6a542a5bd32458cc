//! Which heads are kept token by token: those of the largest score, found while heads pass one by one.

use std::sync::Mutex;

/// Keeps what it was given of the heads with the largest scores, and drops the rest at once.
pub struct Race<T> {
    places: usize,
    leaders: Mutex<Vec<Entrant<T>>>,
}

/// A head that is kept.
pub struct Entrant<T> {
    /// Layer and head.
    pub at: (usize, usize),
    /// What decides.
    pub score: f64,
    /// What is kept of it.
    pub kept: T,
}

impl<T> Race<T> {
    /// A race for so many places.
    pub fn new(places: usize) -> Self {
        Self { places, leaders: Mutex::new(Vec::new()) }
    }

    /// Takes a head in; whoever is last then, of equals the later, is dropped. A score that is no number is the smallest.
    pub fn enter(&self, at: (usize, usize), score: f64, kept: T) {
        let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
        let mut leaders = self.leaders.lock().expect("nobody panicked in the race");
        leaders.push(Entrant { at, score, kept });
        leaders.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
        leaders.truncate(self.places);
    }

    /// Those that are kept, the best first.
    pub fn finish(&self) -> Vec<Entrant<T>> {
        std::mem::take(&mut self.leaders.lock().expect("nobody panicked in the race"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept_in_order_and_of_equals_the_first() {
        let race = Race::new(3);
        for (head, score) in [0.1, 0.5, f64::NAN, 0.5, 0.7, 0.2].into_iter().enumerate() {
            race.enter((0, head), score, head);
        }
        let found: Vec<usize> = race.finish().into_iter().map(|entrant| entrant.kept).collect();
        assert_eq!(found, [4, 1, 3]);
    }
}
