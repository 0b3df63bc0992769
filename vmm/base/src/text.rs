//! Serde for values that are stored as text: `#[serde(with = "text")]`.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Serializes a value as it is displayed.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Deserializes a value by parsing it.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Serde for optional values that are stored as text.
pub mod option {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    /// Serializes a value as it is displayed, or as null.
    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes a value by parsing it, or from null.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Serde for types that are stored as a number and validate it.
pub mod number {
    use super::{Deserialize, Deserializer, Display, Error, Serializer};

    /// Serializes a value as a number.
    pub fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Copy + Into<u32>,
        S: Serializer,
    {
        serializer.serialize_u32((*value).into())
    }

    /// Deserializes a number. Fails if the type rejects it.
    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: TryFrom<u32, Error: Display>,
        D: Deserializer<'de>,
    {
        T::try_from(u32::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Serde for lists of values that are stored as text.
pub mod list {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    /// Serializes each value as it is displayed.
    pub fn serialize<T: Display, S: Serializer>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    /// Deserializes each value by parsing it.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
