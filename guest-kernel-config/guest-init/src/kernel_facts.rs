//! Facts about the running kernel, from its symbol list.

use alloc::vec;

use guest_init::kallsyms::Reader;
use hypercalls::kernel_facts::KernelFacts;
use rustix::{
    fs::{self, Mode, OFlags},
    io::Errno,
};

/// Bytes read at a time.
const CHUNK: usize = 32 << 10;

/// Reads the facts; `None` if the list cannot be read or shows no addresses.
pub fn read() -> Option<KernelFacts> {
    let list = fs::open(c"/proc/kallsyms", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut chunk = vec![0_u8; CHUNK];
    let mut reader = Reader::default();
    loop {
        match rustix::io::read(&list, chunk.as_mut_slice()) {
            Ok(0) => return reader.facts(),
            Ok(count) => {
                reader.push(&chunk[..count]);
                if reader.is_complete() {
                    return reader.facts();
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
