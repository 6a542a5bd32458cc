//! `difftool prompt`: shows needle prompts with their regions, or writes them as JSON lines.

use super::command::{Action, Command};
use super::models::OpenedModels;
use super::needle::DEFAULTS;
use crate::measures::region_ranges;
use anyhow::Result;
use base::bail_usage;
use base::{files, terminal};
use clap::{Args, FromArgMatches as _};
use engine::model::open::LoadOptions;
use names::Region;
use serde_json::{json, Value};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use text::{Grid, NeedlePrompts, PlannedPrompt, Prompt, PromptSpec, Sources, Tokenizer};

pub(super) static PROMPT: Command = Command {
    name: "prompt",
    about: "Show a needle prompt with its regions, or write prompts as JSON lines",
    examples: &[
        ("A prompt with its regions", "difftool prompt --ctx 256"),
        ("All prompts of a run, as JSON lines", "difftool prompt --ctx 1k --jsonl prompts.jsonl"),
    ],
    defaults: Some(&DEFAULTS),
    flags: ShowPrompt::augment_args,
    action: Action::Other(|typed| run(&ShowPrompt::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct ShowPrompt {
    /// Prompts; the same as those of `difftool needle` with the same flags.
    #[command(flatten)]
    pub prompts: NeedlePrompts,
    /// Number of the prompt to show, counted from 0
    #[arg(long, default_value_t = 0, value_name = "I", conflicts_with = "jsonl")]
    pub index: usize,
    /// Question that the regions are for, counted from 0
    #[arg(long, default_value_t = 0, value_name = "Q", conflicts_with = "jsonl", hide_short_help = true)]
    pub query: usize,
    /// Write all prompts as JSON lines with text, token ids, offsets, regions and answers; `-` for stdout
    #[arg(long, value_name = "FILE|-")]
    pub jsonl: Option<PathBuf>,
    /// Model whose tokenizer is used
    #[arg(long, default_value = "built-in:transformer", value_name = "NAME|PATH")]
    pub model: String,
    #[command(flatten)]
    pub reading: LoadOptions,
}

/// Shows one prompt, or writes all prompts.
fn run(args: &ShowPrompt) -> Result<()> {
    let models = OpenedModels::of(vec![args.model.clone()], &args.reading);
    let mut prompts = args.prompts.clone();
    models.fill(&mut prompts, &DEFAULTS)?;
    let [model] = models.get()? else { unreachable!("one model has a name") };
    let sources = Sources::read(&Grid::Needle(prompts.clone()))?;
    prompts.check()?;
    prompts.measure_own_text(&sources, [model.tokenizer()].into_iter())?;
    let grid = Grid::Needle(prompts);
    grid.check_count()?;
    let source = PromptSource { sources, tokenizer: model.tokenizer()?, grid: &grid };
    match &args.jsonl {
        None => show(&source, args.index, args.query),
        Some(path) if path.as_os_str() == "-" => source.write(&mut terminal::stdout()),
        Some(path) => write_file(&source, path),
    }
}

/// The inputs that prompts are built from.
struct PromptSource<'a> {
    sources: Sources,
    tokenizer: &'a Tokenizer,
    grid: &'a Grid,
}

impl PromptSource<'_> {
    fn prompt(&self, planned: &PlannedPrompt) -> Result<Prompt> {
        planned.build(self.grid.seed(), &self.sources, Ok(self.tokenizer))
    }

    fn write(&self, out: &mut dyn Write) -> Result<()> {
        for planned in self.grid.prompts() {
            writeln!(out, "{}", json_line(&planned, self.grid.seed(), &self.prompt(&planned)?))?;
        }
        Ok(())
    }
}

fn write_file(source: &PromptSource<'_>, path: &Path) -> Result<()> {
    if path.exists() {
        bail_usage!("--jsonl {}: it exists already; name a new file", path.display());
    }
    files::replace(path, |partial| {
        let mut out = BufWriter::new(File::create(partial)?);
        source.write(&mut out)?;
        Ok(out.flush()?)
    })
}

fn json_line(planned: &PlannedPrompt, base_seed: u64, prompt: &Prompt) -> Value {
    let targets = prompt.targets();
    let queries = targets.iter().filter_map(|target| Some((&prompt.queries[target.query?], target)));
    let queries: Vec<Value> = queries
        .map(|(query, target)| {
            let regions: Vec<Value> = region_ranges(&target.regions)
                .into_iter()
                .map(|(region, tokens)| json!([region, tokens.start, tokens.end]))
                .collect();
            json!({
                "city": query.name, "answer": query.value,
                "needle_tokens": [query.needle.start, query.needle.end],
                "answer_tokens": [query.answer.start, query.answer.end],
                "predicted_tokens": [query.predicted.start, query.predicted.end],
                "depth_req_pct": query.depth_req_pct, "depth_real_pct": query.depth_real_pct,
                "regions": regions,
            })
        })
        .collect();
    let PromptSpec::Needle(spec) = &planned.spec else { unreachable!("the grid is one of needles") };
    json!({
        "index": planned.index, "seed": planned.seed(base_seed), "ctx_tok": spec.ctx_tok, "needles": spec.needles,
        "retrieve": spec.retrieve, "cities": spec.names_cities().then_some(spec.cities), "task": spec.task(), "text": prompt.text, "ids": prompt.ids,
        "offsets": prompt.offsets, "queries": queries,
    })
}

fn show(source: &PromptSource<'_>, index: usize, query: usize) -> Result<()> {
    let prompts = source.grid.prompts();
    let Some(planned) = prompts.get(index) else {
        bail_usage!("--index {index}: the grid has prompts 0 to {}", prompts.len().saturating_sub(1));
    };
    let prompt = source.prompt(planned)?;
    let Some(asked) = prompt.queries.get(query) else {
        bail_usage!("--query {query}: the prompt has questions 0 to {}", prompt.queries.len() - 1);
    };
    let mut out = terminal::stdout();
    writeln!(out, "{}\n", marked(&prompt, &prompt.regions(Some(query))))?;
    writeln!(
        out,
        "prompt {index} of {}, seed {}: {} tokens; the answer for {} is {}, tokens {} to {}, at {:.1} % of the haystack",
        prompts.len(),
        planned.seed(source.grid.seed()),
        prompt.ids.len(),
        asked.name,
        asked.value,
        asked.answer.start,
        asked.answer.end - 1,
        asked.depth_real_pct
    )?;
    Ok(())
}

/// The text with every region except filler in brackets: `[answer|48213]`.
fn marked(prompt: &Prompt, regions: &[Region]) -> String {
    let mut marked = String::new();
    let mut start = 0;
    for (region, tokens) in region_ranges(regions) {
        let end = prompt.offsets[tokens.end - 1].1;
        let text = terminal::escaped_lines(prompt.text.get(start..end).unwrap_or_default());
        match region {
            _ if text.is_empty() => {}
            Region::Filler => marked += &text,
            region => marked += &format!("[{}|{text}]", region.name()),
        }
        start = end; // and not where the next token starts: tokenizers may trim the space between tokens
    }
    marked
}
