//! CPU affinity of threads, with masks large enough for every CPU that a kernel can have.
//!
//! The C library's `cpu_set_t` covers only 1024 CPUs. The kernel refuses to fill a mask smaller than its own
//! (EINVAL, sched_setaffinity(2)), so on larger machines `cpu_set_t` is useless.

use std::io;

use base::units::CpuList;
use rustix::process::Pid;

use crate::cpus;

const BITS: usize = u64::BITS as usize;

/// A set of CPUs, indexed by the kernel's CPU numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuMask([u64; CpuList::LIMIT / BITS]);

impl CpuMask {
    pub(crate) const NONE: Self = Self([0; CpuList::LIMIT / BITS]);

    /// Returns the CPUs that a thread may use. None means the calling thread.
    pub(crate) fn of_thread(thread: Option<Pid>) -> io::Result<Self> {
        let mut mask = Self::NONE;
        let (words, size) = (mask.0.as_mut_ptr(), size_of_val(&mask.0));
        // SAFETY: the kernel writes at most `size` bytes, and the mask lives through the call.
        let result = unsafe { libc::sched_getaffinity(raw(thread), size, words.cast()) };
        if result == 0 { Ok(mask) } else { Err(io::Error::last_os_error()) }
    }

    /// Restricts a thread to these CPUs. The kernel ignores CPUs that do not exist and rejects an empty mask.
    pub(crate) fn apply(&self, thread: Option<Pid>) -> io::Result<()> {
        let (words, size) = (self.0.as_ptr(), size_of_val(&self.0));
        // SAFETY: the kernel reads at most `size` bytes, and the mask lives through the call.
        let result = unsafe { libc::sched_setaffinity(raw(thread), size, words.cast()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Adds these CPUs, given by their user-visible numbers. Ignores CPUs beyond [`CpuList::LIMIT`].
    pub(crate) fn with(mut self, list: &[usize]) -> Self {
        self.bits(list, |word, bit| *word |= bit);
        self
    }

    /// Removes these CPUs.
    pub(crate) fn without(mut self, list: &[usize]) -> Self {
        self.bits(list, |word, bit| *word &= !bit);
        self
    }

    fn bits(&mut self, list: &[usize], change: impl Fn(&mut u64, u64)) {
        for cpu in list.iter().map(|cpu| cpus::to_kernel(*cpu)) {
            if let Some(word) = self.0.get_mut(cpu / BITS) {
                change(word, 1 << (cpu % BITS));
            }
        }
    }

    /// Returns the user-visible numbers of the CPUs, in ascending order.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        let is_set = |cpu: &usize| self.0[cpu / BITS] >> (cpu % BITS) & 1 == 1;
        (0..CpuList::LIMIT).filter(is_set).filter_map(cpus::from_kernel).collect()
    }
}

fn raw(thread: Option<Pid>) -> libc::pid_t {
    thread.map_or(0, |thread| thread.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_every_cpu_of_the_largest_kernel() {
        let list = [0, 63, 64, 1023, 1024, 2047, CpuList::LIMIT - 1];
        let mask = CpuMask::NONE.with(&list).with(&[CpuList::LIMIT, usize::MAX]);
        assert_eq!(mask.cpus(), list);
        assert_eq!(mask.without(&list[1..]).cpus(), [0]);
    }

    #[test]
    fn apply_restricts_a_thread() {
        std::thread::spawn(|| {
            let before = CpuMask::of_thread(None).unwrap();
            let (first, _) = before.cpus().split_first().map(|(cpu, _)| (*cpu, ())).unwrap();
            // CPUs that this machine does not have are ignored.
            CpuMask::NONE.with(&[first, CpuList::LIMIT - 1]).apply(None).unwrap();
            assert_eq!(CpuMask::of_thread(None).unwrap().cpus(), [first]);
            assert!(CpuMask::NONE.apply(None).is_err());
            before.apply(None).unwrap();
        })
        .join()
        .unwrap();
    }
}
