//! A share of the rounds of a run, which one process measures into a separate store.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum number of parts of a run: Slurm arrays have at most 1001 elements by default (MaxArraySize).
pub const MAX_PARTS: u32 = 1000;

/// Part `number` of `count`, counted from 1 and written as `3/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    number: u32,
    count: u32,
}

/// Error for a text that is not a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected K/N with K from 1 to N, and N at most {MAX_PARTS}, for example 3/8")]
pub struct InvalidPart;

impl Part {
    /// Creates part `number` of `count`.
    pub fn new(number: u32, count: u32) -> Result<Self, InvalidPart> {
        let is_valid = (1..=count).contains(&number) && count <= MAX_PARTS;
        if is_valid { Ok(Self { number, count }) } else { Err(InvalidPart) }
    }

    /// Returns its number, from 1.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns the number of parts of the run.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Returns the folder of its store within the directory of the run.
    pub fn folder(self) -> String {
        format!("{}-of-{}", self.number, self.count)
    }

    /// Returns the part with this folder.
    pub fn from_folder(name: &str) -> Option<Self> {
        let (number, count) = name.split_once("-of-")?;
        let part = Self::new(number.parse().ok()?, count.parse().ok()?).ok()?;
        (part.folder() == name).then_some(part)
    }

    /// Whether the part has the block with this index, from 0. Blocks are assigned round-robin.
    pub const fn has(self, block: u64) -> bool {
        block % self.count as u64 == self.number as u64 - 1
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Part {
    type Err = InvalidPart;

    fn from_str(text: &str) -> Result<Self, InvalidPart> {
        let (number, count) = text.split_once('/').ok_or(InvalidPart)?;
        let parse = |digits: &str| digits.parse().map_err(|_| InvalidPart);
        Self::new(parse(number)?, parse(count)?)
    }
}

impl TryFrom<String> for Part {
    type Error = InvalidPart;

    fn try_from(text: String) -> Result<Self, InvalidPart> {
        text.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_in_one_part() {
        for count in 1..=9 {
            let parts: Vec<Part> = (1..=count).map(|k| Part::new(k, count).unwrap()).collect();
            for block in 0..40 {
                assert_eq!(parts.iter().filter(|part| part.has(block)).count(), 1);
            }
        }
    }

    #[test]
    fn texts_and_folders() {
        let part: Part = "3/8".parse().unwrap();
        assert_eq!((part.to_string().as_str(), part.folder().as_str()), ("3/8", "3-of-8"));
        assert_eq!(Part::from_folder("3-of-8"), Some(part));
        for folder in ["03-of-8", "9-of-8", "0-of-8", "3-of-", "3-of-8.log", "+3-of-8"] {
            assert_eq!(Part::from_folder(folder), None, "{folder}");
        }
        for text in ["", "3", "0/8", "9/8", "1/0", "1/1001", "-1/8", "1/8/2", "a/b"] {
            assert_eq!(text.parse::<Part>(), Err(InvalidPart), "{text}");
        }
    }
}
