//! TOML files that people write: read with errors that name the file, the line, and everything that is missing.

use crate::error::Usage;
use json::Mistake;
use serde::de::DeserializeOwned;
use serde::Serialize;

mod json;

/// The key that is read before all others of its table, wherever it stands: it says what they are.
pub(crate) const FIRST_KEY: &str = "task";

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
    json::read(text).map_err(|mistake| {
        let missing = if mistake.message.starts_with("missing field") { missing(text, required) } else { Vec::new() };
        let said = match missing.as_slice() {
            [] => on_one_line(name, text, &mistake),
            missing => format!("{name}: missing: {}", missing.join(", ")),
        };
        Usage(said).into()
    })
}

/// The file that says the same, keys in the order of their declaration.
///
/// # Errors
/// If it is not a table, or has a path that is no text, or a number in a list that is not finite.
pub(crate) fn write<T: Serialize>(value: &T) -> anyhow::Result<String> {
    json::write(value)
}

/// Whether a field need not be written, being what it is where it is missing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The name of the file, the line, and what is wrong there.
fn on_one_line(name: &str, text: &str, mistake: &Mistake) -> String {
    let line = text.get(..mistake.at).unwrap_or_default().matches('\n').count() + 1;
    let message: Vec<&str> = mistake.message.lines().collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Spec {
        name: String,
        #[serde(default)]
        shape: Shape,
        #[serde(default)]
        rates: Vec<f64>,
        seed: Option<u64>,
        pair: Option<[usize; 2]>,
        #[serde(default)]
        parts: Vec<Part>,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Shape {
        #[default]
        Round,
        Square,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        width: usize,
        #[serde(default)]
        condition: Option<crate::treatment::Condition>,
    }

    fn read(text: &str) -> anyhow::Result<Spec> {
        parse("x.toml", text, &[])
    }

    #[test]
    fn numbers_are_read_to_the_last_bit_and_in_every_notation() {
        let text = "name = \"\\u00e4 \\\"\"\nrates = [0.1, 1e-3, 1_000.5, 2, 0.30000000000000004, 5e-324, -0.0]\nseed = 0xff_ff";
        let spec = read(text).unwrap();
        assert_eq!((spec.name.as_str(), spec.seed), ("\u{e4} \"", Some(0xffff)));
        let expected = [0.1, 1e-3, 1000.5, 2.0, 0.1 + 0.2, 5e-324, -0.0];
        assert_eq!(spec.rates.iter().map(|rate| rate.to_bits()).collect::<Vec<_>>(), expected.map(f64::to_bits));
        assert_eq!(read(&write(&spec).unwrap()).unwrap(), spec);
    }

    #[test]
    fn what_is_written_keeps_the_order_of_fields_and_leaves_out_what_is_absent() {
        let parts = vec![Part { width: 3, condition: None }];
        let spec = Spec { name: "a".into(), rates: vec![0.5, 1e-3], parts, ..Spec::default() };
        let expected = "name = \"a\"\nshape = \"round\"\nrates = [0.5, 0.001]\n\n[[parts]]\nwidth = 3\n";
        assert_eq!(write(&spec).unwrap(), expected);
        assert!(write(&Spec { rates: vec![f64::NAN], name: "a".into(), ..Spec::default() }).is_err());
        let large = Spec { seed: Some(u64::MAX), ..spec };
        assert_eq!(read(&write(&large).unwrap()).unwrap(), large);
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        for (text, line, words) in [
            ("name = \"a\"\nname = \"b\"", 2, "duplicate key"),
            ("name = \"a\"\nseed = = 3", 2, ""),
            ("name = \"a\"\nsed = 3\nseed = 4", 2, "unknown field `sed`, expected one of `name`, `shape`"),
            ("name = 3\nseed = 4", 1, "a text is expected here, not the number 3"),
            ("seed = 4\n\nname = [\"a\"]", 3, "a text is expected here, not a list"),
            ("name = \"a\"\nseed = -4\nrates = []", 2, "a whole number from 0 on is expected here, not the number -4"),
            ("name = \"a\"\nseed = 18446744073709551616\nrates = []", 2, "18446744073709551616 is too long a number"),
            ("name = \"a\"\nshape = 3\nseed = 4", 2, "a word or a table is expected here"),
            ("name = \"a\"\npair = [1]", 2, "a list of 2 values is expected here, not of 1"),
            ("name = \"a\"\npair = true", 2, "a list of 2 values is expected here, not true"),
            ("name = \"a\"\npair = [\n1, 2,\n3]\nseed = 4", 4, "one value too many"),
            ("name = \"a\"\nrates = [\n1,\n[2],\n3]\nseed = 4", 4, "a number is expected here, not a list"),
            ("name = \"a\"\n[[parts]]\nwidth = {}\n", 3, "a whole number from 0 on is expected here, not a table"),
            ("name = \"a\"\nshape = \"flat\"\nseed = 4", 2, "unknown variant `flat`"),
            ("seed = 4\nname = \"a\"\nshape = \"flat\"", 3, "unknown variant `flat`"),
            ("name = \"a\"\nrates = [\n1,\n\"2\",\n3]", 4, "a number is expected here, not the text \"2\""),
            ("name = \"a\"\nrates = [\n1,\nnan]", 4, "nan is not a finite number"),
            ("name = \"a\"\nseed = 2026-11-25", 2, "2026-11-25"),
            ("name = \"a\"\n\n[[parts]]\nwidth = 1\n\n[[parts]]\n", 6, "missing field `width`"),
            ("name = \"a\"\n[[parts]]\ncondition = \"mask(x)\"\nwidth = 1", 3, "`x` is not a region"),
            ("name = \"a\"\n[[parts]]\nwidth = 1\ncondition = \"mask(x)\"", 4, "`x` is not a region"),
            ("name = \"a\"\n[[parts]]\nwidth = 1\ncondition = \"mask(x)\"\n[[parts]]\nwidth = 2", 4, "not a region"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("x.toml, line {line}: ")) && error.contains(words), "{text}\n{error}");
        }
    }
}
