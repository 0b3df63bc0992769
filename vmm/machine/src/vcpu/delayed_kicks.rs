//! The thread that delivers kicks delayed by fault injection.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use confine::Class;
use sched::halts::PendingKicks;

use super::VcpuShared;
use crate::clock::Moment;

const STACK_BYTES: usize = 128 << 10;

/// Starts the thread, which ends when the machine stops and the thread is unparked.
pub fn start(shared: Arc<VcpuShared>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("courier".into()).stack_size(STACK_BYTES).spawn(move || {
        confine::enter(Class::DelayedKicks);
        let mut pending = PendingKicks::default();
        shared.kicks.register_delivery_thread(thread::current());
        while !shared.is_stopping() {
            let now = Moment::now().nanos();
            match shared.kicks.deliver_due(&mut pending, now) {
                Some(due) => thread::park_timeout(Duration::from_nanos(due.since(now).0)),
                None => thread::park(),
            }
        }
    })
}
