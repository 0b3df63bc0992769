//! The steal-time record of a Linux guest's vCPU, written by the VMM instead of KVM (MSR_KVM_STEAL_TIME in
//! Documentation/virt/kvm/x86/msr.rst): state and time in, stores out.

use base::units::{Gpa, Nanos};
use thiserror::Error;

use super::table::State;

/// Bit 0 of the MSR: the record at the address above it is in use.
const ENABLED: u64 = 1;

/// Bits that must be zero: a record has 64 bytes, and is aligned.
const RESERVED: u64 = 0x3e;

/// A value of the MSR with a reserved bit: the guest takes #GP, as with KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("reserved bits of the steal-time MSR are set")]
pub struct ReservedBits;

/// A store to the guest's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// `steal`, in nanoseconds.
    Steal(u64),
    /// `version`: odd while `steal` is written.
    Version(u32),
    /// `preempted`. KVM_VCPU_FLUSH_TLB, which a guest may set in it, is not offered.
    Preempted(bool),
}

impl Store {
    /// Returns the field's offset in bytes.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Steal(_) => 0,
            Self::Version(_) => 8,
            Self::Preempted(_) => 16,
        }
    }
}

/// The record of one vCPU. Only this side writes it, so its contents are not read from the guest.
#[derive(Debug, Default, Clone)]
pub struct StealRecord {
    /// The MSR's value.
    msr: u64,
    version: u32,
    preempted: bool,
    /// The vCPU's ready time when its guest first enabled the record. `steal` counts from there.
    base: Option<Nanos>,
}

impl StealRecord {
    /// Returns the value that the guest has written to the MSR.
    pub const fn msr(&self) -> u64 {
        self.msr
    }

    /// Handles the guest's write to the MSR. Its vCPU has a slot. `store` ignores an address without memory, as KVM
    /// does.
    pub fn set_msr(
        &mut self,
        value: u64,
        ready_time: Nanos,
        store: impl FnMut(Gpa, Store),
    ) -> Result<(), ReservedBits> {
        if value & RESERVED != 0 {
            return Err(ReservedBits);
        }
        self.msr = value;
        if value & ENABLED != 0 {
            self.base.get_or_insert(ready_time);
            self.begin_slice(ready_time, store);
        }
        Ok(())
    }

    /// Updates the record of a vCPU in this state, which has been ready without a slot for `ready_time` so far.
    pub fn update(&mut self, state: State, ready_time: Nanos, mut store: impl FnMut(Gpa, Store)) {
        let preempted = matches!(state, State::Ready | State::Held(_));
        if self.msr & ENABLED == 0 || preempted == self.preempted {
            return;
        }
        if preempted {
            self.preempted = true;
            store(self.address(), Store::Preempted(true));
        } else {
            self.begin_slice(ready_time, store);
        }
    }

    fn begin_slice(&mut self, ready_time: Nanos, mut store: impl FnMut(Gpa, Store)) {
        let stolen = ready_time.since(self.base.unwrap_or_default());
        let (odd, even) = (self.version.wrapping_add(1), self.version.wrapping_add(2));
        (self.preempted, self.version) = (false, even);
        for field in [
            Store::Preempted(false),
            Store::Version(odd),
            Store::Steal(stolen.0),
            Store::Version(even),
        ] {
            store(self.address(), field);
        }
    }

    const fn address(&self) -> Gpa {
        Gpa(self.msr & !ENABLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::SlotId;

    const RUNNING: State = State::Running(SlotId(0));

    /// The guest's memory, as a kernel reads it: the version before and after `steal`.
    #[derive(Debug, Default, PartialEq)]
    struct Guest {
        steal: u64,
        version: u32,
        preempted: bool,
        seen: Vec<u64>,
    }

    impl Guest {
        fn store(&mut self, at: Gpa, store: Store) {
            assert_eq!(at, Gpa(0x1040));
            match store {
                Store::Steal(steal) => self.steal = steal,
                Store::Version(version) => self.version = version,
                Store::Preempted(preempted) => self.preempted = preempted,
            }
            if self.version.is_multiple_of(2) {
                self.seen.push(self.steal);
            }
        }
    }

    fn enabled(guest: &mut Guest, ready: u64) -> StealRecord {
        let mut record = StealRecord::default();
        let store = |at, field| guest.store(at, field);
        record.set_msr(0x1041, Nanos(ready), store).unwrap();
        record
    }

    #[test]
    fn msr_values_are_accepted_as_by_kvm() {
        let reserved = (1..6).map(|bit| (0x1041 | 1 << bit, None));
        let others = [
            (0, Some(0)),
            (0x1041, Some(4)),
            (0x1040, Some(0)),            // disabled
            (1, Some(4)),                 // address 0
            (u64::MAX << 6 | 1, Some(4)), // no memory
            (0x1060, None),               // reserved, also while disabled
            (u64::MAX, None),
        ];
        for (value, stores) in reserved.chain(others) {
            let (mut record, mut count) = (StealRecord::default(), 0);
            let result = record.set_msr(value, Nanos(0), |_, _| count += 1);
            assert_eq!(result.ok().map(|()| count), stores, "{value:#x}");
            assert_eq!(record.msr(), if stores.is_some() { value } else { 0 }, "{value:#x}");
        }
    }

    #[test]
    fn steal_counts_waits_since_the_record_was_enabled() {
        let mut guest = Guest::default();
        let mut record = enabled(&mut guest, 700);
        let mut update =
            |state, ready| record.update(state, Nanos(ready), |at, field| guest.store(at, field));
        for (state, ready) in [(State::Ready, 700), (RUNNING, 900), (State::Held(Nanos(9)), 900)] {
            update(state, ready);
        }
        update(RUNNING, 1_000);
        assert_eq!((guest.steal, guest.version, guest.preempted), (300, 6, false));
        // No reader sees another value.
        guest.seen.dedup();
        assert_eq!(guest.seen, [0, 200, 300]);
    }

    #[test]
    fn preempted_is_set_exactly_while_ready_without_a_slot() {
        let mut guest = Guest::default();
        let mut record = enabled(&mut guest, 0);
        for (state, preempted) in [
            (State::Ready, true),
            (State::Held(Nanos(5)), true),
            (State::Ready, true),
            (RUNNING, false),
            (State::Halted, false),
            (State::Ready, true),
            (RUNNING, false),
            (State::Idle, false),
            (State::Exited, false),
        ] {
            record.update(state, Nanos(0), |at, field| guest.store(at, field));
            assert_eq!(guest.preempted, preempted, "{state:?}");
        }
    }

    #[test]
    fn only_changes_of_an_enabled_record_are_stored() {
        let mut stores = 0;
        let mut record = StealRecord::default();
        record.update(State::Ready, Nanos(1), |_, _| stores += 1);
        assert_eq!(stores, 0, "not enabled");
        record.set_msr(0x1041, Nanos(1), |_, _| stores += 1).unwrap();
        record.update(RUNNING, Nanos(1), |_, _| stores += 1);
        assert_eq!(stores, 4, "it has run since");
        record.set_msr(0x1040, Nanos(1), |_, _| stores += 1).unwrap();
        record.update(State::Ready, Nanos(2), |_, _| stores += 1);
        assert_eq!(stores, 4, "disabled again");
    }

    /// A CPU that goes offline and comes back has the same clock: its kernel subtracts the earlier value.
    #[test]
    fn steal_does_not_go_back_when_it_is_enabled_again() {
        let mut guest = Guest::default();
        let mut record = enabled(&mut guest, 100);
        for (msr, ready) in [(0x1040, 300), (0x1041, 400)] {
            let store = |at, field| guest.store(at, field);
            record.set_msr(msr, Nanos(ready), store).unwrap();
        }
        assert_eq!(guest.steal, 300);
    }
}
