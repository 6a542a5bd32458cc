//! JSON objects of any program: one after the other, as in JSON lines, or in arrays.

use anyhow::{Context, Result};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::fmt;

/// Returns `true` if a text begins as objects do, or an array of them.
pub fn is_json(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['))
}

/// The place of a row or an object in its file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Line(u64),
    /// In an array.
    Entry(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Entry(number) => write!(f, "entry {number}"),
        }
    }
}

/// Passes every object of a text to `see`.
///
/// # Errors
/// Those of `see`, with the place; for what is no JSON, no object, or has a key twice.
pub fn each(text: &str, mut see: impl FnMut(Place, Map<String, Value>) -> Result<()>) -> Result<()> {
    let mut tops = serde_json::Deserializer::from_str(text).into_iter::<Top>();
    loop {
        let rest = text[tops.byte_offset()..].trim_start();
        let line = text[..text.len() - rest.len()].matches('\n').count() + 1;
        let place = Place::Line(line as u64);
        match tops.next().transpose().with_context(|| place.to_string())? {
            None => return Ok(()),
            Some(Top::Object(object)) => see(place, object).with_context(|| place.to_string())?,
            Some(Top::Array(objects)) => {
                for (number, object) in (1..).zip(objects) {
                    let place = Place::Entry(number);
                    see(place, object.0).with_context(|| place.to_string())?;
                }
            }
        }
    }
}

/// An object, or an array of objects, outside of any other.
enum Top {
    Object(Map<String, Value>),
    Array(Vec<Object>),
}

/// An object whose keys are all different.
struct Object(Map<String, Value>);

/// Reads a [`Top`].
struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, or an array of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Top, A::Error> {
        let mut object = Map::new();
        while let Some((key, value)) = entries.next_entry::<String, Value>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` is there twice")));
            }
            object.insert(key, value);
        }
        Ok(Top::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Top, A::Error> {
        let mut objects = Vec::new();
        while let Some(object) = items.next_element()? {
            objects.push(object);
        }
        Ok(Top::Array(objects))
    }
}

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TopVisitor)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Top::deserialize(from)? {
            Top::Object(object) => Ok(Self(object)),
            Top::Array(_) => Err(D::Error::custom("an array where an object is expected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let all = each(text, |place, object| {
            found.push(format!("{place}: {}", Value::Object(object)));
            Ok(())
        });
        all.map(|()| found).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn objects_are_read_one_after_the_other_or_in_arrays() {
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("{\"a\":1}\n\n{\"a\":2}\n").unwrap(), ["line 1: {\"a\":1}", "line 3: {\"a\":2}"]);
        assert_eq!(read("[{\"a\":1},\n{\"a\":2}]").unwrap(), ["entry 1: {\"a\":1}", "entry 2: {\"a\":2}"]);
    }

    #[test]
    fn what_is_no_object_or_has_a_key_twice_is_an_error_with_its_place() {
        for (text, words) in [
            ("{\"a\":1}\n3\n", ["line 2", "an object"]),
            ("{\"a\":1}\n{\"a\":1,\"a\":2}", ["line 2", "`a` is there twice"]),
            ("[{\"a\":1},[]]", ["line 1", "an array where an object"]),
            ("{\"a\":", ["line 1", "EOF"]),
        ] {
            let refused = read(text).unwrap_err();
            assert!(words.iter().all(|word| refused.contains(word)), "{text}: {refused}");
        }
    }
}
