//! Prepares a bare machine for commands: mounts, modules, ports.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    mount::{MountFlags, mount},
    system::finit_module,
};

use super::{
    super::{qemu::image::MODULES, wire::PORTS},
    AgentError, context,
};

/// Timeout for the ports to appear and to be connected after their driver is loaded. The supervisor
/// gives up earlier, as it alone knows whether the emulator was denied CPU time.
const PORTS_TIMEOUT: Duration = Duration::from_secs(600);

/// Mounts the file systems that programs expect.
pub fn mounts() -> Result<(), AgentError> {
    let mounts = [
        ("devtmpfs", "/dev", "devtmpfs", "mode=0755"),
        ("proc", "/proc", "proc", ""),
        ("sysfs", "/sys", "sysfs", ""),
        ("tmpfs", "/tmp", "tmpfs", "mode=1777"),
        ("tmpfs", "/run", "tmpfs", "mode=0755"),
        ("tmpfs", "/dev/shm", "tmpfs", "mode=1777"),
        ("debugfs", "/sys/kernel/debug", "debugfs", ""),
    ];
    for (source, target, kind, options) in mounts {
        let _ = fs::create_dir(target);
        let options = CString::new(options).map_err(context(target))?;
        match mount(source, target, kind, MountFlags::empty(), options.as_c_str()) {
            // The kernel may have mounted /dev itself.
            Ok(()) | Err(Errno::BUSY) => {}
            // Nothing depends on debugfs.
            Err(_) if kind == "debugfs" => {}
            Err(error) => return Err(format!("cannot mount {kind} on {target}: {error}")),
        }
    }
    Ok(())
}

/// Returns the modules in the initramfs in load order, which their names define.
pub fn modules() -> Result<Vec<PathBuf>, AgentError> {
    let folder = Path::new("/").join(MODULES);
    let entries = fs::read_dir(&folder).map_err(context(folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    Ok(files)
}

/// Splits the modules into modules of the ports, which may be built into the kernel, and modules of
/// KVM. A failure of the latter can then be reported through the ports.
pub fn split(mut modules: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let is_console = |path: &PathBuf| path.to_string_lossy().ends_with("console.ko");
    let ports = modules.iter().position(is_console).map_or(0, |place| place + 1);
    let rest = modules.split_off(ports);
    (modules, rest)
}

/// Loads modules and deletes their files.
pub fn load(modules: &[PathBuf]) -> Result<(), AgentError> {
    for path in modules {
        let file = File::open(path).map_err(context(path.display()))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("cannot load {}: {error}", path.display())),
        }
        // The file occupies memory and is no longer needed.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Brings up the CPUs that the kernel did not start. A CPU that fails is not an error: the command sees
/// the number of CPUs.
pub fn bring_up_cpus() {
    for cpu in 1.. {
        let switch = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        let Ok(state) = fs::read_to_string(&switch) else { return };
        if state.trim() == "0"
            && let Err(error) = fs::write(&switch, "1")
        {
            eprintln!("pvticket agent: cannot bring CPU {cpu} online: {error}");
        }
    }
}

/// Opens the ports in the order of [`PORTS`], each once its other end is connected.
pub fn ports() -> Result<[File; PORTS.len()], AgentError> {
    let deadline = Instant::now() + PORTS_TIMEOUT;
    let mut files = Vec::with_capacity(PORTS.len());
    for name in PORTS {
        files.push(port(name, deadline).map_err(context(format!("port {name}")))?);
    }
    files.try_into().map_err(|_| "ports are missing".to_owned())
}

fn port(name: &str, deadline: Instant) -> io::Result<File> {
    loop {
        if let Some(path) = find_port(name) {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return connected(file, deadline),
                // The device node appears shortly after the name.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        wait(deadline)?;
    }
}

fn find_port(name: &str) -> Option<PathBuf> {
    fs::read_dir("/sys/class/virtio-ports").ok()?.flatten().find_map(|entry| {
        let port_name = fs::read_to_string(entry.path().join("name")).ok()?;
        (port_name.trim() == name).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Waits until the host's end is connected. Before that, reads return the end of the stream.
fn connected(file: File, deadline: Instant) -> io::Result<File> {
    loop {
        let mut fds = [PollFd::new(&file, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if !fds[0].revents().contains(PollFlags::HUP) {
            return Ok(file);
        }
        wait(deadline)?;
    }
}

fn wait(deadline: Instant) -> io::Result<()> {
    if Instant::now() > deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    thread::sleep(Duration::from_millis(1));
    Ok(())
}

/// Makes the kernel panic, for tests.
pub fn crash() -> io::Result<()> {
    fs::write("/proc/sysrq-trigger", "c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_come_before_kvm() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let (ports, kvm) = (&["00-virtio.ko", "01-virtio_console.ko"], &["02-kvm.ko"]);
        let modules = paths(&[&ports[..], &kvm[..]].concat());
        assert_eq!(split(modules), (paths(ports), paths(kvm)));
        assert_eq!(split(paths(kvm)), (paths(&[]), paths(kvm)), "virtio is built in");
    }
}
