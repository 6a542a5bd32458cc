//! `llama-differential` of axolotl's plugin: a Llama model whose attention was made differential.
//!
//! Rows of q and k are doubled, second maps last, and rows of v are unchanged; with `split_heads` heads are paired instead and
//! values joined, as in DiffLlama. lambda_init is a tensor, and no factor follows the norm of each head.

use super::super::config::ModelConfig;
use super::super::raw::Raw;
use crate::attention::{Factor, HeadNorm, Lambda, LambdaInit, Variant};
use anyhow::Result;

/// `model_type` of these models.
pub(super) const AXOLOTL: &str = "llama-differential";

/// The attention of the model.
pub(super) fn variant(raw: &Raw<'_>) -> Result<Variant> {
    let split = raw.flag("split_heads")?.unwrap_or(false);
    let normed = raw.flag("sublayer_norm")?.unwrap_or(true);
    Ok(Variant {
        lambda: Lambda::VectorsAndInit,
        lambda_init: LambdaInit::Depth,
        norm: if normed { HeadNorm::RmsGain } else { HeadNorm::None },
        factor: Factor::One,
        ..Variant::preset(if split { "diff" } else { "diff-scalar" }).expect("both are presets")
    })
}

impl ModelConfig {
    pub(super) fn with_axolotl(self, raw: &Raw<'_>) -> Result<Self> {
        self.check_head_dim(raw)?;
        Ok(Self { head_norm_eps: Some(self.norm_eps), ..self })
    }
}
