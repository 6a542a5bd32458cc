//! `difftool show`: the tables of a finished run, printed again.

use super::command::{Action, Command};
use super::report;
use super::screens::{of_command, print_tables, tables, text_of_tables};
use super::shared::{extensions, FigureFormat, PageArgs};
use super::table_args::{chosen, TableArgs};
use crate::report::SavedRun;
use crate::results::manifest::{Manifest, PROMPTS_SEED};
use crate::results::print::write_table;
use crate::results::record;
use crate::results::{About, Findings, Frame, FrameBuilder};
use crate::run::{recipe_of, titled};
use anyhow::{Context as _, Result};
use base::bail_usage;
use base::files;
use clap::{Args, FromArgMatches as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub(super) static SHOW: Command = Command {
    name: "show",
    about: "Print the tables of a finished run, or write them to a file",
    examples: &[
        ("What the run printed", "difftool show runs/readme"),
        ("All of its tables", "difftool show runs/readme --tables all"),
        ("One table for a paper", "difftool show runs/readme --tables answers --latex"),
        ("A page", "difftool show runs/readme --out report.html"),
        (
            "Its figures for a column of a paper",
            "difftool show runs/readme --figures pdf --figure-width 84 --out figures",
        ),
    ],
    defaults: None,
    flags: Show::augment_args,
    action: Action::Other(|typed| run(&Show::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Run folder, or a results file
    #[arg(value_name = "RUN|CSV")]
    pub run: PathBuf,
    #[command(flatten)]
    pub tables: TableArgs,
    /// Print the table that --tables names as CSV, with all digits
    #[arg(long, requires = "tables", conflicts_with_all = ["json", "latex"])]
    pub csv: bool,
    /// Write to this new file what its ending says: .html and .md a report, .csv the table that --tables names, .tex or .json;
    /// with --figures, the new folder for them
    #[arg(short, long, value_name = "FILE|DIR", conflicts_with_all = ["json", "latex", "csv"])]
    pub out: Option<PathBuf>,
    /// Draw the figures of the run again in these formats, as in `pdf,png`
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "FORMATS",
        requires = "out",
        conflicts_with = "tables"
    )]
    pub figures: Vec<FigureFormat>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Prints the tables of a run folder.
///
/// # Errors
/// If it is none, or one of its files is not what the manifest describes.
fn run(args: &Show) -> Result<()> {
    match &args.out {
        Some(folder) if !args.figures.is_empty() => return draw_figures(args, folder),
        Some(file) => return write_file(args, file),
        None => {}
    }
    let frame = frame(&args.run)?;
    if args.csv {
        return Ok(base::terminal::stdout().write_all(&csv(&frame, &args.tables, "--csv")?)?);
    }
    print_tables(&frame, &args.tables)
}

/// Writes a new file, whose ending says what.
///
/// # Errors
/// A usage error for another ending, or a file that exists.
fn write_file(args: &Show, file: &Path) -> Result<()> {
    let shown = file.display();
    if file.exists() {
        bail_usage!("--out {shown}: it exists; name a new file");
    }
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    let tables = |json, latex| TableArgs { json, latex, ..args.tables.clone() };
    let bytes = match ending.as_str() {
        "html" | "htm" => return report::write_run(&args.run, file, false),
        "md" => report::markdown_of_run(&args.run)?.into_bytes(),
        "csv" => csv(&frame(&args.run)?, &args.tables, "--out")?,
        "tex" => text_of_tables(&frame(&args.run)?, &tables(false, true))?.into_bytes(),
        "json" => text_of_tables(&frame(&args.run)?, &tables(true, false))?.into_bytes(),
        _ => bail_usage!("--out {shown}: its ending does not say what to write: .html, .md, .csv, .tex or .json"),
    };
    files::create(file, &bytes).with_context(|| format!("cannot write {shown}"))
}

/// Draws the figures of a run from its records, into a new folder.
///
/// # Errors
/// A usage error if the folder exists, or if records make no figure of the run's command.
fn draw_figures(args: &Show, folder: &Path) -> Result<()> {
    let shown = folder.display();
    if folder.exists() {
        bail_usage!("--out {shown}: it exists; name a new folder");
    }
    let run = SavedRun::read(&args.run)?;
    let Manifest { argv, caption, seeds, models, .. } = &run.manifest;
    let seed = seeds.get(PROMPTS_SEED).copied().unwrap_or_default();
    let figures = of_command(&run.frame).map_or(&[][..], |command| command.figures);
    let mut files = Vec::new();
    for figure in figures {
        let Some(drawn) = figure.draw(&run.frame, caption, args.page.page())? else { continue };
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
        let recipe = titled(&drawn, recipe_of(argv, seed, models.iter(), figure.pooling));
        for extension in extensions(&args.figures) {
            let file = format!("{}.{extension}", figure.file);
            drawn.save(&folder.join(&file), &recipe)?;
            files.push(file);
        }
    }
    if files.is_empty() {
        bail_usage!("{}: its figures are not made of records; measure it again with --figures", args.run.display());
    }
    base::say!("figures in {shown}: {}", files.join(", "));
    Ok(())
}

/// The frame of a run folder, or of a results file.
fn frame(run: &Path) -> Result<Frame> {
    if run.is_file() {
        frame_of(run)
    } else {
        Ok(SavedRun::read(run)?.frame)
    }
}

/// The table that `--tables` names as CSV, for a flag.
///
/// # Errors
/// A usage error if it names none or several.
fn csv(frame: &Frame, args: &TableArgs, flag: &str) -> Result<Vec<u8>> {
    let Some(wanted) = &args.tables else { bail_usage!("{flag}: a CSV holds one table; name it with --tables") };
    match chosen(tables(frame), wanted)?.as_slice() {
        [table] => {
            let mut bytes = Vec::new();
            write_table(table, &mut bytes)?;
            Ok(bytes)
        }
        several => bail_usage!("{flag}: a CSV holds one table; --tables names {}", several.len()),
    }
}

/// The numbers of a results file without its run folder.
fn frame_of(results: &Path) -> Result<Frame> {
    let mut frame = FrameBuilder::new(About::default());
    record::read_each(results, |record| frame.add(record))?;
    Ok(frame.finish(Findings::default()))
}
