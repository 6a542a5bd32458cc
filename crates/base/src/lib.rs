//! Errors, files, memory and terminal output, for all other packages.
//!
//! * [`error`]: errors that say who is at fault, from which exit codes follow; [`bail_usage`].
//! * [`files`]: files of strangers, read within limits, and files that are written whole or not at all; tables and JSON of
//!   strangers in [`csv_table`], [`foreign_table`] and [`json_objects`], specifications in [`spec_file`].
//! * [`hash`], [`seed`]: hashes of files, and random numbers that belong to a prompt.
//! * [`memory`], [`terminal`]: what the machine has, and what is said on standard error.
//!
//! It knows names, and nothing else of difftool.
//!
//! ```
//! use base::error::{exit_code, Usage};
//!
//! let mistyped = anyhow::Error::new(Usage("--bits 3: use 16, 8, 6 or 4".to_owned()));
//! assert_eq!(exit_code(&mistyped), 2);
//! assert_eq!(exit_code(&anyhow::anyhow!("the disk is full")), 1);
//! ```

pub mod csv_table;
pub mod error;
mod file_name;
pub mod files;
pub mod foreign_table;
pub mod hash;
pub mod json_objects;
mod known_names;
pub mod memory;
pub mod model_files;
pub mod seed;
pub mod spec_file;
pub mod terminal;

pub use file_name::FileName;
pub use known_names::KnownNames;
