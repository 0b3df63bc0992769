//! The file format of recorded schedules.
//!
//! All numbers are little-endian. The header has 40 bytes: `PVTSCHED`, the version (u32), the numbers of
//! vCPUs and slots (u32 each), the number of spin iterations after which guests reported that they spun out
//! (u32), the number of lost time slices and the number of those that follow (u64 each). A time slice has 24
//! bytes: its start and duration (u64 each, nanoseconds), its vCPU (u32), its slot (u16), a [`TurnEnd`] and a
//! [`Point`] (u8 each; 255: none). The highest bit of the end is set if the vCPU is known to have been in no
//! lock.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
};

use hypercalls::telemetry::Point;
use thiserror::Error;

use super::{
    core::Core,
    event::VcpuIndex,
    log::{ROOM, Turn, TurnEnd},
};
use base::{
    plural::{agree, count},
    units::{Nanos, SlotId},
};

const MAGIC: [u8; 8] = *b"PVTSCHED";
const VERSION: u32 = 3;
/// Bytes per time slice.
const TURN_BYTES: usize = 24;
/// The bit of an end that is set if the vCPU was in no lock.
const FREE: u8 = 0x80;
/// The recorded point of a time slice that did not end at a [`Point`].
const NO_POINT: u8 = 0xff;
/// Maximum duration of a recording.
const LONGEST: Nanos = Nanos(24 * 3_600 * 1_000_000_000);

/// Reason why a file cannot be read as a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// An I/O error.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file does not begin with the magic bytes.
    #[error("it is not a recording of a schedule (make one with --record)")]
    Magic,
    /// The version is not supported.
    #[error("it has version {0}, and this pvticket reads version {VERSION}: record it again")]
    Version(u32),
    /// The file is truncated, or contains an unknown code.
    #[error("it is damaged at turn {0}")]
    Damaged(usize),
    /// A time slice of a vCPU that does not exist.
    #[error("it is damaged: turn {turn} is of vCPU {}, and there are {vcpus}", vcpu.0)]
    NoVcpu {
        /// Index of the time slice.
        turn: usize,
        /// The vCPU in the record.
        vcpu: VcpuIndex,
        /// Number of vCPUs in the header.
        vcpus: u32,
    },
    /// More time slices than a run can record.
    #[error("it has {0} turns, and no recording has more than {ROOM}")]
    TooLong(u64),
    /// A time slice on a slot that does not exist.
    #[error("it is damaged: turn {turn} is on slot {}, and there are {slots}", slot.0)]
    NoSlot {
        /// Index of the time slice.
        turn: usize,
        /// The slot in the record.
        slot: SlotId,
        /// Number of slots in the header.
        slots: u32,
    },
    /// A time slice that begins before the preceding one, or before its vCPU or slot is free.
    #[error("it is damaged: turn {0} begins too early")]
    Early(usize),
    /// A time slice that ends later than [`LONGEST`] allows.
    #[error("it is damaged: turn {0} ends more than a day after the first one began")]
    Late(usize),
}

/// A schedule that can be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Number of vCPUs of all its VMs.
    pub vcpus: u32,
    /// Number of slots.
    pub slots: u32,
    /// Spin iterations after which guests reported that they spun out; zero: never.
    pub spin_looks: u32,
    /// Number of time slices not recorded for lack of room.
    pub lost: u64,
    /// The time slices in the order of their starts.
    pub turns: Vec<Turn>,
}

impl Recording {
    /// Returns the decisions of `core` so far for `vcpus` vCPUs.
    pub fn of(core: &Core, vcpus: u32) -> Self {
        Self {
            vcpus,
            slots: core.slots().len() as u32,
            spin_looks: core.policy().spin_looks(),
            lost: core.log().lost(),
            turns: core.log().turns().to_vec(),
        }
    }

    /// Writes the recording. Fails with `InvalidInput` if a slot's number is above 65535.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        for word in [VERSION, self.vcpus, self.slots, self.spin_looks] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&self.lost.to_le_bytes())?;
        out.write_all(&(self.turns.len() as u64).to_le_bytes())?;
        self.turns.iter().try_for_each(|turn| out.write_all(&bytes(turn)?))
    }

    /// Returns a sentence about the time slices missing from the recording, if any.
    pub fn shortfall(&self) -> Option<String> {
        let lost = Some(self.lost).filter(|lost| *lost > 0)?;
        Some(format!(
            "{} {} not in it, for lack of room: record for a shorter time",
            count(lost, "turn"),
            agree(lost, "is", "are")
        ))
    }

    /// Reads a recording.
    pub fn read(input: &mut impl Read) -> Result<Self, RecordingError> {
        let magic = array(input).map_err(short(RecordingError::Magic))?;
        if magic != MAGIC {
            return Err(RecordingError::Magic);
        }
        match word(input)? {
            VERSION => {}
            other => return Err(RecordingError::Version(other)),
        }
        let (vcpus, slots, spin_looks) = (word(input)?, word(input)?, word(input)?);
        let (lost, count) = (double(input)?, double(input)?);
        if count > ROOM as u64 {
            return Err(RecordingError::TooLong(count));
        }
        let mut turns = Vec::new();
        let mut check = TurnChecker::default();
        for ix in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let bytes = array(input).map_err(short(RecordingError::Damaged(ix)))?;
            let turn = parse(&bytes).ok_or(RecordingError::Damaged(ix))?;
            if turn.vcpu.0 >= vcpus {
                return Err(RecordingError::NoVcpu { turn: ix, vcpu: turn.vcpu, vcpus });
            }
            if turn.slot.0 >= slots {
                return Err(RecordingError::NoSlot { turn: ix, slot: turn.slot, slots });
            }
            check.next(ix, &turn)?;
            turns.push(turn);
        }
        Ok(Self { vcpus, slots, spin_looks, lost, turns })
    }
}

/// Checks that time slices start in order, overlap on no vCPU and no slot, and end within [`LONGEST`], which
/// bounds how long a replay follows its recording.
#[derive(Debug, Default)]
struct TurnChecker {
    last: Nanos,
    /// Time from which each vCPU and each slot is free.
    vcpus: HashMap<u32, Nanos>,
    slots: HashMap<u32, Nanos>,
}

impl TurnChecker {
    fn next(&mut self, ix: usize, turn: &Turn) -> Result<(), RecordingError> {
        let end = turn.at.after(turn.ran);
        let vcpu_is_free = self.vcpus.insert(turn.vcpu.0, end).unwrap_or_default();
        let slot_is_free = self.slots.insert(turn.slot.0, end).unwrap_or_default();
        if turn.at < self.last.max(vcpu_is_free).max(slot_is_free) {
            return Err(RecordingError::Early(ix));
        }
        if end > LONGEST {
            return Err(RecordingError::Late(ix));
        }
        self.last = turn.at;
        Ok(())
    }
}

fn bytes(turn: &Turn) -> io::Result<[u8; TURN_BYTES]> {
    let slot = u16::try_from(turn.slot.0).map_err(|_| {
        let what = format!("slot {}: a recording has 65536 at most", turn.slot.0);
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })?;
    let mut bytes = [0; TURN_BYTES];
    bytes[..8].copy_from_slice(&turn.at.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&turn.ran.0.to_le_bytes());
    bytes[16..20].copy_from_slice(&turn.vcpu.0.to_le_bytes());
    bytes[20..22].copy_from_slice(&slot.to_le_bytes());
    bytes[22] = turn.end as u8 | if turn.free { FREE } else { 0 };
    bytes[23] = turn.point.map_or(NO_POINT, |point| point as u8);
    Ok(bytes)
}

fn parse(bytes: &[u8; TURN_BYTES]) -> Option<Turn> {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
    let [i, j, k, l, m, n, o, p, rest @ ..] = rest;
    let [q, r, s, t, u, v, end, point] = rest;
    let point = match point {
        NO_POINT => None,
        raw => Some(Point::from_raw(raw.into())?),
    };
    Some(Turn {
        at: Nanos(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        ran: Nanos(u64::from_le_bytes([i, j, k, l, m, n, o, p])),
        vcpu: VcpuIndex(u32::from_le_bytes([q, r, s, t])),
        slot: SlotId(u16::from_le_bytes([u, v]).into()),
        end: *TurnEnd::ALL.get(usize::from(end & !FREE))?,
        point,
        free: end & FREE != 0,
    })
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn word(input: &mut impl Read) -> Result<u32, RecordingError> {
    array(input).map(u32::from_le_bytes).map_err(short(RecordingError::Damaged(0)))
}

fn double(input: &mut impl Read) -> Result<u64, RecordingError> {
    array(input).map(u64::from_le_bytes).map_err(short(RecordingError::Damaged(0)))
}

/// Maps an unexpected end of file to `otherwise`, and wraps other errors.
fn short(otherwise: RecordingError) -> impl FnOnce(io::Error) -> RecordingError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => otherwise,
        _ => RecordingError::Read(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(at: u64, ran: u64, vcpu: u32, slot: u32, end: TurnEnd) -> Turn {
        let (at, ran, vcpu, slot) = (Nanos(at), Nanos(ran), VcpuIndex(vcpu), SlotId(slot));
        Turn { at, ran, vcpu, slot, end, point: None, free: false }
    }

    #[test]
    fn a_recording_with_more_turns_than_can_be_kept_is_refused() {
        let mut bytes = Vec::new();
        recording(1, 1, Vec::new()).write(&mut bytes).unwrap();
        bytes[32..40].copy_from_slice(&(ROOM as u64 + 1).to_le_bytes());
        let error = Recording::read(&mut bytes.as_slice()).unwrap_err();
        assert!(error.to_string().starts_with("it has 4194305 turns"), "{error}");
        bytes[32..40].copy_from_slice(&(ROOM as u64).to_le_bytes());
        let error = Recording::read(&mut bytes.as_slice()).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged(0)), "{error}");
    }

    fn recording(vcpus: u32, slots: u32, turns: Vec<Turn>) -> Recording {
        Recording { vcpus, slots, spin_looks: 0, lost: 0, turns }
    }

    fn written(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Recording, String> {
        Recording::read(&mut &*bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn recordings_survive_a_file_and_damage_is_named() {
        let ends = TurnEnd::ALL.iter().zip(1..);
        let mut turns: Vec<_> = ends.map(|(end, ix)| turn(ix * 10, 7, 3, 1, *end)).collect();
        turns[5].point = Some(Point::Critical);
        turns[1].free = true;
        let recording = Recording { spin_looks: 2048, lost: 7, ..recording(4, 2, turns) };
        assert!(recording.shortfall().unwrap().starts_with("7 turns are not in it"));
        let bytes = written(&recording);
        assert_eq!(bytes.len(), 40 + TurnEnd::ALL.len() * TURN_BYTES);
        assert_eq!(read(&bytes), Ok(recording));

        let error = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(error(b"PK").contains("not a recording"));
        assert_eq!(error(&bytes[..bytes.len() - 1]), "it is damaged at turn 10");
        let changed = |at: usize, to: u8| {
            let mut other = bytes.clone();
            other[at] = to;
            error(&other)
        };
        assert!(changed(8, 9).contains("version 9"));
        assert!(changed(40 + 20, 2).contains("turn 0 is on slot 2, and there are 2"));
        assert!(changed(40 + 16, 4).contains("turn 0 is of vCPU 4, and there are 4"));
        assert_eq!(changed(40 + 22, 11), "it is damaged at turn 0", "no such end");
        assert_eq!(changed(40 + 23, 5), "it is damaged at turn 0", "no such point");
    }

    #[test]
    fn a_long_turn_on_a_far_slot_reads_back_as_it_was() {
        let long = turn(1, 9_000_000_000, 70_000, 300, TurnEnd::Slice);
        let large = recording(70_001, 301, vec![long]);
        assert_eq!(read(&written(&large)), Ok(large));
    }

    #[test]
    fn a_slot_that_no_recording_can_name_is_refused_when_it_is_written() {
        let far = recording(1, 70_000, vec![turn(1, 1, 0, 65_536, TurnEnd::Slice)]);
        let error = far.write(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("slot 65536"), "{error}");
    }

    #[test]
    fn impossible_times_are_named() {
        let error = |turns| read(&written(&recording(2, 2, turns))).unwrap_err();
        let held = turn(0, 10, 0, 0, TurnEnd::Injected);
        let gap = turn(1 << 63, 10, 0, 0, TurnEnd::Slice);
        assert!(error(vec![held, gap]).contains("turn 1 ends more than a day after"));
        assert!(error(vec![turn(0, u64::MAX, 0, 0, TurnEnd::Slice)]).contains("turn 0 ends"));
        for early in [turn(9, 1, 1, 0, TurnEnd::Slice), turn(9, 1, 0, 1, TurnEnd::Slice)] {
            assert!(error(vec![held, early]).contains("turn 1 begins too early"), "{early:?}");
        }
        let apart = [turn(5, 1, 0, 0, TurnEnd::Slice), turn(4, 1, 1, 1, TurnEnd::Slice)];
        assert!(error(apart.to_vec()).contains("turn 1 begins too early"));
    }
}
