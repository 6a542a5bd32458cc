//! A run on disk: its records, and a journal of finished cells from which the run can be resumed.
//!
//! For each cell, the records are appended to `results.csv`, the data that its measures pool to `pooled.bin`, and then one line
//! to the journal `cells.csv`: the key of the cell and the lengths of both files. The line is written after the records are
//! synced, in groups of cells, so that syncing takes less than 1 % of the time. Bytes after the last line of the journal come
//! from interrupted cells; resuming cuts them off.

mod journal;
mod shards;

pub(super) use shards::Shards;

use super::{Cell, Experiment, FinishedCell};
use crate::bail_usage;
use crate::files;
use crate::measure::{Measure, PassKey};
use crate::record::{self, Record, RecordWriter};
use crate::runfolder::{RunFolder, CELLS, EXPERIMENT, POOLED, RESULTS};
use anyhow::{ensure, Context, Result};
use journal::{sha256_of, JournalLine, OnDisk, HEADER};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two syncs, as a multiple of the duration of the last one.
const SYNC_INTERVAL: u32 = 100;

/// The open files of a run.
pub(super) struct Store {
    folder: PathBuf,
    writer: RecordWriter,
    pooled: Option<File>,
    journal: Arc<File>,
    /// Finished cells, in order.
    pub finished: Vec<JournalLine>,
    /// Number of finished cells that are in the journal.
    in_journal: usize,
    /// Time of the last sync, and its duration.
    synced: (Instant, Duration),
    /// Number of cells that were damaged and are measured again.
    pub damaged: usize,
}

impl Store {
    /// Creates the files of a new run in an empty folder.
    pub(super) fn create(folder: &mut RunFolder, experiment: &str) -> Result<Self> {
        let path = folder.join(EXPERIMENT);
        // A second run in the same folder must not replace the experiment of the first.
        let mut file = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let written = file.write_all(experiment.as_bytes()).and_then(|()| file.sync_all());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        folder.save_command()?;
        let journal = folder.create_journal()?;
        begin_journal(&journal, 0).with_context(|| format!("cannot write {}", folder.join(CELLS).display()))?;
        let writer = RecordWriter::create(folder.join(RESULTS))?;
        files::sync_folder_of(&path);
        Ok(Self::new(folder.path(), writer, journal, Vec::new()))
    }

    fn new(folder: &Path, writer: RecordWriter, journal: Arc<File>, finished: Vec<JournalLine>) -> Self {
        Self {
            folder: folder.to_owned(),
            writer,
            pooled: None,
            journal,
            in_journal: finished.len(),
            finished,
            synced: (Instant::now(), Duration::ZERO),
            damaged: 0,
        }
    }

    /// Resumes the run in a folder: cuts off interrupted and damaged cells. `keys` are the number and key of every cell, in
    /// order.
    ///
    /// # Errors
    /// A usage error if the finished cells are not the first of `keys`; an error if a file cannot be read, has changed, or is
    /// being written by another process. Nothing is cut off then.
    pub(super) fn resume(folder: &mut RunFolder, keys: &[(u64, String)]) -> Result<Self> {
        // The lock comes first: another process may be writing the files that are read next.
        let journal = folder.journal()?;
        let path = folder.path();
        let on_disk = OnDisk::read(path)?;
        for (i, cell) in on_disk.cells.iter().enumerate() {
            let line = &cell.line;
            if keys.get(i).is_none_or(|(cell, _)| *cell != line.cell) {
                bail_usage!(
                    "{}: cell {} is not the next cell of this run; give the `shard` that the run was started with",
                    path.display(),
                    line.cell
                );
            }
            check_key(path, line, &keys[i].1)?;
        }
        if on_disk.cells.is_empty() {
            check_nothing_is_lost(path, on_disk.damaged)?;
        }
        let (rows, damaged, end) = (on_disk.rows(), on_disk.damaged, on_disk.journal_end);
        let finished: Vec<JournalLine> = on_disk.cells.into_iter().map(|cell| cell.line).collect();
        let results = folder.join(RESULTS);
        let writer = match finished.last() {
            Some(last) => RecordWriter::resume(results, last.results_end, rows)?,
            None => {
                let _ = fs::remove_file(&results); // it holds no finished cell
                RecordWriter::create(results)?
            }
        };
        let pooled = folder.join(POOLED);
        if pooled.exists() {
            let cannot = || format!("cannot write {}", pooled.display());
            let file = OpenOptions::new().write(true).open(&pooled).with_context(cannot)?;
            file.set_len(finished.last().map_or(0, |line| line.pooled_end)).with_context(cannot)?;
        }
        begin_journal(&journal, end).with_context(|| format!("cannot write {}", folder.join(CELLS).display()))?;
        Ok(Self { damaged, ..Self::new(folder.path(), writer, journal, finished) })
    }

    /// Passes the records of the finished cells to `see`, and their pooled data to the measures.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn replay(&self, measures: &mut [&mut dyn Measure], see: &mut dyn FnMut(&Record)) -> Result<()> {
        if self.finished.is_empty() {
            return Ok(());
        }
        record::read(&self.folder.join(RESULTS))?.iter().for_each(see);
        let path = self.folder.join(POOLED);
        if !path.exists() {
            return Ok(());
        }
        let damaged = || format!("{} cannot be read", path.display());
        let pooled = fs::read(&path).with_context(damaged)?;
        let mut start = 0;
        for line in &self.finished {
            let end = line.pooled_end as usize;
            let bytes = pooled.get(start..end).with_context(damaged)?;
            start = end;
            if bytes.is_empty() {
                continue;
            }
            let pooled: Pooled = postcard::from_bytes(bytes).with_context(damaged)?;
            for (measure, place, bytes) in pooled {
                let measure = measures.get_mut(measure).with_context(damaged)?;
                let kept = measure.decode(&bytes).with_context(damaged)?;
                measure.absorb(place, kept);
            }
        }
        Ok(())
    }

    /// Appends a finished cell, which is in the journal at the latest after the next [`Store::commit`].
    pub(super) fn add(&mut self, cell: &Cell, key: String, finding: &FinishedCell<'_>) -> Result<()> {
        let results = record::to_bytes(finding.records)?;
        let rows = finding.records.len() as u64;
        let pooled = match finding.pooled {
            [] => Vec::new(),
            pooled => postcard::to_stdvec(pooled).context("what was pooled cannot be written")?,
        };
        self.write(&results, &pooled, |results_end, pooled_end| JournalLine {
            cell: cell.index,
            key,
            prompts_sha256: finding.prompts_sha256.clone(),
            rows,
            results_end,
            pooled_end,
            sha256: sha256_of(&results, &pooled),
        })
    }

    /// Writes the bytes of a cell, and commits if enough time has passed.
    fn write(&mut self, results: &[u8], pooled: &[u8], line: impl FnOnce(u64, u64) -> JournalLine) -> Result<()> {
        let pooled_end = self.pool(pooled)?;
        let line = line(self.writer.bytes()? + results.len() as u64, pooled_end);
        self.writer.write_bytes(results, line.rows)?;
        self.finished.push(line);
        let (when, took) = self.synced;
        if when.elapsed() >= SYNC_INTERVAL * took {
            self.commit()?;
        }
        Ok(())
    }

    /// Appends the pooled data of a cell and returns the new length of the file.
    fn pool(&mut self, bytes: &[u8]) -> Result<u64> {
        let end = self.finished.last().map_or(0, |line| line.pooled_end);
        if !bytes.is_empty() {
            let path = self.folder.join(POOLED);
            let cannot = || format!("cannot write {}", path.display());
            let file = match &mut self.pooled {
                Some(file) => file,
                none => {
                    let file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
                    files::sync_folder_of(&path);
                    none.insert(file)
                }
            };
            file.write_all(bytes).with_context(cannot)?;
        }
        Ok(end + bytes.len() as u64)
    }

    /// Syncs the records and then writes the new cells to the journal.
    pub(super) fn commit(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut lines = Vec::new();
        for line in &self.finished[self.in_journal..] {
            lines.extend(line.to_bytes()?);
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.writer.sync()?;
        if let Some(pooled) = &self.pooled {
            pooled.sync_data().with_context(|| format!("cannot write {}", self.folder.join(POOLED).display()))?;
        }
        let written = (&*self.journal).write_all(&lines).and_then(|()| self.journal.sync_data());
        written.with_context(|| format!("cannot write {}", self.folder.join(CELLS).display()))?;
        self.in_journal = self.finished.len();
        self.synced = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Appends the records that were pooled over all cells.
    pub(super) fn conclude(&mut self, records: &[Record]) -> Result<()> {
        self.writer.write_all(records)
    }

    /// Returns the number of records written.
    pub(super) fn rows(&self) -> u64 {
        self.writer.rows()
    }

    /// Returns the SHA-256 over the hashes of the prompts, in order.
    pub(super) fn prompts_sha256(&self) -> String {
        let hashes: String = self.finished.iter().map(|line| line.prompts_sha256.as_str()).collect();
        crate::hash::sha256(hashes.as_bytes())
    }
}

/// Truncates the journal to its first `end` bytes; an empty one gets its header.
fn begin_journal(mut journal: &File, end: u64) -> std::io::Result<()> {
    journal.set_len(end)?;
    journal.seek(SeekFrom::End(0))?;
    if end == 0 {
        journal.write_all(HEADER.as_bytes())?;
    }
    journal.sync_all()
}

/// Encoded data of one cell: (index of the measure, model and condition, bytes).
pub(super) type Pooled = Vec<(usize, PassKey, Vec<u8>)>;

/// Refuses to start over in a folder that holds more than one finished cell, none of which can be verified.
///
/// The first cell is committed at once, so an interrupted run has at most one that is not in the journal.
fn check_nothing_is_lost(folder: &Path, damaged: usize) -> Result<()> {
    let prompts = prompts_in(&folder.join(RESULTS));
    ensure!(
        damaged <= 1 && prompts <= 1,
        "{}: no finished cell is left in it, though {RESULTS} beside it holds records of {prompts} prompts; nothing was \
         deleted: restore the files, or begin a new run",
        folder.join(CELLS).display()
    );
    Ok(())
}

/// Counts the prompts whose records a file holds, as far as it can be read.
fn prompts_in(results: &Path) -> usize {
    let columns = record::columns();
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap_or_default();
    let (sample, seed) = (column("sample"), column("seed"));
    let Ok(file) = File::open(results) else { return 0 };
    let rows = csv::ReaderBuilder::new().flexible(true).from_reader(file).into_records();
    // The last row may be incomplete.
    let whole = |row: &csv::StringRecord| row.len() == columns.len();
    // Records that are pooled over all prompts are written last: each counts, as they tell that the run had ended.
    let prompt = |(i, row): (usize, csv::StringRecord)| {
        let pooled = if row[sample].is_empty() { i } else { 0 };
        (row[sample].to_owned(), row[seed].to_owned(), pooled)
    };
    rows.map_while(Result::ok).filter(whole).enumerate().map(prompt).collect::<BTreeSet<_>>().len()
}

/// Checks that a finished cell was measured with everything that it would be measured with now.
fn check_key(folder: &Path, line: &JournalLine, key: &str) -> Result<()> {
    if line.key != key {
        bail_usage!(
            "{}: cell {} was measured with other weights, another tokenizer, text or corpus, other settings, another build of \
             difftool or another kind of processor; begin a new run",
            folder.display(),
            line.cell
        );
    }
    Ok(())
}

/// Returns the number of finished cells of the run in a folder, which a resumed run does not measure again.
///
/// # Errors
/// If a file cannot be read, or has changed.
pub fn cells_on_disk(folder: &Path) -> Result<usize> {
    Ok(OnDisk::read(folder)?.cells.len())
}

/// Checks that `folder` holds a run of `experiment`, whichever version of difftool wrote it.
///
/// # Errors
/// A usage error that shows the first difference, or if the folder holds no experiment.
pub(super) fn check_experiment(folder: &Path, experiment: &str) -> Result<()> {
    let path = folder.join(EXPERIMENT);
    let there = files::input_text(&path, files::CONFIG_MAX).context("not the folder of a run that can be continued")?;
    let there = Experiment::normalised(&there, &path.display().to_string())?;
    if there == experiment {
        return Ok(());
    }
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter(|line| !line.is_empty()).chain(std::iter::repeat("(nothing)"))
    }
    let longest = there.lines().count().max(experiment.lines().count());
    let differ = lines(&there).zip(lines(experiment)).take(longest).find(|(a, b)| a != b);
    let (theirs, ours) = differ.unwrap_or_default();
    bail_usage!("{} is another experiment: it has `{theirs}` where `{ours}` is asked for", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The folder of a run with cells of these records and pooled bytes; the key of cell i is `key i`.
    fn run(cells: &[(&[u8], &[u8])]) -> (tempfile::TempDir, Vec<(u64, String)>) {
        let home = tempfile::tempdir().unwrap();
        let mut folder = RunFolder::create(Some(home.path()), "needle").unwrap();
        let mut store = Store::create(&mut folder, "").unwrap();
        let keys: Vec<(u64, String)> = (0..cells.len()).map(|i| (i as u64, format!("key {i}"))).collect();
        for ((cell, key), (results, pooled)) in keys.iter().zip(cells) {
            let line = |results_end, pooled_end| JournalLine {
                cell: *cell,
                key: key.clone(),
                prompts_sha256: String::new(),
                rows: 1,
                results_end,
                pooled_end,
                sha256: sha256_of(results, pooled),
            };
            store.write(results, pooled, line).unwrap();
        }
        store.commit().unwrap();
        (home, keys)
    }

    const CELLS_OF_RUN: [(&[u8], &[u8]); 3] = [(b"first\n", b"a"), (b"second\n", b""), (b"third\n", b"ccc")];

    fn resumed(home: &tempfile::TempDir, keys: &[(u64, String)]) -> Result<(usize, usize)> {
        let store = Store::resume(&mut RunFolder::reopen(home.path())?, keys)?;
        Ok((store.finished.len(), store.damaged))
    }

    /// Changes a file of a folder.
    fn edit(home: &tempfile::TempDir, file: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let path = home.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        edit(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_half_written_line_does_not_count() {
        let (home, keys) = run(&CELLS_OF_RUN);
        assert_eq!(cells_on_disk(home.path()).unwrap(), 3);
        edit(&home, CELLS, |bytes| bytes.truncate(bytes.len() - 1));
        assert_eq!(resumed(&home, &keys).unwrap(), (2, 0));
        assert!(fs::read_to_string(home.path().join(RESULTS)).unwrap().ends_with("\nfirst\nsecond\n"));
        assert_eq!(fs::read(home.path().join(POOLED)).unwrap(), b"a");
    }

    #[test]
    fn a_damaged_tail_costs_the_cells_that_are_damaged() {
        for file in [CELLS, RESULTS, POOLED] {
            for zeroed in [true, false] {
                let (home, keys) = run(&CELLS_OF_RUN);
                edit(&home, file, |bytes| {
                    let length = bytes.len();
                    bytes.truncate(length - 2);
                    bytes.resize(if zeroed { length } else { length - 2 }, 0);
                });
                let damaged = usize::from(file != CELLS);
                assert_eq!(resumed(&home, &keys).unwrap(), (2, damaged), "{file}, zeroed: {zeroed}");
            }
        }
    }

    #[test]
    fn a_damaged_cell_before_whole_ones_is_an_error_that_deletes_nothing() {
        for file in [RESULTS, CELLS] {
            let (home, keys) = run(&CELLS_OF_RUN);
            // The last byte of the line of the second cell.
            edit(&home, file, |bytes| {
                let ends: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b'\n').collect();
                bytes[ends[ends.len() - 2] - 1] ^= 1;
            });
            let before = fs::read(home.path().join(RESULTS)).unwrap();
            let error = format!("{:#}", resumed(&home, &keys).unwrap_err());
            assert!(error.contains("line 3 of cells.csv is not what was written"), "{error}");
            assert!(error.contains("begin a new run"), "{error}");
            assert_eq!(fs::read(home.path().join(RESULTS)).unwrap(), before);
        }
    }

    #[test]
    fn a_journal_that_lost_every_cell_is_an_error_that_deletes_nothing() {
        let row = |seed: u64| {
            let identity = record::Identity { seed: Some(seed), ..record::Identity::default() };
            record::to_bytes(&[Record { identity: identity.into(), ..Record::default() }]).unwrap()
        };
        let rows = [row(1), row(2)];
        for length in [0, 5, HEADER.len()] {
            let (home, keys) = run(&[(&rows[0], b""), (&rows[1], b"")]);
            edit(&home, CELLS, |bytes| bytes.truncate(length));
            let before = fs::read(home.path().join(RESULTS)).unwrap();
            let error = format!("{:#}", resumed(&home, &keys).unwrap_err());
            assert!(error.contains("records of 2 prompts") && error.contains("nothing was deleted"), "{error}");
            assert_eq!(fs::read(home.path().join(RESULTS)).unwrap(), before);
            // A single prompt that is not in the journal yet may be measured again.
            edit(&home, RESULTS, |bytes| bytes.truncate(bytes.len() - 30));
            assert_eq!(resumed(&home, &keys).unwrap(), (0, 0));
        }
    }

    #[test]
    fn the_lock_is_held_until_the_last_part_of_a_run_is_dropped() {
        let (home, keys) = run(&CELLS_OF_RUN);
        let mut folder = RunFolder::reopen(home.path()).unwrap();
        drop(Store::resume(&mut folder, &keys).unwrap());
        let error = resumed(&home, &keys).unwrap_err().to_string();
        assert!(error.contains("another process is writing into"), "{error}");
        drop(folder);
        resumed(&home, &keys).unwrap();
    }

    proptest! {
        #[test]
        fn no_journal_makes_a_resumed_run_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..300usize) {
            let (home, keys) = run(&CELLS_OF_RUN);
            edit(&home, CELLS, |journal| {
                let at = at.min(journal.len());
                journal.splice(at..at, bytes);
            });
            let _ = resumed(&home, &keys);
        }
    }
}
