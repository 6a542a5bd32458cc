//! `difftool inspect`: shows what a model folder contains.

mod lambda;

use super::command::{Action, Command};
use super::models::CTX_TOK;
use super::shared::model_help;
use crate::bail_usage;
use crate::base::terminal::{escaped, stdout};
use crate::base::values::TokenRange;
use crate::model::open::{self, LoadOptions, OpenedModel};
use crate::model::Audit;
use crate::results::manifest::WeightsState;
use crate::results::print::TextTable;
use crate::results::table::{numbers, words, Cell, Table};
use anyhow::{bail, Result};
use clap::{Args, FromArgMatches as _};
use lambda::LayerLambda;
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
    let (table, mut json) = (facts(&opened, ctx_tok), as_json(&opened, &audit, ctx_tok));
    let lambda = if has_weights && audit.is_clean() { lambda::by_layer(opened)? } else { Vec::new() };
    let mut out = stdout();
    if args.json {
        json["lambda"] = serde_json::to_value(&lambda)?;
        writeln!(out, "{json:#}")?;
    } else {
        writeln!(out, "{table}")?;
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
        writeln!(out, "\nIt can be measured: difftool needle --model {} --ctx 512", escaped(&args.model))?;
    }
    Ok(())
}

fn as_json(opened: &OpenedModel, audit: &Audit, ctx_tok: usize) -> Value {
    let (config, state) = (&opened.config, opened.weights_state());
    let tokenizer = opened.tokenizer().ok().map(|tokenizer| {
        json!({ "vocab": tokenizer.vocab_size(), "bos": tokenizer.bos(), "chat": tokenizer.chat().is_some() })
    });
    json!({
        "name": opened.name,
        "model_type": config.model_type,
        "variant": config.variant.name(),
        "layout": config.layout(),
        "logit_tap": config.logit_tap(),
        "parameters": config.parameters(),
        "layers": config.layers.len(),
        "heads": config.heads,
        "maps": config.wiring().maps(),
        "key_heads": config.key_heads(),
        "value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "latent": config.latent_ranks(),
        "width": config.width,
        "mlp": config.mlp(),
        "block": config.block(),
        "biases": config.biases(),
        "positions": config.positions(),
        "sees": config.windows(),
        "max_ctx_tok": config.max_ctx_tok,
        "vocab": config.vocab,
        "tied": config.tied,
        "tokenizer": tokenizer,
        "weights": {
            "dtype": opened.checkpoint.dtypes(),
            "bytes": opened.checkpoint.len_bytes(),
            "missing": audit.missing,
            "misfits": audit.misfits,
            "unused": audit.unused,
        },
        "memory": {
            "ctx_tok": ctx_tok,
            "weights_bytes": opened.weights_bytes(state),
            "weights": state,
            "pass_bytes": config.pass_bytes(ctx_tok),
        },
    })
}

fn facts(opened: &OpenedModel, ctx_tok: usize) -> TextTable {
    let config = &opened.config;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![Cell::words(name), Cell::words(value)]);
    row("family", config.model_type.clone());
    row("attention", config.layout());
    if let Some(tap) = config.logit_tap() {
        row("logits", tap);
    }
    row("parameters", thousands(config.parameters()));
    row("layers", config.layers.len().to_string());
    let maps = config.wiring().maps();
    let maps = if maps == 1 { String::new() } else { format!(" of {maps} maps") };
    let (heads, key_heads, value_heads) = (config.heads, config.key_heads(), config.kv_heads);
    row("heads", format!("{heads}{maps}, {key_heads} key heads, {value_heads} value heads, {} wide", config.head_dim));
    if let Some(latent) = config.latent_ranks() {
        row("latent", latent);
    }
    row("width", format!("{}, MLP {}", config.width, config.mlp()));
    row("blocks", config.block());
    row("biases", config.biases());
    row("positions", config.positions().join("; "));
    row("a query sees", config.windows());
    row("context", format!("{} tokens", config.max_ctx_tok));
    row("vocabulary", format!("{}{}", config.vocab, if config.tied { ", output head tied" } else { "" }));
    row("tokenizer", tokenizer(opened));
    row(
        "weights",
        match opened.checkpoint.is_none() {
            true => "none: this is the configuration of a supported family, and cannot be measured".to_owned(),
            false => format!("{}, {} on disk", opened.checkpoint.dtypes(), mib(opened.checkpoint.len_bytes())),
        },
    );
    let state = opened.weights_state();
    row(
        "memory",
        format!(
            "{} for the weights ({}), up to {} for a pass over {ctx_tok} tokens{}",
            mib(opened.weights_bytes(state)),
            match state {
                WeightsState::Expanded => "expanded",
                WeightsState::Streamed => "streamed",
            },
            mib(config.pass_bytes(ctx_tok)),
            if ctx_tok > config.max_ctx_tok { ", more than its context" } else { "" }
        ),
    );
    TextTable::new(&Table::plain(vec![words("model"), words(&opened.name)], rows))
}

fn tokenizer(opened: &OpenedModel) -> String {
    match opened.tokenizer() {
        Err(_) => "none: only token ids can be measured".to_owned(),
        Ok(tokenizer) => {
            let chat = if tokenizer.chat().is_some() { ", in its chat template" } else { "" };
            format!("{} tokens; prompts begin with {}{chat}", tokenizer.vocab_size(), tokenizer.bos())
        }
    }
}

/// Returns a table of lambda by layer: one number, or the distribution over tokens.
fn lambdas(layers: &[LayerLambda]) -> TextTable {
    let over_tokens = layers.iter().any(|layer| layer.over_tokens.is_some());
    let headings: &[&str] = match over_tokens {
        true => &["layer", "lambda", "std", "5 %", "median", "95 %", "n"],
        false => &["layer", "lambda_init", "lambda"],
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
