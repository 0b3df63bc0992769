//! Misuses the contract's ports as a broken or hostile guest would.

use hypercalls::ports;

use crate::port;
use crate::vcpu::CallingVcpu;

/// The index of a vCPU that does not exist.
const UNKNOWN_VCPU: u32 = 0xdead;

/// vCPU 0 accesses the lock ports in every wrong width and direction and kicks an unknown vCPU.
/// `operations` counts the accesses of wrong width, `kicks` the kicks, and `violations` the reads
/// that did not return zeros.
pub fn run(vcpu: &CallingVcpu) {
    if vcpu.index != 0 {
        return;
    }
    let (mut operations, mut violations) = (0, 0);
    for offset in [ports::LOCK_SPINNING, ports::UNLOCK_KICK] {
        let port = port::at(offset);
        port::out8(port, 0xff);
        port::out16(port, 0xffff);
        for read in [port::in8(port).into(), port::in16(port).into(), port::in32(port)] {
            violations += u64::from(read != 0);
        }
        // Excludes the 32-bit read: it is undefined but has the ports' width.
        operations += 4;
    }
    port::out32(port::at(ports::UNLOCK_KICK), UNKNOWN_VCPU);
    vcpu.publish(|slot| &slot.operations, operations);
    vcpu.publish(|slot| &slot.violations, violations);
    vcpu.publish(|slot| &slot.kicks, 1);
}
