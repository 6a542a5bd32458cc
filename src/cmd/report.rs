//! `difftool report`: run folders as a page.

use crate::bail_usage;
use crate::cli::{ReportArgs, ReportFormat};
use crate::report::{html, markdown, splice, title, Run, Section};
use crate::tables;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

/// Reads the runs and writes the report.
///
/// # Errors
/// Usage errors before anything is read; others if a run or the file cannot be read or written.
pub(super) fn run(args: &ReportArgs) -> Result<()> {
    check(args)?;
    let runs = args.runs.iter().map(|folder| Run::read(folder)).collect::<Result<Vec<_>>>()?;
    if args.format == Some(ReportFormat::Text) {
        let tables: Vec<String> = runs.iter().map(|run| tables::text(&run.frame())).collect();
        return write(args, &tables.join("\n"));
    }
    let sections: Vec<Section> = runs.into_iter().map(Section::new).collect();
    if let Some(path) = &args.splice {
        return splice_file(path, &sections, args.quiet);
    }
    let title = args.title.clone().unwrap_or_else(|| title(&sections));
    let page = match args.format {
        None | Some(ReportFormat::Html) => html(&title, &sections)?,
        Some(_) => markdown(&title, &sections),
    };
    write(args, &page)
}

fn write(args: &ReportArgs, page: &str) -> Result<()> {
    match file(args) {
        None => Ok(crate::terminal::stdout().write_all(page.as_bytes())?),
        Some(path) => write_new(path, page, args.quiet),
    }
}

/// The file to write; nothing for stdout.
fn file(args: &ReportArgs) -> Option<&Path> {
    args.out.as_deref().filter(|path| *path != Path::new("-"))
}

/// Refuses what cannot end well before the runs are read.
fn check(args: &ReportArgs) -> Result<()> {
    for (i, folder) in args.runs.iter().enumerate() {
        if args.runs[..i].contains(folder) {
            bail_usage!("{} is named twice", folder.display());
        }
    }
    if args.splice.is_some() && !matches!(args.format, None | Some(ReportFormat::Markdown)) {
        bail_usage!("--splice writes Markdown: leave --format out");
    }
    if let Some(path) = file(args).filter(|path| path.exists()) {
        bail_usage!("--out {}: it exists, and nothing is overwritten; name a new file", path.display());
    }
    let to_terminal = args.splice.is_none() && args.out.is_none() && std::io::stdout().is_terminal();
    if to_terminal && matches!(args.format, None | Some(ReportFormat::Html)) {
        bail_usage!("a page is not for the terminal: name a file with -o report.html, or ask for --format markdown");
    }
    Ok(())
}

/// Writes a file that must not exist.
fn write_new(path: &Path, page: &str, quiet: bool) -> Result<()> {
    let mut file = File::create_new(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(page.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    if !quiet {
        crate::say!("report in {} ({} KiB)", path.display(), page.len().div_ceil(1024));
    }
    Ok(())
}

/// Fills in the markers of a file. It is replaced in one step: whoever reads it sees the old or the new one.
fn splice_file(path: &Path, sections: &[Section], quiet: bool) -> Result<()> {
    let shown = path.display();
    // A link stays a link: what it points to is replaced.
    let path: PathBuf = path.canonicalize().with_context(|| format!("cannot read {shown}"))?;
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let home = path.parent().context("a file has a folder")?;
    let spliced = splice(&text, sections, home).with_context(|| shown.to_string())?;
    let changed = spliced != text;
    if changed {
        replace(&path, home, &spliced).with_context(|| format!("cannot replace {shown}"))?;
    }
    if !quiet {
        crate::say!("{shown}: {}", if changed { "results spliced in" } else { "already up to date" });
    }
    Ok(())
}

fn replace(path: &Path, home: &Path, text: &str) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(home)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
