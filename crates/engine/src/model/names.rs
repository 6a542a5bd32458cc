//! Names of the model's tensors in the files of each family. This crate's names are Llama's where Llama has the tensor.

use super::config::ModelConfig;
use super::tensor_names::{tensor_names, Joined, TensorNames};
use crate::attention::Gate;
use std::collections::BTreeMap;

/// Names of the embedding, the output head, and the prefix of layers.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const HEAD: &str = "lm_head.weight";
/// Matrices between the embeddings and the residual stream, where their widths differ.
pub(super) const PROJECT_IN: &str = "model.project_in.weight";
pub(super) const PROJECT_OUT: &str = "model.project_out.weight";
/// The norm of the embeddings, in families that have one.
pub(super) const EMBEDDING_NORM: &str = "model.embed_norm";
pub(super) const POSITIONS: &str = "model.embed_positions.weight";
pub(super) const FINAL_NORM: &str = "model.norm";
pub(super) const HEAD_BIAS: &str = "lm_head.bias";
pub(super) const LAYERS: &str = "model.layers.";

/// Place of a tensor in a family's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileTensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// Index in the first dimension, where one tensor holds all experts.
    pub(super) slab: Option<usize>,
    /// `true` if it (or its slab) is stored transposed, as (input, output) (GPT-2).
    pub(super) transposed: bool,
    /// Rows that belong to it, after transposing.
    pub(super) rows: StoredRows,
}

/// Rows of a fused tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredRows {
    All,
    /// Consecutive rows from `start`.
    From {
        start: usize,
    },
    /// `take` rows from `start` of every `block` rows (GPT-NeoX: q, k and v of each head in turn).
    Of {
        block: usize,
        start: usize,
        take: usize,
    },
}

impl FileTensor {
    fn whole(name: impl Into<String>, shape: &[usize]) -> Self {
        Self { name: name.into(), shape: shape.to_vec(), slab: None, transposed: false, rows: StoredRows::All }
    }

    /// Marks a matrix as stored transposed, as (input, output).
    fn transposed(mut self) -> Self {
        self.transposed = self.shape.len() == 2;
        if self.transposed {
            self.shape.reverse();
        }
        self
    }
}

/// Prefix of the tensors of the text part of a multimodal model, as in files on the Hub.
const TEXT_PART: &str = "language_model.";

/// Prefixes of the tensors of the other parts.
const OTHER_PARTS: [&str; 4] =
    ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];

/// The alternative name of a tensor in files: without the prefix that a bare model (without output head) lacks, or as
/// transformers 5 names the text part of a multimodal model.
pub(super) fn other_name(name: &str) -> Option<String> {
    if let Some(text) = name.strip_prefix(TEXT_PART) {
        return Some(match text.strip_prefix("model.") {
            Some(rest) => format!("model.{TEXT_PART}{rest}"),
            None => text.to_owned(),
        });
    }
    ["transformer.", "model.", "gpt_neox."].iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned)
}

/// Returns `true` if a tensor in a file is not a weight of the model: a buffer saved by older versions of transformers,
/// the copy of a tied embedding, an image or audio part of a multimodal model, or optimiser state.
pub(super) fn is_not_a_weight(name: &str, config: &ModelConfig) -> bool {
    if [".rotary_emb.inv_freq", ".attn.masked_bias", ".attention.masked_bias"].iter().any(|end| name.ends_with(end)) {
        return true;
    }
    let ignored = config.names.ignored.iter().any(|part| {
        part == name || part.starts_with('.') && name.ends_with(part) || part.ends_with('.') && name.starts_with(part)
    });
    let layer = in_layer(name).and_then(|(layer, _)| layer.parse::<usize>().ok());
    let is_beyond = config.names.more_layers && layer.is_some_and(|layer| layer >= config.layers.len());
    let head = file_tensor(config, HEAD, &[config.vocab, config.embed_width]).name;
    let is_copy = config.tied && (name == head || other_name(&head).is_some_and(|other| name == other));
    ignored || is_beyond || is_copy || config.wrapped && OTHER_PARTS.iter().any(|part| name.starts_with(part))
}

/// Place of the tensor called `name`, of `shape`, in the family's files.
pub(super) fn file_tensor(config: &ModelConfig, name: &str, shape: &[usize]) -> FileTensor {
    let Some((layer, rest)) = in_layer(name) else {
        return of_model(config, FileTensor::whole(renamed(&config.names.renamed, name), shape));
    };
    let joined = match config.names.joined {
        Joined::Nothing | Joined::AsInGguf => None,
        Joined::QueriesAndGate => query_or_gate(config, rest, shape),
        Joined::HeadNorms => norm_of_all_heads(config, "self_attn.q_norm", "self_attn.k_norm", rest, shape),
        Joined::Experts => rest.strip_prefix("mlp.experts.").map(|of_expert| all_experts(config, of_expert, shape)),
    };
    of_layer(config, layer, joined.unwrap_or_else(|| within(config, config.names, rest, shape)))
}

/// Where else the same may be found: the tied matrix under its other name, or where the files of some models of the family have
/// it.
pub(super) fn other_file_tensor(config: &ModelConfig, name: &str, shape: &[usize]) -> Option<FileTensor> {
    if config.tied && name == EMBEDDING {
        return Some(file_tensor(config, HEAD, shape));
    }
    let (layer, rest) = in_layer(name)?;
    let other = match config.names.joined {
        Joined::AsInGguf => in_gguf(config, rest, shape),
        Joined::Experts => None,
        _ => in_memory(config, rest, shape),
    };
    Some(of_layer(config, layer, other?))
}

/// Returns `true` of queries and keys whose rows [stand in pairs](TensorNames::pairs_of_qk).
pub(super) fn is_in_pairs(config: &ModelConfig, name: &str) -> bool {
    let module = in_layer(name).map(|(_, rest)| split_last(rest).0);
    config.names.pairs_of_qk && matches!(module, Some("self_attn.q_proj" | "self_attn.k_proj"))
}

/// Where transformers 5 has it in memory, and in files that it saves so (`save_original_format=False`): all experts of a layer in
/// one tensor, and Mixtral under the names of the others. Nothing for tensors that it keeps as they are.
fn in_memory(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    config.experts?;
    match rest.strip_prefix("mlp.experts.") {
        Some(of_expert) => Some(all_experts(config, of_expert, shape)),
        None => Some(FileTensor::whole(rest.starts_with("mlp.gate.").then_some(rest)?, shape)),
    }
}

/// Where GGUF files of some architectures have it: in a fused projection, or in one tensor of all experts or heads.
fn in_gguf(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    if let Some((expert, of_expert)) = rest.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        let (of, kind) = split_last(of_expert);
        let whole = [&[config.experts?.count], shape].concat();
        let name = format!("ffn_{}_exps.{kind}", of.strip_suffix("_proj")?);
        return Some(FileTensor { slab: expert.parse().ok(), ..FileTensor::whole(name, &whole) });
    }
    let norm = norm_of_all_heads(config, "attn_q_norm", "attn_k_norm", rest, shape);
    Some(norm.unwrap_or_else(|| within(config, tensor_names("gguf-fused"), rest, shape)))
}

/// Splits a name into the number of the layer and the name within it.
fn in_layer(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(LAYERS)?.split_once('.')
}

/// Completes the name of a tensor of a layer.
fn of_layer(config: &ModelConfig, layer: &str, place: FileTensor) -> FileTensor {
    of_model(config, FileTensor { name: format!("{}.{layer}.{}", config.names.layers, place.name), ..place })
}

/// Completes the name of a tensor of the model.
fn of_model(config: &ModelConfig, mut place: FileTensor) -> FileTensor {
    if config.wrapped {
        place.name.insert_str(0, TEXT_PART);
    }
    place
}

/// Place of a tensor of a layer, with its name below the layer.
fn within(config: &ModelConfig, names: &TensorNames, rest: &str, shape: &[usize]) -> FileTensor {
    let place = in_fused(config, names, rest, shape);
    let place = place.unwrap_or_else(|| FileTensor::whole(renamed(&names.renamed, rest), shape));
    if names.transposed {
        place.transposed()
    } else {
        place
    }
}

/// Place of a projection in one that holds several. `None` for other tensors.
fn in_fused(config: &ModelConfig, names: &TensorNames, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let (module, kind) = split_last(rest);
    let d = config.head_dim;
    let (name, rows, part) = match module {
        "self_attn.q_proj" | "self_attn.k_proj" | "self_attn.v_proj" => {
            let rows = vec![config.query_heads() * d, config.key_heads() * d, config.kv_heads * d];
            let part = ["self_attn.q_proj", "self_attn.k_proj"].iter().position(|&part| part == module);
            (names.fused_qkv.as_ref()?, rows, part.unwrap_or(2))
        }
        "mlp.gate_proj" | "mlp.up_proj" => {
            (names.fused_gate.as_ref()?, vec![config.ffn; 2], usize::from(module == "mlp.up_proj"))
        }
        _ => return None,
    };
    let mut whole = shape.to_vec();
    whole[0] = rows.iter().sum();
    let rows = if names.by_group {
        let group_rows = rows.iter().map(|rows| rows / config.kv_heads);
        let start = group_rows.clone().take(part).sum();
        StoredRows::Of { block: group_rows.sum(), start, take: rows[part] / config.kv_heads }
    } else {
        StoredRows::From { start: rows[..part].iter().sum() }
    };
    Some(FileTensor { rows, ..FileTensor::whole(format!("{name}.{kind}"), &whole) })
}

/// Place of the norm of one head of q or k in a tensor that holds those of all, which the file calls `q` or `k`. `None` for
/// other tensors.
fn norm_of_all_heads(config: &ModelConfig, q: &str, k: &str, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let (norm, rest) = rest.split_once("_norm.")?;
    let (head, kind) = rest.split_once('.')?;
    let (name, heads) = match norm {
        "self_attn.q" => (q, config.query_heads()),
        "self_attn.k" => (k, config.key_heads()),
        _ => return None,
    };
    let whole = FileTensor::whole(format!("{name}.{kind}"), &[heads, shape[0]]);
    Some(FileTensor { slab: Some(head.parse().ok()?), ..whole })
}

/// Place of queries and their gate in `q_proj`, which has the query rows of each group of key heads and then their gate's
/// (arXiv 2505.06708). `None` for other tensors.
fn query_or_gate(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let gate = match config.variant.gate {
        Gate::None => return None,
        Gate::Head => config.heads,
        Gate::Channel => config.heads * config.head_dim,
    };
    let queries = config.heads * config.head_dim;
    let query_rows = queries / config.kv_heads;
    let gate_rows = gate / config.kv_heads;
    let (start, take) = match rest {
        "self_attn.q_proj.weight" => (0, query_rows),
        "self_attn.gate.weight" => (query_rows, gate_rows),
        _ => return None,
    };
    let whole = FileTensor::whole("self_attn.q_proj.weight", &[queries + gate, shape[1]]);
    Some(FileTensor { rows: StoredRows::Of { block: query_rows + gate_rows, start, take }, ..whole })
}

/// Place of an expert in a tensor that holds all of a layer: in gpt-oss (experts, input, output) with alternating rows
/// of gate and up, otherwise (experts, output, input) with gate before up.
fn all_experts(config: &ModelConfig, of_expert: &str, shape: &[usize]) -> FileTensor {
    let (expert, rest) = of_expert.split_once('.').unwrap_or((of_expert, ""));
    let (of, kind) = split_last(rest);
    let (name, half) = match of {
        "gate_proj" => ("gate_up_proj", Some(0)),
        "up_proj" => ("gate_up_proj", Some(1)),
        _ => ("down_proj", None),
    };
    let gpt_oss = config.names.joined == Joined::Experts;
    let mut whole = shape.to_vec();
    let mut rows = StoredRows::All;
    if let Some(half) = half {
        whole[0] *= 2;
        rows = if gpt_oss {
            StoredRows::Of { block: 2, start: half, take: 1 }
        } else {
            StoredRows::From { start: half * shape[0] }
        };
    }
    let name = if kind == "bias" { format!("mlp.experts.{name}_bias") } else { format!("mlp.experts.{name}") };
    let source = FileTensor { rows, slab: expert.parse().ok(), ..FileTensor::whole(name, &whole) };
    let mut source = if gpt_oss { source.transposed() } else { source };
    source.shape.insert(0, config.experts.map_or(0, |experts| experts.count));
    source
}

/// The family's name: that of the whole tensor or of its module, or else the name itself.
fn renamed(names: &BTreeMap<String, String>, name: &str) -> String {
    let number = name.split('.').find(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let pattern = match number {
        Some(number) => name.replacen(&format!(".{number}."), ".#.", 1),
        None => name.to_owned(),
    };
    let (module, kind) = split_last(&pattern);
    let theirs = match (names.get(&pattern), names.get(module)) {
        (Some(theirs), _) => theirs.clone(),
        (None, Some(theirs)) => format!("{theirs}.{kind}"),
        (None, None) => pattern,
    };
    theirs.replace('#', number.unwrap_or_default())
}

/// `self_attn.q_proj.bias` -> (`self_attn.q_proj`, `bias`).
fn split_last(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_tensor_or_module_and_keep_their_number() {
        let table = [("mlp.experts.#.up_proj", "moe.#.w3"), ("norm.weight", "norm.scale"), ("mlp.gate", "router")];
        let table = table.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())).into();
        assert_eq!(renamed(&table, "mlp.experts.12.up_proj.weight"), "moe.12.w3.weight");
        assert_eq!(renamed(&table, "norm.weight"), "norm.scale");
        assert_eq!(renamed(&table, "mlp.gate.bias"), "router.bias");
        assert_eq!(renamed(&table, "mlp.experts.3.down_proj.weight"), "mlp.experts.3.down_proj.weight");
        assert_eq!(renamed(&table, "lambda"), "lambda");
    }
}
