//! Has the kernel write which spinlock each CPU waits for or took after a wait, by programs at its tracepoints (`bpf(2)`).

use core::{ffi::CStr, mem};

use guest_init::contention::{self, Instruction};
use hypercalls::{
    MAX_VCPUS,
    kernel_facts::{LINE_FRAMES, LineFrames},
    telemetry::{Line, SIZE},
};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    mm::{MapFlags, ProtFlags, mmap},
};

use crate::{
    output_page::{self, frame_of},
    syscall,
};

/// Commands of bpf(2).
const MAP_CREATE: u32 = 0;
const PROG_LOAD: u32 = 5;
const RAW_TRACEPOINT_OPEN: u32 = 17;

/// `union bpf_attr` for `BPF_MAP_CREATE`; what is not here is zero.
#[derive(Default)]
#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    reserved: [u32; 3],
}

/// For `BPF_PROG_LOAD`.
#[derive(Default)]
#[repr(C)]
struct ProgramAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    reserved: [u64; 4],
}

/// For `BPF_RAW_TRACEPOINT_OPEN`.
#[derive(Default)]
#[repr(C)]
struct AttachAttributes {
    name: u64,
    prog_fd: u32,
    reserved: u32,
}

/// Starts it for good, and returns the page frames of the lines; None if the kernel cannot do it, or does not let it.
pub fn start() -> Option<LineFrames> {
    let lines = make_lines()?;
    let frames = frames(&lines)?;
    let fd = lines.as_raw_fd();
    // Against the order in which a lock passes them: otherwise one would be told to be held or awaited that no longer is.
    let release = attach(c"contended_release", &contention::release(fd));
    let end = attach(c"contention_end", &contention::end(fd, release.is_some()))?;
    let begin = attach(c"contention_begin", &contention::begin(fd))?;
    // Attached for as long as this process lives.
    mem::forget((release, end, begin));
    // The kernel keeps it as long as the programs are attached.
    drop(lines);
    Some(frames)
}

/// An array of lines that can be mapped.
fn make_lines() -> Option<OwnedFd> {
    const ARRAY: u32 = 2;
    /// `BPF_F_MMAPABLE`.
    const MAPPABLE: u32 = 1 << 10;
    let attributes = MapAttributes {
        map_type: ARRAY,
        key_size: size_of::<u32>() as u32,
        value_size: size_of::<Line>() as u32,
        max_entries: MAX_VCPUS,
        map_flags: MAPPABLE,
        ..MapAttributes::default()
    };
    // SAFETY: the attributes of this command, which has no pointers.
    unsafe { syscall::bpf(MAP_CREATE, &attributes) }.ok()
}

/// The page frames of the lines, which do not move: the kernel's own memory.
fn frames(lines: &OwnedFd) -> Option<LineFrames> {
    let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping at an address that the kernel chooses. It stays.
    let at =
        unsafe { mmap(core::ptr::null_mut(), SIZE as usize, protection, flags, lines.as_fd(), 0) };
    let at = at.ok()? as usize;
    let mut frames = [0; LINE_FRAMES];
    for (frame, page) in frames.iter_mut().zip((at..).step_by(output_page::SIZE)) {
        *frame = frame_of(page as u64)?;
    }
    Some(frames)
}

/// Loads a program and attaches it to this tracepoint, until the descriptor is closed.
fn attach(name: &CStr, program: &[Instruction]) -> Option<OwnedFd> {
    const RAW_TRACEPOINT: u32 = 17;
    let attributes = ProgramAttributes {
        prog_type: RAW_TRACEPOINT,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..ProgramAttributes::default()
    };
    // SAFETY: the attributes of this command; the pointers are to as many instructions, and to a string.
    let loaded = unsafe { syscall::bpf(PROG_LOAD, &attributes) }.ok()?;
    let attributes = AttachAttributes {
        name: name.as_ptr() as u64,
        prog_fd: loaded.as_raw_fd() as u32,
        ..AttachAttributes::default()
    };
    // SAFETY: the attributes of this command; the pointer is to a string.
    unsafe { syscall::bpf(RAW_TRACEPOINT_OPEN, &attributes) }.ok()
}
