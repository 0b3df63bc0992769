//! The thread of one vCPU: enter the guest, handle the exit, repeat.

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
use crate::units::CpuList;
use confine::Class;
use kvm::{KvmError, Vcpu, signal};

/// Stack of a vCPU thread: the exit path is shallow and allocates nothing.
const STACK_BYTES: usize = 256 << 10;

/// Pause between two entries of a vCPU that its guest has not started. KVM does not let its thread
/// sleep if an earlier kick is pending, which only a HLT of the vCPU could consume.
const REST: Duration = Duration::from_millis(10);

/// Starts the thread of `vcpu`, pinned to `affinity` if that is given.
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
    board.host.enter(vcpu.id());
    match prepare(&vcpu, affinity).and_then(|()| enter(&vcpu, board)) {
        Ok(()) => {
            // Not before: the first vCPU of a schedule starts its idle watchers.
            confine::enter(Class::Vcpu);
            drive(&mut vcpu, board);
        }
        Err(error) => fail(&vcpu, board, Cause::Kvm(error)),
    }
    // Also if it never entered: the schedule must not wait for it.
    if let Some(scheduler) = board.scheduler() {
        scheduler.leave(vcpu.id());
    }
}

fn enter(vcpu: &Vcpu, board: &Board) -> Result<(), KvmError> {
    let entered = board.scheduler().map_or(Ok(()), |scheduler| scheduler.enter(vcpu.id()));
    entered.map_err(KvmError::Signal)
}

fn drive(vcpu: &mut Vcpu, board: &Board) {
    let id = vcpu.id();
    let counters = board.counters(id);
    while !board.stopping() {
        let next = match vcpu.run() {
            Ok(exit) => {
                counters.exits.bump();
                if let Some(scheduler) = board.scheduler() {
                    scheduler.came_out(id);
                }
                step::handle(board, id, exit)
            }
            Err(error) => Next::Fail(Cause::Kvm(error)),
        };
        if matches!(next, Next::NotStarted) && vcpu.awaits_start() {
            thread::sleep(REST);
        }
        if let (Next::Interrupted | Next::NotStarted, Some(scheduler)) = (&next, board.scheduler())
        {
            scheduler.interrupted(id, &Outside { vcpu, board });
        }
        match next {
            Next::Resume | Next::Interrupted | Next::NotStarted => {}
            Next::Leave => return,
            Next::End(end) => return board.life.finish(end),
            Next::Fail(cause) => return fail(vcpu, board, cause),
        }
    }
}

/// A vCPU outside the guest, after a signal ended its run.
struct Outside<'a> {
    vcpu: &'a Vcpu,
    board: &'a Board,
}

impl Stopped for Outside<'_> {
    fn is_in_user_mode(&self) -> Option<bool> {
        self.vcpu.is_in_user_mode()
    }

    fn preempt_count(&self) -> Option<u32> {
        self.vcpu.per_cpu_word(self.board.preempt_count?, self.board.memory()).map(|word| {
            // Bit 31, inverted, says that the guest's scheduler should run (asm/preempt.h).
            word & !(1 << 31)
        })
    }

    fn is_in_hlt(&self) -> bool {
        self.board.vm().wiring().has_halt() && self.vcpu.is_halted()
    }
}

fn prepare(vcpu: &Vcpu, affinity: Option<&CpuList>) -> Result<(), KvmError> {
    vcpu.arm_kick()?;
    affinity.map_or(Ok(()), signal::pin_this_thread).map_err(KvmError::Affinity)
}

fn fail(vcpu: &Vcpu, board: &Board, cause: Cause) {
    let rip = vcpu.regs().ok().map(|regs| regs.rip);
    board.life.finish(End::Failed(Failure { vcpu: vcpu.id(), rip, cause }));
}
