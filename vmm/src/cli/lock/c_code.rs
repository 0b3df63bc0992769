//! The code of a lock in C, as assembly in the lock library: for guests with instructions for its accesses, for the
//! simulator and the model checkers with calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use base::files;

use super::graft::{Files, GraftError, LIBRARY, edit, id, module};
use super::lock_crate::LockCrate;

/// The functions that the file defines.
const FUNCTIONS: [&str; 3] = ["lock", "trylock", "unlock"];

/// A guest has neither a C library nor thread-local storage, and no room below its stack pointer.
const FLAGS: &str = "-std=gnu11 -O2 -S -ffreestanding -fno-pic -fno-stack-protector -fcf-protection=none \
                     -mno-red-zone -o -";
/// A simulated vCPU may be dropped within the code.
const WITH_CALLS: &[&str] = &["-DPVT_CALLS", "-fexceptions"];

/// Adds the code of a grafted lock, and makes its module refer to it.
pub(super) fn graft(lock: &LockCrate, file: &Path, files: &mut Files) -> anyhow::Result<()> {
    let (id, module) = (id(lock), module(lock));
    let compile = |prefix: &str, flags| compile(file, &format!("pvt_{prefix}{id}_"), flags);
    let guest = compile("", &["-fno-asynchronous-unwind-tables"])?;
    // Both sizes of simulated machines have it.
    let simulated = compile("sim_", WITH_CALLS)?.replace(".globl", ".weak");
    let mut put =
        |file: String, text: String| files.insert(Path::new(LIBRARY).join(file), text.into());
    put(format!("src/{module}.s"), guest);
    put(format!("src/{module}_sim.s"), simulated);
    put(format!("model/src/{module}.s"), compile("", WITH_CALLS)?);
    let asm =
        |file| format!("core::arch::global_asm!(include_str!({file:?}), options(att_syntax));\n");
    let [guest, simulated] = ["", "_sim"].map(|kind| asm(format!("{module}{kind}.s")));
    put(
        format!("src/{module}_code.rs"),
        format!("#[cfg(simulated)]\n{simulated}#[cfg(not(simulated))]\n{guest}"),
    );
    put(format!("model/src/{module}_code.rs"), guest);
    for (root, line) in [("src/lib.rs", "mod acquire;"), ("model/src/lib.rs", "mod engine;")] {
        // Absent after another lock in C.
        let _ = edit(files, root, "#![forbid(unsafe_code)]", "#![allow(unexpected_cfgs)]");
        // The model checkers leave `pub mod` out of their copies.
        edit(files, root, line, &format!("#[doc(hidden)]\npub mod {module}_code;\n{line}"))?;
    }
    link(&format!("src/{module}.rs"), &id, files).with_context(|| {
        format!("{}: not as `lock new` wrote it", file.with_file_name("lib.rs").display())
    })
}

/// Replaces the code in the lock's module by the names of its functions.
fn link(module: &str, id: &str, files: &mut Files) -> Result<(), GraftError> {
    const ASM: &str = "core::arch::global_asm!(include_str!(concat!(env!(\"OUT_DIR\"), \"/lock.s\")), options(att_syntax));";
    edit(files, module, ASM, "")?;
    for name in FUNCTIONS {
        let names = format!(
            "#[cfg_attr(simulated, link_name = \"pvt_sim_{id}_{name}\")]\n    \
             #[cfg_attr(not(simulated), link_name = \"pvt_{id}_{name}\")]\n    fn pvt_{name}("
        );
        edit(files, module, &format!("fn pvt_{name}("), &names)?;
    }
    Ok(())
}

/// Compiles `file` with a prefix of its functions' names.
fn compile(file: &Path, prefix: &str, flags: &[&str]) -> anyhow::Result<String> {
    let names = FUNCTIONS.map(|name| format!("-D{name}={prefix}{name}"));
    let output = Command::new("cc")
        .args(FLAGS.split_whitespace())
        .args(flags)
        .args(names)
        .arg("lock.c")
        .current_dir(files::folder(file))
        .output()
        .context("cannot run cc: a lock in C needs a C compiler in PATH")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc failed ({}):\n{}", output.status, messages.trim_end());
    Ok(with_prefix(&String::from_utf8(output.stdout)?, prefix))
}

/// The C file of a crate, if it has one.
pub(super) fn source(dir: &Path) -> Option<PathBuf> {
    Some(dir.join("src/lock.c")).filter(|file| file.is_file())
}

/// Adds the prefix to all labels that lack it: the locks of several files are assembled as one.
fn with_prefix(asm: &str, prefix: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let labels: BTreeSet<&str> = asm.lines().filter_map(|line| line.strip_suffix(':')).collect();
    let (mut new, mut rest) = (String::new(), asm);
    while !rest.is_empty() {
        let (name, tail) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let (between, tail) = tail.split_at(tail.find(is_name).unwrap_or(tail.len()));
        if labels.contains(name) && !name.starts_with(prefix) {
            // The assembler's own labels begin with `.L`.
            let (kind, label) = name.split_at(if name.starts_with(".L") { 2 } else { 0 });
            new.extend([kind, prefix, label]);
        } else {
            new += name;
        }
        new += between;
        rest = tail;
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_get_the_prefix_once() {
        let asm = "\t.type\tprepare, @function\nprepare:\n.L3:\n\tje\t.L3\n\tcall prepare\n\tmov prepared\npvt_a_lock:\n";
        let expected = asm.replace(".L3", ".Lpvt_a_3").replace("prepare:", "pvt_a_prepare:");
        let expected = expected
            .replace("prepare,", "pvt_a_prepare,")
            .replace("call prepare\n", "call pvt_a_prepare\n");
        assert_eq!(with_prefix(asm, "pvt_a_"), expected);
    }
}
