//! What a row of a table says besides its numbers: where a number is only what chance or an even spread would give.

use crate::stats::Interval;
use crate::summary::{Pick, Proportion, Summary};

/// What attention that is spread evenly over the keys would give: a line of its own in tables of shares.
pub(super) const EVEN: &str = "even attention";

/// Nothing right, of enough to say so.
pub(super) fn at_the_floor(accuracy: &Proportion) -> Option<&'static str> {
    (accuracy.n > 0 && accuracy.hits == 0).then_some("accuracy at the floor")
}

/// Whether the interval of a mean share holds what an even spread would give.
fn near_even(share: Interval, even: f64) -> bool {
    share.lo <= even && even <= share.hi
}

/// The same of the answer's share of the output, in the numbers of `pick`, which makes a pick of a metric.
pub(super) fn answer_near_even<'a>(
    summary: &Summary,
    pick: &dyn Fn(&'static str) -> Pick<'a>,
    seed: u64,
) -> Option<&'static str> {
    let even = summary.mean(pick("share_uniform").region("answer"))?;
    let (_, interval) = summary.mean_in(pick("share_out").region("answer"), seed)?;
    near_even(interval, even).then_some("answer near even")
}

/// Remarks as one cell.
pub(super) fn joined(remarks: impl IntoIterator<Item = Option<&'static str>>) -> String {
    remarks.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_near_even_if_its_interval_says_so() {
        assert!(near_even(Interval { lo: 0.001, hi: 0.004 }, 0.002));
        assert!(!near_even(Interval { lo: 0.003, hi: 0.004 }, 0.002));
    }

    #[test]
    fn nothing_right_is_the_floor_and_nothing_asked_is_not() {
        let found = |hits, n| Proportion { hits, n, fraction: None, lo: 0.0, hi: 1.0 };
        assert_eq!(at_the_floor(&found(0, 12)), Some("accuracy at the floor"));
        assert_eq!((at_the_floor(&found(1, 12)), at_the_floor(&found(0, 0))), (None, None));
        assert_eq!(joined([Some("a"), None, Some("b")]), "a, b");
    }
}
