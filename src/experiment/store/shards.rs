//! Shards of one experiment, merged into one run.

use super::journal::{CellFiles, JournalLine, OnDisk, StoredCell};
use super::{check_experiment, check_key, Store};
use crate::bail_usage;
use crate::runfolder::RunFolder;
use anyhow::{ensure, Result};
use std::collections::HashMap;
use std::path::PathBuf;

/// A finished cell, with the number of its shard.
struct ShardCell {
    shard: usize,
    cell: StoredCell,
}

/// Shards that together hold every cell of one experiment once.
pub(in crate::experiment) struct Shards {
    folders: Vec<PathBuf>,
    cells: Vec<ShardCell>,
}

impl Shards {
    /// Checks that shards make up one experiment. `keys` are the number and key of every cell, in the order of one run.
    ///
    /// # Errors
    /// A usage error if a shard is of another experiment, shards overlap, or cells are missing.
    pub(in crate::experiment) fn check(folders: &[PathBuf], experiment: &str, keys: &[(u64, String)]) -> Result<Self> {
        let mut cells = Vec::new();
        for (shard, folder) in folders.iter().enumerate() {
            check_experiment(folder, experiment)?;
            let on_disk = OnDisk::read(folder)?;
            ensure!(
                on_disk.damaged == 0,
                "{}: what it holds of its last cells is not what was written; `difftool run --resume` measures them again",
                folder.display()
            );
            cells.extend(on_disk.cells.into_iter().map(|cell| ShardCell { shard, cell }));
        }
        cells.sort_by_key(|part| part.cell.line.cell);
        check_numbers(&cells, folders, keys)?;
        let place: HashMap<u64, usize> = keys.iter().enumerate().map(|(place, (cell, _))| (*cell, place)).collect();
        cells.sort_by_key(|part| place.get(&part.cell.line.cell).copied());
        for (part, (_, key)) in cells.iter().zip(keys) {
            check_key(&folders[part.shard], &part.cell.line, key)?;
        }
        Ok(Self { folders: folders.to_vec(), cells })
    }

    /// Merges the shards into a new folder, which then looks like an unfinished run with all cells.
    ///
    /// # Errors
    /// If a shard has changed since it was written, or a file cannot be read or written.
    pub(in crate::experiment) fn merge(self, folder: &mut RunFolder, experiment: &str) -> Result<()> {
        let mut store = Store::create(folder, experiment)?;
        let mut files = self.folders.iter().map(|folder| CellFiles::open(folder)).collect::<Result<Vec<_>>>()?;
        for ShardCell { shard, cell } in self.cells {
            let (results, pooled) = files[shard].read(&cell)?;
            let line = cell.line;
            store.write(&results, &pooled, |results_end, pooled_end| JournalLine {
                results_end,
                pooled_end,
                ..line
            })?;
        }
        store.commit()
    }
}

/// Checks that cells, sorted by number, are all cells of the experiment, each once.
fn check_numbers(cells: &[ShardCell], shards: &[PathBuf], keys: &[(u64, String)]) -> Result<()> {
    if let Some(pair) = cells.windows(2).find(|pair| pair[0].cell.line.cell == pair[1].cell.line.cell) {
        let (a, b) = (shards[pair[0].shard].display(), shards[pair[1].shard].display());
        bail_usage!("{a} and {b} both hold cell {}", pair[0].cell.line.cell);
    }
    let has = |cell: &u64| cells.binary_search_by_key(cell, |part| part.cell.line.cell).is_ok();
    let missing: Vec<u64> = keys.iter().map(|(cell, _)| *cell).filter(|cell| !has(cell)).collect();
    if let Some(first) = missing.iter().min() {
        bail_usage!(
            "{} of {} cells are missing, the first is {first}; finish these shards, or name all of them",
            missing.len(),
            keys.len()
        );
    }
    Ok(())
}
