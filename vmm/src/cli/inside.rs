//! The same command in the emulated host: what it takes along and how it ends.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{
    cli::FAILURE,
    emulated::{self, Errand, Supervision},
    guest::{
        artifacts::{self, GUEST_DISK},
        kernels::Kernels,
    },
    results::Target,
    units::ByteSize,
};

/// The cache as it is laid out inside.
const CACHE: &str = "/in/cache";
/// Where result files are written inside.
const OUT: &str = "/tmp";

/// What a command of ours needs in the emulated host.
#[derive(Debug)]
pub struct Inside {
    errand: Errand,
}

impl Inside {
    /// Runs `pvticket ARGS` there. `guest_memory` is what its machines need.
    pub fn new(args: impl IntoIterator<Item = OsString>, guest_memory: ByteSize) -> Self {
        /// The outer system, the files it carries in memory, and our process.
        const OUTER: u64 = 448 << 20;
        let mut errand = Errand::new(args);
        errand.memory = ByteSize(guest_memory.0.saturating_add(OUTER));
        errand.env.push(("PVTICKET_CACHE".into(), CACHE.into()));
        errand.env.extend(env::var_os("TERM").map(|term| ("TERM".into(), term)));
        Self { errand }
    }

    /// Takes a guest kernel along as the built one.
    pub fn with_kernel(self, file: &Path) -> Self {
        self.with_file(file, Path::new(CACHE).join(artifacts::KERNEL))
    }

    /// Takes guest kernels along as the built ones.
    pub fn with_kernels(self, Kernels { ticket, stock }: &Kernels) -> Self {
        let with = ticket.iter().fold(self, |with, file| with.with_kernel(file));
        let there = Path::new(CACHE).join(artifacts::STOCK_KERNEL);
        stock.iter().fold(with, |with, file| with.with_file(file, there.clone()))
    }

    /// Takes busybox along, with the list of its applets if there is one.
    pub fn with_busybox(self, file: &Path) -> Self {
        let applets = file.with_file_name("applets");
        let with = self.with_file(file, Path::new(CACHE).join("busybox/busybox"));
        match applets.is_file() {
            true => with.with_file(&applets, Path::new(CACHE).join("busybox/applets")),
            false => with,
        }
    }

    /// Takes the guest disk along. It is there twice: as a file, and in the guest's memory.
    pub fn with_guest_disk(mut self, file: &Path) -> Self {
        let size = fs::metadata(file).map_or(0, |data| data.len());
        self.errand.memory = ByteSize(self.errand.memory.0.saturating_add(2 * size));
        self.with_file(file, Path::new(CACHE).join(GUEST_DISK))
    }

    /// Takes a file along to this path.
    pub fn with_file(mut self, file: &Path, there: PathBuf) -> Self {
        self.errand.files_in.push((file.into(), there));
        self
    }

    /// Adds `OPTION PATH`, where PATH is a file there that comes back as `file`.
    pub fn with_result(mut self, option: &str, file: &Path) -> Self {
        let there = Path::new(OUT).join(option.trim_start_matches('-'));
        self.errand.args.extend([option.into(), there.clone().into()]);
        self.errand.files_out.push((there, file.into()));
        self
    }

    /// Adds arguments.
    pub fn with_args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.errand.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Changes how the errand is connected to this process.
    pub fn connect(mut self, connect: impl FnOnce(&mut Errand)) -> Self {
        connect(&mut self.errand);
        self
    }

    /// Runs it; gives its exit status.
    pub fn run(self) -> anyhow::Result<u8> {
        for (_, file) in &self.errand.files_out {
            Target::new(file).with_context(|| format!("cannot write {}", file.display()))?;
        }
        match emulated::run(&self.errand, &Supervision::from_env()?) {
            // 128 + signal numbers and exit statuses all fit.
            Ok(finished) => Ok(u8::try_from(finished.status).unwrap_or(u8::MAX)),
            // A signal or a closed pipe: the shell's status for it says it all.
            Err(error) if error.exit_status() != FAILURE => Ok(error.exit_status()),
            Err(error) => Err(error.into()),
        }
    }
}
