//! Scripts that fill the cache and are interrupted or killed: the next run removes their leftovers, two of
//! them do not work in one folder at once, and they unpack the files that they have checked.

use crate::{files::repository, prelude::*};

tests![
    leftovers_of_an_interrupted_setup_are_removed,
    a_second_setup_waits_for_the_first,
    the_source_is_unpacked_as_checked,
];

/// A script with its argument, its variables in this test, and the folder of the cache where it works.
type Part = (&'static str, &'static [(&'static str, &'static str)], &'static str);

/// All ways in which a script reaches a long-running program.
const PARTS: [Part; 8] = [
    ("guest-kernel-config/setup.sh --busybox", &[], "busybox"),
    ("guest-kernel-config/host/fetch.sh", &[], "host"),
    ("guest-kernel-config/host/fetch.sh", &[("HOST_KERNEL", "7")], "host-7"),
    ("guest-kernel-config/host/qemu.sh", &[], "qemu"),
    ("guest-kernel-config/postgres/fetch.sh", &[], "guest-disk"),
    ("tests/trace-processor/fetch.sh", &[], "trace-processor"),
    ("guest-kernel-config/linux/build.sh", &[("KERNEL_SRC", "")], "kernel"),
    ("guest-kernel-config/linux/build.sh", &[("KERNEL_SRC", "linux")], "kernel"),
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
    fn script(&self, (script, variables, _): Part, signal: &str) -> anyhow::Result<Program> {
        let path = std::env::var("PATH").context("PATH")?;
        let shell = if script.ends_with("build.sh") { "bash" } else { "sh" };
        let mut words = script.split(' ');
        let file = repository(words.next().unwrap_or_default())?;
        let program = Program::new("setsid").args(["--wait", shell]).args([file]).args(words);
        let program = program
            .env("PATH", format!("{}:{path}", self.at("bin").display()))
            .env("PVTICKET_CACHE", self.at("cache"))
            .env("TMPDIR", self.at("tmp"))
            .env("REACHED", self.at("reached"))
            .env("SIGNAL", signal);
        Ok(variables.iter().fold(program, |program, (name, value)| match *value {
            "linux" => program.env(name, self.at("linux")),
            _ => program.env(name, *value),
        }))
    }

    /// Lists the temporary files in TMPDIR and in this folder of the cache.
    fn temporary_files(&self, folder: &str) -> anyhow::Result<Vec<String>> {
        let mut names = files::names(&self.at("tmp"))?;
        names.extend(files::names(&self.at("cache").join(folder))?);
        let is_temporary = |name: &String| {
            [".new", "new", ".build", "lists", "pvticket"]
                .iter()
                .any(|begin| name.starts_with(begin))
        };
        Ok(names.into_iter().filter(is_temporary).collect())
    }
}

fn leftovers_of_an_interrupted_setup_are_removed() -> anyhow::Result<()> {
    let is_debian_12 =
        fs::read_to_string("/etc/debian_version").is_ok_and(|text| text.starts_with("12"));
    let is_possible = |(_, _, folder): &Part| is_debian_12 || !["qemu", "host-7"].contains(folder);
    for part in PARTS.into_iter().filter(is_possible) {
        let (script, variables, folder) = part;
        for signal in ["HUP", "INT", "TERM", "KILL"] {
            let stage = Stage::new()?;
            let case = format!("{script} {variables:?}, {signal}");
            let ran = stage.script(part, signal)?.run().with_context(|| case.clone())?;
            ensure!(stage.at("reached").exists(), "{case}: not interrupted\n{}", ran.show());
            let names = stage.temporary_files(folder)?;
            ensure!((signal == "KILL") != names.is_empty(), "{case}: {names:?}\n{}", ran.show());
            let again = stage.script(part, "")?.run()?;
            let names = stage.temporary_files(folder)?;
            ensure!(names.is_empty(), "{case}: still there: {names:?}\n{}", again.show());
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
    let mut first = stage.script(PARTS[0], "")?.start()?;
    first.wait_until("the first has begun", || began.exists())?;
    let mut second = stage.script(PARTS[0], "")?.start()?;
    second.wait_for_stdout("another setup works in")?;
    fs::write(&go, "")?;
    first.wait()?.exits(0)?;
    second.wait()?.exits(0)?;
    ensure!(fs::read_to_string(&began)?.lines().count() == 1, "it was made twice");
    Ok(())
}

/// The package is changed as soon as its checksum has been taken.
fn the_source_is_unpacked_as_checked() -> anyhow::Result<()> {
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
    stage.script(PARTS[6], "")?.run()?.exits(1)?;
    let unpacked = fs::read_to_string(&unpacked).context("nothing was unpacked")?;
    ensure!(unpacked == "as apt gave it\n", "unpacked: {unpacked}");
    Ok(())
}
