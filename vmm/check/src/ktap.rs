//! Results as KTAP version 1, a line a test, with figures as diagnostics before it.

use std::fmt::Write as _;

use base::shown;

/// What a test has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Ok,
    /// It failed, and why.
    NotOk(String),
    /// It could not be run on this kernel, and why.
    Skipped(String),
}

impl Verdict {
    /// Name in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotOk(_) => "not ok",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// The result of a test.
#[derive(Debug, Clone)]
pub struct TestResult {
    /// What it found.
    pub verdict: Verdict,
    /// Figures, a line each.
    pub notes: Vec<String>,
}

impl TestResult {
    /// It passed, with these figures.
    pub const fn ok(notes: Vec<String>) -> Self {
        Self { verdict: Verdict::Ok, notes }
    }

    /// It failed.
    pub fn not_ok(why: impl Into<String>, notes: Vec<String>) -> Self {
        Self { verdict: Verdict::NotOk(why.into()), notes }
    }

    /// The kernel does not have what it tests.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped(why.into()), notes: Vec::new() }
    }
}

/// The first lines: version, plan, and what is tested.
pub fn heading(tests: usize, about: &[String]) -> String {
    format!("KTAP version 1\n1..{tests}\n{}", comments(about))
}

/// The lines of test number `number`, from 1. What a guest wrote is one line of printable characters.
pub fn lines(number: usize, name: &str, result: &TestResult) -> String {
    let mut text = comments(&result.notes);
    let _ = match &result.verdict {
        Verdict::Ok => writeln!(text, "ok {number} {name}"),
        Verdict::NotOk(why) => {
            text += &comments(std::slice::from_ref(why));
            writeln!(text, "not ok {number} {name}")
        }
        Verdict::Skipped(why) => writeln!(text, "ok {number} {name} # SKIP {}", shown::line(why)),
    };
    text
}

/// The last line: how many tests there were, as kselftest ends its own.
pub fn totals(results: &[TestResult]) -> String {
    let count =
        |is: fn(&Verdict) -> bool| results.iter().filter(|result| is(&result.verdict)).count();
    format!(
        "# Totals: pass:{} fail:{} xfail:0 xpass:0 skip:{} error:0\n",
        count(|verdict| *verdict == Verdict::Ok),
        count(|verdict| matches!(verdict, Verdict::NotOk(_))),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
    )
}

fn comments(lines: &[String]) -> String {
    lines.iter().map(|line| format!("# {}\n", shown::line(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_one_line_after_its_figures() {
        let notes = vec!["3 of 4 CPUs".to_owned(), "two\nlines".to_owned()];
        let failed = lines(2, "smp", &TestResult::not_ok("it hung", notes));
        assert_eq!(failed.lines().count(), 4, "{failed}");
        assert!(
            failed.starts_with("# 3 of 4 CPUs\n# two")
                && failed.ends_with("# it hung\nnot ok 2 smp\n")
        );
        assert_eq!(lines(3, "pv", &TestResult::skipped("no PV")), "ok 3 pv # SKIP no PV\n");
        assert_eq!(lines(1, "boot", &TestResult::ok(Vec::new())), "ok 1 boot\n");
        assert!(
            heading(14, &["kernel x".into()]).starts_with("KTAP version 1\n1..14\n# kernel x\n")
        );
    }

    #[test]
    fn totals_count_each_kind() {
        let all = [
            TestResult::ok(Vec::new()),
            TestResult::skipped(""),
            TestResult::not_ok("", Vec::new()),
        ];
        assert_eq!(totals(&all), "# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n");
    }
}
