//! What comes from others is not trusted: the right number, or an error that names file and field.

mod fields;
mod fuzz;
mod integers;
mod memory;
mod mutations;
mod numbers;
mod templates;
