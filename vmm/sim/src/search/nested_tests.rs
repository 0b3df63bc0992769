//! What no search finds, as simulated vCPUs have no interrupt handlers: here all CPUs act on one thread, and a
//! handler waits for a lock while its CPU waits for another.

/// What comes of a handler in a wait: is another CPU in the lock that is acquired, and how many halts did it take?
/// With the locks of one library.
macro_rules! nested {
    ($name:ident, $($locks:tt)*) => {
        mod $name {
            use std::cell::Cell;

            use $($locks)*::{Cpu, Handoff, Pv, PvTicketLock, RawLock, Unwatched, WaitTable};

            struct Stage {
                lock: PvTicketLock,
                of_handler: PvTicketLock,
                waiters: WaitTable,
                halts: Cell<u32>,
                is_held: Cell<bool>,
            }

            impl Stage {
                fn cpu(&self, id: usize) -> Cpu<'_, Self> {
                    let (waiters, handoff) = (&self.waiters, Handoff::default());
                    Cpu { id, spin_threshold: 0, pv: self, waiters, watch: Unwatched, handoff }
                }

                /// CPU 1 is interrupted in its halt.
                fn interrupt(&self) {
                    self.of_handler.lock(&self.cpu(1));
                    self.of_handler.unlock(&self.cpu(1));
                }
            }

            impl Pv for Stage {
                fn spin_hint(&self) {
                    panic!("with no threshold it halts at once");
                }

                fn lock_spinning(&self, _: u16) {
                    let halts = self.halts.get();
                    self.halts.set(halts + 1);
                    match halts {
                        0 => self.interrupt(),
                        1 => _ = self.of_handler.unlock(&self.cpu(2)),
                        _ => {
                            self.is_held.set(false);
                            self.lock.unlock(&self.cpu(0));
                        }
                    }
                }

                fn unlock_kick(&self, _: usize) {}
            }

            pub(super) fn found() -> (bool, u32) {
                let stage = Stage {
                    lock: PvTicketLock::new(),
                    of_handler: PvTicketLock::new(),
                    waiters: WaitTable::new(),
                    halts: Cell::new(0),
                    is_held: Cell::new(true),
                };
                stage.lock.lock(&stage.cpu(0));
                stage.of_handler.lock(&stage.cpu(2));
                stage.lock.lock(&stage.cpu(1));
                (stage.is_held.get(), stage.halts.get())
            }
        }
    };
}

nested!(product, simulated_locks);
nested!(wrong, crate::search::mutants::a_wait_that_an_interrupt_has_nested_in_goes_in::locks);

#[test]
fn two_holders_after_a_nested_interrupt_are_seen_without_a_search() {
    assert_eq!(product::found(), (false, 3));
    assert_eq!(wrong::found(), (true, 2), "in together with the holder");
}
