//! Patterns of prose that Propolis, quinn and Alioth rarely use, each with a limit in `tests/words.toml`.

use std::{collections::BTreeMap, fs};

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

/// Returns the prose of a file: kind, line number and text.
fn prose(name: &str, text: &str) -> Vec<(Kind, usize, String)> {
    let numbered = || text.lines().enumerate().map(|(at, line)| (at + 1, line));
    if !name.ends_with(".rs") && !name.ends_with(".md") {
        return Vec::new();
    }
    if name.ends_with(".md") {
        let mut is_code = false;
        let lines = numbered().filter(|(_, line)| {
            is_code ^= line.starts_with("```");
            !is_code && !line.starts_with("    ")
        });
        return lines.map(|(at, line)| (Kind::Markdown, at, line.trim().to_owned())).collect();
    }
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let comments = numbered().filter(|(_, line)| is_comment(line));
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
    let token = r##"//.*|'(?:[^'\\]|\\.[^']*)'|r#*"(?s:.*?)"#*|"(?s:[^"\\]|\\.)*""##;
    let tokens = Regex::new(token).unwrap();
    let literals = tokens.find_iter(code).filter(|found| !found.as_str().starts_with(['/', '\'']));
    let lines = literals.flat_map(|literal| {
        let first = code[..literal.start()].matches('\n').count() + 1;
        literal.as_str().split('\n').zip(first..)
    });
    let trimmed = lines.map(|(line, at)| (at, line.trim().trim_matches('"').to_owned()));
    trimmed.filter(|(_, line)| line.contains(' ')).collect()
}

/// Returns all prose of the repository: kind, place and text.
fn lines() -> Vec<(Kind, String, String)> {
    let prose = files().iter().flat_map(|File { name, text }| {
        let lines = prose(name, text).into_iter();
        lines.map(move |(kind, at, line)| (kind, format!("{name}:{at}"), line))
    });
    prose.collect()
}

#[test]
fn no_pattern_exceeds_its_limit() {
    let text = fs::read_to_string(root().join("tests/words.toml")).unwrap();
    let Patterns { pattern: patterns } = toml::from_str(&text).unwrap();
    let lines = lines();
    let mut over = Vec::new();
    for Pattern { name, regex, limits } in &patterns {
        let regex = Regex::new(regex).unwrap();
        for kind in [Kind::Comments, Kind::Markdown, Kind::Strings, Kind::Help] {
            let prose = lines.iter().filter(|(of, ..)| *of == kind);
            let words: usize =
                prose.clone().map(|(.., line)| line.split_whitespace().count()).sum();
            let hits: Vec<_> = prose.filter(|(.., line)| regex.is_match(line)).collect();
            let (count, limit) = (hits.len(), limits.get(&kind).copied().unwrap_or(0));
            let rate = 1000.0 * count as f64 / words as f64;
            println!("{name:40} {kind:?}: {count} of {limit}, {rate:.2} per 1000 words");
            if count > limit {
                over.push(format!("{name}: {kind:?}: {count}, limit {limit}"));
                over.extend(hits.iter().map(|(_, place, line)| format!("  {place}: {line}")));
            }
        }
    }
    assert!(over.is_empty(), "reword (tests/words.toml):\n{}", over.join("\n"));
}
