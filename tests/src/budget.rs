//! The repository's budget, `tests/budget.toml`: limits for lines, bytes and manifests. Options and commands
//! are counted in `vmm/src/cli/help.rs`.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;

use crate::references::{File, file, files, root};

#[derive(Debug, Deserialize)]
struct Budget {
    /// Lines of product code, by folder of the crate.
    product: BTreeMap<String, usize>,
    repository: BTreeMap<String, usize>,
}

pub(crate) fn is_test(name: &str) -> bool {
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", name));
    folders.split('/').any(|folder| folder == "tests" || folder == "benches")
        || ["test_", "tests_"].iter().any(|part| file.contains(part))
        || ["test.rs", "tests.rs"].iter().any(|end| file.ends_with(end))
}

/// Counts the lines of code of a source, without comments and blank lines: product code and test code.
fn count(name: &str, text: &str) -> (usize, usize) {
    let (mut product, mut tests) = (0, 0);
    let mut region = None;
    let mut comments = 0_usize;
    for line in text.lines() {
        let code = line.trim();
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test") {
            region = region.or(Some(Region { indent: indent(line), has_begun: false }));
        }
        let is_comment = comments > 0 || code.starts_with("//") || code.starts_with("/*");
        if comments > 0 || code.starts_with("/*") {
            let begins = comments + code.matches("/*").count();
            comments = begins.saturating_sub(code.matches("*/").count());
        }
        if !is_comment && !code.is_empty() {
            let is_tests = is_test(name) || region.is_some();
            *(if is_tests { &mut tests } else { &mut product }) += 1;
        }
        region = region.and_then(|region| region.after(line));
    }
    (product, tests)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The item below `#[cfg(test)]`, which ends where rustfmt closes it.
#[derive(Debug, Clone, Copy)]
struct Region {
    indent: usize,
    has_begun: bool,
}

impl Region {
    /// Returns the region after this line, or None if the line ends it.
    fn after(self, line: &str) -> Option<Self> {
        let code = line.trim();
        if indent(line) != self.indent || code.is_empty() || code.starts_with(['#', '/']) {
            return Some(self);
        }
        let is_one_line = !self.has_begun && code.ends_with([';', '}', ',']);
        (!is_one_line && !code.starts_with('}')).then_some(Self { has_begun: true, ..self })
    }
}

/// Returns the folder of the nearest manifest above a source.
fn crate_of<'a>(name: &'a str, manifests: &[&str]) -> &'a str {
    let mut folder = name;
    while let Some((parent, _)) = folder.rsplit_once('/') {
        folder = parent;
        if manifests.contains(&format!("{folder}/Cargo.toml").as_str()) {
            return folder;
        }
    }
    "."
}

#[test]
fn nothing_exceeds_its_budget() {
    let text = fs::read_to_string(root().join("tests/budget.toml")).unwrap();
    let budget: Budget = toml::from_str(&text).unwrap();
    let names = files().iter().map(|file| file.name.as_str());
    let manifests: Vec<&str> = names.filter(|name| name.ends_with("Cargo.toml")).collect();
    let mut product: BTreeMap<&str, usize> = BTreeMap::new();
    let mut repository: BTreeMap<&str, usize> = BTreeMap::new();
    for File { name, text } in files() {
        if name.ends_with(".rs") {
            let (lines, tests) = count(name, text);
            *product.entry(crate_of(name, &manifests)).or_default() += lines;
            *repository.entry("product-code").or_default() += lines;
            *repository.entry("test-code").or_default() += tests;
        } else if name.ends_with(".md") {
            *repository.entry("markdown-bytes").or_default() += text.len();
        }
    }
    let size = |name: &str| file(name).unwrap().text.len();
    repository.insert("readme-bytes", size("README.md"));
    repository.insert("history-bytes", size("tests/HISTORY.md"));
    repository.insert("manifests", manifests.len());
    let mut excess = Vec::new();
    let counted = product.into_iter().map(|row| (&budget.product, row));
    for (budget, (name, used)) in
        counted.chain(repository.into_iter().map(|row| (&budget.repository, row)))
    {
        let limit = budget.get(name).copied().unwrap_or(0);
        println!("{name:40} {used:7} of {limit:7}");
        if used > limit {
            excess.push(format!("{name}: {used}, budget {limit}"));
        }
    }
    assert!(excess.is_empty(), "over budget (tests/budget.toml): {}", excess.join("; "));
}

#[test]
fn lines_are_counted_as_product_or_tests() {
    let text = "//! Doc.\n\nfn a() {}\n#[cfg(test)]\nuse b;\n/* c\n d */\n#[cfg(test)]\nmod tests {\n    fn e() { '}'; \"}\"; }\n}\nfn f() {}\n";
    assert_eq!(count("src/a.rs", text), (2, 6));
    assert_eq!(count("src/a_tests.rs", text), (0, 8));
    assert!(is_test("vmm/x/tests/a.rs") && !is_test("vmm/tester.rs"));
}
