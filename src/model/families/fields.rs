//! Fields shared by several families.

use super::super::config::DecoderSizes;
use super::super::raw::{Raw, RopeFields};
use super::super::rotary::Rotary;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{Map, Value};

impl Raw<'_> {
    /// The first of two fields that the configuration has, or the second.
    pub(super) fn either<'f>(&self, first: &'f str, second: &'f str) -> &'f str {
        if self.get(first).is_some() {
            first
        } else {
            second
        }
    }

    /// Sizes of families without grouped heads, whose heads share the width. The MLP defaults to four times the width, the
    /// context to `default_ctx`.
    pub(super) fn sizes(
        &self,
        [width, layers, heads, ffn, ctx]: [&str; 5],
        default_ctx: Option<usize>,
    ) -> Result<DecoderSizes> {
        let (heads_field, width_field) = (heads, width);
        let (width, heads) = (self.size(width)?, self.size(heads)?);
        ensure!(width.is_multiple_of(heads), "{heads_field} {heads} does not divide {width_field} {width}");
        Ok(DecoderSizes {
            vocab: self.tokens("vocab_size")?,
            width,
            layers: self.layers(layers)?,
            ffn: self.optional_size(ffn)?.unwrap_or(4 * width),
            heads,
            kv_heads: heads,
            head_dim: width / heads,
            max_ctx_tok: self.optional_tokens(ctx)?.or(default_ctx).with_context(|| format!("{ctx} is missing"))?,
        })
    }

    /// Returns for each layer whether it has a window, from `layer_types` or else by the rule of the family.
    pub(super) fn sliding(&self, layers: usize, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        let Some(list) = self.per_layer("layer_types", layers)? else {
            return Ok((0..layers).map(rule).collect());
        };
        let kind = |value: &Value| match value.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => bail!("layer_types {value} is not supported; full_attention and sliding_attention are"),
        };
        list.iter().map(kind).collect()
    }

    /// Rotary embeddings of full-attention layers and of sliding-window layers, with default bases.
    pub(super) fn rotary_by_kind(&self, width: usize, full_theta: f64, sliding_theta: f64) -> Result<Vec<Rotary>> {
        let empty = Map::new();
        let (scaling, nested) = (self.object("rope_scaling")?, self.object("rope_parameters")?.map(Raw));
        let of = |kind: &str| -> Result<Option<&Map<String, Value>>> {
            let Some(nested) = &nested else { return Ok(None) };
            nested.object(kind)?.with_context(|| format!("rope_parameters has no {kind}")).map(Some)
        };
        let nested_full = of("full_attention")?;
        let full =
            RopeFields { field: "rope_parameters.full_attention", raw: Raw(nested_full.or(scaling).unwrap_or(&empty)) };
        let sliding = of("sliding_attention")?.unwrap_or(&empty);
        let sliding = RopeFields { field: "rope_parameters.sliding_attention", raw: Raw(sliding) };
        let resolved = full.resolve(width, full_theta, self)?;
        if let (Some(_), Some(scaling)) = (nested_full, scaling) {
            let other = RopeFields { field: "rope_scaling", raw: Raw(scaling) }.resolve(width, resolved.theta, self)?;
            ensure!(other == resolved, "rope_parameters.full_attention and rope_scaling differ");
        }
        Ok(vec![resolved, sliding.resolve(width, sliding_theta, self)?])
    }

    /// The window of a family that requires one.
    pub(super) fn needed_window(&self, default: usize) -> Result<usize> {
        self.window(Some(default))?.context("sliding_window is null; this model_type needs a window")
    }

    /// The window, `default` if the field is missing, `None` if it is null.
    pub(super) fn window(&self, default: Option<usize>) -> Result<Option<usize>> {
        if self.has("sliding_window") {
            self.optional_tokens("sliding_window")
        } else {
            Ok(default)
        }
    }
}
