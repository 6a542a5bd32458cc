//! What comes from others is not trusted: the right number, or an error that names file and field.

mod fields;
mod fuzz;
mod haystacks;
mod integers;
mod lost;
mod memory;
mod mutations;
mod numbers;
mod templates;
mod terminal;
mod tokenizers;

/// The smallest needle prompt that there is.
pub(crate) const NEEDLE: &str = "needle --ctx 256 --samples 1 --needles 1 --depths 50";
