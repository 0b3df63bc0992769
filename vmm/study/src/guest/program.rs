//! Programs of the user as workloads of Linux guests, and the figures that they print.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use regex::Regex;
use thiserror::Error;

/// The directory of a guest with the directories of its programs, each at its path on the host.
const GUEST_DIR: &str = "host";
/// Prefix of an expression whose number is a time in seconds.
const RECIPROCAL: &str = "1/";
/// Maximum plausible rate, and seconds a run: numbers beyond do not survive sums.
const RATES: std::ops::RangeInclusive<f64> = 1e-12..=1e15;

/// `DIR/COMMAND ARGS`, separated by blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// Path of the command on the host.
    pub path: &'a Path,
    args: &'a str,
}

impl<'a> Program<'a> {
    /// Parses the text of a workload; None unless it has a directory without `..`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let (path, args) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let path = Path::new(path);
        let is_above = path.components().any(|part| part == Component::ParentDir);
        let has_dir = path.parent().is_some_and(|dir| !dir.as_os_str().is_empty());
        (has_dir && !is_above && !text.starts_with("pgbench:") && !text.contains('\0'))
            .then_some(Self { path, args })
    }

    /// Returns the directory that travels into the guest.
    pub fn dir(&self) -> &'a Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns the name in tables: the file name with the arguments, which distinguish runs of one program.
    pub fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        [&file, self.args].join(" ").trim_end().to_owned()
    }

    /// Returns the command and its arguments in the guest.
    pub fn argv(&self) -> Vec<String> {
        let path = Path::new("/").join(guest_path(self.path)).display().to_string();
        [path].into_iter().chain(self.args.split_whitespace().map(str::to_owned)).collect()
    }
}

/// Returns the place of a path of the host in the guest, below the guest's root.
pub fn guest_path(path: &Path) -> PathBuf {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
    [Component::Normal(GUEST_DIR.as_ref())].into_iter().chain(names).collect()
}

/// Reasons to reject a program's output, or the expression for it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FigureError {
    /// The expression is invalid.
    #[error("not a regular expression with a group, as in 'tps = ([0-9.]+)': {0}")]
    Expression(String),
    /// No line of the output matches.
    #[error("nothing in the program's output (its last 64 KiB) matches the expression '{0}'")]
    NoMatch(String),
    /// The group is no number, or no figure.
    #[error("the expression '{0}' finds '{1}' in the program's output, not a number above 0")]
    Number(String, String),
}

/// An expression that finds a rate in a program's output; after `1/`, the seconds of an operation.
#[derive(Debug, Clone)]
pub struct RateExpression {
    regex: Regex,
    /// Whether the number is the seconds of an operation.
    pub is_time: bool,
}

impl RateExpression {
    /// Returns the rate: the number in the first group of the last match.
    pub fn rate(&self, output: &str) -> Result<f64, FigureError> {
        const SHOWN: usize = 40;
        let group = self.regex.captures_iter(output).last().and_then(|found| found.get(1));
        let group = group.ok_or_else(|| FigureError::NoMatch(self.to_string()))?.as_str();
        let number = group.trim().parse().ok().filter(|number| RATES.contains(number));
        let shown = || FigureError::Number(self.to_string(), group.chars().take(SHOWN).collect());
        let number: f64 = number.ok_or_else(shown)?;
        Ok(if self.is_time { number.recip() } else { number })
    }
}

impl fmt::Display for RateExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_time { RECIPROCAL } else { "" }, self.regex)
    }
}

impl FromStr for RateExpression {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        let (is_time, text) =
            text.strip_prefix(RECIPROCAL).map_or((false, text), |text| (true, text));
        let invalid = |reason: String| FigureError::Expression(reason);
        // The last line of the parser's error is the reason.
        let reason = |error: regex::Error| {
            invalid(error.to_string().lines().last().unwrap_or_default().trim().to_owned())
        };
        let regex = Regex::new(text).map_err(reason)?;
        match regex.captures_len() {
            1 => Err(invalid("it has no group".into())),
            _ => Ok(Self { regex, is_time }),
        }
    }
}

impl PartialEq for RateExpression {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_a_directory() {
        let program = Program::parse("/a/./b/run.sh -n  3").unwrap();
        assert_eq!((program.dir(), program.name().as_str()), (Path::new("/a/b"), "run.sh -n  3"));
        assert_eq!(program.argv(), ["/host/a/b/run.sh", "-n", "3"]);
        assert_eq!(Program::parse("./run").unwrap().argv(), ["/host/run"]);
        for none in ["", "run", "eventfd", "../run", "a/../run", "pgbench:8/10", "/", " ", "a/\0"] {
            assert_eq!(Program::parse(none), None, "{none}");
        }
    }

    #[test]
    fn last_match_is_the_rate() {
        let expression: RateExpression = "tps = ([0-9.]+)".parse().unwrap();
        assert_eq!(expression.rate("tps = 1\ntps = 2.5 (x)\n"), Ok(2.5));
        let time: RateExpression = "1/Time: (\\S+)".parse().unwrap();
        assert_eq!((time.rate("Time: 0.25"), time.to_string()), (Ok(4.0), "1/Time: (\\S+)".into()));
    }

    #[test]
    fn output_without_a_figure_is_an_error() {
        let expression: RateExpression = "=(.*)".parse().unwrap();
        let error = |output: &str| expression.rate(output).unwrap_err().to_string();
        for output in ["", "x", "\u{fffd}\0"] {
            assert!(error(output).contains("matches the expression '=(.*)'"), "{output:?}");
        }
        for number in ["NaN", "inf", "-1", "0", "1e400", "", "1e300", "1e-300", "0x10", "9 8"] {
            assert!(error(&format!("={number}")).contains("not a number above 0"), "{number}");
        }
        assert!(error(&format!("={}", "9x".repeat(1 << 20))).len() < 200);
    }

    #[test]
    fn invalid_expressions_are_rejected() {
        for (text, reason) in [("(", "unclosed group"), ("tps", "no group"), ("", "no group")] {
            let error = text.parse::<RateExpression>().unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains('\n'), "{error}");
        }
    }
}
