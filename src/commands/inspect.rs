//! `difftool inspect`: shows what a model folder contains.

use super::flags;
use crate::base::terminal::{escaped, stdout};
use crate::cli::InspectArgs;
use crate::commands::inspection::{Inspection, LayerLambda, WeightsInfo};
use crate::model::open::{self, WeightsState};
use crate::results::table::{left, right, Table};
use anyhow::{bail, Result};
use std::io::Write;

/// Prints the architecture, lambda and memory of a model.
///
/// # Errors
/// If a file cannot be read, or tensors of the architecture are missing or do not fit.
pub(super) fn run(args: &InspectArgs) -> Result<()> {
    let opened = open::open_to_inspect(&args.model, args.reading.clone())?;
    let ctx_tok = match &args.ctx {
        Some(_) => flags::one_ctx_tok(args.ctx.as_ref(), &[], &args.reading, "inspect takes one length")?,
        None => opened.config.max_ctx_tok.min(flags::CTX_TOK),
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

fn facts(found: &Inspection) -> Table {
    let mut table = Table::new(&[left("model"), left(found.name.clone())]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("family", found.model_type.clone());
    row("attention", found.layout.clone());
    if let Some(tap) = &found.logit_tap {
        row("logits", tap.clone());
    }
    row("parameters", thousands(found.parameters));
    row("layers", found.layers.to_string());
    let maps = if found.maps == 1 { String::new() } else { format!(" of {} maps", found.maps) };
    let Inspection { heads, key_heads, value_heads, head_dim, .. } = found;
    row("heads", format!("{heads}{maps}, {key_heads} key heads, {value_heads} value heads, {head_dim} wide"));
    if let Some(latent) = &found.latent {
        row("latent", latent.clone());
    }
    row("width", format!("{}, MLP {}", found.width, found.mlp));
    row("blocks", found.block.clone());
    row("biases", found.biases.clone());
    row("positions", found.positions.join("; "));
    row("a query sees", found.sees.clone());
    row("context", format!("{} tokens", found.max_ctx_tok));
    row("vocabulary", format!("{}{}", found.vocab, if found.tied { ", output head tied" } else { "" }));
    row("tokenizer", tokenizer(found));
    row(
        "weights",
        match found.weights.dtype.as_str() {
            "" => "none: this is the configuration of a supported family, and cannot be measured".to_owned(),
            dtype => format!("{dtype}, {} on disk", mib(found.weights.bytes)),
        },
    );
    let memory = &found.memory;
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
            if memory.ctx_tok > found.max_ctx_tok { ", more than its context" } else { "" }
        ),
    );
    table
}

fn tokenizer(found: &Inspection) -> String {
    match &found.tokenizer {
        None => "none: only token ids can be measured".to_owned(),
        Some(tokenizer) => {
            let chat = if tokenizer.chat { ", in its chat template" } else { "" };
            format!("{} tokens; prompts begin with {}{chat}", tokenizer.vocab, tokenizer.bos)
        }
    }
}

/// Returns a table of lambda by layer: one number, or the distribution over tokens.
fn lambdas(layers: &[LayerLambda]) -> Table {
    let number = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.4}"));
    if layers.iter().any(|layer| layer.over_tokens.is_some()) {
        let headings = ["layer", "lambda", "std", "5 %", "median", "95 %", "n"];
        let mut table = Table::new(&headings.map(right));
        for layer in layers {
            let Some(d) = layer.over_tokens else { continue };
            let numbers = [d.mean, d.std, d.p5, d.median, d.p95].map(|x| format!("{x:.4}"));
            let cells = std::iter::once(layer.layer.to_string()).chain(numbers).chain([d.n.to_string()]);
            table.row(cells);
        }
        return table;
    }
    let mut table = Table::new(&[right("layer"), right("lambda_init"), right("lambda")]);
    for layer in layers {
        table.row([layer.layer.to_string(), number(layer.init), number(layer.learned)]);
    }
    table
}

/// Prints the tensors that are missing, do not fit, or are not used.
fn tensors(found: &Inspection, out: &mut dyn Write) -> Result<()> {
    let WeightsInfo { missing, misfits, unused, .. } = &found.weights;
    if !found.is_loadable() {
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
