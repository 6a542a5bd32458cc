//! Serde through `Display` and `FromStr`.

/// Implements `Serialize` with the type's `Display` and `Deserialize` with its `FromStr`.
///
/// Like `SerializeDisplay` and `DeserializeFromStr` of the crate `serde_with`, without its procedural macros: few
/// types need it.
macro_rules! serde_as_str {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use serde_as_str;
