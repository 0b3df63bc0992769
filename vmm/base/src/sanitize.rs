//! Makes text from elsewhere (guests, specs, stores, file names) safe for a terminal.
//!
//! A terminal executes control characters (C0, C1), and right-to-left or zero-width characters make
//! text look different from its content. Each of these is replaced by a question mark.

use std::borrow::Cow;

/// Replacement for a hidden character.
const REPLACEMENT: char = '?';

/// Whether `c` could change the state of a terminal or the display of neighbouring characters.
pub const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
        | '\u{ad}' | '\u{61c}' | '\u{180e}'
        // Zero width; left-to-right and right-to-left marks.
        | '\u{200b}'..='\u{200f}'
        // Line and paragraph separators; embeddings and overrides.
        | '\u{2028}'..='\u{202e}'
        // Word joiner, invisible operators, isolates, old shaping controls.
        | '\u{2060}'..='\u{206f}'
        // Byte order mark, interlinear annotations, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Makes `text` safe as a single line: line feeds are replaced, too.
pub fn line(text: &str) -> Cow<'_, str> {
    replace(text, is_hidden)
}

/// Makes `text` safe as one or several lines: line feeds stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |c| c != '\n' && is_hidden(c))
}

fn replace(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return text.into();
    }
    text.chars().map(|c| if is_hidden(c) { REPLACEMENT } else { c }).collect::<String>().into()
}

/// Returns the first `max` characters of a text, or all if it has fewer.
pub fn truncate(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Quotes a word of a command line that users copy into a shell.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Escapes hidden characters beyond ASCII in JSON, where they occur only in strings. JSON itself
/// escapes C0 controls in strings.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| !c.is_ascii() && is_hidden(c);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")))
        } else {
            escaped.push(c)
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_at_a_character_boundary() {
        assert_eq!((truncate("äb", 1), truncate("äb", 2), truncate("", 0)), ("ä", "äb", ""));
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        for (word, text) in [("a/b:1,2ms", "a/b:1,2ms"), ("", "''"), ("it's $x", "'it'\\''s $x'")] {
            assert_eq!(shell_quoted(word), text);
        }
    }

    #[test]
    fn replaces_control_characters() {
        let text = "a\x1b]0;title\x07\r\u{9b}31m\u{202e}b\u{2066}c\u{200f}\u{2028}d\n\te";
        assert_eq!(line(text), "a?]0;title???31m?b?c??d??e");
        assert_eq!(lines(text), "a?]0;title???31m?b?c??d\n?e");
        assert!(matches!(line("plain: ä λ → 漢"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "name": "a\u{202e}b\u{9b}\u{e0041}\x1bä" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let escaped = json(&text);
        assert!(!escaped.contains(|c| c != '\n' && is_hidden(c)), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }
}
