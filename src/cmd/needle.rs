//! `difftool needle`: does the model find the needle, and where did its attention go?

use super::{progress_bar, stop_on_ctrl_c};
use crate::bail_usage;
use crate::cli::NeedleArgs;
use crate::experiment::{Finished, NeedleGrid, Run};
use crate::manifest::{Manifest, Output};
use crate::memory::peak_rss_bytes;
use crate::models::{self, Model};
use crate::plot::{accuracy, allocation, AccuracyPanel, AllocationPanel, Bar};
use crate::prompt::{Haystack, Region};
use crate::record::Writer;
use crate::runfolder::RunFolder;
use crate::stats::{mean, Interval};
use crate::summary::{Difference, Row, Summary};
use crate::table::{left, percent, percent_in, points_in, right, Table};
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Write;

/// Files of the run folder beside the manifest.
const RESULTS: &str = "results.csv";
const ACCURACY: &str = "accuracy.png";
const ALLOCATION: &str = "allocation.png";

/// Runs the preset.
///
/// # Errors
/// Usage errors before anything runs; afterwards only what cannot be written.
pub fn run(args: &NeedleArgs) -> Result<()> {
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .build_global()
            .context("cannot start the threads")?;
    }
    let grid = grid(args)?;
    let models = models::load_all(&args.model)?;
    let haystack = match &args.haystack {
        Some(path) => Haystack::from_path(path)?,
        None => Haystack::embedded(),
    };
    let stop = stop_on_ctrl_c()?;
    let run = Run { models: &models, grid: &grid, haystack: &haystack, stop: &stop };
    let memory = run.check()?;
    let folder = RunFolder::create(args.out.as_deref(), "needle")?;
    let mut writer = Writer::create(folder.join(RESULTS))?;

    let cells = grid.cells().len();
    if !args.quiet {
        let names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        let mib = memory / (1 << 20);
        eprintln!(
            "{cells} prompts on {}, about {mib} MiB of activations -> {}",
            names.join(", "),
            folder.path().display()
        );
    }
    let bar = progress_bar(cells, args.quiet);
    let mut summary = Summary::default();
    let mut write = |records: &[crate::record::Record]| {
        records.iter().for_each(|record| summary.add(record));
        writer.write_all(records)
    };
    let finished = run.run(&mut write, &|done| bar.set_position(done as u64))?;
    bar.finish_and_clear();

    draw(&folder, &summary, &grid, &models)?;
    manifest(&folder, &run, &finished, writer.rows())?;
    print(&summary, &grid, args)?;
    conclude(&finished, cells, &folder, args.quiet)
}

fn grid(args: &NeedleArgs) -> Result<NeedleGrid> {
    let settings = match (args.needles.as_slice(), args.retrieve.as_slice()) {
        ([], []) => vec![(1, 1), (2, 2), (4, 2), (6, 2)], // the paper's Table 2
        (needles, []) => needles.iter().map(|&n| (n, n.min(2))).collect(),
        ([], _) => bail_usage!("--retrieve needs --needles"),
        (needles, [retrieve]) => needles.iter().map(|&n| (n, *retrieve)).collect(),
        (needles, retrieve) if needles.len() == retrieve.len() => {
            needles.iter().copied().zip(retrieve.iter().copied()).collect()
        }
        (needles, retrieve) => {
            bail_usage!("--needles has {} values and --retrieve {}; they go in pairs", needles.len(), retrieve.len())
        }
    };
    Ok(NeedleGrid {
        ctx_tok: args.ctx.iter().flat_map(|range| range.0.clone()).collect(),
        settings,
        depths_pct: args.depths.clone(),
        samples: args.samples,
        heldout_samples: args.heldout.unwrap_or(args.samples.div_ceil(3)),
        seed: args.seed,
    })
}

fn draw(folder: &RunFolder, summary: &Summary, grid: &NeedleGrid, models: &[Model]) -> Result<()> {
    if summary.models().is_empty() {
        return Ok(()); // stopped before the first prompt, or nothing but failures
    }
    let recipe = recipe(grid, models);
    let per = format!("{} prompts per cell · seed {}", grid.samples, grid.seed);
    accuracy(&accuracy_panels(summary, grid), &format!("exact match · {per}"))?
        .save(&folder.join(ACCURACY), &recipe)?;
    let lengths: Vec<String> = grid.ctx_tok.iter().map(ToString::to_string).collect();
    let tokens = lengths.join(", ");
    let subtitle = format!("rows that predict the answer · mean over heads and layers · {tokens} tokens · {per}");
    allocation(&allocation_panels(summary, grid), &subtitle)?.save(&folder.join(ALLOCATION), &recipe)
}

fn recipe(grid: &NeedleGrid, models: &[Model]) -> Vec<(String, String)> {
    let mut recipe = vec![
        ("Software".to_owned(), format!("difftool {}", env!("CARGO_PKG_VERSION"))),
        ("command".to_owned(), std::env::args().collect::<Vec<_>>().join(" ")),
        ("seed".to_owned(), grid.seed.to_string()),
        (
            "pooling".to_owned(),
            "mean over heads, layers and the rows that predict the answer; share of |weights|".to_owned(),
        ),
    ];
    recipe.extend(models.iter().map(|m| (format!("model {}", m.name), format!("sha256 {}", m.info.weights_sha256))));
    recipe
}

fn setting_name(needles: usize, retrieve: usize) -> String {
    format!("N={needles} R={retrieve}")
}

fn accuracy_panels(summary: &Summary, grid: &NeedleGrid) -> Vec<AccuracyPanel> {
    let mut panels = Vec::new();
    let depths = summary.depths_pct();
    for model in summary.models() {
        for &(needles, retrieve) in &grid.settings {
            let cell = |depth: f64, ctx: usize| {
                mean(&summary.numbers(model, (ctx, needles, retrieve), Some(depth), "exact", None))
            };
            panels.push(AccuracyPanel {
                model: model.clone(),
                setting: setting_name(needles, retrieve),
                ctx_tok: grid.ctx_tok.clone(),
                depths_pct: depths.clone(),
                accuracy: depths.iter().map(|&d| grid.ctx_tok.iter().map(|&ctx| cell(d, ctx)).collect()).collect(),
            });
        }
    }
    panels
}

fn allocation_panels(summary: &Summary, grid: &NeedleGrid) -> Vec<AllocationPanel> {
    let mut panels = Vec::new();
    for &(ctx, needles, retrieve) in summary.settings() {
        for model in summary.models() {
            let share = |depth: f64, region: Region| {
                let numbers =
                    summary.numbers(model, (ctx, needles, retrieve), Some(depth), "share_abs", Some(region.name()));
                mean(&numbers).map(|share| (region.name().to_owned(), share))
            };
            let bar = |depth: f64| Bar {
                label: format!("{depth:.0}"),
                shares: Region::ALL.iter().filter_map(|&region| share(depth, region)).collect(),
            };
            let bars: Vec<Bar> =
                summary.depths_pct().into_iter().map(bar).filter(|bar| !bar.shares.is_empty()).collect();
            if !bars.is_empty() {
                // The subtitle says how long the prompts are when they are all of one length.
                let setting = match grid.ctx_tok.len() {
                    1 => setting_name(needles, retrieve),
                    _ => format!("{} · {ctx}", setting_name(needles, retrieve)),
                };
                panels.push(AllocationPanel { model: model.clone(), setting, bars });
            }
        }
    }
    panels
}

fn manifest(folder: &RunFolder, run: &Run<'_>, finished: &Finished, rows: u64) -> Result<()> {
    let files = [(RESULTS, Some(rows)), (ACCURACY, None), (ALLOCATION, None)];
    let written = files.into_iter().filter(|(file, _)| folder.join(file).exists());
    let outputs = written.map(|(file, rows)| Output::describe(folder.path(), file, rows)).collect::<Result<_>>()?;
    let manifest = Manifest {
        argv: std::env::args().collect(),
        config: serde_json::to_value(run.grid)?,
        models: run.models.iter().map(|m| m.info.clone()).collect(),
        haystack_sha256: Some(run.haystack.sha256()),
        prompts_sha256: Some(finished.prompts_sha256.clone()),
        dtype: "f32".into(),
        device: "cpu".into(),
        threads: rayon::current_num_threads(),
        seeds: [("prompts".to_owned(), run.grid.seed), ("bootstrap".to_owned(), run.grid.seed)].into(),
        started_utc: folder.started_utc(),
        wall_s: folder.elapsed_s(),
        peak_rss_bytes: peak_rss_bytes(),
        outputs,
        ..Manifest::default()
    };
    manifest.write(&folder.join("manifest.json"))
}

fn print(summary: &Summary, grid: &NeedleGrid, args: &NeedleArgs) -> Result<()> {
    let (rows, differences) = (summary.rows(), summary.differences(grid.seed));
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", json!({ "rows": rows, "differences": differences }))?;
        return Ok(());
    }
    writeln!(out, "{}", accuracy_table(&rows))?;
    if !differences.is_empty() {
        writeln!(out, "\nPaired differences on the same prompts, in percentage points [95 % bootstrap interval]\n")?;
        writeln!(out, "{}", difference_table(&differences))?;
    }
    Ok(())
}

fn accuracy_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        left("model"),
        right("tokens"),
        right("N"),
        right("R"),
        right("accuracy % [95 %]"),
        right("held-out cities %"),
        right("answer %"),
        right("noise %"),
    ]);
    for row in rows {
        let accuracy = |p: &crate::summary::Proportion| match p.fraction {
            Some(fraction) => percent_in(fraction, p.interval()),
            None => "-".to_owned(),
        };
        table.row([
            row.model.clone(),
            row.ctx_tok.to_string(),
            row.needles.to_string(),
            row.retrieve.to_string(),
            accuracy(&row.accuracy),
            accuracy(&row.accuracy_heldout),
            percent(row.answer_share_abs),
            percent(row.noise_share_abs),
        ]);
    }
    table
}

/// Three differences per row: accuracy, answer share, noise share.
fn difference_table(differences: &[Difference]) -> Table {
    let mut table = Table::new(&[
        left("difference"),
        right("tokens"),
        right("N"),
        right("R"),
        right("prompts"),
        right("accuracy"),
        right("answer share"),
        right("noise share"),
    ]);
    let same_row = |a: &Difference, b: &Difference| {
        (&a.model, a.ctx_tok, a.needles, a.retrieve) == (&b.model, b.ctx_tok, b.needles, b.retrieve)
    };
    for group in differences.chunk_by(same_row) {
        let first = &group[0];
        let points = |metric: &str| {
            let found = group.iter().find(|d| d.metric == metric);
            found.map_or("-".to_owned(), |d| points_in(d.difference, Interval { lo: d.lo, hi: d.hi }))
        };
        table.row([
            format!("{} - {}", first.model, first.baseline),
            first.ctx_tok.to_string(),
            first.needles.to_string(),
            first.retrieve.to_string(),
            first.n.to_string(),
            points("exact"),
            points("answer_share_abs"),
            points("noise_share_abs"),
        ]);
    }
    table
}

/// Says where the results are, and fails if some are missing.
fn conclude(finished: &Finished, cells: usize, folder: &RunFolder, quiet: bool) -> Result<()> {
    let path = folder.path().display();
    if finished.cells < cells {
        anyhow::bail!("stopped after {} of {cells} prompts; what was measured is in {path}", finished.cells);
    }
    if finished.failures > 0 {
        anyhow::bail!(
            "{} prompts failed; see the error column of {}",
            finished.failures,
            folder.join(RESULTS).display()
        );
    }
    if !quiet {
        eprintln!("results, manifest and figures in {path} ({:.0} s)", folder.elapsed_s());
    }
    Ok(())
}
