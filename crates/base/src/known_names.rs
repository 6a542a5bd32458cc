//! Arguments that take names.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;

/// Parser of an argument that shells complete with known names, and that may take others too.
#[derive(Clone)]
pub struct KnownNames<T> {
    /// Reads what was typed, or says why it cannot be read.
    pub parse: fn(&str) -> Result<T, String>,
    /// The names, each with what it means if that is to be said.
    pub names: fn() -> Vec<PossibleValue>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for KnownNames<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, typed: &OsStr) -> Result<T, clap::Error> {
        self.parse.parse_ref(command, argument, typed)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter()))
    }
}
