//! What the scheduler and its loader share: `scheduler/shared.h` in Rust.

use std::mem::size_of;

/// `struct settings`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSettings {
    pub slice_ns: u64,
    pub grace_ns: u64,
    pub lock_aware: u32,
    pub unused: u32,
}

/// `struct seat`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSeat {
    pub machine: u32,
    pub vcpu: u32,
}

/// `struct turn`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawTurn {
    pub ended_ns: u64,
    pub began_ns: u64,
    pub due_ns: u64,
    pub machine: u32,
    pub vcpu: u32,
    pub cpu: u32,
    pub end: u32,
    pub held: u32,
    pub wait: u32,
    pub wait_lock: u64,
    pub held_lock: u64,
}

/// `struct counters` and `struct farewell`, as they lie in the scheduler's memory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawMemory {
    pub turns: u64,
    pub lost: u64,
    pub reason: [u8; 64],
    pub message: [u8; 128],
}

impl RawTurn {
    /// A record of the ring buffer; `None` if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        let long = |at: usize| bytes[at..].first_chunk().map(|part| u64::from_ne_bytes(*part));
        let word = |at: usize| bytes[at..].first_chunk().map(|part| u32::from_ne_bytes(*part));
        Some(Self {
            ended_ns: long(0)?,
            began_ns: long(8)?,
            due_ns: long(16)?,
            machine: word(24)?,
            vcpu: word(28)?,
            cpu: word(32)?,
            end: word(36)?,
            held: word(40)?,
            wait: word(44)?,
            wait_lock: long(48)?,
            held_lock: long(56)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_record_has_a_length() {
        let mut bytes = [0; 64];
        bytes[24] = 3;
        bytes[offset_of!(RawTurn, held_lock)] = 9;
        let turn = RawTurn { machine: 3, held_lock: 9, ..RawTurn::default() };
        assert_eq!(RawTurn::parse(&bytes), Some(turn));
        assert_eq!(RawTurn::parse(&bytes[1..]), None);
        assert_eq!(RawTurn::parse(&[]), None);
    }
}
