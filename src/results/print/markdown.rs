//! Tables as GitHub Markdown.

use super::super::table::{Cell, Table};
use base::terminal::escaped_lines;

/// Formats the caption and the table.
pub(crate) fn markdown_with_caption(table: &Table) -> String {
    let note = if table.note.is_empty() { String::new() } else { table.note.clone() + "\n" };
    format!("{note}\n{}", markdown_table(table))
}

/// Formats the table alone.
pub(crate) fn markdown_table(table: &Table) -> String {
    let columns = &table.columns;
    let mut text = line(columns.iter().map(|column| escaped(&column.heading)));
    text += &line(columns.iter().map(|column| if column.number { "--:" } else { "---" }.to_owned()));
    table.rows.iter().for_each(|row| text += &line(row.iter().map(cell)));
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn cell(cell: &Cell) -> String {
    let star = if cell.decided { "\\*" } else { "" };
    format!("{} {}", escaped(&cell.text), cell.aside).trim_end().to_owned() + star
}

/// Escapes text: it stays on one line, without markup of its own, and never ends a comment.
pub(crate) fn escaped(text: &str) -> String {
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
    use super::super::super::table::{numbers, words};
    use super::*;

    #[test]
    fn text_is_never_markup() {
        assert_eq!(escaped("a|b\n<!-- x --> `*_[l](u)"), r"a\|b &lt;!-- x --&gt; \`\*\_\[l\](u)");
    }

    #[test]
    fn a_table_has_its_numbers_to_the_right_and_its_intervals_behind_them() {
        let accuracy = Cell { text: "98".into(), aside: "[93, 99]".into(), exact: Some(0.975), ..Cell::default() };
        let columns = vec![words("model"), numbers("accuracy %")];
        let rows = vec![vec![Cell::words("diff"), accuracy]];
        let table = Table::new("summary", "Answers", "Notes.".into(), columns, rows);
        let expected = "Notes.\n\n| model | accuracy % |\n| --- | --: |\n| diff | 98 [93, 99] |\n";
        assert_eq!(markdown_with_caption(&table), expected);
    }
}
