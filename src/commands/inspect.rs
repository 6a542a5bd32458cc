//! `difftool inspect`: shows what a model folder contains.

mod facts;

use super::measuring::CTX_TOK;
use super::shared::{model_help, Examples};
use crate::bail_usage;
use crate::base::terminal::{escaped, stdout};
use crate::base::values::TokenRange;
use crate::model::open::{self, LoadOptions};
use crate::results::manifest::WeightsState;
use crate::results::print::TextTable;
use crate::results::table::{numbers, words, Cell, Table};
use anyhow::{bail, Result};
use clap::Args;
use facts::{Inspection, LayerLambda, WeightsInfo};
use std::io::Write;

pub(super) const EXAMPLES: Examples = &[("A model folder", "difftool inspect ./llama --ctx 8k")];

#[derive(Debug, Args)]
pub struct Inspect {
    /// The model.
    #[arg(value_name = "NAME|PATH", help = model_help())]
    pub model: String,
    /// Prompt length for the memory estimate, in tokens [default: 4k, or the model's context if that is shorter]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    #[command(flatten)]
    pub reading: LoadOptions,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Prints the architecture, lambda and memory of a model.
///
/// # Errors
/// If a file cannot be read, or tensors of the architecture are missing or do not fit.
pub(super) fn run(args: &Inspect) -> Result<()> {
    let opened = open::open_to_inspect(&args.model, args.reading.clone())?;
    let ctx_tok = match args.ctx.map(TokenRange::single) {
        Some(Some(ctx_tok)) => ctx_tok,
        Some(None) => bail_usage!("--ctx: inspect takes one length; give one length"),
        None => opened.config.max_ctx_tok.min(CTX_TOK),
    };
    let inspection = Inspection::new(opened, ctx_tok)?;
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&inspection)?)?;
    } else {
        writeln!(out, "{}", facts(&inspection))?;
        if !inspection.lambda.is_empty() {
            writeln!(out, "\n{}", lambdas(&inspection.lambda))?;
        }
        if inspection.is_standard_by_lambda() {
            writeln!(out, "λ is 0 in every layer: standard attention")?;
        }
        tensors(&inspection, &mut out)?;
    }
    if !inspection.is_loadable() {
        let WeightsInfo { missing, misfits, unused, .. } = &inspection.weights;
        let [missing, misfits, unused] = [missing.len(), misfits.len(), unused.len()];
        bail!(
            "{}: the tensors are not those of the architecture ({missing} missing, {misfits} of another shape or type, \
             {unused} left over); it cannot be measured",
            inspection.name
        );
    }
    if !args.json && !inspection.weights.dtype.is_empty() && inspection.tokenizer.is_some() {
        writeln!(out, "\nIt can be measured: difftool needle --model {} --ctx 512", escaped(&inspection.name))?;
    }
    Ok(())
}

fn facts(inspection: &Inspection) -> TextTable {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![Cell::words(name), Cell::words(value)]);
    row("family", inspection.model_type.clone());
    row("attention", inspection.layout.clone());
    if let Some(tap) = &inspection.logit_tap {
        row("logits", tap.clone());
    }
    row("parameters", thousands(inspection.parameters));
    row("layers", inspection.layers.to_string());
    let maps = if inspection.maps == 1 { String::new() } else { format!(" of {} maps", inspection.maps) };
    let Inspection { heads, key_heads, value_heads, head_dim, .. } = inspection;
    row("heads", format!("{heads}{maps}, {key_heads} key heads, {value_heads} value heads, {head_dim} wide"));
    if let Some(latent) = &inspection.latent {
        row("latent", latent.clone());
    }
    row("width", format!("{}, MLP {}", inspection.width, inspection.mlp));
    row("blocks", inspection.block.clone());
    row("biases", inspection.biases.clone());
    row("positions", inspection.positions.join("; "));
    row("a query sees", inspection.sees.clone());
    row("context", format!("{} tokens", inspection.max_ctx_tok));
    row("vocabulary", format!("{}{}", inspection.vocab, if inspection.tied { ", output head tied" } else { "" }));
    row("tokenizer", tokenizer(inspection));
    row(
        "weights",
        match inspection.weights.dtype.as_str() {
            "" => "none: this is the configuration of a supported family, and cannot be measured".to_owned(),
            dtype => format!("{dtype}, {} on disk", mib(inspection.weights.bytes)),
        },
    );
    let memory = &inspection.memory;
    row(
        "memory",
        format!(
            "{} for the weights ({}), up to {} for a pass over {} tokens{}",
            mib(memory.weights_bytes),
            match memory.weights {
                WeightsState::Expanded => "expanded",
                WeightsState::Streamed => "streamed",
            },
            mib(memory.pass_bytes),
            memory.ctx_tok,
            if memory.ctx_tok > inspection.max_ctx_tok { ", more than its context" } else { "" }
        ),
    );
    TextTable::new(&Table::plain(vec![words("model"), words(&inspection.name)], rows))
}

fn tokenizer(inspection: &Inspection) -> String {
    match &inspection.tokenizer {
        None => "none: only token ids can be measured".to_owned(),
        Some(tokenizer) => {
            let chat = if tokenizer.chat { ", in its chat template" } else { "" };
            format!("{} tokens; prompts begin with {}{chat}", tokenizer.vocab, tokenizer.bos)
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
            None if over_tokens => continue,
            None => row.extend([layer.init, layer.learned].map(|x| x.map_or_else(String::new, |x| format!("{x:.4}")))),
        }
        rows.push(row.into_iter().map(Cell::words).collect());
    }
    TextTable::new(&Table::plain(headings.iter().map(|heading| numbers(*heading)).collect(), rows))
}

/// Prints the tensors that are missing, do not fit, or are not used.
fn tensors(inspection: &Inspection, out: &mut dyn Write) -> Result<()> {
    let WeightsInfo { missing, misfits, unused, .. } = &inspection.weights;
    if !inspection.is_loadable() {
        writeln!(out)?;
    }
    for (name, shape) in missing {
        writeln!(out, "missing {} {shape:?}", escaped(name))?;
    }
    for misfit in misfits {
        writeln!(out, "misfit {}", escaped(misfit))?;
    }
    for (name, shape) in unused {
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
