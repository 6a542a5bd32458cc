//! TOML files that people write: read with errors that name the file, the line, and everything that is missing.

use crate::error::Usage;
use serde::de::DeserializeOwned;

/// Keys that a table has to have.
pub(crate) struct Required {
    /// Name of the table, or of a list of tables; nothing for the file itself.
    pub(crate) table: &'static str,
    /// A key and its value in the tables that this is about; nothing for all of that name.
    pub(crate) with: Option<(&'static str, &'static str)>,
    /// The keys.
    pub(crate) keys: &'static [&'static str],
}

/// Reads a file's text; `name` is for messages, and `required` says what to name if anything is missing.
///
/// # Errors
/// Usage errors.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, text: &str, required: &[Required]) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let missing = if error.message().starts_with("missing field") { missing(text, required) } else { Vec::new() };
        let said = match missing.as_slice() {
            [] => bad_toml(name, text, &error),
            missing => format!("{name}: missing: {}", missing.join(", ")),
        };
        Usage(said).into()
    })
}

/// Whether a field need not be written, being what it is where it is missing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The name of the file, the line, and toml's message on one line.
fn bad_toml(name: &str, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message: Vec<&str> = error.message().lines().collect();
    format!("{name}, line {line}: {}", message.join(" "))
}

/// Everything required that is not there, as in `` `show`, `grid.samples` ``. Of a table that is missing, only itself.
fn missing(text: &str, required: &[Required]) -> Vec<String> {
    let Ok(file) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut missing = Vec::new();
    for Required { table, with, keys } in required {
        let tables: Vec<&toml::Table> = match file.get(*table) {
            _ if table.is_empty() => vec![&file],
            Some(toml::Value::Table(table)) => vec![table],
            Some(toml::Value::Array(list)) => list.iter().filter_map(toml::Value::as_table).collect(),
            _ => Vec::new(),
        };
        let is_meant = |table: &&toml::Table| {
            with.is_none_or(|(key, value)| table.get(key).and_then(toml::Value::as_str) == Some(value))
        };
        for found in tables.into_iter().filter(is_meant) {
            for key in keys.iter().filter(|key| !found.contains_key(**key)) {
                let path = if table.is_empty() { format!("`{key}`") } else { format!("`{table}.{key}`") };
                if !missing.contains(&path) {
                    missing.push(path);
                }
            }
        }
    }
    missing
}

/// That each key of a file that reads is either required and named when it is left out, or can be left out.
#[cfg(test)]
pub(crate) fn assert_names_what_is_missing<T: DeserializeOwned>(text: &str, required: &[Required]) {
    let read = |file: &toml::Table| parse::<T>("x.toml", &toml::to_string(file).unwrap(), required).map(|_| ());
    let whole: toml::Table = text.parse().unwrap();
    read(&whole).unwrap();
    let named = |file: &toml::Table, path: &str| {
        if let Err(error) = read(file) {
            assert!(error.to_string().contains(&format!("missing: `{path}`")), "{path}: {error}");
        }
    };
    for (key, value) in &whole {
        let mut without = whole.clone();
        without.remove(key);
        named(&without, key);
        let mut tables: Vec<toml::Table> = match value {
            toml::Value::Table(table) => vec![table.clone()],
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_table).take(1).cloned().collect(),
            _ => Vec::new(),
        };
        for table in &mut tables {
            for inner in table.clone().keys().filter(|inner| *inner != "task") {
                let mut less = table.clone();
                less.remove(inner);
                let mut without = whole.clone();
                let less = toml::Value::Table(less);
                without[key] = if value.is_array() { toml::Value::Array(vec![less]) } else { less };
                named(&without, &format!("{key}.{inner}"));
            }
        }
    }
}
