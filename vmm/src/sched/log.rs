//! Decisions on record: who got which slot when, for how long, and why that ended.

use std::io::{self, Read, Write};

use serde::Serialize;
use thiserror::Error;

use super::event::VcpuIndex;
use crate::units::{Nanos, SlotId};

/// First bytes of a recording.
const MAGIC: [u8; 8] = *b"PVTSCHED";
/// Version of its form.
const VERSION: u32 = 1;
/// Turns kept of a run at most: hours of slices, minutes of handoffs. 64 MiB, of which the
/// kernel gives only what is used.
const ROOM: usize = 4 << 20;
/// Bytes of a turn in a recording.
const TURN_BYTES: usize = 16;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TurnEnd {
    /// Not yet, when the recording did.
    Open = 0,
    /// Its time was over.
    Slice = 1,
    /// Its time and a grace were over.
    Grace = 2,
    /// It yielded.
    Yield = 3,
    /// It spun in vain.
    Spun = 4,
    /// It was kept off on purpose.
    Injected = 5,
    /// It halted.
    Halted = 6,
    /// It sat in KVM's HLT.
    Idle = 7,
    /// It left for good.
    Exited = 8,
    /// It made way for whom it had just kicked.
    MadeWay = 9,
}

impl TurnEnd {
    const ALL: [TurnEnd; 10] = [
        TurnEnd::Open,
        TurnEnd::Slice,
        TurnEnd::Grace,
        TurnEnd::Yield,
        TurnEnd::Spun,
        TurnEnd::Injected,
        TurnEnd::Halted,
        TurnEnd::Idle,
        TurnEnd::Exited,
        TurnEnd::MadeWay,
    ];

    /// The vCPU itself ended it.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, TurnEnd::Halted | TurnEnd::Idle | TurnEnd::Exited)
    }
}

/// One vCPU's time on one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// When it began, from the schedule's start.
    pub at: Nanos,
    /// How long it lasted; more than 4.29 s counts as that.
    pub ran: Nanos,
    /// Who.
    pub vcpu: VcpuIndex,
    /// Where.
    pub slot: SlotId,
    /// Why it ended.
    pub end: TurnEnd,
}

impl Turn {
    fn bytes(&self) -> [u8; TURN_BYTES] {
        let mut bytes = [0; TURN_BYTES];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        let ran = u32::try_from(self.ran.0).unwrap_or(u32::MAX);
        bytes[8..12].copy_from_slice(&ran.to_le_bytes());
        bytes[12..14].copy_from_slice(&(self.vcpu.0 as u16).to_le_bytes());
        bytes[14] = self.slot.0 as u8;
        bytes[15] = self.end as u8;
        bytes
    }

    fn parse(bytes: &[u8; TURN_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, slot, end] = *bytes;
        Some(Self {
            at: Nanos(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            ran: Nanos(u32::from_le_bytes([i, j, k, l]).into()),
            vcpu: VcpuIndex(u16::from_le_bytes([m, n]).into()),
            slot: SlotId(slot.into()),
            end: *TurnEnd::ALL.get(usize::from(end))?,
        })
    }
}

/// The turns of a schedule, in the order in which they began.
#[derive(Debug)]
pub struct Log {
    turns: Vec<Turn>,
    lost: u64,
    start: Nanos,
}

/// A turn in a [`Log`]; none where there was no room left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry(Option<usize>);

impl Log {
    /// An empty log.
    pub fn new() -> Self {
        Self { turns: Vec::with_capacity(ROOM), lost: 0, start: Nanos::ZERO }
    }

    /// The same with little room, where nobody wants a recording.
    pub fn brief() -> Self {
        Self { turns: Vec::new(), lost: 0, start: Nanos::ZERO }
    }

    pub(super) fn begin(&mut self, vcpu: VcpuIndex, slot: SlotId, now: Nanos) -> Entry {
        if self.start == Nanos::ZERO {
            self.start = now;
        }
        if self.turns.len() == self.turns.capacity() {
            self.lost += 1;
            return Entry(None);
        }
        let (at, ran, end) = (now.since(self.start), Nanos::ZERO, TurnEnd::Open);
        self.turns.push(Turn { at, ran, vcpu, slot, end });
        Entry(Some(self.turns.len() - 1))
    }

    pub(super) fn end(&mut self, entry: Entry, end: TurnEnd, ran: Nanos) {
        if let Some(turn) = entry.0.and_then(|ix| self.turns.get_mut(ix)) {
            (turn.end, turn.ran) = (end, ran);
        }
    }

    /// What the turns' times count from: when the first began, by the clock of the schedule.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// The turns.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Turns for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a file is no recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It begins otherwise.
    #[error("it is no recording of a schedule (make one with --record)")]
    Magic,
    /// Another version's.
    #[error("it is of version {0}, this pvticket reads version {VERSION}")]
    Version(u32),
    /// It ends too early, or says what cannot be.
    #[error("it is damaged at turn {0}")]
    Damaged(usize),
}

/// A schedule that can be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// vCPUs of all its VMs.
    pub vcpus: u32,
    /// Its slots.
    pub slots: u32,
    /// Turns that were not recorded for want of room.
    pub lost: u64,
    /// Its turns.
    pub turns: Vec<Turn>,
}

impl Recording {
    /// Writes it: a header of 40 bytes, then 16 bytes a turn, all little-endian.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        for word in [VERSION, self.vcpus, self.slots, 0] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&self.lost.to_le_bytes())?;
        out.write_all(&(self.turns.len() as u64).to_le_bytes())?;
        self.turns.iter().try_for_each(|turn| out.write_all(&turn.bytes()))
    }

    /// Reads one.
    pub fn read(input: &mut impl Read) -> Result<Self, RecordingError> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(short(RecordingError::Magic))?;
        if magic != MAGIC {
            return Err(RecordingError::Magic);
        }
        let mut word = || -> Result<u32, RecordingError> {
            let mut bytes = [0; 4];
            input.read_exact(&mut bytes).map_err(short(RecordingError::Damaged(0)))?;
            Ok(u32::from_le_bytes(bytes))
        };
        let version = word()?;
        if version != VERSION {
            return Err(RecordingError::Version(version));
        }
        let (vcpus, slots, _) = (word()?, word()?, word()?);
        let lost = u64::from(word()?) | u64::from(word()?) << 32;
        let count = u64::from(word()?) | u64::from(word()?) << 32;
        let mut turns = Vec::new();
        for ix in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let mut bytes = [0; TURN_BYTES];
            input.read_exact(&mut bytes).map_err(short(RecordingError::Damaged(ix)))?;
            let turn = Turn::parse(&bytes).ok_or(RecordingError::Damaged(ix))?;
            if turn.vcpu.0 >= vcpus || turn.slot.0 >= slots {
                return Err(RecordingError::Damaged(ix));
            }
            turns.push(turn);
        }
        Ok(Self { vcpus, slots, lost, turns })
    }
}

/// The end of the file means `otherwise`; another failure is what it is.
fn short(otherwise: RecordingError) -> impl FnOnce(io::Error) -> RecordingError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => otherwise,
        _ => RecordingError::Read(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn(at: u64, vcpu: u32, slot: u32, end: TurnEnd) -> Turn {
        Turn { at: Nanos(at), ran: Nanos(at / 2), vcpu: VcpuIndex(vcpu), slot: SlotId(slot), end }
    }

    #[test]
    fn recordings_survive_a_file_and_say_what_is_wrong_with_others() {
        let turns = TurnEnd::ALL.iter().zip(1..).map(|(end, ix)| turn(ix * 10, 3, 1, *end));
        let recording = Recording { vcpus: 4, slots: 2, lost: 7, turns: turns.collect() };
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 40 + 10 * 16);
        assert_eq!(Recording::read(&mut bytes.as_slice()).unwrap(), recording);

        let error = |bytes: &[u8]| Recording::read(&mut &*bytes).unwrap_err().to_string();
        assert!(error(b"PK").contains("no recording"));
        assert_eq!(error(&bytes[..bytes.len() - 1]), "it is damaged at turn 9");
        let mut other = bytes.clone();
        other[8] = 9;
        assert!(error(&other).contains("version 9"));
        let mut other = bytes.clone();
        other[40 + 14] = 2;
        assert_eq!(error(&other), "it is damaged at turn 0", "a slot there is not");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), whole: bool) {
            if whole && bytes.len() >= 12 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            let _ = Recording::read(&mut bytes.as_slice());
        }
    }

    #[test]
    fn a_full_log_counts_what_it_loses() {
        let mut log = Log::brief();
        let entry = log.begin(VcpuIndex(0), SlotId(0), Nanos(5));
        log.end(entry, TurnEnd::Slice, Nanos(1));
        assert_eq!((log.turns().len(), log.lost()), (0, 1));
    }
}
