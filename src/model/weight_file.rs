//! A file of weights, safetensors or GGUF: its header, and the values of one tensor at a time.
//!
//! Files are read rather than mapped into memory: shortening a mapped file kills the process (SIGBUS), whereas reading
//! it is an error that names it.

use super::gguf::{Gguf, TensorPlace};
use crate::files::{self, HEADER_MAX};
use crate::hash::{sha256, sha256_file};
use anyhow::{bail, ensure, Context, Result};
use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::Dtype;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Size of the header's length field, in bytes.
const LENGTH_BYTES: u64 = 8;

/// Bytes read and converted at once.
const CHUNK: usize = 1 << 20;

/// One file of weights, on disk or built into the binary.
pub(super) struct WeightFile {
    /// Path of the file, or a description of built-in weights.
    pub(super) origin: String,
    source: FileFormat,
    len_bytes: u64,
}

enum FileFormat {
    Safetensors(Safetensors),
    Gguf(Box<Gguf>),
}

struct Safetensors {
    bytes: FileBytes,
    header: Metadata,
    /// Offset of the data, in bytes.
    begin: u64,
}

enum FileBytes {
    File(PathBuf, File),
    BuiltIn(&'static [u8]),
}

impl WeightFile {
    /// Opens a safetensors file and reads its header.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = files::open(path)?;
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(metadata.is_file(), "cannot read {}: not a regular file", path.display());
        let mut begin = Vec::new();
        (&file).take(LENGTH_BYTES).read_to_end(&mut begin).with_context(cannot)?;
        (&file).take(header_len(&begin).min(HEADER_MAX)).read_to_end(&mut begin).with_context(cannot)?;
        let bytes = FileBytes::File(path.to_owned(), file);
        Self::new(path.display().to_string(), bytes, &begin, metadata.len())
    }

    /// Wraps a file that is part of the binary; `origin` names it in errors.
    pub(super) fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::new(origin.to_owned(), FileBytes::BuiltIn(bytes), bytes, bytes.len() as u64)
    }

    /// Wraps a GGUF file.
    pub(super) fn gguf(file: Gguf) -> Self {
        let (origin, len_bytes) = (file.path().display().to_string(), file.len_bytes());
        Self { origin, source: FileFormat::Gguf(Box::new(file)), len_bytes }
    }

    /// Parses the header, which `begin` holds completely.
    fn new(origin: String, bytes: FileBytes, begin: &[u8], len_bytes: u64) -> Result<Self> {
        let not_whole = || format!("{origin}: not a complete safetensors file ({len_bytes} bytes)");
        let end = LENGTH_BYTES + header_len(begin).min(HEADER_MAX);
        let header = begin.get(LENGTH_BYTES as usize..end as usize).with_context(not_whole)?;
        let header: Metadata = serde_json::from_slice(header).with_context(not_whole)?;
        ensure!(end + header.data_len() as u64 == len_bytes, not_whole());
        let source = FileFormat::Safetensors(Safetensors { bytes, header, begin: end });
        Ok(Self { origin, source, len_bytes })
    }

    /// The GGUF file, if it is one.
    pub(super) fn as_gguf(&self) -> Option<&Gguf> {
        match &self.source {
            FileFormat::Gguf(file) => Some(file),
            FileFormat::Safetensors(_) => None,
        }
    }

    /// Size of the file, in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// SHA-256 of each of its files, in hexadecimal.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn hashes(&self) -> Result<Vec<String>> {
        let of = |path: &Path| sha256_file(path).with_context(|| format!("cannot read {}", path.display()));
        match &self.source {
            FileFormat::Safetensors(Safetensors { bytes: FileBytes::BuiltIn(bytes), .. }) => Ok(vec![sha256(bytes)]),
            FileFormat::Safetensors(Safetensors { bytes: FileBytes::File(path, _), .. }) => Ok(vec![of(path)?]),
            FileFormat::Gguf(model) => model.paths().map(of).collect(),
        }
    }

    /// All tensors with their names.
    pub(super) fn tensors(&self) -> Vec<(String, StoredTensor<'_>)> {
        let of = |location| StoredTensor { shard: self, location };
        match &self.source {
            FileFormat::Safetensors(file) => {
                let named = |(name, info)| (name, of(TensorLocation::Safetensors(file, info)));
                file.header.tensors().into_iter().map(named).collect()
            }
            FileFormat::Gguf(file) => {
                let named = |(name, info): (&String, _)| (name.clone(), of(TensorLocation::Gguf(file, info)));
                file.tensors().iter().map(named).collect()
            }
        }
    }
}

/// Length of the header according to the first bytes of a file, or 0 if there are too few.
fn header_len(begin: &[u8]) -> u64 {
    begin.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A tensor in a file of weights.
#[derive(Clone, Copy)]
pub(super) struct StoredTensor<'a> {
    shard: &'a WeightFile,
    location: TensorLocation<'a>,
}

#[derive(Clone, Copy)]
enum TensorLocation<'a> {
    Safetensors(&'a Safetensors, &'a TensorInfo),
    Gguf(&'a Gguf, &'a TensorPlace),
}

impl<'a> StoredTensor<'a> {
    /// The file it is in.
    pub(super) fn origin(&self) -> Cow<'a, str> {
        match self.location {
            TensorLocation::Safetensors(..) => Cow::Borrowed(&self.shard.origin),
            TensorLocation::Gguf(model, info) => Cow::Owned(model.path_of(info).display().to_string()),
        }
    }

    pub(super) fn shape(&self) -> &'a [usize] {
        match self.location {
            TensorLocation::Safetensors(_, info) => &info.shape,
            TensorLocation::Gguf(_, info) => &info.shape,
        }
    }

    /// Returns `true` if it has this shape. GGUF does not tell a matrix of one row from a vector.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        let without_ones = |shape: &[usize]| shape.iter().copied().skip_while(|&n| n == 1).collect::<Vec<_>>();
        let own = self.shape();
        let is_number = own.is_empty() && shape == [1];
        own == shape
            || is_number
            || (matches!(self.location, TensorLocation::Gguf(..)) && without_ones(own) == without_ones(shape))
    }

    /// The type of its numbers: `F32`.
    pub(super) fn dtype(&self) -> String {
        match self.location {
            TensorLocation::Safetensors(_, info) => format!("{:?}", info.dtype),
            TensorLocation::Gguf(_, info) => info.number_type().to_owned(),
        }
    }

    /// Returns whether its number type can be read.
    pub(super) fn is_readable(&self) -> bool {
        match self.location {
            TensorLocation::Safetensors(_, info) => matches!(info.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16),
            TensorLocation::Gguf(_, info) => info.is_readable(),
        }
    }

    /// The types that can be read in a file of this kind, in words.
    pub(super) fn readable_types(&self) -> &'static str {
        match self.location {
            TensorLocation::Safetensors(..) => "f32, f16 and bf16",
            TensorLocation::Gguf(..) => "F32, F16, BF16, Q4_0 to Q8_1, Q2_K to Q8_K and MXFP4",
        }
    }

    /// Its values as `f32`. NaN, infinities and unsupported types are errors.
    pub(super) fn values(&self) -> Result<Vec<f32>> {
        match self.location {
            TensorLocation::Safetensors(file, info) => {
                let (from, to) = info.data_offsets;
                finite(file.values(info, from..to, &self.shard.origin)?)
            }
            TensorLocation::Gguf(file, info) => finite(file.values(info, 0..info.len())?),
        }
    }

    /// Values of one entry of the first dimension, as `f32`.
    pub(super) fn slab(&self, index: usize) -> Result<Vec<f32>> {
        self.rows(index..index + 1)
    }

    /// Values of consecutive entries of the first dimension, as `f32`.
    pub(super) fn rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let all = self.shape().first().copied().unwrap_or_default();
        ensure!(rows.end <= all, "has {all} entries; entry {} does not exist", rows.end - 1);
        match self.location {
            TensorLocation::Safetensors(file, info) => {
                let (from, to) = info.data_offsets;
                let bytes = (to - from) / all;
                let range = from + rows.start * bytes..from + rows.end * bytes;
                finite(file.values(info, range, &self.shard.origin)?)
            }
            TensorLocation::Gguf(file, info) => {
                let each = info.len() / all;
                finite(file.values(info, rows.start * each..rows.end * each)?)
            }
        }
    }
}

fn finite(values: Vec<f32>) -> Result<Vec<f32>> {
    let broken = values.iter().filter(|x| !x.is_finite()).count();
    ensure!(broken == 0, "holds {broken} numbers that are NaN or infinite");
    Ok(values)
}

impl Safetensors {
    /// Values in this range of the data, in bytes.
    fn values(&self, info: &TensorInfo, bytes: Range<usize>, origin: &str) -> Result<Vec<f32>> {
        let size = match info.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            other => bail!("holds {other:?}, which is not supported"),
        };
        let mut values = Vec::with_capacity(bytes.len() / size);
        self.chunks(bytes, origin, |chunk| decode(chunk, info.dtype, &mut values))?;
        Ok(values)
    }

    /// Passes this range of the data to `receive`, in chunks that do not split numbers.
    fn chunks(&self, bytes: Range<usize>, origin: &str, mut receive: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Range { start: from, end: to } = bytes;
        let begin = self.begin;
        let file = match &self.bytes {
            FileBytes::BuiltIn(all) => return receive(&all[begin as usize + from..begin as usize + to]),
            FileBytes::File(_, file) => file,
        };
        let cannot = || format!("{origin} cannot be read; it may have changed since it was opened");
        let mut buffer = vec![0; CHUNK.min(to - from)];
        let mut at = from;
        while at < to {
            let chunk = &mut buffer[..CHUNK.min(to - at)];
            files::read_exact_at(file, begin + at as u64, chunk).with_context(cannot)?;
            at += chunk.len();
            receive(chunk)?;
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
        let shard = WeightFile::open(&path).unwrap();
        assert_eq!(shard.tensors()[0].1.values().unwrap(), vec![0.0; 64 * 64]);
        File::options().write(true).open(&path).unwrap().set_len(shard.len_bytes() - 5000).unwrap();
        let error = format!("{:#}", shard.tensors()[0].1.values().unwrap_err());
        assert!(error.contains("model.safetensors cannot be read"), "{error}");
        assert!(
            WeightFile::open(&path).is_err_and(|error| error.to_string().contains("not a complete safetensors file"))
        );
    }
}
