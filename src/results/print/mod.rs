//! Printers: tables as text for terminals, JSON, CSV and Markdown.

mod csv;
mod json;
mod layout;
mod markdown;
mod text;

pub(crate) use csv::{write_rows, write_table};
pub use json::json;
pub(crate) use layout::TextTable;
pub(crate) use markdown::{escaped as escaped_markdown, markdown_table, markdown_with_caption};
pub(crate) use text::{chosen_text, main_text};
pub use text::{text, Tables};
