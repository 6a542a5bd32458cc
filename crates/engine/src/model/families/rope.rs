//! Rotary embeddings in a `config.json`. transformers 5 writes `rope_parameters`, earlier versions `rope_theta`,
//! `rope_scaling` and a family-specific field for partial rotation.

use super::super::rotary::{RopeScaling, Rotary};
use super::raw::Raw;
use anyhow::{bail, ensure, Context, Result};
use serde_json::Map;

impl Raw<'_> {
    /// The rotary embedding of heads of `width` channels.
    ///
    /// The base and the rotated share of `width` come with their fields in earlier versions and with their defaults. The
    /// share is `None` if all channels are rotated.
    pub(super) fn rotary(
        &self,
        width: usize,
        (theta_field, theta): (&str, f64),
        share: Option<(f64, &str)>,
    ) -> Result<Rotary> {
        let field = self.first_of("rope_parameters|rope_scaling")?;
        let theta = self.positive_or(theta_field, theta)?;
        let part = match share {
            None => 1.0,
            Some((default, field)) => self.number_or(field, default)?,
        };
        let empty = Map::new();
        let rope = RopeFields { field, raw: Raw(self.object(field)?.unwrap_or(&empty)) };
        let part = rope.raw.number_or("partial_rotary_factor", part)?;
        ensure!(
            part > 0.0 && part <= 1.0 && (part == 1.0 || share.is_some()),
            "a partial_rotary_factor of {part} is not supported by this model_type"
        );
        let rotary = rope.resolve((width as f64 * part) as usize, theta, self)?;
        // transformers stops at sizes that do not fit.
        let outside = self.number("partial_rotary_factor")?.filter(|outside| *outside != part);
        ensure!(
            outside.is_none() || rotary.scaling == RopeScaling::None,
            "partial_rotary_factor beside a scaled {field} is not supported by this model_type"
        );
        Ok(rotary)
    }

    /// Rotary embeddings of full-attention layers and of sliding-window layers, with default bases.
    pub(super) fn rotary_by_kind(&self, width: usize, full_theta: f64, sliding_theta: f64) -> Result<[Rotary; 2]> {
        let empty = Map::new();
        let scaling = self.object("rope_scaling")?;
        Raw(scaling.unwrap_or(&empty)).without_objects("rope_scaling", &[])?;
        let mut full = None;
        let mut sliding = None;
        if let Some(nested) = self.object("rope_parameters")?.map(Raw) {
            full = Some(nested.object("full_attention")?.context("rope_parameters has no full_attention")?);
            sliding = Some(nested.object("sliding_attention")?.context("rope_parameters has no sliding_attention")?);
            nested.without_objects("rope_parameters", &["full_attention", "sliding_attention"])?;
        }
        let of_full = full.or(scaling).unwrap_or(&empty);
        let resolved = RopeFields { field: "rope_parameters.full_attention", raw: Raw(of_full) }
            .resolve(width, full_theta, self)?;
        if let (Some(_), Some(scaling)) = (full, scaling) {
            let other = RopeFields { field: "rope_scaling", raw: Raw(scaling) }.resolve(width, resolved.theta, self)?;
            ensure!(other == resolved, "rope_parameters.full_attention and rope_scaling differ");
        }
        let sliding = RopeFields { field: "rope_parameters.sliding_attention", raw: Raw(sliding.unwrap_or(&empty)) };
        Ok([resolved, sliding.resolve(width, sliding_theta, self)?])
    }

    /// Checks that no field of `place` but the known ones holds an object, which would describe the embedding of some layers.
    fn without_objects(&self, place: &str, known: &[&str]) -> Result<()> {
        let unknown = self.0.iter().find(|(name, value)| value.is_object() && !known.contains(&name.as_str()));
        let Some((name, _)) = unknown else { return Ok(()) };
        bail!("{place} has `{name}`, an embedding for some of the layers, which is not supported in this model_type")
    }
}

/// The object that describes one rotary embedding, with the name of its field.
struct RopeFields<'a> {
    field: &'a str,
    raw: Raw<'a>,
}

impl RopeFields<'_> {
    /// Resolves the embedding of `channels` channels. `config` holds the context length.
    fn resolve(&self, channels: usize, theta: f64, config: &Raw<'_>) -> Result<Rotary> {
        self.raw.without_objects(self.field, &[])?;
        let scaling = self.scaling(config).with_context(|| self.field.to_owned())?;
        if let RopeScaling::LongRope { short, long, .. } = &scaling {
            for (field, by) in [("short_factor", short), ("long_factor", long)] {
                let n = by.len();
                let pairs = channels / 2;
                ensure!(n == pairs, "{}: {field} has {n} numbers for {pairs} frequencies", self.field);
            }
        }
        let own_theta = self.raw.positive_or("rope_theta", theta)?;
        ensure!(
            own_theta == theta || !config.has("rope_theta") || self.field.contains('.'),
            "rope_theta is {theta}, but {own_theta} in {}",
            self.field
        );
        Ok(Rotary { theta: own_theta, channels, scaling })
    }

    fn scaling(&self, config: &Raw<'_>) -> Result<RopeScaling> {
        let raw = &self.raw;
        let kind = raw.text("rope_type")?.or(raw.text("type")?);
        match kind.map_or_else(|| raw.default("rope_type", "default"), Ok)? {
            "default" => Ok(RopeScaling::None),
            // Changes the base only beyond max_position_embeddings, which no prompt exceeds.
            "dynamic" => self.factor().map(|_| RopeScaling::None),
            "linear" => match self.factor()? {
                1.0 => Ok(RopeScaling::None),
                factor => Ok(RopeScaling::Linear { factor }),
            },
            "llama3" => {
                let low = raw.positive("low_freq_factor")?;
                let high = raw.positive("high_freq_factor")?;
                let (low, high) = low.zip(high).context("low_freq_factor or high_freq_factor is missing")?;
                ensure!(high > low, "high_freq_factor {high} is not above low_freq_factor {low}");
                let factor = self.factor()?;
                Ok(RopeScaling::Llama3 { factor, low, high, original_ctx_tok: self.original_ctx_tok(config)? })
            }
            "yarn" => self.yarn(self.factor()?, self.original_ctx_tok(config)?),
            // Its older name, of Phi 3.
            "longrope" | "su" => self.longrope(config),
            other => {
                bail!("rope_type \"{other}\" is not supported; default, linear, dynamic, llama3, yarn and longrope are")
            }
        }
    }

    fn factor(&self) -> Result<f64> {
        self.raw.positive("factor")?.context("factor is missing")
    }

    /// The context length before it was extended. Where it stands beside the description of the embedding too, that one counts, as in
    /// transformers.
    fn original_ctx_tok(&self, config: &Raw<'_>) -> Result<usize> {
        const FIELD: &str = "original_max_position_embeddings";
        ensure!(!config.0.get(FIELD).is_some_and(serde_json::Value::is_null), "{FIELD} beside {} is null", self.field);
        match config.optional_tokens(FIELD)?.or(self.raw.optional_tokens(FIELD)?) {
            Some(n) => Ok(n),
            None => self.raw.default("original_max_position_embeddings", config.tokens("max_position_embeddings")?),
        }
    }

    /// The factor is that of both contexts, if the configuration has them, before the one that is said.
    fn longrope(&self, config: &Raw<'_>) -> Result<RopeScaling> {
        let longest = config.tokens("max_position_embeddings")?;
        let config_ctx = config.optional_tokens("original_max_position_embeddings")?;
        let own_ctx = self.raw.optional_tokens("original_max_position_embeddings")?;
        let original = config_ctx.or(own_ctx);
        let factor = match original {
            Some(original) => longest as f64 / original as f64,
            None => self.raw.positive("factor")?.context("factor is missing, and original_max_position_embeddings")?,
        };
        let original_ctx_tok = original.unwrap_or(longest);
        let by_formula = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_ctx_tok as f64).ln()).sqrt() };
        Ok(RopeScaling::LongRope {
            short: self.divisors("short_factor")?,
            long: self.divisors("long_factor")?,
            original_ctx_tok,
            amplitude: self.raw.positive("attention_factor")?.unwrap_or(by_formula),
        })
    }

    fn divisors(&self, field: &str) -> Result<Vec<f64>> {
        let mut divisors = Vec::new();
        for value in self.raw.list(field)?.with_context(|| format!("{field} is missing"))? {
            let by = value.as_f64().filter(|by| by.is_finite() && *by > 0.0);
            divisors.push(by.with_context(|| format!("{field} has {value}, expected numbers above 0"))?);
        }
        Ok(divisors)
    }

    fn yarn(&self, factor: f64, original_ctx_tok: usize) -> Result<RopeScaling> {
        let raw = &self.raw;
        let scale = raw.number("mscale")?;
        let all = raw.number("mscale_all_dim")?;
        let amplitude = match (raw.positive("attention_factor")?, scale, all) {
            (Some(amplitude), ..) => amplitude,
            (None, Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => {
                yarn_amplitude(factor, scale) / yarn_amplitude(factor, all)
            }
            _ => yarn_amplitude(factor, 1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: raw.positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: raw.positive("beta_slow")?.unwrap_or(1.0),
            original_ctx_tok,
            amplitude,
            truncate: raw.flag("truncate", !raw.has("truncate"))?, // null is false
        })
    }
}

/// 0.1 scale ln factor + 1.
pub(in super::super) fn yarn_amplitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * scale * factor.ln() + 1.0
    }
}
