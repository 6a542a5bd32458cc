//! Where each tensor of the model stands in the files of its family.

use super::config::{Family, ModelConfig};

/// The place of a tensor of ours in a family's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Name in the file.
    pub(super) name: String,
    /// Shape in the file.
    pub(super) shape: Vec<usize>,
    /// Whether it is stored transposed (GPT-2: input x output).
    pub(super) transposed: bool,
    /// Which rows of it, after transposing, are ours.
    pub(super) rows: Rows,
}

/// Rows of a fused tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// All.
    All,
    /// So many from `start` on.
    From {
        /// The first.
        start: usize,
    },
    /// Of every `block` rows those from `start` on, `take` of them (GPT-NeoX: q, k and v of each head in turn).
    Of {
        /// Rows of a block.
        block: usize,
        /// The first of each block.
        start: usize,
        /// How many of each block.
        take: usize,
    },
}

impl Source {
    fn whole(name: impl Into<String>, shape: &[usize]) -> Self {
        Self { name: name.into(), shape: shape.to_vec(), transposed: false, rows: Rows::All }
    }

    /// Rows `start..` of a tensor of `total` rows.
    fn part(name: String, shape: &[usize], start: usize, total: usize) -> Self {
        let mut whole = shape.to_vec();
        whole[0] = total;
        Self { name, shape: whole, transposed: false, rows: Rows::From { start } }
    }

    /// The same, stored as (input, output) if it is a matrix.
    fn transposed(mut self) -> Self {
        self.transposed = self.shape.len() == 2;
        if self.transposed {
            self.shape.reverse();
        }
        self
    }
}

/// Prefixes that files of a bare model (without its output head) lack.
pub(super) const PREFIXES: [&str; 3] = ["transformer.", "model.", "gpt_neox."];

/// Whether a tensor of a file is no weight: buffers that older versions of transformers saved, and the copy of a tied
/// embedding.
pub(super) fn is_not_a_weight(name: &str, config: &ModelConfig) -> bool {
    let buffer = [".rotary_emb.inv_freq", ".attn.masked_bias", ".attention.masked_bias"];
    let mask = match config.family {
        Family::Gpt2 => name.ends_with(".attn.bias"),
        Family::GptNeox => name.ends_with(".attention.bias"),
        _ => false,
    };
    let copy = config.tied && name == source(config, "lm_head.weight", &[config.vocab, config.width]).name;
    mask || copy || buffer.iter().any(|end| name.ends_with(end))
}

/// Where the tensor that we call `name`, of `shape`, is found.
pub(super) fn source(config: &ModelConfig, name: &str, shape: &[usize]) -> Source {
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    match config.family {
        Family::Llama => Source::whole(name, shape),
        Family::Phi3 => match layer {
            Some((layer, rest)) => phi3(config, layer, rest, shape),
            None => Source::whole(name, shape),
        },
        Family::Gpt2 => match layer {
            Some((layer, rest)) => gpt2(config, layer, rest, shape),
            None => Source::whole(
                name.replace("model.embed_tokens", "transformer.wte")
                    .replace("model.embed_positions", "transformer.wpe")
                    .replace("model.norm", "transformer.ln_f"),
                shape,
            ),
        },
        Family::GptNeox => match layer {
            Some((layer, rest)) => gpt_neox(config, layer, rest, shape),
            None => Source::whole(
                name.replace("model.embed_tokens", "gpt_neox.embed_in")
                    .replace("model.norm", "gpt_neox.final_layer_norm")
                    .replace("lm_head", "embed_out"),
                shape,
            ),
        },
        Family::Opt => match layer {
            Some((layer, rest)) => opt(layer, rest, shape),
            None => Source::whole(
                name.replace("model.norm", "model.final_layer_norm").replace("model.", "model.decoder."),
                shape,
            ),
        },
    }
}

/// `self_attn.q_proj.bias` -> (`self_attn.q_proj`, `bias`).
fn split_last(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or((name, ""))
}

fn phi3(config: &ModelConfig, layer: &str, rest: &str, shape: &[usize]) -> Source {
    let (of, kind) = split_last(rest);
    let (q, kv) = (config.query_heads() * config.head_dim, config.kv_heads * config.head_dim);
    let fused =
        |name: &str, start, total| Source::part(format!("model.layers.{layer}.{name}.{kind}"), shape, start, total);
    match of {
        "self_attn.q_proj" => fused("self_attn.qkv_proj", 0, q + 2 * kv),
        "self_attn.k_proj" => fused("self_attn.qkv_proj", q, q + 2 * kv),
        "self_attn.v_proj" => fused("self_attn.qkv_proj", q + kv, q + 2 * kv),
        "mlp.gate_proj" => fused("mlp.gate_up_proj", 0, 2 * config.ffn),
        "mlp.up_proj" => fused("mlp.gate_up_proj", config.ffn, 2 * config.ffn),
        _ => Source::whole(format!("model.layers.{layer}.{rest}"), shape),
    }
}

fn gpt2(config: &ModelConfig, layer: &str, rest: &str, shape: &[usize]) -> Source {
    let (of, kind) = split_last(rest);
    let e = config.width;
    let name = |own: &str| format!("transformer.h.{layer}.{own}.{kind}");
    match of {
        "self_attn.q_proj" => Source::part(name("attn.c_attn"), shape, 0, 3 * e).transposed(),
        "self_attn.k_proj" => Source::part(name("attn.c_attn"), shape, e, 3 * e).transposed(),
        "self_attn.v_proj" => Source::part(name("attn.c_attn"), shape, 2 * e, 3 * e).transposed(),
        "self_attn.o_proj" => Source::whole(name("attn.c_proj"), shape).transposed(),
        "mlp.up_proj" => Source::whole(name("mlp.c_fc"), shape).transposed(),
        "mlp.down_proj" => Source::whole(name("mlp.c_proj"), shape).transposed(),
        "input_layernorm" => Source::whole(name("ln_1"), shape),
        _ => Source::whole(name("ln_2"), shape),
    }
}

fn gpt_neox(config: &ModelConfig, layer: &str, rest: &str, shape: &[usize]) -> Source {
    let (of, kind) = split_last(rest);
    let d = config.head_dim;
    let name = |own: &str| format!("gpt_neox.layers.{layer}.{own}.{kind}");
    let fused = |start: usize| {
        let rows = Rows::Of { block: 3 * d, start: start * d, take: d };
        Source { rows, ..Source::part(name("attention.query_key_value"), shape, 0, 3 * config.width) }
    };
    match of {
        "self_attn.q_proj" => fused(0),
        "self_attn.k_proj" => fused(1),
        "self_attn.v_proj" => fused(2),
        "self_attn.o_proj" => Source::whole(name("attention.dense"), shape),
        "mlp.up_proj" => Source::whole(name("mlp.dense_h_to_4h"), shape),
        "mlp.down_proj" => Source::whole(name("mlp.dense_4h_to_h"), shape),
        norm => Source::whole(name(norm), shape),
    }
}

fn opt(layer: &str, rest: &str, shape: &[usize]) -> Source {
    let (of, kind) = split_last(rest);
    let own = match of {
        "self_attn.o_proj" => "self_attn.out_proj",
        "mlp.up_proj" => "fc1",
        "mlp.down_proj" => "fc2",
        "input_layernorm" => "self_attn_layer_norm",
        "post_attention_layernorm" => "final_layer_norm",
        same => same,
    };
    Source::whole(format!("model.decoder.layers.{layer}.{own}.{kind}"), shape)
}
