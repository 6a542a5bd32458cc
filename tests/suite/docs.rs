//! README.md and docs/: commands that work as typed, links that lead somewhere, numbers that the commands print.

use assert_cmd::Command;
use clap::Parser;
use difftool::cli::Cli;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and every page of docs/, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut paths: Vec<PathBuf> = std::iter::once(root().join("README.md")).chain(pages).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// The lines of all blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}");
    let mut inside = false;
    let lines = page.lines().filter(move |line| {
        let edge = line.starts_with("```");
        if edge {
            inside = !inside && **line == fence;
        }
        inside && !edge
    });
    lines.collect()
}

/// What a page tells the reader to type to difftool: the words after its name, without comment and redirection.
fn commands(page: &str) -> Vec<Vec<String>> {
    let words = |line: &&str| {
        let line = line.split(" #").next().unwrap_or_default().split(" > ").next().unwrap_or_default().trim();
        let rest = line.strip_prefix("difftool ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
        Some(rest.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect())
    };
    blocks(page, "sh").iter().filter_map(words).collect()
}

#[test]
fn every_command_of_the_pages_can_be_typed() {
    let mut count = 0;
    for (path, page) in pages() {
        for words in commands(&page) {
            let typed = std::iter::once("difftool".to_owned()).chain(words.iter().cloned());
            if let Err(error) = Cli::try_parse_from(typed) {
                assert!(!error.use_stderr(), "{}: difftool {}\n{error}", path.display(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} commands were found");
}

#[test]
fn every_link_of_the_pages_leads_to_a_file() {
    for (path, page) in pages() {
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = path.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{} links to {target}, which is not there", path.display());
        }
    }
}

/// The anchors of a page's headings, as forges make them.
fn anchors(page: &str) -> Vec<String> {
    let anchor = |heading: &str| -> String {
        let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        heading.to_lowercase().chars().filter(|&c| kept(c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn every_link_to_a_heading_leads_to_one() {
    for (path, page) in pages() {
        for target in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, anchor)) = target.split_once('#').filter(|_| !target.contains("://")) else { continue };
            let other = path.parent().unwrap().join(file);
            let of = if file.is_empty() { page.clone() } else { fs::read_to_string(&other).unwrap() };
            assert!(anchors(&of).iter().any(|found| found == anchor), "{}: no heading for {target}", path.display());
        }
    }
}

#[test]
fn the_readme_is_for_a_reader_with_three_minutes() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= 250, "{lines} lines; what is more belongs in docs/");
}

/// What stands in a page as printed by `command`.
fn printed(page: &str, command: &str) -> String {
    let begin = page.find(&format!("<!-- printed by: {command}")).unwrap_or_else(|| panic!("no block of {command}"));
    let block = page[begin..].split("```\n").nth(1).unwrap();
    block.to_owned()
}

#[test]
fn the_cheap_commands_print_what_the_pages_show() {
    let models = fs::read_to_string(root().join("docs/models.md")).unwrap();
    let scratch = TempDir::new().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::cargo_bin("difftool").unwrap();
        let output = command.args(words).current_dir(scratch.path()).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    assert_eq!(run(&["inspect", "diff"]), printed(&models, "difftool inspect diff"));
}

#[test]
#[ignore = "minutes on two cores: cargo test --release -- --ignored"]
fn the_first_command_of_the_readme_prints_the_readmes_table() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let command = "difftool needle --ctx 4k --out runs/readme";
    assert!(readme.contains("cargo run --release -- needle --ctx 4k "), "the first command is another one");
    let scratch = TempDir::new().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let output = Command::cargo_bin("difftool").unwrap().args(words).current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success());
    let (stdout, shown) = (String::from_utf8(output.stdout).unwrap(), printed(&readme, command));
    // The README shows some of the tables.
    let blocks: Vec<&str> = shown.trim().split("\n\n").collect();
    assert!(blocks.len() > 4, "{shown}");
    for block in blocks {
        assert!(stdout.contains(block), "{block}\nis not in\n{stdout}");
    }
}
