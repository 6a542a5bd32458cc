//! Checkpoints of training: parameters, optimiser moments and position, replaced atomically.

use super::adamw::AdamW;
use super::log::LogSums;
use anyhow::{Context, Result};
use base::files;
use candle_core::DType;
use engine::model::Weights;
use serde::{Deserialize, Serialize};
use std::path::Path;

const STATE: &str = "state.safetensors";

/// Its folder, in that of the run.
const FOLDER: &str = "checkpoint";

/// The position of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Position {
    /// Updates done.
    pub step: u64,
    /// Documents used; the global index of the next one.
    pub documents: u64,
    /// Tokens trained on.
    pub tokens: usize,
    /// Name of the [`Placement`](engine::model::Placement) that trained them; `None` for the kernels of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Sums of the current log line, so that a resumed run logs the same lines.
    #[serde(rename = "tally")]
    pub sums: LogSums,
}

/// Writes a checkpoint atomically, so that a kill leaves a complete one.
pub(super) fn save(dir: &Path, optimizer: &AdamW, position: &Position) -> Result<()> {
    let state = Weights::new(optimizer.state()?, "checkpoint");
    // The position is in the header of the tensor file, so that both are replaced together.
    let position = [("position", serde_json::to_string(position)?)];
    files::replace(&files::create_folder(dir, FOLDER)?.join(STATE), |path| state.write(path, DType::F32, &position))
}

/// Loads a checkpoint into the optimiser and returns its position; `None` without a checkpoint.
pub(super) fn load(dir: &Path, optimizer: &mut AdamW) -> Result<Option<Position>> {
    let path = dir.join(FOLDER).join(STATE);
    if !files::is_there(&path) {
        return Ok(None);
    }
    let bytes = files::bytes(&path, u64::MAX)?;
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).with_context(|| path.display().to_string())?;
    let position = header.metadata().as_ref().and_then(|m| m.get("position"));
    let position = position.with_context(|| format!("{}: no position in the header", path.display()))?;
    let position: Position = serde_json::from_str(position).with_context(|| path.display().to_string())?;
    optimizer.restore(Weights::from_bytes(&bytes, &path.display().to_string())?, position.step)?;
    Ok(Some(position))
}
