//! Tables of the tensor names of each family.

use super::super::config::{Family, ModelConfig, NormPlace, ResidualLayout};

/// Tensor names of a family.
pub(super) struct FamilyNames {
    /// Prefix of the layer number.
    pub(super) layers: &'static str,
    /// Names outside of layers.
    pub(super) outside: &'static [Renamed],
    /// Names of norms within a layer that differ from those in `within`.
    pub(super) norms: &'static [Renamed],
    /// Names within a layer, with `#` for a number.
    pub(super) within: &'static [Renamed],
    /// Tensors of a layer that hold several of the model's.
    pub(super) fused: &'static [FusedTensor],
    /// Whether matrices of layers are stored as (input, output).
    pub(super) transposed: bool,
}

/// This crate's name and the family's, of a tensor or of a module with weight and bias.
pub(super) type Renamed = (&'static str, &'static str);

/// One tensor that holds several of the model's.
pub(super) struct FusedTensor {
    pub(super) name: &'static str,
    /// The tensors it holds, in the order of rows.
    pub(super) parts: &'static [&'static str],
    /// Whether the parts alternate by groups of heads that share keys and values instead of following each other.
    pub(super) by_group: bool,
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
    within: &[
        ("self_attn.o_proj", "attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[FusedTensor { name: "attention.query_key_value", parts: QKV, by_group: true }],
    ..LLAMA
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
    within: &[
        ("self_attn.o_proj", "self_attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[FusedTensor { name: "self_attention.query_key_value", parts: QKV, by_group: true }],
    ..LLAMA
};

/// Names of Falcon 40B, with separate norms for attention and MLP. Other Falcon models have the names of BLOOM.
const FALCON_TWO_NORMS: FamilyNames =
    FamilyNames { norms: &[("input_layernorm", "ln_attn"), ("post_attention_layernorm", "ln_mlp")], ..BLOOM };

const MPT: FamilyNames = FamilyNames {
    layers: "transformer.blocks",
    outside: &[("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.norm_f")],
    within: &[
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "ffn.up_proj"),
        ("mlp.down_proj", "ffn.down_proj"),
        ("input_layernorm", "norm_1"),
        ("post_attention_layernorm", "norm_2"),
    ],
    fused: &[FusedTensor { name: "attn.Wqkv", parts: QKV, by_group: false }],
    ..LLAMA
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
        ("model.project_in", "model.decoder.project_in"),
        ("model.project_out", "model.decoder.project_out"),
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

/// Names of OPT 350M, whose norms are of the sum.
const OPT_SUM: FamilyNames = FamilyNames {
    norms: &[("post_attention_layernorm", "self_attn_layer_norm"), ("post_feedforward_layernorm", "final_layer_norm")],
    ..OPT
};

const DEEPSEEK: FamilyNames = FamilyNames {
    within: &[
        ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
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

/// GGUF names where attention or the MLP has fused projections.
pub(super) const GGUF_FUSED: FamilyNames = FamilyNames {
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
    pub(super) fn names(self, config: &ModelConfig) -> &'static FamilyNames {
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
            Self::Opt if place == NormPlace::Sum => &OPT_SUM,
            Self::Opt => &OPT,
            Self::DeepSeek => &DEEPSEEK,
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
