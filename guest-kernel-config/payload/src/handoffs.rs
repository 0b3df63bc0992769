//! What exits, kicks and halts cost, one at a time.

use hypercalls::payload::UNCLAIMED_PORT;

use crate::port;
use crate::telemetry::tsc;
use crate::transport::Transport;
use crate::vcpu::Vcpu;

/// A ticket for diagnosis.
const NO_TICKET: u16 = 0;

/// vCPU 0 does `operation` again and again and keeps how long each took.
fn sample(vcpu: &Vcpu, mut operation: impl FnMut()) {
    let mut done = 0;
    while !vcpu.stopped() {
        let began = tsc();
        operation();
        vcpu.sample(done, tsc().wrapping_sub(began));
        done += 1;
    }
}

/// One exit to the VMM per operation, and nothing else.
pub fn port_exits(vcpu: &Vcpu) {
    vcpu.wait_for_go();
    sample(vcpu, || port::out32(UNCLAIMED_PORT, 0));
}

/// vCPU 0 kicks the last one and halts until that one kicks it.
///
/// The turns are counted in shared memory: halts may return for no reason, and a kick may come
/// before its halt.
pub fn ping_pong(vcpu: &Vcpu) {
    let transport = Transport::of(vcpu);
    let last = vcpu.last();
    vcpu.wait_for_go();
    if vcpu.index == 0 {
        let mut turn = 0;
        sample(vcpu, || {
            turn += 1;
            vcpu.set_ball(turn);
            transport.kick(last);
            while vcpu.ball() == turn && !vcpu.stopped() {
                transport.halt(NO_TICKET);
            }
            turn += 1;
        });
        // It may halt for a turn that does not come.
        transport.kick(last);
    } else if vcpu.index == last {
        let mut turn = 0;
        while !vcpu.stopped() {
            while vcpu.ball() == turn && !vcpu.stopped() {
                transport.halt(NO_TICKET);
            }
            turn = vcpu.ball() + 1;
            vcpu.set_ball(turn);
            transport.kick(0);
        }
    }
}

/// vCPU 0 kicks the last one, which spins.
pub fn kick_running(vcpu: &Vcpu) {
    let transport = Transport::of(vcpu);
    let last = vcpu.last();
    vcpu.wait_for_go();
    if vcpu.index == 0 {
        sample(vcpu, || transport.kick(last));
    } else {
        while !vcpu.stopped() {
            core::hint::spin_loop();
        }
    }
}

/// vCPU 0 kicks itself, and only then halts.
pub fn pending_halt(vcpu: &Vcpu) {
    let transport = Transport::of(vcpu);
    vcpu.wait_for_go();
    if vcpu.index != 0 {
        return;
    }
    let mut done = 0;
    while !vcpu.stopped() {
        transport.kick(0);
        let began = tsc();
        transport.halt(NO_TICKET);
        vcpu.sample(done, tsc().wrapping_sub(began));
        done += 1;
    }
}
