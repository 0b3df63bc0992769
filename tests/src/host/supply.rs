//! Inputs of builds and tests: the versions that the repository names, verified by checksums.

use crate::{files::repository, prelude::*};

tests![
    every_cargo_call_is_locked,
    a_kernel_source_with_a_wrong_checksum_is_rejected,
    each_input_changes_the_kernels_hash,
    a_host_kernel_of_several_packages_is_unpacked,
    a_missing_host_kernel_is_reported,
];

fn every_cargo_call_is_locked() -> anyhow::Result<()> {
    let makefile = fs::read_to_string(repository("Makefile")?)?;
    // `cargo fmt` resolves no dependencies and has no such option.
    let is_call = |line: &&str| line.contains("$(CARGO)") && !line.contains("$(CARGO) fmt");
    let calls: Vec<_> =
        makefile.lines().filter(|line| line.starts_with('\t')).filter(is_call).collect();
    ensure!(calls.len() >= 10, "{} calls of cargo: is this the right file?", calls.len());
    let unlocked: Vec<_> = calls.iter().filter(|line| !line.contains(" --locked")).collect();
    ensure!(unlocked.is_empty(), "not locked: {unlocked:?}");
    Ok(())
}

/// Uses a version of the package that apt does not have, with no checksum and with a wrong one.
fn a_kernel_source_with_a_wrong_checksum_is_rejected() -> anyhow::Result<()> {
    let script = repository("guest-kernel-config/linux/build.sh")?;
    let folder = files::scratch()?;
    let source = folder.path().join("source");
    fs::create_dir(&source)?;
    let package = source.join("linux-source-6.12_6.12.9999-1_all.deb");
    fs::write(&package, "not what apt gave")?;
    let build = || {
        let program = Program::new("bash").args([&script]);
        program.env("PVTICKET_CACHE", folder.path()).env("KERNEL_SRC", "").run()
    };
    build()?.exits(1)?.stderr_has(&["no SHA-256 to check", "6.12.9999-1"])?;
    let checksum = format!("{}  linux-source-6.12_6.12.9999-1_all.deb\n", "5a".repeat(32));
    fs::write(source.join("linux-source-6.12_6.12.9999-1_all.deb.sha256"), checksum)?;
    let ran = build()?.exits(1)?.stderr_has(&["does not have the SHA-256", "remove the file"])?;
    ensure!(ran.errors().lines().count() == 1, "not one line\n{}", ran.show());
    Ok(())
}

/// The patches do not apply to a source without files. The build ends there, after it has printed the hash
/// under which the cache would have the kernel.
fn each_input_changes_the_kernels_hash() -> anyhow::Result<()> {
    let original = repository("guest-kernel-config")?;
    let folder = files::scratch()?;
    let [configs, header] =
        ["guest-kernel-config", "hypercalls/include"].map(|name| folder.path().join(name));
    for place in [&configs, &header] {
        fs::create_dir_all(place)?;
    }
    let copy = |from: PathBuf, to: &Path| {
        Program::new("cp").args(["-r".into(), from, to.to_owned()]).run()?.exits(0).map(drop)
    };
    copy(original.join("linux"), &configs)?;
    copy(original.join("apt.sh"), &configs)?;
    copy(repository("hypercalls/include/pvticket_abi.h")?, &header)?;
    let source = folder.path().join("linux");
    fs::create_dir_all(source.join("arch/x86"))?;
    fs::write(source.join("Kbuild"), "")?;
    let build = |config: &Path| {
        let build = Program::new("bash").args([configs.join("linux/build.sh")]);
        let build = build.env("PVTICKET_CACHE", folder.path().join("cache"));
        let build =
            build.env("KERNEL_SRC", &source).env("FLAVOUR", "pvticket").env("KEEP_BUILD", "1");
        build.env("KERNEL_CONFIG", config).run()?.exits(1)
    };
    let hash_with = |config: &Path| -> anyhow::Result<String> {
        let ran = build(config)?;
        let (_, rest) = ran.text()?.split_once("/.build-").with_context(|| ran.show())?;
        Ok(rest.split('/').next().unwrap_or_default().to_owned())
    };
    let hash = || hash_with(Path::new(""));
    let first = hash()?;
    ensure!(first.len() == 16 && hash()? == first, "not one hash of equal inputs: {first}");
    let patch = fs::read_dir(configs.join("linux/patches"))?.flatten().map(|entry| entry.path());
    let patch = patch.min().context("no patches")?;
    let linux = configs.join("linux");
    for (input, line) in [
        (linux.join("config/base.config"), "CONFIG_OTHER=y\n"),
        (linux.join("config/pvticket.config"), "CONFIG_OTHER=y\n"),
        (linux.join("source.excludes"), "other\n"),
        (header.join("pvticket_abi.h"), "#define OTHER 1\n"),
        (patch, "diff --git a/other b/other\n"),
        (linux.join("arch/x86/pvticket/wait.c"), "/* other */\n"),
        (linux.join("config/linux-6.1.config"), "CONFIG_OTHER=y\n"),
        (source.join("Kbuild"), "other\n"),
    ] {
        let before = fs::read(&input)?;
        fs::write(&input, [&before, line.as_bytes()].concat())?;
        ensure!(hash()? != first, "{} does not count", input.display());
        fs::write(&input, before)?;
    }
    let other_flavour = configs.join("linux/config/stock-pvqspinlock.config");
    fs::write(&other_flavour, "CONFIG_OTHER=y\n")?;
    // The hash covers the source's modification times.
    let now = hash()?;
    fs::write(&other_flavour, "")?;
    ensure!(hash()? == now, "the configuration of another flavour counts");
    let config = folder.path().join("own.config");
    fs::write(&config, "CONFIG_OTHER=y\n")?;
    ensure!(hash_with(&config)? != now, "the user's configuration does not count");
    // A user's configuration may enable any driver, so all drivers are unpacked.
    fs::create_dir_all(source.join("drivers/misc/lkdtm"))?;
    fs::write(source.join("drivers/misc/lkdtm/core.c"), "")?;
    fs::create_dir(source.join(".git"))?;
    for (config, is_unpacked) in [(config.as_path(), true), (Path::new(""), false)] {
        let tree = folder.path().join(format!("cache/kernel/.build-{}/src", hash_with(config)?));
        let has = |path: &str| tree.join(path).exists();
        ensure!(has("Kbuild") && !has(".git"), "{config:?}");
        ensure!(has("drivers/misc/lkdtm/core.c") == is_unpacked, "{config:?}");
    }
    let missing = folder.path().join("missing.config");
    build(&missing)?.stderr_has(&["KERNEL_CONFIG", "missing.config", "cannot be read"]).map(drop)
}

/// Runs `fetch.sh` for these packages with a separate cache.
fn fetch(kernel: &str, packages: &Path, cache: &Path) -> anyhow::Result<Program> {
    let script = repository("guest-kernel-config/host/fetch.sh")?;
    let program = Program::new("sh").args([script]).env("PVTICKET_CACHE", cache);
    Ok(program.env("HOST_KERNEL", kernel).env("HOST_DEB", packages))
}

/// Builds a package with these files in a folder.
fn package(folder: &Path, name: &str, files: &[(&str, &str)]) -> anyhow::Result<()> {
    let tree = folder.join(format!("tree-of-{name}"));
    let control = format!(
        "Package: {name}\nVersion: 7.9.1-1~bpo13+1\nArchitecture: amd64\nMaintainer: a test\nDescription: none\n"
    );
    for (file, text) in [("DEBIAN/control", control.as_str())].iter().chain(files) {
        let file = tree.join(file);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, text)?;
    }
    let deb = folder.join(format!("{name}.deb"));
    let built = Program::new("dpkg-deb").args(["--build".into(), tree, deb]).run();
    let Ok(built) = built else { return skip("no dpkg-deb here") };
    built.exits(0).map(drop)
}

/// Packages as Debian splits a 7.x kernel: image, modules, and the required list of built-in modules.
fn a_host_kernel_of_several_packages_is_unpacked() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let (packages, cache) = (folder.path().join("packages here"), folder.path().join("cache"));
    fs::create_dir(&packages)?;
    let release = "7.9.1+deb13-cloud-amd64";
    let module = |needs: &str| format!("ELF\0license=GPL\0depends={needs}\0");
    let (kvm, amd) = (module(""), module("kvm"));
    let at = |name: &str| format!("usr/lib/modules/{release}/{name}");
    let image = "x".repeat(1024);
    package(&packages, &format!("linux-binary-{release}"), &[(&at("vmlinuz"), &image)])?;
    let modules = [(at("kernel/kvm.ko"), kvm), (at("kernel/kvm-amd.ko"), amd)];
    let modules = modules.each_ref().map(|(file, text)| (file.as_str(), text.as_str()));
    package(&packages, &format!("linux-modules-{release}"), &modules)?;
    let no_list = fetch("7", &packages, &cache)?.run()?;
    no_list.exits(1)?.stderr_has(&["no module virtio_pci", "modules.builtin"])?;
    let list = "kernel/virtio_pci.ko\nkernel/virtio_console.ko\n";
    package(&packages, &format!("linux-base-{release}"), &[(&at("modules.builtin"), list)])?;
    fetch("7", &packages, &cache)?.run()?.exits(0)?;
    let current = cache.join("host-7/current");
    ensure!(fs::read_link(&current)?.as_os_str() == format!("{release}_7.9.1-1~bpo13+1").as_str());
    ensure!(fs::read_to_string(current.join("vmlinuz"))? == image);
    ensure!(fs::read_to_string(current.join("modules.builtin"))? == list);
    let modules = files::names(&current.join("modules"))?;
    ensure!(modules == ["kvm-amd.ko", "kvm.ko"], "{modules:?}");
    ensure!(!cache.join("host").exists(), "the default kernel was replaced");
    Ok(())
}

fn a_missing_host_kernel_is_reported() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let unknown = fetch("8", folder.path(), folder.path())?.run()?;
    unknown.exits(2)?.stderr_has(&["HOST_KERNEL=8", "6.1 and 7"])?;
    let empty = fetch("7", folder.path(), folder.path())?.run()?;
    empty.exits(1)?.stderr_has(&["is not a Debian package", "linux-modules-7", "by hand"])?;
    ensure!(!folder.path().join("host-7/current").exists());
    Ok(())
}
