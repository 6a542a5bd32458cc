//! Wrapped text: lines that end where the next word did not fit, and not where a sentence does.

use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// Columns from which a text counts as wrapped at its longest lines.
const LEAST_WIDTH: usize = 40;

/// Columns of a word that may be missing in a full line: a longer word, as in scripts without spaces, can be broken.
const WORD_MAX: usize = 20;

/// Marks before items of lists, quotations and rows of tables.
const MARKS: [&str; 7] = ["- ", "* ", "+ ", "\u{2022} ", "> ", "|", "#"];

/// The text with the lines of each paragraph joined where it was wrapped. Other line ends stay, such as those of lists,
/// headings and short lines. Empty lines separate paragraphs.
pub(super) fn unwrapped(text: &str) -> String {
    let text =
        if text.contains('\r') { Cow::from(text.replace("\r\n", "\n").replace('\r', "\n")) } else { Cow::from(text) };
    let lines: Vec<&str> = text.lines().collect();
    let paragraphs = || lines.split(|line| line.trim().is_empty());
    let ends: Vec<[&str; 2]> = paragraphs().flat_map(|lines| lines.windows(2)).map(|pair| [pair[0], pair[1]]).collect();
    // Verse and lists begin their lines with capitals.
    let small = ends.iter().filter(|[_, next]| !begins(next, char::is_uppercase) && begins(next, char::is_alphabetic));
    let is_prose = 4 * small.count() >= ends.len();
    let mut joined = String::with_capacity(text.len());
    for lines in paragraphs() {
        let width = lines.iter().map(|line| line.trim_end().width()).max().unwrap_or(0);
        for (i, line) in lines.iter().enumerate() {
            joined.push_str(line.trim());
            match lines.get(i + 1) {
                Some(next) if is_wrapped(line, next, width, is_prose) => joined.push_str(space(line, next)),
                _ => joined.push('\n'),
            }
        }
        joined.push('\n');
    }
    joined
}

/// Returns `true` if a line goes on in the next one, in a paragraph of this width.
fn is_wrapped(line: &str, next: &str, width: usize, is_prose: bool) -> bool {
    if is_item(next) || line.trim_start().starts_with(['#', '|']) {
        return false;
    }
    let word = next.split_whitespace().next().unwrap_or_default();
    let is_full = line.trim_end().width() + 1 + word.width().min(WORD_MAX) > width;
    let begins_paragraph = indent(next) > indent(line) && !is_item(line);
    begins(next, char::is_lowercase) || is_prose && width >= LEAST_WIDTH && is_full && !begins_paragraph
}

/// Returns `true` for an item of a list, a heading, a quotation or a row of a table.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let behind_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered =
        behind_number.len() < line.len() && [". ", ") "].iter().any(|mark| behind_number.starts_with(mark));
    is_numbered || MARKS.iter().any(|mark| line.starts_with(mark))
}

fn begins(line: &str, with: impl Fn(char) -> bool) -> bool {
    line.trim_start().chars().next().is_some_and(with)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// What stands between two words, such as those at a line end: nothing in scripts without spaces.
pub(super) fn space(line: &str, next: &str) -> &'static str {
    let around = [line.trim_end().chars().next_back(), next.trim_start().chars().next()];
    if around.iter().flatten().all(|&char| is_unspaced(char)) {
        ""
    } else {
        " "
    }
}

/// Returns `true` for characters of Thai, Lao, Burmese, Khmer, Chinese and Japanese.
fn is_unspaced(char: char) -> bool {
    matches!(char, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3000}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_where_a_text_was_wrapped_and_nowhere_else() {
        let prose = "The river is wide here, and boats go by the whole day\nwithout a word. Old people sit on benches in front of\nLondon houses and count them.";
        let joined = prose.replace('\n', " ");
        for (name, text, want) in [
            ("prose", prose.to_owned(), joined.clone()),
            ("two paragraphs", format!("{prose}\n\n{prose}"), format!("{joined}\n\n{joined}")),
            ("CRLF", prose.replace('\n', "\r\n"), joined.clone()),
            ("CR", prose.replace('\n', "\r"), joined.clone()),
            ("indented", format!("    {}", prose.replace('\n', "\n    ")), joined.clone()),
            ("indented first lines", format!("  {prose}\n  {prose}"), format!("{joined}\n{joined}")),
            ("spaces at line ends", prose.replace('\n', "  \n"), joined.clone()),
            ("a list", "- the first of them\n- a second one\n  that is long\n3. third".into(), "- the first of them\n- a second one that is long\n3. third".into()),
            ("a heading", format!("# Of rivers\n{prose}"), format!("# Of rivers\n{joined}")),
            ("a short heading", format!("Of rivers\n{prose}"), format!("Of rivers\n{joined}")),
            ("verse", "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\nRough winds do shake the darling buds of May,".into(), "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\nRough winds do shake the darling buds of May,".into()),
            ("names", "Apple\nPear\nFig".into(), "Apple\nPear\nFig".into()),
            ("Chinese", "河很宽，船很小，天很高，我们在河边走了很久很久，看见了很\n多人。船来了。".into(), "河很宽，船很小，天很高，我们在河边走了很久很久，看见了很多人。船来了。".into()),
            ("Korean", "강은 넓고 배는 작고 하늘은 높다 그리고 우리는 오래 걸었다\n사람들이 보인다.".into(), "강은 넓고 배는 작고 하늘은 높다 그리고 우리는 오래 걸었다 사람들이 보인다.".into()),
        ] {
            assert_eq!(unwrapped(&text).trim_end(), want, "{name}");
        }
    }
}
