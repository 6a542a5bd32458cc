//! GGUF files (llama.cpp): metadata, translated to a `config.json`, and tensors.
//!
//! An absent field has llama.cpp's default. A field that is present and not understood is an error.

mod config;
mod header;
mod rope;
mod vocabulary;

pub use vocabulary::GgufVocabulary;

use super::file_bytes::FileBytes;
use super::stored_tensor::StoredTensors;
use anyhow::{bail, ensure, Context, Result};
use header::{FieldValue, GgufPart};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Tensors that divide the rotary frequencies: of Llama 3.1, and of LongRoPE for short and long contexts.
const DIVISORS: &str = "rope_freqs.weight";
const SHORT_DIVISORS: &str = "rope_factors_short.weight";
const LONG_DIVISORS: &str = "rope_factors_long.weight";

/// Returns whether a tensor belongs to the rotary embedding and is not a weight.
pub(super) fn is_of_rope(name: &str) -> bool {
    // Older files have the last kind in every layer.
    [DIVISORS, SHORT_DIVISORS, LONG_DIVISORS].contains(&name) || name.ends_with(".attn_rot_embd.weight")
}

/// A model in one GGUF file or in several.
pub struct Gguf {
    /// The files; the first holds the metadata.
    parts: Vec<GgufPart>,
    tensors: StoredTensors,
    /// Names of the fields looked up so far.
    asked: Mutex<BTreeSet<String>>,
}

impl Gguf {
    /// Reads the header of a file. Any part of a split model (`-00001-of-00003.gguf`) stands for the whole model.
    ///
    /// # Errors
    /// If a file is missing, incomplete or not a GGUF file. Names the field or tensor.
    pub fn open(path: &Path) -> Result<Self> {
        let parts: Vec<GgufPart> = parts_of(path).iter().map(|path| GgufPart::open(path)).collect::<Result<_>>()?;
        let tensors = parts.iter().flat_map(|part| part.tensors.clone()).collect();
        Ok(Self { parts, tensors, asked: Mutex::default() })
    }

    /// Path of the first file.
    fn origin(&self) -> &str {
        &self.parts[0].bytes.origin
    }

    /// The files.
    pub(super) fn files(&self) -> Vec<Arc<FileBytes>> {
        self.parts.iter().map(|part| part.bytes.clone()).collect()
    }

    pub(super) fn tensors(&self) -> &StoredTensors {
        &self.tensors
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    /// All numbers of the tensor `name`, if there is one.
    fn values_of(&self, name: &str) -> Result<Option<Vec<f32>>> {
        self.tensors.get(name).map(|tensor| tensor.values().with_context(|| name.to_owned())).transpose()
    }

    fn asked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.asked.lock().expect("no thread panics with it")
    }

    fn field(&self, name: &str) -> Option<&FieldValue> {
        self.asked().insert(name.to_owned());
        self.parts[0].fields.get(name)
    }

    /// A whole number of at least 0.
    fn whole(&self, name: &str) -> Result<Option<u64>> {
        let Some(n) = self.number(name)? else { return Ok(None) };
        ensure!(n >= 0.0 && n.fract() == 0.0, "{name} is {n}, expected a whole number");
        Ok(Some(n as u64))
    }

    /// A finite number.
    fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.field(name) {
            None => Ok(None),
            Some(FieldValue::Number(x)) if x.is_finite() => Ok(Some(*x)),
            Some(_) => bail!("{name} is no number"),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(self.number(name)?.map(|x| x != 0.0))
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.field(name) {
            None => Ok(None),
            Some(FieldValue::Text(text)) => Ok(Some(text)),
            Some(_) => bail!("{name} is no text"),
        }
    }

    /// A list of strings.
    fn texts(&self, name: &str) -> Result<Option<&Vec<String>>> {
        match self.field(name) {
            None => Ok(None),
            Some(FieldValue::Texts(list)) => Ok(Some(list)),
            Some(_) => bail!("{name} is no list of texts"),
        }
    }

    /// A list of numbers.
    fn numbers(&self, name: &str) -> Result<Option<&Vec<f64>>> {
        match self.field(name) {
            None => Ok(None),
            Some(FieldValue::Numbers(list)) => Ok(Some(list)),
            Some(_) => bail!("{name} is no list of numbers"),
        }
    }

    /// Returns whether the field is present and a list.
    fn is_list(&self, name: &str) -> bool {
        matches!(self.field(name), Some(FieldValue::Numbers(_) | FieldValue::Texts(_)))
    }

    /// Names of fields with this prefix that were not looked up.
    fn unasked(&self, prefix: &str) -> Vec<&str> {
        let asked = self.asked();
        let fields = self.parts[0].fields.keys().filter(|name| name.starts_with(prefix));
        fields.filter(|name| !asked.contains(*name)).map(String::as_str).collect()
    }

    fn architecture(&self) -> Result<&str> {
        self.text("general.architecture")?.context("general.architecture is missing")
    }
}

/// Paths of all parts of the model that `path` belongs to, by its name (`-00001-of-00003.gguf`).
pub(crate) fn parts_of(path: &Path) -> Vec<PathBuf> {
    let named = || {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let count: usize = count.parse().ok().filter(|_| digits(count) && digits(number))?;
        let part = |i: usize| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"));
        (count > 0).then(|| (1..=count).map(part).collect())
    };
    named().unwrap_or_else(|| vec![path.to_owned()])
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
