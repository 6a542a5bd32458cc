//! Rotary scaling, from all fields and tensors that llama.cpp reads.

use super::{Gguf, DIVISORS, LONG_DIVISORS, SHORT_DIVISORS};
use crate::model::rotary::{RopeScaling, Rotary};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

impl Gguf {
    /// Adds `rope_theta` and `rope_scaling`. `partial` if RoPE may rotate a part of a head.
    pub(super) fn add_rope(&self, config: &mut Value, partial: bool) -> Result<()> {
        config["rope_theta"] = json!(self.own_number("rope.freq_base")?.unwrap_or(10_000.0));
        config["rotary_emb_base"] = config["rope_theta"].clone();
        config["rope_scaling"] = match self.rope_scaling()? {
            // The family requires the field.
            Value::Null if self.architecture()? == "gpt-oss" => json!({"rope_type": "default"}),
            scaling => scaling,
        };
        // `conventions` sets the number of rotated channels.
        let head_dim = config["head_dim"].as_u64().unwrap_or_default();
        let channels = self.own_whole("rope.dimension_count")?.unwrap_or(head_dim);
        ensure!(
            channels == head_dim || (partial && channels < head_dim),
            "{} is {channels}; only {head_dim}, the width of a head, is supported",
            self.named("rope.dimension_count")
        );
        if partial {
            // Half a channel more, so that the product with the width is not rounded down to one less.
            let part = if channels == head_dim { 1.0 } else { (channels as f64 + 0.5) / head_dim as f64 };
            config["partial_rotary_factor"] = json!(part);
            config["rotary_pct"] = json!(part);
        }
        Ok(())
    }

    /// Rotary scaling as a `config.json` has it. As in llama.cpp, a factor without a type is linear and may have its old name.
    fn rope_scaling(&self) -> Result<Value> {
        let type_field = self.named("rope.scaling.type");
        let kind = self.text(&type_field)?.unwrap_or("linear");
        let (factor, older) = (self.own_number("rope.scaling.factor")?, self.own_number("rope.scale_linear")?);
        // 0 means no factor.
        let factor = factor.or(older).filter(|&factor| factor != 0.0);
        let amplitude = self.own_number("rope.scaling.attn_factor")?.unwrap_or(1.0)
            * self.own_number("rope.scaling.yarn_attn_factor")?.unwrap_or(1.0);
        let original = self.own_whole("rope.scaling.original_context_length")?;
        let ext = self.own_number("rope.scaling.yarn_ext_factor")?.filter(|&ext| ext >= 0.0);
        let fast = self.own_number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0);
        let slow = self.own_number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
        if self.has(SHORT_DIVISORS) || self.has(LONG_DIVISORS) {
            return Ok(Value::Null); // `conventions` reads the tensors
        }
        if matches!(kind, "none" | "linear") {
            for (field, is_off) in [("attn_factor", amplitude == 1.0), ("yarn_ext_factor", ext.unwrap_or(0.0) == 0.0)] {
                let field = self.named(&format!("rope.scaling.{field}"));
                ensure!(is_off, "{field} with {kind} scaling is not supported");
            }
        }
        Ok(match (kind, factor) {
            ("none", _) | ("linear", None | Some(1.0)) => Value::Null,
            ("linear", Some(factor)) => json!({"rope_type": kind, "factor": factor}),
            ("yarn", factor) => {
                let ext_field = self.named("rope.scaling.yarn_ext_factor");
                ensure!(ext.unwrap_or(1.0) == 1.0, "{ext_field} is not supported; only 1 is");
                let factor = factor.unwrap_or(1.0);
                let logarithm = if factor > 1.0 { 1.0 + 0.1 * factor.ln() } else { 1.0 };
                let mut scaling = json!({
                    "rope_type": kind, "factor": factor, "attention_factor": amplitude * logarithm,
                    "beta_fast": fast, "beta_slow": slow,
                });
                if let Some(original) = original {
                    scaling["original_max_position_embeddings"] = json!(original);
                }
                scaling
            }
            ("longrope", _) => bail!("tensor {SHORT_DIVISORS} is missing, which {type_field} longrope needs"),
            (other, _) => bail!("{type_field} \"{other}\" is not supported; none, linear, yarn and longrope are"),
        })
    }

    /// Adds the tensors that divide frequencies to the first embedding.
    pub(super) fn add_divisors(&self, embeddings: &mut [Rotary]) -> Result<()> {
        let pairs = embeddings[0].channels / 2;
        let (all, short) = (self.divisors(DIVISORS, pairs)?, self.divisors(SHORT_DIVISORS, pairs)?);
        let scaling = match (all, short, self.divisors(LONG_DIVISORS, pairs)?) {
            (None, None, None) => return Ok(()),
            (Some(by), None, None) => RopeScaling::Divided { by },
            (None, Some(short), Some(long)) => {
                let original = self.own_whole("rope.scaling.original_context_length")?.filter(|&original| original > 0);
                let original = original.or(self.own_whole("context_length")?).unwrap_or_default();
                let amplitude = self.own_number("rope.scaling.attn_factor")?.unwrap_or(1.0);
                RopeScaling::LongRope { short, long, original_ctx_tok: original as usize, amplitude }
            }
            (Some(_), ..) => bail!("{DIVISORS} and divisors of longrope are both there"),
            _ => bail!("of {SHORT_DIVISORS} and {LONG_DIVISORS} one is missing"),
        };
        ensure!(
            embeddings[0].scaling == RopeScaling::None,
            "rope.scaling and tensors that divide frequencies are both there"
        );
        embeddings[0].scaling = scaling;
        Ok(())
    }

    /// The numbers of a tensor of divisors, one for each of `pairs` frequencies; `None` without the tensor.
    fn divisors(&self, name: &str, pairs: usize) -> Result<Option<Vec<f64>>> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let by = tensor.values().with_context(|| name.to_owned())?;
        ensure!(by.len() == pairs, "{name} has {} numbers for {pairs} frequencies", by.len());
        Ok(Some(by.into_iter().map(f64::from).collect()))
    }
}
