//! Facts of a run: command, models, prompts and machine, everything in a section but the results.

use super::input::SavedRun;
use crate::results::table::{numbers, plural, short, words, Cell, Table};
use crate::results::Frame;
use base::terminal::quoted;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Failed measurements listed; the results file has all.
const FAILURES: usize = 100;

/// One line of a recipe.
#[derive(Debug, Serialize)]
pub(super) struct RecipeLine {
    name: String,
    value: String,
    /// `true` if it is to be copied: a hash.
    code: bool,
}

fn fact(name: impl Into<String>, value: impl Into<String>) -> RecipeLine {
    RecipeLine { name: name.into(), value: value.into(), code: false }
}

fn hash(name: impl Into<String>, value: impl Into<String>) -> RecipeLine {
    RecipeLine { code: true, ..fact(name.into() + ", SHA-256", value) }
}

/// The paragraphs of the analysis.
pub(super) fn analysis(run: &SavedRun) -> Vec<&str> {
    let paragraphs = run.frame.about.config.analysis.split("\n\n").map(str::trim);
    paragraphs.filter(|text| !text.is_empty()).collect()
}

/// The command that measured the run, or the subcommand that made it.
pub(super) fn name(run: &SavedRun) -> String {
    let subcommand = run.manifest.argv.get(1).map(String::as_str).filter(|word| !word.starts_with('-'));
    let command = Some(run.frame.about.config.command.as_str()).filter(|name| !name.is_empty());
    command.or(subcommand).unwrap_or("run").to_owned()
}

/// The command that made the run, as a shell takes it; the program without its folder.
pub(super) fn command(run: &SavedRun) -> String {
    let mut argv = run.manifest.argv.iter();
    let program =
        argv.next().map_or("difftool", |path| Path::new(path).file_name().and_then(|f| f.to_str()).unwrap_or(path));
    let words = std::iter::once(program).chain(argv.map(String::as_str));
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// One sentence on models and prompts, from the records.
pub(super) fn sentence(run: &SavedRun) -> String {
    let frame = &run.frame;
    let models: Vec<&str> = frame.models.iter().map(|model| frame.short_names.name(model)).collect();
    let others = frame.pooled.iter().chain(&frame.records.failures).map(|record| &record.identity);
    let lengths = frame.settings.iter().map(|setting| setting.ctx_tok).chain(others.clone().map(|id| id.ctx_tok));
    let lengths: BTreeSet<usize> = lengths.filter(|&n| n > 0).collect();
    let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    let prompts = Some(frame.prompts()).filter(|&n| n > 0);
    let tasks: BTreeSet<&str> = frame.tasks.iter().chain(others.map(|id| &id.task)).map(String::as_str).collect();
    let (what, of) = match (tasks.contains("text"), tasks.len() > 1) {
        (true, true) => ("prompts", " and windows of text"),
        (true, false) => ("window", " of text"),
        (false, _) => ("prompt", ""),
    };
    let count = match prompts {
        _ if what == "prompts" => what.to_owned(),
        Some(n) => plural(n, what),
        None => format!("{what}s"),
    };
    let tokens = if lengths.is_empty() { String::new() } else { format!(" of {} tokens", list(&lengths)) };
    let shard = run.manifest.shard.as_ref();
    let shard = shard.map_or_else(String::new, |shard| format!("; only shard {shard} of the experiment"));
    format!("{} on {count}{of}{tokens}{shard}.", list(&models))
}

/// `a, b and c`.
fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.as_slice() {
        [] => "no model".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Version, seeds and hashes: what it takes to run it again.
pub(super) fn recipe(run: &SavedRun) -> Vec<RecipeLine> {
    let manifest = &run.manifest;
    let mut facts = vec![fact("difftool", manifest.tool.to_string())];
    facts.extend(manifest.seeds.iter().map(|(of, seed)| fact(format!("seed of {of}"), seed.to_string())));
    let texts = [
        ("prompts", Some(&manifest.prompts_sha256)),
        ("haystack", manifest.haystack_sha256.as_ref()),
        ("text", manifest.text_sha256.as_ref()),
        ("needles", manifest.needles_sha256.as_ref()),
    ];
    facts.extend(texts.into_iter().filter_map(|(name, sha256)| Some(hash(name, sha256?))));
    for model in &manifest.models {
        let parts = [
            ("weights", &model.weights_sha256),
            ("config", &model.config_sha256),
            ("tokenizer", &model.tokenizer_sha256),
        ];
        for (part, sha256) in parts.into_iter().filter(|(_, sha256)| !sha256.is_empty()) {
            facts.push(hash(format!("{}: {part}", model.name), sha256));
        }
    }
    facts.extend(manifest.outputs.iter().map(|output| hash(&output.file, &output.sha256)));
    facts
}

/// The machine's side of the run.
pub(super) fn environment(run: &SavedRun) -> Vec<RecipeLine> {
    let manifest = &run.manifest;
    let machine = &manifest.machine;
    let cpu = [machine.cpu.as_deref().unwrap_or(&machine.arch), &machine.features.join(" ")].join(", ");
    let mut facts = vec![
        fact("device", &manifest.device),
        fact("processor", cpu.trim_end_matches(", ")),
        fact("system", &machine.os),
        fact("number format", &manifest.dtype),
        fact("threads", manifest.threads.to_string()),
        fact("started (UTC)", &manifest.started_utc),
        fact("duration", duration(manifest.wall_s)),
    ];
    let resumed = (manifest.resumed_cells > 0).then(|| manifest.resumed_cells.to_string());
    facts.extend(resumed.map(|cells| fact("prompts taken over on resuming or merging", cells)));
    facts.extend(manifest.peak_rss_bytes.map(|bytes| fact("peak memory", format!("{} MiB", bytes >> 20))));
    facts
}

/// `3.7 s`, `12 min 5 s`, `2 h 31 min`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
    }
}

/// The models, down to how their heads are wired.
pub(super) fn models(run: &SavedRun) -> Option<Table> {
    let rows = run.manifest.models.iter().map(|model| {
        let path = model.path.as_deref().unwrap_or("built in");
        let [name, variant, layout, path] = [&model.name, &model.variant, &model.layout, path].map(Cell::words);
        vec![name, variant, Cell::count(model.parameters), layout, path]
    });
    let columns = vec![words("model"), words("variant"), numbers("parameters"), words("layout"), words("folder")];
    let note = "The number of weights of each model, its attention, and where it is from.".to_owned();
    Table::new("models", "Models", note, columns, rows.collect()).details().trimmed()
}

/// λ of each differential model, a row for each layer.
pub(super) fn lambda(run: &SavedRun) -> Option<Table> {
    let models: Vec<_> = run.manifest.models.iter().filter(|model| !model.lambda.is_empty()).collect();
    let mut columns = vec![numbers("layer")];
    columns.extend(models.iter().map(|model| numbers(&model.name)));
    let mut rows = Vec::new();
    for layer in 0..models.iter().map(|model| model.lambda.len()).max()? {
        let mut row = vec![Cell::count(layer)];
        for model in &models {
            row.push(Cell::number(model.lambda.get(layer).copied(), |lambda| short(Some(lambda))));
        }
        rows.push(row);
    }
    let note = "Weight of the second map, by layer; its mean where it depends on the token.".to_owned();
    Table::new("lambda", "λ by layer", note, columns, rows).trimmed()
}

/// Records that say why there is no number.
pub(super) fn failures(frame: &Frame) -> Option<Table> {
    let mut columns = vec![words("model")];
    columns.extend(["tokens", "N", "R", "depth %", "seed"].map(numbers));
    columns.extend(["condition", "metric", "error"].map(words));
    let rows = frame.records.failures.iter().take(FAILURES).map(|record| {
        let id = &record.identity;
        let measure = &record.measure;
        vec![
            Cell::words(&id.model),
            Cell::count(id.ctx_tok),
            Cell::optional(id.needles),
            Cell::optional(id.retrieve),
            Cell::optional(id.depth_req_pct),
            Cell::optional(id.seed),
            id.condition.as_deref().map_or_else(Cell::none, Cell::words),
            Cell::words(measure.metric.as_ref()),
            Cell::words(measure.error.as_deref().unwrap_or_default()),
        ]
    });
    let mut note = format!("{} of the measurements failed.", frame.records.failures.len());
    if frame.records.failures.len() > FAILURES {
        note += &format!(" The first {FAILURES} are listed; results.csv has all.");
    }
    Table::new("failures", "Failures", note, columns, rows.collect()).trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        let words = ["--ctx", "1k..4k:1k", "runs/a b", "it's", "$HOME", ""];
        assert_eq!(words.map(quoted), ["--ctx", "1k..4k:1k", "'runs/a b'", r"'it'\''s'", "'$HOME'", "''"]);
    }

    #[test]
    fn durations_are_for_people() {
        assert_eq!([3.70, 725.0, 9_061.0].map(duration), ["3.7 s", "12 min 5 s", "2 h 31 min"]);
    }
}
