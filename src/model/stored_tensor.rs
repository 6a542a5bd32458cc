//! Tensors as files hold them. Safetensors and GGUF differ only in the header that says where they are.

use super::file_bytes::FileBytes;
use super::number_type::NumberType;
use crate::base::files::HEADER_MAX;
use anyhow::{ensure, Context, Result};
use safetensors::tensor::Metadata;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

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
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in the file, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.len() / self.number.block_len * self.number.block_bytes) as u64
    }

    /// Returns whether it has this shape. GGUF does not tell a matrix of one row from a vector.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        let without_ones = |shape: &[usize]| shape.iter().copied().skip_while(|&n| n == 1).collect::<Vec<_>>();
        without_ones(&self.shape) == without_ones(shape)
    }

    /// Its values as `f32`. NaN, infinities and unsupported types are errors.
    pub(super) fn values(&self) -> Result<Vec<f32>> {
        self.file.numbers(self.at, self.number, self.len())
    }

    /// Values of one entry of the first dimension, as `f32`.
    pub(super) fn slab(&self, index: usize) -> Result<Vec<f32>> {
        self.rows(index..index + 1)
    }

    /// Values of consecutive entries of the first dimension, as `f32`.
    pub(super) fn rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let all = self.shape.first().copied().unwrap_or_default();
        ensure!(rows.end <= all, "has {all} entries; entry {} does not exist", rows.end - 1);
        let (each, number) = (self.len() / all, self.number);
        ensure!(each.is_multiple_of(number.block_len), "cuts a block");
        let row_bytes = each / number.block_len * number.block_bytes;
        self.file.numbers(self.at + (rows.start * row_bytes) as u64, number, rows.len() * each)
    }
}

/// The tensors of a safetensors file, from its header.
pub(super) fn safetensors(file: &Arc<FileBytes>) -> Result<StoredTensors> {
    let not_whole = || format!("{}: not a complete safetensors file ({} bytes)", file.origin, file.len);
    ensure!(file.len >= LENGTH_BYTES, not_whole());
    let header_len = file.bytes(0, LENGTH_BYTES as usize)?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    ensure!(header_len <= HEADER_MAX.min(file.len - LENGTH_BYTES), not_whole());
    let header = file.bytes(LENGTH_BYTES, header_len as usize)?;
    let header: Metadata = serde_json::from_slice(&header).with_context(not_whole)?;
    let begin = LENGTH_BYTES + header_len;
    ensure!(begin + header.data_len() as u64 == file.len, not_whole());
    let tensors = header.tensors().into_iter().map(|(name, info)| {
        let at = begin + info.data_offsets.0 as u64;
        let number = NumberType::of_dtype(info.dtype);
        (name, StoredTensor { shape: info.shape.clone(), number, at, file: file.clone() })
    });
    Ok(tensors.collect())
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
        let open = || safetensors(&Arc::new(FileBytes::open(&path).unwrap()));
        let tensors = open().unwrap();
        assert_eq!(tensors["w"].values().unwrap(), vec![0.0; 64 * 64]);
        File::options().write(true).open(&path).unwrap().set_len(tensors["w"].file.len - 5000).unwrap();
        let error = format!("{:#}", tensors["w"].values().unwrap_err());
        assert!(error.contains("model.safetensors cannot be read"), "{error}");
        assert!(open().is_err_and(|error| error.to_string().contains("not a complete safetensors file")));
    }
}
