//! System strings in JSON, as text with one character per byte. Most are ASCII and keep their
//! length; lists of numbers would be four times as long.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Bytes as the characters with the same numbers.
struct Text(String);

impl Text {
    fn new(bytes: &[u8]) -> Self {
        Self(bytes.iter().copied().map(char::from).collect())
    }

    fn bytes<E: Error>(&self) -> Result<Vec<u8>, E> {
        let byte = |c| u8::try_from(c).map_err(|_| E::custom("a character that is not a byte"));
        self.0.chars().map(byte).collect()
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

/// A list of byte strings.
pub mod list {
    use super::*;

    pub fn serialize<S: Serializer>(list: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|bytes| Text::new(bytes)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<Text>::deserialize(from)?.iter().map(Text::bytes).collect()
    }
}

/// A list of names with values.
pub mod pairs {
    use super::*;

    type NameValue = (Vec<u8>, Vec<u8>);

    pub fn serialize<S: Serializer>(pairs: &[NameValue], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(pairs.iter().map(|(name, value)| (Text::new(name), Text::new(value))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NameValue>, D::Error> {
        let pairs = Vec::<(Text, Text)>::deserialize(from)?;
        pairs.iter().map(|(name, value)| Ok((name.bytes()?, value.bytes()?))).collect()
    }
}
