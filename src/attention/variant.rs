//! An attention variant is data: a few choices, read from a `config.json` or a training spec.
//!
//! What each choice means for the heads is in `wiring.rs`, what it computes and learns in `extras.rs`. Combinations that
//! have a name are in `presets.toml`.

use crate::bail_usage;
use crate::spec_file;
use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Everything that makes one attention variant differ from another. See `presets.toml` for those that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Softmax maps of an output head: 1, or 2 of which the second is subtracted.
    pub maps: usize,
    /// Which query heads form a pair.
    pub pairing: Pairing,
    /// Which key heads the maps of a pair read.
    pub keys: Keys,
    /// How wide the values of an output head are.
    pub values: ValueWidth,
    /// Output heads that share one second map: 1, or more for Grouped differential attention.
    pub signal_heads: usize,
    /// The weight of the second map.
    pub lambda: Lambda,
    /// What lambda begins with or is fixed at, and what [`Factor::OneMinusLambdaInit`] takes.
    pub lambda_init: LambdaInit,
    /// How learned lambda vectors and projections start; no matter once a model is trained.
    pub lambda_start: LambdaStart,
    /// The norm of a head's output.
    pub norm: HeadNorm,
    /// What a head's output is multiplied with after its norm.
    pub factor: Factor,
    /// A logit in the denominator of every softmax that no value belongs to.
    pub sink: Sink,
    /// Whether the output of attention is multiplied with sigmoid(x W), channel by channel, before W_O (arXiv 2505.06708).
    pub gate: bool,
}

/// Which query heads form a pair; the first is the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// One map, no pairs.
    None,
    /// Heads h and H + h (Hugging Face); with G signal heads on one noise map, h and H + h / G.
    Halves,
    /// Heads 2h and 2h + 1 (Microsoft).
    Adjacent,
}

/// Which key heads the maps of output head h read. Its group is g = h / (H / groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Both read key head g (DIFF V2; also a single map).
    Shared,
    /// Each map has key heads of its own: g and groups + g, or 2g and 2g + 1 if pairs are adjacent.
    Separate,
    /// Query head a reads key head a / (query heads / key heads), whatever pair it is in (`multihead_diffattn.py`).
    InOrder,
    /// The second map reads the key head of the next group. Both weigh the values of group g.
    Next,
}

/// ValueWidth of an output head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueWidth {
    /// As wide as queries and keys.
    Single,
    /// Twice as wide.
    Doubled,
}

/// The weight of the second map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lambda {
    /// One map.
    None,
    /// exp(q1 . k1) - exp(q2 . k2) + lambda_init of four learned vectors, one number per layer (DIFF V1).
    Vectors,
    /// One learned number per layer.
    Layer,
    /// One learned number per head.
    Head,
    /// sigmoid(x . w) per token and head (DIFF V2).
    TokenSigmoid,
    /// x . w per token and head.
    Token,
    /// lambda_init; nothing is learned.
    Fixed,
}

/// Where lambda begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WordOrNumber", into = "WordOrNumber")]
pub enum LambdaInit {
    /// 0.8 - 0.6 exp(-0.3 l) for the 0-based layer l (paper section 2.1, `lambda_init_fn`).
    Depth,
    /// The same of l - 1: 0.8 - 0.6 exp(-0.3 (l - 1)) (Motif).
    DepthBefore,
    /// The same in every layer.
    Constant(f64),
}

/// `"depth"`, `"depth-before"` or a number, as files say it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "lambda_init is neither \"depth\" nor \"depth-before\" nor a number")]
enum WordOrNumber {
    Word(String),
    Number(f64),
}

impl TryFrom<WordOrNumber> for LambdaInit {
    type Error = String;

    fn try_from(value: WordOrNumber) -> Result<Self, String> {
        match value {
            WordOrNumber::Word(word) if word == "depth" => Ok(Self::Depth),
            WordOrNumber::Word(word) if word == "depth-before" => Ok(Self::DepthBefore),
            WordOrNumber::Number(number) if number.is_finite() => Ok(Self::Constant(number)),
            _ => Err("lambda_init is neither \"depth\" nor \"depth-before\" nor a number".into()),
        }
    }
}

impl From<LambdaInit> for WordOrNumber {
    fn from(init: LambdaInit) -> Self {
        match init {
            LambdaInit::Depth => Self::Word("depth".into()),
            LambdaInit::DepthBefore => Self::Word("depth-before".into()),
            LambdaInit::Constant(number) => Self::Number(number),
        }
    }
}

impl LambdaInit {
    /// Of the 0-based layer.
    pub fn of(self, layer: usize) -> f64 {
        match self {
            Self::Depth => 0.8 - 0.6 * (-0.3 * layer as f64).exp(),
            Self::DepthBefore => 0.8 - 0.6 * (-0.3 * (layer as f64 - 1.0)).exp(),
            Self::Constant(number) => number,
        }
    }
}

/// How learned lambda vectors and projections start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LambdaStart {
    /// Vectors with deviation 0.1, projections with 0.02.
    Normal,
    /// At 0. Vectors then stay there: each product has two factors, and the gradient of one is the other.
    Zero,
}

/// The norm of a head's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadNorm {
    /// None.
    None,
    /// RMSNorm over the values of each head.
    Rms,
    /// The same with a learned gain that all heads of a layer share.
    RmsGain,
    /// One RMSNorm over all heads, with a learned gain; epsilon is added to the root.
    AllHeads,
}

/// What a head's output is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// Nothing.
    One,
    /// 1 - lambda_init.
    OneMinusLambdaInit,
}

/// A logit s in the denominator of every softmax: exp(x) / (exp(s) + sum exp(x)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sink {
    /// None: rows sum to 1.
    None,
    /// s = 0 ("softmax off by one").
    Zero,
    /// Learned, one per query head (gpt-oss).
    Learned,
}

/// How a training spec names a variant: a preset, or a preset and what is different.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VariantName {
    /// The name of a preset.
    Preset(String),
    /// Fields of [`Variant`]; what is not said is as in `preset`, or else in `transformer`.
    Described(Map<String, Value>),
}

impl VariantName {
    /// The whole description.
    ///
    /// # Errors
    /// If no preset has that name, or a choice is unknown or does not fit the others; it is named.
    pub fn resolve(&self) -> Result<Variant> {
        match self {
            Self::Preset(name) => Variant::preset(name),
            Self::Described(table) => resolve(table.clone(), Variant::preset),
        }
    }
}

impl From<&str> for VariantName {
    fn from(name: &str) -> Self {
        Self::Preset(name.to_owned())
    }
}

/// The name of the preset that states every choice.
const BASE: &str = "transformer";

impl Variant {
    /// Variants that have a name.
    ///
    /// # Panics
    /// If the embedded file is wrong, which a test excludes.
    pub fn presets() -> &'static BTreeMap<String, Self> {
        static PRESETS: OnceLock<BTreeMap<String, Variant>> = OnceLock::new();
        PRESETS.get_or_init(|| read_presets(include_str!("presets.toml")).expect("presets.toml is tested"))
    }

    /// The variant of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn preset(name: &str) -> Result<Self> {
        let Some(variant) = Self::presets().get(name) else {
            let names: Vec<&str> = Self::presets().keys().map(String::as_str).collect();
            bail_usage!("no attention variant is called \"{name}\"; there are {}", names.join(", "));
        };
        Ok(*variant)
    }

    /// The name in tables and records: that of the preset, regardless of how its tensors are laid out or started, or
    /// `custom`.
    pub fn name(&self) -> &'static str {
        let found = Self::presets().iter().find(|(_, preset)| preset.canonical() == self.canonical());
        found.map_or("custom", |(name, _)| name)
    }

    /// Without what does not change the family of functions: the layouts of DIFF V1, and how lambda starts.
    fn canonical(&self) -> Self {
        let mut variant = Self { lambda_start: LambdaStart::Normal, ..*self };
        if self.values == ValueWidth::Doubled && self.keys == Keys::InOrder {
            variant.keys = Keys::Separate;
        }
        if variant.keys == Keys::Separate {
            variant.pairing = Pairing::Halves;
        }
        if self.norm == HeadNorm::RmsGain {
            variant.norm = HeadNorm::Rms;
        }
        variant
    }

    /// Whether a model of `other` is also one of this variant once it is trained.
    pub fn computes_the_same_as(&self, other: &Self) -> bool {
        Self { lambda_start: other.lambda_start, ..*self } == *other
    }

    /// Checks the choices against each other.
    ///
    /// # Errors
    /// Names the choice that does not fit.
    pub fn check(&self) -> Result<()> {
        match self.maps {
            1 => self.check_single(),
            2 => self.check_pair(),
            maps => bail!("maps is {maps}; attention of 1 or 2 maps can be computed"),
        }
    }

    fn check_single(&self) -> Result<()> {
        ensure!(self.pairing == Pairing::None, "pairing: one map (maps = 1) has no pairs; give \"none\"");
        ensure!(self.keys == Keys::Shared, "keys: one map (maps = 1) has no second one; give \"shared\"");
        ensure!(self.values == ValueWidth::Single, "values: one map (maps = 1) weighs values once; give \"single\"");
        ensure!(self.signal_heads == 1, "signal_heads is {}, but there is no second map to share", self.signal_heads);
        ensure!(self.lambda == Lambda::None, "lambda: one map (maps = 1) has no weight; give \"none\"");
        ensure!(self.factor == Factor::One, "factor: one map (maps = 1) has no lambda_init; give \"one\"");
        Ok(())
    }

    fn check_pair(&self) -> Result<()> {
        ensure!(self.pairing != Pairing::None, "pairing is \"none\", but there are 2 maps");
        ensure!(self.lambda != Lambda::None, "lambda is \"none\", but there are 2 maps; \"fixed\" learns nothing");
        ensure!(self.signal_heads > 0, "signal_heads is 0");
        if self.signal_heads > 1 {
            ensure!(self.pairing == Pairing::Halves, "signal_heads above 1 needs pairing = \"halves\"");
            ensure!(
                matches!(self.keys, Keys::Shared | Keys::Separate),
                "signal_heads above 1 needs keys = \"shared\" or \"separate\""
            );
        }
        if self.keys == Keys::InOrder {
            ensure!(self.values == ValueWidth::Doubled, "keys = \"in-order\" needs values = \"doubled\"");
        }
        Ok(())
    }
}

/// Every table of `presets.toml`, in whatever order they refer to each other.
fn read_presets(text: &str) -> Result<BTreeMap<String, Variant>> {
    let tables: BTreeMap<String, Map<String, Value>> = spec_file::parse("presets.toml", text, &[])?;
    fn find(tables: &BTreeMap<String, Map<String, Value>>, name: &str) -> Result<Variant> {
        let table = tables.get(name).with_context(|| format!("no preset {name}"))?.clone();
        if name == BASE {
            return Ok(serde_json::from_value(Value::Object(table))?);
        }
        ensure!(table.contains_key("preset"), "preset {name} does not say which one it begins with");
        resolve(table, |base| find(tables, base))
    }
    tables.keys().map(|name| Ok((name.clone(), find(&tables, name)?))).collect()
}

/// The description that `table` makes of the preset it names.
fn resolve(mut table: Map<String, Value>, preset: impl FnOnce(&str) -> Result<Variant>) -> Result<Variant> {
    let base = match table.remove("preset") {
        None => preset(BASE)?,
        Some(Value::String(name)) => preset(&name)?,
        Some(other) => bail_usage!("preset is {other}, expected a name"),
    };
    let mut whole = serde_json::to_value(base)?;
    whole.as_object_mut().context("a variant is a table")?.extend(table);
    let variant: Variant = match serde_json::from_value(whole) {
        Ok(variant) => variant,
        Err(error) => bail_usage!("attention: {error}"),
    };
    if let Err(error) = variant.check() {
        bail_usage!("attention: {error:#}");
    }
    Ok(variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_whole_and_no_two_are_the_same() {
        let presets = read_presets(include_str!("presets.toml")).unwrap();
        for (name, variant) in &presets {
            variant.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            let same = presets.values().filter(|other| *other == variant).count();
            assert_eq!(same, 1, "{name}");
        }
    }

    #[test]
    fn layouts_of_one_variant_share_its_name() {
        for (preset, name) in [
            ("transformer", "transformer"),
            ("diff", "diff"),
            ("diff-microsoft", "diff"),
            ("diff-microsoft-naive", "diff"),
            ("diff-zero-lambda", "diff"),
            ("diff-scalar", "diff-scalar"),
            ("diff-v2-across", "diff-v2-across"),
            ("diff-no-norm", "diff-no-norm"),
        ] {
            assert_eq!(Variant::preset(preset).unwrap().name(), name);
        }
        let own = Variant { gate: true, ..Variant::preset("diff").unwrap() };
        assert_eq!(own.name(), "custom");
    }

    #[test]
    fn lambda_init_follows_the_papers_table() {
        for (layer, want) in [(0, 0.2), (1, 0.3555), (3, 0.5561), (11, 0.7779), (27, 0.7998)] {
            assert!((LambdaInit::Depth.of(layer) - want).abs() < 5e-5, "layer {layer}");
        }
    }

    fn described(text: &str) -> Result<Variant> {
        VariantName::Described(spec_file::parse("x.toml", text, &[])?).resolve()
    }

    #[test]
    fn a_description_changes_its_preset_in_what_it_says() {
        let got = described("preset = \"diff\"\nlambda = \"token-sigmoid\"\nlambda_init = 0.8").unwrap();
        let diff = Variant::preset("diff").unwrap();
        let want = Variant { lambda: Lambda::TokenSigmoid, lambda_init: LambdaInit::Constant(0.8), ..diff };
        assert_eq!(got, want);
        assert_eq!(described("sink = \"learned\"").unwrap(), Variant::preset("sink").unwrap());
    }

    #[test]
    fn choices_that_cannot_be_are_refused_by_name() {
        for (text, says) in [
            ("preset = \"diff\"\nmaps = 3", "maps is 3"),
            ("maps = 2", "pairing"),
            ("preset = \"diff\"\nmaps = 1", "pairing"),
            ("preset = \"diff\"\nlambda = \"none\"", "lambda"),
            ("preset = \"diff-v2\"\nsignal_heads = 2", "signal_heads"),
            ("preset = \"diff-scalar\"\nkeys = \"in-order\"", "keys"),
            ("preset = \"diff\"\nnorms = \"none\"", "norms"),
            ("preset = \"diff\"\nnorm = \"layer\"", "layer"),
            ("preset = \"diff\"\nlambda_init = \"deep\"", "lambda_init is neither"),
            ("preset = \"diff\"\nlambda_init = nan", "nan is not a finite number"),
            ("preset = \"diff\"\nlambda_init = true", "lambda_init is neither"),
            ("preset = \"diff-v3\"", "diff-v3"),
            ("lambda = \"layer\"", "lambda"),
        ] {
            let error = described(text).unwrap_err();
            let message = format!("{error:#}");
            assert_eq!(crate::error::exit_code(&error), 2, "{message}");
            assert!(message.contains(says) && !message.contains('\n'), "{message}");
        }
    }
}
