//! The budget of the repository, `tests/budget.toml`: lines, bytes and manifests, none of which may be exceeded.
//! Options and commands are counted in `vmm/src/cli/help.rs`.

use std::{collections::BTreeMap, fs, process::Command};

use serde::Deserialize;

use crate::references::root;

#[derive(Debug, Deserialize)]
struct Budget {
    /// Lines of product code, by folder of the crate.
    product: BTreeMap<String, usize>,
    repository: BTreeMap<String, usize>,
}

/// The files under version control, with their texts.
fn files() -> Vec<(String, String)> {
    let all = Command::new("git").current_dir(root()).args(["ls-files", "-z"]).output().unwrap();
    let names = String::from_utf8(all.stdout).unwrap();
    let is_counted = |name: &&str| {
        [".rs", ".md", "Cargo.toml"].iter().any(|end| name.ends_with(end))
            && root().join(name).exists()
    };
    let read = |name: &str| (name.to_owned(), fs::read_to_string(root().join(name)).unwrap());
    names.split_terminator('\0').filter(is_counted).map(read).collect()
}

fn is_test(name: &str) -> bool {
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", name));
    folders.split('/').any(|folder| folder == "tests" || folder == "benches")
        || ["test_", "tests_"].iter().any(|part| file.contains(part))
        || ["test.rs", "tests.rs"].iter().any(|end| file.ends_with(end))
}

/// Lines of code of a source, without comments and blank lines: of the product and of its tests.
fn count(name: &str, text: &str) -> (usize, usize) {
    let (mut product, mut tests) = (0, 0);
    let mut region = is_test(name).then_some(Region::Whole);
    let mut comments = 0_usize;
    for line in text.lines().map(str::trim) {
        if region.is_none()
            && (line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test"))
        {
            region = Some(Region::Item { depth: 0, has_begun: false });
        }
        let is_comment = comments > 0 || line.starts_with("//") || line.starts_with("/*");
        if comments > 0 || line.starts_with("/*") {
            comments =
                (comments + line.matches("/*").count()).saturating_sub(line.matches("*/").count());
        }
        if !is_comment && !line.is_empty() {
            *(if region.is_some() { &mut tests } else { &mut product }) += 1;
        }
        region = region.and_then(|region| region.after(line));
    }
    (product, tests)
}

/// Lines that are of tests only.
#[derive(Debug, Clone, Copy)]
enum Region {
    /// The whole file.
    Whole,
    /// The item behind `#[cfg(test)]`.
    Item { depth: i64, has_begun: bool },
}

impl Region {
    /// The region after this line of it; None: it has ended.
    fn after(self, line: &str) -> Option<Self> {
        let Self::Item { depth, has_begun } = self else { return Some(self) };
        let code = without_texts(line);
        let [opened, closed] = ['{', '}'].map(|brace| code.matches(brace).count() as i64);
        let (depth, has_begun) = (depth + opened - closed, has_begun || opened > 0);
        let is_over = if has_begun { depth <= 0 } else { code.ends_with(';') };
        (!is_over).then_some(Self::Item { depth, has_begun })
    }
}

/// A line without its comment, its strings and its characters.
fn without_texts(line: &str) -> String {
    let mut code = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '/' if letters.peek() == Some(&'/') => break,
            '"' => {
                while let Some(inner) = letters.next() {
                    match inner {
                        '\\' => drop(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '\'' => {
                let rest: Vec<char> = letters.clone().take(3).collect();
                let length = match rest[..] {
                    ['\\', _, '\''] => 3,
                    [inner, '\'', ..] if inner != '\\' => 2,
                    _ => 0,
                };
                letters.by_ref().take(length).for_each(drop);
            }
            _ => code.push(letter),
        }
    }
    code.trim_end().to_owned()
}

/// The folder of the nearest manifest above a source.
fn crate_of<'a>(name: &'a str, manifests: &[&str]) -> &'a str {
    let mut folder = name;
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        if manifests.contains(&format!("{folder}/Cargo.toml").as_str()) {
            return folder;
        }
    }
    "."
}

#[test]
fn nothing_exceeds_its_budget() {
    let budget: Budget =
        toml::from_str(&fs::read_to_string(root().join("tests/budget.toml")).unwrap()).unwrap();
    let files = files();
    let manifests: Vec<&str> = files
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.ends_with("Cargo.toml"))
        .collect();
    let mut product: BTreeMap<&str, usize> = BTreeMap::new();
    let mut repository: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, text) in &files {
        if name.ends_with(".rs") {
            let (own, tests) = count(name, text);
            *product.entry(crate_of(name, &manifests)).or_default() += own;
            *repository.entry("product-code").or_default() += own;
            *repository.entry("test-code").or_default() += tests;
        } else if name.ends_with(".md") {
            *repository.entry("markdown-bytes").or_default() += text.len();
        }
    }
    let size = |name: &str| fs::metadata(root().join(name)).unwrap().len() as usize;
    repository.insert("readme-bytes", size("README.md"));
    repository.insert("history-bytes", size("tests/HISTORY.md"));
    repository.insert("manifests", manifests.len());
    let mut over = Vec::new();
    let counted = product.into_iter().map(|row| (&budget.product, row));
    for (budget, (name, used)) in
        counted.chain(repository.into_iter().map(|row| (&budget.repository, row)))
    {
        let most = budget.get(name).copied().unwrap_or(0);
        println!("{name:40} {used:7} of {most:7}");
        if used > most {
            over.push(format!("{name}: {used}, budget {most}"));
        }
    }
    assert!(over.is_empty(), "over budget (tests/budget.toml): {}", over.join("; "));
}

#[test]
fn lines_are_of_the_product_or_of_tests() {
    let text = "//! Doc.\n\nfn a() {}\n#[cfg(test)]\nuse b;\n/* c\n d */\n#[cfg(test)]\nmod tests {\n    fn e() { '}'; \"}\"; }\n}\nfn f() {}\n";
    assert_eq!(count("src/a.rs", text), (2, 6));
    assert_eq!(count("src/a_tests.rs", text), (0, 8));
    assert!(is_test("vmm/x/tests/a.rs") && !is_test("vmm/tester.rs"));
}
