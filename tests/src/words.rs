//! Patterns of prose that Propolis, quinn and Alioth rarely use, each with a limit in `tests/words.toml`.

use std::{collections::BTreeMap, fs, sync::LazyLock};

use regex::Regex;
use serde::Deserialize;

use crate::{
    budget::is_test,
    references::{File, files, root},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Comments,
    Markdown,
    /// String literals of the product with more than one word.
    Strings,
    /// Comments and strings of the command line's sources, from which `--help` is made.
    Help,
}

#[derive(Debug, Deserialize)]
struct Pattern {
    name: String,
    regex: String,
    /// Lines that may occur; 0 without an entry.
    #[serde(default)]
    limits: BTreeMap<Kind, usize>,
}

#[derive(Debug, Deserialize)]
struct Patterns {
    pattern: Vec<Pattern>,
}

/// Comments, character and string literals.
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let tokens = r##"//.*|'(?:[^'\\]|\\.[^']*)'|r#*"(?s:.*?)"#*|"(?s:[^"\\]|\\.)*""##;
    Regex::new(tokens).unwrap()
});

/// Code in a line of Markdown, such as the name of a key.
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());

/// Returns the prose of a file: kind, line number and text.
fn prose(name: &str, text: &str) -> Vec<(Kind, usize, String)> {
    let numbered = || (1..).zip(text.lines());
    if name.ends_with(".md") {
        let mut is_code = false;
        let lines = numbered().filter(|(_, line)| {
            is_code ^= line.starts_with("```");
            !is_code && !line.starts_with("    ")
        });
        let words = |line: &str| CODE.replace_all(line.trim(), "``").into_owned();
        return lines.map(|(at, line)| (Kind::Markdown, at, words(line))).collect();
    }
    let comments = numbered().filter(|(_, line)| line.trim_start().starts_with("//"));
    let words = |line: &str| line.trim().trim_start_matches(['/', '!', ' ']).to_owned();
    let mut prose: Vec<_> = comments.map(|(at, line)| (Kind::Comments, at, words(line))).collect();
    if !is_test(name) {
        let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        prose.extend(strings(code).into_iter().map(|(at, line)| (Kind::Strings, at, line)));
    }
    if name.starts_with("vmm/src/cli/") {
        prose.extend(prose.clone().into_iter().map(|(_, at, line)| (Kind::Help, at, line)));
    }
    prose
}

/// Returns the lines of string literals that have a space, with their numbers.
fn strings(code: &str) -> Vec<(usize, String)> {
    let literals = TOKENS.find_iter(code).filter(|token| !token.as_str().starts_with(['/', '\'']));
    let lines = literals.flat_map(|literal| {
        let first = code[..literal.start()].matches('\n').count() + 1;
        literal.as_str().split('\n').zip(first..)
    });
    let trimmed = lines.map(|(line, at)| (at, line.trim().trim_matches('"').to_owned()));
    trimmed.filter(|(_, line)| line.contains(' ')).collect()
}

#[test]
fn no_pattern_exceeds_its_limit() {
    let text = fs::read_to_string(root().join("tests/words.toml")).unwrap();
    let Patterns { pattern: patterns } = toml::from_str(&text).unwrap();
    let with_regex = patterns.iter().map(|pattern| (pattern, Regex::new(&pattern.regex).unwrap()));
    let patterns: Vec<_> = with_regex.collect();
    let has_prose = |file: &&File| [".rs", ".md"].iter().any(|end| file.name.ends_with(end));
    let mut lines: BTreeMap<Kind, Vec<(String, String)>> = BTreeMap::new();
    for File { name, text } in files().iter().filter(has_prose) {
        for (kind, at, line) in prose(name, text) {
            lines.entry(kind).or_default().push((format!("{name}:{at}"), line));
        }
    }
    let mut over = Vec::new();
    for (kind, lines) in &lines {
        let words: usize = lines.iter().map(|(_, line)| line.split_whitespace().count()).sum();
        for (Pattern { name, limits, .. }, regex) in &patterns {
            let hits: Vec<_> = lines.iter().filter(|(_, line)| regex.is_match(line)).collect();
            let (count, limit) = (hits.len(), limits.get(kind).copied().unwrap_or(0));
            let rate = 1000.0 * count as f64 / words as f64;
            println!("{name:40} {kind:?}: {count} of {limit}, {rate:.2} per 1000 words");
            if count > limit {
                over.push(format!("{name}: {kind:?}: {count}, limit {limit}"));
                over.extend(hits.iter().map(|(place, line)| format!("  {place}: {line}")));
            }
        }
    }
    assert!(over.is_empty(), "reword (tests/words.toml):\n{}", over.join("\n"));
}
