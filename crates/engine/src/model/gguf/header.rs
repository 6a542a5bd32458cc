//! The header of a GGUF file: metadata fields and tensor locations.
//!
//! Not read by candle, which refuses files with a number type that it does not have, such as the MXFP4 of gpt-oss.

use super::super::kinds::GGUF;
use super::super::number_type::NumberType;
use super::super::stored_tensor::{FileBytes, StoredTensor, StoredTensors};
use anyhow::{bail, ensure, Context, Result};
use base::files::HEADER_MAX;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Take};
use std::sync::Arc;
use strum::EnumTryAs;

/// Default alignment of tensors, in bytes, and a largest one.
const ALIGNMENT: u64 = 32;
const LARGEST_ALIGNMENT: u64 = 1 << 30;
/// Ids of types that are not numbers.
const TEXT: u32 = 8;
const LIST: u32 = 9;
/// Largest dimension and number of elements. Products with the size of a block do not overflow.
const MOST_ELEMENTS: u64 = 1 << 48;

/// The value of a field. Numbers of all types are `f64`, and `true` is 1.
#[derive(Clone, Debug, PartialEq, EnumTryAs)]
pub(super) enum FieldValue {
    Number(f64),
    Text(String),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// Reads the fields and tensors of a file.
pub(super) fn read_header(file: &Arc<FileBytes>) -> Result<(BTreeMap<String, FieldValue>, StoredTensors)> {
    let mut reader = Reader { input: BufReader::new(file.file()?.take(HEADER_MAX)), at: 0 };
    ensure!(reader.take::<4>().is_ok_and(|magic| magic == *GGUF), "not a GGUF file");
    let version = reader.u32()?;
    ensure!(matches!(version, 2 | 3), "GGUF version {version} is not supported; 2 and 3 are");
    let tensor_count = reader.u64()?;
    let field_count = reader.u64()?;
    let mut fields = BTreeMap::new();
    let mut tensors = StoredTensors::new();
    for _ in 0..field_count {
        let name = reader.text()?;
        let kind = reader.u32()?;
        let value = reader.field(kind).with_context(|| name.clone())?;
        ensure!(!fields.contains_key(&name), "{name} is there twice");
        fields.insert(name, value);
    }
    let alignment = alignment(&fields)?;
    // As in llama.cpp, tensors follow one another without gaps but those of the alignment; those that cannot be read are refused
    // elsewhere.
    let mut expected = Some(0u64);
    for _ in 0..tensor_count {
        let name = reader.text()?;
        let tensor = reader.tensor(file).with_context(|| format!("tensor {name}"))?;
        let at = tensor.at;
        let expect = expected.unwrap_or(at);
        ensure!(at == expect, "tensor {name} begins at byte {at} of the data, expected {expect}");
        ensure!(!tensors.contains_key(&name), "tensor {name} is there twice");
        let next = at.saturating_add(tensor.bytes().next_multiple_of(alignment));
        expected = expected.map(|_| next).filter(|_| tensor.number.is_readable());
        tensors.insert(name, tensor);
    }
    let begin = reader.at.next_multiple_of(alignment);
    for (name, tensor) in &mut tensors {
        tensor.at = tensor.at.saturating_add(begin);
        let end = tensor.at.saturating_add(tensor.bytes());
        let len = file.len;
        ensure!(end <= len, "not complete: it has {len} bytes, tensor {name} ends at {end}");
    }
    Ok((fields, tensors))
}

fn alignment(fields: &BTreeMap<String, FieldValue>) -> Result<u64> {
    let alignment = match fields.get("general.alignment") {
        None => return Ok(ALIGNMENT),
        Some(FieldValue::Number(n)) if n.fract() == 0.0 => *n as u64,
        Some(_) => 0,
    };
    ensure!(
        alignment.is_power_of_two() && alignment <= LARGEST_ALIGNMENT,
        "general.alignment is no power of two up to {LARGEST_ALIGNMENT}"
    );
    Ok(alignment)
}

/// The shortest decimal number that rounds to `x`: 1e-5, not 9.999999747378752e-6.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// Reads values sequentially. Nothing is allocated before its bytes were read, whatever length the file says.
struct Reader<'a> {
    input: BufReader<Take<&'a File>>,
    at: u64,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).context("not complete: its header is cut off")?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u64()?;
        let mut bytes = Vec::new();
        self.input.by_ref().take(len).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 == len, "not complete: its header is cut off");
        self.at += len;
        String::from_utf8(bytes).context("a text is not UTF-8")
    }

    fn number(&mut self, kind: u32) -> Result<f64> {
        Ok(match kind {
            0 | 7 => u8::from_le_bytes(self.take()?).into(),
            1 => i8::from_le_bytes(self.take()?).into(),
            2 => u16::from_le_bytes(self.take()?).into(),
            3 => i16::from_le_bytes(self.take()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.take()?).into(),
            6 => decimal(f32::from_le_bytes(self.take()?)),
            10 => self.u64()? as f64,
            11 => i64::from_le_bytes(self.take()?) as f64,
            12 => f64::from_le_bytes(self.take()?),
            _ => bail!("a field of type {kind} is not supported"),
        })
    }

    fn field(&mut self, kind: u32) -> Result<FieldValue> {
        if kind != LIST {
            return Ok(if kind == TEXT {
                FieldValue::Text(self.text()?)
            } else {
                FieldValue::Number(self.number(kind)?)
            });
        }
        let kind = self.u32()?;
        let len = self.u64()?;
        Ok(if kind == TEXT {
            FieldValue::Texts((0..len).map(|_| self.text()).collect::<Result<_>>()?)
        } else {
            FieldValue::Numbers((0..len).map(|_| self.number(kind)).collect::<Result<_>>()?)
        })
    }

    /// A tensor entry; its offset is relative to the end of the header.
    fn tensor(&mut self, file: &Arc<FileBytes>) -> Result<StoredTensor> {
        let dimensions = self.u32()?;
        ensure!(dimensions <= 4, "{dimensions} dimensions; at most 4 are supported");
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        let id = self.u32()?;
        let at = self.u64()?;
        let number = NumberType::of_id(id).with_context(|| format!("number type {id} is not known"))?;
        let row = shape.first().copied().unwrap_or(1);
        ensure!(row.is_multiple_of(number.block_len as u64), "rows of {row} numbers are not blocks of {}", number.name);
        let numbers = shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n));
        ensure!(numbers.is_some_and(|n| n < MOST_ELEMENTS), "{shape:?} are more numbers than any file holds");
        shape.reverse();
        let shape = shape.into_iter().map(|n| n as usize).collect();
        Ok(StoredTensor { shape, number, at, file: file.clone() })
    }
}
