//! A file of weights, safetensors or GGUF: its header, and the values of one tensor at a time.

use super::file_bytes::FileBytes;
use super::gguf::{Gguf, TensorPlace};
use super::number_type::NumberType;
use crate::files::{self, HEADER_MAX};
use crate::hash::sha256_file;
use anyhow::{ensure, Context, Result};
use safetensors::tensor::{Metadata, TensorInfo};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Size of the header's length field, in bytes.
const LENGTH_BYTES: u64 = 8;

/// Ranges of bytes in files, by the origin of the file.
pub(super) type Extents = BTreeMap<String, Vec<Range<u64>>>;

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

impl WeightFile {
    /// Opens a safetensors file and reads its header.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = Arc::new(files::open(path)?);
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(metadata.is_file(), "cannot read {}: not a regular file", path.display());
        let mut begin = Vec::new();
        (&*file).take(LENGTH_BYTES).read_to_end(&mut begin).with_context(cannot)?;
        (&*file).take(header_len(&begin).min(HEADER_MAX)).read_to_end(&mut begin).with_context(cannot)?;
        let bytes = FileBytes::on_disk(path, file);
        Self::new(path.display().to_string(), bytes, &begin, metadata.len())
    }

    /// Wraps a file that is part of the binary; `origin` names it in errors.
    pub(super) fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::new(origin.to_owned(), FileBytes::built_in(origin, bytes), bytes, bytes.len() as u64)
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
            FileFormat::Safetensors(file) => Ok(vec![file.bytes.sha256()?]),
            FileFormat::Gguf(model) => model.paths().map(of).collect(),
        }
    }

    /// Reads these ranges into memory.
    pub(super) fn hold(&mut self, extents: &mut Extents) -> Result<()> {
        let mut hold = |bytes: &mut FileBytes| {
            let ranges = extents.remove(&*bytes.origin()).unwrap_or_default();
            bytes.hold(ranges)
        };
        match &mut self.source {
            FileFormat::Safetensors(file) => hold(&mut file.bytes),
            FileFormat::Gguf(model) => model.bytes_mut().try_for_each(hold),
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
            TensorLocation::Safetensors(_, info) => NumberType::of_dtype(info.dtype).is_some(),
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
        let (bytes, at, number) = self.location()?;
        bytes.numbers(at, number, self.len())
    }

    /// Checks its values as [`StoredTensor::values`] does, without memory for them.
    pub(super) fn check(&self) -> Result<()> {
        let (bytes, at, number) = self.location()?;
        bytes.check(at, number, self.len())
    }

    /// Values of one entry of the first dimension, as `f32`.
    pub(super) fn slab(&self, index: usize) -> Result<Vec<f32>> {
        self.rows(index..index + 1)
    }

    /// Values of consecutive entries of the first dimension, as `f32`.
    pub(super) fn rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let all = self.shape().first().copied().unwrap_or_default();
        ensure!(rows.end <= all, "has {all} entries; entry {} does not exist", rows.end - 1);
        let (bytes, at, number) = self.location()?;
        let each = self.len() / all;
        ensure!(each.is_multiple_of(number.block_len), "cuts a block");
        let row_bytes = each / number.block_len * number.block_bytes;
        bytes.numbers(at + (rows.start * row_bytes) as u64, number, rows.len() * each)
    }

    /// Bytes of the file, the offset of its own, and their number type.
    fn location(&self) -> Result<(&'a FileBytes, u64, NumberType)> {
        let not_supported = || format!("holds {}, which is not supported", self.dtype());
        match self.location {
            TensorLocation::Safetensors(file, info) => {
                let number = NumberType::of_dtype(info.dtype).with_context(not_supported)?;
                Ok((&file.bytes, file.begin + info.data_offsets.0 as u64, number))
            }
            TensorLocation::Gguf(model, info) => Ok((model.bytes_of(info), info.at, info.number)),
        }
    }

    /// Number of elements.
    fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Its bytes in the file, and the bytes of the file.
    pub(super) fn extent(&self) -> (&'a FileBytes, Range<u64>) {
        match self.location {
            TensorLocation::Safetensors(file, info) => {
                let (from, to) = info.data_offsets;
                (&file.bytes, file.begin + from as u64..file.begin + to as u64)
            }
            TensorLocation::Gguf(model, info) => (model.bytes_of(info), info.at..info.at + info.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};
    use std::fs::File;

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
