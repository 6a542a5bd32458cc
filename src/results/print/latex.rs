//! Tables as LaTeX, with the rules of the package booktabs.

use super::super::table::{Cell, Table};
use base::terminal;

/// Formats a table as a `tabular`, with its title and caption as a comment above.
pub(crate) fn latex_table(table: &Table) -> String {
    let comment =
        [table.title, &table.note].iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join(". ");
    let columns: String = table.columns.iter().map(|column| if column.number { 'r' } else { 'l' }).collect();
    let mut text =
        format!("% {}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n", terminal::escaped(&one_line(&comment)));
    text += &line(table.columns.iter().map(|column| escaped(&column.heading)));
    text += "\\midrule\n";
    table.rows.iter().for_each(|row| text += &line(row.iter().map(cell)));
    text + "\\bottomrule\n\\end{tabular}\n"
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("{} \\\\\n", cells.collect::<Vec<_>>().join(" & "))
}

/// A number with its interval, and a star if it is a decided change.
fn cell(cell: &Cell) -> String {
    let number = escaped(&cell.text);
    let number = if cell.exact.is_some() { number.replace('-', "$-$") } else { number };
    let interval = if cell.aside.is_empty() { String::new() } else { format!(" {}", cell.aside.replace('-', "$-$")) };
    let star = if cell.number_decided { "$^*$" } else { "" };
    format!("{number}{star}{interval}{}", if cell.decided { "$^*$" } else { "" })
}

/// Text without line breaks, which would end a comment.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes what LaTeX takes for commands.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in terminal::escaped(&one_line(text)).chars() {
        match c {
            '\\' => safe += "\\textbackslash{}",
            '~' => safe += "\\textasciitilde{}",
            '^' => safe += "\\textasciicircum{}",
            '|' => safe += "\\textbar{}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => safe.extend(['\\', c]),
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
    fn names_are_no_commands_and_changes_have_minus_signs_and_stars() {
        let change = Cell { aside: "[-5, -1]".into(), exact: Some(-0.03), decided: true, ..Cell::words("-3") };
        let columns = vec![words("model"), numbers("accuracy %")];
        let table =
            Table::new("x", "Answers", "50 %\nof all.".into(), columns, vec![vec![Cell::words(r"a_b\c"), change]]);
        let expected = "\
% Answers. 50 % of all.
\\begin{tabular}{lr}
\\toprule
model & accuracy \\% \\\\
\\midrule
a\\_b\\textbackslash{}c & $-$3 [$-$5, $-$1]$^*$ \\\\
\\bottomrule
\\end{tabular}
";
        assert_eq!(latex_table(&table), expected);
    }
}
