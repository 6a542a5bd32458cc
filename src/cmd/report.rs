//! `difftool report`: run folders as a page.

use super::command_line;
use super::compare::{in_short, talk};
use super::flags::with_flag_names;
use crate::bail_usage;
use crate::cli::{ExplorerArg, ReportArgs, ReportFormat};
use crate::files::{self, folder_of, replace};
use crate::html::is_page;
use crate::report::{html, markdown, splice, title, ComparedRuns, Report, SavedRun, Section};
use crate::results::compare::{compare, Request};
use crate::results::print::{text, Tables};
use crate::results::{Correction, Field, Metrics};
use crate::runfolder::EXPLORER;
use anyhow::{ensure, Context, Result};
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

/// Columns that runs are compared by: context and needles.
const GROUPS: [Field; 3] = [Field::CtxTok, Field::Needles, Field::Retrieve];

/// Reads the runs and writes the report.
///
/// # Errors
/// Usage errors before anything is read; others if a run or the file cannot be read or written.
pub(super) fn run(args: &ReportArgs) -> Result<()> {
    check(args)?;
    let runs = args.runs.iter().map(|folder| SavedRun::read(folder)).collect::<Result<Vec<_>>>()?;
    if let Some(other) = runs.iter().find(|run| run.manifest.tool != runs[0].manifest.tool).filter(|_| !args.quiet) {
        crate::say!(
            "{} is of difftool {} and {} of {}: their numbers may differ for that alone",
            runs[0].folder.display(),
            runs[0].manifest.tool,
            other.folder.display(),
            other.manifest.tool
        );
    }
    let compared = args.compare.then(|| compared(&args.runs, &runs)).transpose()?;
    if args.format == Some(ReportFormat::Text) {
        let tables = runs.iter().map(|run| text(&run.frame()?, &Tables::Main)).collect::<Result<Vec<String>>>()?;
        return write(args, &tables.join("\n"));
    }
    let mut sections: Vec<Section> = runs.into_iter().map(Section::new).collect::<Result<_>>()?;
    if let Some(path) = &args.splice {
        return splice_file(path, &sections, args.quiet);
    }
    if let Some(how) = args.explore {
        add_explorers(&mut sections, how, file(args))?;
    }
    let title = args.title.clone().unwrap_or_else(|| title(&sections));
    let report = Report { title, sections, compared };
    let page = match args.format {
        None | Some(ReportFormat::Html) => html(&report)?,
        Some(_) => markdown(&report),
    };
    write(args, &page)
}

/// Writes the report of one finished run, with its explorer if it has one.
pub(super) fn write_run(folder: &Path, page: &Path, quiet: bool) -> Result<()> {
    let mut sections = vec![Section::new(SavedRun::read(folder)?)?];
    if sections[0].explorer_page().is_some() {
        add_explorers(&mut sections, ExplorerArg::Include, Some(page))?;
    }
    write_whole(page, &html(&Report { title: title(&sections), sections, compared: None })?, quiet)
}

/// Checks that a page can be written to a file.
///
/// # Errors
/// Usage errors that name the flag.
pub(super) fn check_page(flag: &str, page: &Path) -> Result<()> {
    let shown = page.display();
    if page.exists() && !is_page(page) {
        bail_usage!("{flag} {shown}: it exists and is not a page of a report; name a new file");
    }
    if !folder_of(page).is_dir() {
        bail_usage!("{flag} {shown}: there is no folder {}", folder_of(page).display());
    }
    Ok(())
}

/// Takes in, or links, the explorers that runs have made.
fn add_explorers(sections: &mut [Section], how: ExplorerArg, page: Option<&Path>) -> Result<()> {
    let (mut found, mut left_out) = (0, Vec::new());
    for section in sections.iter_mut() {
        let Some(explorer) = section.explorer_page() else { continue };
        found += 1;
        match how {
            ExplorerArg::Link if explorer.is_file() => section.link_explorer(link(page, &explorer)?),
            _ => left_out.extend(section.include_explorer(&explorer)?),
        }
    }
    if found == 0 {
        bail_usage!("--explore: none of the runs has made a file {EXPLORER}, as `difftool explore` does");
    }
    ensure!(left_out.len() < found, "--explore: {}", left_out.join("; "));
    for why in left_out {
        crate::say!("--explore leaves a page out: {why}");
    }
    Ok(())
}

/// The way from a page to another file, as a link has it: relative, so that both can be moved together.
fn link(page: Option<&Path>, to: &Path) -> Result<String> {
    let real = |path: &Path| path.canonicalize().with_context(|| format!("cannot find {}", path.display()));
    let home = page.map_or(Path::new("."), folder_of);
    let (from, to) = (real(home)?, real(to)?);
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| "..".to_owned());
    let down = to.components().skip(common).map(|part| encoded(&part.as_os_str().to_string_lossy()));
    Ok(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// A part of a path as a link has it (RFC 3986: what is not unreserved by its bytes).
fn encoded(part: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    part.bytes().map(byte).collect()
}

/// The runs compared as `difftool compare` would without further flags: several with each other, the models of a single one.
fn compared(folders: &[PathBuf], runs: &[SavedRun]) -> Result<ComparedRuns> {
    let by = (runs.len() == 1).then_some(Field::Model);
    let models = |run: &SavedRun| run.manifest.models.iter().map(|model| model.name.clone()).collect::<Vec<_>>();
    let alike = runs.windows(2).all(|two| models(&two[0]) == models(&two[1]));
    // Of runs of the same models each has rows of its own.
    let by_model = (by.is_none() && alike && models(&runs[0]).len() > 1).then_some(Field::Model);
    let comparison = compare(&Request {
        inputs: folders.to_vec(),
        by,
        baseline: None,
        metrics: Metrics::Headline,
        wheres: Vec::new(),
        group_by: by_model.into_iter().chain(GROUPS).collect(),
        replicates: None,
        correction: Correction::default(),
        allow_different_prompts: false,
    })
    .map_err(|error| match command_line().find_subcommand("compare") {
        Some(command) => with_flag_names(error, command),
        None => error,
    })
    .context("--compare, as `difftool compare` without flags")?;
    let notes = talk(&comparison).lines().map(str::to_owned).collect();
    Ok(ComparedRuns::new(&in_short(&comparison.rows), &comparison.groups, notes))
}

fn write(args: &ReportArgs, page: &str) -> Result<()> {
    match file(args) {
        None => Ok(crate::terminal::stdout().write_all(page.as_bytes())?),
        Some(path) => write_whole(path, page, args.quiet),
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
    if args.format == Some(ReportFormat::Text) && (args.compare || args.explore.is_some()) {
        bail_usage!("--format text is what the runs printed: leave --compare and --explore out");
    }
    if args.explore.is_some() && args.format == Some(ReportFormat::Markdown) {
        bail_usage!("--explore puts pages into a page: leave --format markdown out");
    }
    file(args).map_or(Ok(()), |page| check_page("--out", page))?;
    let to_terminal = args.splice.is_none() && args.out.is_none() && std::io::stdout().is_terminal();
    if to_terminal && matches!(args.format, None | Some(ReportFormat::Html)) {
        bail_usage!("a page is not for the terminal: name a file with -o report.html, or ask for --format markdown");
    }
    Ok(())
}

/// Writes a file: it is there whole or not at all.
fn write_whole(path: &Path, page: &str, quiet: bool) -> Result<()> {
    replace(path, |partial| Ok(fs::write(partial, page)?))?;
    if !quiet {
        crate::say!("report in {} ({} KiB)", path.display(), page.len().div_ceil(1024));
    }
    Ok(())
}

/// Fills in the markers of a file. It is replaced in one step: whoever reads it sees the old or the new one.
fn splice_file(path: &Path, sections: &[Section], quiet: bool) -> Result<()> {
    let shown = path.display();
    // A link stays a link: what it points to is replaced.
    let text = files::input_text(path, files::TEXT_MAX)?;
    let path: PathBuf = path.canonicalize().with_context(|| format!("cannot read {shown}"))?;
    let home = path.parent().context("a file has a folder")?;
    let spliced = splice(&text, sections, home).with_context(|| shown.to_string())?;
    let changed = spliced != text;
    if changed {
        replace(&path, |partial| Ok(fs::write(partial, &spliced)?))?;
    }
    if !quiet {
        crate::say!("{shown}: {}", if changed { "results spliced in" } else { "already up to date" });
    }
    Ok(())
}
