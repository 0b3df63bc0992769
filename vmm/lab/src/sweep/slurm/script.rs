//! The batch script and the options of sbatch.

use std::{ffi::OsString, fmt::Write as _, path::Path, time::Duration};

use super::super::{Submission, dir::SweepDir};

/// Options of sbatch that belong to pvticket.
const OURS: [(&str, &str); 14] = [
    ("--array", "-a"),
    ("--chdir", "-D"),
    ("--dependency", "-d"),
    ("--error", "-e"),
    ("--input", "-i"),
    ("--job-name", "-J"),
    ("--nodes", "-N"),
    ("--ntasks", "-n"),
    ("--open-mode", ""),
    ("--output", "-o"),
    ("--parsable", ""),
    ("--test-only", ""),
    ("--wait", "-W"),
    ("--wrap", ""),
];

/// What a task needs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The whole node, because the cells are measured; otherwise one CPU.
    pub exclusive: bool,
    /// How long the longest unit may take by estimate.
    pub estimate: Duration,
}

impl Shape {
    /// The time limit in minutes: twice the estimate and some minutes for slow starts.
    fn minutes(&self) -> u64 {
        (2 * self.estimate).as_secs().div_ceil(60) + 4
    }
}

/// Splits the user's options like a shell: at spaces outside of quotes.
pub fn words(options: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = options.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = letters.next().ok_or("it ends with a backslash")?;
                word.get_or_insert_default().push(next);
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a {open} is not closed"));
    }
    words.extend(word);
    match words.iter().find_map(|word| ours(word)) {
        Some(option) => Err(format!("{option} belongs to pvticket; leave it out")),
        None => Ok(words),
    }
}

fn ours(word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or_default();
    // sbatch takes the beginning of a name for the name.
    let is_long = name.starts_with("--") && name.len() > 2;
    let is = |(long, short): &&(&str, &str)| {
        is_long && long.starts_with(name)
            || (!short.is_empty() && !word.starts_with("--") && word.starts_with(short))
    };
    OURS.iter().find(is).map(|(long, _)| *long)
}

/// The indices of an array, `0-3,5`.
pub fn array(units: &[u32]) -> String {
    let mut text = String::new();
    for run in units.chunk_by(|a, b| b.checked_sub(*a) == Some(1)) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match run {
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [one] => write!(text, "{comma}{one}"),
            [] => Ok(()),
        };
    }
    text
}

/// The options of sbatch; the user's follow ours and win.
pub fn options(dir: &SweepDir, submission: &Submission, shape: &Shape) -> Vec<OsString> {
    let mut output = OsString::from("--output=");
    // Slurm replaces %a by the index, and %% by a percent sign.
    let logs = dir.submission(submission.number).display().to_string().replace('%', "%%");
    output.push(format!("{logs}/%a.log"));
    let mut all: Vec<OsString> = [
        "--parsable".to_owned(),
        format!("--job-name={}", submission.name),
        format!("--array={}", array(&submission.units)),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        format!("--time={}", shape.minutes()),
        "--requeue".into(),
        // A second attempt must not wipe what the first one printed.
        "--open-mode=append".into(),
        "--chdir=/".into(),
    ]
    .map(OsString::from)
    .into();
    all.push(output);
    if shape.exclusive {
        // The node's CPUs and, which --exclusive does not give, its memory.
        all.extend(["--exclusive", "--mem=0"].map(OsString::from));
    }
    all.extend(words(&submission.options).unwrap_or_default().into_iter().map(OsString::from));
    all
}

/// The batch script: the task is the script itself, so that it has all CPUs of the job and gets the
/// signals that are sent to the batch script alone. Slurm keeps the script itself, and starts it days after the submission; so it
/// compares the program in the directory once more, whose SHA-256 begins with `sum`.
pub fn text(dir: &SweepDir, sum: &str, submission: u32) -> String {
    let (program, sum) = (quoted(&dir.program()), base::shown::quoted(&base::shown::line(sum)));
    format!(
        "#!/bin/sh\n\
         sum=$(sha256sum < {program}) || exit\n\
         case \"$sum\" in\n\
         {sum}*) ;;\n\
         *) echo 'pvticket: bin/pvticket is not the program that was submitted' >&2; exit 1 ;;\n\
         esac\n\
         exec {program} task {} --unit \"$SLURM_ARRAY_TASK_ID\" --submission {submission}\n",
        quoted(dir.path())
    )
}

fn quoted(path: &Path) -> String {
    base::shown::quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_ranges() {
        for (units, text) in
            [(&[0, 1, 2, 3, 5][..], "0-3,5"), (&[7], "7"), (&[1, 3, 4], "1,3-4"), (&[], "")]
        {
            assert_eq!(array(units), text);
        }
    }

    #[test]
    fn options_are_split_like_a_shell_does() {
        let split = |text: &str| words(text).unwrap();
        assert_eq!(split("-p all  --account=a"), ["-p", "all", "--account=a"]);
        assert_eq!(split("--comment='two words' \"\" a\\ b"), ["--comment=two words", "", "a b"]);
        assert_eq!(
            split("--exclude=n1 --nodelist=n2 --nice"),
            ["--exclude=n1", "--nodelist=n2", "--nice"]
        );
        for (bad, reason) in [
            ("'a", "is not closed"),
            ("a\\", "backslash"),
            ("--array=1-3", "--array belongs to pvticket"),
            ("-p all -a1", "--array belongs"),
            ("--wrap=ls", "--wrap belongs"),
            ("--wra=ls", "--wrap belongs"),
            ("--arr 1", "--array belongs"),
            ("-N 2", "--nodes belongs"),
        ] {
            let error = words(bad).unwrap_err();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    #[test]
    fn a_submission_is_what_slurm_is_told() {
        let dir = SweepDir::new(Path::new("/runs/it's 5%")).unwrap();
        let submission = Submission {
            number: 1,
            engine: "slurm".into(),
            options: "--time=5 -p all".into(),
            name: "pvticket-x-1".into(),
            units: vec![0, 1, 4],
            at_ms: 0,
            job: None,
        };
        let shape = Shape { exclusive: true, estimate: Duration::from_secs(90) };
        let words = options(&dir, &submission, &shape);
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        for word in [
            "--array=0-1,4",
            "--time=7",
            "--exclusive",
            "--mem=0",
            "--output=/runs/it's 5%%/submissions/1/%a.log",
        ] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
        assert_eq!(words[words.len() - 3..], ["--time=5", "-p", "all"], "the user's win");
        let shared = options(&dir, &submission, &Shape { exclusive: false, ..shape });
        assert!(!shared.iter().any(|word| word == "--exclusive"));
        let script = text(&dir, "0af3", 1);
        assert_eq!(
            script,
            "#!/bin/sh\nsum=$(sha256sum < '/runs/it'\\''s 5%/bin/pvticket') || exit\n\
             case \"$sum\" in\n0af3*) ;;\n\
             *) echo 'pvticket: bin/pvticket is not the program that was submitted' >&2; exit 1 ;;\nesac\n\
             exec '/runs/it'\\''s 5%/bin/pvticket' task '/runs/it'\\''s 5%' --unit \
             \"$SLURM_ARRAY_TASK_ID\" --submission 1\n"
        );
    }
}
