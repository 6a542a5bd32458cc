//! GGUF files (llama.cpp): the configuration, from metadata and tensors, the tokenizer, and the weights.
//!
//! An absent field has llama.cpp's default. A field that is present and not understood is an error.

mod config;
mod header;
mod rope;
mod tokenizer;

use super::stored_tensor::{FileBytes, StoredTensors};
use anyhow::{bail, ensure, Context, Result};
use header::{read_header, FieldValue};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tensors that divide the rotary frequencies: of Llama 3.1, and of LongRoPE for short and long contexts.
const DIVISORS: &str = "rope_freqs.weight";
const SHORT_DIVISORS: &str = "rope_factors_short.weight";
const LONG_DIVISORS: &str = "rope_factors_long.weight";

/// A model in one GGUF file or in several.
pub struct Gguf {
    pub(super) files: Vec<Arc<FileBytes>>,
    pub(super) tensors: StoredTensors,
    /// The metadata, which the first file holds.
    fields: BTreeMap<String, FieldValue>,
    /// Names of the fields looked up so far.
    asked: RefCell<BTreeSet<String>>,
}

impl Gguf {
    /// Reads the header of a file. Any part of a split model (`-00001-of-00003.gguf`) stands for the whole model.
    ///
    /// # Errors
    /// If a file is missing, incomplete or not a GGUF file. Names the field or tensor.
    pub fn open(path: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut headers = Vec::new();
        let mut tensors = StoredTensors::new();
        for path in parts_of(path) {
            let file = Arc::new(FileBytes::open(&path)?);
            let (fields, in_file) = read_header(&file).with_context(|| path.display().to_string())?;
            for (name, tensor) in in_file {
                let other = tensors.insert(name.clone(), tensor);
                ensure!(other.is_none(), "{}: tensor {name} is in another part too", path.display());
            }
            files.push(file);
            headers.push(fields);
        }
        Ok(Self { files, tensors, fields: headers.swap_remove(0), asked: RefCell::default() })
    }

    /// Path of the first file.
    fn origin(&self) -> &str {
        &self.files[0].origin
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    fn field(&self, name: &str) -> Option<&FieldValue> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.fields.get(name)
    }

    /// A whole number of at least 0.
    fn whole(&self, name: &str) -> Result<Option<u64>> {
        let Some(n) = self.number(name)? else { return Ok(None) };
        ensure!(n >= 0.0 && n.fract() == 0.0, "{name} is {n}, expected a whole number");
        Ok(Some(n as u64))
    }

    /// A finite number.
    fn number(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, "number", |value| value.try_as_number_ref().copied().filter(|x| x.is_finite()))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(self.number(name)?.map(|x| x != 0.0))
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        self.typed(name, "text", |value| value.try_as_text_ref().map(String::as_str))
    }

    /// A list of strings.
    fn texts(&self, name: &str) -> Result<Option<&Vec<String>>> {
        self.typed(name, "list of texts", FieldValue::try_as_texts_ref)
    }

    /// A list of numbers.
    fn numbers(&self, name: &str) -> Result<Option<&Vec<f64>>> {
        self.typed(name, "list of numbers", FieldValue::try_as_numbers_ref)
    }

    /// A field that `read` returns `None` for is an error that says what it is not.
    fn typed<'a, T>(&'a self, name: &str, kind: &str, read: impl Fn(&'a FieldValue) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.field(name) else { return Ok(None) };
        read(value).map(Some).with_context(|| format!("{name} is no {kind}"))
    }

    /// Returns `true` if the field is present and a list.
    fn is_list(&self, name: &str) -> bool {
        matches!(self.field(name), Some(FieldValue::Numbers(_) | FieldValue::Texts(_)))
    }

    fn architecture(&self) -> Result<&str> {
        if self.text("general.type")? == Some("imatrix") {
            bail!("an importance matrix, by which weights are quantised, and no model");
        }
        self.text("general.architecture")?.context("general.architecture is missing")
    }
}

/// Paths of all parts of the model that `path` belongs to, by its name (`-00001-of-00003.gguf`).
pub(super) fn parts_of(path: &Path) -> Vec<PathBuf> {
    let Some((stem, count)) = path.file_name().and_then(|name| part_of(name.to_str()?)) else {
        return vec![path.to_owned()];
    };
    (1..=count).map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"))).collect()
}

/// `m-00001-of-00003.gguf` -> (`m`, 3).
fn part_of(name: &str) -> Option<(&str, usize)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    for digits in [number, count] {
        if digits.len() != 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
    }
    Some((stem, count.parse().ok().filter(|&count| count > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_model_names_all() {
        let all = ["d/m-00001-of-00003.gguf", "d/m-00002-of-00003.gguf", "d/m-00003-of-00003.gguf"].map(PathBuf::from);
        for part in &all {
            assert_eq!(parts_of(part), all);
        }
        for alone in ["d/m.gguf", "m-1-of-2.gguf", "m-00001-of-00000.gguf", "m-of-00003.gguf"] {
            assert_eq!(parts_of(Path::new(alone)), [Path::new(alone)]);
        }
    }
}
