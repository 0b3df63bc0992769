//! Exits of a guest: KVM's record of each, decoded and handled on a machine without KVM.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    mem::offset_of,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use base::units::{ByteSize, VcpuCount, VcpuId};
use boot::memory::regions;
use halts::{HaltScheduler, Host};
use hypercalls::ports;
use kvm::{
    exit::decode,
    sys::ram::{self, Ram},
};
use kvm_bindings::{
    KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_IO, KVM_EXIT_MMIO, kvm_run,
    kvm_run__bindgen_ty_1__bindgen_ty_4 as Io,
};
use pvticket::{
    machine::{
        Devices, EventLog, FirstMisuse,
        channel::StdinChannel,
        output::{Output, Sink},
        serial::SerialPort,
    },
    vcpu::{
        Board, MachineHost, VcpuScheduler,
        board::BoardSpec,
        fault::{Dice, FaultPlan},
        host_view::HostView,
        step::{self, Next},
    },
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::input::Input;

/// Bytes that a vCPU shares with KVM on x86, and where the data of ports is in them.
const MAPPED: usize = 3 << 12;
const PORT_DATA: usize = 1 << 12;
const UNION: usize = offset_of!(kvm_run, __bindgen_anon_1);

/// A host without KVM. A vCPU that would sleep is kicked at once by the VMM.
struct MockHost {
    memory: Ram,
    board: OnceLock<Weak<Board<MockHost>>>,
    current: AtomicU32,
}

impl fmt::Debug for MockHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockHost")
    }
}

impl Host for MockHost {
    type Scheduler = dyn HaltScheduler;

    fn scheduler(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        None
    }

    fn wait(&self, _: &AtomicU32, _: u32) {
        let board = self.board.get().and_then(Weak::upgrade).unwrap();
        board.kicks.end_halt(VcpuId(self.current.load(Relaxed)));
    }

    fn wake(&self, _: &AtomicU32) {}

    fn send_kick_msi(&self, _: VcpuId) -> bool {
        true
    }
}

impl MachineHost for MockHost {
    fn memory(&self) -> &Ram {
        &self.memory
    }

    fn vcpu_scheduler(&self) -> Option<&dyn VcpuScheduler> {
        None
    }
}

/// Counts what the guest says; its reader may have gone.
struct Said {
    bytes: Arc<AtomicU64>,
    room: u64,
}

impl Sink for Said {}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.fetch_add(bytes.len() as u64, Relaxed) > self.room {
            return Err(ErrorKind::BrokenPipe.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

fn board(input: &mut Input<'_>, said: &Arc<AtomicU64>) -> Arc<Board<MockHost>> {
    let vcpus = VcpuCount::try_from(1 + input.below(4) as u32).unwrap();
    let room = u64::from(input.half());
    let sink = || Box::new(Said { bytes: said.clone(), room });
    let devices = Devices {
        com1: SerialPort::new(event(), event(), sink()),
        com2: SerialPort::new(event(), event(), sink()),
        stdin: StdinChannel::new(event()),
        stdout: Output::new(sink()),
        stderr: Output::new(sink()),
        closing: None,
        output_page: AtomicU32::new(0),
        misuse: FirstMisuse::new(),
        events: EventLog::new(event()),
        bench: None,
    };
    let _ = devices.stdin.push(b"input");
    let spec = "kick-drop:0.2,kick-dup:0.2,kick-delay:50us,spurious:0.2".parse().unwrap();
    let plan = FaultPlan { spec, seed: 7 };
    let dice = (input.byte() % 2 == 1).then(|| Dice::of_all(&plan, 0, vcpus));
    let memory = ram::map(&regions(ByteSize::mib(2)), 4096).unwrap();
    let host = MockHost { memory, board: OnceLock::new(), current: AtomicU32::new(0) };
    let host_view = HostView::default();
    let spec = BoardSpec { vcpus, dice, traced: false, preempt_count: None, host: host_view };
    let board = Arc::new(Board::new(host, devices, event(), spec));
    let _ = board.kicks.halts().host().board.set(Arc::downgrade(&board));
    board
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

/// A guest that leaves by arbitrary exits, on up to four vCPUs.
pub fn exits(bytes: &[u8]) {
    const MOST: usize = 300;
    let mut input = Input::new(bytes);
    let said = Arc::new(AtomicU64::new(0));
    let board = board(&mut input, &said);
    let vcpus = board.counts().len();
    let (mut pages, mut has_left) = (vec![0; MAPPED], vec![false; vcpus]);
    let mut count = 0;
    while !input.is_empty() && count < MOST {
        count += 1;
        let id = VcpuId(input.below(vcpus) as u32);
        if has_left[id.0 as usize] {
            break;
        }
        board.kicks.halts().host().current.store(id.0, Relaxed);
        record(&mut input, &mut pages);
        let Some(exit) = decode(&mut pages) else { continue };
        match step::handle(&board, id, exit) {
            Next::Resume | Next::Interrupted | Next::NotStarted => continue,
            Next::Leave => {}
            Next::End(end) => board.life.finish(end),
            Next::Fail(cause) => drop(format!("{cause:?}")),
        }
        // Its thread ends.
        has_left[id.0 as usize] = true;
    }
    let counts = board.machine_counts().vcpus;
    assert!(counts.misuse <= count as u64);
    // Each exit says at most a page.
    assert!(said.load(Relaxed) <= count as u64 * 4096);
    assert_eq!(counts.misuse > 0, board.devices.misuse.get().is_some());
}

pub fn seeds() -> Vec<Vec<u8>> {
    // For each port of the contract a write and a read of each width.
    let port = |offset: u8| -> Vec<u8> {
        let head = [1, 0, 9, u8::from(offset.is_multiple_of(3))];
        let accesses = [0x80, 0xa0, 0x90, 0x00, 0x20]
            .into_iter()
            .flat_map(|kind| [&[0, kind, offset, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
        head.into_iter().chain(accesses).collect()
    };
    let odd = |kind: u8| [&[0, 255, 255, 0, 0, kind, 16][..], &[0; 64]].concat();
    let contract = (0..ports::SPAN as u8).step_by(4).map(port);
    let serial = [0x80, 0].map(|kind| [2, 255, 255, 0, 0, kind | 0x40, 254, 0, b'x', b'y', 0, 0]);
    contract.chain((0..8).map(odd)).chain(serial.map(Vec::from)).collect()
}
