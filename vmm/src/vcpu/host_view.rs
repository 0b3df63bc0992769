//! What the host's kernel counts of a machine's vCPUs, read at any moment.

use std::{fs::File, os::unix::fs::FileExt, sync::OnceLock};

use crate::{
    clock::Moment,
    units::{VcpuCount, VcpuId},
};
use base::host_counts::{HostCounts, ThreadTimes, YieldCounts};
use kvm::stats::Yields;

/// The file of the calling thread.
const OWN: &str = "/proc/thread-self/schedstat";

/// The longest text of such a file: three numbers.
const LONGEST: usize = 64;

/// The files to read. A file that cannot be opened, because the kernel does not have it or no
/// descriptor is left, is a count that is missing.
#[derive(Debug, Default)]
pub struct HostView {
    /// By vCPU, opened by its own thread.
    threads: Box<[OnceLock<File>]>,
    yields: Box<[Yields]>,
}

impl HostView {
    /// For the threads of so many vCPUs, and KVM's counters of them.
    pub fn new(vcpus: VcpuCount, yields: Vec<Yields>) -> Self {
        Self { threads: vcpus.ids().map(|_| OnceLock::new()).collect(), yields: yields.into() }
    }

    /// The calling thread is that of this vCPU. To be called before the thread is confined.
    pub fn enter(&self, vcpu: VcpuId) {
        if let Some(place) = self.threads.get(vcpu.0 as usize)
            && let Ok(file) = File::open(OWN)
        {
            let _ = place.set(file);
        }
    }

    /// The counts since the threads began; none of the machine's threads if one is missing.
    pub fn read(&self) -> HostCounts {
        let times = self.threads.iter().map(|file| times(file.get()?));
        HostCounts {
            window: Moment::now().reading(),
            vcpus: times.collect::<Option<_>>().unwrap_or_default(),
            yields: self
                .yields
                .iter()
                .map(Yields::read)
                .reduce(YieldCounts::plus)
                .unwrap_or_default(),
        }
    }
}

fn times(file: &File) -> Option<ThreadTimes> {
    let mut text = [0; LONGEST];
    let count = file.read_at(&mut text, 0).ok()?;
    ThreadTimes::parse(str::from_utf8(&text[..count]).ok()?)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::units::Nanos;

    /// A thread's own time, beside what the clock says.
    #[test]
    fn the_counts_of_a_thread_are_read_by_others() {
        let view = HostView::new(VcpuCount::try_from(1).unwrap(), Vec::new());
        assert!(view.read().vcpus.is_empty(), "its thread has not come");
        thread::scope(|scope| {
            scope.spawn(|| {
                view.enter(VcpuId(0));
                let before = view.read();
                let began = Moment::now();
                while Moment::now().since(began) < Nanos::millis(30) {}
                let counts = view.read().since(&before);
                // Without CONFIG_SCHED_INFO all of them are zero.
                let known = counts.total().ran.after(counts.total().waited);
                assert!(known.0 == 0 || known >= Nanos::millis(20), "{counts:?}");
                assert!(counts.window >= Nanos::millis(30), "{counts:?}");
            });
            thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(view.read().yields, YieldCounts::default());
    }
}
