//! The agent's heartbeat.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{
    super::wire::{Beat, FromAgent},
    ControlSender,
};

/// Time between two heartbeats.
const PERIOD: Duration = Duration::from_millis(250);

/// Figures reported by heartbeats.
#[derive(Debug, Default)]
pub struct Pulse {
    muted: AtomicBool,
    child: AtomicU32,
    moved: [AtomicU64; 3],
}

impl Pulse {
    /// Stops the heartbeat.
    pub fn mute(&self) {
        self.muted.store(true, Relaxed);
    }

    /// Sets the process id of the command.
    pub fn set_child(&self, id: u32) {
        self.child.store(id, Relaxed);
    }

    /// Counts bytes moved on stream 0, 1 or 2.
    pub fn count_moved(&self, stream: usize, count: usize) {
        self.moved[stream].fetch_add(count as u64, Relaxed);
    }

    fn beat(&self, number: u64) -> Beat {
        Beat {
            number,
            ticks: fs::read_to_string("/proc/interrupts")
                .map_or_else(|_| Vec::new(), |text| ticks(&text)),
            cpu_time: self.cpu_time(),
            moved: [0, 1, 2].map(|stream: usize| self.moved[stream].load(Relaxed)),
        }
    }

    fn cpu_time(&self) -> u64 {
        let id = self.child.load(Relaxed);
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        cpu_time(&stat).unwrap_or(0)
    }
}

/// Starts the thread that sends heartbeats.
pub fn start(line: &ControlSender) -> io::Result<Arc<Pulse>> {
    let pulse = Arc::new(Pulse::default());
    let (line, figures) = (line.clone(), pulse.clone());
    thread::Builder::new().name("heartbeat".into()).spawn(move || {
        for number in 1.. {
            if !figures.muted.load(Relaxed) {
                // If the connection is closed, the listening thread ends the machine.
                let _ = line.send(&FromAgent::Beat(figures.beat(number)));
            }
            thread::sleep(PERIOD);
        }
    })?;
    Ok(pulse)
}

/// Returns each CPU's local timer interrupts, from /proc/interrupts.
fn ticks(interrupts: &str) -> Vec<u64> {
    let row = interrupts.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"));
    row.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// Returns the CPU time of a process and its ended children in clock ticks, from /proc/PID/stat
/// (proc(5), fields 14 to 17).
fn cpu_time(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let fields = after_name.split_whitespace().skip(11).take(4);
    fields.map(|field| field.parse().ok()).try_fold(0, |sum: u64, time| sum.checked_add(time?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_interrupts_are_read_for_each_cpu() {
        let text = "           CPU0       CPU1\n  0:  12  0  IO-APIC 2-edge timer\nNMI: 0 0 \
                    Non-maskable interrupts\nLOC:       1234       99   Local timer interrupts\n";
        assert_eq!(ticks(text), [1234, 99]);
        assert_eq!(ticks("nothing"), [0; 0]);
    }

    #[test]
    fn cpu_time_is_parsed_behind_any_name() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 30 12 5 1 20 0 1 0 99 1 2";
        assert_eq!(cpu_time(stat), Some(48));
        assert_eq!(cpu_time(""), None);
    }
}
