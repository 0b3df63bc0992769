//! Decides whether the emulated host is frozen, and whether it may be restarted.
//!
//! Pure: the time is an argument, counted from any origin.
//!
//! The signs of life are those that a frozen machine cannot fake: the agent's heartbeat, and every
//! CPU's timer interrupts in it. The emulator's known bug stops one CPU's timer for good while the
//! others continue, so the heartbeat alone would not show it. The emulated host's kernel ticks
//! periodically on each CPU (`nohz=off`), busy or idle. The *command's* activity is not considered:
//! a guest that hangs is not a freeze of its host.

use std::{fmt, time::Duration};

use crate::wire::Beat;

/// Maximum times of the emulated host without a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceLimits {
    /// From the start of the emulator to the agent's first message.
    pub boot: Duration,
    /// Between heartbeats, and between timer interrupts of any one CPU.
    pub silence: Duration,
}

/// Reason why the emulated host counts as frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeze {
    /// The emulated host did not come up.
    Boot {
        /// Time since its start.
        after: Duration,
    },
    /// No heartbeat arrives.
    Silent {
        /// Time since the last heartbeat.
        after: Duration,
    },
    /// One CPU takes no timer interrupts while others do.
    Cpu {
        /// Number of the emulated host's CPU.
        cpu: usize,
        /// Time since its last interrupt.
        after: Duration,
    },
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot { after } => {
                write!(f, "it was not up {:.1} s after its start", seconds(after))
            }
            Self::Silent { after } => write!(f, "no heartbeat for {:.1} s", seconds(after)),
            Self::Cpu { cpu, after } => {
                write!(f, "its CPU {cpu} took no timer interrupt for {:.1} s", seconds(after))
            }
        }
    }
}

fn seconds(time: &Duration) -> f64 {
    time.as_secs_f64()
}

/// Watches one session of the emulated host.
#[derive(Debug)]
pub struct LivenessWatch {
    limits: SilenceLimits,
    started: Duration,
    last_check: Duration,
    last_beat: Option<Duration>,
    cpus: Vec<CpuSign>,
}

#[derive(Debug, Clone, Copy)]
struct CpuSign {
    ticks: u64,
    changed: Duration,
}

/// The supervisor checks several times a second. If it did not check for this long, it was stopped itself
/// (Ctrl-Z, suspend, a busy system), and the pause does not count as silence.
const MAX_CHECK_GAP: Duration = Duration::from_secs(2);

impl LivenessWatch {
    /// Creates the watch when the emulator has just been started.
    pub fn new(limits: SilenceLimits, now: Duration) -> Self {
        Self { limits, started: now, last_check: now, last_beat: None, cpus: Vec::new() }
    }

    /// Records the agent's first message.
    pub fn hello(&mut self, now: Duration) {
        self.last_beat = Some(now);
    }

    pub fn beat(&mut self, beat: &Beat, now: Duration) {
        self.last_beat = Some(now);
        if self.cpus.len() != beat.ticks.len() {
            self.cpus = beat.ticks.iter().map(|&ticks| CpuSign { ticks, changed: now }).collect();
            return;
        }
        for (cpu, &ticks) in self.cpus.iter_mut().zip(&beat.ticks) {
            if cpu.ticks != ticks {
                *cpu = CpuSign { ticks, changed: now };
            }
        }
    }

    /// Returns the reason if the machine is frozen. To be called several times a second. `starved` is the time that
    /// QEMU was runnable without a CPU since the last call. It does not count as silence.
    pub fn check(&mut self, now: Duration, starved: Duration) -> Option<Freeze> {
        let pause = now.saturating_sub(self.last_check);
        self.last_check = now;
        self.discount(if pause > MAX_CHECK_GAP { pause } else { starved }, now);
        let Some(beat) = self.last_beat else {
            let after = now.saturating_sub(self.started);
            return (after > self.limits.boot).then_some(Freeze::Boot { after });
        };
        let after = now.saturating_sub(beat);
        if after > self.limits.silence {
            return Some(Freeze::Silent { after });
        }
        // Judged by the last heartbeat, as later states of the CPUs are unknown.
        self.cpus.iter().enumerate().find_map(|(cpu, sign)| {
            let after = beat.saturating_sub(sign.changed);
            (after > self.limits.silence).then_some(Freeze::Cpu { cpu, after })
        })
    }

    /// Subtracts lost time from the age of all observations, without moving any into the future.
    fn discount(&mut self, lost: Duration, now: Duration) {
        let later = |time: Duration| (time + lost).min(now).max(time);
        self.started = later(self.started);
        self.last_beat = self.last_beat.map(later);
        for cpu in &mut self.cpus {
            cpu.changed = later(cpu.changed);
        }
    }
}

/// Whether the command can be repeated with no visible effect except the delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeatable {
    /// The output has not been seen, and the input is still kept.
    Yes,
    /// Some output has been passed on already.
    OutputSeen,
    /// More input was consumed than is kept.
    InputUsed,
}

/// Decision after a freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start a new machine. Contains the number of restarts used, including this restart.
    Restart(u32),
    /// End with an error.
    GiveUp(GiveUp),
}

/// Reason why there is no further restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// All restarts are used.
    Exhausted,
    /// Repeating the command would repeat output.
    OutputSeen,
    /// The command's input cannot be repeated.
    InputUsed,
}

/// Decides after a freeze, when `used` of `allowed` restarts have been used.
pub fn after_freeze(used: u32, allowed: u32, repeatable: Repeatable) -> Decision {
    match repeatable {
        _ if used >= allowed => Decision::GiveUp(GiveUp::Exhausted),
        Repeatable::OutputSeen => Decision::GiveUp(GiveUp::OutputSeen),
        Repeatable::InputUsed => Decision::GiveUp(GiveUp::InputUsed),
        Repeatable::Yes => Decision::Restart(used + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SilenceLimits =
        SilenceLimits { boot: Duration::from_secs(60), silence: Duration::from_secs(20) };

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(100.0 + seconds)
    }

    /// Checks every quarter of a second up to `until`. Returns the time of the freeze.
    fn check_until(watch: &mut LivenessWatch, from: f64, until: f64) -> Option<(f64, Freeze)> {
        let steps = ((until - from) / 0.25) as u32;
        (1..=steps).find_map(|step| {
            let now = from + f64::from(step) * 0.25;
            watch.check(at(now), Duration::ZERO).map(|freeze| (now, freeze))
        })
    }

    fn beat(number: u64, ticks: &[u64]) -> Beat {
        Beat { number, ticks: ticks.to_vec(), ..Beat::default() }
    }

    #[test]
    fn a_failed_start_counts_as_frozen() {
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        let (when, freeze) = check_until(&mut watch, 0.0, 100.0).unwrap();
        assert_eq!(when, 60.25);
        assert!(matches!(freeze, Freeze::Boot { .. }));
    }

    #[test]
    fn silence_is_counted_from_the_last_sign() {
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        watch.hello(at(2.0));
        assert_eq!(check_until(&mut watch, 0.0, 10.0), None);
        watch.beat(&beat(1, &[5, 5]), at(10.0));
        let (when, freeze) = check_until(&mut watch, 10.0, 100.0).unwrap();
        assert_eq!(when, 30.25);
        assert!(matches!(freeze, Freeze::Silent { .. }));
    }

    #[test]
    fn one_stopped_cpu_among_living_ones_is_a_freeze() {
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        watch.hello(at(0.0));
        let frozen = (0..200u64).find_map(|quarter| {
            let now = quarter as f64 * 0.25;
            let stopped = if now < 5.0 { quarter * 62 } else { 1240 };
            watch.beat(&beat(quarter, &[quarter * 62, stopped]), at(now));
            watch.check(at(now), Duration::ZERO).map(|freeze| (now, freeze))
        });
        let (when, freeze) = frozen.unwrap();
        assert!(matches!(freeze, Freeze::Cpu { cpu: 1, .. }), "{freeze}");
        assert!((25.0..26.0).contains(&when), "{when}");
    }

    #[test]
    fn an_idle_errand_is_no_freeze() {
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        watch.hello(at(0.0));
        for quarter in 0..4000u64 {
            let now = at(quarter as f64 * 0.25);
            watch.beat(&beat(quarter, &[quarter, quarter]), now);
            assert_eq!(watch.check(now, Duration::ZERO), None);
        }
    }

    #[test]
    fn supervisor_pauses_do_not_count_as_silence() {
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        watch.hello(at(1.0));
        watch.beat(&beat(1, &[9]), at(2.0));
        assert_eq!(check_until(&mut watch, 0.0, 15.0), None);
        // After a stop of an hour, 7 s of the 20 remain.
        assert_eq!(watch.check(at(3615.0), Duration::ZERO), None);
        let (when, _) = check_until(&mut watch, 3615.0, 3700.0).unwrap();
        assert_eq!(when, 3622.25);
        // The same if a heartbeat that waited in the socket during the pause is read first.
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        watch.beat(&beat(1, &[9]), at(1.0));
        watch.beat(&beat(2, &[10]), at(3600.0));
        assert_eq!(watch.check(at(3600.0), Duration::ZERO), None);
        let (when, _) = check_until(&mut watch, 3600.0, 3700.0).unwrap();
        assert_eq!(when, 3620.25);
    }

    #[test]
    fn starvation_does_not_count_as_silence() {
        let half_starved = Duration::from_millis(125);
        let mut watch = LivenessWatch::new(LIMITS, at(0.0));
        let when = (1..1000u32).map(|quarter| f64::from(quarter) * 0.25).find(|&now| {
            let starved = if now < 100.0 { half_starved } else { Duration::ZERO };
            watch.check(at(now), starved).is_some()
        });
        // The 399 checks that lost half of their time count half, the others in full.
        assert_eq!(when, Some(110.0));
    }

    #[test]
    fn restarts_are_bounded_and_never_repeat_output() {
        use Repeatable::{InputUsed, OutputSeen, Yes};
        assert_eq!(after_freeze(0, 2, Yes), Decision::Restart(1));
        assert_eq!(after_freeze(1, 2, Yes), Decision::Restart(2));
        assert_eq!(after_freeze(2, 2, Yes), Decision::GiveUp(GiveUp::Exhausted));
        assert_eq!(after_freeze(0, 0, Yes), Decision::GiveUp(GiveUp::Exhausted));
        assert_eq!(after_freeze(0, 2, OutputSeen), Decision::GiveUp(GiveUp::OutputSeen));
        assert_eq!(after_freeze(0, 2, InputUsed), Decision::GiveUp(GiveUp::InputUsed));
    }
}
