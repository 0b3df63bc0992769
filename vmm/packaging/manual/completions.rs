//! Completions for bash, zsh and fish.

use clap::Command;
use clap_complete::{Shell, generate};

/// Path of each shell's completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/pvticket"),
    (Shell::Zsh, "zsh/site-functions/_pvticket"),
    (Shell::Fish, "fish/vendor_completions.d/pvticket.fish"),
];

/// Paths below `share`, with contents.
pub(crate) fn scripts(command: &Command) -> Vec<(String, Vec<u8>)> {
    SHELLS
        .into_iter()
        .map(|(shell, path)| {
            let mut text = Vec::new();
            generate(shell, &mut command.clone(), "pvticket", &mut text);
            (path.to_owned(), text)
        })
        .collect()
}
