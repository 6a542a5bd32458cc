//! A safetensors file: its header, and the numbers of one tensor at a time.
//!
//! Files are read, not mapped into memory: a mapped file that somebody shortens kills the process (SIGBUS), one that is read
//! is an error that names it.

use crate::hash::{sha256, sha256_file};
use anyhow::{bail, ensure, Context, Result};
use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::Dtype;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// A longer header is no header; the largest models have some megabytes.
const HEADER_MAX: u64 = 100_000_000;

/// Bytes that are read and converted at once.
const CHUNK: usize = 1 << 20;

/// One file of weights, on disk or built in.
pub(super) struct Shard {
    /// Path of the file, or what stands for it.
    pub(super) origin: String,
    source: Source,
    header: Metadata,
    /// Where the numbers begin, in bytes.
    begin: u64,
    len_bytes: u64,
}

enum Source {
    File(PathBuf, File),
    BuiltIn(&'static [u8]),
}

impl Shard {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a whole safetensors file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(metadata.is_file(), "cannot read {}: it is no regular file", path.display());
        let mut begin = Vec::new();
        (&file).take(LENGTH_BYTES).read_to_end(&mut begin).with_context(cannot)?;
        (&file).take(header_len(&begin).min(HEADER_MAX)).read_to_end(&mut begin).with_context(cannot)?;
        let source = Source::File(path.to_owned(), file);
        Self::new(path.display().to_string(), source, &begin, metadata.len())
    }

    /// A file that is part of the binary; `origin` is what errors call it.
    ///
    /// # Errors
    /// If it is not a whole safetensors file.
    pub(super) fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::new(origin.to_owned(), Source::BuiltIn(bytes), bytes, bytes.len() as u64)
    }

    /// `begin` holds the header at least.
    fn new(origin: String, source: Source, begin: &[u8], len_bytes: u64) -> Result<Self> {
        let not_whole = || format!("{origin}: not a complete safetensors file ({len_bytes} bytes)");
        let end = LENGTH_BYTES + header_len(begin).min(HEADER_MAX);
        let header = begin.get(LENGTH_BYTES as usize..end as usize).with_context(not_whole)?;
        let header: Metadata = serde_json::from_slice(header).with_context(not_whole)?;
        ensure!(end + header.data_len() as u64 == len_bytes, not_whole());
        Ok(Self { origin, source, header, begin: end, len_bytes })
    }

    /// Size of the file, in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// SHA-256 of the file, in hexadecimal.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn sha256(&self) -> Result<String> {
        match &self.source {
            Source::File(path, _) => sha256_file(path).with_context(|| format!("cannot read {}", self.origin)),
            Source::BuiltIn(bytes) => Ok(sha256(bytes)),
        }
    }

    /// Every tensor by its name.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (String, Stored<'_>)> {
        self.header.tensors().into_iter().map(|(name, info)| (name, Stored { shard: self, info }))
    }
}

/// The header's length as the first bytes of a file say it; 0 if they are too few.
fn header_len(begin: &[u8]) -> u64 {
    begin.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A tensor in a file.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    shard: &'a Shard,
    info: &'a TensorInfo,
}

impl<'a> Stored<'a> {
    /// The file it is in.
    pub(super) fn origin(&self) -> &'a str {
        &self.shard.origin
    }

    pub(super) fn shape(&self) -> &'a [usize] {
        &self.info.shape
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.info.dtype
    }

    /// Whether its numbers are of a type that can be read.
    pub(super) fn is_readable(&self) -> bool {
        matches!(self.info.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
    }

    /// Its numbers as `f32`.
    ///
    /// # Errors
    /// If the file is shorter than it was, or numbers are of another type, NaN or infinite.
    pub(super) fn values(&self) -> Result<Vec<f32>> {
        let (from, to) = self.info.data_offsets;
        self.values_of(from..to)
    }

    /// The numbers of one entry of the first dimension, as `f32`.
    ///
    /// # Errors
    /// As [`Stored::values`].
    pub(super) fn slab(&self, index: usize) -> Result<Vec<f32>> {
        let (from, to) = self.info.data_offsets;
        let slabs = self.info.shape.first().copied().unwrap_or_default();
        ensure!(index < slabs, "has {slabs} entries, and no {index}");
        let bytes = (to - from) / slabs;
        self.values_of(from + index * bytes..from + (index + 1) * bytes)
    }

    /// The numbers within these bytes of the data.
    fn values_of(&self, bytes: Range<usize>) -> Result<Vec<f32>> {
        ensure!(self.is_readable(), "holds {:?}, which is not supported", self.info.dtype);
        let size = if self.info.dtype == Dtype::F32 { 4 } else { 2 };
        let mut values = Vec::with_capacity(bytes.len() / size);
        self.chunks(bytes, &mut |chunk| decode(chunk, self.info.dtype, &mut values))?;
        let broken = values.iter().filter(|x| !x.is_finite()).count();
        ensure!(broken == 0, "holds {broken} numbers that are NaN or infinite");
        Ok(values)
    }

    /// Hands on these bytes of the data, in order, so many at once that no number is cut.
    fn chunks(&self, bytes: Range<usize>, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Range { start: from, end: to } = bytes;
        let begin = self.shard.begin;
        let mut file = match &self.shard.source {
            Source::BuiltIn(all) => return see(&all[begin as usize + from..begin as usize + to]),
            Source::File(_, file) => file,
        };
        let cannot = || format!("{} cannot be read; has it been changed meanwhile?", self.shard.origin);
        file.seek(SeekFrom::Start(begin + from as u64)).with_context(cannot)?;
        let mut buffer = vec![0; CHUNK.min(to - from)];
        let mut left = to - from;
        while left > 0 {
            let chunk = &mut buffer[..CHUNK.min(left)];
            file.read_exact(chunk).with_context(cannot)?;
            left -= chunk.len();
            see(chunk)?;
        }
        Ok(())
    }
}

fn decode(bytes: &[u8], dtype: Dtype, values: &mut Vec<f32>) -> Result<()> {
    let pairs = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match dtype {
        Dtype::F32 => values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        Dtype::F16 => values.extend(pairs().map(|b| f16::from_le_bytes(b).to_f32())),
        Dtype::BF16 => values.extend(pairs().map(|b| bf16::from_le_bytes(b).to_f32())),
        other => bail!("holds {other:?}, which is not supported"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let tensor = Tensor::zeros((64, 64), DType::F32, &Device::Cpu).unwrap();
        crate::model::Weights::new(vec![("w".into(), tensor)], "test").write(&path, DType::F32, &[]).unwrap();
        let shard = Shard::open(&path).unwrap();
        assert_eq!(shard.tensors().next().unwrap().1.values().unwrap(), vec![0.0; 64 * 64]);
        File::options().write(true).open(&path).unwrap().set_len(shard.len_bytes() - 5000).unwrap();
        let error = format!("{:#}", shard.tensors().next().unwrap().1.values().unwrap_err());
        assert!(error.contains("model.safetensors cannot be read"), "{error}");
        assert!(Shard::open(&path).is_err_and(|error| error.to_string().contains("not a complete safetensors file")));
    }
}
