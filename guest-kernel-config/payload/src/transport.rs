//! The means by which this vCPU halts for a lock and kicks other vCPUs.

use core::arch::asm;

use hypercalls::{payload, ports};

use crate::port;
use crate::vcpu::CallingVcpu;

/// `KVM_HC_KICK_CPU` (kvm/x86/hypercalls.rst).
const KVM_KICK_CPU: u64 = 5;

/// A [`payload::Transport`] with its port numbers.
#[derive(Clone, Copy)]
pub struct TransportPorts {
    kind: u32,
    lock_spinning: u16,
    unlock_kick: u16,
    kick_and_halt: u16,
    doorbell: u16,
    yield_to: u16,
}

impl TransportPorts {
    /// The transport that the VMM has chosen.
    pub fn for_vcpu(vcpu: &CallingVcpu) -> Self {
        Self {
            kind: vcpu.param(|params| &params.transport),
            lock_spinning: port::at(ports::LOCK_SPINNING),
            unlock_kick: port::at(ports::UNLOCK_KICK),
            kick_and_halt: port::at(ports::KICK_AND_HALT),
            doorbell: port::at(ports::DOORBELL),
            yield_to: port::at(ports::YIELD_TO),
        }
    }

    fn is(&self, kind: payload::Transport) -> bool {
        self.kind == kind as u32
    }

    /// Halts until a kick; returns at once if one is pending.
    #[inline]
    pub fn halt(&self, ticket: u16) {
        if self.is(payload::Transport::Ports) {
            port::out32(self.lock_spinning, ticket.into());
        } else {
            hlt();
        }
    }

    /// Wakes the vCPU with this index, or makes its next halt return at once.
    #[inline]
    pub fn kick(&self, cpu: usize) {
        match self.kind {
            kind if kind == payload::Transport::Ports as u32 => {
                port::out32(self.unlock_kick, cpu as u32);
            }
            kind if kind == payload::Transport::Doorbell as u32 => {
                port::out32(self.doorbell, cpu as u32);
            }
            kind if kind == payload::Transport::Vmcall as u32 => vmcall_kick(cpu),
            _ => vmmcall_kick(cpu),
        }
    }

    /// Donates the rest of the slice to the vCPU with this index.
    pub fn yield_to(&self, cpu: usize) {
        port::out32(self.yield_to, cpu as u32);
    }

    /// Kicks and then halts, in one exit if the transport has a call for both.
    pub fn kick_and_halt(&self, cpu: usize, ticket: u16) {
        if self.is(payload::Transport::Ports) {
            port::out32(self.kick_and_halt, (cpu as u32) << 16 | u32::from(ticket));
        } else {
            self.kick(cpu);
            self.halt(ticket);
        }
    }
}

/// Executes HLT with interrupts off: only a kick ends it.
#[inline]
fn hlt() {
    // SAFETY: the VMM chooses this transport only if it enters the payload in ring 0 with
    // interrupts off; no memory that Rust knows of is accessed.
    unsafe { asm!("hlt", options(nostack, preserves_flags)) }
}

#[inline]
fn vmcall_kick(cpu: usize) {
    // SAFETY: in ring 0 under KVM, which reads the named registers and writes only RAX. RBX is
    // reserved by LLVM and restored.
    unsafe {
        asm!("xchg rbx, {flags}", "vmcall", "xchg rbx, {flags}",
            flags = inout(reg) 0_u64 => _, inout("rax") KVM_KICK_CPU => _, in("rcx") cpu,
            options(nostack))
    }
}

#[inline]
fn vmmcall_kick(cpu: usize) {
    // SAFETY: as for `vmcall_kick`.
    unsafe {
        asm!("xchg rbx, {flags}", "vmmcall", "xchg rbx, {flags}",
            flags = inout(reg) 0_u64 => _, inout("rax") KVM_KICK_CPU => _, in("rcx") cpu,
            options(nostack))
    }
}
