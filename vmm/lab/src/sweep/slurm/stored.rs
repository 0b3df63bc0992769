//! Options of sbatch that come from a sweep's directory and not from the command line.
//!
//! A directory is data, which others may have written, and some options choose what is executed: `--export=LD_PRELOAD=...`, a
//! script behind the options, plug-ins'. So only options that say where and when tasks run are taken from it.

use OptionValue::{Maybe, Needed, Never};

/// Has an option a value?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionValue {
    /// Behind `=`, or in the next word.
    Needed,
    /// Behind `=`, if at all.
    Maybe,
    /// No.
    Never,
}

/// Options that are taken, with their short names (sbatch(1), 22.05).
const TAKEN: [(&str, &str, OptionValue); 40] = [
    ("--account", "-A", Needed),
    ("--begin", "-b", Needed),
    ("--clusters", "-M", Needed),
    ("--comment", "", Needed),
    ("--constraint", "-C", Needed),
    ("--contiguous", "", Never),
    ("--core-spec", "-S", Needed),
    ("--cores-per-socket", "", Needed),
    ("--cpu-freq", "", Needed),
    ("--cpus-per-task", "-c", Needed),
    ("--deadline", "", Needed),
    ("--delay-boot", "", Needed),
    ("--exclude", "-x", Needed),
    ("--exclusive", "", Maybe),
    ("--extra-node-info", "-B", Needed),
    ("--gres", "", Needed),
    ("--hint", "", Needed),
    ("--hold", "-H", Never),
    ("--licenses", "-L", Needed),
    ("--mem", "", Needed),
    ("--mem-per-cpu", "", Needed),
    ("--nice", "", Maybe),
    ("--no-requeue", "", Never),
    ("--nodelist", "-w", Needed),
    ("--overcommit", "-O", Never),
    ("--oversubscribe", "-s", Never),
    ("--partition", "-p", Needed),
    ("--prefer", "", Needed),
    ("--priority", "", Needed),
    ("--qos", "-q", Needed),
    ("--requeue", "", Never),
    ("--reservation", "", Needed),
    ("--sockets-per-node", "", Needed),
    ("--spread-job", "", Never),
    ("--switches", "", Needed),
    ("--threads-per-core", "", Needed),
    ("--time", "-t", Needed),
    ("--time-min", "", Needed),
    ("--tmp", "", Needed),
    ("--wckey", "", Needed),
];

/// The first word that is not taken from a directory.
pub fn not_taken(words: &[String]) -> Option<&str> {
    let mut left = words.iter().map(String::as_str);
    while let Some(word) = left.next() {
        match value_follows(word) {
            Some(false) => {}
            Some(true) if left.next().is_some() => {}
            Some(true) | None => return Some(word),
        }
    }
    None
}

/// Is this an option that is taken, and is the next word its value? None: it is none.
fn value_follows(word: &str) -> Option<bool> {
    if word.starts_with("--") {
        // In full: sbatch takes what begins several names for the one that it knows.
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let (_, _, kind) = TAKEN.iter().find(|(long, _, _)| *long == name)?;
        return match (kind, value) {
            (Never, Some(_)) => None,
            (Needed, None) => Some(true),
            _ => Some(false),
        };
    }
    let (_, _, kind) =
        TAKEN.iter().find(|(_, short, _)| !short.is_empty() && word.starts_with(short))?;
    match kind {
        Needed => Some(word.len() == 2),
        // More letters would be more options.
        Maybe | Never => (word.len() == 2).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::words, *};

    #[test]
    fn what_says_where_and_when_is_taken() {
        for options in [
            "",
            "-p all --time=5",
            "--time 5 -pall -A me --nice --nice=100 -H --exclusive=user",
            "--exclude=n1,n2 --mem=0 -t 5",
        ] {
            assert_eq!(not_taken(&words(options).unwrap()), None, "{options}");
        }
    }

    /// Regression: a directory could have sbatch execute what it liked.
    #[test]
    fn what_chooses_what_is_executed_is_not() {
        for (options, word) in [
            ("--export=ALL,LD_PRELOAD=/tmp/x.so", "--export=ALL,LD_PRELOAD=/tmp/x.so"),
            ("-p all --expor=X=1", "--expor=X=1"),
            ("-p all script.sh", "script.sh"),
            ("-H script.sh", "script.sh"),
            ("--hold=x", "--hold=x"),
            ("-Hx", "-Hx"),
            ("--nice 5", "5"),
            ("--time", "--time"),
            ("--get-user-env", "--get-user-env"),
            ("--container=/tmp/x", "--container=/tmp/x"),
        ] {
            assert_eq!(not_taken(&words(options).unwrap()), Some(word), "{options}");
        }
    }
}
