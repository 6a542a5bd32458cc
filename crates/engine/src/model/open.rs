//! Models, opened by their name (`open/names.rs`): built-in, a folder in the Hugging Face format or a file of weights in one, a GGUF file, or a model of the
//! Hugging Face Hub.

mod names;

pub use names::{built_in_names, resolve, BY_DEFAULT};

use crate::model::device::{self, DeviceName, Dtype};
use crate::model::families::DIFF_MLX;
use crate::model::hub;
use crate::model::kinds;
use crate::model::{Checkpoint, Gguf, HeadLayout, ModelConfig, Transformer};
use ::names::hint;
use ::names::{ModelInfo, WeightsState};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::files;
use base::hash::sha256;
use base::memory::{available_bytes, check_fits, size_name};
use base::model_files::{ADAPTER_CONFIG, CONFIG, GENERATION_CONFIG, TENSOR_FILE, TOKENIZER, TRAINING};
use base::spec_file::is_default;
use candle_core::DType;
use clap::Args;
use names::{built_in, is_built_in, is_formula, is_hub_name, plain, BuiltIn};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{BosChoice, SpecialTokens, TemplateArg, Tokenizer, TokenizerOptions};

/// A model ready to measure. Cheap to clone.
#[derive(Clone)]
pub struct Model {
    /// Name in the results: that of a built-in model, or the folder or file as given.
    pub name: String,
    /// The network.
    pub transformer: Transformer,
    vocabulary: TokenizerSource,
    eos: EndTokens,
    /// Entry of the manifest.
    pub info: ModelInfo,
}

/// Source of a model's tokenizer.
#[derive(Clone)]
enum TokenizerSource {
    BuiltIn,
    Own(Arc<Tokenizer>),
    /// No tokenizer, with the reason.
    Missing(String),
}

impl TokenizerSource {
    fn of_folder(folder: &Path, options: &LoadOptions, missing: String) -> Result<Self> {
        if !Tokenizer::is_in(folder) {
            return Ok(Self::Missing(missing));
        }
        Ok(Self::Own(Arc::new(Tokenizer::open(folder, &options.tokenizer())?)))
    }

    /// The tokenizer, or an error that says why the model has none.
    fn tokenizer(&self, model: &str) -> Result<&Tokenizer> {
        match self {
            Self::BuiltIn => Ok(Tokenizer::embedded()),
            Self::Own(tokenizer) => Ok(tokenizer),
            Self::Missing(why) => {
                bail!("model {model}: {why}, without it only token ids can be measured (the measure nll with --ids)")
            }
        }
    }
}

impl Model {
    /// The tokenizer that the model was trained with.
    ///
    /// # Errors
    /// If its folder or GGUF file has none that can be read. Such a model can only measure token ids.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.vocabulary.tokenizer(&self.name)
    }

    /// Tokens that end a text: `eos_token_id` of `generation_config.json`, or else of `config.json`, or of the metadata
    /// of a GGUF file.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos.ids
    }

    /// Why no token ends a text, if the files name only tokens outside the vocabulary.
    pub fn lacks_eos(&self) -> Option<&str> {
        self.eos.outside.as_deref().filter(|_| self.eos.ids.is_empty())
    }
}

/// Tokens that end a text.
#[derive(Clone, Default)]
struct EndTokens {
    ids: Vec<u32>,
    /// What the files say, if it has tokens outside the vocabulary.
    outside: Option<String>,
}

impl EndTokens {
    /// Keeps the ids within the vocabulary, which has `vocab` tokens. Others, which no text has, are said with `place`, the file
    /// and its field.
    fn within(vocab: usize, ids: &[u64], place: &str) -> Self {
        let (inside, others): (Vec<u64>, Vec<u64>) = ids.iter().partition(|&&id| id < vocab as u64);
        let outside = format!("{place} is outside the vocabulary, which has ids 0 to {}", vocab - 1);
        Self { ids: inside.into_iter().map(|id| id as u32).collect(), outside: (!others.is_empty()).then_some(outside) }
    }

    /// Reads [`Model::eos_ids`] from the files of a folder or a built-in model. `config` was read from `config_file`.
    fn read(folder: Option<&Path>, (config_file, config): (&str, &Value), vocab: usize) -> Result<Self> {
        let mut sources = Vec::new();
        if let Some(path) = folder.map(|folder| folder.join(GENERATION_CONFIG)).filter(|path| files::is_there(path)) {
            let file = path.display().to_string();
            let json = files::json(&files::bytes(&path, files::CONFIG_MAX)?);
            sources.push((file.clone(), json.with_context(|| format!("{file}: not JSON"))?));
        }
        sources.push((config_file.to_owned(), config.clone()));
        sources.push((format!("{config_file}, text_config"), config["text_config"].clone()));
        let Some((file, json)) = sources.iter().find(|(_, json)| !json["eos_token_id"].is_null()) else {
            return Ok(Self::default());
        };
        let eos = &json["eos_token_id"];
        let ids = eos.as_array().map_or(std::slice::from_ref(eos), Vec::as_slice).iter().map(Value::as_u64);
        let ids: Option<Vec<u64>> = ids.collect();
        let ids =
            ids.with_context(|| format!("{file}: eos_token_id is {eos}, expected a token id or a list of them"))?;
        Ok(Self::within(vocab, &ids, &format!("{file}: eos_token_id {eos}")))
    }
}

/// Choices that the files of a model leave open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Models")]
pub struct LoadOptions {
    /// Layout of the heads, if config.json does not say the right one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, value_name = "LAYOUT", hide_short_help = true)]
    pub layout: Option<HeadLayout>,
    /// Put needle prompts into the model's chat template, with the answer at the beginning of the reply
    #[arg(long, hide_short_help = true)]
    pub chat_template: bool,
    /// A variable of the chat template, as in enable_thinking=false; may be repeated
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long = "template-arg", value_name = "KEY=VALUE", requires = "chat_template", hide_short_help = true)]
    pub template_args: Vec<TemplateArg>,
    /// Begin-of-sequence token of prompts
    #[arg(long, value_enum, value_name = "auto|add|omit", default_value = "auto", hide_short_help = true)]
    pub bos: BosChoice,
    /// Special tokens in texts, such as `<eos>` between documents
    #[serde(skip_serializing_if = "is_default")]
    #[arg(long, value_enum, value_name = "text|parse", default_value = "text", hide_short_help = true)]
    pub special_tokens: SpecialTokens,
    /// Device: `cpu`; in a build for it also `cuda`, `cuda:1`, … or `metal`
    #[serde(skip_serializing_if = "is_default")]
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu, hide_short_help = true)]
    pub device: DeviceName,
    /// Numbers to compute with; on the CPU, f64 is slow, and there is no bf16
    #[serde(skip_serializing_if = "is_default")]
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32, hide_short_help = true)]
    pub dtype: Dtype,
}

impl LoadOptions {
    /// Returns `true` if the kernels compute rather than candle's own ops.
    pub fn has_kernels(&self) -> bool {
        self.device == DeviceName::Cpu && self.dtype == Dtype::F32
    }

    fn tokenizer(&self) -> TokenizerOptions {
        let template_args = self.template_args.clone();
        let special = self.special_tokens;
        TokenizerOptions { chat: self.chat_template, template_args, bos: self.bos, special }
    }
}

/// A model with open files whose weights have not been read.
pub struct OpenedModel {
    /// Name: that of a built-in model, or the folder or file as given.
    pub name: String,
    /// Its folder or file; `None` for a built-in model.
    pub path: Option<PathBuf>,
    /// Description from `config.json` or the metadata of the GGUF file.
    pub config: ModelConfig,
    /// The weights on disk.
    pub checkpoint: Checkpoint,
    vocabulary: TokenizerSource,
    eos: EndTokens,
    config_sha256: String,
    /// The model whose function its training began with, if its configuration says so.
    start: Option<String>,
    options: LoadOptions,
}

/// Opens a built-in model, a GGUF file, or a folder with `config.json`, weights in safetensors and, unless only token ids
/// are measured, `tokenizer.json`. Of several files of weights in a folder, one is named itself.
///
/// # Errors
/// If there is no such model, or a file is missing, incomplete or not supported.
pub fn open(given: &str, options: LoadOptions) -> Result<OpenedModel> {
    let name = plain(given)?;
    device::check(options.device, options.dtype)?;
    if !options.template_args.is_empty() && !options.chat_template {
        bail_usage!("--template-arg sets a variable of the chat template; add --chat-template");
    }
    if let Some(model) = built_in(&name) {
        return open_built_in(name, model, options);
    }
    if is_formula(&name) {
        bail_usage!("model {name}: spreadsheets would read this name as a formula; write ./{name}");
    }
    let path = if hub::is_spec(&name) { hub::resolve(&name)? } else { PathBuf::from(&name) };
    if path.is_dir() || is_weights(&path) && config_of(&path).is_file() {
        return open_folder(name, path, options, false);
    }
    if kinds::is_gguf(&path) {
        return open_gguf(name, path, options);
    }
    if path.is_file() {
        bail_usage!("model {name}: {}", kinds::of_file(&path));
    }
    let built_in = built_in_names();
    let hint = match name.as_str() {
        _ if is_hub_name(given) => format!(" (did you mean `hf:{name}`, of the Hub?)"),
        "gpt2" | "gpt2-medium" | "gpt2-large" | "gpt2-xl" => format!(" (did you mean `hf:openai-community/{name}`?)"),
        _ if name.contains(',') => " (of several models, each has a --model of its own)".to_owned(),
        _ => hint(&name, built_in.iter().copied()),
    };
    let built_in = built_in.join(", ");
    bail_usage!("model {name}: there is no such file or folder{hint}; built-in models are {built_in}; names on the Hub begin with hf:, as in hf:org/name")
}

/// As [`open`], to look at a model whose weights need not be there: also a `config.json` by itself, or a folder without weights.
///
/// # Errors
/// As [`open`], but for weights that are not there.
pub fn open_to_inspect(name: &str, options: LoadOptions) -> Result<OpenedModel> {
    let path = Path::new(name);
    if path.is_file() && path.extension().is_some_and(|extension| extension == "json") {
        return open_folder(plain(name)?, path.to_owned(), options, true);
    }
    if path.join(CONFIG).is_file() && !Checkpoint::is_in(path) && !is_built_in(name) {
        return open_folder(plain(name)?, path.to_owned(), options, true);
    }
    open(name, options)
}

fn open_built_in(name: String, model: &BuiltIn, options: LoadOptions) -> Result<OpenedModel> {
    if options.chat_template {
        bail_usage!("--chat-template: the built-in {name} has no chat template");
    }
    if options.bos != BosChoice::Auto {
        bail_usage!("--bos: the prompts of the built-in {name} begin as it was trained; leave --bos out");
    }
    if options.special_tokens != SpecialTokens::Text {
        bail_usage!("--special-tokens: the built-in {name} knows none in texts; leave --special-tokens out");
    }
    OpenedModel::of_config_json(name, None, model.config.as_bytes(), options, |_| {
        let checkpoint = Checkpoint::built_in(model.weights, &format!("built-in {}/{TENSOR_FILE}", model.name))?;
        Ok((checkpoint, TokenizerSource::BuiltIn))
    })
}

/// Returns `true` if a file has weights in safetensors, by its name.
fn is_weights(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "safetensors")
}

/// The folder that has the other files of a model: of a file with weights the one that it is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|_| is_weights(path)).unwrap_or(path)
}

/// The configuration of a folder or of a file with weights; another file is one itself.
fn config_of(path: &Path) -> PathBuf {
    if path.is_file() && !is_weights(path) {
        path.to_owned()
    } else {
        folder_of(path).join(CONFIG)
    }
}

/// A folder in the format of transformers, a file with weights in one, or, without weights, also a `config.json` by itself.
fn open_folder(name: String, path: PathBuf, options: LoadOptions, without_weights: bool) -> Result<OpenedModel> {
    let config = config_of(&path);
    if !files::is_there(&config) {
        bail_usage!("model {name}: {}", kinds::of_folder(&path));
    }
    let config = files::bytes(&config, files::CONFIG_MAX).with_context(|| format!("model {name}"))?;
    OpenedModel::of_config_json(name, Some(path.clone()), &config, options, |options| {
        let folder = folder_of(&path);
        let checkpoint = match &path {
            _ if without_weights => Checkpoint::none(),
            file if is_weights(file) => Checkpoint::open_file(file)?,
            folder => Checkpoint::open(folder)?,
        };
        if let (false, Some(_)) = (without_weights, kinds::adapter(folder)) {
            base::say!("{}: {ADAPTER_CONFIG} beside the model: the adapter is not applied", folder.display());
        }
        let missing = format!("cannot read {}", folder.join(TOKENIZER).display());
        Ok((checkpoint, TokenizerSource::of_folder(folder, options, missing)?))
    })
}

/// A GGUF file, which has configuration, tokenizer and weights in one.
fn open_gguf(name: String, path: PathBuf, options: LoadOptions) -> Result<OpenedModel> {
    if options.layout.is_some_and(|layout| layout != HeadLayout::Standard) {
        bail_usage!("--layout: GGUF files have no differential heads");
    }
    let file = Gguf::open(&path)?;
    let shown = path.display().to_string();
    let config = file.config()?;
    let config_sha256 = file.config_sha256()?;
    let vocabulary = file.vocabulary().with_context(|| shown.clone())?;
    let ends = vocabulary.as_ref().map_or(Vec::new(), |vocabulary| vocabulary.end_ids());
    let eos = EndTokens::within(config.vocab, &ends, &format!("{shown}: eos_token_id {ends:?}"));
    let vocabulary = match vocabulary {
        None => TokenizerSource::Missing(format!("{shown} has no tokenizer")),
        Some(vocabulary) => match vocabulary.unsupported() {
            Some(why) => TokenizerSource::Missing(why),
            None => TokenizerSource::Own(Arc::new(vocabulary.tokenizer(&path, &options.tokenizer())?)),
        },
    };
    let checkpoint = file.into();
    OpenedModel { name, path: Some(path), config, checkpoint, vocabulary, eos, config_sha256, start: None, options }
        .checked()
}

/// Opens a model and reads its weights: [`open`], then [`OpenedModel::load`].
pub fn load(name: &str, options: LoadOptions) -> Result<Model> {
    open(name, options)?.load()
}

impl OpenedModel {
    /// Reads a `config.json`, and then, with `rest`, weights and tokenizer.
    fn of_config_json(
        name: String,
        path: Option<PathBuf>,
        json: &[u8],
        options: LoadOptions,
        rest: impl FnOnce(&LoadOptions) -> Result<(Checkpoint, TokenizerSource)>,
    ) -> Result<Self> {
        let file = match &path {
            None => format!("built-in {name}/config.json"),
            Some(path) => config_of(path).display().to_string(),
        };
        let parsed = files::json(json).with_context(|| format!("{file}: not JSON"))?;
        let mut config = ModelConfig::from_json(&parsed, options.layout).with_context(|| file.clone())?;
        let (checkpoint, vocabulary) = rest(&options)?;
        // The configuration does not state which of two variants it is.
        if config.model_type == DIFF_MLX && options.layout.is_none() && checkpoint.lacks_extras(&config) {
            config = ModelConfig::from_json(&parsed, Some(HeadLayout::Standard)).with_context(|| file.clone())?;
        }
        let eos = EndTokens::read(path.as_deref().map(folder_of), (&file, &parsed), config.vocab)?;
        let start = parsed[TRAINING]["start"]["from"].as_str().map(str::to_owned);
        Self { name, path, config, checkpoint, vocabulary, eos, config_sha256: sha256(json), start, options }.checked()
    }

    /// Fits configuration and tokenizer to the weights, and says which tokens end no text.
    fn checked(mut self) -> Result<Self> {
        if self.config.tied && self.checkpoint.has_untied_head(&self.config)? {
            self.config.tied = false;
        }
        if let Some(outside) = &self.eos.outside {
            base::say!("{outside}: it ends no text");
        }
        if let TokenizerSource::Own(tokenizer) = &mut self.vocabulary {
            Arc::get_mut(tokenizer).context("a tokenizer that was just read")?.limit_to_model(self.config.vocab)?;
        }
        Ok(self)
    }

    /// The tokenizer that the model was trained with; see [`Model::tokenizer`].
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.vocabulary.tokenizer(&self.name)
    }

    /// Tokens that end a text; see [`Model::eos_ids`].
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos.ids
    }

    /// State of the weights while the model runs, by the memory that is free now: expanded if they take at most half of
    /// it. On other devices they always are.
    pub fn weights_state(&self) -> WeightsState {
        let half = available_bytes().map_or(u64::MAX, |available| available / 2);
        if self.options.device != DeviceName::Cpu || self.weights_bytes(WeightsState::Expanded) <= half {
            WeightsState::Expanded
        } else {
            WeightsState::Streamed
        }
    }

    /// Host memory that the weights take at once in this state, in bytes. Weights of another device pass through the host
    /// one layer at a time.
    pub fn weights_bytes(&self, state: WeightsState) -> u64 {
        let number = DType::from(self.options.dtype);
        if state == WeightsState::Expanded && self.options.device == DeviceName::Cpu {
            self.config.parameters() as u64 * number.size_in_bytes() as u64
        } else {
            self.config.expanded_bytes(number)
        }
    }

    /// Reads the weights, or prepares to read them layer by layer.
    ///
    /// # Errors
    /// If a tensor is missing, has the wrong shape, holds NaN or infinities, or is not part of the model, or the device
    /// is not available.
    pub fn load(self) -> Result<Model> {
        let state = self.weights_state();
        let needed = self.weights_bytes(state);
        let Self { name, path, config, checkpoint, vocabulary, eos, config_sha256, start, options } = self;
        let what = match state {
            WeightsState::Expanded => "its weights take",
            WeightsState::Streamed => "a layer of its weights takes",
        };
        check_fits(
            needed,
            || format!("model {name}: {what} {} as {}", size_name(needed), options.dtype.name()),
            "free some memory, or use a smaller model",
        )?;
        let weights_dtype = checkpoint.dtypes();
        let weights_sha256 = checkpoint.sha256()?;
        let placement = device::placement(options.device, options.dtype)?;
        let transformer = match state {
            WeightsState::Expanded => Transformer::expanded(&config, checkpoint, &placement)?,
            WeightsState::Streamed => Transformer::streamed(&config, checkpoint, &placement)?,
        };
        let tokenizer = vocabulary.tokenizer(&name).ok();
        let info = ModelInfo {
            name: name.clone(),
            path: path.map(|path| path.display().to_string()),
            model_type: config.model_type.clone(),
            variant: config.variant.name().to_owned(),
            parameters: config.parameters() as u64,
            weights_dtype,
            weights: state,
            weights_sha256,
            config_sha256,
            tokenizer_sha256: tokenizer.map(|tokenizer| tokenizer.sha256.clone()).unwrap_or_default(),
            bos: tokenizer.map(|tokenizer| tokenizer.bos().to_string()),
            chat_template_sha256: tokenizer.and_then(|t| Some(t.chat()?.template.sha256())),
            answer_opening: tokenizer.and_then(|t| t.chat()?.around.opening.clone()),
            layout: config.layout(),
            logit_tap: config.logit_tap(),
            start,
            lambda: transformer.lambdas()?,
        };
        Ok(Model { name, transformer, vocabulary, eos, info })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_model_is_refused_with_a_name_that_may_have_one() {
        let error = |name: &str| open(name, LoadOptions::default()).err().unwrap().to_string();
        assert!(error("nobody/nothing").contains("(did you mean `hf:nobody/nothing`, of the Hub?)"));
        for name in ["nothing", "./no/thing", "no/such/thing"] {
            assert!(error(name).ends_with("; names on the Hub begin with hf:, as in hf:org/name"), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.gguf"), "GGUF").unwrap();
        let refused = error(folder.path().to_str().unwrap());
        assert!(
            refused.contains("without config.json; name its GGUF file") && refused.ends_with("b.gguf"),
            "{refused}"
        );
    }
}
