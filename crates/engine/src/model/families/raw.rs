//! Access to the fields of a `config.json`. Errors name the field; implausible numbers are refused.

use super::super::config::Activation;
use anyhow::{bail, ensure, Context, Result};
use names::values::MOST_TOKENS;
use serde_json::{Map, Value};

/// Largest accepted width. Products of three do not overflow.
pub const LARGEST_SIZE: u64 = 1 << 20;
/// Largest accepted number of layers.
pub const MOST_LAYERS: u64 = 10_000;

/// Checks a size or number of things against the largest that is plausible.
pub(crate) fn plausible(field: &str, n: u64, most: u64) -> Result<usize> {
    ensure!(n > 0, "{field} is 0");
    ensure!(n <= most, "{field} is {n}, expected at most {most}");
    Ok(n as usize)
}

/// The fields of a configuration. A field that is null counts as missing, except in [`Raw::has`], and no field has the empty
/// name, which stands for none in `families.toml`.
pub(super) struct Raw<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Raw<'a> {
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null() && !field.is_empty())
    }

    /// Returns `true` if the field exists, even if it is null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field) && !field.is_empty()
    }

    /// The first of several spellings of a field (`n_embed|hidden_size`) that the configuration has, or the last. Those that it
    /// has must agree.
    pub(super) fn first_of<'f>(&self, spellings: &'f str) -> Result<&'f str> {
        let mut field = spellings.rsplit('|').next().unwrap_or_default();
        for other in spellings.rsplit('|').filter(|other| self.get(other).is_some()) {
            if let (Some(own), Some(value)) = (self.get(field), self.get(other)) {
                ensure!(own == value, "{other} is {value}, but {field}, which means the same, is {own}");
            }
            field = other;
        }
        Ok(field)
    }

    /// The default of a field that is missing. No reference implementation takes null for a default other than null.
    pub(super) fn default<T>(&self, field: &str, default: T) -> Result<T> {
        ensure!(!self.has(field), "{field} is null; give a value, or leave it out for the default");
        Ok(default)
    }

    /// A field that `read` returns `None` for is an error that says what was expected.
    fn typed<T>(&self, field: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        read(value).map(Some).with_context(|| format!("{field} is {value}, expected {expected}"))
    }

    fn whole(&self, field: &str, most: u64) -> Result<Option<usize>> {
        let n = self.typed(field, "a whole number", Value::as_u64)?;
        n.map(|n| plausible(field, n, most)).transpose()
    }

    /// A width or a number of heads.
    pub(super) fn optional_size(&self, field: &str) -> Result<Option<usize>> {
        self.whole(field, LARGEST_SIZE)
    }

    pub(super) fn size_or(&self, field: &str, default: usize) -> Result<usize> {
        self.optional_size(field)?.map_or_else(|| self.default(field, default), Ok)
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
        self.typed(field, "a number", |value| value.as_f64().filter(|x| x.is_finite()))
    }

    pub(super) fn number_or(&self, field: &str, default: f64) -> Result<f64> {
        self.number(field)?.map_or_else(|| self.default(field, default), Ok)
    }

    /// A number above 0.
    pub(super) fn positive(&self, field: &str) -> Result<Option<f64>> {
        let x = self.number(field)?;
        ensure!(x.is_none_or(|x| x > 0.0), "{field} is {}, expected more than 0", x.unwrap_or_default());
        Ok(x)
    }

    pub(super) fn positive_or(&self, field: &str, default: f64) -> Result<f64> {
        self.positive(field)?.map_or_else(|| self.default(field, default), Ok)
    }

    /// Null is false, unless the default is true.
    pub(super) fn flag(&self, field: &str, default: bool) -> Result<bool> {
        match self.typed(field, "true or false", Value::as_bool)? {
            Some(flag) => Ok(flag),
            None if default => self.default(field, true),
            None => Ok(false),
        }
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>> {
        self.typed(field, "a string", Value::as_str)
    }

    pub(super) fn list(&self, field: &str) -> Result<Option<&'a Vec<Value>>> {
        self.typed(field, "a list", Value::as_array)
    }

    /// A list with one entry per layer.
    pub(super) fn per_layer(&self, field: &str, layers: usize) -> Result<Option<&'a Vec<Value>>> {
        let Some(list) = self.list(field)? else { return Ok(None) };
        ensure!(list.len() == layers, "{field} has {} entries for {layers} layers", list.len());
        Ok(Some(list))
    }

    /// A list of 0-based layers; empty if the field is missing.
    pub(super) fn layer_list(&self, field: &str) -> Result<Vec<usize>> {
        let mut layers = Vec::new();
        for value in self.list(field)?.into_iter().flatten() {
            let layer =
                value.as_u64().with_context(|| format!("{field} has {value}, expected the index of a layer"))?;
            layers.push(layer as usize);
        }
        Ok(layers)
    }

    pub(super) fn object(&self, field: &str) -> Result<Option<&'a Map<String, Value>>> {
        self.typed(field, "an object", Value::as_object)
    }

    /// Fails unless the field is missing or the supported value. Null is false.
    pub(super) fn only(&self, field: &str, supported: impl Into<Value>) -> Result<()> {
        let supported = supported.into();
        match self.0.get(field) {
            Some(Value::Null) if supported == Value::Bool(false) => Ok(()),
            Some(value) if *value != supported => bail!("{field} {value} is not supported; only {supported} is"),
            _ => Ok(()),
        }
    }

    /// Fails unless tokens see only those before them. No class has the field, but the masks of all models read it.
    pub(super) fn causal(&self) -> Result<()> {
        ensure!(
            self.flag("is_causal", true)?,
            "is_causal is false: that every token sees those after it is not supported"
        );
        Ok(())
    }

    /// Fails if the weights are quantised, as by transformers, MLX (`quantization`) or earlier versions of compressed-tensors.
    pub(super) fn unquantised(&self) -> Result<()> {
        for field in ["quantization_config", "quantization", "compression_config"] {
            let Some(how) = self.get(field) else { continue };
            let method = match (how["quant_method"].as_str(), how["bits"].as_u64()) {
                (Some(method), _) => method.to_uppercase(),
                (None, Some(bits)) => format!("{bits} bits"),
                (None, None) => "other number types".to_owned(),
            };
            bail!(
                "{field}: weights in {method} are not supported; convert them to bf16 or f32 first, or take the model in \
                 bf16 or as GGUF"
            );
        }
        Ok(())
    }

    /// The activation function of the MLP.
    pub(super) fn activation(&self, field: &str, default: Activation) -> Result<Activation> {
        Ok(match self.text(field)? {
            None => self.default(field, default)?,
            Some("silu" | "swish") => Activation::Silu,
            Some("gelu") => Activation::Gelu,
            Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::GeluTanh,
            Some("relu") => Activation::Relu,
            Some(other) => bail!("{field} \"{other}\" is not supported; silu, gelu, gelu_new and relu are"),
        })
    }

    /// For each layer whether it has a window, from `layer_types` or else by the rule of the family.
    pub(super) fn sliding(&self, layers: usize, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        let Some(list) = self.per_layer("layer_types", layers)? else {
            return Ok((0..layers).map(rule).collect());
        };
        let mut sliding = Vec::with_capacity(layers);
        for value in list {
            sliding.push(match value.as_str() {
                Some("sliding_attention") => true,
                Some("full_attention") => false,
                _ => bail!("layer_types {value} is not supported; full_attention and sliding_attention are"),
            });
        }
        Ok(sliding)
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
