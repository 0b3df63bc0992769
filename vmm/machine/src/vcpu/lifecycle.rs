//! The end of a machine: its cause, its time, and which of several reports counts.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

use vmm_sys_util::eventfd::EventFd;

use super::End;
use crate::clock::Moment;
use base::units::{VcpuCount, VcpuId};

/// The lifecycle of one machine.
#[derive(Debug)]
pub struct Lifecycle {
    /// Number of vCPUs whose guest code is not done.
    running: AtomicU32,
    /// By vCPU, whether its guest code is done.
    done: Box<[AtomicBool]>,
    /// Number of ended vCPUs that the guest had started.
    started: AtomicU32,
    end: Mutex<Option<(End, Moment)>>,
    ended: EventFd,
}

impl Lifecycle {
    /// Creates the lifecycle of `vcpus` vCPUs. `ended` is written when the machine ends.
    pub fn new(vcpus: VcpuCount, ended: EventFd) -> Self {
        Self {
            running: AtomicU32::new(vcpus.get()),
            done: vcpus.ids().map(|_| AtomicBool::new(false)).collect(),
            started: AtomicU32::new(0),
            end: Mutex::new(None),
            ended,
        }
    }

    fn end(&self) -> MutexGuard<'_, Option<(End, Moment)>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the machine has ended. False again after [`Lifecycle::take_end`].
    pub fn has_ended(&self) -> bool {
        self.end().is_some()
    }

    /// Whether the machine has ended with a failure.
    pub fn has_failed(&self) -> bool {
        matches!(*self.end(), Some((End::Failed(_), _)))
    }

    /// Reports the end of the machine. Only the first report counts.
    pub fn finish(&self, end: End) {
        self.end().get_or_insert_with(|| (end, Moment::now()));
        // A full eventfd counter means that it is already readable.
        let _ = self.ended.write(1);
    }

    /// Marks vCPU `id` as done. The last vCPU or the first nonzero status ends the machine.
    pub fn vcpu_done(&self, id: VcpuId, status: u32) {
        self.done[id.0 as usize].store(true, Relaxed);
        let remaining = self.running.fetch_sub(1, SeqCst) - 1;
        if status != 0 || remaining == 0 {
            self.finish(End::Done(status));
        }
    }

    /// Counts the end of a thread whose vCPU the guest had started.
    pub fn count_started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    /// Number of vCPUs that the guest had started. Complete once their threads have ended.
    pub fn started(&self) -> u32 {
        self.started.load(Relaxed)
    }

    /// Whether the guest code of this vCPU is done.
    pub fn is_done(&self, id: VcpuId) -> bool {
        self.done[id.0 as usize].load(Relaxed)
    }

    /// Takes the end and its time. None if the machine has not ended, or if already taken.
    pub fn take_end(&self) -> Option<(End, Moment)> {
        self.end().take()
    }
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    use super::*;

    fn life(vcpus: u32) -> Lifecycle {
        let ended = EventFd::new(EFD_NONBLOCK).unwrap();
        Lifecycle::new(VcpuCount::try_from(vcpus).unwrap(), ended)
    }

    #[test]
    fn a_machine_ends_with_its_last_vcpu() {
        let life = life(2);
        life.vcpu_done(VcpuId(1), 0);
        assert!(life.is_done(VcpuId(1)) && !life.is_done(VcpuId(0)));
        assert!(!life.has_ended() && life.ended.read().is_err());
        life.vcpu_done(VcpuId(0), 0);
        assert!(life.has_ended() && !life.has_failed() && life.ended.read().is_ok());
        assert!(matches!(life.take_end(), Some((End::Done(0), _))));
        assert!(life.take_end().is_none());
    }

    #[test]
    fn a_nonzero_status_ends_it_at_once() {
        let life = life(3);
        life.vcpu_done(VcpuId(2), 7);
        life.vcpu_done(VcpuId(1), 8);
        assert!(matches!(life.take_end(), Some((End::Done(7), _))));
    }

    #[test]
    fn the_first_report_counts() {
        let life = life(1);
        life.finish(End::Reset);
        life.finish(End::Stopped);
        assert!(matches!(life.take_end(), Some((End::Reset, _))));
    }
}
