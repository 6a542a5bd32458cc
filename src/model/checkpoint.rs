//! The weights of a Hugging Face folder: one safetensors file or several with an index, mapped into memory and read
//! tensor by tensor. Strict: every tensor of the model, of the expected shape, and none besides.

use super::names::{is_not_a_weight, source, Rows, Source, PREFIXES};
use super::{ModelConfig, Weights};
use crate::hash::sha256;
use anyhow::{bail, ensure, Context, Result};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Component, Path};

/// File name of the weights in a model folder.
pub const TENSOR_FILE: &str = "model.safetensors";

/// File name of the index of weights in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Weights on disk, or built in.
pub struct Checkpoint {
    shards: Vec<Shard>,
}

struct Shard {
    /// Path of the file, or what stands for it.
    origin: String,
    bytes: Bytes,
}

enum Bytes {
    Mapped(Mmap),
    BuiltIn(&'static [u8]),
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
        let (single, index) = (dir.join(TENSOR_FILE), dir.join(INDEX_FILE));
        if single.exists() {
            return Self::of(vec![Shard::map(&single)?]);
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
            Shard::map(&path)
        });
        let checkpoint = Self::of(shards.collect::<Result<_>>()?)?;
        let tensors = checkpoint.tensors()?;
        for (name, file) in &map {
            let found = tensors.get(name.as_str()).is_some_and(|(origin, _)| Path::new(origin).ends_with(file));
            ensure!(found, "{}: tensor {name} is not in {file}, where the index has it", index.display());
        }
        Ok(checkpoint)
    }

    /// Weights that are part of the binary; `origin` is what errors call them.
    ///
    /// # Errors
    /// If they are not a whole safetensors file.
    pub fn built_in(bytes: &'static [u8], origin: &str) -> Result<Self> {
        Self::of(vec![Shard { origin: origin.to_owned(), bytes: Bytes::BuiltIn(bytes) }])
    }

    fn of(shards: Vec<Shard>) -> Result<Self> {
        let checkpoint = Self { shards };
        checkpoint.tensors()?;
        Ok(checkpoint)
    }

    /// Size of the files, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes().len() as u64).sum()
    }

    /// SHA-256 of the file; of several, of their hashes in the order of their names.
    pub fn sha256(&self) -> String {
        match self.shards.as_slice() {
            [shard] => sha256(shard.bytes()),
            shards => sha256(shards.iter().map(|shard| sha256(shard.bytes())).collect::<String>().as_bytes()),
        }
    }

    /// Every tensor with the file it is in.
    fn tensors(&self) -> Result<BTreeMap<String, (&str, TensorView<'_>)>> {
        let mut all = BTreeMap::new();
        for shard in &self.shards {
            for (name, view) in shard.parse()?.tensors() {
                if let Some((other, _)) = all.insert(name.clone(), (shard.origin.as_str(), view)) {
                    bail!("tensor {name} is in {other} and in {}", shard.origin);
                }
            }
        }
        Ok(all)
    }

    /// The number types of the weights, in words: `bf16`, `f16 and f32`.
    ///
    /// # Errors
    /// If a file changed since it was opened.
    pub fn dtypes(&self) -> Result<String> {
        let of = |(_, view): &(&str, TensorView<'_>)| format!("{:?}", view.dtype()).to_lowercase();
        let names: BTreeSet<String> = self.tensors()?.values().map(of).collect();
        Ok(names.into_iter().collect::<Vec<_>>().join(" and "))
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
            let source = source(config, &name, &shape);
            let Some((found, (origin, view))) = find(&tensors, &source.name) else {
                audit.missing.push((source.name, source.shape));
                continue;
            };
            if view.shape() != source.shape && used.insert(found) {
                audit.misfits.push(format!(
                    "{origin}: tensor {found} has shape {:?}, expected {:?}",
                    view.shape(),
                    source.shape
                ));
            } else if !matches!(view.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) && used.insert(found) {
                audit.misfits.push(format!(
                    "{origin}: tensor {found} holds {:?}, which is not supported; f32, f16 and bf16 are",
                    view.dtype()
                ));
            }
            used.insert(found);
        }
        audit.missing.dedup();
        let unused = tensors.iter().filter(|(name, _)| !used.contains(name.as_str()) && !is_not_a_weight(name, config));
        audit.unused = unused.map(|(name, (_, view))| (name.clone(), view.shape().to_vec())).collect();
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
        let tensors = self.tensors()?;
        let read = |(name, shape): (String, Vec<usize>)| -> Result<(String, Tensor)> {
            let source = source(config, &name, &shape);
            let (found, (origin, view)) = find(&tensors, &source.name).expect("the audit has found it");
            let values = decode(view).with_context(|| format!("{origin}: tensor {found}"))?;
            Ok((name, Tensor::from_vec(pick(values, &source, &shape), shape, &Device::Cpu)?))
        };
        let wanted = config.tensors().into_iter().filter(|(name, _)| wanted(name));
        let weights = wanted.map(read).collect::<Result<Vec<_>>>()?;
        Ok(Weights::new(weights, origin))
    }
}

/// The tensor of that name, or without the prefix that bare models lack.
fn find<'a, 'b>(
    tensors: &'a BTreeMap<String, (&'b str, TensorView<'b>)>,
    name: &str,
) -> Option<(&'a str, &'a (&'b str, TensorView<'b>))> {
    let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let found = tensors.get_key_value(name).or_else(|| tensors.get_key_value(bare?))?;
    Some((found.0.as_str(), found.1))
}

/// The numbers of a tensor as `f32`.
fn decode(view: &TensorView<'_>) -> Result<Vec<f32>> {
    let data = view.data();
    let pairs = || data.chunks_exact(2).map(|b| [b[0], b[1]]);
    let values: Vec<f32> = match view.dtype() {
        Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Dtype::F16 => pairs().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
        Dtype::BF16 => pairs().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
        other => bail!("holds {other:?}, which is not supported"),
    };
    let broken = values.iter().filter(|x| !x.is_finite()).count();
    ensure!(broken == 0, "holds {broken} numbers that are NaN or infinite");
    Ok(values)
}

/// Our tensor of `shape` from the one in the file.
fn pick(values: Vec<f32>, source: &Source, shape: &[usize]) -> Vec<f32> {
    let values = if source.transposed { transpose(&values, source.shape[0], source.shape[1]) } else { values };
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

impl Shard {
    fn map(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        // SAFETY: the map is only read. That nobody shortens the file meanwhile is as far as we can go: every reader of
        // mapped weights relies on it.
        let map = unsafe { Mmap::map(&file) }.with_context(cannot)?;
        Ok(Self { origin: path.display().to_string(), bytes: Bytes::Mapped(map) })
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::BuiltIn(bytes) => bytes,
        }
    }

    fn parse(&self) -> Result<SafeTensors<'_>> {
        let bytes = self.bytes();
        SafeTensors::deserialize(bytes)
            .with_context(|| format!("{}: not a complete safetensors file ({} bytes)", self.origin, bytes.len()))
    }
}

/// The `weight_map` of an index: tensor to file, every file a plain name beside the index.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
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
