//! What reaches the terminal: names of strangers without what a terminal obeys, messages of a bounded length, lines on
//! stderr that may get lost, and a stdout whose errors say that it was stdout.
//!
//! Names of models and tensors, values of a configuration, tokens and haystacks come from somebody else. A control
//! character among them could move the cursor, change colours or the window's title, or hide what a message says.

use std::borrow::Cow;
use std::io::{self, Write};

/// Characters of a message, at most: a name of a megabyte must not push everything else off the screen.
const MESSAGE_MAX: usize = 2_000;

/// Characters that a cut message ends with: the cause stands at the end of a chain of errors.
const MESSAGE_END: usize = 500;

/// Prints a line on stderr, formatted like `eprintln!`; see [`crate::terminal::say`].
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::terminal::say(&format!($($arg)*)) };
}

/// Prints a line on stderr, escaped and cut to a bounded length. A stderr that is closed or full is no reason to stop:
/// the line is lost, the measurement goes on.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", cut(&escaped(line)));
}

/// The text with every character that a terminal obeys, or that reorders what is read, written out as `\n` or `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// As [`escaped`], but lines and tabs stay: for a text of several lines.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| is_obeyed(c) && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Control characters, the invisible ones that turn the direction of writing, and the two that end a line.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text, or its beginning and its end if it is too long for a message.
pub fn cut(text: &str) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= MESSAGE_MAX {
        return Cow::Borrowed(text);
    }
    let begin: String = text.chars().take(MESSAGE_MAX - MESSAGE_END).collect();
    let end: String = text.chars().skip(length - MESSAGE_END).collect();
    Cow::Owned(format!("{begin} [... {} characters ...] {end}", length - MESSAGE_MAX))
}

/// The arguments of this process, the program's name first. What is not UTF-8 (a file name may be anything) is replaced.
pub fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Characters of a line where no terminal says how wide it is.
const PAGE: usize = 80;

/// Characters of a line on stdout: as many as the terminal has, 80 in a file.
pub fn columns() -> usize {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((width, _)) => usize::from(width.0).max(PAGE / 2),
        None => PAGE,
    }
}

/// Text in lines that fit the page; those after the first begin with the indent.
pub fn wrapped(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(columns()).subsequent_indent(indent).break_words(false);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}

/// Standard output. Its errors name it; a closed pipe stays a closed pipe.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

/// See [`stdout`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out_and_the_rest_stays() {
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
