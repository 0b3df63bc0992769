//! The text of `pvticket --help`, with the commands in groups, and two examples in the help of each command.

use clap::Command;

/// A group of commands: its title, and each command with a description.
type HelpGroup = (&'static str, &'static [(&'static str, &'static str)]);

const GROUPS: [HelpGroup; 4] = [
    (
        "Guests",
        &[
            ("boot", "Boot a Linux guest and run a command or a shell in it"),
            ("emulate", "Run any static program in the emulated host"),
        ],
    ),
    (
        "Experiments",
        &[
            ("compare", "Compare native, PV or other locks under overcommit"),
            ("check", "Test the spinlocks of your own kernel (KTAP)"),
            ("run", "Run an experiment described by a spec"),
            ("report", "Report the results of runs: figures, comparisons, HTML"),
            ("export", "Write the cells of runs as one table"),
            ("trace", "Summarize a timeline: the worst handoffs and preemptions"),
            ("reproduce", "Compare with published results"),
            ("locks", "List the systems of the lock library"),
            ("lock", "Write and check locks of your own, out of tree"),
        ],
    ),
    (
        "Simulator",
        &[
            ("sim", "List the machines; calibrate and validate one for this host"),
            ("search", "Search for schedules and faults that break or starve a lock"),
        ],
    ),
    (
        "Host",
        &[
            ("doctor", "Report this host's features, and what to install or change"),
            ("setup", "Build or fetch the files that guests need"),
            ("bench", "Measure the costs of the VMM: boots and hypercalls"),
        ],
    ),
];

/// Two examples for each command, by path.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("boot", ["boot --cpus 8 -- nproc", "boot --policy lhp:20,5ms -- lockbench --seconds 2"]),
    ("emulate", ["emulate -- /init doctor", "emulate --in prog:/prog --out /log:log -- /prog"]),
    (
        "compare",
        ["compare --guest linux", "compare --policy rr,deferred --vcpus 2x --set critical=400"],
    ),
    ("check", ["check --quick", "check --compare old/bzImage new/bzImage"]),
    ("run", ["run league --quick", "run spec.toml --only vcpus=2x --dry-run"]),
    ("report", ["report runs/collapse", "report --diff runs/a runs/b --fail-on regression"]),
    ("export", ["export runs/collapse --csv cells.csv", "export runs/a runs/b --json -"]),
    ("trace", ["trace timeline.pb", "trace timeline.pb --top 3 --json"]),
    (
        "reproduce",
        ["reproduce --simulated-only --short", "reproduce --out figures --html page.html"],
    ),
    ("locks", ["locks", "compare --locks all"]),
    ("lock", ["lock new mine", "lock check mine"]),
    ("lock new", ["lock new mine", "lock new mine --dir /tmp/mine"]),
    ("lock check", ["lock check .", "lock check mine"]),
    ("sim", ["sim", "compare --guest sim --machine westmere-80 --vcpus 2x"]),
    ("sim calibrate", ["sim calibrate", "sim calibrate --validate"]),
    ("search", ["search --locks ticket --seconds 60", "search --cases --locks pv-ticket"]),
    ("doctor", ["doctor", "doctor --calls"]),
    ("setup", ["setup --list", "setup kernel busybox host"]),
    ("bench", ["bench hypercalls", "bench boot"]),
    ("bench boot", ["bench boot", "bench boot --runs 5 --json boot.json"]),
    (
        "bench hypercalls",
        ["bench hypercalls", "bench hypercalls --host emulated --pv-backends vmm,kvm"],
    ),
];

/// Adds groups and examples to the help.
pub(super) fn with_help(command: Command) -> Command {
    with_examples(command, "").help_template(template())
}

/// The help template of `pvticket`: clap has no groups of subcommands.
fn template() -> String {
    let width = GROUPS.iter().flat_map(|(_, list)| *list).map(|(name, _)| name.len()).max();
    let width = width.unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, commands) in GROUPS {
        text += &format!("\n{title}:\n");
        for (name, about) in commands {
            text += &format!("  {name:width$}  {about}\n");
        }
    }
    text + "\nOptions:\n{options}\n\n`pvticket COMMAND --help` has all options and two examples.\n"
}

/// Adds examples to the help of all subcommands of `command`, whose path is `parent`.
fn with_examples(command: Command, parent: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{parent} {name}").trim_start().to_owned();
        let examples = EXAMPLES.iter().find(|(command, _)| *command == path);
        command.mut_subcommand(name, |command| {
            let command = match examples {
                Some((_, [first, second])) => {
                    command.before_help(format!("  pvticket {first}\n  pvticket {second}"))
                }
                None => command,
            };
            with_examples(command, &path)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    /// Collects the paths of all visible commands.
    fn paths(command: &Command, parent: &str, list: &mut Vec<String>) {
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            let path = format!("{parent} {}", child.get_name()).trim_start().to_owned();
            paths(child, &path, list);
            list.push(path);
        }
    }

    /// The budgets of options and of commands, subcommands of `bench` and `sim` included (tests/budget.toml).
    #[test]
    fn options_and_commands_are_within_budget() {
        let budget = include_str!("../../../tests/budget.toml");
        let limit = |name: &str| -> usize {
            let line = budget.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.unwrap().parse().unwrap()
        };
        let command = cli::command();
        let mut commands = Vec::new();
        paths(&command, "", &mut commands);
        let options = |path: &str| {
            let mut names = path.split(' ');
            let command = names.try_fold(&command, |command, name| command.find_subcommand(name));
            let help = command.unwrap().clone().render_long_help().to_string();
            let is_option = |line: &&str| {
                let name = line.trim_start().strip_prefix('-');
                name.is_some_and(|name| name.starts_with(|c: char| c == '-' || c.is_alphabetic()))
            };
            help.lines().filter(is_option).count()
        };
        let counts = [
            ("options", commands.iter().map(|path| options(path)).sum()),
            ("options-of-compare", options("compare")),
            ("commands", commands.len()),
        ];
        for (name, used) in counts {
            println!("{name:40} {used:7} of {:7}", limit(name));
            assert!(
                used <= limit(name),
                "{name}: {used}, budget {} (tests/budget.toml)",
                limit(name)
            );
        }
    }

    #[test]
    fn each_command_is_in_one_group() {
        let mut commands: Vec<_> = cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        let mut grouped: Vec<_> =
            GROUPS.iter().flat_map(|(_, list)| *list).map(|(name, _)| (*name).to_owned()).collect();
        commands.sort();
        grouped.sort();
        assert_eq!(grouped, commands);
        let help = cli::command().render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn each_command_has_two_valid_examples() {
        let mut commands = Vec::new();
        paths(&cli::command(), "", &mut commands);
        let mut expected: Vec<_> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        commands.sort();
        expected.sort();
        assert_eq!(expected, commands);
        for (path, examples) in EXAMPLES {
            assert!(examples.iter().any(|words| words.starts_with(path)), "{path}: {examples:?}");
            for example in examples {
                let words = ["pvticket"].into_iter().chain(example.split(' '));
                let parsed = cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }
}
