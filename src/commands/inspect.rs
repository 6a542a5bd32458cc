//! `difftool inspect`: shows what a model folder contains.

mod lambda;

use super::command::{Action, Command};
use super::models::CTX_TOK;
use super::shared::model_help;
use crate::results::print::TextTable;
use crate::results::table::{numbers, Cell, Table};
use anyhow::{bail, Result};
use base::bail_usage;
use base::terminal::{escaped, quoted, stdout, wrapped};
use clap::{Args, FromArgMatches as _};
use engine::model::open::{self, LoadOptions, OpenedModel};
use engine::model::{Audit, Checkpoint, ModelConfig};
use lambda::LayerLambda;
use names::values::TokenRange;
use names::WeightsState;
use serde_json::{json, Value};
use std::io::Write;

pub(super) static INSPECT: Command = Command {
    name: "inspect",
    about: "Show the architecture, lambda and memory of a model, and check its tensors",
    examples: &[("A model folder", "difftool inspect ./llama --ctx 8k")],
    defaults: None,
    flags: Inspect::augment_args,
    action: Action::Other(|typed| run(&Inspect::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// The model.
    #[arg(value_name = "NAME|PATH", help = model_help())]
    pub model: String,
    /// Prompt length for the memory estimate, in tokens [default: 4k, or the model's context if that is shorter]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reading: LoadOptions,
}

/// Prints the architecture, lambda and memory of a model.
///
/// # Errors
/// If a file cannot be read, or tensors of the architecture are missing or do not fit.
fn run(args: &Inspect) -> Result<()> {
    let opened = open::open_to_inspect(&args.model, args.reading.clone())?;
    let ctx_tok = match args.ctx.map(TokenRange::single) {
        Some(Some(ctx_tok)) => ctx_tok,
        Some(None) => bail_usage!("--ctx: inspect takes one length; give one length"),
        None => opened.config.max_ctx_tok.min(CTX_TOK),
    };
    let has_weights = !opened.checkpoint.is_none();
    let can_be_measured = has_weights && opened.tokenizer().is_ok();
    let mut audit = opened.checkpoint.audit(&opened.config);
    if !has_weights {
        audit.missing.clear();
    }
    let name = opened.name.clone();
    let mut facts = architecture(&opened.config);
    facts.extend([tokenizer(&opened), weights(&opened.checkpoint, &audit), memory(&opened, ctx_tok)]);
    let lambda = if has_weights && audit.is_clean() { lambda::by_layer(opened)? } else { Vec::new() };
    let mut out = stdout();
    if args.json {
        let mut json = as_json(&name, facts);
        json["lambda"] = serde_json::to_value(&lambda)?;
        writeln!(out, "{json:#}")?;
    } else {
        writeln!(out, "{}", table(&name, &facts))?;
        if !lambda.is_empty() {
            writeln!(out, "\n{}", lambdas(&lambda))?;
        }
        if !lambda.is_empty() && lambda.iter().all(LayerLambda::is_zero) {
            writeln!(out, "λ is 0 in every layer: standard attention")?;
        }
        write_misfits(&audit, &mut out)?;
    }
    if !audit.is_clean() {
        bail!(
            "{}: the tensors are not those of the architecture ({} missing, {} of another shape or type, {} left over); it \
             cannot be measured",
            args.model,
            audit.missing.len(),
            audit.misfits.len(),
            audit.unused.len()
        );
    }
    if !args.json && can_be_measured {
        writeln!(out, "\nIt can be measured: difftool needle --model {} --ctx 512", escaped(&quoted(&args.model)))?;
    }
    Ok(())
}

/// What is said of a model, in words and as values.
struct Fact {
    /// The row of the table.
    name: &'static str,
    /// `None` for what the model does not have; the table leaves it out.
    words: Option<String>,
    /// The same in the JSON, by key.
    values: Value,
}

impl Fact {
    fn new(name: &'static str, words: String, values: Value) -> Self {
        Self { name, words: Some(words), values }
    }

    /// A fact that the JSON gives in the words of the table.
    fn text(name: &'static str, key: &str, words: Option<String>) -> Self {
        Self { name, values: json!({ key: words }), words }
    }
}

fn as_json(name: &str, facts: Vec<Fact>) -> Value {
    let mut all = json!({ "name": name });
    for fact in facts {
        if let (Value::Object(all), Value::Object(values)) = (&mut all, fact.values) {
            all.extend(values);
        }
    }
    all
}

/// The facts, a line each or several where one is longer.
fn table(name: &str, facts: &[Fact]) -> String {
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or_default() + GAP;
    let line = |name: &str, words: &str| wrapped(&escaped(&format!("{name:<width$}{words}")), &" ".repeat(width));
    let mut lines = vec![line("model", name)];
    lines.extend(facts.iter().filter_map(|fact| Some(line(fact.name, fact.words.as_ref()?))));
    lines.join("\n")
}

/// Blanks between the name of a fact and its words.
const GAP: usize = 2;

fn architecture(config: &ModelConfig) -> Vec<Fact> {
    let parameters = config.parameters();
    let layers = config.layers.len();
    let positions = config.positions();
    let width = config.width;
    let mlp = config.mlp();
    let vocabulary = format!("{}{}", config.vocab, if config.tied { ", output head tied" } else { "" });
    vec![
        Fact::text("family", "model_type", Some(config.model_type.clone())),
        Fact::new("attention", config.layout(), json!({ "layout": config.layout(), "variant": config.variant.name() })),
        Fact::text("logits", "logit_tap", config.logit_tap()),
        Fact::new("parameters", thousands(parameters), json!({ "parameters": parameters })),
        Fact::new("layers", layers.to_string(), json!({ "layers": layers })),
        heads(config),
        Fact::text("latent", "latent", config.latent_ranks()),
        Fact::new("width", format!("{width}, MLP {mlp}"), json!({ "width": width, "mlp": mlp })),
        Fact::text("blocks", "block", Some(config.block())),
        Fact::text("biases", "biases", Some(config.biases())),
        Fact::new("positions", positions.join("; "), json!({ "positions": positions })),
        Fact::text("a query sees", "sees", Some(config.windows())),
        Fact::new("context", format!("{} tokens", config.max_ctx_tok), json!({ "max_ctx_tok": config.max_ctx_tok })),
        Fact::new("vocabulary", vocabulary, json!({ "vocab": config.vocab, "tied": config.tied })),
    ]
}

fn heads(config: &ModelConfig) -> Fact {
    let heads = config.heads;
    let maps = config.wiring().maps();
    let key_heads = config.key_heads();
    let value_heads = config.kv_heads;
    let head_dim = config.head_dim;
    let of_maps = if maps == 1 { String::new() } else { format!(" of {maps} maps") };
    Fact::new(
        "heads",
        format!("{heads}{of_maps}, {key_heads} key heads, {value_heads} value heads, {head_dim} wide"),
        json!({ "heads": heads, "maps": maps, "key_heads": key_heads, "value_heads": value_heads, "head_dim": head_dim }),
    )
}

fn tokenizer(opened: &OpenedModel) -> Fact {
    let Ok(tokenizer) = opened.tokenizer() else {
        let words = "none: only token ids can be measured".to_owned();
        return Fact::new("tokenizer", words, json!({ "tokenizer": null }));
    };
    let vocab = tokenizer.vocab_size();
    let bos = tokenizer.bos();
    let chat = tokenizer.chat().is_some();
    let in_template = if chat { ", in its chat template" } else { "" };
    Fact::new(
        "tokenizer",
        format!("{vocab} tokens; prompts begin with {bos}{in_template}"),
        json!({ "tokenizer": { "vocab": vocab, "bos": bos, "chat": chat } }),
    )
}

fn weights(checkpoint: &Checkpoint, audit: &Audit) -> Fact {
    let Audit { missing, misfits, unused } = audit;
    let dtype = checkpoint.dtypes();
    let bytes = checkpoint.len_bytes();
    let words = if checkpoint.is_none() {
        "none: this is the configuration of a supported family, and cannot be measured".to_owned()
    } else {
        format!("{dtype}, {} on disk", mib(bytes))
    };
    let values = json!({ "dtype": dtype, "bytes": bytes, "missing": missing, "misfits": misfits, "unused": unused });
    Fact::new("weights", words, json!({ "weights": values }))
}

fn memory(opened: &OpenedModel, ctx_tok: usize) -> Fact {
    let state = opened.weights_state();
    let weights_bytes = opened.weights_bytes(state);
    let pass_bytes = opened.config.pass_bytes(ctx_tok);
    let held = match state {
        WeightsState::Expanded => "expanded",
        WeightsState::Streamed => "streamed",
    };
    let beyond = if ctx_tok > opened.config.max_ctx_tok { ", more than its context" } else { "" };
    let words = format!(
        "{} for the weights ({held}), up to {} for a pass over {ctx_tok} tokens{beyond}",
        mib(weights_bytes),
        mib(pass_bytes)
    );
    let values =
        json!({ "ctx_tok": ctx_tok, "weights_bytes": weights_bytes, "weights": state, "pass_bytes": pass_bytes });
    Fact::new("memory", words, json!({ "memory": values }))
}

/// A table of lambda by layer: one number, or the distribution over tokens.
fn lambdas(layers: &[LayerLambda]) -> TextTable {
    let over_tokens = layers.iter().any(|layer| layer.over_tokens.is_some());
    let headings: &[&str] = if over_tokens {
        &["layer", "lambda", "std", "5 %", "median", "95 %", "n"]
    } else {
        &["layer", "lambda_init", "lambda"]
    };
    let mut rows = Vec::new();
    for layer in layers {
        let mut row = vec![layer.layer.to_string()];
        match layer.over_tokens {
            Some(d) => {
                row.extend([d.mean, d.std, d.p5, d.median, d.p95].map(|x| format!("{x:.4}")));
                row.push(d.n.to_string());
            }
            None => row.extend([layer.init, layer.learned].map(|x| x.map_or_else(String::new, |x| format!("{x:.4}")))),
        }
        rows.push(row.into_iter().map(Cell::words).collect());
    }
    TextTable::new(&Table::plain(headings.iter().map(|heading| numbers(*heading)).collect(), rows))
}

/// Prints the tensors that are missing, do not fit, or are not used.
fn write_misfits(audit: &Audit, out: &mut dyn Write) -> Result<()> {
    if !audit.is_clean() {
        writeln!(out)?;
    }
    for (name, shape) in &audit.missing {
        writeln!(out, "missing {} {shape:?}", escaped(name))?;
    }
    for misfit in &audit.misfits {
        writeln!(out, "misfit {}", escaped(misfit))?;
    }
    for (name, shape) in &audit.unused {
        writeln!(out, "unused {} {shape:?}", escaped(name))?;
    }
    Ok(())
}

/// Formats a number as `1 234 567`.
fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(" ")
}

fn mib(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1024)),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(1_234_567), "1 234 567");
    }
}
