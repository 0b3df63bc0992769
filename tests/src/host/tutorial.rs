//! `vmm/specs/TUTORIAL.md`: its commands, in order, print the lines that it shows.

use crate::prelude::*;

kvm::tests![the_commands_print_what_the_tutorial_shows => Long("40 s: a boot, and 78 measured windows")];

/// Units of time, which change with the figures before them.
const UNITS: [&str; 4] = ["s", "ms", "us", "ns"];

/// Returns the blocks of a document with this word after their fence.
fn blocks<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let fence = format!("\n```{word}\n");
    text.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Returns the commands of a block, each with the lines shown below it.
fn commands(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command, Vec::new()));
        } else if let Some((_, expected)) = commands.last_mut() {
            expected.push(line);
        }
    }
    commands
}

/// Returns the words of a line that all hosts share: no figures, no units, and only the key of a value.
fn words(line: &str) -> Vec<&str> {
    // Rows of tables are indented, and their gaps depend on the figures.
    let is_fact = !line.starts_with(' ');
    let line = line.trim();
    let columns: Vec<&str> =
        line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    let key = match columns[..] {
        [key, _] if is_fact && key.starts_with(char::is_alphabetic) => Some(key),
        _ => line.split_once(": ").map(|(key, _)| key).filter(|key| !key.contains(' ')),
    };
    let words = key.unwrap_or(line).split_whitespace();
    words
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.starts_with(char::is_alphabetic) && !UNITS.contains(word))
        .collect()
}

/// Whether the output has a line like this. A line without words must be there literally.
fn prints(output: &str, expected: &str) -> bool {
    let pattern = words(expected);
    let is_alike = |line: &str| !pattern.is_empty() && words(line) == pattern;
    output.lines().any(|line| line.trim() == expected.trim() || is_alike(line))
}

fn the_commands_print_what_the_tutorial_shows() -> anyhow::Result<()> {
    let text = fs::read_to_string(files::repository("vmm/specs/TUTORIAL.md")?)?;
    let folder = files::scratch()?;
    let specs = blocks(&text, "toml");
    files::put(&folder, "mine.toml", specs.first().context("no spec")?.as_bytes())?;
    let commands: Vec<_> = blocks(&text, "console").into_iter().flat_map(commands).collect();
    ensure!(commands.len() >= 10, "only {} commands", commands.len());
    for (command, expected) in commands {
        let script =
            format!("cd \"$FOLDER\" || exit; pvticket() {{ \"$PRODUCT\" \"$@\"; }}; {command}");
        let shell = Program::new("/bin/sh").args(["-c", &script]).env("FOLDER", folder.path());
        let ran = shell.env("PRODUCT", binary()).limit(300).run()?.exits(0)?;
        let output = ran.text()?;
        for line in expected.into_iter().filter(|line| !["", "..."].contains(&line.trim())) {
            // A schedule's injections, and so the report on them, are a matter of chance.
            expect_usually!(
                prints(output, line),
                "{command}: no line like {line:?}\n{}",
                ran.show()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_alike_if_their_words_or_keys_are() {
        let table =
            "lock   N   Median  95 % interval  LHP/s\n  rr ticket   6   1.2k  -  <.01 %  9 ms\n";
        assert!(prints(table, "  rr ticket  3  900  1.1k .. 1.3k  12 us"));
        assert!(prints(table, "lock          N  Median 95 % interval LHP/s"));
        assert!(!prints(table, "lock   N   Median  95 % interval  LWP/s"));
        assert!(!prints(table, "  rr pv-ticket   6   1.2k  -  0 %  9 ms"));
        let host = "guests: payload on this host\nmethod  3 rounds\n2\n";
        assert!(prints(host, "guests: Linux, too") && prints(host, "method  6 of something"));
        assert!(!prints(host, "hosts: payload on this host"));
        assert!(prints(host, "2") && !prints(host, "3"), "a count alone is what was asked for");
    }
}
