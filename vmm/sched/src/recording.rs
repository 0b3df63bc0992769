//! The file format of recorded schedules.
//!
//! All numbers are little-endian. The header has 40 bytes: `PVTSCHED`, the version (u32), the numbers of
//! vCPUs and slots (u32 each), the number of spin iterations after which guests reported that they spun out
//! (u32), and the numbers of lost and following time slices (u64 each). A time slice has 24 bytes: its start
//! and duration (u64 each, nanoseconds), its vCPU (u32), its slot (u16), a [`SliceEnd`] and a [`Point`] (u8
//! each; 255: none). The highest bit of the end is set if the vCPU is known to have been in no lock.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
};

use hypercalls::telemetry::Point;
use thiserror::Error;

use super::{
    core::Core,
    event::VcpuIndex,
    log::{MAX_SLICES, Slice, SliceEnd},
};
use base::{
    plural::{agree, count},
    units::{Nanos, SlotId},
};

const MAGIC: [u8; 8] = *b"PVTSCHED";
const VERSION: u32 = 3;
/// Bytes per time slice.
const SLICE_BYTES: usize = 24;
/// The bit of an end that is set if the vCPU was in no lock.
const OUT_OF_LOCKS: u8 = 0x80;
/// The recorded point of a time slice that did not end at a [`Point`].
const NO_POINT: u8 = 0xff;
/// Maximum duration of a recording.
const MAX_DURATION: Nanos = Nanos(24 * 3_600 * 1_000_000_000);

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
    #[error("it is damaged at slice {0}")]
    Damaged(usize),
    /// A time slice of a vCPU that does not exist.
    #[error("it is damaged: slice {slice} belongs to vCPU {} of {vcpus}", vcpu.0)]
    NoVcpu {
        /// Index of the time slice.
        slice: usize,
        /// The vCPU in the record.
        vcpu: VcpuIndex,
        /// Number of vCPUs in the header.
        vcpus: u32,
    },
    /// More time slices than a run can record.
    #[error("it has {0} slices; the maximum is {MAX_SLICES}")]
    TooLong(u64),
    /// A time slice on a slot that does not exist.
    #[error("it is damaged: slice {slice} is on slot {} of {slots}", slot.0)]
    NoSlot {
        /// Index of the time slice.
        slice: usize,
        /// The slot in the record.
        slot: SlotId,
        /// Number of slots in the header.
        slots: u32,
    },
    /// A time slice that begins before the preceding one, or before its vCPU or slot is free.
    #[error("it is damaged: slice {0} begins too early")]
    TooEarly(usize),
    /// A time slice that ends later than [`MAX_DURATION`] allows.
    #[error("it is damaged: slice {0} ends more than a day after the first slice began")]
    TooLate(usize),
}

/// A schedule that can be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Number of vCPUs of all its VMs.
    pub vcpus: u32,
    /// Number of slots.
    pub slots: u32,
    /// Spin iterations after which guests reported that they spun out; zero: never.
    pub spin_limit: u32,
    /// Number of time slices not recorded for lack of room.
    pub lost: u64,
    /// The time slices in the order of their starts.
    pub slices: Vec<Slice>,
}

impl Recording {
    /// Returns the decisions of `core` so far for `vcpus` vCPUs.
    pub fn from_core(core: &Core, vcpus: u32) -> Self {
        Self {
            vcpus,
            slots: core.slots().len() as u32,
            spin_limit: core.policy().spin_limit(),
            lost: core.log().lost(),
            slices: core.log().slices().to_vec(),
        }
    }

    /// Writes the recording. Fails with `InvalidInput` if a slot's number is above 65535.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        for word in [VERSION, self.vcpus, self.slots, self.spin_limit] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&self.lost.to_le_bytes())?;
        out.write_all(&(self.slices.len() as u64).to_le_bytes())?;
        self.slices.iter().try_for_each(|slice| out.write_all(&encode(slice)?))
    }

    /// Returns a sentence about the time slices missing from the recording, if any.
    pub fn shortfall(&self) -> Option<String> {
        let lost = Some(self.lost).filter(|lost| *lost > 0)?;
        Some(format!(
            "{} {} not in it, for lack of room: record for a shorter time",
            count(lost, "slice"),
            agree(lost, "is", "are")
        ))
    }

    /// Reads a recording and checks it.
    pub fn read(input: &mut impl Read) -> Result<Self, RecordingError> {
        let magic = read_array(input).map_err(map_eof(RecordingError::Magic))?;
        if magic != MAGIC {
            return Err(RecordingError::Magic);
        }
        match read_u32(input)? {
            VERSION => {}
            version => return Err(RecordingError::Version(version)),
        }
        let (vcpus, slots, spin_limit) = (read_u32(input)?, read_u32(input)?, read_u32(input)?);
        let (lost, count) = (read_u64(input)?, read_u64(input)?);
        if count > MAX_SLICES as u64 {
            return Err(RecordingError::TooLong(count));
        }
        let mut slices = Vec::new();
        let mut order = OrderChecker::default();
        for ix in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let bytes = read_array(input).map_err(map_eof(RecordingError::Damaged(ix)))?;
            let slice = decode(&bytes).ok_or(RecordingError::Damaged(ix))?;
            if slice.vcpu.0 >= vcpus {
                return Err(RecordingError::NoVcpu { slice: ix, vcpu: slice.vcpu, vcpus });
            }
            if slice.slot.0 >= slots {
                return Err(RecordingError::NoSlot { slice: ix, slot: slice.slot, slots });
            }
            order.check(ix, &slice)?;
            slices.push(slice);
        }
        Ok(Self { vcpus, slots, spin_limit, lost, slices })
    }
}

/// Checks that time slices start in order, overlap on no vCPU and no slot, and end within
/// [`MAX_DURATION`], which bounds how long a replay follows its recording.
#[derive(Debug, Default)]
struct OrderChecker {
    last: Nanos,
    /// Time from which each vCPU and each slot is free.
    vcpus: HashMap<u32, Nanos>,
    slots: HashMap<u32, Nanos>,
}

impl OrderChecker {
    fn check(&mut self, ix: usize, slice: &Slice) -> Result<(), RecordingError> {
        let end = slice.at.after(slice.ran);
        let vcpu_is_free = self.vcpus.insert(slice.vcpu.0, end).unwrap_or_default();
        let slot_is_free = self.slots.insert(slice.slot.0, end).unwrap_or_default();
        if slice.at < self.last.max(vcpu_is_free).max(slot_is_free) {
            return Err(RecordingError::TooEarly(ix));
        }
        if end > MAX_DURATION {
            return Err(RecordingError::TooLate(ix));
        }
        self.last = slice.at;
        Ok(())
    }
}

fn encode(slice: &Slice) -> io::Result<[u8; SLICE_BYTES]> {
    let slot = u16::try_from(slice.slot.0).map_err(|_| {
        let message = format!("slot {}: a recording has at most 65536 slots", slice.slot.0);
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let mut bytes = [0; SLICE_BYTES];
    bytes[..8].copy_from_slice(&slice.at.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&slice.ran.0.to_le_bytes());
    bytes[16..20].copy_from_slice(&slice.vcpu.0.to_le_bytes());
    bytes[20..22].copy_from_slice(&slot.to_le_bytes());
    bytes[22] = slice.end as u8 | if slice.free { OUT_OF_LOCKS } else { 0 };
    bytes[23] = slice.point.map_or(NO_POINT, |point| point as u8);
    Ok(bytes)
}

fn decode(bytes: &[u8; SLICE_BYTES]) -> Option<Slice> {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
    let [i, j, k, l, m, n, o, p, rest @ ..] = rest;
    let [q, r, s, t, u, v, end, point] = rest;
    let point = match point {
        NO_POINT => None,
        raw => Some(Point::from_raw(raw.into())?),
    };
    Some(Slice {
        at: Nanos(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        ran: Nanos(u64::from_le_bytes([i, j, k, l, m, n, o, p])),
        vcpu: VcpuIndex(u32::from_le_bytes([q, r, s, t])),
        slot: SlotId(u16::from_le_bytes([u, v]).into()),
        end: *SliceEnd::ALL.get(usize::from(end & !OUT_OF_LOCKS))?,
        point,
        free: end & OUT_OF_LOCKS != 0,
    })
}

fn read_array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u32(input: &mut impl Read) -> Result<u32, RecordingError> {
    read_array(input).map(u32::from_le_bytes).map_err(map_eof(RecordingError::Damaged(0)))
}

fn read_u64(input: &mut impl Read) -> Result<u64, RecordingError> {
    read_array(input).map(u64::from_le_bytes).map_err(map_eof(RecordingError::Damaged(0)))
}

/// Maps an unexpected end of file to `otherwise`, and wraps other errors.
fn map_eof(otherwise: RecordingError) -> impl FnOnce(io::Error) -> RecordingError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => otherwise,
        _ => RecordingError::Read(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(at: u64, ran: u64, vcpu: u32, slot: u32, end: SliceEnd) -> Slice {
        let (at, ran, vcpu, slot) = (Nanos(at), Nanos(ran), VcpuIndex(vcpu), SlotId(slot));
        Slice { at, ran, vcpu, slot, end, point: None, free: false }
    }

    #[test]
    fn too_many_slices_are_refused() {
        let mut bytes = Vec::new();
        recording(1, 1, Vec::new()).write(&mut bytes).unwrap();
        bytes[32..40].copy_from_slice(&(MAX_SLICES as u64 + 1).to_le_bytes());
        let error = Recording::read(&mut bytes.as_slice()).unwrap_err();
        assert!(error.to_string().starts_with("it has 4194305 slices"), "{error}");
        bytes[32..40].copy_from_slice(&(MAX_SLICES as u64).to_le_bytes());
        let error = Recording::read(&mut bytes.as_slice()).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged(0)), "{error}");
    }

    fn recording(vcpus: u32, slots: u32, slices: Vec<Slice>) -> Recording {
        Recording { vcpus, slots, spin_limit: 0, lost: 0, slices }
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
    fn recordings_round_trip_and_damage_is_reported() {
        let ends = SliceEnd::ALL.iter().zip(1..);
        let mut slices: Vec<_> = ends.map(|(end, ix)| slice(ix * 10, 7, 3, 1, *end)).collect();
        slices[5].point = Some(Point::Critical);
        slices[1].free = true;
        let recording = Recording { spin_limit: 2048, lost: 7, ..recording(4, 2, slices) };
        assert!(recording.shortfall().unwrap().starts_with("7 slices are not in it"));
        let bytes = written(&recording);
        assert_eq!(bytes.len(), 40 + SliceEnd::ALL.len() * SLICE_BYTES);
        assert_eq!(read(&bytes), Ok(recording));

        let error = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(error(b"PK").contains("not a recording"));
        assert_eq!(error(&bytes[..bytes.len() - 1]), "it is damaged at slice 10");
        let changed = |at: usize, to: u8| {
            let mut damaged = bytes.clone();
            damaged[at] = to;
            error(&damaged)
        };
        assert!(changed(8, 9).contains("version 9"));
        assert!(changed(40 + 20, 2).contains("slice 0 is on slot 2 of 2"));
        assert!(changed(40 + 16, 4).contains("slice 0 belongs to vCPU 4 of 4"));
        assert_eq!(changed(40 + 22, 11), "it is damaged at slice 0", "no such end");
        assert_eq!(changed(40 + 23, 5), "it is damaged at slice 0", "no such point");
    }

    #[test]
    fn long_slices_on_high_slots_round_trip() {
        let long = slice(1, 9_000_000_000, 70_000, 300, SliceEnd::Expired);
        let large = recording(70_001, 301, vec![long]);
        assert_eq!(read(&written(&large)), Ok(large));
    }

    #[test]
    fn slots_above_u16_cannot_be_written() {
        let far = recording(1, 70_000, vec![slice(1, 1, 0, 65_536, SliceEnd::Expired)]);
        let error = far.write(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("slot 65536"), "{error}");
    }

    #[test]
    fn impossible_times_are_reported() {
        let error = |slices| read(&written(&recording(2, 2, slices))).unwrap_err();
        let held = slice(0, 10, 0, 0, SliceEnd::Injected);
        let gap = slice(1 << 63, 10, 0, 0, SliceEnd::Expired);
        assert!(error(vec![held, gap]).contains("slice 1 ends more than a day after"));
        assert!(error(vec![slice(0, u64::MAX, 0, 0, SliceEnd::Expired)]).contains("slice 0 ends"));
        for early in [slice(9, 1, 1, 0, SliceEnd::Expired), slice(9, 1, 0, 1, SliceEnd::Expired)] {
            assert!(error(vec![held, early]).contains("slice 1 begins too early"), "{early:?}");
        }
        let apart = [slice(5, 1, 0, 0, SliceEnd::Expired), slice(4, 1, 1, 1, SliceEnd::Expired)];
        assert!(error(apart.to_vec()).contains("slice 1 begins too early"));
    }
}
