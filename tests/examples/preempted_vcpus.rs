//! In a Linux guest: compares the bytes that `vcpu_is_preempted()` reads with the progress of the vCPUs.
//!
//! A thread on each vCPU but the first counts. The main thread, on the first, reads a vCPU's steal-time record
//! from /proc/kcore, its counter, and after an interval both again. The record's version changes whenever the vCPU
//! gets its CPU back, so with two equal records the vCPU was in one state for the entire interval: preempted vCPUs
//! cannot have counted, others must have. The argument is the number of samples. Prints how many are of each kind, and
//! how many of them are wrong.

#![forbid(unsafe_code)]

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Far above the time between two increments of a counter, and far below a slice.
const INTERVAL: Duration = Duration::from_micros(500);

/// Bytes of `struct kvm_steal_time` up to the end of `preempted`.
const RECORD: usize = 17;

/// The guest's memory by kernel addresses.
struct Kcore {
    file: File,
    /// Address, size and offset in the file.
    segments: Vec<[u64; 3]>,
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Kcore {
    /// Reads the program headers (elf(5)).
    fn open() -> anyhow::Result<Self> {
        let file = File::open("/proc/kcore").context("/proc/kcore")?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        let (at, count) = (word(&header[32..40]), word(&header[56..58]));
        let mut headers = vec![0; usize::try_from(56 * count)?];
        file.read_exact_at(&mut headers, at)?;
        let segment = |header: &[u8]| [16, 40, 8].map(|field| word(&header[field..field + 8]));
        let segments = headers.chunks(56).map(segment).collect();
        Ok(Self { file, segments })
    }

    fn read<const N: usize>(&self, address: u64) -> anyhow::Result<[u8; N]> {
        let is_in = |[start, size, _]: &&[u64; 3]| address.wrapping_sub(*start) < *size;
        let [start, _, offset] = self.segments.iter().find(is_in).context("no such address")?;
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, address - start + offset)?;
        Ok(bytes)
    }
}

/// Returns the addresses of the vCPUs' records.
fn records(kcore: &Kcore, vcpus: usize) -> anyhow::Result<Vec<u64>> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let address = |name: &str| {
        let mut lines = symbols.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line.get(2) == Some(&name));
        u64::from_str_radix(line.with_context(|| format!("no symbol {name}"))?[0], 16)
            .with_context(|| format!("the address of {name}"))
    };
    let (record, offsets) = (address("steal_time")?, address("__per_cpu_offset")?);
    let record_of = |vcpu| Ok(record.wrapping_add(word(&kcore.read::<8>(offsets + 8 * vcpu)?)));
    (0..vcpus as u64).map(record_of).collect()
}

fn run_on(vcpu: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(vcpu);
    sched_setaffinity(None, &set)
}

fn count(vcpu: usize, counter: &AtomicU64) {
    if run_on(vcpu).is_ok() {
        loop {
            counter.fetch_add(1, SeqCst);
        }
    }
}

fn main() -> anyhow::Result<()> {
    let samples: u64 = env::args().nth(1).context("no number of samples")?.parse()?;
    let vcpus = thread::available_parallelism()?.get();
    let kcore = Kcore::open()?;
    let records = records(&kcore, vcpus)?;
    let counters: &[AtomicU64] = Vec::leak((0..vcpus).map(|_| AtomicU64::new(0)).collect());
    run_on(0)?;
    for (vcpu, counter) in counters.iter().enumerate().skip(1) {
        thread::spawn(move || count(vcpu, counter));
    }
    while counters.iter().skip(1).any(|counter| counter.load(SeqCst) == 0) {
        thread::yield_now();
    }
    let [mut preempted, mut running, mut ran, mut stood] = [0; 4];
    for vcpu in (1..vcpus).cycle() {
        let record = kcore.read::<RECORD>(records[vcpu])?;
        let counted = counters[vcpu].load(SeqCst);
        let began = Instant::now();
        while began.elapsed() < INTERVAL {}
        let has_counted = counters[vcpu].load(SeqCst) != counted;
        // The version and `preempted`. `steal` is written between two versions.
        if record[8..] != kcore.read::<RECORD>(records[vcpu])?[8..] {
            continue;
        }
        let is_preempted = record[16] & 1 == 1;
        *if is_preempted { &mut preempted } else { &mut running } += 1;
        ran += u64::from(is_preempted && has_counted);
        stood += u64::from(!is_preempted && !has_counted);
        if preempted + running == samples {
            break;
        }
    }
    println!(
        "preempted {preempted}, of which ran {ran}; running {running}, of which stood {stood}"
    );
    Ok(())
}
