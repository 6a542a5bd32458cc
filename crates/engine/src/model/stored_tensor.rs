//! Tensors as files hold them: a name, a shape, a number type, and where the bytes are, which the header of a safetensors or
//! GGUF file says. Numbers are expanded to `f32` where they are asked for.
//!
//! Files are read rather than mapped into memory: shortening a mapped file kills the process (SIGBUS), whereas reading
//! it is an error that names it.

use super::kinds;
use super::number_type::NumberType;
use crate::kernels::in_chunks;
use anyhow::{bail, ensure, Context, Result};
use base::files::{self, HEADER_MAX};
use base::hash::{sha256, sha256_file};
use safetensors::tensor::Metadata;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Size of the length of a safetensors header, in bytes.
const LENGTH_BYTES: u64 = 8;

/// Tensors of files by their names there.
pub(super) type StoredTensors = BTreeMap<String, StoredTensor>;

/// Shape, number type and place of a tensor in a file of weights.
#[derive(Clone)]
pub(super) struct StoredTensor {
    /// Slowest dimension first.
    pub(super) shape: Vec<usize>,
    pub(super) number: NumberType,
    /// Offset of the first block in the file, in bytes.
    pub(super) at: u64,
    pub(super) file: Arc<FileBytes>,
}

impl StoredTensor {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in the file, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.number.bytes_of(self.len()) as u64
    }

    /// Returns `true` if it has this shape. GGUF does not tell a matrix of one row from a vector.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        self.shape.iter().skip_while(|&&n| n == 1).eq(shape.iter().skip_while(|&&n| n == 1))
    }

    /// Its values as `f32`. NaN, infinities and unsupported types are errors.
    pub(super) fn values(&self) -> Result<Vec<f32>> {
        self.file.numbers(self.at, self.number, self.len())
    }

    /// Values of consecutive ones of the `entries` of the first dimension, as `f32`. Files may put dimensions of 1 before it.
    pub(super) fn rows(&self, entries: usize, rows: Range<usize>) -> Result<Vec<f32>> {
        ensure!(rows.end <= entries, "has {entries} entries; entry {} does not exist", rows.end - 1);
        let each = self.len() / entries;
        let number = self.number;
        ensure!(each.is_multiple_of(number.block_len), "cuts a block");
        self.file.numbers(self.at + number.bytes_of(rows.start * each) as u64, number, rows.len() * each)
    }
}

/// The tensors of a safetensors file, from its header.
pub(super) fn safetensors(file: &Arc<FileBytes>) -> Result<StoredTensors> {
    ensure!(file.len >= LENGTH_BYTES, not_whole(file));
    let header_len = file.bytes(0, LENGTH_BYTES as usize)?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    ensure!(header_len <= HEADER_MAX.min(file.len - LENGTH_BYTES), not_whole(file));
    let bytes = file.bytes(LENGTH_BYTES, header_len as usize)?;
    let names: Names = serde_json::from_slice(&bytes).with_context(|| not_whole(file))?;
    if let Some(name) = names.twice {
        bail!("{}: tensor {name} is there twice", file.origin);
    }
    let header: Metadata = serde_json::from_slice(&bytes).with_context(|| not_whole(file))?;
    let begin = LENGTH_BYTES + header_len;
    ensure!(begin.checked_add(header.data_len() as u64) == Some(file.len), not_whole(file));
    let mut tensors = StoredTensors::new();
    for (name, info) in header.tensors() {
        let shape = info.shape.clone();
        let number = NumberType::of_dtype(info.dtype);
        let at = begin + info.data_offsets.0 as u64;
        tensors.insert(name, StoredTensor { shape, number, at, file: file.clone() });
    }
    Ok(tensors)
}

/// The names of a header, which its type would merge.
struct Names {
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self { twice: None })
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
            if !names.insert(name.clone()) {
                self.twice = Some(name);
            }
        }
        Ok(self)
    }
}

fn not_whole(file: &FileBytes) -> String {
    let other = match &file.source {
        Source::OnDisk(path, _) => kinds::other_file(path),
        Source::BuiltIn(_) => None,
    };
    match other {
        Some(what) => format!("{} is {what}", file.origin),
        None => format!("{}: not a complete safetensors file ({} bytes)", file.origin, file.len),
    }
}

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
        ensure!(metadata.is_file(), "cannot read {origin}: it is a folder");
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
    fn numbers(&self, at: u64, number: NumberType, len: usize) -> Result<Vec<f32>> {
        let failed = OnceLock::new();
        let broken = AtomicUsize::new(0);
        let task_len = (TASK_BYTES / number.block_bytes).max(1) * number.block_len;
        let numbers = in_chunks(len, task_len, |task, numbers: &mut [f32]| {
            match self.expand(at, number, task * task_len, numbers) {
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
        let before = number.bytes_of(start) as u64;
        let blocks = self.bytes(at + before, number.bytes_of(numbers.len()))?;
        number.expand(&blocks, numbers)?;
        Ok(numbers.iter().map(|x| u32::from(x.to_bits() & INFINITE == INFINITE)).sum::<u32>() as usize)
    }

    /// `len` bytes from `at` on.
    fn bytes(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let bytes = match &self.source {
            Source::BuiltIn(bytes) => {
                let bytes = bytes.get(at as usize..).and_then(|bytes| bytes.get(..len));
                bytes.map(Cow::Borrowed).context("it is shorter")
            }
            Source::OnDisk(_, file) => {
                let mut bytes = vec![0; len];
                files::read_exact_at(file, at, &mut bytes).map(|()| Cow::Owned(bytes)).map_err(Into::into)
            }
        };
        bytes.with_context(|| format!("{} cannot be read; it may have changed since it was opened", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};

    #[test]
    fn numbers_that_are_not_finite_are_counted_over_all_tasks() {
        let mut numbers = vec![1.0_f32; 50_000];
        numbers[3] = f32::NAN;
        numbers[49_999] = f32::INFINITY;
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let bytes = FileBytes::built_in("test", bytes.leak());
        let number = NumberType::of_id(0).unwrap();
        let error = bytes.numbers(0, number, 50_000).unwrap_err();
        assert_eq!(error.to_string(), "holds 2 numbers that are NaN or infinite");
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let tensor = Tensor::zeros((64, 64), DType::F32, &Device::Cpu).unwrap();
        crate::model::Weights::new(vec![("w".into(), tensor)], "test").write(&path, DType::F32, &[]).unwrap();
        let open = || safetensors(&Arc::new(FileBytes::open(&path).unwrap()));
        let tensors = open().unwrap();
        assert_eq!(tensors["w"].values().unwrap(), vec![0.0; 64 * 64]);
        File::options().write(true).open(&path).unwrap().set_len(tensors["w"].file.len - 5000).unwrap();
        let error = format!("{:#}", tensors["w"].values().unwrap_err());
        assert!(error.contains("model.safetensors cannot be read"), "{error}");
        assert!(open().is_err_and(|error| error.to_string().contains("not a complete safetensors file")));
    }
}
