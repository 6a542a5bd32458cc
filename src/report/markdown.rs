//! Sections as GitHub Markdown.

use super::{Findings, Report, Section};
use crate::tables::{Cell, Sheet};
use crate::terminal::escaped_lines;
use std::fmt::Write as _;

/// The comparison, and all sections with all their tables.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n", escaped(&report.title));
    if let Some(compared) = &report.compared {
        let _ = write!(text, "\n## Comparison\n{}", found(&compared.findings));
        compared.notes.iter().for_each(|note| _ = write!(text, "\n{}\n", escaped(note)));
        if let Some(sheet) = &compared.sheet {
            let _ = write!(text, "\n### {}\n\n{}", sheet.title, table(sheet));
        }
    }
    for section in &report.sections {
        let folder = escaped(&section.folder.display().to_string());
        let _ = write!(text, "\n## {} ({folder})\n", escaped(&section.name));
        section.question.iter().for_each(|question| _ = write!(text, "\n{}\n", escaped(question)));
        text += &found(&section.findings);
        for paragraph in section.analysis.iter().chain(std::iter::once(&section.sentence)) {
            let _ = write!(text, "\n{}\n", escaped(paragraph));
        }
        let _ = write!(text, "\n{}", command(section));
        for sheet in section.all_tables() {
            let _ = write!(text, "\n### {}\n\n{}", sheet.title, table(sheet));
        }
    }
    text
}

/// What was found, as a list.
fn found(findings: &Findings) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let told = findings.list.iter().map(|finding| format!("{}: {}", finding.subject, finding.words()));
    let lines: String =
        told.chain(findings.remarks.iter().cloned()).map(|line| format!("- {}\n", escaped(&line))).collect();
    let more = if findings.more > 0 { format!("\n{} more are in the tables.\n", findings.more) } else { String::new() };
    format!("\n**What was found.**\n\n{lines}{more}")
}

/// What goes between the markers of a README: the command, and the tables that the first look is for or those named.
pub(super) fn excerpt(section: &Section, tables: &[String]) -> Result<String, String> {
    let all = || section.all_tables();
    let mut text = command(section);
    let chosen: Vec<&Sheet> = if tables.is_empty() {
        section.failures.iter().chain(section.results.iter().filter(|sheet| !sheet.detail)).collect()
    } else {
        let known = || all().map(|sheet| sheet.id).collect::<Vec<_>>().join(", ");
        let find = |id: &String| {
            all().find(|sheet| sheet.id == id).ok_or_else(|| format!("the run has no table `{id}`; it has {}", known()))
        };
        tables.iter().map(find).collect::<Result<_, _>>()?
    };
    for sheet in chosen {
        let _ = write!(text, "\n**{}.** {}", sheet.title, table(sheet));
    }
    Ok(text)
}

/// The command in a block that a command with backticks of its own cannot end.
fn command(section: &Section) -> String {
    let ticks = section.command.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(ticks + 1));
    format!("{fence}sh\n{}\n{fence}\n", section.command)
}

/// The note and the table.
fn table(sheet: &Sheet) -> String {
    let note = if sheet.note.is_empty() { String::new() } else { sheet.note.clone() + "\n" };
    format!("{note}\n{}", markdown_table(sheet))
}

/// The table alone.
pub(crate) fn markdown_table(sheet: &Sheet) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(sheet.columns.iter().map(|column| escaped(&column.heading)).collect());
    text += &line(sheet.columns.iter().map(|column| if column.number { "--:" } else { "---" }.to_owned()).collect());
    sheet.rows.iter().for_each(|row| text += &line(row.iter().map(cell).collect()));
    text
}

fn cell(cell: &Cell) -> String {
    format!("{} {}", escaped(&cell.text), cell.aside).trim_end().to_owned()
}

/// Text that stays text: on one line, without markup of its own, and never the end of a comment.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in escaped_lines(&text.trim().replace('\r', " ")).chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '\n' | '\r' | '\t' => safe.push(' '),
            '\\' | '`' | '*' | '_' | '|' | '[' | ']' | '~' | '#' | '$' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{numbers, words};

    #[test]
    fn text_is_never_markup() {
        assert_eq!(escaped("a|b\n<!-- x --> `*_[l](u)"), r"a\|b &lt;!-- x --&gt; \`\*\_\[l\](u)");
    }

    #[test]
    fn a_table_has_its_numbers_to_the_right_and_its_intervals_behind_them() {
        let accuracy = Cell { text: "97.5".into(), aside: "[93.1, 99.2]".into(), exact: Some(0.975), interval: None };
        let sheet = Sheet {
            id: "accuracy",
            title: "Answers",
            note: "Notes.".into(),
            columns: vec![words("model"), numbers("accuracy %")],
            rows: vec![vec![Cell::words("diff"), accuracy]],
            detail: false,
        };
        let expected = "Notes.\n\n| model | accuracy % |\n| --- | --: |\n| diff | 97.5 [93.1, 99.2] |\n";
        assert_eq!(table(&sheet), expected);
    }
}
