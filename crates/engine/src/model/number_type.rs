//! Number types of tensors in files, by their names in ggml, and their expansion to `f32`.

use crate::kernels::with_values;
use anyhow::{bail, Result};
use base::error::guarded;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::Device;
use half::{bf16, f16};
use safetensors::Dtype;
use std::borrow::Cow;

/// A number type, stored in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberType {
    /// Its id in files.
    id: u32,
    /// Its name in ggml.
    pub(super) name: &'static str,
    /// Numbers per block.
    pub(super) block_len: usize,
    pub(super) block_bytes: usize,
    /// The same type of candle, for those that it expands.
    candle: Option<GgmlDType>,
}

const fn row(id: u32, name: &'static str, block_len: usize, block_bytes: usize) -> NumberType {
    NumberType { id, name, block_len, block_bytes, candle: None }
}

impl NumberType {
    const fn expanded_by_candle(self, candle: GgmlDType) -> Self {
        Self { candle: Some(candle), ..self }
    }
}

/// All types of ggml since version 2 of the file format.
const TYPES: [NumberType; 32] = [
    row(0, "F32", 1, 4),
    row(1, "F16", 1, 2),
    row(2, "Q4_0", 32, 18).expanded_by_candle(GgmlDType::Q4_0),
    row(3, "Q4_1", 32, 20).expanded_by_candle(GgmlDType::Q4_1),
    row(6, "Q5_0", 32, 22).expanded_by_candle(GgmlDType::Q5_0),
    row(7, "Q5_1", 32, 24).expanded_by_candle(GgmlDType::Q5_1),
    row(8, "Q8_0", 32, 34).expanded_by_candle(GgmlDType::Q8_0),
    row(9, "Q8_1", 32, 36).expanded_by_candle(GgmlDType::Q8_1),
    row(10, "Q2_K", 256, 84).expanded_by_candle(GgmlDType::Q2K),
    row(11, "Q3_K", 256, 110).expanded_by_candle(GgmlDType::Q3K),
    row(12, "Q4_K", 256, 144).expanded_by_candle(GgmlDType::Q4K),
    row(13, "Q5_K", 256, 176).expanded_by_candle(GgmlDType::Q5K),
    row(14, "Q6_K", 256, 210).expanded_by_candle(GgmlDType::Q6K),
    row(15, "Q8_K", 256, 292).expanded_by_candle(GgmlDType::Q8K),
    row(16, "IQ2_XXS", 256, 66),
    row(17, "IQ2_XS", 256, 74),
    row(18, "IQ3_XXS", 256, 98),
    row(19, "IQ1_S", 256, 50),
    row(20, "IQ4_NL", 32, 18),
    row(21, "IQ3_S", 256, 110),
    row(22, "IQ2_S", 256, 82),
    row(23, "IQ4_XS", 256, 136),
    row(24, "I8", 1, 1),
    row(25, "I16", 1, 2),
    row(26, "I32", 1, 4),
    row(27, "I64", 1, 8),
    row(28, "F64", 1, 8),
    row(29, "IQ1_M", 256, 56),
    row(30, "BF16", 1, 2),
    row(34, "TQ1_0", 256, 54),
    row(35, "TQ2_0", 256, 66),
    row(39, "MXFP4", 32, 17),
];

/// A type of safetensors that ggml does not have.
const OTHER: NumberType = row(u32::MAX, "another type", 1, 1);

impl NumberType {
    /// The type with this id.
    pub(super) fn of_id(id: u32) -> Option<Self> {
        TYPES.into_iter().find(|known| known.id == id)
    }

    /// The type of numbers in a safetensors file.
    pub(super) fn of_dtype(dtype: Dtype) -> Self {
        let name = format!("{dtype:?}");
        TYPES.into_iter().find(|known| known.name == name).unwrap_or(OTHER)
    }

    /// Bytes of whole blocks of so many numbers.
    pub(super) fn bytes_of(self, numbers: usize) -> usize {
        numbers / self.block_len * self.block_bytes
    }

    /// Returns `true` if [`NumberType::expand`] supports it.
    pub(super) fn is_readable(self) -> bool {
        self.candle.is_some() || matches!(self.name, "F32" | "F16" | "BF16" | "MXFP4")
    }

    /// Expands whole blocks to `f32`: to as many numbers as `values` has.
    pub(super) fn expand(self, blocks: &[u8], values: &mut [f32]) -> Result<()> {
        match self.name {
            "F32" => convert(blocks, values, f32::from_le_bytes),
            "F16" => convert(blocks, values, |bytes| f16::from_le_bytes(bytes).to_f32()),
            "BF16" => convert(blocks, values, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            "MXFP4" => {
                let blocks = blocks.chunks_exact(self.block_bytes);
                blocks.zip(values.chunks_exact_mut(self.block_len)).for_each(|(block, values)| mxfp4(block, values));
            }
            name => {
                let Some(dtype) = self.candle else { bail!("holds {name}, which is not supported") };
                // candle reads words of up to four bytes. The allocator aligns copies.
                let aligned = match blocks.as_ptr().align_offset(4) {
                    0 => Cow::Borrowed(blocks),
                    _ => Cow::Owned(blocks.to_vec()),
                };
                guarded("candle", || {
                    let storage = QStorage::from_data(aligned, &Device::Cpu, dtype)?;
                    let expanded = QTensor::new(storage, values.len())?.dequantize(&Device::Cpu)?;
                    with_values([&expanded], |[expanded]| values.copy_from_slice(expanded))
                })?;
            }
        }
        Ok(())
    }
}

/// Converts numbers of N bytes.
fn convert<const N: usize>(bytes: &[u8], values: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    values.iter_mut().zip(bytes.as_chunks().0).for_each(|(value, bytes)| *value = convert(*bytes));
}

/// A block of MXFP4 (OCP Microscaling Formats 1.0): a power of two, then 32 numbers of 4 bits. The low nibbles come first.
fn mxfp4(block: &[u8], values: &mut [f32]) {
    const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let scale = 2f32.powi(i32::from(block[0]) - 127);
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[1..]) {
        for (value, bits) in [(low, byte & 15), (high, byte >> 4)] {
            let size = NUMBERS[usize::from(bits & 7)] * scale;
            *value = if bits & 8 == 0 { size } else { -size };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_mxfp4_is_a_power_of_two_and_numbers_of_four_bits() {
        let number = NumberType::of_id(39).unwrap();
        let mut block = [0x21u8; 17];
        block[0] = 129;
        block[1] = 0xf7;
        block[16] = 0x0a;
        let mut numbers = [0.0; 32];
        number.expand(&block, &mut numbers).unwrap();
        assert_eq!((numbers[0], numbers[1], numbers[15]), (24.0, 2.0, -4.0));
        assert_eq!((numbers[16], numbers[17], numbers[31]), (-24.0, 4.0, 0.0));
    }

    #[test]
    fn blocks_are_as_large_as_those_of_candle() {
        for number in TYPES {
            if let Some(dtype) = number.candle {
                assert_eq!(
                    (number.block_len, number.block_bytes),
                    (dtype.block_size(), dtype.type_size()),
                    "{number:?}"
                );
            }
        }
        assert_eq!(NumberType::of_id(23).map(|number| number.name), Some("IQ4_XS"));
        assert_eq!(NumberType::of_id(4), None);
    }
}
