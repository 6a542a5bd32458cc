//! TOML files written by people: reading with errors that name the file, the line and the key, and writing.

use crate::error::Usage;
use names::hint;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// Reads the text of a file; `name` is for messages.
///
/// # Errors
/// Usage errors on one line, with the name, the line and the key.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Usage> {
    toml::from_str(text).map_err(|error| usage(name, text, error))
}

/// One line for people: ``x.toml, line 4: missing field `samples` in `grid.needle` ``.
pub fn usage(name: &str, text: &str, mut error: toml::de::Error) -> Usage {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    error.set_input(None); // the message then has the key in place of an excerpt of the file
    Usage(format!("{name}, line {line}: {}", one_line(&error)))
}

/// The message of an error, and the key that it is about if it is known, on one line. An unknown name of a list,
/// ``unknown field `x`, expected one of `a`, `b` ``, is followed by the nearest one.
pub fn one_line(error: &toml::de::Error) -> String {
    let line = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    match line.split_once(", expected one of ") {
        Some((unknown, known)) if unknown.starts_with("unknown ") => {
            let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            let typed = names(unknown).concat();
            let listed = names(known);
            format!("{unknown}{}, expected one of {known}", hint(&typed, listed.iter().map(String::as_str)))
        }
        _ => line,
    }
}

/// Returns `true` if a field can be left out of a file because it has its default value.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The values that flags have by default.
pub fn flag_defaults<T: clap::Args>() -> T {
    let flags = T::augment_args(clap::Command::new("defaults").no_binary_name(true));
    T::from_arg_matches(&flags.get_matches_from([""; 0])).expect("every flag has a default")
}

/// Reads a list of two numbers.
pub fn pair<'de, D: Deserializer<'de>>(from: D) -> Result<[usize; 2], D::Error> {
    TwoNumbers::deserialize(from).map(|TwoNumbers(pair)| pair)
}

/// Two numbers and no more: of arrays and tuples `toml` ignores what follows their last value.
struct TwoNumbers([usize; 2]);

impl<'de> Deserialize<'de> for TwoNumbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(from)?;
        let length = list.len();
        list.try_into().map(Self).map_err(|_| D::Error::invalid_length(length, &"a list of 2 numbers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::values::IndexRange;
    use serde::Serialize;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Spec {
        name: String,
        #[serde(default)]
        shape: Shape,
        #[serde(default)]
        rates: Vec<f64>,
        seed: Option<u64>,
        #[serde(default, deserialize_with = "pair")]
        range: [usize; 2],
        #[serde(default)]
        parts: Vec<TestPart>,
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
    struct TestPart {
        width: usize,
        #[serde(default)]
        layers: Option<IndexRange>,
    }

    fn read(text: &str) -> Result<Spec, Usage> {
        parse("x.toml", text)
    }

    #[test]
    fn numbers_are_exact_in_every_notation_and_after_writing() {
        let text = "name = \"\\u00e4 \\\"\"\nrates = [0.1, 1e-3, 1_000.5, 2, 0.30000000000000004, 5e-324, -0.0]\nseed = 0xff_ff";
        let spec = read(text).unwrap();
        assert_eq!((spec.name.as_str(), spec.seed), ("\u{e4} \"", Some(0xffff)));
        let expected = [0.1, 1e-3, 1000.5, 2.0, 0.1 + 0.2, 5e-324, -0.0];
        assert_eq!(spec.rates.iter().map(|rate| rate.to_bits()).collect::<Vec<_>>(), expected.map(f64::to_bits));
        assert_eq!(read(&toml::to_string(&spec).unwrap()).unwrap(), spec);
        let largest = Spec { seed: Some(u64::MAX), ..spec };
        assert_eq!(read(&toml::to_string(&largest).unwrap()).unwrap(), largest);
    }

    #[test]
    fn every_mistake_names_its_line_and_key() {
        for (text, line, words) in [
            ("name = \"a\"\nname = \"b\"", 2, "duplicate key"),
            ("name = \"a\"\nseed = = 3", 2, "extra `=`"),
            (
                "name = \"a\"\nsed = 3\nseed = 4",
                2,
                "unknown field `sed` (did you mean `seed`?), expected one of `name`",
            ),
            ("name = \"a\"\nzeal = 3\nage = 4", 2, "unknown field `zeal`"), // the first of the file
            ("name = 3\nseed = 4", 1, "integer `3`, expected a string in `name`"),
            ("seed = 4\n\nname = [\"a\"]", 3, "sequence, expected a string in `name`"),
            ("name = \"a\"\nseed = -4\nrates = []", 2, "integer `-4`, expected u64 in `seed`"),
            ("name = \"a\"\nseed = 18446744073709551616\nrates = []", 2, "expected u64 in `seed`"),
            ("name = \"a\"\nshape = 3\nseed = 4", 2, "wanted string or table in `shape`"),
            ("name = \"a\"\nrange = [1]", 2, "invalid length 1, expected a list of 2 numbers in `range`"),
            ("name = \"a\"\nrange = true", 2, "boolean `true`, expected a sequence in `range`"),
            ("name = \"a\"\nrange = [1, 2, 3]\nseed = 4", 2, "invalid length 3, expected a list of 2 numbers"),
            ("name = \"a\"\nrates = [\n1,\n[2],\n3]\nseed = 4", 4, "sequence, expected f64 in `rates`"),
            ("name = \"a\"\n[[parts]]\nwidth = {}\n", 3, "map, expected usize in `parts.width`"),
            ("name = \"a\"\nshape = \"flat\"\nseed = 4", 2, "unknown variant `flat`"),
            ("seed = 4\nname = \"a\"\nshape = \"flat\"", 3, "unknown variant `flat`"),
            ("name = \"a\"\nrates = [\n1,\n\"2\",\n3]", 4, "string \"2\", expected f64 in `rates`"),
            ("name = \"a\"\nseed = 2026-11-25", 2, "expected u64 in `seed`"),
            ("name = \"a\"\n\n[[parts]]\nwidth = 1\n\n[[parts]]\n", 6, "missing field `width` in `parts`"),
            ("name = \"a\"\n[[parts]]\nlayers = \"x\"\nwidth = 1", 3, "`x` is not a number counted from 0"),
            ("name = \"a\"\n[[parts]]\nwidth = 1\nlayers = \"x\"", 4, "`x` is not a number counted from 0"),
            ("name = \"a\"\n[[parts]]\nwidth = 1\nlayers = \"x\"\n[[parts]]\nwidth = 2", 4, "not a number"),
        ] {
            let Usage(error) = read(text).unwrap_err();
            let is_one_line = !error.contains('\n');
            assert!(error.starts_with(&format!("x.toml, line {line}: ")) && is_one_line, "{text}\n{error}");
            assert!(error.contains(words), "{text}\n{error}");
        }
    }
}
