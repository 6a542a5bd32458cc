//! Used by all other modules: errors, files, names, random numbers, the terminal and the machine.

pub(crate) mod csv_table;
pub mod error;
pub mod files;
pub(crate) mod foreign_table;
pub mod hash;
pub(crate) mod html;
pub(crate) mod json_objects;
pub mod machine;
pub mod memory;
pub mod model_files;
pub mod seed;
pub(crate) mod spec_file;
pub mod terminal;
pub mod values;
