//! Scripts that fill the cache and are interrupted or killed: the next run removes their leftovers, two of
//! them do not work in one folder at once, and they unpack the files that they have checked.

use crate::{files::repository, prelude::*};

tests![
    what_an_interrupted_setup_leaves_is_removed_by_the_next,
    a_second_setup_waits_for_the_first,
    the_source_that_is_unpacked_is_the_one_that_was_checked,
];

/// A script, its variables in this test, and the folder of the cache where it works.
struct Part {
    script: &'static str,
    argument: &'static str,
    variables: &'static [(&'static str, &'static str)],
    folder: &'static str,
}

const fn part(
    script: &'static str,
    variables: &'static [(&'static str, &'static str)],
    folder: &'static str,
) -> Part {
    Part { script, argument: "", variables, folder }
}

/// All ways in which a script reaches a long-running program.
const PARTS: [Part; 8] = [
    Part { argument: "--busybox", ..part("guest-kernel-config/setup.sh", &[], "busybox") },
    part("guest-kernel-config/host/fetch.sh", &[], "host"),
    part("guest-kernel-config/host/fetch.sh", &[("HOST_KERNEL", "7")], "host-7"),
    part("guest-kernel-config/host/qemu.sh", &[], "qemu"),
    part("guest-kernel-config/postgres/fetch.sh", &[], "guest-disk"),
    part("tests/trace-processor/fetch.sh", &[], "trace-processor"),
    part("guest-kernel-config/linux/build.sh", &[("KERNEL_SRC", "")], "kernel"),
    part("guest-kernel-config/linux/build.sh", &[("KERNEL_SRC", "linux")], "kernel"),
];

/// A folder with a cache and programs that send `$SIGNAL` to the script's group, or fail without it.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let stage = Self { folder };
        for folder in ["bin", "linux/arch/x86", "tmp"] {
            fs::create_dir_all(stage.at(folder))?;
        }
        for (file, text) in
            [("linux/Kbuild", ""), ("linux/Makefile", "VERSION = 6\nPATCHLEVEL = 12\n")]
        {
            fs::write(stage.at(file), text)?;
        }
        for name in ["apt-get", "npm", "busybox", "patch"] {
            files::script(&stage.at("bin").join(name), include_str!("interrupted_setup.sh"))?;
        }
        files::script(&stage.at("bin/apt-cache"), "")?;
        files::script(&stage.at("bin/qemu-system-x86_64"), "echo QEMU emulator version 7.2.0")?;
        Ok(stage)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the script in a new process group.
    fn script(&self, part: &Part, signal: &str) -> anyhow::Result<Program> {
        let path = std::env::var("PATH").context("PATH")?;
        let shell = if part.script.ends_with("build.sh") { "bash" } else { "sh" };
        let words = [Path::new(shell), &repository(part.script)?, Path::new(part.argument)];
        let words = words.into_iter().filter(|word| !word.as_os_str().is_empty());
        let program = Program::new("setsid").args(["--wait"]).args(words);
        let program = program
            .env("PATH", format!("{}:{path}", self.at("bin").display()))
            .env("PVTICKET_CACHE", self.at("cache"))
            .env("TMPDIR", self.at("tmp"))
            .env("REACHED", self.at("reached"))
            .env("SIGNAL", signal);
        Ok(part.variables.iter().fold(program, |program, (name, value)| match *value {
            "linux" => program.env(name, self.at("linux")),
            _ => program.env(name, *value),
        }))
    }

    /// Lists the temporary folders in the cache and next to it.
    fn left(&self, part: &Part) -> anyhow::Result<Vec<String>> {
        let mut left = files::names(&self.at("tmp"))?;
        left.extend(files::names(&self.at("cache").join(part.folder))?);
        let is_temporary = |name: &String| {
            [".new", "new", ".build", "lists", "pvticket"]
                .iter()
                .any(|begin| name.starts_with(begin))
        };
        Ok(left.into_iter().filter(is_temporary).collect())
    }
}

fn what_an_interrupted_setup_leaves_is_removed_by_the_next() -> anyhow::Result<()> {
    let is_debian_12 =
        fs::read_to_string("/etc/debian_version").is_ok_and(|text| text.starts_with("12"));
    for part in
        PARTS.iter().filter(|part| is_debian_12 || !["qemu", "host-7"].contains(&part.folder))
    {
        for signal in ["HUP", "INT", "TERM", "KILL"] {
            let stage = Stage::new()?;
            let what = format!("{} {:?}, {signal}", part.script, part.variables);
            let ran = stage.script(part, signal)?.run().with_context(|| what.clone())?;
            ensure!(stage.at("reached").exists(), "{what}: not interrupted\n{}", ran.show());
            let left = stage.left(part)?;
            ensure!((signal == "KILL") != left.is_empty(), "{what}: left {left:?}\n{}", ran.show());
            let again = stage.script(part, "")?.run()?;
            let left = stage.left(part)?;
            ensure!(left.is_empty(), "{what}: still there: {left:?}\n{}", again.show());
        }
    }
    Ok(())
}

fn a_second_setup_waits_for_the_first() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let [began, go] = ["began", "go"].map(|name| stage.at(name));
    let slow = format!(
        "echo >>{0}; while [ ! -e {1} ]; do sleep 0.01; done; echo ls",
        began.display(),
        go.display()
    );
    files::script(&stage.at("bin/busybox"), &slow)?;
    let mut first = stage.script(&PARTS[0], "")?.start()?;
    first.wait_until("the first has begun", || began.exists())?;
    let mut second = stage.script(&PARTS[0], "")?.start()?;
    second.wait_for_stdout("another setup works in")?;
    fs::write(&go, "")?;
    first.wait()?.exits(0)?;
    second.wait()?.exits(0)?;
    ensure!(fs::read_to_string(&began)?.lines().count() == 1, "it was made twice");
    Ok(())
}

/// The package is changed as soon as its checksum has been taken.
fn the_source_that_is_unpacked_is_the_one_that_was_checked() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let name = "linux-source-6.12_6.12.9999-1_all.deb";
    let deb = stage.at("cache/source").join(name);
    fs::create_dir_all(stage.at("cache/source"))?;
    fs::write(&deb, "as apt gave it\n")?;
    let sum = Program::new("sha256sum").args([&deb]).run()?.exits(0)?;
    let sum = sum.text()?.split(' ').next().context("a sum")?.to_owned();
    fs::write(deb.with_extension("deb.sha256"), format!("{sum}  {name}\n"))?;
    let sums = format!(
        "PATH=/usr/bin:/bin sha256sum \"$@\" || exit\n\
         case \"$*\" in *--check*) echo changed >{} ;; esac",
        deb.display()
    );
    files::script(&stage.at("bin/sha256sum"), &sums)?;
    let unpacked = stage.at("unpacked");
    files::script(&stage.at("bin/dpkg"), &format!("cat \"$2\" >{}", unpacked.display()))?;
    stage.script(&PARTS[6], "")?.run()?.exits(1)?;
    let unpacked = fs::read_to_string(&unpacked).context("nothing was unpacked")?;
    ensure!(unpacked == "as apt gave it\n", "unpacked: {unpacked}");
    Ok(())
}
