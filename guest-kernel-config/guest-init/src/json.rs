//! The little JSON that two objects of numbers and names need.

use alloc::string::String;
use core::fmt::Write;

/// Writes `text` as a JSON string.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writes a number.
pub fn number(out: &mut String, number: u64) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{number}");
}

/// Writes `items` with `one`, separated by commas.
pub fn separated<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut String, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        one(out, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = String::new();
        string(&mut out, "a\"b\\c\n");
        assert_eq!(out, r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn commas_stand_between() {
        let mut out = String::new();
        separated(&mut out, [1, 2, 3], number);
        assert_eq!(out, "1,2,3");
    }
}
