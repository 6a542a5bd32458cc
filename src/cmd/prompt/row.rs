//! The prompt of a row of a run's records.

use crate::bail_usage;
use crate::experiment::{Experiment, Sources};
use crate::manifest::Manifest;
use crate::models;
use crate::prompt::{Prompt, Tokenizer};
use crate::record::{self, Identity};
use crate::runfolder::{results, EXPERIMENT, MANIFEST};
use crate::terminal;
use anyhow::{bail, Context, Result};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Prints the text of the prompt that a row of `results.csv` is about, with its right answers; of generated text, up to where
/// that begins.
///
/// # Errors
/// A usage error if there is no such row, or it is about no single prompt; an error if texts or tokenizers have changed since.
pub(super) fn show(run: &Path, row: usize) -> Result<()> {
    let records = record::read(&results(run))?;
    let Some(record) = row.checked_sub(1).and_then(|index| records.get(index)) else {
        bail_usage!("`row` {row}: {} has rows 1 to {}", results(run).display(), records.len());
    };
    let id = &record.identity;
    if id.seed.is_none() {
        bail_usage!("`row` {row}: its number is of all prompts together, not of one");
    }
    let prompt = built(run, id).with_context(|| format!("the prompt of row {row}"))?;
    if prompt.text.is_empty() {
        bail_usage!("`row` {row}: the prompt was given as token ids, without a text");
    }
    let end = match (id.rows.as_deref(), prompt.queries.first()) {
        (Some("generated"), Some(first)) => prompt.offsets[first.predicted.start].0,
        _ => prompt.text.len(),
    };
    let mut out = terminal::stdout();
    // Exactly the text, unless somebody reads it.
    let line_end = if std::io::stdout().is_terminal() { "\n" } else { "" };
    write!(out, "{}{line_end}", prompt.text.get(..end).unwrap_or(&prompt.text))?;
    Ok(())
}

/// Builds the prompt of an identity from the experiment of its run.
fn built(run: &Path, id: &Identity) -> Result<Prompt> {
    let experiment = Experiment::read(&run.join(EXPERIMENT))?;
    let sources = experiment.sources()?;
    let Some(index) = experiment.models.iter().position(|name| *name == id.model) else {
        bail!("{} names no model {}", run.join(EXPERIMENT).display(), id.model);
    };
    let open = |name: &String| models::open(name, experiment.reading.clone());
    let models = experiment.models.iter().map(open).collect::<Result<Vec<_>>>()?;
    let tokenizer = || models[index].tokenizer();
    check_unchanged(run, &sources, &id.model, tokenizer().ok())?;
    let grid = experiment.grid_within(&sources, models.iter().map(|model| model.tokenizer()))?;
    let wanted = id.of_prompt();
    let cell = grid.cells().into_iter().find(|cell| cell.identity(grid.seed()) == wanted);
    let cell = cell.with_context(|| format!("{} has no such prompt", run.join(EXPERIMENT).display()))?;
    cell.prompt(grid.seed(), &sources, tokenizer())
}

/// Checks that texts and tokenizer are those of the run, if it is finished and has noted them.
fn check_unchanged(run: &Path, sources: &Sources, model: &str, tokenizer: Option<&Tokenizer>) -> Result<()> {
    let path = run.join(MANIFEST);
    if !path.exists() {
        return Ok(());
    }
    let manifest = Manifest::read(&path)?;
    let of_model = manifest.models.iter().find(|info| info.name == model).map(|info| info.tokenizer_sha256.clone());
    let noted = [
        ("haystack", manifest.haystack_sha256, Some(sources.haystack.sha256())),
        ("text", manifest.text_sha256, sources.text.sha256()),
        ("file of needles", manifest.needles_sha256, sources.needles.as_ref().map(|file| file.sha256().to_owned())),
        ("tokenizer", of_model, tokenizer.map(|tokenizer| tokenizer.sha256().to_owned())),
    ];
    for (what, then, now) in noted {
        if then.is_some() && now.is_some() && then != now {
            bail!("the {what} has changed since the run: SHA-256 {} in {}", then.unwrap_or_default(), path.display());
        }
    }
    Ok(())
}
