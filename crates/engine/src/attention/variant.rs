//! Attention variants as data: a few choices, read from a `config.json` or a training spec.
//!
//! Which heads read which is in `wiring.rs`, what a layer learns and computes besides in `extras.rs`. Combinations with
//! a name are in `presets.toml`.

use anyhow::{bail, ensure, Context, Result};
use base::bail_usage;
use base::spec_file::one_line;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::{Table, Value};

/// Everything in which attention variants differ. `presets.toml` has those with a name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Softmax maps per output head: 1, or 2, of which the second is subtracted.
    pub maps: usize,
    pub pairing: Pairing,
    pub keys: Keys,
    pub values: ValueWidth,
    /// Output heads that share one second map: 1, or more for Grouped differential attention.
    pub signal_heads: usize,
    pub lambda: Lambda,
    /// Initial or fixed value of lambda, and that of [`Factor::OneMinusLambdaInit`].
    pub lambda_init: LambdaInit,
    /// Initial values of learned lambda vectors and projections. Without effect on a trained model.
    pub lambda_start: LambdaStart,
    pub norm: HeadNorm,
    pub factor: Factor,
    /// Logit without a value, in the denominator of every softmax.
    pub sink: Sink,
    pub gate: Gate,
}

/// Query heads that form a pair, the signal first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// No pairs: one map.
    None,
    /// Heads h and H + h (Hugging Face); with G signal heads on one noise map, h and H + h / G.
    Halves,
    /// Heads 2h and 2h + 1 (Microsoft); with G signal heads on one noise map, G signal heads and then their noise head
    /// (Motif).
    Adjacent,
}

/// Key heads that the maps of output head h read. The group of the head is g = h / (H / groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Both read key head g (DIFF V2; also a single map).
    Shared,
    /// Each map has key heads of its own: g and groups + g, or 2g and 2g + 1 if pairs are adjacent.
    Separate,
    /// Query head a reads key head a / (query heads / key heads), regardless of pairs (`multihead_diffattn.py`).
    InOrder,
    /// The second map reads the key head of the next group. Both maps weigh the values of group g.
    Next,
}

/// Width of an output head's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueWidth {
    /// As wide as queries and keys.
    Single,
    /// Twice as wide.
    Doubled,
}

/// Weight of the second map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lambda {
    /// No weight: one map.
    None,
    /// exp(q1 . k1) - exp(q2 . k2) + lambda_init of four learned vectors, one number per layer (DIFF V1).
    Vectors,
    /// The same, where lambda_init is a tensor of the layer too (axolotl).
    VectorsAndInit,
    /// One learned number per layer.
    Layer,
    /// One learned number per head.
    Head,
    /// sigmoid(x . w) per token and head (DIFF V2).
    TokenSigmoid,
    /// x . w per token and head.
    Token,
    /// lambda_init: nothing is learned.
    Fixed,
}

/// Initial value of lambda: `"depth"`, `"depth-before"` or a number in files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "lambda_init is neither \"depth\" nor \"depth-before\" nor a number")]
pub enum LambdaInit {
    /// 0.8 - 0.6 exp(-0.3 l) for the 0-based layer l (paper section 2.1, `lambda_init_fn`).
    Depth,
    /// 0.8 - 0.6 exp(-0.3 (l - 1)) for the 0-based layer l (Motif).
    DepthBefore,
    /// One value for every layer.
    #[serde(untagged)]
    Constant(f64),
}

impl LambdaInit {
    /// Value in a 0-based layer.
    pub fn of(self, layer: usize) -> f64 {
        match self {
            Self::Depth => 0.8 - 0.6 * (-0.3 * layer as f64).exp(),
            Self::DepthBefore => 0.8 - 0.6 * (-0.3 * (layer as f64 - 1.0)).exp(),
            Self::Constant(number) => number,
        }
    }
}

/// Initial values of learned lambda vectors and projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LambdaStart {
    /// Normal, with deviation 0.1 for vectors and 0.02 for projections.
    Normal,
    /// 0. Vectors then stay 0: the gradient of each factor of a product is the other factor.
    Zero,
}

/// Norm of a head's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadNorm {
    /// No norm.
    None,
    /// RMSNorm over the values of each head.
    Rms,
    /// RMSNorm over the values of each head, with a learned gain that the heads of a layer share.
    RmsGain,
    /// One RMSNorm over all heads, with a learned gain; epsilon is added to the root.
    AllHeads,
}

/// Factor of a head's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// 1.
    One,
    /// 1 - lambda_init.
    OneMinusLambdaInit,
}

/// Logit s without a value, in the denominator of every softmax: exp(x) / (exp(s) + sum exp(x)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sink {
    /// No such logit: rows sum to 1.
    None,
    /// s = 0 ("softmax off by one").
    Zero,
    /// Learned, one per query head (gpt-oss).
    Learned,
}

/// Gate of the output of attention: sigmoid(x W) of the layer's normed input x (arXiv 2505.06708). `false`, `true` or
/// `"head"` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "GateInFile", into = "GateInFile")]
pub enum Gate {
    /// No gate.
    None,
    /// One number per channel.
    Channel,
    /// One number per head.
    Head,
}

/// [`Gate`] in files.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "gate is neither true nor false nor \"head\"")]
enum GateInFile {
    Head,
    #[serde(untagged)]
    Flag(bool),
}

impl From<GateInFile> for Gate {
    fn from(gate: GateInFile) -> Self {
        match gate {
            GateInFile::Flag(false) => Self::None,
            GateInFile::Flag(true) => Self::Channel,
            GateInFile::Head => Self::Head,
        }
    }
}

impl From<Gate> for GateInFile {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::None => Self::Flag(false),
            Gate::Channel => Self::Flag(true),
            Gate::Head => Self::Head,
        }
    }
}

/// A variant in a training spec: a preset, or a preset with other choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VariantName {
    /// Name of a preset.
    Preset(String),
    /// Fields of [`Variant`]. Those left out are as in the preset that the key `preset` names, or in `transformer`.
    Changed(Table),
}

impl VariantName {
    /// The variant itself.
    ///
    /// # Errors
    /// Usage errors if there is no such preset, or a choice is unknown or does not fit the others.
    pub fn resolve(&self) -> Result<Variant> {
        match self {
            Self::Preset(name) => Variant::preset(name),
            Self::Changed(table) => with_changes(table.clone(), Variant::preset),
        }
    }
}

impl From<&str> for VariantName {
    fn from(name: &str) -> Self {
        Self::Preset(name.to_owned())
    }
}

/// The preset that states every choice.
const BASE: &str = "transformer";

impl Variant {
    /// Variants with a name.
    ///
    /// # Panics
    /// If the embedded file is invalid, which a test rules out.
    pub fn presets() -> &'static BTreeMap<String, Self> {
        static PRESETS: OnceLock<BTreeMap<String, Variant>> = OnceLock::new();
        PRESETS.get_or_init(|| read_presets(include_str!("presets.toml")).expect("presets.toml is tested"))
    }

    /// The variant of that name.
    ///
    /// # Errors
    /// A usage error with the names of all presets if there is none.
    pub fn preset(name: &str) -> Result<Self> {
        let Some(variant) = Self::presets().get(name) else {
            let names: Vec<&str> = Self::presets().keys().map(String::as_str).collect();
            bail_usage!("no attention variant is called \"{name}\"; there are {}", names.join(", "));
        };
        Ok(*variant)
    }

    /// Name in tables and records: that of the preset, regardless of the layout and initial values of tensors, or
    /// `custom`.
    pub fn name(&self) -> &'static str {
        let alike = Self::presets().iter().find(|(_, preset)| preset.canonical() == self.canonical());
        alike.map_or("custom", |(name, _)| name)
    }

    /// The variant with those choices set to one value that do not change the family of functions: the layouts of DIFF
    /// V1, and the initial values of lambda.
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

    /// Returns `true` if trained models of both variants compute the same function of the same weights.
    pub fn computes_the_same_as(&self, other: &Self) -> bool {
        Self { lambda_start: other.lambda_start, ..*self } == *other
    }

    /// Checks the choices against each other.
    ///
    /// # Errors
    /// If one does not fit; the message names it.
    pub fn check(&self) -> Result<()> {
        if let LambdaInit::Constant(number) = self.lambda_init {
            ensure!(number.is_finite(), "lambda_init is neither \"depth\" nor \"depth-before\" nor a number");
        }
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
            ensure!(
                matches!(self.keys, Keys::Shared | Keys::Separate),
                "signal_heads above 1 needs keys = \"shared\" or \"separate\""
            );
        }
        if self.keys == Keys::InOrder {
            ensure!(self.values == ValueWidth::Doubled, "keys = \"in-order\" needs values = \"doubled\"");
        }
        ensure!(
            self.lambda != Lambda::VectorsAndInit || self.factor == Factor::One,
            "factor \"one-minus-lambda-init\" needs a lambda_init that is no tensor (lambda = \"vectors-and-init\")"
        );
        Ok(())
    }
}

/// Reads `presets.toml`, whose tables refer to each other in any order.
fn read_presets(text: &str) -> Result<BTreeMap<String, Variant>> {
    let tables: BTreeMap<String, Table> = toml::from_str(text)?;
    fn find(tables: &BTreeMap<String, Table>, name: &str) -> Result<Variant> {
        let table = tables.get(name).with_context(|| format!("no preset {name}"))?.clone();
        if name == BASE {
            return Ok(table.try_into()?);
        }
        ensure!(table.contains_key("preset"), "preset {name} has no key `preset`");
        with_changes(table, |base| find(tables, base))
    }
    tables.keys().map(|name| Ok((name.clone(), find(&tables, name)?))).collect()
}

/// The preset that `table` names, with the other keys of the table in place of its own.
fn with_changes(mut table: Table, preset: impl FnOnce(&str) -> Result<Variant>) -> Result<Variant> {
    let base = match table.remove("preset") {
        None => preset(BASE)?,
        Some(Value::String(name)) => preset(&name)?,
        Some(other) => bail_usage!("preset is {other}, expected a name"),
    };
    let mut whole = Table::try_from(base)?;
    whole.extend(table);
    let variant: Variant = match whole.try_into() {
        Ok(variant) => variant,
        Err(error) => bail_usage!("attention: {}", one_line(&error)),
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
        let own = Variant { gate: Gate::Channel, ..Variant::preset("diff").unwrap() };
        assert_eq!(own.name(), "custom");
    }

    #[test]
    fn lambda_init_follows_the_papers_table() {
        for (layer, want) in [(0, 0.2), (1, 0.3555), (3, 0.5561), (11, 0.7779), (27, 0.7998)] {
            assert!((LambdaInit::Depth.of(layer) - want).abs() < 5e-5, "layer {layer}");
        }
    }

    fn changed(text: &str) -> Result<Variant> {
        VariantName::Changed(text.parse()?).resolve()
    }

    #[test]
    fn a_table_changes_the_choices_of_its_preset() {
        let got = changed("preset = \"diff\"\nlambda = \"token-sigmoid\"\nlambda_init = 0.8").unwrap();
        let diff = Variant::preset("diff").unwrap();
        let want = Variant { lambda: Lambda::TokenSigmoid, lambda_init: LambdaInit::Constant(0.8), ..diff };
        assert_eq!(got, want);
        assert_eq!(changed("sink = \"learned\"").unwrap(), Variant::preset("sink").unwrap());
    }

    #[test]
    fn impossible_choices_are_refused_by_name() {
        for (text, says) in [
            ("preset = \"diff\"\nmaps = 3", "maps is 3"),
            ("maps = 2", "pairing"),
            ("preset = \"diff\"\nmaps = 1", "pairing"),
            ("preset = \"diff\"\nlambda = \"none\"", "lambda"),
            ("preset = \"diff-v2-across\"\nsignal_heads = 2", "signal_heads"),
            ("gate = \"channel\"", "gate"),
            ("preset = \"diff\"\nlambda = \"vectors-and-init\"", "factor"),
            ("preset = \"diff-scalar\"\nkeys = \"in-order\"", "keys"),
            ("preset = \"diff\"\nnorms = \"none\"", "norms"),
            ("preset = \"diff\"\nnorm = \"layer\"", "layer"),
            ("preset = \"diff\"\nlambda_init = \"deep\"", "lambda_init is neither"),
            ("preset = \"diff\"\nlambda_init = nan", "lambda_init is neither"),
            ("preset = \"diff\"\nlambda_init = true", "lambda_init is neither"),
            ("preset = \"diff-v3\"", "diff-v3"),
            ("lambda = \"layer\"", "lambda"),
        ] {
            let error = changed(text).unwrap_err();
            let message = format!("{error:#}");
            assert_eq!(base::error::exit_code(&error), 2, "{message}");
            assert!(message.contains(says) && !message.contains('\n'), "{message}");
        }
    }
}
