//! Estimate of a run's duration from prompts that are timed beforehand; long prompts and large models are timed in
//! part.

use super::{Cell, CellSpec, Setup};
use crate::memory::{prefault, release_free};
use crate::model::Flops;
use anyhow::Result;
use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Longest prompt that is timed at its full length, in tokens. The time of a longer prompt is extrapolated from two
/// shorter ones, which separate the work per token from the work per pair of tokens: one with a quarter of its length
/// but at least this many tokens, and one with a quarter of that.
const TRIED_WHOLE_TOK: usize = 4096;

/// Most operations of a prompt that is timed with all layers of the models; a larger one is timed with the first eighth
/// of them.
const ALL_LAYERS_FLOP: f64 = 3e11;

/// Least length of the warm-up prompt, in tokens, which otherwise has a sixteenth of the tokens. Fewer tokens have no
/// room for the needles and the question.
const WARM_UP_TOK: usize = 256;

/// Seconds per operation of a run, with all models, conditions and measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// For the work that is proportional to the number of tokens.
    per_linear: f64,
    /// For the work that is proportional to the number of token pairs.
    per_attention: f64,
}

impl Pace {
    /// Times prompts like the longest of `cells`, as many in parallel as in the run, because parallel passes slow each
    /// other down. `None` without cells, or if this takes more than `most_flop` operations.
    pub fn measure(setup: &Setup, cells: &[Cell], most_flop: f64) -> Result<Option<Self>> {
        let Some(trial) = Trial::new(setup, cells).filter(|trial| trial.flop() <= most_flop) else { return Ok(None) };
        prefault(trial.bytes());
        if let Some(ctx_tok) = trial.warm_up {
            trial.seconds(ctx_tok)?;
        }
        let known = trial.lengths.iter().map(|&ctx_tok| Ok((trial.setup.flops(ctx_tok), trial.seconds(ctx_tok)?)));
        let known = known.collect::<Result<Vec<_>>>()?;
        if trial.lengths.len() > 1 {
            release_free(); // prompts of the full length need larger blocks
        }
        Ok(match known[..] {
            [short, long] => Some(Self::of_two([short, long])),
            _ => known.first().map(|&(flops, seconds)| Self::of_one(flops, seconds)),
        })
    }

    fn of_one(flops: Flops, seconds: f64) -> Self {
        let per_flop = seconds / flops.sum();
        Self { per_linear: per_flop, per_attention: per_flop }
    }

    /// Solves for both rates from two prompts; falls back to the longer prompt if noise makes a rate negative.
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

    /// Returns the seconds for this much work.
    pub fn seconds(self, flops: Flops) -> f64 {
        self.per_linear * flops.linear + self.per_attention * flops.attention
    }
}

/// The prompts that are timed.
struct Trial<'a> {
    setup: Cow<'a, Setup>,
    cell: &'a Cell,
    at_once: usize,
    /// In tokens.
    lengths: Vec<usize>,
    /// Length of a prompt that runs before the timed ones, so that threads have started and code and weights are in
    /// memory.
    warm_up: Option<usize>,
}

impl<'a> Trial<'a> {
    fn new(setup: &'a Setup, cells: &'a [Cell]) -> Option<Self> {
        // The first of equally long ones: the last window of a text may be shorter than its `ctx_tok`.
        let cell = cells.iter().rev().max_by_key(|cell| cell.spec.ctx_tok())?;
        let ctx_tok = cell.spec.ctx_tok();
        let shallow = if setup.flops(ctx_tok).sum() > ALL_LAYERS_FLOP { setup.shallow() } else { None };
        let at_once = setup.parallel_prompts().min(cells.len());
        // A shorter prompt may have no room for all examples.
        let is_fixed = matches!(cell.spec, CellSpec::Shots(_));
        let lengths = if is_fixed { vec![ctx_tok] } else { lengths(ctx_tok) };
        let is_part = shallow.is_some() || lengths.len() > 1;
        let warm_up = (is_part && !is_fixed).then(|| (ctx_tok / 16).clamp(WARM_UP_TOK.min(ctx_tok), ctx_tok));
        let setup = shallow.map_or(Cow::Borrowed(setup), Cow::Owned);
        Some(Self { setup, cell, at_once, lengths, warm_up })
    }

    /// Returns the operations of all prompts.
    fn flop(&self) -> f64 {
        let once: f64 = self.lengths.iter().chain(&self.warm_up).map(|&ctx_tok| self.setup.flops(ctx_tok).sum()).sum();
        self.at_once as f64 * once
    }

    /// Returns an estimate of the memory of its passes, in bytes.
    fn bytes(&self) -> u64 {
        let longest = self.lengths.iter().max().map_or(0, |&ctx_tok| self.setup.cell_bytes(ctx_tok));
        self.at_once as u64 * longest
    }

    /// Times `at_once` prompts of `ctx_tok` tokens in parallel and returns the seconds per prompt.
    fn seconds(&self, ctx_tok: usize) -> Result<f64> {
        let cells = vec![self.cell.with_ctx(ctx_tok); self.at_once];
        let mut measures = self.setup.measures()?;
        let start = Instant::now();
        self.setup.run(&cells, &mut measures.list(), &AtomicBool::new(false), &mut |_, _| Ok(()))?;
        Ok(start.elapsed().as_secs_f64() / self.at_once as f64)
    }
}

fn lengths(ctx_tok: usize) -> Vec<usize> {
    if ctx_tok <= TRIED_WHOLE_TOK {
        return vec![ctx_tok];
    }
    let long = (ctx_tok / 4).max(TRIED_WHOLE_TOK);
    vec![long / 4, long]
}

#[cfg(test)]
mod tests {
    use super::super::{Experiment, FinishedCell};
    use super::*;

    #[test]
    fn large_models_are_tried_without_most_of_their_layers_unless_conditions_are_about_these() {
        let setup = |condition: &str| {
            let text = format!(
                "show = \"needle\"\nmodels = [\"transformer\", \"diff\"]\nconditions = [\"{condition}\"]\n\
                 [grid.needle]\nctx_tok = [256]\nsettings = [[1, 1]]\ndepths_pct = [50.0]\nsamples = 2\n\
                 heldout_samples = 0\nseed = 0"
            );
            Setup::load(Experiment::parse(&text, "test").unwrap()).unwrap()
        };
        let whole = setup("mask(noise)");
        let shallow = whole.shallow().unwrap();
        assert!(shallow.models.iter().all(|model| model.transformer.config.layers.len() == 1));
        let (part, all) = (shallow.flops(256), whole.flops(256));
        assert!((all.linear / part.linear - 4.0).abs() < 0.01 && (all.attention / part.attention - 4.0).abs() < 0.01);
        let mut measures = shallow.measures().unwrap();
        let mut failed = 0;
        let mut count = |_: &Cell, found: &FinishedCell<'_>| {
            failed += found.records.iter().filter(|record| record.measure.error.is_some()).count();
            Ok(())
        };
        shallow.run(&whole.grid.cells(), &mut measures.list(), &AtomicBool::new(false), &mut count).unwrap();
        assert_eq!(failed, 0);
        assert!(setup("ablate(3.1)").shallow().is_none());
        assert!(setup("ablate(best:2:share_out)").shallow().is_none());
    }

    #[test]
    fn long_prompts_are_tried_at_two_shorter_lengths() {
        assert_eq!(lengths(4096), [4096]);
        assert_eq!(lengths(8192), [1024, 4096]);
        assert_eq!(lengths(65_536), [4096, 16_384]);
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
