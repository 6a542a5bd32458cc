//! Names of the model's tensors in the files of each family. This crate's names are Llama's where Llama has the tensor.

use super::config::{Family, ModelConfig, NormPlace, ResidualLayout};
use super::gguf::is_of_rope;
use crate::attention::Gate;

/// Names of the embedding, the output head, and the prefix of layers.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const HEAD: &str = "lm_head.weight";
/// The norm of the embeddings, in families that have one.
pub(super) const EMBEDDING_NORM: &str = "model.embed_norm";
pub(super) const LAYERS: &str = "model.layers.";

/// Place of a tensor in a family's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileTensor {
    /// Name in the file.
    pub(super) name: String,
    /// Shape in the file.
    pub(super) shape: Vec<usize>,
    /// Index in the first dimension, where one tensor holds all experts.
    pub(super) slab: Option<usize>,
    /// Whether it (or its slab) is stored transposed, as (input, output) (GPT-2).
    pub(super) transposed: bool,
    /// Rows that belong to it, after transposing.
    pub(super) rows: StoredRows,
}

/// Rows of a fused tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredRows {
    /// All rows.
    All,
    /// Consecutive rows from `start`.
    From {
        /// First row.
        start: usize,
    },
    /// `take` rows from `start` of every `block` rows (GPT-NeoX: q, k and v of each head in turn).
    Of {
        /// Rows in a block.
        block: usize,
        /// First row in each block.
        start: usize,
        /// Number of rows in each block.
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

/// Tensor names of a family.
struct FamilyNames {
    /// Prefix of the layer number.
    layers: &'static str,
    /// Names outside of layers.
    outside: &'static [Renamed],
    /// Names of norms within a layer that differ from those in `within`.
    norms: &'static [Renamed],
    /// Names within a layer, with `#` for a number.
    within: &'static [Renamed],
    /// Tensors of a layer that hold several of the model's.
    fused: &'static [FusedTensor],
    /// Whether matrices of layers are stored as (input, output).
    transposed: bool,
}

/// This crate's name and the family's, of a tensor or of a module with weight and bias.
type Renamed = (&'static str, &'static str);

/// One tensor that holds several of the model's.
struct FusedTensor {
    name: &'static str,
    /// The tensors it holds, in the order of rows.
    parts: &'static [&'static str],
    /// Whether the parts alternate by groups of heads that share keys and values instead of following each other.
    by_group: bool,
}

const LLAMA: FamilyNames =
    FamilyNames { layers: "model.layers", outside: &[], norms: &[], within: &[], fused: &[], transposed: false };
const QKV: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

const PHI3: FamilyNames = FamilyNames {
    fused: &[
        FusedTensor { name: "self_attn.qkv_proj", parts: QKV, by_group: false },
        FusedTensor { name: "mlp.gate_up_proj", parts: &["mlp.gate_proj", "mlp.up_proj"], by_group: false },
    ],
    ..LLAMA
};

const GPT2: FamilyNames = FamilyNames {
    layers: "transformer.h",
    outside: &[
        ("model.embed_tokens", "transformer.wte"),
        ("model.embed_positions", "transformer.wpe"),
        ("model.norm", "transformer.ln_f"),
    ],
    norms: &[],
    within: &[
        ("self_attn.o_proj", "attn.c_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
    ],
    fused: &[FusedTensor { name: "attn.c_attn", parts: QKV, by_group: false }],
    transposed: true,
};

const GPT_NEOX: FamilyNames = FamilyNames {
    layers: "gpt_neox.layers",
    outside: &[
        ("model.embed_tokens", "gpt_neox.embed_in"),
        ("model.norm", "gpt_neox.final_layer_norm"),
        ("lm_head", "embed_out"),
    ],
    norms: &[],
    within: &[
        ("self_attn.o_proj", "attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[FusedTensor { name: "attention.query_key_value", parts: QKV, by_group: true }],
    transposed: false,
};

const GPT_NEO: FamilyNames = FamilyNames {
    within: &[
        ("self_attn.q_proj", "attn.attention.q_proj"),
        ("self_attn.k_proj", "attn.attention.k_proj"),
        ("self_attn.v_proj", "attn.attention.v_proj"),
        ("self_attn.o_proj", "attn.attention.out_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
    ],
    fused: &[],
    transposed: false,
    ..GPT2
};

const GPT_J: FamilyNames = FamilyNames {
    within: &[
        ("self_attn.q_proj", "attn.q_proj"),
        ("self_attn.k_proj", "attn.k_proj"),
        ("self_attn.v_proj", "attn.v_proj"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "mlp.fc_in"),
        ("mlp.down_proj", "mlp.fc_out"),
        ("input_layernorm", "ln_1"),
    ],
    ..GPT_NEO
};

const BLOOM: FamilyNames = FamilyNames {
    layers: "transformer.h",
    outside: &[
        ("model.embed_tokens", "transformer.word_embeddings"),
        ("model.embed_norm", "transformer.word_embeddings_layernorm"),
        ("model.norm", "transformer.ln_f"),
    ],
    norms: &[],
    within: &[
        ("self_attn.o_proj", "self_attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[FusedTensor { name: "self_attention.query_key_value", parts: QKV, by_group: true }],
    transposed: false,
};

/// Falcon 40B, which has a norm each for attention and MLP. Others have the names of BLOOM.
const FALCON_TWO_NORMS: FamilyNames =
    FamilyNames { norms: &[("input_layernorm", "ln_attn"), ("post_attention_layernorm", "ln_mlp")], ..BLOOM };

const MPT: FamilyNames = FamilyNames {
    layers: "transformer.blocks",
    outside: &[("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.norm_f")],
    norms: &[],
    within: &[
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "ffn.up_proj"),
        ("mlp.down_proj", "ffn.down_proj"),
        ("input_layernorm", "norm_1"),
        ("post_attention_layernorm", "norm_2"),
    ],
    fused: &[FusedTensor { name: "attn.Wqkv", parts: QKV, by_group: false }],
    transposed: false,
};

const GLM4: FamilyNames = FamilyNames {
    norms: &[
        ("post_attention_layernorm", "post_self_attn_layernorm"),
        ("pre_feedforward_layernorm", "post_attention_layernorm"),
        ("post_feedforward_layernorm", "post_mlp_layernorm"),
    ],
    fused: &[FusedTensor { name: "mlp.gate_up_proj", parts: &["mlp.gate_proj", "mlp.up_proj"], by_group: false }],
    ..LLAMA
};

const OPT: FamilyNames = FamilyNames {
    layers: "model.decoder.layers",
    outside: &[
        ("model.embed_tokens", "model.decoder.embed_tokens"),
        ("model.embed_positions", "model.decoder.embed_positions"),
        ("model.norm", "model.decoder.final_layer_norm"),
    ],
    within: &[
        ("self_attn.o_proj", "self_attn.out_proj"),
        ("mlp.up_proj", "fc1"),
        ("mlp.down_proj", "fc2"),
        ("input_layernorm", "self_attn_layer_norm"),
        ("post_attention_layernorm", "final_layer_norm"),
    ],
    ..LLAMA
};

const PHI: FamilyNames = FamilyNames {
    outside: &[("model.norm", "model.final_layernorm")],
    within: &[
        ("self_attn.o_proj", "self_attn.dense"),
        ("self_attn.q_norm", "self_attn.q_layernorm"),
        ("self_attn.k_norm", "self_attn.k_layernorm"),
        ("mlp.up_proj", "mlp.fc1"),
        ("mlp.down_proj", "mlp.fc2"),
    ],
    ..LLAMA
};

const STABLELM: FamilyNames = FamilyNames {
    within: &[
        ("self_attn.q_norm.#", "self_attn.q_layernorm.norms.#"),
        ("self_attn.k_norm.#", "self_attn.k_layernorm.norms.#"),
    ],
    ..LLAMA
};

const STARCODER2: FamilyNames =
    FamilyNames { within: &[("mlp.up_proj", "mlp.c_fc"), ("mlp.down_proj", "mlp.c_proj")], ..LLAMA };

const MIXTRAL: FamilyNames = FamilyNames {
    within: &[
        ("mlp.gate", "block_sparse_moe.gate"),
        ("mlp.experts.#.gate_proj", "block_sparse_moe.experts.#.w1"),
        ("mlp.experts.#.down_proj", "block_sparse_moe.experts.#.w2"),
        ("mlp.experts.#.up_proj", "block_sparse_moe.experts.#.w3"),
    ],
    ..LLAMA
};

const GPT_OSS: FamilyNames = FamilyNames { within: &[("mlp.gate", "mlp.router")], ..LLAMA };

const DIFF_MLX: FamilyNames = FamilyNames {
    layers: "model.blocks",
    outside: &[("model.embed_tokens", "model.tok_embed"), ("model.norm.weight", "model.final_norm.scale")],
    within: &[
        ("input_layernorm.weight", "norm_attn.scale"),
        ("post_attention_layernorm.weight", "norm_mlp.scale"),
        ("self_attn.q_proj", "attn.q_proj"),
        ("self_attn.k_proj", "attn.k_proj"),
        ("self_attn.v_proj", "attn.v_proj"),
        ("self_attn.o_proj", "attn.o_proj"),
        ("self_attn.subln.weight", "attn.subln.scale"),
        ("self_attn.lambda_q1", "attn.lambda_q1"),
        ("self_attn.lambda_k1", "attn.lambda_k1"),
        ("self_attn.lambda_q2", "attn.lambda_q2"),
        ("self_attn.lambda_k2", "attn.lambda_k2"),
        ("mlp.gate_proj", "mlp.gate"),
        ("mlp.up_proj", "mlp.up"),
        ("mlp.down_proj", "mlp.down"),
    ],
    ..LLAMA
};

const GGUF: FamilyNames = FamilyNames {
    layers: "blk",
    outside: &[
        ("model.embed_tokens", "token_embd"),
        ("model.embed_positions", "position_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
    ],
    within: &[
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.sinks", "attn_sinks.weight"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("mlp.gate", "ffn_gate_inp"),
        ("mlp.experts.#.gate_proj", "ffn_gate.#"),
        ("mlp.experts.#.up_proj", "ffn_up.#"),
        ("mlp.experts.#.down_proj", "ffn_down.#"),
        ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
        ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
        ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ],
    ..LLAMA
};

/// GGUF names with norms after attention and MLP (Gemma, OLMo 2).
const GGUF_AFTER: FamilyNames = FamilyNames {
    norms: &[
        ("post_attention_layernorm", "post_attention_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
    ],
    ..GGUF
};

/// GGUF names of Falcon 40B.
const GGUF_FALCON: FamilyNames =
    FamilyNames { norms: &[("input_layernorm", "attn_norm_2"), ("post_attention_layernorm", "attn_norm")], ..GGUF };

/// The same where attention or the MLP has fused projections.
const GGUF_FUSED: FamilyNames = FamilyNames {
    // gpt-oss calls it as others call the norm after attention.
    norms: &[("post_attention_layernorm", "post_attention_norm")],
    fused: &[
        FusedTensor { name: "attn_qkv", parts: QKV, by_group: false },
        FusedTensor { name: "ffn_up", parts: &["mlp.gate_proj", "mlp.up_proj"], by_group: false },
    ],
    ..GGUF
};

impl Family {
    /// The names in files of a model. Some depend on its norms.
    fn names(self, config: &ModelConfig) -> &'static FamilyNames {
        let (place, parallel) = (config.norm_place, config.residual == ResidualLayout::Parallel);
        match self {
            Self::Llama | Self::GatedQwen3 | Self::Cohere => &LLAMA,
            Self::GptNeo => &GPT_NEO,
            Self::GptJ => &GPT_J,
            Self::Falcon if parallel => &FALCON_TWO_NORMS,
            Self::Falcon | Self::Bloom => &BLOOM,
            Self::Mpt => &MPT,
            Self::Glm4 => &GLM4,
            Self::Phi3 => &PHI3,
            Self::Gpt2 => &GPT2,
            Self::GptNeox => &GPT_NEOX,
            Self::Opt => &OPT,
            Self::Phi => &PHI,
            Self::StableLm => &STABLELM,
            Self::Starcoder2 => &STARCODER2,
            Self::Mixtral => &MIXTRAL,
            Self::GptOss => &GPT_OSS,
            Self::DiffMlx => &DIFF_MLX,
            Self::Gguf if parallel && config.model_type == "falcon" => &GGUF_FALCON,
            Self::Gguf if place == NormPlace::Before => &GGUF,
            Self::Gguf => &GGUF_AFTER,
        }
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

/// Returns whether a tensor in a file is not a weight of the model: a buffer saved by older versions of transformers,
/// the copy of a tied embedding, an image or audio part of a multimodal model, or optimiser state.
pub(super) fn is_not_a_weight(name: &str, config: &ModelConfig) -> bool {
    let buffer = [".rotary_emb.inv_freq", ".attn.masked_bias", ".attention.masked_bias"];
    let of_family = match config.family {
        Family::Gpt2 | Family::GptJ => name.ends_with(".attn.bias"),
        Family::GptNeo => name.ends_with(".attn.attention.bias"),
        Family::GptNeox => name.ends_with(".attention.bias"),
        Family::DiffMlx => name.starts_with("opt."),
        Family::Gguf => is_of_rope(name),
        _ => false,
    };
    let head = file_tensor(config, HEAD, &[config.vocab, config.width]).name;
    let copy = config.tied && (name == head || other_name(&head).is_some_and(|other| name == other));
    let other = config.wrapped && OTHER_PARTS.iter().any(|part| name.starts_with(part));
    of_family || copy || other || buffer.iter().any(|end| name.ends_with(end))
}

/// Place of the tensor called `name`, of `shape`, in the family's files.
pub(super) fn file_tensor(config: &ModelConfig, name: &str, shape: &[usize]) -> FileTensor {
    let names = config.family.names(config);
    let Some((layer, rest)) = in_layer(name) else {
        return of_model(config, FileTensor::whole(renamed(&[names.outside], name), shape));
    };
    let own = match config.family {
        Family::GatedQwen3 => query_or_gate(config, rest, shape),
        Family::Cohere => norm_of_all_heads(config, rest, shape),
        _ => None,
    };
    if let Some(source) = own {
        return of_model(config, FileTensor { name: format!("{}.{layer}.{}", names.layers, source.name), ..source });
    }
    let expert = (config.family == Family::GptOss).then(|| rest.strip_prefix("mlp.experts.")).flatten();
    let source = match expert {
        Some(of_expert) => all_experts(config, of_expert, shape),
        None => within(config, names, rest, shape),
    };
    of_model(config, FileTensor { name: format!("{}.{layer}.{}", names.layers, source.name), ..source })
}

/// Where else the same may be found: the tied matrix under its other name, or where the files of some models of the family have
/// it.
pub(super) fn other_file_tensor(config: &ModelConfig, name: &str, shape: &[usize]) -> Option<FileTensor> {
    if config.tied && name == EMBEDDING {
        return Some(file_tensor(config, HEAD, shape));
    }
    let (layer, rest) = in_layer(name)?;
    let other = match config.family {
        Family::Gguf => in_gguf(config, rest, shape),
        _ => in_memory(config, rest, shape),
    }?;
    let layers = config.family.names(config).layers;
    Some(of_model(config, FileTensor { name: format!("{layers}.{layer}.{}", other.name), ..other }))
}

/// Where transformers 5 has it in memory, and in files that it saves so (`save_original_format=False`): all experts of a layer in
/// one tensor, and Mixtral under the names of the others. Nothing for tensors that it keeps as they are.
fn in_memory(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    config.experts.filter(|_| config.family != Family::GptOss)?;
    match rest.strip_prefix("mlp.experts.") {
        Some(of_expert) => Some(all_experts(config, of_expert, shape)),
        None => Some(FileTensor::whole(rest.starts_with("mlp.gate.").then_some(rest)?, shape)),
    }
}

/// Where GGUF files of some architectures have it: in a fused projection, or in one tensor of all experts or heads.
fn in_gguf(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let all = |name: String, of: usize, index: &str| {
        let whole: Vec<usize> = std::iter::once(of).chain(shape.iter().copied()).collect();
        Some(FileTensor { slab: index.parse().ok(), ..FileTensor::whole(name, &whole) })
    };
    if let Some((expert, of_expert)) = rest.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        let (of, kind) = split_last(of_expert);
        return all(format!("ffn_{}_exps.{kind}", of.strip_suffix("_proj")?), config.experts?.count, expert);
    }
    for (norm, theirs, width) in [
        ("self_attn.q_norm.", "attn_q_norm", config.query_heads()),
        ("self_attn.k_norm.", "attn_k_norm", config.key_heads()),
    ] {
        if let Some((head, kind)) = rest.strip_prefix(norm).and_then(|rest| rest.split_once('.')) {
            return all(format!("{theirs}.{kind}"), width, head);
        }
    }
    Some(within(config, &GGUF_FUSED, rest, shape))
}

/// Splits a name into the number of the layer and the name within it.
fn in_layer(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(LAYERS)?.split_once('.')
}

fn of_model(config: &ModelConfig, mut source: FileTensor) -> FileTensor {
    if config.wrapped {
        source.name.insert_str(0, TEXT_PART);
    }
    source
}

/// Place of a tensor of a layer, with its name below the layer.
fn within(config: &ModelConfig, names: &FamilyNames, rest: &str, shape: &[usize]) -> FileTensor {
    let (of, kind) = split_last(rest);
    let fused = names.fused.iter().find_map(|fused| Some((fused, fused.parts.iter().position(|&part| part == of)?)));
    let source = match fused {
        None => FileTensor::whole(renamed(&[names.norms, names.within], rest), shape),
        Some((fused, part)) => fused_rows(config, fused, part, kind, shape),
    };
    if names.transposed {
        source.transposed()
    } else {
        source
    }
}

fn fused_rows(config: &ModelConfig, fused: &FusedTensor, part: usize, kind: &str, shape: &[usize]) -> FileTensor {
    let rows_of = |part: &str| match part {
        "self_attn.q_proj" => config.query_heads() * config.head_dim,
        "self_attn.k_proj" => config.key_heads() * config.head_dim,
        "self_attn.v_proj" => config.kv_heads * config.head_dim,
        _ => config.ffn,
    };
    let rows: Vec<usize> = fused.parts.iter().map(|part| rows_of(part)).collect();
    let mut whole = shape.to_vec();
    whole[0] = rows.iter().sum();
    let rows = match fused.by_group {
        false => StoredRows::From { start: rows[..part].iter().sum() },
        true => {
            let of_group = rows.iter().map(|rows| rows / config.kv_heads);
            let start = of_group.clone().take(part).sum();
            StoredRows::Of { block: of_group.sum(), start, take: rows[part] / config.kv_heads }
        }
    };
    FileTensor { rows, ..FileTensor::whole(format!("{}.{kind}", fused.name), &whole) }
}

/// Place of the norm of one head in a tensor that holds those of all. Nothing for other tensors.
fn norm_of_all_heads(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let (norm, rest) = rest.split_once("_norm.")?;
    let (head, kind) = rest.split_once('.')?;
    let heads = if norm == "self_attn.q" { config.query_heads() } else { config.key_heads() };
    let whole = FileTensor::whole(format!("{norm}_norm.{kind}"), &[heads, shape[0]]);
    Some(FileTensor { slab: Some(head.parse().ok()?), ..whole })
}

/// Place of queries and their gate in `q_proj`, which has the query rows of each group of key heads and then their gate's
/// (arXiv 2505.06708). Nothing for other tensors.
fn query_or_gate(config: &ModelConfig, rest: &str, shape: &[usize]) -> Option<FileTensor> {
    let gate = match config.variant.gate {
        Gate::None => return None,
        Gate::Head => config.heads,
        Gate::Channel => config.heads * config.head_dim,
    };
    let queries = config.heads * config.head_dim;
    let (query_rows, gate_rows) = (queries / config.kv_heads, gate / config.kv_heads);
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
    let gpt_oss = config.family == Family::GptOss;
    let mut whole = shape.to_vec();
    let mut rows = StoredRows::All;
    if let Some(half) = half {
        whole[0] *= 2;
        rows = match gpt_oss {
            true => StoredRows::Of { block: 2, start: half, take: 1 },
            false => StoredRows::From { start: half * shape[0] },
        };
    }
    let name = if kind == "bias" { format!("mlp.experts.{name}_bias") } else { format!("mlp.experts.{name}") };
    let source = FileTensor { rows, slab: expert.parse().ok(), ..FileTensor::whole(name, &whole) };
    let mut source = if gpt_oss { source.transposed() } else { source };
    source.shape.insert(0, config.experts.map_or(0, |experts| experts.count));
    source
}

/// The family's name: from the first table that has the whole name or its module, or else the name itself.
fn renamed(tables: &[&[Renamed]], name: &str) -> String {
    let number = name.split('.').find(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let pattern = match number {
        Some(number) => name.replacen(&format!(".{number}."), ".#.", 1),
        None => name.to_owned(),
    };
    let find = |ours: &str| tables.iter().copied().flatten().find(|(name, _)| *name == ours).map(|(_, theirs)| *theirs);
    let (of, kind) = split_last(&pattern);
    let theirs = find(&pattern).map(str::to_owned).or_else(|| Some(format!("{}.{kind}", find(of)?)));
    theirs.unwrap_or(pattern).replace('#', number.unwrap_or_default())
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
        assert_eq!(renamed(&[&table], "mlp.experts.12.up_proj.weight"), "moe.12.w3.weight");
        assert_eq!(renamed(&[&table], "norm.weight"), "norm.scale");
        assert_eq!(renamed(&[&table], "mlp.gate.bias"), "router.bias");
        assert_eq!(renamed(&[&table], "mlp.experts.3.down_proj.weight"), "mlp.experts.3.down_proj.weight");
        assert_eq!(renamed(&[&table], "lambda"), "lambda");
    }
}
