//! Names of files on the command line.

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Parser of the name of a file that is read. It must be UTF-8, as it becomes a key of an experiment file.
#[derive(Clone)]
pub struct FileName;

impl TypedValueParser for FileName {
    type Value = PathBuf;

    fn parse_ref(&self, _: &Command, flag: Option<&Arg>, name: &OsStr) -> Result<PathBuf, clap::Error> {
        let path = PathBuf::from(name);
        if path.to_str().is_some() {
            return Ok(path);
        }
        let flag = flag.and_then(Arg::get_long).unwrap_or_default();
        let why = "the name is not UTF-8, which an experiment file needs";
        Err(clap::Error::raw(ErrorKind::ValueValidation, format!("--{flag} {}: {why}\n", path.display())))
    }
}
