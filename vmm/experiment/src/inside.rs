//! A pvticket command in the emulated host: the files forwarded to it, and its exit status.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::FAILURE;
use base::{
    files,
    guest_kernel::{Flavour, GuestKernel},
    units::ByteSize,
};
use emulated::{self, Errand, Finished, Missing, StdinMode, Supervision};
use os::{
    artifacts::GUEST_DISK,
    memory::{Memory, in_mib},
    results::Target,
    streams::eprint_line,
};
use study::{
    guest::kernels::{KernelFile, Kernels},
    point::HostKernel,
};

/// Path of a boot's plan in the emulated host.
const PLAN: &str = "/in/plan.json";
/// The archive with the user's programs in the emulated host.
const PROGRAMS: &str = "/in/programs.cpio";
/// The cache directory in the emulated host.
const CACHE: &str = "/in/cache";
/// The directory for result files in the emulated host.
const OUT: &str = "/tmp";

/// Memory for the emulated host's system, the files in its RAM, and our process.
const HOST_MEMORY: u64 = 448 << 20;

/// Warns if there is less memory than this many emulated hosts may need, `each` per host.
pub fn warn_of_memory(each: ByteSize, hosts: usize) {
    if let Some(warning) = memory_warning(&emulated_hosts(hosts), each, hosts, Memory::current()) {
        eprint_line(format_args!("pvticket: {warning}"));
    }
}

fn emulated_hosts(count: usize) -> String {
    match count {
        1 => "the emulated host".to_owned(),
        _ => format!("the {count} emulated hosts of --jobs"),
    }
}

/// Returns a warning if there is less memory than `number` equal consumers, named `consumers`, may need.
pub(crate) fn memory_warning(
    consumers: &str,
    each: ByteSize,
    number: usize,
    available: Memory,
) -> Option<String> {
    let need = ByteSize(each.0.saturating_mul(number as u64));
    let concern = available.warning(need)?;
    Some(format!("{consumers} may need {}: {concern}", in_mib(need)))
}

/// Returns the memory of an emulated host with these guests and these forwarded files.
pub fn memory_with<'a>(guests: ByteSize, files: impl IntoIterator<Item = &'a Path>) -> ByteSize {
    let files = files.into_iter().map(|file| file_size(file).saturating_mul(COPIES));
    ByteSize(files.fold(guests.0.saturating_add(HOST_MEMORY), u64::saturating_add))
}

/// Number of copies of a file in memory until the RAM disk is unpacked. The RAM disk may take half of the
/// memory that the archive leaves to the kernel.
const COPIES: u64 = 3;

/// Returns 0 if the file cannot be read, which is reported when it is forwarded.
fn file_size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

/// A pvticket command for the emulated host, with its files and resources.
///
/// The methods that forward or retrieve files return the path in the emulated host.
#[derive(Debug)]
pub struct EmulatedCommand {
    errand: Errand,
    /// Memory of all its guests.
    guest_memory: ByteSize,
}

impl EmulatedCommand {
    /// Creates a command. `kernel` is the emulated host's, `guest_memory` the memory of all its guests.
    pub fn new(kernel: HostKernel, guest_memory: ByteSize) -> Self {
        let mut errand = Errand::new(Vec::<OsString>::new());
        errand.kernel = kernel;
        // A command that reads stdin changes this. Unread input is left to other processes.
        errand.stdin = StdinMode::Null;
        errand.memory = memory_with(guest_memory, []);
        errand.env.push(("PVTICKET_CACHE".into(), CACHE.into()));
        errand.env.push((confine::SECCOMP_ENV.into(), confine::seccomp().to_string().into()));
        errand.env.extend(env::var_os("TERM").map(|term| ("TERM".into(), term)));
        Self { errand, guest_memory }
    }

    /// Forwards a guest kernel, to the path of the built kernel.
    pub fn take_kernel(&mut self, file: &Path) -> PathBuf {
        let place = GuestKernel::default().file(Flavour::Ticket);
        self.take(file, Path::new(CACHE).join(place))
    }

    /// Forwards guest kernels, to the paths of the built kernels, the guest disk and programs.
    pub fn take_kernels(&mut self, kernels: &Kernels) -> Kernels {
        let take = |file: &KernelFile| {
            let place = Path::new(CACHE).join(file.kernel.file(file.flavour));
            KernelFile::new(file.kernel, file.flavour, self.take(file.path(), place))
        };
        let copied: Kernels = kernels.iter().map(take).collect();
        let disk = kernels.guest_disk().map(|disk| self.take_guest_disk(disk));
        let programs = kernels.programs().map(|file| self.take_programs(file));
        copied.with_guest_disk(disk).with_programs(programs)
    }

    /// Forwards busybox, to the path of a built busybox, with the list of its applets if that exists.
    pub fn take_busybox(&mut self, file: &Path) -> PathBuf {
        let applets = file.with_file_name("applets");
        // An unreadable list is reported where it is read.
        if files::is_file(&applets).unwrap_or(true) {
            self.take(&applets, Path::new(CACHE).join("busybox/applets"));
        }
        self.take(file, Path::new(CACHE).join("busybox/busybox"))
    }

    /// Forwards the guest disk. The guest has a further copy in memory.
    pub fn take_guest_disk(&mut self, file: &Path) -> PathBuf {
        self.add_memory(file, 1);
        self.take(file, Path::new(CACHE).join(GUEST_DISK))
    }

    /// Forwards the archive with the user's programs, of which the guest has a further copy, too.
    pub fn take_programs(&mut self, file: &Path) -> PathBuf {
        self.add_memory(file, 1);
        self.take(file, PROGRAMS)
    }

    /// Forwards a file, to `path_inside`.
    pub fn take(&mut self, file: &Path, path_inside: impl Into<PathBuf>) -> PathBuf {
        self.add_memory(file, COPIES);
        let path_inside = path_inside.into();
        self.errand.files_in.push((file.into(), path_inside.clone()));
        path_inside
    }

    /// Requests at least this many CPUs for the command.
    pub fn needs_cpus(&mut self, count: u32) {
        self.errand.cpus = self.errand.cpus.max(count);
    }

    /// Adds memory for this many copies of a file.
    fn add_memory(&mut self, file: &Path, copies: u64) {
        let bytes = file_size(file).saturating_mul(copies);
        self.errand.memory = ByteSize(self.errand.memory.0.saturating_add(bytes));
    }

    /// Warns if there is less memory than the emulated host may need.
    pub fn warn_of_memory(&self) {
        warn_of_memory(self.errand.memory, 1);
    }

    /// Retrieves the result file `name`, as `file`.
    pub fn bring_back(&mut self, file: &Path, name: &str) -> PathBuf {
        let path_inside = Path::new(OUT).join(name);
        self.errand.files_out.push((path_inside.clone(), file.into()));
        path_inside
    }

    /// Returns the [`Errand`], for changes to its streams and CPUs.
    pub fn errand(&mut self) -> &mut Errand {
        &mut self.errand
    }

    /// Boots a guest in the emulated host by `pvticket inside PLAN`, and returns the exit status.
    pub fn boot(mut self, plan: &impl Serialize) -> anyhow::Result<u8> {
        // Too little memory even for the guests has been reported.
        if Memory::current().warning(self.guest_memory).is_none() {
            self.warn_of_memory();
        }
        let bytes = serde_json::to_vec(plan).context("cannot describe the boot")?;
        self.errand.contents_in.push((bytes, PLAN.into()));
        self.run(["inside".into(), PLAN.into()])
    }

    /// Runs `pvticket ARGS` in the emulated host and returns its exit status.
    pub fn run(mut self, args: impl IntoIterator<Item = OsString>) -> anyhow::Result<u8> {
        self.errand.args = args.into_iter().collect();
        for (_, file) in &self.errand.files_out {
            Target::new(file).with_context(|| format!("cannot write {}", file.display()))?;
        }
        match emulated::run(&self.errand, &Supervision::from_env()?) {
            Ok(Finished { status: 0, missing }) if !missing.is_empty() => {
                let Missing { host, reason } = &missing[0];
                bail!("the emulated command did not create {}: {reason}", host.display())
            }
            // 128 + signal numbers and exit statuses all fit into a byte.
            Ok(finished) => Ok(u8::try_from(finished.status).unwrap_or(u8::MAX)),
            // A signal or a closed pipe: the exit status is enough, as in a shell.
            Err(error) if error.exit_status() != FAILURE => Ok(error.exit_status()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_host_needs_more_than_its_guests() {
        let available = Memory::of_host(ByteSize::mib(600));
        let warning = |mib, hosts| {
            let each = memory_with(ByteSize::mib(mib), []);
            memory_warning(&emulated_hosts(hosts), each, hosts, available).unwrap_or_default()
        };
        assert_eq!(warning(152, 1), "");
        let end = "this host has 600 MiB of memory and swap; processes that use more are killed";
        assert_eq!(warning(512, 1), format!("the emulated host may need 960 MiB: {end}"));
        // Regression: of two parallel hosts, only one was counted.
        let both = "the 2 emulated hosts of --jobs may need 1200 MiB: ";
        assert_eq!(warning(152, 2), format!("{both}{end}"));
    }

    #[test]
    fn command_gets_the_cpus_it_needs() {
        let mut inside = EmulatedCommand::new(HostKernel::default(), ByteSize::mib(512));
        let default = inside.errand.cpus;
        inside.needs_cpus(1);
        assert_eq!(inside.errand.cpus, default);
        inside.needs_cpus(40);
        assert_eq!(inside.errand.cpus, 40);
    }

    /// Regression: a kernel of 300 MiB filled the RAM disk, and the plan's file was missing there.
    #[test]
    fn memory_covers_copied_files() {
        let folder = tempfile::TempDir::new().unwrap();
        let large = folder.path().join("vmlinux");
        fs::File::create(&large).unwrap().set_len(300 << 20).unwrap();
        let memory = |take: &dyn Fn(&mut EmulatedCommand)| {
            let mut inside = EmulatedCommand::new(HostKernel::default(), ByteSize::mib(512));
            take(&mut inside);
            inside.errand.memory.0 >> 20
        };
        let bare = memory(&|_| ());
        let kernel = memory(&|inside| drop(inside.take(&large, "/in/kernel")));
        let disk = memory(&|inside| drop(inside.take_guest_disk(&large)));
        assert_eq!((kernel - bare, disk - bare), (900, 1200));
        // Regression: the warning of a run left the files out.
        let warned_of = memory_with(ByteSize::mib(512), [large.as_path()]);
        assert_eq!(warned_of.0 >> 20, kernel);
    }
}
