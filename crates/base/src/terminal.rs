//! Output to the terminal: escaped text, messages of bounded length, and a stdout whose errors name it.
//!
//! Names of models and tensors, values of a configuration, tokens and haystacks come from files of others. A control
//! character in them could move the cursor, change colours or the window's title, or hide parts of a message.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

/// Longest message, in characters.
const MESSAGE_MAX: usize = 2_000;

/// Characters kept from the end of a longer message, where the cause of an error is.
const MESSAGE_END: usize = 500;

/// Prints a line to stderr, formatted as by `eprintln!`; see [`crate::terminal::say`].
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::terminal::say(&format!($($arg)*)) };
}

/// Prints a line to stderr, escaped and cut to a bounded length. Errors of stderr are ignored, so that they do not stop a
/// measurement.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", cut(&escaped(line)));
}

/// Escapes control characters and characters that reorder text, for example as `\n` or `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_except(text, &[])
}

/// As [`escaped`], but keeps line breaks and tabs.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_except(text, &['\n', '\t'])
}

fn escaped_except<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    if !text.contains(|c: char| needs_escape(c) && !kept.contains(&c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for c in text.chars() {
        if needs_escape(c) && !kept.contains(&c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns `true` for control characters, marks of the writing direction, and Unicode line separators.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text, or only its beginning and end if it is too long for a message.
pub fn cut(text: &str) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= MESSAGE_MAX {
        return Cow::Borrowed(text);
    }
    let begin: String = text.chars().take(MESSAGE_MAX - MESSAGE_END).collect();
    let end: String = text.chars().skip(length - MESSAGE_END).collect();
    Cow::Owned(format!("{begin} [... {} characters ...] {end}", length - MESSAGE_MAX))
}

/// The arguments of this process, the program's name first. Invalid UTF-8, as in file names, is replaced.
pub fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Characters of a line if stdout is not a terminal.
const PAGE: usize = 80;

/// The width of stdout in characters: that of the terminal, or 80.
pub fn columns() -> usize {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((width, _)) => usize::from(width.0).max(PAGE / 2),
        None => PAGE,
    }
}

/// Returns `true` if stdout is a terminal that shows bold text, and nobody asked for none of it (`NO_COLOR`).
pub fn has_styles() -> bool {
    let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    io::stdout().is_terminal() && is_unset("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Wraps a text to the width of stdout; lines after the first begin with `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(columns()).subsequent_indent(indent).break_words(false);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}

/// A writer for standard output whose errors name it. The kind of an error, such as a broken pipe, is preserved.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

/// Locked standard output; see [`stdout`].
pub struct Stdout(io::StdoutLock<'static>);

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// A path as a POSIX shell takes it, and no program takes for a flag.
pub fn quoted_path(path: &Path) -> String {
    let shown = path.display().to_string();
    let word = if shown.starts_with('-') { format!("./{shown}") } else { shown };
    quoted(&word)
}

/// A word as a POSIX shell takes it.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./,:=@%+".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_commands_are_one_word_and_no_flag() {
        let cases = [
            ("runs/a", "runs/a"),
            ("a b", "'a b'"),
            ("$(touch x)", "'$(touch x)'"),
            ("-x", "./-x"),
            ("a'b", r"'a'\''b'"),
        ];
        for (path, word) in cases {
            assert_eq!(quoted_path(Path::new(path)), word);
        }
    }

    #[test]
    fn control_characters_are_escaped_and_other_text_is_unchanged() {
        assert_eq!(escaped("e\u{1b}[31mRED\u{7}\r\n"), "e\\u{1b}[31mRED\\u{7}\\r\\n");
        assert_eq!(escaped("\u{9b}2J a\u{202e}b"), "\\u{9b}2J a\\u{202e}b");
        assert_eq!(escaped_lines("a\tb\nc\u{1b}"), "a\tb\nc\\u{1b}");
        for plain in ["", "Zo\u{eb} \u{1f600} \u{3bb} .\\u{1b}", "model.layers.0"] {
            assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        let message = format!("config.json: {}: not JSON", "\u{eb}".repeat(1_000_000));
        let shown = cut(&message);
        assert!(shown.starts_with("config.json: \u{eb}") && shown.ends_with("\u{eb}: not JSON"), "{shown}");
        assert!(shown.chars().count() < MESSAGE_MAX + 50 && shown.contains("characters ...]"));
        assert_eq!(cut("short"), "short");
    }
}
