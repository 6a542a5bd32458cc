//! Memory and work that a run needs, estimated before it begins.

use super::{Cell, Grid, Setup};
use crate::generate;
use crate::measure::{Measure, PassSize};
use crate::model::{Flops, ModelConfig, LOGIT_POSITIONS};
use crate::models::Model;
use crate::treatment::RowSelection;

/// Fixed memory of a run during its passes, in bytes, as measured: code and the allocator's own.
const ANY_RUN: u64 = 14 << 20;

/// Fixed memory of each thread, in bytes, as measured.
const ANY_THREAD: u64 = 10 << 20;

/// Memory of a pass in small blocks, in bytes, at most, as measured. The allocator reuses small freed blocks neither
/// for another thread nor for another pass.
const SMALL: u64 = 8 << 20;

/// Memory of a pass in parallel with others relative to a single pass, as measured: freed large blocks are not reused
/// at once.
const BESIDE: f64 = 1.2;

/// Fixed memory of printing and drawing results, in bytes, as measured: tables, the font, and a figure.
const SHOWING: u64 = 20 << 20;

/// Memory of one record of a head until it is written, in bytes, as measured, in a list that grows by doubling.
const HEAD_RECORD: u64 = 512;

/// Length of the prompt on which the rows that passes share are counted, in tokens, at most: they end where the question
/// begins, wherever that is.
const SHORT_TOK: usize = 2048;

/// Memory of one number of a head until the figures are drawn, in bytes, as measured, on average over all regions.
const HEAD_NUMBER: u64 = 24;

/// Rows of questions and answers, at most.
const FEW_ROWS: usize = 256;

/// Positions that predict the answers of a prompt, about.
const ANSWER_ROWS: usize = 32;

/// Rows of passes that run together, at most, unless one has more: linear layers are then as fast as they get.
const ROWS_AT_ONCE: usize = 512;

/// Memory of the measures of passes that run together, in bytes, at most, unless one needs more.
const MEASURES_AT_ONCE: u64 = 64 << 20;

/// Number of passes of `rows` rows over prompts of `tokens` tokens that run together, with measures that need `bytes`
/// bytes for each. Together they have no more rows than a whole pass.
pub(super) fn passes_at_once(tokens: usize, rows: usize, bytes: u64) -> usize {
    let by_memory =
        MEASURES_AT_ONCE.checked_div(bytes).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    (ROWS_AT_ONCE.min(tokens) / rows).min(by_memory).max(1)
}

impl Setup {
    /// Returns the number of prompts that run in parallel: only one if weights are read from disk or candle's ops
    /// compute.
    pub(super) fn parallel_prompts(&self) -> usize {
        let on_disk = self.models.iter().any(|model| model.transformer.is_on_disk());
        if on_disk || !self.experiment.reading.has_kernels() {
            1
        } else {
            rayon::current_num_threads()
        }
    }

    /// Estimates the memory of a run besides what is loaded, in bytes: the larger of the passes and of showing the
    /// results.
    pub(super) fn needed_bytes(&self, cells: &[Cell], passes: usize, measures: &[&mut dyn Measure]) -> u64 {
        let ctx_tok = cells.iter().map(|cell| cell.spec.ctx_tok()).max().unwrap_or(0);
        let rows = cells.iter().map(|cell| cell.spec.views() * cell.spec.target_rows()).max().unwrap_or(0);
        let tiles = |model: &Model| model.transformer.config.tile_bytes(ctx_tok);
        let models = if self.experiment.reading.has_kernels() { self.models.as_slice() } else { &[] };
        let alone = self.cell_bytes(ctx_tok);
        // Weights are expanded into large blocks.
        let expanded = self.models.iter().map(|model| model.transformer.expanded_bytes()).max().unwrap_or(0);
        let small = alone.saturating_sub(expanded).min(SMALL);
        let thread = ANY_THREAD + small + models.iter().map(tiles).max().unwrap_or(0);
        let threads = thread * rayon::current_num_threads() as u64;
        let beside = if passes > 1 { (BESIDE * alone as f64) as u64 + small } else { alone };
        let per_head: u64 = measures.iter().map(|measure| measure.head_records()).sum();
        let observed = if self.experiment.only_score_treated { 1 } else { self.conditions.len() as u64 };
        let heads = |model: &Model| {
            let config = &model.transformer.config;
            (config.layers.len() * config.wiring().heads()) as u64
        };
        let records = per_head * observed * self.models.iter().map(heads).sum::<u64>();
        let of_measures = self.measures_bytes(ctx_tok, rows, measures);
        let together = self.conditions.len() as u64 - 1;
        let at_once = if self.keeps_prefixes() && !self.experiment.only_score_treated {
            MEASURES_AT_ONCE.min(together * of_measures)
        } else {
            0
        };
        let pass = beside + of_measures.max(at_once) + HEAD_RECORD * records;
        let showing = measures.iter().map(|measure| measure.showing_bytes()).max().unwrap_or(0);
        HEAD_NUMBER * records * cells.len() as u64 + (ANY_RUN + pass * passes as u64 + threads).max(SHOWING + showing)
    }

    /// Returns the operations for a prompt of `ctx_tok` tokens: one pass for every model and condition, of the rows that
    /// it does not share with the untreated one.
    pub fn flops(&self, ctx_tok: usize) -> Flops {
        self.flops_of(ctx_tok, false)
    }

    /// Returns the operations for a cell, whose pass may share rows with that of its twin.
    pub(super) fn cell_flops(&self, cell: &Cell) -> Flops {
        self.flops_of(cell.spec.ctx_tok(), cell.twin.is_some())
    }

    /// The operations for a prompt of `ctx_tok` tokens. If its text `is_known`, the untreated pass shares rows too.
    fn flops_of(&self, ctx_tok: usize, is_known: bool) -> Flops {
        let of_model = |(index, model): (usize, &Model)| {
            let config = &model.transformer.config;
            let rows = self.last_rows.get().map(|models| models[index].as_slice());
            let pass = |condition: usize| match rows.and_then(|rows| rows[condition]) {
                Some(rows) if condition > 0 || is_known => config.last_rows_flops(ctx_tok, rows),
                _ => config.forward_flops(ctx_tok),
            };
            // The pass over the corrupted prompt; outputs on the prompt itself are recorded in the untreated pass.
            let corrupted = self.patches().then(|| config.forward_flops(ctx_tok));
            (0..self.conditions.len()).map(pass).chain(corrupted).fold(Flops::default(), |sum, flops| sum + flops)
        };
        self.models.iter().enumerate().map(of_model).fold(Flops::default(), |sum, flops| sum + flops)
    }

    /// Finds how many of the last rows each condition computes for each model, on a short prompt of the first kind;
    /// `None` for all rows. [`Setup::flops`] counts whole passes before.
    pub(super) fn find_last_rows(&self, cells: &[Cell], measures: &[&mut dyn Measure]) {
        let Some(cell) = cells.first().filter(|_| self.shares_prefixes()) else { return };
        let measures: Vec<&dyn Measure> = measures.iter().map(|measure| &**measure).collect();
        let of_model = |index: usize| {
            // A prompt that cannot be built is reported elsewhere.
            let rows = self.last_rows_of(index, &cell.with_ctx(cell.spec.ctx_tok().min(SHORT_TOK)), &measures);
            rows.unwrap_or_else(|_| vec![None; self.conditions.len()])
        };
        let _ = self.last_rows.set((0..self.models.len()).map(of_model).collect());
    }

    /// Returns whether keys and values are kept for later passes over the same prompt.
    fn keeps_prefixes(&self) -> bool {
        let shares = |rows: &Vec<Option<usize>>| rows.iter().skip(1).any(Option::is_some);
        let shared = self.last_rows.get().is_some_and(|models| models.iter().any(shares));
        self.shares_prefixes() && (shared || self.experiment.max_new().is_some())
    }

    /// Positions whose logits a pass holds at once.
    fn logit_rows(&self) -> usize {
        match self.grid {
            _ if self.experiment.scores_all_tokens() => LOGIT_POSITIONS,
            Grid::Needle(_) | Grid::Shots(_) => ANSWER_ROWS,
            Grid::Text(_) => 0,
        }
    }

    /// Estimates the memory of one prompt of `ctx_tok` tokens besides the weights, in bytes.
    pub fn cell_bytes(&self, ctx_tok: usize) -> u64 {
        let remembered = |model: &Model| {
            let config = &model.transformer.config;
            let most = |max_new| config.max_ctx_tok.min(ctx_tok.saturating_add(max_new));
            self.experiment.max_new().map_or(0, |max_new| generate::memory_bytes(config, most(max_new)))
        };
        let pass = |model: &Model| {
            let expanded = model.transformer.expanded_bytes();
            expanded + self.experiment.reading.pass_bytes(&model.transformer.config, ctx_tok, self.logit_rows())
        };
        let prefixes = u64::from(self.keeps_prefixes()) * if self.patches() { 2 } else { 1 };
        let kept = |model: &Model| prefixes * model.transformer.config.prefix_bytes(ctx_tok);
        let bytes = |model: &Model| {
            pass(model) + remembered(model) + kept(model) + self.recorded_bytes(&model.transformer.config, ctx_tok)
        };
        self.models.iter().map(bytes).max().unwrap_or(0)
    }

    /// Returns whether conditions take outputs of heads from another prompt.
    pub(super) fn patches(&self) -> bool {
        !self.patched_rows().is_empty()
    }

    /// Estimates the memory of the outputs of heads that patches take, in bytes: as sums of 8 bytes, and as numbers of 4
    /// in the record and in the treatments.
    fn recorded_bytes(&self, config: &ModelConfig, ctx_tok: usize) -> u64 {
        let rows = |rows: RowSelection| if rows == RowSelection::All { ctx_tok } else { ctx_tok.min(FEW_ROWS) };
        let rows: usize = self.patched_rows().into_iter().map(|(_, of)| rows(of)).sum();
        16 * (rows * config.layers.len() * config.attention_width()) as u64
    }

    /// Estimates the memory of the measures during a pass over `ctx_tok` tokens of which they measure `rows` rows, in
    /// bytes.
    fn measures_bytes(&self, ctx_tok: usize, rows: usize, measures: &[&mut dyn Measure]) -> u64 {
        let of_model = |(model, own): (usize, &Model)| {
            let extent = PassSize::new(model, &own.transformer.config, ctx_tok, rows);
            measures.iter().map(|measure| measure.memory_bytes(&extent)).sum::<u64>()
        };
        self.models.iter().enumerate().map(of_model).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_together_have_no_more_rows_than_one_and_no_more_memory_than_said() {
        assert_eq!(passes_at_once(1000, 10, 0), 51);
        assert_eq!(passes_at_once(100, 10, 0), 10);
        assert_eq!(passes_at_once(1000, 900, 0), 1);
        assert_eq!(passes_at_once(1000, 10, MEASURES_AT_ONCE / 4), 4);
        assert_eq!(passes_at_once(1000, 10, 2 * MEASURES_AT_ONCE), 1);
    }
}
