//! Memory that a run needs, bounded before it begins.

use super::drawn::KEPT_HEADS;
use super::{Cell, Setup, Show};
use crate::base::memory::{check_fits, size_name};
use crate::explore::StoredPairs;
use crate::model::open::Model;
use anyhow::Result;

impl Setup {
    /// Returns the number of prompts that run in parallel: only one if weights are streamed or candle's ops compute.
    pub(super) fn parallel_prompts(&self) -> usize {
        let streamed = self.models.iter().any(|model| model.transformer.is_streamed());
        if streamed || !self.experiment.reading.has_kernels() {
            1
        } else {
            rayon::current_num_threads()
        }
    }

    /// Checks that the passes over the longest prompts, and the token pairs of an explorer, fit into the memory that the
    /// weights leave.
    ///
    /// # Errors
    /// A usage error with the numbers and what to change.
    pub(super) fn check_memory(&self, cells: &[Cell]) -> Result<()> {
        let ctx_tok = cells.iter().map(|cell| cell.spec.ctx_tok()).max().unwrap_or(0);
        let passes = self.parallel_prompts().min(cells.len());
        // Keys and values for treated passes, of the corrupted prompt, and of the text that is generated.
        let prefixes = [self.conditions.len() > 1, self.patches(), self.experiment.max_new().is_some()];
        let prefixes = prefixes.into_iter().filter(|&kept| kept).count() as u64;
        let of_model = |model: &Model| {
            let config = &model.transformer.config;
            model.transformer.expanded_bytes() + config.pass_bytes(ctx_tok) + prefixes * config.prefix_bytes(ctx_tok)
        };
        let widest = self.models.iter().map(of_model).max().unwrap_or(0);
        let needed = passes as u64 * widest + self.page_bytes(ctx_tok);
        let at_once = if passes == 1 { "a pass".to_owned() } else { format!("{passes} passes at once") };
        let takes = || format!("--ctx {ctx_tok} needs up to {} for {at_once}", size_name(needed));
        check_fits(needed, takes, "lower --ctx or --threads")
    }

    /// Returns the memory of the maps of an explorer that are stored token by token, in bytes: three copies of those of
    /// the heads of one layer while they pass, and those that are kept.
    fn page_bytes(&self, ctx_tok: usize) -> u64 {
        if self.experiment.show != Show::Explore {
            return 0;
        }
        let kept = KEPT_HEADS * self.conditions.len();
        let of_model = |model: &Model| {
            let wiring = model.transformer.config.wiring();
            ((3 * wiring.heads() + kept) * wiring.maps()) as u64 * StoredPairs::pairs_of(ctx_tok)
        };
        self.models.iter().map(of_model).sum()
    }
}
