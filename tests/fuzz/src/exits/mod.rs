//! VM exits: KVM's record of each, decoded and handled without KVM.

mod host;

use std::{
    mem::offset_of,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use base::units::{ByteSize, Nanos, VcpuCount, VcpuId};
use boot::memory::regions;
use hypercalls::ports;
use kvm::{
    exit::{Exit, decode},
    sys::ram,
};
use kvm_bindings::{
    KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_IO, KVM_EXIT_MMIO, kvm_run,
    kvm_run__bindgen_ty_1__bindgen_ty_4 as Io,
};
use machine::{
    devices::{
        Devices, EventLog, FirstMisuse, bench::Bench, channel::StdinChannel,
        console_monitor::ConsoleMonitor, output::Output, serial::SerialPort,
    },
    vcpu::{
        VcpuShared,
        fault::{Dice, FaultPlan},
        host_view::HostView,
        shared::VcpuSharedSpec,
        step::{self, Next},
    },
};
use sched::halts::PendingKicks;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use self::host::{CountingSink, MockBench, MockHost, MockScheduler};
use crate::input::{Input, is_one_line};

/// Bytes that a vCPU shares with KVM on x86, and the offset of port data in them.
const MAPPED: usize = 3 << 12;
const PORT_DATA: usize = 1 << 12;
const UNION: usize = offset_of!(kvm_run, __bindgen_anon_1);

/// In place of a vCPU's number: delivers the delayed kicks.
const DELIVER_KICKS: u8 = 255;

/// Parts of the VM, one bit each.
const DICE: u8 = 1 << 0;
const HAS_DELAYED_KICKS: u8 = 1 << 1;
const SCHEDULER: u8 = 1 << 2;
const HALTS: u8 = 1 << 3;
const BENCH: u8 = 1 << 4;

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

fn shared(input: &mut Input<'_>, printed: &Arc<AtomicU64>) -> Arc<VcpuShared<MockHost>> {
    let vcpus = VcpuCount::try_from(1 + input.below(4) as u32).unwrap();
    let room = u64::from(input.half());
    let flags = input.byte();
    let has = |flag: u8| flags & flag != 0;
    let sink = || Box::new(CountingSink { bytes: printed.clone(), room });
    let monitor = Arc::<ConsoleMonitor>::default();
    let devices = Devices {
        com1: SerialPort::new(event(), event(), sink()).with_monitor(monitor.clone()),
        com2: SerialPort::new(event(), event(), sink()),
        stdin: StdinChannel::new(event()),
        stdout: Output::new(sink()),
        stderr: Output::new(sink()),
        end_signal: None,
        output_page: AtomicU32::new(0),
        misuse: FirstMisuse::new(),
        events: EventLog::new(event()),
        monitor,
        bench: has(BENCH).then(|| Arc::new(MockBench::default()) as Arc<dyn Bench>),
    };
    let _ = devices.stdin.push(b"input");
    let spec = "kick-drop:0.2,kick-dup:0.2,kick-delay:50us,spurious:0.2".parse().unwrap();
    let plan = FaultPlan { spec, seed: 7 };
    let dice = has(DICE).then(|| Dice::for_vcpus(&plan, 0, vcpus));
    let scheduler =
        has(SCHEDULER).then(|| MockScheduler { halts: has(HALTS), ..Default::default() });
    let memory = ram::map(&regions(ByteSize::mib(2)), 4096).unwrap();
    let host = MockHost::new(memory, scheduler);
    let host_view = HostView::default();
    let spec = VcpuSharedSpec { vcpus, dice, traced: false, symbols: None, host: host_view };
    let shared = Arc::new(VcpuShared::new(host, devices, event(), spec));
    let _ = shared.kicks.halts().host().shared.set(Arc::downgrade(&shared));
    if has(HAS_DELAYED_KICKS) {
        // `exits` delivers the kicks; unparking this thread does nothing.
        shared.kicks.register_delivery_thread(thread::current());
    }
    shared
}

fn put(pages: &mut [u8], at: usize, bytes: &[u8]) {
    pages[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An exit record: often a port access as KVM reports it, else anything.
fn record(input: &mut Input<'_>, pages: &mut [u8]) {
    let kind = input.byte();
    let reason = match kind % 8 {
        0..=4 => KVM_EXIT_IO,
        5 => KVM_EXIT_MMIO,
        6 => KVM_EXIT_INTERNAL_ERROR,
        _ => u32::from(input.byte()),
    };
    put(pages, offset_of!(kvm_run, exit_reason), &reason.to_le_bytes());
    if kind % 8 > 3 {
        return put(pages, UNION, &input.array::<64>());
    }
    let offset = u16::from(input.byte());
    let port =
        if kind & 0x40 == 0 { ports::DEFAULT_BASE + offset % ports::SPAN } else { offset * 4 };
    let (direction, width) = (kind >> 7, [1, 2, 4, 4][usize::from(kind >> 4 & 3)]);
    put(pages, UNION + offset_of!(Io, direction), &[direction]);
    put(pages, UNION + offset_of!(Io, size), &[width]);
    put(pages, UNION + offset_of!(Io, port), &port.to_le_bytes());
    put(pages, UNION + offset_of!(Io, count), &(1 + u32::from(input.byte() % 9)).to_le_bytes());
    put(pages, UNION + offset_of!(Io, data_offset), &(PORT_DATA as u64).to_le_bytes());
    put(pages, PORT_DATA, &input.array::<8>());
}

/// A guest that makes arbitrary exits, on up to four vCPUs.
pub fn exits(bytes: &[u8]) {
    const MAX_EXITS: usize = 300;
    let mut input = Input::new(bytes);
    let printed = Arc::new(AtomicU64::new(0));
    let shared = shared(&mut input, &printed);
    let vcpus = shared.counts().len();
    let (mut pages, mut has_left) = (vec![0; MAPPED], vec![false; vcpus]);
    let mut delayed = PendingKicks::default();
    let mut count = 0;
    while !input.is_empty() && count < MAX_EXITS {
        count += 1;
        let number = input.byte();
        if number == DELIVER_KICKS {
            assert_eq!(shared.kicks.deliver_due(&mut delayed, Nanos(u64::MAX)), None);
            continue;
        }
        let id = VcpuId(u32::from(number) % vcpus as u32);
        if has_left[id.0 as usize] {
            break;
        }
        shared.kicks.halts().host().current.store(id.0, Relaxed);
        record(&mut input, &mut pages);
        let Some(exit) = decode(&mut pages) else { continue };
        if let Exit::InternalError(suberror) = &exit {
            is_one_line(&suberror.to_string());
        }
        match step::handle(&shared, id, exit) {
            Next::Resume | Next::Interrupted | Next::NotStarted => continue,
            Next::Leave => {}
            Next::End(end) => shared.life.finish(end),
            Next::Fail(cause) => drop(format!("{cause:?}")),
        }
        // The vCPU's thread ends.
        has_left[id.0 as usize] = true;
    }
    let counts = shared.machine_counts().vcpus;
    assert!(counts.misuse <= count as u64);
    // Each exit prints at most a page.
    assert!(printed.load(Relaxed) <= count as u64 * 4096);
    let misuse = shared.devices.misuse.get();
    assert_eq!(counts.misuse > 0, misuse.is_some());
    if let Some(misuse) = misuse {
        is_one_line(&misuse.to_string());
    }
    if let Some(scheduler) = &shared.kicks.halts().host().scheduler {
        assert_eq!(scheduler.waiting.load(Relaxed), 0);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // For every fourth port of the contract, writes of each width and reads of 1 and 4 bytes.
    let port = |offset: u8| -> Vec<u8> {
        let head = [1, 0, 9, u8::from(offset.is_multiple_of(3))];
        let accesses = [0x80, 0xa0, 0x90, 0x00, 0x20]
            .into_iter()
            .flat_map(|kind| [&[0, kind, offset, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
        head.into_iter().chain(accesses).collect()
    };
    let odd = |kind: u8, next: u8| {
        [&[0, 255, 255, 0, 0, kind, next, 1, 0, 0, 0, 3, 0, 0, 0, 1][..], &[9; 50]].concat()
    };
    let contract = (0..ports::SPAN as u8).step_by(4).map(port);
    let machines = (0..32).flat_map(|flags| [0, 254, 255].map(|room| all_calls(flags, room)));
    let serial = [0x80, 0].map(|kind| [2, 255, 255, 0, 0, kind | 0x40, 254, 0, b'x', b'y', 0, 0]);
    contract
        .chain((0..8).map(|kind| odd(kind, 16)))
        .chain((0..40).map(|reason| odd(7, reason)))
        .chain([0, 1, 3].map(|suberror| odd(6, suberror)))
        .chain(machines)
        .chain(serial.map(Vec::from))
        .collect()
}

/// Returns the input that makes every call of the contract; calls that end the run are last.
fn all_calls(flags: u8, room: u8) -> Vec<u8> {
    let is_last = |offset: &u8| [ports::EXIT, ports::VCPU_DONE].contains(&u16::from(*offset));
    let (last, others): (Vec<u8>, Vec<u8>) = (0..ports::SPAN as u8).partition(is_last);
    let accesses = others.into_iter().chain(last).flat_map(|offset| {
        let byte_ports = ports::STDOUT as u8..=ports::STDIN as u8;
        let width = if byte_ports.contains(&offset) { 0 } else { 0x20 };
        let high = u16::from(offset) == ports::KICK_AND_HALT;
        let write = |n: u8| {
            // The last page of output is in memory or outside of it.
            let value = if flags.is_multiple_of(2) { n } else { 9 - n };
            let third = if high { n % 4 } else { u8::from(value == 9) };
            [n % 3, width | 0x80, offset, 0, value, 0, third, 0, 0, 0, 0, 0]
        };
        let read = [1, width, offset, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let writes: Vec<u8> = (0..10).flat_map(write).collect();
        [&writes[..], &read, &[DELIVER_KICKS]].concat()
    });
    [2, room, room, flags].into_iter().chain(accesses).collect()
}
