//! What a handoff between two threads costs at the least: one wakes the other and sleeps.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};

use crate::{
    clock::Moment,
    kvm::{futex, signal},
    lab::boot_bench::BenchError,
    units::CpuList,
};

/// Handoffs that are timed.
const HANDOFFS: u32 = 20_000;
/// Handoffs before.
const WARM_UP: u32 = 1_000;

/// Nanoseconds a handoff between two threads on `cpu`, each of which sleeps on a futex while the
/// other runs.
pub fn handoff(cpu: usize) -> Result<f64, BenchError> {
    let cpus = cpu.to_string().parse::<CpuList>().map_err(BenchError::Cpu)?;
    // Whose turn it is: thread n goes on when the word is n.
    let word = AtomicU32::new(0);
    let side = |me: u32| {
        let _ = signal::pin_this_thread(&cpus);
        let mut start = Moment::now();
        for count in 0..WARM_UP + HANDOFFS {
            if count == WARM_UP {
                start = Moment::now();
            }
            while word.load(SeqCst) != me {
                futex::wait(&word, 1 - me);
            }
            word.store(1 - me, SeqCst);
            futex::wake_one(&word);
        }
        Moment::now().since(start)
    };
    let took = thread::scope(|scope| {
        let other = scope.spawn(|| side(1));
        let mine = scope.spawn(|| side(0));
        mine.join().and_then(|mine| other.join().map(|other| mine.max(other)))
    });
    match took {
        Ok(took) => Ok(took.0 as f64 / f64::from(2 * HANDOFFS)),
        Err(_) => Err(BenchError::NoExits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_takes_some_time() {
        let cpu = signal::allowed_cpus()[0];
        assert!(handoff(cpu).unwrap() > 50.0);
    }
}
