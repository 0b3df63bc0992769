//! `make run`: its script, with a stub `make` and a stub product that the test writes. Also the last message,
//! when something is missing, of each script that it calls.

use std::{env, os::unix::fs::symlink};

use crate::{files::repository, fixture::Fixture, prelude::*};

tests![
    it_ends_with_the_answer,
    no_advice_to_build_its_own_parts,
    only_failed_steps_are_repeated,
    a_failed_build_prints_a_remedy,
    apt_errors_have_a_remedy,
    missing_packages_are_listed,
    only_a_supported_rust_is_selected,
    without_a_network_nothing_is_fetched,
    a_mirror_is_found_without_package_lists,
    a_full_disk_is_named,
];

/// Creates the stores that the comparisons of `make run` leave.
fn stores(folder: &Path) -> anyhow::Result<()> {
    let store = |name: &str, fixture: Fixture| {
        // The specs of the comparisons have different names.
        let text = fixture.text().replace("name = \\\"collapse", &format!("name = \\\"{name}"));
        let guest = format!("\"guest\":\"{}\"", if name == "linux" { "linux" } else { "payload" });
        let text = text.replace("\"guest\":\"payload\"", &guest);
        fs::write(folder.join(format!("{name}.jsonl")), text)
    };
    let of_host = || Fixture { policies: vec!["host"], vcpus: vec![2, 4], ..Fixture::default() };
    let policies = vec!["rr", "deferred", "kick-boost"];
    store("payload", of_host())?;
    store("schedules", Fixture { policies, vcpus: vec![4], ..Fixture::default() })?;
    Ok(store("linux", of_host())?)
}

/// Runs `make run` in a folder. The stub product appends its arguments to the file `calls`. If a file
/// `refused` exists, the comparison `schedules` fails and its store has a failed cell.
fn first_run(folder: &TempDir) -> anyhow::Result<Program> {
    let root = folder.path().display();
    stores(folder.path())?;
    files::script(&folder.path().join("product"), include_str!("first_run_product.sh"))?;
    let make = folder.path().join("make");
    if !make.exists() {
        files::script(&make, &format!("echo make \"$*\" >>{root}/calls"))?;
    }
    let run = Program::new("/bin/sh").args([repository("vmm/first-run.sh")?.canonicalize()?]);
    let run = run.env("MAKE", make).env("PVTICKET", folder.path().join("product"));
    let run = run.env("PVTICKET_CACHE", folder.path()).env("RUN_DIR", "");
    let run = run.env("ROOT", folder.path()).env("REAL", binary());
    Ok(run.after(&format!("cd {root}")))
}

fn calls(folder: &TempDir) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(folder.path().join("calls"))?;
    fs::remove_file(folder.path().join("calls"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns the only directory of results.
fn results(folder: &TempDir) -> anyhow::Result<String> {
    let names = files::names(&folder.path().join("runs"))?;
    let [name] = &names[..] else { bail!("not one directory of results: {names:?}") };
    Ok(format!("runs/{name}"))
}

fn last(ran: &RunResult) -> String {
    ran.errors().trim_end().lines().last().unwrap_or_default().to_owned()
}

fn it_ends_with_the_answer() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let ran = first_run(&folder)?.run()?.exits(0)?;
    let dir = results(&folder)?;
    let text = ran.text()?;
    for step in 1..=5 {
        ensure!(text.contains(&format!("\n== {step}/5 ")), "no step {step}\n{}", ran.show());
    }
    let end = text.split_once("== 5/5 ").context("no answer")?.1;
    let (_, end) = end.split_once('\n').context("no answer")?;
    let (answer, chart) = end.split_once("\n\n").context("no chart")?;
    let lines = answer.lines().count() + 1;
    ensure!(lines <= 10 && chart.lines().count() <= 12, "{lines} lines\n{}", ran.show());
    let parts = ["payload  PV / native ", "deferred / rr, native ", "\nLinux    PV / native "];
    ensure!(parts.iter().all(|part| answer.contains(part)), "not in the answer\n{}", ran.show());
    ensure!(end.ends_with(&format!("\npage: {dir}/report.html\n")), "{}", ran.show());
    ensure!(folder.path().join(&dir).join("report.html").exists(), "no page");
    let calls = calls(&folder)?;
    let firsts: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    // The payload is measured before the guest kernel is compiled: it does not need the build, and the build
    // does not disturb it.
    let expected = ["make", "doctor", "compare", "compare", "make", "boot", "compare", "report"];
    ensure!(firsts == expected, "{calls:?}");
    // The report has no verdict on fewer than six runs (`ENOUGH` in vmm/study/src/stats/mod.rs).
    let runs = |call: &String| call.split_once("--runs ")?.1.split(' ').next()?.parse::<u32>().ok();
    let runs: Vec<_> = calls.iter().filter(|call| call.starts_with("compare ")).map(runs).collect();
    ensure!(runs.len() == 3 && runs.iter().all(|runs| *runs >= Some(6)), "{calls:?}");
    Ok(())
}

fn no_advice_to_build_its_own_parts() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let prints = |what: &str| -> anyhow::Result<bool> {
        let ran = first_run(&folder)?.run()?.exits(0)?;
        ran.stdout_has(&["\nguests: Linux\n"])?;
        Ok(ran.text()?.contains(what))
    };
    ensure!(!prints("next:")?, "advice to build the kernel before it is built");
    let kernel = folder.path().join("kernel/pvticket-6.12");
    fs::create_dir_all(&kernel)?;
    fs::write(kernel.join("vmlinux"), b"")?;
    ensure!(prints("next:   build")?, "no advice");
    Ok(())
}

fn only_failed_steps_are_repeated() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    files::put(&folder, "refused", b"")?;
    let ran = first_run(&folder)?.run()?.exits(1)?;
    let dir = results(&folder)?;
    let line =
        format!("make run: step 3 failed: see what pvticket says above; make run goes on in {dir}");
    ensure!(last(&ran) == line, "{}", ran.show());
    calls(&folder)?;
    fs::remove_file(folder.path().join("refused"))?;
    first_run(&folder)?.run()?.exits(0)?;
    ensure!(results(&folder)? == dir, "it did not go on");
    let calls = calls(&folder)?;
    let resumed = format!("compare --resume {dir}/payload");
    ensure!(calls[2] == resumed, "{calls:?}");
    ensure!(calls[3].starts_with(&format!("compare --dir {dir}/schedules ")), "{calls:?}");
    let stores = files::names(&folder.path().join(&dir))?;
    let stores = stores.iter().filter(|name| name.starts_with("schedules-failed-")).count();
    ensure!(stores == 1, "the failed comparison is not kept");
    Ok(())
}

fn a_failed_build_prints_a_remedy() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let make = folder.path().join("make");
    files::script(
        &make,
        "echo 'setup: no gcc: install it' >>\"$PVTICKET_FAILED\"; echo noise >&2; exit 2",
    )?;
    let ran = first_run(&folder)?.run()?.exits(1)?;
    ensure!(last(&ran) == "make run: not built: setup: no gcc: install it", "{}", ran.show());
    ensure!(!folder.path().join("calls").exists(), "something ran");
    files::script(&make, "echo 'error: expected `;`' >&2; exit 2")?;
    let ran = first_run(&folder)?.run()?.exits(1)?;
    let line = last(&ran);
    ensure!(line.starts_with("make run: not built: see the first error above;"), "{line}");
    files::script(&make, "exit 0")?;
    first_run(&folder)?.run()?.exits(0).map(drop)
}

/// Makes a folder with the stubs `scripts` (name and commands) and links to this system's programs `system`.
fn tools(folder: &TempDir, scripts: &[(&str, &str)], system: &[&str]) -> anyhow::Result<PathBuf> {
    let tools = folder.path().join("tools");
    fs::create_dir(&tools)?;
    for (name, commands) in scripts {
        files::script(&tools.join(name), commands)?;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    for name in system {
        let file =
            env::split_paths(&path).map(|place| place.join(name)).find(|file| file.is_file());
        symlink(file.with_context(|| format!("no {name} here"))?, tools.join(name))?;
    }
    Ok(tools)
}

/// The programs that `setup.sh` needs on a system where nothing is installed.
const SYSTEMS: [&str; 20] = [
    "awk", "cat", "cut", "df", "dirname", "env", "find", "grep", "head", "mkdir", "mktemp", "rm",
    "sed", "seq", "sleep", "sort", "tail", "tr", "uname", "ln",
];

/// Runs a script that must fail, and expects its last reason to contain all of `parts`.
fn expect_reason(run: Program, folder: &TempDir, parts: &[&str]) -> anyhow::Result<()> {
    let reasons = folder.path().join("reasons");
    let ran = run.env("PVTICKET_FAILED", &reasons).run()?;
    ensure!(ran.status()? != 0, "it succeeded\n{}", ran.show());
    let text =
        fs::read_to_string(&reasons).with_context(|| format!("no reason\n{}", ran.show()))?;
    let reason = text.lines().last().unwrap_or_default();
    for part in parts {
        ensure!(reason.contains(part), "no {part:?} in {reason:?}\n{}", ran.show());
    }
    fs::remove_file(reasons)?;
    Ok(())
}

/// Messages of apt-get, and the advice on each.
const APT: &str = "\
E: Failed to fetch http://m/x  Temporary failure resolving 'm' | no mirror can be reached: check the network
E: You don't have enough free space in /var/cache/apt/archives/. | the disk is full: make room
E: dpkg was interrupted, you must manually run 'dpkg --configure -a' | run dpkg --configure -a as root
E: Package 'clang-19' has no installation candidate | has no installation candidate: mend that";

fn apt_errors_have_a_remedy() -> anyhow::Result<()> {
    let script = repository("guest-kernel-config/setup.sh")?;
    for (message, advice) in APT.lines().filter_map(|line| line.split_once(" | ")) {
        let folder = files::scratch()?;
        let apt = format!("echo \"{message}\"; exit 100");
        let tools = tools(&folder, &[("apt-get", &apt), ("id", "echo 0")], &SYSTEMS)?;
        let run = Program::new("/bin/sh").args([script.as_os_str(), "--clang".as_ref()]);
        expect_reason(run.env("PATH", tools), &folder, &["setup: apt-get ", advice])?;
    }
    Ok(())
}

/// The user is not root and there is no sudo.
fn missing_packages_are_listed() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let tools = tools(&folder, &[("apt-get", "exit 100"), ("id", "echo 1000")], &SYSTEMS)?;
    let run = Program::new("/bin/sh").args([repository("guest-kernel-config/setup.sh")?]);
    let parts =
        ["setup: missing (names of Debian's packages): ", " gcc ", "as root: apt-get install "];
    expect_reason(run.env("PATH", tools), &folder, &parts)
}

/// cargo and rustc must be in one folder, which `setup.sh` puts first in PATH: cargo runs the rustc found there.
fn only_a_supported_rust_is_selected() -> anyhow::Result<()> {
    let script = repository("guest-kernel-config/setup.sh")?;
    let manifest = fs::read_to_string(script.with_file_name("../Cargo.toml"))?;
    let minimum = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"1."));
    let minimum = minimum.and_then(|rest| rest.split(['.', '"']).next()?.parse::<u32>().ok());
    let minimum = minimum.context("no rust-version")?;
    let selected = |minors: [u32; 2]| {
        let folder = files::scratch()?;
        let mut path = vec![tools(&folder, &[], &SYSTEMS)?];
        for minor in minors {
            let place = folder.path().join(format!("rust-{minor}"));
            fs::create_dir(&place)?;
            for name in ["cargo", "rustc"] {
                let version = format!("echo '{name} 1.{minor}.0 (0 2026-01-01)'");
                files::script(&place.join(name), &version)?;
            }
            path.push(place);
        }
        let run = Program::new("/bin/sh").args([script.as_os_str(), "--cargo".as_ref()]);
        let run = run.env("PATH", env::join_paths(path)?).env("HOME", folder.path());
        let text = run.run()?.exits(0)?.text()?.to_owned();
        let place = text.split_once("rust-").map(|(_, rest)| rest.to_owned());
        anyhow::Ok(place.and_then(|rest| rest.split(':').next()?.parse::<u32>().ok()))
    };
    ensure!(selected([minimum - 1, minimum])? == Some(minimum));
    ensure!(selected([minimum - 1, minimum + 1])? == Some(minimum + 1));
    ensure!(selected([minimum - 2, minimum - 1])? != Some(minimum - 1));
    Ok(())
}

/// Returns the PATH of this process, with the folder of stub programs first.
fn path_with(tools: &Path) -> anyhow::Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([tools.to_owned()].into_iter().chain(env::split_paths(&path)))?)
}

/// Builds the guest kernel and fetches the host kernel, with these programs first in PATH and this package of
/// the host kernel. Both must fail, for these reasons.
fn kernels_are_not_made(
    folder: &TempDir,
    tools: &Path,
    package: &Path,
    reasons: [&[&str]; 2],
) -> anyhow::Result<()> {
    let scripts = [
        ("bash", "guest-kernel-config/linux/build.sh"),
        ("sh", "guest-kernel-config/host/fetch.sh"),
    ];
    for ((shell, name), parts) in scripts.into_iter().zip(reasons) {
        let run = Program::new(shell).args([repository(name)?]).env("PATH", path_with(tools)?);
        let run = run.env("PVTICKET_CACHE", folder.path().join("cache")).env("KERNEL_SRC", "");
        expect_reason(run.env("HOST_DEB", package).env("HOST_KERNEL", "6.1"), folder, parts)?;
    }
    Ok(())
}

fn without_a_network_nothing_is_fetched() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // apt-get update succeeds, with warnings.
    let apt = "case \"$*\" in *update*) echo \"W: Failed to fetch http://m/x  Could not resolve 'm'\" ;; \
               *) exit 100 ;; esac";
    let tools = tools(&folder, &[("apt-get", apt), ("apt-cache", "exit 100")], &[])?;
    let kernel = "kernel: no package lists for linux-source-6.12: ";
    let host = "host: no package lists for linux-image-cloud-amd64: ";
    let both = [kernel, host].map(|prefix| [prefix, "no mirror can be reached"]);
    kernels_are_not_made(&folder, &tools, Path::new(""), both.each_ref().map(|parts| &parts[..]))
}

/// Regression: without package lists apt knew no codename, so no kernel was built and no QEMU fetched.
fn a_mirror_is_found_without_package_lists() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    if Program::new("apt-get").args(["--version"]).run().is_err() {
        return skip("there is no apt-get here");
    }
    let sources = "deb http://mirror.invalid/security bookworm-security main\n\
                   deb http://mirror.invalid/debian bookworm main\n";
    let sources = files::put(&folder, "sources.list", sources.as_bytes())?;
    fs::create_dir_all(folder.path().join("lists/partial"))?;
    let config = format!(
        "Dir::State::lists \"{}\";\nDir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\n",
        folder.path().join("lists").display(),
        sources.display()
    );
    let config = files::put(&folder, "apt.conf", config.as_bytes())?;
    let mirror = |codename| {
        let words = format!(". \"$0\"; mirror {codename}");
        let run = Program::new("sh").args(["-eu", "-c", &words]);
        let run = run.args([repository("guest-kernel-config/apt.sh")?]).env("APT_CONFIG", &config);
        Ok::<_, anyhow::Error>(run.run()?.exits(0)?.text()?.to_owned())
    };
    ensure!(mirror("bookworm")? == "http://mirror.invalid/debian/\n");
    ensure!(mirror("trixie")? == "\n", "its sources have none");
    Ok(())
}

/// The stub `df` reports a full disk. Scripts run it, because programs may print anything on a full disk.
fn a_full_disk_is_named() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let df =
        "echo 'Filesystem 1024-blocks Used Available Capacity Mounted'; echo 'd 100 100 0 100% /'";
    let tools = tools(&folder, &[("df", df)], &[])?;
    let package = files::put(&folder, "cut-off.deb", b"!<arch>")?;
    let source = folder.path().join("cache/source");
    fs::create_dir_all(&source)?;
    fs::write(source.join("linux-source-6.12_6.12.9999-1_all.deb"), "cut off")?;
    let both = ["kernel: the disk of ", "host: the disk of "]
        .map(|prefix| [prefix, "is full: make room", "PVTICKET_CACHE"]);
    kernels_are_not_made(&folder, &tools, &package, both.each_ref().map(|parts| &parts[..]))?;
    let run = first_run(&folder)?.env("PATH", path_with(&tools)?);
    files::script(&folder.path().join("make"), "exit 2")?;
    let ran = run.run()?.exits(1)?;
    ensure!(last(&ran).contains(" is full: make room"), "{}", ran.show());
    Ok(())
}
