//! Serde for what is stored as it is written: `#[serde(with = "text")]`.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// As it is displayed.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// As it parses.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The same of what may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    /// As it is displayed, or null.
    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// As it parses, or null.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// A number that has to be of some kind.
pub mod number {
    use super::{Deserialize, Deserializer, Display, Error, Serializer};

    /// As a number.
    pub fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Copy + Into<u32>,
        S: Serializer,
    {
        serializer.serialize_u32((*value).into())
    }

    /// From a number that is of that kind.
    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: TryFrom<u32, Error: Display>,
        D: Deserializer<'de>,
    {
        T::try_from(u32::deserialize(from)?).map_err(D::Error::custom)
    }
}
