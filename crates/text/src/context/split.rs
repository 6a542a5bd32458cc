//! A text cut into segments: sentences, lines or paragraphs.

use super::Segment;
use crate::segment::sentence_bounds;
use clap::ValueEnum;
use names::SegmentKind;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a text is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Sentences of prose; items of lists, code and rows of tables one by one
    Sentences,
    /// Lines
    Lines,
    /// Paragraphs, which empty lines separate
    Paragraphs,
    /// The passages of the file
    Passages,
    /// The files of a folder
    Files,
}

/// Sentences up to which a text is cut into them if nobody says otherwise; a longer one is cut into paragraphs.
const MOST_SENTENCES: usize = 60;

/// Cuts a text. White space goes with the segment behind it, and a heading with what is below it.
pub(super) fn split(text: &str, by: Option<Split>) -> Vec<Segment> {
    let ranges = match by {
        Some(Split::Lines) => lines(text),
        Some(Split::Paragraphs) => paragraphs(text),
        Some(Split::Sentences) => sentences(text),
        // Of one text, which has neither passages nor files, as nobody said anything.
        Some(Split::Passages | Split::Files) | None => {
            let sentences = sentences(text);
            if sentences.len() > MOST_SENTENCES {
                paragraphs(text)
            } else {
                sentences
            }
        }
    };
    segments(text, &ranges)
}

/// The parts of a text at these ranges, each with the white space before it.
fn segments(text: &str, ranges: &[Range<usize>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut end = 0;
    for range in ranges {
        let before = if segments.is_empty() { String::new() } else { text[end..range.start].to_owned() };
        segments.push(Segment { before, text: text[range.clone()].to_owned(), kind: SegmentKind::Unknown });
        end = range.end;
    }
    segments
}

/// A range without the white space at its ends; `None` if it is all white space.
fn trimmed(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    let end = range.start + part.trim_end().len();
    (start < end).then_some(start..end)
}

/// The lines of a text with their line ends.
fn all_lines(text: &str) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        lines.push(start..start + line.len());
        start += line.len();
    }
    lines
}

fn lines(text: &str) -> Vec<Range<usize>> {
    with_headings(text, all_lines(text).into_iter().filter_map(|line| trimmed(text, line)).collect())
}

fn paragraphs(text: &str) -> Vec<Range<usize>> {
    let mut paragraphs: Vec<Range<usize>> = Vec::new();
    let mut goes_on = false;
    for block in blocks(text) {
        match paragraphs.last_mut().filter(|_| goes_on && !block.begins) {
            Some(last) => last.end = block.range.end,
            None => paragraphs.push(block.range),
        }
        goes_on = true;
    }
    with_headings(text, paragraphs)
}

fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    for Block { range, is_prose, .. } in blocks(text) {
        if !is_prose {
            sentences.push(range);
            continue;
        }
        // Line ends within prose end no sentence.
        let prose = text[range.clone()].replace(['\n', '\r'], " ");
        let mut start = range.start;
        for sentence in sentence_bounds(&prose) {
            sentences.extend(trimmed(text, start..start + sentence.len()));
            start += sentence.len();
        }
    }
    with_headings(text, sentences)
}

/// Lines that belong together.
struct Block {
    range: Range<usize>,
    /// `true` if its lines go on in each other.
    is_prose: bool,
    /// `true` behind an empty line, and at the beginning.
    begins: bool,
}

/// The blocks of a text: paragraphs of prose, lines of code between fences, and single lines of other kinds.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut begins = true;
    let mut in_code = false;
    for line in all_lines(text) {
        let Some(range) = trimmed(text, line) else {
            begins = !in_code;
            continue;
        };
        let is_fence = text[range.clone()].starts_with("```");
        let is_prose = !is_fence && !in_code && !stands_alone(&text[range.clone()]);
        let goes_on = in_code || (is_prose && !begins && blocks.last().is_some_and(|last| last.is_prose));
        match blocks.last_mut().filter(|_| goes_on) {
            Some(last) => last.range.end = range.end,
            None => blocks.push(Block { range, is_prose, begins }),
        }
        in_code ^= is_fence;
        begins = false;
    }
    blocks
}

/// Returns `true` for headings, items of lists, quotations, rows of tables and JSON.
fn stands_alone(line: &str) -> bool {
    const MARKS: [&str; 9] = ["#", "- ", "* ", "+ ", "\u{2022}", "|", "> ", "{", "["];
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < line.len() && [". ", ") "].iter().any(|mark| number.starts_with(mark));
    is_numbered || MARKS.iter().any(|mark| line.starts_with(mark))
}

/// Joins each heading with what is below it.
fn with_headings(text: &str, ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    let mut heading = None;
    for range in ranges {
        let is_heading = text[range.clone()].starts_with('#') && !text[range.clone()].contains('\n');
        let start = heading.take().unwrap_or(range.start);
        if is_heading {
            heading = Some(start);
        } else {
            joined.push(start..range.end);
        }
    }
    joined.extend(heading.and_then(|start| trimmed(text, start..text.len())));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str, by: Split) -> Vec<String> {
        split(text, Some(by)).into_iter().map(|segment| segment.text).collect()
    }

    const NOTES: &str = "# Boats\n\nThe harbour is old. It has\ntwo piers.\n- 17 boats\n- 3 cranes\n\n| pier | boats |\n```\nlet a = 1;\n\nb.c();\n```\nThe end.";

    #[test]
    fn lists_headings_code_and_rows_of_tables_are_segments() {
        assert_eq!(
            texts(NOTES, Split::Sentences),
            [
                "# Boats\n\nThe harbour is old.",
                "It has\ntwo piers.",
                "- 17 boats",
                "- 3 cranes",
                "| pier | boats |",
                "```\nlet a = 1;\n\nb.c();\n```",
                "The end.",
            ]
        );
        assert_eq!(texts(NOTES, Split::Paragraphs).len(), 2);
        assert_eq!(texts("One.\n\nTwo.\nThree.", Split::Lines), ["One.", "Two.", "Three."]);
        assert_eq!(texts("河很宽。你看见船了吗？", Split::Sentences), ["河很宽。", "你看见船了吗？"]);
        assert_eq!(texts("# Only a heading", Split::Sentences), ["# Only a heading"]);
        assert!(texts(" \n ", Split::Sentences).is_empty());
    }

    #[test]
    fn a_long_text_is_cut_into_paragraphs() {
        let text = "One sentence. ".repeat(40) + "\n\n" + &"Another. ".repeat(40);
        assert_eq!(split(&text, None).len(), 2);
        assert_eq!(split("One. Two.", None).len(), 2);
    }

    proptest! {
        #[test]
        fn segments_make_the_text_again(text in "[a-z.#\\-`| \n]{0,200}") {
            for by in [Split::Sentences, Split::Lines, Split::Paragraphs] {
                let whole: String = split(&text, Some(by)).iter().flat_map(|s| [s.before.as_str(), s.text.as_str()]).collect();
                prop_assert_eq!(&whole, text.trim());
            }
        }
    }
}
