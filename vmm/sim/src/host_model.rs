//! Effects of a simulated host on its guests in addition to the schedule.

use base::host_extras::NoiseTimes;

use crate::time::Picos;

/// Optional host features. The default has none.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct HostModel {
    /// Pause-loop exiting.
    pub ple: Option<Ple>,
    /// Halt polling.
    pub halt_poll: Option<HaltPoll>,
    /// Background noise: other threads on the host.
    pub noise: Option<Noise>,
    /// Whether the host's kernel serves halts and kicks, as KVM does for Linux guests. Otherwise its VMM serves
    /// them, as pvticket does. The kernel always serves pause-loop exits.
    pub serves_in_kernel: bool,
}

/// Background noise: one host thread per CPU that preempts any vCPU, like an interrupt or a thread of a
/// higher scheduling class. The schedule does not know about it, so it appears as steal time.
///
/// The thread alternates between running and sleeping for exponential times with these means, plus a context
/// switch. While it runs, the vCPU on that CPU is stopped; a slice that expires in this time ends afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    /// Mean running time. Not zero.
    pub busy: Picos,
    /// Mean sleeping time. Not zero.
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
/// A PAUSE at most [`GAP`](Self::GAP) after the previous one belongs to the same loop. A PAUSE more than the
/// window after the first of its loop causes an exit, reported to the scheduler's core as
/// [`SpunOut`](sched::Event::SpunOut). A vCPU's window starts at `window`, grows with each of its exits
/// (`grow_ple_window`), and is reset to `window` when the vCPU gets a CPU (`shrink_ple_window`).
///
/// All guest code counts as ring 0. Intel processors have no such exits in other rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ple {
    /// The initial window in cycles.
    pub window: u32,
    /// Whether windows grow. Otherwise they stay constant.
    pub grows: bool,
}

impl Default for Ple {
    fn default() -> Self {
        Self { window: 4_096, grows: true }
    }
}

impl Ple {
    /// Maximum time between two PAUSEs of one loop.
    const GAP: u32 = 128;
    /// Growth of a window: a factor if it is less than `window`, otherwise an increment.
    const GROW: u32 = 2;

    /// Constant windows, as before Linux 3.18, which made windows grow (`ple_window_grow`, commit
    /// b4a2d31da812).
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
/// A halting vCPU keeps its CPU for its window and polls for a kick, unless another vCPU waits for a CPU,
/// before or during the poll (`kvm_vcpu_can_poll`; KVM checks this CPU, the model any CPU). The window starts
/// at zero. It grows after a halt longer than the window and shorter than `max`, and is reset to zero after a
/// halt longer than `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltPoll {
    /// Maximum window.
    pub max: Picos,
}

impl Default for HaltPoll {
    fn default() -> Self {
        Self { max: Picos(200_000_000) }
    }
}

impl HaltPoll {
    /// Growth factor of a window.
    const GROW: u64 = 2;
    /// Minimum nonzero window.
    const GROW_START: Picos = Picos(10_000_000);

    /// Returns the window after a halt of length `halted` that gave up the CPU.
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

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VcpuHalts {
    pub(crate) window: Picos,
    /// Start of its halt.
    pub(crate) since: Picos,
    /// Whether the vCPU has given up its CPU in that halt.
    pub(crate) blocks: bool,
    /// Whether a kick arrived before its halt.
    pub(crate) is_kicked: bool,
}

/// The pauses of a vCPU as detected by its CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PauseLoop {
    /// The times of the first and the last pause of the loop; `None` if none since the VM entry.
    since: Option<(Picos, Picos)>,
    window: u32,
}

impl PauseLoop {
    /// Starts a loop at `at` and discards earlier pauses.
    pub(crate) fn begin(&mut self, at: Picos) {
        self.since = Some((at, at));
    }
}

/// The PLE settings, with the clock rate that converts cycles to simulated time.
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

    /// Maximum duration of the next loop.
    pub(crate) fn window(&self, pause_loop: &PauseLoop) -> Picos {
        self.span(pause_loop.window)
    }

    /// The state of a vCPU that gets a CPU.
    pub(crate) fn reset(&self) -> PauseLoop {
        PauseLoop { since: None, window: self.ple.window }
    }

    /// Pauses at `at`, in a loop that repeats each `period`. Returns the number of pauses before the exit,
    /// including this pause, or `None` if it exits.
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
            // Each pause starts a new loop.
            return Some(u32::MAX);
        }
        let remaining = (first + window).since(at).0 / period.0.max(1) + 1;
        Some(remaining.min(u64::from(u32::MAX)) as u32)
    }

    /// Records that the loop has paused again, most recently at `at`.
    pub(crate) fn paused(pause_loop: &mut PauseLoop, at: Picos) {
        if let Some((_, last)) = &mut pause_loop.since {
            *last = at;
        }
    }

    /// Grows the window after an exit due to pauses.
    pub(crate) fn grow_window(&self, pause_loop: &mut PauseLoop) {
        *pause_loop = PauseLoop { since: None, window: self.ple.grown(pause_loop.window) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ple_windows_grow_like_kvm() {
        let usual = Ple::default();
        assert_eq!((usual.grown(4_096), usual.grown(1 << 31)), (8_192, u32::MAX));
        assert_eq!(Ple { window: 2, ..usual }.grown(4_096), 4_098);
        assert_eq!(Ple::fixed().grown(4_096), 4_096);
    }

    #[test]
    fn halt_poll_window_grows_and_resets() {
        let usual = HaltPoll::default();
        let us = |us: u64| Picos(us * 1_000_000);
        let after = |window, halted| usual.after(us(window), us(halted));
        assert_eq!([after(0, 5), after(10, 50), after(160, 190)], [us(10), us(20), us(200)]);
        assert_eq!([after(20, 15), after(20, 200), after(0, 300)], [us(20), us(20), us(0)]);
        assert_eq!(after(80, 300), Picos::ZERO);
    }

    #[test]
    fn pause_loops_exit_and_restart_after_a_gap() {
        // One cycle is 1 ns.
        let pauses = Pauses::new(Ple { window: 1_000, ..Ple::default() }, 1_000.0);
        let at = |nanos: u64| Picos(nanos * 1_000);
        let mut pause_loop = pauses.reset();
        // Pauses at 0, 100, ... 1000 are within the window; the pause at 1100 is outside.
        assert_eq!(pauses.pause(&mut pause_loop, at(0), at(100)), Some(11));
        Pauses::paused(&mut pause_loop, at(1_000));
        assert_eq!(pauses.pause(&mut pause_loop, at(1_100), at(100)), None);
        pauses.grow_window(&mut pause_loop);
        assert_eq!(pauses.pause(&mut pause_loop, at(1_200), at(100)), Some(21), "twice the window");
        assert_eq!(pauses.pause(&mut pause_loop, at(1_329), at(100)), Some(21), "another loop");
        assert_eq!(pauses.pause(&mut pause_loop, at(1_457), at(100)), Some(19), "the same");
        pause_loop = pauses.reset();
        assert_eq!(pauses.pause(&mut pause_loop, at(1_500), at(100)), Some(11));
        assert_eq!(
            pauses.pause(&mut pause_loop, at(1_600), at(129)),
            Some(u32::MAX),
            "too slow a loop"
        );
    }
}
