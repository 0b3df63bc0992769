//! Times of switches between vCPUs that share a slot, measured in the guest.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use hypercalls::payload::Stamp;

use crate::telemetry::tsc;
use crate::vcpu::CallingVcpu;

/// Stamps a shared word repeatedly. A vCPU that finds another vCPU's stamp there has just been
/// switched to: the switch took the time since that stamp. A vCPU that is preempted between reading
/// the word and stamping it finds the word changed when it runs again, and starts over: no sample
/// contains another vCPU's slice.
#[inline(never)]
pub(super) fn time(vcpu: &CallingVcpu) {
    let stamp = vcpu.stamp();
    vcpu.wait_for_go();
    while !vcpu.stopped() {
        let current = stamp.load(Acquire);
        let now = Stamp { vcpu: vcpu.index, tsc: tsc() };
        if stamp.compare_exchange(current, now.word(), AcqRel, Acquire).is_err() {
            continue;
        }
        if let Some(last) = Stamp::parse(current)
            && last.vcpu != vcpu.index
            && let Some(now) = Stamp::parse(now.word())
        {
            vcpu.record_latency(now.tsc.saturating_sub(last.tsc));
            vcpu.add(|slot| &slot.operations, 1);
        }
    }
}
