//! Keeps this program's own threads off the CPUs of vCPUs.

use std::path::PathBuf;

use base::{threads, units::CpuList};
use rustix::process::Pid;

use crate::affinity::CpuMask;

/// While this value lives, this program's threads keep off some CPUs. New threads inherit the restriction
/// and may choose other CPUs for themselves.
#[derive(Debug)]
pub struct CpuAvoidance {
    /// Pairs of new and previous masks. Has no entry for threads that would have been left without a CPU.
    moved: Vec<(CpuMask, CpuMask)>,
}

impl CpuAvoidance {
    /// Moves all threads of this program off these CPUs, except threads that may use no other CPU.
    pub fn new(cpus: &CpuList) -> Self {
        let mut moved: Vec<(CpuMask, CpuMask)> = Vec::new();
        for thread in own_threads() {
            let Ok(before) = CpuMask::of_thread(Some(thread)) else { continue };
            let after = before.without(cpus.cpus());
            // The kernel rejects a mask without a CPU.
            if after != before && after.apply(Some(thread)).is_ok() {
                let pair = (after, before);
                if !moved.contains(&pair) {
                    moved.push(pair);
                }
            }
        }
        Self { moved }
    }
}

impl Drop for CpuAvoidance {
    /// Restores the previous CPUs of the threads, and of threads that they have started.
    fn drop(&mut self) {
        for thread in own_threads() {
            let Ok(now) = CpuMask::of_thread(Some(thread)) else { continue };
            if let Some((_, before)) = self.moved.iter().find(|(after, _)| *after == now) {
                // Fails for a thread that has ended in the meantime.
                let _ = before.apply(Some(thread));
            }
        }
    }
}

/// Lists the threads of this program (proc(5)).
fn own_threads() -> impl Iterator<Item = Pid> {
    let id = |thread: PathBuf| thread.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw);
    threads::list("self").into_iter().filter_map(id)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::signal::{allowed_cpus, pin_this_thread};

    /// A single test, because new threads inherit the CPUs of the thread that starts them.
    #[test]
    fn threads_are_moved_off_a_cpu_and_back() {
        let before = allowed_cpus();
        let (first, rest) = before.split_first().unwrap();
        if rest.is_empty() {
            eprintln!("not tested: one CPU");
            return;
        }
        let cpu_list = CpuList::new(&[*first]).unwrap();
        let avoidance = CpuAvoidance::new(&cpu_list);
        assert_eq!(allowed_cpus(), rest);
        let (end, ends) = mpsc::channel::<()>();
        let (started, starts) = mpsc::channel();
        let child = thread::spawn(move || {
            started.send(allowed_cpus()).unwrap();
            let _ = ends.recv();
            allowed_cpus()
        });
        let vcpu = thread::spawn(move || {
            pin_this_thread(&cpu_list).unwrap();
            allowed_cpus()
        });
        assert_eq!(vcpu.join().unwrap(), [*first], "a thread may choose");
        assert_eq!(starts.recv().unwrap(), rest, "inherited");
        drop(avoidance);
        drop(end);
        assert_eq!(child.join().unwrap(), before);
        assert_eq!(allowed_cpus(), before);
    }
}
