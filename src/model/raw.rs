//! Access to the fields of a `config.json`. Errors name the field; implausible numbers are refused.

use super::config::Activation;
use super::rotary::{RopeScaling, Rotary};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{Map, Value};

/// Largest accepted width. Products of three do not overflow.
pub const LARGEST_SIZE: u64 = 1 << 20;
/// Largest accepted number of layers.
pub const MOST_LAYERS: u64 = 10_000;
/// Largest accepted vocabulary or context, in tokens.
pub const MOST_TOKENS: u64 = 1 << 28;

/// The fields of a configuration.
pub(super) struct Raw<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Raw<'a> {
    /// The field, unless it is missing or null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// Returns whether the field exists, even if it is null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn whole(&self, field: &str, most: u64) -> Result<Option<usize>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let n = value.as_u64().with_context(|| format!("{field} is {value}, expected a whole number"))?;
        ensure!(n > 0, "{field} is 0");
        ensure!(n <= most, "{field} is {n}, expected at most {most}");
        Ok(Some(n as usize))
    }

    /// A width or a number of heads.
    pub(super) fn optional_size(&self, field: &str) -> Result<Option<usize>> {
        self.whole(field, LARGEST_SIZE)
    }

    pub(super) fn size(&self, field: &str) -> Result<usize> {
        self.optional_size(field)?.with_context(|| format!("{field} is missing"))
    }

    /// A number of layers.
    pub(super) fn layers(&self, field: &str) -> Result<usize> {
        self.whole(field, MOST_LAYERS)?.with_context(|| format!("{field} is missing"))
    }

    /// A number of tokens: vocabulary, context, window.
    pub(super) fn tokens(&self, field: &str) -> Result<usize> {
        self.optional_tokens(field)?.with_context(|| format!("{field} is missing"))
    }

    pub(super) fn optional_tokens(&self, field: &str) -> Result<Option<usize>> {
        self.whole(field, MOST_TOKENS)
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let x = value.as_f64().with_context(|| format!("{field} is {value}, expected a number"))?;
        ensure!(x.is_finite(), "{field} is {value}, expected a number");
        Ok(Some(x))
    }

    /// A number above 0.
    pub(super) fn positive(&self, field: &str) -> Result<Option<f64>> {
        let x = self.number(field)?;
        ensure!(x.is_none_or(|x| x > 0.0), "{field} is {}, expected more than 0", x.unwrap_or_default());
        Ok(x)
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_bool().map(Some).with_context(|| format!("{field} is {value}, expected true or false"))
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&str>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_str().map(Some).with_context(|| format!("{field} is {value}, expected a string"))
    }

    /// A list.
    pub(super) fn list(&self, field: &str) -> Result<Option<&'a Vec<Value>>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_array().with_context(|| format!("{field} is {value}, expected a list")).map(Some)
    }

    /// A list with one entry per layer.
    pub(super) fn per_layer(&self, field: &str, layers: usize) -> Result<Option<&Vec<Value>>> {
        let Some(list) = self.list(field)? else { return Ok(None) };
        ensure!(list.len() == layers, "{field} has {} entries for {layers} layers", list.len());
        Ok(Some(list))
    }

    /// The fields of an object; `None` if it is missing or null.
    pub(super) fn object(&self, field: &str) -> Result<Option<&'a Map<String, Value>>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_object().with_context(|| format!("{field} is {value}, expected an object")).map(Some)
    }

    /// Fails unless the field is missing, null or the supported value.
    pub(super) fn only(&self, field: &str, supported: Value) -> Result<()> {
        match self.get(field) {
            Some(value) if *value != supported => {
                bail!("{field} {value} is not supported; only {supported} is")
            }
            _ => Ok(()),
        }
    }

    /// Fails if the weights are quantised.
    pub(super) fn unquantised(&self) -> Result<()> {
        let Some(how) = self.get("quantization_config") else { return Ok(()) };
        let method = how["quant_method"].as_str().unwrap_or("other number types").to_uppercase();
        bail!("quantization_config: weights in {method} are not supported; convert them to bf16 or f32 first")
    }

    /// The activation function of the MLP.
    pub(super) fn activation(&self, field: &str, default: Activation) -> Result<Activation> {
        Ok(match self.text(field)? {
            None => default,
            Some("silu" | "swish") => Activation::Silu,
            Some("gelu") => Activation::Gelu,
            Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::GeluTanh,
            Some("relu") => Activation::Relu,
            Some(other) => bail!("{field} \"{other}\" is not supported; silu, gelu, gelu_new and relu are"),
        })
    }

    /// The rotary embedding of heads of `width` channels. transformers 5 writes `rope_parameters`, earlier versions
    /// `rope_theta`, `rope_scaling` and a family-specific field for partial rotation.
    ///
    /// `theta` and the rotated share of `width` are defaults. The share comes with its field in earlier versions; `None`
    /// if all channels are rotated.
    pub(super) fn rotary(&self, width: usize, theta: f64, share: Option<(f64, &str)>) -> Result<Rotary> {
        let found = [("rope_parameters", self.get("rope_parameters")), ("rope_scaling", self.get("rope_scaling"))];
        if let [(_, Some(parameters)), (_, Some(scaling))] = found {
            ensure!(parameters == scaling, "rope_parameters and rope_scaling differ");
        }
        let rope = found.into_iter().find_map(|(field, value)| Some((field, value?)));
        let theta = self.positive("rope_theta")?.or(self.positive("rotary_emb_base")?).unwrap_or(theta);
        let part = match share {
            None => 1.0,
            Some((default, field)) => self.number(field)?.unwrap_or(default),
        };
        let empty = Map::new();
        let (field, rope) = match rope {
            None => ("rope_parameters", &empty),
            Some((field, value)) => {
                let rope = value.as_object().with_context(|| format!("{field} is {value}, expected an object"))?;
                (field, rope)
            }
        };
        let rope = RopeFields { field, raw: Raw(rope) };
        let part = rope.raw.number("partial_rotary_factor")?.unwrap_or(part);
        ensure!(
            part > 0.0 && part <= 1.0 && (part == 1.0 || share.is_some()),
            "a partial_rotary_factor of {part} is not supported by this model_type"
        );
        rope.resolve((width as f64 * part) as usize, theta, self)
    }
}

/// The object that describes one rotary embedding, with the name of its field.
pub(super) struct RopeFields<'a> {
    pub(super) field: &'a str,
    pub(super) raw: Raw<'a>,
}

impl RopeFields<'_> {
    /// Resolves the embedding of `channels` channels. `config` holds the context length.
    pub(super) fn resolve(&self, channels: usize, theta: f64, config: &Raw<'_>) -> Result<Rotary> {
        let scaling = self.scaling(config).with_context(|| self.field.to_owned())?;
        if let RopeScaling::LongRope { short, long, .. } = &scaling {
            for (field, by) in [("short_factor", short), ("long_factor", long)] {
                let (n, pairs) = (by.len(), channels / 2);
                ensure!(n == pairs, "{}: {field} has {n} numbers for {pairs} frequencies", self.field);
            }
        }
        let own = self.raw.positive("rope_theta")?;
        ensure!(
            own.is_none_or(|own| own == theta || !config.has("rope_theta") || self.field.contains('.')),
            "rope_theta is {theta}, but {} in {}",
            own.unwrap_or_default(),
            self.field
        );
        Ok(Rotary { theta: own.unwrap_or(theta), channels, scaling })
    }

    fn scaling(&self, config: &Raw<'_>) -> Result<RopeScaling> {
        let raw = &self.raw;
        let kind = raw.text("rope_type")?.or(raw.text("type")?).unwrap_or("default");
        if kind == "default" {
            return Ok(RopeScaling::None);
        }
        let factor = || raw.positive("factor")?.context("factor is missing");
        let original = || match raw.optional_tokens("original_max_position_embeddings")? {
            Some(n) => Ok(n),
            None => config.tokens("max_position_embeddings"),
        };
        match kind {
            "linear" => Ok(RopeScaling::Linear { factor: factor()? }),
            "llama3" => {
                let (low, high) = (raw.positive("low_freq_factor")?, raw.positive("high_freq_factor")?);
                let (low, high) = low.zip(high).context("low_freq_factor or high_freq_factor is missing")?;
                ensure!(high > low, "high_freq_factor {high} is not above low_freq_factor {low}");
                Ok(RopeScaling::Llama3 { factor: factor()?, low, high, original_ctx_tok: original()? })
            }
            "yarn" => self.yarn(factor()?, original()?),
            // Its older name, of Phi 3.
            "longrope" | "su" => self.longrope(config),
            other => bail!("rope_type \"{other}\" is not supported; default, linear, llama3, yarn and longrope are"),
        }
    }

    /// The factor is that of both contexts, if the configuration has them, before the one that is said.
    fn longrope(&self, config: &Raw<'_>) -> Result<RopeScaling> {
        let longest = config.tokens("max_position_embeddings")?;
        let of_config = config.optional_tokens("original_max_position_embeddings")?;
        let own = self.raw.optional_tokens("original_max_position_embeddings")?;
        let original = of_config.or(own);
        let factor = match original {
            Some(original) => longest as f64 / original as f64,
            None => self.raw.positive("factor")?.context("factor is missing, and original_max_position_embeddings")?,
        };
        let original_ctx_tok = original.unwrap_or(longest);
        let by_formula = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_ctx_tok as f64).ln()).sqrt() };
        let divisors = |field: &str| -> Result<Vec<f64>> {
            let list = self.raw.list(field)?.with_context(|| format!("{field} is missing"))?;
            let divisor = |value: &Value| {
                let by = value.as_f64().filter(|by| by.is_finite() && *by > 0.0);
                by.with_context(|| format!("{field} has {value}, expected numbers above 0"))
            };
            list.iter().map(divisor).collect()
        };
        Ok(RopeScaling::LongRope {
            short: divisors("short_factor")?,
            long: divisors("long_factor")?,
            original_ctx_tok,
            amplitude: self.raw.positive("attention_factor")?.unwrap_or(by_formula),
        })
    }

    fn yarn(&self, factor: f64, original_ctx_tok: usize) -> Result<RopeScaling> {
        let raw = &self.raw;
        let logarithmic = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        let amplitude = match (raw.positive("attention_factor")?, raw.number("mscale")?, raw.number("mscale_all_dim")?)
        {
            (Some(amplitude), ..) => amplitude,
            (None, Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => logarithmic(scale) / logarithmic(all),
            _ => logarithmic(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: raw.positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: raw.positive("beta_slow")?.unwrap_or(1.0),
            original_ctx_tok,
            amplitude,
            truncate: raw.flag("truncate")?.unwrap_or(!raw.has("truncate")), // null is false
        })
    }
}
