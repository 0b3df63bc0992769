//! Writes specs.

use std::fmt::{Display, Write as _};

/// The text of a spec, written line by line.
#[derive(Debug, Default)]
pub struct SpecText(String);

impl SpecText {
    /// A number or a truth value.
    pub fn one(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.list(key, [value])
    }

    /// Texts. JSON's strings are strings of TOML, too.
    pub fn text<T: Display>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
    ) -> &mut Self {
        let quoted = |value: T| serde_json::Value::from(value.to_string());
        self.list(key, values.into_iter().map(quoted))
    }

    /// Values without repeats, which a spec rejects.
    pub fn list<T: Display>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
    ) -> &mut Self {
        let mut texts: Vec<String> = Vec::new();
        for text in values.into_iter().map(|value| value.to_string()) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{key} = {text}");
        self
    }
}

impl From<SpecText> for String {
    fn from(text: SpecText) -> Self {
        text.0
    }
}
