//! The weights of a Hugging Face folder: one safetensors file or several with an index, read tensor by tensor. Strict: every tensor of the model, of the expected shape, and none besides.

use super::names::{is_not_a_weight, other_name, source, source_in_memory, Rows, Source, EMBEDDING, HEAD};
use super::shard::{Shard, Stored};
use super::{Gguf, ModelConfig, Weights};
use crate::files;
use crate::hash::sha256;
use anyhow::{bail, ensure, Context, Result};
use candle_core::{Device, Tensor};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path};

/// File name of the weights in a model folder.
pub const TENSOR_FILE: &str = "model.safetensors";

/// File name of the index of weights in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// File name of the weights of diff-mlx.
const DIFF_MLX_FILE: &str = "latest.safetensors";

/// Weights on disk, or built in.
pub struct Checkpoint {
    shards: Vec<Shard>,
}

/// What a checkpoint holds against what a model needs. All names as in the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Tensors of the model that are in no file, with the shape they should have.
    pub missing: Vec<(String, Vec<usize>)>,
    /// Tensors that are there with another shape or a number type that cannot be read: what was found and expected.
    pub misfits: Vec<String>,
    /// Tensors that are not part of the model, with their shape.
    pub unused: Vec<(String, Vec<usize>)>,
}

impl Audit {
    /// Whether the model can be loaded.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.misfits.is_empty() && self.unused.is_empty()
    }
}

impl Checkpoint {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// If a file is missing or incomplete, or the index names files elsewhere or tensors that are not where it says.
    pub fn open(dir: &Path) -> Result<Self> {
        let index = dir.join(INDEX_FILE);
        let single = |name: &&str| *name == TENSOR_FILE || !index.exists();
        let mut singles = [TENSOR_FILE, DIFF_MLX_FILE].into_iter().filter(single).map(|name| dir.join(name));
        if let Some(single) = singles.find(|path| path.exists()) {
            return Self::of(vec![Shard::open(&single)?]);
        }
        ensure!(
            index.exists(),
            "{}: neither {TENSOR_FILE} nor {INDEX_FILE}; weights in other formats have to be converted to safetensors",
            dir.display()
        );
        let map = read_index(&index)?;
        let files: BTreeSet<&str> = map.values().map(String::as_str).collect();
        let shards = files.into_iter().map(|file| {
            let path = dir.join(file);
            ensure!(path.is_file(), "{}: names {file}, which is not there", index.display());
            Shard::open(&path)
        });
        let checkpoint = Self::of(shards.collect::<Result<_>>()?)?;
        let tensors = checkpoint.tensors()?;
        for (name, file) in &map {
            let found = tensors.get(name.as_str()).is_some_and(|tensor| Path::new(tensor.origin()).ends_with(file));
            ensure!(found, "{}: tensor {name} is not in {file}, where the index has it", index.display());
        }
        Ok(checkpoint)
    }

    /// Weights that are part of the binary; `origin` is what errors call them.
    ///
    /// # Errors
    /// If they are not a whole safetensors file.
    pub fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::of(vec![Shard::built_in(bytes, origin)?])
    }

    /// The tensors of a GGUF file.
    pub fn gguf(file: Gguf) -> Self {
        Self { shards: vec![Shard::gguf(file)] }
    }

    fn of(shards: Vec<Shard>) -> Result<Self> {
        let checkpoint = Self { shards };
        checkpoint.tensors()?;
        Ok(checkpoint)
    }

    /// Size of the files, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.shards.iter().map(Shard::len_bytes).sum()
    }

    /// SHA-256 of the file; of several, of their hashes in the order of their names.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn sha256(&self) -> Result<String> {
        let hashes = self.shards.iter().map(Shard::sha256).collect::<Result<Vec<_>>>()?;
        match hashes.as_slice() {
            [hash] => Ok(hash.clone()),
            hashes => Ok(sha256(hashes.concat().as_bytes())),
        }
    }

    /// Every tensor by its name.
    fn tensors(&self) -> Result<BTreeMap<String, Stored<'_>>> {
        let mut all: BTreeMap<String, Stored<'_>> = BTreeMap::new();
        for shard in &self.shards {
            for (name, tensor) in shard.tensors() {
                if let Some(other) = all.insert(name.clone(), tensor) {
                    bail!("tensor {name} is in {} and in {}", other.origin(), shard.origin);
                }
            }
        }
        Ok(all)
    }

    /// Whether the files hold an output head that is not the embedding, although `config` says that it is. transformers
    /// keeps it then, so the configuration has to be read as `tied: false`.
    ///
    /// # Errors
    /// If a file changed since it was opened.
    pub fn has_its_own_head(&self, config: &ModelConfig) -> Result<bool> {
        let tensors = self.tensors()?;
        let shape = [config.vocab, config.width];
        let stored = |name: &str| find(&tensors, &source(config, name, &shape).name).map(|(_, tensor)| *tensor);
        let (Some(head), Some(embedding)) = (stored(HEAD), stored(EMBEDDING)) else { return Ok(false) };
        if head.shape() != embedding.shape() || !head.is_readable() || !embedding.is_readable() {
            return Ok(true);
        }
        Ok(head.values().with_context(|| format!("{}: tensor {HEAD}", head.origin()))?
            != embedding.values().with_context(|| format!("{}: tensor {EMBEDDING}", embedding.origin()))?)
    }

    /// `config` with the names and conventions of the files, which GGUF has its own of.
    ///
    /// # Errors
    /// As [`Gguf::conventions`].
    pub fn conventions(&self, config: ModelConfig) -> Result<ModelConfig> {
        match self.shards.iter().find_map(Shard::as_gguf) {
            None => Ok(config),
            Some(file) => file.conventions(config),
        }
    }

    /// Whether the files hold none of what `config` has beside projections in the attention of the first layer.
    ///
    /// # Errors
    /// If a file changed since it was opened.
    pub fn lacks_extras(&self, config: &ModelConfig) -> Result<bool> {
        let tensors = self.tensors()?;
        let extras = config.variant.extra_tensors(0, config.layer_sizes());
        let name = |name: &str| source(config, &format!("model.layers.0.self_attn.{name}"), &[]).name;
        Ok(!extras.iter().any(|extra| find(&tensors, &name(extra.name)).is_some()))
    }

    /// The number types of the weights, in words: `bf16`, `f16 and f32`.
    ///
    /// # Errors
    /// If a file changed since it was opened.
    pub fn dtypes(&self) -> Result<String> {
        let of = |tensor: &Stored<'_>| tensor.dtype().to_lowercase();
        let dtypes: BTreeSet<String> = self.tensors()?.values().map(of).collect();
        Ok(Vec::from_iter(dtypes).join(" and "))
    }

    /// Compares names, shapes and number types with what the model needs.
    ///
    /// # Errors
    /// If a file changed since it was opened.
    pub fn audit(&self, config: &ModelConfig) -> Result<Audit> {
        let tensors = self.tensors()?;
        let mut audit = Audit::default();
        let mut used = BTreeSet::new();
        for (name, shape) in config.tensors() {
            let (source, found) = locate(&tensors, config, &name, &shape);
            let Some((found, tensor)) = found else {
                audit.missing.push((source.name, source.shape));
                continue;
            };
            let (origin, shape) = (tensor.origin(), tensor.shape());
            if shape != source.shape && used.insert(found) {
                audit
                    .misfits
                    .push(format!("{origin}: tensor {found} has shape {shape:?}, expected {:?}", source.shape));
            } else if !tensor.is_readable() && used.insert(found) {
                audit.misfits.push(format!(
                    "{origin}: tensor {found} holds {}, which is not supported; f32, f16 and bf16 are",
                    tensor.dtype()
                ));
            }
            used.insert(found);
        }
        audit.missing.dedup();
        let unused = tensors.iter().filter(|(name, _)| !used.contains(name.as_str()) && !is_not_a_weight(name, config));
        audit.unused = unused.map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect();
        Ok(audit)
    }

    /// Reads every tensor of the model under our names, as `f32`.
    ///
    /// # Errors
    /// Names the file and the tensor that is missing, misshapen, not a number, or not part of the model.
    pub fn load(&self, config: &ModelConfig) -> Result<Weights> {
        self.load_some(config, |_| true)
    }

    /// As [`Checkpoint::load`] for the tensors that are `wanted` by our names; all others are checked, not read.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn load_some(&self, config: &ModelConfig, wanted: impl Fn(&str) -> bool) -> Result<Weights> {
        self.check(config)?;
        self.read_some(config, wanted)
    }

    /// Whether the files hold the model's tensors and no others.
    ///
    /// # Errors
    /// As [`Checkpoint::load`], but for numbers, which are not looked at.
    pub fn check(&self, config: &ModelConfig) -> Result<()> {
        let origin = &self.shards[0].origin;
        let audit = self.audit(config)?;
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

    /// The tensors that are `wanted` by our names, of a checkpoint that was checked.
    ///
    /// # Errors
    /// Names the file and the tensor that cannot be read, or holds what is not a number.
    pub(super) fn read_some(&self, config: &ModelConfig, wanted: impl Fn(&str) -> bool) -> Result<Weights> {
        let tensors = self.tensors()?;
        let read = |(name, shape): (String, Vec<usize>)| -> Result<(String, Tensor)> {
            let (source, found) = locate(&tensors, config, &name, &shape);
            let (found, tensor) = found.with_context(|| format!("tensor {} is not there any more", source.name))?;
            let values = match source.slab {
                None => tensor.values(),
                Some(slab) => tensor.slab(slab),
            };
            let values = values.with_context(|| format!("{}: tensor {found}", tensor.origin()))?;
            Ok((name, Tensor::from_vec(pick(values, &source, &shape), shape, &Device::Cpu)?))
        };
        let wanted = config.tensors().into_iter().filter(|(name, _)| wanted(name));
        let weights = wanted.map(read).collect::<Result<Vec<_>>>()?;
        Ok(Weights::new(weights, &self.shards[0].origin))
    }

    /// Whether rows of a matrix can be read without the others: GGUF packs numbers in blocks.
    pub(super) fn has_rows(&self) -> bool {
        self.shards.iter().all(|shard| shard.as_gguf().is_none())
    }

    /// Rows of the embedding or the output head, by our name, one range after the other.
    ///
    /// # Errors
    /// As [`Checkpoint::read_some`].
    pub(super) fn rows(
        &self,
        config: &ModelConfig,
        name: &str,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<Vec<f32>> {
        let tensors = self.tensors()?;
        let (found, tensor) = stored(&tensors, &source(config, name, &[config.vocab, config.width]).name)?;
        let mut rows = Vec::new();
        for range in ranges {
            let values = tensor.rows(range).with_context(|| format!("{}: tensor {found}", tensor.origin()))?;
            rows.extend(values);
        }
        Ok(rows)
    }
}

/// A tensor of the files and its name.
type Found<'a, 'b> = (&'a str, &'a Stored<'b>);

/// Where the files have the tensor that we call `name`, or should have it.
fn locate<'a, 'b>(
    tensors: &'a BTreeMap<String, Stored<'b>>,
    config: &ModelConfig,
    name: &str,
    shape: &[usize],
) -> (Source, Option<Found<'a, 'b>>) {
    let usual = source(config, name, shape);
    if let Some(found) = find(tensors, &usual.name) {
        return (usual, Some(found));
    }
    let other = source_in_memory(config, name, shape);
    match other.and_then(|other| find(tensors, &other.name).map(|found| (other, found))) {
        Some((other, found)) => (other, Some(found)),
        None => (usual, None),
    }
}

/// The tensor of that name, or of the other one that it may have.
fn find<'a, 'b>(tensors: &'a BTreeMap<String, Stored<'b>>, name: &str) -> Option<Found<'a, 'b>> {
    let found = tensors.get_key_value(name).or_else(|| tensors.get_key_value(other_name(name)?.as_str()))?;
    Some((found.0.as_str(), found.1))
}

/// As [`find`], of a tensor that was there when the checkpoint was checked.
fn stored<'a, 'b>(tensors: &'a BTreeMap<String, Stored<'b>>, name: &str) -> Result<(&'a str, &'a Stored<'b>)> {
    find(tensors, name).with_context(|| format!("tensor {name} is missing"))
}

/// Our tensor of `shape` from the one in the file, or from its slab.
fn pick(values: Vec<f32>, source: &Source, shape: &[usize]) -> Vec<f32> {
    let stored = if source.slab.is_some() { &source.shape[1..] } else { &source.shape[..] };
    let values = if source.transposed { transpose(&values, stored[0], stored[1]) } else { values };
    let row: usize = shape[1..].iter().product();
    match source.rows {
        Rows::All => values,
        Rows::From { start } => values[start * row..(start + shape[0]) * row].to_vec(),
        Rows::Of { block, start, take } => {
            values.chunks_exact(block * row).flat_map(|b| &b[start * row..(start + take) * row]).copied().collect()
        }
    }
}

/// (rows, columns) -> (columns, rows).
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; values.len()];
    for (r, row) in values.chunks_exact(columns).enumerate() {
        row.iter().enumerate().for_each(|(c, &x)| transposed[c * rows + r] = x);
    }
    transposed
}

/// The `weight_map` of an index: tensor to file, every file a plain name beside the index.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = files::text(path, files::TOKENIZER_MAX)?;
    let index: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{}: not JSON", path.display()))?;
    let map = index.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.with_context(|| format!("{}: weight_map is missing", path.display()))?;
    ensure!(!map.is_empty(), "{}: weight_map is empty", path.display());
    let entry = |(tensor, file): (&String, &serde_json::Value)| {
        let file = file.as_str().map(Cow::Borrowed);
        let file = file.with_context(|| format!("{}: the file of {tensor} is not a string", path.display()))?;
        let mut parts = Path::new(&*file).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        ensure!(
            plain && !file.contains(['/', '\\']),
            "{}: names the file {file:?}; files of a model lie beside its index",
            path.display()
        );
        Ok((tensor.clone(), file.into_owned()))
    };
    map.iter().map(entry).collect()
}
