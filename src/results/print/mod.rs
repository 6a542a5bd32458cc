//! Printers: sheets as text for terminals, JSON, CSV and Markdown.

mod csv;
mod json;
mod markdown;
mod text;

pub(crate) use csv::{write_rows, write_sheet};
pub use json::json;
pub(crate) use markdown::{escaped as escaped_markdown, markdown_table, markdown_with_caption};
pub(crate) use text::{study_text, text_table};
pub use text::{text, Tables};
