//! `--only`: a part of a matrix.

use std::str::FromStr;

use thiserror::Error;

use super::form::AXES;
use crate::lab::{plan::Level, point::Point};

/// Words that choose nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OnlyError {
    /// Not KEY=VALUE.
    #[error("'{0}': write KEY=VALUE[,VALUE], for example vcpus=2x,4x")]
    Form(String),
    /// No key of a spec's matrix.
    #[error("'{0}' is no key of a matrix; there are {all}", all = AXES.join(", "))]
    Key(String),
}

/// One `--only KEY=VALUE[,VALUE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One {
    key: &'static str,
    values: String,
}

impl FromStr for One {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, OnlyError> {
        let (key, values) = text.split_once('=').ok_or_else(|| OnlyError::Form(text.into()))?;
        let key = AXES.into_iter().find(|its| *its == key.trim());
        let key = key.ok_or_else(|| OnlyError::Key(text.into()))?;
        Ok(Self { key, values: values.trim().to_owned() })
    }
}

/// What all of them choose together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Only(Vec<One>);

impl Only {
    /// Those of a command line.
    pub fn new(all: Vec<One>) -> Self {
        Self(all)
    }

    /// As they were written.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|One { key, values }| format!("{key}={values}")).collect()
    }

    /// Those that were written so.
    pub fn parse(texts: &[String]) -> Result<Self, OnlyError> {
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn wants(&self, point: &Point) -> bool {
        self.0.iter().all(|One { key, values }| {
            // Some values have commas of their own.
            is_value(point, key, values) || values.split(',').any(|one| is_value(point, key, one))
        })
    }
}

/// Has the point this value?
fn is_value(point: &Point, key: &str, text: &str) -> bool {
    let text = text.trim();
    if key == "vcpus"
        && let Ok(Level::Ratio(ratio)) = text.parse()
    {
        return (ratio * f64::from(point.slots)).ceil() == f64::from(point.vcpus.get());
    }
    let value = point.value(key);
    match (text.parse::<f64>(), value.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => text == value,
    }
}
