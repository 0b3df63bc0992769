//! The smallest workloads: one byte of output.

use crate::port;
use crate::transport::TransportPorts;
use crate::vcpu::CallingVcpu;

/// Transmit register of the first serial port.
const COM1: u16 = 0x3f8;

/// vCPU 0 writes one byte.
pub fn hello(vcpu: &CallingVcpu) {
    if vcpu.index == 0 {
        port::out8(COM1, b'!');
        vcpu.publish(|slot| &slot.operations, 1);
    }
}

/// vCPU 0 writes one byte; then all vCPUs only halt.
pub fn idle(vcpu: &CallingVcpu) -> ! {
    hello(vcpu);
    let transport = TransportPorts::for_vcpu(vcpu);
    loop {
        transport.halt(0);
    }
}
