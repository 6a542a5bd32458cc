//! Weights of a Hugging Face folder: one safetensors file, or several with an index, read tensor by tensor.
//!
//! Reading is strict: the files must hold every tensor of the model, in the expected shape, and no others.

use super::names::{
    file_tensor, is_in_pairs, is_not_a_weight, other_file_tensor, other_name, FileTensor, StoredRows, EMBEDDING, HEAD,
};
use super::stored_tensor::{safetensors, FileBytes, StoredTensor, StoredTensors};
use super::{kinds, Gguf, ModelConfig, Weights};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::files;
use base::hash::sha256;
use base::model_files::{is_part, weight_candidates, weight_parts, INDEX_FILE, TENSOR_FILE};
use candle_core::{Device, Tensor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Rows of two matrices that are compared at once.
const ROWS_AT_ONCE: usize = 4096;

/// Weights on disk, or built into the binary.
pub struct Checkpoint {
    files: Vec<Arc<FileBytes>>,
    tensors: StoredTensors,
    /// The number types that can be read in files of this kind, in words.
    readable: &'static str,
}

/// Differences between the tensors of a checkpoint and those that a model needs. Names are those in the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Tensors of the model that no file has, with their expected shapes.
    pub missing: Vec<(String, Vec<usize>)>,
    /// One message for each tensor with the wrong shape or an unsupported number type.
    pub misfits: Vec<String>,
    /// Tensors of the files that the model does not have, with their shapes.
    pub unused: Vec<(String, Vec<usize>)>,
}

impl Audit {
    /// Returns `true` if the model can be loaded.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.misfits.is_empty() && self.unused.is_empty()
    }
}

impl Checkpoint {
    /// Opens `model.safetensors`, the files listed in `model.safetensors.index.json`, or the only weights of another name or in
    /// several parts.
    ///
    /// # Errors
    /// If a file is missing or incomplete, or the index names files in other folders. A usage error if several files may be meant.
    pub fn open(dir: &Path) -> Result<Self> {
        let names = weight_files(dir)?;
        if names.is_empty() {
            bail!("{}: has neither {TENSOR_FILE} nor {INDEX_FILE}; {}", dir.display(), kinds::other_weights(dir));
        }
        Self::of_safetensors(names.iter().map(|name| FileBytes::open(&dir.join(name))).collect::<Result<_>>()?)
    }

    /// Opens one file with all weights.
    ///
    /// # Errors
    /// If it cannot be read. A usage error if it is one of several files.
    pub fn open_file(path: &Path) -> Result<Self> {
        if path.file_name().is_some_and(|name| is_part(&name.to_string_lossy())) {
            bail_usage!("{}: one of several files with the weights; name their folder", path.display());
        }
        Self::of_safetensors(vec![FileBytes::open(path)?])
    }

    /// Returns `true` if a folder has weights, or names some.
    pub fn is_in(dir: &Path) -> bool {
        let is_there = |name: &str| files::is_there(&dir.join(name));
        let names = kinds::names_in(dir);
        let is_part = names.iter().any(|name| is_part(name));
        is_there(TENSOR_FILE) || is_there(INDEX_FILE) || is_part || !weight_candidates(&names).is_empty()
    }

    /// No weights, for a look at a configuration.
    pub fn none() -> Self {
        Self { files: Vec::new(), tensors: StoredTensors::new(), readable: "" }
    }

    /// Returns `true` if there are none.
    pub fn is_none(&self) -> bool {
        self.files.is_empty()
    }

    /// Wraps weights that are part of the binary; `origin` names them in errors.
    pub fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::of_safetensors(vec![FileBytes::built_in(origin, bytes)])
    }

    /// Reads the headers of safetensors files.
    fn of_safetensors(files: Vec<FileBytes>) -> Result<Self> {
        let files: Vec<_> = files.into_iter().map(Arc::new).collect();
        let mut tensors = StoredTensors::new();
        for file in &files {
            for (name, tensor) in safetensors(file)? {
                if let Some(other) = tensors.insert(name.clone(), tensor) {
                    bail!("tensor {name} is in {} and in {}", other.file.origin, file.origin);
                }
            }
        }
        Ok(Self { files, tensors, readable: "f32, f16 and bf16" })
    }

    /// Total size of the files, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// SHA-256 of the file; with several files, SHA-256 of their concatenated hashes in name order.
    pub fn sha256(&self) -> Result<String> {
        let hashes = self.files.iter().map(|file| file.sha256()).collect::<Result<Vec<_>>>()?;
        match hashes.as_slice() {
            [hash] => Ok(hash.clone()),
            hashes => Ok(sha256(hashes.concat().as_bytes())),
        }
    }

    /// Returns `true` if the files have an output head that differs from the embedding although `config` ties the two.
    /// transformers uses such a head, so the configuration must then be read with `tied: false`.
    pub fn has_untied_head(&self, config: &ModelConfig) -> Result<bool> {
        let shape = [config.vocab, config.width];
        let [head, embedding] = [HEAD, EMBEDDING].map(|name| self.find(&file_tensor(config, name, &shape).name));
        let Some((head, embedding)) = head.zip(embedding) else { return Ok(false) };
        let are_readable = head.tensor.number.is_readable() && embedding.tensor.number.is_readable();
        if head.tensor.shape != embedding.tensor.shape || !are_readable {
            return Ok(true);
        }
        for start in (0..config.vocab).step_by(ROWS_AT_ONCE) {
            let rows = start..config.vocab.min(start + ROWS_AT_ONCE);
            if head.rows(config.vocab, rows.clone())? != embedding.rows(config.vocab, rows)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns `true` if the files have none of the attention tensors that the variant adds to the projections, in the
    /// first layer.
    pub fn lacks_extras(&self, config: &ModelConfig) -> bool {
        let extras = config.variant.extra_tensors(0, config.layer_sizes());
        !extras.iter().any(|extra| {
            let name = format!("model.layers.0.self_attn.{}", extra.name);
            self.find(&file_tensor(config, &name, &[]).name).is_some()
        })
    }

    /// Number types of the weights, joined: `bf16`, `f16 and f32`.
    pub fn dtypes(&self) -> String {
        let dtypes: BTreeSet<String> = self.tensors.values().map(|tensor| tensor.number.name.to_lowercase()).collect();
        Vec::from_iter(dtypes).join(" and ")
    }

    /// Compares names, shapes and number types with those that the model needs.
    pub fn audit(&self, config: &ModelConfig) -> Audit {
        let mut audit = Audit::default();
        let mut used = BTreeSet::new();
        for (name, shape) in config.tensors() {
            let (place, found) = self.locate(config, &name, &shape);
            let Some(NamedTensor { name: found, tensor }) = found else {
                audit.missing.push((place.name, place.shape));
                continue;
            };
            if !used.insert(found) {
                continue;
            }
            let origin = &tensor.file.origin;
            let number = tensor.number;
            if !tensor.has_shape(&place.shape) {
                let shape = &tensor.shape;
                let expected = place.shape;
                audit.misfits.push(format!("{origin}: tensor {found} has shape {shape:?}, expected {expected:?}"));
            } else if !number.is_readable() {
                let name = number.name;
                let readable = self.readable;
                audit
                    .misfits
                    .push(format!("{origin}: tensor {found} holds {name}, which is not supported; {readable} are"));
            }
        }
        audit.missing.dedup();
        for (name, tensor) in &self.tensors {
            if !used.contains(name.as_str()) && !is_not_a_weight(name, config) {
                audit.unused.push((name.clone(), tensor.shape.clone()));
            }
        }
        audit
    }

    /// Reads every tensor of the model as `f32`, under this crate's names.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, holds NaN or infinities, or is not part of the model. The error names
    /// the file and the tensor.
    pub fn load(&self, config: &ModelConfig) -> Result<Weights> {
        self.check(config)?;
        let mut weights = Vec::new();
        for (name, shape) in config.tensors() {
            let tensor = self.read(config, &name, &shape)?;
            weights.push((name, tensor));
        }
        Ok(Weights::new(weights, &self.files[0].origin))
    }

    /// Checks that the files have exactly the model's tensors, without reading their values.
    ///
    /// # Errors
    /// Names the file and the first tensor that is missing, has another shape or type, or is not part of the model.
    pub fn check(&self, config: &ModelConfig) -> Result<()> {
        let origin = &self.files[0].origin;
        let audit = self.audit(config);
        if let Some((name, shape)) = audit.missing.first() {
            let others = audit.missing.len() - 1;
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            bail!("{origin}: tensor {name} is missing (expected shape {shape:?}){more}");
        }
        if let Some(misfit) = audit.misfits.first() {
            bail!("{misfit}");
        }
        if let Some((name, shape)) = audit.unused.first() {
            bail!("{origin}: tensor {name} {shape:?} is not part of the model");
        }
        Ok(())
    }

    /// Reads the model's tensor `name` of `shape` as `f32`.
    pub fn read(&self, config: &ModelConfig, name: &str, shape: &[usize]) -> Result<Tensor> {
        let (place, stored) = self.locate(config, name, shape);
        let NamedTensor { name: stored, tensor } =
            stored.with_context(|| format!("tensor {} is missing", place.name))?;
        let mut values =
            values(tensor, &place, shape).with_context(|| format!("{}: tensor {stored}", tensor.file.origin))?;
        if is_in_pairs(config, name) {
            values = halves(&values, shape, config.head_dim);
        }
        Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
    }

    /// Rows of the embedding or the output head, concatenated in the order of `ranges`.
    pub(super) fn rows(
        &self,
        config: &ModelConfig,
        name: &str,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<Vec<f32>> {
        let (place, found) = self.locate(config, name, &[config.vocab, config.width]);
        let found = found.with_context(|| format!("tensor {} is missing", place.name))?;
        let mut values = Vec::new();
        for range in ranges {
            let rows = found.rows(config.vocab, range)?;
            if values.is_empty() {
                values = rows; // one range, as in parts of the output head, is not copied
            } else {
                values.extend(rows);
            }
        }
        Ok(values)
    }

    /// Finds the tensor called `name` here. Returns its expected place, and the tensor if the files have it. Of two
    /// places, the one counts whose shape fits.
    fn locate(&self, config: &ModelConfig, name: &str, shape: &[usize]) -> (FileTensor, Option<NamedTensor<'_>>) {
        let usual = file_tensor(config, name, shape);
        let found = self.find(&usual.name);
        if found.is_some_and(|found| found.tensor.has_shape(&usual.shape)) {
            return (usual, found);
        }
        if let Some(other) = other_file_tensor(config, name, shape) {
            let elsewhere = self.find(&other.name);
            if elsewhere.is_some_and(|there| found.is_none() || there.tensor.has_shape(&other.shape)) {
                return (other, elsewhere);
            }
        }
        (usual, found)
    }

    /// Finds the tensor with this name, or with [its other name](other_name).
    fn find(&self, name: &str) -> Option<NamedTensor<'_>> {
        let found = self.tensors.get_key_value(name);
        let (name, tensor) = found.or_else(|| self.tensors.get_key_value(other_name(name)?.as_str()))?;
        Some(NamedTensor { name, tensor })
    }
}

impl From<Gguf> for Checkpoint {
    /// The tensors of a GGUF file.
    fn from(file: Gguf) -> Self {
        let readable = "F32, F16, BF16, Q4_0 to Q8_1, Q2_K to Q8_K and MXFP4";
        Self { files: file.files, tensors: file.tensors, readable }
    }
}

/// A tensor of the files with its name there.
#[derive(Clone, Copy)]
struct NamedTensor<'a> {
    name: &'a str,
    tensor: &'a StoredTensor,
}

impl NamedTensor<'_> {
    /// Reads rows of a matrix.
    fn rows(self, entries: usize, rows: Range<usize>) -> Result<Vec<f32>> {
        let Self { name, tensor } = self;
        tensor.rows(entries, rows).with_context(|| format!("{}: tensor {name}", tensor.file.origin))
    }
}

/// The numbers of our tensor of `shape` in its place. Rows that lie side by side are read without the others.
fn values(tensor: &StoredTensor, place: &FileTensor, shape: &[usize]) -> Result<Vec<f32>> {
    match (place.slab, place.rows) {
        (None, StoredRows::From { start }) if !place.transposed => tensor.rows(place.shape[0], start..start + shape[0]),
        (None, _) => Ok(pick(tensor.values()?, place, shape)),
        (Some(slab), _) => Ok(pick(tensor.rows(place.shape[0], slab..slab + 1)?, place, shape)),
    }
}

/// Cuts the tensor of `shape` out of the values of the file's tensor or slab.
fn pick(values: Vec<f32>, place: &FileTensor, shape: &[usize]) -> Vec<f32> {
    let stored = if place.slab.is_some() { &place.shape[1..] } else { &place.shape[..] };
    let values = if place.transposed { transpose(&values, stored[0], stored[1]) } else { values };
    let row: usize = shape[1..].iter().product();
    match place.rows {
        StoredRows::All => values,
        StoredRows::From { start } => values[start * row..(start + shape[0]) * row].to_vec(),
        StoredRows::Of { block, start, take } => {
            values.chunks_exact(block * row).flat_map(|b| &b[start * row..(start + take) * row]).copied().collect()
        }
    }
}

/// Puts rows (2i, 2i + 1) of each head of width `d` at (i, i + d/2).
fn halves(values: &[f32], shape: &[usize], d: usize) -> Vec<f32> {
    let row: usize = shape[1..].iter().product();
    let mut halves = Vec::with_capacity(values.len());
    for head in values.chunks_exact(d * row) {
        for half in 0..2 {
            head.chunks_exact(row).skip(half).step_by(2).for_each(|values| halves.extend_from_slice(values));
        }
    }
    halves
}

/// (rows, columns) -> (columns, rows).
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; values.len()];
    for (r, row) in values.chunks_exact(columns).enumerate() {
        row.iter().enumerate().for_each(|(c, &x)| transposed[c * rows + r] = x);
    }
    transposed
}

/// Names of the files in a folder that hold its weights; none if it has no weights.
///
/// # Errors
/// If the index cannot be read. A usage error if several files may be meant.
pub(super) fn weight_files(dir: &Path) -> Result<Vec<String>> {
    if files::is_there(&dir.join(TENSOR_FILE)) {
        return Ok(vec![TENSOR_FILE.to_owned()]);
    }
    let index = dir.join(INDEX_FILE);
    if files::is_there(&index) {
        return Ok(Vec::from_iter(shards(&index)?));
    }
    let names = kinds::names_in(dir);
    let others = weight_candidates(&names);
    if others.is_empty() {
        return Ok(weight_parts(&names));
    }
    if others.len() > 1 {
        let paths: Vec<String> = others.iter().map(|name| dir.join(name).display().to_string()).collect();
        bail_usage!(
            "{}: which of its files has the weights? Name it as the model: {}",
            dir.display(),
            paths.join(", ")
        );
    }
    Ok(others)
}

/// The files of an index. They lie beside it.
pub(super) fn shards(index: &Path) -> Result<BTreeSet<String>> {
    let json: Value = serde_json::from_str(&files::text(index, files::TOKENIZER_MAX)?)
        .with_context(|| format!("{}: not JSON", index.display()))?;
    let map = json["weight_map"].as_object().filter(|map| !map.is_empty());
    let map = map.with_context(|| format!("{}: weight_map is missing", index.display()))?;
    let mut files = BTreeSet::new();
    for (tensor, file) in map {
        let file = file.as_str().filter(|file| !file.starts_with('.') && !file.contains(['/', '\\', ':']));
        let file = file.with_context(|| {
            format!("{}: the file of {tensor} is no name; files of a model lie beside it", index.display())
        })?;
        files.insert(file.to_owned());
    }
    Ok(files)
}
