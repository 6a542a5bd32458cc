//! Runs: prompts, passed through every model under every condition and observed by measures, in one series or several.
//!
//! The commands make a [`Plan`] of their flags. Prompts are numbered over the whole grid, and the seed of a prompt is a
//! hash of the base seed and that number, so a prompt does not depend on which ones ran before it.

mod begun;
mod check;
mod context;
mod execute;
mod head_costs;
mod hidden;
mod identity;
mod maps;
mod outputs;
mod passes;
mod patching;
mod plan;
mod prompt;
mod prompt_run;
mod reference;
mod series;
mod setup;
mod shard;
mod starts;
mod store;

pub use check::{check, Checked, MissedDepth};
pub use execute::{finished_frame, Run, RunPart, RunStart};
pub use maps::{page_budget, MapFlags, MapKind, MAP_PX, SMALL_PX};
pub use outputs::{recipe_of, titled, OutputStyle};
pub use plan::{MapsOfOnePrompt, Origin, PassOptions, Plan};
pub use series::{measure_prompts, pooled_records, possible_series, FinishedPrompt, Series};
pub use setup::{Setup, Setups};
pub use shard::{prompts_of, RunShard};
