//! Locks out of tree: `lock new`, `lock check` and `--lock-crate`.

use crate::{prelude::*, product::check_rows};

tests![
    new_crates_pass_their_own_tests,
    lock_crates_get_their_rows_and_a_wrong_one_is_found => Long("4 min: builds pvticket with three crates, and a model checker"),
];

/// Writes a crate in `folder`.
fn new(folder: &Path, name: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let dir = folder.join(name);
    pvticket(["lock", "new", name]).args(options).args(["--dir"]).args([&dir]).run()?.exits(0)?;
    Ok(dir)
}

/// Skips the test where no lock crate can be built.
fn need_compilers() -> anyhow::Result<()> {
    for program in ["cargo", "cc"] {
        if Program::new("/bin/sh").args(["-c", &format!("command -v {program}")]).run()?.status()?
            != 0
        {
            skip(format!("no {program} in PATH"))?;
        }
    }
    Ok(())
}

fn new_crates_pass_their_own_tests() -> anyhow::Result<()> {
    need_compilers()?;
    let folder = files::scratch()?;
    for (name, options) in [("e2e-rust", &[][..]), ("fn", &["--c"])] {
        let dir = new(folder.path(), name, options)?;
        let cargo = Program::new("cargo").args(["test", "--offline", "--manifest-path"]);
        let cargo = cargo
            .args([dir.join("Cargo.toml")])
            .env("CARGO_TARGET_DIR", folder.path().join("target"));
        cargo.limit(300).run()?.exits(0)?.stdout_has(&["2 passed; 0 failed"])?;
        let again = pvticket(["lock", "new", name, "--dir"]).args([&dir]).run()?;
        again.fails(1, &["cannot create", "File exists"])?;
    }
    Ok(())
}

fn lock_crates_get_their_rows_and_a_wrong_one_is_found() -> anyhow::Result<()> {
    need_kvm()?;
    need_compilers()?;
    let folder = files::scratch()?;
    let dirs = [("e2e-rust", &[][..]), ("e2e-c", &["--c"]), ("e2e-wrong", &["--c"])]
        .map(|(name, options)| new(folder.path(), name, options));
    let dirs = dirs.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let file = dirs[2].join("src/lock.c");
    let (right, wrong) = (
        "return !pvt_cas(cpu, word, 0, cpu->id + 1);",
        "pvt_store(cpu, word, cpu->id + 1);\n\treturn true;",
    );
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(right), "{text}");
    fs::write(&file, text.replace(right, wrong))?;
    let crates = || dirs.iter().flat_map(|dir| [Path::new("--lock-crate"), dir]);

    let options = "--host direct --runs 1 --vcpus 2 --seconds 0.1 --locks ticket,e2e-rust,e2e-c";
    let compare = pvticket(["compare"]).args(options.split(' ')).args(crates()).limit(1800);
    let rows = Compared::new(compare)?.results.levels()?.into_iter().next().context("no level")?;
    let locks: Vec<_> = rows.iter().filter_map(|row| row["lock"].as_str()).collect();
    ensure!(locks == ["ticket", "e2e-rust", "e2e-c"], "{locks:?}");
    check_rows(&rows)?;

    let out = folder.path().join("out");
    let cases = pvticket(["search", "--cases", "--out"]).args([&out]).args(crates());
    let ran = cases.limit(600).run()?.exits(1)?;
    let failed = |name: &str| {
        let lines = ran
            .text()
            .unwrap_or_default()
            .lines()
            .filter(|line| line.contains(&format!("  {name},")));
        lines.clone().count() > 3 && lines.clone().any(|line| line.starts_with("FAILED"))
    };
    ensure!(failed("e2e-wrong") && !failed("e2e-rust") && !failed("e2e-c"), "{}", ran.show());

    let check = pvticket(["lock", "check"]).args([&dirs[2]]).limit(1800).run()?.exits(1)?;
    check.stderr_has(&["cargo failed"])?;
    Ok(())
}
