//! Definitions shared by the scheduler and its loader: `scheduler/shared.h` in Rust.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Maximum number of machines in a schedule.
pub const MAX_MACHINES: u32 = 64;
pub(crate) const MAX_SLOTS: usize = 128;
pub(crate) const MAX_CPUS: u32 = 1024;
pub(crate) const MAX_RANGES: usize = 4;
pub(crate) const INTERVALS: usize = 256;
/// Maximum number of held locks named in a telemetry line.
pub(crate) const NAMED: usize = hypercalls::telemetry::MAX_NAMED;
/// Bit of [`RawRecord::known`]: the awaited lock's word could be read.
pub(crate) const KNOWN_WAIT: u32 = 1 << NAMED;
/// Bit of [`RawRecord::known`]: `claimed` is complete.
pub(crate) const KNOWN_CLAIMS: u32 = 1 << (NAMED + 1);
/// Bit of [`RawRecord::known`]: `gate` could be read.
pub(crate) const KNOWN_GATE: u32 = 1 << (NAMED + 2);

/// `struct settings`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawSettings {
    pub slice_ns: u64,
    pub grace_ns: u64,
    pub waiter_grace_ns: u64,
    pub round_ns: u64,
    pub hold_ns: u64,
    pub mean_ns: u64,
    pub seed: u64,
    pub interval_ns: [u64; INTERVALS],
    pub policy: u32,
    pub slots: u32,
    pub is_unsafe: u32,
    pub by_tid: u32,
    pub cpu: [u32; MAX_SLOTS],
}

/// `struct seat`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawSeat {
    pub machine: u32,
    pub vcpu: u32,
}

/// `struct range`.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawRange {
    pub guest: u64,
    pub size: u64,
    pub host: u64,
}

/// `struct machine`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawMachine {
    pub ranges: [RawRange; MAX_RANGES],
    pub vcpus: u32,
    pub weight: u32,
}

/// `struct counter`.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawCounter {
    pub offset: u64,
    pub khz: u64,
}

/// `struct reading`.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawReading {
    pub ns: u64,
    pub ticks: u64,
    pub check: u64,
}

/// `struct record`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawRecord {
    pub at_ns: u64,
    pub began_ns: u64,
    pub due_ns: u64,
    pub extended_ns: u64,
    pub kind: u32,
    pub end: u32,
    pub machine: u32,
    pub vcpu: u32,
    pub cpu: u32,
    pub known: u32,
    pub held: u32,
    pub wait: u32,
    pub asked: u32,
    pub switches: u32,
    pub wait_lock: u64,
    pub wait_since: u64,
    pub held_lock: [u64; NAMED],
    pub held_ticket: [u16; NAMED],
    pub gate: u16,
    pub released_at: u64,
    pub held_word: [u32; NAMED],
    pub wait_word: u32,
    pub claimed: u64,
}

/// `struct memory`. The loader does not read the last two fields.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawMemory {
    pub slices: u64,
    pub lost: u64,
    pub lost_others: u64,
    pub hits: u64,
    pub misses: u64,
    pub kept: u64,
    pub reason: [u8; 64],
    pub message: [u8; 128],
    pub injector: [u64; 2],
    pub max_runtime_ns: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Names of fields and their offsets.
    type Layout = Vec<(String, usize)>;

    /// The layout of a structure of integers and arrays of integers in `scheduler/shared.h`.
    fn in_c(structure: &str) -> Layout {
        let (_, rest) = include_str!("../scheduler/shared.h")
            .split_once(&format!("\nstruct {structure} {{\n"))
            .expect("a structure of this name");
        let (body, _) = rest.split_once("\n};").expect("its end");
        let (mut layout, mut at) = (Layout::new(), 0);
        for line in body.lines().map(str::trim) {
            // Lines of comments begin with one of these characters.
            let Some(field) = line.strip_suffix(';').filter(|line| !line.starts_with(['/', '*']))
            else {
                continue;
            };
            let (kind, name) = field.split_once(' ').expect("a type and a name");
            let size = match kind {
                "u64" => 8,
                "u32" => 4,
                "u16" => 2,
                "char" => 1,
                _ => panic!("{structure}: {field}"),
            };
            let (name, count) =
                name.strip_suffix(']').unwrap_or(name).split_once('[').unwrap_or((name, "1"));
            let count = match count {
                "INTERVALS" => INTERVALS,
                "MAX_SLOTS" => MAX_SLOTS,
                "NAMED" => NAMED,
                "NAMED + 1" => NAMED + 1,
                number => number.parse().expect("a number"),
            };
            at = usize::next_multiple_of(at, size);
            layout.push((name.to_owned(), at));
            at += size * count;
        }
        layout
    }

    macro_rules! in_rust {
        ($structure:ty: $($field:ident)*) => {
            vec![$((stringify!($field).to_owned(), offset_of!($structure, $field))),*]
        };
    }

    #[test]
    fn constants_match_shared_h() {
        let in_c = |name: &str| {
            let lines = include_str!("../scheduler/shared.h").lines();
            let mut values = lines.filter_map(|line| {
                line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' ')
            });
            values.next().unwrap_or_default().parse().unwrap_or(0)
        };
        assert_eq!(in_c("MAX_MACHINES"), MAX_MACHINES);
        assert_eq!(in_c("MAX_SLOTS"), MAX_SLOTS as u32);
        assert_eq!(in_c("MAX_CPUS"), MAX_CPUS);
        assert_eq!(in_c("MAX_RANGES"), MAX_RANGES as u32);
        assert_eq!(in_c("INTERVALS"), INTERVALS as u32);
    }

    #[test]
    fn layouts_match_shared_h() {
        let settings = in_rust!(RawSettings: slice_ns grace_ns waiter_grace_ns round_ns hold_ns mean_ns seed
            interval_ns policy slots is_unsafe by_tid cpu);
        assert_eq!(in_c("settings"), settings);
        assert_eq!(in_c("seat"), in_rust!(RawSeat: machine vcpu));
        assert_eq!(in_c("range"), in_rust!(RawRange: guest size host));
        assert_eq!(in_c("counter"), in_rust!(RawCounter: offset khz));
        assert_eq!(in_c("reading"), in_rust!(RawReading: ns ticks check));
        let record = in_rust!(RawRecord: at_ns began_ns due_ns extended_ns kind end machine vcpu cpu known held wait asked
            switches wait_lock wait_since held_lock held_ticket gate released_at held_word wait_word claimed);
        assert_eq!(in_c("record"), record);
        // `struct memory` begins with the counters, followed by `exit_report`.
        let counters = in_rust!(RawMemory: slices lost lost_others hits misses kept);
        assert_eq!(in_c("counters"), counters);
        let from = offset_of!(RawMemory, reason);
        let report = in_rust!(RawMemory: reason message);
        let report: Layout = report.into_iter().map(|(name, at)| (name, at - from)).collect();
        assert_eq!(in_c("exit_report"), report);
    }
}
