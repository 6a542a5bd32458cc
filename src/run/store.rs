//! A run on disk: its records, and a journal of finished prompts from which the run can be resumed.
//!
//! For each prompt, the records are appended to `results.csv`, and then one line to the journal `cells.csv`: its key, the
//! length of the records, what its measures pool, and the hash of it all. Lines are written after the records are synced, in
//! groups of prompts, so that syncing takes less than 1 % of the time. Resuming reads the prompts while line and records
//! agree, and cuts off the rest.

mod journal;

use super::begun::Begun;
use super::FinishedPrompt;
use crate::measures::{Measure, PassKey};
use crate::results::folder::{RunFolder, CELLS, EXPERIMENT, RESULTS};
use crate::results::record::{self, Record};
use anyhow::{ensure, Context, Result};
use base::bail_usage;
use base::files;
use base::hash::hex;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use journal::{JournalLine, StoredPrompts, HEADER};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::PlannedPrompt;

/// The time between two syncs, as a multiple of the duration of the last one.
const SYNC_INTERVAL: u32 = 100;

/// The open files of a run.
pub(super) struct Store {
    folder: PathBuf,
    results: File,
    journal: Arc<File>,
    /// Length of the records of the finished prompts, in bytes.
    results_end: u64,
    /// Number of records.
    rows: u64,
    /// Number of finished prompts.
    finished: usize,
    /// Over the SHA-256 of the token ids of each finished prompt, in order.
    prompts: Sha256,
    /// Lines of finished prompts that are not in the journal yet.
    pending: Vec<u8>,
    /// Time of the last sync, and its duration.
    synced: (Instant, Duration),
    /// Copy of the damaged journal, which has a copy of the records beside it.
    pub put_aside: Option<PathBuf>,
}

impl Store {
    /// Creates the files of a new run in an empty folder.
    pub(super) fn create(folder: &mut RunFolder, experiment: &str, begun: &Begun) -> Result<Self> {
        let path = folder.join(EXPERIMENT);
        // A second run in the same folder must not replace the experiment of the first.
        files::create(&path, experiment.as_bytes()).with_context(|| format!("cannot create {}", path.display()))?;
        files::sync(&path)?;
        begun.write(folder.path())?;
        folder.save_command()?;
        folder.create_journal()?;
        let store = Self::open(folder, [0, 0])?;
        files::sync_folder_of(&path);
        Ok(store)
    }

    /// Opens the files of a run, and cuts off what follows these lengths of records and journal.
    fn open(folder: &mut RunFolder, [results_end, end]: [u64; 2]) -> Result<Self> {
        let path = folder.path().to_owned();
        let journal = folder.journal()?;
        let results = if files::is_there(&path.join(RESULTS)) {
            files::open_to_change(&path.join(RESULTS))?
        } else {
            File::create_new(path.join(RESULTS)).with_context(|| cannot_write(&path, RESULTS))?
        };
        cut(&results, results_end, &record::header()).with_context(|| cannot_write(&path, RESULTS))?;
        cut(&journal, end, HEADER).with_context(|| cannot_write(&path, CELLS))?;
        Ok(Self {
            folder: path,
            results,
            journal,
            results_end: results_end.max(record::header().len() as u64),
            rows: 0,
            finished: 0,
            prompts: Sha256::new(),
            pending: Vec::new(),
            synced: (Instant::now(), Duration::ZERO),
            put_aside: None,
        })
    }

    /// Resumes the run in a folder: cuts off interrupted and damaged prompts, the latter after the files are copied. `keys`
    /// are the number and key of every prompt, in order.
    ///
    /// # Errors
    /// A usage error if the finished prompts are not the first of `keys`; an error if a file cannot be read or written, or
    /// is being written by another process.
    pub(super) fn resume(folder: &mut RunFolder, mut keys: impl Iterator<Item = (u64, String)>) -> Result<Self> {
        // The lock comes first: another process may be writing the files that are read next.
        folder.journal()?;
        let mut stored = StoredPrompts::open(folder.path())?;
        let mut finished = 0;
        let mut rows = 0;
        let mut prompts = Sha256::new();
        for JournalLine { index, key, prompts_sha256, rows: of_prompt, .. } in stored.by_ref().map(|prompt| prompt.line)
        {
            match keys.next() {
                Some((next, expected)) if next == index => check_key(folder.path(), index, &key, &expected)?,
                _ => bail_usage!(
                    "{}: prompt {index} is not the next one of this run; give the --shard that the run was started with",
                    folder.path().display()
                ),
            }
            prompts.update(prompts_sha256);
            finished += 1;
            rows = of_prompt.saturating_add(rows); // of a file that anybody may have written
        }
        let put_aside = if stored.are_damaged() { Some(put_aside(folder.path())?) } else { None };
        let ends = if finished == 0 { [0, 0] } else { [stored.results_end, stored.journal_end] };
        Ok(Self { finished, rows, prompts, put_aside, ..Self::open(folder, ends)? })
    }

    /// Merges shards into a new folder, which then is an unfinished run with all prompts.
    ///
    /// # Errors
    /// If a shard has changed, or a file cannot be read or written.
    pub(super) fn merge(
        folder: &mut RunFolder,
        experiment: &str,
        begun: &Begun,
        Shards { folders: shards, holders }: Shards<'_>,
    ) -> Result<Self> {
        let mut store = Self::create(folder, experiment, begun)?;
        let mut stored = shards.iter().map(|shard| StoredPrompts::open(shard)).collect::<Result<Vec<_>>>()?;
        for shard in holders {
            let prompt = stored[shard]
                .next()
                .with_context(|| format!("{} has changed while it was merged", shards[shard].display()))?;
            store.write(prompt.line, &prompt.results)?;
        }
        store.commit()?;
        Ok(store)
    }

    /// Passes the records of the finished prompts to `see`, and their pooled data to the measures.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn replay(
        &self,
        measures: &mut [&mut dyn Measure],
        has_pass: impl Fn(usize, PassKey) -> bool,
        see: &mut dyn FnMut(&Record),
    ) -> Result<()> {
        if self.finished == 0 {
            return Ok(());
        }
        record::read_each(&self.folder.join(RESULTS), see)?;
        for prompt in StoredPrompts::open(&self.folder)?.filter(|prompt| !prompt.line.pooled.is_empty()) {
            let damaged = || format!("{} cannot be read", self.folder.join(CELLS).display());
            let pooled: Pooled = postcard::from_bytes(&STANDARD.decode(prompt.line.pooled).with_context(damaged)?)
                .with_context(damaged)?;
            for (measure, place, bytes) in pooled {
                ensure!(has_pass(measure, place), "{}: a pass that the run does not have", damaged());
                let measure = measures.get_mut(measure).with_context(damaged)?;
                let kept = measure.decode(&bytes).with_context(damaged)?;
                measure.absorb(place, kept);
            }
        }
        Ok(())
    }

    /// Appends a finished prompt, which is in the journal at the latest after the next [`Store::commit`].
    pub(super) fn add(&mut self, prompt: &PlannedPrompt, key: String, finding: &FinishedPrompt<'_>) -> Result<()> {
        let pooled = match finding.pooled.as_slice() {
            [] => String::new(),
            pooled => STANDARD.encode(postcard::to_stdvec(pooled).context("what was pooled cannot be written")?),
        };
        let prompts_sha256 = finding.prompts_sha256.clone();
        let rows = finding.records.len() as u64;
        let line = JournalLine { index: prompt.index, key, prompts_sha256, rows, results_end: 0, pooled };
        self.write(line, &record::to_bytes(finding.records)?)
    }

    /// Writes the records of a prompt and prepares its line, and commits if enough time has passed.
    fn write(&mut self, mut line: JournalLine, results: &[u8]) -> Result<()> {
        self.results.write_all(results).with_context(|| cannot_write(&self.folder, RESULTS))?;
        self.results_end += results.len() as u64;
        self.rows += line.rows;
        line.results_end = self.results_end;
        self.pending.extend(line.to_bytes(results)?);
        self.finished += 1;
        self.prompts.update(line.prompts_sha256);
        let (when, took) = self.synced;
        if when.elapsed() >= SYNC_INTERVAL * took {
            self.commit()?;
        }
        Ok(())
    }

    /// Syncs the records and then writes the new prompts to the journal.
    pub(super) fn commit(&mut self) -> Result<()> {
        let begun = Instant::now();
        if self.pending.is_empty() {
            return Ok(());
        }
        self.results.sync_data().with_context(|| cannot_write(&self.folder, RESULTS))?;
        let written = (&*self.journal).write_all(&self.pending).and_then(|()| self.journal.sync_data());
        written.with_context(|| cannot_write(&self.folder, CELLS))?;
        self.pending.clear();
        self.synced = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Appends the records that were pooled over all prompts.
    pub(super) fn conclude(&mut self, records: &[Record]) -> Result<()> {
        self.rows += records.len() as u64;
        self.results.write_all(&record::to_bytes(records)?).with_context(|| cannot_write(&self.folder, RESULTS))
    }

    /// The number of finished prompts.
    pub(super) fn finished(&self) -> usize {
        self.finished
    }

    /// The number of records written.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The SHA-256 over the hashes of the prompts, in order.
    pub(super) fn prompts_sha256(&self) -> String {
        hex(&self.prompts.clone().finalize())
    }
}

fn cannot_write(folder: &Path, file: &str) -> String {
    format!("cannot write {}", folder.join(file).display())
}

/// Truncates a file to its first `end` bytes; an empty one gets its header.
fn cut(mut file: &File, end: u64, header: &str) -> std::io::Result<()> {
    file.set_len(end)?;
    file.seek(SeekFrom::End(0))?;
    if end == 0 {
        file.write_all(header.as_bytes())?;
    }
    file.sync_all()
}

/// Copies the files of a run to `cells.csv.cut-1` and `results.csv.cut-1`, with the first number that is free, and returns the
/// path of the journal's copy.
fn put_aside(folder: &Path) -> Result<PathBuf> {
    let copy = |file: &str, n: u32| folder.join(format!("{file}.cut-{n}"));
    let mut free = (1..).filter(|&n| [CELLS, RESULTS].iter().all(|file| !files::is_there(&copy(file, n))));
    let n = free.next().context("every number is taken")?;
    for file in [CELLS, RESULTS].into_iter().filter(|file| folder.join(file).exists()) {
        let mut from = files::open(&folder.join(file))?;
        let copied = File::create_new(copy(file, n)).and_then(|mut to| std::io::copy(&mut from, &mut to));
        copied.with_context(|| format!("cannot write {}", copy(file, n).display()))?;
    }
    Ok(copy(CELLS, n))
}

/// Encoded data of one prompt: (index of the measure, model and condition, bytes).
pub(super) type Pooled = Vec<(usize, PassKey, Vec<u8>)>;

/// Checks that a finished prompt is the one that would be measured now.
fn check_key(folder: &Path, index: u64, key: &str, expected: &str) -> Result<()> {
    if key != expected {
        bail_usage!("{}: prompt {index} is not the one that this run would measure; begin a new run", folder.display());
    }
    Ok(())
}

/// The shards of an experiment.
pub(super) struct Shards<'a> {
    pub(super) folders: &'a [PathBuf],
    /// The number of the shard that holds each prompt, in the order of one run.
    holders: Vec<usize>,
}

/// Checks that shards make up one experiment. `keys` are the number and key of every prompt, in the order of one run. Adds the machines
/// that measured them to `begun`.
///
/// # Errors
/// A usage error if a shard is of another experiment, was measured with other models or texts, shards overlap, or prompts are missing;
/// an error if one is damaged.
pub(super) fn check_shards<'a>(
    shards: &'a [PathBuf],
    experiment: &str,
    begun: &mut Begun,
    keys: impl Iterator<Item = (u64, String)>,
) -> Result<Shards<'a>> {
    // What merges measures nothing.
    begun.machines.clear();
    let keys: Vec<(u64, String)> = keys.collect();
    let key_of: HashMap<u64, &str> = keys.iter().map(|(index, key)| (*index, key.as_str())).collect();
    let mut holder_of: HashMap<u64, usize> = HashMap::new();
    for (shard, folder) in shards.iter().enumerate() {
        check_experiment(folder, experiment)?;
        if let Some(of_shard) = Begun::read(folder)? {
            of_shard.check_same(begun, folder)?;
            begun.add_machines(&of_shard);
        }
        let mut stored = StoredPrompts::open(folder)?;
        for prompt in &mut stored {
            let JournalLine { index, key, .. } = prompt.line;
            check_key(folder, index, &key, key_of.get(&index).copied().unwrap_or_default())?;
            if let Some(other) = holder_of.insert(index, shard) {
                bail_usage!("{} and {} both hold prompt {index}", shards[other].display(), folder.display());
            }
        }
        ensure!(
            !stored.are_damaged(),
            "{}: what it holds of its last prompts is not what was written; `difftool run --resume` measures them again",
            folder.display()
        );
    }
    let missing: Vec<u64> =
        keys.iter().map(|(index, _)| *index).filter(|index| !holder_of.contains_key(index)).collect();
    if let Some(first) = missing.iter().min() {
        bail_usage!(
            "{} of {} prompts are missing, the first is {first}; finish these shards, or name all of them",
            missing.len(),
            keys.len()
        );
    }
    let holders = keys.iter().map(|(index, _)| holder_of[index]).collect();
    Ok(Shards { folders: shards, holders })
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
    use std::fs;

    /// The folder of a run with three prompts; the key of prompt i is `key i`.
    fn run() -> (tempfile::TempDir, Vec<(u64, String)>) {
        let home = tempfile::tempdir().unwrap();
        let mut store =
            Store::create(&mut RunFolder::create(Some(home.path()), "needle").unwrap(), "", &Begun::default()).unwrap();
        let keys: Vec<(u64, String)> = (0..3).map(|i| (i, format!("key {i}"))).collect();
        for ((index, key), results) in keys.iter().cloned().zip(["first\n", "second\n", "third\n"]) {
            let line = JournalLine { index, key, rows: 1, ..JournalLine::default() };
            store.write(line, results.as_bytes()).unwrap();
        }
        store.commit().unwrap();
        (home, keys)
    }

    /// The number of prompts that a resumed run does not measure again, and whether the files were put aside.
    fn resumed(home: &tempfile::TempDir, keys: &[(u64, String)]) -> Result<(usize, bool)> {
        let store = Store::resume(&mut RunFolder::reopen(home.path())?, keys.iter().cloned())?;
        Ok((store.finished(), store.put_aside.is_some()))
    }

    fn read(home: &tempfile::TempDir, file: &str) -> Vec<u8> {
        fs::read(home.path().join(file)).unwrap()
    }

    /// Changes a file of a folder.
    fn edit(home: &tempfile::TempDir, file: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = read(home, file);
        edit(&mut bytes);
        fs::write(home.path().join(file), bytes).unwrap();
    }

    #[test]
    fn what_follows_the_last_finished_prompt_is_cut_off() {
        let (home, keys) = run();
        let whole = [CELLS, RESULTS].map(|file| read(&home, file));
        edit(&home, RESULTS, |bytes| bytes.extend(b"half a pr"));
        assert_eq!(resumed(&home, &keys).unwrap(), (3, false));
        assert!([CELLS, RESULTS].map(|file| read(&home, file)) == whole);
    }

    #[test]
    fn prompts_from_the_first_damaged_one_on_are_cut_off_and_the_files_put_aside() {
        for file in [CELLS, RESULTS] {
            for back in 1..6 {
                let (home, keys) = run();
                edit(&home, file, |bytes| {
                    let at = bytes.len() - back;
                    bytes[at] ^= 1;
                });
                let before = read(&home, file);
                assert_eq!(resumed(&home, &keys).unwrap(), (2, true), "{file}");
                assert!(read(&home, &format!("{file}.cut-1")) == before, "{file}");
                assert!(read(&home, RESULTS).ends_with(b"\nfirst\nsecond\n"));
            }
        }
    }

    #[test]
    fn every_byte_of_a_line_is_hashed() {
        let (home, _) = run();
        let whole = read(&home, CELLS);
        for at in HEADER.len()..whole.len() {
            edit(&home, CELLS, |bytes| {
                bytes.clone_from(&whole);
                bytes[at] ^= 1;
            });
            let intact = StoredPrompts::open(home.path()).unwrap().count();
            assert_eq!(intact, whole[HEADER.len()..at].iter().filter(|&&byte| byte == b'\n').count(), "{at}");
        }
    }

    #[test]
    fn a_journal_with_absurd_integers_and_the_right_hashes_ends_before_them() {
        for absurd in [1 << 31, (1 << 32) - 1, 1 << 63, u64::MAX] {
            for place in 0..3 {
                let (home, keys) = run();
                let line = |index: u64, results_end| JournalLine {
                    index,
                    key: keys[index as usize].1.clone(),
                    rows: 1,
                    results_end,
                    ..JournalLine::default()
                };
                let header = record::header().len() as u64;
                let mut second = line(1, header + 13);
                match place {
                    0 => second.index = absurd,
                    1 => second.rows = absurd,
                    _ => second.results_end = absurd,
                }
                let lines = [line(0, header + 6).to_bytes(b"first\n").unwrap(), second.to_bytes(b"second\n").unwrap()];
                edit(&home, CELLS, |bytes| *bytes = [HEADER.as_bytes(), &lines.concat()].concat());
                let found = resumed(&home, &keys);
                match place {
                    0 => assert!(found.unwrap_err().to_string().contains("is not the next one")),
                    1 => assert_eq!(found.unwrap(), (2, false)),
                    _ => assert_eq!(found.unwrap(), (1, true)),
                }
            }
        }
    }

    #[test]
    fn a_journal_that_lost_every_prompt_leaves_a_copy_of_the_records() {
        for length in [0, 5, HEADER.len()] {
            let (home, keys) = run();
            edit(&home, CELLS, |bytes| bytes.truncate(length));
            let before = read(&home, RESULTS);
            assert_eq!(resumed(&home, &keys).unwrap(), (0, true), "{length}");
            assert_eq!(read(&home, "results.csv.cut-1"), before);
            assert_eq!(resumed(&home, &keys).unwrap(), (0, false), "{length}");
        }
    }

    #[test]
    fn the_lock_is_held_until_the_last_part_of_a_run_is_dropped() {
        let (home, keys) = run();
        let mut folder = RunFolder::reopen(home.path()).unwrap();
        drop(Store::resume(&mut folder, keys.iter().cloned()).unwrap());
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
