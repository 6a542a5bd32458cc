//! Shards of one experiment, which are merged into one run.

use super::journal::{JournalLine, StoredCells};
use super::{check_experiment, check_key};
use crate::bail_usage;
use anyhow::{ensure, Result};
use std::collections::HashMap;
use std::path::PathBuf;

/// Checks that shards make up one experiment, and returns the number of the shard that holds each cell. `keys` are the number
/// and key of every cell, in the order of one run.
///
/// # Errors
/// A usage error if a shard is of another experiment, shards overlap, or cells are missing; an error if one is damaged.
pub(in crate::experiment) fn holders(
    shards: &[PathBuf],
    experiment: &str,
    keys: &[(u64, String)],
) -> Result<Vec<usize>> {
    let key_of: HashMap<u64, &str> = keys.iter().map(|(cell, key)| (*cell, key.as_str())).collect();
    let mut holder_of: HashMap<u64, usize> = HashMap::new();
    for (shard, folder) in shards.iter().enumerate() {
        check_experiment(folder, experiment)?;
        let mut cells = StoredCells::open(folder)?;
        for cell in &mut cells {
            let JournalLine { cell, key, .. } = cell.line;
            check_key(folder, cell, &key, key_of.get(&cell).copied().unwrap_or_default())?;
            if let Some(other) = holder_of.insert(cell, shard) {
                bail_usage!("{} and {} both hold cell {cell}", shards[other].display(), folder.display());
            }
        }
        ensure!(
            !cells.are_damaged(),
            "{}: what it holds of its last cells is not what was written; `difftool run --resume` measures them again",
            folder.display()
        );
    }
    let missing: Vec<u64> = keys.iter().map(|(cell, _)| *cell).filter(|cell| !holder_of.contains_key(cell)).collect();
    if let Some(first) = missing.iter().min() {
        bail_usage!(
            "{} of {} cells are missing, the first is {first}; finish these shards, or name all of them",
            missing.len(),
            keys.len()
        );
    }
    Ok(keys.iter().map(|(cell, _)| holder_of[cell]).collect())
}
