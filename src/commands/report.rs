//! `difftool report`: run folders as a page.

use super::command::{Action, Command};
use super::compare::{in_short, talk};
use super::screens::{screen, tables};
use crate::html::is_page;
use crate::report::{html, markdown, title, ComparedRuns, Report, SavedRun, Section};
use crate::results::compare::{compare, Request};
use crate::results::differences::SETTING;
use crate::results::table::Table;
use anyhow::{Context, Result};
use base::bail_usage;
use base::files::{folder_of, replace};
use clap::{Args, FromArgMatches as _, ValueEnum};
use names::Column;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

pub(super) static REPORT: Command = Command {
    name: "report",
    about: "Write a page with the results and figures of run folders",
    examples: &[
        ("An HTML page", "difftool report runs/readme --out report.html"),
        ("Tables for a text of yours", "difftool report runs/readme --out report.md"),
    ],
    defaults: None,
    flags: ReportFlags::augment_args,
    action: Action::Other(|typed| run(&ReportFlags::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct ReportFlags {
    /// Run folders, in the order of the report
    #[arg(required = true, value_name = "DIR")]
    pub runs: Vec<PathBuf>,
    /// A new file, or - for stdout [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Format of the report [default: what the ending of --out says, otherwise html]
    #[arg(long, value_enum)]
    pub format: Option<ReportFormat>,
    /// Begin with a comparison of the runs, or of the models of a single run
    #[arg(long)]
    pub compare: bool,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// One self-contained HTML page
    Html,
    /// Markdown tables
    Markdown,
}

impl ReportFlags {
    fn format(&self) -> ReportFormat {
        let is_markdown = |path: &PathBuf| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md"));
        let by_ending =
            if self.out.as_ref().is_some_and(is_markdown) { ReportFormat::Markdown } else { ReportFormat::Html };
        self.format.unwrap_or(by_ending)
    }
}

/// Reads the runs and writes the report.
///
/// # Errors
/// Usage errors before anything is read; others if a run or the file cannot be read or written.
fn run(args: &ReportFlags) -> Result<()> {
    check(args)?;
    let runs = args.runs.iter().map(|folder| SavedRun::read(folder)).collect::<Result<Vec<_>>>()?;
    if let Some(other) = runs.iter().find(|run| run.manifest.tool != runs[0].manifest.tool).filter(|_| !args.quiet) {
        base::say!(
            "{} is of difftool {} and {} of {}: their numbers may differ for that alone",
            runs[0].folder.display(),
            runs[0].manifest.tool,
            other.folder.display(),
            other.manifest.tool
        );
    }
    let compared = args.compare.then(|| compared(&args.runs, &runs)).transpose()?;
    let sections: Vec<Section> = runs.into_iter().map(section).collect::<Result<_>>()?;
    let report = Report { title: title(&sections), sections, compared };
    let page = match args.format() {
        ReportFormat::Html => html(&report)?,
        ReportFormat::Markdown => markdown(&report),
    };
    write(args, &page)
}

/// Writes the report of one finished run.
pub(super) fn write_run(folder: &Path, page: &Path, quiet: bool) -> Result<()> {
    write_whole(page, &html(&of_run(folder)?)?, quiet)
}

/// The report of one finished run in Markdown.
///
/// # Errors
/// As [`SavedRun::read`].
pub(super) fn markdown_of_run(folder: &Path) -> Result<String> {
    Ok(markdown(&of_run(folder)?))
}

/// The report of one finished run, without a comparison.
fn of_run(folder: &Path) -> Result<Report> {
    let sections = vec![section(SavedRun::read(folder)?)?];
    Ok(Report { title: title(&sections), sections, compared: None })
}

/// The section of a run, with the tables that its command prints.
fn section(run: SavedRun) -> Result<Section> {
    let screen = screen(&run.frame);
    let details = tables(&run.frame).into_iter().map(Table::details).collect();
    let text = super::context::inner_page(&run.frame)?;
    Section::new(run, screen, details, text)
}

/// Endings of the names of pages.
const ENDINGS: [&str; 3] = ["", "html", "htm"];

/// Checks that a page can be written to a file.
///
/// # Errors
/// Usage errors that name the flag.
pub(super) fn check_page(flag: &str, page: &Path) -> Result<()> {
    let shown = page.display();
    let ending = page.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !ENDINGS.contains(&ending.as_str()) {
        bail_usage!("{flag} {shown}: a page is FILE.html, or FILE.md for Markdown");
    }
    check_new(flag, page)
}

/// Checks that a file of a report can be written.
fn check_new(flag: &str, page: &Path) -> Result<()> {
    let shown = page.display();
    if page.exists() && !is_page(page) {
        bail_usage!("{flag} {shown}: it exists and is not a page of a report; name a new file");
    }
    if !folder_of(page).is_dir() {
        bail_usage!("{flag} {shown}: there is no folder {}", folder_of(page).display());
    }
    Ok(())
}

/// The runs compared as `difftool compare` would without further flags: several with each other, the models of a single one.
fn compared(folders: &[PathBuf], runs: &[SavedRun]) -> Result<ComparedRuns> {
    let by = (runs.len() == 1).then_some(Column::Model);
    let models = |run: &SavedRun| run.manifest.models.iter().map(|model| model.name.clone()).collect::<Vec<_>>();
    let alike = runs.windows(2).all(|two| models(&two[0]) == models(&two[1]));
    // Of runs of the same models each has rows of its own.
    let by_model = (by.is_none() && alike && models(&runs[0]).len() > 1).then_some(Column::Model);
    let comparison = compare(&Request {
        inputs: folders.to_vec(),
        by,
        group_by: by_model.into_iter().chain(SETTING).collect(),
        ..Request::default()
    })
    .context("--compare, as `difftool compare` without flags")?;
    let notes = talk(&comparison).lines().map(str::to_owned).collect();
    Ok(ComparedRuns::new(&in_short(&comparison.rows), &comparison.groups, notes))
}

fn write(args: &ReportFlags, page: &str) -> Result<()> {
    match file(args) {
        None => Ok(base::terminal::stdout().write_all(page.as_bytes())?),
        Some(path) => write_whole(path, page, args.quiet),
    }
}

/// The file to write; nothing for stdout.
fn file(args: &ReportFlags) -> Option<&Path> {
    args.out.as_deref().filter(|path| *path != Path::new("-"))
}

/// Refuses what cannot end well before the runs are read.
fn check(args: &ReportFlags) -> Result<()> {
    for (i, folder) in args.runs.iter().enumerate() {
        if args.runs[..i].contains(folder) {
            bail_usage!("{} is named twice", folder.display());
        }
    }
    if let Some(page) = file(args) {
        match args.format() {
            ReportFormat::Html => check_page("--out", page)?,
            ReportFormat::Markdown => check_new("--out", page)?,
        }
    }
    if args.format() == ReportFormat::Html && args.out.is_none() && std::io::stdout().is_terminal() {
        bail_usage!("a page is not for the terminal: name a file with -o report.html, or ask for --format markdown");
    }
    Ok(())
}

/// Writes a file: it is there whole or not at all.
fn write_whole(path: &Path, page: &str, quiet: bool) -> Result<()> {
    replace(path, |partial| Ok(fs::write(partial, page)?))?;
    if !quiet {
        base::say!("report in {} ({} KiB)", path.display(), page.len().div_ceil(1024));
    }
    Ok(())
}
