//! Bytes of a file of weights: on disk, built into the binary, or read into memory. Numbers are expanded to `f32` where
//! they are asked for, and are the same to the last bit from each of these places.
//!
//! Files are read rather than mapped into memory: shortening a mapped file kills the process (SIGBUS), whereas reading
//! it is an error that names it.

use super::number_type::NumberType;
use crate::files;
use crate::hash::{sha256, sha256_file};
use crate::ops::in_chunks;
use anyhow::{ensure, Context, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that one task reads and expands. They and their numbers stay in the second-level cache.
const TASK_BYTES: usize = 1 << 15;

/// Bytes that are read ahead at once.
const AHEAD_BYTES: usize = 1 << 20;

/// Bits of the exponent of a number that is infinite or NaN.
const INFINITE: u32 = 0x7f80_0000;

/// Bytes between two tensors, at most, that are held with them.
const GAP_BYTES: u64 = 256;

/// Bytes of one file.
pub(super) struct FileBytes {
    source: Source,
    /// Parts of the file in memory, by their offset in bytes. They do not overlap.
    held: BTreeMap<u64, Vec<u8>>,
}

enum Source {
    OnDisk(PathBuf, Arc<File>),
    /// Description and bytes.
    BuiltIn(String, &'static [u8]),
}

impl FileBytes {
    /// Wraps an open file.
    pub(super) fn on_disk(path: &Path, file: Arc<File>) -> Self {
        Self { source: Source::OnDisk(path.to_owned(), file), held: BTreeMap::new() }
    }

    /// Wraps bytes of the binary; `origin` names them in errors.
    pub(super) fn built_in(origin: &str, bytes: &'static [u8]) -> Self {
        Self { source: Source::BuiltIn(origin.to_owned(), bytes), held: BTreeMap::new() }
    }

    /// Path of the file, or a description of built-in bytes.
    pub(super) fn origin(&self) -> Cow<'_, str> {
        match &self.source {
            Source::OnDisk(path, _) => path.display().to_string().into(),
            Source::BuiltIn(origin, _) => origin.into(),
        }
    }

    /// SHA-256, in hexadecimal.
    pub(super) fn sha256(&self) -> Result<String> {
        match &self.source {
            Source::OnDisk(path, _) => sha256_file(path).with_context(|| format!("cannot read {}", path.display())),
            Source::BuiltIn(_, bytes) => Ok(sha256(bytes)),
        }
    }

    /// Reads these ranges into memory. Built-in bytes are there already.
    pub(super) fn hold(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        let Source::OnDisk(_, file) = &self.source else { return Ok(()) };
        for range in joined(ranges) {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            files::read_exact_at(file, range.start, &mut bytes).with_context(|| self.cannot())?;
            self.held.insert(range.start, bytes);
        }
        Ok(())
    }

    /// Makes the system read this range, so that it is in its cache of files later.
    pub(super) fn read_ahead(&self, range: Range<u64>) -> Result<()> {
        let Source::OnDisk(_, file) = &self.source else { return Ok(()) };
        let mut piece = vec![0; AHEAD_BYTES.min((range.end - range.start) as usize)];
        for at in range.clone().step_by(AHEAD_BYTES) {
            let len = piece.len().min((range.end - at) as usize);
            files::read_exact_at(file, at, &mut piece[..len]).with_context(|| self.cannot())?;
        }
        Ok(())
    }

    /// Memory that [`FileBytes::hold`] takes for these ranges, in bytes.
    pub(super) fn held_bytes(&self, ranges: Vec<Range<u64>>) -> u64 {
        match self.source {
            Source::OnDisk(..) => joined(ranges).iter().map(|range| range.end - range.start).sum(),
            Source::BuiltIn(..) => 0,
        }
    }

    /// Expands `len` numbers from byte `at` on.
    ///
    /// # Errors
    /// If the file cannot be read, or a number is NaN or infinite.
    pub(super) fn numbers(&self, at: u64, number: NumberType, len: usize) -> Result<Vec<f32>> {
        let (failed, broken) = (OnceLock::new(), AtomicUsize::new(0));
        let of_task = task_len(number);
        let numbers = in_chunks(len, of_task, |task, numbers: &mut [f32]| {
            match self.expand(at, number, task * of_task, numbers) {
                Ok(count) => drop(broken.fetch_add(count, Ordering::Relaxed)),
                Err(error) => drop(failed.set(error)),
            }
        });
        match failed.into_inner() {
            Some(error) => Err(error),
            None => check_finite(broken.into_inner()).map(|()| numbers),
        }
    }

    /// Checks that `len` numbers from byte `at` on can be read and are finite, without memory for all of them.
    ///
    /// # Errors
    /// As [`FileBytes::numbers`].
    pub(super) fn check(&self, at: u64, number: NumberType, len: usize) -> Result<()> {
        let of_task = task_len(number);
        let starts: Vec<usize> = (0..len).step_by(of_task).collect();
        let of_start = |&start: &usize| self.expand(at, number, start, &mut vec![0.0; of_task.min(len - start)]);
        check_finite(starts.par_iter().map(of_start).try_reduce(|| 0, |a, b| Ok(a + b))?)
    }

    /// Expands the numbers from index `start` on of those that begin at byte `at`, and counts those that are not finite.
    fn expand(&self, at: u64, number: NumberType, start: usize, numbers: &mut [f32]) -> Result<usize> {
        let bytes = |numbers: usize| (numbers / number.block_len * number.block_bytes) as u64;
        let blocks = self.bytes(at + bytes(start), bytes(numbers.len()) as usize)?;
        number.expand(&blocks, numbers)?;
        Ok(numbers.iter().map(|x| u32::from(x.to_bits() & INFINITE == INFINITE)).sum::<u32>() as usize)
    }

    /// `len` bytes from `at` on.
    fn bytes(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let part = |bytes, start: u64| <[u8]>::get(bytes, (at - start) as usize..)?.get(..len);
        if let Some(held) = self.held.range(..=at).next_back().and_then(|(start, bytes)| part(bytes, *start)) {
            return Ok(Cow::Borrowed(held));
        }
        match &self.source {
            Source::BuiltIn(_, bytes) => Ok(Cow::Borrowed(part(bytes, 0).with_context(|| self.cannot())?)),
            Source::OnDisk(_, file) => {
                let mut bytes = vec![0; len];
                files::read_exact_at(file, at, &mut bytes).with_context(|| self.cannot())?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    fn cannot(&self) -> String {
        format!("{} cannot be read; it may have changed since it was opened", self.origin())
    }
}

/// Numbers that one task expands.
fn task_len(number: NumberType) -> usize {
    (TASK_BYTES / number.block_bytes).max(1) * number.block_len
}

fn check_finite(broken: usize) -> Result<()> {
    ensure!(broken == 0, "holds {broken} numbers that are NaN or infinite");
    Ok(())
}

/// Sorts ranges and joins those that overlap or have less than [`GAP_BYTES`] between them.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut().filter(|last| range.start < last.end + GAP_BYTES) {
            Some(last) => last.end = last.end.max(range.end),
            None => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_give_the_numbers_of_the_file_and_need_it_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let want: Vec<f32> = (0..40_000).map(|i| i as f32 / 7.0).collect();
        std::fs::write(&path, want.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        let number = NumberType::of_id(0).unwrap();
        let mut bytes = FileBytes::on_disk(&path, Arc::new(files::open(&path).unwrap()));
        assert_eq!(bytes.numbers(400, number, 30_000).unwrap(), want[100..30_100]);
        let ranges = vec![80_000..120_400, 0..400, 400..80_000];
        assert_eq!(bytes.held_bytes(ranges.clone()), 120_400);
        bytes.hold(ranges).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert_eq!(bytes.numbers(400, number, 30_000).unwrap(), want[100..30_100]);
        assert!(bytes.check(0, number, 30_100).is_ok());
        let error = format!("{:#}", bytes.numbers(0, number, 40_000).unwrap_err());
        assert!(error.contains("may have changed since it was opened"), "{error}");
    }

    #[test]
    fn numbers_that_are_not_finite_are_counted_over_all_tasks() {
        let mut numbers = vec![1.0_f32; 50_000];
        (numbers[3], numbers[49_999]) = (f32::NAN, f32::INFINITY);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (bytes, number) = (FileBytes::built_in("test", bytes.leak()), NumberType::of_id(0).unwrap());
        for error in [bytes.numbers(0, number, 50_000).map(drop), bytes.check(0, number, 50_000)] {
            assert_eq!(error.unwrap_err().to_string(), "holds 2 numbers that are NaN or infinite");
        }
    }
}
