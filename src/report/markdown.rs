//! Sections as GitHub Markdown.

use super::{facts, Report};
use crate::results::print::{escaped_markdown as escaped, markdown_with_caption};
use std::fmt::Write as _;

/// The comparison, and all sections with all their tables.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n", escaped(&report.title));
    if let Some(compared) = &report.compared {
        text += "\n## Comparison\n";
        for note in &compared.notes {
            let _ = write!(text, "\n{}\n", escaped(note));
        }
        if let Some(table) = &compared.table {
            let _ = write!(text, "\n### {}\n\n{}", table.title, markdown_with_caption(table));
        }
    }
    for section in &report.sections {
        let run = &section.run;
        let folder = escaped(&run.folder.display().to_string());
        let _ = write!(text, "\n## {} ({folder})\n", escaped(&facts::name(run)));
        let mut paragraphs = vec![run.frame.about.config.question.trim()];
        paragraphs.extend(facts::analysis(run));
        let conclusion = section.conclusion().unwrap_or_default();
        paragraphs.push(&conclusion);
        let sentence = facts::sentence(run);
        paragraphs.push(&sentence);
        for paragraph in paragraphs.into_iter().filter(|paragraph| !paragraph.is_empty()) {
            let _ = write!(text, "\n{}\n", escaped(paragraph));
        }
        let _ = write!(text, "\n{}", command(&facts::command(run)));
        for chapter in &section.chapters {
            let _ = write!(text, "\n### {}\n", escaped(&chapter.title));
            for paragraph in &chapter.paragraphs {
                let _ = write!(text, "\n{}\n", escaped(paragraph));
            }
            let _ = write!(text, "\n{}", command(&chapter.command));
        }
        for table in section.all_tables() {
            let _ = write!(text, "\n### {}\n\n{}", table.title, markdown_with_caption(table));
        }
    }
    text
}

/// The command in a block that a command with backticks of its own cannot end.
fn command(command: &str) -> String {
    let ticks = command.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(ticks + 1));
    format!("{fence}sh\n{command}\n{fence}\n")
}
