//! Bytes of a file of weights, on disk or built into the binary. Numbers are expanded to `f32` where they are asked for.
//!
//! Files are read rather than mapped into memory: shortening a mapped file kills the process (SIGBUS), whereas reading
//! it is an error that names it.

use super::number_type::NumberType;
use crate::base::files;
use crate::base::hash::{sha256, sha256_file};
use crate::kernels::in_chunks;
use anyhow::{bail, ensure, Context, Result};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

/// Bytes that one task reads and expands. They and their numbers stay in the second-level cache.
const TASK_BYTES: usize = 1 << 15;

/// Bits of the exponent of a number that is infinite or NaN.
const INFINITE: u32 = 0x7f80_0000;

/// Bytes of one file.
pub(super) struct FileBytes {
    /// Path of the file, or a description of built-in bytes.
    pub(super) origin: String,
    /// Size of the file, in bytes.
    pub(super) len: u64,
    source: Source,
}

enum Source {
    OnDisk(PathBuf, File),
    BuiltIn(&'static [u8]),
}

impl FileBytes {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        let file = files::open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot read {origin}"))?;
        ensure!(metadata.is_file(), "cannot read {origin}: not a regular file");
        Ok(Self { origin, len: metadata.len(), source: Source::OnDisk(path.to_owned(), file) })
    }

    /// Wraps bytes of the binary; `origin` names them in errors.
    pub(super) fn built_in(origin: &str, bytes: &'static [u8]) -> Self {
        Self { origin: origin.to_owned(), len: bytes.len() as u64, source: Source::BuiltIn(bytes) }
    }

    /// The open file.
    ///
    /// # Errors
    /// If the bytes are built in.
    pub(super) fn file(&self) -> Result<&File> {
        match &self.source {
            Source::OnDisk(_, file) => Ok(file),
            Source::BuiltIn(_) => bail!("{} is not a file", self.origin),
        }
    }

    /// SHA-256, in hexadecimal.
    pub(super) fn sha256(&self) -> Result<String> {
        match &self.source {
            Source::OnDisk(path, _) => sha256_file(path).with_context(|| format!("cannot read {}", self.origin)),
            Source::BuiltIn(bytes) => Ok(sha256(bytes)),
        }
    }

    /// Expands `len` numbers from byte `at` on.
    ///
    /// # Errors
    /// If the file cannot be read, or a number is NaN or infinite.
    pub(super) fn numbers(&self, at: u64, number: NumberType, len: usize) -> Result<Vec<f32>> {
        let (failed, broken) = (OnceLock::new(), AtomicUsize::new(0));
        let of_task = (TASK_BYTES / number.block_bytes).max(1) * number.block_len;
        let numbers = in_chunks(len, of_task, |task, numbers: &mut [f32]| {
            match self.expand(at, number, task * of_task, numbers) {
                Ok(count) => drop(broken.fetch_add(count, Ordering::Relaxed)),
                Err(error) => drop(failed.set(error)),
            }
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let broken = broken.into_inner();
        ensure!(broken == 0, "holds {broken} numbers that are NaN or infinite");
        Ok(numbers)
    }

    /// Expands the numbers from index `start` on of those that begin at byte `at`, and counts those that are not finite.
    fn expand(&self, at: u64, number: NumberType, start: usize, numbers: &mut [f32]) -> Result<usize> {
        let bytes = |numbers: usize| (numbers / number.block_len * number.block_bytes) as u64;
        let blocks = self.bytes(at + bytes(start), bytes(numbers.len()) as usize)?;
        number.expand(&blocks, numbers)?;
        Ok(numbers.iter().map(|x| u32::from(x.to_bits() & INFINITE == INFINITE)).sum::<u32>() as usize)
    }

    /// `len` bytes from `at` on.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let cannot = || format!("{} cannot be read; it may have changed since it was opened", self.origin);
        match &self.source {
            Source::BuiltIn(bytes) => {
                let bytes = bytes.get(at as usize..).and_then(|bytes| bytes.get(..len));
                Ok(Cow::Borrowed(bytes.with_context(cannot)?))
            }
            Source::OnDisk(_, file) => {
                let mut bytes = vec![0; len];
                files::read_exact_at(file, at, &mut bytes).with_context(cannot)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_are_counted_over_all_tasks() {
        let mut numbers = vec![1.0_f32; 50_000];
        (numbers[3], numbers[49_999]) = (f32::NAN, f32::INFINITY);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (bytes, number) = (FileBytes::built_in("test", bytes.leak()), NumberType::of_id(0).unwrap());
        let error = bytes.numbers(0, number, 50_000).unwrap_err();
        assert_eq!(error.to_string(), "holds 2 numbers that are NaN or infinite");
    }
}
