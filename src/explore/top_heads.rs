//! Selection of the heads with the largest scores, one head at a time.

use super::detail::HeadDetail;
use std::sync::Mutex;

/// Keeps the data of the heads with the largest scores.
pub struct TopHeads {
    places: usize,
    leaders: Mutex<Vec<Candidate>>,
}

/// A head among the best.
pub struct Candidate {
    /// Layer and head.
    pub at: (usize, usize),
    /// Score.
    pub score: f64,
    /// Data of the head.
    pub kept: HeadDetail,
}

impl TopHeads {
    /// Creates a selection of up to `places` heads.
    pub fn new(places: usize) -> Self {
        Self { places, leaders: Mutex::new(Vec::new()) }
    }

    /// Enters a head, and drops the last if there are too many. Ties are broken by layer and head. NaN counts as the
    /// smallest score.
    pub fn enter(&self, at: (usize, usize), score: f64, kept: HeadDetail) {
        let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
        let mut leaders = self.leaders.lock().expect("no panic holds this lock");
        leaders.push(Candidate { at, score, kept });
        leaders.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
        leaders.truncate(self.places);
    }

    /// Takes the best heads, in order.
    pub fn finish(&self) -> Vec<Candidate> {
        std::mem::take(&mut self.leaders.lock().expect("no panic holds this lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept_in_order_and_ties_go_to_the_first() {
        let top = TopHeads::new(3);
        for (head, score) in [0.1, 0.5, f64::NAN, 0.5, 0.7, 0.2].into_iter().enumerate() {
            top.enter((0, head), score, HeadDetail::default());
        }
        let found: Vec<usize> = top.finish().into_iter().map(|candidate| candidate.at.1).collect();
        assert_eq!(found, [4, 1, 3]);
    }
}
