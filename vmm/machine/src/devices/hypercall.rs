//! Decodes accesses to the hypercall ports into calls. Pure.

use std::fmt;

use hypercalls::{
    ports::{self, GuestEvent},
    telemetry::Point,
};

use base::units::{Ticket, VcpuId};

/// A request made by a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Hypercall<'a> {
    /// Halt until kicked, for this ticket.
    LockSpinning(Ticket),
    /// Wake this vCPU, or leave a pending kick.
    UnlockKick(VcpuId),
    /// Wake this vCPU, which halts in KVM.
    Doorbell(VcpuId),
    /// Wake this vCPU, then halt until kicked.
    KickAndHalt(VcpuId, Ticket),
    /// Yield the slot, as requested.
    Yield,
    /// The spin iterations on a lock are used up.
    SpunOut,
    /// Yield the rest of the slice to this vCPU.
    YieldTo(VcpuId),
    /// The vCPU has reached this named point.
    PreemptPoint(Point),
    /// End the machine with this exit status.
    Exit(u8),
    /// The calling vCPU is done, with this status (0: success).
    VcpuDone(u32),
    /// A lifecycle event of the guest.
    Event(GuestEvent),
    /// Bytes for the command's stdout.
    Stdout(&'a [u8]),
    /// Bytes for the command's stderr.
    Stderr(&'a [u8]),
    /// Frame number of the page that output is read from.
    OutputPage(u32),
    /// Frame number of the page with the facts about the guest's kernel.
    KernelFacts(u32),
    /// A number of bytes of the output page, for the command's stdout.
    StdoutPage(PageBytes),
    /// A number of bytes of the output page, for the command's stderr.
    StderrPage(PageBytes),
}

/// A number of bytes within a page: 1 to 4096.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBytes(u32);

impl PageBytes {
    /// Bytes per page.
    pub const PAGE: usize = 4096;

    fn new(bytes: u32) -> Option<Self> {
        (1..=Self::PAGE as u32).contains(&bytes).then_some(Self(bytes))
    }

    /// The number of bytes.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// A request made by a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Query {
    /// The number of available stdin bytes.
    StdinAvail,
    /// Bytes of stdin.
    Stdin,
    /// Whether a benchmark that waits for other machines may continue.
    Gate,
    /// Whether the facts about the guest's kernel are wanted.
    KernelFacts,
}

/// An invalid access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misuse {
    offset: u16,
    width: u8,
    value: Option<u32>,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { offset, width, value } = self;
        match (expected(*offset), value) {
            (Some((name, expected)), Some(value)) if expected == *width => {
                write!(f, "{name} with the unknown value {value:#x}")
            }
            (Some((name, expected)), _) => {
                write!(f, "{name} with accesses of {width} bytes instead of {expected}")
            }
            (None, _) => write!(f, "the undefined port base+{offset:#x}"),
        }
    }
}

impl Misuse {
    /// A frame number, written to the port at `offset`, whose page is not guest memory or has invalid
    /// contents.
    pub(crate) fn invalid_page(offset: u16, frame: u32) -> Self {
        Self { offset, width: 4, value: Some(frame) }
    }
}

/// Returns the call's name, and its width in bytes.
fn expected(offset: u16) -> Option<(&'static str, u8)> {
    Some(match offset {
        ports::LOCK_SPINNING => ("lock_spinning", 4),
        ports::UNLOCK_KICK => ("unlock_kick", 4),
        ports::PREEMPT_POINT => ("preempt_point", 4),
        ports::YIELD => ("yield", 4),
        ports::SPUN_OUT => ("spun_out", 4),
        ports::YIELD_TO => ("yield_to", 4),
        ports::DOORBELL => ("doorbell", 4),
        ports::KICK_AND_HALT => ("kick_and_halt", 4),
        ports::EXIT => ("exit", 4),
        ports::VCPU_DONE => ("vcpu_done", 4),
        ports::EVENT => ("event", 4),
        ports::STDIN_AVAIL => ("stdin_avail", 4),
        ports::GATE => ("gate", 4),
        ports::STDOUT => ("stdout", 1),
        ports::STDERR => ("stderr", 1),
        ports::STDIN => ("stdin", 1),
        ports::OUTPUT_PAGE => ("output_page", 4),
        ports::KERNEL_FACTS => ("kernel_facts", 4),
        ports::STDOUT_PAGE => ("stdout_page", 4),
        ports::STDERR_PAGE => ("stderr_page", 4),
        _ => return None,
    })
}

/// Returns the offset from the first hypercall port, or None outside their range.
pub fn offset(port: u16) -> Option<u16> {
    let offset = port.wrapping_sub(ports::DEFAULT_BASE);
    (offset < ports::SPAN).then_some(offset)
}

/// Decodes one write. A series of 32-bit writes (`rep outsl`) counts as its last write, because all calls of
/// that width are idempotent or final.
pub fn decode_write(offset: u16, width: u8, data: &[u8]) -> Result<Hypercall<'_>, Misuse> {
    let misuse = |value| Misuse { offset, width, value };
    if expected(offset).is_none_or(|(_, expected)| expected != width) {
        return Err(misuse(None));
    }
    match offset {
        ports::STDOUT => return Ok(Hypercall::Stdout(data)),
        ports::STDERR => return Ok(Hypercall::Stderr(data)),
        _ => {}
    }
    let value = data.last_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(misuse(None))?;
    match offset {
        ports::LOCK_SPINNING => Ok(Hypercall::LockSpinning(Ticket(value))),
        ports::UNLOCK_KICK => Ok(Hypercall::UnlockKick(VcpuId(value))),
        ports::DOORBELL => Ok(Hypercall::Doorbell(VcpuId(value))),
        ports::KICK_AND_HALT => {
            Ok(Hypercall::KickAndHalt(VcpuId(value >> 16), Ticket(value & 0xffff)))
        }
        ports::YIELD => Ok(Hypercall::Yield),
        ports::SPUN_OUT => Ok(Hypercall::SpunOut),
        ports::YIELD_TO => Ok(Hypercall::YieldTo(VcpuId(value))),
        ports::PREEMPT_POINT => {
            Point::from_raw(value).map(Hypercall::PreemptPoint).ok_or(misuse(Some(value)))
        }
        ports::EXIT => Ok(Hypercall::Exit(value as u8)),
        ports::VCPU_DONE => Ok(Hypercall::VcpuDone(value)),
        ports::OUTPUT_PAGE => Ok(Hypercall::OutputPage(value)),
        ports::KERNEL_FACTS => Ok(Hypercall::KernelFacts(value)),
        ports::STDOUT_PAGE => {
            PageBytes::new(value).map(Hypercall::StdoutPage).ok_or(misuse(Some(value)))
        }
        ports::STDERR_PAGE => {
            PageBytes::new(value).map(Hypercall::StderrPage).ok_or(misuse(Some(value)))
        }
        ports::EVENT => {
            GuestEvent::from_raw(value).map(Hypercall::Event).ok_or(misuse(Some(value)))
        }
        _ => Err(misuse(None)),
    }
}

/// Decodes one read.
pub fn decode_read(offset: u16, width: u8) -> Result<Query, Misuse> {
    match (offset, width) {
        (ports::STDIN_AVAIL, 4) => Ok(Query::StdinAvail),
        (ports::STDIN, 1) => Ok(Query::Stdin),
        (ports::GATE, 4) => Ok(Query::Gate),
        (ports::KERNEL_FACTS, 4) => Ok(Query::KernelFacts),
        _ => Err(Misuse { offset, width, value: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_decode_by_offset_and_width() {
        for (port, data, call) in [
            (ports::LOCK_SPINNING, [7, 0, 0, 0], Hypercall::LockSpinning(Ticket(7))),
            (ports::UNLOCK_KICK, [3, 0, 0, 0], Hypercall::UnlockKick(VcpuId(3))),
            // The low half is the ticket.
            (ports::KICK_AND_HALT, [9, 0, 3, 0], Hypercall::KickAndHalt(VcpuId(3), Ticket(9))),
            (ports::EXIT, [7, 1, 0, 0], Hypercall::Exit(7)),
        ] {
            assert_eq!(decode_write(port, 4, &data), Ok(call));
        }
        assert_eq!(decode_write(ports::STDOUT, 1, b"abc"), Ok(Hypercall::Stdout(b"abc")));
        assert_eq!(decode_read(ports::STDIN, 1), Ok(Query::Stdin));
        assert_eq!(decode_read(ports::GATE, 4), Ok(Query::Gate));
    }

    #[test]
    fn single_byte_writes_are_not_a_call() {
        let error = decode_write(ports::UNLOCK_KICK, 1, &[3, 0, 0, 0]).unwrap_err();
        assert_eq!(error.to_string(), "unlock_kick with accesses of 1 bytes instead of 4");
    }

    #[test]
    fn misuse_describes_the_error() {
        let text = |offset, width, data: &[u8]| {
            decode_write(offset, width, data).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(text(0x47, 1, &[0]), "the undefined port base+0x47");
        assert_eq!(text(ports::EVENT, 4, &[9, 0, 0, 0]), "event with the unknown value 0x9");
        assert_eq!(text(ports::STDIN, 2, &[0, 0]), "stdin with accesses of 2 bytes instead of 1");
        assert!(decode_read(ports::LOCK_SPINNING, 4).is_err());
    }

    #[test]
    fn any_offset_and_width_decodes_without_panic() {
        for port in 0..=u16::MAX {
            let Some(offset) = offset(port) else { continue };
            for width in [1_u8, 2, 4] {
                let data = vec![0xff; usize::from(width)];
                let _ = decode_write(offset, width, &data);
                let _ = decode_write(offset, width, &[]);
                let _ = decode_read(offset, width);
            }
        }
    }
}
