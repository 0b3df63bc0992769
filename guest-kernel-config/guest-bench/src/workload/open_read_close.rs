//! Opens, reads and closes one file: each open takes and drops references to the same path.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::PathBuf,
};

use super::Workload;
use crate::{crew, options::WorkloadOptions, report::WorkloadPart};

pub const WORKLOAD: Workload = Workload {
    name: "open-read-close",
    about: "one thread per CPU opens, reads and closes one file, with reads of several sizes",
    run,
    each: None,
};

fn run(_: &Workload, options: &WorkloadOptions) -> io::Result<Vec<WorkloadPart>> {
    let largest = options.sizes.iter().copied().max().unwrap_or(0);
    let file = Scratch::create(largest)?;
    let parts = options.sizes.len().max(1) as u32;
    let (warm_up, duration) = (options.warm_up / parts, options.duration / parts);
    let options = WorkloadOptions { warm_up, duration, ..options.clone() };
    options.sizes.iter().map(|size| part(&options, &file, *size)).collect()
}

fn part(options: &WorkloadOptions, file: &Scratch, size: usize) -> io::Result<WorkloadPart> {
    let once = |buffer: &mut Vec<u8>| File::open(&file.0)?.read_exact(buffer);
    let part = crew::repeat(options, || vec![0; size], once)?;
    Ok(WorkloadPart { name: format!("{size} bytes:"), ..part })
}

/// A file that is deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn create(bytes: usize) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("pvticket-bench-{}", std::process::id()));
        fs::write(&path, vec![0x5a; bytes])?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
