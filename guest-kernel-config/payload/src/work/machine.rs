//! The interface of locks to the VMM.

use locks::Pv;

use crate::telemetry::{WorkloadWatch, tsc};
use crate::transport::TransportPorts;
use crate::vcpu::CallingVcpu;

/// Halts and kicks, and the VMM's information on other vCPUs.
pub(super) struct HypercallPv<'a, W> {
    transport: TransportPorts,
    watch: &'a W,
    vcpus: usize,
}

impl<'a, W: WorkloadWatch> HypercallPv<'a, W> {
    /// Creates the interface for `vcpu`.
    pub(super) fn new(vcpu: &CallingVcpu, watch: &'a W) -> Self {
        let vcpus = vcpu.param(|params| &params.vcpus) as usize;
        Self { transport: TransportPorts::for_vcpu(vcpu), watch, vcpus }
    }
}

impl<W: WorkloadWatch> Pv for HypercallPv<'_, W> {
    #[inline]
    fn spin_hint(&self) {
        core::hint::spin_loop();
    }

    fn lock_spinning(&self, ticket: u16) {
        self.transport.halt(ticket);
    }

    fn unlock_kick(&self, cpu: usize) {
        self.transport.kick(cpu);
    }

    fn kick_and_halt(&self, cpu: usize, ticket: u16) {
        self.transport.kick_and_halt(cpu, ticket);
    }

    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        self.watch.is_predecessor_off(self.vcpus, lock, ticket)
    }

    #[inline]
    fn is_off(&self, cpu: usize) -> bool {
        self.watch.is_off(cpu)
    }

    #[inline]
    fn ticks(&self) -> u64 {
        tsc()
    }

    #[inline]
    fn slice_left(&self) -> u64 {
        self.watch.slice_left()
    }

    #[inline]
    fn is_critical_off(&self) -> bool {
        self.watch.is_critical_off()
    }

    #[cold]
    fn yield_to(&self, cpu: usize) {
        self.transport.yield_to(cpu);
    }
}
