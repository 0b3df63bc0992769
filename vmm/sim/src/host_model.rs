//! What a simulated host does to its guests beside the schedule.

use base::host_extras::NoiseTimes;

use crate::time::Picos;

/// What a host does beside the schedule. By default nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct HostModel {
    /// Stops guests that spin.
    pub ple: Option<Ple>,
    /// Lets vCPUs poll before they give up a CPU in a halt.
    pub halt_poll: Option<HaltPoll>,
    /// Runs other threads.
    pub noise: Option<Noise>,
}

/// A thread of the host on each CPU that goes before all vCPUs, as an interrupt or a thread of a
/// higher class does, and of which the schedule does not know: steal time.
///
/// It takes its CPU again and again, for exponential times with these means, plus a switch. The vCPU
/// that has the CPU stands still meanwhile, and the end of its turn waits, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    /// How long it runs. Not zero.
    pub busy: Picos,
    /// How long it sleeps. Not zero.
    pub idle: Picos,
}

impl From<NoiseTimes> for Noise {
    fn from(NoiseTimes { busy, idle }: NoiseTimes) -> Self {
        Self { busy: busy.into(), idle: idle.into() }
    }
}

/// Pause-loop exiting, with KVM's settings, in cycles (`ple_gap` and so on in
/// `arch/x86/kvm/vmx/vmx.c` and the defaults in `arch/x86/kvm/x86.h` of Linux 6.1).
///
/// A PAUSE at most [`GAP`](Self::GAP) after the last one belongs to the same loop, and one more than the window
/// after the first of its loop ends in an exit, which the scheduler's core is told as
/// [`SpunOut`](sched::Event::SpunOut). A vCPU's window is `window` at first. It grows with each of
/// its exits (`grow_ple_window`), and is `window` again when it gets a CPU (`shrink_ple_window`).
///
/// The guest counts as ring 0 throughout: elsewhere there are no such exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ple {
    /// The longest time in a loop.
    pub window: u32,
    /// Windows grow; otherwise every loop has the same.
    pub grows: bool,
}

impl Default for Ple {
    fn default() -> Self {
        Self { window: 4_096, grows: true }
    }
}

impl Ple {
    /// The longest time between two PAUSEs of a loop.
    const GAP: u32 = 128;
    /// Factor of a window's growth if it is less than `window`, otherwise its increment.
    const GROW: u32 = 2;

    /// As before Linux 3.18, which made windows grow (`ple_window_grow`, commit b4a2d31da812): every
    /// loop has the same.
    pub fn fixed() -> Self {
        Self { grows: false, ..Self::default() }
    }

    fn grown(&self, window: u32) -> u32 {
        match self.grows {
            false => self.window,
            true if Self::GROW < self.window => window.saturating_mul(Self::GROW),
            true => window.saturating_add(Self::GROW),
        }
    }
}

/// Halt polling, with KVM's settings (`halt_poll_ns` and so on in `virt/kvm/kvm_main.c` of Linux 6.1,
/// `KVM_HALT_POLL_NS_DEFAULT` of x86).
///
/// A vCPU that halts keeps its CPU for its window and polls for a kick, unless another vCPU waits for
/// a CPU, now or later (`kvm_vcpu_can_poll`; there for this CPU, here for any). Its window is zero at
/// first; it grows after a halt that was longer than the window and shorter than `max`, and is zero
/// after one that was longer than `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltPoll {
    /// The longest window.
    pub max: Picos,
}

impl Default for HaltPoll {
    fn default() -> Self {
        Self { max: Picos(200_000_000) }
    }
}

impl HaltPoll {
    /// Factor of a window's growth.
    const GROW: u64 = 2;
    /// The least window that is not zero.
    const GROW_START: Picos = Picos(10_000_000);

    /// The window after a halt that took `halted` and gave up its CPU.
    pub(crate) fn after(&self, window: Picos, halted: Picos) -> Picos {
        let next = if halted <= window {
            window
        } else if window > Picos::ZERO && halted > self.max {
            Picos::ZERO
        } else if window < self.max && halted < self.max {
            Picos(window.0.saturating_mul(Self::GROW)).max(Self::GROW_START)
        } else {
            window
        };
        next.min(self.max)
    }
}

/// A vCPU's halts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VcpuHalts {
    /// How long it polls.
    pub(crate) window: Picos,
    /// When its halt began.
    pub(crate) since: Picos,
    /// The vCPU has given up its CPU in that halt.
    pub(crate) blocks: bool,
    /// A kick came before the halt it is meant for.
    pub(crate) is_kicked: bool,
}

/// A vCPU's pauses as its CPU sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PauseLoop {
    /// The first and the last pause of the loop; none since it entered its guest.
    since: Option<(Picos, Picos)>,
    window: u32,
}

impl PauseLoop {
    /// A loop begins at `at`, and what was before does not count.
    pub(crate) fn begin(&mut self, at: Picos) {
        self.since = Some((at, at));
    }
}

/// The settings in simulated time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    ple: Ple,
    mhz: f64,
}

impl Pauses {
    pub(crate) fn new(ple: Ple, mhz: f64) -> Self {
        Self { ple, mhz }
    }

    fn span(&self, cycles: u32) -> Picos {
        Picos::from_nanos(f64::from(cycles) * 1e3 / self.mhz)
    }

    /// How long its next loop may last.
    pub(crate) fn window(&self, pause_loop: &PauseLoop) -> Picos {
        self.span(pause_loop.window)
    }

    /// A vCPU that gets a CPU.
    pub(crate) fn fresh(&self) -> PauseLoop {
        PauseLoop { since: None, window: self.ple.window }
    }

    /// The loop pauses at `at`, and would again each `period`. Returns the number of pauses, this one
    /// included, before the one that ends in an exit; `None`: this one does.
    pub(crate) fn pause(
        &self,
        pause_loop: &mut PauseLoop,
        at: Picos,
        period: Picos,
    ) -> Option<u32> {
        let (gap, window) = (self.span(Ple::GAP), self.span(pause_loop.window));
        let first = match pause_loop.since {
            Some((first, last)) if at.since(last) <= gap => first,
            _ => at,
        };
        if at.since(first) > window {
            return None;
        }
        pause_loop.since = Some((first, at));
        if period > gap {
            // Each is the first of a loop.
            return Some(u32::MAX);
        }
        let left = (first + window).since(at).0 / period.0.max(1) + 1;
        Some(left.min(u64::from(u32::MAX)) as u32)
    }

    /// The loop has paused again, for the last time at `at`.
    pub(crate) fn paused(pause_loop: &mut PauseLoop, at: Picos) {
        if let Some((_, last)) = &mut pause_loop.since {
            *last = at;
        }
    }

    /// The vCPU has left its guest because of its pauses.
    pub(crate) fn exits(&self, pause_loop: &mut PauseLoop) {
        *pause_loop = PauseLoop { since: None, window: self.ple.grown(pause_loop.window) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_kvms() {
        let usual = Ple::default();
        assert_eq!((usual.grown(4_096), usual.grown(1 << 31)), (8_192, u32::MAX));
        assert_eq!(Ple { window: 2, ..usual }.grown(4_096), 4_098);
        assert_eq!(Ple::fixed().grown(4_096), 4_096);
    }

    #[test]
    fn polls_grow_after_short_halts_and_end_after_long_ones() {
        let usual = HaltPoll::default();
        let us = |us: u64| Picos(us * 1_000_000);
        let after = |window, halted| usual.after(us(window), us(halted));
        assert_eq!([after(0, 5), after(10, 50), after(160, 190)], [us(10), us(20), us(200)]);
        assert_eq!([after(20, 15), after(20, 200), after(0, 300)], [us(20), us(20), us(0)]);
        assert_eq!(after(80, 300), Picos::ZERO);
    }

    #[test]
    fn a_loop_of_pauses_ends_in_an_exit_and_a_gap_begins_another() {
        // One cycle is a nanosecond.
        let pauses = Pauses::new(Ple { window: 1_000, ..Ple::default() }, 1_000.0);
        let at = |nanos: u64| Picos(nanos * 1_000);
        let mut pause_loop = pauses.fresh();
        // Pauses at 0, 100, ... 1000 are within the window, the one at 1100 is not.
        assert_eq!(pauses.pause(&mut pause_loop, at(0), at(100)), Some(11));
        Pauses::paused(&mut pause_loop, at(1_000));
        assert_eq!(pauses.pause(&mut pause_loop, at(1_100), at(100)), None);
        pauses.exits(&mut pause_loop);
        assert_eq!(pauses.pause(&mut pause_loop, at(1_200), at(100)), Some(21), "twice the window");
        assert_eq!(pauses.pause(&mut pause_loop, at(1_329), at(100)), Some(21), "another loop");
        assert_eq!(pauses.pause(&mut pause_loop, at(1_457), at(100)), Some(19), "the same");
        pause_loop = pauses.fresh();
        assert_eq!(pauses.pause(&mut pause_loop, at(1_500), at(100)), Some(11));
        assert_eq!(
            pauses.pause(&mut pause_loop, at(1_600), at(129)),
            Some(u32::MAX),
            "too slow a loop"
        );
    }
}
