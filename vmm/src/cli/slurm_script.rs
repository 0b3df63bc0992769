//! The batch script that measures the parts of a run as a Slurm job array.

use std::{env, ffi::OsString, fs, path::Path};

use anyhow::{Context, bail};
use base::sanitize::shell_quoted;

use super::Usage;

/// The script that runs this command line in `parts` parts, for the standard input of sbatch. Creates `dir`,
/// which Slurm does not.
pub(super) fn text(parts: u32, dir: &Path) -> anyhow::Result<String> {
    let program = env::current_exe().context("cannot find this program's executable")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = fs::canonicalize(dir).with_context(|| format!("cannot find {}", dir.display()))?;
    let words: Result<Vec<String>, _> = env::args_os().skip(1).map(OsString::into_string).collect();
    let is_plain = |path: &Path| {
        path.to_str().is_some_and(|text| !text.chars().any(|c| c == '"' || c.is_control()))
    };
    match words {
        Ok(words) if is_plain(&dir) && is_plain(&program) => {
            Ok(script(parts, &dir, &program, &words))
        }
        _ => bail!(Usage(
            "--slurm: arguments and paths must be UTF-8, paths without quotes and control characters".into()
        )),
    }
}

fn script(parts: u32, dir: &Path, program: &Path, words: &[String]) -> String {
    let words = without_slurm(words);
    let command: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    // Slurm replaces %a by the array index, and %% by a percent sign.
    let logs = dir.display().to_string().replace('%', "%%");
    format!(
        "#!/bin/sh\n\
         # {parts} parts of one run, one per array element. Options of sbatch override these.\n\
         #SBATCH --job-name=pvticket\n\
         #SBATCH --array=1-{parts}\n\
         #SBATCH --nodes=1\n\
         #SBATCH --ntasks=1\n\
         # The CPUs and the memory of the node.\n\
         #SBATCH --exclusive\n\
         #SBATCH --mem=0\n\
         # A requeued element resumes its part.\n\
         #SBATCH --requeue\n\
         #SBATCH --open-mode=append\n\
         #SBATCH --output=\"{logs}/%a-of-{parts}.log\"\n\
         # One minute before the time limit, abort the running cell.\n\
         #SBATCH --signal=B:TERM@60\n\
         \n\
         exec {} {} --part \"$SLURM_ARRAY_TASK_ID/{parts}\"\n",
        shell_quoted(&program.display().to_string()),
        command.join(" ")
    )
}

/// The words of a command line without `--slurm N`.
fn without_slurm(words: &[String]) -> Vec<&str> {
    let mut remaining = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--slurm") {
            Some("") => drop(words.next()),
            Some(value) if value.starts_with('=') => {}
            _ => remaining.push(word.as_str()),
        }
    }
    remaining
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_the_command_and_its_part() {
        for slurm in [&["--slurm", "8"][..], &["--slurm=8"]] {
            let mut words: Vec<String> =
                ["run", "a b.toml", "--dir", "d"].map(str::to_owned).into();
            words.splice(1..1, slurm.iter().map(|word| (*word).to_owned()));
            let script = script(8, Path::new("/runs/100%"), Path::new("/bin/pvticket"), &words);
            let last = script.lines().last().unwrap();
            let command =
                "exec /bin/pvticket run 'a b.toml' --dir d --part \"$SLURM_ARRAY_TASK_ID/8\"";
            assert_eq!(last, command);
            assert!(script.contains("--array=1-8\n") && script.contains("/runs/100%%/%a-of-8.log"));
        }
    }
}
