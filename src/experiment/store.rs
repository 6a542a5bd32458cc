//! A run on disk: its records, and a journal of finished cells from which the run can be resumed.
//!
//! For each cell, the records are appended to `results.csv`, the data that its measures pool to `pooled.bin`, and then one line
//! to the journal `cells.csv`: the key of the cell, the lengths of both files, and the hash of its bytes in them. The line is
//! written after the records are synced, in groups of cells, so that syncing takes less than 1 % of the time. Resuming reads
//! the cells while line and bytes agree, and cuts off the rest.

mod journal;
mod shards;

pub(super) use shards::holders;

use super::{Cell, FinishedCell};
use crate::bail_usage;
use crate::files;
use crate::measure::{Measure, PassKey};
use crate::record::{self, Record, RecordWriter};
use crate::runfolder::{RunFolder, CELLS, EXPERIMENT, POOLED, RESULTS};
use anyhow::{Context, Result};
use journal::{sha256_of, JournalLine, StoredCells, HEADER};
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
    /// Copy of the damaged journal, which has copies of the other files beside it.
    pub put_aside: Option<PathBuf>,
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
            put_aside: None,
        }
    }

    /// Resumes the run in a folder: cuts off interrupted and damaged cells, the latter after the files are copied. `keys` are
    /// the number and key of every cell, in order.
    ///
    /// # Errors
    /// A usage error if the finished cells are not the first of `keys`; an error if a file cannot be read or written, or is
    /// being written by another process.
    pub(super) fn resume(folder: &mut RunFolder, keys: &[(u64, String)]) -> Result<Self> {
        // The lock comes first: another process may be writing the files that are read next.
        let journal = folder.journal()?;
        let path = folder.path();
        let mut cells = StoredCells::open(path)?;
        let mut finished: Vec<JournalLine> = Vec::new();
        for cell in &mut cells {
            let line = cell.line;
            match keys.get(finished.len()) {
                Some((next, key)) if *next == line.cell => check_key(path, &line, key)?,
                _ => bail_usage!(
                    "{}: cell {} is not the next cell of this run; give the `shard` that the run was started with",
                    path.display(),
                    line.cell
                ),
            }
            finished.push(line);
        }
        let put_aside = if cells.are_damaged() { Some(put_aside(path)?) } else { None };
        let results = folder.join(RESULTS);
        let writer = match finished.last() {
            Some(last) => RecordWriter::resume(results, last.results_end, finished.iter().map(|line| line.rows).sum())?,
            None => {
                let _ = fs::remove_file(&results); // it holds no finished cell
                RecordWriter::create(results)?
            }
        };
        let pooled = folder.join(POOLED);
        if pooled.exists() {
            let cut = OpenOptions::new().write(true).open(&pooled).and_then(|file| file.set_len(cells.pooled_end));
            cut.with_context(|| format!("cannot write {}", pooled.display()))?;
        }
        begin_journal(&journal, cells.journal_end)
            .with_context(|| format!("cannot write {}", folder.join(CELLS).display()))?;
        Ok(Self { put_aside, ..Self::new(path, writer, journal, finished) })
    }

    /// Merges shards into a new folder, which then is an unfinished run with all cells. `holders` are the numbers of the shards
    /// that hold each cell, in order.
    ///
    /// # Errors
    /// If a shard has changed, or a file cannot be read or written.
    pub(super) fn merge(
        folder: &mut RunFolder,
        experiment: &str,
        shards: &[PathBuf],
        holders: &[usize],
    ) -> Result<Self> {
        let mut store = Self::create(folder, experiment)?;
        let mut cells = shards.iter().map(|shard| StoredCells::open(shard)).collect::<Result<Vec<_>>>()?;
        for &shard in holders {
            let changed = || format!("{} has changed while it was merged", shards[shard].display());
            let cell = cells[shard].next().with_context(changed)?;
            store.write(cell.line, &cell.results, &cell.pooled)?;
        }
        store.commit()?;
        Ok(store)
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
        for cell in StoredCells::open(&self.folder)?.filter(|cell| !cell.pooled.is_empty()) {
            let damaged = || format!("{} cannot be read", self.folder.join(POOLED).display());
            let pooled: Pooled = postcard::from_bytes(&cell.pooled).with_context(damaged)?;
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
        let pooled = match finding.pooled {
            [] => Vec::new(),
            pooled => postcard::to_stdvec(pooled).context("what was pooled cannot be written")?,
        };
        let line = JournalLine {
            cell: cell.index,
            key,
            prompts_sha256: finding.prompts_sha256.clone(),
            rows: finding.records.len() as u64,
            sha256: sha256_of(&results, &pooled),
            ..JournalLine::default()
        };
        self.write(line, &results, &pooled)
    }

    /// Writes the bytes of a cell, and commits if enough time has passed.
    fn write(&mut self, mut line: JournalLine, results: &[u8], pooled: &[u8]) -> Result<()> {
        let last = self.finished.last();
        let (results_end, pooled_end) =
            last.map_or((record::header().len() as u64, 0), |last| (last.results_end, last.pooled_end));
        (line.results_end, line.pooled_end) = (results_end + results.len() as u64, pooled_end + pooled.len() as u64);
        self.pool(pooled)?;
        self.writer.write_bytes(results, line.rows)?;
        self.finished.push(line);
        let (when, took) = self.synced;
        if when.elapsed() >= SYNC_INTERVAL * took {
            self.commit()?;
        }
        Ok(())
    }

    /// Appends the pooled data of a cell.
    fn pool(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
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
        file.write_all(bytes).with_context(cannot)
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

/// Copies the files of a run to `cells.csv.cut-1` and so on, with the first number that is free, and returns the path of the
/// journal's copy.
fn put_aside(folder: &Path) -> Result<PathBuf> {
    let copy = |file: &str, n: u32| folder.join(format!("{file}.cut-{n}"));
    let is_free = |n: &u32| [CELLS, RESULTS, POOLED].iter().all(|file| !copy(file, *n).exists());
    let n = (1..).find(is_free).context("every number is taken")?;
    for file in [CELLS, RESULTS, POOLED].into_iter().filter(|file| folder.join(file).exists()) {
        fs::copy(folder.join(file), copy(file, n))
            .with_context(|| format!("cannot write {}", copy(file, n).display()))?;
    }
    Ok(copy(CELLS, n))
}

/// Encoded data of one cell: (index of the measure, model and condition, bytes).
pub(super) type Pooled = Vec<(usize, PassKey, Vec<u8>)>;

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

/// Checks that `folder` holds a run of `experiment`.
///
/// # Errors
/// A usage error that shows the first difference, or if the folder holds no experiment.
pub(super) fn check_experiment(folder: &Path, experiment: &str) -> Result<()> {
    let path = folder.join(EXPERIMENT);
    let there = files::input_text(&path, files::CONFIG_MAX).context("not the folder of a run that can be continued")?;
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

    const CELLS_OF_RUN: [(&[u8], &[u8]); 3] = [(b"first\n", b"a"), (b"second\n", b""), (b"third\n", b"ccc")];

    /// The folder of a run with three cells; the key of cell i is `key i`.
    fn run() -> (tempfile::TempDir, Vec<(u64, String)>) {
        let home = tempfile::tempdir().unwrap();
        let mut store = Store::create(&mut RunFolder::create(Some(home.path()), "needle").unwrap(), "").unwrap();
        let keys: Vec<(u64, String)> = (0..3).map(|i| (i, format!("key {i}"))).collect();
        for ((cell, key), (results, pooled)) in keys.iter().zip(CELLS_OF_RUN) {
            let sha256 = sha256_of(results, pooled);
            let line = JournalLine { cell: *cell, key: key.clone(), rows: 1, sha256, ..JournalLine::default() };
            store.write(line, results, pooled).unwrap();
        }
        store.commit().unwrap();
        (home, keys)
    }

    /// The number of cells that a resumed run does not measure again, and whether the files were put aside.
    fn resumed(home: &tempfile::TempDir, keys: &[(u64, String)]) -> Result<(usize, bool)> {
        let store = Store::resume(&mut RunFolder::reopen(home.path())?, keys)?;
        Ok((store.finished.len(), store.put_aside.is_some()))
    }

    /// Changes a file of a folder.
    fn edit(home: &tempfile::TempDir, file: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let path = home.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        edit(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn what_follows_the_last_finished_cell_is_cut_off() {
        let (home, keys) = run();
        let whole = [CELLS, RESULTS, POOLED].map(|file| fs::read(home.path().join(file)).unwrap());
        edit(&home, RESULTS, |bytes| bytes.extend(b"half a ce"));
        edit(&home, POOLED, |bytes| bytes.push(0));
        assert_eq!(resumed(&home, &keys).unwrap(), (3, false));
        assert!([CELLS, RESULTS, POOLED].map(|file| fs::read(home.path().join(file)).unwrap()) == whole);
    }

    #[test]
    fn cells_from_the_first_damaged_one_on_are_cut_off_and_the_files_put_aside() {
        for file in [CELLS, RESULTS, POOLED] {
            for back in [1, 2, 3] {
                let (home, keys) = run();
                edit(&home, file, |bytes| {
                    let at = bytes.len() - back;
                    bytes[at] ^= 1;
                });
                let before = fs::read(home.path().join(file)).unwrap();
                assert_eq!(resumed(&home, &keys).unwrap(), (2, true), "{file}");
                assert!(fs::read(home.path().join(format!("{file}.cut-1"))).unwrap() == before, "{file}");
                assert!(fs::read_to_string(home.path().join(RESULTS)).unwrap().ends_with("\nfirst\nsecond\n"));
                assert_eq!(fs::read(home.path().join(POOLED)).unwrap(), b"a");
            }
        }
    }

    #[test]
    fn a_journal_that_lost_every_cell_leaves_a_copy_of_the_records() {
        for length in [0, 5, HEADER.len()] {
            let (home, keys) = run();
            edit(&home, CELLS, |bytes| bytes.truncate(length));
            let before = fs::read(home.path().join(RESULTS)).unwrap();
            assert_eq!(resumed(&home, &keys).unwrap(), (0, true), "{length}");
            assert_eq!(fs::read(home.path().join("results.csv.cut-1")).unwrap(), before);
            assert_eq!(resumed(&home, &keys).unwrap(), (0, false), "{length}");
        }
    }

    #[test]
    fn the_lock_is_held_until_the_last_part_of_a_run_is_dropped() {
        let (home, keys) = run();
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
            let (home, keys) = run();
            edit(&home, CELLS, |journal| {
                let at = at.min(journal.len());
                journal.splice(at..at, bytes);
            });
            let _ = resumed(&home, &keys);
        }
    }
}
