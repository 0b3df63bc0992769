//! The thread of one vCPU: enter, handle, repeat.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use super::{
    Board, Cause, End, Failure, Stopped,
    step::{self, Next},
};
use crate::{
    kvm::{KvmError, Vcpu, signal},
    units::CpuList,
};

/// Stack of a vCPU thread: the exit path is shallow and allocates nothing.
const STACK_BYTES: usize = 256 << 10;

/// Between two entries of a vCPU that its guest has not started, where KVM does not let its thread
/// sleep: a kick that came before is pending until its first HLT, and none consumes it.
const REST: Duration = Duration::from_millis(10);

/// Starts the thread of `vcpu`, restricted to these CPUs if there are any.
pub fn spawn(
    vcpu: Vcpu,
    board: Arc<Board>,
    affinity: Option<CpuList>,
) -> io::Result<JoinHandle<()>> {
    Builder::new()
        .name(format!("vcpu{}", vcpu.id().0))
        .stack_size(STACK_BYTES)
        .spawn(move || run(vcpu, &board, affinity.as_ref()))
}

fn run(mut vcpu: Vcpu, board: &Board, affinity: Option<&CpuList>) {
    match prepare(&vcpu, affinity).and_then(|()| enter(&vcpu, board)) {
        Ok(()) => drive(&mut vcpu, board),
        Err(error) => fail(&vcpu, board, Cause::Kvm(error)),
    }
    // Also if it never came in: the schedule waits for it no longer.
    if let Some(gate) = &board.gate {
        gate.leave(vcpu.id());
    }
}

fn enter(vcpu: &Vcpu, board: &Board) -> Result<(), KvmError> {
    let entered = board.gate.as_ref().map_or(Ok(()), |gate| gate.enter(vcpu.id()));
    entered.map_err(KvmError::Signal)
}

fn drive(vcpu: &mut Vcpu, board: &Board) {
    let id = vcpu.id();
    let counters = board.counters(id);
    while !board.stopping() {
        let next = match vcpu.run() {
            Ok(exit) => {
                counters.exits.bump();
                if let Some(gate) = &board.gate {
                    gate.came_out(id);
                }
                step::handle(board, id, exit)
            }
            Err(error) => Next::Fail(Cause::Kvm(error)),
        };
        if matches!(next, Next::NotStarted) && vcpu.awaits_start() {
            thread::sleep(REST);
        }
        if let (Next::Interrupted | Next::NotStarted, Some(gate)) = (&next, &board.gate) {
            gate.interrupted(id, &Outside { vcpu, board });
        }
        match next {
            Next::Resume | Next::Interrupted | Next::NotStarted => {}
            Next::Leave => return,
            Next::End(end) => return board.finish(end),
            Next::Fail(cause) => return fail(vcpu, board, cause),
        }
    }
}

/// A vCPU whose run a signal has ended.
struct Outside<'a> {
    vcpu: &'a Vcpu,
    board: &'a Board,
}

impl Stopped for Outside<'_> {
    fn is_in_user_mode(&self) -> Option<bool> {
        self.vcpu.is_in_user_mode()
    }

    fn preempt_count(&self) -> Option<u32> {
        self.vcpu.per_cpu_word(self.board.preempt_count?, self.board.vm.memory()).map(|word| {
            // Bit 31, inverted, says that the guest's scheduler is wanted (asm/preempt.h).
            word & !(1 << 31)
        })
    }

    fn is_in_hlt(&self) -> bool {
        self.board.vm.wiring().has_halt() && self.vcpu.is_halted()
    }
}

fn prepare(vcpu: &Vcpu, affinity: Option<&CpuList>) -> Result<(), KvmError> {
    vcpu.arm_kick()?;
    affinity.map_or(Ok(()), signal::pin_this_thread).map_err(KvmError::Affinity)
}

fn fail(vcpu: &Vcpu, board: &Board, cause: Cause) {
    let rip = vcpu.regs().ok().map(|regs| regs.rip);
    board.finish(End::Failed(Failure { vcpu: vcpu.id(), rip, cause }));
}
