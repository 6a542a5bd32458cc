//! TOML as JSON, and back. What people write in TOML is in manifests too, which are JSON: so each type need be compiled for one
//! format only, which is a good part of what compiling difftool takes.

use super::FIRST_KEY;
use anyhow::{anyhow, Result};
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::Write as _;
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// What is wrong with a file of TOML.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Where, in bytes.
    pub(super) at: usize,
    pub(super) message: String,
}

/// What the text of a file says.
///
/// # Errors
/// With the place, if it is no TOML or something else.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let root = DeTable::parse(text).map_err(|error| Mistake {
        at: error.span().map_or(0, |span| span.start),
        message: error.message().to_owned(),
    })?;
    let mut json = Json::default();
    json.table(root.get_ref(), root.span().start)?;
    serde_json::from_str(&json.text).map_err(|error| json.mistake(&error))
}

/// The file that says the same, keys in the order of their declaration, without what is absent.
///
/// # Errors
/// If it is not a table, or has a path that is no text, or a number in a list that is not finite.
pub(super) fn write<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string(value)?;
    let value: Value = serde_json::from_str(&json).map_err(|error| anyhow!(without_place(&error)))?;
    Ok(toml::to_string(&value)?)
}

/// What an error says, but for the place in JSON that nobody has seen.
fn without_place(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    said.strip_suffix(&place).unwrap_or(&said).to_owned()
}

/// One line of JSON that says what a file of TOML does.
#[derive(Default)]
struct Json {
    text: String,
    places: Vec<Place>,
}

/// Where a key, a value, or the end of a table or list is.
struct Place {
    in_json: usize,
    /// Of an end, where the table or list begins.
    in_toml: usize,
    /// Of an end, where the last value in it begins.
    last: Option<usize>,
}

impl Json {
    fn begin(&mut self, in_toml: usize) {
        self.places.push(Place { in_json: self.text.len(), in_toml, last: None });
    }

    /// Ends a table or list, with a blank behind it: where that was read, the whole is over.
    fn end(&mut self, sign: char, in_toml: usize, last: Option<usize>) {
        self.places.push(Place { in_json: self.text.len(), in_toml, last });
        self.text.push(sign);
        self.text.push(' ');
    }

    fn table(&mut self, table: &DeTable<'_>, at: usize) -> Result<(), Mistake> {
        self.begin(at);
        self.text.push('{');
        // As they stand in the file: of several mistakes of one kind the first is told.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| (key.get_ref() != FIRST_KEY, key.span().start));
        let last = entries.last().map(|(_, value)| value.span().start);
        for (number, (key, value)) in entries.into_iter().enumerate() {
            self.text.push_str(if number > 0 { "," } else { "" });
            self.begin(key.span().start);
            self.string(key.get_ref());
            self.text.push(':');
            self.value(value)?;
        }
        self.end('}', at, last);
        Ok(())
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>) -> Result<(), Mistake> {
        let at = value.span().start;
        if let DeValue::Table(table) = value.get_ref() {
            return self.table(table, at);
        }
        self.begin(at);
        match value.get_ref() {
            DeValue::Array(list) => {
                self.text.push('[');
                for (number, item) in list.iter().enumerate() {
                    self.text.push_str(if number > 0 { "," } else { "" });
                    self.value(item)?;
                }
                self.end(']', at, list.last().map(|item| item.span().start));
            }
            DeValue::String(text) => self.string(text),
            DeValue::Boolean(value) => self.display(value),
            DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) if (i64::MIN.into()..=u64::MAX.into()).contains(&number) => self.display(&number),
                _ => return Err(Mistake { at, message: format!("{number} is too long a number") }),
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => self.display(&format_args!("{number:?}")),
                _ => return Err(Mistake { at, message: format!("{} is not a finite number", number.as_str()) }),
            },
            DeValue::Datetime(date) => {
                return Err(Mistake { at, message: format!("nothing here is a date, as {date} is") })
            }
            DeValue::Table(_) => unreachable!("a table has returned"),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.text.push_str(&serde_json::to_string(text).expect("any text is a JSON string"));
    }

    fn display(&mut self, value: &dyn std::fmt::Display) {
        write!(self.text, "{value}").expect("memory takes any text");
    }

    /// The same mistake in the TOML.
    fn mistake(&self, error: &serde_json::Error) -> Mistake {
        let said = without_place(error);
        Mistake { at: self.in_toml(error.column(), &said), message: in_words(&said) }
    }

    /// Where a message is about that came when so many bytes of JSON were read: up to the end of a key or value that is not what it
    /// should be; of a table or list, up to its sign if it lacks something or its last value is wrong, and further if it is wrong
    /// as a whole. Where a table or list is no value that can be here, it was not read.
    fn in_toml(&self, read: usize, message: &str) -> usize {
        let is_unread = ["invalid type: sequence", "invalid type: map"].iter().any(|type_| message.starts_with(type_));
        let begun = self.places.partition_point(|place| place.in_json < read + usize::from(is_unread));
        match self.places[..begun].last() {
            None => 0,
            Some(Place { in_json, last: Some(last), .. })
                if read == in_json + 1 && !message.starts_with("missing field") =>
            {
                *last
            }
            Some(place) => place.in_toml,
        }
    }
}

/// What serde says, in the words of those who write files.
fn in_words(said: &str) -> String {
    let is_wrong = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "));
    if let Some((found, expected)) = is_wrong.and_then(|said| said.split_once(", expected ")) {
        return format!("{} is expected here, not {}", kind(expected), value(found));
    }
    let is_short = said.strip_prefix("invalid length ").and_then(|said| said.split_once(", expected "));
    if let Some((found, values)) = is_short.and_then(|(found, expected)| Some((found, values(expected)?))) {
        return format!("a list of {values} values is expected here, not of {found}");
    }
    match said {
        "expected value" => "a word or a table is expected here".into(),
        "trailing characters" => "one value too many".into(),
        said => said.to_owned(),
    }
}

/// What serde expects.
fn kind(expected: &str) -> Cow<'_, str> {
    match expected {
        "u32" | "u64" | "usize" => "a whole number from 0 on".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" => "a text".into(),
        "a sequence" => "a list".into(),
        _ if expected.starts_with("struct ") => "a table".into(),
        _ => values(expected).map_or(expected.into(), |values| format!("a list of {values} values").into()),
    }
}

/// How many values serde expects of a list.
fn values(expected: &str) -> Option<&str> {
    expected.strip_prefix("an array of length ").or_else(|| expected.strip_prefix("a tuple of size "))
}

/// What serde has found.
fn value(found: &str) -> String {
    let number = found.strip_prefix("integer ").or_else(|| found.strip_prefix("floating point "));
    match (found, number) {
        (_, Some(number)) => format!("the number {}", number.trim_matches('`')),
        ("sequence", _) => "a list".into(),
        ("map", _) => "a table".into(),
        _ => match (found.strip_prefix("string "), found.strip_prefix("boolean ")) {
            (Some(text), _) => format!("the text {text}"),
            (_, Some(value)) => value.trim_matches('`').into(),
            _ => found.to_owned(),
        },
    }
}

/// A value of JSON, its keys in the order that they are written in; tables are without what is null.
enum Value {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    String(String),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_none(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Signed(value) => to.serialize_i64(*value),
            Self::Unsigned(value) => to.serialize_u64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::String(value) => to.serialize_str(value),
            Self::List(list) => to.collect_seq(list),
            Self::Table(table) => to.collect_map(table.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = from.next_element()? {
            list.push(value);
        }
        if list.iter().any(|value| matches!(value, Value::Null)) {
            return Err(A::Error::custom("a number in a list is not finite")); // JSON has null for it
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut table = Vec::new();
        while let Some(entry) = from.next_entry()? {
            table.push(entry);
        }
        table.retain(|(_, value)| !matches!(value, Value::Null));
        Ok(Value::Table(table))
    }
}
