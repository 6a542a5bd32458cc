//! A run on disk: its records, and a journal of finished cells from which the run can be resumed.
//!
//! For each cell, the records are appended to `results.csv`, the data that its measures pool to `pooled.bin`, and then
//! one line to the journal `cells.csv`: the key of the cell and the lengths of both files. Bytes after the last line of
//! the journal come from an interrupted cell; resuming cuts them off.

use super::{Cell, Experiment, FinishedCell};
use crate::bail_usage;
use crate::files;
use crate::measure::{Measure, PassKey};
use crate::record::{self, Record, RecordWriter};
use crate::runfolder::{results, CELLS, EXPERIMENT, POOLED, RESULTS};
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The first line of the journal.
const HEADER: [&str; 7] = ["cell", "key", "prompts_sha256", "rows", "results_end", "pooled_end", "sha256"];

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalLine {
    /// Number of the cell in the whole grid.
    pub cell: u64,
    /// Hash of everything that its records depend on; see [`Setup::keys`](super::Setup::keys).
    pub key: String,
    /// SHA-256 over the token ids of its prompts, one for each model.
    pub prompts_sha256: String,
    /// Number of its records.
    pub rows: u64,
    /// Length of `results.csv` after them, in bytes.
    pub results_end: u64,
    /// Length of `pooled.bin` after it, in bytes.
    pub pooled_end: u64,
    /// SHA-256 of its bytes in `results.csv` followed by those in `pooled.bin`.
    pub sha256: String,
}

/// The open files of a run.
pub(super) struct Store {
    folder: PathBuf,
    writer: RecordWriter,
    journal: csv::Writer<File>,
    /// The finished cells, in order.
    pub finished: Vec<JournalLine>,
}

impl Store {
    /// Creates the files of a new run in an empty folder.
    pub(super) fn create(folder: &Path, experiment: &str) -> Result<Self> {
        let path = folder.join(EXPERIMENT);
        // If two runs start in one folder, the second must not replace the experiment of the first.
        let mut file = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        file.write_all(experiment.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        let path = folder.join(CELLS);
        let journal = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        lock(&journal, folder)?;
        let journal = begin_journal(journal, 0).with_context(|| format!("cannot write {}", path.display()))?;
        let writer = RecordWriter::create(folder.join(RESULTS))?;
        Ok(Self { folder: folder.to_owned(), writer, journal, finished: Vec::new() })
    }

    /// Opens the files of an interrupted run and cuts off what the interrupted cell has written. `keys` are the number
    /// and key of every cell, in order.
    ///
    /// # Errors
    /// A usage error if the finished cells are not the first ones of `keys`; an error if a file cannot be read, has
    /// changed, or is in use by another process.
    pub(super) fn resume(folder: &Path, keys: &[(u64, String)]) -> Result<Self> {
        let path = folder.join(CELLS);
        let not_a_run = || not_a_run(&path);
        let journal = OpenOptions::new().read(true).write(true).open(&path).with_context(not_a_run)?;
        // Lock before reading, so that no line is read while another process writes it.
        lock(&journal, folder)?;
        let (finished, journal_end) = read_journal(folder)?;
        for (i, line) in finished.iter().enumerate() {
            if keys.get(i).is_none_or(|(cell, _)| *cell != line.cell) {
                bail_usage!(
                    "{}: cell {} is not the next cell of this run; give the `shard` that the run was started with",
                    folder.display(),
                    line.cell
                );
            }
            check_key(folder, line, &keys[i].1)?;
        }
        verify(folder, &finished)?;
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
            let cannot = || format!("cannot write {}", pooled.display());
            let file = OpenOptions::new().write(true).open(&pooled).with_context(cannot)?;
            file.set_len(finished.last().map_or(0, |line| line.pooled_end)).with_context(cannot)?;
        }
        let journal =
            begin_journal(journal, journal_end).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { folder: folder.to_owned(), writer, journal, finished })
    }

    /// Passes the records of the finished cells to `see`, and their pooled data to the measures.
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
        let mut file = File::open(&path).with_context(damaged)?;
        let mut start = 0;
        for line in &self.finished {
            let bytes = read_part(&mut file, &(start..line.pooled_end), || path.clone())?;
            start = line.pooled_end;
            if bytes.is_empty() {
                continue;
            }
            let pooled: PooledBytes = postcard::from_bytes(&bytes).with_context(damaged)?;
            for (measure, pass, bytes) in pooled {
                let measure = measures.get_mut(measure).with_context(damaged)?;
                let kept = measure.decode(&bytes).with_context(damaged)?;
                measure.absorb(pass, kept);
            }
        }
        Ok(())
    }

    /// Appends a finished cell.
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

    /// Appends the bytes of a cell, and then its line of the journal.
    fn write(&mut self, results: &[u8], pooled: &[u8], line: impl FnOnce(u64, u64) -> JournalLine) -> Result<()> {
        let pooled_end = self.pool(pooled)?;
        let line = line(self.writer.bytes()? + results.len() as u64, pooled_end);
        self.writer.write_bytes(results, line.rows)?;
        self.push(line)
    }

    /// Appends the pooled data of a cell and returns the length of `pooled.bin` after it.
    fn pool(&self, bytes: &[u8]) -> Result<u64> {
        let end = self.finished.last().map_or(0, |line| line.pooled_end);
        if !bytes.is_empty() {
            let path = self.folder.join(POOLED);
            let cannot = || format!("cannot write {}", path.display());
            let mut file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
            file.write_all(bytes).with_context(cannot)?;
        }
        Ok(end + bytes.len() as u64)
    }

    fn push(&mut self, line: JournalLine) -> Result<()> {
        let cannot = || format!("cannot write {}", self.folder.join(CELLS).display());
        self.journal.serialize(&line).with_context(cannot)?;
        self.journal.flush().with_context(cannot)?;
        self.finished.push(line);
        Ok(())
    }

    /// Appends the records of data pooled over all cells, after the last cell.
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

/// Truncates the journal to `end` bytes and opens it for appending; an empty one gets its header.
fn begin_journal(mut file: File, end: u64) -> Result<csv::Writer<File>> {
    file.set_len(end)?;
    file.seek(SeekFrom::End(0))?;
    let mut journal = csv::WriterBuilder::new().has_headers(false).from_writer(file);
    if end == 0 {
        journal.write_record(HEADER)?;
        journal.flush()?;
    }
    Ok(journal)
}

/// Encoded data of one cell: (index of the measure, model and condition, bytes).
pub(super) type PooledBytes = Vec<(usize, PassKey, Vec<u8>)>;

fn sha256_of(results: &[u8], pooled: &[u8]) -> String {
    crate::hash::sha256(&[results, pooled].concat())
}

/// Locks the folder against other processes for as long as the file is open.
fn lock(journal: &File, folder: &Path) -> Result<()> {
    match journal.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => {
            anyhow::bail!("another process is writing into {}", folder.display())
        }
        // Some file systems have no locks.
        Ok(()) | Err(std::fs::TryLockError::Error(_)) => Ok(()),
    }
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

/// The files of a run, opened for reading.
struct Files {
    folder: PathBuf,
    results: File,
    pooled: Option<File>,
}

impl Files {
    fn open(folder: &Path) -> Result<Self> {
        let results = folder.join(RESULTS);
        let results = File::open(&results).with_context(|| format!("cannot read {}", results.display()))?;
        Ok(Self { folder: folder.to_owned(), results, pooled: File::open(folder.join(POOLED)).ok() })
    }

    /// Reads the bytes of a cell in both files and checks their hash.
    fn read(&mut self, part: &ShardCell) -> Result<(Vec<u8>, Vec<u8>)> {
        let results = read_part(&mut self.results, &part.results, || self.folder.join(RESULTS))?;
        let pooled = || self.folder.join(POOLED);
        let pooled = self.pooled.as_mut().map_or(Ok(Vec::new()), |file| read_part(file, &part.pooled, pooled))?;
        ensure!(
            sha256_of(&results, &pooled) == part.line.sha256,
            "{}: cell {} is not what was written; begin a new run",
            self.folder.display(),
            part.line.cell
        );
        Ok((results, pooled))
    }
}

fn not_a_run(path: &Path) -> String {
    format!("cannot read {}: not the folder of a run that can be continued", path.display())
}

/// Reads the complete lines of the journal that agree with the lengths of the other files. Also returns the length of
/// these lines in bytes.
fn read_journal(folder: &Path) -> Result<(Vec<JournalLine>, u64)> {
    let path = folder.join(CELLS);
    let text = fs::read_to_string(&path).with_context(|| not_a_run(&path))?;
    let length = |file: &str| fs::metadata(folder.join(file)).map_or(0, |file| file.len());
    let (results, pooled) = (length(RESULTS), length(POOLED));
    let mut finished: Vec<JournalLine> = Vec::new();
    let mut end = 0;
    for (number, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
        if number > 0 {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
            let row = reader.deserialize().next();
            let row: JournalLine = match row {
                Some(row) => row.with_context(|| format!("{}, line {}", path.display(), number + 1))?,
                None => anyhow::bail!("{}, line {}: empty", path.display(), number + 1),
            };
            if row.results_end > results || row.pooled_end > pooled {
                break;
            }
            finished.push(row);
        }
        end += line.len() as u64;
    }
    Ok((finished, end))
}

/// Returns the number of finished cells of the run in a folder, which a resumed run does not measure again.
///
/// # Errors
/// If a file cannot be read, or does not agree with the journal.
pub fn cells_on_disk(folder: &Path) -> Result<usize> {
    let (finished, _) = read_journal(folder)?;
    verify(folder, &finished)?;
    Ok(finished.len())
}

/// Checks the hashes of all finished cells of a folder.
fn verify(folder: &Path, finished: &[JournalLine]) -> Result<()> {
    if finished.is_empty() {
        return Ok(());
    }
    let mut files = Files::open(folder)?;
    parts_of(0, folder, finished)?.iter().try_for_each(|part| files.read(part).map(drop))
}

/// Checks that `folder` holds a run of `experiment`, whichever version of difftool wrote it.
///
/// # Errors
/// A usage error with the first line that differs; an error if the folder holds no experiment.
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

/// A finished cell of a shard, with the ranges of its bytes in the shard's files.
struct ShardCell {
    shard: usize,
    results: Range<u64>,
    pooled: Range<u64>,
    line: JournalLine,
}

/// Shards that together hold every cell of one experiment once.
pub(super) struct Shards {
    folders: Vec<PathBuf>,
    parts: Vec<ShardCell>,
}

impl Shards {
    /// Checks that shards make up one experiment. `keys` are the number and key of every cell, in order.
    ///
    /// # Errors
    /// A usage error if a shard is of another experiment, shards overlap, or cells are missing.
    pub(super) fn check(folders: &[PathBuf], experiment: &str, keys: &[(u64, String)]) -> Result<Self> {
        let mut parts = Vec::new();
        for (shard, folder) in folders.iter().enumerate() {
            check_experiment(folder, experiment)?;
            let results = results(folder);
            if results != folder.join(RESULTS) {
                bail_usage!(
                    "{}: shards are put together from {RESULTS}, before they are compressed",
                    results.display()
                );
            }
            parts.extend(parts_of(shard, folder, &read_journal(folder)?.0)?);
        }
        parts.sort_by_key(|part| part.line.cell);
        check_parts(&parts, folders, keys)?;
        Ok(Self { folders: folders.to_vec(), parts })
    }

    /// Merges the shards into a new folder, which then looks like an unfinished run with all cells.
    ///
    /// # Errors
    /// If a shard has changed since it was written, or a file cannot be read or written.
    pub(super) fn merge(self, folder: &Path, experiment: &str) -> Result<()> {
        let mut store = Store::create(folder, experiment)?;
        let mut files = self.folders.iter().map(|folder| Files::open(folder)).collect::<Result<Vec<_>>>()?;
        for part in self.parts {
            let (results, pooled) = files[part.shard].read(&part)?;
            let line = part.line;
            store.write(&results, &pooled, |results_end, pooled_end| JournalLine {
                results_end,
                pooled_end,
                ..line
            })?;
        }
        Ok(())
    }
}

/// Returns the cells of a journal with their ranges of bytes in the files beside it.
fn parts_of(shard: usize, folder: &Path, finished: &[JournalLine]) -> Result<Vec<ShardCell>> {
    if finished.is_empty() {
        return Ok(Vec::new());
    }
    let (mut results, mut pooled) = (header_len(&folder.join(RESULTS))?, 0);
    let part = |line: &JournalLine| {
        let line = line.clone();
        let part = ShardCell { shard, results: results..line.results_end, pooled: pooled..line.pooled_end, line };
        (results, pooled) = (part.results.end, part.pooled.end);
        part
    };
    Ok(finished.iter().map(part).collect())
}

/// Checks that cells, sorted by number, are all cells of the experiment, each once.
fn check_parts(parts: &[ShardCell], shards: &[PathBuf], keys: &[(u64, String)]) -> Result<()> {
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].line.cell == pair[1].line.cell) {
        let (a, b) = (shards[pair[0].shard].display(), shards[pair[1].shard].display());
        bail_usage!("{a} and {b} both hold cell {}", pair[0].line.cell);
    }
    let has = |cell: &u64| parts.binary_search_by_key(cell, |part| part.line.cell).is_ok();
    let missing: Vec<u64> = keys.iter().map(|(cell, _)| *cell).filter(|cell| !has(cell)).collect();
    if let Some(first) = missing.first() {
        bail_usage!(
            "{} of {} cells are missing, the first is {first}; finish these shards, or name all of them",
            missing.len(),
            keys.len()
        );
    }
    for (part, (_, key)) in parts.iter().zip(keys) {
        check_key(&shards[part.shard], &part.line, key)?;
    }
    Ok(())
}

fn header_len(path: &Path) -> Result<u64> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut header = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut header).with_context(cannot)?;
    ensure!(header.ends_with(b"\n"), "{} is empty", path.display());
    Ok(header.len() as u64)
}

/// Reads a range of bytes of a file. `path` is for errors.
fn read_part(file: &mut File, part: &Range<u64>, path: impl Fn() -> PathBuf) -> Result<Vec<u8>> {
    ensure!(
        part.end >= part.start,
        "{}: damaged, a cell ends before it begins in {}; begin a new run",
        path().with_file_name(CELLS).display(),
        path().display()
    );
    let mut bytes = vec![0; (part.end - part.start) as usize];
    let short = || format!("{}: shorter than {CELLS} beside it says; begin a new run", path().display());
    file.seek(SeekFrom::Start(part.start)).with_context(short)?;
    file.read_exact(&mut bytes).with_context(short)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "0,aa,bb,3,120,0,cc\n1,ab,bc,2,200,40,cd\n";

    /// Makes a folder with this journal, and results and pooled files of 200 and 40 bytes.
    fn folder(cells: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CELLS), cells).unwrap();
        fs::write(folder.path().join(RESULTS), vec![b'x'; 200]).unwrap();
        fs::write(folder.path().join(POOLED), vec![b'x'; 40]).unwrap();
        folder
    }

    fn journal(text: &str) -> Result<(Vec<JournalLine>, u64)> {
        read_journal(folder(text.as_bytes()).path())
    }

    #[test]
    fn a_half_written_line_does_not_count() {
        let whole = format!("{}\n{LINE}", HEADER.join(","));
        let (finished, end) = journal(&whole).unwrap();
        assert_eq!((finished.len(), end), (2, whole.len() as u64));
        let (finished, end) = journal(&whole[..whole.len() - 1]).unwrap();
        assert_eq!((finished.len(), end), (1, whole.len() as u64 - 20));
    }

    #[test]
    fn lines_of_cells_beyond_the_end_of_the_results_do_not_count() {
        let whole = format!("{}\n{}", HEADER.join(","), LINE.replace("200", "201"));
        assert_eq!(journal(&whole).unwrap().0.len(), 1);
    }

    #[test]
    fn a_damaged_folder_is_named_with_what_to_do() {
        let refusal = |cells: &str| {
            let folder = folder(format!("{}\n{cells}", HEADER.join(",")).as_bytes());
            fs::write(folder.path().join(RESULTS), format!("header\n{}", "x".repeat(193))).unwrap();
            let error = format!("{:#}", cells_on_disk(folder.path()).unwrap_err());
            assert!(
                error.contains(&folder.path().display().to_string()) && error.contains("begin a new run"),
                "{error}"
            );
            error
        };
        let ends_before = refusal("0,aa,bb,3,1,0,cc\n");
        assert!(ends_before.contains("cells.csv: damaged, a cell ends before it begins in "), "{ends_before}");
        assert!(refusal(LINE).contains("is not what was written"));
        let folder = folder(b"");
        let mut file = File::open(folder.path().join(RESULTS)).unwrap();
        let short = read_part(&mut file, &(0..201), || "run/results.csv".into()).unwrap_err().to_string();
        assert_eq!(short, "run/results.csv: shorter than cells.csv beside it says; begin a new run");
    }

    proptest! {
        #[test]
        fn no_journal_makes_a_resumed_run_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..60usize) {
            let mut damaged = format!("{}\n{LINE}", HEADER.join(",")).into_bytes();
            damaged.splice(at..at, bytes);
            let folder = folder(&damaged);
            let _ = Store::resume(folder.path(), &[(0, "aa".into()), (1, "ab".into())])
                .and_then(|store| store.replay(&mut [], &mut |_| {}));
        }
    }
}
