//! The header of a GGUF file: metadata fields and tensor locations.
//!
//! Lists stay in the file until they are read, so that the header takes no more memory than the file has bytes.

use super::super::file_bytes::FileBytes;
use super::super::number_type::NumberType;
use crate::files::{self, FilePrefix, HEADER_MAX};
use anyhow::{bail, ensure, Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of every file.
const MAGIC: [u8; 4] = *b"GGUF";
/// Field with the alignment of tensors in bytes, and its default.
const ALIGNMENT: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
/// The largest number of dimensions.
const MOST_DIMENSIONS: u32 = 4;

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    Whole(i128),
    Number(f64),
    Flag(bool),
    Text(String),
    List(ListLocation),
}

/// Location of a list in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListLocation {
    kind: ValueType,
    len: u64,
    /// Offset of the first item in the file, in bytes.
    at: u64,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Flag,
    Text,
    List,
    U64,
    I64,
    F64,
}

impl ValueType {
    fn of_id(id: u32) -> Result<Self> {
        use ValueType::*;
        let kinds = [U8, I8, U16, I16, U32, I32, F32, Flag, Text, List, U64, I64, F64];
        kinds.get(id as usize).copied().with_context(|| format!("a field is of type {id}, which does not exist"))
    }

    /// Size of a value in bytes, if it is fixed.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Flag => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::List => None,
        }
    }
}

/// Shape, number type and location of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct TensorPlace {
    /// Slowest dimension first.
    pub(in crate::model) shape: Vec<usize>,
    pub(in crate::model) number: NumberType,
    /// Offset of the first block in the file, in bytes.
    pub(in crate::model) at: u64,
    /// Index of its file in a split model.
    pub(super) part: usize,
}

impl TensorPlace {
    /// Number of elements.
    pub(in crate::model) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Name of the number type: `Q4_K`.
    pub(in crate::model) fn number_type(&self) -> &'static str {
        self.number.name
    }

    /// Returns whether the number type is supported.
    pub(in crate::model) fn is_readable(&self) -> bool {
        self.number.is_readable()
    }

    /// Size in the file, in bytes.
    pub(in crate::model) fn bytes(&self) -> u64 {
        (self.len() / self.number.block_len * self.number.block_bytes) as u64
    }
}

/// An open file with its header.
pub(super) struct GgufPart {
    pub(super) path: PathBuf,
    file: Arc<File>,
    /// Bytes of the tensors.
    pub(super) bytes: FileBytes,
    pub(super) len_bytes: u64,
    pub(super) fields: BTreeMap<String, FieldValue>,
    pub(super) tensors: BTreeMap<String, TensorPlace>,
}

impl GgufPart {
    /// Opens a file and reads its header; `part` is its 0-based index in a split model.
    pub(super) fn open(path: &Path, part: usize) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = Arc::new(files::open(path)?);
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(metadata.is_file(), "{}: it is no regular file", cannot());
        let mut opened = Self {
            path: path.to_owned(),
            bytes: FileBytes::on_disk(path, file.clone()),
            file,
            len_bytes: metadata.len(),
            fields: BTreeMap::new(),
            tensors: BTreeMap::new(),
        };
        opened.read(part).with_context(|| path.display().to_string())?;
        Ok(opened)
    }

    fn read(&mut self, part: usize) -> Result<()> {
        let mut reader = Reader::new(&self.file, self.len_bytes.min(HEADER_MAX), 0);
        ensure!(reader.take::<4>().is_ok_and(|magic| magic == MAGIC), "not a GGUF file");
        let version = reader.u32()?;
        ensure!(
            !matches!(version.swap_bytes(), 1..=3),
            "its bytes are in the order of a big-endian machine, which is not supported"
        );
        ensure!(matches!(version, 2 | 3), "GGUF version {version} is not supported; 2 and 3 are");
        let (tensors, fields) = (reader.u64()?, reader.u64()?);
        for _ in 0..fields {
            let name = reader.text()?;
            let kind = ValueType::of_id(reader.u32()?).with_context(|| name.clone())?;
            let field = reader.field(kind).with_context(|| name.clone())?;
            ensure!(!self.fields.contains_key(&name), "the field {name} is there twice");
            self.fields.insert(name, field);
        }
        for _ in 0..tensors {
            let name = reader.text()?;
            let place = reader.tensor(part).with_context(|| format!("tensor {name}"))?;
            ensure!(self.tensors.insert(name.clone(), place).is_none(), "tensor {name} is there twice");
        }
        let begin = reader.at;
        self.place(begin)
    }

    /// Checks tensor offsets and makes them relative to the beginning of the file.
    fn place(&mut self, header_end: u64) -> Result<()> {
        let alignment = match self.fields.get(ALIGNMENT) {
            None => DEFAULT_ALIGNMENT,
            Some(FieldValue::Whole(n @ 1..=0x4000_0000)) => *n as u64,
            Some(_) => bail!("{ALIGNMENT} is no number of bytes"),
        };
        let begin = header_end.div_ceil(alignment) * alignment;
        for (name, tensor) in &mut self.tensors {
            ensure!(tensor.at.is_multiple_of(alignment), "tensor {name} is not at a multiple of {alignment} bytes");
            let at = tensor.at.checked_add(begin);
            tensor.at = at.with_context(|| format!("tensor {name} is beyond the end of the file"))?;
        }
        let mut order: Vec<(&String, &TensorPlace)> = self.tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| tensor.at);
        if let Some(pair) = order.windows(2).find(|pair| pair[0].1.at + pair[0].1.bytes() > pair[1].1.at) {
            bail!("tensors {} and {} overlap", pair[0].0, pair[1].0);
        }
        let end = order.last().map_or(0, |(_, tensor)| tensor.at + tensor.bytes());
        ensure!(end <= self.len_bytes, "not complete: it has {} bytes, its tensors need {end}", self.len_bytes);
        Ok(())
    }

    /// Reads a list of strings.
    pub(super) fn texts(&self, list: &ListLocation) -> Result<Vec<String>> {
        ensure!(list.kind == ValueType::Text, "no list of texts");
        let mut reader = Reader::new(&self.file, self.len_bytes, list.at);
        (0..list.len).map(|_| reader.text()).collect()
    }

    /// Reads a list of numbers.
    pub(super) fn numbers(&self, list: &ListLocation) -> Result<Vec<f64>> {
        let mut reader = Reader::new(&self.file, self.len_bytes, list.at);
        let number = |_| match reader.field(list.kind)? {
            FieldValue::Whole(n) => Ok(n as f64),
            FieldValue::Number(x) => Ok(x),
            FieldValue::Flag(yes) => Ok(f64::from(u8::from(yes))),
            _ => bail!("no list of numbers"),
        };
        (0..list.len).map(number).collect()
    }
}

/// The shortest decimal number that rounds to `x`: 1e-5, not 9.999999747378752e-6.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// Reads values sequentially.
struct Reader<'a> {
    input: BufReader<FilePrefix<'a>>,
    at: u64,
    len: u64,
}

impl<'a> Reader<'a> {
    /// Starts at byte `at` of the first `len` bytes of a file.
    fn new(file: &'a File, len: u64, at: u64) -> Self {
        let mut beginning = FilePrefix::new(file, len);
        beginning.seek(SeekFrom::Start(at)).expect("a place in a file");
        Self { input: BufReader::new(beginning), at, len }
    }

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

    /// Returns `bytes` if that many are left.
    fn has(&self, bytes: Option<u64>) -> Result<u64> {
        let left = self.len - self.at;
        bytes.filter(|&bytes| bytes <= left).context("longer than the file, or than any header is")
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u64()?;
        let mut bytes = vec![0; self.has(Some(len))? as usize];
        self.input.read_exact(&mut bytes).context("not complete: its header is cut off")?;
        self.at += len;
        String::from_utf8(bytes).ok().context("a text is not UTF-8")
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.input.seek_relative(bytes as i64)?;
        self.at += bytes;
        Ok(())
    }

    fn field(&mut self, kind: ValueType) -> Result<FieldValue> {
        Ok(match kind {
            ValueType::U8 => FieldValue::Whole(u8::from_le_bytes(self.take()?).into()),
            ValueType::I8 => FieldValue::Whole(i8::from_le_bytes(self.take()?).into()),
            ValueType::U16 => FieldValue::Whole(u16::from_le_bytes(self.take()?).into()),
            ValueType::I16 => FieldValue::Whole(i16::from_le_bytes(self.take()?).into()),
            ValueType::U32 => FieldValue::Whole(self.u32()?.into()),
            ValueType::I32 => FieldValue::Whole(i32::from_le_bytes(self.take()?).into()),
            ValueType::U64 => FieldValue::Whole(self.u64()?.into()),
            ValueType::I64 => FieldValue::Whole(i64::from_le_bytes(self.take()?).into()),
            ValueType::F32 => FieldValue::Number(decimal(f32::from_le_bytes(self.take()?))),
            ValueType::F64 => FieldValue::Number(f64::from_le_bytes(self.take()?)),
            ValueType::Flag => match self.take()? {
                [yes @ (0 | 1)] => FieldValue::Flag(yes == 1),
                [other] => bail!("{other} is neither true nor false"),
            },
            ValueType::Text => FieldValue::Text(self.text()?),
            ValueType::List => FieldValue::List(self.list()?),
        })
    }

    /// Location of a list, whose items are skipped.
    fn list(&mut self) -> Result<ListLocation> {
        let (kind, len) = (ValueType::of_id(self.u32()?)?, self.u64()?);
        ensure!(kind != ValueType::List, "a list of lists is not supported");
        let list = ListLocation { kind, len, at: self.at };
        match kind.bytes() {
            Some(bytes) => {
                let bytes = self.has(len.checked_mul(bytes))?;
                self.skip(bytes)?;
            }
            None => {
                for _ in 0..len {
                    let text = self.u64()?;
                    let bytes = self.has(Some(text))?;
                    self.skip(bytes)?;
                }
            }
        }
        Ok(list)
    }

    /// A tensor entry; its offset is relative to the end of the header.
    fn tensor(&mut self, part: usize) -> Result<TensorPlace> {
        let dimensions = self.u32()?;
        ensure!(dimensions <= MOST_DIMENSIONS, "{dimensions} dimensions; at most {MOST_DIMENSIONS} are supported");
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        let (id, at) = (self.u32()?, self.u64()?);
        let number = NumberType::of_id(id).with_context(|| format!("number type {id} is not known"))?;
        let row = shape.first().copied().unwrap_or(1);
        ensure!(
            row.is_multiple_of(number.block_len as u64),
            "rows of {row} numbers do not consist of blocks of {} ({})",
            number.block_len,
            number.name
        );
        // As many bits as numbers at the most; no file has more bytes than i64.
        let numbers = shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n)).filter(|&n| n < 1 << 48);
        ensure!(numbers.is_some(), "{shape:?} are more numbers than any file holds");
        shape.reverse();
        Ok(TensorPlace { shape: shape.into_iter().map(|n| n as usize).collect(), number, at, part })
    }
}
