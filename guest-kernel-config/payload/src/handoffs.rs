//! Measures exits, kicks and halts one at a time.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use hypercalls::payload::{Ball, UNCLAIMED_PORT};

use crate::port;
use crate::telemetry::tsc;
use crate::transport::TransportPorts;
use crate::vcpu::CallingVcpu;

/// The ticket argument, which is only for diagnosis.
const NO_TICKET: u16 = 0;

/// Repeats `operation` until the VMM ends the workload, and records the TSC ticks of each.
fn sample(vcpu: &CallingVcpu, mut operation: impl FnMut()) {
    let mut count = 0;
    while !vcpu.stopped() {
        let start = tsc();
        operation();
        vcpu.sample(count, tsc().wrapping_sub(start));
        count += 1;
    }
}

/// Makes one exit to the VMM per operation, and nothing else.
pub fn port_exits(vcpu: &CallingVcpu) {
    vcpu.wait_for_go();
    sample(vcpu, || port::out32(UNCLAIMED_PORT, 0));
}

/// One of two vCPUs that kick each other.
struct Player<'a> {
    vcpu: &'a CallingVcpu,
    transport: TransportPorts,
    ball: &'static Ball,
    peer: usize,
    /// TSC ticks between the peer's announcement of its halt and the kick; zero: no wait for the halt.
    min_halt_ticks: u64,
}

impl Player<'_> {
    /// Waits for the peer's halt unless `min_halt_ticks` is zero, starts `turn` and kicks the peer.
    fn kick_peer(&self, turn: u32) {
        if self.min_halt_ticks != 0 {
            self.spin_while(|| !self.ball.has_announced(turn - 1));
            let start = tsc();
            self.spin_while(|| tsc().wrapping_sub(start) < self.min_halt_ticks);
        }
        self.ball.kicked_at.store(tsc(), Relaxed);
        self.ball.turn.store(turn, SeqCst);
        self.transport.kick(self.peer);
    }

    /// Halts until `turn` ends. Returns the TSC ticks since the peer ended it. Halts may return
    /// spuriously, and a kick may come before the halt.
    fn halt_for_turn(&self, turn: u32) -> u64 {
        self.ball.announce_halt(turn);
        while self.ball.turn.load(Acquire) == turn && !self.vcpu.stopped() {
            self.transport.halt(NO_TICKET);
        }
        tsc().wrapping_sub(self.ball.kicked_at.load(Relaxed))
    }

    fn spin_while(&self, condition: impl Fn() -> bool) {
        while condition() && !self.vcpu.stopped() {
            core::hint::spin_loop();
        }
    }
}

/// vCPU 0 and the last vCPU kick each other in turn.
pub fn ping_pong(vcpu: &CallingVcpu) {
    let last = vcpu.last();
    let player = Player {
        vcpu,
        transport: TransportPorts::for_vcpu(vcpu),
        ball: vcpu.ball(),
        peer: if vcpu.index == 0 { last } else { 0 },
        min_halt_ticks: u64::from(vcpu.param(|params| &params.think)) * 1000,
    };
    vcpu.wait_for_go();
    let mut turn = 0;
    if vcpu.index == 0 {
        let mut count = 0;
        while !vcpu.stopped() {
            player.kick_peer(turn + 1);
            let inward = player.halt_for_turn(turn + 1);
            let outward = player.ball.one_way.load(Relaxed);
            if player.ball.turn.load(Relaxed) == turn + 2 {
                vcpu.sample(count, outward.wrapping_add(inward));
                count += 1;
            }
            turn += 2;
        }
        // The peer may be halted for a turn that does not come.
        player.transport.kick(last);
    } else if vcpu.index == last {
        while !vcpu.stopped() {
            player.ball.one_way.store(player.halt_for_turn(turn), Relaxed);
            player.kick_peer(turn + 2);
            turn += 2;
        }
    }
}

/// vCPU 0 kicks the last vCPU, which spins.
pub fn kick_running(vcpu: &CallingVcpu) {
    let transport = TransportPorts::for_vcpu(vcpu);
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

/// vCPU 0 kicks itself and then halts.
pub fn pending_halt(vcpu: &CallingVcpu) {
    let transport = TransportPorts::for_vcpu(vcpu);
    vcpu.wait_for_go();
    if vcpu.index != 0 {
        return;
    }
    let mut count = 0;
    while !vcpu.stopped() {
        transport.kick(0);
        let start = tsc();
        transport.halt(NO_TICKET);
        vcpu.sample(count, tsc().wrapping_sub(start));
        count += 1;
    }
}
