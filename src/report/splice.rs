//! Results between markers of a text file, so that a README shows what a run found and how to run it again:
//!
//! ```text
//! <!-- difftool report runs/readme: accuracy, differences -->
//! whatever stands here is replaced
//! <!-- end difftool report -->
//! ```
//!
//! Markers stand alone on their lines. After the folder may come the tables to show; without them it is those of the
//! first look. Markers within fenced code, as here, are only talked about.

use super::markdown::excerpt;
use super::Section;
use anyhow::{bail, ensure, Context, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- difftool report ";
const END: &str = "<!-- end difftool report -->";

/// A begin and its end.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    /// The 1-based line of the begin.
    line: usize,
    folder: &'a str,
    tables: Vec<String>,
    /// Bytes between the markers' lines.
    inside: Range<usize>,
    /// How the begin's line ends.
    newline: &'static str,
}

/// The text with the blocks of the sections filled in; `home` is the folder that the text's file is in.
///
/// # Errors
/// If markers are missing or unbalanced, name a folder that was not given or a table that the run does not have.
pub fn splice(text: &str, sections: &[Section], home: &Path) -> Result<String> {
    let blocks = blocks(text)?;
    for section in sections {
        let folder = section.folder.display();
        ensure!(
            blocks.iter().any(|block| names(block.folder, &section.folder, home)),
            "no marker for {folder}; where its results belong, put the line `{BEGIN}{folder} -->` and, under it, `{END}`"
        );
    }
    let (mut spliced, mut done) = (String::with_capacity(text.len()), 0);
    for block in &blocks {
        let section =
            sections.iter().find(|section| names(block.folder, &section.folder, home)).with_context(|| {
                format!("line {}: the marker names {}, which is not among the runs given", block.line, block.folder)
            })?;
        let body = excerpt(section, &block.tables).map_err(|why| anyhow::anyhow!("line {}: {why}", block.line))?;
        // A command line can hold anything, and code is not escaped.
        ensure!(!body.lines().any(is_marker), "the command of {} holds a line that is a marker", block.folder);
        spliced += &text[done..block.inside.start];
        spliced += &format!("\n{body}\n").replace('\n', block.newline);
        done = block.inside.end;
    }
    spliced += &text[done..];
    Ok(spliced)
}

fn is_marker(line: &str) -> bool {
    line.trim() == END || line.trim().starts_with(BEGIN)
}

/// Finds the blocks, in order.
fn blocks(text: &str) -> Result<Vec<Block<'_>>> {
    let (mut blocks, mut open, mut fence): (Vec<Block<'_>>, Option<Block<'_>>, Option<&str>) = (Vec::new(), None, None);
    let mut start = 0;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let (number, end) = (i + 1, start + line.len());
        match (line.trim(), open.take()) {
            (END, Some(block)) => blocks.push(Block { inside: block.inside.start..start, ..block }),
            // What is between markers is ours: its fences do not count.
            (found, Some(block)) => {
                ensure!(
                    !found.starts_with(BEGIN),
                    "line {number}: a marker begins before the one of line {} has ended with {END}",
                    block.line
                );
                open = Some(block);
            }
            (found, None) if fence.is_some_and(|fence| found.starts_with(fence)) => fence = None,
            (_, None) if fence.is_some() => {}
            (END, None) => bail!("line {number}: {END} without a beginning: {BEGIN}FOLDER -->"),
            (found, None) if found.starts_with(BEGIN) => open = Some(begin(found, number, end, line)?),
            (found, None) => fence = ["```", "~~~"].into_iter().find(|fence| found.starts_with(fence)),
        }
        start = end;
    }
    match open {
        Some(block) => bail!("line {}: the marker has no end; put {END} after it", block.line),
        None => Ok(blocks),
    }
}

/// Reads the marker on a line that ends at byte `end`.
fn begin<'a>(marker: &'a str, number: usize, end: usize, line: &str) -> Result<Block<'a>> {
    let named = marker.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->")).map(str::trim);
    let named = named.with_context(|| format!("line {number}: the marker does not end with -->"))?;
    let (folder, tables) = named.split_once(": ").unwrap_or((named, ""));
    ensure!(!folder.trim().is_empty(), "line {number}: the marker names no run folder");
    let tables = tables.split(',').map(str::trim).filter(|id| !id.is_empty()).map(ToOwned::to_owned).collect();
    let newline = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    Ok(Block { line: number, folder: folder.trim(), tables, inside: end..end, newline })
}

/// Returns `true` if a marker's folder is the one of a section: written alike, or the same as seen from the text's own folder.
fn names(marker: &str, folder: &Path, home: &Path) -> bool {
    let plain = |path: &Path| path.components().filter(|part| part.as_os_str() != ".").collect::<PathBuf>();
    let real = |path: &Path| path.canonicalize().ok();
    plain(Path::new(marker)) == plain(folder)
        || real(&home.join(marker)).is_some_and(|found| real(folder).is_some_and(|folder| folder == found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> String {
        format!("{:#}", blocks(text).unwrap_err())
    }

    #[test]
    fn a_block_is_what_stands_between_its_markers() {
        let text = "a\n<!-- difftool report runs/x: accuracy, heads -->\nold\n  <!-- end difftool report -->\nb";
        let found = blocks(text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].folder, found[0].line), ("runs/x", 2));
        assert_eq!(found[0].tables, ["accuracy", "heads"]);
        assert_eq!(&text[found[0].inside.clone()], "old\n");
    }

    #[test]
    fn markers_in_fenced_code_are_only_talked_about() {
        let text = "```text\n<!-- difftool report runs/x -->\n```\n~~~\n<!-- end difftool report -->\n~~~\n";
        assert_eq!(blocks(text).unwrap(), []);
    }

    #[test]
    fn fences_of_an_earlier_splice_do_not_hide_the_end() {
        let text = "<!-- difftool report x -->\n```sh\ndifftool\n<!-- end difftool report -->\n";
        assert_eq!(blocks(text).unwrap().len(), 1);
    }

    #[test]
    fn unbalanced_markers_are_named_by_their_line() {
        let begin = "<!-- difftool report x -->\n";
        assert!(refusal(begin).starts_with("line 1: the marker has no end"));
        assert!(refusal("a\n<!-- end difftool report -->").starts_with("line 2: <!-- end difftool report --> without"));
        assert!(
            refusal(&format!("{begin}{begin}{END}")).starts_with("line 2: a marker begins before the one of line 1")
        );
        assert!(refusal("<!-- difftool report x\n").starts_with("line 1: the marker does not end with -->"));
        assert!(refusal("<!-- difftool report  -->\n").starts_with("line 1: the marker names no run folder"));
    }

    #[test]
    fn a_folder_may_be_written_in_several_ways() {
        let here = Path::new(".");
        assert!(names("./runs/x/", Path::new("runs/x"), here));
        assert!(!names("runs/y", Path::new("runs/x"), here));
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("x")).unwrap();
        assert!(names("x", &home.path().join("x"), home.path()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(lines in prop::collection::vec(prop_oneof![
            Just("<!-- difftool report x -->".to_owned()), Just(END.to_owned()), Just("```".to_owned()), ".*"
        ], 0..12), newline in prop_oneof![Just("\n"), Just("\r\n")]) {
            let text = lines.join(newline);
            if let Ok(blocks) = blocks(&text) {
                for block in blocks {
                    prop_assert!(text.get(block.inside).is_some());
                }
            }
        }
    }
}
