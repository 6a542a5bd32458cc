//! How long a run will take, from short prompts that are run before it.

use super::{Cell, CellSpec, Setup};
use crate::measure::Measure;
use crate::model::Flops;
use anyhow::Result;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Up to so many operations a prompt is tried as it is. What a larger one costs follows from two shorter ones, which tell the work
/// per token from that per pair of tokens: a quarter and a sixteenth of its length.
const TRIED_WHOLE_FLOP: f64 = 3e11;

/// The longer of the two has this many tokens at least: fewer would not hold what prompts are made of.
const LONGER_TOK: usize = 1024;

/// Seconds that an operation adds to a run, for all models, conditions and measures together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// In the work that grows with the tokens.
    per_linear: f64,
    /// In the work that grows with the pairs of tokens.
    per_attention: f64,
}

impl Pace {
    /// Measures it on prompts like the longest of `cells`, so many at once as will be, because passes at once slow each other
    /// down; nothing without cells. What the measures pool is lost.
    ///
    /// # Errors
    /// If the prompts cannot be run.
    pub fn measure(setup: &Setup, cells: &[Cell], measures: &mut [&mut dyn Measure]) -> Result<Option<Self>> {
        let Some(cell) = longest(cells) else { return Ok(None) };
        let at_once = setup.at_once().min(cells.len());
        let mut seconds = |ctx_tok: usize| -> Result<f64> {
            let cells = vec![Cell { spec: with_ctx(&cell.spec, ctx_tok), ..cell.clone() }; at_once];
            let start = Instant::now();
            setup.run(&cells, measures, &AtomicBool::new(false), &mut |_, _| Ok(()))?;
            Ok(start.elapsed().as_secs_f64() / at_once as f64)
        };
        let lengths = tried(setup, &cell.spec);
        let known = lengths.into_iter().map(|ctx_tok| Ok((setup.flops(ctx_tok), seconds(ctx_tok)?)));
        match known.collect::<Result<Vec<_>>>()?[..] {
            [(flops, seconds)] => Ok(Some(Self::of_one(flops, seconds))),
            [short, long] => Ok(Some(Self::of_two([short, long]))),
            _ => unreachable!("one length, or two"),
        }
    }

    /// Operations of the prompts that [`Pace::measure`] runs.
    pub fn trial_flop(setup: &Setup, cells: &[Cell]) -> f64 {
        let tried = longest(cells).map(|cell| tried(setup, &cell.spec)).unwrap_or_default();
        let at_once = setup.at_once().min(cells.len()) as f64;
        at_once * tried.into_iter().map(|ctx_tok| setup.flops(ctx_tok).sum()).sum::<f64>()
    }

    fn of_one(flops: Flops, seconds: f64) -> Self {
        let per_flop = seconds / flops.sum();
        Self { per_linear: per_flop, per_attention: per_flop }
    }

    /// Two equations for two numbers; the longer prompt alone if their difference is lost in noise.
    fn of_two([(short, short_s), (long, long_s)]: [(Flops, f64); 2]) -> Self {
        let determinant = short.linear * long.attention - long.linear * short.attention;
        let per_linear = (short_s * long.attention - long_s * short.attention) / determinant;
        let per_attention = (long_s * short.linear - short_s * long.linear) / determinant;
        if per_linear > 0.0 && per_attention > 0.0 {
            Self { per_linear, per_attention }
        } else {
            Self::of_one(long, long_s)
        }
    }

    /// Seconds for this much work.
    pub fn seconds(self, flops: Flops) -> f64 {
        self.per_linear * flops.linear + self.per_attention * flops.attention
    }
}

/// A prompt that is as long as any.
fn longest(cells: &[Cell]) -> Option<&Cell> {
    // The first of them: the last window of a text may be shorter than it says.
    cells.iter().rev().max_by_key(|cell| cell.spec.ctx_tok())
}

/// The lengths at which a prompt is tried, in tokens.
fn tried(setup: &Setup, spec: &CellSpec) -> Vec<usize> {
    let whole = spec.ctx_tok();
    match spec {
        CellSpec::Shots(_) => vec![whole], // a shorter prompt may have no room for as many examples
        _ => lengths(whole, setup.flops(whole)),
    }
}

fn lengths(whole: usize, flops: Flops) -> Vec<usize> {
    let long = (whole / 4).max(LONGER_TOK);
    if flops.sum() <= TRIED_WHOLE_FLOP || long >= whole {
        vec![whole]
    } else {
        vec![long / 4, long]
    }
}

fn with_ctx(spec: &CellSpec, ctx_tok: usize) -> CellSpec {
    let mut spec = spec.clone();
    match &mut spec {
        CellSpec::Needle(needle) => needle.ctx_tok = ctx_tok,
        CellSpec::Text(windows) => windows.ctx_tok = ctx_tok,
        CellSpec::Shots(spec) => spec.ctx_tok = ctx_tok,
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_tried_whole_unless_that_is_much_work() {
        let flops = |linear| Flops { linear, attention: 0.0 };
        assert_eq!(lengths(65_536, flops(1e11)), [65_536]);
        assert_eq!(lengths(65_536, flops(1e12)), [4096, 16_384]);
        assert_eq!(lengths(2048, flops(1e12)), [256, 1024]);
        assert_eq!(lengths(1024, flops(1e15)), [1024], "too short for what prompts are made of");
    }

    #[test]
    fn two_lengths_tell_work_per_token_from_work_per_pair() {
        let flops = |tokens: f64| Flops { linear: 100.0 * tokens, attention: tokens * tokens };
        let pace = Pace { per_linear: 3e-3, per_attention: 5e-3 };
        let known = [flops(10.0), flops(40.0)].map(|flops| (flops, pace.seconds(flops)));
        let found = Pace::of_two(known);
        assert!((found.seconds(flops(640.0)) / pace.seconds(flops(640.0)) - 1.0).abs() < 1e-9);
        let noisy = Pace::of_two([(flops(10.0), 9.0), (flops(40.0), 10.0)]);
        assert_eq!(noisy, Pace::of_one(flops(40.0), 10.0));
    }
}
