//! A `/dev/kvm` that is missing, inaccessible, or insufficient.

use std::os::unix::fs::PermissionsExt;

use crate::{
    facts::{need_root, need_software_kvm},
    prelude::*,
    product,
};

tests![
    an_unusable_dev_kvm_is_rejected,
    software_kvm_runs_no_guest_kernels,
    auto_states_why_it_uses_the_emulated_host,
    a_kvm_without_permission_is_reported,
    a_cache_without_permission_is_reported,
];

/// The user `nobody` in Debian; any unprivileged id would do.
const NOBODY: u32 = 65534;

/// Copies of the product and of a kernel that other users can read.
struct Kit {
    folder: TempDir,
    pvticket: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Kit {
    fn new() -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let pvticket = folder.path().join("pvticket");
        files::install(product::binary(), &pvticket)?;
        let kernel = files::put(&folder, "vmlinux", &files::vmlinux(code::SPIN))?;
        let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
        Ok(Self { folder, pvticket, kernel, initrd })
    }

    fn boot(&self, program: Program, host: &str) -> Program {
        program
            .args(["boot", "--host", host, "--kernel"])
            .args([&self.kernel])
            .args(["--initrd"])
            .args([&self.initrd])
            .env("HOME", self.folder.path())
    }

    /// Runs the product in a new mount namespace, after this script.
    fn after(&self, script: &str) -> Program {
        let script = format!("{script}; exec \"$@\"");
        Program::new("unshare").args(["-m", "sh", "-c", &script, "sh"]).args([&self.pvticket])
    }
}

/// Skips a test where mounting is not allowed, even for root.
fn need_mounts() -> anyhow::Result<()> {
    need_root()?;
    match Program::new("unshare").args(["-m", "mount", "-t", "tmpfs", "t", "/mnt"]).run() {
        Ok(ran) if ran.status()? == 0 => Ok(()),
        _ => skip("mounting is not allowed here"),
    }
}

/// A `/dev` with the few nodes that every program expects.
const EMPTY_DEV: &str =
    "mount -t tmpfs t /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9";

/// Makes a new node, because all users may have access to the host's, and becomes a user without access.
fn as_nobody() -> String {
    format!(
        "{EMPTY_DEV} && mknod -m 600 /dev/kvm c 10 232 && \
         set -- setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\""
    )
}

/// Regression: figures of the emulated host were printed without a notice.
fn a_kvm_without_permission_is_reported() -> anyhow::Result<()> {
    need_mounts()?;
    let kit = Kit::new()?;
    let spec = "vcpus = 1\nlocks = \"ticket\"\npolicies = \"host\"\nrepetitions = 1\n";
    let spec = files::put(&kit.folder, "spec.toml", spec.as_bytes())?;
    let run = |script: &str| kit.after(script).args(["run", "--dry-run"]).args([&spec]).run();
    let ran =
        run(&as_nobody())?.exits(0)?.one_line(&["no permission to open /dev/kvm", "kvm $USER"])?;
    ran.stdout_has(&["(emulated host)"])?;
    let ran = run(EMPTY_DEV)?.exits(0)?;
    ensure!(ran.stderr.is_empty(), "there is no /dev/kvm to open\n{}", ran.show());
    Ok(())
}

/// Regression: the files in the cache were reported as missing.
fn a_cache_without_permission_is_reported() -> anyhow::Result<()> {
    need_root()?;
    let kit = Kit::new()?;
    let hidden = kit.folder.path().join("hidden");
    fs::create_dir(&hidden)?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700))?;
    fs::set_permissions(kit.folder.path(), fs::Permissions::from_mode(0o755))?;
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let plain = || Program::new("setpriv").args(user).args([&kit.pvticket]);
    for words in ["boot --host emulated -- true", "emulate -- /init locks"] {
        let ran =
            plain().args(words.split(' ')).env("PVTICKET_CACHE", hidden.join("cache")).run()?;
        ran.fails(1, &["cannot access", "hidden/cache", "Permission denied"])?;
    }
    Ok(())
}

/// A device that may not be opened, no device, and a different device.
fn an_unusable_dev_kvm_is_rejected() -> anyhow::Result<()> {
    need_mounts()?;
    let kit = Kit::new()?;
    let null = format!("{EMPTY_DEV} && mknod -m 666 /dev/kvm c 1 3; export PVTICKET_TRUST_KVM=1");
    for (script, parts) in [
        (as_nobody(), &["/dev/kvm", "permission", "kvm $USER"][..]),
        (EMPTY_DEV.into(), &["/dev/kvm", "--host emulated"]),
        (null, &["/dev/kvm"]),
    ] {
        kit.boot(kit.after(&script), "direct").run()?.fails(1, parts)?.stdout_is("")?;
    }
    Ok(())
}

fn software_kvm_runs_no_guest_kernels() -> anyhow::Result<()> {
    need_software_kvm()?;
    let kit = Kit::new()?;
    let ran =
        Boot::direct().option("--kernel", &kit.kernel).option("--initrd", &kit.initrd).run()?;
    let ran = ran.fails(1, &["software", "cannot run guest kernels", "--host emulated"])?;
    ran.stdout_is("").map(drop)
}

fn auto_states_why_it_uses_the_emulated_host() -> anyhow::Result<()> {
    need_mounts()?;
    let kit = Kit::new()?;
    let ran = kit.boot(kit.after(EMPTY_DEV), "auto").args(["--dry-run"]).run()?.exits(0)?;
    ran.stdout_has(&["emulated", "there is no /dev/kvm"])
}
